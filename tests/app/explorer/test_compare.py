"""A model beside another one: on the same items, at another size, before its edits."""

import numpy as np
import pytest

from bagwise import BagwiseError, Model
from bagwise.app import FitOptions, ItemIndex, fit_model, run_fit
from bagwise.app.explorer import Workspace, open_other, open_workspace, pages
from bagwise.app.explorer.comparison import WHICH, compare
from bagwise.app.index.item_index import index_of_fit
from bagwise.app.training.comparing import overlap_of_groups
from bagwise.app.training.seen import SeenItems
from commands import bagwise
from explorer_requests import with_seen

ItemQuery = pages.items.ItemQuery


@pytest.fixture(scope="module")
def second(explored):
    """A model with other words, of the same texts without their most frequent words."""
    folder = explored.parent / "texts"
    options = FitOptions(n_groups=4, folds=3, min_count=6)
    fit = run_fit(folder, options)
    index_of_fit(fit, None, folder, options).save(explored.parent / "second.index")
    return fit.model.save(explored.parent / "second.bagwise")


def beside(opened, other):
    """A workspace of its own, compared with another model."""
    space = Workspace(opened.model, opened.items, title=opened.title)
    space.origin = opened.origin
    space.other = open_other(space, other)
    return space


def counted_answers(space, other_model, n, m):
    held = space.items
    return space.model.cut(n).predict(held.histograms), other_model.cut(m).predict(held.collection)


def check_comparison(space, first, second, told, n, m):
    """Compare what a page shows with answers, and the filters of items with each other."""
    labels = np.array([space.model.classes[code] for code in space.items.codes])
    items = told["items"]
    assert items["n_disagree"] == (first != second).sum()
    assert items["paired"]["errors"] == pytest.approx([(first != labels).mean(), (second != labels).mean()])
    crossed = np.array(items["crossed"])
    for i, one in enumerate(items["classes"]):
        for j, other in enumerate(items["classes"]):
            assert crossed[i, j] == ((first == one) & (second == other)).sum()
            rows = pages.items.items(space, n, ItemQuery(predicted=i, second=j, m=m, most=500))
            assert rows["total"] == crossed[i, j]
            assert {row["second"] for row in rows["items"]} <= {other}
    expected = {
        "disagree": first != second,
        "agree": first == second,
        "first_wrong": (first != labels) & (second == labels),
        "second_wrong": (first == labels) & (second != labels),
        "both_wrong": (first != labels) & (second != labels),
        "both_right": (first == labels) & (second == labels),
    }
    assert set(WHICH) == set(expected)
    for which, chosen in expected.items():
        rows = pages.items.items(space, n, ItemQuery(which=which, m=m, most=500))["items"]
        assert [row["number"] for row in rows] == np.flatnonzero(chosen).tolist()
        assert items["paired"].get(which, chosen.sum()) == chosen.sum()


def unseen(opened):
    """The same items, none of which a model was learned from, so that all count."""
    known = SeenItems(opened.ids, np.zeros(len(opened.ids), bool), np.ones(len(opened.ids), bool), exact=True)
    space = Workspace(opened.model, with_seen(opened.items, known), title=opened.title)
    space.origin = opened.origin
    return space


def test_two_sizes_of_one_model(space):
    alone = unseen(space)
    told = pages.compare.compared(alone, 7, 2)
    assert told["against"] == "size"
    first, second = (space.model.cut(n).predict(space.items.histograms) for n in (7, 2))
    check_comparison(alone, first, second, told, 7, 2)
    overlap = overlap_of_groups(space.model.cut(7), space.model.cut(2))
    assert told["groups"]["n_moved"] == overlap.moved.sum()
    back = pages.compare.compared(alone, 2, 7)["groups"]
    assert (told["groups"]["n_same"], told["groups"]["divided"]) == (7, 1)  # larger groups hold smaller ones
    assert told["groups"]["changed"] == back["changed"]  # from whichever side
    assert back["n_changed"] + back["n_same"] == 2
    for group in back["changed"]:
        assert group["n_parts"] > 1
        assert sum(part["share"] for part in group["parts"]) <= 1 + 1e-9


