"""Sums over chunks of samples, and merging from them."""

import json
import os
import pickle
from dataclasses import fields, replace
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise import BagwiseError, Hierarchy, merge_words
from bagwise.criteria import InformationLoss, MultinomialPosterior
from bagwise.merging import Statistics, merge_statistics
from bagwise.merging.statistics import gram_around, move_centre
from changed_files import change_tensor
from helpers import labelled_counts, topic_counts

FORMS = [np.asarray, sp.csr_array]
CRITERIA = ["csm", "aib", "mlt"]


def parts_of(X, y, cuts, **options):
    """Statistics of the chunks between the cuts."""
    classes, codes = np.unique(y, return_inverse=True)
    ends = [0, *sorted(cuts), X.shape[0]]
    return [Statistics.of(X[a:b], codes[a:b], len(classes), classes=classes, **options) for a, b in pairwise(ends)]


def dense(gram):
    return gram.toarray() if sp.issparse(gram) else gram


def contents(statistics):
    """All that statistics hold, as bytes."""
    arrays = [np.asarray(getattr(statistics, name)) for name in ("classes", "class_sizes", "class_sums")]
    arrays += [statistics.smallest, statistics.largest, statistics.whole, statistics.stored, statistics.centre]
    arrays += [] if statistics.deviations is None else [statistics.deviations]
    arrays += [np.asarray(statistics.sparse)]
    arrays += [dense(part) for part in (statistics.gram, statistics.frequencies) if part is not None]
    return [(array.dtype, array.shape, (array + 0 if array.dtype.kind == "f" else array).tobytes()) for array in arrays]


def scatter(X):
    """Scatter around the mean, in extended precision."""
    deviations = np.asarray(X, dtype=np.longdouble)
    deviations = deviations - deviations.mean(axis=0)
    return (deviations.T @ deviations).astype(float)


@st.composite
def counted_chunks(draw):
    """Whole numbers with labels, and places to cut them: also chunks without samples."""
    X, y = draw(labelled_counts())
    X = np.rint(3 * X) + draw(st.sampled_from([0, 0, 1000]))
    cuts = draw(st.lists(st.integers(0, len(X)), max_size=5))
    return draw(st.sampled_from(FORMS))(X), y, cuts


@given(counted_chunks())
@settings(max_examples=60)
def test_whole_numbers_do_not_care_for_chunks(case):
    X, y, cuts = case
    parts = parts_of(X, y, cuts)
    whole = parts_of(X, y, [])[0]
    forward, backward = reduce(add, parts), reduce(lambda right, left: left + right, parts[::-1])
    assert contents(forward) == contents(backward) == contents(whole)
    for words in (np.arange(whole.n_words), np.arange(whole.n_words - 1, -1, -2)):
        for form in ("total_scatter", "between_classes"):
            assert getattr(forward, form)(words).tobytes() == getattr(whole, form)(words).tobytes()


@given(counted_chunks())
@settings(max_examples=60)
def test_merging_whole_numbers_is_the_same_to_the_bit(case):
    X, y, cuts = case
    statistics = reduce(add, parts_of(X, y, cuts))
    for criterion in CRITERIA if X.min() >= 0 else ["csm"]:
        assert merge_statistics(statistics, criterion=criterion) == merge_words(X, y, criterion=criterion)


