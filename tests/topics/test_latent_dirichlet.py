import pickle
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from bagwise import BagwiseError, LatentDirichlet
from bagwise.topics import FreeEnergyScore, latent_dirichlet
from bagwise.topics.inference import infer, split_tokens, to_counts, topic_bound, topic_weights
from bagwise.topics.training import batch_passes
from helpers import topic_counts


def planted(seed=0, n_documents=200, n_topics=4, words_per_topic=8):
    """Documents of topics that have words of their own."""
    rng = np.random.default_rng(seed)
    topics = np.kron(np.eye(n_topics), rng.dirichlet(np.full(words_per_topic, 5.0)))
    shares = rng.dirichlet(np.full(n_topics, 0.2), n_documents)
    return rng.poisson(60 * shares @ topics).astype(float), topics, shares


def matched(found, truth):
    """Order of the found topics that is nearest to the true ones."""
    distance = np.abs(found[:, None] - truth[None]).sum(axis=2)
    rows, columns = linear_sum_assignment(distance)
    return rows[np.argsort(columns)]


SOLVERS = ["vb", "online", "gibbs"]


def skip_without_tomotopy(solver):
    if solver == "gibbs":
        pytest.importorskip("tomotopy")


@pytest.mark.parametrize("solver", SOLVERS)
def test_planted_topics_are_found(solver):
    skip_without_tomotopy(solver)
    X, topics, shares = planted()
    how = {"vb": {}, "online": {"max_iter": 30, "batch_size": 50}, "gibbs": {"max_iter": 200, "doc_topic_prior": 0.2}}[
        solver
    ]
    lda = LatentDirichlet(4, solver=solver, random_state=1, **how).fit(sp.csr_array(X))
    np.testing.assert_allclose(lda.topics_.sum(axis=1), 1)
    order = matched(lda.topics_, topics)
    assert np.abs(lda.topics_[order] - topics).sum(axis=1).max() < 0.15
    assert np.abs(lda.transform(X)[:, order] - shares).max(axis=1).mean() < 0.08


@pytest.mark.parametrize("smoothing", ["bayes", "map"])
@pytest.mark.parametrize("prior", ["auto", "fixed", "symmetric", "asymmetric"])
def test_the_bound_never_falls(smoothing, prior):
    X, _ = topic_counts(np.random.default_rng(0), 60, 50, n_topics=5)
    for restarts in (0, 4, None):
        lda = LatentDirichlet(
            6, smoothing=smoothing, prior=prior, restarts=restarts, max_iter=25, tol=0, random_state=0
        ).fit(X)
        assert np.diff(lda.bounds_).min() >= -1e-9 * abs(lda.bounds_[-1])
        assert lda.bounds_[-1] > lda.bounds_[0] + 1
        assert lda.n_iter_ == len(lda.bounds_) <= 25
        assert (len(set(lda.doc_topic_prior_)) == 1) == (prior not in ("auto", "asymmetric"))
        assert (lda.doc_topic_prior_[0] == 1 / 6) == (prior == "fixed")


def test_bounds_of_documents_sum_to_that_of_the_corpus():
    X, _ = topic_counts(np.random.default_rng(1), 40, 30, n_topics=4)
    lda = LatentDirichlet(
        4, smoothing="map", topic_word_prior=0.1, max_iter=30, mean_change_tol=1e-9, tol=0, random_state=0
    ).fit(X)
    total = lda.bound(X).sum() + topic_bound(np.ascontiguousarray(lda.components_.T), 0.1, "map")
    np.testing.assert_allclose(total, lda.bounds_[-1], rtol=1e-3)  # documents may settle elsewhere
    weights = topic_weights(np.ascontiguousarray(lda.components_.T), "map")
    np.testing.assert_allclose(lda.exp_dirichlet_component_, weights.T)
    np.testing.assert_allclose(lda.score(X), total)
    np.testing.assert_allclose(lda.bound(X[7:9]), lda.bound(X)[7:9])


def corpus_bound(counts, X, alpha, eta):
    """The bound of documents that start afresh, and of topics that were found by whoever."""
    counts = np.ascontiguousarray(counts.T)
    documents = infer(to_counts(X, "test"), topic_weights(counts, "bayes"), alpha, tol=1e-6).bounds
    return documents.sum() + topic_bound(counts, eta, "bayes")


