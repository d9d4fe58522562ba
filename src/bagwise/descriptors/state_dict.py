"""Read a state dictionary of PyTorch as NumPy arrays, without PyTorch and without running what the file holds.

The format is that of PyTorch before 1.6: a sequence of pickles (a magic number, the version, the system, the
dictionary, the keys of its storages), then the storages, each behind its number of elements.
"""

from __future__ import annotations

import io
import math
import pickle
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise.errors import BagwiseError

__all__ = ["read_state_dict"]

_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001
_STORAGES = {"FloatStorage": "<f4", "HalfStorage": "<f2", "LongStorage": "<i8"}


class _Storage(NamedTuple):
    key: str
    dtype: str
    length: int


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements


class _MakeTensor:
    """Stands for ``torch._utils._rebuild_tensor_v2``. It has no attributes that a pickle could set."""

    __slots__ = ()

    def __call__(self, storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
        sizes = (*shape, *strides, offset)
        if not isinstance(storage, _Storage) or any(type(size) is not int or size < 0 for size in sizes):
            raise pickle.UnpicklingError("a tensor has sizes that are not whole numbers")
        if len(shape) != len(strides):
            raise pickle.UnpicklingError("a tensor has another number of sizes than of strides")
        return _Tensor(storage, offset, tuple(shape), tuple(strides))


class _Unpickler(pickle.Unpickler):
    """Admits an OrderedDict, tensors and three types of storages. Everything else is an error, before it is called."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _MakeTensor()
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _, length, view = pid
        if kind != "storage" or view is not None or dtype not in _STORAGES.values() or type(length) is not int:
            raise pickle.UnpicklingError("a storage is described in another way")
        return _Storage(str(key), dtype, length)


def read_state_dict(content: bytes) -> dict[str, NDArray[Any]]:
    """Return the tensors of a state dictionary by name, as contiguous arrays.

    `content` are all bytes of the file. Anything but an ordered dictionary of tensors of float32, float16 or int64
    raises BagwiseError.
    """
    file = io.BytesIO(content)
    try:
        magic, version, _ = (_Unpickler(file).load() for _ in range(3))
        if (magic, version) != (_MAGIC, _VERSION):
            raise pickle.UnpicklingError("it does not begin as such files do")
        tensors, keys = _Unpickler(file).load(), _Unpickler(file).load()
        if type(tensors) is not OrderedDict or not all(isinstance(tensor, _Tensor) for tensor in tensors.values()):
            raise pickle.UnpicklingError("it does not hold an ordered dictionary of tensors")
        storages = _read_storages(file, keys, {tensor.storage.key: tensor.storage for tensor in tensors.values()})
        return {str(name): _array(tensor, storages[tensor.storage.key]) for name, tensor in tensors.items()}
    except Exception as error:  # a damaged pickle can fail in any way
        raise BagwiseError(
            f"This is not a state dictionary in the format of PyTorch before 1.6: {error or type(error).__name__}."
        ) from error


def _read_storages(file: io.BytesIO, keys: Any, described: dict[str, _Storage]) -> dict[str, NDArray[Any]]:
    """Read the storages, which lie behind each other in the order of their keys."""
    storages = {}
    for key in keys:
        storage = described[key]
        length, n_bytes = int.from_bytes(file.read(8), "little"), storage.length * np.dtype(storage.dtype).itemsize
        content = file.read(max(n_bytes, 0))
        if length != storage.length or len(content) != n_bytes:
            raise pickle.UnpicklingError(f"the storage {key} does not have {storage.length} elements")
        storages[key] = np.frombuffer(content, storage.dtype)
    return storages


def _array(tensor: _Tensor, storage: NDArray[Any]) -> NDArray[Any]:
    """Copy a tensor, which need not be contiguous, out of its storage."""
    if 0 in tensor.shape:
        return np.empty(tensor.shape, storage.dtype)
    last = tensor.offset + sum(
        (length - 1) * stride for length, stride in zip(tensor.shape, tensor.strides, strict=True)
    )
    if last >= len(storage) or math.prod(tensor.shape) > len(storage):
        raise pickle.UnpicklingError("a tensor exceeds its storage")
    strides = [stride * storage.itemsize for stride in tensor.strides]
    return np.lib.stride_tricks.as_strided(storage[tensor.offset :], tensor.shape, strides).copy()
