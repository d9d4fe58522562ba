"""`BagOfFeatures`, from bags of vectors to histograms of words, and `BagNormalizer`: scikit-learn transformers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bagwise._compat import N_JOBS, Interval, StrOptions, _fit_context
from bagwise._utils.backends import backend
from bagwise._utils.checks import generator
from bagwise._utils.threads import number_of_threads
from bagwise._utils.validation import validate_data
from bagwise.bags import Bags
from bagwise.codebooks.batches import batches_of_width, sample_vectors
from bagwise.codebooks.encoders import Encoder, as_encoder
from bagwise.codebooks.encoding import POOLINGS, resolve_pooling
from bagwise.codebooks.kmeans import kmeans_words
from bagwise.codebooks.normalizing import normalize_rows, resolve_steps
from bagwise.codebooks.pyramids import cell_names, n_cells, resolve_pyramid
from bagwise.errors import BagwiseError

__all__ = ["BagNormalizer", "BagOfFeatures"]

_FLOATS = [np.float64, np.float32]


class BagOfFeatures(TransformerMixin, BaseEstimator):
    """Turn bags of vectors into histograms of words.

    1. `fit` samples vectors from all bags and learns words by k-means, see `learn_codebook`.
    2. `transform` assigns each vector to words (`assignment`),
    3. pools these codes over each bag, or over the cells of a spatial pyramid (`pooling`, `pyramid`),
    4. and normalises the histograms (`normalize`).

    Bags are `Bags`, a list of matrices (one per bag), or an iterable of `Bags`, such as
    ``descriptor.iter_transform(collection)``, which is read once and never held in memory. The rows of a single matrix
    are bags of one vector each.

    Parameters
    ----------
    n_words : int, default=1000
    assignment : {"hard", "soft", "localized", "sparse", "vlad"} or encoder, default="hard"
        Code of a vector x for a word b. A name takes the defaults of the encoder, which suit vectors of length 1;
        ``LocalizedEncoder(n_neighbors=10)`` has others.

        - "hard", `HardEncoder`: 1 to the nearest word.
        - "soft", `SoftEncoder`: ``exp(-|x - b| / bandwidth)``, divided by its sum over words.
        - "localized", `LocalizedEncoder`: ``exp(-sharpness |x - b|²)`` to the nearest words, divided by its sum.
        - "sparse", `SparseEncoder`: sparse combinations of words.
        - "vlad", `ResidualEncoder`: the residual x - b of the nearest word, D numbers per word.
    pooling : {"auto", "sum", "mean", "max"}, default="auto"
        Over the vectors of a bag. "mean" divides by the number of vectors in the bag, in cells as well. "auto" is
        "sum" for "hard" and "vlad", "mean" for "soft", "max" for "localized" and "sparse".
    pyramid : None, 5, 8, 21 or list of (rows, columns), default=None
        Spatial pyramid: grids over the unit square, whose cells each have a histogram; these are concatenated. 21 is
        1x1, 2x2 and 4x4; 8 is 1x1, 2x2 and 3x1; 5 is 1x1 and 2x2. Bags need positions. A point on a border belongs to
        the cell with the larger index.
    normalize : "auto", None, or out of {"l1", "power", "l2"}, one or a sequence, default="auto"
        Steps of `BagNormalizer`, for the whole row. "auto" is ("power", "l2") for "vlad" and None for the others.
        Use ("l1", "power") for a linear SVM.
    sparse_output : "auto" or bool, default="auto"
        Whether histograms are CSR. "auto": for "hard" and "localized" if less than half of the entries can be non-zero
        for bags of the average length in `fit`; never for the others. Decided by `fit`, as `sparse_output_`.
    n_samples, n_init, max_iter : int, default=100_000, 1, 25
        How words are learned, see `learn_codebook`.
    tol : float, default=1e-3
        k-means ends when an iteration lowers the sum of squared distances by no more than this fraction of it.
    random_state : int, RandomState or None, default=None
    n_jobs : int, default=None
    device : {"cpu", "cuda"}, default=None
        Where words are learned and vectors encoded, but for "sparse". None is "cpu".

    Attributes
    ----------
    codebook_ : ndarray of shape (n_words, D)
        The words, float64 if the vectors were, otherwise float32; histograms have the same type.
    inertia_ : float
        Sum of squared distances from the sampled vectors to their words, when iterations ended.
    n_iter_ : int
        Iterations of k-means in the best restart.
    sparse_output_ : bool
        Whether histograms are CSR.
    n_features_in_ : int
        D.

    See Also
    --------
    learn_codebook : Only the words.
    WordMerger : Merges the words of histograms into a few that keep classes apart.
    DenseSIFT : Bags of descriptors from images.

    Notes
    -----
    Transforming M vectors takes O(M K D) time for K words of D numbers, as matrix products, and some 30 MB a thread
    beside the histograms. Empty bags give zeros.

    References
    ----------
    G. Csurka et al., "Visual categorization with bags of keypoints", ECCV workshop 2004. S. Lazebnik, C. Schmid,
    J. Ponce, "Beyond bags of features: spatial pyramid matching for recognizing natural scene categories", CVPR 2006.
    H. Jégou, M. Douze, C. Schmid, P. Pérez, "Aggregating local descriptors into a compact image representation",
    CVPR 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise import BagOfFeatures, Bags
    >>> bags = Bags.from_list([[[0, 0], [9, 9], [0, 1]], [[9, 8], [8, 9]], []])
    >>> model = BagOfFeatures(n_words=2, random_state=1, sparse_output=False).fit(bags)
    >>> model.codebook_.shape, model.transform(bags).sum(axis=1)
    ((2, 2), array([3., 2., 0.], dtype=float32))
    >>> words = model.assign(bags)
    >>> bool(words[0][0] == words[0][2] != words[0][1]), len(words[2])
    (True, 0)
    >>> model.get_feature_names_out()
    array(['word0', 'word1'], dtype=object)
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_words": [Interval(Integral, 1, None, closed="left")],
        "assignment": [str, Encoder],
        "pooling": [StrOptions({"auto", *POOLINGS})],
        "pyramid": [Interval(Integral, 1, None, closed="left"), "array-like", None],
        "normalize": [str, "array-like", None],
        "sparse_output": [StrOptions({"auto"}), "boolean"],
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
        "n_jobs": list(N_JOBS),
        "device": [StrOptions({"cpu", "cuda"}), None],
    }

    def __init__(
        self,
        n_words: int = 1000,
        *,
        assignment: str | Encoder = "hard",
        pooling: str = "auto",
        pyramid: int | Sequence[tuple[int, int]] | None = None,
        normalize: str | Sequence[str] | None = "auto",
        sparse_output: bool | str = "auto",
        n_samples: int = 100_000,
        n_init: int = 1,
        max_iter: int = 25,
        tol: float = 1e-3,
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str | None = None,
    ) -> None:
        self.n_words = n_words
        self.assignment = assignment
        self.pooling = pooling
        self.pyramid = pyramid
        self.normalize = normalize
        self.sparse_output = sparse_output
        self.n_samples = n_samples
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the words.

        Parameters
        ----------
        X : Bags, list of matrices, iterable of Bags, or matrix
            Read once; only a sample of the vectors is kept.
        y : ignored

        Returns
        -------
        self : BagOfFeatures
        """
        grids = resolve_pyramid(self.pyramid)
        encoder = as_encoder(self.assignment)
        encoder.check()
        resolve_pooling(self.pooling, encoder)
        self._steps()
        random = generator(self.random_state)
        vectors, n_bags, n_rows = sample_vectors(X, self.n_samples, random)
        learned = kmeans_words(
            encoder.compared(vectors),
            self.n_words,
            n_init=self.n_init,
            max_iter=self.max_iter,
            tol=self.tol,
            random_state=random,
            n_jobs=self.n_jobs,
            device=self.device,
        )
        self.codebook_ = learned.words
        self.inertia_ = learned.inertia
        self.n_iter_ = learned.n_iter
        self.n_features_in_ = learned.words.shape[1]
        if self.sparse_output != "auto":
            self.sparse_output_ = bool(self.sparse_output)
        elif encoder.n_entries is None:
            self.sparse_output_ = False
        else:
            entries = min(encoder.n_entries, self.n_words) * len(grids) * n_rows / max(n_bags, 1)
            self.sparse_output_ = entries < n_cells(grids) * self.n_words / 2
        return self

    def transform(self, X: Any) -> Any:
        """Encode bags as histograms.

        Parameters
        ----------
        X : Bags, list of matrices, iterable of Bags, or matrix
            Batches of an iterable are encoded one by one and not kept.

        Returns
        -------
        histograms : ndarray or CSR array of shape (n_bags, n_columns)
            One column per cell and word; for "vlad", D columns per cell and word.
        """
        check_is_fitted(self)
        module, grids, steps = backend("codebooks", self.device), resolve_pyramid(self.pyramid), self._steps()
        encoder = as_encoder(self.assignment).on(module.array(self.codebook_), module.Distances)
        pooling, n_threads = resolve_pooling(self.pooling, encoder), number_of_threads(self.n_jobs)
        parts = [
            normalize_rows(module.pooled(batch, encoder, pooling, grids, self.sparse_output_, n_threads), steps)
            for batch in self._batches(X)
        ]
        if not parts:
            raise BagwiseError("There are no bags: an empty list or iterable was given. Give at least one bag.")
        if len(parts) == 1:
            return parts[0]
        return sp.vstack(parts, format="csr") if self.sparse_output_ else np.concatenate(parts)

    def assign(self, X: Any) -> list[NDArray[np.intp]]:
        """Find the nearest word of each vector.

        Parameters
        ----------
        X : Bags, list of matrices, iterable of Bags, or matrix

        Returns
        -------
        words : list of ndarray of int
            One array per bag, as long as the bag.
        """
        check_is_fitted(self)
        module, compared = backend("codebooks", self.device), as_encoder(self.assignment).compared
        table, n_threads = module.Distances(module.array(self.codebook_)), number_of_threads(self.n_jobs)
        words_by_bag: list[NDArray[np.intp]] = []
        for batch in self._batches(X):
            words = module.to_host(module.assign(module.array(compared(batch.values)), table, n_threads)[0])
            words_by_bag += np.split(words, batch.offsets[1:-1])[: len(batch)]
        return words_by_bag

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[Any]:
        """Name the columns: word0, word1 and so on; 2x2_r0c1_word0 in a pyramid; word0_0, word0_1 for VLAD.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        names : ndarray of str objects
        """
        check_is_fitted(self)
        n_words, n_features = self.codebook_.shape
        n_numbers = as_encoder(self.assignment).numbers_of_word(n_features)
        ends = [f"_{k}" for k in range(n_numbers)] if n_numbers > 1 else [""]
        cells = cell_names(resolve_pyramid(self.pyramid))
        return np.array(
            [f"{cell}word{word}{end}" for cell in cells for word in range(n_words) for end in ends], dtype=object
        )

    def _batches(self, X: Any) -> Iterator[Bags]:
        return batches_of_width(X, self.n_features_in_, self.codebook_.dtype, type(self).__name__)

    def _steps(self) -> tuple[str, ...]:
        if isinstance(self.normalize, str) and self.normalize == "auto":
            return as_encoder(self.assignment).normalize
        return resolve_steps(self.normalize)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "codebook_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class BagNormalizer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scale histograms to unit norm, take powers, or both.

    The default, l1 and then the square root, makes the plain inner product of histograms the Hellinger kernel, and
    scales them to unit L2 norm. ``("power", "l2")`` is usual for VLAD.

    Parameters
    ----------
    steps : str or sequence of str, default=("l1", "power")
        Applied in this order: "l1" and "l2" divide a row by its norm, "power" takes ``sign(x) |x|^power``.
    power : float, default=0.5

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had column names.

    See Also
    --------
    BagOfFeatures : Its parameter `normalize` does the same.
    sklearn.preprocessing.Normalizer : One norm, no power.

    Notes
    -----
    One pass over the data, a block of rows at a time. Sparse input stays sparse; rows of zeros stay zero. Rows are
    divided by their largest value first, so that values near the limits of their type do not overflow.

    References
    ----------
    F. Perronnin, J. Sánchez, T. Mensink, "Improving the Fisher kernel for large-scale image classification",
    ECCV 2010.

    Examples
    --------
    >>> from bagwise.codebooks import BagNormalizer
    >>> BagNormalizer().fit_transform([[1, 3], [0, 0]])
    array([[0.5      , 0.8660254],
           [0.       , 0.       ]])
    """

    _parameter_constraints: ClassVar[dict] = {
        "steps": [str, "array-like"],
        "power": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(self, steps: str | Sequence[str] = ("l1", "power"), *, power: float = 0.5) -> None:
        self.steps = steps
        self.power = power

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Validate the data and the parameters; nothing is learned.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        self : BagNormalizer
        """
        resolve_steps(self.steps)
        validate_data(self, X, largest=None, accept_sparse="csr", dtype=_FLOATS)
        return self

    def transform(self, X: Any) -> Any:
        """Normalise the rows of X.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        Z : ndarray or CSR matrix of shape (n_samples, n_features)
            Sparse if X is.
        """
        check_is_fitted(self, "n_features_in_")
        X = validate_data(self, X, largest=None, reset=False, accept_sparse="csr", dtype=_FLOATS)
        return normalize_rows(X, self.steps, self.power)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.requires_fit = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
