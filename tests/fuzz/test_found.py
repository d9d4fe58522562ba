"""Files that once ended the process, hung, or raised an error that is none of the library: all are refused."""

import bz2
import csv
import dataclasses
import io
import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from bagwise import (
    BagIndex,
    Bags,
    BagwiseError,
    Hierarchy,
    LatentDirichlet,
    ManifoldBagOfFeatures,
    Model,
    merge_words,
    open_collection,
    runtime,
)
from bagwise._utils.matrices import checked_csr
from bagwise.app import ItemIndex
from bagwise.app.cli.groups import _names as group_names
from bagwise.merging import Sketch, Statistics
from bagwise.merging.criteria.base import AdditiveScore, TraceRatio
from bagwise.merging.scoring import Information, Scoring
from bagwise.merging.structures import GraphLaplacian, TotalScatter
from changed_files import change_header, change_tensor
from saved_files import saved_files


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


@pytest.mark.parametrize(
    ("content", "message"),
    [("9" * 5000 + ",x", "must be numbers from 0, got '999"), ("0," + "x" * 200_000, "cannot be read as CSV")],
)
def test_lists_of_group_names_are_refused(content, message, tmp_path):
    (tmp_path / "names.csv").write_text(f"group,name\n{content}\n")
    before = csv.field_size_limit(1 << 17)  # other readers may have changed it
    try:
        with pytest.raises(BagwiseError, match=f"names.csv {message}"):
            group_names([str(tmp_path / "names.csv")], Model.load(saved_files()["texts.bagwise"]))
    finally:
        csv.field_size_limit(before)


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


def test_statistics_whose_sparse_matrix_points_outside_are_refused():
    sums = Statistics.of(sp.csr_array(X * (X > 5)), np.arange(len(X)) % 3, 3, gram=True)
    damaged = sums.gram.copy()
    damaged.indices[5] = 10**6
    with pytest.raises(BagwiseError, match="in column 0 or 1000000"):
        dataclasses.replace(sums, gram=damaged)


@pytest.mark.parametrize("part", ["class_sums", "frequencies"])
def test_statistics_of_counts_with_negative_sums_are_refused(part):
    found = Statistics.of([[2, 1, 0], [0, 1, 4]], [0, 1], 2, frequencies=True)
    wrong = getattr(found, part).copy()
    wrong[1, 2] *= -1
    with pytest.raises(BagwiseError, match=f"{part} of word 2 are negative, but no value of it is"):
        dataclasses.replace(found, **{part: wrong})


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


LOADERS = {
    "stream.sketch": Sketch.load,
    "merges.hierarchy": Hierarchy.load,
    "dense.statistics": Statistics.load,
    "words.topics": LatentDirichlet.load,
    "words.manifold": ManifoldBagOfFeatures.load,
    "cells.index": BagIndex.load,
    "places.bags": Bags.load,
    "items.index": ItemIndex.load,
    "texts.bagwise": Model.load,
}
DEEP = json.loads("[" * 400 + "]" * 400)


def copied(name, folder):
    """Copy a saved file, which its loader reads."""
    path = Path(shutil.copy(saved_files()[name], folder))
    LOADERS[name](path)
    return path


def put(where, value):
    """Make a change of a header: a member, or one of a member's."""

    def change(about):
        held = about
        for key in where[:-1]:
            held = held[key]
        held[where[-1]] = value

    return change


