"""Reductions of wide features on small made-up columns, and what their experiments say, finished or not."""

import numpy as np
import pytest
import scipy.sparse as sp
from experiments.patterns import N_QUARTERS, Patterns, in_images, learning_images, scenes
from experiments.running import Options, Results
from experiments.wide_draws import drawn
from experiments.wide_reducing import LABELS, pattern_groups, reductions
from sklearn.decomposition import PCA

from bagwise import BagOfFeatures, Bags, SketchMerger, open_collection
from bagwise.codebooks.normalizing import normalize_rows
from bagwise.descriptors import LBPD5, LocalBinaryPatterns
from bagwise.descriptors.images import starts_of
from experiments import wide_lbp, wide_patches, wide_scene15
from result_pages import page_of

MACHINE = {"date": "2026-01-01", "commit": "abc", "cpu": "one", "cores": 2}
LEARNED = [method for method in LABELS if method != "lbp"]


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    topics = rng.poisson(1.0, (40, 5)) @ rng.random((5, 64))
    return sp.csr_array(rng.poisson(topics), dtype=np.float32)


@pytest.mark.parametrize("method", LEARNED)
def test_reductions_have_the_size_asked_for_and_are_the_same_again(method, X):
    found, again = (reductions(method, X, [4, 9]) for _ in range(2))
    for size in (4, 9):
        Z = found[size].apply(X)
        assert Z.shape == (40, size)
        np.testing.assert_array_equal(Z, again[size].apply(X))
        np.testing.assert_allclose(Z[3:5], found[size].apply(X[3:5]), rtol=1e-5, atol=1e-4)
        assert found[size].n_bytes >= 8


@pytest.mark.parametrize("method", [method for method in LEARNED if method != "pca"])
def test_reductions_are_linear(method, X):
    apply = reductions(method, X, [6])[6].apply
    A, B = X[:10], X[10:20]
    np.testing.assert_allclose(apply(sp.csr_array(A + 3 * B)), apply(A) + 3 * apply(B), rtol=1e-4, atol=1e-3)


def test_components_are_those_of_scikit_learn(X):
    expected = PCA(5).fit(X.toarray())
    Z = reductions("pca", X, [2, 5])
    for size in (2, 5):
        np.testing.assert_allclose(abs(Z[size].apply(X)), abs(expected.transform(X.toarray())[:, :size]), atol=1e-3)
    assert Z[5].n_bytes == 4 * (5 * 64 + 5)


def test_sketches_are_those_of_the_library(X):
    for method, how in (("bsc", {}), ("pka", {"n_neighbors": 10}), ("bscb", {"bipolar": True})):
        merger = SketchMerger(7, n_jobs=1, **how).fit(X)
        np.testing.assert_allclose(reductions(method, X, [3, 7])[7].apply(X), merger.transform(X).toarray(), rtol=1e-5)


def test_groups_of_patterns_are_those_of_k_means_over_occurrences():
    from sklearn.cluster import KMeans

    totals = np.random.default_rng(0).poisson(0.7, 64)
    labels = pattern_groups(totals, 5)
    bits = (np.arange(64)[:, None] >> np.arange(6) & 1).astype(float)
    occurrences, groups = np.repeat(bits, totals, axis=0), np.repeat(labels, totals)
    centers = np.array([occurrences[groups == group].mean(axis=0) for group in range(5)])
    # a fixed point of k-means over all occurrences, one by one
    again = KMeans(5, init=centers, n_init=1).fit(occurrences)
    np.testing.assert_allclose(again.cluster_centers_, centers, atol=1e-12)
    distances = ((bits[:, None] - centers) ** 2).sum(axis=2)
    np.testing.assert_allclose(distances[np.arange(64), labels], distances.min(axis=1), atol=1e-12)  # also unseen ones
    np.testing.assert_array_equal(np.unique(labels, return_index=True)[1].argsort(), np.arange(5))
    # no more patterns than groups: each is one
    np.testing.assert_array_equal(pattern_groups(np.array([0, 3, 0, 0, 1, 0, 0, 2]), 5)[[1, 4, 7]], [0, 1, 2])


