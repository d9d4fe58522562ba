"""Write the tables of Unicode in ``bagwise.hpp``: letters, lower case, and what decides the form of a final sigma.

    python runtime/cpp/unicode_tables.py

replaces the lines between the two markers by tables of the running Python's Unicode, so that texts are split and
lowered as by `re` and `str.lower`. It changes nothing if the tables are current.
"""

import itertools
import sys
import textwrap
import unicodedata
from pathlib import Path

HEADER = Path(__file__).with_name("bagwise.hpp")
BEGIN, END = "// -- tables of Unicode, by unicode_tables.py --", "// -- end of tables --"
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+-"
BASE = 32
CHARACTERS = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]


def runs(accepted):
    """Return the lengths of runs of characters that are not in a set, or in it, by turns."""
    borders, end = [], -1
    for code in sorted(map(ord, accepted)):
        if code != end:
            borders += [end, code]
        end = code + 1
    borders = [0, *borders[1:], end]
    return [b - a for a, b in itertools.pairwise(borders)]


def lower_runs():
    """Return runs of characters that are as far from their lower case: first, last, step, difference."""
    pairs = [(ord(c), ord(c.lower()) - ord(c)) for c in CHARACTERS if len(c.lower()) == 1 and c.lower() != c]
    found = []
    for code, difference in pairs:
        if found and found[-1][3] == difference:
            first, last, step, _ = found[-1]
            if code - last == step or (first == last and code - last in (1, 2)):
                found[-1] = [first, code, code - last, difference]
                continue
        found.append([code, code, 1, difference])
    return found


def differences(found):
    """Return runs of `lower_runs` as small numbers; signs are the last bit of differences."""
    numbers, end = [], 0
    for first, last, step, difference in found:
        numbers += [first - end, last - first, step, 2 * abs(difference) + (difference < 0)]
        end = last
    return numbers


def packed(numbers):
    """Return numbers as digits in base 32, of which the last of each is in the second half of the alphabet."""
    text = ""
    for number in numbers:
        digits = ALPHABET[BASE + number % BASE]
        while number := number // BASE:
            digits = ALPHABET[number % BASE] + digits
        text += digits
    return text


def is_sigma_final(before):
    """Whether a sigma behind a text is one at the end of a word."""
    return f"{before}\N{GREEK CAPITAL LETTER SIGMA}".lower().endswith("\N{GREEK SMALL LETTER FINAL SIGMA}")


def tables():
    """Return the tables as C++."""
    longer = [c for c in CHARACTERS if len(c.lower()) > 1]
    assert longer == ["\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}"], longer  # has a branch of its own in the header
    cased = [c for c in CHARACTERS if is_sigma_final(f"1{c}")]
    ignorable = [c for c in CHARACTERS if is_sigma_final(f"A{c}") and not is_sigma_final(f"1{c}")]
    parts = [
        ("kLetters", "characters of words: str.isalnum() or _", runs(c for c in CHARACTERS if is_word(c))),
        ("kSpaces", "str.isspace()", runs(c for c in CHARACTERS if c.isspace())),
        ("kCased", "cased, and not ignorable", runs(cased)),
        ("kIgnorable", "between a cased letter and a sigma", runs(ignorable)),
        ("kLower", "first, last, step, difference of their lower case", differences(lower_runs())),
    ]
    lines = [f"// Unicode {unicodedata.unidata_version}: lengths of runs of characters outside and inside a set."]
    for name, what, numbers in parts:
        lines.append(f"constexpr char {name}[] =  // {what}")
        lines += [f'    "{line}"' for line in textwrap.wrap(packed(numbers), 114)]
        lines[-1] += ";"
    return "\n".join(["// clang-format off", *lines, "// clang-format on"])


def is_word(character):
    r"""Whether a character matches ``\w``."""
    return character.isalnum() or character == "_"


def with_tables(source):
    """Return the source of the header with current tables."""
    before, rest = source.split(BEGIN)
    return f"{before}{BEGIN}\n{tables()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    source = HEADER.read_text(encoding="utf-8")
    current = with_tables(source)
    if current != source:
        HEADER.write_text(current, encoding="utf-8")
    print("The tables are current." if current == source else f"{HEADER.name} has new tables.")
