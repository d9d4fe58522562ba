"""Texts: words are those of the texts, and have places in them."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.checks import frozen, json_copy
from bagwise._utils.text import english_stop_words
from bagwise.app.modalities.base import Located, Modality, PlannedWords, Terms, spaced
from bagwise.app.modalities.histograms import Histograms
from bagwise.app.modalities.steps import from_json, to_json
from bagwise.app.modalities.vectorizers import Part, Progress, Run, Vectorizer
from bagwise.errors import BagwiseError, OptionError, argument, unknown_name
from bagwise.runtime import HASH_BITS, PATTERN, hash_words, split_text
from bagwise.sources.collection import Collection, load_texts
from bagwise.sources.items import ItemIterator, NothingReadError

if TYPE_CHECKING:
    import scipy.sparse as sp

    from bagwise.app.model.model import Model
    from bagwise.app.options import FitOptions
    from bagwise.sources.items import Item

__all__ = ["Span", "TextModality", "TextVectorizer", "checked_tokenizer", "excerpt_of", "located_words"]

# Words, and pairs of words if they are part of the vocabulary.
_WORDS, _WORDS_AND_PAIRS = 30_000, 50_000
# Without classes: more are no better for clusters of texts.
_CLUSTERED_WORDS = 20_000
# The longest n-grams of words of texts with classes, and texts that n-grams of several words must occur in.
_LABELLED_NGRAM, _TEXTS_OF_NGRAM = 2, 2
_TOKEN = r"(?u)\b\w\w+\b"
# The longest n-grams of characters.
_CHARACTERS = 3
# Letters of scripts that put no spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese; marks on them.
_UNSPACED = (
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff]"
)
_MARKS = "[\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ecd\u102b-\u103e\u17b4-\u17d3\u3099\u309a]"
# Words, white spaces, and single letters of these scripts.
_RUNS = re.compile(rf"\s+|{_UNSPACED}{_MARKS}*|(?:(?!{_UNSPACED})\S)+")
# How many texts are looked at, and characters of each; how much of their letters are of these scripts.
_TEXTS, _TEXT, _LEAST_UNSPACED = 16, 2000, 0.5
_PLANNED = 2000  # texts that are read for a plan
_BATCH_SIZE = 32
_MOST_QUERY_BYTES = 4 << 20
_EXCERPT_LENGTH = 300

_LONGEST_PATTERN = 1000
_MOST_STOP_WORDS = 100_000
_LONGEST_NGRAM = 20
# Options of a tokenizer where a model does not say otherwise: those of `CountVectorizer`.
_DEFAULTS: dict[str, Any] = {
    "analyzer": "word",
    "binary": False,
    "lowercase": True,
    "ngram_range": [1, 1],
    "stop_words": None,
    "strip_accents": None,
    "token_pattern": PATTERN,
}

Place = tuple[int, int]


class Span(NamedTuple):
    """A token of a text, ``text[start:end]``, and its part of the score."""

    start: int
    end: int
    weight: float


class TextModality(Modality):
    """Files of text, or records: rows of a file with a column of texts."""

    name = "texts"
    records = "records"
    reading = ("encoding",)
    hashes_words = True
    terms_by_presence = True
    clusters_by = "tfidf"
    tfidf = True
    readable = True

    def decoder(self, model: Model) -> Any:
        """Return what decodes a text that was typed."""
        from bagwise.sources.media import TextDecoder

        return TextDecoder("utf-8")

    def query(self, model: Model, content: Any, n_bytes: int) -> Item:
        """Return the item of a query."""
        if n_bytes > _MOST_QUERY_BYTES:
            raise BagwiseError(f"Texts to search for are limited to {_MOST_QUERY_BYTES >> 20} MB.")
        return super().query(model, content, n_bytes)

    def columns(self, opened_as: str) -> tuple[str, ...]:
        """Return the options that name columns of records; files of text have none."""
        return ("text", "label", "id", "split") if opened_as == self.records else ()

    def resolve(self, options: FitOptions, collection: Collection) -> tuple[FitOptions, Collection, tuple[str, ...]]:
        """Choose words or characters: characters, if most letters of most texts are of scripts without spaces."""
        from bagwise.sources.items import ItemError

        notes: tuple[str, ...] = ()
        if options.analyzer == "auto" and len(collection):
            votes: list[bool] = []  # of the texts that have letters
            for item in spaced(collection, _TEXTS):
                with suppress(ItemError):  # told, or raised, when all are read
                    letters = "".join(filter(str.isalpha, item.load()[:_TEXT]))
                    if letters:
                        votes.append(len(re.findall(_UNSPACED, letters)) > _LEAST_UNSPACED * len(letters))
            unspaced = sum(votes) > _LEAST_UNSPACED * len(votes)
            options = options.with_changes(analyzer="char" if unspaced else "word")
            if unspaced:
                notes = (
                    "Most letters are of scripts without spaces between words, so texts are described by n-grams of "
                    f"characters; {argument('analyzer', 'word')} splits them at spaces and punctuation.",
                )
        if options.analyzer == "char" and options.stop_words is not None:
            message = "stop_words are words, but these texts are described by n-grams of characters. Remove stop_words."
            raise OptionError("stop_words", message)
        return options, collection, notes

    def vectorizer(self, options: FitOptions, *, n_classes: int = 0, n_components: int | None = None) -> Vectorizer:
        """Return the vectorizer that takes the most frequent words of the texts."""
        from bagwise.app.options import check_options

        check_options(options, self.name)
        if n_components is not None:
            raise OptionError(
                "method",
                "method='manifold' moves words that are learned from images or videos, but texts have words already. "
                "Use 'kmeans'.",
            )
        tokenizer: dict[str, Any]
        n_words = _CLUSTERED_WORDS if n_classes == 0 else _WORDS
        if options.analyzer == "char":
            tokenizer = {"analyzer": "char", "lowercase": True, "ngram_range": [1, options.ngrams or _CHARACTERS]}
        else:
            longest = options.ngrams or (_LABELLED_NGRAM if n_classes > 0 else 1)
            n_words = _WORDS_AND_PAIRS if longest > 1 and n_classes > 0 else n_words
            tokenizer = {
                "lowercase": True,
                "token_pattern": _TOKEN,
                "ngram_range": [1, longest],
                "stop_words": options.stop_words,  # n-grams skip them, so that the model must do so as well
            }
        return TextVectorizer(tokenizer, n_words=options.n_words or n_words, min_count=options.min_count)

    def restore(self, model: Model) -> Vectorizer:
        """Return the vectorizer of a model."""
        return TextVectorizer(model.tokenizer, model.word_names, model.word_hashes)

    def planned_words(self, collection: Collection, options: FitOptions, n_classes: int) -> PlannedWords:
        """Count the words of some texts; those of all may be as many as the vocabulary can have."""
        some = spaced(collection, _PLANNED)
        vectorizer: Any = self.vectorizer(options, n_classes=n_classes)
        X = vectorizer.fit_transform(some, on_error=options.on_error or "skip").matrix
        n_words = X.shape[1] if len(some) == len(collection) else vectorizer.max_words
        return PlannedWords((n_words,), X.nnz / X.shape[0])

    def _check_words(self, model: Model) -> None:
        super()._check_words(model)
        if (model.word_names is None) == (model.word_hashes is None):
            raise BagwiseError("A model of texts needs word_names, its vocabulary, or word_hashes, but not both.")
        if model.word_hashes is None:
            return
        hashes = np.asarray(model.word_hashes)
        integers = hashes.ndim == 1 and hashes.dtype.kind in "iu"
        rise = integers and (np.diff(hashes.astype(np.int64)) > 0).all()
        if not rise or (len(hashes) and not 0 <= hashes[0] <= hashes[-1] < 1 << HASH_BITS):
            raise BagwiseError(
                f"word_hashes are ascending integers of {HASH_BITS} bits, and only for texts; got {hashes!r:.100}."
            )
        model._set(word_hashes=frozen(hashes.astype(np.uint32)))

    def root(self, asked: str, criterion: str, n_classes: int) -> str | None:
        """Return None: words have TF-IDF weights."""
        return None

    def baseline_of_all(self, vectorizer: Vectorizer, scaled: bool) -> str:
        """Return the name of the method with all words, and what else the vocabulary has."""
        tokenizer = getattr(vectorizer, "tokenizer", {})
        longest = 1 if tokenizer.get("analyzer") == "char" else tokenizer.get("ngram_range", (1, 1))[1]
        more = {1: "", 2: " and pairs of words"}.get(longest, " and n-grams")
        return f"all words{more}, TF-IDF, linear SVM"

    def contents(self, model: Model, X: Any, n_jobs: int | None) -> tuple[Any, Sequence[Located]]:
        """Return the histograms of texts, and what finds the places of words in them."""
        if len(getattr(X, "shape", ())) == 2:
            return super().contents(model, X, n_jobs)
        texts = list(load_texts(X))
        numbers = _numbering(model)
        return model.histograms(texts), [_Text(text, model.tokenizer, numbers) for text in texts]

    def same(self, one: Item, other: Item) -> bool:
        """Whether two texts are the same, whatever their encoding."""
        return bool(one.load() == other.load())

    def shown(self, item: Item) -> Any:
        """Return the text."""
        return item.load()

    def preview(self, item: Item, side: int) -> tuple[bytes | None, str | None]:
        """Return the beginning of the text."""
        return None, excerpt_of(item.load())

    def snippet(self, item: Item, names: Sequence[str] | None) -> str | None:
        """Return the beginning of the text."""
        return excerpt_of(item.load())

    def graph_facts(self, model: Model) -> dict[str, Any]:
        """Return the tokenizer, and the vocabulary if words have names."""
        tokenizer = {**_DEFAULTS, **model.tokenizer}
        if tokenizer["stop_words"] == "english":
            tokenizer["stop_words"] = sorted(english_stop_words())
        if model.word_hashes is not None:
            return {"tokenizer": tokenizer, "hashes": model.word_hashes.tolist()}
        return {"tokenizer": tokenizer, "vocabulary": list(model.word_names or ())}

    def device_feed(self, model: Model) -> tuple[str, str, str] | None:
        """Return what a C++ program reads."""
        return "texts, a line of UTF-8 each", "echo 'some words' | build/classify", "An empty line is a text too."


@dataclass(frozen=True)
class WordTotals:
    """Words of texts in ascending order, how often each occurs, and in how many texts."""

    words: list[str]
    occurrences: NDArray[np.int64]
    n_texts: NDArray[np.int64]
    n_kept: int  # texts that could be read
    n_items: int


class TextVectorizer(Vectorizer):
    """Count the words of texts.

    `tokenizer` has options of `WordCounts`; `word_names` is the vocabulary, or `word_hashes` are its hashes, ascending.
    `fit_transform` learns up to `n_words` words, the most frequent of those that occur in at least `min_count` texts,
    n-grams of several words in at least two.
    """

    modality = "texts"
    stages = ("counting words",) * 3

    def __init__(
        self,
        tokenizer: Mapping[str, Any],
        word_names: Sequence[str] | None = None,
        word_hashes: NDArray[np.uint32] | None = None,
        *,
        n_words: int = 30_000,
        min_count: int = 1,
    ) -> None:
        self.tokenizer = dict(tokenizer)
        self.word_names = None if word_names is None else tuple(word_names)
        self.word_hashes = word_hashes
        self.n_words = len(self.word_names or ()) if word_hashes is None else len(word_hashes)
        self.max_words = n_words
        self.min_count = min_count

    def _settings(self) -> dict[str, Any] | None:
        return {"tokenizer": self.tokenizer, "n_words": self.max_words, "min_count": self.min_count}

    def _learned(self) -> dict[str, NDArray[Any]]:
        hashes = {} if self.word_hashes is None else {"word_hashes": np.asarray(self.word_hashes)}
        return {"word_names": to_json(self.word_names)} | hashes

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.word_names = tuple(from_json(arrays["word_names"]))
        self.n_words = len(self.word_names)
        self.__dict__.pop("_vocabulary", None)

    def _counter(self, **options: Any) -> Any:
        from sklearn.feature_extraction.text import CountVectorizer

        tokenizer = {name: tuple(value) if name == "ngram_range" else value for name, value in self.tokenizer.items()}
        return CountVectorizer(**tokenizer, **options)

    def _split(self) -> Callable[[str], list[str]]:
        """Return the function that splits a text into words and n-grams, as `CountVectorizer` does."""
        options = self.tokenizer
        if options.get("analyzer") == "char_wb" or options.get("strip_accents"):
            return self._counter().build_analyzer()
        if options.get("stop_words") == "english":
            options = options | {"stop_words": english_stop_words()}
        return partial(split_text, options=options)

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.word_names or ())}

    def _numbers(self, words: list[str]) -> NDArray[np.intp]:
        """Return the numbers of words that are in the vocabulary."""
        if self.word_hashes is None:
            known = map(self._vocabulary.get, words)
            return np.array([number for number in known if number is not None], np.intp)
        hashes = hash_words(words)
        at = np.minimum(np.searchsorted(self.word_hashes, hashes), self.n_words - 1)
        return at[self.word_hashes[at] == hashes]

    def read_part(self, X: Any, run: Run, keep: Callable[[Iterable[Any]], Iterable[Any]] = list) -> Part:
        """Count all words of the texts: pairs of words, in their order, and counts."""
        import scipy.sparse as sp

        texts, counter = self._texts(X, run.on_error), self._counter()
        words: list[str] = []
        try:
            counts = counter.fit_transform(_with_progress(texts, run.progress, "Reading texts"))
            words = counter.get_feature_names_out().tolist()
        except NothingReadError as error:
            return Part(keep([(words, sp.csr_array((0, 0), dtype=np.int64))]), np.empty(0, np.intp), error.skipped)
        except BagwiseError:
            raise
        except ValueError:  # scikit-learn's about an empty vocabulary
            counts = sp.csr_array((len(texts.kept), 0), dtype=np.int64)
        return Part(keep([(words, counts)]), np.array(texts.kept, np.intp), tuple(texts.skipped))

    def summary(self, part: Part, limits: Any = None) -> WordTotals:
        """Return how often each word occurs, and in how many texts."""
        ((words, counts),) = part.content
        n_texts = np.bincount(counts.indices, minlength=len(words))
        occurrences = np.asarray(counts.sum(axis=0), dtype=np.int64).ravel()
        return WordTotals(words, occurrences, n_texts, len(part.kept), len(part.kept) + len(part.skipped))

    def join(self, one: WordTotals, other: WordTotals) -> WordTotals:
        """Add up the occurrences of words."""
        words = sorted({*one.words, *other.words})
        column = {word: number for number, word in enumerate(words)}
        sums = np.zeros((2, len(words)), np.int64)
        for totals in (one, other):
            columns = np.fromiter(map(column.__getitem__, totals.words), np.intp, len(totals.words))
            sums[0, columns] += totals.occurrences
            sums[1, columns] += totals.n_texts
        return WordTotals(words, sums[0], sums[1], one.n_kept + other.n_kept, one.n_items + other.n_items)

    def learn(self, summary: WordTotals, run: Run, source: str = "the source") -> None:
        """Take the most frequent of the words that occur in enough texts, as `CountVectorizer` does."""
        least = np.full(len(summary.words), self.min_count)
        if self.tokenizer.get("analyzer", "word") == "word":
            least[[" " in word for word in summary.words]] = max(self.min_count, _TEXTS_OF_NGRAM)
        enough = np.flatnonzero(summary.n_texts >= np.minimum(least, summary.n_items))
        if len(enough) > self.max_words:
            enough = np.sort(enough[(-summary.occurrences[enough]).argsort()[: self.max_words]])
        if not len(enough):
            rare = f" that occurs in {self.min_count} of them. Add texts, or lower min_count"
            raise BagwiseError(
                f"The {summary.n_kept} texts of {source} have no word{rare if self.min_count > 1 else ''}."
            )
        self.word_names = tuple(summary.words[number] for number in enough.tolist())
        self.n_words = len(self.word_names)
        self.__dict__.pop("_vocabulary", None)

    def count_part(self, part: Part, run: Run, wanted: Iterable[int] = (), X: Any = None) -> Histograms:
        """Keep the counts of the words that were learned."""
        import scipy.sparse as sp

        ((words, counts),) = part.content
        column = np.array([self._vocabulary.get(word, -1) for word in words], np.int32)[counts.indices]
        known = column >= 0
        starts = np.concatenate([[0], np.cumsum(known)])[counts.indptr].astype(np.int32 if known.size < 2**31 else None)
        rows = (counts.data[known].astype(np.float32), column[known].astype(starts.dtype), starts)
        return Histograms(sp.csr_array(rows, shape=(counts.shape[0], self.n_words)), part.kept, part.skipped)

    def count(self, X: Any, run: Run, wanted: Iterable[int] | None = None) -> Histograms:
        """Count the words of texts."""
        texts = self._texts(X, run.on_error)
        read = _with_progress(texts, run.progress, "Counting words")
        return Histograms(self._counted(read), np.array(texts.kept), tuple(texts.skipped))

    def _counted(self, texts: Iterable[str]) -> sp.csr_array:
        """Count the words of texts, as `RuntimeModel.transform_texts` does."""
        import scipy.sparse as sp

        split = self._split()
        columns, counts, lengths = [], [], [0]
        for text in texts:
            words, n = np.unique(self._numbers(split(text)), return_counts=True)
            columns.append(words)
            counts.append(np.ones_like(n) if self.tokenizer.get("binary") else n)
            lengths.append(len(words))
        data = np.concatenate([np.empty(0, np.float32), *counts]).astype(np.float32)
        indices, starts = np.concatenate([np.empty(0, np.intp), *columns]), np.cumsum(lengths)
        dtype = np.int32 if len(indices) <= np.iinfo(np.int32).max else np.int64  # most of scikit-learn takes 32 bits
        shape = (len(lengths) - 1, self.n_words)
        return sp.csr_array((data, indices.astype(dtype), starts.astype(dtype)), shape=shape)

    @staticmethod
    def _texts(X: Any, on_error: str) -> ItemIterator:
        texts = load_texts(X, on_error)
        texts.warn = False
        return texts

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of `Model` that describe the fitted vectorizer."""
        return {"tokenizer": self.tokenizer, "word_names": self.word_names}


