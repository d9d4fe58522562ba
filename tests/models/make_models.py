"""Write one small model of each form in the present schema, with what it must give for ever.

    python tests/models/make_models.py

makes the folder ``schema<N>`` beside this script, N being the schema that this version of bagwise writes:

- ``images.bagwise``: images by pixels of patches, 12 words, a pyramid of 5 cells, heads for 2 and 4 words.
- ``texts.bagwise``, in schema 1 the folder ``texts``:
  texts with a vocabulary of 8 words, pairs of words among them, and a path of errors.
- In schema 2 both have weighted words: roots before merging, and TF-IDF.
- In schema 3 their words and heads are of 8 bits as well.
- ``expected.json``: items, and what these models made of them on the day they were written.

Run it once, when the schema changes. Old folders are never written again: `tests/model/test_old_models.py` reads them.
"""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np

from bagwise import Hierarchy, Model
from bagwise.descriptors import Patches
from bagwise.model import Head, PathErrors
from bagwise.runtime import SCHEMA

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


def outputs(model, items):
    features = model.transform(items)
    return {
        "features": features.toarray().tolist(),
        "scores": model.decision_function(items).tolist(),
        "classes": model.predict(items).tolist(),
        "feature_names": model.feature_names().tolist(),
        "lookup": model.lookup.tolist(),
    }


def main():
    folder = Path(__file__).parent / f"schema{SCHEMA}"
    if folder.exists():
        sys.exit(f"{folder} is there already, and old models stay as they are.")
    random = np.random.default_rng(SCHEMA)
    images, texts = random.integers(0, 256, (3, 8, 6)), TEXTS
    pictured, worded = weighted_image_model(random).quantize(), weighted_text_model(random).quantize()
    folder.mkdir()
    pictured.save(folder / "images.bagwise")
    worded.save(folder / "texts.bagwise")
    expected = {
        "images": {"items": images.tolist(), **outputs(pictured, list(images))},
        "texts": {"items": texts, **outputs(worded, texts)},
    }
    (folder / "expected.json").write_text(json.dumps(expected) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
