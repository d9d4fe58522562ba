"""Running commands of the command line inside and outside this process."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import typer.testing
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from bagwise.app.cli.app import app

# Each call of a runner builds all commands and their options anew, which takes longer than most commands.
typer.testing._get_command = functools.cache(typer.testing._get_command)

SOURCES = Path(__file__).parent.parent / "src"
SCHEMA = json.loads((SOURCES.parent / "docs" / "reference" / "output-schema.json").read_text("utf-8"))
# Holds a fit up in the middle of its work, so that a signal arrives there.
WAIT_IN_MERGING = """
import bagwise.app.training.learning, time
def wait(*args, **options):
    print("merging", flush=True)
    while True:  # a signal before one of these is heeded after it
        time.sleep(0.05)
bagwise.app.training.learning.Engine = bagwise.app.training.learning.FollowedPath.of = wait
"""


def bagwise(*arguments, code=0):
    """Run a command here; gives standard output, or standard error if it is to fail."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.exit_code, result.output, result.exception)
    assert "Traceback" not in result.output
    return result.stdout if code == 0 else result.stderr


def as_json(*arguments, code=0):
    """Run a command with ``--json`` and give what it printed: one object of the documented schema and nothing else."""
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == code, result.output
    told = json.loads(result.stdout)
    check_output(told)
    return told


def check_output(told):
    """Raise an AssertionError unless an object is as docs/reference/output-schema.json says."""
    wrong = _validator("error" if "error" in told else f"commands/{told['command']}").iter_errors(told)
    assert not [f"{one.json_path}: {one.message}" for one in wrong], "see docs/reference/output-schema.json"


@functools.cache
def _validator(name):
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]})


def process(*arguments, script=None, **options):
    """Start a command in another process; a script may change things before ``bagwise.app.cli.main`` is called."""
    before = "" if script is None else script
    # a shell's background jobs ignore Ctrl-C, and what they start does so too
    hear = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"import sys\n{hear}\n{before}\nfrom bagwise.app.cli import main\nmain()"
    path = os.pathsep.join(filter(None, [str(SOURCES), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        **options,
    )


def leftovers(folder):
    """The names of files that writers have not finished."""
    return sorted(path.name for path in folder.iterdir() if ".part" in path.name or ".old" in path.name)


def a_day_later(folder):
    """Make unfinished files so old that the next writer removes them."""
    for name in leftovers(folder):
        os.utime(folder / name, (1e9, 1e9))
