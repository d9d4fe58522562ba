import pickle
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from bagwise import BagwiseError, open_collection
from bagwise.sources import Collection, Limits

X = np.array([[1.0, 0, 2.5], [0, 0, 3], [4, 5, 0], [0, 0, 1]])
Y = ["cat", "dog", "dog", "cat"]


def write(path, text):
    path.write_text(text)
    return path


def csv_text(delimiter=","):
    rows = [["a", "b", "label", "c"], *[[x[0], x[1], y, x[2]] for x, y in zip(X, Y, strict=True)]]
    return "\n".join(delimiter.join(map(str, row)) for row in rows)


def save_csv(path):
    write(path, csv_text())


def save_tsv(path):
    write(path, csv_text("\t"))


def save_parquet(path):
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1].astype(int), "label": Y, "c": X[:, 2]}), path)


def save_npz(path):
    np.savez(path, X=X, y=np.array(Y))


def save_svmlight(path):
    dump_svmlight_file(X, [0, 1, 1, 0], str(path), zero_based=False)


def save_sparse_npz(path):
    sp.save_npz(path, sp.csc_array(X))


def save_mtx(path):
    scipy.io.mmwrite(path, sp.coo_array(X))


@pytest.mark.parametrize(
    ("name", "save", "sparse", "labels"),
    [
        ("a.csv", save_csv, False, Y),
        ("a.tsv", save_tsv, False, Y),
        ("a.parquet", save_parquet, False, Y),
        ("a.npz", save_npz, False, Y),
        ("b.npz", save_sparse_npz, True, [None] * 4),
        ("a.mtx", save_mtx, True, [None] * 4),
        ("a.svmlight", save_svmlight, True, ["0", "1", "1", "0"]),
        ("a.svm", save_svmlight, True, ["0", "1", "1", "0"]),
    ],
)
def test_tables_give_back_what_was_written(tmp_path, name, save, sparse, labels):
    save(tmp_path / name)
    table = open_collection(tmp_path / name)
    assert isinstance(table, Collection)
    assert sp.issparse(table.X) == sparse
    if sparse:
        assert table.X.format == "csr"
    np.testing.assert_array_equal(table.X.toarray() if sparse else table.X, X)
    assert table.labels.tolist() == labels
    assert table.ids == ["0", "1", "2", "3"]
    assert table.feature_names == (["a", "b", "c"] if name in ("a.csv", "a.tsv", "a.parquet") else None)
    given = open_collection(tmp_path / name, labels=dict(zip(table.ids, Y, strict=True)))
    assert given.labels.tolist() == Y
    assert repr(given).startswith("<Collection: 4 rows, 2 classes, from ")


@pytest.mark.parametrize("name", ["a.npz", "b.npz"])
def test_choosing_rows(tmp_path, name):
    {"a.npz": save_npz, "b.npz": save_sparse_npz}[name](tmp_path / name)
    table = open_collection(tmp_path / name)
    dense = sp.csr_array(table.X).toarray()
    for key in (slice(1, 3), [3, 0], np.array([True, False, True, False])):
        chosen = table[key]
        np.testing.assert_array_equal(sp.csr_array(chosen.X).toarray(), dense[key])
        assert chosen.ids == np.array(table.ids)[key].tolist()
        for (item, row), expected in zip(chosen.load(), dense[key], strict=True):
            np.testing.assert_array_equal(row.toarray()[0] if sp.issparse(row) else row, expected)
            copy = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(item))))
            np.testing.assert_array_equal(
                sp.csr_array(np.atleast_2d(copy.load()) if name == "a.npz" else copy.load()).toarray()[0], expected
            )
            assert copy.fingerprint() == item.fingerprint()
    assert pickle.loads(pickle.dumps(table)) == table
    assert table != table[::-1]
    assert len({item.fingerprint() for item in table}) == 4
    assert len(pickle.dumps(table)) - len(pickle.dumps(table[:1])) < 3 * len(pickle.dumps(table[0]))


