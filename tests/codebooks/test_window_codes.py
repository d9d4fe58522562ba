import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from bagwise import BagwiseError, SketchMerger
from bagwise.codebooks import WindowCodes, localized_codes
from bagwise.descriptors import ColorSIFT, DenseSIFT


def images(n=3, shape=(64, 88)):
    return [np.random.default_rng(i).integers(0, 256, shape, dtype=np.uint8) for i in range(n)]


@pytest.fixture(scope="module")
def fitted():
    return WindowCodes(DenseSIFT(), n_words=12, window=32, step=16, random_state=0).fit(images())


def test_windows_hold_the_largest_codes_of_their_cells(fitted):
    image = images(1)[0]
    bags = fitted.transform([image])
    values, positions = DenseSIFT().describe(image)
    codes = localized_codes(values, fitted.codebook_).toarray()
    centres = positions * (88, 64)
    assert len(bags[0].toarray()) == len(bags.positions)
    for row, middle in zip(bags[0].toarray(), bags.positions * (88, 64), strict=True):
        left, top = middle - 16
        expected = np.zeros((5, 12))
        for (x, y), code in zip(centres, codes, strict=True):
            if left <= x < left + 32 and top <= y < top + 32:
                cell = 1 + 2 * int((y - top) / 16) + int((x - left) / 16)
                for number in (0, cell):
                    expected[number] = np.maximum(expected[number], code)
        np.testing.assert_allclose(row, expected.ravel(), atol=1e-6)


def test_cells_of_one_level_cover_the_whole(fitted):
    rows = fitted.transform(images()).rows.toarray().reshape(-1, 5, 12)
    np.testing.assert_allclose(rows[:, 0], rows[:, 1:].max(axis=1))


def test_batches_and_threads_do_not_matter(fitted):
    whole = fitted.transform(images())
    parts = list(fitted.iter_transform(images(), batch_size=2))
    assert [len(part) for part in parts] == [2, 1]
    np.testing.assert_array_equal(np.vstack([part.rows.toarray() for part in parts]), whole.rows.toarray())
    again = clone(fitted).set_params(n_jobs=2).fit(images())
    np.testing.assert_array_equal(again.codebook_, fitted.codebook_)
    np.testing.assert_array_equal(again.transform(images()).rows.toarray(), whole.rows.toarray())
    assert pickle.loads(pickle.dumps(fitted)).transform(images()).n_rows == whole.n_rows


def test_colour_is_the_default_and_rows_can_be_reduced():
    colour = [np.stack([image, image.T[:64, :64].repeat(2, 1)[:, :88], 255 - image], axis=2) for image in images(2)]
    model = WindowCodes(n_words=10, random_state=0).fit(colour)
    assert model.codebook_.shape[1] == ColorSIFT().describe(colour[0])[0].shape[1]
    rows = model.transform(colour).rows
    assert SketchMerger(8).fit(rows).transform(rows).shape == (rows.shape[0], 8)


def test_images_smaller_than_a_window_are_empty_bags(fitted):
    bags = fitted.transform([np.zeros((20, 20)), images(1)[0], np.zeros((3, 3))])
    assert bags.lengths[[0, 2]].tolist() == [0, 0]
    assert bags.lengths[1] > 0


def test_bad_input():
    with pytest.raises(NotFittedError):
        WindowCodes().transform(images(1))
    with pytest.raises(BagwiseError, match="pyramid"):
        WindowCodes(DenseSIFT(), n_words=4, pyramid=7).fit(images(1))
    with pytest.raises(ValueError, match="window"):
        WindowCodes(DenseSIFT(), n_words=4, window=0).fit(images(1))
