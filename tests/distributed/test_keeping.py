"""What this process keeps of parts: in memory, and in temporary files beyond a limit."""

import gc
import pickle

import numpy as np
import pytest

from bagwise import Bags, BagwiseError
from bagwise.distributed.executors import LocalExecutor, Spilled


def batches():
    rng = np.random.default_rng(0)
    for lengths in ([3, 0, 2], [0], [5]):
        yield (Bags.from_list([rng.normal(size=(n, 4)) for n in lengths], n_features=4),)


@pytest.mark.parametrize("limit", [1, 100, "1MB", None])
def test_batches_come_back_as_they_were_given(limit):
    content = LocalExecutor(memory_limit=limit).keep(batches())
    assert isinstance(content, Spilled) == (limit in (1, 100))
    for _ in range(2):  # several passes
        assert list(content) == list(batches())


def test_memory_that_is_let_go_is_used_again():
    n_bytes = sum(bags.nbytes for (bags,) in batches())
    keep = LocalExecutor(memory_limit=1.5 * n_bytes).keep
    first = keep(batches())
    assert isinstance(keep(batches()), Spilled)
    assert list(first) == list(batches())
    del first
    gc.collect()
    assert not isinstance(keep(batches()), Spilled)


def test_a_full_disk_says_what_to_do(monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pickle, "dump", full)
    with pytest.raises(BagwiseError, match=r"No space left on device\. Free disk space, set TMPDIR"):
        LocalExecutor(memory_limit=1).keep(batches())


def test_a_limit_that_is_no_size_is_refused():
    with pytest.raises(BagwiseError, match="memory_limit='much' is not a size"):
        LocalExecutor(memory_limit="much")
