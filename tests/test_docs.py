"""The documentation site, in its quick form: all pages, all references, all public names; ``make docs`` builds it."""

import importlib
import io
import os
import shutil
import warnings
from pathlib import Path

import pytest
import typer.main
from jsonschema import Draft202012Validator

from bagwise.app.cli.app import app
from commands import SCHEMA, check_output

ROOT = Path(__file__).parent.parent
pytest.importorskip("sphinx")


@pytest.fixture
def extensions(monkeypatch):
    """The modules of the site."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    return importlib.import_module


def test_the_reference_lists_every_public_name_once(extensions):
    api = extensions("public_api")
    names = api.public_names()
    listed = api.listed_names(ROOT / "docs" / "reference")
    assert set(listed) <= set(names), "names that the library does not have"
    shown = {id(names[name]) for name in listed}
    assert len(shown) == len(listed), "one thing under two names"
    missing = {name for name, thing in names.items() if id(thing) not in shown}
    assert not missing, "add them to a page in docs/reference"


def test_every_public_module_is_known(extensions):
    """Packages with a stub, and modules beside them, are public: they have names to import."""
    folder = ROOT / "src" / "bagwise"
    stubs = {".".join(path.parent.relative_to(folder.parent).parts) for path in folder.rglob("__init__.pyi")}
    modules = {f"bagwise.{path.stem}" for path in folder.glob("[!_]*.py")} - {"bagwise.warmup"}  # a function's name
    assert stubs | modules <= set(extensions("public_api").MODULES)


def test_all_pages_can_be_read_and_all_references_lead_somewhere(tmp_path, monkeypatch):
    """Built from a copy, so that nothing is left in the sources. In this process, which has imported the library."""
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace

    source = tmp_path / "docs"
    shutil.copytree(ROOT / "docs", source, ignore=shutil.ignore_patterns("gallery", "generated"))
    monkeypatch.setenv("BAGWISE_DOCS_QUICK", "1")
    monkeypatch.chdir(ROOT)
    said = io.StringIO()
    with warnings.catch_warnings(), docutils_namespace():
        warnings.simplefilter("ignore")
        app = Sphinx(
            source, ROOT / "docs", tmp_path / "out", tmp_path / "trees", "dummy", status=None, warning=said,
            freshenv=True,
        )  # fmt: skip
        app.build()
    assert said.getvalue().replace(str(source), "docs") == ""
    pages = {path.relative_to(source).with_suffix("").as_posix() for path in source.rglob("*.md")}
    assert pages - {name for name in pages if name.startswith("_")} <= set(app.env.found_docs)
    assert "gallery/index" in app.env.found_docs
    assert os.listdir(tmp_path / "out") == []


def test_links_that_lead_nowhere_are_found(extensions, tmp_path):
    checking = extensions("check_links")
    (tmp_path / "a.html").write_text('<h1 id="top">A</h1><a href="b.html#there">b</a><a href="#top">up</a>')
    (tmp_path / "b.html").write_text('<a id="there" href="a.html">a</a><a href="https://example.org">elsewhere</a>')
    assert checking.broken_links(tmp_path) == []
    (tmp_path / "b.html").write_text('<a href="c.html"></a><img src="https://example.org/x.png">')
    assert sorted(checking.broken_links(tmp_path)) == [
        "a.html: b.html#there has no such place",
        "b.html: c.html is not there",
        "b.html: loads https://example.org/x.png from elsewhere",
    ]


def test_the_schema_of_outputs_has_every_command_and_explains_every_field():
    Draft202012Validator.check_schema(SCHEMA)
    assert set(SCHEMA["$defs"]["commands"]) == set(typer.main.get_command(app).commands)
    parts = [
        *SCHEMA["$defs"]["commands"].values(),
        *(one for name, one in SCHEMA["$defs"].items() if name != "commands"),
    ]
    fields = [field for part in parts for field in part.get("properties", {}).values()]
    assert all(one["description"].endswith(".") for one in (*parts, *fields))
    for told in (SCHEMA["$defs"]["commands"], {"error": SCHEMA["$defs"]["error"]}):
        assert all("command" in one["required"] for one in told.values())


def test_what_is_written_from_the_table_of_options_is_up_to_date(extensions):
    for path, text in extensions("option_tables").written().items():
        assert path.read_text("utf-8") == text, f"{path.name} is not: run `make options`"


def test_an_output_that_is_not_as_documented_is_noticed():
    check_output({"command": "warmup", "seconds": 1.5})
    for told in ({"command": "warmup"}, {"command": "warmup", "seconds": "1.5"}, {"command": "warmup", "more": 1}):
        with pytest.raises(AssertionError, match="output-schema"):
            check_output(told)
