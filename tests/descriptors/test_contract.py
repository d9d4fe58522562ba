"""What every descriptor of images keeps, whatever it computes."""

import pickle
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from bagwise import Bags, BagwiseError, open_collection
from bagwise.descriptors import (
    LBPD5,
    ColorCells,
    ColorSIFT,
    DamagedCacheWarning,
    DenseSIFT,
    HogLbp,
    KeypointSIFT,
    LocalBinaryPatterns,
    NetworkFeatures,
    Patches,
)
from bagwise.descriptors.base import RowBuffer
from bagwise.sources import ItemError, SkippedItemsWarning

ALL = [
    DenseSIFT(scales=(1.0, 1.5)),
    ColorSIFT(),
    ColorSIFT("rg"),
    KeypointSIFT(contrast_threshold=0.01),
    Patches(),
    Patches(mode="rgb", normalize="l2"),
    ColorCells(),
    HogLbp(),
    HogLbp(form="root"),
    LocalBinaryPatterns(),
    LocalBinaryPatterns(uniform=True, cell=10),
    LBPD5(),
    NetworkFeatures(side=64),
]
every = pytest.mark.parametrize("descriptor", ALL, ids=lambda descriptor: repr(descriptor))


def textures(n=5, seed=0):
    """Colour images of different sizes, smooth enough to have interest points."""
    random = np.random.default_rng(seed)
    images = []
    for k in range(n):
        coarse = random.integers(0, 256, (8 + k, 9, 3)).astype(np.uint8)
        images.append(np.asarray(Image.fromarray(coarse).resize((45 + 3 * k, 40 - 2 * k), Image.Resampling.BICUBIC)))
    return images


def saved(folder, images):
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{number}.png")
    return open_collection(folder, mode="rgb")


def arrays_of(result):
    if isinstance(result, Bags):
        return [result.values, result.offsets, result.positions]
    return [result.data, result.indices, result.indptr, np.array(result.shape)]


