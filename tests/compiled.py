"""Compiled code that must be made anew because a function in another file has changed.

Numba keeps compiled functions beside their file, and compares the time and size of that file alone: of functions and
constants that were imported into it, it keeps what was there when it compiled.
"""

import ast
import hashlib
import json
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES, RECORD = ROOT / "src", ROOT / "build" / "compiled.json"


def remove_stale(sources=SOURCES, record=RECORD):
    """Remove what was compiled from a file and is not that of its imports any more; return those files.

    What they were is noted in a record; without one, what is there is taken to be right.
    """
    texts = {path: path.read_bytes() for path in sources.rglob("*.py")}
    imports = {path: imported(path, text, sources) for path, text in texts.items() if b"njit" in text}
    now = {path.relative_to(sources).as_posix(): digest(path, imports, texts) for path in sorted(imports)}
    before = json.loads(record.read_text()) if record.exists() else now
    stale = [name for name in now if before.get(name, now[name]) != now[name]]
    for name in stale:
        path = sources / name
        for kept in (path.parent / "__pycache__").glob(f"{path.stem}.*.nb[ci]"):
            kept.unlink(missing_ok=True)
    if stale or now != before or not record.exists():
        record.parent.mkdir(exist_ok=True)
        record.write_text(json.dumps(now, indent=0))
    return stale


def imported(path, text, sources):
    """The files of modules that a file imports from."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    places = {sources.joinpath(*name.split(".")).with_suffix(".py") for name in names}
    return {place for place in places if place != path and place.exists()}


def digest(path, imports, texts):
    """Of a compiled file, of the compiled files that it imports from, and so on, and of all that these import."""
    reached, left = set(), [path]
    while left:
        one = left.pop()
        if one not in reached:
            reached.add(one)
            left += imports.get(one, ())
    return hashlib.sha256(b"".join(texts[one] for one in sorted(reached))).hexdigest()
