import numpy as np
import pytest

from bagwise.descriptors import Patches
from bagwise.sources import ItemError

IMAGE = np.random.default_rng(0).integers(0, 256, (13, 18, 3)).astype(np.uint8)


def patches_by_definition(planes, patch, step):
    """Rows of pixels, channel after channel, and the middles of patches."""
    _, height, width = planes.shape
    margin_y, margin_x = (height - patch) % step // 2, (width - patch) % step // 2
    values, positions = [], []
    for y in range(margin_y, height - patch + 1, step):
        for x in range(margin_x, width - patch + 1, step):
            values.append(planes[:, y : y + patch, x : x + patch].ravel())
            positions.append([(x + patch / 2) / width, (y + patch / 2) / height])
    return np.array(values), np.array(positions)


@pytest.mark.parametrize(("patch", "step"), [(4, 4), (5, 3), (13, 1), (1, 7)])
@pytest.mark.parametrize("mode", ["grey", "rgb"])
def test_patches_are_cut_out(patch, step, mode):
    planes = np.moveaxis(IMAGE, 2, 0) if mode == "rgb" else IMAGE[np.newaxis, :, :, 0]
    expected, places = patches_by_definition(planes, patch, step)
    image = IMAGE if mode == "rgb" else IMAGE[:, :, 0]
    values, positions = Patches(patch, step=step, mode=mode, normalize=None).describe(image)
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_allclose(positions, places, rtol=1e-6)


def test_normalizations():
    image = IMAGE.astype(np.float64)
    image[:6, :8] = 0.1 + 1 / 3
    raw, _ = Patches(4, normalize=None).describe(image)
    raw = raw.astype(np.float64)
    flat = np.ptp(raw, axis=1) < 1e-6
    assert 0 < flat.sum() < len(raw)
    centred = raw - raw.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(Patches(4, normalize="mean").describe(image)[0], centred, atol=1e-4)
    standard, _ = Patches(4, normalize="standard").describe(image)
    assert not standard[flat].any()
    np.testing.assert_allclose(standard[~flat], centred[~flat] / raw[~flat].std(axis=1, keepdims=True), atol=1e-5)
    unit, _ = Patches(4, normalize="l2").describe(image)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-6)
    assert not Patches(4, normalize="l2").describe(np.zeros((8, 8)))[0].any()


def test_grey_images_have_no_rgb_patches():
    with pytest.raises(ItemError, match=r'Patches\(mode="rgb"\) needs RGB images, got a grey one'):
        Patches(mode="rgb").transform([IMAGE[:, :, 0]])
