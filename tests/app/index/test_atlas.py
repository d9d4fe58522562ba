"""Items on their map in a Parquet file: what is in it is what the index and the source hold."""

import dataclasses

import numpy as np
import pytest

from bagwise import BagwiseError, fit_model, open_collection
from bagwise.app import ItemIndex, write_atlas
from bagwise.app.index.item_index import index_of_fit
from bagwise.app.options import FitOptions
from commands import bagwise
from small_sources import write_image_folder, write_text_folder, zipped

parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def indexed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("atlas")
    source = write_text_folder(folder / "texts")
    fit = fit_model(source, n_groups=6, folds=2).fit_
    index = index_of_fit(fit, None, source, FitOptions()).with_map()
    return source, index, index.save(folder / "texts.index")


def test_columns_are_those_of_the_index_and_the_texts(indexed, tmp_path):
    source, index, path = indexed
    bagwise("export", path, "--atlas", tmp_path / "texts.parquet")
    found = parquet.read_table(tmp_path / "texts.parquet").to_pydict()
    assert list(found) == ["id", "x", "y", "cluster", "label", "prediction", "text"]
    assert tuple(found["id"]) == index.ids
    np.testing.assert_array_equal(np.array([found["x"], found["y"]], np.float32).T, index.map.points)
    assert found["cluster"] == index.map.clusters.tolist()
    opened = {item.id: item for item in open_collection(source)}
    assert found["text"] == [opened[id].load() for id in found["id"]]
    assert found["label"] == [opened[id].label for id in found["id"]]
    size = index.answers.sizes.index(index.model.n_groups)
    expected = [index.model.classes[k] for k in index.answers.top.predicted[size]]
    assert found["prediction"] == expected


def test_what_is_missing_is_said(indexed, tmp_path):
    source, index, path = indexed
    with pytest.raises(BagwiseError, match=r"must end in .parquet"):
        write_atlas(index, tmp_path / "x.csv")
    with pytest.raises(BagwiseError, match="no map"):
        write_atlas(dataclasses.replace(index, map=None), tmp_path / "x.parquet")
    gone = dataclasses.replace(index, source=str(tmp_path / "gone"))
    with pytest.raises(BagwiseError, match=r"cannot be read.*leave them out by texts=False"):
        write_atlas(gone, tmp_path / "x.parquet")
    with pytest.raises(BagwiseError, match="does not know where"):
        write_atlas(dataclasses.replace(index, source=""), tmp_path / "x.parquet")
    assert "--int8 of a model, --atlas of an index" in bagwise("export", path, code=1)
    assert not list(tmp_path.iterdir())
    assert "text" not in parquet.read_table(write_atlas(gone, tmp_path / "x.parquet", texts=False)).column_names
    assert "text" in parquet.read_table(write_atlas(gone, tmp_path / "y.parquet", source=source)).column_names


@pytest.mark.parametrize("archive", [False, True])
def test_images_have_paths_and_items_without_words_no_place(archive, tmp_path):
    source = write_image_folder(tmp_path / "images")
    source = zipped(source, tmp_path / "images.zip") if archive else source
    fit = fit_model(source, n_words=10, n_groups=4, folds=0, descriptor="patches").fit_
    index = index_of_fit(fit, None, source, FitOptions()).with_map()
    clusters = index.map.clusters.copy()
    clusters[1] = -1
    index = dataclasses.replace(index, map=dataclasses.replace(index.map, clusters=clusters))
    assert isinstance(index, ItemIndex)
    found = parquet.read_table(write_atlas(index, tmp_path / "x.parquet")).to_pydict()
    assert found["path"][0] == f"{source}{'!' if archive else '/'}{index.ids[0]}"
    assert (found["x"][1], found["y"][1], found["cluster"][1]) == (None, None, None)
