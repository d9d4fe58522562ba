"""Files of AnnData, ``.h5ad``: counts of genes in cells, read within limits by h5py, in a guarded process.

The library behind h5py may end the process, or not end, on a file that is damaged; see `guarded`. (anndata takes
longer to import there than most files to read, follows links, and reads strings and arrays without limits.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.extras import require
from bagwise._utils.matrices import checked_csr
from bagwise._utils.memory import readable_size
from bagwise.errors import BagwiseError, argument
from bagwise.sources.columns import RawTable, Reading, obs_roles, optional_columns
from bagwise.sources.contents import FileContent
from bagwise.sources.guarded import call_guarded
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
_STRINGS = 1 << 14  # that are read at a time
_OWN_BYTES = 1 << 31  # memory of libraries, much of which is never used
_UNLIMITED = 1 << 40
_STRING_BYTES = 1 << 30  # memory of strings where nothing limits it


def read_h5ad(path: str, reading: Reading) -> RawTable:
    """Read the matrix or a layer, columns of `obs`, and names; links to other files and data in them are refused."""
    chosen = {name: getattr(reading, name) for name in ("label", "id", "split", "layer")}
    return _table(_call("read_parts", path, reading.limits, **chosen))


def obs_columns(path: str, limits: Limits) -> list[str]:
    """Return the names of the columns of `obs`."""
    return list(_call("read_columns", path, limits)["columns"])


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


def _table(parts: dict[str, Any]) -> RawTable:
    """Put the table together, after checking what the other process read."""
    n, d = parts["shape"]
    if parts["kind"] == "array":
        X = parts["X"]
    else:
        by_row = parts["kind"] == "csr_matrix"
        data, indices, indptr = (parts[name] for name in _PARTS)
        try:
            X = checked_csr(data, indices, indptr, (n, d) if by_row else (d, n), rising=False)
        except BagwiseError as error:
            raise BagwiseError(f"it is damaged: {error}") from error
        X = as_csr(X if by_row else X.T)
    names, index = _split(parts["names"]), _split(parts["index"])
    columns = {name: _split(parts[name]) for name in parts if name in ("labels", "splits", "ids")}
    if len(set(index)) == len(index):
        columns.setdefault("ids", index)
    others = optional_columns(columns)
    return RawTable(X, **others, feature_names=different_names(names), notes=tuple(parts["notes"]))


def _joined(strings: Iterable[str]) -> NDArray[np.uint8]:
    """Return strings as bytes, with a zero after each."""
    text = "".join(one.replace("\0", "") + "\0" for one in strings)
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)


def _split(joined: NDArray[np.uint8]) -> list[str]:
    return joined.tobytes().decode("utf-8", "surrogatepass").split("\0")[:-1]


def _call(task: str, path: str, limits: Limits, **arguments: Any) -> dict[str, Any]:
    """Read parts of a file in a guarded process."""
    most = limits.most("table_bytes")
    return call_guarded(
        f"bagwise.sources.h5ad:{task}",
        FileContent(path),
        arguments,
        limits,
        library="the HDF5 library",
        packages=("h5py",),
        memory=_OWN_BYTES + (_UNLIMITED if most is None else int(most)),
        keep=False,  # for the next one, other memory may be free
    )


def read_columns(file: BinaryIO, limits: Limits) -> Iterator[tuple[str, Any]]:
    """Read the names of the columns of `obs` by h5py."""
    with _opened(file, limits) as opened:
        yield "columns", opened.columns(opened.group("obs"))


def read_parts(
    file: BinaryIO, limits: Limits, label: str | None, id: str | None, split: str | None, layer: str | None
) -> Iterator[tuple[str, Any]]:
    """Read the matrix, names and labels of a file by h5py; strings are joined, see `_joined`."""
    with _opened(file, limits) as opened:
        yield from opened.parts({"label": label, "id": id, "split": split}, layer).items()


@contextmanager
def _opened(file: BinaryIO, limits: Limits) -> Iterator[_File]:
    h5py = require("h5py", "anndata", "Reading .h5ad files")
    n_bytes = file.seek(0, 2)
    try:
        with h5py.File(file, "r") as opened:
            yield _File(h5py, opened, n_bytes, limits)
    except BagwiseError:
        raise
    except _DAMAGES as error:
        raise BagwiseError(f"it is not an .h5ad file, or damaged: {str(error)[:300]}") from error


class _File:
    """An open file, of which parts are read that are within the limits."""

    def __init__(self, h5py: Any, file: Any, n_bytes: int, limits: Limits) -> None:
        self._h5py, self._file, self._n_bytes, self._limits = h5py, file, n_bytes, limits
        self._read = 0

    def parts(self, chosen: Mapping[str, str | None], layer: str | None) -> dict[str, Any]:
        """Return the matrix, whose arrays are not read yet, names, chosen columns and notes."""
        path = "X" if layer is None else "raw/X" if layer == "raw" else f"layers/{layer}"
        layers = [] if "layers" not in self._file else list(self.group("layers"))
        if "raw" in self._file:
            layers.append("raw")
        if layer is not None and layer not in layers:
            raise BagwiseError(f"there is no layer {layer!r}; there are {shortened(layers) or 'none'}.")
        if path not in self._file:
            which = f" Choose a layer by {argument('layer')}: {shortened(layers)}." if layers else ""
            raise BagwiseError(f"it has no matrix X.{which}")
        obs, var = self.group("obs"), self.group("raw/var" if layer == "raw" else "var")
        columns = self.columns(obs)
        roles = obs_roles(columns, chosen)
        strings = {"index": self._strings(obs, self._index_of(obs)), "names": self._strings(var, self._index_of(var))}
        shape = len(strings["index"]), len(strings["names"])
        taken = {}
        for what, role in (("labels", "label"), ("splits", "split"), ("ids", "id")):
            name = roles[role]
            if name is not None:
                taken[what], strings[what] = name, self._strings(obs, name)
                if len(strings[what]) != shape[0]:
                    raise BagwiseError(f"it is damaged: column {name!r} of obs has not {shape[0]} rows.")
        label = taken.get("labels")
        notes = taken_note(label, columns, chosen["label"])
        notes += label_notes(self._categories(obs, columns), shape[0], label)
        if layer is None and layers:
            notes.append(f"The matrix X is read; there are layers {shortened(layers)}, chosen by {argument('layer')}.")
        matrix = self._matrix(path, shape)
        return matrix | {name: _joined(some) for name, some in strings.items()} | {"shape": shape, "notes": notes}

    def columns(self, obs: Any) -> list[str]:
        """Return the names of the columns of `obs`."""
        return [name for name in obs if name not in ("__categories", self._index_of(obs))]

    def group(self, name: str) -> Any:
        """Return a group of the file."""
        group = self._at(self._file, name)
        if not isinstance(group, self._h5py.Group):
            old = " Files of anndata before 0.7 are not read: open it by anndata, and write it again."
            raise BagwiseError(f"{name!r} is not a group.{old if name in ('obs', 'var') else ''}")
        return group

    def _at(self, parent: Any, name: str) -> Any:
        """Return what has a name, if nothing on the way is a link to another place."""
        node = parent
        for part in name.split("/"):
            kind = node.get(part, getlink=True)
            if not isinstance(kind, self._h5py.HardLink):
                raise BagwiseError(f"{name!r} is missing, or a link, which is not followed.")
            node = node[part]
        return node

    def _dataset(self, parent: Any, name: str, kinds: str, n_dimensions: int = 1) -> Any:
        """Return an array that is not read yet, of a size within the limits."""
        dataset = self._at(parent, name)
        if not isinstance(dataset, self._h5py.Dataset) or dataset.shape is None or len(dataset.shape) != n_dimensions:
            raise BagwiseError(f"{name!r} is not an array of {n_dimensions} dimension{'s' * (n_dimensions > 1)}.")
        if dataset.external or dataset.is_virtual:
            raise BagwiseError(f"{name!r} is stored in other files, which are not read.")
        if dataset.dtype.kind not in kinds:
            raise BagwiseError(f"{name!r} is of the type {dataset.dtype}, which is not expected.")
        # a chunk is decompressed as a whole
        sizes = [math.prod(shape) * dataset.dtype.itemsize for shape in (dataset.shape, dataset.chunks or (0,))]
        for size in sizes:
            self._limits.check("table_bytes", self._read + size, f"{name!r} claims {readable_size(size)}")
        self._read += sizes[0]
        return dataset

    def _array(self, parent: Any, name: str, kinds: str) -> NDArray[Any]:
        """Read an array, in the byte order of this machine."""
        values = self._dataset(parent, name, kinds)[()]
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def _matrix(self, path: str, shape: tuple[int, int]) -> dict[str, Any]:
        """Return the kind of the matrix, and its array or those of a sparse matrix, which are not read yet."""
        matrix = self._at(self._file, path)
        if isinstance(matrix, self._h5py.Dataset):
            kind, stored = "array", tuple(matrix.shape or ())
        else:
            attributes = matrix.attrs
            kind = _text(attributes.get("encoding-type", ""))
            if kind not in _SPARSE:
                raise BagwiseError(f"{path!r} is of the kind {kind!r}; expected an array, or a CSR or CSC matrix.")
            claimed = np.asarray(attributes.get("shape", ()))
            stored = tuple(int(size) for size in claimed.ravel()[:3].tolist())
        check_shape(stored, self._limits)
        if stored != shape:
            raise BagwiseError(f"it is damaged: {path!r} has the shape {stored}, but obs and var have {shape}.")
        if kind == "array":
            return {"kind": kind, "X": self._dataset(self._file, path, "fiub", 2)}
        return {"kind": kind, **{name: self._dataset(matrix, name, kinds) for name, kinds in _PARTS.items()}}

    def _index_of(self, frame: Any) -> str:
        return _text(frame.attrs.get("_index", "_index"))

    def _categories(self, obs: Any, columns: Sequence[str]) -> dict[str, int]:
        """Return the number of values of each column that has categories."""
        numbers = {}
        for name in columns:
            group = self._at(obs, name)
            if isinstance(group, self._h5py.Group) and "categories" in group:
                numbers[name] = math.prod(getattr(self._at(group, "categories"), "shape", None) or (0,))
        return numbers

    def _strings(self, frame: Any, name: str) -> list[str]:
        """Read a column as strings; what is missing is an empty one."""
        column = self._at(frame, name)
        if isinstance(column, self._h5py.Group):
            if "categories" in column:
                return self._coded(column, "categories", self._array(column, "codes", "iu"))
            if "values" in column and "mask" in column:  # nullable
                values, mask = self._strings(column, "values"), self._array(column, "mask", "b")
                if len(values) != len(mask):
                    raise BagwiseError(f"it is damaged: {name!r} has {len(values)} values and {len(mask)} marks.")
                return ["" if missing else value for value, missing in zip(values, mask, strict=True)]
            raise BagwiseError(f"column {name!r} is of a kind that is not read.")
        if "__categories" in frame and name in self._at(frame, "__categories"):  # anndata 0.7
            return self._coded(self._at(frame, "__categories"), name, self._array(frame, name, "iu"))
        dataset = self._dataset(frame, name, "fiubOS")
        n_rows = dataset.shape[0]
        self._limits.check("rows", n_rows, f"{name!r} claims {n_rows:,} rows")
        if dataset.dtype.kind in "fiub":
            return strings_of(dataset[()])
        if self._h5py.check_string_dtype(dataset.dtype) is None:
            raise BagwiseError(f"{name!r} is of the type {dataset.dtype}; expected strings or numbers.")
        # each string may be as long as the file, and all of them the same bytes
        most = self._limits.most("table_bytes") or _STRING_BYTES
        step = int(min(max(most // max(self._n_bytes, 1), 1), _STRINGS))
        strings: list[str] = []
        for start in range(0, n_rows, step):
            some = dataset.asstr("utf-8", "replace")[start : start + step].tolist()
            self._read += sum(map(len, some))
            self._limits.check("table_bytes", self._read, f"{name!r} takes {readable_size(self._read)} or more")
            strings += some
        return strings

    def _coded(self, group: Any, categories: str, codes: NDArray[Any]) -> list[str]:
        known = self._strings(group, categories)
        if codes.size and (int(codes.max()) >= len(known) or int(codes.min()) < -1):
            raise BagwiseError(f"it is damaged: there are codes beyond the {len(known)} categories.")
        named = [*known, ""]  # the code -1 is missing
        return [named[code] for code in codes.tolist()]


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
