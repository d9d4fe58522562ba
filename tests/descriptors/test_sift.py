import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import correlate1d, gaussian_filter

from bagwise import BagwiseError
from bagwise.descriptors import ColorSIFT, DenseSIFT, KeypointSIFT
from bagwise.descriptors import _kernels as kernels
from bagwise.descriptors.sift import to_space
from bagwise.sources import ItemError


def texture(height=60, width=70, seed=0, blur=1.5):
    noise = np.random.default_rng(seed).random((height, width))
    smooth = gaussian_filter(noise, blur)
    return np.rint(255 * (smooth - smooth.min()) / np.ptp(smooth)).astype(np.uint8)


def sift_by_definition(image, row, column, cell):
    """One upright SIFT descriptor, pixel by pixel, from an image that is smooth already."""
    height, width = image.shape
    histogram = np.zeros((4, 4, 8))
    for y in range(1, height - 1):
        for x in range(1, width - 1):
            down, right = (y - row) / cell, (x - column) / cell
            a, b = down + 1.5, right + 1.5  # cells counted from the middle of the first
            if not (-1 < a < 4 and -1 < b < 4):
                continue
            to_right, to_up = image[y, x + 1] - image[y, x - 1], image[y - 1, x] - image[y + 1, x]
            vote = np.hypot(to_right, to_up) * np.exp(-(down**2 + right**2) / (2 * 2**2))
            turn = np.arctan2(to_up, to_right) / (2 * np.pi) * 8 % 8
            for i in range(4):
                for j in range(4):
                    for o in range(8):
                        apart = min(abs(turn - o), 8 - abs(turn - o))
                        histogram[i, j, o] += vote * max(0, 1 - abs(a - i)) * max(0, 1 - abs(b - j)) * max(0, 1 - apart)
    vector = histogram.ravel()
    if np.linalg.norm(vector) < 1e-8:
        return np.zeros(128)
    vector = np.minimum(vector / np.linalg.norm(vector), 0.2)
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize(
    ("shape", "step", "patch", "scale", "smoothing"),
    [((21, 26), 8, 16, 1.0, 1.52), ((19, 17), 3, 16, 1.0, 0.0), ((20, 22), 7, 10, 1.3, 0.8), ((9, 8), 1, 7, 1.0, 2.5)],
)
def test_descriptors_are_those_of_the_definition(shape, step, patch, scale, smoothing):
    image = np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8)
    image[: shape[0] // 2, : shape[1] // 3] = 90
    values, positions = DenseSIFT(step, patch, (scale,), smoothing=smoothing).describe(image)
    smooth = gaussian_filter(image.astype(np.float64), smoothing * scale, mode="mirror")
    rows = np.rint(positions[:, 1] * shape[0] - 0.5).astype(int)
    columns = np.rint(positions[:, 0] * shape[1] - 0.5).astype(int)
    assert len(values) > 0
    for value, row, column in zip(values, rows, columns, strict=True):
        np.testing.assert_allclose(value, sift_by_definition(smooth, row, column, patch * scale / 4), atol=2e-5)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 9), st.integers(0, 100))
@settings(max_examples=60)
def test_smoothing_is_a_mirrored_filter(height, width, radius, seed):
    random = np.random.default_rng(seed)
    image = random.random((height, width)).astype(np.float32)
    half = random.random(radius + 1).astype(np.float32)
    out = np.empty_like(image)
    kernels.smooth(image, half, out)
    weights = np.concatenate([half[:0:-1], half]).astype(np.float64)
    expected = image.astype(np.float64)
    for axis, n in enumerate(image.shape):
        if n == 1:  # SciPy mirrors a single pixel as well, by repeating it
            expected = expected * weights.sum()
        else:
            expected = correlate1d(expected, weights, axis=axis, mode="mirror")
    np.testing.assert_allclose(out, expected, rtol=1e-5)


def test_directions_of_gradients():
    angles = np.linspace(0, 2 * np.pi, 721)
    y, x = np.mgrid[-1:2, -1:2]
    for angle in angles:
        image = (np.cos(angle) * x - np.sin(angle) * y).astype(np.float32)
        planes = np.empty((3, 3, 8), np.float32)
        kernels.orient(image, planes)
        turn = angle / (2 * np.pi) * 8
        expected = np.zeros(8)
        expected[int(turn) % 8] += 2 * (1 - turn % 1)
        expected[(int(turn) + 1) % 8] += 2 * (turn % 1)
        np.testing.assert_allclose(planes[1, 1], expected, atol=3e-6)
        planes[1, 1] = 0
        assert not planes.any()


