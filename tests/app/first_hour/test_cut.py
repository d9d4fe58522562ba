"""`bagwise cut` writes what the size needs and nothing else, and every size has a classifier."""

import dataclasses

import numpy as np
import pytest

from bagwise import Model
from bagwise.app import FitOptions, run_fit
from bagwise.app.model.cutting import derive_head
from bagwise.errors import BagwiseError
from bagwise.runtime import ModelFileError, load
from bagwise.sources import Collection
from commands import as_json, bagwise
from model_cases import MADE
from small_sources import table, texts, write_records


def test_the_file_shrinks_and_answers_stay(tmp_path):
    write_records(tmp_path / "texts.csv")
    whole = tmp_path / "texts.bagwise"
    bagwise("fit", tmp_path / "texts.csv", "--folds", 2, "--groups", 10, "--no-page", "--no-index", "--out", whole)
    told = as_json("cut", whole, "--groups", 5, "--out", tmp_path / "five")
    sizes = [path.stat().st_size for path in (whole, tmp_path / "five")]
    assert [told["bytes_before"], told["bytes_after"]] == sizes
    assert sizes[1] < sizes[0]
    model, small = Model.load(whole).cut(5), Model.load(tmp_path / "five")
    some = [text for text, _ in texts(4, seed=7)]
    np.testing.assert_array_equal(small.decision_function(some), model.decision_function(some))
    np.testing.assert_array_equal(small.predict_proba(some), model.predict_proba(some))
    assert small.group_names().tolist() == model.trim().group_names().tolist()  # without lifts, which larger cuts know
    one, other = small.explain(some[0]), model.explain(some[0])
    np.testing.assert_array_equal(one.contributions(), other.contributions())
    assert one.words() == other.words()
    assert list(small.heads) == [2, 3, 4, 5]
    with pytest.raises(BagwiseError, match="from 1 to 5"):
        small.cut(6)

    # a size for which no classifier was trained
    printed = bagwise("cut", whole, "--groups", 24, "--out", tmp_path / "most")
    assert "derived from that for 25, not trained. Errors were estimated at other sizes:" in printed
    assert "% with 20 groups" in printed
    most = Model.load(tmp_path / "most")
    assert (most.predict(some) == [label for _, label in texts(4, seed=7)]).mean() > 0.9
    assert "the classifier for 24 groups, from that for 25" in bagwise("info", tmp_path / "most")
    assert bagwise("predict", tmp_path / "most", "--query-text", some[0])


@pytest.mark.parametrize("name", sorted(MADE))
def test_trimmed_models_compute_the_same_at_their_size_and_below(name, tmp_path):
    made = MADE[name]()
    for n in sorted({made.n_groups, max(made.hierarchy.min_groups, made.n_groups - 1)}):
        if n != made.n_groups and name.startswith("compact"):
            continue
        model = made.cut(n)
        small = model.trim()
        assert small == small.trim() == Model.load(small.save(tmp_path / "small"))
        runtime = load(tmp_path / "small")
        for k in range(small.hierarchy.min_groups, n + 1):
            if k < n and (name.startswith("compact") or small.cut(k).heads.keys() != model.cut(k).heads.keys()):
                continue
            one, other = small.cut(k), model.cut(k)
            np.testing.assert_array_equal(one.lookup, other.lookup)
            if max(other.heads, default=0) <= k:  # larger classifiers tell which words name a group, and are trimmed
                assert one.group_names().tolist() == other.group_names().tolist()
            assert one.heads.get(k) == other.heads.get(k)
            n_columns = one.layout.n_cells * one.hierarchy.n_words
            counts = np.random.default_rng(k).integers(0, 5, (3, n_columns)).astype(float)
            np.testing.assert_allclose(runtime.cut(k).transform_counts(counts), other.group(counts), atol=1e-6)
        if small.flattened is not None:
            with pytest.raises(ModelFileError, match=f"to {n} groups"):
                runtime.cut(n + 1)


def test_derived_weights_give_the_same_scores_where_parts_have_constant_shares():
    """Rows in which the words of a group always have the same proportions lose nothing by merging them."""
    X, y = table(n_words=12)
    rows = Collection.from_matrix(X, [str(k) for k in range(len(X))], [(label,) for label in y])
    for criterion in ("classifier", "aib"):
        model = run_fit(rows, FitOptions(n_groups=5, folds=0, criterion=criterion)).model
        model = dataclasses.replace(model, term="count")  # shares of roots are not those of occurrences
        for n in (2, 3, 4):
            groups, totals = model.hierarchy.cut(n), model.word_totals
            shares = totals / np.bincount(groups, totals)[groups]
            given = np.random.default_rng(n).random((6, n))[:, groups] * shares
            head = derive_head(model, model.heads[5], model.hierarchy.cut(5), n)
            expected = model.heads[5].scores(model.group(given, 5))
            np.testing.assert_allclose(head.scores(model.group(given, n)), expected, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_flattened_is_refused():
    model = MADE["texts"]()
    with pytest.raises(BagwiseError, match="flattened must be"):
        dataclasses.replace(model, flattened=model.n_groups)
    small = model.trim()
    with pytest.raises(BagwiseError, match="flattened must be"):
        dataclasses.replace(small, flattened=small.hierarchy.n_words)
