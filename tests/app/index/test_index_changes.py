"""Items that are added to an index and removed from it: the index is that of the items left, built anew."""

import dataclasses
import errno
import fcntl
import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from bagwise import BagwiseError
from bagwise._io.locks import FileChanged, locked
from bagwise.app import FitOptions, ItemIndex, change_index, run_fit
from bagwise.app.index.item_index import index_of_fit
from bagwise.app.training.item_answers import HELD_OUT, NEW, TRAINING
from bagwise.sources import Collection
from waiting import PATIENCE

N_WORDS = 24


def rows(n, seed):
    random = np.random.default_rng(seed)
    codes = random.integers(3, size=n)
    X = random.poisson(np.where(np.arange(N_WORDS) % 3 == codes[:, None], 3.0, 0.4)).astype(np.float64)
    return X, codes


def collection(X, codes, name):
    return Collection.from_matrix(X, [f"{name}{i}" for i in range(len(X))], [(f"class{code}",) for code in codes])


@pytest.fixture(scope="module")
def fitted():
    """A fit with cross-validation, and its items."""
    X, codes = rows(60, 0)
    items = collection(X, codes, "old")
    return run_fit(items, FitOptions(n_groups=6, folds=3, n_jobs=1)), items, X


@pytest.fixture(scope="module")
def model(fitted):
    return fitted[0].model


def assert_same(index, expected, rtol=1e-6):
    assert (index.ids, index.labels, index.by) == (expected.ids, expected.labels, expected.by)
    queries = rows(9, 5)[0]
    for by in ("words", "classes", "both") if index.by == "both" else (index.by,):
        for found, wanted in zip(index.search(queries, 7, by=by), expected.search(queries, 7, by=by), strict=True):
            np.testing.assert_allclose([hit.score for hit in found], [hit.score for hit in wanted], rtol=rtol)
            assert [hit.id for hit in found] == [hit.id for hit in wanted]
    if expected.blend is not None:
        np.testing.assert_array_equal(index.blend.certainty, expected.blend.certainty)
        np.testing.assert_allclose(index.blend.typical, expected.blend.typical, rtol=1e-6)
    assert index.answers.sizes == expected.answers.sizes
    np.testing.assert_array_equal(index.answers.origins, expected.answers.origins)
    for one, other in zip(index.answers.top.arrays, expected.answers.top.arrays, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("by", "metric"),
    [("both", None), ("classes", None), ("words", None), ("words", "chi2"), ("groups", None), ("groups", "euclidean")],
)
def test_it_is_the_index_of_what_is_left(model, tmp_path, by, metric):
    X, codes = rows(50, 1)
    X[[3, 40]] = 0  # items without words
    every = collection(X, codes, "item")
    index = ItemIndex.build(model, every[:30], X[:30], by=by, metric=metric)
    before = index.save(tmp_path / "before.index").read_bytes()
    changed = index.add(every[30:45], X[30:45]).remove(["item7", "item44", "item0"]).add(every[45:], X[45:])
    changed = ItemIndex.load(changed.save(tmp_path / "one.index")).remove(["item31"])
    left = [i for i in range(50) if i not in (0, 7, 31, 44)]
    assert_same(changed, ItemIndex.build(model, every[left], X[left], by=by, metric=metric))
    assert index.save(tmp_path / "again.index").read_bytes() == before  # the first one has not changed
    assert len(index.remove(list(index.ids))) == 0
    assert_same(index.remove(list(index.ids)).add(every, X), ItemIndex.build(model, every, X, by=by, metric=metric))


