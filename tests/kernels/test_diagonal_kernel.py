import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.optimize import approx_fprime
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from bagwise import BagwiseError
from bagwise.kernels import DiagonalKernelLearner
from bagwise.kernels import diagonal_kernel as diagonal_kernel_module
from bagwise.kernels import label_similarity as label_similarity_module
from bagwise.kernels.diagonal_kernel import PairLoss, ball_weights
from bagwise.kernels.label_similarity import GivenSimilarity, SharedLabels, class_agreement, label_similarity

OBJECTIVES = ("ball", "prox", "correlation", "logistic")


def slow_gradient(X, similarities):
    """The sum over all pairs, written out."""
    n, d = X.shape
    gradient = np.zeros(d)
    for i in range(n):
        for j in range(n):
            if i != j:
                gradient += similarities[i, j] * X[i] * X[j]
    return gradient


def slow_loss(X, signs, penalty, weights):
    kernel = X @ np.diag(weights) @ X.T
    pairs = [np.log1p(np.exp(-signs[i, j] * kernel[i, j])) for i in range(len(X)) for j in range(i)]
    return np.mean(pairs) + penalty / 2 * np.sum((weights - 1) ** 2)


numbers = st.floats(-3, 3, allow_subnormal=False).map(lambda v: round(v, 3)) | st.just(0.0)


@st.composite
def problems(draw):
    """Some samples with classes, and with labels that may be shared."""
    n, d = draw(st.integers(2, 9)), draw(st.integers(1, 5))
    X = draw(npst.arrays(np.float64, (n, d), elements=numbers))
    y = np.array(draw(st.lists(st.integers(0, 2), min_size=n, max_size=n).filter(lambda y: len(set(y)) > 1)))
    Y = draw(npst.arrays(np.int64, (n, draw(st.integers(2, 3))), elements=st.integers(0, 1)))
    return X, y, Y


def distance_similarity(a, b):
    return 1.0 - np.abs(np.asarray(a)[:, None] - np.asarray(b)[None, :])


def definitions(y, Y):
    """Each similarity, and the matrix it stands for."""
    return [
        (class_agreement(np.unique(y, return_inverse=True)[1]), 2.0 * (y[:, None] == y) - 1),
        (SharedLabels(Y), (Y @ Y.T).astype(float)),
        (SharedLabels(sp.csr_array(Y)), (Y @ Y.T).astype(float)),
        (GivenSimilarity(distance_similarity, y), 1.0 - np.abs(y[:, None] - y)),
    ]


@given(problem=problems(), form=st.sampled_from([np.asarray, sp.csr_array, sp.csr_matrix]), dtype=st.sampled_from("fd"))
def test_gradient_is_the_sum_over_pairs(problem, form, dtype):
    X, y, Y = problem
    near = {"rtol": 1e-10, "atol": 1e-9} if dtype == "d" else {"rtol": 1e-4, "atol": 1e-3}
    for similarity, matrix in definitions(y, Y):
        gradient = similarity.gradient(form(X.astype(dtype)))
        assert gradient.dtype == np.float64
        np.testing.assert_allclose(gradient, slow_gradient(X, matrix), **near)
        everyone = np.arange(len(X))
        np.testing.assert_array_equal(similarity.between(everyone, everyone), matrix)
        some = everyone[::2]
        np.testing.assert_allclose(
            similarity.take(some).gradient(form(X[some])), slow_gradient(X[some], matrix[np.ix_(some, some)]), atol=1e-9
        )


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_blocks_of_similarities_add_up(form, monkeypatch):
    X, y = random_problem(n=23)
    whole = GivenSimilarity(distance_similarity, y).gradient(form(X))
    monkeypatch.setattr(label_similarity_module, "_BLOCK_NUMBERS", 100)
    np.testing.assert_allclose(GivenSimilarity(distance_similarity, y).gradient(form(X)), whole, rtol=1e-10)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_rounding_is_no_agreement(form):
    X = np.array([[0.1, 0.7], [0.0, 0.3], [0.0, 0.0]])
    alone = np.array([[1, 1, 1], [0, 0, 0], [0, 0, 0]])  # no two samples share a label
    assert not SharedLabels(alone).gradient(form(X)).any()
    assert not GivenSimilarity(lambda a, b: a @ b.T, alone).gradient(form(X)).any()
    np.testing.assert_array_equal(DiagonalKernelLearner("prox").fit(form(X), alone).weights_, 1)


def random_problem(seed=0, n=40, d=6, n_classes=2):
    """The first two features follow the class, the others do not."""
    random = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = random.normal(size=(n, d))
    X[:, :2] += 2 * (y - y.mean())[:, None]
    return X, y


