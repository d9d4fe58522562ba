"""Files that claim or expand to much more than they have: refused in little time, with 300 MB at most."""

import contextlib
import gzip
import io
import json
import lzma
import re
import resource
import struct
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from bagwise import BagwiseError, LatentDirichlet, open_collection
from bagwise._io.tensors import kind_of
from bagwise._utils.json_text import parse_json
from bagwise.app import read_config
from bagwise.sources import Limits
from fuzz.running import memory_taken

MEMORY = 300 << 20


@contextlib.contextmanager
def bounded():
    """Let the process take no more than so much memory."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (memory_taken() + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def block(name, size, kind):
    """A header of a tar archive."""
    header = bytearray(512)
    header[: len(name)], header[156:157] = name, kind
    header[124:136], header[148:156] = b"%011o\0" % size, b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def padded(content):
    return content + bytes(-len(content) % 512)


END = block(b"a.txt", 3, b"0") + padded(b"abc") + bytes(1024)
LONG_NAME = block(b"././@LongLink", 6, b"L") + padded(b"a.txt\0")


def pax(content):
    return block(b"pax", len(content), b"x") + padded(content) + END


def directory(n_files):
    """A zip archive with this number of files in its list, but none that they stand for."""
    one = b"PK\1\2" + bytes(24) + struct.pack("<3H", 1, 0, 0) + bytes(12) + b"a"
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(one) * n_files, 30, 0)
    return b"PK\3\4" + bytes(26) + one * n_files + end


def overlapping():
    """A zip archive whose files share their bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for k in range(3):
            archive.writestr(f"{k}.txt", "some text")
    content = bytearray(packed.getvalue())
    first = content.index(b"PK\1\2")
    for at in (content.index(b"PK\1\2", first + 1), content.rindex(b"PK\1\2")):
        content[at + 42 : at + 46] = content[first + 42 : first + 46]
    return bytes(content)


def npy(dtype, shape, content=b""):
    said = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape!r}}}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(said)) + said + content


def zipped(members, compression=zipfile.ZIP_DEFLATED):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


def npz(**arrays):
    small = {"X": npy("<f8", (2, 2), bytes(32))}
    return zipped({f"{name}.npy": content for name, content in (small | arrays).items()})


def sparse(kind, rows, **arrays):
    shape = npy("<i8", (2,), np.array([rows, 5]).tobytes())
    given = {"format": npy("|S3", (), kind), "shape": shape, "data": npy("<f8", (0,))}
    return npz(**given, **{name: npy("<i4", (n,), bytes(4 * n)) for name, n in arrays.items()})


def parquet(columns, **options):
    packed = io.BytesIO()
    pq.write_table(pa.table(columns), packed, **options)
    return packed.getvalue()


def repeated_text():
    """One long text, which 100,000 rows have."""
    places = pa.array(np.zeros(100_000, np.int32))
    label = pa.DictionaryArray.from_arrays(places, pa.array(["y" * 300_000]))
    return parquet({"a": pa.array(np.zeros(100_000)), "label": label}, store_schema=False)


def deep_schema(depth):
    """A Parquet file whose columns are within each other."""
    schema = b"\x48\x01r\x15\x02\x00" + b"\x35\x02\x18\x01a\x15\x02\x00" * depth + b"\x15\x04\x25\x02\x18\x01a\x00"
    n = depth + 2
    about = b"\x15\x02\x19\xfc" + bytes([n & 127 | 128, n >> 7 & 127 | 128, n >> 14]) + schema + b"\x16\x00\x19\x0c\x00"
    return b"PAR1" + about + len(about).to_bytes(4, "little") + b"PAR1"


def nested():
    return parquet({"a": [1.0, 2.0], "b": [[1.0], [2.0, 3.0]]})


def workbook(n_rows):
    """An Excel file with a long text that many cells have."""
    import openpyxl

    packed, changed, strings = io.BytesIO(), {}, "application/vnd.openxmlformats-officedocument.spreadsheetml."
    openpyxl.Workbook().save(packed)
    rows = b"".join(b'<row r="%d"><c r="A%d" t="s"><v>0</v></c></row>' % (k, k) for k in range(1, n_rows))
    with zipfile.ZipFile(packed) as old:
        for name in old.namelist():
            content = re.sub(
                rb"<sheetData ?/>|<sheetData></sheetData>", b"<sheetData>" + rows + b"</sheetData>", old.read(name)
            )
            about = f'<Override PartName="/xl/sharedStrings.xml" ContentType="{strings}sharedStrings+xml" />'
            changed[name] = content.replace(b"</Types>", about.encode() + b"</Types>")
    space = b"http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    text = b"a" * 30_000
    changed["xl/sharedStrings.xml"] = b'<sst xmlns="' + space + b'"><si><t>' + text + b"</t></si></sst>"
    return zipped(changed)


