"""Which image files are read, by what they hold, and the memory that decoding them takes."""

import ast
import io
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image, features

import bagwise
import hostile_media
from bagwise import BagwiseError, open_collection
from bagwise.display import thumbnail
from bagwise.sources import Limits, image_files, media
from bagwise.sources.limits import Deadline
from small_sources import png
from waiting import PATIENCE

READ = r"Formats that are read: JPEG, PNG, WebP, GIF, BMP, TIFF, PNM, JPEG 2000"
PIXELS = np.linspace(0, 255, 40 * 30).reshape(40, 30).astype(np.uint8)


@pytest.mark.parametrize(
    ("content", "name", "cure"),
    [
        (hostile_media.EPS_LOOP, r"EPS \(PostScript\)", "drawing commands, not pixels: export it as PNG"),
        (hostile_media.EPS_BINARY, r"EPS \(PostScript\)", "export it as PNG"),
        (hostile_media.SVG, "SVG", "export it as PNG"),
        (b'\xef\xbb\xbf<?xml version="1.0"?>\n<!-- a -->' + hostile_media.SVG, "SVG", "export it as PNG"),
        (hostile_media.WMF, "WMF", "export it as PNG"),
        (hostile_media.EMF, "EMF", "export it as PNG"),
        (b"%PDF-1.7\n", "PDF", "export it as PNG"),
        (hostile_media.HEIC, "HEIC", "Save it as JPEG, for instance by heif-convert"),
        (b"<!DOCTYPE html><html></html>", "HTML", "load it again"),
        (b"8BPS\x00\x01" + bytes(40), "PSD", "Convert it to PNG"),
    ],
)
def test_other_formats_are_refused_by_their_names(content, name, cure, tmp_path):
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(BagwiseError, match=rf"it is {name}, which is not read\. .*{cure}.* {READ}"):
        open_collection(tmp_path)[0].load()
    with pytest.raises(BagwiseError, match=rf"Cannot make a thumbnail of this file: it is {name}, which is not read"):
        thumbnail(content)


def test_a_damaged_header_of_a_format_that_is_read_says_so(tmp_path):
    (tmp_path / "a.jpg").write_bytes(png(PIXELS)[:30])
    with pytest.raises(BagwiseError, match=rf"it begins as PNG, but its header cannot be read\. {READ}"):
        open_collection(tmp_path)[0].load()


@pytest.mark.parametrize(
    ("format", "ending"),
    [(name, end) for name in ("PNG", "WEBP", "JPEG2000", "TIFF", "AVIF", "BMP", "PPM", "GIF") for end in (".jpg", "")]
    + [("AVIF", ".avif"), ("JPEG2000", ".jp2")],
)
def test_the_content_decides_not_the_ending(format, ending, tmp_path):
    if format == "AVIF" and "AVIF" not in image_files._readable():
        pytest.skip("this Pillow has no AVIF")
    options = {"lossless": True} if format == "WEBP" else {"quality": 100} if format == "AVIF" else {}
    Image.fromarray(PIXELS).save(tmp_path / f"a{ending}", format, **options)
    found = open_collection(tmp_path, "images", **({} if ending else {"extensions": "*"}))[0].load()
    assert np.abs(found.astype(int) - PIXELS).max() <= 2


def test_a_format_that_pillow_lacks_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(features, "check", lambda name: name != "webp")
    image_files._readable.cache_clear()
    try:
        Image.fromarray(PIXELS).save(tmp_path / "a.webp")
        with pytest.raises(BagwiseError, match=r"it is WebP, which this Pillow was built without.* JPEG, PNG, GIF"):
            open_collection(tmp_path)[0].load()
    finally:
        image_files._readable.cache_clear()


def test_images_that_are_not_read_are_told(tmp_path):
    for name in ("a.heic", "b.heic", "c.svg"):
        (tmp_path / name).write_bytes(b"content")
    with pytest.raises(
        BagwiseError, match=r"its 3 files are: 2 .heic, 1 .svg\. Save them as JPEG, for instance by heif"
    ):
        open_collection(tmp_path)
    (tmp_path / "d.png").write_bytes(png(PIXELS))
    images = open_collection(tmp_path)
    assert images.ids == ["d.png"]
    heic, svg = images.notes
    assert heic.startswith("2 files .heic are images of a format that is not read. Save them as JPEG")
    assert svg == "1 file .svg is an image of a format that is not read. Export them as PNG."


