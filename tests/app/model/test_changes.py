"""What would change an answer does change it, and nothing in it could be left out."""

import dataclasses
from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp

from bagwise import BagwiseError, Model
from bagwise.app.model import Head
from model_cases import MADE, TEXTS, random_hierarchy, table_model, two_vocabularies

IMAGES = list(np.random.default_rng(1).integers(0, 256, (3, 40, 48)).astype(np.uint8))
COLOURED = list(np.random.default_rng(1).integers(0, 256, (3, 40, 48, 3)).astype(np.uint8))
CASES = {
    "pyramid": (MADE["weighted images"], IMAGES),
    "vocabularies": (lambda: two_vocabularies(5), COLOURED),
    "texts": (MADE["weighted texts"], TEXTS),
    "compact texts": (MADE["compact texts"], TEXTS),
    "measurements": (MADE["measurements"], np.random.default_rng(2).normal(0, 80, (4, 6))),
}


def without(model, row, numbers, by):
    """Predict the class of a histogram without some words or groups."""
    row, d = np.array(row, dtype=np.float64), model.hierarchy.n_words
    words = np.array(numbers, np.intp) if by == "words" else np.flatnonzero(np.isin(model.lookup, numbers))
    for cell in range(model.layout.n_cells):
        row[cell * d + words] = 0 if model.column_shift is None else model.column_shift[words]
    return model.predict(row[np.newaxis])[0]


@pytest.mark.parametrize("by", ["words", "groups"])
@pytest.mark.parametrize("case", CASES)
def test_without_the_removed_ones_the_answer_is_another(case, by):
    make, items = CASES[case]
    model = make()
    counts = model.histograms(items)
    counts = counts.toarray() if sp.issparse(counts) else counts
    for row, one in zip(counts, model.explain(items), strict=True):
        change = one.changes(by)
        if change is None:
            continue
        numbers = [removed.number for removed in change.removed]
        assert without(model, row, numbers, by) == change.becomes != one.predicted
        assert change.score > change.score_before
        for k in range(len(numbers)):
            assert without(model, row, numbers[:k] + numbers[k + 1 :], by) == one.predicted
        gains = [removed.contribution for removed in change.removed]
        assert gains == sorted(gains, reverse=True)


def linear_model(n_classes=2, n=7):
    random = np.random.default_rng(3)
    coef = random.normal(size=(n_classes, n))
    return Model(
        modality="table",
        hierarchy=random_hierarchy(n, random),
        n_groups=n,
        normalize=(),
        classes=list("abcde")[:n_classes],
        heads={n: Head(coef, 3 * random.normal(size=n_classes))},
    )


def test_of_two_classes_and_plain_sums_the_set_is_the_smallest():
    model, sizes = linear_model(), []
    for row in np.random.default_rng(1).integers(0, 4, (30, 7)).astype(np.float64):
        (one,) = model.explain(row[np.newaxis])
        present = np.flatnonzero(row)
        changing = (
            size
            for size in range(1, len(present) + 1)
            for some in combinations(present, size)
            if without(model, row, list(some), "words") != one.predicted
        )
        smallest = next(changing, None)
        change = one.changes()
        assert (None if change is None else len(change.removed)) == smallest
        sizes.append(smallest)
    assert len(set(sizes)) > 3  # also those that nothing changes
    assert None in sizes


def test_at_most_so_many_are_removed():
    model = linear_model()
    rows = np.random.default_rng(1).integers(0, 4, (30, 7)).astype(np.float64)
    changes = [(one.changes(), one.changes(most=2)) for one in model.explain(rows)]
    for change, limited in changes:
        few = change is not None and len(change.removed) <= 2
        assert limited == (change if few else None)


@pytest.mark.parametrize("given", [linear_model, lambda: linear_model(4), MADE["measurements"]])
def test_a_moved_column_changes_the_answer_and_a_little_less_does_not(given):
    model, n_moves = given(), 0
    rows = np.random.default_rng(5).integers(0, 9, (20, model.hierarchy.n_words)).astype(np.float64)
    if model.column_shift is not None:
        rows = model.column_shift + rows / 9 / model.word_weights
    for row, one in zip(rows, model.explain(rows), strict=True):
        moves = one.moves()
        assert moves == model.explain(sp.csr_array(row[np.newaxis]))[0].moves()
        for move in moves:
            moved, nearer = row.copy(), row.copy()
            assert move.value == row[move.column]
            if model.column_shift is not None:
                assert 0 <= (move.to - model.column_shift[move.column]) * model.word_weights[move.column] <= 1 + 1e-9
            moved[move.column] = move.to
            nearer[move.column] = move.value + 0.98 * (move.to - move.value)
            assert model.predict(moved[np.newaxis])[0] == move.becomes != one.predicted
            assert model.predict(nearer[np.newaxis])[0] == one.predicted
            n_moves += 1
    assert n_moves


def test_only_rows_of_tables_have_columns_that_move():
    assert MADE["texts"]().explain(TEXTS[0]).moves() == []


def test_what_cannot_be_asked_is_named():
    one = linear_model().explain(np.ones((1, 7)))[0]
    with pytest.raises(BagwiseError, match="'groups', 'words'"):
        one.changes("classes")
    with pytest.raises(BagwiseError, match=r"Model\.explain"):
        dataclasses.replace(one, model=None).changes()
    with pytest.raises(BagwiseError, match="no classifier"):
        table_model().explain(np.ones((1, 5)))
