"""Features written while items are read: as `Model.transform`, whole or not at all."""

import io
import json

import fsspec
import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from bagwise import BagwiseError, Model, open_collection
from bagwise._io.storage import Storage
from bagwise.app.model import write_features
from bagwise.app.model.feature_sets import SUCCESS
from bagwise.distributed.executors import LocalExecutor
from bagwise.sources.items import NothingReadError
from model_cases import MADE
from small_sources import write_text_folder


@pytest.fixture(scope="module")
def model():
    return next(made for made in (make() for make in MADE.values()) if made.modality == "texts")


@pytest.fixture
def items(tmp_path):
    return open_collection(write_text_folder(tmp_path / "texts", n_each=4))


def tables(out):
    storage = Storage.of(out)
    parts = [name for name in storage.names() if name != SUCCESS]
    return [pq.read_table(io.BytesIO(storage.read(name))) for name in sorted(parts)]


def matrix_of(table, model):
    return np.stack([table.column(name).to_numpy() for name in table.column_names[2:]], axis=1)


@pytest.mark.parametrize("where", ["path", "url"])
def test_a_file_has_row_groups_that_are_the_features(model, items, tmp_path, where):
    out = str(tmp_path / "f.parquet") if where == "path" else "memory://features/f.parquet"
    written = write_features(model, items, out, rows_per_part=5)
    expected = model.transform(items).toarray()
    assert (written.n_items, written.n_features) == expected.shape
    with fsspec.open(out if where == "url" else f"file://{out}") as file:
        found = pq.ParquetFile(file)
        assert [found.metadata.row_group(k).num_rows for k in range(found.num_row_groups)] == [5, 5, 2]
        table = found.read()
    assert table.column("id").to_pylist() == items.ids
    assert table.column("label").to_pylist() == items.labels.tolist()
    np.testing.assert_array_equal(matrix_of(table, model), expected)
    again = open_collection(out)
    np.testing.assert_allclose(again.X, expected)
    assert (again.ids, again.labels.tolist()) == (items.ids, items.labels.tolist())


@pytest.mark.parametrize("where", ["path", "url"])
def test_a_data_set_is_whole_or_not_there(model, items, tmp_path, where):
    out = str(tmp_path / "parts") if where == "path" else "memory://features/parts"

    def stop(step, done, total):
        if done > 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_features(model, items, out, rows_per_part=4, progress=stop)
    assert Storage.of(out).names() == []
    written = write_features(model, items, out, rows_per_part=4)
    assert (written.n_items, written.skipped) == (12, ())
    assert Storage.of(out).names() == [SUCCESS, *(f"part-{k:05}.parquet" for k in range(3))]
    np.testing.assert_array_equal(
        np.concatenate([matrix_of(table, model) for table in tables(out)]), model.transform(items).toarray()
    )
    again = open_collection(out)
    np.testing.assert_array_equal(again.X, model.transform(items).toarray())
    assert (list(again.ids), again.labels.tolist()) == (items.ids, items.labels.tolist())
    assert [len(part.open()) for part in again.partitions(2)] == [6, 6]
    with pytest.raises(BagwiseError, match="holds features already"):
        write_features(model, items[1:], out, rows_per_part=4)
    assert len(tables(out)) == 3
    write_features(model, items[1:5], out, rows_per_part=4, force=True)
    assert [table.num_rows for table in tables(out)] == [4]


def test_histograms_are_sparse(model, items, tmp_path):
    write_features(model, items, tmp_path / "h", histograms=True, rows_per_part=7)
    rows = []
    for table in tables(tmp_path / "h"):
        n_words = json.loads(table.schema.metadata[b"bagwise"])["n_words"]
        indptr = np.cumsum([0, *map(len, table.column("indices"))])
        values = [np.concatenate([np.array(one) for one in table.column(name).to_pylist()] or [[]])
                  for name in ("values", "indices")]  # fmt: skip
        rows.append(sp.csr_array((*values, indptr), shape=(table.num_rows, n_words)))
    np.testing.assert_array_equal(sp.vstack(rows).toarray(), model.histograms(items).toarray())


def test_items_that_cannot_be_read(model, items, tmp_path):
    for item in (items[0], items[1], items[5]):
        with open(item.content.path, "wb") as file:
            file.write(b"\xff\xfe\xff")
    written = write_features(model, items, tmp_path / "f", rows_per_part=2, on_error="skip")
    assert [one.id for one in written.skipped] == [items[k].id for k in (0, 1, 5)]
    assert written.n_items == 9
    for name in ("f.parquet", "g"):
        with pytest.raises(NothingReadError):
            write_features(model, items[:2], tmp_path / name, on_error="skip")
        with pytest.raises(BagwiseError, match="Cannot read"):
            write_features(model, items, tmp_path / name)
    assert not (tmp_path / "f.parquet").exists()


def test_other_folders_are_left_alone(model, items, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(BagwiseError, match=r"it holds notes\.txt"):
        write_features(model, items, tmp_path / "mine")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"


def test_models_are_loaded_by_url(model, tmp_path):
    content = model.save(tmp_path / "m.bagwise").read_bytes()
    system = fsspec.filesystem("memory")
    system.pipe_file("/models/m.bagwise", content)
    assert Model.load("memory://models/m.bagwise") == model
    system.pipe_file("/models/cut.bagwise", content[:-50])
    with pytest.raises(BagwiseError, match=r"^memory://models/cut.bagwise"):
        Model.load("memory://models/cut.bagwise")


@pytest.mark.parametrize("where", ["path", "url"])
def test_workers_write_the_same_parts(model, items, tmp_path, where, monkeypatch):
    out = tmp_path / "set" if where == "path" else "memory://sets/there"
    write_features(model, items, tmp_path / "here", rows_per_part=5)
    done, workers = [], LocalExecutor()

    def follow(step, n, total):
        done.append((n, total))

    assert write_features(model, items, out, rows_per_part=5, client=workers, progress=follow).n_items == 12
    assert done == [(0, 12), (5, 12), (10, 12), (12, 12)]
    here, there = Storage.of(tmp_path / "here"), Storage.of(out)
    assert {name: there.read(name) for name in there.names()} == {name: here.read(name) for name in here.names()}
    with pytest.raises(BagwiseError, match="Workers write the parts of a folder"):
        write_features(model, items, tmp_path / "f.parquet", client=workers)
    monkeypatch.setattr("bagwise.app.model.feature_sets._write_part", lambda *given: (1, []))
    with pytest.raises(BagwiseError, match=r"written part-00000.parquet, but .* does not have it here"):
        write_features(model, items, tmp_path / "elsewhere", client=workers)