@given(labelled_counts(), st.lists(st.integers(0, 10), max_size=4), st.sampled_from(FORMS))
@settings(max_examples=60)
def test_any_chunks_give_the_same_up_to_rounding(case, cuts, form):
    X, y = case
    total = reduce(add, parts_of(form(X), y, [min(cut, len(X)) for cut in cuts], frequencies=True))
    whole = parts_of(form(X), y, [], frequencies=True)[0]
    assert total.n_samples == len(X)
    np.testing.assert_array_equal(total.constant_words, whole.constant_words)
    for name in ("class_sums", "frequencies", "word_totals"):
        np.testing.assert_allclose(getattr(total, name), getattr(whole, name), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(total.total_scatter(np.arange(X.shape[1])), scatter(X), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("kind", ["counts", "histograms"])
def test_merging_is_that_of_the_samples(form, criterion, kind):
    X, y = topic_counts(np.random.default_rng(1), 120, 50)
    X[:, 3:6] = [0, 2, 2]  # constant words
    if kind == "histograms":
        X = X / X.sum(axis=1, keepdims=True)
        X[:, [11, 17]] = 0.1, 0.25
    statistics = reduce(add, parts_of(form(X), y, [30, 31, 80], frequencies=True))
    here, there = merge_statistics(statistics, criterion=criterion), merge_words(form(X), y, criterion=criterion)
    if kind == "counts":
        assert here == there
        assert merge_statistics(statistics, criterion=criterion, n_groups=20) == Hierarchy(
            50, there.merges[:30], there.scores[:30], criterion
        )
    else:
        np.testing.assert_allclose(here.scores, there.scores, rtol=1e-8, atol=1e-14)
        assert (here.merges == there.merges).all(axis=1).mean() > 0.9  # equally good ones may come in another order


def test_whole_words_stay_exact_beside_others():
    rng = np.random.default_rng(3)
    X, y = topic_counts(rng, 80, 20)
    X[:, 4] = 0.1  # constant, so that it plays no part
    for form in FORMS:
        statistics = reduce(add, parts_of(form(X), y, [13, 50]))
        assert not statistics.whole.all()
        assert merge_statistics(statistics, criterion="csm") == merge_words(form(X), y, criterion="csm")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6, 2.0**22])
def test_a_large_offset_does_no_harm(form, offset):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(300, 12)) + offset
    X[:, 3] = rng.integers(0, 5, 300) + offset
    X[:150, 4] = np.rint(X[:150, 4])  # whole at first, then no more
    X[:, 5] = np.where(np.arange(300) == 200, 0.0, X[:, 5])  # zero once: no centring where data are sparse
    y = rng.integers(0, 3, 300)
    words = np.arange(12)
    total = reduce(add, parts_of(form(X), y, [40, 41, 150, 260]))
    expected, size = scatter(X), np.sqrt(np.diag(scatter(X)))
    error = np.abs(total.total_scatter(words) - expected) / np.outer(size, size)
    assert error.max() < 1e-10
    backward = reduce(lambda right, left: left + right, parts_of(form(X), y, [40, 41, 150, 260])[::-1])
    assert (np.abs(backward.total_scatter(words) - expected) / np.outer(size, size)).max() < 1e-10


@pytest.mark.parametrize("form", FORMS)
def test_sums_that_grow_beyond_what_is_exact(form):
    """Each chunk is exact, all together are not; so whole numbers are moved to their mean on the way."""
    rng = np.random.default_rng(5)
    X = rng.integers(0, 9, (80, 6)).astype(float) + 2.0**24
    X[:, 0] -= 2.0**24
    parts = parts_of(form(X), np.arange(80) % 2, range(8, 80, 8))
    total = reduce(add, parts)
    assert all(part.exact.all() for part in parts)
    assert total.exact.tolist() == [True] + 5 * [False]
    np.testing.assert_allclose(total.total_scatter(np.arange(6)), scatter(X), rtol=1e-10, atol=1e-8)


@given(st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=40)
def test_moving_the_centre(seed, is_sparse):
    rng = np.random.default_rng(seed)
    n, d = rng.integers(1, 8), rng.integers(1, 7)
    X = rng.integers(0, 5, (n, d)).astype(float) * (rng.random((n, d)) < 0.7)
    exact = rng.random(d) < 0.5
    X[:, ~exact] *= 0.7
    step = np.where(exact, rng.integers(-3, 4, d), rng.normal(size=d)) * (rng.random(d) < 0.6)
    gram, sums = gram_around(sp.csr_array(X) if is_sparse else X, np.zeros(d))
    moved, moved_sums = move_centre(gram, step, sums, exact, int(n))
    np.testing.assert_allclose(moved_sums, (X - step).sum(axis=0), atol=1e-12)
    expected = (X - step).T @ (X - step)
    if is_sparse:
        assert not moved.toarray()[np.tril_indices(d, -1)].any()
        expected = np.triu(expected)
    np.testing.assert_allclose(dense(moved), expected, atol=1e-12)
    both = np.ix_(exact, exact)
    np.testing.assert_array_equal(dense(moved)[both], expected[both])


