import pickle
import sys

import numpy as np
import pytest
import scipy.ndimage as ndi
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from bagwise import Bags, BagwiseError, open_collection
from bagwise.descriptors import VideoHogHof
from bagwise.descriptors import _video_kernels as kernels
from bagwise.descriptors.video import GreyFrames, SpaceTimePoints, _gaussian, _gradient, describe_points, find_points
from bagwise.sources import ItemError, SkippedItemsWarning


def square(xs, height=48, width=64, side=12, top=18):
    """A light square on dark ground with a given left border in each frame."""
    video = np.full((len(xs), height, width), 50, np.uint8)
    for frame, x in zip(video, xs, strict=True):
        frame[top : top + side, x : x + side] = 200
    return video


BOUNCE = [10 + abs(15 - t) for t in range(30)]  # to the left, and back
ONE = VideoHogHof(sigmas=[2], taus=[2])


def histograms(values, features="hof"):
    """Rows as (time, row, column, bin)."""
    return values.reshape(len(values), 2, 3, 3, 5 if features == "hof" else 4)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 5, 6), (3, 30, 2), (2, 2, 41)])
def test_smoothing_is_scipys(axis, shape):
    volume = np.random.default_rng(0).random(shape).astype(np.float32)
    weights = _gaussian(1.7)
    assert len(weights) == 13
    assert abs(weights.sum() - 1) < 1e-6
    out = np.empty_like(volume)
    if axis == 0:
        kernels.smooth_middle(volume.reshape(1, shape[0], -1), weights, out.reshape(1, shape[0], -1))
    elif axis == 1:
        kernels.smooth_middle(volume, weights, out)
    else:
        kernels.smooth_last(volume.reshape(-1, shape[2]), weights, out.reshape(-1, shape[2]))
    np.testing.assert_allclose(out, ndi.correlate1d(volume, weights, axis=axis, mode="nearest"), rtol=1e-5)


def corner_measure(video, sigma, tau, k=0.005):
    """The measure written with SciPy, in double precision."""

    def smooth(volume, factor):
        scales = (tau * factor, sigma * factor, sigma * factor)
        radius = [int(np.ceil(3 * scale)) for scale in scales]
        return ndi.gaussian_filter(volume, scales, mode="nearest", radius=radius)

    blurred = smooth(video / 255, 1)
    half = [-0.5, 0, 0.5]
    t, y, x = (ndi.correlate1d(blurred, half, axis=axis, mode="nearest") for axis in range(3))
    gradient = [x * sigma, y * sigma, t * tau]
    matrix = np.array([[smooth(a * b, np.sqrt(2)) for b in gradient] for a in gradient])
    matrix = np.moveaxis(matrix, (0, 1), (-2, -1))
    return np.linalg.det(matrix) - k * np.trace(matrix, axis1=-2, axis2=-1) ** 3


@pytest.mark.parametrize(("sigma", "tau"), [(1.5, 1.0), (2.0, 2.0)])
def test_points_are_the_maxima_of_the_corner_measure(sigma, tau):
    video = np.random.default_rng(1).integers(0, 256, (26, 44, 46), dtype=np.uint8)
    video = ndi.uniform_filter(video, 3)
    measure = corner_measure(video, sigma, tau)
    is_top = (ndi.maximum_filter(measure, 3, mode="constant", cval=np.inf) == measure) & (measure > 1e-13)
    points = find_points(GreyFrames(video), [sigma], [tau], threshold=1e-13)
    assert len(points) > 3
    np.testing.assert_array_equal(points.places, np.argwhere(is_top))
    np.testing.assert_allclose(points.strengths, measure[is_top], rtol=1e-3)
    assert (points.scales == [sigma, tau]).all()


@pytest.mark.parametrize("block_frames", [1, 4, 7, 29, 100])
def test_points_do_not_depend_on_blocks(block_frames):
    random = np.random.default_rng(2)
    video = (square(BOUNCE) + random.integers(0, 20, (30, 48, 64))).astype(np.uint8)
    sigmas, taus = (1.5, 2.5), (1.0, 1.6)
    whole = find_points(GreyFrames(video), sigmas, taus, block_frames=30, threshold=1e-12)
    parts = find_points(GreyFrames(video), sigmas, taus, block_frames=block_frames, threshold=1e-12)
    assert len(whole) > 10
    np.testing.assert_array_equal(parts.places, whole.places)
    np.testing.assert_array_equal(parts.scales, whole.scales)
    np.testing.assert_array_equal(parts.strengths, whole.strengths)
    assert (np.diff(whole.places[:, 0]) >= 0).all()


