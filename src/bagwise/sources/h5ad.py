"""Files of AnnData, ``.h5ad``: counts of genes in cells, read within limits by h5py, in a guarded process.

The library behind h5py may end the process, or not end, on a file that is damaged; see `guarded`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from bagwise._utils.extras import require
from bagwise._utils.matrices import checked_csr
from bagwise._utils.memory import readable_size
from bagwise.errors import BagwiseError, argument
from bagwise.sources.columns import RawTable, Reading, obs_roles, optional_columns
from bagwise.sources.contents import FileContent
from bagwise.sources.guarded import Send, read_guarded
from bagwise.sources.limits import Limits
from bagwise.sources.matrix_files import as_csr, check_shape, strings_of
from bagwise.sources.roles import few_values, likely_note, shortened, taken_note

__all__ = ["different_names", "label_notes", "obs_columns", "read_h5ad"]

_DAMAGES: tuple[type[Exception], ...] = (
    OSError,
    KeyError,
    ValueError,
    TypeError,
    RuntimeError,
    OverflowError,
    AttributeError,
    IndexError,
)
_DAMAGES += (MemoryError,)
_SPARSE = ("csr_matrix", "csc_matrix")
# Arrays of a sparse matrix, and the types of their numbers.
_PARTS = {"data": "fiub", "indices": "i", "indptr": "i"}
# Bytes of an array, and strings, that are read and sent at a time.
_PIECE, _STRINGS = 1 << 24, 1 << 14
_OWN_BYTES = 1 << 31  # memory of libraries, much of which is never used
_UNLIMITED = 1 << 40
_STRING_BYTES = 1 << 30  # memory of strings where nothing limits it


def read_h5ad(path: str, reading: Reading) -> RawTable:
    """Read the matrix or a layer, a column of `obs` as labels, and the names of cells and genes.

    Links to other files, and data that are stored in other files, are refused.
    """
    received = _Received()
    for header, payload in _messages("table", path, reading):
        received.take(header, payload)
    return received.table()


def obs_columns(path: str, limits: Limits) -> list[str]:
    """Return the names of the columns of `obs`."""
    return [name for header, _ in _messages("columns", path, Reading(limits=limits)) for name in header["columns"]]


def label_notes(columns: Mapping[str, int], n_rows: int, label: str | None) -> list[str]:
    """Say which columns of `obs` may hold the labels, by their numbers of values, if none was chosen."""
    likely = [name for name, n_values in columns.items() if few_values(n_values, n_rows)]
    return likely_note(likely if label is None else [], where="column of obs")


def different_names(names: Sequence[str]) -> list[str]:
    """Append -1, -2, … to names that are there already, as `AnnData.var_names_make_unique` does.

    >>> different_names(["A", "B", "A"])
    ['A', 'B', 'A-1']
    """
    taken, seen, counts = set(names), set(), dict.fromkeys(names, 0)
    unique = []
    for name in names:
        new = name
        while new in seen or (new != name and new in taken):
            counts[name] += 1
            new = f"{name}-{counts[name]}"
        seen.add(new)
        unique.append(new)
    return unique


class _Received:
    """What the other process sent of a file."""

    def __init__(self) -> None:
        self._arrays: dict[str, Any] = {}
        self._filled: dict[str, int] = {}
        self._strings: dict[str, list[str]] = {}
        self._about: dict[str, Any] = {}

    def take(self, header: dict[str, Any], payload: Any) -> None:
        """Add an array, a piece of one, strings, or what is known of the matrix."""
        if "array" in header:
            name, dtype = header["array"], np.dtype(header["dtype"])
            self._arrays[name], self._filled[name] = np.empty(header["shape"], dtype), 0
        elif "piece" in header:
            values = self._arrays[header["piece"]].reshape(-1)
            piece = np.frombuffer(payload, values.dtype)
            start = self._filled[header["piece"]]
            values[start : start + len(piece)] = piece
            self._filled[header["piece"]] += len(piece)
        elif "strings" in header:
            self._strings.setdefault(header["strings"], []).extend(header["values"])
        else:
            self._about |= header

    def table(self) -> RawTable:
        """Put the table together, after checking it."""
        n, d = self._about["shape"]
        if self._about["kind"] == "array":
            X = self._arrays["X"]
        else:
            by_row = self._about["kind"] == "csr_matrix"
            data, indices, indptr = (self._arrays[name] for name in _PARTS)
            try:
                X = checked_csr(data, indices, indptr, (n, d) if by_row else (d, n), rising=False)
            except BagwiseError as error:
                raise BagwiseError(f"it is damaged: {error}") from error
            X = as_csr(X if by_row else X.T)
        names, ids = self._strings.pop("names"), self._strings.pop("index")
        if len(set(ids)) == len(ids):
            self._strings.setdefault("ids", ids)
        others = optional_columns(self._strings)
        return RawTable(X, **others, feature_names=different_names(names), notes=tuple(self._about["notes"]))


def _messages(task: str, path: str, reading: Reading) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield what a guarded process reads of a file: each message has a header, and perhaps bytes."""
    request = {name: getattr(reading, name) for name in ("label", "id", "split", "layer")}
    most = reading.limits.most("table_bytes")
    return read_guarded(
        "bagwise.sources.h5ad:send_file",
        FileContent(path),
        request | {"task": task},
        reading.limits,
        library="the HDF5 library",
        packages=("h5py",),
        memory=_OWN_BYTES + (_UNLIMITED if most is None else int(most)),
        many=True,
    )


