"""Tensor files: any safetensors reader opens them, and everything in them is checked."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file

from bagwise import BagwiseError
from bagwise._io.tensors import (
    Chunks,
    PackedStrings,
    kind_of,
    read_tensors,
    tensor,
    tensor_bytes,
    write_tensors,
)
from bagwise._utils.checks import TYPE_NAMES

KIND = "bagwise.Test"
ARRAYS = st.dictionaries(
    st.sampled_from(["a", "b", "c", "ä b"]),
    hnp.arrays(st.sampled_from([np.dtype(bool), *sorted(TYPE_NAMES, key=str)]), hnp.array_shapes(min_side=0)),
    min_size=1,
)


@given(ARRAYS, st.booleans(), st.booleans())
def test_tensors_come_back_aligned_mapped_or_not(tmp_path_factory, arrays, mmap, mapped):
    path = tmp_path_factory.mktemp("arrays") / "file"
    chunks = {name: Chunks(a.dtype, a.shape, np.array_split(a, 3)) for name, a in arrays.items()}
    assert write_tensors(path, KIND, 1, {"about": "ü"}, chunks) == path
    assert path.read_bytes() == tensor_bytes(KIND, 1, {"about": "ü"}, arrays)
    table = {name: tensor(a.dtype.name, *a.shape, mapped=mapped) for name, a in arrays.items()}
    header, found = read_tensors(path, KIND, {1: table}, mmap=mmap)
    assert header == {"kind": KIND, "schema": 1, "about": "ü"}
    assert kind_of(path) == KIND
    for others in (found, load_file(path)):
        assert others.keys() == arrays.keys()
        for name, array in arrays.items():
            assert others[name].dtype == array.dtype
            assert others[name].tobytes() == array.tobytes()
    assert all(array.flags.aligned and array.flags.writeable != mapped for array in found.values())


def small(path, header=None):
    return write_tensors(path, KIND, 1, header or {}, {"a": np.arange(6.0).reshape(3, 2), "b": np.zeros(3, dtype=bool)})


TABLE = {"a": tensor("float64", "n", 2, finite=True), "b": tensor("bool", "n", optional=True)}


def rewritten(path, entries, keep=True):
    """Change entries of the file, keeping its tensors or not."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    text = json.dumps(json.loads(content[8 : 8 + length]) | entries).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :] * keep)
    return path


@pytest.mark.parametrize("shape", [[2**70, 0], [0, 2**48], [3, 2, 1], [6], "32", None, [-1, -6], [True, 6]])
def test_impossible_shapes_are_refused_before_anything_is_made(tmp_path, shape):
    path = rewritten(small(tmp_path / "file"), {"a": {"dtype": "F64", "shape": shape, "data_offsets": [0, 0]}}, False)
    with pytest.raises(BagwiseError, match=r"file is damaged: its a (cannot be|has shape .*; expected 2 dimensions)"):
        read_tensors(path, KIND, {1: TABLE})


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"dtype": "F32"}, "its a has dtype float32; expected float64"),
        ({"dtype": "<U200000000"}, "its a has dtype <U200000000; expected float64"),
        ({"dtype": ["F64"]}, "its a cannot be"),
        ({"shape": [2, 3]}, "its a has shape .2, 3.; expected 2 x 2, because 2 is 2"),
        ({"shape": [2, 2], "data_offsets": [0, 32]}, "its b has shape .3,.; expected 2, because n is 2"),
        ({"data_offsets": [0, 49]}, "48 bytes"),
        ({"data_offsets": [8, 56]}, "48 bytes; it may have been cut short"),
        ({"data_offsets": [48, 0]}, "48 bytes"),
        ({"data_offsets": [3, 51]}, "tensors do not fill the 51 bytes after the header; expected tensors without gaps"),
    ],
)
def test_tensors_are_checked_against_the_table(tmp_path, entry, message):
    whole = {"dtype": "F64", "shape": [3, 2], "data_offsets": [0, 48]}
    path = rewritten(small(tmp_path / "file"), {"a": whole | entry})
    with pytest.raises(BagwiseError, match=message):
        read_tensors(path, KIND, {1: TABLE})


def test_lengths_are_those_of_the_header(tmp_path):
    assert len(read_tensors(small(tmp_path / "file", {"n": 3}), KIND, {1: TABLE})[1]["a"]) == 3
    with pytest.raises(BagwiseError, match=r"its a has shape .3, 2.; expected 4 x 2, because n is 4"):
        read_tensors(small(tmp_path / "file", {"n": 4}), KIND, {1: TABLE})


