"""Mutations of the bytes of files: blind ones, and ones that know the form and repair what would be refused at once.

The k-th input of a target is a function of the target's name and k, so that every input can be made again.
"""

import bz2
import gzip
import io
import json
import lzma
import random
import re
import zipfile

from changed_files import checksums

_BYTES = (0x00, 0x01, 0x7F, 0x80, 0xFF, 0x0A, 0x0D, 0x22, 0x2C, 0x2D, 0x30, 0x39, 0x3D, 0x5B, 0x7B)
_INTEGERS = (0, 1, -1, 2, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, -(2**31), -(2**63))
_NUMBERS = (
    *map(str, _INTEGERS),
    *(
        "1" + "0" * 400,
        "9" * 5000,
        "1e308",
        "1e400",
        "-1e400",
        "1e-320",
        "nan",
        "NaN",
        "inf",
        "-Infinity",
        "0x10",
        "1_000",
        "٣",
    ),
)
_LITERALS = ("1" + "0" * 400, "9" * 5000, "1e400", "-1e999", "NaN", "Infinity", "1e-400")
_TEXTS = ("", "\x00", "a" * 70_000, "\ud800", "‮", "../../etc/passwd", "=1+1", "é" * 300, "'\"\\", "\r\n", "None")
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_LITERAL = re.compile(r'"@@([^"@]*)@@"')
_LONGEST = 1 << 22  # bytes of an input


def mutated(form, corpus, seed):
    """Give the input of a number: one of the files of the corpus, changed in one to four ways.

    `form` is "bytes", "text", "json", "tensors", "zip", "gz", "bz2" or "xz"; `corpus` is a list of bytes.
    """
    rng = random.Random(seed)
    content = rng.choice(corpus)
    aware = _FORMS.get(form)
    for _ in range(rng.choice((1, 1, 2, 4))):
        if aware is not None and rng.random() < 0.7:
            content = aware(rng, content)
        else:
            content = rng.choice(_BLIND)(rng, content, corpus)
        if len(content) > _LONGEST:
            content = content[:_LONGEST]
    return content


def _place(rng, content):
    return rng.randrange(len(content) + 1)


def _flip(rng, content, corpus):
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 3, 16))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _overwrite(rng, content, corpus):
    changed = bytearray(content)
    if changed:
        changed[rng.randrange(len(changed))] = rng.choice(_BYTES)
    return bytes(changed)


def _write_integer(rng, content, corpus):
    width = rng.choice((2, 4, 8))
    at = _place(rng, content)
    value = rng.choice(_INTEGERS) % (1 << (8 * width))
    return content[:at] + value.to_bytes(width, rng.choice(("little", "big"))) + content[at + width :]


def _truncate(rng, content, corpus):
    return content[: _place(rng, content)]


def _span(rng, content):
    first = _place(rng, content)
    return first, min(first + rng.choice((1, 4, 16, 64, 1024)), len(content))


def _remove(rng, content, corpus):
    first, last = _span(rng, content)
    return content[:first] + content[last:]


def _repeat(rng, content, corpus):
    first, last = _span(rng, content)
    return content[:last] + content[first:last] * rng.choice((1, 2, 100)) + content[last:]


def _insert(rng, content, corpus):
    at = _place(rng, content)
    return content[:at] + rng.randbytes(rng.choice((1, 2, 8, 64))) + content[at:]


def _splice(rng, content, corpus):
    other = rng.choice(corpus)
    return content[: _place(rng, content)] + other[_place(rng, other) :]


def _replace_number(rng, content, corpus=()):
    """Replace a number that is written in the text by an extreme one."""
    found = list(_NUMBER.finditer(content[: 1 << 16]))
    if not found:
        return content
    one = rng.choice(found)
    return content[: one.start()] + rng.choice(_NUMBERS).encode() + content[one.end() :]


def _change_lines(rng, content, corpus=()):
    """Remove, repeat, exchange or empty a line."""
    lines = content.split(b"\n")
    first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
    action = rng.randrange(4)
    if action == 0:
        del lines[first]
    elif action == 1:
        lines[first:first] = [lines[second]] * rng.choice((1, 5, 500))
    elif action == 2:
        lines[first], lines[second] = lines[second], lines[first]
    else:
        lines[first] = b""
    return b"\n".join(lines)


def _put_text(rng, content, corpus=()):
    at = _place(rng, content)
    return content[:at] + rng.choice(_TEXTS).encode("utf-8", "surrogatepass") + content[at:]


_BLIND = (_flip, _overwrite, _write_integer, _truncate, _remove, _repeat, _insert, _splice, _replace_number)


def _text(rng, content):
    return rng.choice((_replace_number, _change_lines, _put_text))(rng, content)


def _any_json(rng):
    """Give a value that is rarely expected."""
    kind = rng.randrange(9)
    if kind < 3:
        return rng.choice(_INTEGERS)
    if kind == 3:
        return f"@@{rng.choice(_LITERALS)}@@"  # see `_write_json`
    if kind == 4:
        return rng.choice(_TEXTS)
    if kind == 5:
        return rng.choice((None, True, False, [], {}, [[]], [None], {"": None}))
    if kind == 6:
        return [rng.choice(_INTEGERS) for _ in range(rng.choice((1, 2, 50)))]
    if kind == 7:
        nested = []
        for _ in range(rng.choice((5, 900, 3000))):
            nested = [nested]
        return nested
    return {rng.choice(_TEXTS[:5]): rng.choice(_INTEGERS)}


