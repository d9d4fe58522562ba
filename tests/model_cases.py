"""Small models of all kinds."""

import numpy as np

from bagwise import Hierarchy, Model
from bagwise.descriptors import LBPD5
from bagwise.model import Head
from models.make_models import (
    image_model,
    random_hierarchy,
    text_model,
    weighted_image_model,
    weighted_text_model,
)


def table_model():
    hierarchy = random_hierarchy(5, np.random.default_rng(0))
    return Model(modality="table", hierarchy=Hierarchy(5, hierarchy.merges[:2], [np.nan, 1.5]), n_groups=4)


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


MADE = {
    "images": lambda: image_model(np.random.default_rng(0)),
    "texts": lambda: text_model(np.random.default_rng(0)),
    "weighted images": lambda: weighted_image_model(np.random.default_rng(0)),
    "weighted texts": lambda: weighted_text_model(np.random.default_rng(0)),
    "table": table_model,
    "odd": odd_model,
    "patterns": pattern_model,
}
