"""Metrics beside definitions written out."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from bagwise import BagwiseError
from bagwise.metrics import (
    average_precision,
    clustering_report,
    mean_average_precision,
    precision_recall_curve,
    purity,
)


def plain_interpolated(relevant, total):
    precisions = [(np.sum(relevant[: k + 1]) / (k + 1), np.sum(relevant[: k + 1])) for k in range(len(relevant))]
    levels = [max((p for p, found in precisions if 10 * found >= level * total), default=0.0) for level in range(11)]
    return np.mean(levels)


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(0, 10))
def test_interpolated_average_precision(relevant, missing):
    total = sum(relevant) + missing
    value = average_precision(relevant, total)
    if total == 0:
        assert np.isnan(value)
    else:
        assert value == pytest.approx(plain_interpolated(relevant, total))


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(1, 40))
def test_average_precision_with_its_denominators(relevant, cutoff):
    total = sum(relevant)
    cut = relevant[:cutoff]
    hits = sum(np.mean(cut[: k + 1]) for k in range(len(cut)) if cut[k])
    for denominator, R in (("all", total), ("returned", sum(cut)), ("min", min(total, cutoff))):
        value = average_precision(relevant, interpolated=False, cutoff=cutoff, denominator=denominator)
        if total == 0:
            assert np.isnan(value)
        else:
            assert value == pytest.approx(hits / R if R else 0.0)


def test_average_precision_without_ties_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    relevant, scores = rng.random(50) < 0.3, rng.random(50)
    ranked = relevant[np.argsort(-scores)]
    expected = sklearn_metrics.average_precision_score(relevant, scores)
    assert average_precision(ranked, interpolated=False) == pytest.approx(expected)


@pytest.mark.parametrize("metric", ["euclidean", "chi2", "cosine", "l1"])
def test_blocks_do_not_matter_and_sparse_is_dense(metric, monkeypatch):
    from bagwise import metrics

    rng = np.random.default_rng(0)
    Q, G = rng.random((13, 6)), rng.random((29, 6))
    q, g = rng.integers(0, 4, 13), rng.integers(0, 3, 29)  # class 3 has nothing in the gallery
    whole = mean_average_precision(Q, q, G, g, metric=metric)
    curve = precision_recall_curve(Q, q, G, g, metric=metric)[1]
    assert curve.mean() == pytest.approx(whole)
    monkeypatch.setattr(metrics, "_BLOCK_NUMBERS", 29)
    assert mean_average_precision(Q, q, G, g, metric=metric) == pytest.approx(whole)
    assert mean_average_precision(sp.csr_array(Q), q, sp.csr_array(G), g, metric=metric) == pytest.approx(whole)


def test_equally_near_items_keep_their_order():
    """All of the gallery is as near as can be; so the ranking is the order it came in."""
    query, gallery = np.ones((1, 2)), np.ones((40, 2))
    labels = np.arange(40) < 20
    for order in (labels, labels[::-1]):
        found = mean_average_precision(query, [True], gallery, order, interpolated=False)
        assert found == pytest.approx(average_precision(order, interpolated=False))


def test_chi2_ranks_by_the_distance():
    rng = np.random.default_rng(0)
    Q, G = rng.dirichlet(np.ones(5), 4), rng.dirichlet(np.ones(5), 9)
    q, g = np.arange(4) % 2, np.arange(9) % 2

    def distance(X, Y):
        return np.array([[0.5 * np.sum((x - y) ** 2 / (x + y)) for y in Y] for x in X])

    assert mean_average_precision(Q, q, G, g, metric="chi2") == pytest.approx(
        mean_average_precision(Q, q, G, g, metric=distance)
    )


def test_clustering_report():
    rng = np.random.default_rng(0)
    X, predicted, truth = rng.random((30, 3)), rng.integers(0, 4, 30), rng.integers(0, 3, 30)
    report = clustering_report(X, predicted, truth)
    assert report["silhouette"] == pytest.approx(sklearn_metrics.silhouette_score(X, predicted))
    assert report["rand"] == pytest.approx(
        np.mean([(predicted[i] == predicted[j]) == (truth[i] == truth[j]) for i in range(30) for j in range(i)])
    )
    assert report["purity"] == pytest.approx(sum(np.bincount(truth[predicted == c]).max() for c in range(4)) / 30)
    assert set(clustering_report(X, predicted)) == {"calinski_harabasz", "silhouette", "davies_bouldin"}
    for key, value in clustering_report(sp.csr_array(X), predicted, truth).items():
        assert value == pytest.approx(report[key])


@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [0, 1, 2, 3]])
def test_one_cluster_or_as_many_as_objects_have_no_shape(labels):
    report = clustering_report(np.eye(4), labels, labels)
    assert np.isnan(report["silhouette"])
    assert report["purity"] == 1


def test_purity_of_perfect_clusters_is_one():
    assert purity(["a", "b", "a"], [7, 3, 7]) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: average_precision([[True]]), "one ranking"),
        (lambda: average_precision([True, True], 1), "n_relevant=1, but the ranking has 2"),
        (lambda: average_precision([True], cutoff=0), "cutoff must be at least 1"),
        (lambda: average_precision([True], denominator="al"), "Did you mean 'all'"),
        (lambda: mean_average_precision([[1.0]], [0], [[1.0, 2.0]], [0]), "queries have 1 column, the gallery has 2"),
        (lambda: mean_average_precision([[1.0]], [0], [[1.0]], [0], metric="chi"), "Did you mean 'chi2'"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(BagwiseError, match=message):
        call()