def test_long_videos_are_taken_in_blocks(monkeypatch):
    asked = []

    class Recorded(GreyFrames):
        def block(self, start, stop):
            asked.append(stop - start)
            return super().block(start, stop)

    video = square(BOUNCE * 10)
    whole = find_points(GreyFrames(video), [2], [1])
    monkeypatch.setattr("bagwise.descriptors.video._BLOCK", 0)
    found = find_points(Recorded(video), [2], [1])
    assert len(asked) == 19  # of 16 frames, and how far filters reach on both sides
    assert max(asked) <= 16 + 2 * (3 + 5 + 2)
    describe_points(Recorded(video), found)
    assert set(asked[19:]) == {1}
    np.testing.assert_array_equal(found.places, whole.places)


def test_plateaus_have_one_maximum():
    flat = np.zeros((5, 6, 7))
    flat[1:4, 1:4, 2:5] = 1.0
    assert kernels.local_maxima(flat, 0, 5, 0.5).tolist() == [[1, 1, 2]]
    assert kernels.local_maxima(flat, 0, 5, 1.0).tolist() == []
    assert kernels.local_maxima(np.ones((5, 5, 5)), 0, 5, 0.5).tolist() == []


def test_points_lie_where_motion_turns():
    points = find_points(GreyFrames(square(BOUNCE)), [2], [2])
    best = points.strongest(4)
    assert len(best) == 4
    assert (abs(best.places[:, 0] - 15) <= 1).all()
    assert ((best.places[:, 1] > 15) & (best.places[:, 1] < 33)).all()
    assert ((best.places[:, 2] > 7) & (best.places[:, 2] < 25)).all()
    assert set(best.strengths) <= set(points.strengths)
    assert best.strengths.min() >= np.median(points.strengths)


def test_nothing_happens_in_still_or_evenly_moving_videos():
    still = square([20] * 20)
    assert ONE.transform([still]).lengths.tolist() == [0]
    noisy = np.clip(still + np.random.default_rng(0).normal(0, 5, still.shape), 0, 255).astype(np.uint8)
    assert ONE.transform([noisy]).lengths.tolist() == [0]
    even = find_points(GreyFrames(square(np.arange(5, 45))), [2], [2])
    assert all(t < 6 or t > 34 for t in even.places[:, 0])  # where it comes and goes, only


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([4, 5]))
def test_votes_are_the_lengths_shared_among_orientations(seed, signed, n_bins):
    random = np.random.default_rng(seed)
    u, v = random.integers(-3, 4, (2, 4, 5)).astype(np.float32)
    votes = np.full((n_bins, 4, 5), 9, np.float32)
    kernels.orientation_votes(u, v, signed, 1.5, votes)
    expected = np.zeros((n_bins, 4, 5))
    for y, x in np.ndindex(4, 5):
        length = np.hypot(u[y, x], v[y, x])
        if n_bins == 5 and length < 1.5:
            expected[4, y, x] = 1
            continue
        step = 90.0 if signed else 45.0
        angle = np.degrees(np.arctan2(v[y, x], u[y, x]))
        for b in range(4):
            period = 4 * step
            apart = abs((angle - b * step + period / 2) % period - period / 2)
            expected[b, y, x] = length * max(0.0, 1 - apart / step)
    np.testing.assert_allclose(votes, expected, atol=1e-5)


def test_gradients_of_frames():
    frame = np.random.default_rng(3).random((6, 7)).astype(np.float32)
    along_x, along_y = _gradient(frame)
    np.testing.assert_allclose(along_x, ndi.correlate1d(frame, [-0.5, 0, 0.5], axis=1, mode="nearest"), atol=1e-7)
    np.testing.assert_allclose(along_y, ndi.correlate1d(frame, [-0.5, 0, 0.5], axis=0, mode="nearest"), atol=1e-7)


def slow_hog(video, place, sigma, tau):
    """72 numbers, pixel by pixel."""
    t0, y0, x0 = place
    histogram = np.zeros((2, 3, 3, 4))
    for t, y, x in np.ndindex(video.shape):
        row, column = np.floor((y - y0) / (6 * sigma) + 1.5), np.floor((x - x0) / (6 * sigma) + 1.5)
        if not (t0 - 4 * tau <= t < t0 + 4 * tau and 0 <= row < 3 and 0 <= column < 3):
            continue
        frame = np.pad(video[t] / 255, 1, mode="edge")
        u = (frame[y + 1, x + 2] - frame[y + 1, x]) / 2
        v = (frame[y + 2, x + 1] - frame[y, x + 1]) / 2
        place = np.arctan2(v, u) / (np.pi / 4)
        lower = int(np.floor(place))
        cell = histogram[int(t >= t0), int(row), int(column)]
        cell[lower % 4] += np.hypot(u, v) * (1 - place + lower)
        cell[(lower + 1) % 4] += np.hypot(u, v) * (place - lower)
    return (histogram / np.linalg.norm(histogram)).ravel()


