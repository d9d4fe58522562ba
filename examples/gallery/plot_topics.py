"""
What are the topics about?
==========================

:class:`bagwise.LatentDirichlet` finds topics in counts of words. Words of a topic are ranked by relevance, between
their probability in the topic and how much more frequent they are there than elsewhere. The figure has the nine largest
of 18 topics. pyLDAvis shows all of them on a page:

.. code-block:: python

    import pyLDAvis

    lengths, frequencies = (np.ravel(counts.sum(axis=axis)) for axis in (1, 0))
    page = pyLDAvis.prepare(lda.topics_, lda.transform(counts), lengths, words, frequencies)
    pyLDAvis.save_html(page, "topics.html")
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from bagwise import LatentDirichlet
from bagwise.datasets import make_corpus

corpus = make_corpus(400)
vectorizer = CountVectorizer(stop_words="english", min_df=3)
counts = vectorizer.fit_transform(corpus.data)
words = vectorizer.get_feature_names_out()
lda = LatentDirichlet(18, random_state=0).fit(counts)

shares = np.average(lda.transform(counts), axis=0, weights=np.ravel(counts.sum(axis=1)))
top = lda.top_words(5, words=words, relevance=0.6)
figure, panels = plt.subplots(3, 3, figsize=(9, 5.6), layout="constrained", sharex=True)
for panel, topic in zip(panels.flat, np.argsort(-shares)[:9], strict=True):
    probabilities = lda.topics_[topic, np.searchsorted(words, top[topic])]
    panel.barh(top[topic][::-1], probabilities[::-1])
    panel.set_title(f"{shares[topic]:.0%} of all words", fontsize=9)
figure.supxlabel("probability of the word in the topic")
plt.show()
