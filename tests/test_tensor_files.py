"""Tensor files: any safetensors reader opens them, and everything in them is checked."""

import json

import numpy as np
import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file

from bagwise import BagwiseError
from bagwise._io.tensors import FileKind, PackedStrings, Pieces, file_parts, header_field, kind_of, tensor
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
    chunks = {name: Pieces(a.dtype, a.shape, np.array_split(a, 3)) for name, a in arrays.items()}
    specs = {name: tensor(a.dtype.name, *a.shape, mapped=mapped) for name, a in arrays.items()}
    kind = FileKind(KIND, {"about": header_field("string")}, specs)
    assert kind.save(path, {"about": "ü"}, chunks) == path
    assert path.read_bytes() == kind.to_bytes({"about": "ü"}, arrays)
    header, found = kind.load(path, both, mmap=mmap)
    assert header == {"about": "ü"}
    assert kind_of(path) == KIND
    assert file_parts(path)[0] == {"kind": KIND, "schema": 1, "about": "ü"}
    assert file_parts(path)[1] == {name: (array.dtype, array.shape) for name, array in found.items()}
    for others in (found, load_file(path)):
        assert others.keys() == arrays.keys()
        for name, array in arrays.items():
            assert others[name].dtype == array.dtype
            assert others[name].tobytes() == array.tobytes()
    assert all(array.flags.aligned and array.flags.writeable != mapped for array in found.values())


def both(header, tensors):
    return header, tensors


def small(path, header=None):
    tensors = {"a": np.arange(6.0).reshape(3, 2), "b": np.zeros(3, dtype=bool)}
    return FileKind(KIND, None, None).save(path, header or {}, tensors)


TABLE = {"a": tensor("float64", "n", 2, finite=True), "b": tensor("bool", "n", optional=True)}


def read(path, table=TABLE, fields=None):
    return FileKind(KIND, fields, table).load(path, both)


