"""Networks from ONNX files: where vectors are found, how images are prepared, and what is refused."""

import hashlib
import json
import os

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from bagwise import BagwiseError, runtime_network
from bagwise.descriptors import NetworkFeatures, network_files, networks
from bagwise.descriptors.networks import input_size
from bagwise.runtime_network import NetworkError

STRIDE, WIDTH = 8, 5
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def image(height=50, width=70, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def weights():
    return np.random.default_rng(0).normal(size=(WIDTH, 3, STRIDE, STRIDE)).astype(np.float32)


def network(
    kind="nchw", size=("H", "W"), *, channels_last=False, half=False, skipped=0, batch="N", extra=(), outputs=None
):
    """One convolution of patches: a map, or tokens of it behind `skipped` others."""
    number = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    dtype = np.float16 if half else np.float32
    shape = [batch, *size, 3] if channels_last else [batch, 3, *size]
    constants = [numpy_helper.from_array(weights().astype(dtype), "w")]
    nodes = [helper.make_node("Transpose", ["image"], ["planes"], perm=[0, 3, 1, 2])] if channels_last else []
    first = "planes" if channels_last else "image"
    name = "out" if kind == "nchw" else "map"
    nodes.append(helper.make_node("Conv", [first, "w"], [name], kernel_shape=[STRIDE] * 2, strides=[STRIDE] * 2))
    if kind == "nhwc":
        nodes.append(helper.make_node("Transpose", ["map"], ["out"], perm=[0, 2, 3, 1]))
    if kind == "tokens":
        constants.append(numpy_helper.from_array(np.array([0, WIDTH, -1]), "flat"))
        constants.append(numpy_helper.from_array(np.full((1, skipped, WIDTH), 1e6, dtype), "others"))
        nodes.append(helper.make_node("Reshape", ["map", "flat"], ["rows"]))
        nodes.append(helper.make_node("Transpose", ["rows"], ["tokens"], perm=[0, 2, 1]))
        nodes.append(helper.make_node("Concat", ["others", "tokens"], ["out"], axis=1))
    if kind == "logits":
        nodes.append(helper.make_node("GlobalAveragePool", ["map"], ["means"]))
        nodes.append(helper.make_node("Flatten", ["means"], ["out"]))
    nodes += extra
    values = [helper.make_tensor_value_info(one, number, None) for one in outputs or ("out",)]
    graph = helper.make_graph(nodes, "test", [helper.make_tensor_value_info("image", number, shape)], values, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def saved(tmp_path):
    def save(model, name="net.onnx", **options):
        onnx.save(model, tmp_path / name, **options)
        return str(tmp_path / name)

    return save


def expected(given, size, mean=MEAN, std=STD):
    """Vectors by NumPy, of shape (h, w, channels)."""
    from PIL import Image

    resized = Image.fromarray(given).resize(size[::-1], Image.Resampling.BILINEAR)
    planes = np.moveaxis((np.asarray(resized) / 255 - mean) / std, 2, 0)
    cells = planes.reshape(3, size[0] // STRIDE, STRIDE, size[1] // STRIDE, STRIDE)
    return np.einsum("kcij,chiwj->hwk", weights(), cells)


# Where vectors are found


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("size", [("H", "W"), (64, 96)])
@pytest.mark.parametrize(("kind", "skipped"), [("nchw", 0), ("nhwc", 0), ("tokens", 0), ("tokens", 1), ("tokens", 5)])
def test_maps_and_tokens_of_any_layout(saved, kind, skipped, size, channels_last):
    path = saved(network(kind, size, channels_last=channels_last, skipped=skipped, batch=1))
    values, positions = NetworkFeatures(path, side=64).describe(image())
    fixed = size == (64, 96)
    height, width = (64, 96) if fixed else input_size(50, 70, 64, STRIDE)
    vectors = expected(image(), (height, width))
    np.testing.assert_allclose(values, vectors.reshape(-1, WIDTH), rtol=1e-3, atol=1e-3)
    rows, columns = vectors.shape[:2]
    assert (rows, columns) == ((8, 12) if fixed else (8, 9))
    np.testing.assert_allclose(positions[columns + 1], [1.5 / columns, 1.5 / rows], rtol=1e-6)
    about = NetworkFeatures(path, side=64).identity()
    assert about["layer"] == "out"
    assert about["preprocessing"] == {
        "mean": MEAN.tolist(),
        "std": STD.tolist(),
        "side": 64,
        "multiple": STRIDE,
        "size": [64, 96] if fixed else None,
    }


def test_half_precision(saved):
    values, _ = NetworkFeatures(saved(network(half=True)), side=64).describe(image())
    found = expected(image(), input_size(50, 70, 64, STRIDE)).reshape(-1, WIDTH)
    np.testing.assert_allclose(values, found, atol=0.2)
    assert values.dtype == np.float32


def test_inner_values_where_no_output_has_positions(saved):
    path = saved(network("logits"))
    inner = NetworkFeatures(path, side=64)
    assert inner.identity()["layer"] == "map"
    whole = NetworkFeatures(saved(network(), "map.onnx"), side=64)
    np.testing.assert_array_equal(inner.describe(image())[0], whole.describe(image())[0])
    assert len(inner._open().session.get_outputs()) == 1
    np.testing.assert_allclose(inner.describe_pooled(image())[2], inner.describe(image())[0].mean(axis=0), rtol=1e-4)


def test_layers_by_name(saved):
    more = [helper.make_node("Relu", ["out"], ["active"]), helper.make_node("Neg", ["out"], ["minus"])]
    path = saved(network(extra=more, outputs=("out", "active")))
    assert NetworkFeatures(path).identity()["layer"] == "active"  # the last output
    plain, active, minus = (
        NetworkFeatures(path, layer=layer, side=64).describe(image())[0] for layer in ("out", "active", "minus")
    )
    np.testing.assert_array_equal(active, np.maximum(plain, 0))
    np.testing.assert_array_equal(minus, -plain)
    with pytest.raises(
        BagwiseError, match=r"no layer 'actve'. Its outputs are 'out', 'active'; of 3 .*, 'active' have"
    ):
        NetworkFeatures(path, layer="actve").fit()


# How images are prepared


@pytest.mark.parametrize(
    ("config", "mean", "std", "side"),
    [
        ({"image_mean": [0.5, 0.4, 0.3], "image_std": [0.1, 0.2, 0.3]}, [0.5, 0.4, 0.3], [0.1, 0.2, 0.3], 256),
        ({"rescale_factor": 1 / 127.5, "image_mean": [1, 1, 1], "image_std": [1, 1, 1]}, [0.5] * 3, [0.5] * 3, 256),
        ({"do_rescale": False, "image_mean": [127] * 3, "image_std": [128] * 3}, [127 / 255] * 3, [128 / 255] * 3, 256),
        ({"do_normalize": False, "image_mean": [0.5] * 3, "size": 96}, [0] * 3, [1] * 3, 96),
        ({"size": {"shortest_edge": 128}, "crop_size": {"height": 112, "width": 112}}, MEAN, STD, 112),
        ({"size": {"shortest_edge": 128}, "crop_size": 112, "do_center_crop": False}, MEAN, STD, 128),
        ({"size": {"height": 100, "width": 144}}, MEAN, STD, 120),
        ({}, MEAN, STD, 256),
    ],
)
def test_the_file_beside_it_says_how(saved, tmp_path, config, mean, std, side):
    path = saved(network())
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    described = NetworkFeatures(path)
    about = described.identity()["preprocessing"]
    np.testing.assert_allclose(about["mean"], mean, atol=1e-12)
    np.testing.assert_allclose(about["std"], std, atol=1e-12)
    assert about["side"] == side
    size = input_size(50, 70, side, STRIDE)
    values = expected(image(), size, np.array(mean), np.array(std)).reshape(-1, WIDTH)
    np.testing.assert_allclose(described.describe(image())[0], values, rtol=1e-3, atol=1e-3)
    own = NetworkFeatures(path, side=72, mean=[0.1, 0.2, 0.3], std=[1, 2, 3]).identity()["preprocessing"]
    assert (own["side"], own["mean"], own["std"]) == (72, [0.1, 0.2, 0.3], [1, 2, 3])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "cannot be read as JSON"),
        (b"[1]", "must hold a JSON object"),
        (b'{"image_mean": [1, 2]}', "image_mean of .* must be a list of 3 numbers"),
        (b'{"image_std": [1, 2, "a"]}', "image_std of .* must be a number, got 'a'"),
        (b'{"image_std": [1, 2, 0]}', "not above 0"),
        (b'{"rescale_factor": -1}', "not above 0"),
        (b'{"rescale_factor": NaN}', "must be a number, got nan"),
        (b'{"size": {"height": 1, "width": 1}}', "accepted are 64 to 2048"),
        (b'{"size": "large"}', "size of .* must be a number, got 'large'"),
        (b"[" * 100_000, "cannot be read as JSON"),
        (b" " * (1 << 20) + b"{}", "at most"),
    ],
)
def test_a_wrong_file_beside_it_is_an_error(saved, tmp_path, content, reason):
    path = saved(network())
    (tmp_path / "preprocessor_config.json").write_bytes(content)
    with pytest.raises(BagwiseError, match=f"(?s)cannot be used: .*{reason}"):
        NetworkFeatures(path).fit()


