"""
What are the topics about?
==========================

:class:`bagwise.LatentDirichlet` finds topics in counts of words. Words of a topic are ranked by relevance, between
their probability in the topic and how much more frequent they are there than elsewhere. The figure has the nine
largest of 18 topics; :func:`bagwise.topics.tables.prepare_view` gives the data of all of them to pyLDAvis, which
draws an interactive page.
"""

import json

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from bagwise import LatentDirichlet
from bagwise.datasets import make_corpus
from bagwise.topics.tables import prepare_view

corpus = make_corpus(400)
vectorizer = CountVectorizer(stop_words="english", min_df=3)
counts = vectorizer.fit_transform(corpus.data)
words = vectorizer.get_feature_names_out()
lda = LatentDirichlet(18, random_state=0).fit(counts)
view = prepare_view(lda.topics_, lda.transform(counts), counts, words)
print(f"{len(json.dumps(view)):,} bytes of JSON for pyLDAvis")

largest = np.array(view["topic.order"])[:9] - 1
figure, panels = plt.subplots(3, 3, figsize=(9, 5.6), layout="constrained", sharex=True)
for panel, topic, share in zip(panels.flat, largest, view["mdsDat"]["Freq"], strict=False):
    names = lda.top_words(5, words=words, relevance=0.6)[topic]
    columns = np.searchsorted(words, names)
    panel.barh(names[::-1], lda.topics_[topic, columns][::-1])
    panel.set_title(f"{share:.0f} % of all words", fontsize=9)
figure.supxlabel("probability of the word in the topic")
plt.show()
