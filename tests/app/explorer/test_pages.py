"""What the pages show, against the model itself."""

import asyncio
import io
import json
import signal
import socket

import numpy as np
import pytest
from PIL import Image

from bagwise.app import FitOptions, run_fit
from bagwise.app.explorer import Workspace, explaining, open_workspace, pages
from bagwise.app.explorer.app import make_app
from bagwise.app.model.groups import lifts, typicality
from bagwise.app.training.seen import SeenItems
from bagwise.errors import BagwiseError
from commands import bagwise, process
from explorer_requests import respond, with_seen
from small_sources import png, write_image_folder, write_table
from waiting import PATIENCE, until


def test_the_overview_is_that_of_the_model_at_every_size(answer, space):
    for n in (2, 5, 10):
        told, cut = answer(f"/api/overview?n={n}"), space.model.cut(n)
        predicted = cut.predict(space.items.histograms)
        labels = space.items.collection.labels
        assert told["n_groups"] == n
        assert told["error"] == pytest.approx((predicted != labels).mean())
        matrix = np.array(told["confusion"])
        assert matrix.sum() == len(labels)
        for i, true in enumerate(told["classes"]):
            for j, answered in enumerate(told["classes"]):
                assert matrix[i, j] == ((labels == true) & (predicted == answered)).sum()
    assert answer("/api/overview")["n_groups"] == space.model.n_groups
    assert told["path"]["errors"] == list(space.model.path.errors)


@pytest.mark.parametrize(
    "path",
    [
        "/api/overview?n=0",
        "/api/overview?n=10000",
        "/api/overview?n=-1",
        "/api/overview?n=1e3",
        "/api/overview?n=%D9%A3",
        "/api/groups?n=5&label=77",
        "/api/groups?n=5&sort=x",
        "/api/groups/99?n=5",
        "/api/items?predicted=9",
        "/api/items?right=maybe",
        "/api/items?sort=x",
        "/api/items?group=123456789",
        "/api/items/12345",
        "/api/items/12345/similar",
        "/api/joined?first=1",
        "/api/joined?first=1&second=999999",
    ],
)
def test_wrong_addresses_get_a_sentence(answer, path):
    assert answer(path, 400)["error"].endswith((".", "0"))


@pytest.mark.parametrize("path", ["/api/nothing", "/api/items/abc/similar"])
def test_unknown_addresses_get_a_sentence(ask, answer, path):
    assert "nothing at this address" in answer(path, 404)["error"]
    assert ask("/nothing")[0] == 404
    assert ask("/favicon.ico")[0] == 200  # browsers ask for it where a page names no icon


def test_groups_are_those_of_the_cut(answer, space):
    told = answer("/api/groups?n=7&sort=number&most=200")
    cut = space.model.cut(7)
    assert told["total"] == told["n_groups"] == 7
    for group, members in zip(told["groups"], cut.groups(), strict=True):
        whole = answer(f"/api/groups/{group['number']}?n=7")
        assert {word["word"] for word in whole["words"]} == set(members.tolist())
        assert whole["n_words"] == group["n_words"] == len(members)
        assert group["words"] == whole["words"][: len(group["words"])]
    assert sum(group["share"] for group in told["groups"]) == pytest.approx(1)
    by_class = [answer(f"/api/groups?n=5&label={k}") for k in range(len(space.model.classes))]
    assert sum(found["total"] for found in by_class) == 5
    for name, found in zip(space.model.classes, by_class, strict=True):
        assert {group["classes"][0]["name"] for group in found["groups"]} <= {name}  # it speaks for this one
    found = answer("/api/groups?n=7&find=hammer")
    lookup, names = space.model.cut(7).lookup, space.model.word_names
    assert found["total"] == len({lookup[k] for k, name in enumerate(names) if "hammer" in name})
    assert any("hammer" in {word["name"] for word in group["words"]} for group in found["groups"])
    assert answer("/api/groups?n=7&first=5&most=60")["groups"] == answer("/api/groups?n=7")["groups"][5:]


