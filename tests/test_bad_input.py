"""What no estimator takes, and what all of them take in any form: every public one, as `test_estimators` finds them."""

import datetime
from numbers import Integral, Real

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from dask import delayed
from sklearn.base import clone
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from bagwise import (
    BagIndex,
    Bags,
    BagwiseError,
    CompactClassifier,
    Model,
    SketchMerger,
    WordMerger,
    WordMergerCV,
    distributed,
    merge_words,
    runtime,
)
from bagwise._compat import Interval
from bagwise._utils.records import Integer, Number, Record
from bagwise._utils.validation import check_array
from bagwise.app import FitOptions
from bagwise.codebooks.normalizing import WordWeighting, normalize_rows
from bagwise.codebooks.pyramids import MOST_CELLS
from bagwise.kernels import additive_kernel
from bagwise.merging import Sketch, Statistics
from bagwise.metrics import clustering_report
from bagwise.topics.tables import coherence
from test_estimators import FOUND, ITEMS, MATRICES, cheap, small_bags

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.poisson(2.0, (24, 6)).astype(float), np.arange(24) % 2
SPARSE = {name for name, kind in MATRICES.items() if cheap(kind).__sklearn_tags__().input_tags.sparse}
SUPERVISED = {name for name, kind in MATRICES.items() if cheap(kind).__sklearn_tags__().target_tags.required}
METHODS = ("transform", "predict", "predict_proba", "decision_function", "bound")
# Large numbers that an estimator takes, and has finite answers for.
TAKES_LARGE = {"BagNormalizer"}
REFUSES_LARGE = {"LatentDirichlet", "FreeEnergyScore", "FreeEnergyKernel", "LatentDirichletNB", "PLSA"}


def with_value(value):
    changed = X.copy()
    changed[3, 2] = value
    return changed


def untidy(matrix):
    """The same CSR matrix with entries in two parts, in any order, and with stored zeros."""
    rows, columns = matrix.nonzero()
    halves = np.tile(matrix[rows, columns] / 2, 2)
    zeros = np.argwhere(matrix == 0)[::2]
    rows, columns = np.concatenate([rows, rows, zeros[:, 0]]), np.concatenate([columns, columns, zeros[:, 1]])
    values = np.concatenate([halves, np.zeros(len(zeros))])
    order = np.lexsort((RANDOM.random(len(rows)), rows))
    starts = np.searchsorted(rows[order], np.arange(len(matrix) + 1))
    made = sp.csr_array((values[order], columns[order].astype(np.int32), starts.astype(np.int32)), shape=matrix.shape)
    assert not made.has_canonical_format
    assert (made.data == 0).any()
    return made


def answers(estimator, data):
    """What a fitted estimator says about data, dense."""
    found = [getattr(estimator, name)(data) for name in METHODS if hasattr(estimator, name)]
    return [one.toarray() if sp.issparse(one) else np.asarray(one) for one in found]


@pytest.mark.parametrize("name", sorted(SPARSE))
def test_untidy_matrices_are_their_sums(name):
    tidy, other = sp.csr_array(X), untidy(X)
    before = [array.copy() for array in (other.data, other.indices, other.indptr)]
    fitted = [clone(cheap(MATRICES[name])).fit(data, Y) for data in (tidy, other)]
    expected = answers(fitted[0], tidy)
    assert expected or hasattr(fitted[0], "labels_")
    for found in (answers(fitted[0], other), answers(fitted[1], tidy), answers(fitted[1], other)):
        for one, two in zip(expected, found, strict=True):
            np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(*(getattr(one, "labels_", 0) for one in fitted))
    for array, old in zip((other.data, other.indices, other.indptr), before, strict=True):
        np.testing.assert_array_equal(array, old)


