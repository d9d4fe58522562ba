import pickle
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bagwise import BagwiseError, SketchMerger
from bagwise.baselines import HashMerger
from bagwise.merging import Sketch
from bagwise.merging.neighbors import ExactNeighbors
from bagwise.merging.sketching import sketch_merger as module
from helpers import topic_counts


@pytest.fixture(scope="module")
def counts():
    return topic_counts(np.random.default_rng(0), 120, 80)[0]


def kept(X, labels, signs):
    """Scatter of the merged features: Σ_j |Σ_{k in G_j} σ_k x_k|² / |G_j| of centred features."""
    X = (X - X.mean(axis=0)) * signs
    return sum((X[:, labels == g].sum(axis=1) ** 2).sum() / (labels == g).sum() for g in np.unique(labels))


@pytest.mark.parametrize("bipolar", [False, True])
def test_transform_is_the_sum_with_signs_over_the_root_of_the_size(counts, bipolar):
    merger = SketchMerger(9, bipolar=bipolar).fit(counts)
    active = ~merger.sketch_.constant
    assert not active.all()
    expected = np.zeros((len(counts), 9))
    for k in range(80):
        expected[:, merger.labels_[k]] += merger.signs_[k] * counts[:, k]
    expected /= np.sqrt(np.bincount(merger.labels_[active], minlength=9))
    Z = merger.transform(counts)
    np.testing.assert_allclose(Z, expected)
    assert (merger.signs_ == -1).any() == bipolar
    assert merger.signs_.dtype == np.int8
    back = merger.inverse_transform(Z)
    np.testing.assert_allclose(merger.transform(back), Z)
    np.testing.assert_allclose(merger.inverse_transform(sp.csr_array(Z)).toarray(), back)
    scatter = ((Z - Z.mean(axis=0)) ** 2).sum()
    np.testing.assert_allclose(scatter, kept(counts[:, active], merger.labels_[active], merger.signs_[active]))


@pytest.mark.parametrize("bipolar", [False, True])
@pytest.mark.parametrize("pooling", ["sqrt", "sum", "mean"])
@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("n_groups", [5, 300])
def test_sparse_is_dense(form, pooling, bipolar, n_groups):
    X = np.random.default_rng(1).integers(0, 3, (40, 400)).astype(np.float32)
    X[:, 7] = 0
    dense = SketchMerger(n_groups, bipolar=bipolar, pooling=pooling).fit(X)
    sparse = SketchMerger(n_groups, bipolar=bipolar, pooling=pooling).fit(form(X))
    np.testing.assert_array_equal(sparse.labels_, dense.labels_)
    Z = sparse.transform(form(X))
    assert Z.format == "csr"
    assert Z.dtype == np.float32
    assert Z.has_canonical_format
    np.testing.assert_allclose(Z.toarray(), dense.transform(X), rtol=1e-6)


@settings(max_examples=25)
@given(st.lists(st.integers(0, 120), max_size=4), st.booleans(), st.integers(1, 2))
def test_any_chunks_give_the_same_bytes(cuts, sparse, n_jobs):
    X = topic_counts(np.random.default_rng(0), 120, 80)[0] + 0.1
    whole = SketchMerger(6).fit(X)
    cuts = sorted({0, *cuts, 120})
    chunks = [(sp.csr_array if sparse else np.asarray)(X[a:b]) for a, b in pairwise(cuts)]
    parts, stream = SketchMerger(6, n_jobs=n_jobs), SketchMerger(6, n_jobs=n_jobs)
    for chunk in chunks:
        parts.partial_fit(chunk)
    stream.fit_chunks(iter(chunks), n_samples=120)
    for merger in (parts, stream):
        assert merger.sketch_ == whole.sketch_
        assert merger.labels_.tobytes() == whole.labels_.tobytes()
        assert merger.inertia_ == whole.inertia_


