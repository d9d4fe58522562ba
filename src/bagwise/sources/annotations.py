"""Files and mappings that say which label or part each item has."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bagwise.errors import BagwiseError
from bagwise.sources.decoding import decode_text

__all__ = ["match_ids", "read_annotations"]


def read_annotations(given: Any, column: str) -> dict[str, tuple[str, ...]]:
    """Read what each id has from a mapping, or from the columns ``id`` and `column` of a CSV or TSV file."""
    if isinstance(given, Mapping):
        return {str(id): _as_tuple(value) for id, value in given.items()}
    if not isinstance(given, (str, os.PathLike)):
        raise BagwiseError(
            f"{column}s must be a mapping from ids, or the path of a CSV or TSV file with columns id and {column}; "
            f"got {type(given).__name__}."
        )
    path = Path(given)
    if not path.is_file():
        raise BagwiseError(
            f"There is no file {path}. {column}s come from a CSV or TSV file with columns id and {column}."
        )
    try:
        return _read_rows(path, column)
    except (BagwiseError, csv.Error) as error:
        raise BagwiseError(f"{path} cannot be used for {column}s: {error}.") from error


def _read_rows(path: Path, column: str) -> dict[str, tuple[str, ...]]:
    text = decode_text(path.read_bytes(), None)
    delimiter = "\t" if path.suffix.lower() in (".tsv", ".tab") else ","
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header = next(rows, [])
    if "id" not in header or column not in header:
        raise BagwiseError(f"it needs the columns 'id' and {column!r} in its first line, which is {header}")
    id_at, value_at = header.index("id"), header.index(column)
    found: dict[str, tuple[str, ...]] = {}
    for row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise BagwiseError(f"line {rows.line_num} has {len(row)} fields, the first line has {len(header)}")
        found[row[id_at]] = (*found.get(row[id_at], ()), *filter(None, [row[value_at]]))
    return found


def _as_tuple(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return tuple(map(str, value)) if isinstance(value, (list, tuple, set, frozenset)) else (str(value),)


def match_ids(
    ids: Iterable[str], found: Mapping[str, tuple[str, ...]], what: str, source: str
) -> Mapping[str, tuple[str, ...]]:
    """Check that the annotations are about exactly these ids."""
    wanted = list(ids)
    missing = [id for id in wanted if id not in found]
    strange = sorted(set(found) - set(wanted))
    if missing or strange:
        about = []
        if missing:
            about.append(f"{len(missing)} of {len(wanted)} items have no {what} there, the first is {missing[0]!r}")
        if strange:
            about.append(f"{len(strange)} ids there are not in {source}, the first is {strange[0]!r}")
        raise BagwiseError(
            f"The {what}s do not match the items: {'; '.join(about)}. "
            "Ids are paths below the folder or in the archive, with their endings; see collection.ids."
        )
    return found