# Identity


def test_the_hash_is_that_of_the_file(saved, tmp_path):
    path = saved(network())
    described = NetworkFeatures(path, side=64, cache=tmp_path / "cache")
    with open(path, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    assert described.identity()["sha256"] == digest
    assert described.identity()["name"] == "net.onnx"
    copy = NetworkFeatures(saved(network(), "copy.onnx"), side=64)
    assert copy.parameters == described.parameters
    expected = described.transform([image()])
    n_files = len(list((tmp_path / "cache").rglob("*.arrays")))
    np.testing.assert_array_equal(
        copy.set_params(cache=tmp_path / "cache").transform([image()]).values, expected.values
    )
    assert len(list((tmp_path / "cache").rglob("*.arrays"))) == n_files == 1


def test_a_file_that_was_replaced_is_read_again(saved):
    path = saved(network())
    before = NetworkFeatures(path, side=64)
    first = before.describe(image())[0]
    saved(network(extra=[helper.make_node("Neg", ["out"], ["minus"])], outputs=("minus",)))
    os.utime(path, ns=(1, 1))
    np.testing.assert_array_equal(before.describe(image())[0], -first)


def test_models_never_open_a_path_of_their_own(saved):
    described = NetworkFeatures(saved(network()), side=64)
    parameters = described.parameters
    assert parameters["network"] == f"sha256:{described.identity()['sha256']}"
    assert "net.onnx" not in json.dumps(parameters)
    restored = NetworkFeatures.from_parameters(parameters)
    with pytest.raises(BagwiseError, match="Name its ONNX file"):
        restored.transform([image()])
    again = restored.with_network(described.network)
    np.testing.assert_array_equal(again.describe(image())[0], described.describe(image())[0])
    assert again.parameters == parameters
    with pytest.raises(BagwiseError, match=r"other\.onnx' is another network: sha256:.* is needed, got sha256:"):
        restored.with_network(saved(network(skipped=1, kind="tokens"), "other.onnx"))
    with pytest.raises(BagwiseError, match=r"Only the tensors of efficientnet-lite0 can be taken out"):
        described.tensors()


def test_preprocessing_is_recorded_as_it_was(saved, tmp_path):
    path = saved(network())
    (tmp_path / "preprocessor_config.json").write_text('{"size": 96, "image_mean": [0, 0, 0]}')
    recorded = NetworkFeatures.from_parameters(NetworkFeatures(path).parameters)
    (tmp_path / "preprocessor_config.json").unlink()
    assert recorded.with_network(path).identity()["preprocessing"]["side"] == 96
    assert recorded.with_network(path).identity()["preprocessing"]["mean"] == [0, 0, 0]


# Weights in other files


def outside(path, location):
    """Let the weights of a file come from another place."""
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    onnx.save(model, path)


@pytest.fixture
def with_weights(saved):
    return saved(network(), save_as_external_data=True, location="net.weights", size_threshold=0)


def test_weights_beside_the_file_are_read(with_weights, saved, tmp_path):
    assert (tmp_path / "net.weights").stat().st_size >= weights().nbytes
    described = NetworkFeatures(with_weights, side=64)
    first = described.describe(image())[0]
    np.testing.assert_array_equal(first, NetworkFeatures(saved(network(), "whole.onnx"), side=64).describe(image())[0])
    before = described.identity()["sha256"]
    content = bytearray((tmp_path / "net.weights").read_bytes())
    content[3] ^= 1
    (tmp_path / "net.weights").write_bytes(content)
    os.utime(with_weights, ns=(1, 1))
    assert described.identity()["sha256"] != before  # another network


@pytest.mark.parametrize("location", ["../secret", "/etc/hostname", "", "link", "down/../../secret", "folder/link"])
def test_weights_outside_of_the_folder_are_refused(with_weights, tmp_path, location):
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "folder").mkdir()
    (tmp_path / "secret").write_bytes((tmp_path / "net.weights").read_bytes())
    (inner / "link").symlink_to(tmp_path / "secret")
    (inner / "folder" / "link").symlink_to(tmp_path / "secret")
    os.rename(with_weights, inner / "net.onnx")
    outside(inner / "net.onnx", location)
    with pytest.raises(BagwiseError, match=r"which is not in its folder\. Only files of"):
        NetworkFeatures(str(inner / "net.onnx")).fit()


