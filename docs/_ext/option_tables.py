"""Write what derives from the table of options: the stub of `fit_model`, tables in docs, a part of the schema.

``make options`` writes them; `tests/test_docs.py` fails where they are not up to date.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from bagwise.app.declaring import Option, meaning_of, options_of
from bagwise.app.options import FitOptions

_ROOT = Path(__file__).parents[2]
STUB = _ROOT / "src" / "bagwise" / "app" / "training" / "fit_model.pyi"
PAGE = _ROOT / "docs" / "cli.md"
SCHEMA = _ROOT / "docs" / "reference" / "output-schema.json"

_STUB_HEAD = '''"""Written from `bagwise.app.options` by ``make options``: editors complete the options of a fit."""

import os
from collections.abc import Mapping
from typing import Any

from bagwise.app.modalities.vectorizers import Progress
from bagwise.app.model import Model
from bagwise.sources.limits import Limits

'''


def stub(table: type[FitOptions] = FitOptions) -> str:
    """Return the stub of the module of `fit_model`."""
    named = [f"    {one.name}: {one.type} = {_literal(one.default)}," for one in dataclasses.fields(table)]
    others = ["    add: Any = None,", "    client: Any = None,", "    progress: Progress | None = None,"]
    return "\n".join(
        [f"{_STUB_HEAD}def fit_model(", "    source: Any,", "    *,", *named, *others, ") -> Model: ...\n"]
    )


def _literal(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def markdown(panel: str, table: type[FitOptions] = FitOptions) -> str:
    """Return the table of the options of a panel, in Markdown."""
    rows = ["| option | meaning |", "|---|---|"]
    for one in dataclasses.fields(table):
        known = one.metadata["option"]
        if known.names and known.panel == panel:
            meaning = _prose(meaning_of(known, one.default, details=True))
            rows.append(f"| `{_usage(known)}` | {meaning} |")
    return "\n".join(rows)


def _usage(known: Option) -> str:
    return " ".join([known.names[0], *([known.metavar] if known.metavar else [])]).replace("|", "\\|")


def _prose(text: str) -> str:
    """Escape what Markdown takes for something else."""
    return re.sub(r"([|*<\[\]])", r"\\\1", text)


def page(text: str, table: type[FitOptions] = FitOptions) -> str:
    """Return the page of the command line with the tables between its marks."""

    def filled(found: re.Match[str]) -> str:
        return f"{found[1]}\n{markdown(found[2], table)}\n{found[3]}"

    return re.sub(r"(<!-- options: (\w+) -->)\n.*?(<!-- end -->)", filled, text, flags=re.DOTALL)


def schema(text: str, table: type[FitOptions] = FitOptions) -> str:
    """Return the schema of outputs with the options that models keep, in its line of them."""
    kept = {name: known for name, known in options_of(table).items() if known.kept}
    properties = {
        name: known.rule.schema | {"description": meaning_of(known, getattr(table, name), python=True)}
        for name, known in kept.items()
    }
    for one in properties.values():
        one["type"] = sorted({"null", *([one["type"]] if isinstance(one["type"], str) else one["type"])})
    about = "The options of a fit that a model keeps; compact models keep some of them."
    content = {
        "type": "object",
        "description": about,
        "properties": properties,
        "required": [],
        "additionalProperties": False,
    }
    line = f'    "options": {json.dumps(content, ensure_ascii=False)},'
    return re.sub(r'^    "options": \{.*\},$', lambda _: line, text, flags=re.MULTILINE)


def written() -> dict[Path, str]:
    """Return what each file should hold."""
    return {STUB: stub(), PAGE: page(PAGE.read_text("utf-8")), SCHEMA: schema(SCHEMA.read_text("utf-8"))}


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, "utf-8")