def test_words_are_found_and_join_where_the_hierarchy_says(answer, space):
    hammer = next(one for one in answer("/api/words?n=5&find=HAMMER")["words"] if one["name"] == "hammer")
    assert space.model.word_names[hammer["word"]] == "hammer"
    assert space.model.cut(5).lookup[hammer["word"]] == hammer["group"]
    hierarchy = space.model.hierarchy
    told = answer(f"/api/joined?first={hammer['word']}&second=0")["n_groups"]
    assert hierarchy.cut(told)[hammer["word"]] == hierarchy.cut(told)[0]
    assert hierarchy.cut(told + 1)[hammer["word"]] != hierarchy.cut(told + 1)[0]


def test_words_of_groups_are_ordered_by_lift_and_frequency(answer, space):
    model = space.model.cut(5)
    for balance in (0, 0.6, 1):
        typical = typicality(model, balance=balance)
        for number in range(5):
            words = [one["word"] for one in answer(f"/api/groups/{number}?n=5&balance={balance}")["words"]]
            assert typical[words].tolist() == sorted(typical[words], reverse=True)
    lift = lifts(model, typicality(model, balance=1))
    common = [model.word_names.index(word) for word in ("the", "and")]
    assert lift[common].max() < lift[model.word_names.index("hammer")]
    assert "balance must be from 0 to 1" in answer("/api/groups?n=5&balance=2", 400)["error"]


def test_groups_are_ordered_by_what_they_are_worth(stored):
    cut, model = stored.cut(5), stored.cut(5).model
    query = pages.groups.GroupQuery(sort="cost")
    pages.groups.groups(stored, 5, query)
    until(lambda: cut.worth.progress == 1)
    told = pages.groups.groups(stored, 5, query)
    before, costs = stored.items.scores(model).measured.error, [one["cost"] for one in told["groups"]]
    assert (told["measured"], costs) == (1, sorted(costs, reverse=True))
    for one in told["groups"]:
        without = stored.items.scores(model, np.flatnonzero(model.lookup == one["number"])).measured
        assert one["cost"] == pytest.approx(without.error - before)
    words = stored.items.words.words(np.ones(len(stored.items), np.bool_)).toarray()
    for one in pages.groups.groups(stored, 5, pages.groups.GroupQuery(sort="coherence"))["groups"]:
        columns = words[:, cut.words(one["number"])[:12]]
        cosines = columns.T @ columns
        lengths = np.sqrt(np.diag(cosines))
        cosines = cosines / np.outer(lengths, lengths)
        mean = cosines[~np.eye(len(cosines), dtype=bool)].mean() if len(cosines) > 1 else 1
        assert one["coherence"] == pytest.approx(mean)
    shown = [
        one["number"] for one in pages.groups.groups(stored, 5, pages.groups.GroupQuery(sort="suspicious"))["groups"]
    ]
    assert shown == np.argsort(-cut.deciding * (1 - cut.worth.coherence), kind="stable").tolist()
    with pytest.raises(BagwiseError, match="sorted by decides, size, coherence"):
        pages.groups.groups(stored, 5, pages.groups.GroupQuery(sort="name"))


def test_the_rows_of_the_hierarchy_are_nested(answer, space):
    told = answer("/api/hierarchy")
    for row in told["rows"]:
        assert len(row["groups"]) == row["n_groups"] == len(set(row["groups"]))
        assert sum(row["shares"]) == pytest.approx(1, rel=1e-4)
    for upper, lower in zip(told["rows"], told["rows"][1:], strict=False):
        ends = np.cumsum(lower["shares"])
        for end in np.cumsum(upper["shares"]):
            assert np.abs(ends - end).min() < 1e-4
    assert sorted(told["words"]) == list(range(space.model.hierarchy.n_words))


