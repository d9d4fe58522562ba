"""Words learned on the manifold: on small made-up objects, and what is said of finished or unfinished results."""

import io
import zipfile

import numpy as np
import pytest
from experiments.running import Options, Results

from bagwise import Bags, ManifoldBagOfFeatures
from experiments import manifold_corel1k, manifold_mnist, manifold_protocol, manifold_rt2k, manifold_scene15
from result_pages import page_of

MACHINE = {"date": "2026-01-01", "commit": "abc", "cpu": "one", "cores": 2}
TWO_METHODS = [manifold_scene15, manifold_corel1k, manifold_rt2k]


@pytest.fixture
def options(tmp_path):
    """A quick run over small archives in the form of the data sets."""
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name in ("scene15", "corel1k", "rt2k", "amazon7"):
        (tmp_path / "data" / name).mkdir(parents=True)
    for name in ("scene15", "corel1k"):
        with zipfile.ZipFile(tmp_path / "data" / name / f"{name}.zip", "w") as archive:
            for label, period in (("fine", 3), ("middle", 6), ("coarse", 12)):
                for k in range(14):
                    stripes = 120 + 80 * np.sin(2 * np.pi * (np.arange(40) + rng.integers(period)) / period)
                    pixels = np.clip(stripes + rng.normal(0, 20, (40, 40)), 0, 255).astype(np.uint8)
                    file = io.BytesIO()
                    image.fromarray(pixels).save(file, "PNG")
                    archive.writestr(f"{label}/{k}.png", file.getvalue())
    words = {"0": ["bad", "awful", "poor", "weak"], "1": ["good", "great", "fine", "rich"]}

    def sentence(label):
        return " ".join([*rng.choice(words[label], 3), *rng.choice(["film", "plot", "music", "cast"], 3)])

    with zipfile.ZipFile(tmp_path / "data" / "rt2k" / "rt2k.zip", "w") as archive:
        for label in words:
            for k in range(15):
                archive.writestr(f"{label}/{k}.txt", "\n".join(f"{sentence(label)}." for _ in range(6)))
    with zipfile.ZipFile(tmp_path / "data" / "amazon7" / "amazon7.zip", "w") as archive:
        archive.writestr("train/books.tsv", "".join(f"{k % 2}\t{sentence(str(k % 2))}\n" for k in range(60)))
    return Options(tmp_path / "data", tmp_path / "out", quick=True)


@pytest.mark.parametrize("module", TWO_METHODS)
def test_a_small_run(module, options):
    module.prepare(options)
    (file,) = options.cache.iterdir()
    found = module.repeat(options, 0)
    assert set(found) == {"BoF", "MO-BoF"}
    assert set(found["BoF"]) == set(manifold_protocol.SHOWN)
    assert set(found["MO-BoF"]) == {*manifold_protocol.SHOWN, "objective_fell_to"}
    assert found["MO-BoF"]["objective_fell_to"] < 1
    assert all(np.isfinite(list(values.values())).all() for values in found.values())
    assert module.repeat(options, 0) == found
    assert module.repeat(options, 1) != found
    ours = module.default(options, 0)
    assert set(ours) == {"default"}
    assert set(ours["default"]) == {*manifold_protocol.SHOWN, "objective_fell_to"}

    module.objects.cache_clear()
    before = file.stat().st_mtime_ns
    assert module.repeat(options, 0) == found  # from the file
    assert file.stat().st_mtime_ns == before


def test_bags_are_described_once_and_mapped(options):
    calls = []

    def describe():
        calls.append(1)
        return Bags.from_list([np.eye(3), np.ones((2, 3))])

    for _ in range(2):
        assert manifold_protocol.kept_bags(options, "some", describe) == describe()
        calls.pop()
    assert len(calls) == 1


def test_bof_does_not_depend_on_what_is_learned():
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 2, (3, 5))
    labels = np.arange(45) % 3
    bags = Bags.from_list([centres[label] + rng.normal(0, 1, (12, 5)) for label in labels])
    runs = [
        manifold_protocol.repeat_once(
            bags, labels, 30, ManifoldBagOfFeatures(6, n_components=3, n_neighbors=5, max_iter=n_iter), seed=3
        )
        for n_iter in (2, 10)
    ]
    assert runs[0]["BoF"] == runs[1]["BoF"]
    assert runs[0]["MO-BoF"] != runs[1]["MO-BoF"]


