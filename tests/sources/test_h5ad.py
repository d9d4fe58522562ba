"""Files of AnnData: what is read, what is refused, and what a damaged file does."""

import subprocess
import sys

import h5py
import numpy as np
import pytest
import scipy.sparse as sp

from bagwise import BagwiseError, datasets, open_collection
from bagwise.errors import named_by
from bagwise.sources import Limits, h5ad

N, D = 6, 4
COUNTS = np.array([[0, 3, 0, 1], [2, 0, 0, 0], [0, 0, 5, 0], [1, 1, 0, 0], [0, 0, 0, 7], [4, 0, 2, 0]], np.float32)
TEXT = h5py.string_dtype()


@pytest.fixture
def path(tmp_path):
    """A file as anndata writes it, with a dense matrix, a CSC layer, raw counts, and labels of several kinds."""
    path = tmp_path / "cells.h5ad"
    with h5py.File(path, "w") as file:
        file["X"] = np.log1p(COUNTS)
        _write_sparse(file.create_group("layers/counts"), sp.csc_array(COUNTS))
        _write_sparse(file.create_group("raw/X"), sp.csr_array(COUNTS), ">i4")
        for place, names in (("obs", [f"cell{k}" for k in range(N)]), ("var", list("abcd")), ("raw/var", list("wxyz"))):
            group = file.create_group(place)
            group.attrs["_index"] = "names"
            group.create_dataset("names", data=names, dtype=TEXT)
        obs = file["obs"]
        kinds = obs.create_group("kind")
        kinds["codes"] = np.array([0, 1, 0, -1, 1, 0], np.int8)
        kinds.create_dataset("categories", data=["T", "B"], dtype=TEXT)
        obs["batch"] = np.array([1.0, 1, 2, 2, 3, 3])
        nullable = obs.create_group("donor")
        nullable["values"] = np.array([7, 8, 9, 7, 8, 9])
        nullable["mask"] = np.array([False, True, False, False, False, False])
        obs["old"] = np.array([1, 0, 1, 0, 1, 0], np.int8)
        obs.create_dataset("__categories/old", data=["no", "yes"], dtype=TEXT)
        obs["fixed"] = np.array([b"train"] * 4 + [b"test"] * 2)
    return path


def _write_sparse(group, matrix, dtype=None):
    group.attrs["encoding-type"], group.attrs["shape"] = f"{matrix.format}_matrix", matrix.shape
    for name in ("data", "indices", "indptr"):
        values = getattr(matrix, name)
        values = values.astype(dtype or values.dtype) if name == "data" else values
        group.create_dataset(name, data=values, compression="gzip")


def read(path, limits=None, **options):
    """Read a file as the other process does, in this one."""
    chosen = dict.fromkeys(("label", "id", "split", "layer")) | options
    with open(path, "rb") as file:
        parts = {
            name: value[()] if isinstance(value, h5py.Dataset) else value
            for name, value in h5ad.read_parts(file, limits or Limits(), **chosen)
        }
    return h5ad._table(parts)


def test_a_written_data_set_is_read_by_the_other_process(tmp_path):
    cells = datasets.make_cells(21, n_genes=100)
    opened = open_collection(datasets.write_dataset(cells, tmp_path / "cells.h5ad"))
    assert sp.issparse(opened.X)
    assert (cells.data != opened.X).nnz == 0
    assert opened.feature_names == cells.feature_names
    assert opened.labels.tolist() == [cells.target_names[k] for k in cells.target]


@pytest.mark.parametrize(
    ("options", "labels"),
    [
        ({"label": "kind"}, ["T", "B", "T", "", "B", "T"]),
        ({"label": "batch"}, ["1", "1", "2", "2", "3", "3"]),
        ({"label": "donor"}, ["7", "", "9", "7", "8", "9"]),
        ({"label": "old"}, ["yes", "no", "yes", "no", "yes", "no"]),
        ({}, None),
    ],
)
def test_columns_of_every_kind_are_labels(options, labels, path):
    table = read(path, **options)
    assert table.labels == labels
    assert table.ids == [f"cell{k}" for k in range(N)]
    np.testing.assert_array_equal(table.X, np.log1p(COUNTS))


@pytest.mark.parametrize(("layer", "names"), [("counts", "abcd"), ("raw", "wxyz")])
def test_layers_are_the_same_matrix(layer, names, path):
    table = read(path, layer=layer, split="fixed")
    assert table.X.format == "csr"
    np.testing.assert_array_equal(table.X.toarray(), COUNTS)
    assert table.feature_names == list(names)
    assert table.splits == ["train"] * 4 + ["test"] * 2


def test_notes_name_layers_and_likely_labels(path):
    assert read(path).notes == ("The matrix X is read; there are layers 'counts', 'raw', chosen by layer=.",)
    assert h5ad.label_notes({"kind": 2, "many": 900}, 1000, None)[0].endswith(
        "If 'kind' holds the labels: label='kind'"
    )
    assert h5ad.label_notes({"kind": 2}, 1000, "kind") == []


def test_strings_that_are_read_piece_by_piece_join_to_the_whole(path, monkeypatch):
    whole = read(path, label="kind")
    monkeypatch.setattr(h5ad, "_STRINGS", 2)
    parts = read(path, label="kind")
    assert (parts.labels, parts.ids, parts.feature_names) == (whole.labels, whole.ids, whole.feature_names)


@pytest.mark.parametrize("strings", [[], [""], ["", ""], ["a", "", "é\n", "\ud800", "b c"]])
def test_joined_strings_are_split_as_they_were(strings):
    assert h5ad._split(h5ad._joined(strings)) == strings


