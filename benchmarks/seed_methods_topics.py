"""Topic models on newsgroups and Reuters: coherence and held-out perplexity beside scikit-learn and tomotopy.

Data: six newsgroups without the lines of their headers that name groups (split by date), and Reuters-21578 (ModApte).
Words without digits in at least five training documents, without English stop words; 20 and 50 topics. A seed is the
seed of the models; they are fitted to the training part. No labels are used. All models, whichever library fitted them,
are judged by the same code:

- NPMI: coherence of the 10 first words of the topics, by documents of the training part in which pairs occur. "NPMI,
  unseen": by documents of the test part.
- perplexity: half of the tokens of each test document predicted from the other half, with proportions inferred by
  `LatentDirichlet.held_out_perplexity`.

Seconds are processor time of the fit on one thread, for tomotopy with the reading of documents. scikit-learn has its
defaults but for the number of topics; so has tomotopy, with 100 iterations as in its documentation, and with the 10 of
``train()``.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import CountVectorizer
from threadpoolctl import threadpool_limits

from bagwise import LatentDirichlet
from bagwise.topics.tables import coherence
from harness import ROOT, Row

sys.path.insert(0, str(ROOT))
from experiments.sets import NEWSGROUPS, newsgroup_texts, reuters_documents

TOPICS, QUICK_TOPICS = (20, 50), (10,)
QUICK_DOCUMENTS = 400
WORD = r"(?u)\b[^\W\d_][^\W\d_]+\b"


@lru_cache(maxsize=4)
def counts_of(name: str, data: Path, quick: bool) -> tuple[sp.csr_array, sp.csr_array]:
    """Counts of the training part and of the test part."""
    if name == "newsgroups":
        groups = tuple(group for pair in NEWSGROUPS.values() for group in pair)
        texts, _, train = newsgroup_texts(data, groups)
    else:
        documents = [(text, in_train) for text, _, in_train in reuters_documents(data)]
        texts, train = [text for text, _ in documents], [in_train for _, in_train in documents]
    chosen = np.random.default_rng(0).permutation(len(texts))[: QUICK_DOCUMENTS if quick else None]
    parts = [[texts[i] for i in np.sort(chosen) if train[i] == wanted] for wanted in (True, False)]
    counter = CountVectorizer(stop_words="english", min_df=5, token_pattern=WORD).fit(parts[0])
    first, second = (sp.csr_array(counter.transform(part), dtype=np.float64) for part in parts)
    return first, second


def fit_tomotopy(X: sp.csr_array, n_topics: int, n_sweeps: int, seed: int) -> LatentDirichlet:
    """A model of tomotopy with its defaults on one thread."""
    import tomotopy

    names = np.arange(X.shape[1]).astype(str).astype(object)
    model = tomotopy.LDAModel(k=n_topics, seed=seed)
    for begin, end in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        model.add_doc(names[np.repeat(X.indices[begin:end], X.data[begin:end].astype(np.int64))].tolist())
    model.train(n_sweeps, workers=1)
    return LatentDirichlet.from_fitted(model, vocabulary=names.tolist())


def methods(n_topics: int, seed: int, quick: bool) -> dict[str, tuple[str, Callable[[sp.csr_array], Any]]]:
    """Role of each method, and how to fit it."""

    def ours(**how: Any) -> Callable[[sp.csr_array], Any]:
        return LatentDirichlet(n_topics, random_state=seed, **how).fit

    def sklearns(method: str) -> Callable[[sp.csr_array], Any]:
        return LatentDirichletAllocation(n_topics, learning_method=method, random_state=seed).fit

    found: dict[str, tuple[str, Callable[[sp.csr_array], Any]]] = {
        "LatentDirichlet": ("default", ours()),
        "LatentDirichlet, variational": ("variant", ours(solver="vb")),
        "LatentDirichlet, online": ("variant", ours(solver="online")),
        "scikit-learn, batch": ("plain", sklearns("batch")),
        "scikit-learn, online": ("plain", sklearns("online")),
    }
    if importlib.util.find_spec("tomotopy") is None:
        print("tomotopy is not installed: its rows and that of the published form are left out", file=sys.stderr)
        return found
    published = ours(
        solver="gibbs",
        prior="fixed",
        doc_topic_prior=50 / n_topics,
        topic_word_prior=0.01,
        max_iter=50 if quick else 500,
    )
    return found | {
        "LatentDirichlet, Gibbs, α = 50/K, η = 0.01": ("published", published),
        "tomotopy, 100 iterations": ("plain", lambda X: fit_tomotopy(X, n_topics, 100, seed)),
        "tomotopy, 10 iterations": ("plain", lambda X: fit_tomotopy(X, n_topics, 10, seed)),
    }


def measure(data: Path, seeds: Sequence[int], quick: bool) -> Iterator[Row]:
    """Yield a row for each data set, number of topics, method and seed."""
    with threadpool_limits(1):
        for seed in seeds:
            for name in ("newsgroups", "Reuters"):
                train, test = counts_of(name, data, quick)
                for solver in ("vb", "online"):
                    LatentDirichlet(2, solver=solver, max_iter=2).fit(train[:50])  # compiles
                for n_topics in QUICK_TOPICS if quick else TOPICS:
                    for method, (role, fit) in methods(n_topics, seed, quick).items():
                        started = time.process_time()
                        model = fit(train)
                        seconds = time.process_time() - started
                        lda = model if isinstance(model, LatentDirichlet) else LatentDirichlet.from_fitted(model)
                        figures = {
                            "NPMI": float(coherence(lda.topics_, train).mean()),
                            "NPMI, unseen": float(coherence(lda.topics_, test).mean()),
                            "perplexity": lda.held_out_perplexity(test),
                        }
                        yield Row(f"{name}, {n_topics} topics", method, role, seed, figures, seconds)
