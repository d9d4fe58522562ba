"""Genes of AnnData into groups, with the package and with an object of the same interface."""

import numpy as np
import pandas as pd
import pytest

from bagwise import BagwiseError, Hierarchy, WordMerger
from bagwise.anndata import merge_genes
from sources.test_frames import Data, cells_of


@pytest.fixture(params=["stand-in", "anndata"])
def cells(request):
    return cells_of(Data if request.param == "stand-in" else pytest.importorskip("anndata").AnnData)


def test_groups_are_those_of_the_merger(cells):
    counts, data = cells
    merger = merge_genes(data, "cell_type", 12, layer="counts")
    y = np.array([counts.target_names[k] for k in counts.target])
    expected = WordMerger(12).fit(counts.data, y)
    np.testing.assert_array_equal(merger.labels_, expected.labels_)
    np.testing.assert_array_equal(data.var["bagwise"].astype(int), expected.labels_)
    np.testing.assert_array_equal(data.obsm["X_bagwise"], expected.transform(counts.data).toarray())
    held = data.uns["bagwise"]
    np.testing.assert_array_equal(held["scores"], expected.scores_)
    again = Hierarchy(len(held["genes"]), held["merges"], held["scores"])
    np.testing.assert_array_equal(again.cut(5), expected.cut(5).labels_)
    assert held["names"].tolist() == expected.get_feature_names_out(counts.feature_names).tolist()
    assert held["params"] == {"obs": "cell_type", "layer": "counts"}


def test_genes_that_are_left_out_have_no_group(cells):
    counts, data = cells
    data.var["highly_variable"] = np.arange(100) < 60
    merger = merge_genes(data, n_groups=7, mask_var="highly_variable", key="few", criterion="mmi")
    assert merger.n_features_in_ == 60
    assert data.var["few"].notna().tolist() == [True] * 60 + [False] * 40
    assert data.uns["few"]["genes"].tolist() == counts.feature_names[:60]
    assert data.obsm["X_few"].shape == (42, 7)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"obs": "gone"}, "adata.obs has no column 'gone'; there are 'cell_type', 'batch'"),
        ({"layer": "gone"}, "no layer 'gone'"),
        ({"layer": "raw"}, "to_adata"),
        ({"mask_var": "gone"}, "boolean column"),
        ({"obs": "partly"}, "3 cells have no 'partly'"),
    ],
)
def test_what_is_not_there_is_said(options, error):
    _, data = cells_of(Data)
    if options.get("obs") == "partly":
        data.obs["partly"] = pd.Categorical([None] * 3 + ["a"] * 39)
    with pytest.raises(BagwiseError, match=error):
        merge_genes(data, **options)
    assert not data.uns
    with pytest.raises(BagwiseError, match="got ndarray"):
        merge_genes(np.ones((3, 3)))


def test_what_is_written_can_be_saved(tmp_path):
    anndata = pytest.importorskip("anndata")
    _, data = cells_of(anndata.AnnData)
    merge_genes(data, "cell_type", 5)
    data.write_h5ad(tmp_path / "merged.h5ad")
    again = anndata.read_h5ad(tmp_path / "merged.h5ad")
    assert again.var["bagwise"].tolist() == data.var["bagwise"].tolist()
    np.testing.assert_array_equal(again.uns["bagwise"]["merges"], data.uns["bagwise"]["merges"])
    backed = anndata.read_h5ad(tmp_path / "merged.h5ad", backed="r")
    np.testing.assert_array_equal(merge_genes(backed, "cell_type", 5).labels_, data.var["bagwise"].astype(int))
    backed.file.close()
