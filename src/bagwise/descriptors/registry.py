"""The descriptors that model files and the command line know: names, modalities, and ranges of parameters.

This table is the only place that lists them. Classes take their parameter constraints from it, and a model file is
checked against it without importing a descriptor, so it imports nothing heavy.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from os import PathLike
from typing import Any

__all__ = [
    "DESCRIPTORS",
    "EXECUTION",
    "LARGEST",
    "LEAST_SIDE",
    "LONGEST",
    "MOST_SIDE",
    "SIDE",
    "KnownDescriptor",
    "named_descriptor",
]
__all__ += ["parameter_constraints", "split_names", "without_folder"]

# Parameters that change how something is computed, not the result. All descriptors have the first three.
EXECUTION = ("n_jobs", "verbose", "cache", "device")
# Limits, so that a hostile file cannot make a descriptor use all memory: sides in pixels, scales, lengths of lists.
_MOST_PIXELS = 1 << 12
_MOST_POINTS = 1 << 30
LARGEST = 1000
LONGEST = 64
# As `bagwise.runtime_network` has them, which cannot be imported here: help and `import bagwise` do without NumPy.
LEAST_SIDE, MOST_SIDE = 64, 2048


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
class _Network:
    """A network in a file: never a path, which would be opened on another machine."""

    def accepts(self, value: Any) -> bool:
        return value == "auto" or (isinstance(value, str) and bool(re.fullmatch("sha256:[0-9a-f]{64}", value)))

    def __str__(self) -> str:
        return "'auto', or 'sha256:' and 64 hexadecimal digits"


@dataclass(frozen=True)
class _Layer:
    def accepts(self, value: Any) -> bool:
        return value is None or (isinstance(value, str) and 0 < len(value) <= LARGEST)

    def __str__(self) -> str:
        return f"a string of 1 to {LARGEST} characters or null"


@dataclass(frozen=True)
class _Channels:
    above_zero: bool = False

    def accepts(self, value: Any) -> bool:
        if value is None:
            return True
        return isinstance(value, list) and len(value) == 3 and all(map(self._accepts_number, value))

    def _accepts_number(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        return (0 if self.above_zero else -LARGEST) < value <= LARGEST

    def __str__(self) -> str:
        return f"a list of 3 numbers above {0 if self.above_zero else -LARGEST}, up to {LARGEST}, or null"


@dataclass(frozen=True)
class KnownDescriptor:
    """A descriptor of this library."""

    module: str  # in bagwise.descriptors
    rules: Mapping[str, Any]  # values that files may hold for each parameter but those of EXECUTION
    option: str | None = None  # name on the command line
    modality: str = "images"
    color: bool = False  # whether images are opened in colour for it
    frames: bool = False  # whether it describes videos as well, given a number of frames
    n_words: int | None = None  # size of the vocabulary of a descriptor that needs no codebook
    function: str | None = None  # in bagwise.descriptors.functions: what the class computes of an image
    assignment: Mapping[str, Any] | None = None  # to words by default, as parameters of `Assignment`; None: hard

    @property
    def modalities(self) -> tuple[str, ...]:
        """What it describes."""
        return (self.modality, "videos") if self.frames else (self.modality,)


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
    ),
    "LocalBinaryPatterns": KnownDescriptor(
        "lbp",
        {
            "uniform": _OneOf((True, False)),
            "cell": _Integer(1, optional=True),
            "normalize": _OneOf(("l1", "l2", None)),
            **_SIZE,
        },
    ),
    "LBPD5": KnownDescriptor("lbp", _SIZE, n_words=1 << 16),
    "NetworkFeatures": KnownDescriptor(
        "network",
        {
            "network": _Network(),
            "layer": _Layer(),
            "side": _Integer(LEAST_SIDE, MOST_SIDE, optional=True),
            "mean": _Channels(),
            "std": _Channels(above_zero=True),
            "n_frames": _Integer(1, _MOST_POINTS, optional=True),
            **_SIZE,
        },
        "network",
        color=True,
        frames=True,
        assignment={"name": "localized", "n_neighbors": 10, "sharpness": 5.0, "weighted": True},
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


_FILE_OPTION = "network:"  # and the name of an ONNX file


def split_names(text: str) -> list[str]:
    """Split names of descriptors as they are on the command line; names of files may have a ``+`` as well.

    >>> split_names("sift+network"), split_names("network:a+b.onnx+color")
    (['sift', 'network'], ['network:a+b.onnx', 'color'])
    """
    options = {known.option for known in DESCRIPTORS.values()}
    names: list[str] = []
    for piece in text.split("+"):
        if names and names[-1].startswith(_FILE_OPTION) and piece.partition(":")[0] not in options:
            names[-1] += f"+{piece}"
        else:
            names.append(piece)
    return names


def named_descriptor(name: str) -> tuple[str, dict[str, Any]] | None:
    """Return the class that a name on the command line stands for, and the parameters in it; None if there is none.

    >>> named_descriptor("sift"), named_descriptor("network:vit.onnx"), named_descriptor("surf")
    (('DenseSIFT', {}), ('NetworkFeatures', {'network': 'vit.onnx'}), None)
    """
    if name.startswith(_FILE_OPTION) and len(name) > len(_FILE_OPTION):
        return "NetworkFeatures", {"network": name.removeprefix(_FILE_OPTION)}
    return next(((one, {}) for one, known in DESCRIPTORS.items() if known.option == name), None)


def without_folder(name: str) -> str:
    """Return a name on the command line without the folder of the file in it.

    >>> without_folder("network:/home/me/vit.onnx"), without_folder("sift")
    ('network:vit.onnx', 'sift')
    """
    found = named_descriptor(name)
    path = None if found is None else found[1].get("network")
    return name if path is None else f"{_FILE_OPTION}{os.path.basename(path)}"


def parameter_constraints(name: str | None = None) -> dict[str, list[Any]]:
    """Parameter constraints of a descriptor class, in the form of scikit-learn; None: of what all of them have."""
    from bagwise._compat import N_JOBS, Interval, StrOptions

    def constraints(rule: Any) -> list[Any]:
        if isinstance(rule, (_Numbers, _Network, _Layer, _Channels)):
            return ["array-like"]
        if isinstance(rule, _Number):
            return [Interval(Real, 0, LARGEST, closed="right" if rule.above_zero else "both")]
        if isinstance(rule, _Integer):
            return [Interval(Integral, rule.least, rule.most, closed="both"), *([None] if rule.optional else [])]
        if True in rule.choices:
            return ["boolean"]
        return [StrOptions(set(rule.choices) - {None}), *([None] if None in rule.choices else [])]

    execution: list[list[Any]] = [list(N_JOBS), ["verbose"], [str, PathLike, None], [StrOptions({"cpu", "cuda"}), None]]
    rules = {} if name is None else DESCRIPTORS[name].rules
    return dict(zip(EXECUTION, execution, strict=True)) | {
        parameter: constraints(rule) for parameter, rule in rules.items()
    }
