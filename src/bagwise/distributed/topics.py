"""Topics of documents in chunks: online variational Bayes, and what estimators compute of each chunk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from bagwise._utils.checks import check_integer
from bagwise.distributed.sums import Chunks, ResultSize, add_up, check_can_be_pooled, delayed_function, read_chunk
from bagwise.errors import BagwiseError
from bagwise.topics.latent_dirichlet import LatentDirichlet
from bagwise.topics.training import Expectation, State, Training, online_update

__all__ = ["fit_topics", "transform"]


def fit_topics(
    X: Any, model: LatentDirichlet, *, chunks_per_batch: int = 1, n_passes: int = 1, total_samples: int | None = None
) -> LatentDirichlet:
    """Update the topics of a model with documents in chunks, by online variational Bayes.

    1. A batch is the documents of `chunks_per_batch` chunks that follow each other. Workers infer their topics.
    2. Expected counts of words in topics are added in a tree, and the topics are updated by the sum.

    Batches do not depend on workers, and sums have the order of the chunks, so neither do the topics.

    Parameters
    ----------
    X : Dask array of shape (n_documents, n_words), or list of Delayed
        Counts. Each chunk is computed in each pass.
    model : LatentDirichlet
        Is updated, as by `LatentDirichlet.partial_fit` with batches of these sizes. One that is not fitted starts from
        random topics.
    chunks_per_batch : int, default=1
        As many workers are busy at a time.
    n_passes : int, default=1
        How often the documents are gone through.
    total_samples : int, default=None
        Number of documents that the topics are those of. None: ``model.total_samples``, or those of X.

    Returns
    -------
    model : LatentDirichlet
        The same object.

    Notes
    -----
    For each batch 8 d K bytes of topics go to each worker, and as many come back from each chunk.

    References
    ----------
    M. D. Hoffman, D. M. Blei, F. Bach, "Online learning for latent Dirichlet allocation", NIPS 2010.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from bagwise import LatentDirichlet, distributed
    >>> counts = np.array([[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]] * 5)
    >>> model = distributed.fit_topics(da.from_array(counts, chunks=(10, 4)), LatentDirichlet(2, random_state=0))
    >>> model.components_.shape, model.n_samples_seen_
    ((2, 4), 20)
    """
    chunks = Chunks.of(X)
    delayed = delayed_function()
    per_batch, n_passes = check_integer(chunks_per_batch, "chunks_per_batch", 1), check_integer(n_passes, "n_passes", 1)
    if not isinstance(model, LatentDirichlet):
        raise BagwiseError(f"model must be a LatentDirichlet; got {type(model).__name__}.")
    model._check_names()
    training = replace(model._training(), prior="fixed" if model.prior == "auto" else model.prior, n_threads=1)
    read = delayed(_counts, pure=False)
    parts = [
        read((blocks, k, None if chunks.sizes is None else chunks.sizes[k], chunks.width, ResultSize(), None))
        for k, blocks in enumerate(chunks.blocks)
    ]
    sizes = chunks.sizes
    width = chunks.width
    if sizes is None or width is None:
        shapes = delayed([delayed(np.shape, pure=False)(part) for part in parts]).compute()
        sizes, width = tuple(shape[0] for shape in shapes), shapes[0][1]
    first = not hasattr(model, "components_")
    state = model._random_start(width, check_random_state(model.random_state)) if first else model._state()
    if state.counts.shape[0] != width:
        raise BagwiseError(f"X has {width} words, but the topics of the model {state.counts.shape[0]}.")
    model.n_features_in_ = width
    seen = 0 if first else model.n_samples_seen_
    total = total_samples or model.total_samples or sum(sizes)
    infer = delayed(_expected, pure=False)
    for _ in range(n_passes):
        for start in range(0, len(parts), per_batch):
            now = delayed(state, pure=False)
            batch = [infer(part, now, training) for part in parts[start : start + per_batch]]
            sums = add_up(batch, join=_add).compute()
            if sums.n_documents:
                seen += int(sums.n_documents)
                state = online_update(state, sums, training, max(total, 1))
    model._store(state, [], seen, "online")
    if hasattr(model, "bound_"):
        del model.bound_  # that of the topics before
    return model


def transform(estimator: Any, X: Any) -> Any:
    """Let a fitted transformer compute each chunk, lazily: topic proportions, free-energy features, groups of words.

    Parameters
    ----------
    estimator : fitted transformer
        Whose result for a row does not depend on other rows, such as `LatentDirichlet`, `FreeEnergyScore`,
        `FreeEnergyKernel`, `WordMerger`, `BagNormalizer`. It is sent to each worker once.
    X : Dask array of shape (n_samples, n_words)

    Returns
    -------
    transformed : Dask array of shape (n_samples, n_features)

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from bagwise import LatentDirichlet, distributed
    >>> from bagwise.topics import FreeEnergyScore
    >>> counts = np.array([[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]])
    >>> score = FreeEnergyScore(LatentDirichlet(2, solver="vb", random_state=0)).fit(counts)
    >>> found = distributed.transform(score, da.from_array(counts, chunks=(3, 4)))
    >>> bool(np.allclose(found.compute(), score.transform(counts)))
    True
    """
    check_can_be_pooled(X)
    one = np.ones((1, X.shape[1]), dtype=X.dtype)
    probe = estimator.transform(sp.csr_array(one) if sp.issparse(X._meta) else one)
    form = type(probe) if sp.issparse(probe) else np.empty
    return X.rechunk({1: -1}).map_blocks(
        estimator.transform,
        dtype=probe.dtype,
        chunks=(X.chunks[0], (probe.shape[1],)),
        meta=form((0, 0), dtype=probe.dtype),
    )


def _counts(chunk: tuple[Any, ...]) -> sp.csr_array:
    X = sp.csr_array(read_chunk(*chunk))
    if X.nnz and X.data.min() < 0:
        raise BagwiseError(f"Chunk {chunk[1]} has negative numbers; topics are those of counts.")
    return X


def _expected(X: sp.csr_array, state: State, training: Training) -> Expectation:
    if not X.shape[0]:
        return Expectation(np.zeros_like(state.counts), None, 0.0, 0.0)
    return Expectation.of(X, state, training)


def _add(one: Expectation, other: Expectation, *numbers: int) -> Expectation:
    if not one.n_documents or not other.n_documents:
        return other if not one.n_documents else one
    return one + other
