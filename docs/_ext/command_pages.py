"""The reference of the command line, written from the commands themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_HEAD = """# Commands

Every command with its arguments and options, as `bagwise COMMAND --help` prints them. [The command line](../../cli.md)
explains what they do, [JSON output](../json.md) what `--json` prints.
"""


def render_commands() -> str:
    """Return a page in Markdown with all commands."""
    import typer.main

    from bagwise.cli.app import app

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
    path = Path(app.srcdir) / "reference" / "generated" / "commands.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = render_commands()
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Write the page before pages are read."""
    app.connect("builder-inited", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
