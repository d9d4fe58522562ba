"""Sentences of texts, and `SentenceVectors`: one vector for each sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Self

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.utils import Tags
from sklearn.utils.extmath import randomized_svd
from sklearn.utils.validation import check_is_fitted

from bagwise._utils.arrays import unit_rows
from bagwise._utils.checks import as_values
from bagwise._utils.records import Integer, OneOf, Such, parameter
from bagwise.descriptors.base import Descriptor
from bagwise.descriptors.cache import ArrayCache
from bagwise.errors import BagwiseError
from bagwise.sources.collection import as_text, load_texts

__all__ = ["SentenceVectors", "split_sentences"]


# Full stops of scripts that put no space behind them, or have one mark for nothing else. The full-width stop is also
# a decimal point.
_OTHER_STOPS = "。｡！？।॥؟۔։።፧។။\u037e"
_CLOSING = "\"'”’»›)\\]}」』】）〉》〕"
_OPENING = "\"'“‘„‚«‹(\\[{「『【（〈《〔¿¡"
# Repetitions are possessive and bounded, so that every text takes linear time.
_MARK = re.compile(
    rf"""(?<![.!?…])
    (?P<mark> \.(?:\s?\.){{1,20}}+ (?=\s|$|[{_CLOSING}]) | [.!?…‼⁇⁈⁉‽]++ )
    (?P<tail> (?:[{_CLOSING}]|\s[)\]}}])*+ )
    (?=\s|$)
    | (?P<other> (?:[{_OTHER_STOPS}]|．(?!\d))++ ) (?P<other_tail> [{_CLOSING}]*+ )""",
    re.VERBOSE,
)
_NEXT = re.compile(rf"[\s{_OPENING}]*+(?P<word>[^\W_]++)?(?P<other>\S)?")
_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")
_LONGEST = 24  # longest abbreviation that is looked up


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Abbreviations that never end a sentence, those that do not before a number, and those that may end one.
_GOES_ON = _words("""mr mrs ms mx messrs mme mlle dr drs prof rev hon gen col lt sgt cpl capt cmdr maj adm gov sen rep
    pres supt vs cf viz approx resp e.g i.e eg ie z.b d.h bzw ca""")
_BEFORE_NUMBER = _words("""no nos nr fig figs eq eqs sec ch chap vol vols p pp art op par ref refs tab pt
    jan feb mar apr jun jul aug sep sept oct nov dec""")
_DOUBTFUL = _words("al inc ltd co corp jr sr bros dept univ assn est ave blvd rd st mt ft")
# Capitalised words that begin a sentence even after a doubtful abbreviation.
_BEGINNINGS = _words("""the a an this that these those there it he she they we you i his her their our my its who what
    when where why how if in on at after before for from as but and so or then now however although though because
    since while once some many most all no not with by to""")


def split_sentences(text: str, *, line_breaks: bool = False) -> list[str]:
    r"""Split a text into sentences by rules for European and East Asian punctuation.

    A sentence ends at ``.``, ``!``, ``?`` or ``…`` followed by white space (closing quotes and brackets stay with it),
    at the full stops of other scripts, and at an empty line. It does not end before a lower-case letter, after titles,
    common abbreviations, initials and the numbers of items, or inside numbers and addresses. Use a sentence splitter of
    your own (`SentenceVectors(splitter=...)`) where these rules are not enough.

    Parameters
    ----------
    text : str
    line_breaks : bool, default=False
        Whether every line break ends a sentence, as in lists and subtitles.

    Returns
    -------
    sentences : list of str
        With single spaces. Pieces without a letter or digit stay with the sentence before them.

    Examples
    --------
    >>> from bagwise.descriptors import split_sentences
    >>> split_sentences('Dr. No paid $3.50 to J. Bond. "Why?" he asked... Nobody knew!')
    ['Dr. No paid $3.50 to J. Bond.', '"Why?" he asked...', 'Nobody knew!']
    >>> split_sentences("one line\nand another", line_breaks=True)
    ['one line', 'and another']
    """
    text = re.sub(r"\r\n?|[\x85\u2028]", "\n", as_text(text))
    text = re.sub(r"[\v\f\u2029]", "\n\n", text)
    cased = any(map(str.isupper, text))
    pieces = []
    for paragraph in re.split(r"\n" if line_breaks else r"\n\s*\n", text):
        start = 0
        for mark in _MARK.finditer(paragraph):
            if _ends_sentence(paragraph, start, mark, cased):
                pieces.append(paragraph[start : mark.end()])
                start = mark.end()
        pieces.append(paragraph[start:])
    sentences: list[list[str]] = []
    begun = False
    for words in filter(None, map(str.split, pieces)):
        has_word = any(map(str.isalnum, "".join(words)))
        if sentences and not (has_word and begun):
            sentences[-1] += words
        else:
            sentences.append(words)
        begun = begun or has_word
    return [" ".join(words) for words in sentences]


def _ends_sentence(text: str, start: int, marks: re.Match[str], cased: bool) -> bool:
    """Tell whether the sentence from `start` ends with these marks."""
    following = _NEXT.match(text, marks.end())
    assert following is not None  # all of it may be empty
    word, mark, stop = following["word"] or "", marks["mark"], marks.start()
    if marks["other"]:
        return not (marks["other_tail"] and word and following.start("word") == marks.end())
    if not word and following["other"] and following["other"] in ",;:":
        return False
    strong = any(character in "!?‼⁇⁈⁉‽" for character in mark)
    if cased and word[:1].islower() and (strong or len(mark) > 1 or not text[stop - 1 : stop].isspace()):
        return False
    if strong or mark != ".":
        return strong or (cased and word[:1].isupper())
    before = text[max(start, stop - _LONGEST) : stop].split()
    if not before:
        return True
    last = before[-1].lstrip(_OPENING + "-–—/").lower()
    item = len(before) == 1 and stop - start < _LONGEST and (last.isdigit() or len(last) == 1)
    if item or last in _GOES_ON or (last in _BEFORE_NUMBER and word[:1].isdigit()):
        return False
    if (len(last) == 1 and last.isalpha()) or last in _DOUBTFUL or _DOTTED.fullmatch(last):
        return cased and word[:1].isupper() and word.lower() in _BEGINNINGS
    return True


_SPLITTERS: dict[str, Callable[[str], list[str]]] = {
    "sentences": split_sentences,
    "lines": partial(split_sentences, line_breaks=True),
}
_CALLABLE = Such(lambda value: value is None or callable(value), "a function or None")
_SPLITTER = Such(lambda value: callable(value) or value in _SPLITTERS, "'sentences', 'lines' or a function")
_VECTORIZER = Such(
    lambda value: value is None or (hasattr(value, "fit_transform") and hasattr(value, "transform")),
    "an estimator with fit_transform and transform, or None",
)
_SEED = Such(
    lambda value: (
        value is None or isinstance(value, np.random.RandomState) or (type(value) is int and 0 <= value < 2**32)
    ),
    "an integer from 0 to 4294967295, a RandomState or None",
)


@dataclass(eq=False, repr=False)
class SentenceVectors(Descriptor):
    """Describe texts by one vector for each sentence.

    1. Texts are split into sentences.
    2. Sentences become TF-IDF vectors, which a truncated singular value decomposition reduces to `n_components`
       dimensions (latent semantic analysis). Both are learned by `fit` from all sentences. With `embedding`, that
       computes the vectors; nothing is learned and `fit` is not needed.
    3. Vectors are scaled to unit L2 norm.

    A text without sentences gives an empty bag. A sentence without known words gives a zero vector.

    Parameters
    ----------
    n_components : int, default=50
        Dimensions of a vector, at most the number of distinct words and of sentences. Ignored with `embedding`.
    embedding : callable, default=None
        Maps a list of sentences, never empty, to an array of shape (n_sentences, n_features), as the ``encode`` method
        of a sentence-transformers model does. Called once per text, from several threads with `n_jobs`.
    vectorizer : estimator, default=None
        Maps sentences to sparse weights, like `sklearn.feature_extraction.text.CountVectorizer`. None is
        ``TfidfVectorizer(dtype=numpy.float32)``. Ignored with `embedding`.
    splitter : {"sentences", "lines"} or callable, default="sentences"
        "sentences" is `split_sentences`; "lines" also ends a sentence at every line break. A callable maps a str to a
        list of str, as NLTK's ``sent_tokenize`` does.
    normalize : bool, default=True
        Whether to scale vectors to unit L2 norm. Zero vectors stay zero.
    random_state : int, RandomState or None, default=None
    n_jobs : int, default=None
        Number of threads; -1 uses all cores. Useful only if `embedding` releases the GIL.
    verbose : int, default=0
    cache : path, default=None
        Folder that keeps vectors for the next run, keyed by texts, parameters and the learned model. Not available
        with an `embedding` or a `splitter` of your own, which may change without notice.

    Attributes
    ----------
    vectorizer_ : estimator
        Fitted on all sentences. Like the others, only without `embedding`.
    word_vectors_ : ndarray of float32, shape (n_words, n_components)
        Singular vectors. The vector of a sentence is the weighted sum of those of its words.
    n_sentences_ : int
        Number of sentences in `fit`.

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
    max_side: ClassVar[None] = None  # type: ignore[misc]

    n_components: int = parameter(50, Integer(1))
    _: KW_ONLY
    embedding: Callable[[list[str]], Any] | None = parameter(None, _CALLABLE)
    vectorizer: Any = parameter(None, _VECTORIZER)
    splitter: str | Callable[[str], list[str]] = parameter("sentences", _SPLITTER)
    normalize: bool = parameter(True, OneOf(True, False))
    random_state: Any = parameter(None, _SEED)

    def fit(self, X: Any = None, y: Any = None, on_error: str = "raise") -> Self:
        """Learn vocabulary, weights and decomposition from all sentences. With `embedding`, learn nothing.

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
        self.check()
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
        _, _, rows = randomized_svd(weights, self.n_components, n_iter=5, random_state=self.random_state)
        self.word_vectors_ = np.ascontiguousarray(rows.T, dtype=np.float32)
        self.vectorizer_ = vectorizer
        self.n_sentences_ = weights.shape[0]
        return self

    def _describe(self, content: Any) -> tuple[NDArray[np.float32], None]:
        sentences = self._split(content)
        if self.embedding is not None:
            # an empty bag has a width as well, but models may not take empty lists
            described = sentences or ["?"]
            vectors = as_values(self.embedding(described[:]), np.float32, "what embedding gave")
            if len(vectors) != len(described):
                raise BagwiseError(
                    f"embedding gave {len(vectors)} vectors for {len(described)} sentences; one each is needed."
                )
            vectors = vectors[: len(sentences)]
        else:
            check_is_fitted(self)
            vectors = self.word_vectors_[:0]
            if sentences:
                vectors = np.asarray(self.vectorizer_.transform(sentences) @ self.word_vectors_, dtype=np.float32)
        return unit_rows(vectors) if self.normalize else vectors, None

    def _split(self, text: Any) -> list[str]:
        if callable(self.splitter):
            return [sentence for sentence in map(as_text, self.splitter(as_text(text))) if sentence.strip()]
        return _SPLITTERS[self.splitter](text)

    def _cache(self) -> ArrayCache | None:
        if self.cache is None:
            return None
        if self.embedding is not None or callable(self.splitter):
            what = "an embedding" if self.embedding is not None else "a splitter of your own"
            raise BagwiseError(f"Vectors of {what} cannot be cached, since it may change. Use cache=None.")
        check_is_fitted(self)
        about = {"name": "SentenceVectors", "normalize": self.normalize, "splitter": self.splitter}
        return ArrayCache(self.cache, {**about, "learned": joblib.hash([self.vectorizer_, self.word_vectors_])})

    def __sklearn_is_fitted__(self) -> bool:
        return self.embedding is not None or hasattr(self, "word_vectors_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = self.embedding is None
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags
