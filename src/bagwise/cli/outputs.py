"""Where results go: names made from the source, and a refusal to replace what is there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from bagwise.errors import BagwiseError

__all__ = ["FitOutputs", "check_outputs", "name_of_source", "need_pages"]

_ARCHIVE_ENDINGS = (".tar.gz", ".tar.bz2", ".tar.xz", ".tgz", ".tbz2", ".txz", ".tar", ".zip")


def name_of_source(source: str | os.PathLike[str]) -> str:
    """What a source is called: its last part, without the ending if it is a file.

    >>> name_of_source("data/photos.tar.gz"), name_of_source("data/photos/")
    ('photos', 'photos')
    """
    path = Path(source)
    name = path.name or path.resolve().name
    if name in ("", ".", ".."):
        name = path.resolve().name or "root"
    if path.is_dir():
        return name
    for end in _ARCHIVE_ENDINGS:
        if name.lower().endswith(end) and len(name) > len(end):
            return name[: -len(end)]
    return Path(name).stem


class FitOutputs:
    """What a fit writes: a model, and beside it a report and an index."""

    def __init__(self, model: Path, *, report: bool, index: bool, markdown: Path | None) -> None:
        base = model.with_suffix("") if model.suffix == ".bagwise" else model
        self.model = model
        self.report = base.with_name(f"{base.name}.report.html") if report else None
        self.index = base.with_name(f"{base.name}.index") if index else None
        self.markdown = markdown

    def all(self) -> list[Path]:
        """All paths that will be written."""
        return [path for path in (self.model, self.report, self.index, self.markdown) if path is not None]


def check_outputs(paths: Iterable[Path], force: bool) -> None:
    """Say before any work that an output is there already, or cannot be written."""
    for path in paths:
        if os.path.lexists(path) and not force:
            raise BagwiseError(f"{path} exists already. Give --force to replace it, or another name by --out.")
        folder = path.parent
        if not folder.is_dir():
            raise BagwiseError(f"{path} cannot be written: there is no folder {folder}. Make it first.")
        if not os.access(folder, os.W_OK):
            raise BagwiseError(f"{path} cannot be written: the folder {folder} does not permit it.")


def need_pages() -> None:
    """Raise before any work if a report cannot be written."""
    from bagwise._utils.extras import require

    require("jinja2", "report", "Writing reports (--no-report skips them)")
