"""Opening the explorer in a browser of this machine, by a private file that holds a token for one use."""

from __future__ import annotations

import os
import tempfile
import weakref
from html import escape
from pathlib import Path

__all__ = ["PageFile", "leading_page"]


def leading_page(address: str) -> str:
    """Return a page that leads to another address at once, as a step of its own: its site sends that address on.

    A browser sends a strict cookie only where a page of the same site leads to; a redirect passes on the site before.
    """
    to = escape(address, quote=True)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
        f'<meta http-equiv="refresh" content="0; url={to}"><title>bagwise explorer</title></head>'
        f'<body><p><a href="{to}">Open the explorer</a></p></body></html>\n'
    )


class PageFile:
    """A file that only this user can read, and that leads to an address; it is removed when this process ends.

    What is opened in a browser stands in the list of processes, which all users of a machine see: that is the name of
    this file, and the address is inside.

    Parameters
    ----------
    address : str

    Attributes
    ----------
    path : Path
    """

    def __init__(self, address: str) -> None:
        handle, name = tempfile.mkstemp(prefix="bagwise-", suffix=".html")  # 0600
        self.path = Path(name)
        self._end = weakref.finalize(self, self.path.unlink, missing_ok=True)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(leading_page(address))

    @property
    def url(self) -> str:
        """The address of the file."""
        return self.path.resolve().as_uri()

    def remove(self) -> None:
        """Remove the file. Removing it again does nothing."""
        self._end()
