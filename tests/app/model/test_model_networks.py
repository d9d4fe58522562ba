"""Networks of models: copies in files, files that are named, and what the runtime makes of both."""

import hashlib
import json
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from bagwise import BagwiseError, Model, open_collection, runtime, runtime_network
from bagwise.app import FitOptions, ItemIndex, run_fit
from bagwise.app.model import export_onnx
from bagwise.app.model.files import model_bytes
from bagwise.descriptors import NetworkFeatures, efficientnet
from bagwise.descriptors.images import shrink
from bagwise.runtime import ModelFileError
from commands import bagwise
from small_sources import write_image_folder

SMALL = {"n_words": 20, "folds": 2, "n_jobs": 1, "n_groups": 4}


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    return write_image_folder(tmp_path_factory.mktemp("photographs"), color=True, side=72, n_each=4)


@pytest.fixture(scope="module")
def images(photographs):
    return [item.load() for item in open_collection(photographs, mode="rgb")]


@pytest.fixture(scope="module")
def model(photographs):
    return run_fit(photographs, FitOptions(**SMALL)).model


@pytest.fixture(scope="module")
def embedded(model, tmp_path_factory):
    return model.embed_network().save(tmp_path_factory.mktemp("embedded") / "m.bagwise")


def network(seed=0):
    """A network of two convolutions, the layer of the first of which is no output."""
    random = np.random.default_rng(seed)
    constants = [
        numpy_helper.from_array(random.normal(size=(6, 3, 16, 16)).astype(np.float32) / 16, "first"),
        numpy_helper.from_array(random.normal(size=(4, 6, 1, 1)).astype(np.float32), "second"),
    ]
    nodes = [
        helper.make_node("Conv", ["image", "first"], ["map"], kernel_shape=[16, 16], strides=[16, 16]),
        helper.make_node("Conv", ["map", "second"], ["last"]),
        helper.make_node("GlobalAveragePool", ["last"], ["means"]),
    ]
    given = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, "H", "W"])
    found = helper.make_tensor_value_info("means", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "test", [given], [found], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def named(photographs, tmp_path_factory):
    """A model described by a network of a file, and the file."""
    path = tmp_path_factory.mktemp("named") / "own.onnx"
    onnx.save(network(), path)
    fit = run_fit(photographs, FitOptions(**SMALL, descriptor=f"network:{path}"))
    return fit, fit.model.save(path.with_name("m.bagwise")), path


# Copies


def test_a_copy_of_the_network_travels_with_its_notice(model, embedded, images, monkeypatch):
    grown = embedded.stat().st_size - len(model_bytes(model))
    assert 5_878_240 < grown < 5_878_240 + 20_000
    header, tensors = runtime.read_model_file(embedded)
    assert "Apache License" in header["network"]["notice"]
    assert tensors["network"].dtype == np.float16

    expected, own = model.decision_function(images), model.embed_network()

    def missing():
        raise AssertionError("the package must not be needed")

    monkeypatch.setattr(efficientnet, "packaged_tensors", missing)
    loaded = Model.load(embedded)
    np.testing.assert_array_equal(loaded.decision_function(images), expected)
    assert loaded == own
    assert loaded.trim().descriptors[0].embedded == loaded.descriptors[0].embedded
    monkeypatch.undo()
    assert loaded != model


def test_all_sizes_of_copies_are_known():
    all_of_it = NetworkFeatures().tensors()
    few = NetworkFeatures().tensors(wide=False)
    assert (len(runtime_network.joined(few)), len(runtime_network.joined(all_of_it))) == runtime.NETWORK_SIZES
    found = runtime_network.split(runtime_network.joined(all_of_it))
    assert list(found) == list(all_of_it)
    assert all(np.array_equal(found[name], array) for name, array in all_of_it.items())
    with pytest.raises(ValueError, match="has 2939120 or 3350000 numbers; got 7"):
        runtime_network.split(np.zeros(7, np.float16))


@pytest.mark.parametrize("value", [0.5, np.inf, np.nan])
def test_a_changed_copy_is_refused(embedded, value, tmp_path):
    _, tensors = runtime.read_model_file(embedded)
    changed = tensors["network"].copy()
    changed[1000] = value
    content = bytearray(embedded.read_bytes())
    place = content.find(tensors["network"].tobytes())
    content[place : place + changed.nbytes] = changed.tobytes()
    old = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]["crc32.network"]
    new = f"{zlib.crc32(changed.tobytes()):08x}"
    content = bytes(content).replace(old.encode(), new.encode(), 1)
    (tmp_path / "m.bagwise").write_bytes(content)
    with pytest.raises(BagwiseError, match=r"SHA-256|must be numbers below 65505"):
        Model.load(tmp_path / "m.bagwise")
    with pytest.raises(ModelFileError, match=r"another network|must be numbers below 65505"):
        runtime.load(tmp_path / "m.bagwise").predict_images(np.zeros((70, 70, 3), np.uint8))


