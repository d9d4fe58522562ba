"""Folders and files as people have them: labels in a file, texts without endings, tables from spreadsheets."""

import datetime
import json
import re

import pytest
from typer.testing import CliRunner

from bagwise import Model, open_collection
from bagwise.app.cli.app import app
from commands import as_json, bagwise
from small_sources import (
    images,
    png,
    table,
    texts,
    write_image_folder,
    write_records,
    write_text_folder,
    zipped,
)


def fit(source, *options, code=0, out="a.bagwise"):
    """Fit quickly; gives what ``--json`` prints."""
    target = source.parent / out
    return as_json(
        "fit", source, *options, "--folds", 0, "--no-page", "--no-index", "--force", "--out", target, code=code
    )


def classes(told):
    return told["model"]["classes"]


def notes(*arguments):
    """What a command says on standard error."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stderr


@pytest.fixture
def photos(tmp_path):
    """A folder of images without folders for classes, and rows of name, label and split."""
    folder = tmp_path / "photos"
    folder.mkdir()
    rows = []
    for number, (pixels, label) in enumerate(images(n_each=6)):
        (folder / f"{number:02}.png").write_bytes(png(pixels))
        rows.append((f"{number:02}.png", label, "test" if number % 3 == 0 else "train"))
    return folder, rows


def write_rows(path, header, rows, sep=","):
    path.write_text("\n".join(sep.join(row) for row in [header, *rows]) + "\n")
    return path


QUICK = ("--descriptor", "patches", "--words", 10)


def test_labels_and_splits_of_images_come_from_a_file(photos, tmp_path):
    folder, rows = photos
    path = write_rows(folder / "labels.csv", ("filename", "label", "split"), rows)
    told = fit(folder, "--labels", path, *QUICK)
    assert classes(told) == ["across", "down"]
    assert told["test"]["n_items"] == 4
    assert as_json("evaluate", tmp_path / "a.bagwise", folder, "--labels", path)["n_items"] == 4
    assert f"If labels.csv holds them: --labels '{path}'" in notes(
        "fit", folder, *QUICK, "--groups", 3, "--no-page", "--no-index", "--out", tmp_path / "b.bagwise"
    )


@pytest.mark.parametrize(
    ("name", "header", "change", "options"),
    [
        ("l.csv", ("image", "class"), lambda name: name.removesuffix(".png"), ()),
        ("l.tsv", ("path", "breed"), lambda name: f"photos/{name}", ()),
        ("l.txt", ("file", "label"), lambda name: f"C:\\photos\\{name}", ("--sep", "semicolon")),
        ("l.csv", ("who", "what"), lambda name: f"./{name}", ("--id", "who", "--label", "what")),
    ],
)
def test_names_in_the_file_are_matched_with_those_of_items(name, header, change, options, photos, tmp_path):
    folder, rows = photos
    sep = {"l.tsv": "\t", "l.txt": ";"}.get(name, ",")
    path = write_rows(tmp_path / name, header, [(change(row[0]), row[1]) for row in rows], sep)
    assert classes(fit(folder, "--labels", path, *QUICK, *options)) == ["across", "down"]


def test_splits_are_a_column_of_the_file_of_labels(photos, tmp_path):
    folder, rows = photos
    path = write_rows(tmp_path / "l.csv", ("filename", "kind", "part"), [(a, b, c.upper()) for a, b, c in rows])
    assert fit(folder, "--labels", path, "--label", "kind", "--split", "part", *QUICK)["test"]["n_items"] == 4
    archive = zipped(folder, tmp_path / "photos.zip")
    assert fit(archive, "--labels", path, "--label", "kind", "--split", "part", *QUICK)["test"]["n_items"] == 4


def test_spaces_around_the_fields_of_a_file_of_labels_do_not_count(photos, tmp_path):
    folder, rows = photos
    path = tmp_path / "l.csv"
    path.write_text("\n".join(["filename, label, split", *(f"{a}, {b} , {c}" for a, b, c in rows)]))
    found = open_collection(folder, labels=path)
    assert list(found.labels) == [row[1] for row in rows]
    assert list(found.splits) == [row[2] for row in rows]


def test_labels_of_rows(tmp_path):
    X, y = table(n_each=4)
    lines = ["key,a,b,c", *(f"k{i},{row[0]:g},{row[1]:g},{row[2]:g}" for i, row in enumerate(X))]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    path = write_rows(tmp_path / "l.csv", ("id", "label"), [(f"k{i}", label) for i, label in enumerate(y)][::-1])
    assert len(classes(fit(tmp_path / "a.csv", "--id", "key", "--labels", path))) == 3
    assert list(open_collection(tmp_path / "a.csv", id="key", labels=path).labels) == y.tolist()


def test_labels_in_parquet(photos, tmp_path):
    pandas = pytest.importorskip("pandas")
    folder, rows = photos
    pandas.DataFrame(rows, columns=["filename", "label", "split"]).to_parquet(tmp_path / "l.parquet")
    assert list(open_collection(folder, labels=tmp_path / "l.parquet").labels) == [row[1] for row in rows]


def test_what_the_file_of_labels_leaves_out_is_said(photos, tmp_path):
    folder, rows = photos
    path = write_rows(tmp_path / "l.csv", ("filename", "label"), [row[:2] for row in rows[2:]] + [("gone.png", "down")])
    told = fit(folder, "--labels", path, *QUICK)
    assert f"2 of 12 items are not in {path} and have no label; first: 00.png" in told["notes"]
    assert f"1 of 11 rows of {path} name no item of {folder}; first: gone.png" in told["notes"]
    said = notes("transform", tmp_path / "a.bagwise", folder, "--labels", path, "--out", tmp_path / "a.npz")
    assert "2 of 12 items are not in" in said


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([("00.png", "across"), ("00.png", "down")], "gives '00.png' two labels, 'across' and 'down'"),
        ([("00.png", "across"), ("00", "down")], "item '00.png' is there twice, as '00.png' and '00', with different"),
        ([("x.png", "across")], "none of its 1 row names an item of"),
    ],
)
def test_contradictions_in_the_file_of_labels_are_errors(rows, error, photos, tmp_path):
    path = write_rows(tmp_path / "l.csv", ("filename", "label"), rows)
    assert error in fit(photos[0], "--labels", path, code=1)["error"]


def test_a_name_of_two_items_is_an_error(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / "texts" / folder).mkdir(parents=True)
        (tmp_path / "texts" / folder / "1.txt").write_text("x y")
    path = write_rows(tmp_path / "l.csv", ("filename", "label"), [("1.txt", "cat")])
    assert (
        "'1.txt' may be 'a/1.txt' or 'b/1.txt'. Write paths below"
        in fit(tmp_path / "texts", "--labels", path, code=1)["error"]
    )
    path = write_rows(tmp_path / "l.csv", ("filename", "label"), [("a/1.txt", "cat"), ("b/1.txt", "dog")])
    assert list(open_collection(tmp_path / "texts", labels=path).labels) == ["cat", "dog"]


def test_endings_of_items_are_chosen(tmp_path):
    for number, (text, label) in enumerate(texts(n_each=4)):
        path = tmp_path / "logs" / label / f"{number}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    error = fit(tmp_path / "logs", code=1)["error"]
    assert "its 12 files are: 12 .log. They look like texts, which --extensions '.log' opens." in error
    assert len(classes(fit(tmp_path / "logs", "--extensions", ".log,.md"))) == 3
    (tmp_path / "both").mkdir()
    for name in ("a.log", "b.md", "c.bin"):
        (tmp_path / "both" / name).write_bytes(b"some text" if name != "c.bin" else bytes(9))
    error = fit(tmp_path / "both", code=1)["error"]
    assert "Files .log, .md look like texts, which --extensions '.log,.md' opens." in error
    assert "12 texts" in bagwise("evaluate", tmp_path / "a.bagwise", tmp_path / "logs")  # as in the fit
    (tmp_path / "logs" / "x.bin").write_bytes(bytes(100))
    assert (
        "'x.bin' is no text. Say what the files are" in fit(tmp_path / "logs", "--extensions", "bin", code=1)["error"]
    )


@pytest.mark.parametrize("name", ["{}", "{:05}.7c53336b37003a92", "post.{}"])
def test_texts_without_endings_are_recognised(name, tmp_path):
    """20 newsgroups and collections of spam, as they come."""
    for number, (text, label) in enumerate(texts(n_each=8)):
        path = tmp_path / "news" / label / name.format(49960 + number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() + (b" caf\xe9" if number % 2 else b""))
    (tmp_path / "news" / "README").write_text("About these posts.")
    (tmp_path / "news" / "fruit" / "99999").write_bytes(b"\x89PNG" + bytes(200))  # no text
    if "7c5" in name:
        (tmp_path / "news" / "fruit" / "cmds").write_text("mv 1 2")
    found = open_collection(tmp_path / "news", encoding="latin-1")
    assert (len(found), found.modality, len(set(found.labels))) == (24, "texts", 3)
    told = fit(tmp_path / "news", "--encoding", "latin-1")
    assert len(classes(told)) == 3
    assert told["skipped"] == {"count": 0, "items": []}
    told = fit(tmp_path / "news")  # half of them are not UTF-8
    assert told["skipped"]["count"] == 0
    note = "Texts that are not UTF-8 are read as cp1252, a guess by some of them; --encoding chooses another."
    assert note in told["notes"]
    assert zipped(tmp_path / "news", tmp_path / "news.zip")
    assert open_collection(tmp_path / "news.zip", encoding="latin-1").ids == found.ids


def test_ids_and_splits_are_columns(tmp_path):
    X, y = table(n_each=6)
    lines = [
        "who,w1,w2,kind,part",
        *(
            f"r{k},{a:g},{b:g},{c},{'Test' if k % 3 else 'Train'}"
            for k, ((a, b), c) in enumerate(zip(X[:, :2], y, strict=True))
        ),
    ]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    told = fit(tmp_path / "a.csv", "--id", "who", "--split", "part", "--label", "kind")
    assert told["test"]["n_items"] == 12
    told = as_json("cluster", tmp_path / "a.bagwise", tmp_path / "a.csv", "--clusters", 2)  # the same columns
    assert told["items"][0]["id"] == "r0"
    assert "there is no column 'nix'" in fit(tmp_path / "a.csv", "--id", "nix", code=1)["error"]


def test_sheets_of_excel_files(tmp_path, monkeypatch):
    openpyxl = pytest.importorskip("openpyxl")
    X, y = table()
    load, loaded = openpyxl.load_workbook, []
    monkeypatch.setattr(openpyxl, "load_workbook", lambda *given, **more: loaded.append(1) or load(*given, **more))
    book = openpyxl.Workbook()
    book.active.title = "counts"
    book.active.append([*(f"w{k}" for k in range(X.shape[1])), "label"])
    for row, label in zip(X.tolist(), y, strict=True):
        book.active.append([*row, label])
    sheet = book.create_sheet("posts")
    sheet.append([])
    sheet.append(["when", "text", "label"])
    for text, label in texts():
        sheet.append([datetime.datetime(2024, 5, 3), text, label])
    book.save(tmp_path / "book.xlsx")
    told = fit(tmp_path / "book.xlsx")
    assert len(loaded) == 1  # large sheets take long
    assert "The sheet 'counts' was read; --sheet chooses another: 'posts'." in told["notes"]
    assert open_collection(tmp_path / "book.xlsx").X.tolist() == X.tolist()
    for sheet in ("posts", 2):
        fit(tmp_path / "book.xlsx", "--sheet", sheet)
        assert Model.load(tmp_path / "a.bagwise").modality == "texts"
    posts = open_collection(tmp_path / "book.xlsx", sheet="posts", text=["when", "text"])
    assert posts[3].load() == f"2024-05-03\n{texts()[3][0]}"
    assert list(posts.labels) == [label for _, label in texts()]
    assert (
        "there is no sheet 'nix'; there are 'counts', 'posts'"
        in fit(tmp_path / "book.xlsx", "--sheet", "nix", code=1)["error"]
    )
    (tmp_path / "no.xlsx").write_text("nothing")
    assert "no.xlsx cannot be used: it is damaged or not an archive" in fit(tmp_path / "no.xlsx", code=1)["error"]


def test_excel_files_need_a_library_that_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    (tmp_path / "a.xlsx").write_bytes(b"")
    assert 'pip install "bagwise[excel]"' in fit(tmp_path / "a.xlsx", code=1)["error"]


def test_few_descriptors_are_no_error(photos):
    """A default is never an error: small images have fewer descriptors than there are words by default."""
    folder, _ = photos
    told = fit(folder)
    assert told["model"]["n_words"] < 1000


@pytest.fixture
def torn(tmp_path):
    """Texts of which three cannot be read, and their model."""
    write_text_folder(tmp_path / "texts", n_each=6)
    for name in ("fruit/a.txt", "tools/b.txt", "tools/c.txt"):
        (tmp_path / "texts" / name).write_bytes(b"\xff\xfe\x00 nothing")
    return tmp_path / "texts"


@pytest.mark.parametrize("command", ["fit", "compare", "evaluate", "predict", "transform", "cluster", "index"])
def test_all_items_that_cannot_be_read_are_named(command, torn, tmp_path):
    fit(torn)
    model, log = tmp_path / "a.bagwise", tmp_path / "log.txt"
    arguments = {
        "fit": [torn, "--folds", 0, "--no-page", "--no-index", "--out", tmp_path / "b.bagwise"],
        "compare": [torn, "--criteria", "aib", "--no-references"],
        "evaluate": [model, torn],
        "predict": [model, torn],
        "transform": [model, torn, "--out", tmp_path / "x.csv"],
        "cluster": [model, torn, "--clusters", 2],
        "index": [model, torn, "--out", tmp_path / "x.index"],
    }[command]
    result = CliRunner().invoke(app, [command, *map(str, arguments), "--log-file", str(log), "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)["skipped"]
    assert told["count"] == 3
    assert [item["id"] for item in told["items"]] == ["fruit/a.txt", "tools/b.txt", "tools/c.txt"]
    assert all("is not UTF-16-LE. Pass the right --encoding" in item["reason"] for item in told["items"])
    assert "3 of 21 items could not be read and were skipped. fruit/a.txt: byte 10" in result.stderr
    assert f"{log} names all 3 items that were skipped." in result.stderr
    for name in ("fruit/a.txt", "tools/b.txt", "tools/c.txt"):
        assert f"Skipped {name}: byte 10" in log.read_text()


def test_one_item_that_cannot_be_read_ends_with_1(torn, tmp_path):
    write_image_folder(tmp_path / "images", n_each=3)
    fit(torn)
    one = torn / "fruit" / "a.txt"
    error = bagwise("transform", tmp_path / "a.bagwise", one, "--out", tmp_path / "x.npz", code=1)
    assert f"{one} cannot be read. a.txt: byte 10 (0x67) is not UTF-16-LE" in error
    for path in torn.rglob("*.txt"):
        path.write_bytes(b"\xff\xfe\x00")
    told = as_json("transform", tmp_path / "a.bagwise", torn, "--out", tmp_path / "x.npz", code=1)
    assert "None of the 21 items" in told["error"]
    assert told["skipped"]["count"] == 21
    assert "is not UTF-16-LE" in bagwise("fit", torn, "--on-error", "raise", code=1)


def test_records_that_cannot_be_read_are_skipped_as_other_items(tmp_path):
    write_records(tmp_path / "a.csv")
    with open(tmp_path / "a.csv", "a") as file:
        file.write("\n99,too,many,fields\n")
    told = fit(tmp_path / "a.csv")
    assert told["skipped"]["items"] == [{"id": "a.csv:37", "reason": told["skipped"]["items"][0]["reason"]}]
    assert "it has 4 fields" in told["skipped"]["items"][0]["reason"]
    assert as_json("evaluate", tmp_path / "a.bagwise", tmp_path / "a.csv")["skipped"]["count"] == 1
    assert "skip such records by --on-error 'skip'" in fit(tmp_path / "a.csv", "--on-error", "raise", code=1)["error"]


def test_more_items_than_the_object_holds(tmp_path, monkeypatch):
    monkeypatch.setattr("bagwise.app.cli.session.MOST_SKIPPED", 2)
    write_records(tmp_path / "a.csv")
    with open(tmp_path / "a.csv", "a") as file:
        file.write("\n" + "bad\n" * 5)
    told = fit(tmp_path / "a.csv")["skipped"]
    assert (told["count"], len(told["items"])) == (5, 2)


def test_an_index_reads_its_items_as_they_were_read(tmp_path):
    for number, (text, label) in enumerate(texts(n_each=4)):
        path = tmp_path / "logs" / label / f"{number}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    bagwise(
        "fit", tmp_path / "logs", "--extensions", ".log", "--folds", 0, "--no-page", "--out", tmp_path / "a.bagwise"
    )
    bagwise("search", tmp_path / "a.index", "-t", "apple pear", "--page", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert re.search("apple|pear", page.split("<main")[-1])
    assert "labels" not in Model.load(tmp_path / "a.bagwise").options  # no paths of this machine
