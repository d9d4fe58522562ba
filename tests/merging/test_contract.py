"""The contract of merging: every criterion, on every form of data and by every search, merges the best of all pairs.

All pairs are recomputed from the definitions, on vocabularies large enough for packing and summing anew. Forms and
searches that merge the same pairs are compared with the one that was recomputed.
"""

import functools
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import gammaln, xlogy

from bagwise import merge_words
from bagwise.criteria import ClassPosterior, InformationLoss, MultinomialPosterior, SampleInformationLoss
from bagwise.kernels import additive_kernel
from bagwise.merging import Statistics, merge_statistics
from bagwise.merging.criteria import resolve_criterion
from helpers import GreedyOracle, laplacian, topic_counts

KINDS = ["topics", "uniform", "duplicates", "binary", "reals"]


@functools.cache
def labelled(kind, d, n=40, n_classes=3, seed=0):
    """Counts of many kinds: with ties, with words that are copies or multiples of others, without any."""
    rng = np.random.default_rng([seed, d])
    y = np.arange(n) % n_classes
    if kind == "topics":
        X = topic_counts(rng, n, d)[0]
    else:
        X = {
            "uniform": lambda: rng.integers(0, 30, (n, d)),
            "duplicates": lambda: rng.poisson(0.7, (n, d // 4))[:, rng.integers(0, d // 4, d)] * rng.integers(1, 3, d),
            "binary": lambda: rng.random((n, d)) < 0.1,
            "reals": lambda: rng.gamma(0.5, size=(n, d)) * (1 + y[:, np.newaxis] * rng.random(d)),
        }[kind]().astype(float)
    return X, y


def class_sums(X, y):
    return np.stack([X[y == c].sum(axis=0) for c in np.unique(y)], axis=1)


def information(Z):
    """Mutual information, by word, without the entropy of the columns."""
    return xlogy(Z, Z).sum(axis=1) - xlogy(Z.sum(axis=1), Z.sum(axis=1))


def column_entropy(joint):
    totals = joint.sum(axis=0)
    return -xlogy(totals, totals).sum()


def aib(X, y, smoothing):
    joint = class_sums(X, y) + smoothing * X[X > 0].min()  # in units of a count
    joint = joint / joint.sum()
    return joint, information, column_entropy(joint)


def mmi(X, y, weights):
    X = X[X.sum(axis=1) > 0]
    joint = (X / X.sum(axis=1, keepdims=True) if weights == "uniform" else X).T
    joint = joint / joint.sum()
    return joint, information, column_entropy(joint)


def mlt(X, y, mass=1.0, total=1000.0):
    if not (np.round(X) == X).all():
        X = X * (total / X.sum(axis=1, keepdims=True))

    def worth(Z):
        counts, a = Z[:, :-1], Z[:, -1]
        within = (gammaln(counts + a[:, np.newaxis]) - gammaln(a)[:, np.newaxis]).sum(axis=1)
        return within - (gammaln(counts.sum(axis=1) + a) - gammaln(a))

    return np.column_stack([class_sums(X, y), np.full(X.shape[1], mass)]), worth, 0.0


def gml(X, y):
    def worth(Z):
        total = len(y) / 2 * np.log(Z.var(axis=1))
        return total - sum((y == c).sum() / 2 * np.log(Z[:, y == c].var(axis=1)) for c in np.unique(y))

    return X.T, worth, 0.0


def uvd_evidence(X, y):
    def evidence(values, mu0, b0):
        n = values.shape[1]
        mean, squares = values.mean(axis=1), values.var(axis=1) * n
        b = b0 + squares / 2 + n * (mean - mu0) ** 2 / (2 * (1 + n))
        return np.log(b0) - (1 + n / 2) * np.log(b) + gammaln(1 + n / 2) - np.log(1 + n) / 2

    def worth(Z):
        mu0, b0 = Z.mean(axis=1), Z.var(axis=1)
        return sum(evidence(Z[:, y == c], mu0, b0) for c in np.unique(y)) - evidence(Z, mu0, b0)

    return X.T, worth, 0.0


SUMS = {
    "aib": (InformationLoss(), lambda X, y: aib(X, y, 0.5)),
    "textbook aib": (InformationLoss(0), lambda X, y: aib(X, y, 0.0)),
    "mmi": (SampleInformationLoss(), lambda X, y: mmi(X, y, "uniform")),
    "mmi by counts": (SampleInformationLoss("counts"), lambda X, y: mmi(X, y, "counts")),
    "mlt": (MultinomialPosterior(), mlt),
}
GAUSSIAN = {
    "gml": ("gml", gml),
    "uvd": (ClassPosterior("evidence"), uvd_evidence),
}


def own_search(criterion):
    """The criterion with a scoring that has no compiled cost, which is merged by its terms alone."""

    class Own(type(criterion)):
        name = "own"

        def scoring(self, X, y, **weights):
            scoring = super().scoring(X, y, **weights)
            scoring.__class__ = type("Own", (type(scoring),), {})
            return scoring

    return Own(**criterion.get_params())


def statistics_of(X, y, cuts=(7, 8, 30)):
    classes, codes = np.unique(y, return_inverse=True)
    ends = [0, *cuts, len(y)]
    parts = [Statistics.of(X[a:b], codes[a:b], len(classes), frequencies=True) for a, b in pairwise(ends)]
    return functools.reduce(lambda total, part: total + part, parts)


FORMS = ["dense", "csr", "weighted", "weighted csr", "statistics", "sparse statistics", "dask"]


def forms_of(criterion):
    """Forms of data that a criterion takes."""
    known = resolve_criterion(criterion)
    forms = FORMS[:4] if known.takes_sample_weight else FORMS[:2]
    return forms + (FORMS[4:] if known.sums_needed is not None else [])


def merge(form, X, y, criterion, **how):
    """Merge words in a form of data; the whole data that the hierarchy is of come first."""
    given = sp.csr_array(X) if form in ("csr", "weighted csr", "sparse statistics") else X
    if "weighted" in form:
        weights = np.random.default_rng(1).integers(0, 3, len(y))
        hierarchy = merge_words(given, y, criterion=criterion, sample_weight=weights, **how)
        return np.repeat(X, weights, axis=0), np.repeat(y, weights), hierarchy
    if "statistics" in form:
        return X, y, merge_statistics(statistics_of(given, y), criterion=criterion, **how)
    if form == "dask":
        given = pytest.importorskip("dask.array").from_array(X, chunks=(9, X.shape[1]))
    return X, y, merge_words(given, y, criterion=criterion, **how)


def check(oracle_of, merged, checked, **how):
    """Recompute a hierarchy, unless another one of the same data has merged the same pairs."""
    X, y, hierarchy = merged
    same = [other for size, other in checked if size == len(y) and np.array_equal(other.merges, hierarchy.merges)]
    if same:
        np.testing.assert_allclose(hierarchy.scores, same[0].scores, rtol=1e-8, atol=1e-12)
        return None
    checked.append((len(y), hierarchy))
    assert len(hierarchy.merges) == X.shape[1] - 1
    return oracle_of(X, y).check(hierarchy, **how)


ADDITIVE = [(name, form) for name, (criterion, _) in SUMS.items() for form in forms_of(criterion)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "form"), ADDITIVE)
def test_additive_criteria_merge_the_best_pair(name, form, kind):
    d = 260 if form == "dense" else 100
    criterion, oracle = SUMS[name]
    X, y, hierarchy = merge(form, *labelled(kind, d), criterion)
    states, worth, offset = oracle(X, y)
    decided = GreedyOracle(states, worth).check(hierarchy, offset=offset)
    assert len(hierarchy.merges) == d - 1
    assert decided > (0.9 * d if kind in ("uniform", "reals") else 15)


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "duplicates") for name in SUMS), ("aib", "uniform"), ("gml", "uniform")]
)
def test_scores_without_a_compiled_cost_merge_the_best_pair(name, kind):
    X, y = labelled(kind, 150)
    criterion, oracle = {**SUMS, **GAUSSIAN}[name]
    states, worth, offset = oracle(X, y)
    hierarchy = merge_words(X, y, criterion=own_search(resolve_criterion(criterion)))
    assert GreedyOracle(states, worth).check(hierarchy, offset=offset, rtol=1e-10) > 15
    assert len(hierarchy.merges) == 149


