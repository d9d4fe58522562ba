"""Networks that are ready to run: how an image becomes their input, what comes out, and one session per process.

`RunningNetwork` is the same for EfficientNet-Lite0 and for networks from files; only how it is opened differs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.extras import require
from bagwise.descriptors import efficientnet
from bagwise.descriptors.efficientnet import NetworkTensors
from bagwise.errors import BagwiseError, argument, unknown_name
from bagwise.runtime_network import SIDE, ActivationLayout, NetworkError, graph_bytes, input_size
from bagwise.runtime_network import open_session as open_single_session

__all__ = ["SIDE", "ActivationLayout", "Preprocessing", "RunningNetwork", "input_size", "load_once", "open_session"]
__all__ += ["open_tensors"]

# Networks that a process keeps.
_MOST_KEPT = 4

_kept: OrderedDict[Hashable, Any] = OrderedDict()
_lock = Lock()


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the input of a network: resized to a size, divided by 255, less `mean`, divided by `std`."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    side: int = SIDE
    multiple: int = efficientnet.STRIDE  # both sides are multiples of it
    size: tuple[int, int] | None = None  # height and width, where the network admits one only

    def size_for(self, height: int, width: int) -> tuple[int, int]:
        """Return the height and width that an image is resized to."""
        return self.size or input_size(height, width, self.side, self.multiple)

    def apply(self, image: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return an image of shape (height, width) or (height, width, 3) as input of shape (3, H, W)."""
        pil = require("PIL.Image", "network", "NetworkFeatures")
        height, width = self.size_for(*image.shape[:2])
        picture = pil.fromarray(image).convert("RGB")
        # one side after the other: in one call, some versions of Pillow begin with the other one
        for size in ((width, picture.height), (width, height)):
            if picture.size != size:
                picture = picture.resize(size, pil.Resampling.BILINEAR)
        planes = np.empty((3, height, width), np.float32)
        pixels = np.asarray(picture)
        for plane, channel, mean, std in zip(planes, np.moveaxis(pixels, 2, 0), self.mean, self.std, strict=True):
            np.subtract(channel, np.float32(255 * mean), out=plane, dtype=np.float32)
            plane *= np.float32(1 / (255 * std))
        return planes


@dataclass(frozen=True, eq=False)
class RunningNetwork:
    """A network with its session. Sessions are shared by threads, and never pickled."""

    name: str
    sha256: str
    layer: str
    preprocessing: Preprocessing
    layout: ActivationLayout
    session: Any
    channels_last: bool = False  # of the input
    half: bool = False  # whether the input is float16
    has_pooled: bool = False  # whether the session gives ``pooled`` as well

    def run(self, image: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return activations of shape (h, w, channels), and averages over an image: by default those of the layer."""
        planes = self.preprocessing.apply(image)
        height, width = planes.shape[1:]
        batch = (planes.transpose(1, 2, 0) if self.channels_last else planes)[np.newaxis]
        batch = np.ascontiguousarray(batch, np.float16 if self.half else np.float32)
        try:
            outputs = self.session.run(None, {self.session.get_inputs()[0].name: batch})
        except Exception as error:  # the exceptions of ONNX Runtime have no common base
            raise BagwiseError(f"the network fails on an input of {height} x {width} pixels: {error}") from error
        try:
            vectors = self.layout.vectors(outputs[0], height, width)
        except NetworkError as error:
            raise BagwiseError(str(error)) from error
        pooled = outputs[1][0] if self.has_pooled else vectors.mean(axis=(0, 1))
        if not (np.isfinite(vectors).all() and np.isfinite(pooled).all()):
            raise BagwiseError("the network gives numbers that are not finite")
        return vectors, np.asarray(pooled, np.float32)


def open_tensors(
    tensors: NetworkTensors, layer: str | None, preprocessing: Preprocessing, device: str | None, pooled: bool
) -> RunningNetwork:
    """Build EfficientNet-Lite0 from its tensors, up to a layer; None: the last one before the wide layer."""
    chosen = efficientnet.LAYERS[-2] if layer is None else layer
    if chosen not in efficientnet.LAYERS:
        raise unknown_name(f"layer of {efficientnet.NAME}", chosen, efficientnet.LAYERS)
    if (pooled or chosen == efficientnet.WIDE) and not tensors.has_wide:
        raise BagwiseError(
            "This copy of the network has no last convolution, which the layer 'wide' and pooled features need. Use "
            "the network of the package: NetworkFeatures()."
        )

    def load() -> Any:
        return open_session(graph_bytes(tensors.tensors(), chosen, pooled=pooled), device)

    session = load_once((tensors.sha256, chosen, pooled, device), load)
    layout = ActivationLayout("nchw", efficientnet.STRIDE)
    return RunningNetwork(efficientnet.NAME, tensors.sha256, chosen, preprocessing, layout, session, has_pooled=pooled)


def load_once(key: Hashable, load: Callable[[], Any]) -> Any:
    """Return what was loaded for a key in this process, or load it: once, also where several threads ask for it."""
    with _lock:
        if key not in _kept:
            _kept[key] = load()
            while len(_kept) > _MOST_KEPT:
                _kept.popitem(last=False)
        _kept.move_to_end(key)
        return _kept[key]


def open_session(model: bytes, device: str | None) -> Any:
    """Open a session of ONNX Runtime that computes in the thread that runs it: images are run side by side."""
    runtime = require("onnxruntime", "network", "NetworkFeatures")
    provider = "CUDAExecutionProvider" if device == "cuda" else "CPUExecutionProvider"
    if provider not in runtime.get_available_providers():
        raise BagwiseError(
            f"{argument('device', 'cuda')} needs a build of ONNX Runtime for CUDA; this one has "
            f"{', '.join(runtime.get_available_providers())}. Install onnxruntime-gpu instead of onnxruntime, or leave "
            f"{argument('device')} out."
        )
    return open_single_session(model, device)
