"""Commands in the documentation are commands of the program."""

import shlex
from pathlib import Path

import pytest
from typer.main import get_command

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
