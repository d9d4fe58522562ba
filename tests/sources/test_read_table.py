"""Whatever the format of a table, the columns are the same; rows that cannot be used are named with the reason."""

import csv
import gzip
import io
import json
import sqlite3
import uuid

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise import BagwiseError
from bagwise.sources.contents import FileContent
from bagwise.sources.item_tables import all_differ, to_strings
from bagwise.sources.limits import Limits
from bagwise.sources.read_table import Layout, read_table, table_names

# what a cell may hold: anything but half a surrogate pair
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PRINTED = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\t"), max_size=12)
TEXTS, KINDS = ["one, two", 'the "third"', "line\nbreak", "né"], ["a", "b", "a", "b"]


def read(path, **options):
    limits = options.pop("limits", Limits())
    return read_table(FileContent(str(path)), path.name, Layout(**options), limits)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def columns_of(table):
    return {
        name: [None if one is None else str(one) for one in column]
        for name, column in table.columns.to_pydict().items()
    }


def written(path, columns):
    """Write columns in the format of a path's ending, also compressed."""
    frame, name = pd.DataFrame(columns), path.name.removesuffix(".gz").removesuffix(".zst")
    plain = path.with_name(name)
    if name.endswith((".csv", ".tsv")):
        quoting = csv.QUOTE_ALL if name.endswith(".tsv") else csv.QUOTE_MINIMAL
        frame.to_csv(plain, index=False, sep="\t" if name.endswith(".tsv") else ",", quoting=quoting)
    elif name.endswith(".jsonl"):
        plain.write_text("".join(json.dumps(row) + "\n\n" for row in frame.to_dict("records")))
    elif name.endswith(".xlsx"):
        pytest.importorskip("openpyxl")
        frame.to_excel(plain, index=False)
    elif name.endswith(".parquet"):
        frame.to_parquet(plain, index=False)
    else:
        with sqlite3.connect(plain) as base:
            frame.to_sql("rows", base, index=False)
        base.close()
    content = plain.read_bytes()
    if path.name.endswith(".gz"):
        path.write_bytes(gzip.compress(content))
    elif path.name.endswith(".zst"):
        path.write_bytes(pa.compress(content, "zstd", asbytes=True))
    return path


FORMATS = ["a.csv", "a.tsv", "a.jsonl", "a.xlsx", "a.parquet", "a.sqlite"]


@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
@pytest.mark.parametrize("name", FORMATS)
def test_all_formats_give_back_what_was_written(tmp_path, name, packed):
    path = written(tmp_path / f"{name}{packed}", {"body": TEXTS, "kind": KINDS, "n": [1, 2, 3, 4]})
    table = read(path)
    expected = {"body": TEXTS, "kind": KINDS, "n": ["1", "2", "3", "4"]}
    if not name.endswith("tsv"):
        assert columns_of(table) == expected
    assert (table.names, list(table.numbers), table.bad, table.notes) == (list(expected), [1, 2, 3, 4], (), ())
    assert table_names(FileContent(str(path)), path.name, Layout(), Limits()) == table.names


@given(st.lists(st.tuples(ANY_TEXT, ANY_TEXT), min_size=1, max_size=6), st.sampled_from(",;\t"))
def test_csv_gives_back_what_was_written(tmp_path_factory, rows, sep):
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=sep).writerows([("text", "label"), *rows])
    table = read(write(tmp_path_factory.mktemp("csv") / "a.csv", stream.getvalue()), encoding="utf-8", sep=sep)
    assert columns_of(table) == {"text": [a for a, _ in rows], "label": [b for _, b in rows]}


@given(st.lists(st.tuples(PRINTED, PRINTED.filter(bool)), min_size=1, max_size=6))
def test_tsv_has_no_quotes(tmp_path_factory, rows):
    content = "".join(f"{a}\t{b}\n" for a, b in [("text", "label"), *rows])
    table = read(write(tmp_path_factory.mktemp("tsv") / "a.tsv", content), encoding="utf-8")
    assert columns_of(table) == {"text": [a for a, _ in rows], "label": [b for _, b in rows]}


