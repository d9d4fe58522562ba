"""Fitted topic models of other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.text import how_many
from bagwise.errors import BagwiseError


def read_fitted(
    model: Any, vocabulary: Sequence[str] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Read λ (words x topics), α and η from a fitted model of scikit-learn, gensim or tomotopy.

    Models are recognised by their attributes: ``components_`` and ``doc_topic_prior_``; ``get_topics`` and ``state``;
    ``get_topic_word_dist`` and ``used_vocabs``. `vocabulary` gives the words of the columns, for tomotopy, which has an
    order of its own. Words that the model does not know get η.
    """
    if hasattr(model, "components_") and hasattr(model, "doc_topic_prior_"):
        counts = np.asarray(model.components_, dtype=np.float64)
        alpha, eta = np.asarray(model.doc_topic_prior_, dtype=np.float64), float(model.topic_word_prior_)
    elif hasattr(model, "get_topics") and hasattr(model, "state"):
        counts = np.asarray(model.state.get_lambda(), dtype=np.float64)
        alpha, eta = np.asarray(model.alpha, dtype=np.float64), float(np.mean(model.eta))
    elif hasattr(model, "get_topic_word_dist") and hasattr(model, "used_vocabs"):
        alpha, eta = np.asarray(model.alpha, dtype=np.float64), float(np.mean(model.eta))
        counts = np.array([model.get_topic_word_dist(k, normalize=False) for k in range(model.k)], dtype=np.float64)
        if vocabulary is not None:
            counts = _reorder(counts, list(model.used_vocabs), vocabulary, eta)
    else:
        raise BagwiseError(
            f"from_fitted got a {type(model).__name__}. Accepted: fitted models of scikit-learn "
            "(LatentDirichletAllocation), gensim (LdaModel) and tomotopy (LDAModel)."
        )
    return np.ascontiguousarray(counts.T), np.broadcast_to(alpha, len(counts)).copy(), eta


def _reorder(
    counts: NDArray[np.float64], known: list[str], vocabulary: Sequence[str], eta: float
) -> NDArray[np.float64]:
    column_of = {word: column for column, word in enumerate(known)}
    columns = np.array([column_of.get(word, -1) for word in vocabulary])
    if (columns < 0).all():
        raise BagwiseError(
            f"None of the {how_many(len(columns), 'words')} of vocabulary is among the {len(known)} of the model, "
            f"such as {known[:3]}. Give the words as strings, in the order of the columns."
        )
    return np.where(columns >= 0, counts[:, columns], eta)
