"""Where the words of a text are: the analyzers of scikit-learn's `CountVectorizer`, with places in the text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bagwise.runtime import PATTERN

__all__ = ["located_words"]

Place = tuple[int, int]


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
        One for each token of an n-gram, which need not be beside each other where stop words were left out. One range
        for n-grams of characters.

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
        for n in range(least, min(most, len(prepared)) + 1):
            for a in range(len(prepared) - n + 1):
                yield prepared[a : a + n], [(origin[a], origin[a + n - 1] + 1)]
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
            yield " ".join(token for token, _ in some), [place for _, place in some]


def _padded_ngrams(word: str, origin: Sequence[int], least: int, most: int) -> Iterator[tuple[str, list[Place]]]:
    """Yield the n-grams of a word with a space before and after it; a word shorter than n has one."""
    padded = f" {word} "
    for n in range(least, most + 1):
        for a in range(max(len(padded) - n, 0) + 1):
            own = origin[max(a - 1, 0) : max(a + n - 1, 0)] or origin  # of a space alone: the word beside it
            yield padded[a : a + n], [(own[0], own[-1] + 1)]
        if n >= len(padded):
            return