@pytest.mark.parametrize("sigma", [1.6, 4 / 3])
def test_descriptors_are_those_of_opencv(sigma):
    cv2 = pytest.importorskip("cv2")
    image = texture(120, 150)
    values, positions = DenseSIFT(smoothing=np.sqrt(sigma**2 - 0.25)).describe(image)
    # OpenCV's cells are 1.5 times the size of a keypoint
    points = [cv2.KeyPoint(float(x), float(y), 8 / 3, 0.0) for x, y in positions * (150, 120) - 0.5]
    kept, theirs = cv2.SIFT_create(sigma=sigma).compute(image, points)
    assert [point.pt for point in kept] == [point.pt for point in points]
    cosines = (values * theirs).sum(axis=1) / np.linalg.norm(theirs, axis=1)
    assert cosines.min() > 0.995


def test_lengths_and_clipping():
    image = texture()
    image[:30, :35] = 10
    values, _ = DenseSIFT(step=4).describe(image)
    lengths = np.linalg.norm(values, axis=1)
    flat = ~values.any(axis=1)
    assert 0 < flat.sum() < len(values)
    np.testing.assert_allclose(lengths[~flat], 1, rtol=1e-6)
    assert values.min() >= 0


def test_brightness_and_contrast_do_not_matter():
    image = texture().astype(np.float64)
    values, _ = DenseSIFT().describe(image)
    np.testing.assert_array_equal(DenseSIFT().describe(4 * image)[0], values)
    np.testing.assert_allclose(DenseSIFT().describe(image / 255)[0], values, atol=1e-5)
    np.testing.assert_allclose(DenseSIFT().describe(image + 100)[0], values, atol=1e-4)
    # the negative turns every direction by half a turn
    opposite = np.roll(values.reshape(-1, 16, 8), 4, axis=2).reshape(-1, 128)
    np.testing.assert_allclose(DenseSIFT().describe(255 - image)[0], opposite, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.int64, np.float16, np.float32, np.float64])
def test_types_of_pixels_do_not_matter(dtype):
    image = texture()
    np.testing.assert_array_equal(DenseSIFT().describe(image.astype(dtype))[0], DenseSIFT().describe(image)[0])


def test_the_image_is_not_changed_and_need_not_be_contiguous():
    wide = texture(60, 140)
    wide.setflags(write=False)
    before = wide.copy()
    np.testing.assert_array_equal(
        DenseSIFT().describe(wide[:, ::2])[0], DenseSIFT().describe(np.ascontiguousarray(wide[:, ::2]))[0]
    )
    np.testing.assert_array_equal(wide, before)