@given(st.lists(st.lists(ANY_TEXT, min_size=1, max_size=3), min_size=1, max_size=8), st.sampled_from(["", '"', '"x"y']))
def test_row_by_row_is_as_at_once(tmp_path_factory, rows, odd):
    """A row that is not regular makes all rows be parsed one by one: the others stay as they are."""
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows([["text", "label", "n"], *[[*row, "", "", ""][:3] for row in rows]])
    folder = tmp_path_factory.mktemp("csv")
    regular = read(write(folder / "a.csv", stream.getvalue()), encoding="utf-8")
    odd_one = (
        read(write(folder / "b.csv", stream.getvalue() + odd + ",,,,\n"), encoding="utf-8") if odd != '"' else regular
    )
    assert columns_of(odd_one) == columns_of(regular)
    assert len(odd_one.bad) == (odd != '"')


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("ham,see you\nspam,win now\nham,ok then\n", None),
        ("5.1,3.5,setosa\n4.9,3.0,setosa\n6.2,2.9,virginica\n", None),
        ("1,2\n3,4\n", None),
        ("text,kind\ntext,a\nother,b\n", ["text", "kind"]),
        ("width,kind\n1,a\n2,b\n", ["width", "kind"]),
        ("country,1990\nFrance,5.1\nItaly,5.2\n", ["country", "1990"]),
        ("0,1,2,3\n5,6,7,8\n", ["0", "1", "2", "3"]),
        ("content,x\ncontent,y\nother,z\ncontent,w\n", None),
        ("1,first of all\n2,then that\n3,at last\n", None),
        ("great film,3.72\nbad,1.51\nfine film,2.2\n", None),
        ("name,2020\nfirst,2021\nsecond,2025\n", None),
        ("name,2020\nfirst,17\nsecond,9\n", ["name", "2020"]),
        ("v1,v2,,\nham,see you,,\nspam,win,,\n", ["v1", "v2"]),
        (",v\na,1\nb,2\n", ["Unnamed: 0", "v"]),
    ],
)
def test_whether_the_first_row_has_names(tmp_path, content, names):
    path = write(tmp_path / "a.csv", content)
    table = read(path)
    numbered = [str(k + 1) for k in range(content.split("\n")[0].count(",") + 1)]
    assert table.names == (names or numbered)
    assert table.has_names == (names is not None)
    assert len(table.notes) == (names is None)
    rows = content.count("\n")
    for header in (True, False):
        told = read(path, header=header)
        assert (told.columns.num_rows, told.notes) == (rows - header, ())