def test_partial_fit_does_not_cluster_until_asked(counts, monkeypatch):
    calls = []
    monkeypatch.setattr(
        module, "group_features", lambda *a, f=module.group_features, **k: calls.append(1) or f(*a, **k)
    )
    merger = SketchMerger(5).partial_fit(counts[:60])
    assert merger.word_totals_.shape == (80,)
    assert not calls
    first = merger.labels_
    assert merger.signs_.shape == (80,)
    assert merger.transform(counts).shape == (120, 5)
    assert len(calls) == 1
    merger.partial_fit(counts[60:])
    assert len(calls) == 1
    assert merger.labels_ is not first
    assert len(calls) == 2
    np.testing.assert_array_equal(merger.labels_, SketchMerger(5).fit(counts).labels_)
    merger.set_params(n_groups=8)  # another size needs no data
    np.testing.assert_array_equal(merger.labels_, SketchMerger(8).fit(counts).labels_)
    with pytest.raises(ValueError, match="n_groups"):
        merger.set_params(n_groups=0).transform(counts)


def test_from_a_sketch_that_was_saved_or_added_up(counts, tmp_path):
    whole = SketchMerger(7, sketch_size=32, bipolar=True, random_state=3).fit(counts)
    parts = [Sketch(80, 32, seed=3, first_sample=a).update(counts[a : a + 40]) for a in (0, 40, 80)]
    merger = SketchMerger.from_sketch(parts[2] + (parts[0] + parts[1]), 7, bipolar=True)
    np.testing.assert_array_equal(merger.labels_, whole.labels_)
    np.testing.assert_array_equal(merger.signs_, whole.signs_)
    np.testing.assert_array_equal(merger.transform(counts), whole.transform(counts))
    np.testing.assert_array_equal(clone(merger).fit(counts).labels_, whole.labels_)
    resumed = SketchMerger.from_sketch(Sketch.load((parts[0] + parts[1]).save(tmp_path / "part")), 7, bipolar=True)
    resumed.partial_fit(counts[80:])
    np.testing.assert_array_equal(resumed.labels_, whole.labels_)
    with pytest.raises(BagwiseError, match="random_state cannot be chosen"):
        SketchMerger.from_sketch(parts[0], random_state=1)
    with pytest.raises(BagwiseError, match="n_neighbors=5 needs the samples"):
        SketchMerger.from_sketch(parts[0], n_neighbors=5)
    with pytest.raises(BagwiseError, match="no samples yet"):
        SketchMerger.from_sketch(Sketch(3))
    with pytest.raises(ValueError, match="n_groups"):
        SketchMerger.from_sketch(parts[0], 0)


def test_it_keeps_nearly_what_exact_signatures_keep_and_more_than_hashing(counts):
    scatter = ((counts - counts.mean(axis=0)) ** 2).sum()
    eigenvalues = np.linalg.svd(counts - counts.mean(axis=0), compute_uv=False) ** 2
    merger = SketchMerger(10, n_init=5).fit(counts)
    share = kept(counts, merger.labels_, merger.signs_) / scatter
    hashed = HashMerger(10).fit(counts)
    assert share <= eigenvalues[:10].sum() / scatter
    assert share > 1.5 * kept(counts, hashed.labels_, np.ones(80)) / scatter
    bipolar = SketchMerger(10, n_init=5, bipolar=True).fit(counts)
    assert bipolar.inertia_ < 1.05 * merger.inertia_
    # the sketch's own estimate of what is lost is near the truth
    assert merger.inertia_ == pytest.approx((1 - share) * scatter, rel=0.2)


def test_equal_features_are_merged_and_distances_kept():
    rng = np.random.default_rng(2)
    different = rng.normal(size=(50, 6))
    columns = np.concatenate([np.arange(6), rng.integers(0, 6, 20)])
    X = different[:, columns]
    merger = SketchMerger(6).fit(X)
    np.testing.assert_array_equal(merger.labels_, columns)
    Z = merger.transform(X)
    np.testing.assert_allclose(Z @ Z.T, X @ X.T)
    signs = rng.choice([1, -1], 26)
    signs[:6] = 1
    turned = SketchMerger(6, bipolar=True).fit(X * signs)
    np.testing.assert_array_equal(turned.labels_, columns)
    np.testing.assert_array_equal(turned.signs_, signs)
    np.testing.assert_allclose(turned.transform(X * signs), Z)


