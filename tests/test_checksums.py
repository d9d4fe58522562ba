"""Checksums in files of every kind, what loading makes of changed bits, and ``bagwise info --verify``."""

import json
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bagwise import BagwiseError, runtime
from bagwise.app.cli.app import app
from bagwise.app.cli.verifying import KINDS, load_file
from bagwise.bags import BagsWriter
from changed_files import change_tensor, read_parts
from model_cases import MADE, image_model
from saved_files import SAVED, saved_files

# Tensors that are not read when the file is opened.
MAPPED = {
    "bagwise.ItemIndex": {"totals", "items", "values", "dense", "id_text"},
    "bagwise.BagIndex": {"totals", "items", "values", "dense", "id_numbers", "id_text"},
    "bagwise.Bags": {"values", "positions"},
}


def saved(kind):
    return saved_files()[SAVED[kind]]


def info(*arguments, code=0):
    ran = CliRunner().invoke(app, ["info", *map(str, arguments), "--json"])
    assert ran.exit_code == code, ran.output
    return json.loads(ran.stdout)


def flip(array):
    array.view(np.uint8).reshape(-1)[-1] ^= 1


def test_all_kinds_are_tried():
    assert SAVED.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", SAVED)
def test_every_tensor_has_a_checksum_that_notices_one_bit(kind, tmp_path):
    new = load_file(saved(kind)).save(tmp_path / "new")
    assert new.read_bytes() == saved(kind).read_bytes()
    entries, data = read_parts(new)
    metadata = entries.pop("__metadata__")
    assert metadata.keys() == {"bagwise", *(f"crc32.{name}" for name in entries)}
    assert {one["name"] for one in info(new, "--verify")["verified"]["tensors"]} == entries.keys()
    for name, entry in entries.items():
        first, last = entry["data_offsets"]
        assert metadata[f"crc32.{name}"] == f"{zlib.crc32(data[first:last]):08x}"
        if first == last:
            continue
        shutil.copy(new, tmp_path / "changed")
        change_tensor(tmp_path / "changed", name, flip, checksum="old")
        assert f" its {name}" in info(tmp_path / "changed", "--verify", code=1)["error"]
        if name.removeprefix("index.") in MAPPED.get(kind, ()):
            load_file(tmp_path / "changed")
        else:
            with pytest.raises(BagwiseError, match="changed "):
                load_file(tmp_path / "changed")


def test_both_readers_of_models_notice_a_changed_bit(tmp_path):
    path = image_model(np.random.default_rng(0)).save(tmp_path / "model.bagwise")
    runtime.load(path)
    change_tensor(path, "codebook", flip, checksum="old")
    message = r"model.bagwise .*the checksum of its codebook is [0-9a-f]{8}, expected '[0-9a-f]{8}'"
    with pytest.raises(BagwiseError, match=message):
        load_file(path)
    with pytest.raises(runtime.ModelFileError, match=message):
        runtime.load(path)


@pytest.mark.parametrize("name", MADE)
def test_models_of_all_forms_have_checksums(name, tmp_path):
    path = MADE[name]().save(tmp_path / "model.bagwise")
    entries, _ = read_parts(path)
    assert entries["__metadata__"].keys() - {"bagwise"} == {f"crc32.{one}" for one in entries.keys() - {"__metadata__"}}
    assert load_file(path).info() == MADE[name]().info()
    runtime.load(path)


def test_bags_written_one_by_one_have_the_checksum_of_all(tmp_path):
    rng = np.random.default_rng(0)
    with BagsWriter(tmp_path / "bags", 3, positions=True) as writer:
        for n in (4, 0, 7):
            writer.append(rng.random((n, 3)), rng.random((n, 2)))
    assert info(tmp_path / "bags", "--verify")["verified"]["kind"] == "bagwise.Bags"
    assert load_file(tmp_path / "bags", verify=True).n_rows == 11


@pytest.mark.parametrize("text", ["0" * 7, "x" * 8, 5, None, "none at all"])
def test_checksums_are_not_believed(text, tmp_path):
    path = Path(shutil.copy(saved("bagwise.Bags"), tmp_path / "bags"))
    entries, data = read_parts(path)
    entries["__metadata__"]["crc32.offsets"] = text
    if text is None:
        del entries["__metadata__"]["crc32.offsets"]
    elif text == "none at all":
        entries["__metadata__"] = {"bagwise": entries["__metadata__"]["bagwise"]}
    header = json.dumps(entries).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    with pytest.raises(BagwiseError, match="checksum"):
        load_file(path)


@pytest.mark.parametrize(
    ("kind", "name", "change", "problem"),
    [
        ("bagwise.BagIndex", "items", lambda held: held.fill(65535), "its items name item 65535"),
        ("bagwise.BagIndex", "values", lambda held: held.put(0, np.nan), "its values holds nan"),
        ("bagwise.BagIndex", "starts", lambda held: held.put(1, -5), "starts"),
        ("bagwise.BagIndex", "id_text", lambda held: held.put(0, 255), "String 0 is not UTF-8"),
        ("bagwise.ItemIndex", "index.totals", lambda held: held.put(0, np.inf), "its index.totals holds inf"),
        ("bagwise.ItemIndex", "model", lambda held: held.put(range(8), 0), "cannot be read as a model"),
        ("bagwise.Bags", "values", lambda held: held.put(3, np.inf), "values must be finite"),
        ("bagwise.Bags", "positions", lambda held: held.put(3, 7), "positions must lie in"),
        ("bagwise.Bags", "offsets", lambda held: held.put(1, 99), "offsets"),
        (
            "bagwise.Statistics",
            "gram_indices",
            lambda held: held.fill(77),
            "its gram, gram_indices or gram_indptr are damaged",
        ),
        ("bagwise.Hierarchy", "merges", lambda held: held.fill(-1), "Merge 0"),
        ("bagwise.Model", "merges", lambda held: held.fill(-1), "Merge 0"),
        ("bagwise.Sketch", "sums", lambda held: held.put(0, np.nan), "sums"),
    ],
)
def test_verify_names_what_is_wrong_also_where_checksums_are_right(kind, name, change, problem, tmp_path):
    path = Path(shutil.copy(saved(kind), tmp_path / "file"))
    change_tensor(path, name, change)
    assert problem in info(path, "--verify", code=1)["error"]


def test_info_tells_of_files_of_every_kind(tmp_path):
    for kind in SAVED.keys() - {"bagwise.Model", "bagwise.ItemIndex"}:
        found = info(saved(kind))["file"]
        assert found["kind"] == kind
        assert {one["name"] for one in found["tensors"]} == read_parts(saved(kind))[0].keys() - {"__metadata__"}
    (tmp_path / "text").write_text("no file of ours")
    assert "is not a file of bagwise" in info(tmp_path / "text", "--verify", code=1)["error"]
    assert "No such file" in info(tmp_path / "nothing", "--verify", code=1)["error"]