def rewritten(path, entries, keep=True):
    """Change entries of the file, keeping its tensors or not."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    text = json.dumps(json.loads(content[8 : 8 + length]) | entries).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :] * keep)
    return path


WHOLE = {"dtype": "F64", "shape": [3, 2], "data_offsets": [0, 48]}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"dtype": "I64"}, "its a has dtype int64; expected float64"),
        ({"dtype": "C64"}, "its a cannot have the type C64"),
        ({"dtype": "<U200000000"}, "its header cannot be read"),
        ({"dtype": ["F64"]}, "its header cannot be read"),
        ({"shape": [2, 3]}, "its a has shape .2, 3.; expected n x 2"),
        ({"shape": [2, 2], "data_offsets": [0, 32]}, "its header cannot be read"),
        ({"data_offsets": [0, 49]}, "its header cannot be read"),
        ({"data_offsets": [8, 56]}, "its header cannot be read"),
        ({"data_offsets": [48, 0]}, "its header cannot be read"),
        ({"data_offsets": [3, 51]}, "its header cannot be read"),
    ],
)
def test_tensors_are_checked_against_the_table(tmp_path, entry, message):
    path = rewritten(small(tmp_path / "file"), {"a": WHOLE | entry})
    with pytest.raises(BagwiseError, match=message):
        read(path)


FIELDS = {
    "n": header_field("integer null", low=0, high=9),
    "x": header_field("number", low=0.5),
    "name": header_field("string", choices=("one", "two")),
    "on": header_field("boolean", optional=True),
    "all": header_field("list object", optional=True),
}
SOUND = {"n": 3, "x": 1, "name": "one"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n": 10}, "its n is 10; expected integer or null, at least 0, at most 9"),
        ({"n": True}, "its n is True; expected integer or null"),
        ({"n": 3.0}, r"its n is 3\.0; expected integer or null"),
        ({"x": 10**400}, "its x is 1000"),
        ({"x": float("nan")}, r"its x is nan; expected number, at least 0\.5"),
        ({"name": "three"}, "its name is 'three'; expected string, one, two"),
        ({"name": None}, "its name is None; expected string"),
        ({"on": 1}, "its on is 1; expected boolean"),
        ({"all": "x"}, "its all is 'x'; expected list or object"),
        ({"other": 1}, "its header has the unknown field 'other'"),
    ],
)
def test_fields_are_checked_when_they_are_written_and_read(tmp_path, wrong, message):
    path = tmp_path / "file"
    for right in (SOUND, SOUND | {"n": None, "x": 0.5}, SOUND | {"on": False, "all": {"a": []}}):
        assert read(small(path, right), fields=FIELDS)[0] == right
    with pytest.raises(BagwiseError, match=message):
        read(small(path, SOUND | wrong), fields=FIELDS)
    with pytest.raises(BagwiseError, match="its header has no x; expected number"):
        read(small(path, {"n": 3, "name": "one"}), fields=FIELDS)
    path.unlink()
    with pytest.raises(BagwiseError, match=message):
        FileKind(KIND, FIELDS, {}).save(path, SOUND | wrong, {})
    assert not list(tmp_path.iterdir())


def test_lengths_are_those_of_the_header(tmp_path):
    assert len(read(small(tmp_path / "file", {"n": 3}))[1]["a"]) == 3
    with pytest.raises(BagwiseError, match=r"its a has shape .3, 2.; expected n x 2, because n is 4"):
        read(small(tmp_path / "file", {"n": 4}))


def test_values_are_checked_when_they_are_read(tmp_path):
    path = small(tmp_path / "file")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"\x02")
    with pytest.raises(BagwiseError, match="its b holds the byte 2; expected 0 and 1"):
        read(path)
    path.write_bytes(content[:-11] + np.float64(np.nan).tobytes() + content[-3:])
    with pytest.raises(BagwiseError, match="its a holds nan; expected finite numbers"):
        read(path)


@pytest.mark.parametrize(("bounds", "message"), [({"low": 1}, "0.0; expected at least 1"), ({"high": 4}, "5.0; exp")])
def test_values_have_bounds(tmp_path, bounds, message):
    path = small(tmp_path / "file")
    assert read(path, TABLE | {"a": tensor("float64", "n", 2, low=0, high=5)})[1]["a"].max() == 5
    with pytest.raises(BagwiseError, match=f"is damaged: its a .*{message}"):
        read(path, TABLE | {"a": tensor("float64", "n", 2, **bounds)})


def test_other_tensors_schemas_and_kinds_are_refused(tmp_path):
    path = small(tmp_path / "file")
    for table in ({"a": TABLE["a"]}, TABLE | {"c": TABLE["a"]}):
        with pytest.raises(BagwiseError, match=r"it holds the tensors \['a', 'b'\]; expected"):
            read(path, table)
    with pytest.raises(BagwiseError, match=r"holds 'bagwise.Test', not 'bagwise.Other'"):
        FileKind("bagwise.Other", None, TABLE).load(path, both)
    for schema in (2, 0, "1", True, None):
        with pytest.raises(
            BagwiseError, match=r"file was written by another version of bagwise: it has schema .*reads 1"
        ):
            read(small(path, {"schema": schema}))
    with pytest.raises(BagwiseError, match="is a folder"):
        read(tmp_path)
    assert kind_of(tmp_path) is None


def test_a_file_that_is_replaced_while_it_is_opened_is_read_whole(tmp_path, monkeypatch):
    """The header is read by its path: a program that replaces the file must not mix the two."""
    path, other = small(tmp_path / "file"), FileKind(KIND, None, None)
    replaced = []

    def replace(name, **options):
        opened = safe_open(name, **options)
        if not replaced:
            replaced.append(other.save(path, {}, {"a": np.full((5, 2), 7.0)}))
        return opened

    safe_open = safetensors.safe_open
    monkeypatch.setattr(safetensors, "safe_open", replace)
    _, tensors = read(path)
    assert len(replaced) == 1
    assert tensors.keys() == {"a"}
    assert (tensors["a"] == np.full((5, 2), 7.0)).all()


def test_errors_of_what_is_made_of_a_file_name_it(tmp_path):
    def fail(header, tensors):
        raise BagwiseError("its a is odd.")

    with pytest.raises(BagwiseError, match=r"file is damaged: its a is odd\."):
        FileKind(KIND, None, TABLE).load(small(tmp_path / "file"), fail)


def test_headers_are_limited(tmp_path):
    with pytest.raises(BagwiseError, match="at most 4194304 are accepted"):
        small(tmp_path / "file", {"about": "x" * 2**22})
    assert not list(tmp_path.iterdir())
    path = small(tmp_path / "file")
    path.write_bytes((2**62).to_bytes(8, "little") + path.read_bytes()[8:])
    with pytest.raises(BagwiseError, match=r"it would take 4611686018427387904 bytes of"):
        read(path)


def test_parts_that_do_not_make_up_the_array_leave_nothing(tmp_path):
    with pytest.raises(RuntimeError, match=r"make up .*\(2,\).*; expected .*\(3,\)"):
        FileKind(KIND, {}, None).save(tmp_path / "file", {}, {"a": Pieces(np.dtype(float), (3,), [np.ones(2)])})
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