@pytest.mark.parametrize("name", sorted(SPARSE))
def test_indices_of_64_bits_are_taken_as_those_of_32(name):
    tidy = sp.csr_array(X)
    wide = sp.csr_array((tidy.data, tidy.indices.astype(np.int64), tidy.indptr.astype(np.int64)), shape=tidy.shape)
    assert wide.indices.dtype == wide.indptr.dtype == np.int64
    one, two = (clone(cheap(MATRICES[name])).fit(data, Y) for data in (tidy, wide))
    for expected, found in zip(answers(one, tidy), answers(two, wide), strict=True):
        np.testing.assert_array_equal(expected, found)
    assert wide.indices.dtype == wide.indptr.dtype == np.int64


SEVERAL = {
    "matrix": np.eye(len(Y))[:, :3],
    "sparse": sp.csr_array(np.eye(len(Y))[:, :3]),
    "lists": [["a"], ["a", "b"]] * (len(Y) // 2),
    "sets": [{"a"}, {"a", "b"}] * (len(Y) // 2),
}
OF_CLASSES = [
    WordMerger(2),
    WordMerger(2, criterion="semi_supervised"),
    WordMergerCV([2], cv=2),
    WordMergerCV([2], cv=2, criterion="semi_supervised"),
    CompactClassifier(n_groups=2),
    SketchMerger(2, use_labels=True),
]


@pytest.mark.parametrize("labels", SEVERAL)
@pytest.mark.parametrize("estimator", OF_CLASSES, ids=lambda one: "".join(repr(one).split()))
def test_several_labels_of_a_sample_are_refused_with_what_to_do(estimator, labels):
    with pytest.raises(BagwiseError, match=r"must have one label per sample, but has .*OneVsRestClassifier"):
        clone(estimator).fit(X, SEVERAL[labels])


def test_one_estimator_for_each_label_does_it():
    indicators = np.stack([Y[0] == Y, np.arange(len(Y)) % 3 == 0], axis=1).astype(int)
    for one in (CompactClassifier(n_groups=2), make_pipeline(WordMerger(2), LinearSVC())):
        assert OneVsRestClassifier(one).fit(X, indicators).predict(X).shape == indicators.shape


FUNCTIONS = {
    "merge_words": lambda data: merge_words(data, Y).merges,
    "additive_kernel": lambda data: additive_kernel(data, kernel="chi2"),
    "Statistics": lambda data: np.asarray(sp.csr_array(Statistics.of(data, Y, 2).gram).toarray()),
    "Sketch": lambda data: Sketch(6, 8).update(data).signature(),
    "BagIndex": lambda data: BagIndex().add(data).search(data, 3)[0],
    "clustering_report": lambda data: list(clustering_report(data, Y).values()),
    "normalize_rows": lambda data: normalize_rows(data).toarray(),
    "WordWeighting": lambda data: WordWeighting("log", norm="l1").apply(data).toarray(),
    "coherence": lambda data: coherence(np.eye(6)[:2] + 0.1, data, n=2),
}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_untidy_matrices_in_functions(name):
    other = untidy(X)
    before = other.copy()
    np.testing.assert_array_equal(FUNCTIONS[name](sp.csr_array(X)), FUNCTIONS[name](other))
    np.testing.assert_array_equal(other.indices, before.indices)


OTHERS = {
    "check_array": lambda data: check_array(data, accept_sparse="csr"),
    "BagIndex.search": lambda data: BagIndex().add(X).search(data, 3),
    "Bags": Bags.from_csr,
    "Model": lambda data: Model(modality="table", hierarchy=merge_words(X, Y), n_groups=3).transform(data),
    "distributed": lambda data: distributed.statistics([delayed(data)], [Y]).compute(scheduler="sync"),
}


@pytest.mark.parametrize("form", ["csr", "csc"])
@pytest.mark.parametrize("use", [*FUNCTIONS.values(), *OTHERS.values()], ids=[*FUNCTIONS, *OTHERS])
def test_matrices_whose_indices_point_outside(form, use):
    for change, value in (("indices", 10**6), ("indices", -1), ("indptr", 10**6)):
        damaged = sp.csr_array(X).asformat(form)
        getattr(damaged, change)[5] = value
        with pytest.raises(BagwiseError, match=f"damaged {form.upper()} matrix"):
            use(damaged)


@pytest.mark.parametrize("name", ["WordMerger", "LatentDirichlet", "LatentDirichletNB", "DivisiveMerger"])
def test_dates_are_no_weights(name):
    with pytest.raises(BagwiseError, match="sample_weight has dates or times"):
        cheap(FOUND[name]).fit(X, Y, sample_weight=np.arange(24).astype("M8[D]"))


BAD_NUMBERS = {
    "1e300": with_value(1e300),
    "sparse 1e300": sp.csr_array(with_value(1e300)),
    "-1e300": with_value(-1e300),
    "all 1e-300": X * 1e-300,
    "float32 3e38": np.where(X > 2, 3e38, 0).astype(np.float32),
    "int64": np.where(X > 2, 2**63 - 1, 0),
    "least int64": np.where(X > 2, -(2**63), 0),
}
# With what the error says.
NO_NUMBERS = {
    "NaN": with_value(np.nan),
    "infinity": with_value(np.inf),
    "0 sample": X[:0],
    "0 feature": X[:, :0],
    "[Cc]omplex": X + 1j,
    r"dates or times \(datetime64": X.astype(np.int64).astype("M8[s]"),
    r"dates or times \(timedelta64": X.astype(np.int64).astype("m8[s]"),
    r"X has dates or times \(datetime64": pd.DataFrame(X).assign(day=pd.Timestamp("2020-01-01")),
    r"dates or times \(date\)": np.full((24, 6), datetime.date(2020, 1, 1), dtype=object),
}


@pytest.mark.parametrize("name", sorted(MATRICES))
@pytest.mark.filterwarnings("ignore:.*overflow:RuntimeWarning")  # of scikit-learn's own check of finite numbers
@pytest.mark.filterwarnings("ignore:X has negative values")
def test_bad_numbers_are_refused_or_have_finite_answers(name):
    estimator = cheap(MATRICES[name])
    fitted = clone(estimator).fit(X, Y)
    for what, data in BAD_NUMBERS.items():
        if sp.issparse(data) and name not in SPARSE:
            continue
        for fits in (True, False):
            try:
                found = answers(clone(estimator).fit(data, Y) if fits else fitted, data)
            except ValueError:
                assert name not in TAKES_LARGE or what != "1e300"
                continue
            assert name not in REFUSES_LARGE or "1e300" not in what
            for one in found:
                assert one.dtype.kind != "f" or np.isfinite(one).all(), f"{what}, fits: {fits}"


@pytest.mark.parametrize("name", ["BagOfFeatures", "FisherScore", "ManifoldBagOfFeatures"])
def test_large_vectors_of_bags_are_refused(name):
    bags = small_bags()
    fitted = cheap(FOUND[name]).fit(Bags.from_list(bags))
    bags[2][1, 1] = 1e300
    large = Bags.from_list(bags, dtype=np.float64)
    for use in (clone(fitted).fit, fitted.transform):
        with pytest.raises(BagwiseError, match="large"):
            use(large)


@pytest.mark.parametrize("name", sorted(MATRICES))
def test_what_is_no_number_is_refused(name):
    estimator = cheap(MATRICES[name])
    fitted = clone(estimator).fit(X, Y)
    # scikit-learn selects columns of anything
    uses = [answer for answer in METHODS if hasattr(fitted, answer) and name != "MinRedundancyMaxRelevance"]
    for reason, data in NO_NUMBERS.items():
        with pytest.raises(ValueError, match=reason):
            clone(estimator).fit(data, Y[: len(data)])
        for use in uses:
            with pytest.raises(ValueError, match=reason):
                getattr(fitted, use)(data)


@pytest.mark.parametrize("name", sorted(SUPERVISED | {"WordMerger"}))
def test_dates_are_no_labels(name):
    days = [datetime.date(2020, 1, 1 + one) for one in Y.tolist()]
    for labels in (days, np.array(days, dtype="M8[D]"), pd.Series(pd.to_datetime(days)), np.array(days, dtype=object)):
        with pytest.raises(BagwiseError, match="y has dates or times"):
            cheap(MATRICES[name]).fit(X, labels)
    with pytest.raises(BagwiseError, match="y has dates or times"):
        merge_words(X, days)


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        ("HashMerger", "n_groups", 2**31 - 1),
        ("LatentDirichlet", "n_components", 2**31 - 1),
        ("PLSA", "n_components", 2**31 - 1),
        ("SketchMerger", "n_hashes", 2**31 - 1),
        ("BagOfFeatures", "pyramid", [(1, 1), (2**20, 2**20)]),
        ("LatentDirichlet", "doc_topic_prior", [10**400, 1]),
        ("WordMerger", "word_weights", [10**400] * 6),
        ("WordMergerCV", "n_groups", [2**70]),
        ("DenseSIFT", "scales", [2**70]),
        ("DenseSIFT", "scales", [10**400]),
    ],
)
def test_parameters_that_would_take_all_memory(name, parameter, value):
    with pytest.raises(ValueError, match=parameter):
        cheap(FOUND[name], **{parameter: value}).fit(X, Y)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("n_groups", lambda value: merge_words(X, Y, n_groups=value)),
        ("n_jobs", lambda value: merge_words(X, Y, n_jobs=value)),
        ("n_classes", lambda value: Statistics.of(X, Y, value)),
        ("n_features", lambda value: Sketch(value)),
        ("size", lambda value: Sketch(10, value)),
        ("n_candidates", lambda value: BagIndex(n_candidates=value)),
        ("n_jobs", lambda value: FitOptions(n_jobs=value)),
        ("folds", lambda value: FitOptions(folds=value)),
        ("C", lambda value: FitOptions(C=value if isinstance(value, float) else 10**400)),
    ],
)
def test_absurd_arguments_of_functions(name, call):
    for value in (2**70, 10**400, -(2**70), float("nan")):
        with pytest.raises(BagwiseError, match=name):
            call(value)


