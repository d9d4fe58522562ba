"""Write the tables of Unicode in ``bagwise.hpp``: letters, lower case, and what decides the form of a final sigma.

    python runtime/cpp/unicode_tables.py

replaces the lines between the two markers by tables of the running Python's Unicode, so that texts are split and
lowered as by `re` and `str.lower`. It changes nothing if the tables are current.
"""

import sys
import textwrap
import unicodedata
from pathlib import Path

HEADER = Path(__file__).with_name("bagwise.hpp")
BEGIN, END = "// -- tables of Unicode, by unicode_tables.py --", "// -- end of tables --"
MOST = (1 << 16) - 1
CHARACTERS = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]


def runs(accepted):
    """Return the lengths of runs of characters that are in a set or not, beginning with those that are not."""
    numbers, is_in, filled = [0], False, 0
    for code in sorted(map(ord, accepted)):
        if is_in and code == filled:
            numbers[-1] += 1
        else:
            numbers += [code - filled, 1] if is_in else [1]
            if not is_in:
                numbers[-2] = code
        is_in, filled = True, code + 1
    split = []
    for number in numbers:
        while number > MOST:  # 16 bits are enough for all but a few
            split += [MOST, 0]
            number -= MOST
        split.append(number)
    return split


def lower_runs():
    """Return runs of characters with as much between them and their lower case: first, last, step, difference."""
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
        (
            "std::uint16_t",
            "kLetters",
            "characters of words: str.isalnum() or _",
            runs(w for w in CHARACTERS if is_word(w)),
        ),
        ("std::uint16_t", "kSpaces", "str.isspace()", runs(c for c in CHARACTERS if c.isspace())),
        ("std::uint16_t", "kCased", "cased, and not ignorable", runs(cased)),
        ("std::uint16_t", "kIgnorable", "between a cased letter and a sigma", runs(ignorable)),
        ("std::int32_t", "kLower", "first, last, step, difference", [number for run in lower_runs() for number in run]),
    ]
    lines = [
        f"// Unicode {unicodedata.unidata_version}. Runs of characters that are not in the set, then in it, and so on."
    ]
    for kind, name, what, numbers in parts:
        lines.append(f"constexpr {kind} {name}[] = {{  // {what}")
        lines += textwrap.wrap(", ".join(map(str, numbers)), 120, initial_indent="    ", subsequent_indent="    ")
        lines.append("};")
    return "\n".join(lines)


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
