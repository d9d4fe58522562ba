"""Small models that the C++ runtime takes, and items for them."""

import dataclasses
import functools
import itertools

import numpy as np

from bagwise import Hierarchy, Model
from bagwise.app.model import Head
from bagwise.descriptors import ColorCells, ColorSIFT, DenseSIFT, Patches
from model_cases import random_hierarchy

ROOTS_BEFORE = {"term": "sqrt", "norm": "l1", "normalize": ()}
# Descriptors, sizes of their vocabularies, pyramid, other parameters of the model.
IMAGES = {
    "default": ([DenseSIFT(scales=(1.0, 2.0), max_side=60), ColorCells(max_side=60)], [40, 20], None, ROOTS_BEFORE),
    "pyramid": ([DenseSIFT(scales=(1.0, 2.0), max_side=60), ColorCells(max_side=48)], [30, 9], 5, {"norm": "l2"}),
    "smoothed": ([DenseSIFT(step=5, patch=13, scales=(0.7, 1.7), smoothing=1.1)], [40], 5, {}),
    "smoothed colours": ([ColorSIFT("opponent", step=6, patch=12, smoothing=0.8)], [33], None, {}),
    **{space: ([ColorSIFT(space, step=7, patch=12)], [20], None, {}) for space in ("rg", "c", "rgb")},
    **{
        f"patches {how}": ([Patches(patch=5, step=3, mode=mode, normalize=how, max_side=side)], [30], [(2, 3)], {})
        for how, mode, side in (("standard", "grey", 40), ("mean", "rgb", None), ("l2", "rgb", 50), (None, "grey", 33))
    },
}
SHAPES = [(48, 64), (61, 53), (100, 130), (120, 96), (20, 60), (10, 40), (3, 3), (1, 1), (47, 200), (240, 120)]


def picture(shape, random, *, color):
    """Return an image with structure of several sizes: sums of waves and a little noise."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    waves = [np.sin(x * a + y * b + c) for a, b, c in random.uniform(-0.7, 0.7, (12, 3)) * [1, 1, 9]]
    planes = np.tensordot(random.normal(size=(3, 12)), waves, 1) + 0.1 * random.normal(size=(3, *shape))
    image = np.clip(128 + 30 * planes, 0, 255).astype(np.uint8)
    return np.ascontiguousarray(np.moveaxis(image, 0, 2)) if color else image[0]


@functools.cache
def image_model(name):
    descriptors, sizes, pyramid, parameters = IMAGES[name]
    random = np.random.default_rng(len(name))
    known = [picture((70, 80), random, color=True) for _ in range(3)]
    codebooks = []
    for descriptor, size in zip(descriptors, sizes, strict=True):
        values = np.concatenate([descriptor.describe(image)[0] for image in known])
        codebooks.append(values[random.choice(len(values), size, replace=False)])
    trees = [random_hierarchy(size, random) for size in sizes]
    several = len(sizes) > 1
    model = Model(
        modality="images",
        hierarchy=Hierarchy.interleave(trees) if several else trees[0],
        n_groups=7,
        descriptor=descriptors if several else descriptors[0],
        codebook=codebooks if several else codebooks[0],
        pyramid=pyramid,
        classes=["a", "b", "ç"],
        **parameters,
    )
    heads = {n: Head(random.normal(size=(3, n * model.layout.n_cells)), random.normal(size=3)) for n in (4, 7)}
    return dataclasses.replace(model, heads=heads, calibration={7: 1.5}, given_names={2: "ééé"})


WORDS = (
    "the cat dog straße STRASSE όσος οδυσσεύς οδυσσευς istanbul stanbul ну мы привет 東京 日本語 ไทย ক хай १२३ a1 _x ǆ"
    " 2ⁿ ﬁne ñandú nandu cafe café the_cat don can"
)
TEXTS = [
    "The cat sat, the DOG ran; the cat the cat!",
    "",
    "Straße STRASSE ὈΔΥΣΣΕΎΣ ὈΔΥΣΣΕΥΣ ΟΔΥΣΣΕΎΣ ΌΣΟΣ ΣΑΣ Σ ΑΣ.Β ΑΣ: ΟΔΥΣΣΕΥΣ’",
    "İstanbul ISTANBUL Привет, МЫ 東京 日本語 ไทย ক হাই १२३ Ǆ ǅ 2ⁿ A1 _X",
    "cafe\u0301 CAFÉ ﬁne ÑANDÚ the\u00a0cat can't don\u2019t the\u200dcat \ud83d\ude00 𝐀𝐁 𐐀𐐨 ᏣᎳᎩ ꭳꭰ",
]
BROKEN = [b"the \xffcat", b"\xe2\x82", b"the\xe2\x82cat \xed\xa0\x80dog", b"\xc0\xafthe cat \xf5dog\xf0\x9f\x98the"]


@functools.cache
def text_model(ngrams=1, pattern=r"(?u)\b\w\w+\b", names=None, **options):
    random = np.random.default_rng(ngrams)
    if names is None:
        names = list(dict.fromkeys(WORDS.split()))
        names += [f"{a} {b}" for a, b in itertools.pairwise(names[:7])] + ["the the", "cat the"]
        names = sorted(set(names))
    tokenizer = {"lowercase": True, "token_pattern": pattern, "ngram_range": [1, ngrams], "stop_words": None} | options
    tokenizer = {name: value for name, value in tokenizer.items() if value is not None}
    return Model(
        modality="texts",
        hierarchy=random_hierarchy(len(names), random),
        n_groups=9,
        word_names=names,
        tokenizer={name: list(held) if isinstance(held, tuple) else held for name, held in tokenizer.items()},
        term="log",
        word_weights=random.uniform(0, 2, len(names)) * (random.random(len(names)) < 0.9),
        norm="l2",
        normalize=(),
        classes=["x", "y", "z"],
        heads={9: Head(random.normal(size=(3, 9)), random.normal(size=3))},
    )
