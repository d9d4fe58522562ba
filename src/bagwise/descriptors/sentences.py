"""`SentenceVectors`: texts to bags of vectors, one for each sentence."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from os import PathLike
from typing import Any, ClassVar

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.utils import Tags
from sklearn.utils._param_validation import HasMethods, Interval
from sklearn.utils.extmath import randomized_svd
from sklearn.utils.validation import check_is_fitted

from bagwise._utils.checks import as_values
from bagwise.descriptors.base import Descriptor, ItemTransformer
from bagwise.descriptors.cache import ArrayCache
from bagwise.descriptors.rows import unit_rows
from bagwise.descriptors.sentence_splitting import split_sentences
from bagwise.descriptors.texts import load_texts
from bagwise.errors import BagwiseError

__all__ = ["SentenceVectors"]

# Power iterations of the randomised decomposition, as in scikit-learn's TruncatedSVD.
_N_ITER = 5


class SentenceVectors(Descriptor):
    """Describe texts by one vector for each sentence.

    1. Texts are cut into sentences by rules (`bagwise.descriptors.sentence_splitting.split_sentences`).
    2. Sentences become TF-IDF weights of words, and these are reduced to `n_components` numbers by a truncated singular
       value decomposition (latent semantic analysis). Both are learned by `fit` from all sentences. Or `embedding`
       makes vectors of sentences; then nothing is learned, and `fit` is not needed.
    3. Vectors are scaled to length 1.

    A text without sentences gives an empty bag. A sentence with no word that was learned gives a zero vector.

    Parameters
    ----------
    n_components : int, default=50
        Numbers in a vector. At most as many as there are different words, and sentences. Not used with `embedding`.
    embedding : callable, default=None
        Takes a list of sentences, never empty, and gives an array of shape (sentences, numbers), such as the ``encode``
        of a sentence-transformers model. It is called once a text, by several threads if `n_jobs` says so.
    vectorizer : estimator, default=None
        Makes sparse weights of sentences, like `sklearn.feature_extraction.text.CountVectorizer`. None is
        ``TfidfVectorizer(dtype=numpy.float32)``. Not used with `embedding`.
    normalize : bool, default=True
        Whether vectors are scaled to length 1. Zero vectors stay zero.
    line_breaks : bool, default=False
        Whether every line break ends a sentence.
    random_state : int, RandomState or None, default=None
        For the randomised decomposition. The same seed gives the same vectors.
    n_jobs : int, default=None
        Threads. None is one; -1 all cores. More than one helps only where `embedding` lets others run meanwhile.
    verbose : int, default=0
        If not 0, a bar shows the progress.
    cache : path, default=None
        Folder in which vectors are kept for the next run. They are found again by the texts, the parameters, and what
        was learned. Not possible with `embedding`, which might change without notice.

    Attributes
    ----------
    vectorizer_ : estimator
        Fitted on all sentences. Not there if `embedding` is given, like the others.
    word_vectors_ : ndarray of float32, shape (n_words, n_components)
        The singular vectors. A sentence's vector is the sum of those of its words, times their weights.
    n_sentences_ : int
        Sentences seen in `fit`.

    See Also
    --------
    WordCounts : Counts of words, one row a text.

    Examples
    --------
    >>> from bagwise.descriptors import SentenceVectors
    >>> texts = ["The plot is thin. The actors are good!", "", "A good plot. Good actors, e.g. Mr. Bean."]
    >>> bags = SentenceVectors(n_components=2, random_state=0).fit_transform(texts)
    >>> bags
    <Bags: 3 bags, 4 rows x 2 features of float32>
    >>> bags.lengths
    array([2, 0, 2])
    >>> import numpy as np
    >>> lengths = SentenceVectors(embedding=lambda sentences: np.array([[len(s)] for s in sentences]), normalize=False)
    >>> lengths.transform(texts)[2].ravel()
    array([12., 27.], dtype=float32)
    """

    modality: ClassVar[str] = "texts"
    _parameter_constraints: ClassVar[dict] = {
        **ItemTransformer._parameter_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "embedding": [callable, None],
        "vectorizer": [HasMethods(["fit_transform", "transform"]), None],
        "normalize": ["boolean"],
        "line_breaks": ["boolean"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_components: int = 50,
        *,
        embedding: Callable[[list[str]], Any] | None = None,
        vectorizer: Any = None,
        normalize: bool = True,
        line_breaks: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        cache: str | PathLike[str] | None = None,
    ) -> None:
        self.n_components = n_components
        self.embedding = embedding
        self.vectorizer = vectorizer
        self.normalize = normalize
        self.line_breaks = line_breaks
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.cache = cache

    def fit(self, X: Any = None, y: Any = None, on_error: str = "raise") -> SentenceVectors:
        """Learn words, their weights and the decomposition from all sentences. With `embedding` nothing is learned.

        Parameters
        ----------
        X : Collection of texts, or iterable of str
            Only weights of words are kept in memory, not the texts.
        y : ignored
        on_error : {"raise", "skip"}, default="raise"
            What to do when a text cannot be read: stop with an `ItemError`, or leave it out and warn.

        Returns
        -------
        self : SentenceVectors
        """
        self._check_parameters()
        if self.embedding is not None:
            return self
        texts = load_texts(X, on_error)
        sentences = (sentence for text in texts for sentence in self._split(text))
        vectorizer = TfidfVectorizer(dtype=np.float32) if self.vectorizer is None else clone(self.vectorizer)
        try:
            weights = vectorizer.fit_transform(sentences)
        except BagwiseError:
            raise
        except ValueError as error:
            raise BagwiseError(f"No words can be learned from the sentences of these texts: {error}.") from error
        if self.n_components > min(weights.shape):
            raise BagwiseError(
                f"n_components={self.n_components} is too many for {weights.shape[0]} sentences with "
                f"{weights.shape[1]} different words. Choose at most {min(weights.shape)}, or give more texts."
            )
        # TruncatedSVD would do, but refuses a single word and warns where all sentences are the same
        _, _, rows = randomized_svd(weights, self.n_components, n_iter=_N_ITER, random_state=self.random_state)
        self.word_vectors_ = np.ascontiguousarray(rows.T, dtype=np.float32)
        self.vectorizer_ = vectorizer
        self.n_sentences_ = weights.shape[0]
        return self

    def _describe(self, content: Any) -> tuple[NDArray[np.float32], None]:
        sentences = self._split(content)
        if self.embedding is None:
            check_is_fitted(self)
            if sentences:
                vectors = np.asarray(self.vectorizer_.transform(sentences) @ self.word_vectors_, dtype=np.float32)
            else:
                vectors = self.word_vectors_[:0]
        else:
            # an empty bag needs to know how wide it is as well, and models dislike empty lists
            vectors = _embedded(self.embedding, sentences or ["?"])[: len(sentences)]
        return unit_rows(vectors) if self.normalize else vectors, None

    def _split(self, text: Any) -> list[str]:
        return split_sentences(text, line_breaks=self.line_breaks)

    def _cache(self) -> ArrayCache | None:
        if self.cache is None:
            return None
        if self.embedding is not None:
            raise BagwiseError("Vectors of an embedding cannot be cached, since it might change. Pass cache=None.")
        check_is_fitted(self)
        about = {"name": "SentenceVectors", "normalize": self.normalize, "line_breaks": self.line_breaks}
        return ArrayCache(self.cache, {**about, "learned": joblib.hash([self.vectorizer_, self.word_vectors_])})

    def __sklearn_is_fitted__(self) -> bool:
        return self.embedding is not None or hasattr(self, "word_vectors_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = self.embedding is None
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags


def _embedded(embedding: Callable[[list[str]], Any], sentences: list[str]) -> NDArray[np.float32]:
    """Call an embedding and check what it gives."""
    vectors = as_values(embedding(list(sentences)), np.float32, "what embedding gave")
    if len(vectors) != len(sentences):
        raise BagwiseError(f"embedding gave {len(vectors)} vectors for {len(sentences)} sentences; one each is needed.")
    return vectors
