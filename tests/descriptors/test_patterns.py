import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bagwise.descriptors import LBPD5, HogLbp, LocalBinaryPatterns
from bagwise.descriptors._kernels import gradient_histograms
from bagwise.descriptors.hog_lbp import hog_features
from bagwise.descriptors.lbp import pattern_codes, uniform_bins

AROUND_3 = [(0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0)]
AROUND_5 = [
    *((0, x) for x in range(5)),
    *((y, 4) for y in range(1, 5)),
    *((4, x) for x in (3, 2, 1, 0)),
    *((y, 0) for y in (3, 2, 1)),
]


def codes_by_definition(image, radius):
    """Bit by bit."""
    ring, side = (AROUND_3 if radius == 1 else AROUND_5), 2 * radius + 1
    height, width = (max(0, n - 2 * radius) for n in image.shape)
    codes = np.zeros((height, width), np.uint16)
    for y, x in np.ndindex(height, width):
        window = image[y : y + side, x : x + side]
        codes[y, x] = sum(1 << b for b, place in enumerate(ring) if window[place] >= window[radius, radius])
    return codes


images = st.one_of(
    hnp.arrays(np.uint8, hnp.array_shapes(min_dims=2, max_dims=2, max_side=12), elements=st.integers(0, 3)),
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.floats(-1, 1)),
)


@given(images, st.sampled_from([1, 2]))
@settings(max_examples=80)
def test_codes_are_those_of_the_definition(image, radius):
    codes = pattern_codes(image, radius)
    assert codes.dtype == np.uint16
    np.testing.assert_array_equal(codes, codes_by_definition(image, radius))


def test_there_are_58_uniform_patterns():
    bins = uniform_bins(58)
    texts = [f"{code:08b}" for code in range(256)]
    changes = np.array([sum(a != b for a, b in zip(text, text[1:] + text[0], strict=True)) for text in texts])
    np.testing.assert_array_equal(bins == 58, changes > 2)
    np.testing.assert_array_equal(bins[bins < 58], np.arange(58))
    np.testing.assert_array_equal(uniform_bins(-1), np.where(bins == 58, -1, bins))


@pytest.mark.parametrize("descriptor", [LocalBinaryPatterns(), LocalBinaryPatterns(cell=8), LBPD5()])
def test_increasing_grey_maps_do_not_matter(descriptor):
    image = np.random.default_rng(0).integers(0, 40, (30, 34)).astype(np.uint8)

    def described(pixels):
        result = descriptor.transform([pixels])
        return result.toarray() if sp.issparse(result) else result.values

    expected = described(image)
    for mapped in (2 * image + 7, np.exp(image / 5.0), np.sqrt(image), image.astype(np.int64) * 10**9, image * 1e-12):
        np.testing.assert_array_equal(described(mapped), expected)
    assert not np.array_equal(described(40 - image), expected)


@pytest.mark.parametrize("descriptor", [LocalBinaryPatterns(), HogLbp(), LBPD5()])
def test_grey_in_three_channels_is_grey(descriptor):
    image = np.random.default_rng(0).integers(0, 5, (31, 37)).astype(np.uint8) * 51
    grey, colour = descriptor.transform([image]), descriptor.transform([np.stack([image] * 3, axis=2)])
    if sp.issparse(grey):
        np.testing.assert_array_equal(grey.toarray(), colour.toarray())
    else:
        np.testing.assert_allclose(grey.values, colour.values, atol=1e-6)


@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("cell", [None, 7])
def test_histograms_of_patterns(uniform, cell):
    image = np.random.default_rng(2).integers(0, 9, (17, 23)).astype(np.uint8)
    codes = np.full(image.shape, -1)
    codes[1:-1, 1:-1] = codes_by_definition(image, 1)
    bins = uniform_bins(58) if uniform else np.arange(256)
    if cell is None:
        parts, places = [codes], [[0.5, 0.5]]
    else:
        tops, lefts = (1, 8), (1, 8, 15)  # 17 = 1 + 2 * 7 + 2, 23 = 1 + 3 * 7 + 1
        parts = [codes[top : top + 7, left : left + 7] for top in tops for left in lefts]
        places = [[(left + 3.5) / 23, (top + 3.5) / 17] for top in tops for left in lefts]
    expected = np.array([np.bincount(bins[part[part >= 0]], minlength=59 if uniform else 256) for part in parts])
    values, positions = LocalBinaryPatterns(uniform, cell=cell, normalize=None).describe(image)
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_allclose(positions, places, rtol=1e-6)
    for norm, order in (("l1", 1), ("l2", 2)):
        values, _ = LocalBinaryPatterns(uniform, cell=cell, normalize=norm).describe(image)
        lengths = np.linalg.norm(expected, ord=order, axis=1, keepdims=True)
        np.testing.assert_allclose(values, expected / lengths, rtol=1e-6)


def test_a_cell_without_patterns_is_zero():
    values, _ = LocalBinaryPatterns(cell=1).describe(np.zeros((3, 3), np.uint8))
    np.testing.assert_array_equal(values.sum(axis=1), [0, 0, 0, 0, 1, 0, 0, 0, 0])


@given(images)
@settings(max_examples=40)
def test_histograms_of_65536_patterns(image):
    X = LBPD5().transform([image, image])
    expected = np.bincount(codes_by_definition(image, 2).ravel(), minlength=65536)
    assert X.dtype == np.int32
    assert X.has_canonical_format
    np.testing.assert_array_equal(X.toarray(), [expected, expected])


