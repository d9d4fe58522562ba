"""Files of `BagIndex`: what is saved is what is opened, and everything in them is checked."""

import json
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from bagwise import BagIndex, BagwiseError
from bagwise.retrieval.histograms import METRICS
from changed_files import write_arrays

NAMES = ["a", "", "\n tab\t", "ä 東京 🐈", "not unicode \udcff", "/some/path with spaces.jpg"]


def mixed(n=40, n_words=12, seed=0):
    """Half sparse items, half dense ones."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 6, (n, n_words)).astype(np.float32)
    X[: n // 2] *= rng.random((n // 2, n_words)) < 0.15
    return X


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("bagwise.retrieval.store.BLOCK_ITEMS", 10)


def same(found, expected):
    np.testing.assert_array_equal(found[1], expected[1])
    assert found[0].tobytes() == expected[0].tobytes()


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("metric", sorted(METRICS))
@pytest.mark.parametrize("names", [True, False])
def test_loading_gives_what_was_saved(tmp_path, small_blocks, metric, mmap, names):
    X, Q = mixed(), mixed(seed=1)
    ids = NAMES + [f"item {i}" for i in range(len(X) - len(NAMES))] if names else None
    index = BagIndex(metric, normalize="l1", n_candidates=33, metadata={"model": ["ä", 1.5]}).add(X, ids)
    expected = index.search(Q)
    path = tmp_path / "index"
    assert index.save(path) == path
    loaded = BagIndex.load(path, mmap=mmap, n_jobs=2)
    assert (loaded.metric, loaded.method, loaded.normalize, loaded.n_candidates) == (metric, "exact", "l1", 33)
    assert loaded.metadata == {"model": ["ä", 1.5]}
    assert (len(loaded), loaded.n_words) == (40, 12)
    assert loaded.nbytes == index.nbytes
    same(loaded.search(Q), expected)
    assert loaded.ids.tolist() == index.ids.tolist()
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("mmap", [True, False])
def test_a_loaded_index_goes_on(tmp_path, small_blocks, mmap):
    X, Q = mixed(60), mixed(seed=1)
    names = [f"item {i}" for i in range(60)]
    path = BagIndex("chi2").add(X[:40], names[:40]).save(tmp_path / "index")
    before = path.read_bytes()
    loaded = BagIndex.load(path, mmap=mmap).remove(names[3:7]).add(sp.csr_array(X[40:]), names[40:])
    left = [i for i in range(60) if not 3 <= i < 7]
    expected = BagIndex("chi2").add(X[left], [names[i] for i in left]).search(Q)
    same(loaded.search(Q), expected)
    with pytest.raises(BagwiseError, match="'item 8' is in the index"):
        loaded.add(X[:1], ["item 8"])
    assert path.read_bytes() == before
    loaded.save(path)  # over the file that is mapped
    same(loaded.search(Q), expected)
    same(BagIndex.load(path).search(Q), expected)


def test_numbers_go_on_after_loading(tmp_path):
    path = BagIndex("inner").add(np.eye(3)).remove([2]).save(tmp_path / "index")
    assert BagIndex.load(path).add(np.eye(3)[:1]).ids.tolist() == [0, 1, 3]


@pytest.mark.parametrize("index", [BagIndex("inner"), BagIndex("inner").add(np.eye(3)).remove([0, 1, 2])])
def test_an_empty_index_is_saved_as_well(tmp_path, index):
    loaded = BagIndex.load(index.save(tmp_path / "index"))
    assert (len(loaded), loaded.n_words) == (0, index.n_words)
    assert len(loaded.add(np.eye(3), list("abc"))) == 3
    assert loaded.search(np.eye(3), 1)[1].ravel().tolist() == list("abc")


@given(st.lists(st.text(st.characters()), unique=True, min_size=1, max_size=8))
def test_any_string_is_an_identifier(tmp_path_factory, names):
    index = BagIndex("inner").add(np.eye(len(names)), names)
    path = index.save(tmp_path_factory.mktemp("index") / "index")
    for mmap in (True, False):
        loaded = BagIndex.load(path, mmap=mmap)
        assert loaded.search(np.eye(len(names)), 1)[1].ravel().tolist() == names
        assert loaded.ids.tolist() == names


@pytest.mark.parametrize("structure", ["flat", "ivf", "hnsw"])
def test_approximate_search_goes_on_after_loading(tmp_path, structure):
    pytest.importorskip("faiss")
    X, Q = mixed(500), mixed(seed=1)
    index = BagIndex("intersection", method="approximate", structure=structure, n_probe=4, n_candidates=20).add(X)
    path = index.save(tmp_path / "index")
    loaded = BagIndex.load(path)
    assert (loaded.method, loaded.n_probe, loaded.n_candidates) == ("approximate", 4, 20)
    same(loaded.search(Q), index.search(Q))


def test_opening_does_not_read_the_lists(tmp_path):
    rng = np.random.default_rng(0)
    X = sp.csr_array(sp.random(20_000, 500, density=0.1, format="csr", random_state=rng, dtype=np.float32))
    path = BagIndex("inner").add(X).save(tmp_path / "index")
    assert path.stat().st_size > 6 * X.nnz
    tracemalloc.start()
    loaded = BagIndex.load(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.1 * X.nnz
    same(loaded.search(X[:3]), BagIndex("inner").add(X).search(X[:3]))


def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    index = BagIndex().add(mixed())
    path = index.save(tmp_path / "index")
    before = path.read_bytes()

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr("bagwise._io.tensors.TensorWriter.write", full)
    with pytest.raises(OSError, match="No space left"):
        index.add(mixed()).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"model": object()}, "what JSON can hold.*object"),
        ({"score": float("nan")}, "what JSON can hold"),
        ([], "metadata must be a dict, got list"),
        ({"text": "x" * 100_000}, "metadata takes 1000.. bytes"),
    ],
)
def test_metadata_must_be_small_and_plain(tmp_path, metadata, message):
    index = BagIndex().add(np.eye(2))
    index.metadata = metadata
    with pytest.raises(BagwiseError, match=message):
        index.save(tmp_path / "index")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bagwise.retrieval.store.BLOCK_ITEMS", 10)
        index = BagIndex("chi2").add(mixed(), [f"item {i}" for i in range(40)])
        return index.save(folder / "index")


def changed(path, new, *, header=None, arrays=None):
    """A copy of the file with other contents, laid out as ours are."""
    content = path.read_bytes()
    entries = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    about = json.loads(entries["__metadata__"]["bagwise"])
    if header is not None:
        header(about)
    tensors = {name: np.array(array) for name, array in load_file(path).items()}
    for name, change in (arrays or {}).items():
        tensors[name] = np.ascontiguousarray(change(tensors[name]))
    write_arrays(new, tensors, about)
    return new


def with_entry(array, place, value):
    array[place] = value
    return array


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize(
    ("header", "message"),
    [
        (lambda h: h.update(schema=99), "has schema 99"),
        (lambda h: h.pop("kind"), r"holds None, not 'bagwise\.BagIndex'"),
        (lambda h: h.pop("parameters"), "damaged.*parameters"),
        (lambda h: h["parameters"].update(metric="l7"), "damaged: Unknown metric"),
        (lambda h: h["parameters"].update(colour="red"), "damaged.*colour"),
        (lambda h: h["parameters"].update(n_jobs=7), "damaged.*n_jobs"),
        (lambda h: h.update(metadata=7), "damaged"),
        (lambda h: h.update(n_words=2**40), "damaged: its dense has shape|damaged: its n_words is"),
        (lambda h: h.update(n_words=11), "damaged: its dense has shape .*because n_words is 11"),
        (lambda h: h.update(n_words=None), r"damaged: its items, inverted lists and dense rows number"),
        (lambda h: h.update(ids="int"), "damaged: it has 0 identifiers; expected 40"),
        (lambda h: h.update(ids=7), "damaged: its ids is 7"),
        (lambda h: h.update(next_number=-1), "damaged: its next_number is -1"),
    ],
)
def test_headers_are_not_believed(saved, tmp_path, header, message, mmap):
    with pytest.raises(BagwiseError, match=message):
        BagIndex.load(changed(saved, tmp_path / "index", header=header), mmap=mmap)


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"sizes": lambda a: with_entry(a, 0, 2**17)}, "sizes holds 131072; expected at most 65536"),
        ({"sizes": lambda a: with_entry(a, 0, 0)}, "sizes holds 0; expected at least 1"),
        ({"sizes": lambda a: with_entry(a, 0, 9)}, r"number \(39, .*expected \(40, "),
        ({"is_dense": lambda a: a[1:]}, "expected .*because n_blocks is"),
        ({"is_dense": lambda a: 1 - a[::-1] * 0}, "dense rows number"),
        ({"is_dense": lambda a: a + 2}, "its is_dense holds 3; expected at most 1"),
        ({"starts": lambda a: with_entry(a, (0, 0), 1)}, "starts of inverted lists must rise from 0"),
        ({"starts": lambda a: with_entry(a, (0, 3), 2**62)}, "starts of inverted lists must rise from 0"),
        ({"starts": lambda a: with_entry(a, (0, 3), -1)}, "starts of inverted lists must rise from 0"),
        ({"starts": lambda a: with_entry(a, (0, -1), 2**62)}, "its inverted lists end at"),
        ({"items": lambda a: a[1:]}, "because n_values is"),
        ({"values": lambda a: a[1:]}, "because n_values is"),
        ({"values": lambda a: a.astype(np.float64)}, "values has dtype float64; expected float32"),
        ({"dense": lambda a: a[1:]}, "dense rows number"),
        ({"dense": lambda a: a.ravel()}, r"dense has shape .*; expected 2 dimensions"),
        ({"id_offsets": lambda a: with_entry(a, 3, 2**40)}, "offsets of strings must rise"),
        ({"id_offsets": lambda a: a[:0]}, "offsets of strings must rise"),
        ({"id_text": lambda a: a[1:]}, "offsets of strings must rise"),
        ({"centres": lambda a: np.ones((2, 12), dtype=np.float32)}, "cells of 0 items; expected 40"),
        (
            {
                "centres": lambda a: np.ones((2, 12), dtype=np.float32),
                "cell_of": lambda a: np.full(40, 2, dtype=np.int32),
            },
            "its items are in cell 2; expected at most 1",
        ),
        ({"virus": lambda a: a}, None),
    ],
)
def test_arrays_are_not_believed(saved, tmp_path, arrays, message, mmap):
    if message is None:
        tensors = load_file(saved) | {"virus": np.ones(2)}
        content = saved.read_bytes()
        entries = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        write_arrays(tmp_path / "index", tensors, json.loads(entries["__metadata__"]["bagwise"]))
        with pytest.raises(BagwiseError, match=r"holds the tensors .*virus"):
            BagIndex.load(tmp_path / "index", mmap=mmap)
        return
    with pytest.raises(BagwiseError, match=message):
        BagIndex.load(changed(saved, tmp_path / "index", arrays=arrays), mmap=mmap)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"items": lambda a: with_entry(a, 0, 65535)}, "its items name item 65535 of 10"),
        ({"items": lambda a: np.zeros_like(a)}, "its items must rise"),
        ({"values": lambda a: with_entry(a, 0, np.nan)}, "expected finite numbers"),
        ({"dense": lambda a: with_entry(a, (0, 0), np.inf)}, "expected finite numbers"),
        ({"totals": lambda a: with_entry(a, 0, np.nan)}, "expected finite numbers"),
    ],
)
def test_lists_are_checked_when_they_are_read_and_do_no_harm_when_mapped(saved, tmp_path, arrays, message):
    path = changed(saved, tmp_path / "index", arrays=arrays)
    with pytest.raises(BagwiseError, match=f"damaged: .*{message}"):
        BagIndex.load(path, mmap=False)
    mapped = BagIndex.load(path)
    scores, ids = mapped.search(mixed(), 40)
    assert ids.shape == scores.shape == (40, 40)
    if "name item" in message:
        with pytest.raises(BagwiseError, match="index is damaged: an inverted list names item 65535"):
            mapped.remove(["item 0"]).blocks()  # a search would leave it out


def test_damaged_identifiers_are_noticed_when_they_are_used(saved, tmp_path):
    path = changed(saved, tmp_path / "index", arrays={"id_text": lambda a: np.full_like(a, 255)})
    with pytest.raises(BagwiseError, match="String 0 is not UTF-8"):
        _ = BagIndex.load(path).ids
    path = changed(saved, tmp_path / "index", arrays={"id_text": lambda a: np.full_like(a, ord("x"))})
    with pytest.raises(BagwiseError, match="same identifier twice"):
        BagIndex.load(path).remove(["item 0"])
