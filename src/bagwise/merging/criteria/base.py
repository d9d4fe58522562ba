"""What a criterion is, and the checks that criteria share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from bagwise.errors import BagwiseError
from bagwise.merging.structures import Structure

__all__ = ["Criterion", "TraceRatio", "class_codes"]


class Criterion(BaseEstimator, ABC):
    """What makes one merge better than another.

    Criteria hold their parameters as scikit-learn estimators do, so that ``get_params``, ``clone`` and grid searches
    over ``criterion__n_neighbors`` work.

    Attributes
    ----------
    name : str
        The short name users may write instead of the object.
    supervised : bool
        Whether labels are needed.
    """

    name: ClassVar[str] = ""
    supervised: ClassVar[bool] = True


class TraceRatio(Criterion):
    """A criterion that maximises ``tr(Xᵀ L_P X) / tr(Xᵀ L_U X)`` for two structures over the samples.

    A subclass says which pairs of samples should be apart (preferred) and which together (undesired), as a pair
    of structures; merging does the rest.

    See Also
    --------
    bagwise.criteria.GraphPair : the same without a class, from two weight matrices.
    """

    @abstractmethod
    def structures(self, X: Any, y: NDArray[Any] | None, n_threads: int = 1) -> tuple[Structure, Structure]:
        """Build the preferred and the undesired structure.

        Parameters
        ----------
        X : dense float64 array or CSR array of shape (n_samples, n_words)
        y : ndarray of shape (n_samples,) or None
            Labels; never None where `supervised` is true.
        n_threads : int
        """

    @property
    def may_be_indefinite(self) -> bool:
        """Whether the preferred trace can become negative, which rules out the polar search."""
        return False


def class_codes(y: ArrayLike | None, who: str) -> NDArray[np.intp]:
    """Number the classes of y from 0; at least two are needed.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
    who : str
        Name of the criterion, for the message.
    """
    if y is None:
        raise BagwiseError(
            f"The criterion {who!r} is supervised: pass labels y, or use an unsupervised criterion such as 'lpp'."
        )
    labels = column_or_1d(np.asarray(y))
    check_classification_targets(labels)
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise BagwiseError(
            f"The criterion {who!r} needs at least two classes in y; got only one class, {classes.tolist()[:1]}. "
            "Without classes to tell apart, use an unsupervised criterion such as 'lpp'."
        )
    return codes.astype(np.intp)
