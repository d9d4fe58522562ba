"""Worker processes are killed while they compute: results are the same. Part of `make stress`.

Each test has workers of its own, as ``--workers`` starts them. That lost workers change nothing is shown without kills
by the tests of sums and fits.
"""

import os
import signal

import dask.array as da
import numpy as np
import pytest

from bagwise.app import FitOptions, run_fit
from bagwise.distributed import connected, statistics
from bagwise.distributed.executors import LocalExecutor
from bagwise.merging import Statistics
from helpers import topic_counts
from model_cases import saved
from small_sources import write_image_folder, write_records
from waiting import PATIENCE, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.stress,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="only POSIX systems kill without a trace"),
]


@pytest.fixture
def client():
    with connected(workers=2) as client:
        yield client


def kill(client):
    """Kill a worker, once both are there; the other one is the last that goes on."""
    client.wait_for_workers(2, timeout=PATIENCE)
    victim = next(iter(client.run(os.getpid).values()))
    os.kill(victim, signal.SIGKILL)
    return victim


def test_sums(client):
    X, y = topic_counts(np.random.default_rng(0), 600, 40)
    chunked = da.from_array(X, chunks=(2, 40))
    for _ in range(3):
        future = client.compute(statistics(chunked, y))
        until(lambda: any(client.has_what().values()))
        victim = kill(client)
        total, expected = future.result(timeout=PATIENCE), Statistics.of(X, y, 2)
        assert total.gram.tobytes() == expected.gram.tobytes()
        assert total.class_sums.tobytes() == expected.class_sums.tobytes()
        client.wait_for_workers(2, timeout=PATIENCE)  # another one was started
        assert victim not in client.run(os.getpid).values()


def test_fits_in_memory(client, tmp_path):
    folder, killed = write_image_folder(tmp_path / "images"), []
    options = FitOptions(descriptor="patches+hog-lbp", n_words=12, n_groups=4, folds=2, n_jobs=1, partition=2)

    def progress(step, done, total):
        kind = step.split()[0]
        if kind in ("Describing", "Sampling", "Counting", "Cross-validating") and kind not in killed and done < total:
            killed.append(kind)
            kill(client)

    found = run_fit(folder, options, client=client, progress=progress)
    assert len(killed) == 4
    assert saved(found.model, tmp_path) == saved(run_fit(folder, options).model, tmp_path)


def test_fits_in_partitions(client, tmp_path, monkeypatch):
    monkeypatch.setattr("bagwise.app.training.rows._BLOCK_BYTES", 800)  # four blocks
    path, killed = write_records(tmp_path / "texts.csv"), []
    options = FitOptions(n_groups=6, folds=0, n_jobs=1, partition=9, memory_limit=50)

    def progress(step, done, total):
        if step == "Training a classifier on all words" and done == 2 and len(killed) < 3:
            killed.append(kill(client))

    here = run_fit(path, options, client=LocalExecutor()).model
    there = run_fit(path, options, client=client, progress=progress).model
    assert killed
    assert here.hierarchy == there.hierarchy
    for size, head in here.heads.items():
        assert head.coef.tobytes() == there.heads[size].coef.tobytes()
        assert head.intercept.tobytes() == there.heads[size].intercept.tobytes()