def test_the_library_opens_no_image_without_naming_formats():
    """The list of formats is the only thing between a file and all plugins of Pillow."""
    n_opened = 0
    for path in Path(bagwise.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                where = f"{path}:{node.lineno}"
                assert node.func.attr not in ("imread", "imdecode", "imreadmulti", "imdecodemulti"), where
                if node.func.attr == "open" and isinstance(node.func.value, ast.Name) and node.func.value.id == "Image":
                    n_opened += 1
                    assert "formats" in [keyword.arg for keyword in node.keywords], where
    assert n_opened


def test_images_that_need_more_than_the_limit_are_refused_before_they_are_decoded(tmp_path):
    Image.new("RGBA", (400, 300)).save(tmp_path / "a.png")
    about = r"it takes about 3\.48 MB to decode, the limit decode_bytes is 1\.00 MB\. .*Limits\(decode_bytes=\.\.\.\)"
    with pytest.raises(BagwiseError, match=about):
        open_collection(tmp_path, limits=Limits(decode_bytes=1_000_000))[0].load()
    assert open_collection(tmp_path, limits=Limits(decode_bytes=4_000_000))[0].load().shape == (300, 400)


def test_the_free_memory_bounds_the_default(monkeypatch):
    monkeypatch.setattr("bagwise._utils.memory.free_memory", lambda: 1 << 30)
    assert Limits().most("decode_bytes") == int(0.8 * (1 << 30))
    assert Limits(decode_bytes=3 << 30).most("decode_bytes") == 3 << 30
    monkeypatch.setattr("bagwise._utils.memory.free_memory", lambda: None)
    assert Limits().most("decode_bytes") == 2 << 30


def test_decoders_wait_until_there_is_memory(monkeypatch):
    """The first one goes on when another was told to wait, so that they would overlap if they were allowed to."""
    memory, to_array = image_files.DecodingMemory(), media.to_array
    waits, held = threading.Event(), []
    fits = memory._fits

    def told(n_bytes, limits):
        if not (found := fits(n_bytes, limits)):
            waits.set()
        return found

    def decoded(image, mode, check):
        held.append(memory.n_bytes)
        assert waits.wait(PATIENCE)
        return to_array(image, mode, check)

    monkeypatch.setattr(memory, "_fits", told)
    monkeypatch.setattr(media, "DECODING", memory)
    monkeypatch.setattr(media, "to_array", decoded)
    content = SimpleNamespace(open=lambda: io.BytesIO(png(PIXELS)))
    need = 1200 * (1 + 1 + 24)
    limits, came = Limits(decode_bytes=2 * need), []
    decoder = media.ImageDecoder("grey", limits)
    threads = [threading.Thread(target=lambda: came.append(decoder.decode(content))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(came) == 8
    assert max(held) == 2 * need
    assert memory.n_bytes == 0
    assert all(np.array_equal(one, PIXELS) for one in came)


def test_the_account_is_right_after_errors():
    memory, deadline = image_files.DecodingMemory(), Deadline(Limits())

    def failing(n_bytes, error):
        with memory.admit(n_bytes, Limits(decode_bytes=1 << 30), deadline):
            assert memory.n_bytes == n_bytes
            raise error

    for n_bytes, error in ((10, ZeroDivisionError), (image_files._MUCH, KeyboardInterrupt)):
        with pytest.raises(error):
            failing(n_bytes, error)
    with pytest.raises(BagwiseError, match="decode_bytes"), memory.admit(11, Limits(decode_bytes=10), deadline):
        pass
    with memory.admit(10, Limits(decode_bytes=10), deadline):
        assert memory.n_bytes == 10
    assert (memory.n_bytes, len(memory._waiting)) == (0, 0)


def test_time_of_waiting_does_not_count():
    deadline = Deadline(Limits(seconds=1e-9))
    with pytest.raises(BagwiseError, match="seconds"):
        deadline.check()
    deadline.extend(1000)
    deadline.check()
