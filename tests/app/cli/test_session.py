import ast
import json
import os
import re
import signal
import subprocess
import sys

import pytest
import typer.main
from typer.testing import CliRunner

from bagwise import BagwiseError
from bagwise.app.cli.app import app
from bagwise.app.cli.options import command
from bagwise.app.cli.printing import make_table, plain_lines, printable
from bagwise.app.cli.session import EXIT_CODES, Session
from commands import SOURCES, WAIT_IN_MERGING, bagwise, check_output, process
from small_sources import write_records
from waiting import PATIENCE, read_until

NUMERIC = {"numpy", "scipy", "sklearn", "numba", "joblib", "safetensors", "cv2", "PIL", "torch", "pandas", "pyarrow"}


def ending_in(action, *arguments):
    """Run a command whose only work is to call `action`, with the session."""

    def only(session):
        action(session)

    program = typer.Typer()
    program.command()(command("panel")(only))
    return CliRunner().invoke(program, list(arguments))


def raising(error):
    def action(session):
        raise error

    return action


def modules_after(*arguments):
    script = f"import sys\nsys.argv[1:] = {list(arguments)!r}\nfrom bagwise.app.cli import main\n"
    script += "try: main()\nfinally: print(sorted(sys.modules), file=sys.stderr)"
    environment = {"PYTHONPATH": str(SOURCES)}
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    return result.stdout, {name.split(".")[0] for name in ast.literal_eval(result.stderr)}


@pytest.mark.parametrize("arguments", [["--help"], ["fit", "--help"], ["--version"]])
def test_help_imports_no_numeric_library(arguments):
    output, modules = modules_after(*arguments)
    assert "bagwise" in output
    assert not modules & NUMERIC


def help_of(*arguments, columns=80):
    """The lines of a help at a width of the terminal."""
    environment = {"COLUMNS": str(columns), "TERM": "dumb"}
    result = CliRunner(env=environment).invoke(app, arguments)
    assert result.exit_code == 0
    return result.stdout.splitlines()


@pytest.mark.parametrize("columns", [80, 120])
def test_the_help_fits_a_screen(columns):
    lines = help_of("--help", columns=columns)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= columns
    commands = typer.main.get_command(app).commands
    for name, one in commands.items():
        (line,) = [line for line in lines if re.search(rf"^(Make|Use|Look|Others)? +{name} ", line)]
        assert line.endswith(one.get_short_help_str(100)), "it is not shortened"
    groups = [line.split()[0] for line in lines if line[:1].isupper() and line.split()[1] in commands]
    assert groups == ["Make", "Use", "Look", "Others"]


def test_the_help_of_a_fit_has_ten_options_and_all_has_all():
    def options(lines):
        return {found[1] for line in lines if (found := re.match(r"  (?:-\w, )?(--[\w-]+)", line))}

    short, everything = help_of("fit", "--help"), help_of("fit", "--help", "all")
    assert len(options(short) - {"--help"}) == 10
    params = typer.main.get_command(app).commands["fit"].params
    assert options(everything) == {param.opts[0] for param in params if param.opts[0].startswith("--")} | {
        "--help", "--quiet"
    }  # fmt: skip
    assert f"lists {len(options(everything)) - len(options(short))} more options." in short[-1]
    assert "bagwise[network]" in " ".join(short)  # no markup


def test_help_tells_the_exit_codes():
    text = " ".join(help_of("fit", "--help", "all"))
    for code in EXIT_CODES:
        assert f" {code} " in " ".join(text.split())


def test_without_its_libraries_the_command_line_says_what_to_install():
    script = "import sys\nsys.modules['typer'] = None\nfrom bagwise.app.cli import main\nmain()"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={"PYTHONPATH": str(SOURCES)}
    )
    assert result.returncode == 1
    assert result.stderr == 'Error: The command line needs typer. Install it with: pip install "bagwise[app]"\n'


