"""The tables that the suite is steered by must not rot."""

import re
from pathlib import Path

import pytest

from compiled import remove_stale
from slow import CHECKS, SLOW

HERE = Path(__file__).parent


@pytest.mark.parametrize("entry", SLOW)
def test_what_is_slow_is_there(entry):
    name, _, test = entry.partition("::")
    assert (HERE / name).exists()
    assert f"def {test}(" in (HERE / name).read_text(encoding="utf-8") if test else True


def test_checks_of_scikit_learn_are_known_by_their_name():
    named = [path for path in HERE.rglob("test_*.py") if f"def {CHECKS}" in path.read_text(encoding="utf-8")]
    assert named


def test_the_page_of_promises_names_tests_that_are_there():
    page = (HERE.parent / "docs" / "reliability.md").read_text(encoding="utf-8")
    named = re.findall(r"`tests/([\w/]+\.py)::(\w+)`", page)
    assert len(named) == page.count("::test_") > 30
    for name, test in named:
        assert re.search(rf"^def {test}\(", (HERE / name).read_text(encoding="utf-8"), re.MULTILINE), f"{name}::{test}"
    promises = page.partition("## Mutated inputs")[0]
    rows = [line for line in promises.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) > 20
    assert all("`tests/" in row for row in rows)


def test_what_was_compiled_with_a_changed_function_of_another_file_is_removed(tmp_path):
    sources, record = tmp_path / "src", tmp_path / "build" / "compiled.json"
    contents = {
        "one": "from numba import njit",
        "two": "from package.one import f; from numba import njit",
        "three": "from package.two import g; from package.values import LEAST; from numba import njit",
        "values": "from package import four; LEAST = 1",
        "four": "from numba import njit",
    }
    folder = sources / "package"
    (folder / "__pycache__").mkdir(parents=True)
    for name, content in contents.items():
        (folder / f"{name}.py").write_text(content)
        (folder / "__pycache__" / f"{name}.f-1.py311.nbi").touch()
    assert remove_stale(sources, record) == []
    for changed, stale in {"one": "one three two", "values": "three", "three": "three", "four": "four"}.items():
        with open(folder / f"{changed}.py", "a") as file:
            file.write("# changed")
        assert remove_stale(sources, record) == [f"package/{name}.py" for name in stale.split()]
        assert remove_stale(sources, record) == []
    assert [path.name for path in folder.rglob("*.nbi")] == ["values.f-1.py311.nbi"]
