import io
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from bagwise.display import mosaic, thumbnail
from bagwise.errors import BagwiseError


def pixels(png):
    with Image.open(io.BytesIO(png)) as picture:
        return np.asarray(picture.convert("RGB"))


def file_of(array, **options):
    file = io.BytesIO()
    Image.fromarray(array).save(file, **options)
    return file.getvalue()


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 128))
def test_the_longer_side_has_the_size_asked_for_or_less(height, width, size):
    shown = pixels(thumbnail(np.zeros((height, width), dtype=np.uint8), size))
    longer = max(shown.shape[:2])
    assert longer <= size
    assert longer == size or longer >= max(height, width)
    assert longer > size / 2


def test_small_images_are_enlarged_without_blurring():
    image = np.arange(64, dtype=np.uint8).reshape(8, 8)
    shown = pixels(thumbnail(image, 39))
    np.testing.assert_array_equal(shown[:, :, 0], np.repeat(np.repeat(image, 4, axis=0), 4, axis=1))


def test_arrays_and_files_of_them_give_the_same():
    image = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    assert thumbnail(image, 30) == thumbnail(file_of(image, format="PNG"), 30)
    assert thumbnail(image, 30) == thumbnail(image, 30)
    np.testing.assert_array_equal(pixels(thumbnail(image[:, :, 0] / 255, 60)), pixels(thumbnail(image[:, :, :1], 60)))
    few = image // 128 * 255
    np.testing.assert_array_equal(pixels(thumbnail(few, 60)), few)


def test_thumbnails_of_photographs_are_small():
    noise = np.random.default_rng(0).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    assert len(thumbnail(noise, 96)) < 96 * 96 + 1500


def test_a_mosaic_has_its_patches_in_rows():
    patches = [np.full((4, 4), value, dtype=np.uint8) for value in (50, 100, 150, 200, 250)]
    shown = pixels(mosaic(patches, size=4, columns=3, gap=1))
    assert shown.shape == (9, 14, 3)
    corners = [shown[5 * (i // 3), 5 * (i % 3), 0] for i in range(5)]
    assert corners == [50, 100, 150, 200, 250]
    assert pixels(mosaic(patches, size=4, gap=0)).shape == (8, 12, 3)


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (np.zeros((4, 4, 2)), r"\(height, width, 3\) and must not be empty; got \(4, 4, 2\)"),
        (np.zeros((0, 4)), "not be empty"),
        (np.full((4, 4), 2.0), "from 2.0 to 2.0. Divide them"),
        (np.full((4, 4), np.nan), "from nan to nan"),
        (np.zeros((4, 4), dtype=int), "got int64 from 0 to 0"),
        (b"", "the file is empty"),
        (b"nonsense", "it is damaged or not an image"),
    ],
)
def test_what_is_no_image_is_refused(image, said):
    with pytest.raises(BagwiseError, match=said):
        thumbnail(image)


def test_other_bad_input_is_refused():
    with pytest.raises(BagwiseError, match="at least one patch"):
        mosaic([])
    with pytest.raises(BagwiseError, match="size must be from 1 to 4096, got 0"):
        thumbnail(np.zeros((4, 4)), 0)


@pytest.mark.parametrize(
    ("module", "code", "extra"),
    [
        ("jinja2", "render_report(ReportData('x'))", "app"),
        ("jinja2", "write_comparison_markdown(Comparison('x', [1], [CriterionResult('a', [0.1])]), folder)", "app"),
        ("PIL", "thumbnail([[0.5]])", "app"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(module, code, extra, tmp_path):
    start = f"import sys\nsys.modules[{module!r}] = None\nfolder = {str(tmp_path)!r}"
    script = f"{start}\nfrom bagwise.app.report import *\nfrom bagwise.display import *\n{code}"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert f'Install it with: pip install "bagwise[{extra}]"' in result.stderr
    assert list(tmp_path.iterdir()) == []
