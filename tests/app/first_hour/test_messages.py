"""What the command line says when something is wrong: options by their names, never Python's."""

import dataclasses
import inspect
import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from bagwise import BagwiseError, open_collection
from bagwise.app import FitOptions
from bagwise.app.cli.app import app
from bagwise.app.cli.options import FIT_OPTIONS, OPTION_NAMES, READ_OPTIONS
from bagwise.app.declaring import options_of
from bagwise.errors import argument, in_python, named_by
from bagwise.sources import Limits
from bagwise.sources.media import open_images, open_texts, open_videos
from bagwise.sources.records import open_records
from bagwise.sources.tables import open_table
from commands import as_json, bagwise
from small_sources import texts, write_image_folder, write_records, write_table, write_text_folder, zipped

READERS = (open_images, open_records, open_table, open_texts, open_videos)
PARAMETERS = {name for reader in READERS for name in inspect.signature(reader).parameters}
PARAMETERS |= {field.name for cls in (FitOptions, Limits) for field in dataclasses.fields(cls)}
PARAMETERS |= {"n_samples", "n_clusters", "by", "metric", "store", "kernel", "search", "n_features", "kind"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Sources of all kinds, whole and broken, and models of texts, images and a table."""
    root = tmp_path_factory.mktemp("place")
    write_text_folder(root / "texts", n_each=6)
    write_image_folder(root / "images", n_each=3)
    write_records(root / "records.csv")
    write_table(root / "table.csv")
    write_text_folder(root / "mixed", n_each=2)
    write_image_folder(root / "mixed", n_each=2)
    zipped(root / "texts", root / "texts.zip")
    (root / "latin.csv").write_bytes("text,label\ncaf\xe9,a\n".encode("latin-1"))
    (root / "latin").mkdir()
    (root / "latin" / "a.txt").write_bytes(b"caf\xe9")
    (root / "unlabelled.csv").write_text("text\n" + "\n".join(text for text, _ in texts(n_each=4)))
    (root / "named.csv").write_text("name,w1,w2\na,1,2\nb,3,4\n")
    (root / "two.csv").write_text("one,two\na b c,x\nd e f,y\n")
    (root / "gap.csv").write_text("a,b\n1,2\n3,\n")
    (root / "negative.csv").write_text("label,a,b\n" + "".join(f"{'xy'[k % 2]},{k - 5},{k}\n" for k in range(12)))
    (root / "noheader.csv").write_text("good words,pos\nbad words,neg\n")
    (root / "lines.jsonl").write_text('{"text": "a b", "label": "x"}\nnothing\n')
    (root / "labels.csv").write_text("who,what\na,b\n")
    (root / "empty").mkdir()
    (root / "file").write_text("no folder")
    np.savez(root / "arrays.npz", A=np.eye(3))
    np.savez_compressed(root / "bomb.npz", X=np.zeros((1000, 1000)))
    quick = ("--folds", 0, "--no-page", "--no-index")
    bagwise("fit", root / "texts", *quick, "--out", root / "texts.bagwise")
    bagwise("fit", root / "unlabelled.csv", *quick, "--out", root / "unlabelled.bagwise")
    bagwise("fit", root / "negative.csv", *quick, "--out", root / "table.bagwise")
    bagwise("fit", root / "images", *quick, "--descriptor", "patches", "--words", 5, "--out", root / "images.bagwise")
    bagwise("index", root / "unlabelled.bagwise", root / "unlabelled.csv", "--out", root / "unlabelled.index")
    return root


def said(place, *arguments):
    """Run a command with paths for what begins with @; gives its exit code and everything that it says."""
    given = [str(place / part[1:]) if str(part).startswith("@") else str(part) for part in map(str, arguments)]
    result = CliRunner().invoke(app, [*given, "--json"])
    assert result.exit_code in (0, 1, 2), (arguments, result.output)
    told = json.loads(result.stdout)
    assert (result.exit_code == 0) == ("error" not in told)
    return result.exit_code, f"{result.stderr}\n{told.get('error', '')}\n{told.get('notes', '')}"


# of all kinds of sources, and of one
READING = [("text", "nix"), ("label", "nix"), ("id", "nix"), ("split", "nix"), ("keep", "nix"), ("encoding", "klingon")]
READING += [
    ("sheet", "nix"),
    ("sep", "::"),
    ("limit", "nix=3"),
    ("limit", "rows=x"),
    ("extensions", ".nix"),
    ("extensions", ","),
    ("labels", "@labels.csv"),
]
READING += [("labels", "nix.csv"), ("modality", "nix"), ("modality", "videos")]
OTHERS = [("on-error", "nix"), ("memory-limit", "nix"), ("words", 1), ("groups", 0), ("folds", 1), ("pyramid", 7)]
OTHERS += [("descriptor", "nix"), ("criterion", "nix"), ("root", "nix"), ("stop-words", "nix"), ("jobs", 0), ("C", 0)]
OTHERS += [("max-side", 1), ("cache", "@file"), ("groups", 100000), ("seed", -1)]
SOURCES = ["texts", "images", "records.csv", "table.csv", "texts.zip"]
WRONG = [
    *(("fit", f"@{source}", f"--{option}", value) for source in SOURCES for option, value in READING),
    *(("fit", "@texts", f"--{option}", value) for option, value in OTHERS),
    ("fit", "@images", "--words", 9999),
    ("fit", "@images", "--ngrams", 2),
    ("fit", "@texts", "--pyramid", 5),
    *(("fit", f"@{source}") for source in (
        "mixed", "latin.csv", "latin", "named.csv", "two.csv", "gap.csv", "noheader.csv", "empty", "file",
        "arrays.npz", "bomb.npz", "nothing",
    )),
    ("fit", "@lines.jsonl", "--on-error", "raise"),
    ("fit", "@lines.jsonl", "--sep", ";"),
    ("fit", "@arrays.npz", "--id", "x"),
    ("fit", "@latin.csv", "--encoding", "utf-16"),
    ("fit", "@records.csv", "--modality", "table"),
    ("fit", "@table.csv", "--modality", "records"),
    ("fit", "@table.csv", "--modality", "images"),
    ("compare", "@unlabelled.csv"),
    ("compare", "@texts", "--folds", 1),
    ("compare", "@texts", "--sizes", "99999"),
    ("compare", "@texts", "--criteria", "nix"),
    ("evaluate", "@texts.bagwise", "@unlabelled.csv"),
    ("evaluate", "@texts.bagwise", "@texts", "--split", "nix"),
    ("evaluate", "@unlabelled.bagwise", "@texts"),
    ("predict", "@unlabelled.bagwise", "@texts"),
    ("predict", "@texts.bagwise", "@texts", "--groups", 999),
    ("index", "@unlabelled.bagwise", "@texts", "--by", "classes"),
    ("index", "@texts.bagwise", "@texts", "--by", "both", "--metric", "chi2"),
    ("index", "@table.bagwise", "@negative.csv", "--by", "nix"),
    ("search", "@unlabelled.index", "-t", "apple", "--by", "classes"),
    ("search", "@unlabelled.index", "-t", "apple", "--by", "nix"),
    ("search", "@unlabelled.index", "@images"),
    ("cluster", "@texts.bagwise", "@texts", "--clusters", 999),
    ("cut", "@texts.bagwise", "--groups", 99999),
    ("transform", "@table.bagwise", "@table.csv", "--out", "@x.npz"),
]  # fmt: skip


def test_messages_name_options_and_no_parameters(place, monkeypatch):
    """`--label` and not `label=`, whatever is wrong."""
    monkeypatch.chdir(place)
    names = "|".join(sorted(PARAMETERS))
    named = re.compile(rf"(?<![\w.-])(?<!--limit )({names})=|Unknown option of|Unknown \w+:|Collection")
    bare = re.compile(r"(?<![\w-])(n_\w+|random_state|on_error|memory_limit|max_side|stop_words)\b")
    wrong = []
    for arguments in WRONG:
        code, message = said(place, *arguments)
        if code == 0 or named.search(message) or bare.search(message):
            wrong.append(f"{arguments}: {code} {message}")
    assert not wrong, "\n".join(wrong)


MODELS = {"texts": "@texts", "images": "@images", "table": "@table.csv"}


@pytest.mark.parametrize("command", ["evaluate", "predict", "transform", "cluster", "index"])
def test_items_of_another_modality_are_named(command, place):
    """A text model given images said "Unknown option of images: 'encoding'"."""
    more = {
        "transform": ("--out", place / "o.npz"),
        "cluster": ("--clusters", 2),
        "index": ("--out", place / "o.index"),
    }
    names = {"texts": "texts", "images": "images", "table": "a table"}
    for model, own in names.items():
        for source, other in names.items():
            if model != source:
                code, message = said(place, command, f"@{model}.bagwise", MODELS[source], *more.get(command, ()))
                assert code == 1
                assert f"The model takes {own}, but {place / MODELS[source][1:]} holds {other}." in message


@pytest.mark.parametrize(
    ("arguments", "command", "error"),
    [
        (["fit"], "fit", "Missing argument 'SOURCE'"),
        (["fit", "x", "--wrods", "5"], "fit", "No such option: --wrods"),
        (["fit", "x", "--words", "many"], "fit", "Invalid value for '--words'"),
        (["search", "x", "-k", "0"], "search", "Invalid value for '-k'"),
        (["fti", "x"], None, "No such command 'fti'. Did you mean 'fit'"),
    ],
)
def test_wrong_use_is_an_object_too(arguments, command, error):
    told = as_json(*arguments, code=2)
    assert (told["command"], told["exit_code"]) == (command, 2)
    assert error in told["error"]
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (2, "")


def test_parameters_of_messages_are_options():
    """Every option that says how a source is read has the name of its parameter in Python, and the other way round."""
    assert set(READ_OPTIONS) <= set(options_of(FitOptions))
    for name in ("labels", "extensions", "id", "split", "sep", "sheet", "label", "text", "encoding"):
        assert any(name in inspect.signature(reader).parameters for reader in READERS)
        assert OPTION_NAMES[name] == f"--{name}"
    assert OPTION_NAMES["n_words"] == "--words"
    assert set(FIT_OPTIONS) <= set(OPTION_NAMES)


def test_messages_are_those_of_python_elsewhere(place):
    bagwise("fit", place / "texts", "--keep", "x", code=1)
    with pytest.raises(BagwiseError, match=r"keep= is for tables, but .* holds texts\. Leave it out"):
        open_collection(place / "texts", keep="x")
    with pytest.raises(RuntimeError), named_by("--{}".format):  # noqa: PT012 the names end with the block
        assert argument("label", 3) == "--label 3"
        assert in_python("a", "b") == "b"
        raise RuntimeError
    assert argument("label", 3) == "label=3"
    assert in_python("a", "b") == "a"


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("predict", "{MODEL} [SOURCE]..."),
        ("explain", "{MODEL} [ITEM]"),
        ("explore", "{MODEL|INDEX} [SOURCE]"),
        ("search", "{INDEX} [QUERY]..."),
    ],
)
def test_usage_has_optional_arguments_in_brackets(command, usage):
    lines = [line.strip() for line in bagwise(command, "--help").splitlines()]
    assert f"Usage: bagwise {command} [OPTIONS] {usage}" in lines
