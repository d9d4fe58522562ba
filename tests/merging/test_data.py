"""What merging begins with: each question about the data is asked once, and the data know the rest."""

import sys
from pathlib import Path

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


ASKING = {"is_lazy", "is_on_device", "device_module", "to_host", "backend"}


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("options", [{}, {"criterion": "csm"}, {"criterion": "uvd"}, {"word_weights": "log_odds"}])
def test_what_X_is_is_asked_three_times_by_load_alone(counts, form, options):
    """Helpers that take arrays of any kind ask by themselves."""
    X, y = counts
    asked = []

    def notice(frame, event, _):
        if event == "call" and frame.f_code.co_name in ASKING and frame.f_locals.get("array") is not y:
            caller = frame.f_back.f_code
            asked.append((frame.f_code.co_name, Path(caller.co_filename).stem, caller.co_name))

    merger, X = WordMerger(4, **options), form(X)
    sys.setprofile(notice)
    try:
        merger.fit(X, y)
    finally:
        sys.setprofile(None)
    questions = [name for name, file, caller in asked if (file, caller) == ("data", "load") and name != "to_host"]
    assert sorted(questions) == ["backend", "is_lazy", "is_on_device"]
    assert not any(file in ("word_merger", "grouping") for _, file, _ in asked)


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