def large_dictionary():
    """An xz file that needs 3 GiB to be unpacked, as it says."""
    content = bytearray(lzma.compress(END, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]))
    assert content[14] == 0x21
    content[16], end = 39, 12 + 4 * content[12]
    content[end : end + 4] = struct.pack("<L", zlib.crc32(content[12:end]))
    return bytes(content)


JSON_END = b'\n{"text": "b"}\n'
MTX = b"%%MatrixMarket matrix "
BOMBS = {
    "digits.tar": (lambda: pax(b"0" * 200_000), "the attributes of one of its files cannot be parsed"),
    "chain.tar": (lambda: LONG_NAME * 20_000 + END, "more than 16 headers for one"),
    "chain.tar.gz": (lambda: gzip.compress(LONG_NAME * 100 + END), "more than 16 headers for one"),
    "header.tar": (lambda: block(b"pax", 1 << 30, b"x") + END, "the limit header_bytes"),
    "global.tar": (lambda: block(b"pax", 1 << 30, b"g") + END, "the limit header_bytes"),
    "name.tar": (lambda: block(b"name", 1 << 30, b"L") + END, "the limit header_bytes"),
    "link.tar.gz": (lambda: gzip.compress(block(b"name", 1 << 30, b"K") + END), "the limit header_bytes"),
    "cut.tar": (lambda: block(b"pax", 1 << 19, b"x") + END, "cut short"),
    "size.tar": (lambda: block(b"a.txt", 8**11 - 1, b"0") + END, "it ends before 'a.txt' does"),
    "sum.tar": (lambda: block(b"a.txt", 3, b"0").replace(b"a.txt", b"b.txt") + END, "no header of a file"),
    "dictionary.tar.xz": (large_dictionary, "Memory usage limit exceeded"),
    "zeros.tar.gz": (lambda: gzip.compress(bytes(9 << 20)), "the limit ratio is 200"),
    "overlapping.zip": (overlapping, "shares its bytes with what follows"),
    "zeros.zip": (lambda: zipped({"a.txt": bytes(9 << 20)}), "the limit ratio is 200"),
    "many zeros.zip": (lambda: zipped({f"{k}.txt": bytes(1 << 19) for k in range(20)}), "the limit ratio is 200"),
    "wide labels.npz": (lambda: npz(y=npy("<U200000000", (2,), b"x" * 99)), r"claims \(2,\) of <U200000000"),
    "rows.npz": (lambda: npz(X=npy("<f8", (10**9, 10**3), bytes(32))), "claims .* but has 32 bytes"),
    "negative.npz": (lambda: npz(X=npy("<f8", (-2, -2), bytes(32))), "claims .* but has 32 bytes"),
    "objects.npz": (lambda: npz(y=npy("|O", (2,), b"cos\nsystem\n(S'false'\ntR.")), "holds Python objects"),
    "fields.npz": (lambda: npz(X=npy([("a", "<f8")], (2,), bytes(16))), "labels have shape|has shape"),
    "csr.npz": (lambda: sparse(b"csr", 10**12, indices=0, indptr=1), "claims 1,000,000,000,000 rows, the limit rows"),
    "coo.npz": (lambda: sparse(b"coo", 10**10, row=0, col=0), "claims 10,000,000,000 rows, the limit rows"),
    "text.parquet": (repeated_text, "label of 300,000 characters, the limit label_length"),
    "deep.parquet": (lambda: deep_schema(20_000), "not a Parquet file, or damaged"),
    "nested.parquet": (nested, "column 'b' is list<element: double>, not numbers"),
    "text.xlsx": (lambda: workbook(20_000), "the limit member_bytes"),
    "nested.jsonl": (lambda: b'{"text": "a", "x": ' + b"[" * 10**5 + JSON_END, "it is not JSON"),
    "label.jsonl": (
        lambda: b'{"text": "a", "label": ' + b"[" * 900 + b"]" * 900 + b"}" + JSON_END,
        "'label' holds objects or lists of lists",
    ),
    "number.jsonl": (lambda: b'{"text": "a", "label": ' + b"9" * 10**6 + b"}" + JSON_END, "it is not JSON"),
    "line.jsonl": (lambda: b'{"text": "' + b"a" * (5 << 20) + b'"}' + JSON_END, "the limit text_bytes"),
    "label.csv": (lambda: b"a,label\n" + b"1,x\n" * 10_000 + b"1," + b"y" * 100_000, "the limit label_length"),
    "text.csv": (lambda: b'text\n"' + b"a" * (5 << 20), "the quote .* is not closed"),
    "rows.mtx": (lambda: MTX + b"coordinate real general\n99999999 3 1\n1 1 1\n", "the limit rows is 10,000,000"),
    "columns.mtx": (lambda: MTX + b"coordinate real general\n3 99999999 1\n1 1 1\n", "the limit columns is 10,000,000"),
    "columns.svmlight": (lambda: b"1 2147483646:1\n0 1:1\n", "the limit columns is 10,000,000"),
}


