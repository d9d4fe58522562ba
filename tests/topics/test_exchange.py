"""What pyLDAvis takes of a topic model."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import LatentDirichletAllocation

from bagwise import BagwiseError
from bagwise.topics import LatentDirichlet, to_pyldavis

X = np.random.default_rng(0).poisson(1.0, (30, 9))
X[:, 4] = 0  # a word that is nowhere
X[7] = 0  # a document without words
WORDS = list("abcdefghi")


@pytest.mark.parametrize("model", [LatentDirichlet(3, random_state=0), LatentDirichletAllocation(3, random_state=0)])
def test_rows_are_distributions_of_what_can_be_shown(model):
    lda = model.fit(X)
    found = to_pyldavis(lda, X, WORDS)
    words, documents = [k for k in range(9) if k != 4], [k for k in range(30) if k != 7]
    assert found["vocab"] == [WORDS[k] for k in words]
    expected = lda.components_[:, words]
    np.testing.assert_allclose(found["topic_term_dists"], expected / expected.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(found["doc_topic_dists"], lda.transform(X)[documents])
    np.testing.assert_allclose(found["doc_topic_dists"].sum(axis=1), 1)
    np.testing.assert_array_equal(found["doc_lengths"], X[documents].sum(axis=1))
    np.testing.assert_array_equal(found["term_frequency"], X[:, words].sum(axis=0))
    sparse = to_pyldavis(lda, sp.csr_array(X), WORDS)
    for name, value in found.items():
        np.testing.assert_array_equal(sparse[name], value)


def test_names_and_errors():
    lda = LatentDirichlet(2, random_state=0, max_iter=2).fit(X)
    assert to_pyldavis(lda, X)["vocab"] == ["0", "1", "2", "3", "5", "6", "7", "8"]
    for given, error in (((X[:, :5],), "X has 5 columns"), ((X, ["a"]), "1 word,"), ((0 * X,), "no words at all")):
        with pytest.raises(BagwiseError, match=error):
            to_pyldavis(lda, *given)


def test_pyldavis_takes_it():
    pyldavis = pytest.importorskip("pyLDAvis")
    lda = LatentDirichlet(3, random_state=0).fit(X)
    shown = pyldavis.prepare(**to_pyldavis(lda, X, WORDS), n_jobs=1)
    assert len(shown.topic_coordinates) == 3
