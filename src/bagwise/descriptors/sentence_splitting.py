"""Where sentences end: rules, no models."""

from __future__ import annotations

import re

from bagwise.descriptors.texts import as_text

__all__ = ["split_sentences"]

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
    >>> from bagwise.descriptors.sentence_splitting import split_sentences
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
