"""Where sentences end: rules, no models."""

from __future__ import annotations

import re
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
from bagwise.descriptors.texts import as_text, load_texts
from bagwise.errors import BagwiseError

__all__ = ["SentenceVectors", "split_sentences"]


# Full stops of scripts that put no space behind them, or have one mark for nothing else. The full-width stop is also
# a decimal point.
_OTHER_STOPS = "。｡！？।॥؟۔։።፧។။\u037e"
_ASKS_OR_CALLS = frozenset("!?‼⁇⁈⁉‽")
_CLOSING = "\"'”’»›)\\]}」』】）〉》〕"
_OPENING = "\"'“‘„‚«‹(\\[{「『【（〈《〔¿¡"

# Runs are possessive and bounded, so that no text, whatever it holds, takes more than linear time.
_MARK = re.compile(
    rf"""(?<![.!?…])
    (?P<mark> \.(?:\s?\.){{1,20}}+ (?=\s|$|[{_CLOSING}]) | [.!?…‼⁇⁈⁉‽]++ )
    (?P<tail> (?:[{_CLOSING}]|\s[)\]}}])*+ )
    (?=\s|$)
    | (?P<other> (?:[{_OTHER_STOPS}]|．(?!\d))++ ) (?P<other_tail> [{_CLOSING}]*+ )""",
    re.VERBOSE,
)
_NEXT = re.compile(rf"[\s{_OPENING}]*+(?P<word>[^\W_]++)?(?P<other>\S)?")
_PARAGRAPH = re.compile(r"\n\s*\n")
_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")

# Longest word that is looked up; bounds how far back is looked.
_LONGEST = 24


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What stands before a name or goes on in any case: no sentence ends here.
_GOES_ON = _words(
    """mr mrs ms mx messrs mme mlle dr drs prof rev hon gen col lt sgt cpl capt cmdr maj adm gov sen rep pres supt
    vs cf viz approx resp e.g i.e eg ie z.b d.h bzw ca"""
)
# What stands before a number, and is a word of its own otherwise.
_BEFORE_NUMBER = _words(
    """no nos nr fig figs eq eqs sec ch chap vol vols p pp art op par ref refs tab pt
    jan feb mar apr jun jul aug sep sept oct nov dec"""
)
# What may end a sentence or not.
_DOUBTFUL = _words("al inc ltd co corp jr sr bros dept univ assn est ave blvd rd st mt ft")
# Words that, written large, begin a sentence even after something doubtful.
_BEGINNINGS = _words(
    """the a an this that these those there it he she they we you i his her their our my its who what when where why
    how if in on at after before for from as but and so or then now however although though because since while once
    some many most all no not with by to"""
)


def split_sentences(text: str, *, line_breaks: bool = False) -> list[str]:
    r"""Cut a text into sentences.

    A sentence ends at ``.``, ``!``, ``?`` or ``…`` with a space behind it (and behind closing quotes and brackets,
    which stay with it), at the full stops of other scripts with or without a space, and at an empty line. But it goes
    on

    - where a small letter follows, if the text has large letters at all: *"Why?" she asked.*
    - after titles and the like (*Dr. Who*, *e.g. this*), and after *No.*, *Fig.*, *Jan.* and others before a number;
    - after initials (*J. R. Smith*), letters with full stops (*the U.S. Army*), and abbreviations that may end a
      sentence or not (*Inc.*, *Jr.*), unless a word follows that commonly begins a sentence: *in the U.S. The army*;
    - after an ellipsis, unless a large letter follows;
    - after the number of an item: *1. Buy milk. 2. Go home.*
    - after quoted speech that has its own full stop, where no space follows: *「はい。」と言った。*

    Full stops within words, numbers and addresses end nothing. A full stop that stands alone, as in texts that were
    cut into tokens, is one. Pieces without a letter or digit stay with the sentence before them.

    Parameters
    ----------
    text : str
    line_breaks : bool, default=False
        Whether every line break ends a sentence, as in lists and subtitles. By default lines may be wrapped anywhere.

    Returns
    -------
    sentences : list of str
        With single spaces. All characters of the text but white space are there, in order. Empty if the text is.

    Notes
    -----
    The rules are for languages with these marks. Thai, which has none, gives one sentence a paragraph. A missing space
    (*the end.Then*) is not seen, since *Node.js* looks the same. Linear time.

    Examples
    --------
    >>> from bagwise.descriptors.sentences import split_sentences
    >>> split_sentences('Dr. No paid $3.50 to J. Bond. "Why?" he asked... Nobody knew!')
    ['Dr. No paid $3.50 to J. Bond.', '"Why?" he asked...', 'Nobody knew!']
    >>> split_sentences("one line\nand another", line_breaks=True)
    ['one line', 'and another']
    """
    text = re.sub(r"\r\n?|[\x85\u2028]", "\n", as_text(text))
    text = re.sub(r"[\v\f\u2029]", "\n\n", text)
    cased = any(map(str.isupper, text))
    pieces = [
        piece
        for paragraph in (text.split("\n") if line_breaks else _PARAGRAPH.split(text))
        for piece in _split_paragraph(paragraph, cased)
    ]
    return _with_strays(pieces)