def test_items_are_filtered_and_sorted(answer, space):
    n_items = len(space.items)
    everything = answer("/api/items?n=5&most=200")["items"]
    assert [row["number"] for row in everything] == list(range(n_items))
    tools = space.model.classes.index("tools")
    kept = [row for row in everything if row["label"] == "tools"]
    assert answer(f"/api/items?n=5&most=200&label={tools}")["items"] == kept
    kept = [row for row in everything if row["predicted"] == "tools"]
    assert answer(f"/api/items?n=5&most=200&predicted={tools}")["items"] == kept
    right, wrong = (answer(f"/api/items?n=2&most=200&right={which}") for which in ("right", "wrong"))
    assert right["total"] + wrong["total"] == n_items
    assert all(row["predicted"] != row["label"] for row in wrong["items"])
    margins = [row["margin"] for row in answer("/api/items?n=5&most=200&sort=margin")["items"]]
    assert margins == sorted(row["margin"] for row in everything)
    assert [row["margin"] for row in answer("/api/items?n=5&most=200&sort=-margin")["items"]] == margins[::-1]
    features = space.model.cut(5).transform(space.items.histograms).toarray()
    for group in range(5):
        rows = answer(f"/api/items?n=5&most=200&group={group}")["items"]
        assert [row["number"] for row in rows] == np.flatnonzero(features[:, group]).tolist()
    part = answer("/api/items?n=5&first=10&most=7")
    assert part["items"] == everything[10:17]
    assert part["total"] == n_items


def test_training_items_are_set_apart(space):
    held = space.items
    seen = np.arange(len(held)) % 3 > 0
    known = SeenItems(space.ids, seen, np.ones(len(held), np.bool_), exact=True)
    apart = Workspace(space.model, with_seen(held, known))
    told = pages.overview.overview(apart, 2)["seen"]
    wrong = space.model.cut(2).predict(held.histograms) != held.collection.labels
    assert (told["n_seen"], told["n_new"]) == (seen.sum(), (~seen).sum())
    assert told["error_seen"] == pytest.approx(wrong[seen].mean())
    assert told["error_new"] == pytest.approx(wrong[~seen].mean())
    for which, chosen in (("training", seen), ("new", ~seen)):
        rows = pages.items.items(apart, 5, pages.items.ItemQuery(seen=which))["items"]
        assert [row["number"] for row in rows] == np.flatnonzero(chosen).tolist()
        assert {row["training"] for row in rows} == {which == "training"}


def test_explanations_say_whether_their_model_has_seen_the_item(space, stored, answer):
    held, every = space.items, np.ones(len(space.items), np.bool_)
    seen = np.arange(len(held)) == 0
    for compared, exact, other in ((every, True, "has not seen"), (seen, False, "is not known")):
        known = SeenItems(space.ids, seen, compared, exact=exact)
        apart = Workspace(space.model, with_seen(held, known))
        told = [pages.items.item(apart, 5, number)["explains"] for number in (0, 1)]
        assert told[0] == "the final model at 5 groups, which was trained on this item"
        assert told[1].startswith("the final model at 5 groups")
        assert other in told[1]
    assert "is not known" in pages.items.item(Workspace(space.model, with_seen(held, None)), 5, 0)["explains"]
    for number in (0, 1):  # predicted by the folds, explained by them
        told = pages.items.item(stored, 5, number)
        assert told["held_out"]
        assert told["by_fold"]
        assert told["explains"] == "the held-out answer, by a model that has not seen this item, at 5 groups"
    assert pages.items.item(stored, 1, 0)["explains"].endswith("has not seen this item, at 2 groups")  # which are known
    told = answer("/api/search?n=5", method="POST", body=b"apple pear", content_type="text/plain")
    assert told["explains"].startswith("the final model at 5 groups")


def test_why_adds_up_and_marks_the_text(answer, space):
    for number in (0, 5, len(space.items) - 1):
        for of in (None, 0, 2):
            told = answer(f"/api/items/{number}?n=5" + ("" if of is None else f"&of={of}"))
            why = told["why"]
            terms = why["intercept"] + sum(term["contribution"] for term in why["groups"]) + why["rest"]
            assert terms == pytest.approx(why["of_score"], abs=1e-6)
            text = space.items.collection[number].load()
            shown = "".join(piece for piece, *_ in told["text"])
            assert shown == text.replace("\x07", "\\x07")