def assert_same(one, other):
    assert type(one) is type(other)
    for a, b in zip(arrays_of(one), arrays_of(other), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def joined(parts):
    if isinstance(parts[0], Bags):
        return Bags.concatenate(parts)
    return sp.vstack(parts, format="csr")


@every
def test_parameters_copies_and_text(descriptor):
    copy = clone(descriptor)
    assert copy is not descriptor
    assert copy.get_params() == descriptor.get_params()
    assert set(descriptor.get_params()) >= {"n_jobs", "verbose", "cache"}
    assert type(descriptor).__name__ in repr(descriptor)
    assert copy.set_params(n_jobs=3).n_jobs == 3
    assert copy.fit() is copy
    images = textures(2)
    assert_same(pickle.loads(pickle.dumps(descriptor)).transform(images), descriptor.transform(images))


@every
def test_it_is_a_step_of_a_pipeline(descriptor):
    images = textures(2)
    assert_same(make_pipeline(descriptor).fit_transform(images), descriptor.transform(images))


@every
def test_wrong_parameters_are_refused(descriptor):
    with pytest.raises(BagwiseError, match=f"^n_jobs of {descriptor.name} must be an integer from -1024 to 1024"):
        clone(descriptor).set_params(n_jobs="all").transform(textures(1))
    with pytest.raises(BagwiseError, match=r"cache of .* must be a path or None; got 3"):
        clone(descriptor).set_params(cache=3).fit()


@every
def test_a_list_is_like_a_collection_and_threads_like_none(descriptor, tmp_path):
    images = textures()
    collection = saved(tmp_path, images)
    expected = descriptor.transform(images)
    assert_same(descriptor.transform(collection), expected)
    assert_same(clone(descriptor).set_params(n_jobs=2).transform(collection), expected)
    assert_same(descriptor.transform(image for image in images), expected)


@every
@pytest.mark.parametrize("batch", [1, 2, 64])
def test_batches_together_are_the_whole(descriptor, batch):
    images = textures()
    describing = clone(descriptor).set_params(n_jobs=2).iter_transform(images, batch)
    parts = list(describing)
    assert len(parts) == -(-len(images) // batch)
    assert describing.kept == list(range(len(images)))
    assert_same(joined(parts), descriptor.transform(images))


@every
@pytest.mark.parametrize("shape", [(0, 0), (0, 30), (1, 1), (2, 60), (60, 2), (4, 4)])
def test_tiny_images_have_no_descriptors(descriptor, shape):
    # none fits into any of these shapes, but for the one histogram that LBPD5 always gives
    image = np.zeros((*shape, 3), np.uint8)
    if isinstance(descriptor, LocalBinaryPatterns) and descriptor.cell is None and shape == (4, 4):
        assert descriptor.transform([image]).lengths.tolist() == [1]
        return
    if isinstance(descriptor, NetworkFeatures) and image.size:  # enlarged
        assert (descriptor.transform([image]).lengths > 0).all()
        return
    result = descriptor.transform([image, textures(1)[0]])
    if sp.issparse(result):
        assert result.shape[0] == 2
        assert result[[0]].nnz == 0
    else:
        assert result.lengths[0] == 0
        assert result.lengths[1] > 0


@every
def test_all_bags_may_be_empty(descriptor):
    side = 0 if isinstance(descriptor, NetworkFeatures) else 2
    result = descriptor.transform([np.zeros((side, side, 3), np.uint8)] * 2)
    assert result.shape[0] == 2 if sp.issparse(result) else result.lengths.tolist() == [0, 0]
    width = descriptor.transform(textures(1))
    assert (result.shape if sp.issparse(result) else result.n_features) == (
        (2, width.shape[1]) if sp.issparse(width) else width.n_features
    )


@every
@pytest.mark.parametrize("level", [0, 77, 255])
def test_constant_images(descriptor, level):
    result = descriptor.transform([np.full((40, 50, 3), level, np.uint8)])
    if isinstance(result, Bags):
        assert np.isfinite(result.values).all()
        if isinstance(descriptor, (DenseSIFT, ColorSIFT)):
            assert result.n_rows > 0
            assert not result.values.any()
    else:
        assert result.sum() > 0 if sp.issparse(result) else result.rows.sum() > 0


@every
def test_positions_lie_in_the_image(descriptor):
    result = descriptor.transform(textures())
    if not sp.issparse(result):
        assert result.positions.shape == (result.n_rows, 2)
        assert (result.positions > 0).all()
        assert (result.positions < 1).all()


@every
def test_nothing_to_describe(descriptor):
    with pytest.raises(BagwiseError, match=r"nothing to describe: got no images"):
        descriptor.transform([])
    with pytest.raises(BagwiseError, match=r"got one array of shape \(20, 30\)\. For one image pass \[image\]"):
        descriptor.transform(np.zeros((20, 30)))
    with pytest.raises(BagwiseError, match=r"got one array of shape \(20, 30, 3\)\. For one image pass \[image\]"):
        descriptor.transform(np.zeros((20, 30, 3)))
    with pytest.raises(BagwiseError, match=r"got str.*open_collection"):
        descriptor.transform("folder")
    with pytest.raises(BagwiseError, match="batch_size must be at least 1, got 0"):
        descriptor.iter_transform(textures(1), batch_size=0)
    with pytest.raises(BagwiseError, match="Unknown on_error: 'ignore'"):
        descriptor.transform(textures(1), on_error="ignore")


@every
@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (np.zeros((30, 30, 4), np.uint8), r"shape \(height, width\).*got \(30, 30, 4\)"),
        (np.full((30, 30, 3), np.nan), r"pixels must be numbers between .* from nan to nan"),
        (np.full((30, 30, 3), -1e30), r"from -1e\+30 to -1e\+30"),
        (np.full((30, 30, 3), "a"), "array of real numbers, got <U1"),
        (np.zeros((30, 30, 3), complex), "array of real numbers, got complex128"),
    ],
)
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_what_is_no_image_is_refused_by_its_number(descriptor, image, reason, n_jobs):
    descriptor = clone(descriptor).set_params(n_jobs=n_jobs)
    images = textures(2)
    with pytest.raises(ItemError, match=f"Cannot read 'image 1': .*{reason}"):
        descriptor.transform([images[0], image, images[1]])
    with pytest.warns(SkippedItemsWarning, match="1 of 3 items of the list .* image 1: "):
        assert_same(descriptor.transform([images[0], image, images[1]], on_error="skip"), descriptor.transform(images))