def _with_progress(texts: ItemIterator, progress: Progress, step: str) -> Iterator[str]:
    for text in texts:
        if texts.n_done % _BATCH_SIZE == 0 or texts.n_done == texts.n_items:
            progress(step, texts.n_done, texts.n_items)
        yield text


def excerpt_of(text: str) -> str:
    """Return the beginning of a text as one line."""
    line = " ".join(text.split())
    return line if len(line) <= _EXCERPT_LENGTH else line[: _EXCERPT_LENGTH - 1] + "…"


@dataclass(frozen=True)
class _Text:
    text: str
    tokenizer: Mapping[str, Any]
    numbers: Any  # from words to their numbers, -1 for others

    def places(self, terms: Terms, contributions: NDArray[np.float64]) -> list[Span]:
        located = list(located_words(self.text, self.tokenizer))
        numbers = self.numbers([word for word, _ in located])
        added_by = {int(word): 0.0 for word in np.unique(terms.words)}
        for word, added in zip(terms.words.tolist(), contributions.tolist(), strict=True):
            added_by[word] += added
        occurrences = Counter(numbers.tolist())
        weights: dict[Place, float] = {}
        for number, (_, places) in zip(numbers.tolist(), located, strict=True):
            if number in added_by:
                for span in places:
                    weights[span] = weights.get(span, 0.0) + added_by[number] / occurrences[number] / len(places)
        if self.tokenizer.get("analyzer", "word") != "word":
            return self._in_words(weights)
        return [Span(*span, weight) for span, weight in sorted(weights.items())]

    def _in_words(self, weights: Mapping[Place, float]) -> list[Span]:
        """Sum the weights of characters in words and white spaces; without spaces between words, characters stay."""
        sums = [0.0] * len(self.text)
        for (start, _), weight in weights.items():
            sums[start] = weight
        runs = (match.span() for match in _RUNS.finditer(self.text))
        return [Span(a, b, sum(sums[a:b])) for a, b in runs if any((k, k + 1) in weights for k in range(a, b))]


