"""Fitted topic models of other libraries, and files of topic models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._io.tensors import PackedStrings, read_tensors, tensor, write_tensors
from bagwise._utils.checks import check_stored_parameters
from bagwise._utils.text import how_many
from bagwise.errors import BagwiseError

_KIND, _SCHEMA = "bagwise.LatentDirichlet", 1
_TENSORS = {
    "topic_counts": tensor("float64", "n_topics", "n_words", finite=True, low=0),
    "alpha": tensor("float64", "n_topics", finite=True),
    "bounds": tensor("float64", "n_bounds"),
    "names": tensor("uint8", "n_bytes", optional=True),
    "name_offsets": tensor("int64", "n_words + 1", optional=True),
}
_COUNTS, _LARGEST = ("n_updates", "n_iter", "n_documents_seen"), 1 << 53
_MOST_UPDATES = 100_000  # of the topics of a document, where they do not converge


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


def write_model(path: str | os.PathLike[str], header: dict[str, Any], state: dict[str, NDArray[Any]]) -> Path:
    """Write a `LatentDirichlet` to a safetensors file."""
    fields = {name: value for name, value in header.items() if name != "words"}
    if header["words"] is not None:
        words = PackedStrings.of(header["words"])
        state = state | {"names": words.text, "name_offsets": words.offsets}
    return write_tensors(path, _KIND, _SCHEMA, fields, state)


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read a file of `write_model` and check it; the header has the words, or None, as ``words``."""
    header, state = read_tensors(path, _KIND, {_SCHEMA: _TENSORS})
    n_words, named = state["topic_counts"].shape[1], "names" in state
    valid = (
        min(state["topic_counts"].shape) > 0
        and bool((state["alpha"] > 0).all())
        and {"parameters", "solver", "bound", *_COUNTS} <= header.keys()
        and isinstance(header["parameters"], dict)
        and all(type(header[name]) is int and 0 <= header[name] < _LARGEST for name in _COUNTS)
        and header["solver"] in (None, "vb", "online", "gibbs")
        and (header["bound"] is None or (type(header["bound"]) is float and np.isfinite(header["bound"])))
        and named == ("name_offsets" in state)
        and (not named or len(state["name_offsets"]) == n_words + 1)
    )
    if not valid:
        raise BagwiseError(
            f"{os.fspath(path)} is damaged: it needs a topic and a word, priors must be positive, and the header needs "
            f"parameters, {', '.join(_COUNTS)} from 0 to {_LARGEST - 1}, a known solver and a finite bound or none, "
            f"and names of all {n_words} words or none."
        )
    check_stored_parameters(header["parameters"], os.fspath(path), max_doc_update_iter=_MOST_UPDATES)
    words = PackedStrings(state["names"], state["name_offsets"]).tolist() if named else None
    return header | {"words": words}, state
