"""Names in the source: a class name stands for one thing, and a variable is named after what it holds."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import bagwise

SOURCE = Path(bagwise.__file__).parent
TREES = {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text("utf-8")) for path in SOURCE.rglob("*.py")}
# What may be in a variable of these names, nobody knows.
VAGUE = {"found", "given", "place", "held", "own"}


def vague_names(tree: ast.AST) -> list[str]:
    """Return names of variables and parameters that do not say what they hold."""
    stored = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    parameters = [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]
    return [name for name in (*stored, *parameters) if name in VAGUE]


def test_no_class_name_is_used_twice():
    where = defaultdict(list)
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                where[node.name].append(path)
    twice = {name: paths for name, paths in where.items() if len(paths) > 1}
    print(f"{len(twice)} class names are used twice: {twice}")
    assert twice == {}


def test_variables_are_named_after_what_they_hold():
    found = {path: names for path, tree in TREES.items() if (names := vague_names(tree))}
    print(f"{sum(map(len, found.values()))} variables in {len(found)} files are named {', '.join(sorted(VAGUE))}")
    assert found == {}


@pytest.mark.parametrize(
    ("text", "n"),
    [("found = 1", 1), ("def f(given, *, held): pass", 2), ("for own, _ in a: pass", 1), ("a.found = f(given=1)", 0)],
)
def test_vague_names_are_seen(text, n):
    assert len(vague_names(ast.parse(text))) == n