def _numbering(model: Model) -> Any:
    """Return a function from words to their numbers in the vocabulary, -1 for others."""
    if model.word_hashes is None:
        numbered = {word: number for number, word in enumerate(model.word_names or ())}
        return lambda words: np.array([numbered.get(word, -1) for word in words], np.intp)
    known = model.word_hashes

    def numbers(words: list[str]) -> NDArray[np.intp]:
        hashes = hash_words(words)
        at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
        return np.where(known[at] == hashes, at, -1).astype(np.intp)

    return numbers


def located_words(text: str, options: Mapping[str, Any]) -> Iterator[tuple[str, list[Place]]]:
    """Yield each word of a text, as often as it occurs, with its places in the text.

    Parameters
    ----------
    text : str
    options : mapping
        Options of the tokenizer of a model; see `Model`.

    Yields
    ------
    word : str
        All words together are those that `CountVectorizer` counts with the same options.
    places : list of (start, end)
        One for each token or character of an n-gram. They need not be beside each other where stop words or white
        spaces were left out.

    Examples
    --------
    >>> list(located_words("The Cat sat", {"stop_words": ["the"], "ngram_range": [1, 2]}))
    [('cat', [(4, 7)]), ('sat', [(8, 11)]), ('cat sat', [(4, 7), (8, 11)])]
    """
    prepared, origin = _prepared(text, options)
    least, most = options.get("ngram_range", (1, 1))
    analyzer = options.get("analyzer", "word")
    if analyzer == "word":
        yield from _word_ngrams(_tokens(prepared, origin, options), least, most)
        return
    prepared, origin = _single_spaces(prepared, origin)
    if analyzer == "char":
        places = [(start, start + 1) for start in origin]
        for n in range(least, min(most, len(prepared)) + 1):
            for a in range(len(prepared) - n + 1):
                yield prepared[a : a + n], places[a : a + n]
        return
    for match in re.finditer(r"\S+", prepared):
        yield from _padded_ngrams(match[0], origin[match.start() : match.end()], least, most)


