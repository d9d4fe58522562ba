"""`bagwise info` for files of every kind, and `bagwise info --verify`, which reads them whole."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bagwise._utils.memory import readable_size
from bagwise.app.cli.printing import printable
from bagwise.app.cli.session import Session
from bagwise.errors import BagwiseError

if TYPE_CHECKING:
    from bagwise._io.tensors import TensorEntry

__all__ = ["KINDS", "describe_file", "is_other_file", "verify_file"]

_VERIFY = {"verify": True}
# For each kind of file: the module and the name of what loads it, and the options by which all of it is checked.
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bagwise.Model": ("bagwise.app.model", "Model", {}),
    "bagwise.ItemIndex": ("bagwise.app", "ItemIndex", _VERIFY),
    "bagwise.BagIndex": ("bagwise", "BagIndex", _VERIFY),
    "bagwise.Bags": ("bagwise", "Bags", _VERIFY),
    "bagwise.Hierarchy": ("bagwise", "Hierarchy", {}),
    "bagwise.LatentDirichlet": ("bagwise", "LatentDirichlet", {}),
    "bagwise.ManifoldBagOfFeatures": ("bagwise", "ManifoldBagOfFeatures", {}),
    "bagwise.Sketch": ("bagwise.merging", "Sketch", {}),
    "bagwise.Statistics": ("bagwise.merging", "Statistics", {}),
}
# Those that `bagwise info` tells more of than their tensors.
_KNOWN = ("bagwise.Model", "bagwise.ItemIndex")


def is_other_file(path: Path) -> bool:
    """Whether a path is a file of the library, but neither a model nor an index of items."""
    from bagwise._io.tensors import kind_of

    return kind_of(path) in KINDS.keys() - {*_KNOWN}


def describe_file(session: Session, path: Path) -> None:
    """Print the kind of a file and its tensors."""
    from bagwise._io.tensors import tensor_entries

    loaded = _load(path, _kind(path), {})
    header, entries = tensor_entries(path)
    session.answer(file=_told(path, header, entries))
    session.say(f"{'kind':<13} {header['kind']}, schema {header['schema']}")
    session.say(f"{'contents':<13} {printable(' '.join(repr(loaded).split()))}")
    session.say(f"{'size':<13} {readable_size(path.stat().st_size)}")
    session.say()
    session.table(["tensor", "type", "shape"], [[one.name, one.dtype, _shape(one)] for one in entries])


def verify_file(session: Session, path: Path) -> None:
    """Read a file and check all of it; raise if something is wrong."""
    from bagwise._io.tensors import check_file_path

    if not path.exists():
        raise BagwiseError(f"{path} does not exist. Give a file that bagwise wrote.")
    told = _verified(check_file_path(path))
    wrong = [f"{entry['name']} ({entry['problem']})" for entry in told["tensors"] if entry["problem"]]
    wrong += [told["problem"]] * (told["problem"] is not None)
    session.answer_anyway(verified={"sound": not wrong, "file": told})
    if wrong:
        what = "is damaged" if told["tensors"] else "is damaged, or is not a file of bagwise"
        raise BagwiseError(f"{path} {what}: {'; '.join(wrong)}. Restore it from a copy, or make it again.")
    session.say(f"{'verified':<13} all {len(told['tensors'])} tensors are sound.")


def _verified(path: Path) -> dict[str, Any]:
    """Check the checksums of all tensors, then everything that loading checks, in mapped tensors as well."""
    from bagwise._io.tensors import tensor_entries

    try:
        header, entries = tensor_entries(path, read=True)
    except BagwiseError as error:
        return {"path": str(path), "tensors": [], "problem": _without_name(path, error)}
    told = _told(path, header, entries)
    for entry, one in zip(told["tensors"], entries, strict=True):
        changed = one.found != one.checksum
        entry["problem"] = f"checksum {one.found:08x} instead of {one.checksum:08x}" if changed else None
    told["problem"] = None
    if not any(entry["problem"] for entry in told["tensors"]):
        try:
            _load(path, _kind(path), KINDS.get(str(header.get("kind")), ("", "", {}))[2])
        except BagwiseError as error:
            told["problem"] = _without_name(path, error)
    return told


def _without_name(path: Path, error: BagwiseError) -> str:
    """Give the message of an error without the name of the file, which comes before it."""
    message = str(error).removeprefix(f"{path} ").removesuffix(".")
    return message.removeprefix("is not a file of bagwise: ").removeprefix("is damaged: ")


def _kind(path: Path) -> str:
    from bagwise._io.tensors import kind_of

    kind = kind_of(path)
    if kind not in KINDS:
        raise BagwiseError(f"{path} holds {kind!r:.100}; known kinds of files: {', '.join(KINDS)}.")
    return kind


def _load(path: Path, kind: str, options: dict[str, Any]) -> Any:
    module, name, _ = KINDS[kind]
    return getattr(importlib.import_module(module), name).load(path, **options)


def _told(path: Path, header: dict[str, Any], entries: list[TensorEntry]) -> dict[str, Any]:
    return {
        "path": str(path),
        "kind": header.get("kind"),
        "schema": header.get("schema"),
        "bytes": path.stat().st_size,
        "tensors": [
            {"name": one.name, "dtype": one.dtype, "shape": list(one.shape), "bytes": one.n_bytes} for one in entries
        ],
    }


def _shape(entry: TensorEntry) -> str:
    return " x ".join(map(str, entry.shape))
