"""The command line: ``bagwise --help``."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from types import FrameType

__all__ = ["end_at_once", "main"]

_INTERRUPTED = 130


def main() -> None:
    """Run the command that ``sys.argv`` names."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # background jobs ignore it
        signal.signal(signal.SIGINT, end_at_once)
    from bagwise._utils.extras import require
    from bagwise.errors import BagwiseError

    try:
        for module in ("typer", "rich"):
            require(module, "app", "The command line")
    except BagwiseError as error:
        sys.exit(f"Error: {error}")
    from bagwise.app.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # terminals and pipes that are not UTF-8 get escapes
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="bagwise")


def end_at_once(number: int, frame: FrameType | None) -> None:
    """End the process on Ctrl-C while modules are imported, before a command begins; see `bagwise.app.cli.session`.

    An exception would come out of the midst of a module, or be swallowed there.
    """
    said = "Interrupted."
    if "--json" in sys.argv:
        print(json.dumps({"command": None, "error": said, "exit_code": _INTERRUPTED}), flush=True)
    print(f"Error: {said}", file=sys.stderr, flush=True)
    os._exit(_INTERRUPTED)
