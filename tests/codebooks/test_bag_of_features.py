"""`BagOfFeatures`: scikit-learn's checks on matrices, and our own for estimators that take bags."""

import copy
import pickle
import weakref

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from bagwise import BagOfFeatures, Bags, BagwiseError
from bagwise.codebooks import BagNormalizer, LocalizedEncoder, SoftEncoder, encode_bags, learn_codebook
from bagwise.codebooks import encoding as encoding_module

ESTIMATORS = [
    BagOfFeatures(4, random_state=0, n_init=1),
    BagOfFeatures(4, random_state=0, n_init=1, assignment=SoftEncoder(0.5)),
    BagOfFeatures(4, random_state=0, n_init=1, assignment=LocalizedEncoder(2), pyramid=5),
    BagOfFeatures(4, random_state=0, n_init=1, assignment="sparse", normalize="l2"),
    BagOfFeatures(4, random_state=0, n_init=1, assignment="vlad"),
    BagOfFeatures(4, random_state=0, n_init=1, pyramid=21, normalize=("l1", "power")),
]
EVERY_ESTIMATOR = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: f"{e.assignment}-{e.pyramid}")


def make_bags(seed=0, n=30, D=6, dtype=np.float32):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 12, n)
    lengths[3] = 0
    total = int(lengths.sum())
    return Bags(rng.normal(size=(total, D)), np.r_[0, np.cumsum(lengths)], rng.random((total, 2)), dtype=dtype)


def dense(histograms):
    return histograms.toarray() if sp.issparse(histograms) else histograms


def assert_same_bytes(a, b):
    assert sp.issparse(a) == sp.issparse(b)
    assert a.dtype == b.dtype
    assert dense(a).tobytes() == dense(b).tobytes()


@EVERY_ESTIMATOR
def test_fitting_again_cloning_and_pickling(estimator):
    bags = make_bags()
    model = clone(estimator).fit(bags)
    expected = model.transform(bags)
    assert_same_bytes(clone(model).fit(bags).transform(bags), expected)
    assert_same_bytes(copy.deepcopy(model).fit(bags).transform(bags), expected)
    assert_same_bytes(pickle.loads(pickle.dumps(model)).transform(bags), expected)
    assert_same_bytes(model.transform(bags), expected)
    assert_same_bytes(clone(estimator).fit_transform(bags), expected)
    assert model.get_params() == estimator.get_params()


@EVERY_ESTIMATOR
def test_bags_stay_as_they_are(estimator):
    bags = make_bags()
    before = copy.deepcopy(bags)
    clone(estimator).fit(bags).transform(bags)
    assert bags == before


@EVERY_ESTIMATOR
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lists_batches_and_threads_give_the_same_bytes(estimator, dtype, monkeypatch):
    bags = make_bags(dtype=dtype)
    model = clone(estimator).fit(bags)
    expected = model.transform(bags)
    assert expected.dtype == model.codebook_.dtype == dtype
    for size in (1, 7, 30):
        streamed = clone(estimator).fit(bags[i : i + size] for i in range(0, 30, size))
        np.testing.assert_array_equal(streamed.codebook_, model.codebook_)
        assert streamed.inertia_ == model.inertia_
        assert streamed.sparse_output_ == model.sparse_output_
        assert_same_bytes(streamed.transform(bags[i : i + size] for i in range(0, 30, size)), expected)
    monkeypatch.setattr(encoding_module, "_TASK_ROWS", 20)
    assert_same_bytes(clone(estimator).set_params(n_jobs=2).fit(bags).transform(bags), expected)
    if estimator.pyramid is None:  # lists have no positions
        assert_same_bytes(clone(estimator).fit(list(bags)).transform(list(bags)), expected)
        assert_same_bytes(clone(estimator).fit(iter(list(bags))).transform(iter(list(bags))), expected)


@EVERY_ESTIMATOR
def test_order_of_bags(estimator):
    bags = make_bags()
    model = clone(estimator).fit(bags)
    order = np.random.default_rng(1).permutation(len(bags))
    assert_same_bytes(model.transform(bags[order]), dense(model.transform(bags))[order] if not model.sparse_output_
                      else model.transform(bags)[order])  # fmt: skip


@EVERY_ESTIMATOR
def test_empty_bags_are_zeros(estimator):
    bags = make_bags()
    model = clone(estimator).fit(bags)
    assert not dense(model.transform(bags))[3].any()
    for empty in (Bags.from_list([[], []], n_features=6), [[], []], [np.empty((0, 6))] * 2, Bags.from_list([[], []])):
        found = dense(model.transform(empty))
        assert found.shape == (2, len(model.get_feature_names_out()))
        assert not found.any()
        assert [len(words) for words in model.assign(empty)] == [0, 0]


@EVERY_ESTIMATOR
def test_columns_and_names(estimator):
    bags = make_bags()
    model = clone(estimator).fit(bags)
    names = model.get_feature_names_out()
    assert model.transform(bags).shape == (30, len(names))
    assert len(set(names)) == len(names)
    assert model.n_features_in_ == 6
    assert model.codebook_.shape == (4, 6)


