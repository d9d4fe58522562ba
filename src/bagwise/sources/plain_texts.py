"""Texts that are recognised by their content: files without an ending, such as messages named by numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from bagwise.errors import BagwiseError
from bagwise.sources.items import Content
from bagwise.sources.places import ending

__all__ = ["TEXT_ENDINGS", "choose_texts", "is_text", "likely_texts", "look_like_texts"]

TEXT_ENDINGS = frozenset([".txt", ".text"])
# What follows the last point of a message's name, as in 1234, 00001.7c53336b37003a92, post.1234: no ending.
_NUMBER = re.compile(r"\.(\d+|[0-9a-f]{5,})")
_NUMBERED = re.compile(rf"(.*/)?(\d+|[^/]*{_NUMBER.pattern})")
# Files and bytes that are looked at, and how many files of a sample must be texts.
_SAMPLE, _HEAD, _LEAST = 50, 4096, 0.9
# Characters that texts have, of those that are not printed; at most this many of others.
_USUAL_CONTROLS = frozenset(b"\t\n\r\f\b\x1b\x1a")
_MOST_CONTROLS = 0.01


def choose_texts(contents: Mapping[str, Content]) -> list[str]:
    """Return the names of the files that are texts: by their endings, or, if none has one, see `likely_texts`."""
    likely = likely_texts(contents)
    if likely is None:
        return [name for name in contents if ending(name) in TEXT_ENDINGS]
    return [name for name in likely if is_text(contents[name])]


def likely_texts(contents: Mapping[str, Content]) -> list[str] | None:
    """Return the names of the files that may be texts by their content; None if endings say which files are texts.

    1. Candidates are files without an ending, or with a number in its place, if they are not fewer than others, and a
       single file in any case. If they lie in folders, others in the outermost one, such as a README, are none. If nine
       in ten are named by numbers, others are none.
    2. They must look like texts, see `look_like_texts`.
    """
    ends = {name: ending(name) for name in contents}
    usual = [name for name in contents if ends[name] in TEXT_ENDINGS]
    bare = [name for name in contents if not ends[name] or _NUMBER.fullmatch(ends[name])]
    if len(contents) == 1 and not usual:
        bare = list(contents)
    inside = [name for name in bare if "/" in name]
    if not bare or 2 * len(bare) < len(contents) or any("/" in name for name in usual) or (usual and not inside):
        return None
    bare = inside or bare
    numbered = [name for name in bare if _NUMBERED.fullmatch(name.lower())]
    if len(numbered) >= _LEAST * len(bare):
        bare = numbered
    return bare if look_like_texts(contents, bare) else None


def look_like_texts(contents: Mapping[str, Content], names: Sequence[str]) -> bool:
    """Whether nine in ten of a sample of files are texts, see `is_text`, and not all of them are empty."""
    sample = names[:: -(-len(names) // _SAMPLE)] if names else []
    heads = [_head(contents[name]) for name in sample]
    return any(heads) and sum(map(_like_text, heads)) >= _LEAST * len(heads)


def is_text(content: Content) -> bool:
    """Whether a file begins like a text in UTF-8, latin-1 or the like: no zeros, hardly other control characters."""
    return _like_text(_head(content))


def _like_text(head: bytes) -> bool:
    controls = sum(byte < 32 and byte not in _USUAL_CONTROLS for byte in head)
    return 0 not in head and controls <= _MOST_CONTROLS * len(head)


def _head(content: Content) -> bytes:
    try:
        with content.open() as file:
            return file.read(_HEAD)
    except (BagwiseError, OSError):
        return b""  # told, or raised, when it is read