def test_sparse_chunks_stay_sparse():
    X = sp.random_array((200, 500), density=0.01, random_state=np.random.default_rng(6), format="csr")
    X.data = np.ceil(5 * X.data)
    y = np.arange(200) % 2
    total = reduce(add, parts_of(X, y, [50, 90]))
    assert total.sparse
    assert total.gram.format == "csr"
    assert total.gram.nnz < 0.05 * 500**2
    np.testing.assert_array_equal(total.gram.toarray(), np.triu((X.T @ X).toarray()))
    both = parts_of(X[:50], y[:50], [])[0] + parts_of(X[50:].toarray(), y[50:], [])[0]  # of both kinds: dense
    assert isinstance(both.gram, np.ndarray)
    np.testing.assert_array_equal(both.gram, (X.T @ X).toarray())
    with pytest.raises(BagwiseError, match=r"Merging \d+ words needs two matrices.*the limit is 1.00 MB"):
        merge_statistics(total, memory_limit="1MB", criterion="csm")
    assert merge_statistics(total, memory_limit="1MB", criterion="aib", n_groups=400).min_groups == 400


def test_stored_zeros_and_repeated_entries_are_what_they_say():
    rows, columns = [0, 0, 0, 1, 2, 3], [0, 0, 1, 1, 2, 0]
    X = sp.csr_array((np.array([1.0, 2, 0, 4, 5, 6]), columns, [0, 3, 4, 5, 6]), shape=(4, 3))
    assert len(rows) == len(X.data)
    statistics = Statistics.of(X, [0, 1, 0, 1], 2)
    same = Statistics.of(X.toarray(), [0, 1, 0, 1], 2)
    for form in ("total_scatter", "between_classes"):
        np.testing.assert_allclose(getattr(statistics, form)(np.arange(3)), getattr(same, form)(np.arange(3)))
    assert X.nnz == 6  # the caller's matrix is left alone


def test_classes_without_samples_do_not_count():
    X, y = topic_counts(np.random.default_rng(7), 50, 20)
    statistics = Statistics.of(X, 2 * y, 4, frequencies=True)
    for criterion in CRITERIA:
        assert merge_statistics(statistics, criterion=criterion) == merge_words(X, y, criterion=criterion)


def test_smoothing_and_total_are_used():
    X, y = topic_counts(np.random.default_rng(8), 60, 25)
    for criterion in (InformationLoss(smoothing=2.0), MultinomialPosterior(mass=0.3)):
        assert merge_statistics(parts_of(X, y, [9])[0] + parts_of(X, y, [9])[1], criterion=criterion) == merge_words(
            X, y, criterion=criterion
        )
    frequencies = X / np.maximum(X.sum(axis=1, keepdims=True), 1)
    criterion = MultinomialPosterior(total=50)
    here = merge_statistics(reduce(add, parts_of(frequencies, y, [9], frequencies=True)), criterion=criterion)
    np.testing.assert_allclose(here.scores, merge_words(frequencies, y, criterion=criterion).scores, rtol=1e-9)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "classes", [["cat", "dog"], np.array(["a", "b"], dtype=object), [3, 7], [False, True], [0.0, 1.0]]
)
@pytest.mark.parametrize("options", [{}, {"gram": False}, {"frequencies": True}])
def test_saved_is_loaded(tmp_path, form, classes, options):
    X = np.random.default_rng(9).random((20, 6))
    statistics = Statistics.of(form(X), np.arange(20) % 2, 2, classes=classes, **options)
    for again in (Statistics.load(statistics.save(tmp_path / "s")), pickle.loads(pickle.dumps(statistics))):
        assert again.classes.tolist() == statistics.classes.tolist()
        if statistics.classes.dtype.kind != "O":
            assert contents(again) == contents(statistics)
        assert sp.issparse(again.gram) == sp.issparse(statistics.gram)
        assert contents(again + statistics)[1:] == contents(statistics + again)[1:]
    assert os.listdir(tmp_path) == ["s"]