def test_damaged_files_are_left_out_when_asked(tmp_path):
    saved(tmp_path, textures(4))
    Path(tmp_path / "2.png").write_bytes(b"no image")
    collection = open_collection(tmp_path)
    with pytest.raises(ItemError, match=r"Cannot read '2.png': it is damaged or not an image"):
        DenseSIFT(n_jobs=2).transform(collection)
    describing = DenseSIFT(n_jobs=2).iter_transform(collection, batch_size=2, on_error="skip")
    with pytest.warns(SkippedItemsWarning, match=r"1 of 4 items .* 2\.png: it is damaged"):
        parts = list(describing)
    assert describing.kept == [0, 1, 3]
    assert [skipped.id for skipped in describing.skipped] == ["2.png"]
    assert_same(Bags.concatenate(parts), DenseSIFT().transform(collection[describing.kept]))


def test_an_unreadable_collection_is_an_error_even_when_skipping(tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(BagwiseError, match=r"cannot be read\. a\.png: the file is empty"):
        DenseSIFT().transform(open_collection(tmp_path), on_error="skip")


def test_collections_of_other_things_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(BagwiseError, match="takes images, got a collection of texts from"):
        DenseSIFT().transform(open_collection(tmp_path))


def test_iterating_may_stop_early():
    computed = []

    class Counting(Patches):
        def _describe(self, content):
            computed.append(1)
            return super()._describe(content)

    describing = Counting(n_jobs=2).iter_transform(textures(3) * 20, batch_size=2)
    next(describing)
    describing.close()
    assert len(computed) < 60
    assert list(describing) == []


def test_progress_is_shown_on_request(capsys):
    DenseSIFT(verbose=1).transform(textures(2))
    assert "DenseSIFT [" in capsys.readouterr().err
    DenseSIFT().transform(textures(2))
    assert capsys.readouterr().err == ""


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 7))
@settings(max_examples=40)
def test_rows_grow_over_blocks(lengths, capacity):
    buffer = RowBuffer(3, np.float32)
    buffer._capacity = buffer._filled = capacity
    parts = [np.random.default_rng(n).random((n, 3)).astype(np.float32) for n in lengths]
    for _ in range(2):  # it can be used again
        for part in parts:
            buffer.append(part)
        np.testing.assert_array_equal(buffer.joined(), np.concatenate([np.empty((0, 3), np.float32), *parts]))


def forbid_computing(monkeypatch, descriptor):
    def fail(*_):
        raise AssertionError("computed again")

    monkeypatch.setattr(type(descriptor), "_compute", fail)


@every
def test_the_second_run_computes_nothing(descriptor, tmp_path, monkeypatch):
    images = textures()
    expected = descriptor.transform(images)
    cached = clone(descriptor).set_params(cache=tmp_path / "cache", n_jobs=2)
    assert_same(cached.transform(images), expected)
    forbid_computing(monkeypatch, descriptor)
    assert_same(cached.transform(images), expected)
    assert_same(cached.transform(images[::-1]), joined(list(cached.iter_transform(images[::-1], 1))))
    with pytest.raises(AssertionError, match="computed again"):
        descriptor.transform(images)


