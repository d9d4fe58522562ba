"""Model files: what is saved is what is loaded, and nothing that happens while saving harms what was there."""

import ast
import dataclasses
import errno
import json
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


@pytest.mark.parametrize("form", ["m.bagwise", "folder"])
@pytest.mark.parametrize("made", sorted(MADE))
def test_loading_gives_what_was_saved(made, form, tmp_path):
    model = MADE[made]()
    assert model.save(tmp_path / form) == tmp_path / form
    assert Model.load(tmp_path / form) == model
    assert os.listdir(tmp_path) == [form]
    assert runtime.load(tmp_path / form).header == model.info()
    bytes_of = (tmp_path / form / "model.safetensors" if form == "folder" else tmp_path / form).read_bytes()
    again = Model.load(tmp_path / form)
    again.save(tmp_path / "again.bagwise")
    assert (tmp_path / "again.bagwise").read_bytes() == bytes_of
    if form == "folder":
        text = (tmp_path / form / "model.json").read_text("utf-8")
        assert json.loads(text) == model.info()
        assert text.count("\n") > 10


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


def test_the_name_says_whether_it_is_a_file_or_a_folder(tmp_path):
    model = table_model()
    for name in ("plain", "v1.2", "slash/"):
        assert model.save(f"{tmp_path}/{name}").is_dir()
    assert model.save(tmp_path / "x.bagwise").is_file()
    (tmp_path / "d.bagwise").mkdir()
    with pytest.raises(BagwiseError, match="is a folder"):
        model.save(tmp_path / "d.bagwise")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(BagwiseError, match="is a file"):
        model.save(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(BagwiseError, match="there is no folder"):
        model.save(tmp_path / "nowhere" / "m.bagwise")


def test_a_folder_with_other_things_is_not_replaced(tmp_path):
    model = table_model()
    model.save(tmp_path / "m")
    (tmp_path / "m" / "notes.txt").write_text("mine")
    with pytest.raises(BagwiseError, match=r"such as 'notes\.txt', which a model would replace"):
        model.cut(3).save(tmp_path / "m")
    assert Model.load(tmp_path / "m") == model
    (tmp_path / "empty").mkdir()
    assert Model.load(model.save(tmp_path / "empty")) == model


def test_a_link_to_a_folder_is_followed_when_saving(tmp_path):
    model = table_model()
    model.save(tmp_path / "m")
    (tmp_path / "link").symlink_to(tmp_path / "m")
    model.cut(3).save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert Model.load(tmp_path / "m") == Model.load(tmp_path / "link") == model.cut(3)


def test_headers_are_limited_when_saving_as_well(tmp_path):
    model = dataclasses.replace(table_model(), options={"long": "x" * (1 << 22)})
    with pytest.raises(BagwiseError, match="at most 4194304 bytes"):
        model.save(tmp_path / "m.bagwise")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("form", ["m.bagwise", "m"])
def test_a_full_disk_leaves_the_old_model(form, tmp_path):
    old, new = MADE["texts"](), MADE["images"]()
    old.save(tmp_path / form)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:  # the system refuses to write more than this to a file
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        with pytest.raises(BagwiseError, match=r"cannot be saved: File too large\. What was there before is as it was"):
            new.save(tmp_path / form)
        with pytest.raises(BagwiseError, match="cannot be saved"):
            new.save(tmp_path / f"other-{form}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert Model.load(tmp_path / form) == old
    assert os.listdir(tmp_path) == [form]


@pytest.mark.parametrize(
    ("form", "function"),
    [("m.bagwise", "fsync"), ("m.bagwise", "replace"), ("m", "fsync"), ("m", "replace"), ("m", "rename")],
)
def test_any_fault_leaves_the_old_model(form, function, tmp_path, monkeypatch):
    old, new = table_model(), table_model().cut(3)
    old.save(tmp_path / form)

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(_files.os, function, fail)
        with pytest.raises(BagwiseError, match="No space left on device"):
            new.save(tmp_path / form)
    assert Model.load(tmp_path / form) == old
    assert os.listdir(tmp_path) == [form]


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


@pytest.mark.parametrize("form", ["m.bagwise", "m"])
def test_killed_while_saving_the_model_is_one_of_the_two(form, two_models, tmp_path):
    target = tmp_path / "out" / form
    two_models[0].save(target)
    for delay in (0.0, 0.013, 0.05):
        process = saver(tmp_path, target, 10**6)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert Model.load(target) in two_models


@pytest.mark.parametrize("form", ["m.bagwise", "m"])
def test_two_that_save_at_once_leave_one_whole_model(form, two_models, tmp_path):
    target = tmp_path / "out" / form
    processes = [saver(tmp_path, target, 40) for _ in range(2)]
    while form == "m.bagwise" and any(process.poll() is None for process in processes):
        if target.exists():  # a reader sees a whole file at any time
            assert Model.load(target) in two_models
    for process in processes:
        process.stdout.close()
        assert process.wait() == 0
    assert Model.load(target) in two_models
    assert os.listdir(tmp_path / "out") == [form]


def test_folders_are_replaced_where_names_cannot_be_exchanged(two_models, tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "_exchange", lambda *_: False)
    one, other = two_models
    target = tmp_path / "out" / "m"
    for model in (one, other, one):
        model.save(target)
        assert Model.load(target) == model
        assert os.listdir(tmp_path / "out") == ["m"]

    def fail(source, destination):
        if source.suffix == ".part":
            raise OSError(errno.EIO, "broken") if not destination.exists() else OSError(errno.ENOTEMPTY, "taken")
        rename(source, destination)

    rename = os.rename
    monkeypatch.setattr(_files.os, "rename", fail)
    with pytest.raises(BagwiseError, match="cannot be saved: broken"):
        other.save(target)
    assert Model.load(target) == one
    assert os.listdir(tmp_path / "out") == ["m"]