def test_weights_inside_of_nodes_are_looked_at_too(saved, tmp_path):
    tensor = numpy_helper.from_array(np.ones((1, WIDTH, 1, 1), np.float32), "c")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../secret"
    inner = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=tensor)],
        "g",
        [],
        [helper.make_tensor_value_info("c", TensorProto.FLOAT, None)],
    )
    condition = helper.make_node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True)))
    branch = helper.make_node("If", ["yes"], ["chosen"], then_branch=inner, else_branch=inner)
    add = helper.make_node("Add", ["out", "chosen"], ["sum"])
    with pytest.raises(BagwiseError, match=r"weights from '\.\./secret', which is not in its folder"):
        NetworkFeatures(saved(network(extra=[condition, branch, add], outputs=("sum",)))).fit()


def test_weights_inside_of_functions_are_looked_at_too(saved, tmp_path, monkeypatch):
    # ONNX Runtime reads what a default of an attribute names, from the current folder
    (tmp_path / "secret").write_bytes(np.full(WIDTH, 7, np.float32).tobytes())
    monkeypatch.chdir(tmp_path)
    default = helper.make_attribute("value", numpy_helper.from_array(np.zeros((1, WIDTH, 1, 1), np.float32), "c"))
    default.t.ClearField("raw_data")
    default.t.data_location = TensorProto.EXTERNAL
    default.t.external_data.add(key="location", value="../secret")
    constant = helper.make_node("Constant", [], ["c"])
    constant.attribute.add(name="value", ref_attr_name="value", type=onnx.AttributeProto.TENSOR)
    nodes = [constant, helper.make_node("Add", ["x", "c"], ["y"])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    called = helper.make_node("Shift", ["out"], ["sum"], domain="own")
    model = network(extra=[called], outputs=("sum",))
    model.functions.append(
        helper.make_function("own", "Shift", ["x"], ["y"], nodes, opsets[:1], attribute_protos=[default])
    )
    model.opset_import.append(opsets[1])
    with pytest.raises(BagwiseError, match=r"weights from '\.\./secret', which is not in its folder"):
        NetworkFeatures(saved(model)).fit()
    model.functions[0].attribute_proto[0].t.external_data[0].value = "secret"
    with pytest.raises(NetworkError, match="numbers in other files"):
        networks.open_session(model.SerializeToString(), None)
    described = NetworkFeatures(saved(model), side=64)  # from its own folder, as other weights
    plain = NetworkFeatures(saved(network(), "plain.onnx"), side=64).describe(image())[0]
    np.testing.assert_allclose(described.describe(image())[0], plain + 7, rtol=1e-5)


def test_weights_that_are_named_again_and_again_are_counted(with_weights, monkeypatch):
    model = onnx.load(with_weights, load_external_data=False)
    (tensor,) = model.graph.initializer
    for number in range(100):
        copy = model.graph.initializer.add()
        copy.CopyFrom(tensor)
        copy.name = f"copy{number}"
    onnx.save(model, with_weights)
    monkeypatch.setattr(network_files, "MOST_BYTES", 90 * weights().nbytes)  # more than the files have
    with pytest.raises(BagwiseError, match=r"with its weights, takes .* are read"):
        NetworkFeatures(with_weights).fit()


def test_the_own_format_of_onnx_runtime_is_refused(saved, tmp_path, monkeypatch):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "net.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(saved(network()), options, providers=["CPUExecutionProvider"])
    content = (tmp_path / "net.ort").read_bytes()
    assert onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).get_inputs()  # which reads it
    with pytest.raises(NetworkError, match="not an ONNX file"):
        networks.open_session(content, None)
    monkeypatch.setattr(runtime_network, "external_files", lambda model: False)  # a file may look like both
    with pytest.raises(Exception, match="protobuf parsing failed"):
        networks.open_session(content, None)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("offset", "-1", "no sound place"),
        ("offset", "1e3", "no sound place"),
        ("length", "9" * 30, "no sound place"),
        ("offset", "999999999", "exceeds the file of weights"),
        ("length", "999999999", "exceeds the file of weights"),
        ("length", "8", "cannot load it"),
        ("location", "missing", "is not in its folder"),
    ],
)
def test_places_of_weights_are_checked(with_weights, key, value, reason):
    model = onnx.load(with_weights, load_external_data=False)
    (tensor,) = model.graph.initializer
    entries = {entry.key: entry.value for entry in tensor.external_data} | {key: value}
    del tensor.external_data[:]
    for name, text in entries.items():
        tensor.external_data.add(key=name, value=text)
    onnx.save(model, with_weights)
    with pytest.raises(BagwiseError, match=reason):
        NetworkFeatures(with_weights).fit()