def _prepared(text: str, options: Mapping[str, Any]) -> tuple[str, Sequence[int]]:
    """Return the text in lower case and without accents, as the options say, and the origin of each character."""
    origin: Sequence[int] = range(len(text))  # not a list, which would take 36 bytes per character
    if options.get("lowercase", True):
        lowered = text.lower()
        if len(lowered) > len(text):  # a few letters become two characters
            origin = [number for number, character in enumerate(text) for _ in character.lower()]
        text = lowered
    accents = options.get("strip_accents")
    if accents is None or text.isascii():
        return text, origin
    stripped = [_without_accents(character, accents) for character in text]
    origin = [number for number, kept in zip(origin, stripped, strict=True) for _ in kept]
    return "".join(stripped), origin


def _without_accents(character: str, how: str) -> str:
    parts = unicodedata.normalize("NFKD", character)
    return "".join(one for one in parts if (one.isascii() if how == "ascii" else not unicodedata.combining(one)))


def _single_spaces(text: str, origin: Sequence[int]) -> tuple[str, Sequence[int]]:
    """Replace runs of two and more white spaces by one space."""
    pieces: list[str] = []
    kept: list[int] = []
    end = 0
    for match in re.finditer(r"\s\s+", text):
        pieces += [text[end : match.start()], " "]
        kept += origin[end : match.start() + 1]
        end = match.end()
    return ("".join([*pieces, text[end:]]), [*kept, *origin[end:]]) if pieces else (text, origin)