def test_draws_have_as_many_of_each_class_and_the_first_is_the_fixed_one():
    y = np.repeat([0, 1, 2], [250, 300, 150])
    fixed = np.arange(700) % 7 == 0
    train, test = drawn(y, fixed, 0)
    np.testing.assert_array_equal(train, np.flatnonzero(fixed))
    seen = set()
    for draw in (1, 2):
        train, test = drawn(y, fixed, draw)
        np.testing.assert_array_equal(np.bincount(y[train]), [100, 100, 75])
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(700))
        seen.add(tuple(train))
    assert len(seen) == 2


@pytest.fixture
def data(tmp_path):
    """Small archives in the form of the data sets."""
    import io
    import zipfile

    from PIL import Image

    rng = np.random.default_rng(0)
    images = {}
    for name, folders in {
        "scene15/scene15.zip": [f"{part}/{scene}" for part in ("train", "test") for scene in ("Coast", "Forest")],
        "corel1k/corel1k.zip": ["beaches", "buses"],
        "caltech101_4/caltech101_4.zip": ["BACKGROUND_Google", "Faces_easy"],
    }.items():
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True)
        with zipfile.ZipFile(path, "w") as archive:
            for folder in folders:
                for k in range(6):
                    pixels = rng.integers(0, 256, (21, 30), dtype=np.uint8)
                    file = io.BytesIO()
                    Image.fromarray(pixels).save(file, "PNG")
                    archive.writestr(f"{folder}/image_{k:04d}.png", file.getvalue())
                    images.setdefault(path.stem, []).append((folder, k, pixels))
    return tmp_path / "data", images


def test_patterns_of_quarters_add_up_to_those_of_images(data, tmp_path):
    folder, images = data
    options = Options(folder, tmp_path / "out")
    order = sorted(images["scene15"], key=lambda one: one[:2])
    for radius in (1, 2):
        scenes.cache_clear()
        found, again = (scenes(options, radius) for _ in range(2))
        assert isinstance(found, Patterns)
        assert found.counts.shape[0] == N_QUARTERS * 24
        assert (abs(found.counts - again.counts)).nnz == 0
        assert found.train.sum() == 12
        rows = {(row.argmax(), row.max(), row.sum()) for row in found.whole.toarray()}
        pixels = [one[2] for one in order]
        expected = (
            LBPD5().transform(pixels).toarray()
            if radius == 2
            else LocalBinaryPatterns(normalize=None).transform(pixels).values
        )
        assert rows == {(row.argmax(), row.max(), row.sum()) for row in expected}
    assert learning_images(options).shape == (18, 65_536)  # background images, but no faces


def test_quarters_are_added_four_at_a_time():
    rows = sp.csr_array(np.arange(24, dtype=np.float32).reshape(8, 3))
    np.testing.assert_array_equal(in_images(rows).toarray(), rows.toarray().reshape(2, 4, 3).sum(axis=1))


def test_a_small_run_of_patterns(data, tmp_path):
    folder, _ = data
    options = Options(folder, tmp_path / "out", quick=True)
    options.cache.mkdir(parents=True)
    wide_lbp.prepare(options)
    for method in ("lbp", "hashing", "bscb"):
        for way, (_, methods) in wide_lbp.WAYS.items():
            if method in methods:
                assert 0 <= wide_lbp.measure(options, method, 4, 0, way) <= 100
    assert set(wide_lbp.costs(options, "bscb", 4)) == {"fit", "per_image", "bytes"}


@pytest.mark.parametrize("method", wide_patches.METHODS)
def test_a_small_run_of_patches(data, tmp_path, method, monkeypatch):
    monkeypatch.setattr(wide_patches, "PATCH", 8)
    found = wide_patches.measure(Options(data[0], tmp_path / "out", quick=True), method)
    assert set(found["wrong"]) == set(wide_patches.WAYS)
    assert all(set(wrong) <= set(range(found["n"])) for wrong in found["wrong"].values())