def test_answers_tell_what_the_model_was_learned_from(fitted, tmp_path):
    fit, items, X = fitted
    index = index_of_fit(fit, None, items, FitOptions())
    assert (index.answers.origins == HELD_OUT).all()
    new, codes = rows(8, 3)
    new[2] = X[5]  # the model was learned from this one
    more = index.add(collection(new, codes, "new"), new)
    expected = [NEW, NEW, TRAINING, *[NEW] * 5]
    assert more.answers.origins[60:].tolist() == expected
    np.testing.assert_array_equal(more.answers.fair(more.ids)[60:], np.array(expected) == NEW)
    for before, now in zip(index.answers.top.arrays, more.answers.top.arrays, strict=True):
        np.testing.assert_array_equal(now[:, :60], before)  # those of cross-validation stay
    assert more.answers.protocol == index.answers.protocol != ""
    without = more.remove(items.ids)
    assert (without.answers.origins.tolist(), without.answers.protocol) == (expected, "")
    # what is replaced has the answer of the model, which has seen it
    again = index.add(items[4:6], X[4:6], replace=True)
    assert again.ids == (*items.ids[:4], *items.ids[6:], *items.ids[4:6])
    assert again.answers.origins.tolist() == [HELD_OUT] * 58 + [TRAINING] * 2
    loaded = ItemIndex.load(again.save(tmp_path / "again.index"))
    np.testing.assert_array_equal(loaded.answers.origins, again.answers.origins)


def test_answers_before_edits_follow(fitted):
    fit, items, _ = fitted
    index = index_of_fit(fit, None, items, FitOptions())
    edited = fit.model.apply([{"edit": "join", "n_groups": 6, "groups": [0, 1]}])
    size = max(index.answers.sizes)
    answers = index.answers.replaced({size: index.answers.rows[size]}, "folds", index.answers)
    index = dataclasses.replace(index, model=edited, answers=answers)
    new, codes = rows(5, 4)
    found = index.add(collection(new, codes, "new"), new).remove(["old0", "new4"]).answers
    assert found.sizes == (size,)
    assert found.unedited.sizes == index.answers.unedited.sizes
    plain = ItemIndex.build(fit.model, collection(new, codes, "new"), new).answers
    for got, wanted in zip(found.unedited.top.arrays, plain.top.arrays, strict=True):
        np.testing.assert_array_equal(got[:, 59:], wanted[:, :4])


@pytest.mark.parametrize("by", ["both", "words"])
def test_new_items_are_placed_among_their_neighbours(model, by):
    X, codes = rows(60, 6)
    index = ItemIndex.build(model, collection(X, codes, "item"), X, by=by).with_map()
    new = np.vstack([X[:5], np.zeros((1, N_WORDS))])
    more = index.add(collection(new, codes[:6], "new"), new)
    np.testing.assert_array_equal(more.map.points[:60], index.map.points)
    np.testing.assert_array_equal(more.map.clusters[60:65], index.map.clusters[:5])  # nearest to their copies
    assert (more.map.clusters[65], more.map.points[65].tolist(), more.map.n_arranged) == (-1, [0, 0], 60)
    found = index.search(new[:1], 5, by="words")[0]
    near = [index.ids.index(hit.id) for hit in found]
    np.testing.assert_allclose(more.map.points[60], np.median(index.map.points[near], axis=0))
    fewer = more.remove(["item0", "new1"])
    kept = [i for i in range(66) if i not in (0, 61)]
    np.testing.assert_array_equal(fewer.map.points, more.map.points[kept])
    np.testing.assert_array_equal(fewer.map.clusters, more.map.clusters[kept])
    empty = index.remove(index.ids)
    assert len(empty.map) == 0
    assert empty.add(collection(X, codes, "item"), X).map is None