def _tokens(text: str, origin: Sequence[int], options: Mapping[str, Any]) -> list[tuple[str, Place]]:
    """Find the tokens but stop words."""
    stop: Any = options.get("stop_words") or ()
    if stop == "english":
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        stop = ENGLISH_STOP_WORDS
    stop = frozenset(stop)
    pattern = re.compile(options.get("token_pattern", PATTERN))
    tokens = []
    for match in pattern.finditer(text):
        token = match[pattern.groups] or ""  # a group that took no part is an empty token
        if token in stop:
            continue
        a, b = match.span(pattern.groups) if token else (match.start(), match.start())
        start = origin[a] if a < len(origin) else len(origin) and origin[-1] + 1
        tokens.append((token, (start, origin[b - 1] + 1 if token else start)))
    return tokens


def _word_ngrams(tokens: list[tuple[str, Place]], least: int, most: int) -> Iterator[tuple[str, list[Place]]]:
    for n in range(least, most + 1):
        for a in range(len(tokens) - n + 1):
            some = tokens[a : a + n]
            yield " ".join(token for token, _ in some), [span for _, span in some]


def _padded_ngrams(word: str, origin: Sequence[int], least: int, most: int) -> Iterator[tuple[str, list[Place]]]:
    """Yield the n-grams of a word with a space before and after it; a word shorter than n has one."""
    padded = f" {word} "
    for n in range(least, most + 1):
        for a in range(max(len(padded) - n, 0) + 1):
            near = origin[max(a - 1, 0) : max(a + n - 1, 0)] or origin  # of a space alone: the word beside it
            yield padded[a : a + n], [(start, start + 1) for start in near]
        if n >= len(padded):
            return


