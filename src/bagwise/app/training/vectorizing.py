"""Vectorizers and descriptors as the options of a fit say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bagwise.app.model.vectorizers import TableVectorizer, TextVectorizer, Vectorizer
from bagwise.app.model.visual import VisualVectorizer
from bagwise.app.options import FitOptions, check_options
from bagwise.descriptors import registry
from bagwise.errors import OptionError

__all__ = ["make_descriptors", "make_vectorizer"]

# Frames of a video that a network describes.
_N_FRAMES = 16
_IMAGE_WORDS = 1000
# Network words of many classes: with 100 classes of Caltech-101, 2000 words err on 6.3 %, 1000 on 6.9 %.
_MANY_CLASSES, _MANY_CLASSES_WORDS = 50, 2000
_TEXT_WORDS = 30_000
# Patches of two sizes: cross-validation on training parts of Scene-15, Corel-1k and Caltech-101 gave errors (all words)
# of 26.7, 7.0 and 2.0 %; with one size of 16 pixels 30.0, 7.2 and 3.2 %, of 32 pixels 31.0, 6.4 and 1.5 %.
_SIFT_SCALES = (1.0, 2.0)
_MANIFOLD_WORDS = 128  # that are moved by `ManifoldBagOfFeatures`, which is its default
# Without classes: more are no better for clusters of texts.
_CLUSTERED_TEXT_WORDS = 20_000
_TOKEN = r"(?u)\b\w\w+\b"


def make_vectorizer(
    options: FitOptions, modality: str, *, n_classes: int = 0, n_components: int | None = None
) -> Vectorizer:
    """Build the vectorizer of a modality as the options say; see `bagwise.app.model.vectorizers`.

    With `n_components`, words of images and videos are moved along a manifold of so many dimensions.
    """
    from bagwise.codebooks.pyramids import resolve_pyramid

    check_options(options, modality)
    if n_components is not None and modality not in ("images", "videos"):
        what = "texts have words already" if modality == "texts" else "the columns of a table are its words"
        raise OptionError(
            "method", f"method='manifold' moves words that are learned from images or videos, but {what}. Use 'kmeans'."
        )
    if modality == "table":
        return TableVectorizer()
    if modality == "texts":
        tokenizer = {
            "lowercase": True,
            "token_pattern": _TOKEN,
            "ngram_range": [1, options.ngrams],
            "stop_words": options.stop_words,  # n-grams skip them, so that the model must do so as well
        }
        return TextVectorizer(tokenizer, n_words=_text_words(options, n_classes > 0), min_count=options.min_count)
    descriptors = make_descriptors(options, modality)
    asked = options if n_components is None else options.with_changes(n_words=options.n_words or _MANIFOLD_WORDS)
    return VisualVectorizer(
        modality,
        descriptors,
        pyramid=resolve_pyramid(options.pyramid),
        n_words=_visual_words(asked, descriptors, n_classes),
        assignments=[one.assignment for one in descriptors],
        fewer=options.n_words is None,  # a default is no error
        n_components=n_components,
        random_state=options.random_state,
        memory_limit=options.memory_limit,
    )


def make_descriptors(options: FitOptions, modality: str) -> list[Any]:
    """Build the descriptors of the options, for images or videos."""
    default = "hog-hof" if modality == "videos" else "sift"
    names = registry.split_names(default if options.descriptor == "auto" else options.descriptor)
    accepted = [one.option for one in registry.DESCRIPTORS.values() if one.option and modality in one.modalities]
    made = []
    for name in names:
        found = registry.named_descriptor(name)
        if found is None or modality not in registry.DESCRIPTORS[found[0]].modalities:
            message = f"The descriptor {name!r} does not describe {modality}. Accepted: {', '.join(accepted)}."
            raise OptionError("descriptor", message)
        kind, parameters = found
        cls = registry.descriptor_class(kind)
        made.append(cls(**parameters, n_jobs=options.n_jobs, cache=options.cache))
        if modality == "images":
            made[-1].set_params(max_side=options.max_side or None)
        elif "n_frames" in cls.rules():
            made[-1].set_params(n_frames=options.n_frames or _N_FRAMES)
        if name == "sift":
            made[-1].set_params(scales=_SIFT_SCALES)
    if options.n_frames is not None and not any("n_frames" in one.get_params(deep=False) for one in made):
        message = f"The descriptor {names[0]!r} has no n_frames. Remove n_frames, or choose network."
        raise OptionError("n_frames", message)
    first, taken = made[0], made[0].get_params(deep=False)
    for option, parameter in (("step", "step"), ("patch", "cell" if "cell" in taken else "patch")):
        value = getattr(options, option)
        if value is None:
            continue
        if parameter not in taken:
            message = f"The descriptor {names[0]!r} has no {option}. Remove {option}, or choose another."
            raise OptionError(option, message)
        first.set_params(**{parameter: value})
    return made


def _text_words(options: FitOptions, has_classes: bool) -> int:
    """Return the largest size of the vocabulary of texts."""
    return options.n_words or (_TEXT_WORDS if has_classes else _CLUSTERED_TEXT_WORDS)


def _visual_words(options: FitOptions, descriptors: Sequence[Any], n_classes: int = 0) -> tuple[int, ...]:
    """Return the number of words of the vocabulary of each descriptor of images or videos."""
    many = n_classes >= _MANY_CLASSES and descriptors[0].name == "NetworkFeatures"
    first = options.n_words or (_MANY_CLASSES_WORDS if many else _IMAGE_WORDS)
    return (first, *[max(2, first // 2)] * (len(descriptors) - 1))
