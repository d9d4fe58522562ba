"""When documents restart and when they continue."""

import numpy as np
import pytest

from bagwise import LatentDirichlet
from bagwise.topics import training
from helpers import topic_counts


@pytest.fixture
def starts(monkeypatch):
    """Whether documents started afresh, for each time that they were inferred."""
    found = []
    infer = training.infer

    def watched(*arguments, gamma=None, **how):
        found.append(gamma is None)
        return infer(*arguments, gamma=gamma, **how)

    monkeypatch.setattr(training, "infer", watched)
    return found


def test_documents_start_afresh_as_long_as_it_helps_and_then_go_on(starts):
    X, _ = topic_counts(np.random.default_rng(0), 100, 60, n_topics=5)
    lda = LatentDirichlet(5, max_iter=500, random_state=0).fit(X)
    afresh = starts.index(False)
    assert afresh > 5
    assert not any(starts[afresh:])
    assert lda.n_iter_ < 500
    # one time before the first pass, and one more in the pass where it was of no use
    assert len(starts) == lda.n_iter_ + 2
    assert np.diff(lda.bounds_).min() >= -1e-9 * abs(lda.bounds_[-1])
    helped = np.diff(lda.bounds_[: afresh - 2])
    assert (helped > 1e-5 * abs(lda.bounds_[1 : afresh - 2])).all()


@pytest.mark.parametrize("restarts", [0, 3])
def test_documents_start_afresh_in_so_many_passes(starts, restarts):
    X, _ = topic_counts(np.random.default_rng(0), 100, 60, n_topics=5)
    LatentDirichlet(5, max_iter=6, tol=0, restarts=restarts, random_state=0).fit(X)
    assert starts == [True] * (1 + restarts) + [False] * (6 - restarts)