def test_a_model_with_other_words_counts_its_own(space, second):
    alone = beside(unseen(space), second)
    assert not alone.other.recounts
    told = pages.compare.compared(alone, 5, 3)
    assert (told["against"], told["second"]["title"]) == ("other", "second")
    alone.other.space.items = with_seen(alone.other.space.items, None)
    assert pages.compare.compared(alone, 5, 3)["items"]["known"] is False
    alone.other.space.items = unseen(alone.other.space).items
    assert pages.compare.compared(alone, 5, 3)["items"]["known"] is True
    told = pages.compare.compared(alone, 5, 3)
    first, answers = counted_answers(alone, Model.load(second), 5, 3)
    check_comparison(alone, first, answers, told, 5, 3)
    assert told["groups"]["n_only_first"] > 0


def test_a_model_with_the_same_words_uses_those_that_are_known(space, stored, tmp_path):
    path = space.model.cut(3).save(tmp_path / "other.bagwise")
    for opened in (space, stored):
        alone = beside(opened, path)
        assert alone.other.recounts
        told = pages.compare.compared(alone, 5, 3)
        first, answers = (space.model.cut(n).predict(space.items.histograms) for n in (5, 3))
        assert told["items"]["n_disagree"] == (first != answers).sum()
        assert told["items"]["fair"] is False  # all of them are training items, and answers are the models' own
        assert told["recounted"] is True


def test_two_indexes_are_matched_by_ids(stored, second):
    alone = beside(stored, second.with_suffix(".index"))
    told = pages.compare.compared(alone, 5, 4)
    one, other = stored.cut(5), alone.other.space.cut(4)
    assert (told["first"]["answered_at"], told["second"]["answered_at"]) == (one.answered_at, other.answered_at)
    differ = one.answers.predicted != other.answers.predicted
    assert told["items"]["n_disagree"] == differ.sum()
    assert told["items"]["fair"] is True  # answers of cross-validation
    assert told["items"]["known"] is True
    assert told["items"]["paired"]["n_items"] == len(stored.items)


def test_items_that_one_side_lacks_are_left_out(stored, second, tmp_path):
    index = ItemIndex.load(second.with_suffix(".index"))
    folder = tmp_path / "texts"
    for id in index.ids[:20]:
        place = folder / id
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text((stored.items._content.path / id).read_text())
    few = bagwise("index", second, folder, "--out", tmp_path / "few.index")
    assert few
    alone = beside(stored, tmp_path / "few.index")
    told = pages.compare.compared(alone, 5, 4)
    assert (told["items"]["n_matched"], told["items"]["n_first"]) == (20, len(stored.items))
    assert pages.items.items(alone, 5, ItemQuery(against="other"))["total"] == 20
    named = tmp_path / "elsewhere"
    (named / "tools").mkdir(parents=True)
    (named / "tools" / "strange.txt").write_text("hammer saw")
    bagwise("index", second, named, "--out", tmp_path / "none.index")
    with pytest.raises(BagwiseError, match=r"has none of the items that are shown.*strange"):
        beside(stored, tmp_path / "none.index")


def test_an_edited_model_is_compared_with_itself_before(space):
    model = space.model.cut(5)
    word = int(model.groups()[0][0])
    edited = model.apply([{"edit": "move", "n_groups": 5, "words": [word], "to": 1}])
    alone = Workspace(edited, space.items, title="edited")
    told = pages.compare.compared(alone, None, 5, "unedited")
    assert [choice["name"] for choice in told["choices"]] == ["unedited", "size"]
    assert [(one["word"], one["from"]) for one in told["groups"]["moved"]] == [(word, int(edited.lookup[word]))]
    first = edited.predict(space.items.histograms)
    second = model.predict(space.items.histograms)
    assert told["items"]["n_disagree"] == (first != second).sum()


def test_without_items_groups_are_compared(space, second, tmp_path):
    alone = beside(open_workspace(space.model.save(tmp_path / "alone.bagwise")), second)
    told = pages.compare.compared(alone, 5, 4)
    assert told["items"] is None
    assert told["groups"]["n_common"] > 0


