"""Open networks of other people: ONNX files, the weights beside them, and how they want images prepared.

Nothing is run but the graph. No library of operators is loaded, and no file is opened but the one that is named, files
with its weights in the same folder, and ``preprocessor_config.json`` there.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bagwise._utils.extras import require
from bagwise._utils.memory import readable_size
from bagwise.descriptors.networks import Preprocessing, RunningNetwork, load_once, open_session
from bagwise.errors import BagwiseError
from bagwise.runtime_network import MOST_BYTES, PROBES, SIDE, ActivationLayout, layout_of

__all__ = ["open_file"]

_CONFIG = "preprocessor_config.json"
_MOST_CONFIG_BYTES = 1 << 20
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_MOST_SIDE = 4096  # of a fixed input
# Inner values that are tried where no output is a map, from the last one on.
_N_TRIED = 12


@dataclass(frozen=True)
class _Input:
    name: str
    size: tuple[int, int] | None  # height and width; None: any
    channels_last: bool
    half: bool


@dataclass(frozen=True)
class _Opened:
    """What is known of a file once its graph has run on empty images."""

    sha256: str
    layer: str
    input: _Input
    layout: ActivationLayout
    session: Any
    config: Mapping[str, Any]


def open_file(
    path: str,
    layer: str | None,
    side: int | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    device: str | None,
) -> RunningNetwork:
    """Open an ONNX file as a network that gives vectors of positions.

    `layer` is the name of an output or an inner value of the graph, by default the last one with positions. Where
    `side`, `mean` or `std` are None, ``preprocessor_config.json`` says them.
    """
    try:
        size = os.stat(path)
    except OSError as error:
        raise BagwiseError(
            f"The network {path!r} cannot be opened: {error.strerror or error}. Accepted: 'auto', or an ONNX file."
        ) from error
    if size.st_size > MOST_BYTES:
        raise _too_large(path, size.st_size)
    key = (os.path.realpath(path), size.st_size, size.st_mtime_ns, layer, device)
    try:
        opened: _Opened = load_once(key, lambda: _open(Path(path), layer, device))
    except BagwiseError as error:
        raise BagwiseError(f"The network {path!r} cannot be used: {error}.") from error
    config = opened.config
    fixed = opened.input.size
    preprocessing = Preprocessing(
        config["mean"] if mean is None else (float(mean[0]), float(mean[1]), float(mean[2])),
        config["std"] if std is None else (float(std[0]), float(std[1]), float(std[2])),
        config["side"] if side is None else int(side),
        opened.layout.stride,
        fixed,
    )
    return RunningNetwork(
        os.path.basename(path),
        opened.sha256,
        opened.layer,
        preprocessing,
        opened.layout,
        opened.session,
        opened.input.channels_last,
        opened.input.half,
    )


def _too_large(what: str, n_bytes: int) -> BagwiseError:
    return BagwiseError(f"{what} takes {readable_size(n_bytes)}; at most {readable_size(MOST_BYTES)} are read")


def _open(path: Path, layer: str | None, device: str | None) -> _Opened:
    """Read, check and run a file."""
    onnx = require("onnx", "network", "NetworkFeatures")
    try:
        content = path.read_bytes()
        digest = hashlib.sha256(content)
        model = onnx.load_model_from_string(content)
    except OSError as error:
        raise BagwiseError(f"it cannot be read, {error.strerror or error}") from error
    except Exception as error:  # of Protocol Buffers
        raise BagwiseError(f"it is not an ONNX file, {error or type(error).__name__}") from error
    if not model.graph.node:
        raise BagwiseError("it is not an ONNX file with a graph")
    _load_weights(onnx, model, path, digest)
    image_input = _image_input(onnx, model.graph)
    config = _read_config(path.with_name(_CONFIG))
    seen: list[str] = []
    for names in _candidates(onnx, model, layer):
        session, probes = _session_and_probes(onnx, model, names, image_input, device)
        for number, name in enumerate(names):
            layout = layout_of([(size, shapes[number]) for size, shapes in probes], image_input.channels_last)
            if layout is not None:
                if len(names) > 1:  # compute nothing else
                    session = _session(onnx, model, [name], device)
                return _Opened(digest.hexdigest(), name, image_input, layout, session, config)
            seen.append(f"{name} of shape {probes[0][1][number]}")
    raise BagwiseError(
        f"for an input of {probes[0][0]} pixels it gives {', '.join(seen[:5])}; accepted are maps (1, channels, h, w) "
        "or (1, h, w, channels), and tokens (1, T, channels) that end with h x w positions, with h and w equal parts "
        "of the input. Name another layer"
    )


def _session(onnx: Any, model: Any, names: list[str], device: str | None) -> Any:
    """Open a session that gives some values of a model."""
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return open_session(model.SerializeToString(), device)


def _session_and_probes(
    onnx: Any, model: Any, names: list[str], image_input: _Input, device: str | None
) -> tuple[Any, list[tuple[tuple[int, int], list[tuple[int, ...]]]]]:
    """Open a session, and run it on empty images: their sizes, and the shapes of the values for each."""
    sizes = [image_input.size] if image_input.size else PROBES
    try:
        session = _session(onnx, model, names, device)
        return session, [_probe(session, image_input, size) for size in sizes]
    except BagwiseError:
        raise
    except Exception as error:  # the exceptions of ONNX Runtime have no common base
        shown = " and ".join(f"{height} x {width}" for height, width in sizes)
        raise BagwiseError(
            f"ONNX Runtime cannot load it, or run it on images of {shown} pixels; export it with a fixed size if it "
            f"takes one only. {str(error).strip().rstrip('.')}"
        ) from error


def _load_weights(onnx: Any, model: Any, path: Path, digest: Any) -> None:
    """Put weights from files of the same folder into the graph, and add these files to the hash."""
    folder = os.path.realpath(path.parent)
    outside = [tensor for tensor in _tensors(model) if tensor.data_location == onnx.TensorProto.EXTERNAL]
    entries = [(tensor, {entry.key: entry.value for entry in tensor.external_data}) for tensor in outside]
    sizes: dict[str, int] = {}
    for _, entry in entries:
        location = entry.get("location", "")
        weights_file = os.path.realpath(os.path.join(folder, location))
        if not location or os.path.isabs(location) or not Path(weights_file).is_relative_to(folder):
            raise BagwiseError(
                f"it wants weights from {location!r:.200}, which is not in its folder. Only files of {folder} are read"
            )
        if not os.path.isfile(weights_file):
            raise BagwiseError(f"the file with its weights, {location!r:.200}, is not in its folder")
        sizes[weights_file] = os.path.getsize(weights_file)
    total = path.stat().st_size + sum(sizes.values())
    if total > MOST_BYTES:
        raise _too_large("it, with its weights,", total)
    contents = {weights_file: Path(weights_file).read_bytes() for weights_file in sorted(sizes)}
    for content in contents.values():
        digest.update(content)
    n_copied = 0
    for tensor, entry in entries:
        content = contents[os.path.realpath(os.path.join(folder, entry["location"]))]
        numbers = [entry.get("offset", "0"), entry.get("length", str(len(content)))]
        if not all(number.isdecimal() and len(number) < 20 for number in numbers):
            raise BagwiseError(f"the tensor {tensor.name!r:.100} has no sound place in the file of weights")
        start, length = map(int, numbers)
        if "length" not in entry:
            length = len(content) - start
        if start + length > len(content) or length < 0:
            raise BagwiseError(f"the tensor {tensor.name!r:.100} exceeds the file of weights")
        n_copied += length  # of a part of the file once for each tensor that names it
        if n_copied > MOST_BYTES:
            raise _too_large("it, with its weights,", n_copied)
        tensor.raw_data = content[start : start + length]
        del tensor.external_data[:]
        tensor.data_location = onnx.TensorProto.DEFAULT


def _tensors(model: Any) -> Iterator[Any]:
    """Yield all tensors of a model: of graphs, of graphs inside of nodes, and of functions."""
    waiting = [model.graph, *model.functions, *(one for info in model.training_info for one in _graphs_of(info))]
    while waiting:
        one = waiting.pop()
        yield from getattr(one, "initializer", ())
        for sparse in getattr(one, "sparse_initializer", ()):
            yield from (sparse.values, sparse.indices)
        # functions have defaults of attributes
        for attribute in (*(one for node in one.node for one in node.attribute), *getattr(one, "attribute_proto", ())):
            yield attribute.t
            yield from attribute.tensors
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)
            waiting += [attribute.g, *attribute.graphs]


def _graphs_of(info: Any) -> Iterator[Any]:
    yield from (info.initialization, info.algorithm)


def _image_input(onnx: Any, graph: Any) -> _Input:
    """Return the one input of a graph, for images."""
    constants = {one.name for one in graph.initializer}
    inputs = [one for one in graph.input if one.name not in constants]
    shown = [f"{one.name!r} of {_shown(onnx, one)}" for one in inputs]
    problem = BagwiseError(
        f"it takes {', '.join(shown) or 'nothing'}; accepted is one input of images in float32 or float16, of shape "
        "(N, 3, H, W) or (N, H, W, 3), with one image at a time"
    )
    if len(inputs) != 1:
        raise problem
    tensor = inputs[0].type.tensor_type
    dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    if tensor.elem_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16) or len(dims) != 4:
        raise problem
    channels_last = dims[1] != 3 and dims[3] == 3
    (height, width), channels = (dims[1:3], dims[3]) if channels_last else (dims[2:], dims[1])
    if channels not in (3, None) or dims[0] not in (1, None) or (height is None) != (width is None):
        raise problem
    size = None
    if height is not None and width is not None:
        if not (1 < height <= _MOST_SIDE and 1 < width <= _MOST_SIDE):
            raise problem
        size = (height, width)
    return _Input(inputs[0].name, size, channels_last, tensor.elem_type == onnx.TensorProto.FLOAT16)


def _shown(onnx: Any, value: Any) -> str:
    """Write type and shape of a value for a message."""
    tensor = value.type.tensor_type
    dims = [str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?" for dim in tensor.shape.dim]
    return f"{onnx.TensorProto.DataType.Name(tensor.elem_type).lower()} ({', '.join(dims)})"


def _candidates(onnx: Any, model: Any, layer: str | None) -> Iterator[list[str]]:
    """Yield lists of names of values that may be the layer, best first: outputs, and then inner values."""
    outputs = [one.name for one in model.graph.output]
    inner = [name for node in model.graph.node for name in node.output if name]
    if layer is not None:
        if layer not in inner:
            near = difflib.get_close_matches(layer, inner, n=3, cutoff=0.3)
            raise BagwiseError(
                f"it has no layer {layer!r:.100}. Its outputs are {', '.join(map(repr, outputs))}; of {len(inner)} "
                f"inner values, {', '.join(map(repr, near)) or 'none'} have a similar name"
            )
        yield [layer]
        return
    yield outputs[::-1]
    ranks = _ranks(onnx, model)
    shaped = [name for name in reversed(inner) if ranks.get(name, 4) in (3, 4) and name not in outputs]
    if shaped:
        yield shaped[:_N_TRIED]


def _ranks(onnx: Any, model: Any) -> dict[str, int]:
    """Return the numbers of dimensions of inner values, where they can be known."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph.value_info
    except Exception as error:  # of Protocol Buffers and of the inference
        raise BagwiseError(f"the shapes of its values cannot be inferred, {error}") from error
    return {one.name: len(one.type.tensor_type.shape.dim) for one in inferred if one.type.tensor_type.HasField("shape")}


