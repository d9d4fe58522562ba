"""The command line: ``bagwise --help``."""

from __future__ import annotations

import io
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command that ``sys.argv`` names."""
    from bagwise._utils.extras import require
    from bagwise.errors import BagwiseError

    try:
        for module in ("typer", "rich"):
            require(module, "cli", "The command line")
    except BagwiseError as error:
        sys.exit(f"Error: {error}")
    from bagwise.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # terminals and pipes that are not UTF-8 get escapes
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="bagwise")