@pytest.mark.parametrize("n_passes", [2, 10])
def test_from_the_same_topics_it_gets_as_far_as_scikit_learn(n_passes):
    X, _ = topic_counts(np.random.default_rng(2), 150, 100, n_topics=10)
    theirs, ours = [], []
    for seed in range(3):  # which gives both the same topics to start from
        how = {"max_iter": n_passes, "random_state": seed}
        other = LatentDirichletAllocation(10, doc_topic_prior=0.1, topic_word_prior=0.05, **how).fit(X)
        lda = LatentDirichlet(10, doc_topic_prior=0.1, topic_word_prior=0.05, init="random", tol=0, **how).fit(X)
        theirs.append(corpus_bound(other.components_, X, lda.doc_topic_prior_, 0.05))
        ours.append(corpus_bound(lda.components_, X, lda.doc_topic_prior_, 0.05))
    # Theirs start documents at random, ours evenly; which gets further in so small a corpus is chance.
    assert np.mean(ours) >= 1.005 * np.mean(theirs)


def test_documents_that_start_afresh_find_better_topics_than_those_that_go_on():
    X, _ = topic_counts(np.random.default_rng(3), 200, 150, n_topics=15)
    fit = lambda seed, **how: LatentDirichlet(15, solver="vb", random_state=seed, **how).fit(X).bounds_[-1]  # noqa: E731
    afresh, on = [[fit(seed, restarts=restarts) for seed in range(3)] for restarts in (None, 0)]
    assert min(np.array(afresh) - on) > 0


@pytest.mark.parametrize("solver", ["vb", "online"])
def test_sampled_topics_are_a_better_start(solver):
    X, _ = topic_counts(np.random.default_rng(4), 300, 150, n_topics=15)
    how = {"solver": solver, "max_iter": 10, "batch_size": 64}
    fit = lambda seed, init: LatentDirichlet(15, init=init, random_state=seed, **how).fit(X).bounds_[-1]  # noqa: E731
    sampled, random = ([fit(seed, init) for seed in range(3)] for init in ("sampled", "random"))
    assert np.mean(sampled) > np.mean(random)


def test_online_gets_nearly_as_far_as_all_documents_at_once():
    X, _ = topic_counts(np.random.default_rng(5), 300, 60, n_topics=6)
    make = lambda solver: LatentDirichlet(6, solver=solver, batch_size=64, random_state=0)  # noqa: E731
    at_once, in_batches = make("vb").fit(X), make("online").fit(X)
    bounds = [corpus_bound(lda.components_, X, lda.doc_topic_prior_, 0.03) for lda in (at_once, in_batches)]
    assert bounds[1] > 1.02 * bounds[0]  # both are negative
    assert in_batches.n_iter_ < 50
    rises = np.diff(in_batches.bounds_) / np.abs(in_batches.bounds_[1:])
    assert rises[:-1].min() > 1e-4 >= rises[-1]


@pytest.mark.parametrize("solver", ["vb", "gibbs"])
def test_the_order_of_documents_does_not_matter(solver):
    skip_without_tomotopy(solver)
    X, _ = topic_counts(np.random.default_rng(6), 60, 30, n_topics=4)
    make = lambda: LatentDirichlet(4, solver=solver, max_iter=10, random_state=0)  # noqa: E731
    shuffled = make().fit(X[np.random.default_rng(0).permutation(60)])
    np.testing.assert_allclose(make().fit(X).components_, shuffled.components_, rtol=1e-6)


@pytest.mark.parametrize("solver", ["vb", "online"])
def test_sparse_is_dense_one_thread_is_two_and_seeds_are_bytes(solver):
    X, _ = topic_counts(np.random.default_rng(3), 150, 40)
    make = lambda **how: LatentDirichlet(  # noqa: E731
        5, solver=solver, max_iter=5, prior="asymmetric", batch_size=70, random_state=4, **how
    )
    lda = make().fit(X)
    for other in (make().fit(sp.csr_matrix(X)), make(n_jobs=2).fit(sp.csc_array(X)), make().fit(X)):
        np.testing.assert_array_equal(lda.topics_, other.topics_)
        np.testing.assert_array_equal(lda.doc_topic_prior_, other.doc_topic_prior_)
        np.testing.assert_array_equal(lda.bounds_, other.bounds_)
        np.testing.assert_array_equal(lda.transform(X), other.transform(sp.csr_array(X)))
    small = make().fit(X.astype(np.float32))
    assert small.components_.dtype == small.exp_dirichlet_component_.dtype == np.float32
    np.testing.assert_allclose(small.components_, lda.components_, rtol=1e-6)
    assert small.transform(X.astype(np.float32)).dtype == small.partial_fit(X).components_.dtype == np.float32
    assert not np.array_equal(make().set_params(random_state=5).fit(X).topics_, lda.topics_)