@pytest.mark.parametrize("bipolar", [False, True])
def test_permuting_features_permutes_groups(bipolar):
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(100, 5))
    X = centres[:, np.arange(30) % 5] + 0.05 * rng.normal(size=(100, 30))
    order = rng.permutation(30)
    merger = SketchMerger(5, bipolar=bipolar, n_init=10).fit(X)
    permuted = SketchMerger(5, bipolar=bipolar, n_init=10).fit(X[:, order])
    together = merger.labels_[:, np.newaxis] == merger.labels_
    np.testing.assert_array_equal(together[np.ix_(order, order)], permuted.labels_[:, np.newaxis] == permuted.labels_)
    np.testing.assert_allclose(permuted.inertia_, merger.inertia_, rtol=1e-5)
    np.testing.assert_allclose(
        kept(X[:, order], permuted.labels_, permuted.signs_), kept(X, merger.labels_, merger.signs_)
    )


@pytest.mark.parametrize("bipolar", [False, True])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_neighbours_streamed_are_the_sums_written_out(counts, form, bipolar):
    settings = {"sketch_size": 64, "bipolar": bipolar, "random_state": 4}
    merger = SketchMerger(8, n_neighbors=6, n_intermediate=20, **settings).fit(form(counts))
    plain = SketchMerger(20, sketch_size=64, random_state=4).fit(counts)
    graph = ExactNeighbors(plain.transform(counts), "euclidean").graph(6).toarray() + np.eye(120)
    assert (graph.sum(axis=1) == 7).all()
    Z = graph @ (counts - counts.mean(axis=0))
    # signature of Z without centring it again: its mean is not zero, since some samples are neighbours more often
    H = np.array([Sketch(120, 64, seed=4, dtype="float64").update(np.eye(120))._sums])[0]
    np.testing.assert_allclose(merger.sketch_.signature(), Z.T @ H, atol=1e-4 * abs(Z).sum(axis=0).max())
    assert merger.sketch_.from_neighbors
    chunks = [form(counts[:50]), form(counts[50:51]), form(counts[51:])]
    streamed = SketchMerger(8, n_neighbors=6, n_intermediate=20, **settings).fit_chunks(chunks)
    called = SketchMerger(8, n_neighbors=6, n_intermediate=20, **settings).fit_chunks(lambda: iter(chunks), 120)
    for other in (streamed, called):
        assert other.sketch_ == merger.sketch_
        np.testing.assert_array_equal(other.labels_, merger.labels_)


@pytest.mark.parametrize("bipolar", [False, True])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_alignment_with_labels_is_k_means_on_class_sums(form, bipolar):
    """Equation (7): the kernel of the merged samples aligned with that of the labels, written out."""
    rng = np.random.default_rng(6)
    X, y = topic_counts(rng, 90, 12)
    y = np.where(np.arange(90) % 5 == 0, "c", np.array(["a", "b"])[y])
    merger = SketchMerger(3, bipolar=bipolar, use_labels=True, n_init=20, dtype="float64").fit(form(X), y)
    centred = X - X.mean(axis=0)
    L = (y == np.unique(y)[:, np.newaxis]).astype(float)  # classes x samples
    np.testing.assert_allclose(merger.sketch_.signature(), (L @ centred).T, atol=1e-10)

    def alignment(labels, signs):
        W = np.array([(labels == g) * signs / np.sqrt((labels == g).sum()) for g in range(3)])
        K = (centred @ W.T) @ (centred @ W.T).T
        return np.sum(K * (L.T @ L))

    Z = merger.transform(X)
    Z = Z - Z.mean(axis=0)
    found = alignment(merger.labels_, merger.signs_)
    np.testing.assert_allclose(np.sum((Z @ Z.T) * (L.T @ L)), found)
    np.testing.assert_allclose(np.linalg.norm(L @ centred) ** 2 - merger.inertia_, found)
    plain = SketchMerger(3, bipolar=bipolar, n_init=20).fit(X)
    assert found >= alignment(plain.labels_, plain.signs_)
    for _ in range(200):  # no single feature can be moved or turned for a better alignment
        labels, signs = merger.labels_.copy(), merger.signs_.copy()
        feature = rng.integers(12)
        labels[feature] = rng.integers(3)
        signs[feature] *= rng.choice([-1, 1]) if bipolar else 1
        if len(np.unique(labels)) == 3:
            assert alignment(labels, signs) <= found * (1 + 1e-9)