@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("name", GAUSSIAN)
def test_gaussian_criteria_merge_the_best_pair(name, form):
    """Data in which no variance comes near its floor."""
    X, y = labelled("uniform", 220 if form == "dense" else 90)
    X = np.hstack([X, X[:, :5]])  # and copies
    criterion, oracle = GAUSSIAN[name]
    states, worth, offset = oracle(X, y)
    hierarchy = merge(form, X, y, criterion)[2]
    assert GreedyOracle(states, worth).check(hierarchy, offset=offset, rtol=1e-10) > 0.9 * len(states)


def test_uvd_merges_the_pair_that_keeps_labels_most_probable():
    X, y = labelled("uniform", 60, n=16, n_classes=2)
    classes = np.unique(y)

    def log_densities(Z):
        """Predictive densities by the ratio of evidences, (k, samples x classes)."""
        mu0, b0 = Z.mean(axis=1, keepdims=True), Z.var(axis=1, keepdims=True)
        densities = []
        for c in classes:
            own = Z[:, y == c]
            n, mean = own.shape[1], own.mean(axis=1, keepdims=True)
            kappa, a = 1 + n, 1 + n / 2
            mu = (mu0 + n * mean) / kappa
            b = b0 + own.var(axis=1, keepdims=True) * n / 2 + n * (mean - mu0) ** 2 / (2 * kappa)
            after = b + kappa * (Z - mu) ** 2 / (2 * (kappa + 1))
            densities.append(
                gammaln(a + 0.5) - gammaln(a) + a * np.log(b) - (a + 0.5) * np.log(after)
                + 0.5 * np.log(kappa / (kappa + 1)) - 0.5 * np.log(2 * np.pi)
            )  # fmt: skip
        return np.stack(densities, axis=2).reshape(len(Z), -1)

    def log_probability(sums):
        joint = sums.reshape(*sums.shape[:-1], len(y), len(classes)) + np.log([np.mean(y == c) for c in classes])
        own = joint[..., np.arange(len(y)), np.searchsorted(classes, y)]
        return (own - np.logaddexp.reduce(joint, axis=-1)).sum(axis=-1)

    hierarchy = merge_words(X, y, criterion="uvd")
    assert GreedyOracle(X.T, log_densities, log_probability).check(hierarchy, rtol=1e-10) > 50


