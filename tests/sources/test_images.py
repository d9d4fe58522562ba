import io
import zipfile

import numpy as np
import pytest
from PIL import Image

from bagwise import BagwiseError, open_collection
from bagwise.sources import ItemError, Limits, SkippedItemsWarning

RAMP = np.linspace(0, 255, 12 * 20).reshape(12, 20).astype(np.uint8)


def saved(folder, name, image, **options):
    folder.mkdir(parents=True, exist_ok=True)
    image.save(folder / name, **options)
    return folder / name


def load(path, **options):
    return open_collection(path, **options)[0].load()


@pytest.mark.parametrize("ending", ["png", "bmp", "tif", "pgm", "gif"])
def test_grey_images_come_as_they_are(tmp_path, ending):
    path = saved(tmp_path, f"a.{ending}", Image.fromarray(RAMP))
    grey, colour = load(path), load(path, mode="rgb")
    np.testing.assert_array_equal(grey, RAMP)
    np.testing.assert_array_equal(colour, np.stack([RAMP] * 3, axis=-1))
    assert grey.dtype == colour.dtype == np.uint8


def test_colours(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    path = saved(tmp_path, "a.png", Image.fromarray(pixels))
    np.testing.assert_array_equal(load(path, mode="rgb"), pixels)
    np.testing.assert_allclose(load(path), pixels @ [0.299, 0.587, 0.114], atol=1)


def test_sixteen_bits_are_scaled(tmp_path):
    wide = (np.arange(240).reshape(12, 20) * 271).astype(np.uint16)
    expected = np.rint(wide / 257)
    for ending in ("png", "tif"):
        path = saved(tmp_path, f"a.{ending}", Image.fromarray(wide))
        np.testing.assert_array_equal(load(path), expected)
        np.testing.assert_array_equal(load(path, mode="rgb")[..., 1], expected)


def test_pixels_of_unknown_range_are_refused(tmp_path):
    path = saved(tmp_path, "a.tif", Image.fromarray(np.float32([[0.5, 2.0]])))
    with pytest.raises(ItemError, match=r"its pixels are float32 from 0.5 to 2; .* Convert it to 8 or 16 bits first"):
        load(path)
    path = saved(tmp_path, "b.tif", Image.fromarray(np.int32([[-5, 70000]])))
    with pytest.raises(ItemError, match=r"its pixels are int32 from -5 to 70000"):
        load(path)


def test_transparency_is_put_on_white(tmp_path):
    rgba = np.zeros((2, 3, 4), np.uint8)
    rgba[0] = (200, 0, 0, 255)
    rgba[1] = (200, 0, 0, 0)
    for image in (Image.fromarray(rgba), Image.fromarray(rgba).convert("LA")):
        path = saved(tmp_path, "a.png", image)
        assert (load(path)[1] == 255).all()
        assert (load(path)[0] == 60).all()
    half = Image.new("RGBA", (1, 1), (0, 0, 0, 128))
    assert load(saved(tmp_path, "half.png", half), mode="rgb").tolist() == [[[127, 127, 127]]]


def test_palettes_and_other_modes(tmp_path):
    red = Image.new("RGB", (4, 3), (255, 0, 0))
    assert (load(saved(tmp_path, "p.png", red.convert("P")), mode="rgb") == (255, 0, 0)).all()
    clear = red.convert("P")
    clear.info["transparency"] = clear.getpixel((0, 0))
    assert (load(saved(tmp_path, "t.gif", clear, transparency=clear.getpixel((0, 0)))) == 255).all()
    bytes_of = bytes([0]) * 256
    assert (load(saved(tmp_path, "t.png", red.convert("P"), transparency=bytes_of)) == 255).all()
    cmyk = load(saved(tmp_path, "c.tif", red.convert("CMYK")), mode="rgb")
    assert (cmyk == (255, 0, 0)).all()
    assert abs(load(saved(tmp_path, "c.jpg", red.convert("CMYK")), mode="rgb").astype(int) - (255, 0, 0)).max() < 6
    bits = Image.fromarray(RAMP > 127)
    np.testing.assert_array_equal(load(saved(tmp_path, "b.png", bits)), (RAMP > 127) * np.uint8(255))


@pytest.mark.parametrize(
    ("orientation", "upright"),
    [(1, lambda a: a), (3, lambda a: a[::-1, ::-1]), (6, lambda a: np.rot90(a, -1)), (8, np.rot90), (5, np.transpose)],
)
def test_exif_rotation(tmp_path, orientation, upright):
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path, "a.png", Image.fromarray(RAMP), exif=exif)
    np.testing.assert_array_equal(load(path), upright(RAMP))