def test_sizes_are_looked_at_before_anything_is_read(with_weights, monkeypatch):
    monkeypatch.setattr(network_files, "MOST_BYTES", 100)
    with pytest.raises(BagwiseError, match=r"takes .* at most 100 bytes are read"):
        NetworkFeatures(with_weights).fit()
    monkeypatch.setattr(network_files, "MOST_BYTES", os.path.getsize(with_weights) + 10)
    with pytest.raises(BagwiseError, match="it, with its weights, takes"):
        NetworkFeatures(with_weights).fit()


# What is refused


def changed(change, **options):
    model = network(**options)
    change(model)
    return model


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: network(batch=2), r"it takes 'image' of float \(2, 3, H, W\); accepted is one input of images"),
        (lambda: network(size=(64, "W")), r"takes 'image' of float \(N, 3, 64, W\); accepted"),
        (lambda: network(size=(1 << 20, 1 << 20)), "accepted is one input"),
        (
            lambda: changed(
                lambda m: m.graph.input.append(helper.make_tensor_value_info("ids", TensorProto.INT64, ["N"]))
            ),
            r"'ids' of int64 \(N\); accepted is one input",
        ),
        (lambda: changed(lambda m: m.graph.input.pop()), "it takes nothing; accepted"),
        (
            lambda: changed(lambda m: m.graph.input[0].type.tensor_type.shape.dim.pop()),
            r"\(N, 3, H\); accepted is one input",
        ),
        (
            lambda: network(extra=[helper.make_node("Flatten", ["out"], ["flat"])], outputs=("flat",), size=(8, 8)),
            r"an input of \(8, 8\) pixels it gives flat of shape \(1, 5\), out of shape \(1, 5, 1, 1\); accepted are",
        ),
        (
            lambda: network(extra=[helper.make_node("Read", ["out"], ["x"], domain="my.ops")], outputs=("x",)),
            "ONNX Runtime cannot load it",
        ),
        (lambda: network(extra=[helper.make_node("Log", ["zero"], ["x"])], outputs=("x",)), "ONNX Runtime cannot load"),
        (lambda: changed(lambda m: m.graph.ClearField("node")), "not an ONNX file with a graph"),
    ],
)
def test_other_networks_are_refused(saved, model, reason):
    with pytest.raises(BagwiseError, match=r"(?s)The network '.*net\.onnx' cannot be used: .*" + reason):
        NetworkFeatures(saved(model())).fit()


