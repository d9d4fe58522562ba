"""Modalities: what differs between images, videos, texts and tables is asked of one object."""

import ast
from collections import Counter
from pathlib import Path

import pytest

import bagwise
from bagwise.app.modalities import MODALITIES
from bagwise.runtime import ITEMS

SOURCE = Path(bagwise.__file__).parent
NAMES = {"images", "videos", "texts", "table"}
VECTORIZERS = {"TextVectorizer", "TableVectorizer", "VisualVectorizer"}
# The library, which does not know the application, and what only looks like a modality.
ALLOWED = {
    "app/cli/answering.py": (1, "a table is a form of output"),
    "datasets/writing.py": (1, "arrays of a dataset, by name"),
    "descriptors/base.py": (1, "descriptors say what they describe; images are shrunk whole, videos by frame"),
    "runtime.py": (5, "reads files of models with NumPy alone"),
    "sources/collection.py": (1, "an array that may be one image or several"),
    "sources/frames.py": (4, "which columns a table in memory is opened by"),
    "sources/opening.py": (3, "which reader opens what a source holds, and by which endings"),
    "sources/read_table.py": (1, "tables of a database"),
}


def _named(node: ast.AST) -> bool:
    """Whether a constant, or one in a tuple, list or set, is the name of a modality."""
    inside = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    return any(isinstance(one, ast.Constant) and one.value in NAMES for one in inside)


def comparisons(text: str) -> list[int]:
    """Return the lines where names of modalities are compared, looked up or matched, or vectorizers told apart."""
    lines = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare):
            found = any(map(_named, [node.left, *node.comparators]))
        elif isinstance(node, ast.Dict):
            found = sum(key is not None and _named(key) for key in node.keys) > 1
        elif isinstance(node, ast.MatchValue):
            found = _named(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            found = any(isinstance(one, ast.Name) and one.id in VECTORIZERS for one in ast.walk(node.args[1]))
        else:
            continue
        lines += [node.lineno] * found
    return lines


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("a == 'images'", 1),
        ("'texts' != a.modality", 1),
        ("a in ('texts', 'table')", 1),
        ("{'images': 1, 'videos': 2}[a]", 1),
        ("isinstance(a, (int, TextVectorizer))", 1),
        ("match a:\n    case 'table': pass", 1),
        ("f('images', {'images': 1}) == 1", 0),
        ("a == b.modality", 0),
    ],
)
def test_comparisons_are_counted(text, n):
    assert len(comparisons(text)) == n


def test_modalities_are_compared_nowhere_else():
    found = Counter(
        {
            path.relative_to(SOURCE).as_posix(): len(comparisons(path.read_text("utf-8")))
            for path in sorted(SOURCE.rglob("*.py"))
            if "modalities" not in path.parts
        }
    )
    n_more = found.total() - sum(n for n, _ in ALLOWED.values())
    print(f"{found.total()} comparisons of modalities outside of app/modalities/, {n_more} more than allowed")
    assert +found == Counter({path: n for path, (n, _) in ALLOWED.items()})


def test_there_is_one_object_for_each_modality():
    assert set(MODALITIES) == NAMES == set(ITEMS)
    for name, modality in MODALITIES.items():
        assert modality.name == name
        assert modality.partition_rows > 0
        assert modality.learns_words == (modality.most_learned_from > 0)
        assert not (modality.rows and modality.has_files)
        methods = {key for key, value in vars(type(modality)).items() if callable(value) and key[0] != "_"}
        assert methods - {"descriptors"} <= set(dir(type(modality).__mro__[-2])), "a method that others do not answer"
