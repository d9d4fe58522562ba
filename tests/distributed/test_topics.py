"""Topics of documents in chunks, and transformers over chunks."""

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from bagwise import BagwiseError, LatentDirichlet, WordMerger, distributed
from bagwise.topics import FreeEnergyScore
from helpers import topic_counts


@pytest.fixture(scope="module")
def counts():
    return topic_counts(np.random.default_rng(0), 240, 30, n_topics=4)


@pytest.mark.parametrize("prior", ["fixed", "asymmetric"])
@pytest.mark.parametrize("chunks_per_batch", [1, 3])
def test_online_topics_are_those_of_partial_fit(counts, prior, chunks_per_batch):
    X, _ = counts
    options = {"n_components": 4, "prior": prior, "random_state": 0, "total_samples": 240}
    here = LatentDirichlet(**options, batch_size=20 * chunks_per_batch)
    lazy = da.from_array(X, chunks=(20, 30))
    there = distributed.fit_topics(lazy, LatentDirichlet(**options), chunks_per_batch=chunks_per_batch)
    here.partial_fit(X)
    np.testing.assert_allclose(there.components_, here.components_, rtol=1e-9)
    np.testing.assert_allclose(there.doc_topic_prior_, here.doc_topic_prior_, rtol=1e-9)
    assert there.n_batch_iter_ == here.n_batch_iter_
    again = distributed.fit_topics(lazy, there, chunks_per_batch=chunks_per_batch)
    twice = distributed.fit_topics(lazy, LatentDirichlet(**options), chunks_per_batch=chunks_per_batch, n_passes=2)
    assert again.components_.tobytes() == twice.components_.tobytes()
    assert again.n_samples_seen_ == twice.n_samples_seen_ == 480


def test_topics_do_not_depend_on_workers(client, counts):
    X, _ = counts
    chunks = [dask.delayed(sp.csr_array)(X[rows]) for rows in np.array_split(np.arange(240), 5)]
    with dask.config.set(scheduler="sync"):
        here = distributed.fit_topics(chunks, LatentDirichlet(4, random_state=1), chunks_per_batch=2)
    with client.as_current():
        there = distributed.fit_topics(chunks, LatentDirichlet(4, random_state=1), chunks_per_batch=2)
    assert here.components_.tobytes() == there.components_.tobytes()


def test_transformers_of_chunks(counts):
    X, y = counts
    lda = LatentDirichlet(3, solver="vb", max_iter=5, random_state=0).fit(X)
    lazy = da.from_array(X, chunks=(100, 30))
    for estimator in (lda, FreeEnergyScore(lda).fit(X), WordMerger(4).fit(X, y)):
        found = distributed.transform(estimator, lazy)
        expected = estimator.transform(X)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found.compute(scheduler="sync"), expected, rtol=1e-12)
    sparse = lazy.map_blocks(sp.csr_array, meta=sp.csr_array((0, 0)))
    merged = distributed.transform(WordMerger(4).fit(X, y), sparse).compute(scheduler="sync")
    np.testing.assert_allclose(merged.toarray(), WordMerger(4).fit(X, y).transform(X))


def test_bad_topics(counts):
    X, _ = counts
    lazy = da.from_array(X, chunks=(100, 30))
    with pytest.raises(BagwiseError, match="must be a LatentDirichlet; got WordMerger"):
        distributed.fit_topics(lazy, WordMerger())
    with pytest.raises(BagwiseError, match="30 words, but the topics of the model 20"):
        distributed.fit_topics(lazy, LatentDirichlet(2, solver="vb", max_iter=1).fit(X[:, :20]))
    with pytest.raises(BagwiseError, match="Chunk 0 has negative numbers"):
        distributed.fit_topics(-lazy, LatentDirichlet(2))
