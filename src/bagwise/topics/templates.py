"""Topic models that other estimators are given: to be fitted, or fitted already."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import scipy.sparse as sp
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from bagwise.errors import BagwiseError
from bagwise.topics.latent_dirichlet import LatentDirichlet

__all__ = ["TEMPLATES", "fitted_model", "new_model"]

# what a parameter `model` may be
TEMPLATES: list[Any] = [Interval(Integral, 1, None, closed="left"), LatentDirichlet, FrozenEstimator]


def new_model(template: int | LatentDirichlet) -> LatentDirichlet:
    """An unfitted model: with so many topics and a fixed seed, or a copy of the one given."""
    return clone(template) if isinstance(template, LatentDirichlet) else LatentDirichlet(int(template), random_state=0)


def fitted_model(template: int | LatentDirichlet | FrozenEstimator, counts: sp.csr_array) -> LatentDirichlet:
    """A new model fitted to the counts, or the one that was frozen, if it has as many words."""
    if not isinstance(template, FrozenEstimator):
        return new_model(template).fit(counts)
    lda = template.estimator
    if not isinstance(lda, LatentDirichlet):
        raise BagwiseError(
            f"model is a frozen {type(lda).__name__}. Accepted are LatentDirichlet, FrozenEstimator(LatentDirichlet) "
            "and a number of topics; LatentDirichlet.from_fitted takes over models of other libraries."
        )
    check_is_fitted(lda)
    if lda.n_features_in_ != counts.shape[1]:
        raise BagwiseError(
            f"X has {counts.shape[1]} words, the frozen model {lda.n_features_in_}. Count the words it was fitted with."
        )
    return lda
