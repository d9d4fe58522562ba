"""Every experiment: a small run on made-up archives, and its page from any part of its cells."""

import io
import json
import zipfile

import numpy as np
import pytest
from experiments.__main__ import EXPERIMENTS, load
from experiments.merging_errors import WHOLE
from experiments.papers import PAPERS
from experiments.reducing import SIZES
from experiments.running import Options, Results, run
from experiments.text_methods import METHODS as TEXT_METHODS
from PIL import Image

from experiments import manifold_protocol, sets
from result_pages import page_of

MACHINE = {"date": "2026-01-01", "commit": "abc", "cpu": "one", "cores": 2}
ADJECTIVES = {"bad": ["bad", "awful", "poor", "weak"], "good": ["good", "great", "fine", "rich"]}


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    """A quick run over small archives in the form of the data sets."""
    folder, rng = tmp_path_factory.mktemp("experiments"), np.random.default_rng(0)

    def archive(name, members):
        path = folder / "data" / name / f"{name}.zip"
        path.parent.mkdir(parents=True)
        with zipfile.ZipFile(path, "w") as written:
            for member, content in members:
                written.writestr(member, content)

    def image(number):
        """Stripes, of a period for each class, on which there are points of interest."""
        stripes = 120 + 80 * np.sin(2 * np.pi * (np.arange(40) + rng.integers(12)) / (2 + number))
        pixels = stripes + np.kron(rng.normal(0, 20, (10, 10)), np.ones((4, 4))) + rng.normal(0, 30, (40, 40))
        file = io.BytesIO()
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).convert("RGB").save(file, "PNG")
        return file.getvalue()

    def images(folders, n):
        return [(f"{one}/image_{k:04d}.png", image(number)) for number, one in enumerate(folders) for k in range(n)]

    def sentence(topic):
        return " ".join(f"{word}{k}" for word in (topic, "common") for k in rng.integers(0, 20, 20))

    def review(label):
        return " ".join([*rng.choice(ADJECTIVES[label], 3), *rng.choice(["film", "plot", "music", "cast"], 3)])

    scenes = [f"{part}/scene{k:02d}" for k in range(15) for part in ("train", "test")]
    archive("scene15", images(scenes, 10))
    archive("corel1k", images(("fine", "middle", "coarse"), 25))
    archive("caltech101_4", images(("BACKGROUND_Google", "Faces_easy", "Motorbikes", "airplanes"), 20))
    groups = [group for pair in sets.NEWSGROUPS.values() for group in pair]
    messages = [(f"{part}/{group}/{k}.txt", f"Newsgroups: {group}\n\n{sentence(group)}\n\nlast")
                for group in groups for part in ("train", "test") for k in range(60)]  # fmt: skip
    archive("newsgroups_3pairs", messages)
    about = {"has_topics": "YES", "title": "news"}
    topics = {"earn": 200, "acq": 200, "tin": 20, "zinc": 20}
    documents = [about | {"topics": [topic], "lewis": "TRAIN" if k % 4 else "TEST", "body": sentence(topic)}
                 for topic, n in topics.items() for k in range(n)]  # fmt: skip
    archive("reuters21578", [("reuters21578.jsonl", "\n".join(map(json.dumps, documents)))])
    reviews = "".join(f"{k % 2}\t{review(('bad', 'good')[k % 2])}\n" for k in range(60))
    archive("amazon7", [("train/books.tsv", reviews)])
    archive("rt2k", [(f"{label}/{k}.txt", "\n".join(f"{review(word)}." for _ in range(6)))
                     for label, word in enumerate(ADJECTIVES) for k in range(15)])  # fmt: skip
    y = np.arange(100, dtype=np.uint8) % 10
    shapes = rng.integers(0, 200, (10, 28, 28))
    X = np.clip(shapes[y] + rng.integers(0, 56, (100, 28, 28)), 0, 255).astype(np.uint8)
    (folder / "data" / "mnist").mkdir()
    np.savez(folder / "data" / "mnist" / "mnist.npz", x_train=X, y_train=y)
    return Options(folder / "data", folder / "out", quick=True)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_small_run(name, options, tmp_path, monkeypatch):
    """One cell for each function of an experiment; the page says what came out."""
    if name == "manifold_mnist":
        pytest.importorskip("torch")
        monkeypatch.setattr(
            "experiments.manifold_mnist.QUICK", {"n_digits": 60, "n_batches": 3, "n_words": 8, "max_iter": 2}
        )
    experiment = load(name)
    if hasattr(experiment, "prepare"):
        experiment.prepare(options)
    results = Results(tmp_path / "small.json")
    for cell in {cell.function: cell for cell in reversed(experiment.cells(options))}.values():
        found = cell.function(**cell.arguments)
        results.keep(cell.key, found, 1.0, MACHINE)
        assert json.loads(json.dumps(found)) == found
        if name != "merging_times" and "costs" not in cell.key:  # those are times
            assert without_times(cell.function(**cell.arguments)) == without_times(found)
        if name.startswith("manifold"):  # so easily told apart that a gain may be 0 / 0, and there is no page
            expected = made_up(name, experiment, cell, np.random.default_rng(0))
            assert found.keys() == expected.keys()
            assert all(expected[method].keys() <= found[method].keys() for method in found)
    if not name.startswith("manifold"):
        page_of(experiment, Results(results.path), tmp_path, n_rendered=0)


