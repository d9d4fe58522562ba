from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise.codebooks import kmeans as kmeans_module
from bagwise.merging.sketching.feature_groups import group_features


def kept(points, labels, signs):
    """Σ_j |Σ_{k in G_j} σ_k x_k|² / |G_j|: the objective, group by group."""
    points = points.astype(np.float64)
    total = 0.0
    for group in np.unique(labels):
        members = labels == group
        total += np.sum((signs[members] @ points[members]) ** 2) / members.sum()
    return total


def scatter_within(points, labels, signs):
    points = signs[:, np.newaxis] * points.astype(np.float64)
    return sum(((points[labels == g] - points[labels == g].mean(axis=0)) ** 2).sum() for g in np.unique(labels))


def best_kept(points, n_groups, bipolar):
    """The largest objective over all groups and signs, one after the other."""
    n = len(points)
    all_signs = [np.array(s) for s in product([1, -1], repeat=n)] if bipolar else [np.ones(n)]
    labellings = [np.array(g) for g in product(range(n_groups), repeat=n) if set(g) == set(range(n_groups))]
    return max(kept(points, labels, signs) for labels in labellings for signs in all_signs)


@pytest.mark.parametrize("seed", range(3))
def test_stacked_with_its_negative_the_bipolar_optimum_is_twice(seed):
    points = np.random.default_rng(seed).normal(size=(4, 3))
    stacked = np.concatenate([points, -points])
    for n_groups in (1, 2):
        optimum = best_kept(points, n_groups, True)
        groups = group_features(stacked.copy(), n_groups, bipolar=True, n_init=40, tol=0, random_state=0)
        np.testing.assert_allclose(kept(stacked, groups.labels, groups.signs), 2 * optimum)
        np.testing.assert_array_equal(groups.labels[:4], groups.labels[4:])
        np.testing.assert_array_equal(groups.signs[:4], -groups.signs[4:])
    assert best_kept(stacked[[0, 1, 2, 4, 5, 6]], 2, True) == pytest.approx(2 * best_kept(points[:3], 2, True))


@st.composite
def signatures(draw):
    """Rows with repetitions, mirror images and zeros."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n_different, n = draw(st.integers(0, 8)), draw(st.integers(1, 20))
    different = np.concatenate([np.zeros((1, 3)), rng.normal(size=(n_different, 3))])
    rows = different[rng.integers(0, n_different + 1, n)] * rng.choice([1, -1], n)[:, np.newaxis]
    return rows.astype(draw(st.sampled_from([np.float32, np.float64])))


@settings(max_examples=150)
@given(signatures(), st.integers(1, 20), st.booleans())
def test_groups_of_any_signature(signature, n_groups, bipolar):
    groups = group_features(signature.copy(), n_groups, bipolar=bipolar, tol=0, random_state=0)
    labels, signs = groups.labels, groups.signs
    n_groups, varies = min(n_groups, len(signature)), signature.any(axis=1)
    np.testing.assert_array_equal(np.unique(labels), np.arange(n_groups))  # exactly as many as asked for
    np.testing.assert_allclose(groups.inertia, scatter_of_varying(signature, labels, signs, varies), atol=1e-5)
    assert set(signs.tolist()) <= ({1, -1} if bipolar else {1})
    assert (signs[~varies] == 1).all()
    counted = np.bincount(labels[varies], minlength=n_groups)
    everything = np.bincount(labels, minlength=n_groups)
    np.testing.assert_array_equal(groups.sizes, np.where(counted > 0, counted, everything))
    if n_groups == len(signature):
        np.testing.assert_array_equal(labels, np.arange(n_groups))
        return
    first = [np.flatnonzero((labels == g) & varies) for g in range(n_groups)]
    leading = [members[0] for members in first if len(members)]
    assert leading == sorted(leading)
    assert (signs[leading] == 1).all()
    assert all(len(members) for members in first[: len(leading)])  # groups of constant features alone come last
    kinds = {}
    for row, group, sign in zip(signature[varies], labels[varies], signs[varies], strict=True):
        turn = np.sign(row[np.flatnonzero(row)[0]]) if bipolar else 1
        kinds.setdefault(tuple(turn * row), set()).add((group, turn * sign))
    if len(kinds) >= n_groups:
        assert all(len(places) == 1 for places in kinds.values())  # equal rows are together
        assert (labels[~varies] == 0).all()
    else:
        assert groups.inertia == 0


def scatter_of_varying(signature, labels, signs, varies):
    if not varies.any():
        return 0.0
    return scatter_within(signature[varies], labels[varies], signs[varies])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [2.0**-120, 2.0**110, 3e-30])
def test_groups_do_not_depend_on_scale(scale, dtype):
    signature = np.random.default_rng(8).normal(size=(60, 10)).astype(dtype)
    expected = group_features(signature.copy(), 7, random_state=0)
    scaled = group_features(signature * dtype(scale), 7, random_state=0)
    if np.log2(scale).is_integer():
        np.testing.assert_array_equal(scaled.labels, expected.labels)
        np.testing.assert_allclose(scaled.inertia, expected.inertia * scale**2)
    np.testing.assert_allclose(scaled.inertia / scale**2, expected.inertia, rtol=0.05)
    tiny = np.full((4, 2), np.finfo(dtype).smallest_subnormal)
    tiny[:2, 0] *= 4
    assert group_features(tiny, 2).labels.tolist() == [0, 0, 1, 1]


def test_more_than_many_features_go_by_mini_batches(monkeypatch):
    signature = np.random.default_rng(9).normal(size=(300, 4)).astype(np.float32)
    used = []
    monkeypatch.setattr("bagwise.merging.sketching.feature_groups.MANY_FEATURES", 299)
    monkeypatch.setattr("bagwise.merging.sketching.feature_groups._BATCH", 50)
    monkeypatch.setattr(
        kmeans_module, "_mini_batches", lambda *a, f=kmeans_module._mini_batches: used.append(a[2]) or f(*a)
    )
    group_features(signature.copy(), 5)
    group_features(signature[:299].copy(), 5)
    group_features(signature.copy(), 40)
    assert used == [50, 160]
