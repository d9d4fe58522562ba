"""Two models on the same items: errors in pairs, and overlaps of groups."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import adjusted_rand_score

from bagwise import BagwiseError, Hierarchy, Model
from bagwise.app.training.comparing import (
    PairedErrors,
    compare_answers,
    overlap_of_groups,
    same_vocabulary,
    same_weighting,
)
from model_cases import MADE, random_hierarchy, two_vocabularies


def test_answers_are_counted_in_pairs():
    random = np.random.default_rng(0)
    codes, first, second = random.integers(0, 3, (3, 200))
    paired = compare_answers(codes, first, second)
    assert paired.n_items == 200
    np.testing.assert_allclose(paired.errors, [(first != codes).mean(), (second != codes).mean()])
    assert paired.difference == pytest.approx((second != codes).mean() - (first != codes).mean())
    assert paired.both_wrong == ((first != codes) & (second != codes)).sum()
    swapped = compare_answers(codes, second, first)
    assert (swapped.first_wrong, swapped.second_wrong) == (paired.second_wrong, paired.first_wrong)
    np.testing.assert_allclose(swapped.interval, [-paired.interval[1], -paired.interval[0]])
    with pytest.raises(BagwiseError, match=r"\(3,\), \(2,\)"):
        compare_answers([0, 1, 2], [0, 1], [0, 1, 2])


@pytest.mark.parametrize(("first", "second"), [(0, 0), (0, 1), (3, 3), (2, 9), (40, 11), (1000, 900)])
def test_the_test_is_the_exact_one(first, second):
    paired = PairedErrors(50, first, second, 4)
    expected = binomtest(first, first + second).pvalue if first + second else 1.0
    assert paired.p_value == pytest.approx(expected)


def test_the_interval_covers_the_difference():
    random, covered = np.random.default_rng(1), []
    for n in (40, 300):
        for _ in range(400):
            counts = random.multinomial(n, [0.7, 0.12, 0.05, 0.13])
            low, high = PairedErrors(*counts.tolist()).interval
            covered.append(low <= 0.05 - 0.12 <= high)
    assert 0.93 < np.mean(covered) < 0.98


def test_without_items_there_is_no_error():
    paired = compare_answers([], [], [])
    assert np.isnan(paired.errors).all()
    assert paired.p_value == 1


def pair_of_models(n=(6, 9), seed=0):
    """Two hierarchies of vocabularies that share most words, in other orders."""
    random = np.random.default_rng(seed)
    names = [f"w{k}" for k in range(30)]
    made = []
    for size, kept in zip(n, (random.permutation(30)[:27], random.permutation(30)[:24]), strict=True):
        made.append(
            Model(
                modality="texts",
                hierarchy=random_hierarchy(len(kept), random),
                n_groups=size,
                word_names=[names[k] for k in kept],
                word_totals=random.integers(1, 50, len(kept)),
            )
        )
    return made


@pytest.mark.parametrize("seed", range(5))
def test_overlaps_are_those_of_sets_of_names(seed):
    first, second = pair_of_models(seed=seed)
    overlap = overlap_of_groups(first, second)
    sets = [[{model.word_names[k] for k in members} for members in model.groups()] for model in (first, second)]
    shared = {(a, b): one & other for a, one in enumerate(sets[0]) for b, other in enumerate(sets[1]) if one & other}
    assert {tuple(pair): n for pair, n in zip(overlap.pairs.tolist(), overlap.n_shared.tolist(), strict=True)} == {
        pair: len(words) for pair, words in shared.items()
    }
    assert overlap.shares.sum() == pytest.approx(1)
    assert (np.diff(overlap.shares) <= 0).all()
    common = set(first.word_names) & set(second.word_names)
    assert {first.word_names[k] for k in overlap.words[:, 0]} == common
    assert [first.word_names[a] for a, _ in overlap.words] == [second.word_names[b] for _, b in overlap.words]
    assert overlap.n_only_first == 27 - len(common)
    assert overlap.n_only_second == 24 - len(common)
    assert overlap.adjusted_rand == pytest.approx(adjusted_rand_score(*overlap.groups.T))
    used = overlap.matches[overlap.matches >= 0]
    assert len(set(used.tolist())) == len(used)
    # the pair that shares most is matched, and so is every group as long as there are others that share words with it
    assert overlap.matches[overlap.pairs[0, 0]] == overlap.pairs[0, 1]
    stays = overlap.matches[overlap.groups[:, 0]] == overlap.groups[:, 1]
    np.testing.assert_array_equal(overlap.moved, ~stays)


def test_a_model_against_itself_and_against_a_larger_cut():
    first, _ = pair_of_models()
    same = overlap_of_groups(first, first)
    np.testing.assert_array_equal(same.matches, np.arange(6))
    assert not same.moved.any()
    assert same.adjusted_rand == 1
    finer = overlap_of_groups(first, first.cut(7))
    assert len(finer.pairs) == 7  # one group was split; the smaller part counts as moved
    assert 0 < finer.moved.sum() < 27


def test_words_of_images_are_the_same_if_their_codebooks_are():
    first = two_vocabularies()
    assert same_vocabulary(first, first.cut(5))
    assert overlap_of_groups(first, first.cut(5)).n_only_first == 0
    moved = dataclasses.replace(first, codebook=[first.codebooks[0], first.codebooks[1] + 1])
    assert not same_vocabulary(first, moved)
    with pytest.raises(BagwiseError, match="without names"):
        overlap_of_groups(first, moved)
    hashed = MADE["compact texts"]()
    assert not overlap_of_groups(hashed, hashed).moved.any()


def test_what_cannot_be_compared_is_named():
    first, second = pair_of_models()
    with pytest.raises(BagwiseError, match="one is of texts, one of images"):
        overlap_of_groups(first, MADE["images"]())
    strange = Model(modality="texts", hierarchy=Hierarchy(1, [], []), n_groups=1, word_names=["zebra"])
    with pytest.raises(BagwiseError, match="no words in common"):
        overlap_of_groups(first, strange)
    assert same_weighting(first, second)
    assert not same_weighting(first, dataclasses.replace(first, word_weights=np.ones(27)))
    assert not same_weighting(first, dataclasses.replace(first, norm="l2"))
