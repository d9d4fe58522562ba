"""The table of descriptors that model files and the command line know.

Names alone, so that help and `import bagwise` load no descriptor: parameters and their rules are with the class.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import Any

from bagwise._utils.records import Integer
from bagwise.errors import unknown_name

__all__ = ["DESCRIPTORS", "MOST_PIXELS", "SIDE", "KnownDescriptor", "descriptor_class", "named_descriptor"]
__all__ += ["split_names", "without_folder"]

# Limit of sides in pixels, so that a hostile file cannot make a descriptor use all memory.
MOST_PIXELS = 1 << 12
# The side that larger images or frames are shrunk to.
SIDE = Integer(3, MOST_PIXELS, optional=True)


@dataclass(frozen=True)
class KnownDescriptor:
    """Where a descriptor is, what it describes, and its name on the command line; None: it has none."""

    module: str
    option: str | None = None
    modalities: tuple[str, ...] = ("images",)


DESCRIPTORS = {
    "DenseSIFT": KnownDescriptor("bagwise.descriptors.sift", "sift"),
    "ColorSIFT": KnownDescriptor("bagwise.descriptors.sift", "color-sift"),
    "KeypointSIFT": KnownDescriptor("bagwise.descriptors.sift", "keypoint-sift"),
    "ColorCells": KnownDescriptor("bagwise.descriptors.color", "color"),
    "HogLbp": KnownDescriptor("bagwise.descriptors.hog_lbp", "hog-lbp"),
    "Patches": KnownDescriptor("bagwise.descriptors.patches", "patches"),
    "LocalBinaryPatterns": KnownDescriptor("bagwise.descriptors.lbp"),
    "LBPD5": KnownDescriptor("bagwise.descriptors.lbp"),
    "NetworkFeatures": KnownDescriptor("bagwise.descriptors.network", "network", ("images", "videos")),
    "VideoHogHof": KnownDescriptor("bagwise.descriptors.video", "hog-hof", ("videos",)),
}


def descriptor_class(name: Any) -> Any:
    """Import the class of a descriptor in the table."""
    if not isinstance(name, str) or name not in DESCRIPTORS:
        raise unknown_name("descriptor", name, DESCRIPTORS)
    return getattr(importlib.import_module(DESCRIPTORS[name].module), name)


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
    named = named_descriptor(name)
    path = None if named is None else named[1].get("network")
    return name if path is None else f"{_FILE_OPTION}{os.path.basename(path)}"