@EVERY_ESTIMATOR
def test_what_every_estimator_refuses(estimator):
    bags = make_bags()
    with pytest.raises(NotFittedError):
        clone(estimator).transform(bags)
    with pytest.raises(NotFittedError):
        clone(estimator).assign(bags)
    model = clone(estimator).fit(bags)
    for transform in (model.transform, model.assign):
        with pytest.raises(BagwiseError, match="X has 5 features, but BagOfFeatures is expecting 6"):
            transform(make_bags(D=5))
    with pytest.raises(BagwiseError, match="There are no bags"):
        model.transform([])
    with pytest.raises(BagwiseError, match="only n_samples=2 vectors"):
        clone(estimator).fit(Bags.from_list([np.ones((2, 6))]))
    with pytest.raises(BagwiseError, match="Batch 1 has 5 features"):
        clone(estimator).fit([bags, make_bags(D=5)])
    if estimator.pyramid is not None:
        with pytest.raises(BagwiseError, match="needs the positions"):
            model.transform(list(bags))


def test_it_is_codebook_encoding_and_normalising():
    bags = make_bags()
    options = {"assignment": SoftEncoder(0.7), "pooling": "sum", "pyramid": 8}
    model = BagOfFeatures(5, random_state=3, normalize=("power", "l2"), **options).fit(bags)
    np.testing.assert_array_equal(model.codebook_, learn_codebook(bags, 5, random_state=3))
    expected = BagNormalizer(("power", "l2")).fit_transform(encode_bags(bags, model.codebook_, **options))
    np.testing.assert_array_equal(model.transform(bags), expected)


def test_assigned_words_make_the_histogram():
    bags = make_bags()
    model = BagOfFeatures(5, random_state=0, sparse_output=False).fit(bags)
    words = model.assign(bags)
    assert [len(w) for w in words] == bags.lengths.tolist()
    np.testing.assert_array_equal(model.transform(bags), [np.bincount(w, minlength=5) for w in words])
    assert [w.tolist() for w in model.assign([bags[:4], bags[4:]])] == [w.tolist() for w in words]


def test_defaults_of_each_assignment():
    bags = make_bags(dtype=np.float64)

    def fitted(**options):
        return BagOfFeatures(5, random_state=0, sparse_output=False, **options).fit(bags).transform(bags)

    full = bags.lengths > 0
    np.testing.assert_allclose(fitted(assignment="soft").sum(axis=1), full)  # means of shares
    assert fitted(assignment="localized").max() <= 1  # largest shares
    np.testing.assert_allclose(np.linalg.norm(fitted(assignment="vlad"), axis=1), full)  # of length 1
    np.testing.assert_array_equal(fitted().sum(axis=1), bags.lengths)  # counts


def test_when_histograms_are_sparse():
    rng = np.random.default_rng(0)
    bags = Bags(rng.random((200, 3)), np.arange(0, 201, 10), rng.random((200, 2)))

    def is_sparse(n_words, **options):
        model = BagOfFeatures(n_words, n_init=1, max_iter=2, random_state=0, **options).fit(bags)
        assert sp.issparse(model.transform(bags)) == model.sparse_output_
        assert sp.issparse(model.transform(bags[:1])) == model.sparse_output_
        return model.sparse_output_

    assert is_sparse(21)  # 10 vectors cannot fill half of it
    assert not is_sparse(20)
    assert is_sparse(3, pyramid=21)
    assert not is_sparse(21, assignment="localized")
    assert is_sparse(101, assignment="localized")
    assert not is_sparse(100, assignment="soft")
    assert not is_sparse(100, assignment="vlad")
    assert is_sparse(5, sparse_output=True)
    assert not is_sparse(100, sparse_output=False)


def test_a_generator_is_gone_through_once_and_nothing_is_kept():
    bags = make_bags()
    alive = []

    class Tracked(Bags):
        __slots__ = ("__weakref__",)

    def batches():
        for i in range(len(bags)):
            batch = Tracked(bags[i : i + 1].values, bags[i : i + 1].offsets)
            alive.append(weakref.ref(batch))
            yield batch
            del batch
            assert sum(ref() is not None for ref in alive) <= 1

    model = BagOfFeatures(4, random_state=0).fit(batches())
    model.transform(batches())


def test_in_a_pipeline():
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    bags = [rng.normal(loc=3 * label, size=(rng.integers(3, 9), 4)) for label in y]
    model = make_pipeline(BagOfFeatures(6, random_state=0), BagNormalizer(), LogisticRegression())
    assert model.fit(bags, y).score(bags, y) > 0.95


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"assignment": "firm"}, "assignment"),
        ({"pooling": "median"}, "pooling"),
        ({"pyramid": 4}, "is not a pyramid"),
        ({"normalize": "l3"}, "Unknown step: 'l3'"),
        ({"assignment": SoftEncoder(0)}, "bandwidth"),
        ({"n_words": 0}, "n_words"),
        ({"assignment": "vlad", "pooling": "max"}, "'vlad' add up"),
        ({"random_state": "lucky"}, "random_state"),
    ],
)
def test_bad_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        BagOfFeatures(**{"n_words": 2, **options}).fit(make_bags())
