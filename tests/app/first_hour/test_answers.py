"""A model answers: classes of new items on the command line, and why."""

import csv
import dataclasses
import io
import json

import numpy as np
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from bagwise import Model, open_collection
from bagwise.app import ItemIndex
from bagwise.app.cli.app import app
from commands import as_json, bagwise, process
from small_sources import texts, write_image_folder, write_table, write_text_folder
from waiting import PATIENCE


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Sources of each modality, models of them, and an index."""
    folder = tmp_path_factory.mktemp("answers")
    write_text_folder(folder / "texts")
    write_table(folder / "table.csv")
    write_image_folder(folder / "images")
    for source, options in (("texts", ()), ("table.csv", ()), ("images", ("--words", 20))):
        name = source.removesuffix(".csv")
        model = folder / f"{name}.bagwise"
        bagwise("fit", folder / source, "--out", model, "--no-page", "-q", *options)
    new = folder / "new"  # without labels
    new.mkdir()
    for number, (text, _) in enumerate(texts(n_each=3, seed=5)):
        (new / f"{number}.txt").write_text(text)
    return folder


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def expected(model, source):
    """The answers of `Model`, as records."""
    items = open_collection(source)
    scores, p = model.decision_function(items), model.predict_proba(items)
    records = []
    for id, row, probabilities in zip(items.ids, scores, p, strict=True):
        order = np.argsort(-row)
        best, second = (model.classes[k] for k in order[:2])
        margin = row[order[0]] - row[order[1]]
        records.append((id, best, row[order[0]], second, margin, probabilities.max()))
    return records


@pytest.mark.parametrize("source", ["texts", "new", "table.csv", "images"])
def test_files_hold_what_the_model_predicts(place, source):
    name = "texts" if source == "new" else source.removesuffix(".csv")
    model_file, out = place / f"{name}.bagwise", place / f"{source}.answers"
    model = Model.load(model_file)
    wanted = expected(model, place / source)
    for ending in (".csv", ".jsonl", ".parquet"):
        said = as_json("predict", model_file, place / source, "--out", f"{out}{ending}")
        assert said["n_items"] == len(wanted)
        assert said["written"] == [f"{out}{ending}"]
        assert sum(said["classes"].values()) == len(wanted)
    tables = [
        rows_of((place / f"{source}.answers.csv").read_text()),
        [json.loads(line) for line in (place / f"{source}.answers.jsonl").read_text().splitlines()],
        pyarrow.parquet.read_table(f"{out}.parquet").to_pylist(),
        rows_of(bagwise("predict", model_file, place / source, "--out", "-")),
        [json.loads(line) for line in bagwise("predict", model_file, place / source, "--format", "jsonl").splitlines()],
        as_json("predict", model_file, place / source)["answers"],
    ]
    for table in tables:
        assert list(table[0]) == ["id", "class", "score", "runner_up", "margin", "probability"]
        for row, record in zip(table, wanted, strict=True):
            assert [row[name] for name in ("id", "class", "runner_up")] == [record[0], record[1], record[3]]
            numbers = [float(row[name]) for name in ("score", "margin", "probability")]
            np.testing.assert_allclose(numbers, [record[2], record[4], record[5]], rtol=1e-6, atol=1e-8)


def test_an_index_answers_as_its_model(place):
    by_model = as_json("predict", place / "texts.bagwise", place / "new")
    assert as_json("predict", place / "texts.index", place / "new") == by_model


def test_single_items_are_answered_as_in_their_collection(place):
    together = {row["id"]: row for row in as_json("predict", place / "images.bagwise", place / "images")["answers"]}
    paths = [place / "images" / id for id in list(together)[::5]]
    (alone,) = as_json("predict", place / "images.bagwise", paths[0])["answers"]
    assert alone | {"id": ""} == next(iter(together.values())) | {"id": ""}
    several = as_json("predict", place / "images.bagwise", *paths)["answers"]
    assert [row["id"] for row in several] == list(map(str, paths))
    assert [row["score"] for row in several] == [row["score"] for row in list(together.values())[::5]]
    (row,) = as_json("predict", place / "table.bagwise", place / "table.csv", "--row", 20)["answers"]
    assert row == as_json("predict", place / "table.bagwise", place / "table.csv")["answers"][20]


def test_texts_on_the_command_line(place):
    contents = [path.read_text() for path in sorted((place / "new").iterdir())]
    said = as_json("predict", place / "texts.bagwise", *(part for text in contents for part in ("-t", text)))
    by_files = as_json("predict", place / "texts.bagwise", place / "new")
    assert [row | {"id": ""} for row in said["answers"]] == [row | {"id": ""} for row in by_files["answers"]]
    table = bagwise("predict", place / "texts.bagwise", "-t", "a ripe pear")
    assert table.split() == [
        *("item", "class", "score", "runner-up", "margin", "probability"),
        *("a", "ripe", "pear", "fruit"),
        *table.split()[10:],
    ]


def test_another_number_of_groups(place):
    model = Model.load(place / "texts.bagwise")
    (size, *_) = (n for n in model.heads if n != model.n_groups)
    said = as_json("predict", place / "texts.bagwise", place / "new", "--groups", size)
    assert said["n_groups"] == size
    assert [row["class"] for row in said["answers"]] == model.cut(size).predict(open_collection(place / "new")).tolist()


def test_many_items_are_answered_in_batches(place, monkeypatch):
    wanted = as_json("predict", place / "texts.bagwise", place / "texts")
    monkeypatch.setattr("bagwise.app.training.answers._BATCH_SIZE", 5)
    assert as_json("predict", place / "texts.bagwise", place / "texts") == wanted


def test_items_that_cannot_be_read(place, tmp_path, monkeypatch):
    """Not even when a whole batch is such."""
    monkeypatch.setattr("bagwise.app.training.answers._BATCH_SIZE", 2)
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_bytes(b"\xff\xfe\xff" if name in "ab" else b"ripe pear")
    said = as_json("predict", place / "texts.bagwise", tmp_path)
    assert [row["id"] for row in said["answers"]] == ["c.txt", "d.txt"]
    assert said["n_skipped"] == 2
    for name in "cd":
        (tmp_path / f"{name}.txt").write_bytes(b"\xff\xfe\xff")
    assert "None of the 4 items" in as_json("predict", place / "texts.bagwise", tmp_path, code=1)["error"]
    assert as_json("predict", place / "texts.bagwise", "-t", "xyzzy")["n_without_words"] == 1


def test_without_cross_validation_there_is_no_probability(place, tmp_path):
    model = tmp_path / "m.bagwise"
    bagwise("fit", place / "texts", "--out", model, "--folds", 0, "--groups", 5, "--no-page", "--no-index", "-q")
    bagwise("predict", model, place / "new", "--out", tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text().splitlines()[0] == "id,class,score,runner_up,margin"
    assert "probability" not in bagwise("predict", model, place / "new")


def test_what_cannot_be_predicted(place, tmp_path):
    model = tmp_path / "unlabelled.bagwise"
    bagwise("fit", place / "new", "--out", model, "--groups", 5, "--no-page", "--no-index", "-q")
    for arguments, message in [
        ((model, place / "new"), "was fitted without classes and has no classifier, so it predicts no class"),
        ((place / "texts.bagwise",), "There is nothing to predict. Give a source or an item, or --query-text"),
        ((place / "texts.bagwise", place / "new", "--out", "a.txt"), "must end in .csv, .jsonl, .parquet; got --out a"),
        ((place / "texts.bagwise", place / "new", "--format", "xml"), "Unknown --format: 'xml'"),
        ((place / "texts.bagwise", place / "new", "--groups", 999), "--groups must be from 1 to "),
        ((place / "images.bagwise", "-t", "pear"), "--query-text is for models of texts, but this one takes images"),
        ((place / "images.bagwise", place / "images", "--row", 1), "--row is for tables"),
        ((place / "missing.bagwise", place / "new"), "missing.bagwise does not exist"),
        ((place / "texts.bagwise", place / "new", "--out", "-", "--json"), "--json prints one object"),
    ]:
        assert message in bagwise("predict", *arguments, code=1)


def test_an_item_is_explained(place, tmp_path):
    model = Model.load(place / "texts.bagwise")
    item = open_collection(place / "texts")[0]
    said = as_json("explain", place / "texts.bagwise", place / "texts", "--item", item.id)
    assert {"command": "explain", "held_out": False, **model.explain(item).to_dict()} == said
    for one in (said, said["runner_up"]):
        total = one["intercept"] + sum(group["contribution"] for group in one["groups"])
        assert total == pytest.approx(one["score"], rel=1e-9)
        assert sum(word["contribution"] for word in one["words"]) == pytest.approx(total - one["intercept"], rel=1e-9)
        assert sum(span["weight"] for span in one["places"]) == pytest.approx(total - one["intercept"], rel=1e-9)
    assert said["class"] == item.label
    by_text = as_json("explain", place / "texts.index", "-t", item.load())
    assert by_text == said | {"id": None}


def test_items_of_an_index_are_explained_by_the_models_that_have_not_seen_them(place, tmp_path):
    bagwise("fit", place / "texts", "--out", tmp_path / "texts.bagwise", "--criterion", "aib", "--no-page", "-q")
    path, page = tmp_path / "texts.index", tmp_path / "why.html"
    index = ItemIndex.load(path)
    size = index.answers.sizes[0]
    answers = index.answers.top.at(0)
    labels = [index.model.classes[k] for k in answers.predicted.tolist()]
    right = [k for k, (one, other) in enumerate(zip(labels, index.labels, strict=True)) if one == other]
    for k in right[::7]:
        said = as_json("explain", path, "--item", index.ids[k], "--groups", size)
        assert said["held_out"]
        assert said["class"] == labels[k]
        assert {"command": "explain", "held_out": True, **index.explain(k, size).to_dict()} == said
    wrong = next(k for k, (one, other) in enumerate(zip(labels, index.labels, strict=True)) if one != other)
    id, asked = index.ids[wrong], ("--groups", size)
    said = as_json("explain", path, place / "texts", "--item", id, *asked)["explained"]
    assert (said["class"], said["against"]) == (labels[wrong], index.labels[wrong])
    total = said["intercept"] + sum(group["contribution"] for group in said["groups"])
    assert total == pytest.approx(said["score"], rel=1e-9)
    printed = bagwise("explain", path, "--item", id, *asked, "--page", page)
    assert f"answered and explained by a model that has not seen this item, at {size} groups" in printed
    assert f"{labels[wrong]} less {index.labels[wrong]}" in printed
    assert "adds to the difference" in page.read_text() or ", against <bdi" in page.read_text()
    assert "a model that has not seen this item" in page.read_text()
    assert "against" not in as_json("explain", path, "--item", id, "--class", labels[wrong])["explained"]


def test_an_explanation_on_the_terminal_adds_up(place):
    printed = bagwise("explain", place / "table.bagwise", place / "table.csv", "--row", 3, "--top", 2)
    assert "3: class0, probability " in printed
    rows = [line.split() for line in printed.split("adds to the score")[1].split("column")[0].splitlines()[1:] if line]
    assert rows[0][0] == "intercept"
    assert rows[-1][0] == "score"
    for k in (-2, -1):
        assert sum(float(row[k]) for row in rows[:-1]) == pytest.approx(float(rows[-1][k]), abs=1e-9)
    words = bagwise("explain", place / "texts.bagwise", "-t", "Ripe pear, sharp saw", "--class", "tools")
    assert "Ripe pear, sharp saw" in words
    listed = [line.split() for line in words.splitlines() if line][-4:]
    terms = Model.load(place / "texts.bagwise").explain("Ripe pear, sharp saw").words("tools")
    assert listed == [[term.name, f"{term.contribution:+.3f}"] for term in terms]


def test_an_explanation_as_a_page(place, tmp_path):
    page = tmp_path / "page.html"
    bagwise("explain", place / "texts.bagwise", "-t", "Ripe pear, <b>sharp", "--page", page)
    assert 'class="m4">' in page.read_text()
    assert "&lt;" in page.read_text()
    assert "<b>" not in page.read_text()
    picture = next((place / "images").rglob("*.png"))
    bagwise("explain", place / "images.bagwise", picture, "--page", page, "--force")
    assert page.read_text().count("data:image/jpeg") == 1
    assert page.read_text().count("data:image/png") == 1
    bagwise("explain", place / "table.bagwise", place / "table.csv", "--row", 0, "--page", page, "--force")
    assert ">w3<" in page.read_text()
    assert "exists already" in bagwise("explain", place / "texts.bagwise", "-t", "pear", "--page", page, code=1)


def test_what_cannot_be_explained(place):
    texts_model = place / "texts.bagwise"
    for arguments, message in [
        ((texts_model,), "Give one item: a file, a source with --item or --row, or --query-text"),
        ((texts_model, place / "texts"), "holds 36 items. Choose one by --item; ids are 'birds/0"),
        ((texts_model, place / "texts", "--item", "birds/24.txt"), "has no item 'birds/24.txt'. Some of its 36 ids: "),
        ((texts_model, "-t", "pear", "--class", "fish"), "Unknown --class: 'fish'"),
        ((place / "table.bagwise", place / "table.csv", "--row", 99), "--row must be from 0 to 44"),
        ((place / "table.bagwise", place / "table.csv", "--row", 1, "--item", "1"), "--item or --row, not both"),
        ((texts_model, "-t", "pear", "--groups", 999), "--groups must be from 1 to "),
    ]:
        assert message in bagwise("explain", *arguments, code=1)


@pytest.mark.parametrize("options", [("predict", "--row", 3), ("explain", "--row", 3), ("explain", "--item", "x")])
def test_options_of_sources_are_refused_beside_a_text(place, options):
    command, *rest = options
    assert rest[0] in bagwise(command, place / "texts.bagwise", "-t", "ripe apple", *rest, code=1)


def test_an_item_without_words_has_only_intercepts(place):
    head = Model.load(place / "texts.bagwise").head
    said = as_json("explain", place / "texts.bagwise", "-t", "")
    assert said["score"] == said["intercept"] == pytest.approx(head.intercept.max())
    assert said["groups"] == said["words"] == said["places"] == []
    result = CliRunner().invoke(app, ["explain", str(place / "texts.bagwise"), "-t", ""])
    assert "no word of the vocabulary" in result.stderr
    assert result.stdout.startswith("empty text: ")
    assert not any(line.startswith("word ") for line in result.stdout.splitlines())


def test_sizes_without_a_classifier_are_named_by_the_option(place):
    model = Model.load(place / "texts.bagwise").cut(2)
    few = dataclasses.replace(model, heads={2: model.heads[2]}, calibration={}).save(place / "few.bagwise")
    message = bagwise("predict", few, "-t", "ripe apple", "--groups", 3, code=1)
    assert "--groups must be one of 2" in message
    assert "n_groups" not in message


def test_a_folder_in_place_of_a_model_is_named_as_such(place):
    assert "it is a folder" in bagwise("predict", place / "texts", place / "new", code=1)


def test_windows_line_ends_are_no_characters_of_a_text(place, tmp_path):
    for name, end in (("windows", "\r\n"), ("unix", "\n")):
        (tmp_path / f"{name}.txt").write_bytes(f"ripe apple{end}{end}steel hammer{end}".encode())
    shown = [
        bagwise("explain", place / "texts.bagwise", tmp_path / f"{name}.txt").replace(name, "text")
        for name in ("windows", "unix")
    ]
    assert shown[0] == shown[1]


def test_terminals_that_are_not_utf_8_get_escapes(place):
    script = "sys.stdout.reconfigure(encoding='latin-1')"
    running = process(
        "explain", place / "texts.bagwise", "-t", "ripe apple \u0142 gr\xfcn", script=script, encoding="latin-1"
    )
    out, problems = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, problems
    assert "ripe apple \\u0142 gr\xfcn: " in out


@pytest.fixture(scope="module")
def index(place):
    bagwise("index", place / "texts.bagwise", place / "texts", "--out", place / "t.index", "--map", "none")
    return place / "t.index"


LINES = "hammer and drill\r\n\nripe pear \u2028 plum\n"


def piped(given, *arguments):
    """Run a command with ``--json`` and standard input; gives its exit code and its answer."""
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"], input=given)
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.parametrize(
    ("given", "options", "texts"),
    [
        ("hammer and drill\n", (), ["hammer and drill"]),
        (LINES, (), [LINES.strip()]),
        (LINES, ("--lines",), ["hammer and drill", "", "ripe pear \u2028 plum"]),  # an answer for each line
        ("größe pear".encode("cp1252"), ("--encoding", "cp1252"), ["größe pear"]),
        (LINES, ("--lines", "-t", "apple"), ["apple", "hammer and drill", "", "ripe pear \u2028 plum"]),
    ],
)
def test_texts_come_from_standard_input(given, options, texts, place, index):
    model = Model.load(place / "texts.bagwise")
    code, told = piped(given, "predict", place / "texts.bagwise", "-", *options)
    assert (code, [one["id"] for one in told["answers"]]) == (0, texts)
    assert [one["class"] for one in told["answers"]] == model.predict(texts).tolist()
    code, told = piped(given, "search", index, "-", *options)
    assert (code, [one["query"] for one in told["queries"]]) == (0, texts)


@pytest.mark.parametrize(
    ("given", "arguments", "error"),
    [
        ("", ("predict", "texts.bagwise", "-"), "Standard input has no text."),
        ("\n \n", ("search", "t.index", "-", "--lines"), "Standard input has no text."),
        (
            b"gr\xf6\xdfe",
            ("predict", "texts.bagwise", "-"),
            "Standard input cannot be read: byte 2 (0xf6) is not UTF-8",
        ),
        ("x" * 99, ("predict", "texts.bagwise", "-", "--limit", "text_bytes=9"), "standard input has more than 9"),
        (
            "pear",
            ("predict", "texts.bagwise", "texts", "--lines"),
            "--lines is for standard input. Give - as the source",
        ),
        ("pear", ("predict", "images.bagwise", "-"), "this model takes images. Give a file."),
        (
            "",
            ("predict", "texts", "texts.bagwise"),
            "texts is no model or index, but texts.bagwise is one. Were the arg",
        ),
        (
            "",
            ("evaluate", "table.csv", "table.bagwise"),
            "Were the arguments swapped? table.bagwise comes first, then ta",
        ),
        ("", ("transform", "new", "t.index", "--out", "o.npz"), "new is no model or index, but t.index is one."),
        (
            "",
            ("index", "texts", "texts.bagwise", "--out", "o.index"),
            "Were the arguments swapped? texts.bagwise comes",
        ),
        ("", ("search", "texts", "t.index"), "texts is no index, but t.index is one. Were the arguments swapped?"),
        (
            "",
            ("fit", "texts.bagwise", "--force"),
            "texts.bagwise is a model, from which nothing is learned. Give the f",
        ),
        ("", ("compare", "t.index"), "t.index is an index, from which nothing is learned."),
    ],
)
def test_what_is_in_the_wrong_place_is_named(given, arguments, error, place, index, monkeypatch):
    monkeypatch.chdir(place)
    code, told = piped(given, *arguments)
    assert code == 1
    assert error in told["error"]
