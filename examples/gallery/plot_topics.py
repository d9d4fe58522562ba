"""
What are the topics about?
==========================

:class:`bagwise.LatentDirichlet` finds topics in counts of words. Words of a topic are ranked by relevance, between
their probability in the topic and how much more frequent they are there than elsewhere. The figure has the nine largest
of 18 topics. :func:`bagwise.topics.to_pyldavis` gives pyLDAvis what it needs to show all of them on a page:

.. code-block:: python

    import pyLDAvis

    pyLDAvis.save_html(pyLDAvis.prepare(**to_pyldavis(lda, counts, words)), "topics.html")
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from bagwise import LatentDirichlet
from bagwise.datasets import make_corpus
from bagwise.topics import to_pyldavis

corpus = make_corpus(400)
vectorizer = CountVectorizer(stop_words="english", min_df=3)
counts = vectorizer.fit_transform(corpus.data)
words = vectorizer.get_feature_names_out()
lda = LatentDirichlet(18, random_state=0).fit(counts)

view = to_pyldavis(lda, counts, words)
shares = np.average(view["doc_topic_dists"], axis=0, weights=view["doc_lengths"])
top = lda.top_words(5, words=words, relevance=0.6)
figure, panels = plt.subplots(3, 3, figsize=(9, 5.6), layout="constrained", sharex=True)
for panel, topic in zip(panels.flat, np.argsort(-shares)[:9], strict=True):
    probabilities = lda.topics_[topic, np.searchsorted(words, top[topic])]
    panel.barh(top[topic][::-1], probabilities[::-1])
    panel.set_title(f"{shares[topic]:.0%} of all words", fontsize=9)
figure.supxlabel("probability of the word in the topic")
plt.show()