def triangle(t):
    return max(0.0, 1.0 - abs(t))


@pytest.mark.parametrize(
    ("shape", "top", "left", "cell"), [((17, 19), 0, 1, 8), ((13, 12), 2, 0, 5), ((4, 4), 0, 0, 2)]
)
def test_gradient_histograms_are_those_of_the_definition(shape, top, left, cell):
    image = np.random.default_rng(3).integers(0, 5, shape).astype(np.float64)
    n_rows, n_columns = (shape[0] - top) // cell, (shape[1] - left) // cell
    expected = np.zeros((n_rows, n_columns, 18))
    for y, x in itertools.product(range(1, shape[0] - 1), range(1, shape[1] - 1)):
        right, up = image[y, x + 1] - image[y, x - 1], image[y - 1, x] - image[y + 1, x]
        turn = np.arctan2(up, right) / (2 * np.pi) * 18 % 18
        for i, j, o in np.ndindex(expected.shape):
            apart = min(abs(turn - o), 18 - abs(turn - o))
            middle_y, middle_x = top + (i + 0.5) * cell - 0.5, left + (j + 0.5) * cell - 0.5
            expected[i, j, o] += (
                np.hypot(right, up)
                * triangle((y - middle_y) / cell)
                * triangle((x - middle_x) / cell)
                * triangle(apart)
            )
    found = np.empty_like(expected)
    gradient_histograms(image.astype(np.float32), top, left, cell, found)
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_hog_features_are_those_of_the_definition():
    histograms = np.random.default_rng(4).exponential(size=(3, 4, 18)) ** 3
    histograms[2, 3] = histograms[2, 2] = histograms[1, 3] = histograms[1, 2] = 0
    n_rows, n_columns, _ = histograms.shape
    found = hog_features(histograms)
    for i, j in np.ndindex(n_rows, n_columns):
        signed, unsigned, energies = np.zeros(18), np.zeros(9), []
        for down, right in [(-1, -1), (-1, 1), (1, -1), (1, 1)]:
            block = 0.0
            for a, b in [(i, j), (i + down, j), (i, j + right), (i + down, j + right)]:
                cell = histograms[np.clip(a, 0, n_rows - 1), np.clip(b, 0, n_columns - 1)]
                block += sum((cell[o] + cell[o + 9]) ** 2 for o in range(9))
            norm = np.sqrt(block) if block else np.inf
            cut = np.minimum(histograms[i, j] / norm, 0.2)
            signed += cut / 2
            unsigned += np.minimum((histograms[i, j, :9] + histograms[i, j, 9:]) / norm, 0.2) / 2
            energies.append(cut.sum() / np.sqrt(18))
        np.testing.assert_allclose(found[i, j], [*signed, *unsigned, *energies], rtol=1e-12)


def test_hog_and_lbp_are_put_together():
    image = np.random.default_rng(5).integers(0, 256, (27, 33)).astype(np.uint8)
    image[:20, :20] = 8
    values, positions = HogLbp().describe(image)
    assert values.shape == (3 * 4, 89)
    np.testing.assert_allclose(positions[[0, 5]], [[4 / 33, 5 / 27], [12 / 33, 13 / 27]], rtol=1e-6)
    lbp, places = LocalBinaryPatterns(uniform=True, cell=8, normalize=None).describe(image)
    np.testing.assert_array_equal(places, positions)
    np.testing.assert_allclose(values[:, 31:], lbp[:, :58] / np.linalg.norm(lbp[:, :58], axis=1)[:, None], rtol=1e-6)
    assert not values[0, :31].any()  # flat
    np.testing.assert_allclose(np.linalg.norm(values[1:, :31], axis=1)[-4:], 1, rtol=1e-6)
    # brightness and contrast matter to neither part
    np.testing.assert_allclose(HogLbp().describe(image * 3.0 + 20)[0], values, atol=1e-6)
    # signs of gradients: the negative turns directions with sign and leaves those without
    negative = HogLbp().describe(255 - image)[0]
    np.testing.assert_allclose(negative[:, :18], np.roll(values[:, :18], 9, axis=1), atol=1e-6)
    np.testing.assert_allclose(negative[:, 18:31], values[:, 18:31], atol=1e-6)


def test_the_root_form_keeps_the_strength_of_gradients_and_counts_all_patterns():
    image = np.random.default_rng(3).integers(0, 256, (27, 33)).astype(np.uint8)
    image[:14, :14] = 90
    unit, root = HogLbp().describe(image)[0], HogLbp(form="root").describe(image)[0]
    assert root.shape == unit.shape
    lengths = np.linalg.norm(root[:, :31], axis=1, keepdims=True)
    assert lengths[0] == 0
    assert len(np.unique(lengths)) > 2
    np.testing.assert_allclose(root[:, :31], unit[:, :31] * lengths, atol=1e-6)
    counts = LocalBinaryPatterns(uniform=True, cell=8, normalize=None).describe(image)[0]  # 0: all dark, 57: all bright
    shared = np.column_stack([counts[:, 1:57], counts[:, 0] + counts[:, 57], counts[:, 58]])
    np.testing.assert_allclose(root[:, 31:] ** 2, shared / shared.sum(axis=1, keepdims=True), atol=1e-6)
