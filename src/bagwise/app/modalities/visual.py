"""What images and videos share: words are learned from their descriptors, and have places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bagwise._utils.checks import as_values, frozen
from bagwise.app.modalities.base import Modality, PlannedWords, spaced
from bagwise.errors import BagwiseError, OptionError
from bagwise.runtime import MOST_VOCABULARIES

if TYPE_CHECKING:
    from bagwise.app.modalities.vectorizers import Vectorizer
    from bagwise.app.model.model import Model
    from bagwise.app.options import FitOptions
    from bagwise.codebooks.encoders import FewEncoder
    from bagwise.sources.collection import Collection

__all__ = ["VisualModality", "checked_assignments", "checked_descriptors"]

_WORDS = 1000
# Network words of many classes: with 100 classes of Caltech-101, 2000 words err on 6.3 %, 1000 on 6.9 %.
_MANY_CLASSES, _MANY_CLASSES_WORDS = 50, 2000
# Patches of two sizes: cross-validation on training parts of Scene-15, Corel-1k and Caltech-101 gave errors (all words)
# of 26.7, 7.0 and 2.0 %; with one size of 16 pixels 30.0, 7.2 and 3.2 %, of 32 pixels 31.0, 6.4 and 1.5 %.
_SIFT_SCALES = (1.0, 2.0)
_PLANNED = 8  # items that are described for a plan
_MANIFOLD_WORDS = 128  # that are moved by `ManifoldBagOfFeatures`, which is its default


class VisualModality(Modality):
    """Images and videos."""

    learns_words = True
    two_classes_by = "csm"
    has_files = True
    default_descriptor: ClassVar[str]

    def vectorizer(self, options: FitOptions, *, n_classes: int = 0, n_components: int | None = None) -> Vectorizer:
        """Return the vectorizer that learns words from descriptors."""
        from bagwise.app.modalities.visual_words import VisualVectorizer
        from bagwise.app.options import check_options
        from bagwise.codebooks.pyramids import resolve_pyramid

        check_options(options, self.name)
        descriptors = self.descriptors(options)
        n_words = options.n_words or (None if n_components is None else _MANIFOLD_WORDS)
        if n_words is None:
            many = n_classes >= _MANY_CLASSES and descriptors[0].name == "NetworkFeatures"
            n_words = _MANY_CLASSES_WORDS if many else _WORDS
        return VisualVectorizer(
            self.name,
            descriptors,
            pyramid=resolve_pyramid(options.pyramid),
            n_words=(n_words, *[max(2, n_words // 2)] * (len(descriptors) - 1)),
            assignments=[one.assignment for one in descriptors],
            fewer=options.n_words is None,  # a default is no error
            n_components=n_components,
            random_state=options.random_state,
        )

    def descriptors(self, options: FitOptions) -> list[Any]:
        """Return the descriptors that the options of a fit ask for."""
        from bagwise.descriptors import registry

        asked = self.default_descriptor if options.descriptor == "auto" else options.descriptor
        names = registry.split_names(asked)
        accepted = [one.option for one in registry.DESCRIPTORS.values() if one.option and self.name in one.modalities]
        made: list[Any] = []
        for name in names:
            known = registry.named_descriptor(name)
            if known is None or self.name not in registry.DESCRIPTORS[known[0]].modalities:
                message = f"The descriptor {name!r} does not describe {self.name}. Accepted: {', '.join(accepted)}."
                raise OptionError("descriptor", message)
            kind, parameters = known
            cls = registry.descriptor_class(kind)
            made.append(cls(**parameters, n_jobs=options.n_jobs, cache=options.cache))
            made[-1].set_params(**self._sizes(cls, options))
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

    def _sizes(self, descriptor: Any, options: FitOptions) -> dict[str, Any]:
        """Return the parameters of a descriptor for how large or how long items are."""
        raise NotImplementedError

    def restore(self, model: Model) -> Vectorizer:
        """Return the vectorizer of a model."""
        from bagwise.app.modalities.visual_words import VisualVectorizer

        how: dict[str, Any] = {"n_words": [model.hierarchy.n_words], "assignments": model.assignment or None}
        return VisualVectorizer(self.name, model.descriptors, model.codebooks, model.pyramid, **how)

    def planned_words(self, collection: Collection, options: FitOptions, n_classes: int) -> PlannedWords:
        """Describe some items, and return how many descriptors they have, and at most how many different words."""
        vectorizer: Any = self.vectorizer(options, n_classes=n_classes)
        describing = vectorizer.describe(
            spaced(collection, _PLANNED), on_error=options.on_error or "skip", n_jobs=options.n_jobs
        )
        vectors = [[np.asarray(bags.values) for bags in batch[: len(vectorizer.vocabularies)]] for batch in describing]
        counts = [sum(len(values) for values in column) / len(describing.kept) for column in zip(*vectors, strict=True)]
        if not all(counts):
            raise BagwiseError(
                f"The first items of {collection.source} have no descriptors, so nothing can be planned."
            )
        each = zip(counts, vectorizer.vocabularies, vectorizer.assignments, strict=True)
        per_item = len(vectorizer.pyramid) * sum(min(size, (one.n_entries or size) * n) for n, size, one in each)
        names = tuple(one.name for one in vectorizer.descriptors)
        width = max(values.shape[1] for values in vectors[0])
        return PlannedWords(tuple(vectorizer.vocabularies), per_item, names, sum(counts), width)

    def _check_words(self, model: Model) -> None:
        """Check that each descriptor that needs a codebook has one, and that these have all words together."""
        n, descriptors = model.hierarchy.n_words, model.descriptors
        several = isinstance(model.codebook, (list, tuple)) and len(model.codebook) > 0
        several = several and np.ndim(model.codebook[0]) == 2  # type: ignore[index]
        codebooks: list[Any] = [] if model.codebook is None else list(model.codebook) if several else [model.codebook]
        names = " and ".join(one.name for one in descriptors)
        by = f" by {names}" if descriptors else ""
        counting = [one for one in descriptors if one.n_words is not None]
        if counting and len(descriptors) > 1:
            raise BagwiseError(
                f"{counting[0].name} counts words itself and has no other descriptors beside it; got {names}."
            )
        if bool(codebooks) == bool(counting):
            needs = "has no" if codebooks else "needs a"
            raise BagwiseError(f"A model of {self.name}{by} {needs} codebook.")
        if counting and (n != counting[0].n_words or model.pyramid != ((1, 1),)):
            counted = counting[0].n_words
            raise BagwiseError(f"A model{by} has {counted} words and no pyramid; got {n} words.")
        if codebooks and descriptors and len(descriptors) != len(codebooks):
            raise BagwiseError(f"{len(descriptors)} descriptors need as many codebooks; got {len(codebooks)}.")
        if len(codebooks) > MOST_VOCABULARIES:
            raise BagwiseError(f"A model has at most {MOST_VOCABULARIES} codebooks, got {len(codebooks)}.")
        words = tuple(frozen(as_values(codebook, np.float32, "codebook")) for codebook in codebooks)
        if words and (0 in map(len, words) or sum(map(len, words)) != n):
            sizes = " + ".join(str(len(codebook)) for codebook in words)
            raise BagwiseError(f"codebook must have one entry per word of the hierarchy, {n}; got {sizes}.")
        if any(codebook.shape[1] < 1 for codebook in words):
            raise BagwiseError("Words of a codebook need at least one feature, got 0.")
        model._set(codebook=words if len(words) > 1 else words[0] if words else None)
        model._set(assignment=checked_assignments(model.assignment, len(words)))
        if model.word_names is not None:
            raise BagwiseError(f"Words of {self.name} have no names, but word_names were given.")

    def graph_facts(self, model: Model) -> dict[str, Any]:
        """Return the descriptors and the pyramid."""
        records = [{"name": one.name, "parameters": one.parameters} for one in model.descriptors]
        return {"descriptors": records, "pyramid": [list(grid) for grid in model.pyramid]}


def checked_assignments(assignments: Any, n_codebooks: int) -> tuple[FewEncoder, ...]:
    """Return how descriptors are assigned to the words of each vocabulary; None: to the nearest word."""
    if not n_codebooks and not assignments:
        return ()
    from bagwise.codebooks.encoders import ENCODERS, Encoder, FewEncoder, as_encoder  # deferred: texts do without SciPy

    alone = isinstance(assignments, (str, Encoder, Mapping))
    some = ["hard"] * n_codebooks if assignments is None else [assignments] if alone else assignments
    if not isinstance(some, (list, tuple)) or len(some) != n_codebooks:
        n = len(some) if isinstance(some, (list, tuple)) else repr(assignments)
        raise BagwiseError(f"{n_codebooks} codebooks need as many assignments, got {n}.")
    encoders = []
    for one in map(as_encoder, some):
        one.check()
        if not isinstance(one, FewEncoder):
            few = ", ".join(repr(name) for name, kind in ENCODERS.items() if issubclass(kind, FewEncoder))
            raise BagwiseError(f"Models assign descriptors to few words each, by {few}; got {one!r:.100}.")
        encoders.append(one)
    return tuple(encoders)


def checked_descriptors(descriptors: Any) -> tuple[Any, ...]:
    """Return the descriptors of a model, one or several or none, if files can hold them."""
    from bagwise.descriptors.registry import DESCRIPTORS

    several: Sequence[Any] = descriptors if isinstance(descriptors, (list, tuple)) else (descriptors,)
    some = () if descriptors is None else tuple(several)
    for one in some:
        known = DESCRIPTORS.get(type(one).__name__)
        if known is None or type(one).__module__ != known.module:
            raise BagwiseError(
                f"A model stores descriptors of this library that are not fitted: {', '.join(DESCRIPTORS)}; "
                f"got {type(one).__name__}. Without a descriptor, a model takes Bags."
            )
        one.check()
    return some