def test_labels_for_alignment(counts):
    y = np.arange(120) % 3
    merger = SketchMerger(4, use_labels=True)
    with pytest.raises(BagwiseError, match="only one class"):
        merger.fit(counts, np.zeros(120))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        merger.fit(counts, y[1:])
    with pytest.raises(BagwiseError, match="use_labels=True requires y to be passed"):
        merger.fit(counts)
    with pytest.raises(BagwiseError, match="use_labels=True needs X in memory"):
        merger.fit(pytest.importorskip("dask.array").from_array(counts), y)
    with pytest.raises(BagwiseError, match="fit_chunks takes no labels"):
        merger.fit_chunks([counts])
    with pytest.raises(BagwiseError, match="use_labels=True needs the samples"):
        SketchMerger.from_sketch(SketchMerger(4).fit(counts).sketch_, use_labels=True)
    with pytest.raises(BagwiseError, match="Use one of them"):
        SketchMerger(4, n_neighbors=5, use_labels=True).fit(counts, y)
    assert not hasattr(merger, "partial_fit")
    merger.fit(counts, y)
    with pytest.raises(BagwiseError, match="sums over neighbours or classes"):
        merger.set_params(use_labels=False).partial_fit(counts)
    named = SketchMerger(4, use_labels=True).fit(counts, [f"class {c}" for c in y])
    np.testing.assert_array_equal(named.labels_, merger.labels_)


def test_labels_are_not_used_unasked(counts):
    y = np.random.default_rng(0).normal(size=120)  # of a regressor, in a pipeline
    model = make_pipeline(SketchMerger(4), Ridge()).fit(counts, y)
    np.testing.assert_array_equal(model[0].labels_, SketchMerger(4).fit(counts).labels_)
    assert model.predict(counts).shape == (120,)


@pytest.mark.parametrize("n_neighbors", [119, 120, 500])
def test_neighbours_that_are_all_samples_are_refused(counts, n_neighbors):
    with pytest.raises(BagwiseError, match=rf"n_neighbors={n_neighbors} of 120 samples.*such as 10"):
        SketchMerger(4, n_neighbors=n_neighbors).fit(counts)
    assert SketchMerger(4, n_neighbors=118).fit(counts).labels_.max() == 3


