"""`max_side`: images are shrunk before they are described."""

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone

from bagwise import open_collection
from bagwise.descriptors import (
    LBPD5,
    ColorCells,
    ColorSIFT,
    DenseSIFT,
    HogLbp,
    KeypointSIFT,
    LocalBinaryPatterns,
    Patches,
)
from bagwise.descriptors.base import describe_items
from bagwise.descriptors.images import shrink
from bagwise.sources.media import shrunk_size

DESCRIPTORS = [
    DenseSIFT(),
    ColorSIFT(),
    ColorCells(),
    KeypointSIFT(),
    Patches(),
    HogLbp(),
    LocalBinaryPatterns(cell=8),
    LBPD5(),
]


def photo(height, width, wave=40, seed=0):
    """A smooth colour image with some noise, as photos are."""
    y, x = np.mgrid[:height, :width] / wave
    random = np.random.default_rng(seed)
    waves = [np.sin(a * x + b * y + c) for a, b, c in random.uniform(0, 3, (3, 3))]
    noise = random.normal(0, 3, (height, width, 3))
    return np.clip(128 + 100 * np.stack(waves, axis=-1) + noise, 0, 255).astype(np.uint8)


def average_by_area(image, height, width):
    """The definition: pixel by pixel, the mean of the covered rectangle."""

    def overlaps(old, new):
        first, last = np.arange(new)[:, None] * old / new, (np.arange(new)[:, None] + 1) * old / new
        pixel = np.arange(old)
        return np.clip(np.minimum(last, pixel + 1) - np.maximum(first, pixel), 0, None) * new / old

    rows, columns = overlaps(image.shape[0], height), overlaps(image.shape[1], width)
    return np.einsum("ih,jw,hw...->ij...", rows, columns, image.astype(np.float64), optimize=True)


@pytest.mark.parametrize(("shape", "side"), [((90, 120), 30), ((131, 97), 64), ((50, 49), 49), ((7, 300), 41)])
def test_shrunk_pixels_are_means_by_area(shape, side):
    image = photo(*shape)
    size = shrunk_size(*shape, side)
    assert max(size) == side
    np.testing.assert_allclose(np.array(size) / side, np.array(shape) / max(shape), atol=0.5 / side)
    expected = average_by_area(image, *size)
    assert np.abs(shrink(image, side) - expected).max() <= 0.51
    assert shrink(image, side).dtype == np.uint8
    np.testing.assert_allclose(shrink(image[..., 0].astype(np.float64), side), expected[..., 0], atol=1e-4)
    np.testing.assert_allclose(shrink(image[..., 0].astype(np.int64), side), expected[..., 0], atol=1e-4)


def test_sizes_round_halves_up_and_keep_a_pixel():
    assert shrunk_size(5, 10, 5) == (3, 5)
    assert shrunk_size(10, 5, 5) == (5, 3)
    assert shrunk_size(1, 10_000, 100) == (1, 100)
    assert shrunk_size(480, 3, 480) == (480, 3)
    assert shrunk_size(9000, 9000, None) == (9000, 9000)
    assert shrink(np.empty((0, 900)), 100).shape == (0, 900)


@pytest.mark.parametrize("descriptor", DESCRIPTORS, ids=lambda one: type(one).__name__)
def test_descriptors_see_the_shrunk_image(descriptor):
    image = photo(150, 200)
    sized = clone(descriptor).set_params(max_side=80)

    def parts(described):
        return [described.toarray()] if hasattr(described, "nnz") else [described.values, described.positions]

    for ours, expected in zip(
        parts(sized.transform([image])), parts(descriptor.transform([shrink(image, 80)])), strict=True
    ):
        np.testing.assert_array_equal(ours, expected)
    small = photo(60, 80)
    for ours, expected in zip(parts(sized.transform([small])), parts(descriptor.transform([small])), strict=True):
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("mode", ["grey", "rgb"])
def test_files_are_shrunk_while_they_are_decoded(tmp_path, mode):
    """Exactly as the whole image is, but for JPEG files, which are decoded at a reduced scale; also if turned."""
    image = photo(411, 600, wave=120)
    for name in ("a.png", "b.jpg"):
        Image.fromarray(image).save(tmp_path / name)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(image).save(tmp_path / "c.jpg", exif=exif)
    Image.fromarray(image).save(tmp_path / "d.tif", exif=exif)
    nearly_square = photo(801, 807, wave=120)
    Image.fromarray(nearly_square).save(tmp_path / "e.jpg", exif=exif)
    for item in open_collection(tmp_path, mode=mode):
        whole = item.load()
        expected, found = shrink(whole, 100), item.load(max_side=100)
        assert found.shape == expected.shape
        assert item.load(max_side=900).shape == whole.shape
        if item.id.endswith("jpg"):
            assert np.abs(found.astype(float) - expected).mean() <= 2  # its waves go up and down by 100
        else:
            np.testing.assert_array_equal(found, expected)


def test_a_reduced_scale_is_used_where_it_can_be(tmp_path, monkeypatch):
    from PIL import JpegImagePlugin

    Image.fromarray(photo(400, 600)).save(tmp_path / "a.jpg")
    asked = []
    draft = JpegImagePlugin.JpegImageFile.draft
    monkeypatch.setattr(
        JpegImagePlugin.JpegImageFile, "draft", lambda self, mode, size: asked.append(size) or draft(self, mode, size)
    )
    item = open_collection(tmp_path)[0]
    item.load()
    item.load(max_side=600)
    assert asked == []
    item.load(max_side=150)
    assert asked == [(300, 200)]


def test_the_cache_knows_the_size(tmp_path):
    Image.fromarray(photo(100, 140)).save(tmp_path / "a.png")
    collection, folder = open_collection(tmp_path, modality="images"), tmp_path / "cache"
    bags = {side: DenseSIFT(max_side=side, cache=folder).transform(collection) for side in (None, 60, 100)}
    assert len({found.n_rows for found in bags.values()}) == 3
    for side, found in bags.items():
        again = DenseSIFT(max_side=side, cache=folder).transform(collection)
        np.testing.assert_array_equal(again.values, found.values)
        np.testing.assert_array_equal(found.values, DenseSIFT(max_side=side).transform(collection).values)


def test_sizes_of_descriptors_side_by_side_do_not_depend_on_each_other(tmp_path):
    Image.fromarray(photo(300, 400)).save(tmp_path / "photo.jpg", quality=95)
    images = open_collection(tmp_path, mode="rgb")
    sides = [None, 90, 41]
    (batch,) = describe_items([ColorCells(max_side=side) for side in sides], images)
    for side, bags in zip(sides, batch, strict=True):
        np.testing.assert_array_equal(bags[0], ColorCells(max_side=side).transform(images)[0])
