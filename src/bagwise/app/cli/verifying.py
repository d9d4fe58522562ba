"""`bagwise info` for files of every kind and for caches, and `bagwise info --verify`, which reads files whole."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from bagwise._utils.memory import readable_size
from bagwise._utils.text import agree, how_many
from bagwise.app.cli.printing import printable
from bagwise.app.cli.session import Session
from bagwise.errors import BagwiseError

__all__ = ["KINDS", "describe_cache", "describe_file", "is_other_file", "load_file", "verify_file"]

# For each kind of file, the module of the class that loads it, and whether `load` maps tensors unless it verifies them.
KINDS = {
    "bagwise.Model": ("bagwise.app.model", False),
    "bagwise.ItemIndex": ("bagwise.app", True),
    "bagwise.BagIndex": ("bagwise", True),
    "bagwise.Bags": ("bagwise", True),
    "bagwise.Hierarchy": ("bagwise", False),
    "bagwise.LatentDirichlet": ("bagwise", False),
    "bagwise.ManifoldBagOfFeatures": ("bagwise", False),
    "bagwise.Sketch": ("bagwise.merging", False),
    "bagwise.Statistics": ("bagwise.merging", False),
}


def is_other_file(path: Path) -> bool:
    """Whether a path is a file of the library, but neither a model nor an index of items."""
    from bagwise._io.tensors import kind_of

    return kind_of(path) in KINDS.keys() - {"bagwise.Model", "bagwise.ItemIndex"}


def load_file(path: Path, *, verify: bool = False) -> Any:
    """Load a file of any kind; with `verify`, all of it is read and checked."""
    from bagwise._io.tensors import file_parts

    kind = file_parts(path)[0].get("kind")
    if kind not in KINDS:
        raise BagwiseError(f"{path} holds {kind!r:.100}; known kinds of files: {', '.join(KINDS)}.")
    module, maps = KINDS[kind]
    options = {"verify": verify} if maps else {}
    return getattr(importlib.import_module(module), kind.removeprefix("bagwise.")).load(path, **options)


def describe_file(session: Session, path: Path) -> None:
    """Print the kind of a file and its tensors."""
    loaded, about = load_file(path), _about(path)
    session.answer(file=about)
    session.say(f"{'kind':<13} {about['kind']}, schema {about['schema']}")
    session.say(f"{'contents':<13} {printable(' '.join(repr(loaded).split()))}")
    session.say(f"{'size':<13} {readable_size(about['bytes'])}")
    session.say()
    rows = [[one["name"], one["dtype"], " x ".join(map(str, one["shape"]))] for one in about["tensors"]]
    session.table(["tensor", "type", "shape"], rows)


def describe_cache(session: Session, folder: Path) -> None:
    """Print how large a cache is, step by step, and how to clear it."""
    if not folder.is_dir():
        raise BagwiseError(f"{folder} is not a folder. Give the folder that --cache of bagwise fit had.")
    steps: dict[str, list[int]] = {}
    n_others = 0
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if path.suffix == ".arrays" and len(parts) > 1:
            # descriptors lie in folders named by two digits, other steps in folders of their own
            steps.setdefault("descriptors" if len(parts) == 2 else parts[0], []).append(path.stat().st_size)
        else:
            n_others += path.is_file()
    rows = [(name, len(sizes), sum(sizes)) for name, sizes in sorted(steps.items(), key=lambda one: -sum(one[1]))]
    n_files, n_bytes = sum(n for _, n, _ in rows), sum(size for *_, size in rows)
    session.answer(
        cache={
            "path": str(folder),
            "bytes": n_bytes,
            "files": n_files,
            "steps": {name: {"bytes": size, "files": n} for name, n, size in rows},
        }
    )
    session.say(f"{printable(folder)}: {how_many(n_files, 'files')}, {readable_size(n_bytes)}")
    session.table(["step", "files", "size"], [(name, n, readable_size(size)) for name, n, size in rows])
    if n_others:
        session.say(
            f"{how_many(n_others, 'other files')} in this folder {agree(n_others, 'is', 'are')} not of the cache."
        )
    session.say("To clear it, remove the folder, or those of one step, while no command uses it.")


def verify_file(session: Session, path: Path) -> None:
    """Read a file and check all of it; raise BagwiseError if something is wrong."""
    load_file(path, verify=True)
    about = _about(path)
    session.answer(verified=about)
    session.say(f"{'verified':<13} all {len(about['tensors'])} tensors are sound.")


def _about(path: Path) -> dict[str, Any]:
    from bagwise._io.tensors import file_parts

    header, forms = file_parts(path)
    tensors = [{"name": name, "dtype": dtype.name, "shape": list(shape)} for name, (dtype, shape) in forms.items()]
    about = {"path": str(path), "kind": header["kind"], "schema": header["schema"]}
    return about | {"bytes": path.stat().st_size, "tensors": tensors}