@pytest.mark.parametrize(
    ("name", "content", "bad"),
    [
        ("a.csv", "text,label\ngood,x\nbad\n", (2, "it has 1 field, expected 2: 'text', 'label'")),
        ("a.csv", 'text,label\ngood,x\n"open,y\n', (2, 'the quote " that opens in line 3 is not closed.')),
        ("a.csv", 'text,label\ngood,x\n"a"b,y\n', (2, 'the quote " that opens in line 3 closes within a field')),
        ("a.csv", b"text,label\nok,x\n" + "Größe größ".encode()[:-1] + b",y\n", (2, "its byte 0xc3 is not UTF-8.")),
        ("a.csv", b"text,label\n" + "gö,x\n".encode() * 5 + b"caf\xe9,y\n", (6, "its byte 0xe9 is not UTF-8.")),
        ("a.jsonl", '{"text": "good"}\n{"text": \n', (2, "it is not JSON")),
        ("a.jsonl", '{"text": "good"}\n\n[1]\n', (2, "it is a JSON list, expected an object")),
        ("a.jsonl", '{"text": "good"}\n' + "[" * 999, (2, "it is not JSON")),
        ("a.jsonl", '{"text": "good"}\n{"text": "' + "x" * 2000 + '"}', (2, "it has 2.01 kB, the limit text_bytes is")),
        ("a.csv", "text\ngood\n" + "x" * 2000, (2, "it has 2.00 kB, the limit text_bytes is")),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_used_are_named(tmp_path, name, content, bad):
    table = read(write(tmp_path / name, content), limits=Limits(text_bytes=1000))
    ((number, reason),) = table.bad
    assert (number, reason[: len(bad[1])]) == bad
    assert table.columns.num_rows == len(table.numbers) >= 1
    assert number not in table.numbers


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("a.csv", "", "it is empty"),
        ("a.csv", "text,text\na,b\n", "columns of the same name: 'text', 'text'"),
        ("a.csv", 'text,label\ngood,x\n"open,y\nnext,x\nlast,y\n', "in line 3 is not closed up to the end, line 5"),
        ("a.jsonl", "\n", "it is empty"),
        ("a.jsonl", "{'text': 'a'}\n", "none of its lines is an object; the first: it is not JSON"),
        ("a.xlsx", "nothing", "damaged or not an archive"),
        ("a.parquet", "nothing", "not a Parquet file, or damaged"),
        ("a.sqlite", "nothing", "it is not an SQLite file"),
        ("a.csv.gz", b"\x1f\x8bnothing", "its compression (gzip) is damaged"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_used(tmp_path, name, content, error):
    with pytest.raises(BagwiseError) as told:
        read(write(tmp_path / name, content))
    assert error in str(told.value)


def test_json_values_of_several_kinds(tmp_path):
    rows = [
        {"text": "a", "label": 1, "meta": {"x": 1}},
        {"text": None, "label": ["p", 2]},
        {"label": True, "big": 10**30},
    ]
    table = read(write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows))))
    assert table.columns.to_pydict() == {
        "text": ["a", "", None],
        "label": [["1"], ["p", "2"], ["True"]],
        "big": [None, None, str(10**30)],
    }
    assert table.unread == {"meta": "objects or lists of lists"}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "cp1252", "shift_jis", "koi8_r"])
def test_encodings_that_are_told_and_guessed(tmp_path, encoding):
    texts = {
        "cp1252": "le café est fermé à noël",
        "shift_jis": "とても良い商品でした。",
        "koi8_r": "Очень хороший товар",
    }
    text = texts.get(encoding, "né ü")
    path = write(tmp_path / "a.csv", f"text,label\n{text},x\n{text} 2,y\n".encode(encoding))
    expected = {"text": [text, f"{text} 2"], "label": ["x", "y"]}
    assert columns_of(read(path, encoding=encoding)) == expected
    if encoding == "utf-16-le":
        return  # without a mark
    table = read(path)
    assert columns_of(table) == expected
    assert len(table.notes) == (encoding in texts)
    assert all(f"was read as {encoding}, a guess; encoding= chooses another" in note for note in table.notes)


def test_columns_of_parquet_are_chosen(tmp_path):
    pq.write_table(pa.table({"a": [1], "b": ["x"], "c": [{"d": 1}]}), tmp_path / "a.parquet")
    table = read(tmp_path / "a.parquet", columns=("b",))
    assert (table.names, table.left_out, [*table.unread]) == (["b"], ("a",), ["c"])


def test_columns_of_different_lengths_are_damaged(tmp_path, monkeypatch):
    pq.write_table(pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]}), tmp_path / "a.parquet")
    whole = pq.ParquetFile.iter_batches

    def cut(file, size, groups, columns):
        return (one.slice(0, 2) if columns == ["a"] else one for one in whole(file, size, groups, columns=columns))

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", cut)
    with pytest.raises(BagwiseError, match="not a Parquet file, or damaged: Column 1 named b expected length 2"):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_equal_values_are_seen(kind):
    values = [b"", b"a", b"ab", b"ba", b"b", *(b"%d" % k for k in range(9000)), b"x" * 99_999]
    whole = pa.chunked_array([values[:5000], values[5000:]], kind)
    assert all(map(all_differ, (whole, whole[7:], whole[:0])))
    for value in (values[0], values[1], values[-1]):
        assert not all_differ(pa.chunked_array([[*values, value]], kind))


