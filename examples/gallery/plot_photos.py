"""
Why does the model call this photo a beach?
===========================================

A folder of photos becomes a model by :func:`bagwise.fit_model`, as by ``bagwise fit``. A model is additive: the score
of a class is a sum over groups of visual words, and every patch of a photo has its part of it.
:meth:`bagwise.Model.explain` gives these parts; here they are drawn over photos that the model has not seen.

The photos are drawn by :func:`bagwise.datasets.make_photos`. Half of them show a second place beside the one they are
named after, so that there is something to find out.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from bagwise import fit_model
from bagwise.datasets import make_photos, write_dataset

photos = make_photos(100, size=(96, 128))
with tempfile.TemporaryDirectory() as folder:
    source = write_dataset(photos, Path(folder, "photos"))  # a folder for each class
    model = fit_model(source, n_groups=20, n_words=200, folds=3, n_jobs=1)

new = make_photos(15, size=(96, 128), random_state=8)
reasons = model.explain(list(new.images))
figure, panels = plt.subplots(2, 4, figsize=(11, 4.6), layout="constrained")
for (above, below), k in zip(panels.T, (0, 5, 8, 11), strict=True):
    image, why = new.images[k], reasons[k]
    heat = np.zeros(image.shape[:2])
    for patch in why.places():
        rows = slice(max(int(patch.y), 0), int(patch.y + patch.side))
        columns = slice(max(int(patch.x), 0), int(patch.x + patch.side))
        heat[rows, columns] += patch.weight / patch.side**2
    largest = np.abs(heat).max()
    above.imshow(image)
    above.set_title(f"{new.target_names[new.target[k]]}, predicted {why.predicted}\nprobability {why.probability:.0%}")
    below.imshow(image.mean(axis=2), cmap="gray", alpha=0.35)
    shown = below.imshow(heat, cmap="RdBu", alpha=0.7, vmin=-largest, vmax=largest)
    below.set_title(f"{why.predicted}: for blue, against red")
    for panel in (above, below):
        panel.axis("off")
plt.show()