def test_rounding_is_not_clustered():
    X = 3.1e8 + np.random.default_rng(0).random((60, 12))
    with pytest.raises(BagwiseError, match=r"no more than rounding of float32.*dtype='float64'"):
        SketchMerger(3).fit(X)
    assert SketchMerger(3, dtype="float64").fit(X).labels_.max() == 2
    balanced = np.tile(np.random.default_rng(0).random((30, 12)), (2, 1))  # both classes have the same sums
    with pytest.raises(BagwiseError, match="no more than rounding of float64"):
        SketchMerger(3, use_labels=True, dtype="float64").fit(balanced / 3, np.arange(60) // 30)
    assert SketchMerger(3).fit(np.ones((6, 5))).labels_.tolist() == [0, 1, 2, 0, 0]


def test_cut_shares_the_sketch(counts):
    merger = SketchMerger(4).fit(counts)
    other = merger.cut(9)
    assert other.sketch_ is merger.sketch_
    np.testing.assert_array_equal(other.labels_, SketchMerger(9).fit(counts).labels_)
    np.testing.assert_array_equal(merger.labels_, SketchMerger(4).fit(counts).labels_)
    with pytest.raises(ValueError, match="n_groups"):
        merger.cut(0)


def test_neighbours_need_to_read_again(counts):
    merger = SketchMerger(4, n_neighbors=3)
    with pytest.raises(BagwiseError, match=r"generator, which can be read only once. Give a list, or a function"):
        merger.fit_chunks(chunk for chunk in [counts])
    assert not hasattr(merger, "partial_fit")
    assert hasattr(SketchMerger(4), "partial_fit")
    passes = []

    def shrinking():
        passes.append(1)
        return iter([counts[: 100 - 10 * len(passes)]])

    with pytest.raises(
        BagwiseError, match=r"90 samples were to come. Until then 80 samples.*the same samples each time"
    ):
        merger.fit_chunks(shrinking)
    assert not hasattr(merger, "sketch_")
    with pytest.raises(BagwiseError, match="Chunk 1"):
        merger.fit_chunks([counts, counts[:, 1:]])
    assert not hasattr(merger, "sketch_")
    with pytest.raises(NotFittedError):
        merger.transform(counts)


def test_a_stream_that_fails_can_be_taken_up_again(counts):
    whole = SketchMerger(5).fit(counts)
    merger = SketchMerger(5)

    def broken():
        yield counts[:30]
        yield counts[30:50]
        raise OSError("the disk is gone")

    with pytest.raises(
        BagwiseError, match=r"OSError: the disk is gone. Until then 50 samples came \(number of chunks: 2"
    ):
        merger.fit_chunks(broken())
    assert merger.sketch_.n_samples == 50
    merger.partial_fit(counts[50:])
    np.testing.assert_array_equal(merger.labels_, whole.labels_)

    with pytest.raises(BagwiseError, match=r"120 samples were to come. Until then 100 samples"):
        merger.fit_chunks([counts[:60], counts[60:100]], n_samples=120)
    np.testing.assert_array_equal(merger.partial_fit(counts[100:]).labels_, whole.labels_)

    spoiled = counts[60:].copy()
    spoiled[7, 3] = np.inf
    with pytest.raises(BagwiseError, match=r"Chunk 2 .*Row 7 of X \(sample 67 of the stream\) is inf.*feature 3"):
        merger.fit_chunks([counts[:20], counts[20:60], spoiled])
    assert merger.sketch_.n_samples == 60
    np.testing.assert_array_equal(merger.partial_fit(counts[60:]).labels_, whole.labels_)

    with pytest.raises(BagwiseError, match=r"Chunk 1 .* X has 79 features, but SketchMerger is expecting 80"):
        merger.fit_chunks([counts, counts[:, 1:]])


def test_streams_that_are_none(counts):
    with pytest.raises(BagwiseError, match="had no samples, in 0 chunks"):
        SketchMerger().fit_chunks([])
    with pytest.raises(BagwiseError, match="chunks is a int, expected an iterable"):
        SketchMerger().fit_chunks(3)
    empty = SketchMerger(5).fit_chunks([counts[:0], counts, counts[:0]])
    np.testing.assert_array_equal(empty.labels_, SketchMerger(5).fit(counts).labels_)


def test_constant_features_join_the_first_group_and_do_not_count():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(40, 10))
    X[:, 0], X[:, 4] = 0.0, 2.0
    merger = SketchMerger(4).fit(X)
    assert merger.labels_[[0, 4]].tolist() == [0, 0]
    assert merger.labels_[1] == 0
    assert merger.sizes_.sum() == 8
    reduced = SketchMerger(4).fit(X[:, [1, 2, 3, 5, 6, 7, 8, 9]])
    assert merger.sizes_.tolist() == reduced.sizes_.tolist()
    Z, other = merger.transform(X), reduced.transform(X[:, [1, 2, 3, 5, 6, 7, 8, 9]])
    np.testing.assert_allclose(Z - Z.mean(axis=0), other - other.mean(axis=0), atol=1e-12)  # only an offset


