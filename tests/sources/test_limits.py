"""Every reader refuses what exceeds a limit, and names the limit."""

import io
import json
import lzma
import pickle
import re
import tarfile
import zipfile
from dataclasses import fields

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from PIL import Image

from bagwise import BagwiseError, open_collection
from bagwise.app import FitOptions, read_config
from bagwise.errors import OptionError
from bagwise.sources import Collection, ItemError, Limits, SkippedItemsWarning
from bagwise.sources.archives import list_archive
from bagwise.sources.limits import as_limits
from commands import bagwise


def test_limits_are_given_in_several_ways(tmp_path):
    expected = Limits(rows=100, table_bytes=2_000_000_000, seconds=0.5)
    assert as_limits(["rows=100", "table-bytes=2GB", "seconds=0.5"]) == expected
    assert as_limits({"rows": 100, "table_bytes": "2GB", "seconds": 0.5}) == as_limits(expected) == expected
    assert as_limits(None) == as_limits([]) == Limits()
    (tmp_path / "fit.toml").write_text(
        '[fit]\ngroups = 3\n[fit.limits]\nrows = 100\ntable_bytes = "2GB"\nseconds = 0.5'
    )
    assert FitOptions(**read_config(tmp_path / "fit.toml")).limits == expected
    assert FitOptions(limits=["rows=100"]).limits == Limits(rows=100)
    for given in (["rows=100"], None, {}):
        options = FitOptions(limits=given)
        assert FitOptions(**options.to_dict()).to_dict() == options.to_dict()
        assert as_limits(options.to_dict()["limits"]) == as_limits(options.limits)


def test_the_command_line_takes_limits(tmp_path):
    (tmp_path / "a.csv").write_bytes(FILES["a.csv"])
    for command in ("fit", "compare"):
        error = bagwise(command, tmp_path / "a.csv", "--limit", "rows=1", "--limit", "columns=9", code=1)
        assert "it has 2 rows, the limit rows is 1. If you trust it, raise the limit by --limit rows=NUMBER." in error
    error = bagwise("fit", tmp_path / "a.csv", "--dry-run", "--limit", "columns=2", code=1)
    assert "it has 3 columns, the limit columns is 2." in error
    assert "Unknown --limit: 'row'. Did you mean 'rows'" in bagwise("fit", tmp_path, "--limit", "row=1", code=1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["row=1"], "Unknown limits: 'row'. Did you mean 'rows'"),
        (["rows"], "A limit is given as name=value, such as rows=10000000; got 'rows'"),
        (["rows=many"], "The limit rows must be a number, got 'many'"),
        (["table_bytes=2XB"], "The limit table_bytes must be a number, or a size such as 2GB, got '2XB'"),
        ({"rows": 0}, "The limit rows must be a number above 0, up to 2^62, got 0"),
        ({"rows": 1.5}, "The limit rows must be a whole number, got 1.5"),
        ({"seconds": float("nan")}, "The limit seconds must be a number above 0, up to 2^62, got nan"),
        ({"text_bytes": 10**400}, "The limit text_bytes must be a number above 0, up to 2^62, got 1000"),
        (5, "A limit is given as name=value, such as rows=10000000; got 5"),
        ({"rows": None}, "The limit rows must be a number above 0, up to 2^62, got None"),
    ],
)
def test_limits_that_are_none_are_refused(given, message):
    with pytest.raises(OptionError, match=re.escape(message)):
        FitOptions(limits=given)


def zipped(**files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("_", "."), content)
    return packed.getvalue()


def tarred(**files):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name.replace("_", "."))
            info.size, info.pax_headers = len(content), {"comment": "x" * 100}
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def npz(**arrays):
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    return packed.getvalue()


def sparse():
    packed = io.BytesIO()
    sp.save_npz(packed, sp.csr_array(np.eye(3)))
    return packed.getvalue()


def parquet(**columns):
    packed = io.BytesIO()
    pq.write_table(pa.table(columns), packed)
    return packed.getvalue()


def workbook():
    import openpyxl

    book, packed = openpyxl.Workbook(), io.BytesIO()
    for row in (["text", "label"], ["apple" * 20, "x"], ["apple" * 20, "y"]):
        book.active.append(row)
    book.save(packed)
    return packed.getvalue()