def test_going_on():
    X, _ = topic_counts(np.random.default_rng(5), 80, 30)
    lda = LatentDirichlet(4, max_iter=5, tol=0, random_state=0, warm_start=True).fit(X)
    before = lda.bounds_[-1]
    assert lda.fit(X).bounds_[-1] > before
    with pytest.raises(BagwiseError, match="has 4 topics"):
        lda.set_params(n_components=5).fit(X)
    with pytest.raises(BagwiseError, match=r"it cannot continue from fitted topics\. Use warm_start=False"):
        lda.set_params(n_components=4, solver="gibbs").fit(X)
    assert lda.set_params(solver="online").fit(X).solver_ == "online"


def test_learning_bit_by_bit():
    X, topics, _ = planted(n_documents=600)
    lda = LatentDirichlet(4, batch_size=40, random_state=0, total_samples=600)
    for _ in range(10):
        for start in range(0, 600, 100):
            lda.partial_fit(sp.csr_array(X[start : start + 100]))
    assert lda.n_samples_seen_ == 6000
    order = matched(lda.topics_, topics)
    assert np.abs(lda.topics_[order] - topics).sum(axis=1).max() < 0.15
    one = LatentDirichlet(4, batch_size=50, random_state=0, total_samples=99).partial_fit(X[:100])
    two = LatentDirichlet(4, batch_size=50, random_state=0, total_samples=99).partial_fit(X[:50]).partial_fit(X[50:100])
    np.testing.assert_array_equal(one.topics_, two.topics_)


def test_learning_bit_by_bit_keeps_the_prior_unless_it_is_to_be_learned():
    X, _ = topic_counts(np.random.default_rng(5), 80, 30)
    priors = {}
    for prior in ("auto", "fixed", "symmetric", "asymmetric"):
        lda = LatentDirichlet(4, prior=prior, batch_size=8, random_state=0).partial_fit(X)
        priors[prior] = lda.partial_fit(X).doc_topic_prior_
    np.testing.assert_array_equal(priors["auto"], np.full(4, 0.25))
    np.testing.assert_array_equal(priors["fixed"], np.full(4, 0.25))
    assert len(set(priors["symmetric"])) == 1 != priors["symmetric"][0] / 0.25
    assert len(set(priors["asymmetric"])) == 4
    lda = LatentDirichlet(4, solver="vb", batch_size=8, random_state=0).fit(X)
    learned = lda.doc_topic_prior_.copy()
    assert len(set(learned)) == 4
    assert np.isfinite(lda.bound_)
    np.testing.assert_array_equal(lda.partial_fit(X).doc_topic_prior_, learned)
    assert not hasattr(lda, "bound_")  # that of other topics