def test_wrong_use_ends_with_2():
    assert "No such option" in bagwise("fit", "x", "--wrods", "5", code=2)
    assert "No such command" in bagwise("fti", code=2)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (BagwiseError("three\nlines."), 1, "Error: three\\nlines.\n"),
        (FileNotFoundError(2, "No such file or directory", "a\nb"), 1, "No such file or directory: a\\nb."),
        (OSError(28, "No space left on device"), 1, "No space left on device. Free some space"),
        (MemoryError(), 1, "Not enough memory"),
        (KeyboardInterrupt(), 130, "Interrupted; no partial files are left."),
        (ZeroDivisionError("division"), 3, "Internal error of bagwise: ZeroDivisionError: division."),
    ],
)
def test_errors_are_one_sentence_and_a_code(error, code, said):
    result = ending_in(raising(error))
    assert result.exit_code == code
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def test_the_log_has_times_steps_notes_and_the_traceback(tmp_path):
    log = tmp_path / "log.txt"

    def action(session):
        session.progress("Counting", 1, 2)
        session.progress("Merging", 1, 1)
        session.note("look \udcff out")
        session.say("hello")
        raise ZeroDivisionError

    result = ending_in(action, "--log-file", str(log))
    assert str(log) in result.stderr
    text = log.read_text()
    for part in ("Counting …", "Counting: 0.0 s", "Merging …", "WARNING", "look \\udcff out", "hello", "Traceback"):
        assert part in text
    assert all(line[:2] == "20" for line in text.splitlines()[:5])
    assert "cannot be written" in ending_in(action, "--log-file", str(tmp_path / "no" / "log.txt")).stderr


def test_an_unexpected_error_without_a_log_leaves_one():
    result = ending_in(raising(ZeroDivisionError("oh")))
    path = result.stderr.split("Traceback: ")[1].strip()
    with open(path) as file:
        assert "ZeroDivisionError: oh" in file.read()


def test_warnings_become_notes_that_quiet_silences():
    import warnings

    def action(session):
        warnings.warn("beware", UserWarning, stacklevel=1)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        session.say("done")

    result = ending_in(action)
    assert (result.stdout, result.stderr) == ("done\n", "Note: beware\n")
    quiet = ending_in(action, "--quiet")
    assert (quiet.stdout, quiet.stderr) == ("done\n", "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_fit_says_so_and_leaves_nothing(tmp_path, number, code):
    source = write_records(tmp_path / "texts.csv")
    work = tmp_path / "work"
    work.mkdir()
    fit = ("fit", source, "--groups", 4, "--folds", 0, "--log-file", tmp_path / "log")
    running = process(*fit, script=WAIT_IN_MERGING, cwd=work)
    read_until(running, "merging")
    running.send_signal(number)
    output, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == code
    advice = "With --cache DIR, the same command goes on from the last finished step."
    assert errors.endswith(f"no partial files are left. {advice}\n")
    assert "Traceback" not in errors
    assert output == ""
    assert list(work.iterdir()) == []
    assert "no partial files" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("module", ["typer", "bagwise.app.cli.listing"])
def test_an_interrupt_while_modules_are_imported_is_one_line(module, as_json, tmp_path):
    interrupt = f"""
import signal
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
"""
    running = process("fit", tmp_path / "gone", *["--json"] * as_json, script=interrupt)
    output, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 130, errors
    assert errors == "Error: Interrupted.\n"
    if as_json:
        told = json.loads(output)
        check_output(told)
        assert told["exit_code"] == 130


def test_an_interrupt_inside_of_exec_gives_the_exit_code(tmp_path):
    """Python would end a module (``-m``) by the signal: SciPy imports its modules by ``exec``."""
    (tmp_path / "started.py").write_text("""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "bagwise.distributed":
            exec("signal.raise_signal(signal.SIGINT)", {"signal": signal})
sys.meta_path.insert(0, Interrupt())
from bagwise.app.cli import main
main()
""")
    command = [sys.executable, "-m", "started", "fit", "gone"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.startswith("Error: Interrupted; no partial files are left. With --cache DIR, ")


def test_tables_align_numbers_and_escape_names():
    rows = [[5, "10.0 % ± 1.0", "a\nb"], [50, "9.0 % ± 0.5", "[bold]日本" + 200 * "c"]]
    assert plain_lines(make_table(["words", "error", "name"], rows)) == [
        "words         error  name",
        "    5  10.0 % ± 1.0  a\\nb",
        "   50   9.0 % ± 0.5  [bold]日本" + 200 * "c",
    ]
    assert plain_lines(make_table(["a", "b"], [])) == ["a  b"]
    assert plain_lines(make_table(["n", "error", ""], [[2, "49.1 %", ""]])) == ["n   error", "2  49.1 %"]


def test_tables_fit_the_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    Session("test").table(["n", "name"], [[1, "x" * 60], [2, "[bold]y"]])
    lines = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 40
    assert sum(line.count("x") for line in lines) == 60
    assert any(line.split() == ["2", "[bold]y"] for line in lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("plain é", "plain é"), ("\x1b[31mred", "\\x1b[31mred"), ("\u202eback", "\\u202eback"), ("\udce9", "\\xe9")],
)
def test_names_cannot_reach_the_terminal(text, expected):
    assert printable(text) == expected