def test_data_bases_are_read_and_nothing_of_them_is_executed(tmp_path):
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE rows (text TEXT, n INTEGER, twice INTEGER GENERATED ALWAYS AS (n * 2))")
        base.executemany("INSERT INTO rows (text, n) VALUES (?, ?)", [("a", 1), (None, 2), ("c", None)])
        base.execute("CREATE VIEW shown AS SELECT upper(text) FROM rows")
        base.execute("CREATE VIRTUAL TABLE found USING fts5(text)")
        base.execute("CREATE TABLE costly (x INTEGER, y TEXT GENERATED ALWAYS AS (hex(zeroblob(x))))")
        base.execute("INSERT INTO costly (x) VALUES (10)")
    base.close()
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    table = read(path, sheet="rows")
    assert columns_of(table) == {"text": ["a", None, "c"], "n": ["1", "2", None]}
    assert table.unread == {"twice": "computed by SQL"}
    assert read(path, sheet="costly").unread == {"y": "computed by SQL"}
    for sheet, error in (
        ("shown", "'shown' is a view, which is not read; there are 'rows'"),
        ("found", "'found' is none of its tables"),
        (None, "tables. Choose one by sheet='rows'"),
    ):
        with pytest.raises(BagwiseError, match=error):
            read(path, sheet=sheet)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == before
    (tmp_path / "a.sqlite-journal").write_bytes(bytes(512))  # as journal_mode=PERSIST leaves it
    assert read(path, sheet="costly").columns.num_rows == 1
    (tmp_path / "a.sqlite-wal").write_bytes(b"x")
    with pytest.raises(BagwiseError, match=r"are in a\.sqlite-wal still"):
        read(path, sheet="rows")


def test_changes_that_a_data_base_takes_back_are_not_read(tmp_path):
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE rows (text TEXT)")
        base.executemany("INSERT INTO rows VALUES (?)", [("old " * 50,)] * 2000)
    base.execute("PRAGMA cache_size=2")  # pages are written before the end
    base.execute("UPDATE rows SET text = 'new'")
    with pytest.raises(BagwiseError, match=r"were before is in a\.sqlite-journal still\. Close the program"):
        read(path)
    base.rollback()
    base.close()
    assert set(columns_of(read(path))["text"]) == {"old " * 50}


def test_nested_columns_of_parquet_are_not_read(tmp_path):
    pq.write_table(pa.table({"a": [[1, 2]], "b": [{"x": 1}], "c": [[["y"]]], "d": ["z"]}), tmp_path / "a.parquet")
    table = read(tmp_path / "a.parquet")
    assert columns_of(table) == {"a": ["[1, 2]"], "d": ["z"]}
    assert sorted(table.unread) == ["b", "c"]


def test_values_of_any_type_are_strings_or_errors_of_ours(tmp_path):
    ids = [uuid.UUID(int=k) for k in range(2)]
    far = pa.array([2**62, 1], pa.timestamp("us"))
    columns = {"id": pa.array([one.bytes for one in ids], pa.uuid()), "when": far}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    table = read(tmp_path / "a.parquet")
    assert to_strings(table.codes("id")) == table.strings("id") == [str(one) for one in ids]
    for values in (table.strings, table.codes, lambda name: list(table.values(name))):
        with pytest.raises(BagwiseError, match=r"column 'when' cannot be read: .*Leave it out"):
            values("when")


@pytest.mark.parametrize("name", FORMATS)
def test_limits(tmp_path, name):
    path = written(tmp_path / name, {"text": [f"text {k}" for k in range(2000)], "n": np.arange(2000)})
    for limit, n in (("rows", 1000), ("columns", 1), ("table_bytes", 5000)):
        with pytest.raises(BagwiseError, match=f"limit {limit} is"):
            read(path, limits=Limits(**{limit: n}))


def test_what_was_compressed_too_much_is_refused(tmp_path):
    path = write(tmp_path / "a.csv.gz", gzip.compress(b"text\n" + b"x\n" * 5_000_000))
    with pytest.raises(BagwiseError, match="limit ratio is 200"):
        read(path)
