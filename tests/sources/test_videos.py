import zipfile

import av
import numpy as np
import pytest

from bagwise import BagwiseError, open_collection
from bagwise.sources import ItemError, Limits


def write_video(path, n_frames, size=(48, 32), codec="mpeg4"):
    """Write frames that get lighter by 10 each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=10)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        for i in range(n_frames):
            shade = np.full((size[1], size[0], 3), 50 + 10 * i, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(shade, format="rgb24")))
        container.mux(stream.encode())
    return path


@pytest.mark.parametrize("name", ["a.avi", "a.mp4", "a.mkv"])
def test_frames(tmp_path, name):
    path = write_video(tmp_path / "walking" / name, 6)
    videos = open_collection(tmp_path)
    assert (videos.modality, videos.labels.tolist()) == ("videos", ["walking"])
    frames = videos[0].load()
    assert (frames.shape, frames.dtype) == ((6, 32, 48), np.uint8)
    assert abs(frames.mean(axis=(1, 2)) - (50 + 10 * np.arange(6))).max() < 4
    assert open_collection(path, mode="rgb")[0].load().shape == (6, 32, 48, 3)
    np.testing.assert_array_equal(open_collection(path, every=4)[0].load(), frames[::4])
    np.testing.assert_array_equal(open_collection(path, max_frames=2)[0].load(), frames[:2])


def test_one_frame(tmp_path):
    assert open_collection(write_video(tmp_path / "a.avi", 1))[0].load().shape == (1, 32, 48)


def test_videos_in_archives(tmp_path):
    path = write_video(tmp_path / "a.mp4", 3)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(path, "walking/a.mp4")
    packed = open_collection(tmp_path / "a.zip")
    np.testing.assert_array_equal(packed[0].load(), open_collection(path)[0].load())
    assert packed[0].fingerprint() == open_collection(path)[0].fingerprint()


def test_damaged_videos_are_reported(tmp_path):
    content = write_video(tmp_path / "good.mp4", 6).read_bytes()
    (tmp_path / "cut.mp4").write_bytes(content[:100])
    (tmp_path / "empty.mp4").write_bytes(b"")
    (tmp_path / "text.avi").write_text("not a video " * 100)
    videos = {item.id: item for item in open_collection(tmp_path)}
    with pytest.raises(ItemError, match=r"Cannot read 'empty.mp4': the file is empty"):
        videos["empty.mp4"].load()
    for name in ("cut.mp4", "text.avi"):
        with pytest.raises(ItemError, match=r"damaged or not a video"):
            videos[name].load()
    assert len(videos["good.mp4"].load()) == 6


def test_sound_alone_is_no_video(tmp_path):
    with av.open(str(tmp_path / "a.mkv"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        frame.rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    with pytest.raises(ItemError, match=r"it holds no video stream"):
        open_collection(tmp_path / "a.mkv")[0].load()


def test_limits(tmp_path):
    path = write_video(tmp_path / "a.avi", 4)
    few = Limits(video_bytes=4000)
    with pytest.raises(ItemError, match=r"its first 3 frames take 4.61 kB, the limit video_bytes is 4.00 kB. If you"):
        open_collection(path, limits=few)[0].load()
    assert len(open_collection(path, limits=few, every=2)[0].load()) == 2
    with pytest.raises(ItemError, match=r"its frames have 48 x 32 pixels, the limit pixels is 1,535"):
        open_collection(path, limits=Limits(pixels=1535))[0].load()
    with pytest.raises(ItemError, match=r"it takes longer to read, the limit seconds is 1e-09"):
        open_collection(path, limits=Limits(seconds=1e-9))[0].load()
    for option in ("every", "max_frames"):
        with pytest.raises(BagwiseError, match=rf"{option} must be at least 1, got 0"):
            open_collection(path, **{option: 0})


def test_unknown_codecs_are_named(tmp_path):
    content = write_video(tmp_path / "a.avi", 2).read_bytes()
    (tmp_path / "a.avi").write_bytes(content.replace(b"FMP4", b"zzzz"))
    with pytest.raises(ItemError, match="its video is of a kind that is not known"):
        open_collection(tmp_path)[0].load()