def send_file(file: BinaryIO, request: Mapping[str, Any], limits: Limits, send: Send) -> None:
    """Read a file by h5py and send its parts; see `_Received.take`."""
    h5py = require("h5py", "anndata", "Reading .h5ad files")
    reading = Reading(limits=limits, **{name: request[name] for name in ("label", "id", "split", "layer")})
    n_bytes = file.seek(0, 2)
    try:
        with h5py.File(file, "r") as opened:
            read = _File(h5py, opened, n_bytes, limits, send)
            read.send_columns() if request["task"] == "columns" else read.send_table(reading)
    except BagwiseError:
        raise
    except _DAMAGES as error:
        raise BagwiseError(f"it is not an .h5ad file, or damaged: {str(error)[:300]}") from error


class _File:
    """An open file, of which parts are sent that are within the limits."""

    def __init__(self, h5py: Any, file: Any, n_bytes: int, limits: Limits, send: Send) -> None:
        self._h5py, self._file, self._n_bytes, self._limits, self._send = h5py, file, n_bytes, limits, send
        self._read = 0

    def send_columns(self) -> None:
        """Send the names of the columns of `obs`."""
        self._send({"columns": self._columns(self._group("obs"))}, b"")

    def send_table(self, reading: Reading) -> None:
        """Send the matrix, names, labels and notes."""
        layer = reading.layer
        place = "X" if layer is None else "raw/X" if layer == "raw" else f"layers/{layer}"
        layers = [] if "layers" not in self._file else list(self._group("layers"))
        if "raw" in self._file:
            layers.append("raw")
        if layer is not None and layer not in layers:
            raise BagwiseError(f"there is no layer {layer!r}; there are {shortened(layers) or 'none'}.")
        if place not in self._file:
            which = f" Choose a layer by {argument('layer')}: {shortened(layers)}." if layers else ""
            raise BagwiseError(f"it has no matrix X.{which}")
        obs, var = self._group("obs"), self._group("raw/var" if layer == "raw" else "var")
        columns = self._columns(obs)

        roles = obs_roles(columns, reading)
        label = roles["label"]
        chosen = {"labels": label, "splits": roles["split"], "ids": roles["id"]}
        n_rows = self._send_strings("index", obs, self._index_of(obs))
        n_columns = self._send_strings("names", var, self._index_of(var))
        for what, name in chosen.items():
            if name is not None and self._send_strings(what, obs, name) != n_rows:
                raise BagwiseError(f"it is damaged: column {name!r} of obs has not {n_rows} rows.")
        kind = self._send_matrix(place, (n_rows, n_columns))
        notes = taken_note(label, columns, reading.label)
        notes += label_notes(self._categories(obs, columns), n_rows, label)
        if layer is None and layers:
            notes.append(f"The matrix X is read; there are layers {shortened(layers)}, chosen by {argument('layer')}.")
        self._send({"kind": kind, "shape": (n_rows, n_columns), "notes": notes}, b"")

    def _columns(self, obs: Any) -> list[str]:
        return [name for name in obs if name not in ("__categories", self._index_of(obs))]

    def _at(self, parent: Any, name: str) -> Any:
        """Return what has a name, if nothing on the way is a link to another place."""
        found = parent
        for part in name.split("/"):
            kind = found.get(part, getlink=True)
            if not isinstance(kind, self._h5py.HardLink):
                raise BagwiseError(f"{name!r} is missing, or a link, which is not followed.")
            found = found[part]
        return found

    def _group(self, name: str) -> Any:
        found = self._at(self._file, name)
        if not isinstance(found, self._h5py.Group):
            old = " Files of anndata before 0.7 are not read: open it by anndata, and write it again."
            raise BagwiseError(f"{name!r} is not a group.{old if name in ('obs', 'var') else ''}")
        return found

    def _dataset(self, parent: Any, name: str, kinds: str, n_dimensions: int = 1) -> Any:
        """Return an array that is not read yet, of a size within the limits."""
        found = self._at(parent, name)
        if not isinstance(found, self._h5py.Dataset) or found.shape is None or len(found.shape) != n_dimensions:
            raise BagwiseError(f"{name!r} is not an array of {n_dimensions} dimension{'s' * (n_dimensions > 1)}.")
        if found.external or found.is_virtual:
            raise BagwiseError(f"{name!r} is stored in other files, which are not read.")
        if found.dtype.kind not in kinds:
            raise BagwiseError(f"{name!r} is of the type {found.dtype}, which is not expected.")
        # a chunk is decompressed as a whole
        sizes = [math.prod(shape) * found.dtype.itemsize for shape in (found.shape, found.chunks or (0,))]
        for size in sizes:
            self._limits.check("table_bytes", self._read + size, f"{name!r} claims {readable_size(size)}")
        self._read += sizes[0]
        return found

    def _pieces(self, dataset: Any) -> Iterator[Any]:
        """Read an array piece by piece, whole chunks each."""
        row_bytes = max(1, math.prod(dataset.shape[1:]) * dataset.dtype.itemsize)
        step = max(1, _PIECE // row_bytes)
        if dataset.chunks is not None:
            step = -(-step // dataset.chunks[0]) * dataset.chunks[0]
        for start in range(0, dataset.shape[0], step):
            piece = dataset[start : start + step]
            yield np.ascontiguousarray(piece, piece.dtype.newbyteorder("="))

    def _send_array(self, name: str, dataset: Any) -> None:
        self._send({"array": name, "dtype": dataset.dtype.newbyteorder("=").str, "shape": dataset.shape}, b"")
        for piece in self._pieces(dataset):
            self._send({"piece": name}, memoryview(piece).cast("B") if piece.size else b"")

    def _send_matrix(self, place: str, shape: tuple[int, int]) -> str:
        found = self._at(self._file, place)
        if isinstance(found, self._h5py.Dataset):
            kind, stored = "array", tuple(found.shape or ())
        else:
            attributes = found.attrs
            kind = _text(attributes.get("encoding-type", attributes.get("h5sparse_format", "")))
            kind = f"{kind}_matrix" if kind in ("csr", "csc") else kind
            if kind not in _SPARSE:
                raise BagwiseError(f"{place!r} is of the kind {kind!r}; expected an array, or a CSR or CSC matrix.")
            claimed = np.asarray(attributes.get("shape", attributes.get("h5sparse_shape", ())))
            stored = tuple(int(size) for size in claimed.ravel()[:3].tolist())
        check_shape(stored, self._limits)
        if stored != shape:
            raise BagwiseError(f"it is damaged: {place!r} has the shape {stored}, but obs and var have {shape}.")
        if kind == "array":
            self._send_array("X", self._dataset(self._file, place, "fiub", 2))
        else:
            for name, kinds in _PARTS.items():
                self._send_array(name, self._dataset(found, name, kinds))
        return kind

    def _index_of(self, frame: Any) -> str:
        return _text(frame.attrs.get("_index", "_index"))

    def _categories(self, obs: Any, columns: Sequence[str]) -> dict[str, int]:
        """Return the number of values of each column that has categories."""
        found = {}
        for name in columns:
            group = self._at(obs, name)
            if isinstance(group, self._h5py.Group) and "categories" in group:
                found[name] = math.prod(getattr(self._at(group, "categories"), "shape", None) or (0,))
        return found

    def _send_strings(self, what: str, frame: Any, name: str) -> int:
        """Send a column, or the names of rows, as strings; returns their number."""
        n_sent = 0
        for some in self._strings(frame, name):
            self._send({"strings": what, "values": some}, b"")
            n_sent += len(some)
        return n_sent

    def _strings(self, frame: Any, name: str) -> Iterator[list[str]]:
        """Read a column as strings, piece by piece; what is missing is an empty one."""
        found = self._at(frame, name)
        if isinstance(found, self._h5py.Group):
            if "categories" in found:
                yield from self._coded(found, "categories", self._dataset(found, "codes", "iu"))
            elif "values" in found and "mask" in found:  # nullable
                masks = self._pieces(self._dataset(found, "mask", "b"))
                mask = [missing for piece in masks for missing in piece.tolist()]
                values = [value for some in self._strings(found, "values") for value in some]
                if len(values) != len(mask):
                    raise BagwiseError(f"it is damaged: {name!r} has {len(values)} values and {len(mask)} marks.")
                yield ["" if missing else value for value, missing in zip(values, mask, strict=True)]
            else:
                raise BagwiseError(f"column {name!r} is of a kind that is not read.")
            return
        if "__categories" in frame and name in self._at(frame, "__categories"):  # anndata 0.7
            yield from self._coded(self._at(frame, "__categories"), name, self._dataset(frame, name, "iu"))
            return
        stored = self._dataset(frame, name, "fiubOS")
        self._limits.check("rows", stored.shape[0], f"{name!r} claims {stored.shape[0]:,} rows")
        if stored.dtype.kind in "fiub":
            yield from map(strings_of, self._pieces(stored))
            return
        if self._h5py.check_string_dtype(stored.dtype) is None:
            raise BagwiseError(f"{name!r} is of the type {stored.dtype}; expected strings or numbers.")
        # each string may be as long as the file, and all of them the same bytes
        most = self._limits.most("table_bytes") or _STRING_BYTES
        step = int(min(max(most // max(self._n_bytes, 1), 1), _STRINGS))
        for start in range(0, stored.shape[0], step):
            some = stored.asstr("utf-8", "replace")[start : start + step].tolist()
            self._read += sum(map(len, some))
            self._limits.check("table_bytes", self._read, f"{name!r} takes {readable_size(self._read)} or more")
            yield some

    def _coded(self, group: Any, categories: str, codes: Any) -> Iterator[list[str]]:
        known = [value for some in self._strings(group, categories) for value in some]
        named = [*known, ""]  # the code -1 is missing
        for piece in self._pieces(codes):
            if piece.size and (int(piece.max()) >= len(known) or int(piece.min()) < -1):
                raise BagwiseError(f"it is damaged: there are codes beyond the {len(known)} categories.")
            yield [named[code] for code in piece.tolist()]


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
