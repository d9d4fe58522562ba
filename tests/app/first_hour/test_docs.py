"""Commands in the documentation are commands of the program, and print what the page of the first hour says."""

import importlib.util
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from bagwise.app.cli.app import app

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(page):
    """Lines of a page that call the program, without those that are shown to fail by their options."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        called = line.strip().removeprefix("$ ")
        if called.startswith("bagwise ") and line.startswith(("$ ", "    ")):
            answer = lines[number + 1 :]
            following = next((k for k, other in enumerate(answer) if other.startswith(("$ ", "```"))), len(answer))
            if "(exit code 2)" not in answer[:following]:
                yield called


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_option_exists(page):
    program = get_command(app)
    for line in commands(page):
        _, name, *words = shlex.split(line.split(" | ")[0].split(" > ")[0], comments=True)
        if name.startswith("-"):
            continue
        assert name in program.commands, line
        known = {option for parameter in program.commands[name].params for option in parameter.opts}
        known |= {option for parameter in program.commands[name].params for option in parameter.secondary_opts}
        for word in words:
            if word.startswith("-") and not word.lstrip("-").isdecimal() and word not in ("-", "--help"):
                assert word.split("=")[0] in known, line


def test_pages_have_commands():
    assert sum(len(list(commands(page))) for page in PAGES) > 20


@pytest.fixture(scope="module")
def hour():
    """The script that writes the page."""
    spec = importlib.util.spec_from_file_location("first_hour", ROOT / "examples" / "first_hour.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def run_here(command, folder):
    """Run a command in this process, which has imported what commands import."""
    if not command.startswith("bagwise "):
        yield from subprocess.run(command, shell=True, cwd=folder, text=True, capture_output=True).stdout.splitlines()
        return
    result = CliRunner().invoke(app, shlex.split(command)[1:], prog_name="bagwise")
    assert "Traceback" not in result.output
    yield from (line.rstrip() for line in result.output.splitlines())
    if result.exit_code:
        yield f"(exit code {result.exit_code})"


@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="notes name the network as well")
def test_the_first_hour_prints_what_its_page_says(hour, tmp_path, monkeypatch):
    page = ROOT / "docs" / "first-hour.md"
    if f"Python {hour.VERSION}." not in page.read_text():
        pytest.skip(f"other versions than Python {hour.VERSION} have other docstrings")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(hour.WIDTH))
    hour.write_sources(tmp_path)
    changed = hour.differences(page, hour.transcript(tmp_path, run_here))
    assert not changed, "\n".join([*changed, "Write it anew: python examples/first_hour.py --out docs/first-hour.md"])


def test_changes_of_the_first_hour_are_found(hour, tmp_path):
    lines = [
        "$ bagwise fit docs",
        "12 texts, in 3.2 s",
        "groups  error",
        "     5  17.2 %",
        "    10   9.9 %",
        "Note: 3 of 4.",
    ]
    (tmp_path / "page.md").write_text("\n".join(lines))
    same = ["$ bagwise fit docs", "9 texts, in 450 ms", "groups   error", "   500  7 %", "Note: 10 of 12."]
    assert not hour.differences(tmp_path / "page.md", same)
    for number, line in ((0, "$ bagwise fit doc"), (1, "9 items, in 1 s"), (2, "groups  errors"), (4, "(exit code 1)")):
        other = [*same[:number], line, *same[number + 1 :]]
        assert hour.differences(tmp_path / "page.md", other), line