@pytest.mark.parametrize("n_groups", [3, 5, 50])
def test_few_samples_and_few_features(n_groups):
    X = np.arange(5.0)[np.newaxis]
    one = SketchMerger(n_groups).fit(X)  # one sample: all features are constant
    assert one.transform(X).shape == (1, min(n_groups, 5))
    merger = SketchMerger(n_groups).fit(np.random.default_rng(0).normal(size=(4, 5)))
    if n_groups >= 5:
        np.testing.assert_array_equal(merger.labels_, np.arange(5))  # every feature is its own group
        np.testing.assert_allclose(merger.transform(X), X)
        assert merger.inertia_ == 0


def test_seeds(counts):
    first, same = SketchMerger(6, random_state=1).fit(counts), SketchMerger(6, random_state=1).fit(counts)
    assert first.sketch_ == same.sketch_
    assert first.labels_.tobytes() == same.labels_.tobytes()
    assert SketchMerger(6, random_state=2).fit(counts).sketch_ != first.sketch_
    a, b = (SketchMerger(6, random_state=np.random.RandomState(0)).fit(counts) for _ in range(2))
    assert a.sketch_ == b.sketch_
    merger = SketchMerger(6, random_state=None).partial_fit(counts[:50]).partial_fit(counts[50:])
    expected = SketchMerger(6, random_state=merger.sketch_.seed).fit(counts)
    np.testing.assert_array_equal(merger.labels_, expected.labels_)


def test_interrupting_the_clustering_keeps_the_sketch(counts, monkeypatch):
    def interrupt(*arguments, **others):
        raise KeyboardInterrupt

    merger = SketchMerger(6)
    with monkeypatch.context() as patched:
        patched.setattr(module, "group_features", interrupt)
        with pytest.raises(KeyboardInterrupt):
            merger.fit(counts)
    assert merger.sketch_.n_samples == 120
    np.testing.assert_array_equal(merger.labels_, SketchMerger(6).fit(counts).labels_)


def test_names_frames_pipelines_and_pickles(counts):
    frame = pd.DataFrame(counts, columns=[f"word{i}" for i in range(80)])
    merger = SketchMerger(4).fit(frame)
    names = merger.get_feature_names_out()
    heaviest = int(np.argmax(np.where(merger.labels_ == 2, counts.sum(axis=0), -1)))
    assert names[2].startswith(f"word{heaviest}")
    assert make_pipeline(SketchMerger(4), StandardScaler()).fit_transform(counts).shape == (120, 4)
    loaded = pickle.loads(pickle.dumps(merger))
    np.testing.assert_array_equal(loaded.transform(frame), merger.transform(frame))


def test_progress_is_shown(counts, capsys):
    SketchMerger(6, verbose=1).fit_chunks([counts], n_samples=120)
    shown = capsys.readouterr().err
    assert "sketching [" in shown
    assert "clustering [" in shown


