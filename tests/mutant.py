"""One change of the library that tests must notice."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Mutant(NamedTuple):
    """A change that must not go unnoticed."""

    name: str
    path: str  # below src/bagwise
    old: str  # occurs once
    new: str
    tests: str  # files and folders below tests/, and perhaps -k and an expression

    def source(self, root: Path = ROOT) -> Path:
        return root / "src" / "bagwise" / self.path

    def is_stale(self, root: Path = ROOT) -> bool:
        source = self.source(root)
        return not source.exists() or source.read_text(encoding="utf-8").count(self.old) != 1
