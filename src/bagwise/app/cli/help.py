"""Help of the program, which fits a screen, and of its commands: the options that people need, or all of them."""

from __future__ import annotations

from itertools import chain, groupby, repeat
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from bagwise.app.cli.session import EXIT_CODES
from bagwise.app.declaring import MODEL, OUTPUT, RUN, SOURCE

__all__ = ["Command", "Program"]

_ALL = "bagwise.all_options"
_GROUP = 8  # columns for the name of a group of commands
_SHORT = ("Arguments", "Options")  # sections of the short help
_SECTIONS = (*_SHORT, MODEL, SOURCE, OUTPUT, RUN)


class Command(TyperCommand):
    """A command whose options in sections of their own are listed by ``--help all`` alone."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option that prints the help, which says what may follow it."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.help = "Show this message, or all options, and exit."
        return option

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse arguments; raise an error for ``--text`` that is given twice, of which one would be dropped."""
        names = ctx.help_option_names
        for position, arg in enumerate(args[:-1]):
            if arg in names and args[position + 1] == "all":
                ctx.meta[_ALL] = True
                args = [*args[: position + 1], *args[position + 2 :]]
                break
        *_, parameters = self.make_parser(ctx).parse_args(list(args))
        if sum(param.name == "text" for param in parameters) > 1:
            message = "--text is given twice. Several columns, which are joined, have commas between them: --text a,b"
            raise typer.BadParameter(message, ctx)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options by sections."""
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in _SECTIONS}
        for param in self.get_params(ctx):
            shown = param.get_help_record(ctx)
            if shown is not None and param.name == "help":
                shown = (f"{shown[0]} [all]", shown[1])
            if shown is not None:
                name = "Arguments" if param.param_type_name == "argument" else "Options"
                sections.setdefault(getattr(param, "rich_help_panel", None) or name, []).append(shown)
        listed = sections if ctx.meta.get(_ALL) else {name: sections[name] for name in _SHORT}
        for name, rows in listed.items():
            if rows:
                with formatter.section(name):
                    formatter.write_dl(rows)
        n_more = sum(map(len, sections.values())) - sum(map(len, listed.values()))
        if n_more:
            formatter.write_paragraph()
            formatter.write_text(f"{ctx.command_path} --help all lists {n_more} more options.")

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the exit codes below all options."""
        if ctx.meta.get(_ALL):
            formatter.write_paragraph()
            codes = "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
            formatter.write_text(f"Exit codes: {codes}.")


class Program(TyperGroup):
    """All commands, in the groups that their `rich_help_panel` names."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write a line for each command, on one screen."""
        formatter.write_usage(ctx.command_path, "COMMAND [OPTIONS]")
        formatter.write_text(str(self.help))
        formatter.write_paragraph()
        width, rows = max(map(len, self.commands)) + 2, []
        for panel, commands in groupby(self.commands.items(), key=lambda one: getattr(one[1], "rich_help_panel", "")):
            for first, (name, command) in zip(chain([panel], repeat("")), commands, strict=False):
                said = command.get_short_help_str(formatter.width - width - _GROUP)
                rows.append((first, f"{name:<{width}}{said}"))
        formatter.write_dl(rows)
        formatter.write_paragraph()
        formatter.write_text("COMMAND --help explains a command, --help all lists all of its options.")
        names = ", ".join(max(param.opts, key=len) for param in self.get_params(ctx))
        formatter.write_text(f"Options: {names}.")
