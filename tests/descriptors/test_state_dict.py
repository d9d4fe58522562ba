"""The reader of state dictionaries equals PyTorch's, and runs nothing that a file holds."""

import contextlib
import io
import os
import pickle
from collections import OrderedDict

import numpy as np
import pytest

from bagwise import BagwiseError
from bagwise.descriptors.efficientnet import read_state_dict

torch = pytest.importorskip("torch")


def saved(state):
    buffer = io.BytesIO()
    torch.save(state, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()


def state():
    base = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    return OrderedDict(
        plain=base,
        transposed=base.permute(2, 0, 1),  # not contiguous, the same storage
        part=base[1:, ::2, 1],
        half=torch.arange(6).to(torch.float16).reshape(3, 2).T,
        count=torch.tensor(7),
        empty=torch.zeros(0, 3),
    )


def test_tensors_are_those_of_pytorch():
    found, expected = read_state_dict(saved(state())), state()
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert found[name].flags.c_contiguous
        np.testing.assert_array_equal(found[name], tensor.numpy(), strict=True)


class Hostile:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("number", range(5))
def test_pickles_that_run_something_do_nothing(number, tmp_path):
    file = io.BytesIO(saved(state()))
    pickles = []
    for _ in range(5):
        start = file.tell()
        skip_pickle(file)
        pickles.append(file.getvalue()[start : file.tell()])
    hostile = pickle.dumps(Hostile(tmp_path / "made"), protocol=2)
    rest = file.read()
    assert read_state_dict(b"".join(pickles) + rest)
    pickles[number] = hostile
    with pytest.raises(BagwiseError, match=r"not a state dictionary .*: it names (posix|nt)\.mkdir"):
        read_state_dict(b"".join(pickles) + rest)
    assert not (tmp_path / "made").exists()
    pickle.loads(hostile)  # it would have
    assert (tmp_path / "made").exists()


def skip_pickle(file):
    import pickletools

    for _ in pickletools.genops(file):
        pass


class Storage:
    """A storage of `n` numbers as a persistent id describes it."""

    def __init__(self, n, **other):
        about = {"kind": "storage", "type": torch.FloatStorage, "key": "0", "place": "cpu", "n": n, "view": None}
        self.pid = tuple((about | other).values())


class Tensor:
    def __init__(self, *arguments):
        self.arguments = arguments

    def __reduce__(self):
        return torch._utils._rebuild_tensor_v2, (*self.arguments, False, OrderedDict())


def written(content, keys=("0",), n=4, magic=0x1950A86A20F9469CFC6C):
    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            return value.pid if isinstance(value, Storage) else None

    file = io.BytesIO()
    for value in (magic, 1001, {}, content, list(keys)):
        Pickler(file, 2).dump(value)
    return file.getvalue() + n.to_bytes(8, "little") + np.arange(n, dtype="<f4").tobytes()


def one(*arguments):
    return OrderedDict(one=Tensor(*arguments))


def test_written_by_hand():
    found = read_state_dict(written(one(Storage(4), 1, (3,), (1,))))
    assert found["one"].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda: written(one(Storage(4), 1, (4,), (1,))), "exceeds its storage"),
        (lambda: written(one(Storage(4), 0, (2, 2), (3, 1))), "exceeds its storage"),
        (lambda: written(one(Storage(4), 1 << 62, (1,), (1,))), "exceeds its storage"),
        (lambda: written(one(Storage(4), 0, (1 << 20, 1 << 20), (0, 0))), "exceeds its storage"),
        (lambda: written(one(Storage(4), -1, (1,), (1,))), "not whole numbers"),
        (lambda: written(one(Storage(4), 3, (2,), (-1,))), "not whole numbers"),
        (lambda: written(one(Storage(4), 0, (True,), (1,))), "not whole numbers"),
        (lambda: written(one(Storage(4), 0, (1,), ())), "another number of sizes than of strides"),
        (lambda: written(one("storage", 0, (1,), (1,))), "not whole numbers"),
        (lambda: written(one(Storage(5), 0, (1,), (1,))), "does not have 5 elements"),
        (lambda: written(one(Storage(4, view=(1, 2, 3)), 0, (1,), (1,))), "described in another way"),
        (lambda: written(one(Storage(4, kind="module"), 0, (1,), (1,))), "described in another way"),
        (lambda: written(one(Storage(4, type=torch.DoubleStorage), 0, (1,), (1,))), "it names torch.DoubleStorage"),
        (lambda: written(one(Storage(4), 0, (1,), (1,)), keys=("1",)), "'1'"),
        (lambda: written(one(Storage(4), 0, (1,), (1,)), keys=()), "'0'"),
        (lambda: written({"one": Tensor(Storage(4), 0, (1,), (1,))}), "ordered dictionary of tensors"),
        (lambda: written(OrderedDict(one=3)), "ordered dictionary of tensors"),
        (lambda: written(one(Storage(4), 0, (1,), (1,)), magic=1), "does not begin as such files do"),
        (lambda: saved(state())[:-9], "does not have"),
        (lambda: b"", "Ran out of input"),
        (lambda: b"PK\x03\x04", ""),
    ],
)
def test_what_is_no_state_dictionary_is_refused(content, reason):
    with pytest.raises(BagwiseError, match=f"not a state dictionary .*{reason}"):
        read_state_dict(content())


def test_nothing_that_a_pickle_names_can_be_changed():
    """The opcode BUILD sets attributes of what is on the stack."""
    function = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x01\x00\x00\x00aK\x01sb."
    dictionary = b"\x80\x02ccollections\nOrderedDict\n}X\x01\x00\x00\x00aK\x01sb."
    begin = b"".join(pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, {}))
    for content in (function, dictionary):
        with pytest.raises(BagwiseError):
            read_state_dict(begin + content)
    assert not hasattr(OrderedDict, "a")


@pytest.mark.parametrize("seed", range(40))
def test_damaged_files_give_tensors_or_an_error(seed):
    random = np.random.default_rng(seed)
    content = bytearray(saved(state()))
    for place in random.integers(0, len(content), 3):
        content[place] = random.integers(0, 256)
    with contextlib.suppress(BagwiseError):
        assert isinstance(read_state_dict(bytes(content)), dict)