def test_histograms_of_gradients_are_sums_over_cells():
    video = np.random.default_rng(4).integers(0, 256, (9, 14, 16), dtype=np.uint8)
    places = np.array([[4, 7, 8], [0, 0, 0], [8, 13, 15], [5, 2, 11]])
    scales = np.array([[0.7, 0.6], [0.5, 1.1], [1.3, 5.0], [0.31, 0.8]])
    values = describe_points(GreyFrames(video), SpaceTimePoints(places, scales, np.ones(4)), "hog")
    for value, place, scale in zip(values, places, scales, strict=True):
        np.testing.assert_allclose(value, slow_hog(video, place, *scale), atol=1e-5)


def test_flow_points_in_the_direction_of_motion():
    values = VideoHogHof("hof", sigmas=[2], taus=[2], max_points=4).transform([square(BOUNCE)]).values
    cells = histograms(values).sum(axis=(0, 2, 3))  # time, bin: right, down, left, up, none
    before, after = cells
    assert before[2] > 5 * before[[0, 1, 3]].max()
    assert after[0] > 5 * after[[1, 2, 3]].max()
    assert (cells[:, 4] > 0).all()
    down = VideoHogHof("hof", sigmas=[2], taus=[2], max_points=4)
    turned = down.transform([square(BOUNCE, 64, 48).swapaxes(1, 2)]).values
    before, after = histograms(turned).sum(axis=(0, 2, 3))
    assert before[3] > 5 * before[[0, 1, 2]].max()
    assert after[1] > 5 * after[[0, 2, 3]].max()


def test_reversing_time_turns_the_flow_around():
    start = square([20] * 15 + [20 + t for t in range(1, 16)])  # rests, then goes to the right
    features = VideoHogHof("hof", sigmas=[2], taus=[1.5], max_points=2)
    forth = histograms(features.transform([start]).values).sum(axis=(0, 2, 3))
    back = histograms(features.transform([start[::-1]]).values).sum(axis=(0, 2, 3))
    assert forth[1, 0] > 5 * forth[1, 2]
    assert back[0, 2] > 5 * back[0, 0]
    assert forth[0, :4].sum() < 0.3 * forth[1, :4].sum()
    assert back[1, :4].sum() < 0.3 * back[0, :4].sum()


def test_gradients_know_no_sign_of_contrast():
    video = square(BOUNCE)
    features = VideoHogHof("hog", sigmas=[2], taus=[2])
    one, other = features.transform([video, 255 - video])
    np.testing.assert_allclose(one, other, atol=1e-4)