# Others than the defaults, so that tests are fast.
LIMITS = {"text.xlsx": Limits(member_bytes=8 << 20)} | dict.fromkeys(
    ("line.jsonl", "text.csv"), Limits(text_bytes=1000)
)


@pytest.fixture(scope="module", autouse=True)
def loaded(tmp_path_factory):
    """Import and allocate beforehand what all files need."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "a.parquet").write_bytes(parquet({"a": [1.0, 2.0], "label": ["x", "y"]}))
    (folder / "a.mtx").write_bytes(MTX + b"array real general\n1 1\n1\n")
    (folder / "a.svmlight").write_bytes(b"1 1:1\n")
    (folder / "a.xlsx").write_bytes(workbook(2))
    for name in ("a.parquet", "a.mtx", "a.svmlight"):
        open_collection(folder / name)
    with pytest.raises(BagwiseError, match="has no rows"):
        open_collection(folder / "a.xlsx")


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused(name, tmp_path):
    make, message = BOMBS[name]
    (tmp_path / name).write_bytes(make())
    with bounded(), pytest.raises(BagwiseError, match=message) as caught:
        open_collection(tmp_path / name, limits=LIMITS.get(name))
    assert name in str(caught.value)


def test_lists_of_too_many_files_are_refused_before_they_take_memory(tmp_path):
    (tmp_path / "a.zip").write_bytes(directory(700_000))
    with bounded(), pytest.raises(BagwiseError, match="it holds more than 1,000 files, the limit members"):
        open_collection(tmp_path / "a.zip", limits=Limits(members=1000))


def test_what_is_large_but_harmless_is_read(tmp_path):
    comment = b"comment=" + b"0" * 200_000 + b"\n"
    (tmp_path / "a.tar").write_bytes(pax(b"%d " % (len(comment) + 7) + comment))
    (tmp_path / "a.mtx").write_bytes(MTX + b"coordinate real general\n2000000 3 1\n1 1 1\n")
    (tmp_path / "a.csv").write_bytes(b"a;" + b"b" * 200_000 + b"\n1;2\n")
    with bounded():
        assert open_collection(tmp_path / "a.tar")[0].load() == "abc"
        rows = open_collection(tmp_path / "a.mtx")
        assert (len(rows.labels), rows.ids[1_999_999]) == (2_000_000, "1999999")
        assert open_collection(tmp_path / "a.csv", sep=";").X.tolist() == [[1, 2]]


def test_parts_of_images_take_no_memory_that_they_do_not_fill(tmp_path):
    packed, pixels = io.BytesIO(), np.arange(400).reshape(20, 20).astype(np.uint8)
    Image.fromarray(pixels).save(packed, "PNG")
    changed = bytearray(packed.getvalue())
    changed[33] |= 0x40  # the length of the first part of the pixels, of 1 GiB now
    (tmp_path / "a.png").write_bytes(changed)
    with bounded():  # the pixels are all there
        np.testing.assert_array_equal(open_collection(tmp_path)[0].load(), pixels)


@pytest.mark.parametrize(("bits", "kind", "n_bytes"), [(16, 6, 8), (8, 6, 4), (16, 4, 4), (8, 2, 3)])
def test_images_are_converted_without_copies_of_the_whole(bits, kind, n_bytes, tmp_path):
    side = 5000  # 25 million pixels, of which Pillow holds 4 bytes each
    lines = zlib.compress((b"\0" + b"\x40" * (side * n_bytes)) * side, 1)
    parts = ((b"IHDR", struct.pack(">IIBBBBB", side, side, bits, kind, 0, 0, 0)), (b"IDAT", lines), (b"IEND", b""))
    packed = (
        struct.pack(">I", len(one)) + name + one + struct.pack(">I", zlib.crc32(name + one)) for name, one in parts
    )
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(packed))
    image = open_collection(tmp_path)[0]
    with bounded():
        assert image.load(100).shape == (100, 100)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = " + "[" * 10_000, "is not valid TOML"),
        ("groups = " + "9" * 5000, "is not valid TOML"),
        ("# " + "x" * (1 << 20), "has more than 1,048,576 bytes"),
    ],
)
def test_configurations_are_bounded(content, message, tmp_path):
    (tmp_path / "fit.toml").write_text(content)
    with bounded(), pytest.raises(BagwiseError, match=message):
        read_config(tmp_path / "fit.toml")


def _entries(n):
    return "".join(f'"{k}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}},' for k in range(n))


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"__metadata__": {"bagwise": "[" + "[]," * 1_300_000 + "0]"}}),
        '{"a":{"dtype":"U8","shape":[' + "0," * 2_000_000 + '0],"data_offsets":[0,0]}}',
        '{"__metadata__":{' + "".join(f'"{k}":"",' for k in range(350_000)) + '"bagwise":"{}"}}',
        "{" + _entries(75_000) + '"__metadata__":{"bagwise":"{}"}}',
    ],
    ids=["lists", "lengths", "metadata", "tensors"],
)
def test_headers_of_as_many_values_as_fit_take_little_memory(text, tmp_path):
    path = tmp_path / "a.topics"
    path.write_bytes(len(text).to_bytes(8, "little") + text.encode())
    assert 3_500_000 < len(text) < 1 << 22
    with bounded(), pytest.raises(BagwiseError, match=r"a\.topics (is not a file of bagwise|holds None, not)"):
        LatentDirichlet.load(path)
    with bounded():
        assert kind_of(path) is None


@pytest.mark.parametrize("part", ["[],", "{},", "0,", '"",', "[0],", '{"":0},'])
def test_headers_of_many_values_are_refused_before_these_are_made(part, tmp_path):
    """Headers may have less text; lines of JSON may have more."""
    text = f"[{part * ((1 << 24) // len(part))}0]".encode()
    (tmp_path / "a.topics").write_bytes(len(text).to_bytes(8, "little") + text)
    with bounded(), pytest.raises(BagwiseError, match=r"it would take .* at most 4194304 are accepted"):
        LatentDirichlet.load(tmp_path / "a.topics")
    with bounded():
        assert kind_of(tmp_path / "a.topics") is None
    (tmp_path / "a.jsonl").write_bytes(b'{"text": ' + text + b"}\n")
    with bounded(), pytest.raises(BagwiseError, match="cannot be used: none of its lines is an object"):
        open_collection(tmp_path / "a.jsonl", modality="records")


def test_what_strings_hold_is_not_counted():
    for text in ('["[,{\\"[,["]', '{"a,": "\\\\", "b": [",,"]}', '["\\u0022,,,"]'):
        assert parse_json(text, most_parts=7) == json.loads(text)
        assert parse_json(text.encode(), most_parts=7) == json.loads(text)
    with pytest.raises(ValueError, match="more than 2 strings"):
        parse_json('["a", 1]', most_parts=2)
    with pytest.raises(ValueError, match="Unterminated"):
        parse_json('["' + '\\",' * (1 << 20), most_parts=10)  # in linear time
    with pytest.raises(ValueError):  # noqa: PT011
        parse_json("[0]".encode("utf-16"))


def test_labels_of_json_are_strings_and_numbers(tmp_path):
    records = [{"text": "a", "label": ["x", 1]}, {"text": "b", "label": 2.5}, {"text": "c", "label": None}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert open_collection(tmp_path / "a.jsonl").label_sets == [("x", "1"), ("2.5",), ()]