def test_values_are_checked_when_they_are_read(tmp_path):
    path = small(tmp_path / "file")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"\x02")
    with pytest.raises(BagwiseError, match="its b holds the byte 2; expected 0 and 1"):
        read_tensors(path, KIND, {1: TABLE})
    path.write_bytes(content[:-11] + np.float64(np.nan).tobytes() + content[-3:])
    with pytest.raises(BagwiseError, match="its a holds nan; expected finite numbers"):
        read_tensors(path, KIND, {1: TABLE})


@pytest.mark.parametrize(("bounds", "message"), [({"low": 1}, "0.0; expected at least 1"), ({"high": 4}, "5.0; exp")])
def test_values_have_bounds(tmp_path, bounds, message):
    path = small(tmp_path / "file")
    assert read_tensors(path, KIND, {1: TABLE | {"a": tensor("float64", "n", 2, low=0, high=5)}})[1]["a"].max() == 5
    with pytest.raises(BagwiseError, match=f"is damaged: its a .*{message}"):
        read_tensors(path, KIND, {1: TABLE | {"a": tensor("float64", "n", 2, **bounds)}})


def test_other_tensors_schemas_and_kinds_are_refused(tmp_path):
    path = small(tmp_path / "file")
    for table in ({"a": TABLE["a"]}, TABLE | {"c": TABLE["a"]}):
        with pytest.raises(BagwiseError, match=r"it holds the tensors \['a', 'b'\]; expected"):
            read_tensors(path, KIND, {1: table})
    with pytest.raises(BagwiseError, match=r"has schema 1, this version of bagwise reads 2, 3\. Upgrade"):
        read_tensors(path, KIND, {2: TABLE, 3: TABLE})
    with pytest.raises(BagwiseError, match=r"holds 'bagwise.Test', not 'bagwise.Other'"):
        read_tensors(path, "bagwise.Other", {1: TABLE})
    with pytest.raises(BagwiseError, match="is a folder"):
        read_tensors(tmp_path, KIND, {1: TABLE})
    assert kind_of(tmp_path) is None


DEEP = "[" * 100_000


@pytest.mark.parametrize("text", [DEEP, json.dumps({"__metadata__": {"bagwise": DEEP}}), "[]", "{}", "é"])
def test_headers_that_are_none(tmp_path, text):
    path = tmp_path / "file"
    path.write_bytes(len(text.encode()).to_bytes(8, "little") + text.encode())
    with pytest.raises(BagwiseError, match=r"not a file written by Test\.save: its header cannot be read"):
        read_tensors(path, KIND, {1: TABLE})
    assert kind_of(path) is None


def test_headers_are_limited(tmp_path):
    with pytest.raises(BagwiseError, match="at most 1048576 are accepted"):
        small(tmp_path / "file", {"about": "x" * 2**20})
    assert not list(tmp_path.iterdir())
    path = small(tmp_path / "file")
    path.write_bytes((2**62).to_bytes(8, "little") + path.read_bytes()[8:])
    with pytest.raises(BagwiseError, match=r"not a file written by Test\.save: its header would take"):
        read_tensors(path, KIND, {1: TABLE})


def test_parts_that_do_not_make_up_the_array_leave_nothing(tmp_path):
    with pytest.raises(RuntimeError, match=r"a of shape \(3,\) came in 16 bytes"):
        write_tensors(tmp_path / "file", KIND, 1, {}, {"a": Chunks(np.dtype(float), (3,), [np.ones(2)])})
    assert not list(tmp_path.iterdir())


@given(st.lists(st.text(st.characters())))
def test_any_strings_are_packed(strings):
    packed = PackedStrings.of(strings)
    assert packed.tolist() == strings
    assert packed.take(np.arange(len(strings))[::-1]).tolist() == strings[::-1]


@pytest.mark.parametrize("offsets", [[], [1, 3], [0, 2], [0, 2, 1, 3], [0, -1, 3]])
def test_offsets_of_strings_are_checked(offsets):
    with pytest.raises(BagwiseError, match="offsets of strings must rise from 0 to 3"):
        PackedStrings(np.zeros(3, dtype=np.uint8), np.array(offsets, dtype=np.int64))


def test_strings_that_are_no_text():
    packed = PackedStrings(np.array([65, 255], dtype=np.uint8), np.array([0, 1, 2]))
    assert packed.take(np.array([0])).tolist() == ["A"]
    with pytest.raises(BagwiseError, match="String 1 is not UTF-8"):
        packed.tolist()