def test_names_that_are_there_twice_differ_afterwards(path):
    with h5py.File(path, "a") as file:
        file["var/names"][...] = ["a", "b", "a", "a-1"]
        file["obs/names"][...] = ["cell"] * N
    table = read(path)
    assert table.feature_names == ["a", "b", "a-2", "a-1"]
    assert table.ids is None


def change(path, how):
    with h5py.File(path, "a") as file:
        how(file)


def replaced(name, data, **attributes):
    def how(file):
        del file[name]
        file[name] = data
        for key, value in attributes.items():
            file[name].attrs[key] = value

    return how


def external_link(file):
    del file["obs/kind"]
    file["obs/kind"] = h5py.ExternalLink("/etc/other.h5", "/x")


def external_data(file):
    del file["X"]
    file.create_dataset("X", (N, D), np.uint8, external=[("/etc/passwd", 0, N * D)])


def virtual(file):
    layout = h5py.VirtualLayout((N, D), np.float32)
    layout[:] = h5py.VirtualSource("other.h5", "x", (N, D))
    del file["X"]
    file.create_virtual_dataset("X", layout)


def large_chunks(file):
    del file["X"]
    file.create_dataset("X", (N, D), np.float32, chunks=(2000, 20000), maxshape=(None, None))


@pytest.mark.parametrize(
    ("how", "options", "error"),
    [
        (external_link, {"label": "kind"}, "a link, which is not followed"),
        (external_data, {}, "stored in other files"),
        (virtual, {}, "stored in other files"),
        (large_chunks, {}, "'X' claims 160.* limit table_bytes"),
        (replaced("X", np.zeros((N, D + 1))), {}, r"shape \(6, 5\), but obs and var have \(6, 4\)"),
        (replaced("X", np.zeros(N)), {}, "claims the shape"),
        (replaced("X", np.zeros((N, D), complex)), {}, "complex128, which is not expected"),
        (replaced("obs", np.zeros(N)), {}, "before 0.7 are not read"),
        (replaced("obs/kind/codes", np.full(N, 2)), {"label": "kind"}, "beyond the 2 categories"),
        (replaced("obs/batch", np.zeros(3)), {"label": "batch"}, "has not 6 rows"),
        (replaced("layers/counts/indices", np.full(10, 99)), {"layer": "counts"}, "it is damaged: "),
        (replaced("layers/counts/indptr", np.array([0, 9, 2, 3, 10])), {"layer": "counts"}, "it is damaged: "),
        (lambda file: file["raw/X"].attrs.modify("shape", (1 << 40, D)), {"layer": "raw"}, "limit rows"),
        (lambda file: file["raw/X"].attrs.modify("encoding-type", "dok"), {"layer": "raw"}, "of the kind 'dok'"),
        (lambda file: file["obs"].attrs.modify("_index", "gone"), {}, "'gone' is missing"),
        (lambda file: file.pop("X"), {}, "no matrix X. Choose a layer by layer=: 'counts', 'raw'"),
        (lambda file: file.pop("obs"), {}, "'obs' is missing"),
        (lambda file: None, {"label": "gone"}, "in obs there is no column 'gone'"),
        (lambda file: None, {"layer": "gone"}, "no layer 'gone'; there are 'counts', 'raw'"),
    ],
)
def test_what_is_wrong_is_refused(how, options, error, path):
    change(path, how)
    with pytest.raises(BagwiseError, match=error):
        read(path, Limits(table_bytes=10_000_000), **options)


def test_many_names_of_the_same_bytes_are_refused(path):
    """Each of many strings may be the same long one, which takes little of the file."""
    with h5py.File(path, "a") as file:
        del file["obs/names"]
        file["obs"].create_dataset("names", data=["x" * 100_000] * N, dtype=TEXT)
    with pytest.raises(BagwiseError, match="limit table_bytes"):
        read(path, Limits(table_bytes=300_000))


@pytest.mark.parametrize("content", [b"", b"no HDF5", b"\x89HDF\r\n\x1a\n" + bytes(500)])
def test_other_files_are_refused(content, tmp_path):
    path = tmp_path / "x.h5ad"
    path.write_bytes(content)
    with pytest.raises(BagwiseError, match=r"not an .h5ad file, or damaged"):
        read(path)


def test_a_process_that_fails_or_hangs_is_an_error(path, monkeypatch):
    start = subprocess.Popen

    def other(code):
        monkeypatch.setattr(subprocess, "Popen", lambda command, **given: start([*command[:2], code], **given))

    other("import os; os.abort()")
    with pytest.raises(BagwiseError, match=r"cells.h5ad cannot be read: it is damaged: the HDF5 library failed"):
        open_collection(path)
    other("import time; time.sleep(60)")
    with pytest.raises(BagwiseError, match="limit seconds"):
        open_collection(path, limits=Limits(seconds=0.5))


def test_messages_of_the_other_process_name_options(path):
    change(path, lambda file: file.pop("X"))
    with named_by("--{}".format), pytest.raises(BagwiseError, match="Choose a layer by --layer: 'counts'"):
        open_collection(path)


def test_the_extra_is_named(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(BagwiseError, match=r'pip install "bagwise\[anndata\]"'):
        read(path)


def test_files_of_anndata(tmp_path):
    anndata = pytest.importorskip("anndata")
    cells = datasets.make_cells(21, n_genes=100)
    data = anndata.read_h5ad(datasets.write_dataset(cells, tmp_path / "ours.h5ad"))
    assert (cells.data != data.X).nnz == 0
    assert data.var_names.tolist() == cells.feature_names
    data.layers["counts"] = data.X.tocsc()
    data.raw = data.copy()
    data.write_h5ad(tmp_path / "theirs.h5ad")
    for layer in (None, "counts", "raw"):
        table = read(tmp_path / "theirs.h5ad", layer=layer)
        assert (cells.data != table.X).nnz == 0
        assert table.labels == data.obs["label"].tolist()
