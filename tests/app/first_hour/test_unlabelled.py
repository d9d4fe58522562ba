"""Texts without labels."""

import numpy as np
from typer.testing import CliRunner

from bagwise.app.cli.app import app
from bagwise.app.training.method import unequal_groups
from commands import as_json


def posts(path, n=60):
    """Texts about six subjects, with stop words by Zipf's law and words that occur once."""
    rng = np.random.default_rng(0)
    often = [f"the{k}" for k in range(30)]
    zipf = 1 / np.arange(1, 31)
    lines = ["text"]
    for i in range(n):
        own = [f"subject{i % 6}x{k}" for k in rng.integers(0, 8, 6)]
        lines.append(" ".join([*rng.choice(often, 30, p=zipf / zipf.sum()), *own, f"once{i}"]))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_groups_that_tell_nothing_are_named_in_a_note(tmp_path):
    """Two of 50 groups held 99.9 % of all occurrences, and every search had the score 1.0000."""
    path = posts(tmp_path / "posts.csv")
    result = CliRunner().invoke(
        app, ["fit", str(path), "--criterion", "lpp", "--groups", "12", "--out", str(tmp_path / "lpp.bagwise")]
    )
    assert result.exit_code == 0, result.output
    assert "2 of 12 groups hold 99" in result.stderr
    assert "groups of equal size, and tells little about an item. Use another criterion" in result.stderr


def test_texts_without_labels_get_groups_that_search_can_use(tmp_path):
    path = posts(tmp_path / "posts.csv")
    told = as_json("fit", path, "--out", tmp_path / "posts.bagwise")
    assert not any("of equal size" in note for note in told["notes"])
    hits = as_json("search", tmp_path / "posts.index", "-t", "subject3x1 subject3x2 subject3x5 subject3x7")
    numbers = [int(hit["id"].split(":")[-1]) for hit in hits["queries"][0]["hits"][:5]]  # from 1
    assert [(number - 1) % 6 for number in numbers] == [3] * 5


def test_what_unequal_groups_are():
    groups = np.repeat(np.arange(40), 5)
    assert unequal_groups(groups, np.ones(200)) is None
    totals = np.ones(200)
    totals[[0, 5]] = 1e5  # in two groups of 40
    assert "2 of 40 groups hold 99.9 % of all occurrences" in unequal_groups(groups, totals)
    totals[10] = 1e5  # in three: one third is elsewhere
    assert unequal_groups(groups, totals) is None
    assert unequal_groups(groups[:20], totals[:20]) is None  # 4 groups: two of them are not few
