"""Calibrated probabilities from cross-validation."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from bagwise import BagwiseError, Model, runtime
from bagwise._utils.arrays import softmax
from bagwise.app import fit_model
from bagwise.app.training.calibration import HeldOutScores, fit_sharpness
from bagwise.sources import Collection
from model_cases import MADE


def drawn(random, n, n_classes, sharpness):
    """Scores, and classes with the probabilities softmax(sharpness · scores)."""
    scores = random.normal(size=(n, n_classes))
    p = softmax(sharpness * scores)
    return scores, (p.cumsum(axis=1) > random.random((n, 1))).argmax(axis=1)


def noisy_table(random, n, n_classes=3):
    """Counts of words, of which some are frequent in one class: items are hard to tell apart."""
    codes = random.integers(0, n_classes, n)
    rates = 2 + 1.5 * (np.arange(12) % n_classes == np.arange(n_classes)[:, None])
    labels = [(f"class{code}",) for code in codes]
    return Collection.from_matrix(random.poisson(rates[codes]), [str(k) for k in range(n)], labels), codes


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("sharpness", [0.1, 1.0, 20.0])
def test_sharpness_is_the_most_likely_one(n_classes, sharpness):
    scores, codes = drawn(np.random.default_rng(0), 4000, n_classes, sharpness)
    found = fit_sharpness(scores, codes)
    target = np.where(codes[:, None] == np.arange(n_classes), 1 - 1 / 4002, 1 / 4002 / (n_classes - 1))

    def loss(log_sharpness):
        return -(target * np.log(softmax(np.exp(log_sharpness) * scores))).sum()

    assert found == pytest.approx(np.exp(minimize_scalar(loss, bounds=(-5, 6), method="bounded").x), rel=1e-4)
    assert found == pytest.approx(sharpness, rel=0.3)


@given(st.integers(2, 6), st.integers(1, 20), st.sampled_from([1e-8, 1.0, 1e8]), st.integers(0, 1000))
def test_sharpness_is_positive_and_bounded(n_classes, n, scale, seed):
    random = np.random.default_rng(seed)
    scores = scale * random.integers(-2, 3, (n, n_classes)).astype(float)
    codes = random.integers(0, n_classes, n)
    found = fit_sharpness(scores, codes)
    assert 0 < found < 1e16
    assert found == pytest.approx(fit_sharpness(scores + 5 * scale, codes), rel=1e-3)
    p = softmax(found * scores)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (p[np.arange(n), scores.argmax(axis=1)] == p.max(axis=1)).all()


def test_all_items_right_and_all_wrong():
    scores, right = np.array([[2.0, 0.0], [0.0, 1.0]] * 10), np.array([0, 1] * 10)
    sure = softmax(fit_sharpness(scores, right) * scores).max(axis=1)
    assert (sure > 0.85).all()
    assert sure.min() < 0.999
    assert softmax(fit_sharpness(scores, 1 - right) * scores).max() < 0.51


def test_many_items_are_sampled():
    codes = np.arange(10_000) % 2
    held_out = HeldOutScores(codes, 2, [5, 10])
    scores = np.random.default_rng(0).normal(size=10_000) + codes
    for fold in range(4):
        items = np.arange(fold, 10_000, 4)
        held_out(0, items, scores[items])
        held_out(1, items, 2 * scores[items, np.newaxis])
    assert held_out.scores.shape == (2, 4000, 2)
    assert np.isfinite(held_out.scores).all()
    found = held_out.calibration()
    assert found[5] == pytest.approx(2 * found[10], rel=1e-5)


@pytest.mark.parametrize("options", [{}, {"criterion": "aib"}])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_are_calibrated(options, n_classes, tmp_path):
    random = np.random.default_rng(1)
    rows, _ = noisy_table(random, 600, n_classes)
    model = fit_model(rows, n_groups=6, **options)
    new, codes = noisy_table(random, 4000, n_classes)
    scores, p = model.decision_function(new), model.predict_proba(new)
    np.testing.assert_array_equal(p.argmax(axis=1), scores.argmax(axis=1))
    right = p.argmax(axis=1) == codes
    assert abs(p.max(axis=1).mean() - right.mean()) < 0.04
    for low, high in ((0, 0.6), (0.6, 0.8), (0.8, 1)):  # and so it is where it is sure, and where it is not
        some = (p.max(axis=1) > low) & (p.max(axis=1) <= high)
        assert some.sum() < 50 or abs(p.max(axis=1)[some].mean() - right[some].mean()) < 0.1
    model.save(tmp_path / "m.bagwise")
    loaded, light = Model.load(tmp_path / "m.bagwise"), runtime.load(tmp_path / "m.bagwise")
    np.testing.assert_array_equal(loaded.predict_proba(new), p)
    np.testing.assert_allclose(light.probabilities(light.scores(light.transform_counts(new.X))), p, rtol=1e-5)
    np.testing.assert_allclose(model.compact().predict_proba(new), p, rtol=1e-5)
    assert set(loaded.calibration) == set(loaded.path.sizes) & set(loaded.heads)


def test_without_cross_validation_there_are_none(tmp_path):
    rows, _ = noisy_table(np.random.default_rng(0), 60)
    model = fit_model(rows, n_groups=4, folds=0)
    assert model.calibration == {}
    with pytest.raises(BagwiseError, match="probabilities for 4 groups: they come from cross-validation"):
        model.predict_proba(rows)
    model.save(tmp_path / "m.bagwise")
    with pytest.raises(runtime.ModelFileError, match="No calibration for 4 groups"):
        runtime.load(tmp_path / "m.bagwise").probabilities([[1.0, 2.0, 3.0]])
    some = dataclasses.replace(MADE["images"](), calibration={2: 1.0})
    with pytest.raises(BagwiseError, match="for 4 groups: it has them for 2 groups"):
        some.probabilities([[1.0, 2.0, 3.0]])


@pytest.mark.parametrize("wrong", [{3: 1.0}, {4: 0.0}, {4: np.nan}, {4: True}, {4: "1"}, [1.0]])
def test_wrong_calibration(wrong):
    with pytest.raises(BagwiseError, match="calibration"):
        dataclasses.replace(MADE["images"](), calibration=wrong)