FILES = {
    "a.csv": b"a,b,label\n1,2,xyz\n3,4,y\n",
    "text.csv": b'text,label\nred,x\n"green\nor ' + b"blue" * 30 + b'",y\n',
    "a.tsv": b"text\tlabel\nred\tx\n" + b"green" * 30 + b"\ty\n",
    "a.jsonl": b"".join(json.dumps({"text": "a" * k, "label": "b" * k}).encode() + b"\n" for k in (1, 99)),
    "a.mtx": b"%%MatrixMarket matrix coordinate real general\n4 3 1\n1 1 1\n",
    "array.mtx": b"%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n",
    "a.svmlight": b"1 1:1\n0 9:1\n",
    "a.npz": npz(X=np.ones((3, 3)), y=np.array(["x", "yyy", "z"])),
    "sparse.npz": sparse(),
    "a.parquet": parquet(a=[1.0, 2.0, 3.0], label=["xyz", "y", "z"]),
    "a.xlsx": workbook(),
    "book.zip": zipped(a_xlsx=workbook()),
    "a.zip": zipped(a_txt=b"abc", b_txt=b"text"),
    "a.tar": tarred(a_txt=b"abc", b_txt=b"text"),
    "a.tar.xz": lzma.compress(tarred(a_txt=b"abc", b_txt=b"text")),
}
REFUSED = [
    ("a.csv", {"rows": 1}, "it has 2 rows"),
    ("a.csv", {"columns": 2}, "it has 3 columns"),
    ("a.csv", {"table_bytes": 20}, "it has 24 bytes"),
    ("a.csv", {"label_length": 2}, "has a label of 3 characters"),
    ("text.csv", {"rows": 1}, "it has 2 rows"),
    ("text.csv", {"columns": 1}, "it has 2 columns"),
    ("text.csv", {"text_bytes": 100}, "it has 134 bytes"),
    ("a.tsv", {"text_bytes": 100}, "it has 153 bytes"),
    ("a.jsonl", {"text_bytes": 100}, "it has 224 bytes"),
    ("a.jsonl", {"rows": 1}, "has more than 1 records"),
    ("a.jsonl", {"label_length": 98}, "has a label of 99 characters"),
    ("a.mtx", {"rows": 3}, "it claims 4 rows"),
    ("a.mtx", {"columns": 2}, "it claims 3 columns"),
    ("a.mtx", {"table_bytes": 10}, "it has 58 bytes"),
    ("array.mtx", {"table_bytes": 31}, "it has 53 bytes"),
    ("a.svmlight", {"rows": 1}, "it claims 2 rows"),
    ("a.svmlight", {"columns": 8}, "it claims 9 columns"),
    ("a.svmlight", {"table_bytes": 10}, "it has 12 bytes"),
    ("a.npz", {"rows": 2}, "it claims 3 rows"),
    ("a.npz", {"columns": 2}, "it claims 3 columns"),
    ("a.npz", {"table_bytes": 100}, "its arrays have"),
    ("a.npz", {"total_bytes": 100}, "its files have 200 bytes and more"),
    ("a.npz", {"members": 1}, "it holds more than 1 files"),
    ("a.npz", {"label_length": 2}, "array 'y.npy' has strings of 3 characters"),
    ("sparse.npz", {"rows": 2}, "it claims 3 rows"),
    ("sparse.npz", {"columns": 2}, "it claims 3 columns"),
    ("a.parquet", {"rows": 2}, "it claims 3 rows"),
    ("a.parquet", {"columns": 1}, "it has 2 columns"),
    ("a.parquet", {"table_bytes": 40}, "it claims"),
    ("a.parquet", {"label_length": 2}, "has a label of 3 characters"),
    ("a.xlsx", {"rows": 1}, "it has more than 1 rows"),
    ("a.xlsx", {"member_bytes": 300}, "has"),
    ("a.xlsx", {"members": 3}, "it holds more than 3 files"),
    ("book.zip", {"members": 3}, "it holds more than 3 files"),
    ("a.zip", {"members": 1}, "it holds more than 1 files"),
    ("a.zip", {"member_bytes": 3}, "'b.txt' has 4 bytes"),
    ("a.zip", {"total_bytes": 6}, "its files have 7 bytes and more"),
    ("a.tar", {"members": 1}, "it holds more than 1 files"),
    ("a.tar", {"member_bytes": 3}, "'b.txt' has 4 bytes"),
    ("a.tar", {"header_bytes": 100}, "there is a header of 113 bytes"),
    ("a.tar.xz", {"total_bytes": 1000}, "it holds 10.24 kB"),
    ("a.tar.xz", {"header_bytes": 100}, "there is a header of 113 bytes"),
]


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_sound(name, tmp_path):
    (tmp_path / name).write_bytes(FILES[name])
    found = open_collection(tmp_path / name)
    assert len(found.ids) == len(found.labels) == len(found) > 0


@pytest.mark.parametrize(("name", "limits", "message"), REFUSED)
def test_readers_obey_the_limits(name, limits, message, tmp_path):
    (limit,) = limits
    (tmp_path / name).write_bytes(FILES[name])
    about = rf"{re.escape(message)}.*, the limit {limit} is .* raise the limit by limits=Limits\({limit}=\.\.\.\)"
    with pytest.raises(BagwiseError, match=about) as caught:
        open_collection(tmp_path / name, limits=Limits(**limits))
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.xlsx"])
def test_files_of_labels_obey_the_limits(name, tmp_path):
    (tmp_path / "texts").mkdir()
    for k in range(3):
        (tmp_path / "texts" / f"{k}.txt").write_text("some text")
    labels = {"a.csv": b"id,label\n0,x\n1,y\n2,z\n", "a.parquet": parquet(id=["0", "1", "2"], label=["x", "y", "z"])}
    (tmp_path / name).write_bytes(labels.get(name, FILES[name]))
    for limits in ({"rows": 1}, {"table_bytes": 5}) if name != "a.xlsx" else ({"rows": 1}, {"members": 1}):
        with pytest.raises(BagwiseError, match=f"the limit {next(iter(limits))} is"):
            open_collection(tmp_path / "texts", labels=tmp_path / name, limits=Limits(**limits))


