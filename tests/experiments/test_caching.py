"""Files that cells share."""

import numpy as np
import pytest
from experiments.caching import kept
from experiments.running import Options
from experiments.wide_draws import kept_penalty


@pytest.mark.parametrize("quick", [False, True])
def test_a_file_is_written_once(tmp_path, quick):
    options = Options(tmp_path, tmp_path / "out", quick=quick)
    calls = []

    def write(path):
        calls.append(path)
        path.write_text("made")

    first, second = (kept(options, "some-1.5.txt", write) for _ in range(2))
    assert first == second == calls[0]
    assert len(calls) == 1
    assert first.name == ("some-1.5.quick.txt" if quick else "some-1.5.txt")
    assert first.read_text() == "made"


def test_what_failed_is_tried_again(tmp_path):
    options = Options(tmp_path, tmp_path / "out")

    def fail(path):
        raise RuntimeError("broken off")

    with pytest.raises(RuntimeError, match="broken off"):
        kept(options, "some.txt", fail)
    assert kept(options, "some.txt", lambda path: path.write_text("made")).read_text() == "made"


def test_a_penalty_is_chosen_once_for_each_set_of_choices(tmp_path, monkeypatch):
    options = Options(tmp_path, tmp_path / "out")
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    Z = rng.normal(y[:, np.newaxis], 1.0, (40, 3))
    train = np.arange(40) < 30
    assert kept_penalty(options, "some", Z, y, train, (3.0,)) == 3.0
    assert kept_penalty(options, "some", Z, y, train, (0.5,)) == 0.5

    best = kept_penalty(options, "some", Z, y, train, (0.001, 1.0))
    monkeypatch.setattr("experiments.wide_draws.chosen_penalty", lambda *_: 7.0)
    assert kept_penalty(options, "some", Z, y, ~train, (0.001, 1.0)) == best
    assert kept_penalty(options, "other", Z, y, ~train, (0.001, 1.0)) == 7.0