def test_what_it_cannot_use(counts, monkeypatch):
    with pytest.raises(NotFittedError):
        SketchMerger().transform(counts)
    assert not hasattr(SketchMerger(), "labels_")
    with pytest.raises(BagwiseError, match="Did you mean 'sqrt'"):
        SketchMerger(pooling="sqrrt").fit(counts)
    for wrong in ({"n_groups": 0}, {"dtype": "int8"}, {"n_neighbors": -1}, {"tol": -1}, {"batch_size": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            SketchMerger(**wrong).fit(counts)
    merger = SketchMerger(4).fit(counts)
    with pytest.raises(BagwiseError, match="expected one per group: 4"):
        merger.inverse_transform(np.ones((2, 3)))


def test_groups_are_those_of_the_sketch_that_is_there(counts):
    merger, other = SketchMerger(5).fit(counts), SketchMerger(5).fit(counts[:, ::-1])
    before = merger.labels_
    merger.sketch_ = other.sketch_
    np.testing.assert_array_equal(merger.labels_, other.labels_)
    assert not np.array_equal(before, other.labels_)


def test_another_tolerance_clusters_again(counts, monkeypatch):
    merger = SketchMerger(5).fit(counts)
    asked = []
    monkeypatch.setattr(module, "group_features", lambda *_, tol, **__: asked.append(tol) or merger._found[-1])
    assert merger.labels_ is merger.labels_
    assert not asked
    assert merger.set_params(tol=0.5).labels_ is not None
    assert asked == [0.5]


@pytest.mark.parametrize(
    ("name", "value"), [("sketch_size", 64), ("n_hashes", 5), ("dtype", "float64"), ("random_state", 7)]
)
def test_settings_of_a_sketch_cannot_be_changed_on_the_way(counts, name, value):
    merger = SketchMerger(5).partial_fit(counts[:60])
    usual = getattr(merger, name)
    merger.set_params(**{name: value})
    with pytest.raises(
        BagwiseError, match=rf"started with {name}={usual!r}, but the parameters are now {name}={value!r}"
    ):
        merger.partial_fit(counts[60:])
    assert merger.sketch_.n_samples == 60
    merger.set_params(**{name: usual}).partial_fit(counts[60:])
    assert merger.sketch_ == SketchMerger(5).fit(counts).sketch_
    drawn = SketchMerger(5, random_state=np.random.RandomState(0))  # the seed is the sketch's for good
    assert drawn.partial_fit(counts[:60]).partial_fit(counts[60:]).sketch_.n_samples == 120


def test_more_samples_than_announced(counts):
    merger = SketchMerger(5)

    def chunks():
        yield counts
        yield counts
        raise AssertionError("read on")

    with pytest.raises(
        BagwiseError, match=r"Only 200 samples were to come, but with chunk 1 .* there are 240"
    ) as error:
        merger.fit_chunks(chunks(), n_samples=200)
    assert "partial_fit" not in str(error.value)
    assert "ended" not in str(error.value)
    assert not hasattr(merger, "sketch_")
    passes = []

    def growing():
        passes.append(1)
        return iter([counts[: 50 + 10 * len(passes)]])

    with pytest.raises(BagwiseError, match=r"Only 60 samples .* there are 70. The stream must give the same samples"):
        SketchMerger(5, n_neighbors=3).fit_chunks(growing)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csr_matrix, pd.DataFrame])
@pytest.mark.parametrize("n_neighbors", [0, 3])
def test_one_matrix_is_not_a_stream_of_chunks(counts, form, n_neighbors):
    X = form(counts)
    for chunks in (X, lambda: X):
        with pytest.raises(BagwiseError, match=r"chunks is one \w+ of shape \(120, 80\).*Give \[X\], or use fit"):
            SketchMerger(5, n_neighbors=n_neighbors).fit_chunks(chunks)


def test_arguments_of_other_types(counts):
    with pytest.raises(BagwiseError, match=r"from_sketch takes a Sketch, got str. Sketch.load"):
        SketchMerger.from_sketch("a.safetensors")
    with pytest.raises(BagwiseError, match="n_samples must be an integer, got '120'"):
        SketchMerger(3).fit_chunks([counts], n_samples="120")
    with pytest.raises(BagwiseError, match="n_samples must be at least 1, got 0"):
        SketchMerger(3).fit_chunks([counts], n_samples=0)


@pytest.mark.cuda
@pytest.mark.parametrize("options", [{}, {"bipolar": True}, {"batch_size": 100}])
def test_signatures_clustered_on_a_device(options):
    X = np.random.default_rng(0).poisson(2.0, (60, 400)).astype(float)
    here, there = (SketchMerger(30, dtype="float64", device=device, **options).fit(X) for device in (None, "cuda"))
    np.testing.assert_array_equal(there.labels_, here.labels_)
    np.testing.assert_array_equal(there.signs_, here.signs_)
    np.testing.assert_allclose(there.inertia_, here.inertia_, rtol=1e-10)
