"""scikit-learn's own tests of its LDA, with our class in its place."""

import re

import numpy as np
import pytest
from sklearn.decomposition.tests import test_online_lda as theirs

from bagwise import LatentDirichlet

# Tests that fail, and why.
EXCEPTIONS = {
    "test_lda_default_prior_params": "a prior of topics in documents that is not given is learned",
    "test_lda_empty_docs": "the default prior of words in topics is 0.03, not 1 / n_components",
    "test_lda_negative_input": "the message says which value is negative, in other words",
    "test_lda_preplexity_mismatch": "calls a private method",
    r"test_lda_perplexity\[.*online": "starts from sampled topics, which mini-batches move away from by 1e-6",
    r"test_verbosity\[.*True": "shows a progress bar in place of lines",
}


class LatentDirichletAllocation(LatentDirichlet):
    """Ours under their name, which is part of messages and of names of columns."""


@pytest.fixture
def global_dtype():
    return np.float32


@pytest.fixture
def global_random_seed():
    return 0


@pytest.fixture(autouse=True)
def in_place_of_theirs(monkeypatch, request):
    monkeypatch.setattr(theirs, "LatentDirichletAllocation", LatentDirichletAllocation)
    reasons = [reason for name, reason in EXCEPTIONS.items() if re.match(name, request.node.name)]
    if reasons:
        request.applymarker(pytest.mark.xfail(reason=reasons[0]))


globals().update({name: test for name, test in vars(theirs).items() if name.startswith("test_")})
