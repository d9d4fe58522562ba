"""`ClassBlend` against its formula written out, pair by pair."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp

from bagwise import BagIndex
from bagwise.retrieval.blends import BlendSettings, ClassBlend


def softmax(row, factor):
    powers = np.exp(factor * (row - row.max()))
    return powers / powers.sum()


def drawn(n, n_words=40, n_classes=4, seed=0):
    """Unit rows of words, and scores of classes that are sharp for one half and soft for the other."""
    random = np.random.default_rng(seed)
    words = random.random((n, n_words)) * (random.random((n, n_words)) < 0.4)
    scores = random.normal(size=(n, n_classes)) * np.where(np.arange(n) % 2, 1.0, 0.1)[:, np.newaxis]
    return words / np.linalg.norm(words, axis=1, keepdims=True), scores


def written_out(blend, words, scores, query, its_scores):
    """Scores of all items for a query."""
    s = blend.settings
    near = words @ query
    order = np.argsort(-near, kind="stable")[: s.n_neighbors]
    certainties = np.array([softmax(row, s.soft).max() for row in scores])
    classes = np.array([np.argmax(row) for row in scores])
    typical = [
        np.quantile(certainties[classes == k] if (classes == k).any() else certainties, 0.75)
        for k in range(scores.shape[1])
    ]
    certainty = np.sum(near[order] ** 2 * certainties[order]) / np.sum(near[order] ** 2)
    fit = certainty / (softmax(its_scores, s.soft) @ typical)
    chance = 1 / scores.shape[1]
    own = (softmax(its_scores, s.soft).max() - chance) / (softmax(its_scores, s.soft) @ typical - chance)
    g = min(1 / (1 + np.exp(-s.slope * (fit - s.threshold))), own / s.own_certainty)
    p, profile = softmax(its_scores, s.sharp), np.sqrt(softmax(its_scores, s.soft))
    found = []
    for similarity, row in zip(near, scores, strict=True):
        known = s.word_weight * similarity + (1 - s.word_weight) * (p @ softmax(row, s.sharp))
        alike = profile @ np.sqrt(softmax(row, s.soft))
        unknown = (1 - s.profile_weight) * similarity + s.profile_weight * alike
        found.append(1.0 if similarity > 1 - 1e-6 else g * known + (1 - g) * unknown)
    return g, np.array(found)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_the_best_items_are_those_of_the_formula(form):
    words, scores = drawn(120)
    new = drawn(20, seed=1)
    queries, their_scores = np.concatenate([new[0], words[:3]]), np.concatenate([new[1], scores[:3]])
    blend = ClassBlend.of(scores, BlendSettings(slope=8.0))
    index = BagIndex("inner").add(blend.rows(form(words), scores))
    weights = blend.class_weights(index, form(queries), their_scores)
    found, items = blend.search(index, form(queries), their_scores, k=15)
    assert weights.min() < 0.4 < 0.6 < weights.max()  # both kinds of queries occur
    of_neighbors = dataclasses.replace(blend, settings=BlendSettings(slope=8.0, own_certainty=0.0))
    lowered = weights < of_neighbors.class_weights(index, form(queries), their_scores) - 1e-9
    assert 0 < lowered.sum() < len(lowered)  # the queries' own certainty matters for some
    for row, query in enumerate(queries):
        weight, wanted = written_out(blend, words, scores, query, their_scores[row])
        assert weights[row] == pytest.approx(weight, abs=1e-5)
        np.testing.assert_allclose(found[row], np.sort(wanted)[::-1][:15], atol=1e-5)
        np.testing.assert_allclose(found[row], wanted[items[row]], atol=1e-5)
    assert found.min() >= 0
    assert found.max() <= 1
    assert items[-3:, 0].tolist() == [0, 1, 2]  # items with the words of the query come first
    assert (found[-3:, 0] == 1).all()


@pytest.mark.parametrize("n_classes", [1, 2, 5])
def test_a_query_with_equal_scores_is_compared_by_words(n_classes):
    words, _ = drawn(40)
    scores = np.eye(n_classes)[np.arange(40) % n_classes] * 2 - 1
    blend = ClassBlend.of(scores)
    index = BagIndex("inner").add(blend.rows(words, scores))
    queries = drawn(9, seed=5)[0]
    np.testing.assert_allclose(blend.class_weights(index, queries, scores[:9]), 1, atol=2e-4)
    weights = blend.class_weights(index, queries, np.full((9, n_classes), -0.3))
    # a single class is certain whatever its score
    np.testing.assert_allclose(weights, float(n_classes == 1), atol=2e-4)


def test_dense_and_sparse_words_give_the_same_bits():
    words, scores = drawn(50)
    blend = ClassBlend.of(scores)
    found = [
        blend.search(BagIndex("inner").add(blend.rows(form(words), scores)), form(words[:9]), scores[:9], k=7)
        for form in (np.asarray, sp.csr_array)
    ]
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_without_weight_of_classes_words_alone_decide():
    words, scores = drawn(60)
    queries, their_scores = drawn(9, seed=3)
    blend = ClassBlend.of(scores, BlendSettings(threshold=1e6, profile_weight=0.0))
    index, plain = BagIndex("inner").add(blend.rows(words, scores)), BagIndex("inner").add(words)
    wanted = plain.search(queries, 8)
    alone = index.search(blend.rows_alone(queries, their_scores, "words"), 8)
    for found in (blend.search(index, queries, their_scores, 8), alone):
        np.testing.assert_allclose(found[0], wanted[0], atol=1e-12)
        np.testing.assert_array_equal(found[1], wanted[1])


def test_classes_alone_rank_by_the_probability_of_the_same_class():
    words, scores = drawn(60)
    blend = ClassBlend.of(scores)
    index = BagIndex("inner").add(blend.rows(words, scores))
    found, items = index.search(blend.rows_alone(words[:5], scores[:5], "classes"), 60)
    chances = np.array([softmax(row, 8.0) for row in scores])
    np.testing.assert_allclose(found, np.take_along_axis(chances[:5] @ chances.T, items, axis=1), atol=1e-5)


def test_items_without_words_are_like_nothing():
    words, scores = drawn(30)
    words[7] = 0
    blend = ClassBlend.of(scores)
    index = BagIndex("inner").add(blend.rows(words, scores))
    found, items = blend.search(index, words[:9], scores[:9], 30)
    assert (found[7] == 0).all()
    assert found[items == 7].max() == 0


def test_settings_survive_a_header():
    settings = BlendSettings(soft=2.0, n_neighbors=3)
    assert BlendSettings.from_header(settings.to_header()) == settings
