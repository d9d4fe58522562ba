"""Options come from one table: what an option is, where it is named, and what derives from it."""

import inspect
import re
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import bagwise
from bagwise.app import FitOptions
from bagwise.app.cli.options import fit_options, table_options
from bagwise.app.declaring import Choice, IntegerRule, NumberRule, meaning_of, option, options_of, takes_options
from bagwise.app.options import check_options, read_config
from bagwise.errors import BagwiseError, OptionError

SOURCES = Path(bagwise.__file__).parent


@dataclass(frozen=True)
class Extended(FitOptions):
    """Options with one more."""

    blur: "int" = option(  # noqa: RUF009
        2,
        "--blur",
        help="pixels over which each is blurred.",
        rule=IntegerRule(1, 9, also={0: "none"}),
        modalities=("images",),
        stage="groups",
        metavar="N",
    )


@takes_options(Extended)
def fit(source, *, progress=None, **options):
    """Fit.

    Parameters
    ----------
    %(options)s
    """
    return Extended(**options)


def test_an_option_is_one_field(tmp_path, monkeypatch):
    """Signature, docstring, check, command line, configuration, documentation, stub, schema, cache and file follow."""
    signature = inspect.signature(fit)
    assert signature.parameters["blur"].default == 2
    assert list(signature.parameters)[-2:] == ["blur", "progress"]
    meaning = "Images: pixels over which each is blurred. 0: none."
    assert f"blur : int, default=2\n    {meaning}" in fit.__doc__
    assert (fit(None).blur, fit(None, blur=0).blur) == (2, 0)
    with pytest.raises(OptionError, match=r"^blur must be from 1 to 9, or 0 \(none\), got 10\.$"):
        fit(None, blur=10)
    with pytest.raises(OptionError, match="blur is for images, but these are texts"):
        check_options(Extended(blur=3), "texts")
    check_options(Extended(blur=3), "images")
    check_options(Extended(), "texts")

    annotation, default = table_options(Extended)["blur"]
    told = []

    def command(blur: annotation = default):
        told.append(fit_options({"blur": blur}, Extended).blur)

    app = typer.Typer()
    app.command()(command)
    assert f"{meaning} Default: 2." in re.sub(r"[│\s]+", " ", CliRunner().invoke(app, ["--help"]).output)
    for arguments in ([], ["--blur", "5"]):
        assert CliRunner().invoke(app, arguments).exit_code == 0
    assert told == [2, 5]
    (tmp_path / "fit.toml").write_text("blur = 4")
    assert read_config(tmp_path / "fit.toml", Extended) == {"blur": 4}
    with pytest.raises(BagwiseError, match="Unknown option in"):
        read_config(tmp_path / "fit.toml")
    given = {"config": tmp_path / "fit.toml"}
    assert [fit_options(given | more, Extended).blur for more in ({}, {"blur": 6})] == [4, 6]

    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs" / "_ext"))
    import option_tables

    assert f"| `--blur N` | {meaning} Default: 2. |" in option_tables.markdown("Model", Extended)
    assert "    blur: int = 2,\n" in option_tables.stub(Extended)
    assert '"blur": {"type": ["integer", "null"]' in option_tables.schema('    "options": {},', Extended)
    assert Extended(blur=3).of_stage("groups")["blur"] == Extended(blur=3).kept()["blur"] == 3
    assert Extended.from_mapping({"blur": 3}).changed() == {"blur": 3}


@pytest.mark.parametrize(
    ("parameter", "option", "acts"),
    [
        ("ngrams", "ngrams", {"app/modalities/texts.py"}),
        ("min_count", "min-count", {"app/modalities/texts.py"}),
        ("extensions", "extensions", {"app/training/items.py"}),
    ],
)
def test_an_option_is_named_in_the_table_and_where_it_acts(parameter, option, acts):
    named = re.compile(rf"options\.{parameter}\b|--{option}\b|^    {parameter}: ", re.MULTILINE)
    files = {path.relative_to(SOURCES).as_posix() for path in (SOURCES / "app").rglob("*.py*") if path.suffix != ".pyc"}
    found = {name for name in files if named.search((SOURCES / name).read_text("utf-8"))}
    assert found == {"app/options.py", "app/training/fit_model.pyi"} | acts


def test_every_option_is_in_the_signature_and_in_the_docstring():
    signature = inspect.signature(bagwise.fit_model)
    for one in fields(FitOptions):
        assert signature.parameters[one.name].default == one.default
        assert f"\n{one.name} : " in bagwise.fit_model.__doc__
        assert f"\n{one.name} : " in FitOptions.__doc__
    assert "%(options)s" not in bagwise.fit_model.__doc__ + FitOptions.__doc__
    assert all(kind.kind is not inspect.Parameter.VAR_KEYWORD for kind in signature.parameters.values())


def test_options_are_explained_in_sentences():
    for name, known in options_of(FitOptions).items():
        meaning = meaning_of(known, getattr(FitOptions, name), details=True)
        assert meaning[0].isupper()
        assert meaning.endswith(".")
        assert ".." not in meaning.replace("{000..123}", "")
        assert not known.names or known.config


def test_what_a_model_keeps_is_not_about_a_machine_or_secret():
    options = FitOptions(cache="/home/me/cache", labels="/home/me/labels.csv", storage_options={"key": "x"}, n_jobs=3)
    kept = options.kept()
    assert not {"cache", "labels", "storage_options", "n_jobs", "limits", "partition", "memory_limit"} & set(kept)
    assert "storage_options" not in options.to_dict()
    assert "x" not in repr(options).replace("max_side", "").replace("extensions", "").replace("text", "")
    assert FitOptions(**options.to_dict()).kept() == kept


@pytest.mark.parametrize(
    ("rule", "accepted", "refused"),
    [
        (IntegerRule(2, also={0: "off", "auto": ""}), [2, 7, 0, "auto"], [1, -1, True, 2.0, "some", None]),
        (IntegerRule(1, 5), [1, 5], [0, 6, False]),
        (NumberRule(above=0), [1, 0.5], [0, float("nan"), float("inf"), True, "1"]),
        (Choice(("a", "b")), ["a"], ["c", None, 1]),
        (Choice(lambda: ("a",), also={"auto": ""}), ["a", "auto"], ["b"]),
    ],
)
def test_rules_accept_what_they_say(rule, accepted, refused):
    for value in accepted:
        assert rule.checked("size", value) == value
    for value in refused:
        with pytest.raises(BagwiseError, match="size"):
            rule.checked("size", value)