def test_pyramids_have_as_many_cells_as_models():
    assert MOST_CELLS == runtime.MOST_CELLS


def test_numbers_beyond_floats():
    for estimator in (cheap(FOUND["LatentDirichlet"]), cheap(FOUND["BagNormalizer"])):
        with pytest.raises(BagwiseError, match="beyond the range of float64"):
            estimator.fit([[10**400, 1], [2, 3]])


def numbers_of(kind):
    """The parameters of an estimator that take a number, with those that must not be passed."""
    if issubclass(kind, Record):
        for parameter, rule in kind.rules().items():
            if isinstance(rule, (Integer, Number)):
                wrong = [1.5] if isinstance(rule, Integer) else [10**400]
                yield parameter, [*wrong, 2**70, rule.most + 1, -(2**70), "3", [3], float("nan"), np.datetime64("2020")]
        return
    for parameter, constraints in kind._parameter_constraints.items():
        ranges = [one for one in constraints if isinstance(one, Interval)] if isinstance(constraints, list) else []
        assert not any(one in (Integral, Real) for one in constraints), f"{parameter} has no bounds"
        if ranges:
            whole = all(one.type is Integral for one in ranges)
            absurd = [2**70, ranges[0].right + 1, -(2**70), 1.5] if whole else [10**400, -(10**400)]
            absurd += ["3"] if str not in constraints else []
            absurd += [[3]] if "array-like" not in constraints else []
            yield parameter, [*absurd, float("nan"), np.datetime64("2020-01-01")]


@pytest.mark.parametrize("name", sorted(FOUND))
def test_absurd_parameters_are_refused_at_once(name):
    """Before any data are read: there are none to read."""
    kind = FOUND[name]
    data = (None,) if name in ITEMS else (None, Y)
    for parameter, absurd in numbers_of(kind):
        for value in absurd:
            with pytest.raises(ValueError, match=parameter):
                cheap(kind, **{parameter: value}).fit(*data)