def _probe(session: Any, image_input: _Input, size: tuple[int, int]) -> tuple[tuple[int, int], list[tuple[int, ...]]]:
    """Return a size of the input and the shapes of all outputs for it."""
    shape = (1, *size, 3) if image_input.channels_last else (1, 3, *size)
    empty = np.zeros(shape, np.float16 if image_input.half else np.float32)
    outputs = session.run(None, {image_input.name: empty})
    return size, [np.shape(output) for output in outputs]


def _read_config(path: Path) -> dict[str, Any]:
    """Return ``mean``, ``std`` and ``side`` as ``preprocessor_config.json`` has them, or those of ImageNet."""
    about: dict[str, Any] = {"mean": _IMAGENET[0], "std": _IMAGENET[1], "side": SIDE}
    try:
        if path.stat().st_size > _MOST_CONFIG_BYTES:
            raise _too_large(str(path), path.stat().st_size)
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        return about
    except (OSError, ValueError, RecursionError) as error:
        raise BagwiseError(f"{path} cannot be read as JSON, {error}") from error
    if not isinstance(config, dict):
        raise BagwiseError(f"{path} must hold a JSON object, got {config!r:.100}")
    factor = _number(config.get("rescale_factor", 1 / 255), "rescale_factor", path) if _on(config, "do_rescale") else 1
    mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if _on(config, "do_normalize"):
        mean = _three(config.get("image_mean", _IMAGENET[0]), "image_mean", path)
        std = _three(config.get("image_std", _IMAGENET[1]), "image_std", path)
    if not (factor > 0 and min(std) > 0):
        raise BagwiseError(f"{path} has a rescale_factor or image_std that is not above 0")
    # from the scale of the file to pixels divided by 255
    about["mean"] = tuple(value / (255 * factor) for value in mean)
    about["std"] = tuple(value / (255 * factor) for value in std)
    size = config.get("crop_size") if _on(config, "do_center_crop", "crop_size") else config.get("size")
    if isinstance(size, dict):
        sides = [size.get(name, size.get("shortest_edge")) for name in ("height", "width")]
    else:
        sides = [size, size]
    if sides != [None, None]:
        height, width = (_number(side, "size", path) for side in sides)
        about["side"] = round(math.sqrt(height * width)) if height > 0 and width > 0 else 0
        if not 64 <= about["side"] <= _MOST_SIDE // 2:
            raise BagwiseError(f"{path} has a size of {sides}; accepted are 64 to {_MOST_SIDE // 2} pixels")
    return about


def _on(config: Mapping[str, Any], name: str, needed: str | None = None) -> bool:
    """Whether a step is done; it is, unless the file says otherwise."""
    return bool(config.get(name, True)) and (needed is None or config.get(needed) is not None)


def _number(value: Any, name: str, path: Path) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= 1e6:
        raise BagwiseError(f"{name} of {path} must be a number, got {value!r:.100}")
    return float(value)


def _three(value: Any, name: str, path: Path) -> tuple[float, float, float]:
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise BagwiseError(f"{name} of {path} must be a list of 3 numbers, got {value!r:.100}")
    first, second, third = (_number(one, name, path) for one in value)
    return first, second, third