def test_files_that_are_something_else(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"nothing of this kind")
    with pytest.raises(BagwiseError, match="is not a file of bagwise"):
        Statistics.load(path)
    Hierarchy(3, [[0, 1]], [0.5]).save(path)
    with pytest.raises(BagwiseError, match=r"holds 'bagwise.Hierarchy', not 'bagwise.Statistics'"):
        Statistics.load(path)
    with pytest.raises(BagwiseError, match="written as numbers or strings"):
        Statistics.of([[1.0], [2]], [0, 1], 2, classes=np.array([(1, 2), None], dtype=object)).save(path)
    assert Hierarchy.load(path).n_words == 3  # the old file is still there


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dtype": "<i400000000"}, "the dtype of its classes is"),
        ({"dtype": "<M8[s]"}, "the dtype of its classes is"),
        ({"dtype": ["<i8"]}, "its dtype is .*; expected string"),
        ({"classes": [[1], 2]}, "expected a list of numbers or strings"),
        ({"classes": "ab"}, "its classes is 'ab'; expected list"),
        ({"parts": 7}, "the unknown field 'parts'"),
        ({"dtype": "<U200000000"}, None),
    ],
)
def test_headers_of_files_are_not_believed(tmp_path, wrong, message):
    path = Statistics.of(np.eye(4), [0, 0, 1, 1], 2, classes=["a", "b"]).save(tmp_path / "file")
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    entries = json.loads(content[8 : 8 + length])
    entries["__metadata__"]["bagwise"] = json.dumps(json.loads(entries["__metadata__"]["bagwise"]) | wrong)
    text = json.dumps(entries).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    if message is None:  # no memory is taken for strings of that length
        assert Statistics.load(path).classes.nbytes == 8
        return
    with pytest.raises(BagwiseError, match=message):
        Statistics.load(path)


def test_sparse_grams_are_checked(tmp_path):
    path = Statistics.of(sp.csr_array(np.eye(4)), [0, 0, 1, 1], 2).save(tmp_path / "file")
    change_tensor(path, "gram_indices", lambda held: held.fill(77))
    with pytest.raises(BagwiseError, match="its gram, gram_indices or gram_indptr are damaged"):
        Statistics.load(path)


def test_what_cannot_be_added():
    X = np.arange(12.0).reshape(4, 3)
    statistics = Statistics.of(X, [0, 0, 1, 1], 2)
    with pytest.raises(BagwiseError, match="of 3 and of 2 words cannot be added"):
        statistics + Statistics.of(X[:, :2], [0, 0, 1, 1], 2)
    with pytest.raises(BagwiseError, match="of other classes cannot be added"):
        statistics + Statistics.of(X, [0, 0, 1, 1], 2, classes=["a", "b"])
    with pytest.raises(BagwiseError, match="Only one of the two statistics has gram"):
        statistics + Statistics.of(X, [0, 0, 1, 1], 2, gram=False)
    with pytest.raises(TypeError):
        statistics + X


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ([0, 1], "one class per sample"),
        ([0, 1, 2], "from 0 to 1"),
        ([0, -1, 1], "from 0 to 1"),
        ([0.5, 1, 1], "integers from"),
    ],
)
def test_bad_codes(codes, message):
    with pytest.raises(BagwiseError, match=message):
        Statistics.of(np.ones((3, 2)), codes, 2)
    with pytest.raises(BagwiseError, match="classes must name 2 classes"):
        Statistics.of(np.ones((3, 2)), [0, 1, 1], 2, classes=["a"])


def test_bad_values_are_refused():
    with pytest.raises(ValueError, match="NaN"):
        Statistics.of([[np.nan, 1]], [0], 2)
    statistics = Statistics.of(np.ones((3, 2)), [0, 1, 1], 2)
    with pytest.raises(BagwiseError, match=r"class_sums must have shape \(2, 2\)"):
        replace(statistics, class_sums=np.ones((3, 2)))