def test_with_standardised_features_the_gradient_is_the_share_of_variance_between_classes():
    X, y = random_problem(n=60, n_classes=3)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    between = np.mean([X[y == c].mean(axis=0) ** 2 for c in range(3)], axis=0)
    expected = 2 * 60**2 * between / 3 - 60
    np.testing.assert_allclose(class_agreement(y).gradient(X), expected, atol=1e-9)


def test_ball_beats_every_other_weights_in_the_ball():
    X, y = random_problem()
    learner = DiagonalKernelLearner().fit(X, y)
    signs = 2.0 * (y[:, None] == y) - 1 - np.eye(len(y))

    def agreement(weights):
        return np.sum(signs * (X @ np.diag(weights) @ X.T))

    assert np.linalg.norm(learner.weights_) == pytest.approx(1)
    assert (learner.weights_ >= 0).all()
    assert agreement(learner.weights_) == pytest.approx(learner.gradient_ @ learner.weights_)
    random = np.random.default_rng(0)
    for _ in range(200):
        other = np.abs(random.normal(size=X.shape[1]))
        assert agreement(other / np.linalg.norm(other)) <= agreement(learner.weights_)
    free = DiagonalKernelLearner(non_negative=False).fit(X, y)
    np.testing.assert_allclose(free.weights_, free.gradient_ / np.linalg.norm(free.gradient_))
    assert agreement(free.weights_) >= agreement(learner.weights_)


def test_ball_without_any_agreement_warns():
    X = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])
    with pytest.warns(UserWarning, match="No feature agrees"):
        learner = DiagonalKernelLearner().fit(X, [0, 1, 2])
    np.testing.assert_allclose(learner.weights_, np.sqrt(0.5))
    np.testing.assert_allclose(np.linalg.norm(ball_weights(np.array([1e-300, 3e200, 1e300]))), 1)


def test_prox_goes_a_step_along_the_gradient():
    X, y = random_problem()
    learner = DiagonalKernelLearner("prox", step=0.3).fit(X, y)
    unit = learner.gradient_ / np.abs(learner.gradient_).max()
    np.testing.assert_allclose(learner.weights_, 1 + 0.3 * unit)
    far = DiagonalKernelLearner("prox", step=100.0).fit(X, y)
    np.testing.assert_allclose(far.weights_, np.maximum(1 + 100 * unit, 0))
    assert (far.weights_ == 0).any()
    free = DiagonalKernelLearner("prox", step=100.0, non_negative=False).fit(X, y)
    np.testing.assert_allclose(free.weights_, 1 + 100 * unit)


@given(problem=problems(), form=st.sampled_from([np.asarray, sp.csr_array, sp.csr_matrix]), dtype=st.sampled_from("fd"))
@settings(max_examples=40)
def test_separability_is_the_variance_between_labels_above_chance(problem, form, dtype):
    X, y, Y = problem
    n = len(X)
    centred = X.astype(dtype).astype(float)
    centred = centred - centred.mean(axis=0)
    varies = np.sum(centred**2, axis=0) > 1e-9
    total = np.where(varies, np.sum(centred**2, axis=0), 1)
    near = {"rtol": 1e-4, "atol": 1e-5}
    codes = np.unique(y, return_inverse=True)[1]
    between = sum(np.sum(codes == c) * centred[codes == c].mean(axis=0) ** 2 for c in np.unique(codes))
    expected = n * np.where(varies, between / total, 0) / (len(np.unique(codes)) - 1) - 1
    np.testing.assert_allclose(class_agreement(codes).separability(form(X.astype(dtype))), expected, **near)
    expected, chance = np.zeros(X.shape[1]), 0.0
    for label in Y.T:
        fraction = label.mean()
        if 0 < fraction < 1:
            squares = (label - fraction) @ centred / np.sqrt(n * fraction * (1 - fraction) * total)
            expected += (1 - fraction) * n * np.where(varies, squares**2, 0)
            chance += 1 - fraction
    expected = expected / chance - 1 if chance else expected
    np.testing.assert_allclose(SharedLabels(Y).separability(form(X.astype(dtype))), expected, **near)