def test_perplexity():
    X, _, _ = planted()
    unseen = planted(seed=0, n_documents=260)[0][200:]
    lda = LatentDirichlet(4, random_state=0).fit(X)
    few = LatentDirichlet(1, random_state=0).fit(X)
    assert lda.held_out_perplexity(unseen) < 0.6 * few.held_out_perplexity(unseen)
    assert few.held_out_perplexity(unseen) < 32
    seen, hidden = split_tokens(sp.csr_array(unseen), np.random.RandomState(0))
    np.testing.assert_array_equal((seen + hidden).toarray(), unseen)
    length = unseen.sum(axis=1)
    np.testing.assert_array_equal(hidden.sum(axis=1), length // 2)
    assert lda.held_out_perplexity(seen, hidden) == lda.held_out_perplexity(unseen, random_state=0)
    shares = lda.transform(seen)
    expected = np.exp(-(hidden.toarray() * np.log(shares @ lda.topics_)).sum() / hidden.sum())
    np.testing.assert_allclose(lda.held_out_perplexity(seen, hidden), expected)
    with pytest.raises(BagwiseError, match=r"integer counts, got a count of 0\.5"):
        lda.held_out_perplexity(unseen + 0.5)
    with pytest.raises(BagwiseError, match="held_out 3"):
        lda.held_out_perplexity(seen, hidden[:3])
    with pytest.raises(BagwiseError, match="nothing to predict"):
        lda.held_out_perplexity(np.eye(32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_files(tmp_path, dtype):
    X = topic_counts(np.random.default_rng(6), 40, 20)[0].astype(dtype)
    lda = LatentDirichlet(3, doc_topic_prior=np.array([0.1, 0.2, 0.3]), max_iter=np.int64(4), random_state=0).fit(X)
    path = lda.save(tmp_path / "topics.safetensors")
    again = LatentDirichlet.load(path)
    np.testing.assert_array_equal(again.transform(X), lda.transform(X))
    assert again.components_.dtype == dtype
    np.testing.assert_array_equal(again.bounds_, lda.bounds_)
    np.testing.assert_array_equal(again.partial_fit(X).topics_, lda.partial_fit(X).topics_)
    assert (again.n_iter_, again.solver_) == (lda.n_iter_, lda.solver_)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(lda)).transform(X), lda.transform(X))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(BagwiseError, match="cut short"):
        LatentDirichlet.load(path)


@pytest.mark.parametrize("shape", [(2, 0), (0, 4)])
def test_files_without_words_or_topics_are_damaged(shape, tmp_path):
    lda = LatentDirichlet(2, max_iter=1, random_state=0).fit(np.eye(4))
    path = lda.save(tmp_path / "topics.safetensors")
    header, state = latent_dirichlet._FILE.load(path, lambda *parts: parts)
    changed = {"topic_counts": np.zeros(shape), "alpha": np.ones(shape[0])}
    latent_dirichlet._FILE.save(path, header, state | changed)
    with pytest.raises(BagwiseError, match=r"topics\.safetensors is damaged: it needs a topic and a word"):
        LatentDirichlet.load(path)


def test_names_of_words_are_kept_in_files(tmp_path):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(np.eye(3) * 4 + 1, columns=["a", "b", "c"])
    lda = LatentDirichlet(2, max_iter=2, random_state=0).fit(X)
    again = LatentDirichlet.load(lda.save(tmp_path / "topics.safetensors"))
    np.testing.assert_array_equal(again.transform(X), lda.transform(X))
    assert again.feature_names_in_.tolist() == ["a", "b", "c"]
    assert again.get_feature_names_out().tolist() == ["latentdirichlet0", "latentdirichlet1"]


def test_models_of_scikit_learn():
    X, _ = topic_counts(np.random.default_rng(7), 60, 30)
    theirs = LatentDirichletAllocation(4, max_iter=5, random_state=0).fit(X)
    lda = LatentDirichlet.from_fitted(theirs)
    np.testing.assert_allclose(lda.topics_, theirs.components_ / theirs.components_.sum(axis=1, keepdims=True))
    np.testing.assert_array_equal(lda.doc_topic_prior_, np.full(4, 0.25))
    assert lda.topic_word_prior == 0.25
    assert np.abs(lda.transform(X) - theirs.transform(X)).mean() < 0.05
    lda.partial_fit(X)
    with pytest.raises(BagwiseError, match="got a dict"):
        LatentDirichlet.from_fitted({})


def test_models_like_gensims():
    class Model:
        alpha, eta = np.array([0.1, 0.4], dtype=np.float32), np.full(3, 0.01)
        state = type("State", (), {"get_lambda": lambda self: np.array([[1.0, 2, 3], [3, 2, 1]])})()

        def get_topics(self):
            raise AssertionError("counts say more")

    lda = LatentDirichlet.from_fitted(Model())
    np.testing.assert_allclose(lda.topics_, np.array([[1, 2, 3], [3, 2, 1]]) / 6)
    np.testing.assert_allclose(lda.doc_topic_prior_, [0.1, 0.4])


def test_models_of_tomotopy():
    tomotopy = pytest.importorskip("tomotopy")
    model = tomotopy.LDAModel(k=2, seed=1, min_cf=0, rm_top=0, alpha=0.1, eta=0.01)
    for _ in range(10):
        model.add_doc(["b"] * 5 + ["a"] * 4)
        model.add_doc(["c"] * 6 + ["d"] * 3)
    model.train(50, workers=1)
    lda = LatentDirichlet.from_fitted(model, vocabulary=["a", "b", "c", "d", "e"])
    shares = lda.transform([[1, 2, 0, 0, 0], [0, 0, 3, 1, 0]])
    assert set(shares.argmax(axis=1)) == {0, 1}
    assert lda.topics_[:, 4].max() < 1e-3
    assert LatentDirichlet.from_fitted(model).topics_.shape == (2, 4)
    with pytest.raises(BagwiseError, match="None of the 1 word"):
        LatentDirichlet.from_fitted(model, vocabulary=["x"])


def test_gibbs_says_what_it_needs(monkeypatch):
    X = np.eye(4) * 3
    monkeypatch.setitem(sys.modules, "tomotopy", None)
    with pytest.raises(BagwiseError, match=r'pip install "bagwise\[topics\]"'):
        LatentDirichlet(2, solver="gibbs").fit(X)


def test_gibbs_takes_whole_numbers():
    pytest.importorskip("tomotopy")
    for X, match in ((np.full((3, 2), 0.5), "count of 0.5"), (np.zeros((3, 2)), "empty")):
        with pytest.raises(BagwiseError, match=match):
            LatentDirichlet(2, solver="gibbs").fit(X)
    with pytest.raises(BagwiseError, match="does not support prior="):
        LatentDirichlet(2, solver="gibbs", prior="symmetric").fit(np.eye(3))
    X, _ = topic_counts(np.random.default_rng(8), 30, 20)
    make = lambda: LatentDirichlet(3, solver="gibbs", max_iter=20, prior="asymmetric", random_state=0)  # noqa: E731
    lda = make().fit(X)
    np.testing.assert_array_equal(lda.topics_, make().fit(X).topics_)
    np.testing.assert_allclose(lda.components_.sum() - 20 * 3 * lda.topic_word_prior, X.sum(), rtol=1e-9)


def test_auto_samples_where_it_can(monkeypatch, tmp_path):
    pytest.importorskip("tomotopy")
    X, _ = topic_counts(np.random.default_rng(8), 60, 20)
    lda = LatentDirichlet(3, max_iter=100, random_state=0).fit(X)
    assert lda.solver_ == "gibbs"
    assert lda.n_iter_ == 100
    assert len(set(lda.doc_topic_prior_)) == 3
    np.testing.assert_allclose(lda.components_.sum() - 20 * 3 * lda.topic_word_prior, X.sum())
    again = LatentDirichlet(3, max_iter=100, n_jobs=2, random_state=0).fit(sp.csr_array(X))
    assert lda.components_.tobytes() == again.components_.tobytes()
    assert lda.doc_topic_prior_.tobytes() == again.doc_topic_prior_.tobytes()
    explicit = LatentDirichlet(3, solver="gibbs", prior="asymmetric", max_iter=100, random_state=0).fit(X)
    assert lda.components_.tobytes() == explicit.components_.tobytes()
    given = LatentDirichlet(3, doc_topic_prior=0.2, max_iter=100, random_state=0).fit(X)
    assert given.solver_ == "gibbs"
    np.testing.assert_array_equal(given.doc_topic_prior_, np.full(3, 0.2))
    again = LatentDirichlet.load(lda.save(tmp_path / "topics.safetensors"))
    assert (again.solver, again.solver_) == ("auto", "gibbs")
    np.testing.assert_array_equal(again.transform(X), lda.transform(X))
    assert again.partial_fit(X).solver_ == "online"
    monkeypatch.setitem(sys.modules, "tomotopy", None)
    without, variational = (LatentDirichlet(3, solver=name, random_state=0).fit(X) for name in ("auto", "vb"))
    assert without.solver_ == "vb"
    assert without.components_.tobytes() == variational.components_.tobytes()
    assert len(set(without.doc_topic_prior_)) == 3


@pytest.mark.parametrize(
    ("how", "weights"),
    [
        ({"max_iter": 99}, None),
        ({"smoothing": "map"}, None),
        ({"smoothing": "map", "topic_word_prior": 0}, None),
        ({"prior": "symmetric"}, None),
        ({"warm_start": True}, None),
        ({}, 0.5),
    ],
)
def test_auto_is_variational_where_sampling_is_not_possible(how, weights):
    X, _ = topic_counts(np.random.default_rng(8), 20, 10)
    weights = None if weights is None else np.full(20, weights)
    assert LatentDirichlet(2, tol=0.1, random_state=0, **how).fit(X, sample_weight=weights).solver_ == "vb"


def test_auto_is_variational_for_counts_that_are_no_tokens():
    X, _ = topic_counts(np.random.default_rng(8), 20, 10)
    for counts in (X + np.log1p(X), 20 * X, np.zeros((3, 2))):
        assert LatentDirichlet(2, tol=0.1, random_state=0).fit(counts).solver_ == "vb"


def test_unusual_data():
    X = np.array([[0.0, 0, 0], [2, 0, 0], [0, 3, 0]])  # an empty document, a word that never occurs
    for smoothing, eta in (("bayes", 0.01), ("map", 0.0)):
        lda = LatentDirichlet(7, smoothing=smoothing, topic_word_prior=eta, random_state=0, max_iter=20).fit(
            X
        )  # more than words
        np.testing.assert_allclose(lda.topics_.sum(axis=1), 1)
        np.testing.assert_allclose(lda.transform(X)[0], np.full(7, 1 / 7))
        assert lda.bound(X)[0] == 0
        assert np.isfinite(lda.bound([[0, 0, 5], [1, 1, 1]])).all()
    empty = LatentDirichlet(2, random_state=0).fit(np.zeros((3, 4)))
    assert np.isfinite(empty.topics_).all()


def test_ctrl_c_keeps_the_last_pass(monkeypatch):
    X, _ = topic_counts(np.random.default_rng(9), 40, 20)
    complete = LatentDirichlet(3, max_iter=3, tol=0, random_state=0).fit(X)

    def interrupted(*arguments):
        for number, state in enumerate(batch_passes(*arguments)):
            if number == 3:
                raise KeyboardInterrupt
            yield state

    monkeypatch.setitem(latent_dirichlet.SOLVERS, "vb", latent_dirichlet.Solver(100, interrupted))
    lda = LatentDirichlet(3, max_iter=50, tol=0, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        lda.fit(X)
    assert lda.n_iter_ == 3
    np.testing.assert_array_equal(lda.topics_, complete.topics_)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"solver": "em"}, "Unknown solver: 'em'"),
        ({"prior": "symetric"}, "Did you mean 'symmetric'"),
        ({"smoothing": "none"}, "Unknown smoothing"),
        ({"init": "sample"}, "Did you mean 'sampled'"),
        ({"doc_topic_prior": [1.0, 2.0, 3.0]}, "one for each of the 2 topics"),
        ({"doc_topic_prior": [1.0, -1.0]}, "from -1 to 1"),
        ({"topic_word_prior": 0}, "topic_word_prior=0 with smoothing='bayes'"),
        ({"doc_topic_prior": 0.0}, "doc_topic_prior"),
        ({"n_components": 0}, "n_components"),
        ({"learning_decay": 0.5}, "learning_decay"),
    ],
)
def test_parameters_it_cannot_use(wrong, match):
    with pytest.raises(ValueError, match=match):
        LatentDirichlet(**({"n_components": 2} | wrong)).fit(np.eye(3))


