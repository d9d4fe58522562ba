"""`NetworkFeatures`: activations of a pretrained network at all positions of an image."""

from __future__ import annotations

import copy
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.extras import require
from bagwise._utils.records import LARGEST, Integer, Such, parameter, plain
from bagwise.bags.bags import Bags
from bagwise.descriptors import efficientnet
from bagwise.descriptors.base import DEVICE, MOST_POINTS, Arrays, Descriptor, arrays_of, join_bags
from bagwise.descriptors.efficientnet import NetworkTensors
from bagwise.descriptors.images import as_image, centres_in_unit_square, shrink
from bagwise.descriptors.networks import SIDE, Preprocessing, RunningNetwork, open_tensors
from bagwise.errors import BagwiseError, in_python
from bagwise.runtime_network import LEAST_SIDE, MOST_SIDE

__all__ = ["NetworkFeatures"]

_HASH = "sha256:"
_NETWORK = Such(lambda value: isinstance(value, (str, os.PathLike, NetworkTensors)), "'auto' or an ONNX file")
_LAYER = Such(
    lambda value: value is None or (isinstance(value, str) and 0 < len(value) <= LARGEST),
    f"a string of 1 to {LARGEST} characters or None",
)


def _channels(above: float) -> Such:
    """Rule of 3 numbers, for red, green and blue of pixels divided by 255."""

    def accepts(value: Any) -> bool:
        if not isinstance(value, list) or len(value) != 3:
            return value is None
        return all(type(number) in (int, float) and above < number <= LARGEST for number in value)

    return Such(accepts, f"a list of 3 numbers above {above:g}, up to {LARGEST}, or None")


