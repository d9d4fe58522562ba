"""`ColorSIFT`: dense SIFT in the channels of a colour space."""

from __future__ import annotations

from os import PathLike
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import StrOptions

from bagwise.descriptors.base import Descriptor
from bagwise.descriptors.contents import as_rgb
from bagwise.descriptors.dense_sift import DenseSIFT, checked_scales, describe_channels
from bagwise.errors import unknown_name

__all__ = ["SPACES", "ColorSIFT", "to_space"]

SPACES = ("opponent", "rg", "c", "rgb")


class ColorSIFT(Descriptor):
    """Describe patches of colour images on a regular grid by SIFT in each channel of a colour space.

    Parameters
    ----------
    space : {"opponent", "rg", "c", "rgb"}, default="opponent"
        - ``"opponent"``: ``(R - G) / √2``, ``(R + G - 2B) / √6`` and ``(R + G + B) / √3``; 384 numbers.
        - ``"rg"``: ``R / (R + G + B)`` and ``G / (R + G + B)``; 256 numbers.
        - ``"c"``: the first two opponent channels divided by the third, and the third; 384 numbers.
        - ``"rgb"``: red, green and blue; 384 numbers.

        Where a denominator is zero, the quotient is.
    step, patch, scales, smoothing
        The grid and the patches, as in `DenseSIFT`.
    n_jobs, verbose, cache
        As in `DenseSIFT`.

    See Also
    --------
    DenseSIFT : The same for grey images; says how descriptors are made.

    Notes
    -----
    Each channel's 128 numbers have length 1, or 0 where the channel is flat. Grey images are refused: open collections
    with ``mode="rgb"``. Images smaller than a patch give an empty bag. Time and memory are those of `DenseSIFT` for
    each channel.

    References
    ----------
    K. van de Sande, T. Gevers, C. Snoek, "Evaluating color descriptors for object and scene recognition", TPAMI 32(9),
    2010.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.descriptors import ColorSIFT
    >>> image = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    >>> ColorSIFT(space="rg").transform([image])
    <Bags: 1 bags, 6 rows x 256 features of float32, with positions>
    """

    _parameter_constraints: ClassVar[dict] = {
        **DenseSIFT._parameter_constraints,
        "space": [StrOptions(set(SPACES))],
    }

    def __init__(
        self,
        space: str = "opponent",
        *,
        step: int = 8,
        patch: int = 16,
        scales: Any = (1.0,),
        smoothing: float = 0.0,
        n_jobs: int | None = None,
        verbose: int = 0,
        cache: str | PathLike[str] | None = None,
    ) -> None:
        self.space = space
        self.step = step
        self.patch = patch
        self.scales = scales
        self.smoothing = smoothing
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.cache = cache

    def _check_parameters(self) -> None:
        super()._check_parameters()
        checked_scales(self.scales)

    def _describe(self, content: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        channels = to_space(as_rgb(content, "ColorSIFT"), self.space)
        return describe_channels(channels, self.step, self.patch, self.scales, self.smoothing)


def to_space(rgb: NDArray[Any], space: str) -> NDArray[np.float32]:
    """Convert planes of red, green and blue, shape (3, H, W), to the channels of a colour space.

    Sums and quotients are taken in double precision: the noise of single precision in a colourless area would look like
    a texture after normalisation.
    """
    if space == "rgb":
        return rgb.astype(np.float32)
    red, green, blue = rgb.astype(np.float64)
    if space == "rg":
        total = red + green + blue
        return np.stack([_quotient(red, total), _quotient(green, total)]).astype(np.float32)
    if space not in ("opponent", "c"):
        raise unknown_name("space", space, SPACES)
    first, second = (red - green) / np.sqrt(2), (red + green - 2 * blue) / np.sqrt(6)
    third = (red + green + blue) / np.sqrt(3)
    if space == "c":
        first, second = _quotient(first, third), _quotient(second, third)
    return np.stack([first, second, third]).astype(np.float32)


def _quotient(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(a, b, out=np.zeros_like(a), where=b != 0)