def test_the_cache_knows_contents_and_parameters(tmp_path):
    def n_files(**parameters):
        DenseSIFT(cache=str(tmp_path), **parameters).transform(images)
        return len(list(tmp_path.glob("*/*")))

    images = textures(3)
    assert n_files() == 3
    assert n_files(n_jobs=2, verbose=0, step=np.int64(8), scales=[1.0]) == 3
    assert n_files(step=9) == 6
    images[1] = images[1].astype(np.float64)
    assert n_files() == 7
    Patches(cache=tmp_path).transform(images)
    assert len(list(tmp_path.glob("*/*"))) == 10


def test_files_of_a_collection_are_found_wherever_they_lie(tmp_path, monkeypatch):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    first, second = (saved(tmp_path / name, textures(3)) for name in ("here", "there"))
    descriptor = HogLbp(cache=tmp_path / "cache")
    expected = descriptor.transform(first)
    forbid_computing(monkeypatch, descriptor)
    assert_same(descriptor.transform(second), expected)


@pytest.mark.parametrize("harm", ["empty", "cut", "flipped", "longer", "other"])
def test_damaged_files_of_the_cache_are_computed_again(tmp_path, harm):
    images = textures(3)
    descriptor = DenseSIFT(cache=tmp_path)
    expected = descriptor.transform(images)
    path = sorted(tmp_path.glob("*/*"))[1]
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(
        {
            "empty": b"",
            "cut": content[:middle],
            "flipped": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "longer": content + b"\0",
            "other": b"anything at all",
        }[harm]
    )
    with pytest.warns(DamagedCacheWarning, match="cannot be used and is computed again"):
        assert_same(descriptor.transform(images), expected)
    assert path.read_bytes() == content
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(descriptor.transform(images), expected)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="only POSIX systems can kill without a trace")
def test_a_run_killed_while_it_wrote_is_taken_up_again(tmp_path):
    images = textures(4)
    np.savez(tmp_path / "images.npz", *images)
    code = f"""
import os, signal
import numpy as np
from bagwise.descriptors import Patches
replaced, replace = [], os.replace
def kill_at_the_third(source, target):
    replaced.append(target)
    if len(replaced) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
os.replace = kill_at_the_third
Patches(cache={str(tmp_path / "cache")!r}).transform(list(np.load({str(tmp_path / "images.npz")!r}).values()))
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert sorted(path.suffix for path in files) == [".arrays", ".arrays", ".part"]
    assert_same(Patches(cache=tmp_path / "cache").transform(images), Patches().transform(images))
    assert len(list((tmp_path / "cache").glob("*/*.arrays"))) == 4


def test_a_run_that_is_interrupted_leaves_whole_files_only(tmp_path):
    images = textures(5)

    class Killed(DenseSIFT):
        def _describe(self, content):
            if content is images[3]:
                raise KeyboardInterrupt
            return super()._describe(content)

    with pytest.raises(KeyboardInterrupt):
        Killed(cache=tmp_path).transform(images)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 3
    assert all(path.suffix == ".arrays" for path in files)


def test_a_cache_that_cannot_be_written_is_an_error_whatever_is_skipped(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BagwiseError, match="is not a folder that can be made"):
        DenseSIFT(cache=tmp_path / "file").transform(textures(1))
    cache = tmp_path / "cache"
    DenseSIFT(cache=cache).transform(textures(1))
    path = next(cache.glob("*/*"))
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("in the way")
    with (
        pytest.warns(DamagedCacheWarning, match="Not a directory"),
        pytest.raises(BagwiseError, match=r"Cannot write to the cache folder .* pass cache=None"),
    ):
        DenseSIFT(cache=cache).transform(textures(1), on_error="skip")


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(BagwiseError, match=r'^KeypointSIFT needs cv2\. Install it with: pip install "bagwise\[app\]"'):
        KeypointSIFT().transform(textures(1))
