"""Files that once ended the process, hung, or raised an error that is none of the library: all are refused."""

import bz2
import dataclasses
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from bagwise import BagwiseError, Hierarchy, LatentDirichlet, ManifoldBagOfFeatures, merge_words, open_collection
from bagwise._utils.matrices import checked_csr
from bagwise.merging import Sketch, Statistics
from bagwise.merging.criteria.base import TraceRatio
from bagwise.merging.structures import GraphLaplacian, TotalScatter


def nameless():
    """A zip archive with a file without a name."""
    packed, info = io.BytesIO(), zipfile.ZipInfo("x")
    info.filename = ""
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr(info, b"text")
    return packed.getvalue()


def npz(**arrays):
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    return packed.getvalue()


def workbook():
    """An Excel file that claims row 2**31."""
    import openpyxl

    book, packed = openpyxl.Workbook(), io.BytesIO()
    for row in (["text", "label"], ["apple", "x"], ["pear", "y"]):
        book.active.append(row)
    book.save(packed)
    changed = io.BytesIO()
    with zipfile.ZipFile(packed) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("sheet1.xml"):
                content = content.replace(b'<row r="3">', b'<row r="2147483648">').replace(
                    b'r="A3"', b'r="A2147483648"'
                )
            new.writestr(name, content)
    return changed.getvalue()


MTX = b"%%MatrixMarket matrix "
FOUND = {
    "no rows.mtx": MTX + b"array integer general\n0 3\n",
    "garbage.mtx": MTX + b"array real general\n2 2\n1\n2\n3\n4\xff\xff\x00\x00\x00",
    "fewer numbers.mtx": MTX + b"array real general\n3 3\n1\n2\n",
    "no sizes.mtx": MTX + b"coordinate real general\n%\n%",
    "huge.mtx": MTX + b"coordinate real general\n" + b"9" * 30 + b" 1 1\n1 1 1\n",
    "long label.csv": b"text,label\n" + b"abc,x\n" * 10 + b"abc," + b"y" * 100_000 + b"\n",
    "underflow.mtx": MTX + b"coordinate integer general\n2 2 1\n1 1 1e-320",
    "complex.mtx": MTX + b"array complex general\n1 1\n1 1\n",
    "rows.npz": npz(format=np.array("csr"), shape=[2, 2], data=[], indices=[], indptr=[0, 9, 0]),
    "diagonals.npz": npz(format=np.array("dia"), shape=[2, 2], data=np.ones((1, 2)), offsets=[0]),
    "rows.xlsx": workbook(),
    "infinite.svmlight": b"inf 1:1\n1 1:nan\n",
    "format.npz": npz(format=np.array("xyz"), shape=np.array([2, 2]), data=np.ones(2)),
    "damaged.tar.bz2": bz2.compress(bytes(10_000))[:-20] + b"\xff" * 20,
    "nameless.zip": nameless(),
}