def test_models_without_a_network_embed_none(photographs):
    model = run_fit(photographs, FitOptions(**SMALL, descriptor="patches")).model
    with pytest.raises(BagwiseError, match="has no network: its items are described by Patches"):
        model.embed_network()


# Networks of files


def test_files_are_named_by_whoever_loads(named, images, tmp_path, monkeypatch):
    fit, saved, path = named
    loaded = Model.load(saved, network=path)
    np.testing.assert_array_equal(loaded.predict(images), fit.model.predict(images))
    assert loaded == fit.model
    assert str(path.parent) not in saved.read_bytes().decode("latin-1")
    unnamed = Model.load(saved)
    assert unnamed == loaded
    assert unnamed.cut(4) == loaded.cut(4)  # words and histograms need no network
    with pytest.raises(BagwiseError, match=r"needs the network sha256:.*Name its ONNX file"):
        unnamed.predict(images)
    onnx.save(network(seed=1), tmp_path / "own.onnx")
    monkeypatch.chdir(tmp_path)  # a file of this name is here, but nobody named it
    with pytest.raises(BagwiseError, match="needs the network"):
        unnamed.predict(images)
    with pytest.raises(BagwiseError, match=r"is another network: sha256:.* is needed, got sha256:"):
        Model.load(saved, network=tmp_path / "own.onnx")
    with pytest.raises(BagwiseError, match="files of models never hold ONNX"):
        loaded.embed_network()


def test_indexes_take_the_file_as_well(named, photographs, tmp_path):
    fit, _, path = named
    collection = fit.data.collection
    index = ItemIndex.build(fit.model, collection, fit.data.histograms, source=str(photographs))
    saved = index.save(tmp_path / "i.index")
    query = str(next(Path(photographs).rglob("*.png")))
    shown = bagwise("search", saved, query, "--network", path, "-k", "1", "--keep-query")
    assert Path(query).name in shown
    assert "Name its ONNX file: --network FILE" in bagwise("search", saved, query, code=1)


def test_commands_embed_and_name_networks(photographs, named, tmp_path):
    out = tmp_path / "m.bagwise"
    options = ["--words", "20", "--folds", "0", "--groups", "4", "--jobs", "1", "--no-page", "--no-index"]
    bagwise("fit", photographs, "--embed-network", "--out", out, *options)
    assert Model.load(out).descriptors[0].embedded is not None
    message = bagwise("fit", photographs, "--embed-network", "--descriptor", "sift", code=1)
    assert "--embed-network copies the network of --descriptor network" in message
    _, saved, path = named
    assert "class" in bagwise("predict", saved, photographs, "--network", path)


# The runtime

ALONE = """
import sys

class Few:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("bagwise", "PIL", "cv2", "onnx", "scipy", "sklearn"):
            raise ImportError(f"{name} must not be needed")

sys.meta_path.insert(0, Few())
sys.path.insert(0, sys.argv[1])
import numpy as np
import runtime

images = list(np.load(sys.argv[3]))
np.save(sys.argv[4], runtime.load(sys.argv[2]).transform_images(images))
"""