def test_similar_items_are_those_of_the_index_without_the_item(answer, space):
    hits = answer("/api/items/3/similar?k=5")["hits"]
    assert len(hits) == 5
    assert 3 not in [hit["number"] for hit in hits]
    rows = {row["number"]: row for row in answer("/api/items?most=200")["items"]}
    assert [hit["excerpt"] for hit in hits] == [rows[hit["number"]]["excerpt"] for hit in hits]
    text = space.items.collection[3].load()
    found = answer("/api/search?n=5&k=6", method="POST", body=text.encode())
    assert found["hits"][0]["number"] == 3
    assert {hit["number"] for hit in found["hits"][1:]} <= {
        hit["number"] for hit in answer("/api/items/3/similar?k=6")["hits"]
    }
    assert found["why"]["predicted"] == space.model.cut(5).predict([text])[0]
    assert answer("/api/search", method="POST", body=b"qqq")["known"] is False
    assert "not" in answer("/api/search", 400, method="POST", body=b"qqq \xff")["error"]


def test_names_are_escaped(ask, space):
    number = next(k for k, id in enumerate(space.ids) if "onerror" in id)
    status, headers, body = ask(f"/api/items/{number}?n=5")
    assert status == 200
    assert headers["content-type"] == "application/json"
    assert "\u202e" not in json.loads(body)["id"]


def test_a_model_without_items_is_shown(tmp_path, space):
    alone = open_workspace(space.model.save(tmp_path / "alone.bagwise"))
    told = pages.overview.overview(alone, 5)
    assert (told["items"], told["error"], told["confusion"], told["searchable"]) == (None, None, None, False)
    assert pages.groups.groups(alone, 5, pages.groups.GroupQuery())["total"] == 5
    assert len(pages.groups.hierarchy(alone)["words"]) == space.model.hierarchy.n_words


def test_an_image_has_a_heat_map_that_adds_up(tmp_path):
    folder = write_image_folder(tmp_path / "images", n_each=4, side=40, color=True)
    fit = run_fit(folder, FitOptions(n_words=20, n_groups=5, folds=0))
    space = open_workspace(fit.model.save(tmp_path / "images.bagwise"), folder)
    told = pages.items.item(space, None, 3)
    why = told["why"]
    assert np.sum(told["heat"]) == pytest.approx(why["of_score"] - why["intercept"], rel=1e-3)
    assert (told["width"], told["height"]) == (40, 40)
    shown = pages.groups.groups(space, None, pages.groups.GroupQuery())["groups"]
    assert [group["number"] for group in shown] == np.argsort(-space.cut().deciding, kind="stable").tolist()
    assert all(group["has_patches"] == bool(space.cut().patches.get(group["number"])) for group in shown)


@pytest.mark.parametrize(
    ("descriptor", "side", "sizes"),  # whole rows of six, or of four regions, with gaps of two pixels
    [
        ("sift+color", 40, ((4, (166, 40)), (7, (250, 40)), (16, (250, 82)))),
        ("network", 62, ((3, (190, 62)), (7, (254, 62)), (16, (254, 254)))),
    ],
)
def test_pictures_are_images_of_their_item(descriptor, side, sizes, tmp_path):
    folder = write_image_folder(tmp_path / "images", n_each=2, side=40, color=True)
    fit = run_fit(folder, FitOptions(descriptor=descriptor, n_words=8, n_groups=3, folds=0))
    space = open_workspace(fit.model.save(tmp_path / "images.bagwise"), folder)
    app = make_app(space)
    status, headers, body = asyncio.run(respond(app, "GET", "/api/items/1/picture", {}, b""))
    assert (status, headers["content-type"]) == (200, "image/jpeg")
    pixels = np.asarray(Image.open(io.BytesIO(body)).convert("RGB")).astype(int)
    assert (pixels[:, :, 0] > pixels[:, :, 2]).mean() > 0.5  # orange
    assert asyncio.run(respond(app, "GET", "/api/items/99/picture", {}, b""))[0] == 404
    assert asyncio.run(respond(app, "GET", "/api/items/1/picture?side=9", {}, b""))[0] == 404
    patches = [asyncio.run(respond(app, "GET", f"/api/groups/{k}/patches", {}, b"")) for k in range(3)]
    assert [status for status, _, _ in patches] == [200, 200, 200]
    assert all(Image.open(io.BytesIO(body)).size[1] == side for _, _, body in patches)
    assert asyncio.run(respond(app, "GET", "/api/groups/9/patches", {}, b""))[0] == 404
    cut = space.cut()
    for shown, size in sizes:
        cut.patches[0] = [png(np.full((8, 8), 9, np.uint8))] * shown
        body = asyncio.run(respond(app, "GET", "/api/groups/0/patches", {}, b""))[2]
        assert Image.open(io.BytesIO(body)).size == size
    pixels = (np.arange(1200) % 255).astype(np.uint8).reshape(20, 20, 3)
    status, _, body = asyncio.run(respond(app, "POST", "/api/search?k=2", {}, png(pixels)))
    assert (status, len(json.loads(body)["hits"])) == (200, 2)
    status, _, body = asyncio.run(respond(app, "POST", "/api/search", {}, b"not an image"))
    assert status == 400
    assert json.loads(body)["error"].startswith("Cannot read 'query': it is damaged or not an image")


