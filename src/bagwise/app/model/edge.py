"""Export models for devices: a C++ program with its model."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

import bagwise
from bagwise._io.atomic import check_folder, write_folder
from bagwise._utils.text import english_stop_words
from bagwise.app.modalities import MODALITIES
from bagwise.app.model.files import model_bytes
from bagwise.app.model.model import Model
from bagwise.errors import BagwiseError
from bagwise.runtime import PATTERN

__all__ = ["export_cpp", "for_devices"]

_DESCRIPTORS = ("DenseSIFT", "ColorSIFT", "ColorCells", "Patches")
_WORD = r"\\w\+|\\w\\w\+|\\w\{[1-9][0-9]?,\}"
_PATTERN = re.compile(rf"(?:\(\?u\))?(?:{_WORD}|\\b(?:{_WORD})\\b|\\S\+)")
_PATTERNS = r"\w+, \w\w+ and \w{n,}, also between \b and \b, and \S+"
_SOURCES = ("bagwise.hpp", "bagwise.h", "bagwise_c.cpp")
_MODEL, _ARRAY_NAME, _BYTES_PER_LINE = "model.bagwise", "model_data.h", 32


def for_devices(model: Model) -> Model:
    """Return the model as the C++ runtime reads it; raise an error that names what this does not support.

    The list of English stop words, which the name "english" stands for, becomes part of the model.
    """
    if MODALITIES[model.modality].device_feed(model) is None:
        raise _unsupported(f"its items are {model.modality}", "images, texts and tables")
    names = [one.name for one in model.descriptors]
    other = next((name for name in names if name not in _DESCRIPTORS), None)
    if other is not None:
        raise _unsupported(f"its descriptor is {other}", ", ".join(_DESCRIPTORS))
    if any(one.name != "hard" for one in model.assignment or ()):
        raise _unsupported("its descriptors are assigned to several words", "the nearest word, as for SIFT words")
    if model.codebooks and not names:
        raise _unsupported("it has no descriptor", ", ".join(_DESCRIPTORS))
    tokenizer = dict(model.tokenizer)
    for option, accepted in (("analyzer", ("word", "char")), ("strip_accents", (None,))):
        if tokenizer.get(option, accepted[0]) not in accepted:
            raise _unsupported(f"its tokenizer has {option} {tokenizer[option]!r}", ", ".join(map(repr, accepted)))
    pattern = tokenizer.get("token_pattern", PATTERN)
    if _PATTERN.fullmatch(pattern) is None:
        raise _unsupported(f"its tokenizer has token_pattern {pattern!r:.100}", _PATTERNS)
    if model.n_groups not in model.heads:
        raise BagwiseError(
            f"This model has no classifier for {model.n_groups} groups, so a device would have no classes to tell. "
            "Fit it to items with labels, or cut it where it has one."
        )
    if tokenizer.get("stop_words") != "english":
        return model
    return dataclasses.replace(model, tokenizer={**tokenizer, "stop_words": sorted(english_stop_words())})


def _unsupported(what: str, accepted: str) -> BagwiseError:
    return BagwiseError(
        f"The C++ runtime does not support this model: {what}; accepted: {accepted}. bagwise.runtime, which needs "
        "Python and NumPy, and ONNX (bagwise export --onnx) take it from descriptors or counts on, and network words "
        "from the image on."
    )


def export_cpp(model: Model, folder: str | os.PathLike[str], *, embed: bool = False, force: bool = False) -> Path:
    """Write a folder with a C++ program that classifies items by a model, complete but for a compiler.

    ``main.cpp`` reads images (PNM), texts (lines of UTF-8) or rows of a table (CSV), from files or standard input, and
    prints the best classes. With it come the header of the C++ runtime, the C interface, the model, ``CMakeLists.txt``
    and a ``README.md`` that says how to build it.

    Parameters
    ----------
    model : Model
        With a classifier for its number of groups; `Model.compact` and `Model.quantize` make it smaller.
    folder : path
        Made in one step, so that it is whole or not there.
    embed : bool, default=False
        Whether the model is an array of the program instead of a file beside it.
    force : bool, default=False
        Whether files may be replaced in a folder that is not empty; others in it are left alone. Only
        a model of an earlier export that would be taken instead, ``model_data.h``, is removed.

    Returns
    -------
    path : Path

    Raises
    ------
    BagwiseError
        If the C++ runtime does not support the model, or the folder is not empty; nothing is written then.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise import Hierarchy, Model
    >>> from bagwise.app.model import Head, export_cpp
    >>> head = Head([[1, -1], [-1, 1]], [0, 0])
    >>> table = {"modality": "table", "hierarchy": Hierarchy(2, [], []), "n_groups": 2}
    >>> model = Model(**table, classes=["a", "b"], heads={2: head})
    >>> with tempfile.TemporaryDirectory() as place:
    ...     sorted(path.name for path in export_cpp(model, f"{place}/edge").iterdir())
    ['CMakeLists.txt', 'README.md', 'bagwise.h', 'bagwise.hpp', 'bagwise_c.cpp', 'main.cpp', 'model.bagwise']
    """
    target = check_folder(folder, force)
    content, sources = model_bytes(for_devices(model)), _sources()
    files = {name: (sources / name).read_bytes() for name in _SOURCES}
    files |= {name: (sources / "example" / name).read_bytes() for name in ("main.cpp", "CMakeLists.txt")}
    files["README.md"] = _readme(model, len(content), embed).encode()
    files[_ARRAY_NAME if embed else _MODEL] = _array(content).encode() if embed else content
    written = write_folder(target, files)
    if not embed:
        (target / _ARRAY_NAME).unlink(missing_ok=True)  # of an earlier export: main.cpp would take it
    return written


def _sources() -> Path:
    """Return the folder of the sources of the C++ runtime: of the installed package, or of a checkout."""
    package = Path(bagwise.__file__).parent
    places = [package / "native" / "cpp", package.parents[1] / "runtime" / "cpp"]
    for folder in places:
        if folder.is_dir():
            return folder
    raise BagwiseError(
        f"The sources of the C++ runtime are in neither of {', '.join(map(str, places))}: this installation of bagwise "
        "is incomplete. Install it again."
    )


def _array(content: bytes) -> str:
    """Return a header that has the bytes of a model as an array."""
    lines = (content[start : start + _BYTES_PER_LINE] for start in range(0, len(content), _BYTES_PER_LINE))
    rows = ",\n".join(",".join(map(str, line)) for line in lines)
    return f"// The model, as an array.\nalignas(16) static const unsigned char model_data[] = {{\n{rows}}};\n"


def _readme(model: Model, n_bytes: int, embed: bool) -> str:
    """Say what is in the folder, and how to build and use it."""
    read, call, more = MODALITIES[model.modality].device_feed(model) or ("", "", "")
    some = ", ".join(model.classes[:20]) + (", …" if len(model.classes) > 20 else "")
    numbers = "8-bit integers" if model.quantized else "float32"
    where = f"`{_ARRAY_NAME}` (an array of the program)" if embed else f"`{_MODEL}`"
    lines = [
        "# Classify",
        f"A C++17 program without dependencies. It reads {read}, and prints the best of {len(model.classes)} classes: "
        f"{_plain(some)}.",
        f"Model: {where}, {n_bytes:,} bytes; {model.hierarchy.n_words:,} words in {model.n_groups} groups; words and "
        f"weights are {numbers}.",
        "## Build",
        "    cmake -B build && cmake --build build",
        "or, without CMake:",
        "    mkdir -p build && c++ -std=c++17 -O3 -march=native -pthread main.cpp -o build/classify"
        + ("" if embed else f" && cp {_MODEL} build/"),
        "`-march=native` uses what this processor has; for programs that run on others leave it out, or give CMake "
        "`-DBAGWISE_NATIVE=OFF`. `strip build/classify` makes it smaller.",
        "## Use",
        f"    {call}",
        "Each item gets a line: its name, then classes and scores, separated by tabs. `build/classify --help` lists "
        f"the options; `--time 20` measures. {more}",
        "In a program of your own, `main.cpp` shows the calls: `bagwise::Model::load`, then `bagwise::Workspace` for "
        "each thread. For other languages than C++, `bagwise.h` is a C interface: compile `bagwise_c.cpp` "
        "(`-DBAGWISE_SHARED=ON` of CMake makes a shared library).",
        f"Written by bagwise {bagwise.__version__}.",
    ]
    return "\n\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Return a text on one line without marks of Markdown."""
    return re.sub(r"[\\`*_\[\]<>|#]", " ", " ".join(text.encode("utf-8", "replace").decode().split()))
