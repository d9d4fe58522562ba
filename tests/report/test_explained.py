"""Pages of explanations: marked texts and heat maps."""

import io

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from bagwise.report import heat_picture, marked_text
from bagwise.report.explained import _heat

SPANS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.floats(-5, 5)))


@given(st.text(min_size=20, max_size=20), SPANS)
def test_marked_pieces_are_the_text(text, spans):
    pieces = marked_text(text, sorted((min(a, b), max(a, b), weight) for a, b, weight in spans))
    assert "".join(piece for piece, _ in pieces) == text
    assert all(-4 <= mark <= 4 for _, mark in pieces)


def test_heat_is_the_sum_of_the_patches():
    random = np.random.default_rng(0)
    patches = np.column_stack([random.uniform(-5, 30, (20, 2)), random.uniform(2, 12, 20), random.normal(size=20)])
    expected = np.zeros((24, 32))
    for x, y, side, weight in patches:
        rows = slice(*np.clip(np.rint([y, y + side]), 0, 24).astype(int))
        columns = slice(*np.clip(np.rint([x, x + side]), 0, 32).astype(int))
        part = expected[rows, columns]
        part += weight / max(part.size, 1)
    np.testing.assert_allclose(_heat(24, 32, patches), expected, atol=1e-12)


def test_colours_show_what_is_for_and_against():
    image = np.full((20, 40, 3), 128, np.uint8)
    picture = heat_picture(image, [(0, 0, 20, 1.0), (20, 0, 20, -1.0)], side=40)
    pixels = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(int)
    assert pixels[10, 10, 2] > pixels[10, 10, 0]  # teal
    assert pixels[10, 30, 0] > pixels[10, 30, 2]  # red
    plain = np.asarray(Image.open(io.BytesIO(heat_picture(image, [], side=40))).convert("RGB"))
    assert np.ptp(plain) == 0
