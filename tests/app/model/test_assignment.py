"""Descriptors that are assigned to several words: histograms, samples, files, runtime, ONNX graph, explanations."""

import dataclasses
import re

import numpy as np
import onnxruntime
import pytest

from bagwise import BagOfFeatures, Bags, BagwiseError, Hierarchy, Model, runtime
from bagwise.app.modalities.visual_words import VisualVectorizer
from bagwise.app.model import Head, export_cpp, export_onnx
from bagwise.codebooks import HardEncoder, LocalizedEncoder, encode_bags
from bagwise.descriptors import DenseSIFT
from bagwise.sources import open_collection
from small_sources import write_image_folder

SOFT = LocalizedEncoder(3, 2.0, True)
RNG = np.random.default_rng(0)
WORDS = RNG.normal(size=(9, 4)).astype(np.float32)
MORE_WORDS = RNG.normal(size=(5, 3)).astype(np.float32)


def counted(values, words, how):
    """Add up the codes of some vectors, one after the other."""
    counts = np.zeros(len(words))
    for value in values.astype(float):
        length = np.linalg.norm(value)
        unit = value / length if how.weighted and length else value
        distances = ((unit - words) ** 2).sum(axis=1)
        near = np.argsort(distances)[: how.n_neighbors]
        codes = np.exp(-how.sharpness * (distances[near] - distances[near[0]]))
        counts[near] += codes / codes.sum() * (length**2 if how.weighted else 1)
    return counts


def bags_of(width, n=6, seed=1):
    rng = np.random.default_rng(seed)
    lengths = [5, 0, 1, 9, 4, 2][:n]
    values = 3 * rng.normal(size=(sum(lengths), width)).astype(np.float32)
    values[2] = 0
    return Bags(values, np.concatenate([[0], np.cumsum(lengths)]), rng.random((len(values), 2)).astype(np.float32))