def test_the_runtime_takes_images(model, embedded, images):
    ours = runtime.load(embedded)
    expected = model.transform(images).toarray()
    np.testing.assert_allclose(ours.transform_images(images), expected, atol=1e-6)
    np.testing.assert_array_equal(ours.predict_images(images), model.predict(images))
    assert ours.predict_images(images[0]) == model.predict(images[:1])[0]
    grey = np.random.default_rng(0).integers(0, 256, (90, 70), dtype=np.uint8)
    np.testing.assert_allclose(ours.transform_images([grey])[0], model.transform([grey]).toarray()[0], atol=1e-6)
    assert not ours.transform_images(np.zeros((0, 5, 3), np.uint8)).any()
    with pytest.raises(ModelFileError, match="An image must be uint8 of shape"):
        ours.predict_images(np.zeros((70, 70, 3)))


def test_the_runtime_needs_two_files_and_onnx_runtime(model, embedded, images, tmp_path):
    for module in (runtime, runtime_network):
        source = Path(module.__file__)
        (tmp_path / source.name).write_bytes(source.read_bytes())
    same = [image for image in images if image.shape == images[0].shape]
    np.save(tmp_path / "in.npy", np.stack(same))
    arguments = [tmp_path, embedded, tmp_path / "in.npy", tmp_path / "out.npy"]
    run = subprocess.run(
        [sys.executable, "-c", ALONE, *map(str, arguments)], capture_output=True, text=True, cwd=tmp_path
    )
    assert run.returncode == 0, run.stderr
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), model.transform(same).toarray(), atol=1e-6)


def test_the_runtime_takes_a_network_from_elsewhere(model, embedded, images, named, tmp_path):
    saved = model.save(tmp_path / "m.bagwise")
    expected = model.predict(images[:2])
    for given in (embedded, NetworkFeatures().tensors(), NetworkFeatures().tensors(wide=False)):
        np.testing.assert_array_equal(runtime.load(saved, network=given).predict_images(images[:2]), expected)
    with pytest.raises(ModelFileError, match=r"does not hold its network\. Name it: load"):
        runtime.load(saved).predict_images(images[0])
    with pytest.raises(ModelFileError, match="does not hold a network"):
        runtime.load(saved, network=saved).predict_images(images[0])
    with pytest.raises(ModelFileError, match="This is another network"):
        runtime.load(saved, network=named[2]).predict_images(images[0])
    fit, own, path = named
    ours = runtime.load(own, network=path)
    np.testing.assert_allclose(ours.transform_images(images), fit.model.transform(images).toarray(), atol=1e-5)


@pytest.mark.parametrize("inside", ["graph", "node", "function"])
def test_the_runtime_reads_no_other_files(named, images, inside, tmp_path):
    _, own, _ = named
    changed = network()
    tensor = numpy_helper.from_array(np.zeros(3, np.float32), "elsewhere")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret.bin")
    if inside == "graph":
        changed.graph.initializer.append(tensor)
    elif inside == "node":
        changed.graph.node.append(helper.make_node("Constant", [], ["constant"], value=tensor))
    else:
        node = helper.make_node("Constant", [], ["constant"], value=tensor)
        changed.functions.append(
            helper.make_function("own", "f", [], ["constant"], [node], [helper.make_opsetid("", 17)])
        )
    content = changed.SerializeToString()
    assert runtime_network.external_files(content)
    assert not runtime_network.external_files(network().SerializeToString())
    (tmp_path / "n.onnx").write_bytes(content)
    parameters = dict(Model.load(own).descriptors[0].parameters)
    parameters["network"] = f"sha256:{hashlib.sha256(content).hexdigest()}"
    with pytest.raises(runtime_network.NetworkError, match="has numbers in other files"):
        runtime_network.Runner(parameters, tmp_path / "n.onnx")


