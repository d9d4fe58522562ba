import json
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file

from bagwise import Bags, BagwiseError
from bagwise.bags import BagsWriter
from changed_files import change_tensor


@st.composite
def lists_of_arrays(draw, dtype=np.float32, min_bags=0):
    width = draw(st.integers(1, 4))
    lengths = draw(st.lists(st.integers(0, 6), min_size=min_bags, max_size=8))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, width)).astype(dtype) for n in lengths]


def with_positions(arrays, seed=0):
    rng = np.random.default_rng(seed)
    return Bags.from_list(arrays, [rng.random((len(a), 2)) for a in arrays])


def small():
    return with_positions([np.arange(6).reshape(3, 2), np.empty((0, 2)), np.arange(6, 14).reshape(4, 2)])


@given(lists_of_arrays())
def test_a_list_is_kept(arrays):
    bags = Bags.from_list(arrays)
    assert len(bags) == len(arrays)
    assert bags.lengths.tolist() == [len(a) for a in arrays]
    assert bags.n_rows == sum(map(len, arrays))
    for bag, array, i in zip(bags, arrays, range(len(arrays)), strict=True):
        np.testing.assert_array_equal(bag, array)
        np.testing.assert_array_equal(bags[i], bags[i - len(arrays)])
    assert bags == Bags(bags.values, bags.offsets)
    assert pickle.loads(pickle.dumps(bags)) == bags


@given(lists_of_arrays(min_bags=1), st.data())
def test_choosing_bags_is_choosing_from_the_list(arrays, data):
    bags = with_positions(arrays)
    n = len(arrays)
    a, b, step = (data.draw(st.none() | st.integers(-n - 1, n + 1)) for _ in range(3))
    keys = [
        slice(a, b, step or None),
        data.draw(hnp.arrays(bool, n)),
        data.draw(hnp.arrays(int, 5, elements=st.integers(-n, n - 1))),
    ]
    for key in keys:
        numbers = np.arange(n)[key]
        chosen = bags[key]
        assert len(chosen) == len(numbers)
        for i, number in enumerate(numbers):
            np.testing.assert_array_equal(chosen[i], arrays[number])
            np.testing.assert_array_equal(chosen.positions_of(i), bags.positions_of(number))


@given(lists_of_arrays(min_bags=1), st.integers(0, 8))
def test_parts_put_together_are_the_whole(arrays, cut):
    bags = with_positions(arrays)
    assert Bags.concatenate([bags[:cut], bags[cut:]]) == bags
    assert Bags.concatenate([bags[i : i + 1] for i in range(len(bags))]) == bags


@given(lists_of_arrays(), st.integers(1, 12))
def test_blocks_hold_every_bag_once(arrays, n_rows):
    bags = Bags.from_list(arrays, n_features=arrays[0].shape[1] if arrays else 3)
    seen = []
    for part, values in bags.blocks(n_rows):
        np.testing.assert_array_equal(values, bags[part].values)
        assert len(values) <= n_rows or part.stop - part.start == 1
        seen += range(part.start, part.stop)
    assert seen == list(range(len(bags)))


@given(lists_of_arrays(min_bags=1), st.integers(0, 7), st.integers(0, 2**32))
def test_subsamples_are_parts_of_bags_in_order(arrays, k, seed):
    bags = with_positions(arrays)
    drawn = bags.subsample(k, seed)
    assert drawn == bags.subsample(k, seed)
    assert drawn.lengths.tolist() == [min(k, len(a)) for a in arrays]
    for i in range(len(bags)):
        rows = [int(np.flatnonzero((bags[i] == row).all(axis=1))[0]) for row in drawn[i]]
        assert rows == sorted(set(rows))
        np.testing.assert_array_equal(drawn.positions_of(i), bags.positions_of(i)[rows])


def test_subsamples_do_not_depend_on_the_blocks_they_are_drawn_in(monkeypatch):
    bags = Bags.from_list([np.arange(2 * n).reshape(n, 2) for n in (5, 0, 9, 3, 7)])
    whole = bags.subsample(3, 0)
    monkeypatch.setattr("bagwise.bags.bags._SHUFFLED_ROWS", 4)
    assert bags.subsample(3, 0) == whole


