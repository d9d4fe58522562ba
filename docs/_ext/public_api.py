"""The public names of the library, and what the reference says of them."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

# Where people import from. The command line and names that begin with an underscore are private.
MODULES = (
    "bagwise", "bagwise.sources", "bagwise.bags", "bagwise.descriptors", "bagwise.codebooks", "bagwise.merging",
    "bagwise.criteria", "bagwise.topics", "bagwise.topics.tables", "bagwise.kernels", "bagwise.retrieval",
    "bagwise.clustering",
    "bagwise.baselines", "bagwise.metrics", "bagwise.nn", "bagwise.app.model", "bagwise.runtime",
    "bagwise.runtime_network", "bagwise.distributed",
    "bagwise.app", "bagwise.app.report", "bagwise.display", "bagwise.app.explorer", "bagwise.errors",
    "bagwise.datasets", "bagwise.anndata",
)  # fmt: skip


def public_names() -> dict[str, Any]:
    """Return all public names with what they are: ``module.name`` of each name in ``__all__`` but modules."""
    found = {}
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if not inspect.ismodule(thing) and not name.startswith("_"):
                found[f"{module_name}.{name}"] = thing
    return found


def listed_names(pages: Path) -> dict[str, str]:
    """Return the names that the pages of the reference list, with the page of each."""
    listed: dict[str, str] = {}
    for page in sorted(pages.glob("*.md")):
        for block in re.findall(r"^\.\. autosummary::\n(.*?)```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
            for line in block.splitlines():
                if re.fullmatch(r"bagwise[\w.]*", line.strip()):
                    if line.strip() in listed:
                        raise ValueError(f"{line.strip()} is listed twice, in {listed[line.strip()]} and {page.name}.")
                    listed[line.strip()] = page.name
    return listed


def _write_pages(app: Any) -> None:
    """Write a page for each name that the reference lists."""
    folder = Path(app.srcdir) / "reference"
    (folder / "generated").mkdir(exist_ok=True)
    names = listed_names(folder)
    for path in (folder / "generated").glob("*.rst"):  # of names that are gone
        if path.stem not in names:
            path.unlink()
    for name in names:
        module, _, last = name.rpartition(".")
        kind = _kind(getattr(importlib.import_module(module), last))
        text = f"{last}\n{'=' * len(last)}\n\n.. currentmodule:: {module}\n\n.. auto{kind}:: {last}\n"
        path = folder / "generated" / f"{name}.rst"
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def _kind(thing: Any) -> str:
    if inspect.isclass(thing):
        return "exception" if issubclass(thing, BaseException) else "class"
    return "function" if callable(thing) else "data"


def _skip(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """Leave out members that come from other libraries, such as `set_output` of scikit-learn."""
    module = getattr(getattr(thing, "fget", thing), "__module__", None)
    if skip or (isinstance(module, str) and module.partition(".")[0] != "bagwise"):
        return True
    return None


def _escape_types(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Escape ``n_features_in_`` and the like in types of parameters: an underscore at the end means a link."""
    for k, line in enumerate(lines):
        before, colon, kind = line.partition(" : ")
        if colon:
            lines[k] = before + colon + re.sub(r"(?<=\w)_(?!\w)", r"\\_", kind)


def _find_member(app: Any, env: Any, node: Any, child: Any) -> Any:
    """Resolve references to members of classes in the quick form, which does not read them."""
    thing: Any = importlib.import_module("bagwise")
    first, *rest = node["reftarget"].split(".")
    if first != "bagwise" or not app.config.quick:
        return None
    for part in rest:
        thing = getattr(thing, part, None)
    return None if thing is None else child


def setup(app: Any) -> dict[str, bool]:
    """Connect the pages of names, and what the reference leaves out."""
    app.add_config_value("quick", False, "env")
    app.connect("builder-inited", _write_pages)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-docstring", _escape_types, priority=100)  # before numpydoc
    app.connect("missing-reference", _find_member)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