def test_models_that_cannot_be_compared_by_words_say_why(space):
    alone = Workspace(space.model.compact())
    alone.other = compare(space, 5).other
    told = pages.compare.compared(alone, None)
    assert "cannot be compared" in told["groups"]["problem"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/compare?against=nothing",
        "/api/compare?m=0",
        "/api/compare?m=x",
        "/api/items?which=maybe",
        "/api/items?which=agree&second=99",
        "/api/items?at_least=x",
        "/api/items?at_most=nan",
        "/api/items/0/similar?k=0",
        "/api/items/0/similar?by=nothing",
        "/api/items/0/similar?by=groups&metric=cosine",
        "/api/items/0/similar?by=words&metric=chi2",
        "/api/python/search?like=99999",
        "/api/python/search",
        "/api/python/items?item=99999",
        "/api/python/items?item=0&of=9",
        "/api/python/groups?group=9999",
    ],
)
def test_wrong_addresses_get_a_sentence(answer, path):
    assert answer(path, 400)["error"].endswith((".", "0"))


def test_items_are_filtered_by_confidence(answer, space, stored):
    rows = answer("/api/items?n=5&most=200")["items"]
    probable = space.model.cut(5).predict_proba(space.items.histograms).max(axis=1)
    assert [row["probability"] for row in rows] == pytest.approx(probable.tolist())
    assert answer("/api/overview?n=5")["confidence"] == "probability"
    low, high = np.quantile(probable, [0.3, 0.7])
    chosen = answer(f"/api/items?n=5&most=200&at_least={low}&at_most={high}")["items"]
    assert [row["number"] for row in chosen] == np.flatnonzero((probable >= low) & (probable <= high)).tolist()
    # an index knows margins alone
    assert pages.overview.overview(stored, 5)["confidence"] == "margin"
    margins = stored.cut(5).answers.margin
    some = pages.items.items(stored, 5, ItemQuery(at_most=float(np.median(margins)), most=500))["items"]
    assert [row["number"] for row in some] == np.flatnonzero(margins <= np.median(margins)).tolist()


def test_what_would_change_an_answer_is_told(answer, space):
    model = space.model.cut(5)
    told = answer("/api/items/3?n=5")
    change = model.explain(space.items.collection[3]).changes()
    assert told["changes"]["becomes"] == change.becomes
    assert told["changes"]["words"] == [one.name for one in change.removed[:12]]


@pytest.mark.parametrize("by", ["", "words", "classes", "both", "groups"])
def test_neighbours_say_what_they_share(answer, space, by):
    hits = answer(f"/api/items/3/similar?n=5&k=5&by={by}")["hits"]
    for hit in hits:
        assert 0 < len(hit["shared"]) <= 6
        added = sum(one["contribution"] for one in hit["shared"])
        assert added <= hit["score"] + 1e-5
        if hit["n_shared"] == len(hit["shared"]):
            assert added == pytest.approx(hit["score"], abs=1e-5)
    assert {one["kind"] for hit in hits for one in hit["shared"]} <= {
        "groups": {"group"},
        "words": {"word"},
        "classes": {"class"},
    }.get(by, {"word", "class"})


@pytest.mark.parametrize("metric", ["hellinger", "chi2", "intersection", "euclidean"])
def test_items_are_searched_by_the_groups_of_the_cut(answer, space, stored, metric):
    hits = answer(f"/api/items/3/similar?n=7&k=5&by=groups&metric={metric}")["hits"]
    cut, held = space.model.cut(7), space.items
    built = ItemIndex.build(cut, held.collection, held.histograms, by="groups", metric=metric)
    expected = [hit for hit in built.search(held.histograms[[3]], 6)[0] if hit.id != space.ids[3]][:5]
    assert [hit["score"] for hit in hits] == pytest.approx([hit.score for hit in expected], abs=1e-4)
    assert {hit["differences"] for hit in hits} == {metric in ("chi2", "euclidean")}
    query = pages.search.SearchQuery(5, "groups", metric)
    others = pages.search.similar(stored, 7, 3, query)["hits"]
    assert [hit["score"] for hit in others] == pytest.approx([hit["score"] for hit in hits], abs=1e-3)


def test_the_command_line_opens_the_other_model(explored, second, tmp_path):
    assert "does not exist" in bagwise("explore", explored, "--compare", tmp_path / "nothing.bagwise", code=1)


def test_baselines_are_lines_of_the_curve(explored):
    model = fit_model(explored.parent / "texts", n_groups=3, folds=2)
    told = pages.overview.overview(Workspace(model), None)
    assert any("all words" in one["name"] for one in told["baselines"])
    errors = [one["error"] for one in told["baselines"]]
    assert errors == sorted(errors)