def test_parts_stand_side_by_side_with_length_one():
    video = square(BOUNCE)
    both, hog, hof = (VideoHogHof(features).transform([video]) for features in ("hog+hof", "hog", "hof"))
    assert (both.n_features, hog.n_features, hof.n_features) == (162, 72, 90)
    np.testing.assert_array_equal(both.values, np.hstack([hog.values, hof.values]))
    np.testing.assert_allclose(np.linalg.norm(hog.values, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(hof.values, axis=1), 1, rtol=1e-5)
    assert (both.values >= 0).all()
    np.testing.assert_array_equal(both.positions, hog.positions)


def test_positions_lie_on_the_square():
    bags = VideoHogHof(sigmas=[2], taus=[2], max_points=4).transform([square(BOUNCE)])
    x, y = bags.positions.T
    assert ((x > 7 / 64) & (x < 25 / 64)).all()
    assert ((y > 15 / 48) & (y < 33 / 48)).all()
    places = find_points(GreyFrames(square(BOUNCE)), [2], [2]).strongest(4).places
    np.testing.assert_allclose(x, (places[:, 2] + 0.5) / 64)
    np.testing.assert_allclose(y, (places[:, 1] + 0.5) / 48)


def test_kinds_of_frames():
    video = square(BOUNCE)
    expected = ONE.transform([video])
    colour = np.repeat(video[..., None], 3, axis=3)
    for same in (video / 255, (video / 255).astype(np.float32), video.astype(np.uint16) * 257, colour):
        found = ONE.transform([same])
        np.testing.assert_array_equal(found.positions, expected.positions)
        np.testing.assert_allclose(found.values, expected.values, atol=1e-3)
    assert ONE.transform([video > 100]).n_rows > 0


def test_large_frames_are_shrunk():
    video = square(BOUNCE)
    large = video.repeat(3, axis=1).repeat(3, axis=2)
    shrunk = clone(ONE).set_params(max_side=64).transform([large])
    np.testing.assert_allclose(shrunk.values, ONE.transform([video]).values, atol=1e-3)
    frames = GreyFrames(large[:, :, :100], max_side=72)
    assert (frames.n_frames, frames.height, frames.width) == (30, 72, 50)
    assert frames.block(3, 5).shape == (2, 72, 50)


@pytest.mark.parametrize("shape", [(0, 9, 9), (1, 60, 60), (2, 60, 60), (9, 2, 60), (9, 60, 1), (9, 0, 0)])
def test_too_short_or_too_small_videos_give_empty_bags(shape):
    bags = VideoHogHof().transform([np.random.default_rng(0).random(shape)])
    assert bags.lengths.tolist() == [0]
    assert (bags.n_features, bags.positions.shape) == (162, (0, 2))


@pytest.mark.parametrize("shape", [(3, 3, 3), (4, 3, 40), (30, 4, 5)])
def test_tiny_videos(shape):
    video = np.random.default_rng(0).random(shape)
    bags = VideoHogHof(threshold=0, sigmas=[0.5], taus=[0.5]).transform([video])
    assert np.isfinite(bags.values).all()
    assert len(bags) == 1


def videos():
    return [square(BOUNCE), square(BOUNCE[:1]), square(BOUNCE[::-1], top=10)]


def test_any_way_through_is_the_same(tmp_path):
    expected = ONE.transform(videos())
    assert expected.lengths[1] == 0
    assert clone(ONE).set_params(n_jobs=2).transform(video for video in videos()) == expected
    assert Bags.concatenate(ONE.iter_transform(videos(), batch_size=2)) == expected
    assert pickle.loads(pickle.dumps(ONE)).transform(videos()) == expected
    values, positions = ONE.describe(videos()[2])
    np.testing.assert_array_equal(values, expected[2])
    np.testing.assert_array_equal(positions, expected.positions_of(2))
    cached = clone(ONE).set_params(cache=tmp_path)
    assert cached.transform(videos()) == expected
    assert cached.transform(videos()) == expected


def test_collections(tmp_path):
    av = pytest.importorskip("av")
    for name, video in zip(("a", "b"), (videos()[0], videos()[2]), strict=True):
        with av.open(str(tmp_path / f"{name}.mkv"), "w") as container:
            stream = container.add_stream("ffv1", rate=25)
            stream.height, stream.width, stream.pix_fmt = *video.shape[1:], "gray"
            for frame in video:
                container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="gray")))
            container.mux(stream.encode())
    collection = open_collection(tmp_path)
    expected = ONE.transform(videos()[::2])
    found = ONE.transform(collection)
    np.testing.assert_array_equal(found.offsets, expected.offsets)
    np.testing.assert_allclose(found.values, expected.values, atol=1e-5)
    (tmp_path / "c.mkv").write_bytes(b"no video")
    with pytest.warns(SkippedItemsWarning, match=r"1 of 3 items .* c\.mkv"):
        assert ONE.transform(open_collection(tmp_path), on_error="skip") == found


@pytest.mark.parametrize(
    ("video", "reason"),
    [
        (np.zeros((20, 30)), r"shape \(frames, height, width\).*got shape \(20, 30\)"),
        (np.zeros((9, 20, 30, 4)), r"got shape \(9, 20, 30, 4\)"),
        (np.zeros((9, 20, 30), complex), "uint8, uint16, bool or floats.*got complex128"),
        (np.zeros((9, 20, 30), int), "got int64"),
        (np.full((9, 20, 30), 77.0), r"values in \[0, 1\]; frames 0 to 8 go from 77.0 to 77.0"),
        (np.full((9, 20, 30), np.nan), r"values in \[0, 1\].* nan"),
        ("video.avi", r"got shape \(\)"),
        ([[[1]], [[1, 2]]], "not an array"),
    ],
)
def test_what_is_no_video_is_refused(video, reason):
    with pytest.raises(ItemError, match=f"Cannot read 'video 1': .*{reason}"):
        VideoHogHof().transform([square(BOUNCE[:1]), video])


def test_what_it_cannot_use():
    with pytest.raises(BagwiseError, match="nothing to describe: got no videos"):
        VideoHogHof().transform([])
    for wrong in ({"features": "mbh"}, {"threshold": -1}, {"max_points": 0}, {"max_side": 2}, {"still": -1}):
        with pytest.raises(BagwiseError, match=f"^{next(iter(wrong))} of .* must be"):
            VideoHogHof(**wrong).transform(videos())
    for wrong in ({"sigmas": []}, {"sigmas": [0]}, {"taus": [np.inf]}, {"taus": ["a"]}, {"taus": [-1.0, 2.0]}):
        with pytest.raises(BagwiseError, match=f"{next(iter(wrong))} of VideoHogHof must be a list of"):
            VideoHogHof(**wrong).transform(videos(), on_error="skip")


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(BagwiseError, match=r'Optical flow needs cv2\. Install it with: pip install "bagwise\[app\]"'):
        ONE.transform(videos(), on_error="skip")
    assert VideoHogHof("hog", sigmas=[2], taus=[2]).transform(videos()).n_rows > 0
