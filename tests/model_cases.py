"""Small models of all kinds, and files that both readers refuse."""

import dataclasses

import numpy as np
import pytest

from bagwise import BagwiseError, Hierarchy, Model, runtime
from bagwise.app.model import Head, PathErrors
from bagwise.descriptors import LBPD5, ColorCells, Patches
from bagwise.merging.group_statistics import GroupStatistics

TEXTS = ["The cat sat, the cat ran!", "A dog ran home", "", "Home: the dog, the dog", "unknown words"]


def random_hierarchy(n_words, random):
    """Merges at random, down to one word."""
    roots, merges = list(range(n_words)), []
    while len(roots) > 1:
        s, t = sorted(random.choice(roots, 2, replace=False).tolist())
        merges.append((s, t))
        roots.remove(t)
    return Hierarchy(n_words, merges, random.random(n_words - 1), "random")


def image_model(random):
    return Model(
        modality="images",
        hierarchy=random_hierarchy(12, random),
        n_groups=4,
        descriptor=Patches(patch=2, step=2),
        codebook=random.normal(size=(12, 4)),
        pyramid=5,
        classes=["blue", "green", "rouge é"],
        heads={n: Head(random.normal(size=(3, 5 * n)), random.normal(size=3)) for n in (2, 4)},
        options={"words": 12, "to": [2, 4]},
        provenance={"n_items": 6, "source": "made up"},
    )


def text_model(random):
    names = ["cat", "dog", "home", "ran", "sat", "the", "the cat", "the dog"]
    return Model(
        modality="texts",
        hierarchy=random_hierarchy(8, random),
        n_groups=3,
        word_names=names,
        word_totals=np.arange(8, 0, -1),
        tokenizer={"lowercase": True, "ngram_range": (1, 2), "stop_words": ["a"]},
        classes=["cats", "dogs"],
        heads={3: Head(random.normal(size=(2, 3)), random.normal(size=2))},
        path=PathErrors([1, 3, 8], [0.5, 0.25, 0.2], [0.05, 0.05, 0.05], "made up"),
    )


def weighted_image_model(random):
    return dataclasses.replace(image_model(random), term="sqrt", norm="l2", normalize=())


def weighted_text_model(random):
    weights = np.linspace(0, 3, 8)
    return dataclasses.replace(text_model(random), term="log", word_weights=weights, norm="l2", normalize=())


def refused(path, message, by=("library", "runtime")):
    """Both readers refuse a file, in words that name it."""
    readers = {"library": (Model.load, BagwiseError), "runtime": (runtime.load, runtime.ModelFileError)}
    for name in by:
        load, kind = readers[name]
        with pytest.raises(kind, match=message) as caught:
            load(path)
        assert str(path) in str(caught.value)
        assert type(caught.value) is kind


def table_model():
    hierarchy = random_hierarchy(5, np.random.default_rng(0))
    return Model(modality="table", hierarchy=Hierarchy(5, hierarchy.merges[:2], [np.nan, 1.5]), n_groups=4)


def measurement_model():
    """Columns of different scales, two of them negative."""
    random = np.random.default_rng(0)
    return Model(
        modality="table",
        hierarchy=random_hierarchy(6, random),
        n_groups=4,
        word_weights=random.random(6),
        column_shift=random.normal(0, 50, 6),
        normalize=(),
        classes=["a", "b"],
        heads={4: Head(random.normal(size=(2, 4)), [0.5, -0.5])},
    )


def odd_model():
    """Names that are hard to write."""
    names = ["", "a b\n", "é\u4e2d", "\udc80", "…" * 50]
    return Model(
        modality="texts",
        hierarchy=Hierarchy(5, [], []),
        n_groups=5,
        word_names=names,
        classes=["\udcff", '"', "\x00\\"],
        heads={5: Head(np.eye(3, 5), np.zeros(3))},
        provenance={"source": "\udc80/…"},
    )


def pattern_model():
    merges = [[0, k] for k in range((1 << 16) - 1, 9, -1)]
    return Model(
        modality="images", hierarchy=Hierarchy(1 << 16, merges, np.zeros(len(merges))), n_groups=10, descriptor=LBPD5()
    )


def two_vocabularies(pyramid=None, *, n=4, **changes):
    """Patches and colours, 6 and 5 words."""
    random = np.random.default_rng(0)
    hierarchy = Hierarchy.interleave([random_hierarchy(size, random) for size in (6, 5)])
    model = Model(
        modality="images",
        hierarchy=hierarchy,
        n_groups=n,
        descriptor=[Patches(patch=4, step=4), ColorCells()],
        codebook=[random.normal(size=(6, 16)), random.normal(128, 30, (5, 6))],
        pyramid=pyramid,
        classes=list("abc"),
        norm="l1",
        normalize=("power",),
    )
    head = Head(random.normal(size=(3, n * model.layout.n_cells)), random.normal(size=3))
    return dataclasses.replace(model, heads={n: head}, **changes)


def edited_model():
    """Texts whose groups were edited, with statistics of groups."""
    model = weighted_text_model(np.random.default_rng(0))
    by_aib = Hierarchy(8, model.hierarchy.merges, model.hierarchy.scores, "aib")
    statistics = GroupStatistics("aib", np.random.default_rng(1).random((8, 2)), 8)
    model = dataclasses.replace(model, hierarchy=by_aib, group_statistics=statistics)
    words = max(model.groups(), key=len)[:2].tolist()
    return model.apply(
        [
            {"edit": "move", "n_groups": 3, "words": words[:1], "to": None},
            {"edit": "cannot_link", "n_groups": 4, "words": words},
            {"edit": "rename", "n_groups": 4, "group": 1, "name": "edited by hand"},
        ]
    )


MADE = {
    "images": lambda: image_model(np.random.default_rng(0)),
    "texts": lambda: text_model(np.random.default_rng(0)),
    "weighted images": lambda: weighted_image_model(np.random.default_rng(0)),
    "weighted texts": lambda: weighted_text_model(np.random.default_rng(0)),
    "compact texts": lambda: weighted_text_model(np.random.default_rng(0)).compact(),
    "table": table_model,
    "measurements": measurement_model,
    "odd": odd_model,
    "patterns": pattern_model,
    "two vocabularies": two_vocabularies,
    "edited": edited_model,
    "int8 images": lambda: two_vocabularies().quantize(),
    "int8 texts": lambda: weighted_text_model(np.random.default_rng(0)).compact().quantize(),
}


def saved(model, folder):
    """The bytes of a model."""
    return model.save(folder / "model.bagwise").read_bytes()