@dataclass(eq=False, repr=False)
class NetworkFeatures(Descriptor):
    """Describe images by the activations of a pretrained network, one vector for each position of its map.

    1. The image is resized to an area of about ``side * side`` pixels; small ones are enlarged. Grey is repeated.
    2. The network computes a map. By default it is EfficientNet-Lite0 up to the end of its last block, before the last
       convolution: 320 channels at every 32nd pixel, about 8 x 8 positions. It was trained on ImageNet.
    3. Vectors are the activations as they are, not normalised, row by row.

    The positions are those of the centres of the map's cells. What a position sees is a region around it, about 100 of
    the 256 pixels wide. Images without pixels give an empty bag. Needs ``bagwise[network]``.

    Parameters
    ----------
    network : "auto", path or str, default="auto"
        "auto" is EfficientNet-Lite0, whose weights ``bagwise[network]`` installs. A path is an ONNX file with one input
        of images, (N, 3, H, W) or (N, H, W, 3), and a map or tokens among its values. ``"sha256:..."`` is a network
        known by its hash only, as models from files have it; `with_network` names the file then.
    layer : str, default=None
        Name of an output or inner value of the graph. EfficientNet-Lite0 has "block0" to "block15" and "wide", after
        the last convolution. None: "block15"; of a file, the last value with positions.
    side : int, default=None
        Root of the area of the resized image. None: 256; for a file, what ``preprocessor_config.json`` beside it says.
        A network of fixed input size has no use for it.
    mean, std : sequence of 3 floats, default=None
        Pixels divided by 255 are normalised as ``(pixel - mean) / std`` for red, green and blue. None: what the
        network was trained with; for a file, what ``preprocessor_config.json`` says, or those of ImageNet.
    n_frames : int, default=None
        Describe videos, by at most so many of their frames, evenly spread. None: describe images.
    device : {"cpu", "cuda"}, default=None
        "cuda" needs a build of ONNX Runtime for it. None is "cpu".
    max_side, n_jobs, verbose, cache
        As in `DenseSIFT`. `max_side` is the side before resizing.

    See Also
    --------
    DenseSIFT : Gradients of small patches; no network needed.

    Notes
    -----
    Images must be uint8. With ``q = sqrt(width / height)``, limited to 0.6 ... 1.7, they are resized to
    ``32 * round(side * q / 32)`` by ``32 * round(side / q / 32)`` pixels, but at least 64, by Pillow:
    ``image.resize(size, Resampling.BILINEAR)`` on uint8, the width before the height, which averages over all pixels
    when it shrinks. For other
    networks, 32 is their stride; those of fixed size get that size, whatever the aspect ratio.

    Each image is run by itself, in one thread; `n_jobs` runs several at once. All threads share one session. Weights
    are rounded to float16, so that a copy of them in a model file gives the same numbers.

    References
    ----------
    M. Tan, Q. Le, "EfficientNet: rethinking model scaling for convolutional neural networks", ICML 2019. R. Liu,
    "Higher accuracy on vision models with EfficientNet-Lite", TensorFlow blog, 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.descriptors import NetworkFeatures
    >>> image = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    >>> bags = NetworkFeatures(side=64).transform([image])
    >>> bags
    <Bags: 1 bags, 4 rows x 320 features of float32, with positions>
    >>> bags.positions[:2]
    array([[0.25, 0.25],
           [0.75, 0.25]], dtype=float32)
    """

    color: ClassVar[bool] = True
    regions: ClassVar[bool] = True
    assignment: ClassVar[str | Mapping[str, Any]] = {
        "name": "localized",
        "n_neighbors": 10,
        "sharpness": 5.0,
        "weighted": True,
    }

    network: Any = parameter("auto", _NETWORK)
    _: KW_ONLY
    layer: str | None = parameter(None, _LAYER)
    side: int | None = parameter(None, Integer(LEAST_SIDE, MOST_SIDE, optional=True))
    mean: Any = parameter(None, _channels(-LARGEST))
    std: Any = parameter(None, _channels(0))
    n_frames: int | None = parameter(None, Integer(1, MOST_POINTS, optional=True))
    device: str | None = parameter(None, DEVICE)

    @property
    def patch_side(self) -> int:
        """96: three cells of its map of an image of about 256 x 256 pixels."""
        return 96

    def sides(self, height: int, width: int, n: int) -> NDArray[np.float64]:
        """Return the side of the regions of an image that has n of them: a cell of the map and its neighbours.

        >>> NetworkFeatures().sides(256, 256, 64)[0]
        np.float64(96.0)
        """
        return np.full(n, float(max(1, round(3 * math.sqrt(height * width / max(n, 1))))))

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[np.float16]], **parameters: Any) -> Self:
        """Build the descriptor from the tensors of an EfficientNet-Lite0, as `tensors` gives them.

        Parameters
        ----------
        tensors : mapping of str to ndarray of float16
            Names, shapes, types and numbers are checked.
        **parameters
            Other parameters of `NetworkFeatures`.

        Returns
        -------
        descriptor : NetworkFeatures
        """
        return cls(NetworkTensors(tensors), **parameters)

    def with_network(self, network: Any) -> Self:
        """Return a copy that takes its network from a file or from tensors; an error if it is another network.

        Parameters
        ----------
        network : path, or mapping of str to ndarray of float16

        Returns
        -------
        descriptor : NetworkFeatures
        """
        source = NetworkTensors(network) if isinstance(network, Mapping) else network
        other = copy.copy(self).set_params(network=source)
        received = other.parameters["network"]
        expected = self.network if self._is_hash else self.parameters["network"]
        if received != expected:
            what = "These tensors are" if isinstance(network, Mapping) else f"{os.fspath(network)!r} is"
            raise BagwiseError(f"{what} another network: {expected} is needed, got {received}.")
        return other

    def embed(self) -> Self:
        """Return a copy that is made from the tensors of EfficientNet-Lite0, which models then hold; see `tensors`.

        Those of the last convolution are left out where the layer does not need them.
        """
        self._prepare()
        if self._is_packaged or isinstance(self.network, NetworkTensors):
            tensors = NetworkTensors(self.tensors(wide=self.layer == efficientnet.WIDE))
            return copy.copy(self).set_params(network=tensors)
        raise BagwiseError(
            f"Only {efficientnet.NAME} can be embedded, not the network {self.network!r}: files of models never hold "
            "ONNX. Keep its file beside the model."
        )

    @property
    def modality(self) -> str:  # type: ignore[override]
        """What is described: images, or videos if `n_frames` is given."""
        return "images" if self.n_frames is None else "videos"

    @property
    def embedded(self) -> NetworkTensors | None:
        """The tensors that the descriptor was made from, which models that have it hold; None if there are none."""
        return self.network if isinstance(self.network, NetworkTensors) else None

    @property
    def _is_hash(self) -> bool:
        return isinstance(self.network, str) and re.fullmatch(_HASH + "[0-9a-f]{64}", self.network) is not None

    def identity(self) -> dict[str, Any]:
        """Return what the vectors depend on, for the header of a file: name, SHA-256, layer and preprocessing.

        Returns
        -------
        identity : dict
            ``name``; ``sha256`` of the ONNX file and of its weights beside it, or of the tensors; ``layer``; and
            ``preprocessing``: ``mean``, ``std``, ``side``, ``multiple`` and ``size`` (null, or height and width).
        """
        network = self._open()
        about = network.preprocessing
        return {
            "name": network.name,
            "sha256": network.sha256,
            "layer": network.layer,
            "preprocessing": {
                "mean": list(about.mean),
                "std": list(about.std),
                "side": about.side,
                "multiple": about.multiple,
                "size": None if about.size is None else list(about.size),
            },
        }

    def tensors(self, *, wide: bool = True) -> dict[str, NDArray[np.float16]]:
        """Return the tensors of EfficientNet-Lite0 by name; the notice `weights_notice` must go with every copy.

        Parameters
        ----------
        wide : bool, default=True
            Whether to include those of the last convolution, which only the layer "wide" and pooled features need.

        Returns
        -------
        tensors : dict of str to ndarray of float16
        """
        self._prepare()
        if not (self._is_packaged or isinstance(self.network, NetworkTensors)):
            raise BagwiseError(
                f"Only the tensors of {efficientnet.NAME} can be taken out, not those of {self.network!r}. A model "
                "names other networks by their hash."
            )
        return self._tensors().tensors(wide=wide)

    @staticmethod
    def weights_notice() -> str:
        """Return notice and licence of the weights that ``bagwise[network]`` installs."""
        return efficientnet.notice()

    def describe_pooled(self, content: Any) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Describe one image (or video) in both ways, by one run of the network.

        Parameters
        ----------
        content : array
            As for `describe`.

        Returns
        -------
        values : ndarray of float32, shape (n, D)
        positions : ndarray of float32, shape (n, 2)
        pooled : ndarray of float32, shape (n_pooled,)
            Averages over positions (and frames): of EfficientNet-Lite0, of the 1280 activations after the last
            convolution; of other networks, of the layer. Zeros for an image without pixels.
        """
        arrays = self.pooling()._arrays_of_one(content)
        return arrays["values"], arrays["positions"], arrays["pooled"][0]

    def pooling(self) -> PoolingNetworkFeatures:
        """Return a descriptor whose results are pairs: the bags, and pooled features of shape (n_items, n_pooled)."""
        return PoolingNetworkFeatures(**self.get_params(deep=False))

    @property
    def _is_packaged(self) -> bool:
        return isinstance(self.network, str) and self.network in ("auto", _HASH + efficientnet.SHA256)

    def _tensors(self) -> NetworkTensors:
        return self.network if isinstance(self.network, NetworkTensors) else efficientnet.packaged_tensors()

    def _prepare(self) -> None:
        super()._prepare()
        self._open()

    def _open(self, pooled: bool = False) -> RunningNetwork:
        """Return the network, ready to run; each process opens it once."""
        for module in ("PIL.Image", "onnx", "onnxruntime"):
            require(module, "network", "NetworkFeatures")
        if self._is_hash and not self._is_packaged:
            raise BagwiseError(
                f"This descriptor needs the network {self.network}, which is not stored with it. Name its ONNX file: "
                f"{in_python('model.with_network(path), or Model.load(..., network=path)', '--network FILE')}."
            )
        mean, std = _three(self.mean), _three(self.std)
        if self._is_packaged or isinstance(self.network, NetworkTensors):
            preprocessing = Preprocessing(
                mean or (efficientnet.MEAN,) * 3,
                std or (efficientnet.STD,) * 3,
                SIDE if self.side is None else int(self.side),
            )
            return open_tensors(self._tensors(), self.layer, preprocessing, self.device, pooled)
        from bagwise.descriptors.network_files import open_file

        return open_file(os.fspath(self.network), self.layer, self.side, mean, std, self.device)

    @property
    def parameters(self) -> dict[str, Any]:
        """What results depend on: the network by its hash, and what it decided is written out."""
        parameters = super().parameters
        if all(parameters[name] is not None for name in ("layer", "side", "mean", "std")):
            # as a model file has it, which is used on words and histograms without the network, too
            if isinstance(self.network, NetworkTensors):
                return {**parameters, "network": _HASH + self.network.sha256}
            if self._is_hash:
                return parameters
        network = self._open()
        about = network.preprocessing
        return {
            **parameters,
            "network": _HASH + network.sha256,
            "layer": network.layer,
            "side": about.side,
            "mean": list(about.mean),
            "std": list(about.std),
        }

    @classmethod
    def from_parameters(cls, parameters: Any) -> Self:
        """Build the descriptor from its `parameters`; the network is never a path, which another machine would open."""
        made = super().from_parameters(parameters)
        if made.network != "auto" and not made._is_hash:
            raise BagwiseError(
                f"network of {cls.__name__} must be 'auto', or 'sha256:' and 64 hexadecimal digits; "
                f"got {made.network!r:.100}."
            )
        return made

    def _describe(self, content: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        values, positions, _ = self._run(content, self._open())
        return values, positions

    def _run(
        self, content: Any, network: RunningNetwork
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Return values, positions and pooled features of an image, or of the sampled frames of a video."""
        frames = [content] if self.n_frames is None else self._sampled(content)
        parts = [self._run_on_image(frame, network) for frame in frames]
        values, positions, pooled = zip(*parts, strict=True)
        return np.concatenate(values), np.concatenate(positions), np.mean(pooled, axis=0, dtype=np.float32)

    def _run_on_image(self, content: Any, network: RunningNetwork) -> tuple[NDArray[np.float32], ...]:
        image = as_image(content)
        if image.dtype != np.uint8:
            raise BagwiseError(
                f"a network takes images of uint8, 0 to 255, got {image.dtype}. Scale and convert them first"
            )
        if not image.size:
            # as many channels as any image gives
            values, _, pooled = self._run_on_image(np.zeros((8, 8), np.uint8), network)
            return values[:0], np.empty((0, 2), np.float32), np.zeros_like(pooled)
        vectors, pooled = network.run(image)
        rows, columns = vectors.shape[:2]
        positions = centres_in_unit_square(np.arange(rows) + 0.5, np.arange(columns) + 0.5, rows, columns)
        return vectors.reshape(rows * columns, -1), positions, pooled

    def _sampled(self, content: Any) -> list[NDArray[Any]]:
        """Return the frames of a video that are described, shrunk."""
        video = np.asarray(content)
        if video.ndim not in (3, 4) or video.shape[3:] not in ((), (3,)) or not len(video):
            raise BagwiseError(
                "A video must be an array of shape (frames, height, width), or (frames, height, width, 3) in RGB, with "
                f"at least one frame; got shape {video.shape}"
            )
        assert self.n_frames is not None
        n_sampled = min(int(self.n_frames), len(video))
        frames = [video[(2 * k + 1) * len(video) // (2 * n_sampled)] for k in range(n_sampled)]
        return frames if self.max_side is None else [shrink(frame, self.max_side) for frame in frames]


class PoolingNetworkFeatures(NetworkFeatures):
    """`NetworkFeatures` whose `transform` gives pairs: the bags, and pooled features of shape (n_items, n_pooled).

    `NetworkFeatures.pooling` makes one; it takes the place of another descriptor wherever items are described.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.descriptors import NetworkFeatures
    >>> image = np.random.default_rng(0).integers(0, 256, (60, 90), dtype=np.uint8)
    >>> bags, pooled = NetworkFeatures(side=64).pooling().transform([image])
    >>> bags.n_rows, pooled.shape
    (4, (1, 1280))
    """

    def _compute(self, content: Any) -> Arrays:
        values, positions, pooled = self._run(content, self._open(pooled=True))
        return {**arrays_of(values, positions), "pooled": pooled[np.newaxis]}

    def _join(self, items: Iterable[Arrays]) -> Any:
        pooled: list[NDArray[np.float32]] = []

        def kept() -> Iterable[Arrays]:
            for arrays in items:
                pooled.append(arrays["pooled"])
                yield {name: array for name, array in arrays.items() if name != "pooled"}

        bags: Bags = join_bags(kept())
        return bags, np.concatenate(pooled)


def _three(numbers: Any) -> tuple[float, float, float] | None:
    """Return numbers of red, green and blue, which were checked, as floats."""
    if numbers is None:
        return None
    red, green, blue = map(float, plain(numbers))
    return red, green, blue
