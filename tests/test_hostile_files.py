"""Files of every kind, changed in ways that do not depend on what they hold: every reader refuses them, by name.

What each kind says of its own header and tensors is tested with the kind.
"""

import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise import BagwiseError, runtime
from bagwise._io.tensors import kind_of
from bagwise.app.cli.verifying import load_file
from changed_files import checksums, read_parts
from saved_files import SAVED, saved_files

UNREAD = "is not a file of bagwise, or was cut short: its header cannot be read"


def refused(kind, path, message=UNREAD, of_model=""):
    """The class of a kind refuses a file; for models, the library and the runtime do so in the same words."""
    loaders = [(type(load_file(saved_files()[SAVED[kind]])).load, BagwiseError)]
    if kind == "bagwise.Model":
        loaders, message = [*loaders, (runtime.load, runtime.ModelFileError)], of_model
    if kind == "bagwise.ItemIndex":
        message += "|is not an index. Create one by: bagwise index"
    for load, error in loaders:
        with pytest.raises(error, match=message) as caught:
            load(path)
        assert str(path) in str(caught.value)


def taken_apart(kind):
    """The metadata of a file, entries of its tensors, their bytes, and the name of the largest one."""
    entries, data = read_parts(saved_files()[SAVED[kind]])
    metadata = entries.pop("__metadata__")
    largest = max(entries, key=lambda name: np.diff(entries[name]["data_offsets"])[0])
    return metadata, entries, bytes(data), largest


