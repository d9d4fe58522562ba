"""Errors of `bagwise fit` with words that are learned from all images, or from a few of them.

    python benchmarks/word_items.py --data DIR

Words of a collection of more than 5000 images are learned from 5000 (`most_learned_from`); descriptors of others
are never stored. What that costs shows on smaller sets with a smaller limit: here words come from all training images
of Scene-15 and Corel-1k, from a fifth, and from a twentieth, always 100,000 descriptors. Errors are those of
cross-validation on training images, at 100 groups and with all words; spread is half the difference between seeds.
"""

from __future__ import annotations

import argparse
import os
import zipfile
from pathlib import Path

import numpy as np

from bagwise import fit_model, open_collection
from bagwise.app.modalities.images import ImageModality
from harness import machine, print_table

SETS = ("corel1k", "scene15")
FRACTIONS = (1.0, 0.2, 0.05)
N_GROUPS = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("BAGWISE_DATA"), help="folder of data sets")
    parser.add_argument("--only", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("give the folder of data sets by --data, or BAGWISE_DATA")
    rows = []
    for name in arguments.only:
        archive = Path(arguments.data) / name / f"{name}.zip"
        with zipfile.ZipFile(archive) as opened:
            has_split = any(member.startswith("train/") for member in opened.namelist())
        items = open_collection(archive)
        items = items.split("train")[0] if has_split else items
        for fraction in FRACTIONS:
            most = ImageModality.most_learned_from = round(fraction * len(items))
            errors = []
            for seed in range(arguments.seeds):
                path = fit_model(items, n_groups=N_GROUPS, folds=5, random_state=seed).path
                errors.append([100 * path.errors[path.sizes.index(N_GROUPS)], 100 * path.errors[-1]])
            mean, spread = np.mean(errors, axis=0), np.ptp(errors, axis=0) / 2
            shown = [f"{a:.2f} ± {b:.2f}" for a, b in zip(mean, spread, strict=True)]
            rows.append({"data": f"{name}, {len(items)} images", "from": most, "groups": shown[0], "words": shown[1]})
            print(rows[-1], flush=True)
    print(" ".join(f"{key}={value}" for key, value in machine().items()), end="\n\n")
    heads = {"data": "data", "from": "images that words are learned from"}
    print_table(rows, heads | {"groups": f"error in %, {N_GROUPS} groups", "words": "error in %, all words"})


if __name__ == "__main__":
    main()
