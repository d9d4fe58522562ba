import numpy as np
import pytest

from bagwise.descriptors import ColorCells

IMAGE = np.random.default_rng(0).integers(0, 256, (21, 30, 3)).astype(np.uint8)


def cells_by_definition(image, cell, step):
    height, width = image.shape[:2]
    values, positions = [], []
    for y in range((height - cell) % step // 2, height - cell + 1, step):
        for x in range((width - cell) % step // 2, width - cell + 1, step):
            patch = image[y : y + cell, x : x + cell].astype(np.float64)
            values.append([*patch.mean(axis=(0, 1)), *patch.std(axis=(0, 1))])
            positions.append([(x + cell / 2) / width, (y + cell / 2) / height])
    return np.array(values), np.array(positions)


@pytest.mark.parametrize(("cell", "step"), [(4, 4), (5, 3), (3, 8), (1, 7), (21, 2)])
@pytest.mark.parametrize("scale", [1, 1 / 255, -1e6])
def test_means_and_standard_deviations(cell, step, scale):
    image = IMAGE if scale == 1 else IMAGE * scale + 3 * scale
    expected, places = cells_by_definition(image, cell, step)
    values, positions = ColorCells(cell, step).describe(image)
    np.testing.assert_allclose(values, expected, rtol=1e-6, atol=1e-5 * abs(scale))
    np.testing.assert_allclose(positions, places, rtol=1e-6)


def test_flat_cells_have_no_deviation():
    values, _ = ColorCells(3, 3).describe(np.full((9, 9, 3), 0.1 + 1e7))
    assert not values[:, 3:].any()


def test_grey_images_have_three_equal_channels():
    grey = IMAGE[:, :, 0]
    for one, other in zip(
        ColorCells().describe(grey), ColorCells().describe(np.stack([grey] * 3, axis=2)), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_images_smaller_than_a_cell_are_empty():
    values, positions = ColorCells(cell=22).describe(IMAGE)
    assert values.shape == (0, 6)
    assert positions.shape == (0, 2)