def test_train_and_test_arrays(tmp_path):
    images = np.arange(5 * 2 * 3, dtype=np.uint8).reshape(5, 2, 3)
    np.savez_compressed(tmp_path / "a.npz", x_train=images[:3], y_train=[0, 1, 2], X_test=images[3:], Y_test=[1.0, 1.5])
    train, test = open_collection(tmp_path / "a.npz").split()
    np.testing.assert_array_equal(train.X, images[:3].reshape(3, 6))
    np.testing.assert_array_equal(test.X, images[3:].reshape(2, 6))
    assert (train.labels.tolist(), test.labels.tolist()) == (["0", "1", "2"], ["1", "1.5"])
    assert test.ids == ["test:0", "test:1"]


def test_labels_of_arrays_that_are_missing_or_bytes(tmp_path):
    for labels, expected in (([1.0, np.nan, 2.5], ["1", None, "2.5"]), (["né".encode(), b"b", b""], ["né", "b", None])):
        np.savez(tmp_path / "a.npz", X=X[:3], y=labels)
        assert [item.label for item in open_collection(tmp_path / "a.npz")] == expected


def test_names_of_arrays_match_without_case(tmp_path):
    arrays = {"Data": X, "TARGET": Y, "IDs": list("dcba"), "Splits": ["Train"] * 4, "Feature_Names": list("uvw")}
    np.savez(tmp_path / "a.npz", **arrays)
    for options in ({}, {"data": "data", "label": "target"}):
        table = open_collection(tmp_path / "a.npz", **options)
        np.testing.assert_array_equal(table.X, X)
        assert (table.ids, table.labels.tolist(), table.feature_names) == (list("dcba"), Y, list("uvw"))
        assert table.splits == ["train"] * 4


def test_python_objects_are_never_loaded(tmp_path):
    class Evil:
        def __reduce__(self):
            return print, ("executed",)

    np.savez(tmp_path / "a.npz", X=np.array([[Evil()]], dtype=object))
    with pytest.raises(BagwiseError, match=r"holds Python objects, which are never loaded"):
        open_collection(tmp_path / "a.npz")


def test_sparse_indices_are_checked(tmp_path):
    np.savez(tmp_path / "a.npz", format=b"csr", shape=[2, 2], data=[1.0, 1], indices=[0, 9], indptr=[0, 1, 2])
    with pytest.raises(BagwiseError, match=r"a.npz cannot be read: it is damaged"):
        open_collection(tmp_path / "a.npz")


def test_bombs_are_refused(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros((1000, 1000)))
    with pytest.raises(BagwiseError, match=r"limit ratio is 200"):
        open_collection(tmp_path / "a.npz")


def test_arrays_that_cannot_be_used(tmp_path):
    path = tmp_path / "a.npz"
    for arrays, options, message in [
        ({"A": X}, {}, r"none of its arrays is named X; there are 'A'. Choose one by data="),
        ({"A": X}, {"data": "B"}, r"there is no array 'B'; there are 'A'\."),
        ({"X": X, "y": Y[:2]}, {}, r"it has 4 rows but 2 labels"),
        ({"X": X[0]}, {}, r"array 'X' has shape \(3,\); a table has a row per item"),
        ({"X": X, "y": X}, {}, r"labels have shape \(4, 3\)"),
        ({"X_train": X, "y_train": Y, "X_val": X}, {}, r"array 'X_val' has no labels beside it, such as 'y_val'"),
        ({"X": X.astype(complex)}, {}, r"its numbers are complex128"),
        ({"X": X[:0]}, {}, r"it has 0 rows and 3 columns"),
        (
            {"x_train": X, "y_train": Y, "x_test": X[:, :2], "y_test": Y},
            {},
            r"split .test., of shape \(4, 2\).*do not fit",
        ),
    ]:
        np.savez(path, **arrays)
        with pytest.raises(BagwiseError, match=message):
            open_collection(path, **options)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", "not an array")
    with pytest.raises(BagwiseError, match=r"it is damaged"):
        open_collection(path)


def test_limits_are_those_of_all_files_of_a_folder(tmp_path):
    for k in range(4):
        pq.write_table(pa.table({"a": np.arange(600.0), "b": np.ones(600)}), tmp_path / f"part-{k}.parquet")
    for limits, said in (
        (Limits(rows=1000), "rows is 1,000"),
        (Limits(table_bytes=30_000), "its files have .* table_bytes is"),
    ):
        with pytest.raises(BagwiseError, match=said):
            open_collection(tmp_path, limits=limits)
    assert len(open_collection(tmp_path)) == 2400