def test_subsamples_are_uniform():
    bags = Bags.from_list([np.arange(5)[:, None], np.arange(3)[:, None]])
    rng = np.random.default_rng(0)
    counts = np.zeros((2, 5))
    for _ in range(2000):
        drawn = bags.subsample(2, rng)
        for i in range(2):
            counts[i, drawn[i].ravel().astype(int)] += 1
    # 800 and 1333 expected, with standard deviations of 22 and 21
    assert abs(counts[0] - 800).max() < 110
    assert abs(counts[1, :3] - 2000 * 2 / 3).max() < 105


@given(lists_of_arrays(min_bags=1), st.integers(0, 30))
def test_samples_are_rows_without_replacement(arrays, k):
    bags = Bags.from_list(arrays)
    drawn = bags.sample(k, 3)
    np.testing.assert_array_equal(drawn, bags.sample(k, 3))
    rows = [int(np.flatnonzero((bags.values == row).all(axis=1))[0]) for row in drawn]
    assert len(rows) == min(k, bags.n_rows)
    assert rows == sorted(set(rows))


@pytest.mark.parametrize("random_state", [5, np.random.default_rng(5), np.random.RandomState(5)])
def test_kinds_of_random_state(random_state):
    bags = Bags.from_list([np.arange(100)[:, None]])
    assert bags.sample(10, random_state).shape == (10, 1)
    # what draws by a seed is drawn again, what draws by a generator goes on
    again = np.array_equal(bags.sample(10, random_state), bags.sample(10, random_state))
    assert again == isinstance(random_state, int)


@pytest.mark.parametrize("random_state", ["seed", -1, 1.5])
def test_a_random_state_that_is_none_is_refused(random_state):
    with pytest.raises(BagwiseError, match="random_state must be None, a non-negative integer"):
        small().sample(2, random_state)


@given(
    st.sampled_from(["float16", "float32", "float64", "uint8", "int16", "int64"]),
    lists_of_arrays(np.float64),
    st.booleans(),
)
def test_saved_bags_are_loaded(tmp_path_factory, dtype, arrays, places):
    path = tmp_path_factory.mktemp("bags") / "some.bags"
    arrays = [np.abs(array * 10).astype(dtype) for array in arrays]
    positions = [np.full((len(a), 2), 0.25) for a in arrays] if places else None
    bags = Bags.from_list(arrays, positions, dtype=dtype)
    assert bags.save(path) == path
    for mmap in (True, False):
        loaded = Bags.load(path, mmap=mmap)
        assert loaded == bags
        assert loaded.values.dtype == dtype
        assert not loaded.values.flags.writeable
    assert [entry.name for entry in path.parent.iterdir()] == ["some.bags"]
    tensors = load_file(path)  # any reader of safetensors
    np.testing.assert_array_equal(tensors["values"], bags.values)
    np.testing.assert_array_equal(tensors["offsets"], bags.offsets)


def test_loaded_values_stay_in_the_file(tmp_path):
    bags = small()
    bags.save(tmp_path / "a")
    loaded = Bags.load(tmp_path / "a")
    base = loaded.values
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base, np.memmap)
    assert loaded[1:].sample(2, 0).shape == (2, 2)
    loaded[::-1].save(tmp_path / "a")  # the file that is mapped is replaced, not written into
    assert loaded == bags
    assert Bags.load(tmp_path / "a") == bags[::-1]
    assert pickle.loads(pickle.dumps(loaded)) == bags


@given(lists_of_arrays(), st.booleans())
def test_written_bag_by_bag_is_the_same_file(tmp_path_factory, arrays, places):
    folder = tmp_path_factory.mktemp("bags")
    width = arrays[0].shape[1] if arrays else 2
    positions = [np.full((len(a), 2), 0.5) for a in arrays]
    bags = Bags.from_list(arrays, positions if places else None, n_features=width)
    with BagsWriter(folder / "a", width, positions=places) as writer:
        for array, position in zip(arrays, positions, strict=True):
            writer.append(array, position if places else None)
    bags.save(folder / "b")
    assert (folder / "a").read_bytes() == (folder / "b").read_bytes()
    with BagsWriter(folder / "a", width, positions=places) as writer:
        writer.extend(bags[:2])
        writer.extend(bags[2:])
    assert (folder / "a").read_bytes() == (folder / "b").read_bytes()


def write_one_and(path, *further):
    with BagsWriter(path, 2, positions=True) as writer:
        writer.append(np.ones((2, 2)), np.zeros((2, 2)))
        writer.append(*further)