@pytest.mark.parametrize(
    "wrong",
    [
        {"side": 10**6},
        {"side": 256.0},
        {"side": None},
        {"mean": [0.5, 0.5]},
        {"mean": [0.5, 0.5, "0.5"]},
        {"std": [1.0, 0.0, 1.0]},
        {"std": [1.0, float("nan"), 1.0]},
        {"max_side": -1},
        {"layer": 3},
    ],
)
def test_the_runtime_checks_what_a_file_says_of_its_network(embedded, wrong):
    parameters = dict(Model.load(embedded).descriptors[0].parameters)
    tensors = NetworkFeatures().tensors(wide=False)
    assert runtime_network.Runner(parameters, tensors).describe(np.zeros((9, 9), np.uint8))[0].shape == (64, 320)
    with pytest.raises(runtime_network.NetworkError, match="parameters of the network cannot be"):
        runtime_network.Runner(parameters | wrong, tensors)


@pytest.mark.parametrize(
    ("shape", "operator", "reason"),
    [
        ([1, 3, 64], "Identity", "expected one image"),
        (["N", 3, "H", "W"], "Unknown", "ONNX Runtime cannot load or run"),
        ([1, 3, 64, 65], "Softsign", "has no positions"),
    ],
)
def test_the_runtime_names_networks_that_do_not_run(named, shape, operator, reason, tmp_path):
    given, out = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("image", "out"))
    nodes = [helper.make_node(operator, ["image"], ["values"]), helper.make_node("Flatten", ["values"], ["out"])]
    out.type.tensor_type.ClearField("shape")
    graph = helper.make_graph(nodes, "g", [given], [out])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    (tmp_path / "n.onnx").write_bytes(content)
    parameters = dict(Model.load(named[1]).descriptors[0].parameters)
    parameters |= {"network": f"sha256:{hashlib.sha256(content).hexdigest()}", "layer": "out"}
    with pytest.raises(runtime_network.NetworkError, match=reason):
        runtime_network.Runner(parameters, tmp_path / "n.onnx")


@pytest.mark.parametrize("content", [b"\xff", b"\x3a\xff\xff\xff", b"\x0b", b"\x3a\x02\x0a\x09"])
def test_what_is_no_onnx_file_is_refused(content):
    with pytest.raises(runtime_network.NetworkError, match="is not an ONNX file"):
        runtime_network.external_files(content)


@pytest.mark.parametrize("seed", range(6))
def test_images_are_resized_as_by_pillow(seed):
    random = np.random.default_rng(seed)
    height, width, rows, columns = (int(side) for side in random.integers(1, 300, 4))
    image = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
    expected = Image.fromarray(image)
    for size in ((columns, height), (columns, rows)):
        expected = expected.resize(size, Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(runtime_network.resized(image, rows, columns), np.asarray(expected))
    np.testing.assert_array_equal(runtime_network.resized(image[..., 0], rows, columns), np.asarray(expected)[..., 0])


def test_images_are_shrunk_as_by_the_library():
    random = np.random.default_rng(0)
    for height, width in ((700, 500), (481, 1000), (300, 480)):
        image = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        found, expected = runtime_network.shrunk(image, 480), shrink(image, 480)
        assert found.shape == expected.shape
        difference = np.abs(found.astype(int) - expected)
        assert difference.max() <= 1  # OpenCV sums in float32
        assert (difference > 0).mean() < 1e-3


def test_the_graph_without_the_package_onnx_is_sound():
    tensors = NetworkFeatures().tensors()
    for layer, pooled in (("block0", True), ("block15", False), ("wide", False)):
        onnx.checker.check_model(efficientnet.build_graph(tensors, layer, pooled=pooled), full_check=True)


# Graphs


def test_graphs_have_the_notice(model, embedded, named, tmp_path):
    graph = onnx.load(export_onnx(Model.load(embedded), tmp_path / "m.onnx"))
    about = {one.key: one.value for one in graph.metadata_props}
    assert json.loads(about["notice"]) == NetworkFeatures.weights_notice()
    assert graph.SerializeToString() == onnx.load(export_onnx(model, tmp_path / "m.onnx")).SerializeToString()
    graph = onnx.load(export_onnx(Model.load(named[1]), tmp_path / "m.onnx"))  # without its file
    assert [one.name for one in graph.graph.input] == ["descriptors"]
    about = {one.key: one.value for one in graph.metadata_props}
    assert "notice" not in about
    (known,) = json.loads(about["descriptors"])
    assert known["parameters"]["network"].startswith("sha256:")
