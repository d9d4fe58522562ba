"""Bags in memory or in a temporary file."""

import tempfile

import numpy as np
import pytest

from bagwise import Bags, BagwiseError
from bagwise.bags.files import BagsSpool


def batches(positions):
    rng = np.random.default_rng(0)
    for lengths in ([3, 0, 2], [0], [5]):
        values = [rng.normal(size=(n, 4)) for n in lengths]
        yield Bags.from_list(values, [rng.random((n, 2)) for n in lengths] if positions else None, n_features=4)


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("limit", [1, 100, "1MB", None])
def test_bags_come_back_as_they_went_in(limit, positions):
    given = list(batches(positions))
    with BagsSpool(limit) as spool:
        for batch in given:
            spool.append(batch)
        assert spool.in_memory == (limit not in (1, 100))
        for _ in range(2):  # several passes
            assert list(spool) == given


@pytest.mark.parametrize("limit", [1, None])
def test_passes_do_not_disturb_each_other(limit):
    first, second, third = batches(False)
    with BagsSpool(limit) as spool:
        spool.append(first)
        spool.append(second)
        assert next(iter(spool)) == first  # a pass that is not finished
        spool.append(third)
        assert list(zip(spool, spool, strict=True)) == [(batch, batch) for batch in (first, second, third)]


def test_a_full_disk_says_what_to_do(monkeypatch):
    class Full:
        def seek(self, *_):
            return 0

        def write(self, content):
            raise OSError(28, "No space left on device")

        def close(self):
            pass

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **options: Full())
    with (
        BagsSpool(1) as spool,
        pytest.raises(BagwiseError, match=r"No space left on device\. Free disk space, set TMPDIR"),
    ):
        spool.append(next(batches(True)))


def test_a_limit_that_is_no_size_is_refused():
    with pytest.raises(BagwiseError, match="memory_limit='much' is not a size"):
        BagsSpool("much")