@pytest.mark.parametrize("step", [4, 8])
def test_patterns_of_few_neighbours_are_counted_in_the_patches_of_those_of_many(data, step):
    images = open_collection(data[0] / "scene15" / "scene15.zip")[:3]
    few = next(iter(wide_patches._small_patterns(images, step)))
    _, offsets, positions = next(iter(wide_patches._patches(images, step)))
    np.testing.assert_array_equal(few.offsets, offsets)
    np.testing.assert_array_equal(few.positions, positions)
    first = np.asarray(images[0].load())
    begin = [starts_of(side, 16, step)[0] for side in first.shape]
    inside = first[begin[0] : begin[0] + 16, begin[1] : begin[1] + 16]
    counts = LocalBinaryPatterns(normalize=None).transform([inside]).values[0]
    np.testing.assert_allclose(few[0][0], normalize_rows(counts[np.newaxis], ("power", "l2"))[0], rtol=1e-5)


def test_vlad_of_an_image_is_the_first_part_of_the_one_with_quarters():
    rng = np.random.default_rng(0)
    bags = Bags.from_list([rng.normal(size=(30, 4)) for _ in range(6)], [rng.random((30, 2)) for _ in range(6)])
    alone, both = (
        BagOfFeatures(3, assignment="vlad", pyramid=pyramid, n_init=1, random_state=0).fit_transform(bags)
        for pyramid in (None, 5)
    )
    np.testing.assert_allclose(normalize_rows(both[:, :12], "l2"), alone, rtol=1e-5, atol=1e-6)


def made_up(module, cell, rng):
    costs = {"fit": 1.5, "per_image": 0.1, "bytes": 4000}
    if module is wide_patches:
        wrong = {way: np.flatnonzero(rng.random(50) < 0.3).tolist() for way in wide_patches.WAYS}
        return {"n": 50, "wrong": wrong}
    if module is wide_scene15:
        return {"accuracy": 80 * rng.random(), **(costs if cell.arguments["method"] != "all" else {})}
    return costs if cell.function is wide_lbp.costs else 80 * rng.random()


@pytest.mark.parametrize("module", [wide_lbp, wide_patches, wide_scene15])
@pytest.mark.parametrize("part", [1.0, 0.5, 0.1, 0.0])
def test_sections_can_be_written_from_any_part_of_the_cells(module, part, tmp_path):
    rng = np.random.default_rng(0)
    results = Results(tmp_path / "made_up.json")
    cells = module.cells(Options(tmp_path, tmp_path, repeats=2))
    for k in rng.permutation(len(cells))[: int(np.ceil(part * len(cells)))]:
        results.keep(cells[k].key, made_up(module, cells[k], rng), 1.0, MACHINE)
    assert (len(results) > 0) == (part > 0)
    sections, _ = page_of(module, results, tmp_path)
    if part == 1:
        assert all(section.claims and section.tables for section in sections)


def test_claims_about_patterns_follow_the_accuracies(tmp_path):
    def said(bsc, vq, n_draws=3):
        results = Results(tmp_path / f"{bsc}-{vq}-{n_draws}.json")
        for draw in range(n_draws):
            for k, (method, value) in enumerate({"bsc": bsc, "vq": vq, "lbp": 70.0}.items()):
                noise = 0.1 * ((draw + k) % 2)
                results.keep(f"{draw:02d}/{method}/0256/cells", value + noise, 1.0, MACHINE)
        return [claim.supported for claim in wide_lbp.sections(results)[0].claims]

    assert said(77.0, 72.0) == [True, True]
    assert said(74.0, 72.0) == [False, True]
    assert said(77.0, 79.0) == [True, False]
    assert said(77.0, 76.9) == [True, None]  # draws differ by as much
    assert said(77.0, 72.0, n_draws=1) == [True, None]
