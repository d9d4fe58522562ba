"""The descriptors that model files and the command line know: names, modalities, and ranges of parameters.

This table is the only place that lists them. Classes take their parameter constraints from it, and a model file is
checked against it without importing a descriptor, so it imports nothing heavy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from os import PathLike
from typing import Any

__all__ = ["DESCRIPTORS", "EXECUTION", "LARGEST", "LONGEST", "SIDE", "KnownDescriptor", "parameter_constraints"]

# The parameters that all descriptors have. They change how something is computed, not the result.
EXECUTION = ("n_jobs", "verbose", "cache")
# Limits, so that a hostile file cannot make a descriptor use all memory: sides in pixels, scales, lengths of lists.
_MOST_PIXELS = 1 << 12
_MOST_POINTS = 1 << 30
LARGEST = 1000
LONGEST = 64


@dataclass(frozen=True)
class _Integer:
    least: int
    most: int = _MOST_PIXELS
    optional: bool = False

    def accepts(self, value: Any) -> bool:
        return (value is None and self.optional) or (
            isinstance(value, int) and not isinstance(value, bool) and self.least <= value <= self.most
        )

    def __str__(self) -> str:
        return f"an integer from {self.least} to {self.most}" + (" or null" if self.optional else "")


@dataclass(frozen=True)
class _Number:
    above_zero: bool = False

    def accepts(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return False
        return (value > 0 if self.above_zero else value >= 0) and value <= LARGEST

    def __str__(self) -> str:
        return f"a number {'above' if self.above_zero else 'of at least'} 0, up to {LARGEST}"


@dataclass(frozen=True)
class _Numbers:
    def accepts(self, value: Any) -> bool:
        return isinstance(value, list) and 0 < len(value) <= LONGEST and all(_Number(True).accepts(x) for x in value)

    def __str__(self) -> str:
        return f"a list of 1 to {LONGEST} numbers above 0"


@dataclass(frozen=True)
class _OneOf:
    choices: tuple[Any, ...]

    def accepts(self, value: Any) -> bool:
        # 1 == True, so the types must agree as well
        return any(value == choice and type(value) is type(choice) for choice in self.choices)

    def __str__(self) -> str:
        return "one of " + ", ".join(map(repr, self.choices))


@dataclass(frozen=True)
class KnownDescriptor:
    """A descriptor of this library."""

    module: str  # in bagwise.descriptors
    rules: Mapping[str, Any]  # values that files may hold for each parameter but those of EXECUTION
    option: str | None = None  # name on the command line
    modality: str = "images"
    color: bool = False  # whether images are opened in colour for it
    n_words: int | None = None  # size of the vocabulary of a descriptor that needs no codebook
    former_names: Mapping[str, str] = field(default_factory=dict)  # parameters in earlier files
    function: str | None = None  # in bagwise.descriptors.functions: what the class computes of an image
    assignment: Mapping[str, Any] | None = None  # to words by default, as parameters of `Assignment`; None: hard

    @property
    def added(self) -> dict[str, Any]:
        """Parameters that earlier files lack, with the values they mean. Files still leave these values out."""
        return {"max_side": None} if self.modality == "images" else {}


# The side that larger images or frames are shrunk to.
SIDE = _Integer(3, optional=True)
_SIZE = {"max_side": SIDE}
_SIFT = {"step": _Integer(1), "patch": _Integer(4), "scales": _Numbers(), "smoothing": _Number(), **_SIZE}
DESCRIPTORS = {
    "DenseSIFT": KnownDescriptor("sift", _SIFT, "sift", function="dense_sift"),
    "ColorSIFT": KnownDescriptor(
        "sift",
        {"space": _OneOf(("opponent", "rg", "c", "rgb")), **_SIFT},
        "color-sift",
        color=True,
        function="color_sift",
    ),
    "KeypointSIFT": KnownDescriptor(
        "sift",
        {
            "n_keypoints": _Integer(1, _MOST_POINTS, optional=True),
            "contrast_threshold": _Number(),
            "edge_threshold": _Number(above_zero=True),
            "sigma": _Number(above_zero=True),
            **_SIZE,
        },
        "keypoint-sift",
    ),
    "ColorCells": KnownDescriptor(
        "color", {"cell": _Integer(1), "step": _Integer(1), **_SIZE}, "color", color=True, function="color_cells"
    ),
    "HogLbp": KnownDescriptor("hog_lbp", {"cell": _Integer(2), "form": _OneOf(("root", "unit")), **_SIZE}, "hog-lbp"),
    "Patches": KnownDescriptor(
        "patches",
        {
            "patch": _Integer(1),
            "step": _Integer(1),
            "mode": _OneOf(("grey", "rgb")),
            "normalize": _OneOf(("mean", "standard", "l2", None)),
            **_SIZE,
        },
        "patches",
        former_names={"normalization": "normalize"},
    ),
    "LocalBinaryPatterns": KnownDescriptor(
        "lbp",
        {
            "uniform": _OneOf((True, False)),
            "cell": _Integer(1, optional=True),
            "normalize": _OneOf(("l1", "l2", None)),
            **_SIZE,
        },
        former_names={"norm": "normalize"},
    ),
    # files hold histograms of images, not of patches
    "LBPD5": KnownDescriptor(
        "lbp", {"per": _OneOf(("image",)), "patch": _Integer(5), "step": _Integer(1), **_SIZE}, n_words=1 << 16
    ),
    "VideoHogHof": KnownDescriptor(
        "video",
        {
            "features": _OneOf(("hog+hof", "hog", "hof")),
            "sigmas": _Numbers(),
            "taus": _Numbers(),
            "threshold": _Number(),
            "max_points": _Integer(1, _MOST_POINTS, optional=True),
            **_SIZE,
            "still": _Number(),
        },
        "hog-hof",
        modality="videos",
    ),
}


def parameter_constraints(name: str | None = None) -> dict[str, list[Any]]:
    """Parameter constraints of a descriptor class, in the form of scikit-learn; None: of what all of them have."""
    from bagwise._compat import N_JOBS, Interval, StrOptions

    def constraints(rule: Any) -> list[Any]:
        if isinstance(rule, _Numbers):
            return ["array-like"]
        if isinstance(rule, _Number):
            return [Interval(Real, 0, LARGEST, closed="right" if rule.above_zero else "both")]
        if isinstance(rule, _Integer):
            return [Interval(Integral, rule.least, rule.most, closed="both"), *([None] if rule.optional else [])]
        if True in rule.choices:
            return ["boolean"]
        return [StrOptions(set(rule.choices) - {None}), *([None] if None in rule.choices else [])]

    execution: list[list[Any]] = [list(N_JOBS), ["verbose"], [str, PathLike, None]]
    rules = {} if name is None else DESCRIPTORS[name].rules
    return dict(zip(EXECUTION, execution, strict=True)) | {
        parameter: constraints(rule) for parameter, rule in rules.items()
    }
