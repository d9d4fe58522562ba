"""Edits in the explorer: measured, saved, undone and made again; refused where they must be."""

import asyncio
import json
import os
import shutil
import threading

import numpy as np
import pytest

from bagwise import Model
from bagwise._io import locks
from bagwise._io.locks import locked
from bagwise.app import FitOptions, ItemIndex, run_fit
from bagwise.app.explorer import Workspace, editor, open_workspace, serving
from bagwise.app.explorer.app import make_app
from bagwise.app.explorer.editor import Refused, described
from bagwise.app.explorer.security import Guard
from bagwise.app.model.editor import EDITS
from bagwise.app.training.item_answers import HELD_OUT
from explorer_requests import HOST, TOKEN, respond
from small_sources import write_text_folder
from waiting import PATIENCE

JOIN = {"edit": "join", "n_groups": 6, "groups": [1, 3]}
SPLIT = {"edit": "split", "n_groups": 6, "group": 0}
RENAME = {"edit": "rename", "n_groups": 6, "group": 2, "name": "<b>felines</b>"}


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A model of texts and the index of its items, and other items."""
    from bagwise.app.index.item_index import index_of_fit

    place = tmp_path_factory.mktemp("steered")
    folder = write_text_folder(place / "texts")
    fit = run_fit(folder, FitOptions(n_groups=6, folds=3, ngrams=1))
    fit.model.save(place / "texts.bagwise")
    index_of_fit(fit, None, folder, FitOptions()).save(place / "texts.index")
    write_text_folder(place / "others", seed=5, n_each=4)
    return place


@pytest.fixture
def place(tmp_path, learned):
    """The same files, which may be changed."""
    for name in ("texts.bagwise", "texts.index"):
        shutil.copy(learned / name, tmp_path / name)
    return tmp_path


def client(space):
    app = Guard(make_app(space), token=TOKEN, hosts=[HOST], most_bytes=1 << 20)

    def send(path, content=None, code=200, **headers):
        given = {"host": HOST, "cookie": f"bagwise-8000={TOKEN}", "origin": f"http://{HOST}", **headers}
        body, method = (b"", "GET") if content is None else (content, "POST")
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, _, answered = asyncio.run(respond(app, method, f"/api/{path}", given, body))
        assert status == code, answered
        return answered if code == 403 and not answered.startswith(b"{") else json.loads(answered)

    return send


def opened(place, learned, kind):
    source = {"index": None, "model": learned / "texts", "others": learned / "others", "none": None}[kind]
    return open_workspace(place / ("texts.index" if kind == "index" else "texts.bagwise"), source)


@pytest.mark.parametrize("kind", ["index", "model", "others", "none"])
def test_an_edit_is_measured_saved_undone_and_made_again(place, learned, kind):
    space = opened(place, learned, kind)
    send, path = client(space), space.editor.path
    before, first = space.model, send("steer")["now"]
    assert (first is None) == (kind == "none")
    for revision, edit in enumerate((JOIN, {**SPLIT, "n_groups": 5})):
        told = send("steer/edit", {"edit": edit, "revision": revision})
    assert [told[name] for name in ("revision", "n_groups", "n_edits")] == [2, 6, 2]
    assert told["saved"] == {"path": str(path), "changed": True, "problem": None}
    edits = told["edits"]
    assert [(one["from"], one["to"]) for one in edits] == [(5, 6), (6, 5)]
    assert edits[1]["text"] == f"Joined “{space.cut(6).title(1)}” and “{space.cut(6).title(3)}”"
    if kind == "none":
        assert told["now"] is None
        assert "No items are shown" in told["why_not"]
    else:
        assert edits[0]["before"] == edits[1]["after"]
        assert edits[1]["before"] == first
        assert told["now"] == edits[0]["after"]
        begins = {
            "index": "3-fold",
            "model": "36 training items, by",
            "others": "12 items with labels, by a classifier",
        }
        assert told["now"]["protocol"].startswith(begins[kind])
    for n in (None, 5, 6):  # all pages show the edited model
        assert send(f"overview{'' if n is None else f'?n={n}'}")["steer"]["n_edits"] == 2
    after = space.editor.space.model
    assert send("overview")["n_groups"] == 6
    assert len(send("groups?n=5")["groups"]) == 5
    loaded = ItemIndex.load(path).model if kind == "index" else Model.load(path)
    assert loaded == after
    assert loaded.edits == (JOIN, {**SPLIT, "n_groups": 5})
    assert loaded.undo(2).hierarchy == before.hierarchy
    assert ("derived_head" not in loaded.provenance) == (kind == "index")  # trained, not derived
    told = send("steer/undo", {"revision": 2})
    assert (told["n_groups"], told["n_edits"], len(told["undone"])) == (5, 1, 1)
    told = send("steer/undo", {"revision": 3})
    assert (told["n_groups"], told["n_edits"], told["edits"]) == (6, 0, [])
    assert space.editor.space.model == before
    assert "There is no edit to undo" in send("steer/undo", {"revision": 4}, 400)["error"]
    send("steer/redo", {"revision": 4})
    told = send("steer/redo", {"revision": 5})
    assert space.editor.space.model == after
    assert (told["undone"], told["now"]) == ([], edits[0]["after"])
    assert "no edit to make again" in send("steer/redo", {"revision": 6}, 400)["error"]


def test_undo_goes_on_after_a_restart(place, learned):
    space = opened(place, learned, "index")
    space.editor.edit(RENAME, 0)
    assert "edited" not in ItemIndex.load(space.editor.path).answers.protocol
    space.editor.edit(JOIN, 1)
    held = ItemIndex.load(space.editor.path).answers
    assert 6 in held.sizes  # as before: groups are joined one level earlier
    again = opened(place, learned, "index")
    send = client(again)
    told = send("steer")
    assert [one["text"] for one in told["edits"]] == ["Joined group 1 and group 3", "Named group 2 “<b>felines</b>”"]
    told = send("steer/undo", {"revision": 0})
    assert told["edits"][0]["text"] == "Named group 2 “<b>felines</b>”"
    assert send("groups?n=6&sort=number")["groups"][2]["name"] == "<b>felines</b>"
    assert send("steer/redo", {"revision": 1})["n_groups"] == 5
    assert again.editor.space.model == space.editor.space.model
    saved = ItemIndex.load(again.editor.path).answers
    assert (saved.sizes, saved.protocol) == (held.sizes, held.protocol)
    send("steer/undo", {"revision": 2})
    send("steer/undo", {"revision": 3})
    assert opened(place, learned, "index").model.edits == ()
    assert again.editor.path.read_bytes() == (learned / "texts.index").read_bytes()  # with all answers


def test_items_of_an_index_have_answers_of_the_folds(place, learned):
    space = opened(place, learned, "index")
    editor = space.editor
    editor.edit(JOIN, 0)
    answers = ItemIndex.load(editor.path).answers
    assert 5 in answers.sizes
    assert "edited groups" in answers.protocol
    assert (answers.origins == HELD_OUT).all()
    row, found = answers.rows[5], editor.current.measured
    for one, other in zip(row.arrays, found.held_out.arrays, strict=True):
        np.testing.assert_array_equal(one, other)
    wrong = editor.space.cut(5).error
    assert wrong == pytest.approx(found.error, abs=0.02)  # a mean over items, and over folds
    # answers stay where groups do, and go where they changed
    same = [n for n in space.items._answers.sizes if n in editor.space.items._answers.sizes and n != 5]
    for n in space.items._answers.sizes:
        unchanged = np.array_equal(space.model.hierarchy.cut(n), editor.space.model.hierarchy.cut(n))
        assert (n in same) == unchanged or n == 5
        if unchanged:
            np.testing.assert_array_equal(answers.rows[n].predicted, space.items._answers.rows[n].predicted)
    assert space.cut(6).model.n_groups == 6  # requests that began before see the model as it was
    assert space.model.edits == ()


def test_errors_are_those_of_the_overview_at_every_size(place, learned):
    space = opened(place, learned, "index")
    path, send = space.model.path, client(space)
    for n, error, spread in zip(path.sizes, path.errors, path.standard_errors, strict=True):
        found = space.editor._measured(space.model.cut(n))
        assert (found.error, found.standard_error, found.protocol) == (error, spread, path.protocol)
        again = space.items.steering.measure(space.model.cut(n))  # from the words that the index holds
        assert (again.error, again.standard_error) == (pytest.approx(error), pytest.approx(spread))
        np.testing.assert_array_equal(again.held_out.predicted, space.cut(n).answers.predicted)
    told = send("steer/edit", {"edit": JOIN, "revision": 0})
    k = path.sizes.index(6)
    assert told["edits"][0]["before"]["error"] == path.errors[k] == send("overview?n=6")["path"]["errors"][k]


def test_a_link_of_words_of_one_group_leaves_the_error(place, learned):
    space = opened(place, learned, "index")
    words = np.flatnonzero(space.model.lookup == np.bincount(space.model.lookup).argmax())[:2].tolist()
    told = client(space)("steer/edit", {"edit": {"edit": "must_link", "n_groups": 6, "words": words}, "revision": 0})
    assert np.array_equal(space.editor.space.model.lookup, space.model.lookup)
    assert told["now"]["error"] == space.editor.space.cut(6).error == space.cut(6).error
    assert told["now"]["protocol"] == space.model.path.protocol


def test_items_that_have_lost_their_folds_are_measured_without(place, learned):
    path = place / "texts.index"
    index = ItemIndex.load(path)
    index.remove(index.ids[:1]).save(path)
    space = open_workspace(path)
    space.editor.edit(JOIN, 0)
    assert space.editor.current.measured.protocol.startswith("35 training items")
    assert 5 not in ItemIndex.load(path).answers.sizes


def test_two_windows(place, learned):
    send = client(opened(place, learned, "index"))
    send("steer/edit", {"edit": RENAME, "revision": 0})
    for kind, content in (("edit", {"edit": JOIN}), ("undo", {}), ("redo", {})):
        assert "Reload the page" in send(f"steer/{kind}", {**content, "revision": 0}, 409)["error"]
    assert send("steer")["n_edits"] == 1


def test_read_only(place, learned):
    space = open_workspace(place / "texts.index", read_only=True)
    send, content = client(space), (place / "texts.index").read_bytes()
    for kind in ("edit", "undo", "redo", "save"):
        told = send(f"steer/{kind}", {"edit": RENAME, "revision": 0}, 403)
        assert told["error"] == "The explorer was started with --read-only, so that nothing can be changed."
    assert send("overview")["steer"]["read_only"]
    assert send("steer")["now"]["error"] >= 0
    assert (place / "texts.index").read_bytes() == content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "JSON object"),
        (b"[" * 100_000, "JSON object"),
        ([], "JSON object"),
        ({"revision": 0}, "An edit must be a JSON object, got None"),
        ({"edit": RENAME}, "revision that it is based on"),
        ({"edit": RENAME, "revision": True}, "revision that it is based on"),
        ({"edit": {**RENAME, "group": 6}, "revision": 0}, "A group must be a number from 0 to 5; got 6."),
        ({"edit": {**RENAME, "n_groups": 0}, "revision": 0}, "n_groups must be"),
        ({"edit": {"edit": "explode"}, "revision": 0}, "explode"),
        ({"edit": {"edit": "move", "n_groups": 6, "words": [10**9], "to": 1}, "revision": 0}, "A word must be"),
    ],
)
def test_bad_edits_are_refused_and_change_nothing(place, learned, content, message):
    space = opened(place, learned, "none")
    send = client(space)
    error = send("steer/edit", content, 400)["error"]
    assert message in error
    assert not error.startswith("Edit 1")
    assert space.editor.space is space
    assert send("steer")["n_edits"] == 0


@pytest.mark.parametrize("headers", [{"origin": "http://evil.example"}, {"origin": "null"}, {"cookie": ""}])
def test_edits_of_other_pages_are_refused(place, learned, headers):
    space = opened(place, learned, "none")
    client(space)("steer/edit", {"edit": RENAME, "revision": 0}, 403, **headers)
    assert space.editor.space is space


def test_what_cannot_be_saved_is_told(place, learned, monkeypatch):
    space = opened(place, learned, "none")
    send, path = client(space), place / "texts.bagwise"
    monkeypatch.setattr(Model, "save", lambda self, path: (_ for _ in ()).throw(PermissionError(13, "Read-only")))
    told = send("steer/edit", {"edit": RENAME, "revision": 0})
    assert "Read-only" in told["saved"]["problem"]
    assert Model.load(path).edits == ()
    monkeypatch.undo()
    assert send("steer/save", {"revision": 1})["saved"]["problem"] is None
    assert Model.load(path).edits == (RENAME,)
    Model.load(path).rename_groups({1: "other"}).save(path)  # by another program
    told = send("steer/edit", {"edit": JOIN, "revision": 1})
    assert "was changed by another program" in told["saved"]["problem"]
    assert len(Model.load(path).edits) == 2
    path.unlink()
    assert "was removed by another program" in send("steer/save", {"revision": 2})["saved"]["problem"]


def test_an_edit_that_fails_is_not_in_the_next_one(place, learned, monkeypatch):
    space = opened(place, learned, "index")
    now = space.editor
    now.edit(RENAME, 0)
    now.undo(1)
    told = now.shown
    with monkeypatch.context() as patch:
        patch.setattr(editor, "with_edited_model", lambda *given: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            now.edit(JOIN, 2)
        patch.setattr(Workspace, "edited", lambda *given: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            now.redo(2)
    assert (now.shown, now.current.model) == (told, now.space.model)
    now.redo(2)
    assert ItemIndex.load(now.path).model.edits == now.current.model.edits == (RENAME,)


def bytes_with(model, name, place):
    """The file of a model with a named group."""
    return model.rename_groups({2: name}).save(place / "other.bagwise").read_bytes()


def test_a_change_that_leaves_size_and_time_is_noticed(place, learned):
    space = opened(place, learned, "none")
    send, path = client(space), place / "texts.bagwise"
    before = space.model
    assert send("steer/edit", {"edit": {**RENAME, "name": "first"}, "revision": 0})["saved"]["problem"] is None
    times, other = path.stat(), bytes_with(before, "other", place)
    assert len(other) == times.st_size
    with open(path, "rb+") as file:  # the same file
        file.write(other)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    told = send("steer/edit", {"edit": JOIN, "revision": 1})
    for part in ("was changed by another program since", "left as it is", "Start the explorer again"):
        assert part in told["saved"]["problem"]
    assert path.read_bytes() == other


def test_a_change_while_items_are_counted_is_noticed(place, learned, monkeypatch):
    path, count = place / "texts.bagwise", serving.count_items
    saved = []

    def counted(*given, **options):
        first = open_workspace(path)  # another program loads, edits and saves it
        saved.append(client(first)("steer/edit", {"edit": RENAME, "revision": 0})["saved"]["problem"])
        return count(*given, **options)

    monkeypatch.setattr(serving, "count_items", counted)
    second = open_workspace(path, learned / "texts")
    told = client(second)("steer/edit", {"edit": JOIN, "revision": 0})
    assert saved == [None]
    assert "was changed by another program since" in told["saved"]["problem"]
    assert Model.load(path).edits == (RENAME,)


def test_a_file_with_the_same_content_is_not_changed(place, learned):
    space = opened(place, learned, "index")
    path = place / "texts.index"
    shutil.copy(path, place / "copy")
    os.replace(place / "copy", path)  # another file, at another time
    path.chmod(0o600)
    send = client(space)
    assert send("steer/edit", {"edit": RENAME, "revision": 0})["saved"]["problem"] is None
    assert ItemIndex.load(path).model.edits == (RENAME,)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["index", "none"])
def test_of_two_that_save_at_the_same_moment_one_wins(place, learned, monkeypatch, kind):
    spaces = [opened(place, learned, kind) for _ in range(2)]
    path, file = spaces[0].editor.path, ItemIndex if kind == "index" else Model
    save, inside, waits, go = file.save, threading.Event(), threading.Event(), threading.Event()

    def slow(self, path):
        inside.set()
        assert go.wait(PATIENCE)
        return save(self, path)

    monkeypatch.setattr(file, "save", slow)
    monkeypatch.setattr(locks, "locked", lambda path: locked(path, waiting=waits.set))
    told = {}

    def saving(k, edit):
        told[k] = client(spaces[k])("steer/edit", {"edit": edit, "revision": 0})["saved"]["problem"]

    threads = [threading.Thread(target=saving, args=(k, edit)) for k, edit in enumerate((RENAME, SPLIT))]
    threads[0].start()
    assert inside.wait(PATIENCE)  # the first has looked at the file, and has not replaced it
    threads[1].start()
    assert waits.wait(PATIENCE)
    go.set()
    for thread in threads:
        thread.join()
    assert told[0] is None
    assert "was changed by another program since" in told[1]
    assert (ItemIndex.load(path).model if kind == "index" else Model.load(path)).edits == (RENAME,)


def test_lines_of_python_make_the_same_edits(place, learned):
    space = opened(place, learned, "none")
    send = client(space)
    names = space.model.word_names
    words = np.flatnonzero(space.model.lookup == 0)[:2].tolist()
    move = {"edit": "move", "n_groups": 6, "words": words, "to": 3}
    for revision, edit in enumerate((RENAME, move)):
        lines = send("steer/edit", {"edit": edit, "revision": revision})["python"]
    assert repr([names[word] for word in words]) in lines
    readers = [send, client(open_workspace(place / "texts.bagwise", read_only=True))]
    for lines in [read("steer")["python"] for read in readers]:
        exec(lines.replace("'texts.edited.bagwise'", repr(str(place / "edited.bagwise"))), {})
        edited = Model.load(place / "edited.bagwise")
        assert edited.edits == space.editor.space.model.edits
        assert edited.hierarchy == space.editor.space.model.hierarchy
    assert space.editor.current.text.startswith(f"Moved {names[words[0]]} and {names[words[1]]} to “")


def test_locks_and_links_are_listed_and_taken_back(place, learned):
    space = opened(place, learned, "none")
    send, names = client(space), space.model.word_names
    words = [names.index("hammer"), names.index("apple")]
    send("steer/edit", {"edit": {"edit": "must_link", "n_groups": 6, "words": words}, "revision": 0})
    told = send("steer/edit", {"edit": {"edit": "lock", "n_groups": 6, "group": 1}, "revision": 1})
    assert told["links"] == [{"together": True, "words": sorted(words), "names": sorted(["hammer", "apple"])}]
    assert told["edits"][1]["text"] == "Put hammer and apple into one group"
    lookup = space.editor.space.model.lookup
    assert lookup[words[0]] == lookup[words[1]]
    locked = [one["number"] for one in send("groups?n=6")["groups"] if one["locked"]]
    assert [one["group"] for one in told["locked"]] == locked == [1]
    most = send("overview")["most_groups"]  # where they are whole still
    finest, own = space.editor.space.cut(most).model.lookup, space.editor.space.model.lookup == 1
    assert finest[words[0]] == finest[words[1]]
    assert len(set(finest[own].tolist())) == 1
    assert len(names) - most == own.sum() - 1 + (0 if own[words].all() else 1)
    send(f"overview?n={most + 1}", code=400)
    send("steer/edit", {"edit": {"edit": "unlock", "n_groups": 6, "group": 1}, "revision": 2})
    told = send("steer/edit", {"edit": {"edit": "unlink", "n_groups": 6, "words": words}, "revision": 3})
    assert (told["locked"], told["links"]) == ([], [])


def test_an_index_by_groups_is_renamed_only(place, learned):
    from bagwise.app import count_words, open_items

    model = Model.load(place / "texts.bagwise")
    items = open_items(model, learned / "texts")
    ItemIndex.build(model, items, count_words(model, items).matrix, by="groups", source=learned / "texts").save(
        place / "texts.index"
    )
    space = opened(place, learned, "index")
    assert space.items.histograms is not None
    assert client(space)("overview")["steer"]["kinds"] == ["rename"]
    with pytest.raises(Exception, match="compared by the groups of its model"):
        space.editor.edit(JOIN, 0)
    space.editor.edit(RENAME, 0)
    assert ItemIndex.load(place / "texts.index").model.edits == (RENAME,)


def test_a_model_without_a_file(learned):
    space = Workspace(Model.load(learned / "texts.bagwise"))
    send = client(space)
    assert send("overview")["steer"]["kinds"] == list(EDITS)
    assert client(Workspace(space.model.compact()))("overview")["steer"]["kinds"] == ["rename"]
    assert send("steer/edit", {"edit": RENAME, "revision": 0})["saved"]["path"] is None
    with pytest.raises(Refused):
        space.editor.undo(0)


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        ({"edit": "rename", "group": 1, "name": None}, "Took back the name of group 1"),
        ({"edit": "move", "words": [4], "to": None}, "Moved word 4 to a new group"),
        ({"edit": "move", "words": list("abcdefgh"), "to": 2}, "Moved a, b, c, d, e and 3 more to group 2"),
        ({"edit": "join", "groups": list(range(8))}, "Joined group 0, group 1, group 2, group 3, group 4 and 3 more"),
        ({"edit": "cannot_link", "words": ["a", "b"]}, "Kept a and b in different groups"),
        ({"edit": "unlock", "group": 0}, "Unlocked group 0"),
    ],
)
def test_edits_in_words(edit, text):
    assert described(edit) == text