@pytest.mark.parametrize("content", [b"", b"ORTM" + b"\0" * 100, b"\x89PNG\r\n\x1a\n" + b"x" * 50, b"{}"])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "net.onnx").write_bytes(content)
    with pytest.raises(BagwiseError, match="it is not an ONNX file"):
        NetworkFeatures(str(tmp_path / "net.onnx")).fit()


def test_folders_are_refused(tmp_path):
    with pytest.raises(BagwiseError, match="cannot be used: it cannot be read, Is a directory"):
        NetworkFeatures(tmp_path).fit()


def test_numbers_that_are_not_finite_are_refused(saved):
    path = saved(network(extra=[helper.make_node("Log", ["out"], ["log"])], outputs=("log",)))
    with pytest.raises(BagwiseError, match="the network gives numbers that are not finite"):
        NetworkFeatures(path).describe(image())


def test_a_network_that_fails_on_some_sizes_says_so(saved):
    """Its tokens fit 224 x 224 and 224 x 448 only: a table of positions is added that is cut to their number."""
    path = saved(network("tokens"))
    described = NetworkFeatures(path, side=64)
    opened = described._open()
    with pytest.raises(NetworkError, match="gave 7 tokens for an input of 64 x 64 pixels; expected 0 and 8 x 8"):
        opened.layout.vectors(np.zeros((1, 7, 3)), 64, 64)

    class Failing:
        def get_inputs(self):
            return opened.session.get_inputs()

        def run(self, *_):
            raise RuntimeError("shapes differ")

    broken = networks.RunningNetwork("a", "b", "c", opened.preprocessing, opened.layout, Failing())
    with pytest.raises(BagwiseError, match="fails on an input of 64 x 72 pixels: shapes differ"):
        broken.run(image())