def _change_json(rng, value, depth=0):
    """Change one place of a JSON value."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        action = rng.randrange(8)
        if action == 0:
            return {name: one for name, one in value.items() if name != key}
        if action == 1:
            return value | {rng.choice((*_TEXTS[:3], key + "x", "shape")): _any_json(rng)}
        if action == 2:
            return {(rng.choice(list(value)) + "_" if name == key else name): one for name, one in value.items()}
        return value | {key: _change_json(rng, value[key], depth + 1)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        action = rng.randrange(4)
        if action == 0:
            return value[:at] + value[at + 1 :]
        if action == 1:
            return value[:at] + [value[at]] * rng.choice((2, 40)) + value[at:]
        return [*value[:at], _change_json(rng, value[at], depth + 1), *value[at + 1 :]]
    if type(value) is int and rng.random() < 0.5:
        return value + rng.choice((-1, 1, 7, -value))
    if isinstance(value, str) and value and rng.random() < 0.3:
        return value[: rng.randrange(len(value))]
    return _any_json(rng)


def _write_json(value):
    """Write JSON; "@@1e400@@" stands for a number that Python would not write."""
    return _LITERAL.sub(r"\1", json.dumps(value))


def _json(rng, content):
    """Change a JSON file in one place."""
    try:
        return _write_json(_change_json(rng, json.loads(content))).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return _flip(rng, content, ())


_WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1}
_REALS = {
    8: (0x7FF8 << 48, 0x7FF0 << 48, 0xFFF0 << 48, 0x7FEFFFFFFFFFFFFF, 1, 0x8000 << 48),
    4: (0x7FC00000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 1, 0x80000000),
    2: (0x7E00, 0x7C00, 0xFC00, 0x7BFF, 1, 0x8000),
}


def _tensors(rng, content):
    """Change the header of a tensor file, or a number of a tensor, and keep the rest of its form."""
    length = int.from_bytes(content[:8], "little")
    try:
        entries = json.loads(content[8 : 8 + length])
        about = json.loads(entries["__metadata__"]["bagwise"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return _flip(rng, content, ())
    data = content[8 + length :]
    tensors = [(name, one) for name, one in entries.items() if name != "__metadata__" and isinstance(one, dict)]
    action = rng.randrange(5)
    if action < 2:
        about = _change_json(rng, about)
    elif action == 2 and tensors:
        name, one = rng.choice(tensors)
        entries[name] = _change_json(rng, one)
    elif tensors:
        data = _change_tensor(rng, data, rng.choice(tensors)[1])
    try:
        held = entries.pop("__metadata__")
        # mostly those of the new bytes: others would refuse the rest
        sums = checksums(entries, data) if rng.random() < 0.9 else {k: v for k, v in held.items() if k != "bagwise"}
        entries["__metadata__"] = {"bagwise": _write_json(about)} | sums
        header = _write_json(entries).encode("utf-8", "surrogatepass")
    except RecursionError:
        return content
    return len(header).to_bytes(8, "little") + header + data


def _change_tensor(rng, data, entry):
    """Write extreme numbers of the tensor's type into it, or exchange two of its numbers."""
    code, span = entry.get("dtype"), entry.get("data_offsets")
    width = _WIDTHS.get(code) if isinstance(code, str) else None
    if width is None or not isinstance(span, list) or len(span) != 2 or not all(type(n) is int for n in span):
        return data
    first, last = span
    n = (last - first) // width
    if n <= 0 or last > len(data):
        return data
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 10))):
        at = first + width * rng.randrange(n)
        if rng.random() < 0.3:
            other = first + width * rng.randrange(n)
            here, there = changed[at : at + width], changed[other : other + width]
            changed[at : at + width], changed[other : other + width] = there, here
            continue
        values = _REALS[width] if code.startswith("F") else _INTEGERS
        changed[at : at + width] = (rng.choice(values) % (1 << (8 * width))).to_bytes(width, "little")
    return bytes(changed)


def _zip(rng, content):
    """Change a member of a zip archive, its name or its place, and pack it again."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [(one.filename, archive.read(one)) for one in archive.infolist()[:50]]
    except Exception:
        return _flip(rng, content, ())
    if not members:
        return content
    at = rng.randrange(len(members))
    name, inside = members[at]
    action = rng.randrange(6)
    if action == 0:
        members[at] = (rng.choice((*_TEXTS[:2], "../" + name, "/" + name, name + "/", "a" * 300, "\\" + name)), inside)
    elif action == 1:
        del members[at]
    elif action == 2:
        members.append((members[rng.randrange(len(members))][0], inside))
    else:
        change = rng.choice((_text, lambda rng, inside: rng.choice(_BLIND)(rng, inside, [inside])))
        members[at] = (name, change(rng, inside))
    packed = io.BytesIO()
    try:
        with zipfile.ZipFile(packed, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
            for name, inside in members:
                info = zipfile.ZipInfo("x", (1980, 1, 1, 0, 0, 0))
                info.filename = name
                archive.writestr(info, inside)
    except Exception:  # a name that zipfile does not write
        return _flip(rng, content, ())
    return packed.getvalue()


def _packed(compress, decompress):
    """Change what a compressed file holds."""

    def change(rng, content):
        try:
            inside = decompress(content)[:_LONGEST]
        except Exception:
            return _flip(rng, content, ())
        return compress(rng.choice(_BLIND)(rng, inside, [inside]))

    return change


_FORMS = {
    "text": _text,
    "json": _json,
    "tensors": _tensors,
    "zip": _zip,
    "gz": _packed(lambda inside: gzip.compress(inside, mtime=0), gzip.decompress),
    "bz2": _packed(bz2.compress, bz2.decompress),
    "xz": _packed(lzma.compress, lzma.decompress),
}