def test_a_writer_that_fails_leaves_what_was_there(tmp_path):
    small().save(tmp_path / "a")
    for wrong, message in [
        ((np.zeros((1, 3)), [[0, 0]]), "takes 2 features, got bags with 3"),
        ((np.zeros((1, 2)),), "needs positions"),
        ((np.full((1, 2), np.nan), [[0, 0]]), "finite"),
    ]:
        with pytest.raises(BagwiseError, match=message):
            write_one_and(tmp_path / "a", *wrong)
    with pytest.raises(BagwiseError, match="opened without positions"), BagsWriter(tmp_path / "a", 2) as writer:
        writer.extend(small())
    assert Bags.load(tmp_path / "a") == small()
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_cut_anywhere_is_refused(tmp_path):
    path = small().save(tmp_path / "a")
    content = path.read_bytes()
    for n in [0, 4, 8, 500, 1023, 1024, 1100, len(content) - 1]:
        path.write_bytes(content[:n])
        with pytest.raises(BagwiseError, match=r"cut short|damaged"):
            Bags.load(path)
    path.write_bytes(content + b"x")
    with pytest.raises(BagwiseError, match="cut short"):
        Bags.load(path)


def rewritten(path, change):
    """Change the header of a file of bags, padded to its old length."""
    content = path.read_bytes()
    header = json.loads(content[8:1024])
    change(header)
    path.write_bytes(content[:8] + json.dumps(header).encode().ljust(1016) + content[1024:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h["values"].update(shape=[2**40, 2]), "cut short"),
        (lambda h: h["values"].update(shape=[-7, 2]), "header cannot be read"),
        (lambda h: h["values"].update(shape=[7.0, 2]), "header cannot be read"),
        (lambda h: h["values"].update(shape=[14]), "expected 2 dimensions"),
        (lambda h: h["values"].update(dtype="OBJECT"), "header cannot be read"),
        (lambda h: h["values"].update(data_offsets=[0]), "header cannot be read"),
        (lambda h: h["values"].update(dtype="I32"), None),
        (lambda h: h["offsets"].update(dtype="F64"), "offsets has dtype float64; expected int64"),
        (lambda h: h["positions"].update(data_offsets=[0, 56]), "header cannot be read"),
        (
            lambda h: h["positions"].update(shape=[14, 1]),
            r"shape \(14, 1\); .*because n_rows is 7",
        ),
        (lambda h: h.pop("values"), "header cannot be read"),
        (lambda h: h.pop("__metadata__"), "header cannot be read"),
        (lambda h: h.update(__metadata__={"bagwise": "[]"}), "header cannot be read"),
        (lambda h: h.update(__metadata__={"bagwise": '{"kind": "other", "schema": 1}'}), "holds 'other'"),
        (lambda h: h.update(__metadata__={"bagwise": '{"kind": "bagwise.Bags", "schema": 9}'}), "has schema 9"),
    ],
)
def test_headers_are_not_believed(tmp_path, change, message):
    path = small().save(tmp_path / "a")
    rewritten(path, change)
    if message is None:  # the same bytes as integers: a sound file
        assert Bags.load(path).values.dtype == np.int32
        return
    with pytest.raises(BagwiseError, match=message):
        Bags.load(path)


@pytest.mark.parametrize("offsets", [[0, 99, 3, 7], [0, 3, 3, 8], [1, 3, 3, 7], [0, -1, 3, 7]])
def test_offsets_in_files_are_not_believed(tmp_path, offsets):
    path = small().save(tmp_path / "a")
    change_tensor(path, "offsets", lambda held: np.copyto(held, offsets))
    with pytest.raises(BagwiseError, match="is damaged: offsets must"):
        Bags.load(path)


def test_values_in_files_are_checked_when_they_are_read(tmp_path):
    path = small().save(tmp_path / "a")
    change_tensor(path, "values", lambda held: held.put(0, np.nan))
    for options in ({"mmap": False}, {"verify": True}):
        with pytest.raises(BagwiseError, match="row 0, column 0 is nan"):
            Bags.load(path, **options)


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(BagwiseError, match="is a folder"):
        small().save(tmp_path)
    with pytest.raises(BagwiseError, match="is a folder"):
        Bags.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        Bags.load(tmp_path / "nothing")


