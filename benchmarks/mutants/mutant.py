"""One change of the library that tests must notice."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Mutant(NamedTuple):
    """A change that must not go unnoticed.

    Lines are found whatever their indentation and where they are broken, so that formatting does not lose them.
    """

    name: str
    path: str  # below src/bagwise
    old: str  # occurs once
    new: str
    tests: str  # files and folders below tests/, and perhaps -k and an expression

    def source(self, root: Path = ROOT) -> Path:
        """Return the file that is changed."""
        return root / "src" / "bagwise" / self.path

    def changed(self, root: Path = ROOT) -> str | None:
        """Return the source with the change; None if it is stale: its lines do not occur, or more than once."""
        source = self.source(root)
        text = source.read_text(encoding="utf-8") if source.exists() else ""
        found = list(re.finditer(r"\s+".join(map(re.escape, self.old.split())), text))
        if len(found) != 1:
            return None
        start, end = found[0].span()
        before = text[text.rfind("\n", 0, start) + 1 : start]
        lines = textwrap.dedent(self.new).strip("\n").split("\n")
        indented = textwrap.indent("\n".join(lines[1:]), before if not before.strip() else "")
        whole = not before.strip() and not self.new.strip()  # lines that go
        put = "pass" if whole else "\n".join([lines[0], indented] if len(lines) > 1 else lines)
        return text[:start] + put + text[end:]