def test_the_step_of_correlation_depends_on_neither_scale_nor_mean_nor_other_features():
    X, y = random_problem(n_classes=3)
    weights = DiagonalKernelLearner("correlation").fit(X, y).weights_
    scales = np.logspace(-3, 3, X.shape[1])
    np.testing.assert_allclose(DiagonalKernelLearner("correlation").fit(X * scales + scales, y).weights_, weights)
    more = np.column_stack([X, y == 0, np.ones(len(X))])  # a feature that is better than all, and a constant
    both = DiagonalKernelLearner("correlation").fit(more, y).weights_
    np.testing.assert_allclose(both[:-2], weights)
    assert both[-2] > weights.max()
    assert both[-1] == pytest.approx(1 - 0.2)  # correlation 0 is below chance
    learner = DiagonalKernelLearner("correlation", step=0.1, non_negative=False).fit(X, y)
    np.testing.assert_allclose(learner.weights_, 1 + 0.1 * learner.gradient_)


def test_labels_at_random_leave_weights_at_1_in_the_mean():
    random = np.random.default_rng(0)
    y = random.integers(0, 4, 300)
    X = random.exponential(size=(300, 3000))
    weights = DiagonalKernelLearner("correlation", step=1.0, non_negative=False).fit(X, y).weights_
    assert weights.mean() == pytest.approx(
        1, abs=0.05
    )  # χ² with 3 degrees of freedom, divided by 3: standard error 0.015


@pytest.mark.parametrize("objective", ["prox", "correlation"])
def test_pretraining_on_everything_is_two_steps(objective):
    X, y = random_problem()
    learner = DiagonalKernelLearner(objective, step=0.2)
    once = clone(learner).fit(X, y)
    twice = clone(learner).set_params(pretrain_size=len(X), random_state=0).fit(X, y)
    np.testing.assert_allclose(twice.weights_, np.maximum(1 + 2 * 0.2 * once_gradient(once), 0))
    half = clone(learner).set_params(pretrain_size=0.5, random_state=0).fit(X, y)
    assert np.abs(half.weights_ - twice.weights_).max() > 0


def once_gradient(learner):
    """The gradient in the unit of the step."""
    gradient = learner.gradient_
    return gradient / np.abs(gradient).max() if learner.objective == "prox" else gradient