def test_what_cannot_be_merged():
    X = np.array([[4.0, 3, 0], [0, 1, 4], [1, 2, 2.5]])
    statistics = Statistics.of(X, [0, 1, 1], 2)
    with pytest.raises(BagwiseError, match=r"'nda' needs the samples themselves.*'aib', 'clusters', 'csm' and 'mlt'"):
        merge_statistics(statistics, criterion="nda")
    with pytest.raises(BagwiseError, match="'mlt' needs statistics that were made with frequencies=True"):
        merge_statistics(statistics, criterion="mlt")
    with pytest.raises(BagwiseError, match="'csm' needs statistics that were made with gram=True"):
        merge_statistics(Statistics.of(X, [0, 1, 1], 2, gram=False), criterion="csm")
    with pytest.raises(BagwiseError, match="word 2 goes down to -4"):
        merge_statistics(Statistics.of(X * [1, 1, -1], [0, 1, 1], 2), criterion="mlt")
    negative = X * [1, 1, -1]
    for form in (np.asarray, sp.csr_array):
        of_classes = Statistics.of(form(negative), [0, 1, 1], 2)
        measured = merge_statistics(of_classes, criterion="aib", scaling="shift")
        expected = merge_words(form(negative), [0, 1, 1], criterion="aib", scaling="shift")
        np.testing.assert_array_equal(measured.merges, expected.merges)
        with pytest.raises(BagwiseError, match=r"word 2 goes down to -4.*scaling='auto'"):
            merge_statistics(of_classes, criterion="aib", scaling=None)
    with pytest.raises(BagwiseError, match="at least two classes"):
        merge_statistics(Statistics.of(X, [0, 0, 0], 2), criterion="csm")
    with pytest.raises(BagwiseError, match="at least 2 samples"):
        merge_statistics(Statistics.of(X[:1], [0], 2), criterion="csm")
    with pytest.raises(BagwiseError, match="cannot be represented"):
        merge_statistics(Statistics.of(X * 1e120, [0, 1, 1], 2), criterion="csm")
    with pytest.raises(BagwiseError, match=r"merge_statistics takes Statistics, got ndarray"):
        merge_statistics(X, criterion="csm")
    with pytest.raises(BagwiseError, match="n_groups must be"):
        merge_statistics(statistics, n_groups=0, criterion="csm")
    with pytest.raises(BagwiseError, match="all of X is zero"):
        merge_statistics(Statistics.of(0 * X, [0, 1, 1], 2), criterion=InformationLoss(smoothing=0))
    assert merge_statistics(statistics, n_groups=9, criterion="csm").min_groups == 3


def test_callbacks_stop():
    X, y = topic_counts(np.random.default_rng(10), 40, 20)
    statistics = parts_of(X, y, [])[0]
    assert (
        merge_statistics(statistics, callback=lambda level, pair, score: level == 12, criterion="csm").min_groups == 12
    )


@pytest.mark.parametrize("form", FORMS)
def test_equal_statistics(form):
    X, y = topic_counts(np.random.default_rng(0), 30, 6)
    options = {"gram": True, "frequencies": True}
    statistics = Statistics.of(form(X), y, int(y.max()) + 1, **options)
    assert statistics == Statistics.of(form(X), y, int(y.max()) + 1, **options)
    assert statistics == pickle.loads(pickle.dumps(statistics))
    assert statistics != "statistics"
    for field in fields(statistics):
        value = getattr(statistics, field.name)
        if isinstance(value, bool) or np.asarray(value).dtype == bool:
            other = np.logical_not(value)
        else:
            other = 2 * value if sp.issparse(value) else 2 * value + (value == 0)
        assert statistics != replace(statistics, **{field.name: other}), field.name
    assert statistics != replace(statistics, gram=None, deviations=None)
    assert statistics != replace(statistics, gram=sp.csr_array(X.T @ X) if form is np.asarray else X.T @ X)
    with pytest.raises(TypeError, match="unhashable"):
        hash(statistics)


@pytest.mark.parametrize("form", FORMS)
def test_the_sum_of_a_list_of_statistics(form):
    X, y = topic_counts(np.random.default_rng(0), 30, 6)
    parts = parts_of(form(X), y, [10, 20])
    assert sum(parts) == parts[0] + parts[1] + parts[2]
    with pytest.raises(TypeError):
        1 + parts[0]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_bad_values_are_located(form, value):
    X = np.zeros((9, 4))
    X[5, [0, 2]], X[6, 1] = [1, value], value
    with pytest.raises(BagwiseError, match=rf"X has {value} .* in its row 5, word 2"):
        Statistics.of(form(X), np.zeros(9, dtype=int), 1)


@pytest.mark.parametrize(
    ("n_classes", "message"), [("3", "an integer, got '3'"), (0, "at least 1"), (2.0, "an integer")]
)
def test_bad_numbers_of_classes(n_classes, message):
    with pytest.raises(BagwiseError, match=f"n_classes must be {message}"):
        Statistics.of(np.ones((3, 2)), [0, 0, 0], n_classes)


def test_repeated_names_of_classes():
    with pytest.raises(BagwiseError, match=r"classes must be different names; got \['a', 'a', 'b'\]"):
        Statistics.of(np.ones((3, 2)), [0, 1, 2], 3, classes=["a", "a", "b"])