def ratio_oracle(X, y, criterion, kernel="linear"):
    """Trace ratios as sums over words of ``Σ_ij L_ij k(x_iw, x_jw)``."""
    laplacians = [laplacian(structure) for structure in resolve_criterion(criterion).structures(X, y)]
    if kernel == "linear":
        X = X - X.mean(axis=0)  # Laplacians ignore it, rounding does not

    def worth(Z):
        if kernel == "linear":
            return np.stack([((Z @ L) * Z).sum(axis=1) for L in laplacians], axis=1)
        matrices = np.array([additive_kernel(row[:, np.newaxis], kernel=kernel) for row in Z])
        return np.stack([np.einsum("kij,ij->k", matrices, L) for L in laplacians], axis=1)

    oracle = GreedyOracle(X.T, worth)
    floors = 1e-10 * np.abs(oracle.own).sum(axis=0)

    def value(sums):
        a, b = sums[..., 0], sums[..., 1]
        return np.where(b > floors[1], a / np.where(b > floors[1], b, 1), np.where(a > floors[0], np.inf, np.nan))

    oracle.value = value
    return oracle


def n_constant(X):
    return max(int((X[0] == X).all(axis=0).sum()) - 1, 0)


SEARCHED = [{"search": "exhaustive"}, {"search": "polar"}, {"search": "bound"}, {"store": "sparse"}]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("criterion", ["csm", "nda", "mfa", "lde", "lpp", "semi_supervised"])
def test_trace_ratios_merge_the_best_pair(criterion, kind):
    """Each search on each form of data; those of sums have no sparse store, and Dask data one search."""
    X, y = labelled(kind, 120, n=50)
    if criterion == "semi_supervised":
        y = np.where(np.arange(len(y)) % 2 == 0, y, -1)
    checked, decided = [], []
    for form in forms_of(criterion):
        searches = SEARCHED[2:3] if form == "dask" else SEARCHED[:3] if "statistics" in form else SEARCHED
        for how in searches:
            merged = merge(form, X, y, criterion, **how)
            skip = n_constant(merged[0])
            decided.append(check(lambda X, y: ratio_oracle(X, y, criterion), merged, checked, skip=skip, rtol=1e-10))
    assert min(number for number in decided if number is not None) > 20
    assert decided.count(None) >= 2  # most of them merge the same


@pytest.mark.parametrize("kernel", ["intersection", "hellinger", "chi2", "jensen_shannon"])
@pytest.mark.parametrize("kind", ["topics", "reals"])
def test_trace_ratios_in_feature_spaces_merge_the_best_pair(kind, kernel):
    X, y = labelled(kind, 45, n=12)
    for criterion, forms in (("csm", FORMS[:4]), ("lpp", FORMS[:2]), ("nda", FORMS[:2])):
        checked = []
        for form in forms:
            for how in SEARCHED[:3] if form == "dense" else SEARCHED[2:3]:
                merged = merge(form, X, y, criterion, kernel=kernel, **how)
                skip = max(int((merged[0] == 0).all(axis=0).sum()) - 1, 0)
                oracle = functools.partial(ratio_oracle, criterion=criterion, kernel=kernel)
                decided = check(oracle, merged, checked, skip=skip, rtol=1e-10)
                assert decided is None or decided > 15
        assert len(checked) <= 2  # of all samples, and of weighted ones