@given(problem=problems(), form=st.sampled_from([np.asarray, sp.csr_array]), seed=st.integers(0, 9))
@settings(max_examples=50)
def test_logistic_loss_and_its_gradient(problem, form, seed):
    X, y, Y = problem
    X = X / 2
    weights = np.random.default_rng(seed).uniform(0, 2, X.shape[1])
    for similarity, matrix in definitions(y, Y):
        signs = np.where(matrix > 0, 1.0, -1.0) if isinstance(similarity, SharedLabels) else matrix
        loss = PairLoss(form(X), similarity, penalty=0.1)
        value, gradient = loss.of_all(weights)
        assert value == pytest.approx(slow_loss(X, signs, 0.1, weights), rel=1e-9)
        differences = approx_fprime(weights, lambda w, signs=signs: slow_loss(X, signs, 0.1, w), 1e-6)
        np.testing.assert_allclose(gradient, differences, atol=1e-3, rtol=1e-3)
        in_one, of_batch = loss.of_batch(weights, np.random.default_rng(seed).permutation(len(X)))
        assert in_one == pytest.approx(value, rel=1e-9)
        np.testing.assert_allclose(of_batch, gradient, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_blocks_of_pairs_add_up(form, monkeypatch):
    X, y = random_problem(n=23)
    weights = np.linspace(0, 2, X.shape[1])
    whole = PairLoss(form(X), class_agreement(y), 0.1).of_all(weights)
    monkeypatch.setattr(diagonal_kernel_module, "_BLOCK", 5)
    parts = PairLoss(form(X), class_agreement(y), 0.1).of_all(weights)
    assert parts[0] == pytest.approx(whole[0])
    np.testing.assert_allclose(parts[1], whole[1], rtol=1e-9)


@pytest.mark.parametrize("non_negative", [True, False])
def test_logistic_over_all_pairs_finds_the_optimum(non_negative):
    """At the optimum no weight wants to move, except into what is forbidden."""
    X, y = random_problem(n_classes=3)
    X[:, -1] = 1.0  # says that all are alike, though most are not
    learner = DiagonalKernelLearner(
        "logistic", batch_size=None, C=20, max_iter=500, tol=1e-12, non_negative=non_negative
    ).fit(X, y)
    gradient = PairLoss(X, class_agreement(y), 0.05).of_all(learner.weights_)[1]
    at_zero = learner.weights_ == 0
    np.testing.assert_allclose(gradient[~at_zero], 0, atol=1e-5)
    assert (gradient[at_zero] >= -1e-8).all()
    assert at_zero.any() == non_negative
    assert (np.diff(learner.loss_curve_) <= 1e-12).all()
    assert learner.n_iter_ == len(learner.loss_curve_) - 1
    started = clone(learner).set_params(pretrain_size=0.5, random_state=0).fit(X, y)
    np.testing.assert_allclose(started.weights_, learner.weights_, atol=1e-3)  # convex: the start does not matter
    assert started.loss_curve_[0] < learner.loss_curve_[0]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_batches_come_near_the_optimum(form):
    X, y = random_problem(n=200)
    loss = PairLoss(X, class_agreement(y), 0.05)
    exact = DiagonalKernelLearner("logistic", batch_size=None, C=20, max_iter=500).fit(X, y)
    batches = DiagonalKernelLearner("logistic", batch_size=50, C=20, random_state=0).fit(form(X), y)
    best, start = loss.of_all(exact.weights_)[0], loss.of_all(np.ones(X.shape[1]))[0]
    reached = loss.of_all(batches.weights_)[0]
    assert best - 1e-9 <= reached
    assert reached - best < 0.02 * (start - best)
    assert (batches.weights_ >= 0).all()
    assert batches.n_iter_ == len(batches.loss_curve_)


def test_c_is_the_inverse_of_the_regularisation():
    X, y = random_problem(n_classes=3)
    fit = lambda C: DiagonalKernelLearner("logistic", batch_size=None, C=C, max_iter=500, tol=1e-9).fit(X, y)  # noqa: E731
    distances = [np.linalg.norm(fit(C).weights_ - 1) for C in (1e-3, 0.1, 10.0, 1e3)]
    assert distances == sorted(distances)
    assert distances[0] < 1e-2
    free = fit(np.inf).weights_
    gradient = PairLoss(X, class_agreement(y), 0.0).of_all(free)[1]
    np.testing.assert_allclose(gradient[free > 0], 0, atol=1e-5)


def test_too_few_iterations_are_reported():
    X, y = random_problem()
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        DiagonalKernelLearner("logistic", batch_size=None, max_iter=1, tol=1e-12).fit(X, y)


@pytest.mark.parametrize("objective", OBJECTIVES)
@given(problem=problems(), shared=st.booleans())
@settings(max_examples=15)
def test_sparse_equals_dense(objective, problem, shared):
    X, y, Y = problem
    X[0] += 1.0  # some agreement, if only by chance
    learner = DiagonalKernelLearner(objective, random_state=0, max_iter=5, non_negative=False, step=0.5)
    labels = Y if shared else y
    if objective == "ball" and not np.any(label_similarity("auto", labels).gradient(X)):
        return
    dense = clone(learner).fit(X, labels)
    for form in (sp.csr_matrix, sp.csr_array, sp.csc_array):
        sparse = clone(learner).fit(form(X), sp.csr_array(Y) if shared else y)
        np.testing.assert_allclose(sparse.weights_, dense.weights_, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(sparse.kernel(form(X)), dense.kernel(X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_have_the_kernel_as_inner_product(objective, dtype):
    X, y = random_problem()
    X = X.astype(dtype)
    learner = DiagonalKernelLearner(objective, random_state=0, max_iter=5).fit(X, y)
    Z = learner.transform(X)
    assert Z.dtype == dtype
    near = {"rtol": 1e-4, "atol": 1e-4} if dtype == np.float32 else {"rtol": 1e-10, "atol": 1e-12}
    expected = X @ np.diag(learner.weights_) @ X.T
    np.testing.assert_allclose(Z @ Z.T, expected, **near)
    np.testing.assert_allclose(learner.kernel(X), expected, **near)
    np.testing.assert_allclose(learner.kernel(X[:3], X[5:]), expected[:3, 5:], **near)
    np.testing.assert_allclose(learner.kernel(sp.csr_array(X[:3]), X), expected[:3], **near)
    np.testing.assert_allclose(learner.kernel(X[:3], sp.csr_array(X)), expected[:3], **near)
    assert np.linalg.eigvalsh(learner.kernel(X.astype(float))).min() > -1e-9
    sparse = learner.transform(sp.csr_array(X))
    assert sparse.format == "csr"
    assert sparse.nnz == np.count_nonzero(Z)
    np.testing.assert_allclose(sparse.toarray(), Z, **near)
    assert learner.get_feature_names_out().tolist() == [f"x{d}" for d in range(X.shape[1])]


def test_the_features_that_follow_the_classes_weigh_most():
    X, y = random_problem(n=100)
    for objective in OBJECTIVES:
        weights = DiagonalKernelLearner(objective, random_state=0).fit(X, y).weights_
        assert weights[:2].min() > weights[2:].max()


def test_same_seed_same_bytes():
    X, y = random_problem()
    learner = DiagonalKernelLearner("logistic", batch_size=10, pretrain_size=10, max_iter=30, random_state=4)
    first = clone(learner).fit(X, y)
    assert clone(learner).fit(X, y).weights_.tobytes() == first.weights_.tobytes()
    assert pickle.loads(pickle.dumps(first)).weights_.tobytes() == first.weights_.tobytes()


def test_a_function_may_say_what_the_names_say():
    X, y = random_problem()
    for objective in ("ball", "prox", "logistic"):
        named = DiagonalKernelLearner(objective, random_state=0, max_iter=4).fit(X, y)
        given = DiagonalKernelLearner(
            objective, similarity=lambda a, b: 2.0 * (a[:, None] == b) - 1, random_state=0, max_iter=4
        ).fit(X, y)
        np.testing.assert_allclose(given.weights_, named.weights_, rtol=1e-9)


def test_samples_without_labels_do_not_count():
    X, _ = random_problem()
    Y = np.zeros((len(X), 2), dtype=int)
    Y[:10, 0] = Y[10:20, 1] = 1
    some = DiagonalKernelLearner("prox").fit(X[:20], Y[:20])
    np.testing.assert_allclose(DiagonalKernelLearner("prox").fit(X, Y).weights_, some.weights_)


def test_negative_weights_have_a_kernel_and_no_features():
    X, y = random_problem()
    learner = DiagonalKernelLearner(non_negative=False).fit(X, y)
    np.testing.assert_allclose(learner.kernel(X), X @ np.diag(learner.weights_) @ X.T)
    with pytest.raises(BagwiseError, match=r"weights are negative.*Use kernel"):
        learner.transform(X)


def test_stored_twice_is_stored_once():
    X, y = random_problem()
    once = sp.csr_array(X)
    halves = sp.csr_array((np.repeat(once.data / 2, 2), np.repeat(once.indices, 2), 2 * once.indptr), shape=X.shape)
    np.testing.assert_allclose(
        DiagonalKernelLearner().fit(halves, y).weights_, DiagonalKernelLearner().fit(X, y).weights_
    )
    assert halves.nnz == 2 * once.nnz


@pytest.mark.parametrize(
    ("parameters", "labels", "message"),
    [
        ({"objective": "bal"}, [0, 1, 0], "Did you mean 'ball'"),
        ({"similarity": "class"}, [0, 1, 0], "Did you mean 'classes'"),
        ({"pretrain_size": 0.5}, [0, 1, 0], "has no start"),
        ({"objective": "correlation", "similarity": distance_similarity}, [0, 1, 0], "similarity is a function"),
        ({}, [1, 1, 1], "one class, 1"),
        ({}, [[1], [0], [1]], r"y\.ravel\(\)"),
        ({"similarity": "classes"}, [[1, 0], [0, 1], [1, 1]], "Use 'shared'"),
        ({"similarity": "shared"}, [0, 1, 0], "MultiLabelBinarizer"),
        ({}, [[1, 2], [0, 1], [1, 1]], "must be zeros and ones"),
        ({"similarity": lambda a, b: np.ones(3)}, [0, 1, 0], r"of shape \(3, 3\)"),
        ({"similarity": lambda a, b: np.full((len(a), len(b)), np.nan)}, [0, 1, 0], "not finite"),
    ],
)
def test_what_it_cannot_use(parameters, labels, message):
    with pytest.raises(BagwiseError, match=message):
        DiagonalKernelLearner(**parameters).fit([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], labels)


@pytest.mark.parametrize("wrong", [{"batch_size": 1}, {"pretrain_size": 1.5}, {"step": 0}, {"C": 0}, {"tol": 1}])
def test_parameters_it_cannot_use(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        DiagonalKernelLearner("prox", **wrong).fit(*random_problem())


def test_failed_fit_leaves_nothing():
    X, y = random_problem()
    learner = DiagonalKernelLearner().fit(X, y)
    with pytest.raises(BagwiseError), np.errstate(all="ignore"):
        learner.fit(X * 1e200, y)
    assert not hasattr(learner, "weights_")


def test_weights_that_all_vanish_are_a_warning():
    X, y = np.array([[1.0, 1.0], [2.0, 2.0], [1.0, 1.0], [2.0, 2.0]]), [0, 0, 1, 1]
    with pytest.warns(UserWarning, match=r"All weights are 0, and so is the kernel: a step of 1 leaves no feature"):
        learner = DiagonalKernelLearner("prox").fit(X, y)
    assert not learner.weights_.any()