def test_rows_of_a_table_have_columns(tmp_path):
    path = write_table(tmp_path / "table.csv")
    fit = run_fit(path, FitOptions(n_groups=4, folds=0))
    space = open_workspace(fit.model.save(tmp_path / "table.bagwise"), path)
    told = pages.items.item(space, None, 2)
    why = told["why"]
    added = sum(weight for *_, weight, _ in told["columns"])
    assert added == pytest.approx(why["of_score"] - why["intercept"], abs=1e-5)


def test_only_the_last_cuts_are_kept(space):
    alone = Workspace(space.model)
    first = alone.cut(2)
    assert alone.cut(2) is first
    for n in range(3, 12):
        alone.cut(n)
    assert alone.cut(2) is not first


def test_ctrl_c_ends_the_explorer(explored):
    running = process("explore", explored, "--no-open")
    assert "http://127.0.0.1:" in running.stdout.readline()
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=PATIENCE)
    assert (running.returncode, err) == (0, "")
    assert out.endswith("Stopped.\n")


def test_a_port_that_is_taken_is_named(explored):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1, port {port}" in bagwise("explore", explored, "--port", port, code=1)


def test_what_does_not_exist_is_named(tmp_path):
    assert "does not exist. Create a model with" in bagwise("explore", tmp_path / "nothing.bagwise", code=1)


@pytest.mark.parametrize("kind", ["trimmed", "compact"])
def test_models_with_fewer_cuts_show_those(space, kind):
    model = space.model
    shown = Workspace(model.trim() if kind == "trimmed" else model.compact())
    told, tree = pages.overview.overview(shown, None), pages.groups.hierarchy(shown)
    n = shown.model.n_groups
    sizes = {"trimmed": (1, n), "compact": (n, n)}[kind]
    assert (told["least_groups"], told["most_groups"]) == sizes
    for size in sizes:
        assert pages.overview.overview(shown, size)["n_groups"] == size
    with pytest.raises(BagwiseError, match=f"from {sizes[0]} to {sizes[1]}"):
        pages.overview.overview(shown, sizes[1] + 1)
    assert [row["n_groups"] for row in tree["rows"]][-1] == sizes[1]
    for row in tree["rows"]:
        cut = shown.model.cut(row["n_groups"])
        described = cut.describe_groups()
        assert row["names"] == [described[k].title for k in row["groups"]]
    first, second = (int(k) for k in np.flatnonzero(shown.model.hierarchy.cut(n) == 0)[:2])
    # how words of a group were merged is not known
    assert pages.groups.joined(shown, first, second)["n_groups"] == n


@pytest.mark.parametrize("text", ["9" * 5000, "\u0663", "3"])
def test_words_without_names_are_found_by_their_numbers(space, text):
    found = pages.groups.words(Workspace(space.model.compact()), None, text)
    assert [one["word"] for one in found["words"]] == ([] if len(text) > 1 else [3])


def test_very_long_texts_are_shown_without_marks(space, monkeypatch):
    cut, one = space.cut(5), space.items.item(0)
    assert any(mark for _, mark, _ in explaining.explained(cut, one)["text"])
    monkeypatch.setattr(explaining, "_MOST_MARKED", 3)
    told = explaining.explained(cut, one)
    assert not any(mark for _, mark, _ in told["text"])
    assert told["why"]["groups"]
