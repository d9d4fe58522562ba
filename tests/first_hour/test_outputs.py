"""Where commands write."""

from commands import bagwise
from small_sources import write_records


def test_out_may_be_a_folder(tmp_path, monkeypatch):
    """`--out .` was an internal error."""
    write_records(tmp_path / "texts.csv")
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    bagwise("fit", "texts.csv", "--folds", 0, "--to", 3, "--out", "models")
    names = ["texts.bagwise", "texts.index", "texts.report.html"]
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == names
    bagwise("fit", "texts.csv", "--folds", 0, "--to", 3, "--no-report", "--no-index", "--out", ".")
    assert (tmp_path / "texts.bagwise").read_bytes()[:8] == (tmp_path / "models" / "texts.bagwise").read_bytes()[:8]
    bagwise("index", "texts.bagwise", "texts.csv", "--out", ".")
    bagwise("cut", "texts.bagwise", "--to", 2, "--out", "models")
    assert (tmp_path / "texts.index").is_file()
    assert (tmp_path / "models" / "texts-2.bagwise").is_file()
