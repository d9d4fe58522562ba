"""Descriptors as names and plain parameters: what a file can hold, checked without importing the descriptor."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

from bagwise.errors import BagwiseError, unknown_name

__all__ = ["KNOWN_DESCRIPTORS", "BuiltWhenUsed", "DescriptorRecord"]

# A file of unknown origin must not make a descriptor take all memory: most pixels of a side, largest scales, longest
# lists of them.
_MOST_PIXELS = 1 << 12
_LARGEST = 1000
_LONGEST = 64


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
        return (value > 0 if self.above_zero else value >= 0) and value <= _LARGEST

    def __str__(self) -> str:
        return f"a number {'above' if self.above_zero else 'of at least'} 0, up to {_LARGEST}"


@dataclass(frozen=True)
class _Numbers:
    def accepts(self, value: Any) -> bool:
        return isinstance(value, list) and 0 < len(value) <= _LONGEST and all(_Number(True).accepts(x) for x in value)

    def __str__(self) -> str:
        return f"a list of 1 to {_LONGEST} numbers above 0"


@dataclass(frozen=True)
class _OneOf:
    choices: tuple[Any, ...]

    def accepts(self, value: Any) -> bool:
        # 1 == True, so the types must agree as well
        return any(value == choice and type(value) is type(choice) for choice in self.choices)

    def __str__(self) -> str:
        return "one of " + ", ".join(map(repr, self.choices))


@dataclass(frozen=True)
class _Known:
    """A descriptor that files may name: where it is, what it describes, and what its parameters may be."""

    module: str
    modality: str
    rules: Mapping[str, Any]
    # words that it counts itself, where it needs no codebook
    n_words: int | None = None


_MOST_POINTS = 1 << 30
_SIFT = {"step": _Integer(1), "patch": _Integer(4), "scales": _Numbers(), "smoothing": _Number()}
_BOOLEAN = _OneOf((True, False))
# The parameters are those of the classes without n_jobs, verbose and cache, which do not change what is computed.
KNOWN_DESCRIPTORS = {
    "DenseSIFT": _Known("sift", "images", _SIFT),
    "ColorSIFT": _Known("sift", "images", {"space": _OneOf(("opponent", "rg", "c", "rgb")), **_SIFT}),
    "KeypointSIFT": _Known(
        "sift",
        "images",
        {
            "n_keypoints": _Integer(1, _MOST_POINTS, optional=True),
            "contrast_threshold": _Number(),
            "edge_threshold": _Number(above_zero=True),
            "sigma": _Number(above_zero=True),
        },
    ),
    "Patches": _Known(
        "patches",
        "images",
        {
            "patch": _Integer(1),
            "step": _Integer(1),
            "mode": _OneOf(("grey", "rgb")),
            "normalization": _OneOf(("mean", "standard", "l2", None)),
        },
    ),
    "HogLbp": _Known("hog_lbp", "images", {"cell": _Integer(2), "form": _OneOf(("root", "unit"))}),
    "LocalBinaryPatterns": _Known(
        "lbp",
        "images",
        {"uniform": _BOOLEAN, "cell": _Integer(1, optional=True), "norm": _OneOf(("l1", "l2", None))},
    ),
    "LBPD5": _Known(
        "lbp", "images", {"per": _OneOf(("image",)), "patch": _Integer(5), "step": _Integer(1)}, n_words=1 << 16
    ),
    "VideoHogHof": _Known(
        "video",
        "videos",
        {
            "features": _OneOf(("hog+hof", "hog", "hof")),
            "sigmas": _Numbers(),
            "taus": _Numbers(),
            "threshold": _Number(),
            "max_points": _Integer(1, _MOST_POINTS, optional=True),
            "max_side": _Integer(3, optional=True),
            "still": _Number(),
        },
    ),
}


@dataclass(frozen=True)
class DescriptorRecord:
    """A descriptor of this library by its name and parameters, as JSON holds them.

    Parameters
    ----------
    name : str
        One of `KNOWN_DESCRIPTORS`.
    parameters : mapping
        All parameters of the class but `n_jobs`, `verbose` and `cache`.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name not in KNOWN_DESCRIPTORS:
            raise unknown_name("descriptor", self.name, KNOWN_DESCRIPTORS)
        rules = self.known.rules
        if not isinstance(self.parameters, Mapping) or set(self.parameters) != set(rules):
            given = sorted(map(str, self.parameters)) if isinstance(self.parameters, Mapping) else self.parameters
            raise BagwiseError(f"{self.name} has the parameters {sorted(rules)}, got {given}.")
        for name, rule in rules.items():
            if not rule.accepts(self.parameters[name]):
                raise BagwiseError(f"{name} of {self.name} must be {rule}; got {self.parameters[name]!r:.100}.")
        object.__setattr__(self, "parameters", dict(self.parameters))

    @classmethod
    def of(cls, descriptor: Any) -> DescriptorRecord:
        """Write down a descriptor."""
        name = type(descriptor).__name__
        known = KNOWN_DESCRIPTORS.get(name)
        if known is None or type(descriptor).__module__ != f"bagwise.descriptors.{known.module}":
            raise BagwiseError(
                f"A model keeps a descriptor of this library that learns nothing: {', '.join(KNOWN_DESCRIPTORS)}; "
                f"got {type(descriptor).__name__}. Without a descriptor, a model takes Bags."
            )
        return cls(name, {parameter: _plain(getattr(descriptor, parameter)) for parameter in known.rules})

    @property
    def known(self) -> _Known:
        """What is known of descriptors with this name."""
        return KNOWN_DESCRIPTORS[self.name]

    def build(self) -> Any:
        """Make the descriptor."""
        module = importlib.import_module(f"bagwise.descriptors.{self.known.module}")
        return getattr(module, self.name)(**self.parameters)


def _plain(value: Any) -> Any:
    """A parameter as JSON holds it; what JSON cannot hold stays and is refused later."""
    if isinstance(value, (bool, str)) or value is None:
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    return [_plain(entry) for entry in value] if isinstance(value, Sequence) else value


class BuiltWhenUsed:
    """A field of a dataclass that takes a descriptor or its record, and makes the descriptor when it is asked for.

    Importing descriptors takes longer than reading a model, and models are also used on vectors alone.
    """

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return None  # the default of the field
        if instance.__dict__["_descriptor"] is None and instance.descriptor_record is not None:
            instance.__dict__["_descriptor"] = instance.descriptor_record.build()
        return instance.__dict__["_descriptor"]

    def __set__(self, instance: Any, value: Any) -> None:
        recorded = value is None or isinstance(value, DescriptorRecord)
        instance.__dict__["descriptor_record"] = value if recorded else DescriptorRecord.of(value)
        instance.__dict__["_descriptor"] = None if recorded else value