def test_what_is_refused(model, tmp_path):
    X, codes = rows(6, 7)
    index = ItemIndex.build(model, collection(X, codes, "item"), X)
    numbered = Collection.from_matrix(X, labels=[("class0",)] * 6)
    of_rows = ItemIndex.build(model, numbered, X)
    for call, message in (
        (lambda: of_rows.add(numbered[:2], X[:2]), "'0', '1'.* They are numbers of rows; .* column of ids by id="),
        (lambda: index.add(collection(X, codes, "item"), X), "6 of 6 items are in the index already: 'item0', .*, …"),
        (lambda: index.add(collection(X, codes, "new"), X[:2]), "a row for each of 6 items, got 2"),
        (lambda: index.add(collection(X, codes, "new"), sp.csr_array(X[:2])), "a row for each of 6 items, got 2"),
        (lambda: index.remove(["item1", "x", "y"]), "2 of 3 ids are not in this index of 6 items: 'x', 'y'. None"),
        (lambda: index.remove("item1"), r"Give a single one as \['item1'\]"),
        (lambda: change_index(tmp_path, lambda index: index), "is not an index"),
        (lambda: change_index(tmp_path / "none", lambda index: index), "none does not exist"),
    ):
        with pytest.raises(BagwiseError, match=message):
            call()
    path = index.save(tmp_path / "one.index")
    before = path.read_bytes()
    with pytest.raises(BagwiseError, match="not in this index"):
        change_index(path, lambda index: index.remove(["item0"]).remove(["item0"]))
    assert path.read_bytes() == before
    assert {one.name for one in tmp_path.iterdir()} == {"one.index", ".one.index.lock"}


def test_changes_at_the_same_time_are_all_made(model, tmp_path):
    X, codes = rows(8, 8)
    path = ItemIndex.build(model, collection(X, codes, "item"), X).save(tmp_path / "one.index")
    waits = threading.Semaphore(0)

    def run(number):
        more = collection(X[:1], codes[:1], f"new{number}-")
        change_index(path, lambda index: index.add(more, X[:1]), waiting=waits.release)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    with locked(path):
        for thread in threads:
            thread.start()
        for _ in threads:
            assert waits.acquire(timeout=PATIENCE)
        ItemIndex.load(path).remove(["item0"]).save(path)  # readers, and the one with the lock, go on
        assert len(ItemIndex.load(path)) == 7
    for thread in threads:
        thread.join()
    assert sorted(ItemIndex.load(path).ids) == sorted(
        [f"item{i}" for i in range(1, 8)] + [f"new{i}-0" for i in range(6)]
    )


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOTSUP, "It is not supported"), NotImplementedError("It is not supported")]
)
def test_a_file_system_without_locks(model, tmp_path, monkeypatch, error):
    X, codes = rows(4, 8)
    index = ItemIndex.build(model, collection(X, codes, "item"), X)
    path = index.save(tmp_path / "one.index")

    def refuse(file, how):
        raise error

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(BagwiseError, match=r"one.index cannot be locked: It is not supported. .* another file\."):
        change_index(path, lambda index: index.remove(["item0"]))
    index.remove(["item1"]).save(path)
    assert ItemIndex.load(path).ids == ("item0", "item2", "item3")


def test_what_a_program_without_locks_wrote_is_not_replaced(model, tmp_path):
    X, codes = rows(4, 8)
    index = ItemIndex.build(model, collection(X, codes, "item"), X)
    path, other = index.save(tmp_path / "one.index"), index.remove(["item1"])

    def change(loaded):
        other.save(path)  # it asks for no lock
        return loaded.remove(["item0"])

    with pytest.raises(FileChanged, match=r"one.index was changed by another program since it was read"):
        change_index(path, change)
    assert ItemIndex.load(path).ids == other.ids


def test_a_killed_process_keeps_no_lock(tmp_path):
    path = tmp_path / "file"
    path.write_text("x")
    lines = (
        "import sys",
        "from bagwise._io.locks import FileChanged, locked",
        "with locked(sys.argv[1]):",
        "    print('held', flush=True)",
        "    sys.stdin.read()",  # until it is killed
    )
    code = "\n".join(lines)
    command = [sys.executable, "-c", code, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        waited = []

        def end():
            waited.append(True)
            process.kill()

        with locked(path, waiting=end):
            assert waited
    assert {one.name for one in tmp_path.iterdir()} == {"file", ".file.lock"}