def without_times(found):
    if not isinstance(found, dict):
        return found
    return {key: without_times(value) for key, value in found.items() if key not in ("seconds", "fit", "per_image")}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_is_of_a_paper_and_says_which_data_it_needs(name, tmp_path):
    experiment = load(name)
    assert experiment.PAPER in PAPERS
    assert experiment.TITLE
    if name == "merging_times":
        return  # it draws its own data
    *others, last = experiment.DATA
    for one in others:
        (tmp_path / one).mkdir()
        (tmp_path / one / f"{one}.zip").touch()
    with pytest.raises(SystemExit, match=f"{name} reads the data set {last}, and .* has no file {last}/{last}"):
        run(name, experiment, Options(tmp_path, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def errors(rng, methods, classifiers, sizes=SIZES, most=1000):
    """Made-up errors by method, classifier and size."""
    of = {method: (most,) if method in WHOLE else sizes for method in methods}
    return {one: {how: {str(n): rng.random() for n in of[one]} for how in classifiers} for one in methods}


def numbers(rng, names):
    return {name: rng.random() for name in names}


def made_up(name, module, cell, rng):
    """A result in the form that the function of a cell gives."""
    asked = cell.arguments
    match name.split("_"):
        case ["merging", "times"]:
            return numbers(rng, ("seconds", "memory", "forming", "searching"))
        case ["merging", "unsupervised"]:
            return errors(rng, module.METHODS, ("neighbors",))
        case ["merging", "kernels"]:
            kernel = asked["kernel"]
            if kernel == "linear":
                return errors(rng, ("all_histograms", "csm_histograms"), ("linear", *module.KERNELS))
            return errors(rng, (f"csm_{kernel}",), (kernel,))
        case ["merging", _]:
            return errors(rng, module.GROUPS[asked["group"]], ("linear", "neighbors", "intersection"))
        case ["beyond", "choice"]:
            chosen = {rule: {"words": int(rng.choice([5, 50])), "error": rng.random()} for rule in module.RULES}
            return {"all": rng.random(), **chosen}
        case ["beyond", "multiclass"]:
            if asked["method"] == "all":
                return {"1000": {"error": 30.0}}
            looks = ("directions", "largest", "scatter", "ratio")
            return {str(n): {"error": 90 * rng.random(), **numbers(rng, looks)} for n in module.SIZES}
        case ["beyond", "labels"]:
            return {method: {"linear": {str(asked["n"]): rng.random()}} for method in module.METHODS}
        case ["beyond", "text"]:
            sizes = (4000,) if asked["method"] in ("all", "tfidf") else module.SIZES
            return errors(rng, [asked["method"]], module.HOW, sizes, most=4000)
        case ["wide", "patches"]:
            return {"n": 50, "wrong": {way: np.flatnonzero(rng.random(50) < 0.3).tolist() for way in module.WAYS}}
        case ["wide", "scene15"]:
            costs = {} if asked["method"] == "all" else numbers(rng, ("fit", "per_image", "bytes"))
            return {"accuracy": 80 * rng.random(), **costs}
        case ["wide", "lbp"]:
            return numbers(rng, ("fit", "per_image", "bytes")) if cell.function is module.costs else 80 * rng.random()
        case ["manifold", _]:
            shown = getattr(module, "SHOWN", manifold_protocol.SHOWN)
            methods = ["default"] if cell.key.endswith("default") else getattr(module, "METHODS", ("BoF", "MO-BoF"))
            return {method: numbers(rng, shown) for method in methods}
        case ["free", "energy", "text"]:
            return {method: {"error": 0.2 * rng.random(), "chosen": {}, "seconds": 1.0} for method in TEXT_METHODS}
        case ["free", "energy", "retrieval"]:
            used = {one: module.LEARNERS if "%" in one else module.METHODS for one in module.CONDITIONS}
            return {one: {how: {"map": rng.random(), "chosen": {}} for how in used[one]} for one in used}


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "merging_times"])
@pytest.mark.parametrize("part", [1.0, 0.1, 0.0])
def test_pages_can_be_written_from_any_part_of_the_cells(name, part, tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.sets.alike_topics", lambda options, n_pairs: [("grain", "ship")])
    module, rng, results = load(name), np.random.default_rng(0), Results(tmp_path / "made_up.json")
    cells = module.cells(Options(tmp_path, tmp_path, repeats=2))
    for k in [0, *(1 + rng.permutation(len(cells) - 1))][: int(np.ceil(part * len(cells)))]:
        results.keep(cells[k].key, made_up(name, module, cells[k], rng), 1.0, MACHINE)
    assert (len(results) > 0) == (part > 0)
    sections, text = page_of(module, Results(results.path), tmp_path)
    if part == 1:
        assert all(section.tables for section in sections)
        assert all(section.claims for section in sections if section.title != "Without labels, 15 scenes at once")
        assert text.count("![") == sum(len(section.curves) for section in sections)
