"""The library, as the record uses it: the command line and a few public names, all of them fetched here."""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
import warnings
from typing import Any

import numpy as np
from content import digest

from bagwise import BagwiseError, criteria, fit_model, merge_words, open_collection
from bagwise.merging import Statistics, merge_statistics

__all__ = ["BagwiseError", "as_json", "command", "criteria", "fit_model", "items_of"]
__all__ += ["merge_statistics", "merge_words", "statistics_of"]


def command(*arguments: Any) -> tuple[int, str, str]:
    """Run ``bagwise ARGUMENTS`` in this process; return its exit code and what it wrote."""
    written, said, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["bagwise", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(written), contextlib.redirect_stderr(said):
            runpy.run_module("bagwise", run_name="__main__")
        code: Any = 0
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.argv = before
    return code, written.getvalue(), said.getvalue()


def as_json(*arguments: Any) -> Any:
    """Run a command with ``--json`` and return the object that it printed."""
    _, written, said = command(*arguments, "--json")
    try:
        return json.loads(written)
    except json.JSONDecodeError:
        raise SystemExit(f"bagwise {' '.join(map(str, arguments))} --json printed no JSON:\n{written}{said}") from None


def statistics_of(X: Any, codes: np.ndarray, n_classes: int) -> Any:
    """Return the sums over samples that all criteria of sums need."""
    return Statistics.of(X, codes, n_classes, frequencies=True)


def items_of(source: Any, **options: Any) -> dict[str, Any]:
    """Open a source and return what its collection says of it, and a digest of each item or the reason it has none."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = open_collection(source, **options)
        said = {
            "modality": found.modality,
            "ids": list(found.ids),
            "labels": ["+".join(labels) or None for labels in found.label_sets],
            "splits": list(found.splits),
            "ignored": list(found.ignored),
            "notes": list(found.notes),
            "skipped": [list(map(str, skipped)) for skipped in found.skipped],
        }
        contents = []
        for item in found:
            try:
                contents.append(item.load())
            except BagwiseError as error:
                contents.append(f"{type(error).__name__}: {error}")
    said["contents"] = [_content(content) for content in contents]
    said["warnings"] = [f"{one.category.__name__}: {one.message}" for one in warned]
    return said


def _content(value: Any) -> str:
    """Return a text that tells two contents of items apart."""
    if hasattr(value, "toarray"):
        value = value.toarray()
    if isinstance(value, np.ndarray):
        kind = "pixels" if value.dtype == np.uint8 else "numbers"
        numbers = np.ascontiguousarray(value.reshape(-1) if kind == "numbers" else value, np.float64)
        shape = "x".join(map(str, numbers.shape))
        return f"{kind} {shape} {' '.join(f'{number:g}' for number in numbers.ravel()[:8])} {digest(numbers.tobytes())}"
    return str(value)
