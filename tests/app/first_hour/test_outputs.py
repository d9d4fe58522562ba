"""Where commands write, and for whom."""

import errno
import os
import re
import shutil

import pytest

from bagwise.app.modalities.texts import TextVectorizer
from commands import bagwise
from small_sources import write_records


def test_out_may_be_a_folder(tmp_path, monkeypatch):
    """`--out .` was an internal error."""
    write_records(tmp_path / "texts.csv")
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    bagwise("fit", "texts.csv", "--folds", 0, "--groups", 3, "--out", "models")
    names = ["texts.bagwise", "texts.index", "texts.report.html"]
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == names
    bagwise("fit", "texts.csv", "--folds", 0, "--groups", 3, "--no-page", "--no-index", "--out", ".")
    assert (tmp_path / "texts.bagwise").read_bytes() == (tmp_path / "models" / "texts.bagwise").read_bytes()
    bagwise("index", "texts.bagwise", "texts.csv", "--out", ".")
    bagwise("cut", "texts.bagwise", "--groups", 2, "--out", "models")
    assert (tmp_path / "texts.index").is_file()
    assert (tmp_path / "models" / "texts-2.bagwise").is_file()


@pytest.fixture
def read_only(tmp_path, monkeypatch):
    """A folder in which no file can be made, although the system says that this user may write to it."""
    folder, opened = tmp_path / "read-only", os.open
    folder.mkdir()

    def refuse(path, flags, *more, **options):
        if flags & os.O_CREAT and os.fspath(path).startswith(str(folder)):
            raise OSError(errno.EROFS, "Read-only file system", path)
        return opened(path, flags, *more, **options)

    monkeypatch.setattr(os, "open", refuse)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ("fit", "gone", "--out", "OUT.bagwise"),
        ("fit", "gone", "--markdown", "OUT"),
        ("fit", "gone", "--workers", "1", "--out", "OUT.bagwise"),
        ("compare", "gone", "--page", "OUT.html"),
        ("list", "gone", "--out", "OUT.csv"),
        ("index", "gone", "gone", "--out", "OUT.index"),
        ("index", "gone", "gone", "--out", "OUT.index", "--workers", "1"),
        ("transform", "gone", "gone", "--out", "OUT.csv"),
        ("transform", "gone", "gone", "--out", "OUT.parquet"),
        ("evaluate", "gone", "gone", "--page", "OUT.html"),
        ("cluster", "gone", "gone", "--clusters", "2", "--out", "OUT.csv"),
        ("predict", "gone", "gone", "--out", "OUT.csv"),
        ("explain", "gone", "gone", "--page", "OUT.html"),
        ("search", "gone", "gone", "--page", "OUT.html"),
        ("groups", "gone", "--out", "OUT.csv"),
        ("cut", "gone", "--groups", "2", "--out", "OUT.bagwise"),
        ("export", "gone", "--out", "OUT.bagwise"),
        ("export", "gone", "--onnx", "OUT.onnx"),
        ("export", "gone", "--cpp", "OUT"),
        ("export", "gone", "--atlas", "OUT.parquet"),
    ],
    ids=lambda command: " ".join(command[:1] + command[-2:]),
)
def test_outputs_are_tried_before_anything_is_read(command, read_only, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = bagwise(*(word.replace("OUT", str(read_only / "out")) for word in command), code=1)
    assert re.fullmatch(r"Error: \S+/read-only/out\S* cannot be saved: Read-only file system\. An .*\n", said), said


def test_folders_and_indexes_are_tried_before_items_are_counted(read_only, tmp_path, monkeypatch):
    source = write_records(tmp_path / "texts.csv")
    bagwise("fit", source, "--folds", 0, "--groups", 3, "--no-page", "--out", tmp_path / "m.bagwise")
    shutil.copy(tmp_path / "m.index", read_only / "m.index")
    monkeypatch.setattr(TextVectorizer, "count_part", pytest.fail)
    for command in (
        ("transform", tmp_path / "m.bagwise", source, "--out", f"{read_only}/new/parts/"),
        ("index", read_only / "m.index", "--add", source, "--replace"),
    ):
        assert "cannot be saved: Read-only file system" in bagwise(*command, code=1)


@pytest.mark.skipif(os.name != "posix", reason="the system has no modes")
def test_what_shows_items_is_for_the_user_alone(tmp_path):
    source, umask = write_records(tmp_path / "texts.csv"), os.umask(0o022)
    try:
        out = ("--out", tmp_path / "m.bagwise", "--markdown", tmp_path / "page")
        bagwise("fit", source, "--folds", 0, "--groups", 3, *out)
        bagwise("predict", tmp_path / "m.bagwise", "--query-text", "a ripe apple", "--out", tmp_path / "answers.csv")
        bagwise("explain", tmp_path / "m.bagwise", "-t", "a ripe apple", "--page", tmp_path / "why.html")
        bagwise("search", tmp_path / "m.index", "-t", "a ripe apple", "--page", tmp_path / "found.html")
        bagwise("export", tmp_path / "m.index", "--atlas", tmp_path / "atlas.parquet")
        bagwise("transform", tmp_path / "m.bagwise", source, "--out", tmp_path / "features.csv")
        (tmp_path / "m.index").chmod(0o640)
        bagwise("index", tmp_path / "m.bagwise", source, "--out", tmp_path / "m.index", "--force")
    finally:
        os.umask(umask)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
    private = {"m.report.html", "report.md", "answers.csv", "why.html", "found.html", "atlas.parquet"}
    assert {name for name, mode in modes.items() if mode == 0o600} == private
    assert modes.pop("m.index") == 0o640
    assert {mode for name, mode in modes.items() if name not in private} == {0o644}
