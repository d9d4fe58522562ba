"""
What is most like this photo?
=============================

Photos become histograms of visual words; :class:`bagwise.BagIndex` finds the histograms that are nearest to that of a
query, exactly. Left the queries, beside each the five photos that are found first.
"""

import matplotlib.pyplot as plt

from bagwise import BagIndex, BagOfFeatures
from bagwise.datasets import make_photos
from bagwise.descriptors import ColorCells

photos = make_photos(150, size=(72, 96))
cells = ColorCells()
words = BagOfFeatures(150, random_state=0).fit(cells.transform(photos.images))
index = BagIndex("hellinger", normalize="l1").add(words.transform(cells.transform(photos.images)))

queries = make_photos(10, size=(72, 96), random_state=3).images[:4]
scores, ids = index.search(words.transform(cells.transform(queries)), k=5)

figure, panels = plt.subplots(4, 6, figsize=(10, 5.2), layout="constrained")
for row, query, found, similarities in zip(panels, queries, ids, scores, strict=True):
    row[0].imshow(query)
    row[0].set_title("query", fontsize=9)
    for panel, photo, score in zip(row[1:], found, similarities, strict=True):
        panel.imshow(photos.images[int(photo)])
        panel.set_title(f"{photos.target_names[photos.target[int(photo)]]}, {score:.2f}", fontsize=9)
for panel in panels.flat:
    panel.axis("off")
plt.show()