@given(hnp.arrays(np.int64, st.tuples(st.integers(0, 5), st.integers(1, 6)), elements=st.integers(0, 4)))
def test_counts_become_bags_with_these_counts(counts):
    bags = Bags.from_csr(sp.csr_array(counts))
    assert len(bags) == len(counts)
    for bag, row in zip(bags, counts, strict=True):
        np.testing.assert_array_equal(np.bincount(bag.ravel(), minlength=counts.shape[1]), row)
    vectors = np.random.default_rng(0).random((counts.shape[1], 3), dtype=np.float32)
    embedded = Bags.from_csr(sp.csc_array(counts.astype(float)), vectors)
    assert embedded == Bags(vectors[bags.values.ravel()], bags.offsets)
    if len(counts):
        np.testing.assert_allclose([bag.sum(axis=0) for bag in embedded], counts @ vectors, rtol=1e-5)


@given(lists_of_arrays(min_bags=1))
def test_padded_bags(arrays):
    longest = max(map(len, arrays))
    padded = np.full((len(arrays), longest, arrays[0].shape[1]), np.nan)
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    assert Bags.from_padded(padded, [len(a) for a in arrays]) == Bags.from_list(arrays)


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    arrays = [np.ones((2, 3), np.float32), np.zeros((1, 3), np.float32)]
    tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
    assert Bags.from_list(tensors) == Bags.from_list(arrays)
    padded = torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)
    assert Bags.from_padded(padded, torch.tensor([2, 1])) == Bags.from_list(arrays)


def test_tensors_are_asked_for_their_arrays_without_importing_torch():
    class Tensor:
        def __init__(self, array):
            self.array = array

        def detach(self):
            return self

        cpu = detach

        def numpy(self):
            return self.array

    Tensor.__module__ = "torch"
    array = np.ones((2, 3), np.float32)
    assert Bags.from_list([Tensor(array), []]) == Bags.from_list([array, []])


def test_empty_bags_everywhere(tmp_path):
    for bags in (Bags.from_list([]), Bags.from_list([[], []]), Bags.from_list([[], []], [[], []], n_features=5)):
        assert bags.n_rows == 0
        assert bags[:] == bags
        assert bags.subsample(2, 0) == bags
        assert len(bags.sample(2, 0)) == 0
        assert Bags.concatenate([bags]) == bags
        assert [list(range(*part.indices(9))) for part, _ in bags.blocks(4)] == ([[0, 1]] if len(bags) else [])
        bags.save(tmp_path / "a")
        assert Bags.load(tmp_path / "a") == bags
        assert Bags.load(tmp_path / "a").n_features == bags.n_features


def test_bags_cannot_be_changed():
    bags = small()
    for array in (
        bags.values,
        bags.offsets,
        bags.positions,
        bags[0],
        bags[0:1].values,
        bags[[0]].values,
        bags.sample(3, 0),
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError, match="cannot be changed"):
        bags.values = 3
    with pytest.raises(TypeError):
        hash(bags)


def test_types_are_kept_when_asked():
    for dtype in ("uint8", "float64", ">f4", ">i2"):
        bags = Bags(np.ones((2, 3), dtype), [0, 2], dtype=None)
        assert bags.values.dtype == np.dtype(dtype).newbyteorder("=")
        assert (bags.values == 1).all()
    values = np.ones((2, 3), np.float32)
    assert np.shares_memory(Bags(values, [0, 2]).values, values)