def _split_paragraph(text: str, cased: bool) -> list[str]:
    pieces, start = [], 0
    for found in _MARK.finditer(text):
        if _ends(text, start, found, cased):
            pieces.append(text[start : found.end()])
            start = found.end()
    pieces.append(text[start:])
    return [" ".join(piece.split()) for piece in pieces]


def _ends(text: str, start: int, found: re.Match[str], cased: bool) -> bool:
    """Tell whether the sentence from `start` ends with these marks."""
    following = _NEXT.match(text, found.end())
    assert following is not None  # all of it may be empty
    word = following["word"] or ""
    if found["other"]:
        return not (found["other_tail"] and word and following.start("word") == found.end())
    if following["other"] and not word and following["other"] in ",;:":
        return False
    mark, alone = found["mark"], text[found.start() - 1 : found.start()].isspace()
    asks_or_calls = not _ASKS_OR_CALLS.isdisjoint(mark)
    if cased and word[:1].islower() and (asks_or_calls or len(mark) > 1 or not alone):
        return False
    if asks_or_calls:
        return True
    if mark != ".":
        return cased and word[:1].isupper()
    return _full_stop_ends(text, start, found.start(), word, cased)


def _full_stop_ends(text: str, start: int, stop: int, following: str, cased: bool) -> bool:
    """Tell whether the single full stop at `stop` ends the sentence from `start`, by the words around it."""
    before = text[max(start, stop - _LONGEST) : stop].split()
    if not before:
        return True
    last = before[-1].lstrip(_OPENING + "-–—/").lower()
    if (last.isdigit() or len(last) == 1) and len(before) == 1 and stop - start < _LONGEST:
        return False  # the number of an item
    if last in _GOES_ON:
        return False
    if last in _BEFORE_NUMBER and following[:1].isdigit():
        return False
    initial = len(last) == 1 and last.isalpha()
    if initial or last in _DOUBTFUL or _DOTTED.fullmatch(last):
        return cased and following[:1].isupper() and following.lower() in _BEGINNINGS
    return True


def _with_strays(pieces: list[str]) -> list[str]:
    """Join pieces without a letter or digit to the sentence before, or to the first one if there is none before."""
    sentences: list[list[str]] = []
    begun = False  # only before the first piece with a word can there be a sentence without one
    for piece in filter(None, pieces):
        has_word = any(map(str.isalnum, piece))
        if sentences and not (has_word and begun):
            sentences[-1].append(piece)
        else:
            sentences.append([piece])
        begun = begun or has_word
    return [" ".join(sentence) for sentence in sentences]


# Power iterations of the randomised decomposition, as in scikit-learn's TruncatedSVD.
_N_ITER = 5


class SentenceVectors(Descriptor):
    """Describe texts by one vector for each sentence.

    1. Texts are cut into sentences by rules (`bagwise.descriptors.sentences.split_sentences`).
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
