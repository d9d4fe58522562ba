"""Dense SIFT by functions of an array module: NumPy always, CuPy where there is a device."""

import numpy as np
import pytest

from bagwise import BagwiseError
from bagwise._utils.devices import to_host
from bagwise.codebooks import SoftEncoder, encode_bags, encode_images
from bagwise.descriptors import ColorSIFT, DenseSIFT, KeypointSIFT
from bagwise.descriptors.sift import sift_on_grid
from bagwise.gpu.sift import sift_arrays


def images(n_channels=1, seed=0):
    """Of several sizes; one flat in part, one smaller than a patch."""
    rng = np.random.default_rng(seed)
    made = [rng.integers(0, 256, (n_channels, *shape)).astype(np.float32) for shape in ((40, 56), (33, 61), (9, 70))]
    made[0][:, :, :30] = 7
    return [*made, made[0][:, :, ::-1].copy()]


@pytest.mark.parametrize(
    ("n_channels", "options"),
    [(1, (8, 16, (1.0,), 0.0)), (1, (5, 12, (0.7, 1.9), 1.2)), (3, (9, 16, (1.0, 1.5), 0.0))],
)
def test_descriptors(xp, n_channels, options):
    given = images(n_channels)
    values, lengths, positions = (to_host(array) for array in sift_arrays(xp, given, *options))
    expected = [sift_on_grid(image, *options) for image in given]
    np.testing.assert_array_equal(lengths, [len(found) for found, _ in expected])
    np.testing.assert_array_equal(positions, np.concatenate([places for _, places in expected]))
    np.testing.assert_allclose(values, np.concatenate([found for found, _ in expected]), atol=3e-6)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("sparse", [False, True])
def test_from_images_to_histograms(device, sparse):
    given = [np.moveaxis(image, 0, 2).astype(np.uint8) for image in images(3)]
    for descriptor in (None, DenseSIFT(6, max_side=50), ColorSIFT("rg")):
        described = (descriptor or DenseSIFT()).transform(given)
        words = described.values[::7].astype(np.float64)
        options = {"assignment": SoftEncoder(0.5), "pyramid": 5, "sparse_output": sparse}
        expected = encode_bags(described, words, **options)
        found = encode_images(given, words, descriptor=descriptor, device=device, n_jobs=2, **options)
        if sparse:
            found, expected = found.toarray(), expected.toarray()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_other_descriptors_are_refused():
    with pytest.raises(BagwiseError, match="describes by DenseSIFT or ColorSIFT, got KeypointSIFT"):
        encode_images(images(), np.eye(128), descriptor=KeypointSIFT())


def test_words_of_another_width_are_refused():
    with pytest.raises(BagwiseError, match="The descriptors have 128 features, but the words of the codebook 5"):
        encode_images(np.zeros((1, 40, 56), dtype=np.uint8), np.eye(5))
