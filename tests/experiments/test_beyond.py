"""What the papers did not try: on small made-up words, and what is said of finished or unfinished results."""

import numpy as np
import pytest
import scipy.sparse as sp
from experiments.reducing import Task
from experiments.running import Options, Results
from experiments.sets import Words

from bagwise import merge_words
from experiments import beyond_choice, beyond_labels, beyond_multiclass, beyond_text
from result_pages import page_of

MACHINE = {"date": "2026-01-01", "commit": "abc", "cpu": "one", "cores": 2}
BEYOND = [beyond_text, beyond_labels, beyond_choice, beyond_multiclass]


def made_up(n=120, d=40, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    rates = rng.gamma(0.6, size=d) * np.exp(0.8 * rng.standard_normal((n_classes, d)))
    X = sp.csr_array(rng.poisson(150 * (rates / rates.sum(axis=1, keepdims=True))[y]).astype(np.float32))
    return Words(X, y.astype(np.int64), tuple("abc"[:n_classes]), np.arange(n) < 2 * n // 3, {})


@pytest.fixture
def words():
    return made_up()


@pytest.fixture
def task(words):
    return Task.of(words, np.flatnonzero(words.train), np.flatnonzero(~words.train), sparse=True)


@pytest.mark.parametrize("method", beyond_text.METHODS)
def test_columns_of_texts_have_the_sizes_asked_for(task, method):
    found = list(beyond_text.columns(task, method, (3, 10)))
    assert [size for size, _, _ in found] == ([40] if method in ("all", "tfidf") else [3, 10])
    for size, features, counts in found:
        assert [Z.shape for Z in features] == [(80, size), (40, size)]
        assert (counts is None) == (method in ("tfidf", "svd"))
        if counts is not None:
            assert counts[0].shape == (80, size)
            assert counts[0].min() >= 0
            assert 0 <= beyond_text.bayes_error(*counts, task) <= 1


@pytest.mark.parametrize("method", beyond_text.MERGING)
def test_merging_texts_loses_no_count(task, method):
    for _, (Z, _), (counts, _) in beyond_text.columns(task, method, (3, 10)):
        np.testing.assert_allclose(counts.sum(axis=1), task.counts.sum(axis=1))
        np.testing.assert_allclose(Z.power(2).sum(axis=1), 1)


def test_chosen_words_are_the_same_columns(task):
    for method in ("chi2", "mrmr"):
        for size, (Z, _), (counts, _) in beyond_text.columns(task, method, (3, 10)):
            chosen = beyond_text._ranking(task, method, 10)[:size]
            np.testing.assert_array_equal(Z.toarray(), task.roots[0].toarray()[:, chosen])
            np.testing.assert_array_equal(counts.toarray(), task.counts.toarray()[:, chosen])


def test_only_words_of_several_training_documents_are_used(words, monkeypatch, tmp_path):
    rare = sp.csr_array(sp.hstack([words.X, sp.csr_array(([2.0], ([0], [0])), shape=(120, 1))], dtype=np.float32))
    monkeypatch.setattr("experiments.sets.newsgroups", lambda *_: Words(rare, words.y, words.classes, words.train, {}))
    beyond_text.task_of.cache_clear()
    task = beyond_text.task_of(Options(tmp_path, tmp_path), "newsgroups", "Sci", 0)
    assert task.counts.shape[1] <= 40
    assert (np.diff(task.counts.tocsc().indptr) >= beyond_text.MIN_DOCUMENTS).all()
    assert task.counts.shape[0] + task.counts_test.shape[0] == 120


@pytest.mark.parametrize("method", [method for method in beyond_multiclass.LABELS if method != "all"])
def test_groups_for_many_classes(words, method):
    task = Task.of(words, np.flatnonzero(words.train), np.flatnonzero(~words.train))
    found = dict(beyond_multiclass.groups(task, method, (5, 12)))
    for size in (5, 12):
        assert sorted(set(found[size])) == list(range(size))


def test_scaled_ratio_takes_the_best_pair_of_all(words):
    X, y = words.X.toarray()[:, :7].astype(float), words.y

    def ratio(labels):
        Z = np.stack([X[:, labels == g].sum(axis=1) / np.sqrt(np.sum(labels == g)) for g in np.unique(labels)], axis=1)
        Z = Z - Z.mean(axis=0)
        between = sum(np.sum(y == c) * np.sum(Z[y == c].mean(axis=0) ** 2) for c in np.unique(y))
        return between / np.sum(Z**2)

    labels = np.arange(7)
    for size, found in sorted(beyond_multiclass.scaled_ratio(X, y, (6, 5, 4)), reverse=True):
        pairs = [(s, t) for s in np.unique(labels) for t in np.unique(labels) if s < t]
        best = max(ratio(np.where(labels == t, s, labels)) for s, t in pairs)
        assert ratio(found) == pytest.approx(best)
        assert len(np.unique(found)) == size
        labels = found


def test_shape_tells_one_direction_from_several():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 50)
    apart = np.eye(3)[y] * 10 + rng.random((150, 3))
    line = np.outer([0, 1, 2], [10, 0, 0])[y] + rng.random((150, 3))
    labels = np.array([0, 0, 1, 2])
    assert beyond_multiclass.shape(apart, y, labels)["directions"] == pytest.approx(2, abs=0.05)
    found = beyond_multiclass.shape(line, y, labels)
    assert found["directions"] == pytest.approx(1, abs=0.05)
    assert found["largest"] == 2
    assert found["scatter"] > 0.9
    assert found["ratio"] > 0.9


def test_shape_has_the_ratio_that_merging_maximises(words):
    X, y = words.X.toarray().astype(float), words.y
    hierarchy = merge_words(X, y, criterion="csm", n_groups=10)
    labels = hierarchy.cut(10)
    merged = np.stack([X[:, labels == g].sum(axis=1) for g in range(10)], axis=1)
    assert beyond_multiclass.shape(merged, y, labels)["ratio"] == pytest.approx(hierarchy.scores[-1], abs=1e-4)


def test_sizes_chosen_on_words(words, monkeypatch, tmp_path):
    two = made_up(n_classes=2)
    monkeypatch.setattr("experiments.sets.newsgroups", lambda *_: two)
    monkeypatch.setattr(beyond_choice, "SIZES", (2, 5, 40))
    beyond_choice.words_of.cache_clear()
    found = beyond_choice.measure(Options(tmp_path, tmp_path), "newsgroups", "Sci", 0, "aib")
    assert found["1se"]["words"] <= found["best"]["words"]
    assert {one["words"] for one in (found["1se"], found["best"])} <= {2, 5, 40}
    assert all(0 <= value <= 1 for value in (found["all"], found["1se"]["error"], found["best"]["error"]))


def test_learning_curves_use_the_rows_asked_for(monkeypatch, tmp_path):
    two = made_up(n=400, n_classes=2)
    monkeypatch.setattr("experiments.sets.newsgroups", lambda *_: two)
    monkeypatch.setattr(beyond_labels, "METHODS", ("all", "aib_late", "pca"))
    beyond_labels.words_of.cache_clear()
    found = beyond_labels.measure(Options(tmp_path, tmp_path), "texts", "Sci", 0, 20)
    assert set(found) == {"all", "aib_late", "pca"}
    assert all(list(lines["linear"]) == ["20"] for lines in found.values())


def result_of(module, cell, rng):
    """A made-up result in the form that the function of the cell would give."""
    asked = cell.arguments
    if module is beyond_choice:
        chosen = {rule: {"words": int(rng.choice([5, 50])), "error": rng.random()} for rule in module.RULES}
        return {"all": rng.random(), **chosen}
    if module is beyond_multiclass:
        looks = {"largest": 7, "scatter": 0.5, "ratio": 0.4}
        if asked["method"] == "all":
            return {"1000": {"error": 30.0}}
        return {str(n): {"error": 90 * rng.random(), "directions": rng.random(), **looks} for n in module.SIZES}
    if module is beyond_labels:
        return {method: {"linear": {str(asked["n"]): rng.random()}} for method in module.METHODS}
    sizes = (4000,) if asked["method"] in ("all", "tfidf") else module.SIZES
    return {asked["method"]: {how: {str(n): rng.random() for n in sizes} for how in module.HOW}}


@pytest.mark.parametrize("module", BEYOND)
@pytest.mark.parametrize("part", [1.0, 0.5, 0.1, 0.0])
def test_sections_can_be_written_from_any_part_of_the_cells(module, part, tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.sets.alike_topics", lambda options, n_pairs: [("grain", "ship")])
    rng = np.random.default_rng(0)
    results = Results(tmp_path / "made_up.json")
    cells = module.cells(Options(tmp_path, tmp_path, repeats=2))
    for k in rng.permutation(len(cells))[: int(np.ceil(part * len(cells)))]:
        results.keep(cells[k].key, result_of(module, cells[k], rng), 1.0, MACHINE)
    assert (len(results) > 0) == (part > 0)
    sections, _ = page_of(module, results, tmp_path)
    if part == 1:
        assert all(section.claims and section.tables for section in sections)
