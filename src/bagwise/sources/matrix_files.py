"""Readers of files of matrices: NumPy, SciPy, Matrix Market, svmlight."""

from __future__ import annotations

import io
import math
import re
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp

from bagwise._utils.matrices import checked_csr
from bagwise._utils.memory import readable_size
from bagwise.errors import BagwiseError, in_python
from bagwise.sources.archives import list_archive
from bagwise.sources.columns import RawTable, Reading, optional_columns
from bagwise.sources.item_tables import from_bytes
from bagwise.sources.limits import Limits, check_size
from bagwise.sources.roles import Roles, assign_roles, shortened

__all__ = ["READERS", "as_csr", "check_shape", "strings_of"]

# Names of arrays by what they hold, in lower case.
_ARRAYS = {"X": ("x", "data"), "labels": ("y", "labels", "label", "target")}
_ARRAYS |= {name: (name,) for name in ("ids", "splits", "feature_names")}
_NPY_HEADERS: dict[tuple[int, ...], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# What the standard library raises for archives that are not what they should be.
_DAMAGES: tuple[type[Exception], ...] = (zipfile.BadZipFile, zlib.error, NotImplementedError, OverflowError, EOFError)
_DAMAGES += (ValueError, KeyError, TypeError, AttributeError, SyntaxError, tokenize.TokenError)
# Characters and rows that are looked at.
_HEAD, _SAMPLE = 1 << 16, 50
# Bytes that are read at a time; digits of a size.
_PART, _DIGITS = 1 << 24, 19
# Lines of Matrix Market files, by what the first line says of them; an empty line may be anywhere.
_WHOLE = rb"[+-]?\d{1,18}"
_REAL = rb"[+-]?(?:(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d{1,4})?|(?i:nan|inf|infinity))"
_VALUES = {"integer": _WHOLE, "unsigned-integer": rb"\d{1,18}", "real": _REAL, "double": _REAL}
_PLACE = rb"\d{1,18}[ \t]++\d{1,18}"
_ON_LINES = {("array", field): value for field, value in _VALUES.items()}
_ON_LINES |= {("coordinate", field): _PLACE + rb"[ \t]++" + value for field, value in _VALUES.items()}
_ON_LINES |= {("coordinate", "pattern"): _PLACE}
_MTX_LINES = {which: re.compile(rb"(?:[ \t]*+(?:" + one + rb"[ \t]*+)?+\r?\n)*+") for which, one in _ON_LINES.items()}
_UNUSUAL = re.compile(rb"\r|(?:^|\n)[ \t]*+\n")


def read_npz(path: str, reading: Reading) -> RawTable:
    """Read arrays saved by NumPy, or a sparse matrix saved by SciPy."""
    data, label = reading.data, reading.label
    try:
        _check_arrays(path, reading.limits)
        with np.load(path, allow_pickle=False) as arrays:
            names = list(arrays.files)
            is_sparse = "format" in names and "shape" in names and data is None
            splits = _npz_splits(names) if not is_sparse and data is None and label is None else []
            if splits:
                return _join([(split, _matrix(arrays[x], x), strings_of(arrays[y])) for split, x, y in splits])
            roles = _array_roles(names, data, label)
            x = roles["X"]
            if x is None and not is_sparse:
                raise BagwiseError(
                    f"none of its arrays is named X; there are {shortened(names)}. "
                    + in_python("Choose one by data=.", "Save the matrix under this name.")
                )
            others = {role: strings_of(arrays[name]) for role in _ARRAYS if role != "X" and (name := roles[role])}
            if is_sparse:
                check_shape(tuple(arrays["shape"].tolist()), reading.limits)
                return RawTable(as_csr(sp.load_npz(path)), **optional_columns(others))
            return RawTable(_matrix(arrays[x], str(x)), **optional_columns(others))
    except BagwiseError:
        raise
    except _DAMAGES as error:
        raise BagwiseError(f"it is damaged, or holds Python objects, which are never loaded: {error}") from error


def _array_roles(names: Sequence[str], data: str | None, label: str | None) -> Roles:
    """Find the arrays of the matrix, and of what is stored beside it."""
    try:
        return assign_roles(names, dict.fromkeys(_ARRAYS) | {"X": data, "labels": label}, usual=_ARRAYS)
    except BagwiseError as error:
        raise BagwiseError(f"{str(error).replace('no column', 'no array', 1)}.") from error


def _check_arrays(path: str, limits: Limits) -> None:
    """Check the arrays of a file, before one is read: no Python objects, and as many bytes as their shapes say."""
    members = list_archive(path, replace(limits, member_bytes=limits.total_bytes))
    total = sum(member.size for member in members.values())
    limits.check("table_bytes", total, f"its arrays have {readable_size(total)}")
    with zipfile.ZipFile(path) as archive:
        for name, member in members.items():
            with archive.open(name) as file:
                if file.read(6) != np.lib.format.MAGIC_PREFIX:
                    continue  # no array, and never taken for one
                version = tuple(file.read(2))
                if version not in _NPY_HEADERS:
                    raise BagwiseError(f"array {name!r} has named columns, or is of a format that is not known.")
                shape, _, dtype = _NPY_HEADERS[version](file)
                n_bytes = member.size - file.tell()
            if dtype.hasobject:
                raise BagwiseError(f"array {name!r} holds Python objects, which are never loaded.")
            if min(shape, default=1) < 0 or math.prod(shape) * dtype.itemsize != n_bytes:
                raise BagwiseError(f"it is damaged: array {name!r} claims {shape} of {dtype}, but has {n_bytes} bytes.")
            if dtype.kind in "US" and name.removesuffix(".npy").lower() in _ARRAYS["labels"]:
                width = dtype.itemsize // (4 if dtype.kind == "U" else 1)
                limits.check("label_length", width, f"array {name!r} has strings of {width:,} characters")


def check_shape(shape: Sequence[Any], limits: Limits) -> None:
    """Raise an error if a file claims more rows or columns than the limits allow."""
    if len(shape) != 2 or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise BagwiseError(f"it is damaged: it claims the shape {shape!r:.80}.")
    for name, size in zip(("rows", "columns"), shape, strict=True):
        limits.check(name, size, f"it claims {size:,} {name}")


def _npz_splits(names: Sequence[str]) -> list[tuple[str, str, str]]:
    """Find x_train, y_train, x_test, y_test."""
    by_lower = {name.lower(): name for name in names}
    splits = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
    arrays = [(split, by_lower.get(f"x_{name}"), by_lower.get(f"y_{name}")) for name, split in splits.items()]
    complete = [(split, x, y) for split, x, y in arrays if x and y]
    alone = [x for _, x, y in arrays if x and not y]
    if complete and alone:
        raise BagwiseError(f"array {alone[0]!r} has no labels beside it, such as 'y{alone[0][1:]}'. Add or remove it.")
    return complete


def _join(tables: list[tuple[str, Any, list[str]]]) -> RawTable:
    for split, X, labels in tables:
        if len(X) != len(labels) or X.shape[1] != tables[0][1].shape[1]:
            shapes = f"of shape {X.shape} and with {len(labels)} labels"
            raise BagwiseError(f"the arrays of the split {split!r}, {shapes}, do not fit the others.")
    return RawTable(
        np.concatenate([X for _, X, _ in tables]),
        [label for _, _, labels in tables for label in labels],
        [f"{split}:{row}" for split, X, _ in tables for row in range(len(X))],
        [split for split, X, _ in tables for _ in range(len(X))],
    )


def _matrix(array: Any, name: str) -> Any:
    if not isinstance(array, np.ndarray):
        raise BagwiseError(f"it is damaged: {name!r} is not an array.")
    if array.ndim < 2:
        raise BagwiseError(f"array {name!r} has shape {array.shape}; a table has a row per item.")
    return array.reshape(len(array), math.prod(array.shape[1:]))


def strings_of(values: Any) -> list[str]:
    """Write labels as strings: whole numbers without a point, bytes as UTF-8; NaN is an empty one."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise BagwiseError(f"labels have shape {array.shape}; expected one per row.")
    if array.dtype.kind == "f":
        return [
            "" if value != value else str(int(value)) if value.is_integer() else f"{value:.17g}"
            for value in array.tolist()
        ]
    if array.dtype.kind == "S":
        return [from_bytes(value) for value in array.tolist()]
    return [str(value) for value in array.tolist()]


def as_csr(matrix: Any) -> Any:
    """Return a sparse matrix as CSR, after checking that its indices are within its shape."""
    if matrix.format in ("csr", "csc"):
        n_major, n_minor = matrix.shape if matrix.format == "csr" else matrix.shape[::-1]
        try:
            checked_csr(matrix.data, matrix.indices, matrix.indptr, (n_major, n_minor), rising=False)
        except BagwiseError as error:
            raise BagwiseError(f"it is damaged: {error}") from error
    elif matrix.format != "coo":  # whose indices SciPy checks
        raise BagwiseError(f"its matrix is stored in the form {matrix.format!r}; save it as csr, csc or coo.")
    if matrix.dtype.kind not in "fiub":
        raise BagwiseError(f"its numbers are {matrix.dtype}; expected real numbers.")
    if matrix.dtype.kind == "f" and matrix.dtype.itemsize not in (4, 8):  # SciPy computes with these alone
        matrix = matrix.astype(np.float64)
    rows = sp.csr_array(matrix)
    rows.sum_duplicates()
    return rows


def read_mtx(path: str, reading: Reading) -> RawTable:
    """Read a Matrix Market file."""
    from scipy.io import mmread

    plain = _check_mtx(path, reading.limits)
    try:
        matrix = mmread(path if plain else _plain_mtx(path))
        return RawTable(as_csr(matrix) if sp.issparse(matrix) else np.asarray(matrix))
    except (ValueError, OverflowError, IndexError, TypeError) as error:
        raise BagwiseError(f"it is not a Matrix Market file, or damaged: {error}") from error


def _plain_mtx(path: str) -> BinaryIO:
    """Open a Matrix Market file without empty lines and with plain ends of lines, which SciPy does not always read."""
    with open(path, "rb") as file:
        lines = (line.strip() for line in file.read().splitlines())
        return io.BytesIO(b"".join(line + b"\n" for line in lines if line))


def _check_mtx(path: str, limits: Limits) -> bool:
    """Check a Matrix Market file to its last byte (SciPy may crash); whether all lines end in a feed, none empty."""
    check_size(path, limits)
    with open(path, "rb") as file:
        first = file.readline(_HEAD).decode("latin-1").lower().split()
        if len(first) != 5 or first[0] != "%%matrixmarket" or (first[2], first[3]) not in _MTX_LINES:
            raise BagwiseError(
                "it is not a Matrix Market file, or damaged: its first line does not say that it has real numbers."
            )
        line = b"%"
        while line.startswith(b"%") or line.isspace():
            line = file.readline(_HEAD)
        sizes, wanted = line.split(), 3 if first[2] == "coordinate" else 2
        if len(sizes) != wanted or not all(size.isdigit() and 0 < len(size) < _DIGITS for size in sizes):
            raise BagwiseError(f"it is damaged: its sizes are {line[:80]!r}; expected {wanted} whole numbers.")
        rows, columns, *n_stored = map(int, sizes)
        check_shape((rows, columns), limits)
        if not n_stored:
            limits.check("table_bytes", 8 * rows * columns, f"it claims {readable_size(8 * rows * columns)}")
        whole = first[4] == "general"  # of others only a triangle is stored
        n_stored = n_stored or [rows * columns if whole else rows * (rows - 1) // 2]
        n_lines, plain, pattern = 0, b"\r" not in line, _MTX_LINES[first[2], first[3]]
        while part := file.read(_PART) + file.readline(_HEAD):
            ended = part if part.endswith(b"\n") else part + b"\n"
            if not pattern.fullmatch(ended):
                raise BagwiseError("it is damaged: there is something else than numbers among its numbers.")
            n_lines += ended.count(b"\n")
            plain = plain and ended is part and _UNUSUAL.search(part) is None
        if not rows or not columns or n_lines < n_stored[0]:
            claimed = f"{rows} rows, {columns} columns and {n_stored[0]} numbers"
            raise BagwiseError(f"it is damaged: it claims {claimed}, but has {n_lines} lines of numbers.")
    return plain


def read_svmlight(path: str, reading: Reading) -> RawTable:
    """Read an svmlight file. Lines with several labels are refused by scikit-learn."""
    from sklearn.datasets import load_svmlight_file

    check_size(path, reading.limits)
    try:
        X, y = load_svmlight_file(path)
    except (ValueError, OverflowError) as error:
        raise BagwiseError(f"it is not an svmlight file, or damaged: {error}") from error
    return RawTable(as_csr(X), strings_of(y))


READERS: dict[str, Callable[[str, Reading], RawTable]] = {".npz": read_npz, ".mtx": read_mtx}
READERS |= dict.fromkeys((".svm", ".svmlight", ".libsvm"), read_svmlight)