def test_equal_bags():
    bags = small()
    assert bags != Bags(bags.values, bags.offsets)
    assert bags != Bags(bags.values, bags.offsets, bags.positions, dtype="float64")
    assert bags != Bags(bags.values + 1, bags.offsets, bags.positions)
    assert bags != Bags(bags.values, [0, 2, 3, 7], bags.positions)
    assert bags != "bags"
    assert repr(bags) == "<Bags: 3 bags, 7 rows x 2 features of float32, with positions>"
    assert bags.nbytes == 7 * 2 * 4 + 4 * 8 + 7 * 2 * 4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bags.from_list([np.zeros((2, 3)), np.zeros((1, 4))]), "Bag 1 has 4 features, but bag 0 has 3"),
        (lambda: Bags.from_list([[], np.zeros((2, 3)), np.zeros((0, 4))]), "Bag 2 has 4 features, but bag 1 has 3"),
        (lambda: Bags.from_list([np.zeros((1, 4))], n_features=3), "Bag 0 has 4 features, but n_features has 3"),
        (lambda: Bags.from_list([np.zeros(3)]), r"Bag 0 must have two dimensions.*shape \(3,\).*reshape"),
        (lambda: Bags.from_list([[[1, np.nan]]]), "row 0, column 1 is nan"),
        (lambda: Bags.from_list([[[1, 2]], [[3, np.inf]]]), "row 1, column 1 is inf"),
        (lambda: Bags.from_list([[[1e300]]]), r"is 1e\+300 \(held as float32\)"),
        (lambda: Bags.from_list([[["a"]]]), "must be real numbers"),
        (lambda: Bags.from_list([[[1.5]]], dtype="uint8"), "would be truncated to uint8"),
        (lambda: Bags.from_list([[[300]]], dtype="uint8"), "within the range of uint8.*is 300"),
        (lambda: Bags.from_list([[[1]]], dtype="complex64"), "Bags cannot hold complex64"),
        (lambda: Bags.from_list([[[1]]], dtype="number"), "dtype='number' is not a type"),
        (lambda: Bags.from_list([[[1]]], [[[0, 0]], []]), "one entry per bag, 1; got 2"),
        (lambda: Bags.from_list([[[1]]], [[[0, 1.5]]]), r"positions of bag 0 must lie in .* row 0 is \(0.0, 1.5\)"),
        (lambda: Bags.from_list([[[1]]], [[[0, np.nan]]]), r"positions of bag 0 must lie in"),
        (lambda: Bags.from_list([[[1]]], [[0.5, 0.5]]), r"shape \(1, 2\); got shape \(2,\)"),
        (lambda: Bags(np.zeros((2, 3)), [0, 3]), "from 0 to the number of rows, 2; they go from 0 to 3"),
        (lambda: Bags(np.zeros((2, 3)), [0, 2, 1, 2]), "must not fall, but bag 1 goes from row 2 to row 1"),
        (lambda: Bags(np.zeros((2, 3)), [0.0, 2.0]), "offsets must be a list of integers"),
        (lambda: Bags(np.zeros((2, 3)), []), "offsets must be a list of integers"),
        (lambda: Bags(np.zeros(3), [0, 3]), "two dimensions"),
        (lambda: Bags.concatenate([]), "at least one Bags"),
        (lambda: Bags.concatenate([small(), [1]]), "part 1 is list"),
        (lambda: Bags.concatenate([small(), Bags.from_list([[[1]]])]), "Part 1 has 1 features, but part 0 has 2"),
        (lambda: Bags.concatenate([small(), Bags.from_list([[[1, 2]]])]), "one has positions"),
        (lambda: Bags.from_csr(np.eye(2)), "takes a sparse matrix, got ndarray"),
        (lambda: Bags.from_csr(sp.csr_array([[0.5]])), "whole numbers"),
        (lambda: Bags.from_csr(sp.csr_array([[-1]])), "whole numbers"),
        (lambda: Bags.from_csr(sp.csr_array([[np.nan]])), "whole numbers"),
        (lambda: BagsWriter("a", 2).append([[1, 2]]), "in a with block"),
        (lambda: Bags.from_csr(sp.csr_array([[1, 1]]), [[1.0]]), "one row per word, 2; got 1"),
        (lambda: Bags.from_padded(np.zeros((2, 3)), [1, 1]), r"got \(2, 3\)"),
        (lambda: Bags.from_padded(np.zeros((2, 3, 1)), [1]), "lengths must be 2 integers"),
        (lambda: Bags.from_padded(np.zeros((2, 3, 1)), [1, 4]), "from 0 to 3, but bag 1 has 4"),
        (lambda: small()["a"], "a slice, a list of numbers or a boolean mask"),
        (lambda: small()[[True, False]], "one entry per bag, 3; got 2"),
        (lambda: small()[[0.5]], "a slice, a list of numbers or a boolean mask"),
        (lambda: small().subsample(-1), "k must be at least 0, got -1"),
        (lambda: small().sample(2.5), "k must be an integer, got 2.5"),
        (lambda: list(small().blocks(0)), "n_rows must be at least 1, got 0"),
        (lambda: Bags.from_list([[[1]]]).positions_of(0), "have no positions"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(BagwiseError, match=message):
        make()


@pytest.mark.parametrize("key", [3, -4, [0, 3], [-4]])
def test_bags_that_are_not_there(key):
    with pytest.raises(IndexError, match="There is no bag"):
        small()[key]


def test_a_writer_whose_disk_is_full_leaves_nothing(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr("bagwise._io.tensors._start_of_file", full)
    with pytest.raises(OSError, match="No space left"), BagsWriter(tmp_path / "a", 2) as writer:
        writer.append([[1, 2]])
    with pytest.raises(OSError, match="No space left"):
        small().save(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