def soft_model(pyramid=None, several=False):
    codebook, how = ([WORDS, MORE_WORDS], [SOFT, HardEncoder()]) if several else (WORDS, SOFT)
    d = 14 if several else 9
    n_cells = 5 if pyramid == 5 else 1
    return Model(
        modality="images",
        hierarchy=Hierarchy(d, [[k, d - 1 - k] for k in range(d // 2)], np.arange(d // 2)[::-1].astype(float)),
        n_groups=d - d // 2,
        codebook=codebook,
        assignment=how,
        pyramid=pyramid or ((1, 1),),
        classes=("one", "two"),
        heads={d - d // 2: Head(RNG.normal(size=(2, n_cells * (d - d // 2))), [0.5, -0.5])},
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_codes_are_their_definition(weighted):
    how, values = LocalizedEncoder(3, 2.0, weighted), bags_of(4).values
    codes = how.codes(values, WORDS).toarray()
    expected = [counted(value[np.newaxis], WORDS, how) for value in values]
    np.testing.assert_allclose(codes, expected, rtol=1e-4, atol=1e-6)


def test_a_histogram_does_not_depend_on_the_bags_beside_it():
    rng = np.random.default_rng(3)
    words, values = rng.normal(size=(300, 20)).astype(np.float32), rng.normal(size=(400, 20)).astype(np.float32)
    bags = Bags(values, np.arange(0, 401, 20))
    how = {"assignment": LocalizedEncoder(10, 5.0, weighted=True), "pooling": "sum"}
    together = encode_bags(bags, words, **how)
    alone = np.concatenate([encode_bags(bags[k : k + 1], words, **how) for k in range(len(bags))])
    np.testing.assert_array_equal(together, alone)


def test_an_estimator_learns_words_of_length_one_and_weights_them():
    bags = bags_of(4)
    model = BagOfFeatures(
        3, assignment=LocalizedEncoder(2, weighted=True), pooling="sum", random_state=0, sparse_output=False
    ).fit(bags)
    assert np.linalg.norm(model.codebook_, axis=1).max() <= 1 + 1e-6
    found = model.transform(bags)
    np.testing.assert_allclose(found.sum(axis=1), [(bags[k].astype(float) ** 2).sum() for k in range(6)], rtol=1e-5)
    scaled = Bags(2 * bags.values, bags.offsets, bags.positions)
    np.testing.assert_allclose(model.transform(scaled), 4 * found, rtol=1e-5)
    assert all((a == b).all() for a, b in zip(model.assign(scaled), model.assign(bags), strict=True))


@pytest.mark.parametrize(("pyramid", "several"), [(None, False), (5, False), (None, True)])
def test_model_file_runtime_and_graph_agree(tmp_path, pyramid, several):
    model, bags = soft_model(pyramid, several), bags_of(4)
    given = (bags, bags_of(3, seed=2)) if several else bags
    histograms = model.histograms(given).toarray()
    whole = histograms.reshape(len(bags), model.layout.n_cells, -1)[:, 0, :9]
    np.testing.assert_allclose(whole, [counted(bags[k], WORDS, SOFT) for k in range(6)], rtol=1e-4, atol=1e-5)
    features, scores = model.transform(given).toarray(), model.decision_function(given)

    saved = Model.load(model.save(tmp_path / "m.bagwise"))
    assert saved.assignment == model.assignment == ((SOFT, HardEncoder()) if several else (SOFT,))
    np.testing.assert_array_equal(saved.histograms(given).toarray(), histograms)

    light = runtime.load(tmp_path / "m.bagwise")
    parts = given if several else (given,)
    items = [tuple(part[k] for part in parts) for k in range(6)]
    places = [tuple(part.positions_of(k) for part in parts) for k in range(6)]
    found = light.transform(*([items, places] if several else [[one[0] for one in items], [one[0] for one in places]]))
    np.testing.assert_allclose(found, features, atol=1e-5)
    np.testing.assert_allclose(light.scores(found), scores, atol=1e-4)

    session = onnxruntime.InferenceSession(export_onnx(model, tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    names = {one.name for one in session.get_inputs()}
    for k in range(6):
        feed = {}
        for number, part in enumerate(parts):
            suffix = f"_{number}" if number else ""
            feed |= {f"descriptors{suffix}": part[k], f"positions{suffix}": part.positions_of(k)}
        answer = session.run(["features", "scores"], {name: feed[name] for name in names})
        np.testing.assert_allclose(answer[0][0], features[k], atol=1e-4)
        np.testing.assert_allclose(answer[1][0], scores[k], atol=1e-4)


def test_samples_add_up_to_histograms_and_explanations_to_scores(tmp_path):
    write_image_folder(tmp_path / "images")
    collection = open_collection(tmp_path / "images")
    how = LocalizedEncoder(4, 5.0, True)
    vectorizer = VisualVectorizer("images", DenseSIFT(), n_words=(12,), assignments=(how,))
    found = vectorizer.fit_transform(collection, n_samples=3)
    assert len(found.samples) == 3
    for row, sample in found.samples.items():
        assert sample.words.shape == sample.weights.shape == (len(sample.distances), 4)
        counts = np.bincount(sample.words.ravel(), sample.weights.ravel(), minlength=12)
        np.testing.assert_allclose(counts, found.matrix[[row]].toarray().ravel(), rtol=1e-5, atol=1e-6)
    model = Model(
        modality="images",
        hierarchy=Hierarchy(12, [], []),
        n_groups=12,
        classes=("one", "two"),
        heads={12: Head(RNG.normal(size=(2, 12)), [0.1, 0])},
        **vectorizer.parameters(),
    )
    why = model.explain(collection[:2])[1]
    assert sum(patch.weight for patch in why.places()) == pytest.approx(why.contributions().sum())
    assert why.score == pytest.approx(why.intercept + why.contributions().sum())


def test_the_programs_for_devices_refuse_it(tmp_path):
    model = dataclasses.replace(soft_model(), codebook=np.ones((9, 128)) * WORDS[:, :1], descriptor=DenseSIFT())
    with pytest.raises(BagwiseError, match=r"descriptors are assigned to several words; accepted: .*export --onnx"):
        export_cpp(model, tmp_path / "edge")


def test_what_is_no_assignment_is_refused(tmp_path):
    common = {"modality": "images", "hierarchy": Hierarchy(9, [], []), "n_groups": 9, "codebook": WORDS}
    for given, message in (
        ("soft", "few words each, by 'hard', 'localized'; got SoftEncoder"),
        ({"name": "localized", "n_neighbors": 0}, "n_neighbors of LocalizedEncoder must be an integer from 1 to 1000"),
        (LocalizedEncoder(sharpness=float("inf")), "sharpness of LocalizedEncoder must be a number above 0"),
        ({"name": "localized", "weighted": 1}, "weighted of LocalizedEncoder must be one of True, False"),
        ({"name": "hard", "n_neighbors": 2}, "Unknown parameter of hard assignment: 'n_neighbors'"),
        ({"name": "harder"}, "Unknown assignment: 'harder'"),
        ([SOFT, SOFT], "1 codebooks need as many assignments, got 2"),
        (3, "1 codebooks need as many assignments, got 3"),
        ([3], "Unknown assignment: 3"),
    ):
        with pytest.raises(BagwiseError, match=message):
            Model(**common, assignment=given)


def test_the_runtime_says_which_assignments_it_runs():
    sound = SOFT.to_dict()
    for given in (sound, {"name": "hard"}):
        assert runtime.assignment_fault(given) == ""
    for given, message in (
        ({"name": "hard", "n_neighbors": 1}, "must be 'hard', or 'localized' with n_neighbors, sharpness, weighted"),
        (sound | {"name": "soft"}, "must be 'hard', or 'localized'"),
        (sound | {"n_neighbors": 0}, "n_neighbors from 1 to 1000; got 0"),
        (sound | {"sharpness": float("inf")}, "a sharpness above 0, up to 1e[+]16; got inf"),
        (sound | {"weighted": 1}, "weighted true or false; got 1"),
        ("hard", "must be 'hard', or 'localized'"),
    ):
        assert re.search(message, runtime.assignment_fault(given)), runtime.assignment_fault(given)