def test_colours_are_weighed():
    red, green, blue = (texture(seed=seed).astype(np.float32) for seed in range(3))
    grey = np.float32(0.299) * red + np.float32(0.587) * green + np.float32(0.114) * blue
    colour = np.stack([red, green, blue], axis=2)
    np.testing.assert_array_equal(DenseSIFT().describe(colour)[0], DenseSIFT().describe(grey)[0])
    same = np.stack([red] * 3, axis=2)
    np.testing.assert_allclose(DenseSIFT().describe(same)[0], DenseSIFT().describe(red)[0], atol=1e-4)


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 20), st.integers(4, 24))
@settings(max_examples=60)
def test_the_grid_is_centred_and_full(height, width, step, patch):
    values, positions = DenseSIFT(step, patch).describe(np.zeros((height, width)))
    n_rows, n_columns = (max(0, (side - patch) // step + 1) for side in (height, width))
    assert values.shape == (n_rows * n_columns, 128)
    if len(values):
        x, y = (positions * (width, height) - 0.5).T.round(3)
        for at, side in ((x, width), (y, height)):
            first, last = at.min() - patch // 2, at.max() - patch // 2
            assert first >= 0
            assert last + patch <= side
            assert 0 <= (side - patch - last) - first <= 1
        np.testing.assert_array_equal(np.unique(np.diff(np.unique(x))), [step] if n_columns > 1 else [])
        assert np.lexsort((x, y)).tolist() == list(range(len(x)))  # row after row


def test_scales_come_behind_one_another():
    image = texture()
    parts = [DenseSIFT(8, 16, (scale,), smoothing=1.52).describe(image) for scale in (1.0, 1.5, 2.0)]
    values, positions = DenseSIFT(8, 16, (1.0, 1.5, 2.0), smoothing=1.52).describe(image)
    np.testing.assert_array_equal(values, np.concatenate([part[0] for part in parts]))
    np.testing.assert_array_equal(positions, np.concatenate([part[1] for part in parts]))
    # twice the scale is twice the patch and twice the blur
    np.testing.assert_array_equal(parts[2][0], DenseSIFT(8, 32, smoothing=3.04).describe(image)[0])


@pytest.mark.parametrize("scales", [(), (1.0, 0.0), (-1.0,), (np.nan,), (np.inf,), ("a",)])
@pytest.mark.parametrize("kind", [DenseSIFT, ColorSIFT])
def test_scales_are_checked_before_any_image_is_read(kind, scales):
    with pytest.raises(BagwiseError, match=r"^scales of .* must be a list of"):
        kind(scales=scales).transform(["not even an image"], on_error="skip")


def color_texture(seed=0):
    return np.stack([texture(40, 48, seed + k) for k in range(3)], axis=2)


@pytest.mark.parametrize(("space", "width"), [("opponent", 384), ("rg", 256), ("c", 384), ("rgb", 384)])
def test_colour_channels_are_described_one_by_one(space, width):
    image = color_texture()
    values, positions = ColorSIFT(space).describe(image)
    assert values.shape[1] == width
    channels = to_space(np.moveaxis(image, 2, 0), space)
    for k, channel in enumerate(channels):
        expected, places = DenseSIFT().describe(channel)
        np.testing.assert_array_equal(values[:, 128 * k : 128 * (k + 1)], expected)
        np.testing.assert_array_equal(positions, places)


def test_colour_spaces_by_hand():
    red, green, blue = np.array([[[6.0]], [[2.0]], [[4.0]]])
    planes = np.stack([red, green, blue])
    third = 12 / np.sqrt(3)
    expected = {
        "rgb": [6, 2, 4],
        "rg": [6 / 12, 2 / 12],
        "opponent": [4 / np.sqrt(2), 0 / np.sqrt(6), third],
        "c": [4 / np.sqrt(2) / third, 0, third],
    }
    for space, numbers in expected.items():
        np.testing.assert_allclose(to_space(planes, space).ravel(), numbers, rtol=1e-6)
        assert not to_space(np.zeros((3, 2, 2)), space).any()
    with pytest.raises(BagwiseError, match=r"space of ColorSIFT must be one of 'opponent', .*; got 'hsv'"):
        ColorSIFT("hsv").fit()


@pytest.mark.parametrize("scale", [1, 1 / 255])
def test_an_image_without_colours_has_flat_colour_channels(scale):
    grey = (texture(40, 48) // 2 + 1) * scale  # black pixels have no hue: their quotients are 0, not 1/3
    image = np.stack([grey] * 3, axis=2)
    assert not ColorSIFT("rg").describe(image)[0].any()
    for space in ("opponent", "c"):
        values = ColorSIFT(space).describe(image)[0]
        assert not values[:, :256].any()
        np.testing.assert_allclose(values[:, 256:], DenseSIFT().describe(grey)[0], atol=1e-4)


def test_colour_sift_refuses_grey_images():
    with pytest.raises(ItemError, match=r'ColorSIFT needs RGB images, got a grey one.*mode="rgb"'):
        ColorSIFT().transform([texture()])


def test_keypoints_are_those_of_opencv():
    cv2 = pytest.importorskip("cv2")
    image = texture(100, 130, blur=3)
    values, positions = KeypointSIFT().describe(image)
    points, theirs = cv2.SIFT_create().detectAndCompute(image, None)
    assert len(values) == len(points) > 10
    np.testing.assert_allclose(positions * (130, 100), np.array([point.pt for point in points]) + 0.5, rtol=1e-5)
    np.testing.assert_allclose(values, theirs / np.linalg.norm(theirs, axis=1, keepdims=True), rtol=1e-5)
    assert 5 <= len(KeypointSIFT(n_keypoints=5).describe(image)[0]) < len(values)
    with pytest.raises(BagwiseError, match=r"takes images of uint8, 0 to 255, got float64\. Scale and convert"):
        KeypointSIFT().describe(image / 255)