def test_one_pixel(tmp_path):
    path = saved(tmp_path, "a.png", Image.new("L", (1, 1), 7))
    assert load(path).tolist() == [[7]]
    assert load(path, mode="rgb").tolist() == [[[7, 7, 7]]]


def test_animations_give_their_first_frame(tmp_path):
    frames = [Image.new("L", (4, 4), shade) for shade in (10, 200)]
    path = saved(tmp_path, "a.gif", frames[0], save_all=True, append_images=frames[1:])
    assert (load(path) == 10).all()


def damaged(folder):
    good = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (60, 60), dtype=np.uint8)).save(good, "jpeg")
    png = io.BytesIO()
    Image.fromarray(RAMP).save(png, "png")
    files = {
        "cut.jpg": good.getvalue()[:400],
        "cut.png": png.getvalue()[:60],
        "empty.png": b"",
        "good.jpg": good.getvalue(),
        "text.jpg": b"not an image",
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def test_damaged_images_are_reported(tmp_path):
    images = open_collection(damaged(tmp_path))
    reasons = {
        "cut.jpg": "damaged or not an image: .*truncated",
        "cut.png": "damaged or not an image",
        "empty.png": "Cannot read 'empty.png': the file is empty",
        "text.jpg": r"damaged or not an image: it begins with b'not an image'\. Formats that are read: JPEG, PNG, ",
    }
    for item in images:
        if item.id in reasons:
            with pytest.raises(ItemError, match=reasons[item.id]):
                item.load()
    loading = images.load(on_error="skip")
    with pytest.warns(SkippedItemsWarning, match="4 of 5 items"):
        assert [item.id for item, _ in loading] == ["good.jpg"]
    assert [id for id, _ in loading.skipped] == list(reasons)


def test_images_in_archives_are_those_of_folders(tmp_path):
    images = {f"{label}/{i}.png": np.full((3, 4), i, np.uint8) for i, label in enumerate(["cat", "dog", "dog"])}
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, pixels in images.items():
            path = saved((tmp_path / "folder" / name).parent, name.split("/")[1], Image.fromarray(pixels))
            archive.write(path, name)
    packed, folder = open_collection(tmp_path / "a.zip"), open_collection(tmp_path / "folder")
    for (one, a), (other, b) in zip(packed.load(), folder.load(), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, images[one.id])
        assert one.fingerprint() == other.fingerprint()
    assert packed[0].fingerprint() != open_collection(tmp_path / "a.zip", mode="rgb")[0].fingerprint()


def test_large_images_are_refused_before_they_are_decoded(tmp_path):
    path = saved(tmp_path, "a.png", Image.new("1", (3000, 2000)))
    with pytest.raises(ItemError, match="it has 3000 x 2000 pixels, the limit pixels is 1,000,000"):
        load(path, limits=Limits(pixels=1_000_000))
    assert load(path).shape == (2000, 3000)


def test_options(tmp_path):
    saved(tmp_path, "a.png", Image.new("L", (1, 1)))
    with pytest.raises(BagwiseError, match=r"Unknown mode: 'gray'. Did you mean 'grey'"):
        open_collection(tmp_path, mode="gray")


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    import sys

    saved(tmp_path, "a.png", Image.new("L", (1, 1)))
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(BagwiseError, match=r'Reading images needs PIL. Install it with: pip install "bagwise\[app\]"'):
        open_collection(tmp_path)
