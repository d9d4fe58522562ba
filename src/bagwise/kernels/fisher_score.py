"""`FisherScore`: gradient of the log-likelihood of a bag of vectors under a Gaussian mixture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.mixture import GaussianMixture
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from bagwise._compat import Interval, _fit_context
from bagwise._utils.checks import reset_fitted
from bagwise._utils.matrices import check_size
from bagwise._utils.validation import validate_data
from bagwise.bags import Bags
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["FisherScore", "fisher_scores"]

_PARAMETERS = ("weights", "means", "variances")
_INFORMATIONS = ("diagonal", "identity")
# Maximum number of vectors per block, and of numbers in the scores of a block.
_BLOCK_ROWS = 4096
_BLOCK_NUMBERS = 2**22


def fisher_scores(
    mixture: GaussianMixture,
    vectors: NDArray[Any],
    sums: sp.csr_array | None = None,
    parameters: Sequence[str] = _PARAMETERS,
    information: str = "diagonal",
) -> NDArray[np.float64]:
    """Compute gradients of log-likelihoods in the parameters of a mixture of K Gaussians with diagonal covariances.

    With the responsibility r_k of component k for x, the gradient of ``log p(x)`` is

    - ``r_k - π_k`` in the weights, parametrised as ``π = softmax(a)``;
    - ``r_k (x_d - μ_kd) / σ²_kd`` in the means, component by component;
    - ``r_k ((x_d - μ_kd)² / σ²_kd - 1) / (2 σ²_kd)`` in the variances.

    With ``information="diagonal"`` each is divided by the square root of its Fisher information under hard
    assignment: ``π_k``, ``π_k / σ²_kd`` and ``π_k / (2 σ⁴_kd)``.

    The CSR matrix `sums`, N x M, adds up the M vectors; None gives the scores of single vectors. The result is N x
    (K + 2 K D), or less with some of the `parameters`. O(M K D) time, O(M (K + D)) temporary memory.
    """
    X = np.asarray(vectors, dtype=np.float64)

    def added(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values if sums is None else sums @ values

    n_rows, n_features = len(X) if sums is None else sums.shape[0], X.shape[1]
    weights, deviations = mixture.weights_, np.sqrt(mixture.covariances_)
    n_components = len(weights)
    posteriors = mixture.predict_proba(X) if len(X) else np.empty((0, n_components))
    natural = information == "diagonal"
    scores = {name: np.empty((n_rows, n_components, n_features)) for name in parameters if name != "weights"}
    for k in range(n_components):
        away = (X - mixture.means_[k]) / deviations[k]
        responsibility = posteriors[:, k, None]
        if "means" in scores:
            scores["means"][:, k] = added(responsibility * away) / (np.sqrt(weights[k]) if natural else deviations[k])
        if "variances" in scores:
            spread = added(responsibility * (away**2 - 1.0))
            scores["variances"][:, k] = spread / (np.sqrt(2 * weights[k]) if natural else 2 * deviations[k] ** 2)
    if "weights" in parameters:
        scores["weights"] = added(posteriors - weights) / (np.sqrt(weights) if natural else 1.0)
    return np.hstack(
        [scores[name].reshape(n_rows, math.prod(scores[name].shape[1:])) for name in _PARAMETERS if name in scores]
    )


class FisherScore(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Describe vectors, or bags of vectors, by the gradient of their log-likelihood under a Gaussian mixture.

    1. `fit` fits a mixture of Gaussians with diagonal covariances to the vectors of all bags.
    2. `transform` gives, for each bag, the sum over its vectors of the gradients in the weights, means and variances.
    3. The inner product of these scores is the Fisher kernel. `DiagonalKernelLearner` can weight it by labels.

    Parameters
    ----------
    n_components : int, default=16
        Number of Gaussians.
    parameters : sequence of {"weights", "means", "variances"}, default=("weights", "means", "variances")
        Parameters of the gradients; always in the order weights, means, variances.
    information : {"diagonal", "identity"}, default="diagonal"
        "diagonal" divides by the square root of the diagonal of the Fisher information; "identity" gives the plain
        gradients.
    mixture : GaussianMixture, default=None
        A fitted mixture with ``covariance_type="diag"`` to use; `fit` then learns nothing.
    max_vectors : int or None, default=100_000
        Maximum number of vectors, drawn at random, that the mixture is fitted to. None: all.
    max_iter : int, default=100
        Maximum number of EM iterations.
    tol : float, default=1e-3
        EM stops when the mean log-likelihood increases by less than this.
    n_init : int, default=1
        Number of initialisations of EM. The best result is kept.
    reg_covar : float, default=1e-6
        Added to all variances.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    mixture_ : GaussianMixture
    n_iter_ : int
        Number of EM iterations.
    n_features_in_ : int
        Dimension of the vectors.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X has column names.

    See Also
    --------
    DiagonalKernelLearner : Learns a weight for each score.

    Notes
    -----
    K components and D dimensions give ``K + 2 K D`` scores, see `fisher_scores`. The score of a bag is the sum of those
    of its vectors, zero for an empty bag: divide by its length, or use ``sklearn.preprocessing.Normalizer``, where
    lengths should not count. `transform` takes O(M K D) time for M vectors, block by block.

    References
    ----------
    T. Jaakkola, D. Haussler, "Exploiting generative models in discriminative classifiers", NIPS 1998. F. Perronnin,
    C. Dance, "Fisher kernels on visual vocabularies for image categorization", CVPR 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise import Bags
    >>> from bagwise.kernels import FisherScore
    >>> random = np.random.default_rng(0)
    >>> bags = Bags.from_list([random.normal(size=(n, 3)) for n in (40, 0, 60)])
    >>> scores = FisherScore(n_components=2, random_state=0).fit_transform(bags)
    >>> scores.shape
    (3, 14)
    >>> bool(scores[1].any())
    False
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "parameters": ["array-like"],
        "information": [str],
        "mixture": [GaussianMixture, None],
        "max_vectors": [Interval(Integral, 1, None, closed="left"), None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "reg_covar": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_components: int = 16,
        *,
        parameters: Sequence[str] = _PARAMETERS,
        information: str = "diagonal",
        mixture: GaussianMixture | None = None,
        max_vectors: int | None = 100_000,
        max_iter: int = 100,
        tol: float = 1e-3,
        n_init: int = 1,
        reg_covar: float = 1e-6,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.parameters = parameters
        self.information = information
        self.mixture = mixture
        self.max_vectors = max_vectors
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.reg_covar = reg_covar
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the mixture.

        Parameters
        ----------
        X : Bags, list of matrices, or array-like of shape (n_samples, n_features)
            Bags of vectors, or single vectors.
        y : ignored

        Returns
        -------
        self : FisherScore
        """
        reset_fitted(self)
        if self.information not in _INFORMATIONS:
            raise unknown_name("information", self.information, _INFORMATIONS)
        for name in self.parameters:
            if name not in _PARAMETERS:
                raise unknown_name("parameter", name, _PARAMETERS)
        if not len(self.parameters) or len(set(self.parameters)) < len(self.parameters):
            raise BagwiseError(
                f"parameters must be one or more of {', '.join(_PARAMETERS)}, each once; got {self.parameters!r}."
            )
        bags = self._as_bags(X, reset=True)
        if self.mixture is not None:
            _check_mixture(self.mixture, bags.n_features)
        elif bags.n_rows < max(self.n_components, 2):
            raise BagwiseError(
                f"A mixture of n_components={self.n_components} needs at least as many vectors, and 2; there are "
                f"{bags.n_rows}. Give more vectors, or use fewer components."
            )
        self.mixture_ = self._fit_mixture(bags) if self.mixture is None else self.mixture
        self.n_iter_ = self.mixture_.n_iter_
        self._chosen = (tuple(self.parameters), self.information)  # transform uses the parameters of this fit
        self._n_features_out = sum(
            (len(self.mixture_.weights_) * (1 if name == "weights" else bags.n_features)) for name in self._chosen[0]
        )
        return self

    def _fit_mixture(self, bags: Bags) -> GaussianMixture:
        random = check_random_state(self.random_state)
        vectors = bags.values if self.max_vectors is None else bags.sample(self.max_vectors, random)
        return GaussianMixture(
            self.n_components,
            covariance_type="diag",
            tol=self.tol,
            reg_covar=self.reg_covar,
            max_iter=self.max_iter,
            n_init=self.n_init,
            random_state=random,
        ).fit(np.asarray(vectors, dtype=np.float64))

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Compute the scores of bags, or of single vectors.

        Parameters
        ----------
        X : Bags, list of matrices, or array-like of shape (n_samples, n_features)

        Returns
        -------
        scores : ndarray of shape (n_samples, n_scores)
        """
        check_is_fitted(self)
        bags = self._as_bags(X, reset=False)
        scores = np.zeros((len(bags), self._n_features_out))
        n_rows = min(max(_BLOCK_NUMBERS // self._n_features_out, 1), _BLOCK_ROWS)
        for part, vectors, sums in _blocks(bags, n_rows):
            scores[part] += fisher_scores(self.mixture_, vectors, sums, *self._chosen)
        return scores

    def _as_bags(self, X: Any, reset: bool) -> Bags:
        """Convert single vectors to bags of one; set or check the number of features."""
        if isinstance(X, (list, tuple)) and any(np.ndim(one) == 2 for one in X):
            X = Bags.from_list(X, dtype=None)
        if not isinstance(X, Bags):
            X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2 if reset else 1, reset=reset)
            return Bags(X, np.arange(len(X) + 1), dtype=None)
        check_size(X.values, "the vectors of bags")
        if reset:
            self.n_features_in_ = X.n_features
        elif X.n_features != self.n_features_in_:
            raise BagwiseError(
                f"The bags have {X.n_features} features, but FisherScore was fitted to {self.n_features_in_}."
            )
        return X

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "mixture_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


def _check_mixture(mixture: GaussianMixture, n_features: int) -> None:
    if mixture.covariance_type != "diag":
        raise BagwiseError(f"mixture has covariance_type={mixture.covariance_type!r}; FisherScore needs 'diag'.")
    if not hasattr(mixture, "means_"):
        raise BagwiseError("mixture is not fitted. Fit it, or use n_components instead.")
    if mixture.means_.shape[1] != n_features:
        raise BagwiseError(
            f"mixture was fitted to vectors of {mixture.means_.shape[1]} features, but X has {n_features}."
        )


def _blocks(bags: Bags, n_rows: int) -> Iterator[tuple[slice, NDArray[Any], sp.csr_array | None]]:
    """Iterate over blocks of at most `n_rows` vectors: the range of bags, the vectors, and the matrix that sums them.

    A bag longer than a block spans several.
    """
    for part, vectors in bags.blocks(n_rows):
        ends = bags.offsets[part.start : part.stop + 1] - bags.offsets[part.start]
        for start in range(0, max(len(vectors), 1), n_rows):
            stop = min(start + n_rows, len(vectors))
            within = np.clip(ends, start, stop) - start
            if np.array_equal(within, np.arange(stop - start + 1)):
                yield part, vectors[start:stop], None  # one vector per bag
                continue
            members = (np.ones(stop - start), np.arange(stop - start), within)
            yield part, vectors[start:stop], sp.csr_array(members, shape=(len(within) - 1, stop - start))
