"""What merging begins with: each question about the data is asked once, and the data know the rest."""

import numpy as np
import pytest
import scipy.sparse as sp

from bagwise import WordMerger, merge_words
from bagwise.merging import Statistics, data, engine
from bagwise.merging.data import Pairs, Samples, Sums
from bagwise.merging.engine import Engine
from helpers import topic_counts


@pytest.fixture
def counts():
    return topic_counts(np.random.default_rng(2), 40, 15)


QUESTIONS = {
    data: ("is_lazy", "is_on_device", "_checked", "_check_labels", "find_scaling", "constant_words"),
    engine: ("resolve_criterion",),
}


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_matrix, np.ndarray.tolist])
@pytest.mark.parametrize("criterion", ["csm", "aib", "clusters", "uvd"])
def test_each_question_is_asked_once(counts, form, criterion, monkeypatch):
    X, y = counts
    asked = []
    for module, names in QUESTIONS.items():
        for name in names:
            real = getattr(module, name)
            monkeypatch.setattr(
                module, name, lambda *given, real=real, name=name, **more: asked.append(name) or real(*given, **more)
            )
    WordMerger(4, criterion=criterion).fit(form(X), y)
    of_criterion = {"csm": {"constant_words"}, "aib": {"find_scaling"}, "clusters": {"find_scaling"}}.get(
        criterion, set()
    )
    labels = set() if criterion == "clusters" else {"_check_labels"}
    assert sorted(asked) == sorted({"is_lazy", "is_on_device", "_checked", "resolve_criterion"} | labels | of_criterion)


@pytest.mark.parametrize("weighted", [False, True])
def test_all_kinds_of_data_have_the_same_totals_and_states(counts, weighted):
    X, y = counts
    weights = np.arange(40) % 3 if weighted else None
    expected = X.sum(axis=0) if weights is None else weights @ X
    loaded = [Engine("aib").load(form(X), y, weights).data for form in (np.asarray, sp.csr_array)]
    loaded.append(Engine("aib", scaling="shift").load(X, y, weights).data)
    if not weighted:
        codes = np.unique(y, return_inverse=True)[1]
        sums = Statistics.of(X, codes, codes.max() + 1)
        da = pytest.importorskip("dask.array")
        loaded += [Engine("aib").load(da.from_array(X, chunks=(9, 15)), y).data, Engine("aib").load(sums).data]
    for one in loaded:
        assert isinstance(one, (Samples, Sums))
        np.testing.assert_array_equal(one.word_totals, expected)
        if one.scaling is None:
            np.testing.assert_allclose(one.scoring().states, loaded[0].scoring().states, rtol=1e-12)


def test_groups_have_the_same_matrices_whatever_they_come_from(counts):
    X, y = counts
    labels = np.arange(15) % 4
    codes = np.unique(y, return_inverse=True)[1]
    criterion = Engine("csm").criterion
    kinds = (Engine("csm").load(X, y), Engine("csm").load(sp.csr_array(X), y))
    summed = Engine("csm").load(Statistics.of(X, codes, codes.max() + 1)), Engine("csm").load(Pairs.of(criterion, X, y))
    assert [type(one.data) for one in (*kinds, *summed)] == [Samples, Samples, Sums, Pairs]
    expected = kinds[0].data.matrices_of(labels)
    for one in (*kinds[1:], *summed):
        for A, B in zip(one.data.matrices_of(labels), expected, strict=True):
            np.testing.assert_allclose(A, B, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(one.run().merges, merge_words(X, y, criterion="csm").merges)