def test_a_small_run_of_digits(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(manifold_mnist, "QUICK", {"n_digits": 60, "n_batches": 3, "n_words": 8, "max_iter": 2})
    rng = np.random.default_rng(0)
    y = np.arange(100, dtype=np.uint8) % 10
    shapes = rng.integers(0, 200, (10, 28, 28))
    X = np.clip(shapes[y] + rng.integers(0, 56, (100, 28, 28)), 0, 255).astype(np.uint8)
    (tmp_path / "mnist").mkdir()
    np.savez(tmp_path / "mnist" / "mnist.npz", x_train=X, y_train=y)
    options = Options(tmp_path, tmp_path / "out", quick=True)
    found = manifold_mnist.repeat(options, 0)
    assert set(found) == set(manifold_mnist.METHODS)
    assert all(set(values) == set(manifold_mnist.SHOWN) for values in found.values())
    assert found["BoF"]["objective_fell_to"] == 1
    assert len({values["objective_fell_to"] for values in found.values()}) == 3
    assert manifold_mnist.repeat(options, 0) == found
    (ours,) = manifold_mnist.default(options, 0).values()
    assert set(ours) == set(manifold_mnist.SHOWN)


def made_up(module, rng, key):
    if key.endswith("default"):
        shown = manifold_mnist.SHOWN if module is manifold_mnist else manifold_protocol.SHOWN
        return {"default": {key: rng.random() for key in shown}}
    if module is manifold_mnist:
        return {method: {key: rng.random() for key in module.SHOWN} for method in module.METHODS}
    return {method: {key: rng.random() for key in manifold_protocol.SHOWN} for method in manifold_protocol.METHODS}


@pytest.mark.parametrize("module", [*TWO_METHODS, manifold_mnist])
@pytest.mark.parametrize("part", [10, 7, 1, 0])
def test_sections_can_be_written_from_any_part_of_the_cells(module, part, tmp_path):
    rng = np.random.default_rng(0)
    results = Results(tmp_path / "made_up.json")
    cells = module.cells(Options(tmp_path, tmp_path))
    seeds = ["00", "01", "02", "03", "04"]
    assert [cell.key for cell in cells] == [*seeds, *(f"{seed}-default" for seed in seeds)]
    for k in [0, *(1 + rng.permutation(len(cells) - 1))][:part]:
        results.keep(cells[k].key, made_up(module, rng, cells[k].key), 1.0, MACHINE)
    assert (len(results) > 0) == (part > 0)
    sections, _ = page_of(module, Results(results.path), tmp_path)
    assert all(section.claims and section.tables for section in sections)


def with_gain(key, *gains):
    """Repetitions in which one criterion of MO-BoF is better by so many %, and all others stay as they are."""
    sign = -1 if key.endswith("davies_bouldin") else 1
    base = dict.fromkeys(manifold_protocol.SHOWN, 2.0)
    return [{"BoF": base, "MO-BoF": base | {key: 2 * (1 + sign * gain / 100)}} for gain in gains]


@pytest.mark.parametrize("key", ["kmeans_nmi", "kmeans_davies_bouldin", "map_chi2"])
@pytest.mark.parametrize(
    ("gains", "holds"), [([12.0, 9.0], True), ([9.0, 9.0], False), ([30.0, -1.0], False), ([30.0, 0.0], False)]
)
def test_claims_are_about_every_repetition_and_the_published_gain(key, gains, holds, tmp_path):
    sign = -1 if key.endswith("davies_bouldin") else 1
    published = {key: {"BoF": 1.0, "MO-BoF": 1 + sign * 0.1}}  # a gain of 10 %
    results = Results(tmp_path / "some.json")
    for k, run in enumerate(with_gain(key, *gains)):
        results.keep(f"{k:02d}", run, 1.0, MACHINE)
    (section,) = manifold_protocol.compared("Title", "Text.", published, results)
    (claim,) = section.claims
    assert claim.supported == holds
    assert claim.text.endswith("better every time, on average by 10.0 % or more")
    rows = {row[0]: row for row in section.tables[0].rows}
    assert rows[key.replace("_", " ")][4] == f"{np.mean(gains):+.1f} %"


def test_gains_are_shares_of_what_was_before_whatever_its_sign():
    runs = [{"a": {"silhouette": -0.2, "davies_bouldin": 2.0}, "b": {"silhouette": -0.1, "davies_bouldin": 1.5}}]
    np.testing.assert_allclose(manifold_protocol.gains("silhouette", runs, "a", "b"), [50])
    np.testing.assert_allclose(manifold_protocol.gains("davies_bouldin", runs, "a", "b"), [25])


def test_claims_about_digits_need_repetitions_that_agree(tmp_path):
    def said(*gains):
        results = Results(tmp_path / f"{gains}.json")
        for k, gain in enumerate(gains):
            run = {method: dict.fromkeys(manifold_mnist.SHOWN, 1.0) for method in manifold_mnist.METHODS}
            for key in manifold_mnist.PUBLISHED:
                run["all"][key] += (-1 if key == "davies_bouldin" else 1) * gain
            results.keep(f"{k:02d}", run, 1.0, MACHINE)
        return [claim.supported for claim in manifold_mnist.sections(results)[0].claims]

    assert said(0.10, 0.11, 0.12) == [None, True]
    assert said(-0.10, -0.11, -0.12) == [None, False]
    assert said(0.10, -0.11, 0.12) == [None, None]
    assert said(0.10) == [None, None]