def test_a_fit_that_fails_leaves_nothing_old():
    lda = LatentDirichlet(2, max_iter=2).fit(np.eye(3))
    with pytest.raises(BagwiseError):
        lda.fit(-np.eye(4))
    with pytest.raises(NotFittedError):
        lda.transform(np.eye(3))


SHARED_NAMES = {
    "doc_topic_prior": 0.2,
    "topic_word_prior": None,
    "learning_decay": 0.8,
    "learning_offset": 5.0,
    "total_samples": 500,
    "max_iter": 8,
    "batch_size": 40,
    "max_doc_update_iter": 50,
    "mean_change_tol": 1e-3,
    "n_jobs": 1,
    "verbose": 0,
    "random_state": 0,
}


@pytest.mark.parametrize("LDA", [LatentDirichletAllocation, LatentDirichlet])
def test_it_drops_in_for_scikit_learns(LDA):
    """The same keyword arguments, attributes and methods in a pipeline and a grid search."""
    X, y = topic_counts(np.random.default_rng(10), 120, 40, n_topics=4)
    pipeline = Pipeline([("lda", LDA(n_components=3, **SHARED_NAMES)), ("svm", LogisticRegression())])
    grid = {"lda__n_components": [2, 6], "lda__doc_topic_prior": [0.1, 0.5]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(sp.csr_matrix(X), y)
    assert search.best_score_ > 0.6
    lda = search.best_estimator_[0]
    n = lda.n_components
    assert lda.components_.shape == (n, 40)
    assert lda.n_iter_ <= 8 <= lda.n_batch_iter_ or lda.n_iter_ == lda.n_batch_iter_
    assert lda.topic_word_prior_ == 1 / n
    np.testing.assert_array_equal(lda.doc_topic_prior_, lda.doc_topic_prior)
    assert 1 < lda.bound_ < 100
    assert 1 < lda.perplexity(X) < 100
    assert lda.score(X) < 0
    Z = lda.transform(X)
    np.testing.assert_allclose(Z.sum(axis=1), 1)
    raw = lda.transform(X, normalize=False)
    np.testing.assert_allclose(raw / raw.sum(axis=1, keepdims=True), Z)
    assert GridSearchCV(LDA(**SHARED_NAMES), {"n_components": [1, 4]}, cv=2).fit(X).best_params_ == {"n_components": 4}
    assert LDA(**SHARED_NAMES).fit_transform(X).shape == (120, 10)
    lda.set_params(n_components=n).partial_fit(X)


def test_the_perplexity_of_training_documents_is_scikit_learns():
    X, _ = topic_counts(np.random.default_rng(11), 50, 30, n_topics=4)
    theirs = LatentDirichletAllocation(4, **SHARED_NAMES).fit(X)
    lda = LatentDirichlet(4, init="random", tol=0, **SHARED_NAMES).fit(X)
    np.testing.assert_allclose(lda.bound_, theirs.bound_, rtol=0.02)
    np.testing.assert_allclose(np.log(lda.bound_), -lda.bounds_[-1] / X.sum())


@pytest.mark.parametrize("how", [{}, {"prior": "asymmetric"}, {"prior": "symmetric", "smoothing": "map"}])
def test_integer_weights_are_repeated_documents(how):
    X, _ = topic_counts(np.random.default_rng(12), 60, 30, n_topics=4)
    weights = np.random.default_rng(13).integers(0, 4, 60)
    make = lambda: LatentDirichlet(4, max_iter=12, random_state=0, **how)  # noqa: E731
    weighted, repeated = make().fit(X, sample_weight=weights), make().fit(np.repeat(X, weights, axis=0))
    np.testing.assert_allclose(weighted.components_, repeated.components_, rtol=1e-6)
    np.testing.assert_allclose(weighted.doc_topic_prior_, repeated.doc_topic_prior_, rtol=1e-6)
    np.testing.assert_allclose(weighted.bounds_, repeated.bounds_, rtol=1e-9)
    np.testing.assert_allclose(weighted.bound_, repeated.bound_, rtol=1e-9)
    assert weighted.n_samples_seen_ == weights.sum()
    assert not np.allclose(weighted.components_, make().fit(X).components_)
    scaled = make().fit(X, sample_weight=0.5 * weights)
    assert scaled.components_.sum() < 0.6 * weighted.components_.sum()


def test_weights_of_the_other_solvers():
    X, _ = topic_counts(np.random.default_rng(14), 60, 30, n_topics=4)
    make = lambda solver: LatentDirichlet(3, solver=solver, max_iter=3, batch_size=20, random_state=0)  # noqa: E731
    ones = make("online").fit(X, sample_weight=np.ones(60))
    np.testing.assert_allclose(ones.components_, make("online").fit(X).components_, rtol=1e-9)
    twice = make("online").fit(X, sample_weight=np.full(60, 2.0))
    assert twice.components_.sum() > 1.5 * ones.components_.sum()
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        make("vb").fit(X, sample_weight=-np.ones(60))
    with pytest.raises(BagwiseError, match="takes integers as sample_weight"):
        make("gibbs").fit(X, sample_weight=np.full(60, 0.5))
    pytest.importorskip("tomotopy")
    weights = np.arange(60) % 3
    repeated = make("gibbs").fit(np.repeat(X, weights, axis=0))
    np.testing.assert_array_equal(make("gibbs").fit(X, sample_weight=weights).components_, repeated.components_)


def test_data_it_cannot_use():
    with pytest.raises(BagwiseError, match="sample 1, word 0 is -1"):
        LatentDirichlet(2).fit([[1, 2], [-1, 3]])
    with pytest.raises(ValueError, match="NaN"):
        LatentDirichlet(2).fit([[1, np.nan], [1, 3]])
    with pytest.raises(NotFittedError):
        LatentDirichlet(2).transform(np.eye(2))
    lda = LatentDirichlet(2, max_iter=2).fit(np.eye(3))
    with pytest.raises(BagwiseError, match="non-negative"):
        lda.bound(-np.eye(3))


def test_perplexity_is_that_of_scikit_learn():
    X, _ = topic_counts(np.random.default_rng(21), 60, 30, n_topics=4)
    theirs = LatentDirichletAllocation(4, max_iter=20, random_state=0, total_samples=600).fit(X[:40])
    ours = LatentDirichlet.from_fitted(theirs)
    ours.set_params(total_samples=600, mean_change_tol=1e-6, max_doc_update_iter=1000)
    for some in (X[:40], X[40:]):
        np.testing.assert_allclose(ours.perplexity(some), theirs.perplexity(some), rtol=2e-3)
        np.testing.assert_allclose(ours.score(some), theirs.score(some), rtol=2e-3)
        np.testing.assert_allclose(ours.perplexity(some, True), theirs.perplexity(some, sub_sampling=True), rtol=2e-3)
    fitted = LatentDirichlet(4, solver="vb", mean_change_tol=1e-8, max_doc_update_iter=2000, random_state=0).fit(X)
    np.testing.assert_allclose(fitted.perplexity(X), fitted.bound_, rtol=1e-3)
    with pytest.raises(BagwiseError, match="The documents have no tokens"):
        fitted.perplexity(np.zeros((2, 30)))


def test_names_of_scikit_learn_are_mapped():
    X, _ = topic_counts(np.random.default_rng(22), 60, 30, n_topics=4)
    options = {"n_components": 4, "max_iter": 30, "random_state": 0}
    for theirs, ours in (("batch", "vb"), ("online", "online")):
        one, other = (
            LatentDirichlet(**how, **options).fit(X) for how in ({"learning_method": theirs}, {"solver": ours})
        )
        np.testing.assert_array_equal(one.components_, other.components_)
        assert one.solver_ == ours
    plain = LatentDirichlet(learning_method="batch", **options).fit(X)
    assert LatentDirichlet(learning_method="batch", evaluate_every=-1, **options).fit(X).n_iter_ == 30 > plain.n_iter_
    assert LatentDirichlet(learning_method="batch", perp_tol=1e9, **options).fit(X).n_iter_ == 2
    assert LatentDirichlet(learning_method="batch", perp_tol=1e9, evaluate_every=5, **options).fit(X).n_iter_ == 10
    with pytest.raises(BagwiseError, match=r"learning_method='batch' and solver='online' name the same thing"):
        LatentDirichlet(solver="online", learning_method="batch").fit(X)


def _one_pass(X, state, training, rng, sample_weight=None):
    yield next(batch_passes(X, state, training, rng, sample_weight))


def test_an_entry_is_all_that_a_new_solver_needs(monkeypatch, tmp_path):
    """Nothing else is touched; topics have no part in commands."""
    monkeypatch.setitem(latent_dirichlet.SOLVERS, "once", latent_dirichlet.Solver(9, _one_pass))
    X, _ = topic_counts(np.random.default_rng(8), 20, 10)
    lda = LatentDirichlet(3, solver="once", random_state=0).fit(X)
    once = LatentDirichlet(3, solver="vb", max_iter=1, random_state=0).fit(X)
    assert (lda.solver_, lda.n_iter_) == ("once", 1)
    assert lda.components_.tobytes() == once.components_.tobytes()
    again = LatentDirichlet.load(lda.save(tmp_path / "topics.safetensors"))
    np.testing.assert_array_equal(again.transform(X), once.transform(X))
    assert FreeEnergyScore(LatentDirichlet(3, solver="once", random_state=0)).fit(X).transform(X).shape == (20, 13)
    monkeypatch.delitem(latent_dirichlet.SOLVERS, "once")
    with pytest.raises(BagwiseError, match="Unknown solver: 'once'"):
        lda.fit(X)
    with pytest.raises(BagwiseError, match="solver"):
        LatentDirichlet.load(tmp_path / "topics.safetensors")
