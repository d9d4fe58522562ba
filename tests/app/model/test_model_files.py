"""Model files: what is saved is what is loaded, and nothing that happens while saving harms what was there."""

import ast
import dataclasses
import errno
import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from bagwise import BagwiseError, Model, runtime
from bagwise._io import atomic as _files
from model_cases import MADE, table_model


@pytest.mark.parametrize("name", ["m.bagwise", "m", "v1.2"])
@pytest.mark.parametrize("made", sorted(MADE))
def test_loading_gives_what_was_saved(made, name, tmp_path):
    model = MADE[made]()
    assert model.save(tmp_path / name) == tmp_path / name
    assert Model.load(tmp_path / name) == model
    assert os.listdir(tmp_path) == [name]
    assert runtime.load(tmp_path / name).header == model.info()
    Model.load(tmp_path / name).save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / name).read_bytes()


def test_any_reader_of_safetensors_opens_it(tmp_path):
    model = MADE["images"]()
    arrays = load_file(model.save(tmp_path / "m.bagwise"))
    np.testing.assert_array_equal(arrays["codebook"], model.codebook)
    np.testing.assert_array_equal(arrays["head_4_coef"], model.heads[4].coef)


def test_loading_imports_nothing_heavy(tmp_path):
    path = MADE["images"]().save(tmp_path / "m.bagwise")
    script = (
        f"import bagwise, sys; m = bagwise.Model.load({str(path)!r}); m.cut(2); m.info(); print(sorted(sys.modules))"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    loaded = {name.split(".")[0] for name in ast.literal_eval(output)}
    assert not loaded & {"sklearn", "scipy", "numba", "joblib", "cv2", "torch", "pickle5"}


def test_a_model_replaces_files_but_no_folders(tmp_path):
    model = table_model()
    (tmp_path / "d.bagwise").mkdir()
    with pytest.raises(BagwiseError, match="is a folder, but a file is needed"):
        model.save(tmp_path / "d.bagwise")
    with pytest.raises(BagwiseError, match="there is no folder"):
        model.save(tmp_path / "nowhere" / "m.bagwise")
    model.save(tmp_path / "m")
    assert Model.load(model.cut(3).save(tmp_path / "m")) == model.cut(3)


def test_headers_are_limited_when_saving_as_well(tmp_path):
    model = dataclasses.replace(table_model(), options={"long": "x" * (1 << 22)})
    with pytest.raises(BagwiseError, match="at most 4194304 are accepted"):
        model.save(tmp_path / "m.bagwise")
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_the_old_model(tmp_path):
    form = "m.bagwise"
    old, new = MADE["texts"](), MADE["images"]()
    old.save(tmp_path / form)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:  # the system refuses to write more than this to a file
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        with pytest.raises(BagwiseError, match=r"cannot be saved: File too large\. An existing file was not changed"):
            new.save(tmp_path / form)
        with pytest.raises(BagwiseError, match="cannot be saved"):
            new.save(tmp_path / f"other-{form}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert Model.load(tmp_path / form) == old
    assert os.listdir(tmp_path) == [form]


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_any_fault_leaves_the_old_model(function, tmp_path, monkeypatch):
    form, old, new = "m.bagwise", table_model(), table_model().cut(3)
    old.save(tmp_path / form)

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(_files.os, function, fail)
        with pytest.raises(BagwiseError, match="No space left on device"):
            new.save(tmp_path / form)
    assert Model.load(tmp_path / form) == old
    assert os.listdir(tmp_path) == [form]


needs_kill = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="only POSIX systems kill without a trace")
SAVING = """
import sys
from bagwise import Model
one, other = Model.load(sys.argv[1]), Model.load(sys.argv[2])
print("ready", flush=True)
for _ in range(int(sys.argv[4])):
    one.save(sys.argv[3])
    other.save(sys.argv[3])
"""


def saver(folder, target, n):
    arguments = [sys.executable, "-c", SAVING, folder / "one.bagwise", folder / "other.bagwise", target, str(n)]
    process = subprocess.Popen(list(map(str, arguments)), stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.fixture
def two_models(tmp_path):
    one, other = MADE["images"](), MADE["texts"]()
    one.save(tmp_path / "one.bagwise")
    other.save(tmp_path / "other.bagwise")
    (tmp_path / "out").mkdir()
    return one, other


# Saves in processes that kill themselves after no, one, two … calls of the functions by which a file is written, until
# one ends; prints how each ended, and which model is there then.
DYING = """
import os, signal, sys
from pathlib import Path
from bagwise import Model
from bagwise._io import atomic
models = [Path(path) for path in sys.argv[1:3]]
target, other, left, code = Path(sys.argv[3]), Model.load(models[1]), 0, -1
def dying(function):
    def call(*given, **options):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return function(*given, **options)
    return call
class Os:
    def __getattr__(self, name):
        function = getattr(os, name)
        return dying(function) if name in ("fsync", "fchmod", "replace", "open") else function
class Written:
    def __init__(self, file):
        self.file, self.write, self.flush = file, dying(file.write), dying(file.flush)
    def __enter__(self):
        return self
    def __exit__(self, *error):
        self.file.close()
    def __getattr__(self, name):
        return getattr(self.file, name)
new_part = atomic._new_part
def opened(*given):
    path, file = new_part(*given)
    return path, Written(file)
atomic.os, atomic._new_part = Os(), opened
for n_calls in range(100):
    target.write_bytes(models[0].read_bytes())
    for part in target.parent.glob(".*.part"):
        os.utime(part, (1e9, 1e9))
    child = os.fork()
    if child == 0:
        left = n_calls
        other.save(target)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code, [path.read_bytes() for path in models].index(target.read_bytes()), len(os.listdir(target.parent)))
    if code == 0:
        break
"""


@needs_kill
def test_killed_at_any_step_of_saving_the_model_is_one_of_the_two(two_models, tmp_path):
    paths = tmp_path / "one.bagwise", tmp_path / "other.bagwise", tmp_path / "out" / "m.bagwise"
    ran = subprocess.run([sys.executable, "-c", DYING, *paths], stdout=subprocess.PIPE, text=True, check=True)
    codes, models, n_files = np.array([line.split() for line in ran.stdout.splitlines()], dtype=int).T.tolist()
    assert codes == [-signal.SIGKILL] * (len(codes) - 1) + [0]
    assert models == sorted(models)  # the new one is there from one step on
    assert models.count(0) > 3
    assert models.count(1) > 1
    assert n_files[-1] == 1  # what killed processes have left is removed a day later


@needs_kill
@pytest.mark.stress
def test_killed_while_saving_the_model_is_one_of_the_two(two_models, tmp_path):
    target = tmp_path / "out" / "m.bagwise"
    two_models[0].save(target)
    for k in range(30):
        process = saver(tmp_path, target, 10**6)
        time.sleep(0.003 * k)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert Model.load(target) in two_models


@pytest.mark.stress
def test_two_that_save_at_once_leave_one_whole_model(two_models, tmp_path):
    target = tmp_path / "out" / "m.bagwise"
    processes = [saver(tmp_path, target, 40) for _ in range(2)]
    while any(process.poll() is None for process in processes):
        if target.exists():  # a reader sees a whole file at any time
            assert Model.load(target) in two_models
    for process in processes:
        process.stdout.close()
        assert process.wait() == 0
    assert Model.load(target) in two_models
    assert os.listdir(tmp_path / "out") == ["m.bagwise"]
