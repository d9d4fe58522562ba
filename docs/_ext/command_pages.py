"""The reference of the command line, from the commands themselves and from the schema of what they print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_HEAD = """# Commands

Every command with its arguments and options, as `bagwise COMMAND --help` prints them. [The command line](../../cli.md)
explains what they do, [JSON output](json.md) what `--json` prints.
"""
_JSON_HEAD = """# JSON output

With `--json`, a command prints exactly one JSON object on standard output and nothing else, also if it fails.
Progress and notes go to standard error. The tables below are written from a
{download}`JSON Schema <../output-schema.json>`; the tests of the library check every object that they print against
it. Fields may be added in later versions; those listed here keep their names and meanings.

```console
$ bagwise predict scenes.bagwise new-photos/ --json | jq '.answers[] | select(.probability < 0.5) | .id'
```

Fields in *italics* are not always there.
"""


def render_commands() -> str:
    """Return a page in Markdown with all commands."""
    import typer.main

    from bagwise.app.cli.app import app

    group: Any = typer.main.get_command(app)
    parts = [_HEAD]
    for name, command in group.commands.items():
        context = typer.Context(command, info_name=name)
        arguments = [param for param in command.params if param.param_type_name == "argument"]
        usage = " ".join(["bagwise", name, *map(_usage, arguments), "[OPTIONS]"])
        parts.append(f"## bagwise {name}\n\n{_prose(command.help)}\n\n```console\n$ {usage}\n```\n")
        panels: dict[str, list[tuple[str, str]]] = {}
        for param in command.params:
            shown = param.get_help_record(context)
            if shown is not None:
                default = "Arguments" if param in arguments else "Options"
                panels.setdefault(getattr(param, "rich_help_panel", None) or default, []).append(shown)
        for panel, rows in panels.items():
            parts.append(f"| {panel} | |\n|---|---|")
            parts.extend(f"| `{_cell(names)}` | {_cell(_prose(meaning))} |" for names, meaning in rows)
            parts.append("")
    return "\n".join(parts)


def render_outputs(schema: dict[str, Any]) -> str:
    """Return a page in Markdown with the objects that commands print with ``--json``."""
    parts = [_JSON_HEAD]
    objects = {f"bagwise {name}": one for name, one in schema["$defs"]["commands"].items()}
    parts += [_fields(title, one) for title, one in objects.items()]
    parts.append(_fields("Errors", schema["$defs"]["error"]))
    parts.append("## Parts\n\nObjects inside the objects above.\n")
    inner = {name: one for name, one in schema["$defs"].items() if name not in ("commands", "error")}
    parts += [_fields(name, inner[name], "###") for name in sorted(inner)]
    return "\n".join(parts)


def _fields(title: str, one: dict[str, Any], level: str = "##") -> str:
    lines = [f"{level} {title}\n\n{one['description']}\n"]
    if "properties" in one:
        lines.append("| field | type | meaning |\n|---|---|---|")
    for name, kind in one.get("properties", {}).items():
        shown = f"`{name}`" if name in one["required"] else f"*`{name}`*"
        lines.append(f"| {shown} | {_type(kind)} | {_cell(kind['description'])} |")
    return "\n".join(lines) + "\n"


def _type(kind: dict[str, Any]) -> str:
    """Return a type in words, with links to objects."""
    if "$ref" in kind:
        name = kind["$ref"].rpartition("/")[2]
        return f"[{name}](#{name})"
    if "anyOf" in kind:
        return " or ".join(map(_type, kind["anyOf"]))
    if "const" in kind:
        return f'`"{kind["const"]}"`'
    names = kind.get("type", "any")
    if isinstance(names, list):
        return " or ".join(_type({**kind, "type": name}) for name in names)
    if names == "array":
        return f"list of {_type(kind['items'])}"
    if names == "object" and isinstance(kind.get("additionalProperties"), dict):
        return f"object of {_type(kind['additionalProperties'])} by name"
    return str(names)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    name = f"{name}…" if argument.nargs == -1 else name
    return name if argument.required else f"[{name}]"


def _prose(text: str) -> str:
    """Escape what Markdown would take for something else."""
    return text.replace("<", "\\<").replace("*", "\\*").replace("_", "\\_").strip()


def _write(app: Any) -> None:
    folder = Path(app.srcdir) / "reference"
    schema = json.loads((folder / "output-schema.json").read_text("utf-8"))
    (folder / "generated").mkdir(parents=True, exist_ok=True)
    for name, text in (("commands", render_commands()), ("json", render_outputs(schema))):
        path = folder / "generated" / f"{name}.md"
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Write the pages before pages are read."""
    app.connect("builder-inited", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
