"""Topic models of other libraries, and files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from bagwise._io.tensors import read_tensors, write_tensors
from bagwise.errors import BagwiseError
from bagwise.topics.fitted_topics import FittedTopics
from bagwise.topics.training import State

__all__ = ["ExchangedTopics", "Fitted", "read_fitted", "read_model", "write_model"]

_SCHEMA = 1


class Fitted(NamedTuple):
    """What is taken over from a fitted model."""

    counts: NDArray[np.float64]  # words x topics, smoothing included
    alpha: NDArray[np.float64]
    eta: float


def read_fitted(model: Any, vocabulary: Sequence[str] | None = None) -> Fitted:
    """Take topics and priors from a fitted model of scikit-learn, gensim or tomotopy.

    Recognised by what they offer: ``components_`` and ``doc_topic_prior_``; ``get_topics`` and ``state``; or
    ``get_topic_word_dist`` and ``used_vocabs``. `vocabulary` is for tomotopy, which orders words its own way: the
    words of the columns. Words that the model does not know get its η.
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
            counts = _in_order(counts, list(model.used_vocabs), vocabulary, eta)
    else:
        raise BagwiseError(
            f"from_fitted got a {type(model).__name__}. Accepted are fitted models: scikit-learn's "
            "LatentDirichletAllocation, gensim's LdaModel and tomotopy's LDAModel."
        )
    return Fitted(np.ascontiguousarray(counts.T), np.broadcast_to(alpha, len(counts)).copy(), eta)


def _in_order(
    counts: NDArray[np.float64], known: list[str], vocabulary: Sequence[str], eta: float
) -> NDArray[np.float64]:
    place = {word: column for column, word in enumerate(known)}
    columns = np.array([place.get(word, -1) for word in vocabulary])
    if (columns < 0).all():
        raise BagwiseError(
            f"None of the {len(columns)} words of vocabulary is among the model's {len(known)}, such as {known[:3]}. "
            "Give the words as strings, in the order of the columns."
        )
    return np.where(columns >= 0, counts[:, columns], eta)


def write_model(path: str | os.PathLike[str], header: dict[str, Any], state: dict[str, NDArray[Any]]) -> Path:
    """Write a `LatentDirichlet` to a safetensors file."""
    return write_tensors(path, "bagwise.LatentDirichlet", _SCHEMA, header, state)


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read what `write_model` wrote, and check that it is a topic model."""
    names = ("topic_counts", "alpha", "bounds")
    header, state = read_tensors(path, "bagwise.LatentDirichlet", _SCHEMA, names)
    counts, alpha = state["topic_counts"], state["alpha"]
    sound = (
        all(state[name].dtype == np.float64 for name in names)
        and counts.ndim == 2
        and alpha.shape == counts.shape[:1]
        and bool(np.isfinite(counts).all() and (counts >= 0).all() and np.isfinite(alpha).all() and (alpha > 0).all())
        and isinstance(header.get("parameters"), dict)
        and isinstance(header.get("n_updates"), int)
        and isinstance(header.get("n_documents_seen"), int)
        and (header.get("words") is None or len(header["words"]) == counts.shape[1])
    )
    if not sound:
        raise BagwiseError(f"{os.fspath(path)} does not hold a topic model: its arrays or header do not fit together.")
    return header, state


class ExchangedTopics(FittedTopics):
    """Topics that are written to files, read from them, and taken over from other libraries."""

    random_state: Any
    feature_names_in_: NDArray[np.object_]

    @classmethod
    def from_fitted(cls, model: Any, vocabulary: Sequence[str] | None = None) -> Self:
        """Take over a fitted model of another library.

        Parameters
        ----------
        model : LatentDirichletAllocation of scikit-learn, LdaModel of gensim or LDAModel of tomotopy
        vocabulary : sequence of str, default=None
            For tomotopy, which orders words its own way: the words of the columns. None: as the model has them.

        Returns
        -------
        lda : LatentDirichlet
            Fitted: its topics and prior are those of the model.
        """
        counts, alpha, eta = read_fitted(model, vocabulary)
        lda = cls(len(alpha), alpha=alpha, eta=eta)
        lda.n_features_in_ = len(counts)
        lda._store(State(counts, alpha), [], n_documents=0)
        return lda

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model to a safetensors file, wholly or not at all.

        Parameters
        ----------
        path : str or path

        Returns
        -------
        path : Path
        """
        check_is_fitted(self)
        parameters = self.get_params(deep=False)
        if not isinstance(self.random_state, Integral):
            parameters["random_state"] = None  # a generator's state is not part of the model
        for name, value in parameters.items():
            if isinstance(value, (np.generic, np.ndarray)):
                parameters[name] = value.tolist()
        header = {
            "parameters": parameters,
            "n_updates": self._n_updates,
            "n_iter": self.n_iter_,
            "n_documents_seen": self.n_documents_seen_,
            "words": self.feature_names_in_.tolist() if hasattr(self, "feature_names_in_") else None,
        }
        state = {"topic_counts": self.topic_counts_, "alpha": self.alpha_, "bounds": self.bounds_}
        return write_model(path, header, state)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that `save` wrote. Loading runs no code of the file.

        Parameters
        ----------
        path : str or path

        Returns
        -------
        lda : LatentDirichlet
        """
        header, state = read_model(path)
        try:
            lda = cls(**header["parameters"])
        except TypeError as error:
            raise BagwiseError(f"{os.fspath(path)} has parameters that this version does not know: {error}") from error
        counts = np.ascontiguousarray(state["topic_counts"].T)
        lda.n_features_in_ = len(counts)
        if header["words"] is not None:
            lda.feature_names_in_ = np.array(header["words"], dtype=object)
        restored = State(counts, state["alpha"], n_updates=header["n_updates"])
        lda._store(restored, state["bounds"].tolist(), n_documents=header["n_documents_seen"])
        lda.n_iter_ = header["n_iter"]
        return lda