@pytest.mark.parametrize("name", FOUND)
def test_files_of_others_are_refused(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(FOUND[name])
    with pytest.raises(BagwiseError, match=name):
        open_collection(path)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r\n\r\n", "\n \n"])
@pytest.mark.parametrize("last", ["", "\n", "\r"])
def test_unusual_ends_of_lines_of_matrices_are_read(end, last, tmp_path):
    lines = ["%%MatrixMarket matrix coordinate integer general", "% a note", "2 3 3", "1 1 4", "2 2 -5", "1 3 6"]
    (tmp_path / "a.mtx").write_bytes((end.join(lines) + last).encode())
    assert open_collection(tmp_path / "a.mtx").X.toarray().tolist() == [[4, 0, 6], [0, -5, 0]]


X = np.random.default_rng(0).poisson(3, (40, 200)).astype(np.float64)


@pytest.mark.parametrize("part", ["gram", "class_sums", "deviations"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_statistics_that_are_not_finite_are_refused(part, value):
    sums = Statistics.of(X, np.arange(len(X)) % 3, 3, gram=True)
    changed = getattr(sums, part).copy()
    changed.flat[3] = value
    with pytest.raises(BagwiseError, match=f"{part} must hold finite numbers"):
        dataclasses.replace(sums, **{part: changed})


def test_statistics_whose_squares_are_infinite_are_refused():
    sums = Statistics.of(X, np.arange(len(X)) % 3, 3, gram=True)
    large = dataclasses.replace(sums, class_sums=sums.class_sums * 1e200)
    with pytest.raises(BagwiseError, match=r"The preferred matrix of csm holds .* for the words"):
        merge_words(large, criterion="csm")


def test_matrices_of_other_criteria_that_are_not_finite_are_refused():
    weights = np.ones((len(X), len(X)))
    weights[3, 4] = weights[4, 3] = np.nan

    class Broken(TraceRatio):
        name = "broken"
        supervised = False

        def structures(self, X, y, n_threads=1):
            return TotalScatter(np.ones(len(X))), GraphLaplacian(sp.csr_array(weights))

    with pytest.raises(BagwiseError, match="The undesired matrix of Broken holds nan"):
        merge_words(X, criterion=Broken())


@pytest.mark.parametrize(
    ("indices", "indptr", "message"),
    [
        ([0, 1], [0, 1, 3], "do not rise"),
        ([0, 1], [0, 2, 1], "do not rise"),
        ([0, 1], [1, 1, 2], "do not rise"),
        ([0, 1], [0, 2], "do not rise"),
        ([0, 2], [0, 1, 2], "in column 0 or 2"),
        ([-1, 0], [0, 1, 2], "in column -1 or 0"),
        ([1, 0], [0, 2, 2], "must rise"),
        ([1, 1], [0, 0, 2], "must rise"),
    ],
)
def test_lists_of_a_sparse_matrix_are_checked(indices, indptr, message):
    with pytest.raises(BagwiseError, match=message):
        checked_csr(np.ones(2), np.array(indices), np.array(indptr), (2, 2))
    assert checked_csr(np.ones(2), np.array([1, 0]), np.array([0, 1, 2]), (2, 2)).toarray().tolist() == [[0, 1], [1, 0]]
    assert checked_csr(np.ones(2), np.array([0, 1]), np.array([0, 2, 2]), (2, 2)).nnz == 2


def with_parameters(path, change):
    """Change parameters in the header of a file."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    entries = json.loads(content[8 : 8 + length])
    about = json.loads(entries["__metadata__"]["bagwise"])
    held = about.get("parameters", about)
    held |= change
    entries["__metadata__"]["bagwise"] = json.dumps(about)
    header = json.dumps(entries).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + length :])


@pytest.mark.parametrize(
    ("name", "load", "change"),
    [
        ("stream.sketch", Sketch.load, {"n_hashes": 2**62}),
        ("stream.sketch", Sketch.load, {"dtype": "\ud800"}),
        ("merges.hierarchy", Hierarchy.load, {"n_words": 2**63 - 1}),
        ("words.topics", LatentDirichlet.load, {"n_jobs": 0}),
        ("words.topics", LatentDirichlet.load, {"max_doc_update_iter": 10**400}),
        ("words.topics", LatentDirichlet.load, {"topic_word_prior": "\x00"}),
        ("words.manifold", ManifoldBagOfFeatures.load, {"bandwidth": 10**400}),
        ("words.manifold", ManifoldBagOfFeatures.load, {"scale": float("inf")}),
    ],
)
def test_absurd_parameters_in_files_are_refused(name, load, change, tmp_path):
    path = tmp_path / name
    path.write_bytes(Path(__file__).parents[1].joinpath("models/files1", name).read_bytes())
    load(path)
    with_parameters(path, change)
    with pytest.raises(BagwiseError, match=name) as caught:
        load(path)
    assert next(iter(change)) in str(caught.value) or "claims" in str(caught.value)
