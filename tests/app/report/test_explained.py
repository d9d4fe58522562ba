"""Pages of explanations: marked texts and heat maps."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from bagwise.app.report import heat_picture, marked_text
from bagwise.app.report.explained import spread_weights
from bagwise.display.texts import rounded_sums

SPANS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.floats(-5, 5)))


@given(st.text(min_size=20, max_size=20), SPANS)
def test_marked_pieces_are_the_text(text, spans):
    pieces = marked_text(text, sorted((min(a, b), max(a, b), weight) for a, b, weight in spans))
    assert "".join(piece for piece, _ in pieces) == text
    assert all(-4 <= mark <= 4 for _, mark in pieces)


def test_shown_contributions_add_up_to_the_shown_scores():
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(7, 2))

    def sums(n_groups, label, against):
        return [(str(k), *row) for k, row in enumerate(parts.tolist())]

    scores = dict(zip("ab", parts.sum(axis=0), strict=True))
    found = SimpleNamespace(sums=sums, predicted="a", runner_up="b", score_of=scores.get)
    rows = rounded_sums(found, 7, "a")
    for k, name in enumerate("ab", start=1):
        assert all(row[k] == round(row[k], 3) for row in rows)
        assert f"{sum(row[k] for row in rows):.3f}" == f"{scores[name]:.3f}"
        np.testing.assert_allclose([row[k] for row in rows], parts[:, k - 1], atol=1e-3)


def test_colours_show_what_is_for_and_against():
    image = np.full((20, 40, 3), 128, np.uint8)
    picture = heat_picture(image, [(0, 0, 20, 1.0), (20, 0, 20, -1.0)], side=40)
    pixels = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(int)
    assert pixels[10, 10, 2] > pixels[10, 10, 0]  # teal
    assert pixels[10, 30, 0] > pixels[10, 30, 2]  # red
    plain = np.asarray(Image.open(io.BytesIO(heat_picture(image, [], side=40))).convert("RGB"))
    assert np.ptp(plain) == 0


def test_weights_are_spread_over_the_pixels_of_patches():
    rng = np.random.default_rng(0)
    corners, sides, weights = rng.uniform(-4, 30, (50, 2)), rng.uniform(0, 12, 50), rng.normal(size=50)
    patches = [(x, y, side, weight) for (x, y), side, weight in zip(corners, sides, weights, strict=True)]
    for scale in (1.0, 0.25):
        height, width = round(24 * scale), round(32 * scale)
        expected = np.zeros((height, width))
        for x, y, side, weight in patches:
            left, top = (min(max(round(at * scale), 0), size - 1) for at, size in ((x, width), (y, height)))
            right = min(max(round((x + side) * scale), left + 1), width)
            bottom = min(max(round((y + side) * scale), top + 1), height)
            expected[top:bottom, left:right] += weight / ((right - left) * (bottom - top))
        np.testing.assert_allclose(spread_weights(height, width, patches, scale), expected, atol=1e-12)
        assert expected.sum() == pytest.approx(weights.sum())
    assert not spread_weights(3, 4, []).any()


def test_smooth_weights_add_up_and_have_no_edges():
    random = np.random.default_rng(0)
    cells = [(32 * x - 32, 32 * y - 32, 96, random.normal()) for x in range(8) for y in range(8)]
    heat = spread_weights(256, 256, cells, smooth=True)
    np.testing.assert_allclose(heat.sum(), sum(weight for *_, weight in cells), atol=1e-9)
    steps = np.abs(np.diff(heat, axis=0)).max() / np.abs(heat).max()
    hard = spread_weights(256, 256, cells)
    assert steps < 0.1 < np.abs(np.diff(hard, axis=0)).max() / np.abs(hard).max()
    even = spread_weights(256, 256, [(*place, 1.0) for *place, _ in cells], smooth=True)[
        112:144, 112:144
    ]  # far from the borders
    np.testing.assert_allclose(even, even.mean(), rtol=0.01)
    assert not spread_weights(3, 4, [], smooth=True).any()