def checked_tokenizer(options: Any) -> dict[str, Any]:
    """Check the options of `WordCounts` that a model stores; tuples become lists."""
    if not isinstance(options, Mapping):
        raise BagwiseError(f"tokenizer must be a mapping from options of WordCounts, got {type(options).__name__}.")
    checked = json_copy(dict(options), "tokenizer")
    for name, value in checked.items():
        if name not in _TOKENIZER:
            raise unknown_name("option of the tokenizer", name, _TOKENIZER)
        accepts, accepted = _TOKENIZER[name]
        if not accepts(value):
            raise BagwiseError(f"{name} of the tokenizer must be {accepted}; got {value!r:.100}.")
    return checked


def _is_pattern(value: Any) -> bool:
    if not isinstance(value, str) or len(value) > _LONGEST_PATTERN:
        return False
    try:
        return re.compile(value).groups <= 1
    except (re.error, RecursionError, OverflowError):
        return False


def _is_range(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(type(n) is int for n in value)
        and 1 <= value[0] <= value[1] <= _LONGEST_NGRAM
    )


def _are_stop_words(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= _MOST_STOP_WORDS and all(isinstance(word, str) for word in value)
    return value is None or value == "english"


_TOKENIZER = {
    "analyzer": (lambda value: value in ("word", "char", "char_wb"), "'word', 'char' or 'char_wb'"),
    "binary": (lambda value: isinstance(value, bool), "true or false"),
    "lowercase": (lambda value: isinstance(value, bool), "true or false"),
    "ngram_range": (_is_range, f"[least, most], from 1 to {_LONGEST_NGRAM}"),
    "stop_words": (_are_stop_words, f"null, 'english', or a list of up to {_MOST_STOP_WORDS} words"),
    "strip_accents": (lambda value: value in ("ascii", "unicode", None), "null, 'ascii' or 'unicode'"),
    "token_pattern": (_is_pattern, f"a regular expression with at most {_LONGEST_PATTERN} characters and one group"),
}