def written(path, metadata, entries, data):
    header = json.dumps({"__metadata__": metadata, **entries}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    return path


def headed(length, text):
    return length.to_bytes(8, "little") + text


DEEP = b"[" * 100_000
# contents, and what readers of models say of them
NO_FILES = {
    "nothing": (b"", "or it is empty"),
    "few bytes": (b"abcdefg", "cut short, or no safetensors"),
    "a pickle": (b"\x80\x04\x95 pickle, for instance", "cut short, or no safetensors"),
    "a long header": (headed(1 << 63, b"{}"), "cut short"),
    "a header of spaces": (headed(1 << 23, b" " * (1 << 23)), "cut short"),
    "a list": (headed(2, b"[]"), "no JSON object"),
    "null": (headed(4, b"null"), "no JSON object"),
    "no text": (headed(3, b"\xff\xfe{"), "no JSON"),
    "no object": (headed(2, "é".encode()), "no JSON"),
    "a deep list": (headed(len(DEEP), DEEP), "no JSON"),
    "a deep list inside": (
        headed(len(DEEP) + 32, b'{"__metadata__":{"bagwise":"' + DEEP + b'"} }'),
        "no JSON|not written by",
    ),
    "a long number": (headed(6000, b'{"a":' + b"1" * 5994 + b"}"), "no JSON"),
}


@pytest.mark.parametrize("case", NO_FILES)
def test_what_is_no_file_is_refused(case, tmp_path):
    content, says = NO_FILES[case]
    (tmp_path / "file").write_bytes(content)
    for kind in SAVED:
        refused(kind, tmp_path / "file", of_model=says)
    assert kind_of(tmp_path / "file") is None


@pytest.mark.parametrize(
    "metadata", [{}, {"bagwise": "[]"}, {"bagwise": "{"}, {"bagwise": 3}, {"bagwise": "{}"}, ["bagwise"], "bagwise"]
)
def test_metadata_of_others_are_refused(metadata, tmp_path):
    for kind in SAVED:
        _, entries, data, _ = taken_apart(kind)
        path = written(tmp_path / "file", metadata, entries, data)
        refused(
            kind,
            path,
            f"{UNREAD}|holds None, not '{kind}'",
            "not written by bagwise|no JSON|another version|holds None",
        )


ABOUT = {  # changes of a header, and what is said of them
    "newer": (
        {"schema": 2},
        "was written by another version of bagwise: it has schema 2, (and )?this (one|version) reads 1",
    ),
    "a text as schema": ({"schema": "1"}, "another version"),
    "true as schema": ({"schema": True}, "another version"),
    "no schema": ({"schema": None}, "another version"),
    "another kind": ({"kind": "bagwise.Other"}, "holds 'bagwise.Other', not 'bagwise"),
    "a list as kind": ({"kind": ["bagwise.Other"]}, r"holds \['bagwise.Other'\], not 'bagwise"),
    "an unknown field": ({"file": "../../etc/passwd"}, "its header has the unknown field 'file'|not that of a model"),
}


@pytest.mark.parametrize("case", ABOUT)
def test_headers_of_other_versions_and_kinds_are_refused(case, tmp_path):
    changes, message = ABOUT[case]
    for kind in SAVED:
        metadata, entries, data, _ = taken_apart(kind)
        about = json.loads(metadata["bagwise"]) | changes
        path = written(tmp_path / "file", metadata | {"bagwise": json.dumps(about)}, entries, data)
        refused(kind, path, message, message)


def moved(entry, by):
    return {"data_offsets": [place + by for place in entry["data_offsets"]]}


NO_PLACE = "cannot be|does not fill|overlap or leave gaps|arrays end at"
ENTRIES = {  # changes of the entry of the largest tensor; None: it is not there
    "unknown type": (lambda e: {"dtype": "BF16"}, f"cannot have the type|{UNREAD}"),
    "complex type": (lambda e: {"dtype": "C64"}, f"cannot have the type|{UNREAD}"),
    "list as type": (lambda e: {"dtype": ["I32"]}, UNREAD),
    "type of NumPy": (lambda e: {"dtype": "<U200000000"}, UNREAD),
    "transposed": (lambda e: {"shape": e["shape"][::-1]}, "has shape .*; expected|because|number"),
    "one row more": (lambda e: {"shape": [e["shape"][0] + 1, *e["shape"][1:]]}, UNREAD),
    "huge shape": (lambda e: {"shape": [10**15, 10**15]}, UNREAD),
    "huge everything": (lambda e: {"shape": [10**12], "data_offsets": [0, 8 * 10**12]}, UNREAD),
    "beyond integers": (lambda e: {"shape": [10**40]}, UNREAD),
    "product of nothing": (lambda e: {"shape": [2**70, 0]}, UNREAD),
    "negative": (lambda e: {"shape": [-1], "data_offsets": [8, 0]}, UNREAD),
    "fractions": (lambda e: {"shape": [1.5]}, UNREAD),
    "truth": (lambda e: {"shape": [True, *e["shape"]]}, UNREAD),
    "text as shape": (lambda e: {"shape": "32"}, UNREAD),
    "no shape": (lambda e: {"shape": None}, UNREAD),
    "deep": (lambda e: {"shape": [1] * 9 + e["shape"]}, f"{UNREAD}|has shape .*; expected|cannot have the type"),
    "one offset": (lambda e: {"data_offsets": [0]}, UNREAD),
    "backwards": (lambda e: {"data_offsets": e["data_offsets"][::-1]}, UNREAD),
    "later": (lambda e: moved(e, 8), UNREAD),
    "not aligned": (lambda e: moved(e, 3), UNREAD),
    "over others": (lambda e: moved(e, -e["data_offsets"][0] or 8), UNREAD),
    "no entry": (lambda e: None, UNREAD),
}


@pytest.mark.parametrize("case", ENTRIES)
def test_entries_of_tensors_are_not_believed(case, tmp_path):
    change, message = ENTRIES[case]
    for kind in SAVED:
        metadata, entries, data, name = taken_apart(kind)
        changes = change(entries[name])
        entries[name] = changes if changes is None else entries[name] | changes
        metadata |= checksums(entries, data)
        if entries[name] == json.loads(json.dumps(taken_apart(kind)[1][name])):
            continue  # it begins where it is moved to
        path = written(tmp_path / "file", metadata, entries, data)
        refused(kind, path, message, f"{NO_PLACE}|its array '{name}' is")


def test_other_tensors_are_refused(tmp_path):
    for kind in SAVED:
        metadata, entries, data, name = taken_apart(kind)
        renamed = {("virus" if one == name else one): entry for one, entry in entries.items()}
        more = entries | {"virus": {"dtype": "U8", "shape": [1], "data_offsets": [len(data), len(data) + 1]}}
        less = {one: entry for one, entry in entries.items() if one != name}
        for wrong, content in ((renamed, data), (more, data + b"x"), (less, data)):
            of_them = {"bagwise": metadata["bagwise"]} | checksums(wrong, content)
            path = written(tmp_path / "file", of_them, wrong, content)
            refused(kind, path, f"holds the tensors .*virus|{UNREAD}", f"virus|its array|{NO_PLACE}")


def test_files_of_other_kinds_are_refused(tmp_path):
    for kind in SAVED:
        other = saved_files()[SAVED["bagwise.Sketch" if kind == "bagwise.Hierarchy" else "bagwise.Hierarchy"]]
        message = rf"holds 'bagwise\.(Sketch|Hierarchy)', not '{kind}'"
        refused(kind, other, message, message)
        refused(kind, tmp_path, "is a folder", "it is a folder")
        with pytest.raises((BagwiseError, FileNotFoundError), match="nothing"):
            type(load_file(saved_files()[SAVED[kind]])).load(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")  # reading it would wait for ever
    for kind in SAVED:
        refused(kind, tmp_path / "pipe", "is a pipe or a device|there is no such file", "there is no such file")


@given(st.sampled_from(sorted(SAVED)), st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=9))
def test_files_of_another_length_are_refused(tmp_path_factory, kind, fraction, more):
    path, content = tmp_path_factory.mktemp("cut") / "file", saved_files()[SAVED[kind]].read_bytes()
    for wrong in (content[: int(fraction * len(content))], content[:-1], content + more):
        path.write_bytes(wrong)
        refused(kind, path, UNREAD, "cut short|arrays end at|no JSON|does not fill|it is empty")


@pytest.mark.parametrize("kind", SAVED)
@given(fraction=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255))
def test_a_changed_byte_is_refused_or_harmless(tmp_path_factory, kind, fraction, byte):
    path, content = tmp_path_factory.mktemp("byte") / "file", bytearray(saved_files()[SAVED[kind]].read_bytes())
    content[int(fraction * len(content))] = byte
    path.write_bytes(content)
    for load, error in ((load_file, BagwiseError), (runtime.load, runtime.ModelFileError)):
        try:
            loaded = load(path)
        except error:
            continue
        if kind == "bagwise.Model":
            assert loaded.cut(4).n_groups == 4