def test_long_records_are_skipped_and_others_read(tmp_path):
    lines = [b'{"text": "a"}', b'{"text": "' + b"b" * 500 + b'"}', b'{"text": "c"}']
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    (tmp_path / "a.tsv").write_bytes(b"text\na\n" + b"b" * 500 + b"\nc\n")
    for name in ("a.jsonl", "a.tsv"):
        with pytest.warns(SkippedItemsWarning, match="the limit text_bytes is 100 bytes"):
            found = open_collection(tmp_path / name, on_error="skip", limits=Limits(text_bytes=100))
        assert [item.load() for item in found] == ["a", "c"]
    (tmp_path / "a.csv").write_bytes(b'text\na\n"' + b"b\n" * 200 + b'"\nc\n')
    with pytest.warns(SkippedItemsWarning, match="a.csv:2: it has 403 bytes, the limit text_bytes is 100 bytes"):
        found = open_collection(tmp_path / "a.csv", on_error="skip", limits=Limits(text_bytes=100))
    assert [item.load() for item in found] == ["a", "c"]


def test_items_obey_the_limits(tmp_path):
    (tmp_path / "a.txt").write_text("a" * 100)
    assert open_collection(tmp_path, limits=Limits(text_bytes=100))[0].load() == "a" * 100
    Image.new("L", (30, 20)).save(tmp_path / "a.png")
    for modality, limits, message in (
        ("texts", {"text_bytes": 99}, "it has more than 99 bytes, the limit text_bytes is 99 bytes"),
        ("texts", {"seconds": 1e-9}, "it takes longer to read, the limit seconds is 1e-09"),
        ("images", {"seconds": 1e-9}, "it takes longer to read, the limit seconds is 1e-09"),
        ("images", {"pixels": 599}, "it has 30 x 20 pixels, the limit pixels is 599"),
    ):
        with pytest.raises(ItemError, match=message):
            open_collection(tmp_path, modality, limits=Limits(**limits))[0].load()
        one = open_collection(tmp_path, modality)[0].fingerprint()
        assert open_collection(tmp_path, modality, limits=Limits(**limits))[0].fingerprint() == one


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tar_archives_are_listed_as_by_the_standard_library(format, tmp_path):
    path = tmp_path / "a.tar"
    rng = np.random.default_rng(0)
    with tarfile.open(path, "w", format=format) as archive:
        names = [f"{'d' * 60}/{'e' * 60}/{k}.txt" for k in range(3)] + [f"é{k}.txt" for k in range(3)] + ["a/b/"]
        if format != tarfile.USTAR_FORMAT:
            names += ["f" * 150 + f"{k}.txt" for k in range(3)] + ["g" * 120 + "/é.txt"]
        for name in names:
            info = tarfile.TarInfo(name.rstrip("/"))
            info.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            info.size = 0 if info.isdir() else int(rng.integers(0, 2000))
            info.mtime = 1.5
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    with tarfile.open(path) as archive:
        expected = {info.name: (info.offset_data, info.size) for info in archive if info.isreg()}
    assert {name: (one.offset, one.size) for name, one in list_archive(path, Limits()).items()} == expected
    assert len(expected) == len(names) - 1


@pytest.mark.parametrize("n", [3, 20_000])
def test_long_labels_do_not_widen_all(n):
    rows = Collection.from_matrix(sp.csr_array((n, 2)), labels=[("a",), ("b" * 1000,), *[("a",)] * (n - 2)])
    assert rows.labels[:3].tolist() == ["a", "b" * 1000, "a"]
    assert rows.labels.dtype == (object if n > 3 else "<U1000")
    assert repr(rows) == f"<Collection: {n:,} rows, 2 classes, from a table>"


def test_tables_with_many_rows_stay_small(tmp_path):
    path = tmp_path / "a.mtx"
    path.write_bytes(b"%%MatrixMarket matrix coordinate real general\n1000000 3 1\n1 1 1\n")
    rows = open_collection(path)
    assert (rows.ids[17], rows[999_999].id, rows[5:8].ids) == ("17", "999999", ["5", "6", "7"])
    assert rows.labels.shape == (1_000_000,)
    assert rows[17].load().shape == (1, 3)
    assert rows[[3, 1]][1].id == "1"
    assert pickle.loads(pickle.dumps(rows[:3])) == rows[:3]


def test_the_page_lists_all_limits():
    import pathlib

    page = pathlib.Path(__file__).parents[2].joinpath("docs/guides/collections.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page, re.MULTILINE))
    shown = {field.name: rows.get(field.name, "").strip() for field in fields(Limits)}
    units = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    for field in fields(Limits):
        said = shown[field.name]
        if field.default is None:
            assert said == "80 % of the free memory"
        else:
            number, *unit = said.replace(",", "").split()
            assert float(number) * units.get(unit[0] if unit else "", 1) == field.default, field.name
