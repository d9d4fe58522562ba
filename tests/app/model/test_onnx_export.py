"""ONNX graphs give what the library and the runtime give."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import zlib

import numpy as np
import onnx
import onnxruntime
import pytest

from bagwise import Bags, BagwiseError, Model, runtime
from bagwise._io import atomic as _files
from bagwise.app.model import Head, export_onnx
from model_cases import MADE, random_hierarchy


def opened(model, tmp_path):
    path = export_onnx(model, tmp_path / "model.onnx")
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("pyramid", [None, 5, 8, [(1, 1), (1, 1)], [(2, 3)]])
@pytest.mark.parametrize("normalize", [(), ("l1", "power"), ("power", "l2")])
@pytest.mark.parametrize("term", ["count", "log", "sqrt"])
def test_one_image_a_run(pyramid, normalize, term, tmp_path):
    random = np.random.default_rng(0)
    weighting = {} if term == "count" else {"word_weights": random.random(40), "norm": "l2"}
    model = Model(
        term=term,
        **weighting,
        modality="images",
        hierarchy=random_hierarchy(40, random),
        n_groups=7,
        codebook=random.normal(50.0, 1.0, (40, 6)),
        pyramid=pyramid,
        normalize=normalize,
    )
    head = Head(random.normal(size=(4, 7 * model.layout.n_cells)), random.normal(size=4))
    model = dataclasses.replace(model, classes=list("abcd"), heads={7: head})
    lengths = [200, 0, 1, 33]
    positions = [random.random((n, 2)) for n in lengths]
    positions[3][:2] = [[0, 1], [1, 1]]  # the last cells
    bags = Bags.from_list([random.normal(50.0, 1.0, (n, 6)) for n in lengths], positions, n_features=6)
    session, ours = opened(model, tmp_path), runtime.load(model.save(tmp_path / "m.bagwise"))
    expected, scores, classes = model.transform(bags).toarray(), model.decision_function(bags), model.predict(bags)
    with_positions = "positions" in [given.name for given in session.get_inputs()]
    assert with_positions == any(grid != (1, 1) for grid in model.pyramid)
    for i, bag in enumerate(bags):
        inputs = {"descriptors": bag} | ({"positions": bags.positions_of(i)} if with_positions else {})
        found, scored, label = session.run(["features", "scores", "label"], inputs)
        np.testing.assert_allclose(found[0], expected[i], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found[0], ours.transform(bag, bags.positions_of(i)), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(scored[0], scores[i], rtol=1e-4, atol=1e-4)
        assert model.classes[label[0]] == classes[i]


@pytest.mark.parametrize("name", ["images", "two vocabularies"])
def test_no_step_is_given_nothing(name, tmp_path):
    """ONNX Runtime before 1.31 ends the process at some operators on arrays without elements."""
    graph = onnx.load(export_onnx(MADE[name](), tmp_path / "model.onnx"))
    values = [value for node in graph.graph.node for value in node.output]
    del graph.graph.output[:]
    graph.graph.output.extend(onnx.ValueInfoProto(name=value) for value in values)
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    nothing = {given.name: np.empty((0, given.shape[1]), np.float32) for given in session.get_inputs()}
    assert [name for name, value in zip(values, session.run(values, nothing), strict=True) if not value.size] == []


@pytest.mark.parametrize("normalize", [("l1", "power"), ("power", "l2")])
@pytest.mark.parametrize("name", ["texts", "weighted texts"])
def test_counts_many_rows_a_run(name, normalize, tmp_path):
    model = dataclasses.replace(MADE[name](), normalize=normalize)
    session = opened(model, tmp_path)
    random = np.random.default_rng(0)
    counts = (random.integers(0, 5, (30, 8)) * random.choice([1, 1e30], (30, 1))).astype(np.float32)
    counts[3] = 0
    features, scores, label = session.run(None, {"counts": counts})
    np.testing.assert_allclose(features, model.transform(counts), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(scores, model.decision_function(counts), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(np.array(model.classes)[label], model.predict(counts))
    assert session.run(["features"], {"counts": counts[:0]})[0].shape == (0, model.n_groups)


def test_a_graph_says_what_it_is(tmp_path):
    model = MADE["images"]()
    about = opened(model, tmp_path).get_modelmeta()
    assert json.loads(about.custom_metadata_map["classes"]) == list(model.classes)
    assert about.custom_metadata_map["n_words"] == "4"
    assert about.custom_metadata_map["items"] == "images"
    assert about.producer_name == "bagwise"


def test_without_a_head_there_are_features_alone(tmp_path):
    session = opened(MADE["images"]().cut(5), tmp_path)
    assert [output.name for output in session.get_outputs()] == ["features"]
    assert session.get_outputs()[0].shape == [1, 25]


def test_positions_outside_are_taken_to_the_nearest_cell(tmp_path):
    session = opened(MADE["images"](), tmp_path)
    vectors = np.zeros((2, 4), np.float32)
    far, near = np.array([[-3, 7], [0.5, 2]], np.float32), np.array([[0, 1], [0.5, 1]], np.float32)
    outside, inside = (session.run(["features"], {"descriptors": vectors, "positions": p})[0] for p in (far, near))
    np.testing.assert_array_equal(outside, inside)


def test_the_same_model_is_the_same_bytes(tmp_path):
    paths = [export_onnx(MADE["texts"](), tmp_path / name) for name in ("a.onnx", "b.onnx")]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_fault_leaves_the_old_file(tmp_path, monkeypatch):
    export_onnx(MADE["texts"](), tmp_path / "m.onnx")
    before = (tmp_path / "m.onnx").read_bytes()

    def fail(*_):
        raise OSError("full")

    monkeypatch.setattr(_files.os, "fsync", fail)
    with pytest.raises(OSError, match="full"):
        export_onnx(MADE["images"](), tmp_path / "m.onnx")
    assert os.listdir(tmp_path) == ["m.onnx"]
    assert (tmp_path / "m.onnx").read_bytes() == before


def test_without_onnx_it_says_what_it_needs(tmp_path):
    path = MADE["texts"]().save(tmp_path / "m.bagwise")
    script = (
        "import sys\nsys.modules['onnx'] = None\nfrom bagwise import Model\nfrom bagwise.app.model import export_onnx\n"
        f"export_onnx(Model.load({str(path)!r}), {str(tmp_path / 'never.onnx')!r})"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert 'Exporting to ONNX needs onnx. Install it with: pip install "bagwise[network]"' in run.stderr
    assert os.listdir(tmp_path) == ["m.bagwise"]
    assert BagwiseError.__name__ in run.stderr


def test_columns_of_measurements_are_shifted(tmp_path):
    model = MADE["measurements"]()
    X = np.random.default_rng(0).normal(0, 50, (5, 6)).astype(np.float32)
    found, scores = opened(model, tmp_path).run(["features", "scores"], {"counts": X})
    np.testing.assert_allclose(found, model.transform(X), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(scores, model.decision_function(X), rtol=1e-4, atol=1e-3)
    ours = runtime.load(model.save(tmp_path / "m.bagwise"))
    np.testing.assert_allclose(ours.transform_counts(X), model.transform(X), rtol=1e-6)
    words = np.arange(6)
    np.testing.assert_allclose(ours.transform_counts((words, X[0])), model.transform(X)[0], rtol=1e-6)


@pytest.mark.parametrize("name", ["weighted texts", "images"])
def test_all_constants_are_used(name, tmp_path):
    graph = onnx.load(export_onnx(MADE[name](), tmp_path / "model.onnx")).graph
    assert {constant.name for constant in graph.initializer} == {
        given for node in graph.node for given in node.input if given.startswith("constant_")
    }


def metadata_of(model, tmp_path):
    """The metadata of a graph as values, and the graph."""
    path = export_onnx(model, tmp_path / "model.onnx")
    about = {one.key: one.value for one in onnx.load(path).metadata_props}
    assert about.pop("items") == model.modality
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return {key: json.loads(value) for key, value in about.items()}, session


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("options", [{}, {"stop_words": "english", "ngram_range": [1, 2]}, {"binary": True}], ids=str)
def test_texts_are_classified_from_the_graph_and_its_metadata_alone(compact, options, tmp_path):
    words = ["dog", "the", "cat", "kitten", "bone", "big dog", "cat bone", "sea"]
    model = dataclasses.replace(MADE["weighted texts"](), word_names=words, tokenizer=options)
    model = model.rename_groups({1: "pets"})
    model = model.compact() if compact else model
    about, session = metadata_of(model, tmp_path)
    tokenizer = about["tokenizer"]
    assert (tokenizer["analyzer"], tokenizer["strip_accents"]) == ("word", None)
    texts = ["The big dog, the cat", "a kitten of the sea", "bone cat bone", "", "Cat bone"]
    rows = []
    for text in texts:
        found = re.findall(tokenizer["token_pattern"], text.lower() if tokenizer["lowercase"] else text)
        found = [word for word in found if word not in (tokenizer["stop_words"] or ())]
        least, most = tokenizer["ngram_range"]
        found = [" ".join(found[k : k + n]) for n in range(least, most + 1) for k in range(len(found) - n + 1)]
        if compact:
            found = [zlib.crc32(word.encode()) & 0xFFFFFF for word in found]
        counts = [found.count(word) for word in about["hashes" if compact else "vocabulary"]]
        rows.append([min(count, 1) for count in counts] if tokenizer["binary"] else counts)
    scores, labels = session.run(["scores", "label"], {"counts": np.array(rows, np.float32)})
    np.testing.assert_allclose(scores, model.decision_function(texts), rtol=1e-4, atol=1e-4)
    assert [about["classes"][k] for k in labels] == model.predict(texts).tolist()
    assert "pets" in about["group_names"]
    assert about["n_words"] == len(about["group_names"]) == model.n_groups


def test_edited_models_give_the_same_from_the_graph_the_runtime_and_the_library(tmp_path):
    model, counts = MADE["weighted texts"](), np.random.default_rng(0).integers(0, 4, (9, 8)).astype(np.float32)
    group = int(np.bincount(model.lookup).argmax())
    one, other = model.groups()[group][:2].tolist()
    edits = [
        {"edit": "move", "n_groups": 3, "words": [model.word_names[one]], "to": None},
        {"edit": "move", "n_groups": 4, "words": [other], "to": None},
        {"edit": "rename", "n_groups": 5, "group": 2, "name": "moved"},
    ]
    path = model.apply(edits).save(tmp_path / "m.bagwise")
    edited, ours = Model.load(path), runtime.load(path)
    about, session = metadata_of(edited, tmp_path)
    assert (about["n_words"], about["group_names"][2]) == (5, "moved")
    features, labels = session.run(["features", "label"], {"counts": counts})
    np.testing.assert_allclose(features, edited.transform(counts), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(features, ours.transform_counts(counts), rtol=1e-6, atol=1e-6)
    assert [about["classes"][k] for k in labels] == edited.predict(counts).tolist()
    assert ours.predict_counts(counts).tolist() == edited.predict(counts).tolist()


def test_the_metadata_describe_images_and_tables(tmp_path):
    seen = MADE["two vocabularies"]()
    about, _ = metadata_of(seen, tmp_path)
    assert [one["name"] for one in about["descriptors"]] == ["Patches", "ColorCells"]
    assert about["descriptors"][0]["parameters"] == seen.descriptors[0].parameters
    assert about["library"].startswith("bagwise ")
    measured = dataclasses.replace(MADE["measurements"](), word_names=list("abcdef"), calibration={4: 2.5})
    about, _ = metadata_of(measured, tmp_path)
    assert about["columns"] == list("abcdef")
    np.testing.assert_array_equal(about["column_shift"], measured.column_shift)
    assert about["calibration"] == 2.5
