"""Encodings of texts: UTF-8 and what a byte-order mark says; what else is there is guessed, and told."""

from __future__ import annotations

import codecs
from collections import Counter

from bagwise._utils.extras import require
from bagwise.errors import BagwiseError, argument

__all__ = ["MARKS", "as_utf8", "check_encoding", "decode_text", "guess_encoding", "is_not_utf8", "undecodable"]

_MARKS = {  # UTF-32 first: its mark begins with that of UTF-16
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
MARKS = tuple(_MARKS)
# Encodings that texts have in practice; others fit short texts just as well.
_USUAL = ["cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "koi8_r", "shift_jis", "euc_jp"]
_USUAL += ["gb18030", "big5", "euc_kr"]
# Letters beyond ASCII of languages, by the encodings of texts in them: of equally good ones the first.
_CENTRAL = ["ąćęłńóśźż", "áäčďéěíĺľňóôŕřšťúůýž", "áéíóöőúüű", "čćđšž", "ăâîşţ"]
_ALPHABETS = {
    "cp1252": [
        "äöüß", "àâæçéèêëîïôœùûüÿ", "áéíñóúü¿¡", "ãáâàçéêíóôõú", "àèéìòóù", "æøåéóòô", "åäöé", "áðéíóúýþæö",
        "ëïéèöüáó", "àçèéíïòóúü",
    ],
    "cp1250": _CENTRAL, "iso8859_2": _CENTRAL, "cp1254": ["çğıiöşüâîû"],
    "cp1257": ["ąčęėįšųūž", "āčēģīķļņšūž", "äöõüšž"],
}  # fmt: skip
# Signs beyond ASCII that texts in any of these have, and the part of the others that must be letters of one language.
_SIGNS, _ENOUGH = frozenset("\u00a0\u00ad„“”‚‘’…–—«»€°§•·©®™"), 0.95
# Bytes that are looked at. Lines beyond ASCII in other encodings are hardly ever UTF-8 by chance.
_SAMPLE, _LEAST = 1 << 16, 0.9
_ASCII = bytes(range(128))


def guess_encoding(content: bytes, least: float = _LEAST) -> str | None:
    """Guess the encoding of a text that is not UTF-8, or of several, one a line.

    1. None unless at least a part `least` of the lines beyond ASCII is not UTF-8: otherwise it is damaged UTF-8.
    2. The encoding in which letters beyond ASCII are those of one language in Latin script, and fewer than others.
    3. What charset-normalizer says; but where cp1252, the most frequent one, fits, it is preferred. None if none fits.

    >>> guess_encoding("Das Gerät läuft".encode("latin-1")), guess_encoding("größer".encode())
    ('cp1252', None)
    >>> guess_encoding("Kupiłem książkę i już ją przeczytałem".encode("cp1250"))
    'cp1250'
    """
    lines = [line for line in content.splitlines() if not line.isascii()]
    wrong = [line for line in lines if is_not_utf8(line) and not _is_damaged_utf8(line)]
    if not wrong or len(wrong) < least * len(lines):
        return None
    sample = b"\n".join(wrong)[:_SAMPLE]
    by_letters = _by_letters(sample)
    if by_letters is not None:
        return by_letters
    normalizer = require("charset_normalizer", "app", "Guessing the encoding of texts")
    matches = normalizer.from_bytes(sample, cp_isolation=_USUAL)
    best = matches.best()
    if any("cp1252" in (match.encoding, *match.could_be_from_charset) for match in matches):
        return "cp1252"
    return None if best is None else str(best.encoding)


def _by_letters(content: bytes) -> str | None:
    """Return the encoding in which most characters beyond ASCII are letters of one language; None if there is none."""
    n_ascii = sum(map(bytes.isalpha, map(bytes, zip(content, strict=True))))
    best, most = None, _ENOUGH
    for encoding, alphabets in _ALPHABETS.items():
        text = content.decode(encoding, "replace").lower()
        counts = Counter(one for one in text if not one.isascii() and one not in _SIGNS)
        share = max(sum(counts[one] for one in letters) for letters in alphabets) / max(counts.total(), 1)
        if (share > most or (share == most and best is None)) and counts.total() <= n_ascii:
            best, most = encoding, share
    return best


def _is_damaged_utf8(line: bytes) -> bool:
    """Whether most bytes beyond ASCII are of characters of UTF-8; by chance, in Chinese and Korean, a third may be."""
    return 2 * len(line.decode(errors="ignore").encode().translate(None, _ASCII)) > len(line.translate(None, _ASCII))


def is_not_utf8(line: bytes) -> bool:
    """Whether bytes are no UTF-8."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return True
    return False


def check_encoding(encoding: str | None) -> None:
    """Check that Python knows an encoding."""
    try:
        codecs.lookup(encoding or "utf-8")
    except (LookupError, TypeError) as error:
        message = f"{argument('encoding', encoding)} is not known. Use a name such as 'latin-1' or 'cp1252'."
        raise BagwiseError(message) from error


def _unmarked(content: bytes, encoding: str | None) -> tuple[bytes, str | None]:
    """Return a text without its byte-order mark, and its encoding: the one that was named, or that of the mark."""
    mark = next((mark for mark in _MARKS if content.startswith(mark)), b"")
    if mark and (encoding is None or codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")):
        return content[len(mark) :], encoding or _MARKS[mark]
    return content, encoding


def decode_text(content: bytes, encoding: str | None) -> str:
    """Decode a text: by its byte-order mark or as UTF-8, unless another encoding is named. Never guesses."""
    text, known = (content, encoding) if encoding else _unmarked(content, None)
    try:
        return text.decode(known or "utf-8")
    except UnicodeDecodeError as error:
        byte = error.object[error.start : error.start + 1].hex()
        used = argument("encoding", encoding) if encoding else (known or "UTF-8").upper()
        raise BagwiseError(
            f"byte {len(content) - len(text) + error.start} (0x{byte}) is not {used}. "
            f"Pass the right {argument('encoding')}, such as 'cp1252', or 'latin-1', which takes any byte."
        ) from error


def _of_two_bytes(content: bytes) -> str | None:
    """Return the UTF-16 without a mark that a text is in: most of its characters have a zero byte first, or last."""
    zeros = [content[first:_SAMPLE:2].count(0) for first in (0, 1)]
    if 10 * max(zeros) <= 3 * min(len(content), _SAMPLE) or min(zeros) * 9 > max(zeros):
        return None
    return "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"


def as_utf8(content: bytes, encoding: str | None, what: str) -> tuple[bytes, str, tuple[str, ...]]:
    """Return a text in UTF-8 without a byte-order mark, the encoding it had, and a note if that was guessed.

    Bytes that the encoding does not have stay as they are: they are no UTF-8 either, see `undecodable`.
    """
    notes: tuple[str, ...] = ()
    content, encoding = _unmarked(content, encoding)
    guessed = None if encoding else _of_two_bytes(content) or (None if content.isascii() else guess_encoding(content))
    if guessed is not None:
        encoding = guessed
        notes = (f"{what} is not UTF-8 and was read as {encoding}, a guess; {argument('encoding')} chooses another.",)
    if encoding is None or codecs.lookup(encoding).name in ("utf-8", "utf-8-sig", "ascii"):
        return content, encoding or "UTF-8", notes
    try:
        text = content.decode(encoding, "surrogateescape")
        return text.removeprefix("\ufeff").encode("utf-8", "surrogateescape"), encoding, notes
    except UnicodeError as error:  # halves of pairs of surrogates, or a byte that ends a unit of two
        raise BagwiseError(f"it is not {argument('encoding', encoding)}: {error}. Pass the right one") from error


def undecodable(text: str, encoding: str) -> BagwiseError:
    """Build the error for a text that has bytes of no character, as surrogates (`surrogateescape`)."""
    byte = next(ord(one) - 0xDC00 for one in text if "\udc80" <= one <= "\udcff")
    return BagwiseError(
        f"its byte 0x{byte:02x} is not {encoding}. Pass the right {argument('encoding')}, such as 'cp1252', or "
        "'latin-1', which takes any byte"
    )
