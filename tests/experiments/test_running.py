"""The runner: finished cells are kept, whatever happens to the others."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from experiments.running import Options, Results, run

ROOT = Path(__file__).resolve().parents[2]
MODULE = """
    import time
    from pathlib import Path
    from experiments.running import Cell

    def cells(options):
        return [Cell(f"cell/{k}", work, {"k": k, "folder": str(options.data)}) for k in range(4)]

    def work(k, folder):
        with open(Path(folder) / "log", "a") as log:
            print(k, file=log)
        if (Path(folder) / f"fails{k}").exists():
            raise RuntimeError("as told")
        if (Path(folder) / f"hangs{k}").exists():
            time.sleep(600)
        return {"square": k * k}
"""


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    (tmp_path / "four_cells.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("four_cells", None)
    import four_cells

    yield four_cells
    del sys.modules["four_cells"]


def worked(folder):
    log = folder / "log"
    return sorted(map(int, log.read_text().split())) if log.exists() else []


def test_finished_cells_are_kept_and_not_run_again(experiment, tmp_path):
    options = Options(tmp_path, tmp_path / "out", jobs=2)
    results = run("four", experiment, options)
    assert [result["square"] for _, result in results.items("cell/")] == [0, 1, 4, 9]
    assert worked(tmp_path) == [0, 1, 2, 3]
    again = run("four", experiment, options)
    assert worked(tmp_path) == [0, 1, 2, 3]
    assert dict(again.items()) == dict(results.items())


def test_a_cell_that_fails_does_not_stop_the_others(experiment, tmp_path, capfd):
    (tmp_path / "fails1").touch()
    options = Options(tmp_path, tmp_path / "out")
    with pytest.raises(SystemExit, match="1 of 4 cells of four failed"):
        run("four", experiment, options)
    assert "cell/1 failed: RuntimeError: as told" in capfd.readouterr().err
    assert "cell/1" not in Results(tmp_path / "out" / "four.json")
    (tmp_path / "fails1").unlink()
    assert len(run("four", experiment, options)) == 4
    assert worked(tmp_path) == [0, 1, 1, 2, 3]


def test_an_interrupt_keeps_what_is_finished(experiment, tmp_path):
    (tmp_path / "hangs2").touch()
    code = (
        "from pathlib import Path; import signal; import four_cells; from experiments.running import Options, run\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs ignore it
        f"if __name__ == '__main__': run('four', four_cells, Options(Path({str(tmp_path)!r}), Path({str(tmp_path)!r})))"
    )
    script = tmp_path / "go.py"
    script.write_text(code)
    path = os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "src")])
    process = subprocess.Popen(
        [sys.executable, str(script)], env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.PIPE, text=True
    )
    file = tmp_path / "four.json"
    patience = time.monotonic() + 120
    while (not file.exists() or len(Results(file)) < 2) and time.monotonic() < patience:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in told
    assert sorted(key for key, _ in Results(file).items()) == ["cell/0", "cell/1"]


def test_the_file_has_a_line_for_each_cell(tmp_path):
    results = Results(tmp_path / "some.json")
    for name in ("b", "a"):
        results.keep(name, {"x": 1.5}, 0.123, {"commit": name})
    lines = results.path.read_text().splitlines()
    assert [line[:3] for line in lines[1:-1]] == ['"a"', '"b"']
    assert json.loads(results.path.read_text())["cells"]["a"]["seconds"] == 0.12
    again = Results(results.path)
    assert (len(again), again["b"], again.seconds) == (2, {"x": 1.5}, 0.24)
    assert again.machines == [{"commit": "a"}, {"commit": "b"}]