@pytest.mark.parametrize(
    ("name", "where", "value"),
    [
        ("stream.sketch", ["n_hashes"], 2**62),
        ("stream.sketch", ["dtype"], "\ud800"),
        ("stream.sketch", ["from_neighbors"], 2),
        ("merges.hierarchy", ["n_words"], 2**63 - 1),
        ("merges.hierarchy", ["n_words"], None),
        ("merges.hierarchy", ["criterion"], 3),
        ("dense.statistics", ["dtype"], [[]]),
        ("dense.statistics", ["sparse"], "no"),
        ("dense.statistics", ["n_labels"], 10**400),
        ("dense.statistics", ["unit"], 10**400),
        ("dense.statistics", ["unit"], -1),
        ("dense.statistics", ["classes"], ["x" * 10_000] + ["y"] * 10_000),
        ("words.topics", ["parameters"], [1]),
        ("words.topics", ["parameters", "n_jobs"], 0),
        ("words.topics", ["parameters", "max_doc_update_iter"], 2**31),
        ("words.topics", ["parameters", "max_doc_update_iter"], 10**400),
        ("words.topics", ["parameters", "topic_word_prior"], "\x00"),
        ("words.topics", ["n_updates"], -1),
        ("words.topics", ["n_iter"], 10**400),
        ("words.topics", ["solver"], [1]),
        ("words.topics", ["bound"], float("nan")),
        ("words.manifold", ["parameters", "bandwidth"], 10**400),
        ("words.manifold", ["parameters", "scale"], float("inf")),
        ("words.manifold", ["parameters", "target__x"], 1),
        ("words.manifold", ["parameters", "target"], [10**400]),
        ("cells.index", ["parameters", "n_candidates"], 10**400),
        ("cells.index", ["next_number"], 2**64),
        ("items.index", ["index.parameters", "n_probe"], 10**400),
        ("items.index", ["classes"], {"a": 1}),
        ("texts.bagwise", ["path", "errors"], [10**400]),
        ("texts.bagwise", ["tokenizer", "ngram_range"], [1, 10**400]),
        ("texts.bagwise", ["classes"], ["x" * 20_000, "y"]),
        *((name, ["deep"] if "bagwise" not in name else ["options"], DEEP) for name in LOADERS),
    ],
)
def test_absurd_fields_in_files_are_refused(name, where, value, tmp_path):
    path = copied(name, tmp_path)
    change_header(path, put(where, value))
    with pytest.raises(BagwiseError, match=path.name) as caught:
        LOADERS[name](path)
    assert len(str(caught.value)) < 1000
    if name.endswith(".bagwise") and where[0] != "path":  # which the runtime does not read
        with pytest.raises(runtime.ModelFileError, match=path.name):
            runtime.load(path)


def test_words_whose_squares_overflow_are_refused_by_both_readers(tmp_path):
    shutil.copy(saved_files()["images.bagwise"], tmp_path / "m.bagwise")
    change_tensor(tmp_path / "m.bagwise", "codebook", lambda held: held.put(0, 4e37))
    for load, error in ((Model.load, BagwiseError), (runtime.load, runtime.ModelFileError)):
        with pytest.raises(error, match=r"m.bagwise .*its codebook must be numbers below 1e\+16"):
            load(tmp_path / "m.bagwise")
    model = Model.load(saved_files()["images.bagwise"])
    large = dataclasses.replace(model, codebook=model.codebooks[0] * np.float32(1e30))
    with pytest.raises(BagwiseError, match="cannot be saved: its codebook"):
        large.save(tmp_path / "large.bagwise")


def test_names_take_their_own_width_whatever_a_file_claims(tmp_path):
    path = copied("dense.statistics", tmp_path)
    before = Statistics.load(path).classes
    change_header(path, put(["dtype"], "<U200000000"))
    assert Statistics.load(path).classes.nbytes <= 4 * before.nbytes


def test_what_is_too_deep_to_be_read_is_not_written(tmp_path):
    with pytest.raises(BagwiseError, match="nested in more than 64"):
        BagIndex(metadata={"a": DEEP}).save(tmp_path / "index")


@pytest.mark.parametrize("name", ["smallest", "largest"])
def test_extremes_that_are_no_numbers_are_refused(name, tmp_path):
    path = copied("dense.statistics", tmp_path)
    change_tensor(path, name, lambda held: held.put(0, np.nan))
    with pytest.raises(BagwiseError, match=f"dense.statistics .*{name} must hold numbers"):
        Statistics.load(path)


def test_negative_counts_reach_no_search():
    class Lost(AdditiveScore):
        name = "lost"
        supervised = False

        def scoring(self, X, y):
            return Information(np.array([X[k::3].sum(axis=0) for k in range(3)]).T - 150.0)

    with pytest.raises(BagwiseError, match="Counts must not be negative"):
        merge_words(X[:, :20], criterion=Lost())


class Sums(Scoring):
    def terms(self, states):
        return states.max(axis=1)


class OwnScore(AdditiveScore):
    """A criterion of a user, whose states have the wrong number at one place."""

    name = "own"
    supervised = False

    def __init__(self, wrong=0.0):
        self.wrong = wrong

    def scoring(self, X, y):
        states = np.array([X[k::3].sum(axis=0) for k in range(3)]).T
        states[7, 1] = self.wrong
        return Sums(states)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_reach_no_search(wrong):
    merge_words(X[:, :20], criterion=OwnScore())
    with pytest.raises(BagwiseError, match="finite"):
        merge_words(X[:, :20], criterion=OwnScore(wrong))
    damaged = X[:, :20].copy()
    damaged[3, 4] = wrong
    for criterion in ("csm", "aib", "mlt", "mmi", "nda", "classifier"):
        for held in (damaged, sp.csr_array(damaged)):
            with pytest.raises(ValueError, match=r"NaN|[Ii]nf"):
                merge_words(held, np.arange(len(X)) % 3, criterion=criterion)
