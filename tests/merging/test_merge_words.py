import signal
import threading

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise import BagwiseError, Hierarchy, WordMerger, WordMergerCV, merge_words
from bagwise.criteria import ClassPosterior
from bagwise.merging import MergingInterrupted, Statistics, merge_statistics
from bagwise.merging.criteria import NAMED_CRITERIA
from bagwise.merging.searches.ratios import SEARCHES
from helpers import labelled_counts


@pytest.fixture
def data():
    rng = np.random.default_rng(2)
    return rng.random((30, 12)), np.arange(30) % 3


@given(labelled_counts(), st.integers(1, 12))
@settings(max_examples=60)
def test_stopping_early_is_a_cut_of_the_whole(case, n):
    X, y = case
    d = X.shape[1]
    whole, stopped = merge_words(X, y, criterion="csm"), merge_words(X, y, n_groups=n, criterion="csm")
    assert len(whole.merges) == d - 1
    assert stopped.min_groups == min(n, d)
    np.testing.assert_array_equal(stopped.merges, whole.merges[: max(d - n, 0)])
    np.testing.assert_array_equal(stopped.cut(min(n, d)), whole.cut(min(n, d)))


@given(labelled_counts())
@settings(max_examples=60)
def test_scores_are_those_of_the_merged_data(case):
    X, y = case
    hierarchy = merge_words(X, y, criterion="csm")
    largest = max(((X - X.mean(axis=0)) ** 2).sum(), 1e-12 * (X**2).sum())  # the second for rounding
    for k, score in enumerate(hierarchy.scores):
        labels = hierarchy.cut(X.shape[1] - k - 1)
        Y = np.stack([X[:, labels == g].sum(axis=1) for g in range(labels.max() + 1)], axis=1)
        total = ((Y - Y.mean(axis=0)) ** 2).sum()
        between = sum((y == c).sum() * ((Y[y == c].mean(axis=0) - Y.mean(axis=0)) ** 2).sum() for c in set(y))
        largest = max(largest, total)
        if total > 1e-9 * largest:
            assert score == pytest.approx(between / total, rel=1e-6, abs=1e-9)
        elif total < 1e-14 * largest:
            assert np.isnan(score)


def test_permuting_words_permutes_the_hierarchy(data):
    X, y = data
    order = np.random.default_rng(0).permutation(12)
    plain, permuted = merge_words(X, y, criterion="csm"), merge_words(X[:, order], y, criterion="csm")
    np.testing.assert_allclose(plain.scores, permuted.scores)
    for n in range(1, 13):
        groups = {frozenset(group.tolist()) for group in plain.groups(n)}
        assert {frozenset(order[group].tolist()) for group in permuted.groups(n)} == groups


def test_labels_may_be_names_in_any_order(data):
    X, y = data
    names = np.array(["zebra", "ant", "cow"])[y]
    assert (
        merge_words(X, names, criterion="csm")
        == merge_words(X, y, criterion="csm")
        == merge_words(X, (2 - y).reshape(-1, 1), criterion="csm")
    )


@pytest.mark.parametrize(
    "form", [sp.csr_matrix, sp.csc_matrix, sp.coo_array, sp.csr_array, np.float32, np.asfortranarray]
)
def test_all_forms_of_data_give_the_same(form):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 5, (40, 15)).astype(float), np.arange(40) % 2
    np.testing.assert_array_equal(
        merge_words(form(X), y, criterion="csm").merges, merge_words(X, y, criterion="csm").merges
    )


def test_sparse_data_with_duplicate_entries_and_explicit_zeros():
    rows, columns = [0, 0, 0, 1, 2, 3, 3], [0, 0, 1, 1, 2, 2, 0]
    X = sp.coo_array(([1.0, 2, 3, 4, 0, 5, 1], (rows, columns)), shape=(4, 3))
    messy = sp.csr_array((X.data, X.col, [0, 3, 4, 5, 7]), shape=(4, 3))
    before = messy.data.copy()
    assert merge_words(messy, [0, 1, 0, 1], criterion="csm") == merge_words(X.toarray(), [0, 1, 0, 1], criterion="csm")
    np.testing.assert_array_equal(messy.data, before)


def test_the_data_are_not_changed(data):
    X, y = data
    X[:, 3] = 1
    before = X.copy()
    merge_words(X, y, criterion="nda")
    np.testing.assert_array_equal(X, before)


class TestConstantWords:
    def test_they_are_merged_first_and_change_no_score(self, data):
        X, y = data
        constants = [2, 5, 6, 11]
        X[:, constants] = [0, 0.1, 7, 0]
        hierarchy = merge_words(X, y, criterion="csm")
        assert hierarchy.merges[:3].tolist() == [[2, 5], [2, 6], [2, 11]]
        assert len(set(hierarchy.scores[:3])) == 1
        rest = merge_words(np.delete(X, constants[1:], axis=1), y, criterion="csm")
        np.testing.assert_array_equal(hierarchy.scores[3:], rest.scores)
        assert [2, 5, 6, 11] in [group.tolist() for group in hierarchy.groups(9)]

    @pytest.mark.parametrize("search", SEARCHES)
    def test_dense_equals_sparse(self, data, search):
        X, y = data
        X[:, ::2] = 0.1
        dense, sparse = (merge_words(form(X), y, search=search, criterion="csm") for form in (np.asarray, sp.csr_array))
        np.testing.assert_array_equal(dense.merges, sparse.merges)
        np.testing.assert_allclose(dense.scores, sparse.scores)

    def test_a_target_reached_by_folding_alone(self, data):
        X, y = data
        X[:, 4:] = 0
        whole = merge_words(X, y, criterion="csm")
        for n in (11, 8, 5, 4):
            np.testing.assert_array_equal(merge_words(X, y, n_groups=n, criterion="csm").merges, whole.merges[: 12 - n])

    def test_only_constant_words(self):
        hierarchy = merge_words(np.ones((4, 5)), [0, 1, 0, 1], criterion="csm")
        assert hierarchy.merges.tolist() == [[0, 1], [0, 2], [0, 3], [0, 4]]
        assert np.isnan(hierarchy.scores).all()

    def test_they_take_no_memory(self):
        X = np.zeros((10, 100_000))
        X[:, 50:60] = np.random.default_rng(0).random((10, 10))
        assert merge_words(X, np.arange(10) % 2, memory_limit=10_000, criterion="csm").min_groups == 1


class TestDegenerateData:
    @pytest.mark.parametrize("search", SEARCHES)
    def test_histograms_that_sum_to_one_end_without_a_score(self, search):
        X = np.random.default_rng(0).dirichlet(np.ones(300), size=20)
        scores = merge_words(X, np.arange(20) % 2, search=search, criterion="csm").scores
        assert np.isnan(scores[-1])
        assert np.isfinite(scores[:-1]).all()

    def test_one_word(self):
        hierarchy = merge_words([[1.0], [2.0]], [0, 1], criterion="csm")
        assert hierarchy == Hierarchy(1, [], [], "csm")

    def test_more_words_asked_for_than_there_are(self, data):
        assert len(merge_words(*data, n_groups=12, criterion="csm").merges) == 0
        assert len(merge_words(*data, n_groups=99, criterion="csm").merges) == 0

    @pytest.mark.parametrize("criterion", ["csm", "nda", "lpp"])
    def test_two_samples(self, criterion):
        """All merges are equally good: words are merged in their order, after the constant ones."""
        X = [[3.0, 0, 1, 2, 1], [0, 2, 1, 5, 1]]
        hierarchy = merge_words(X, ["a", "b"], criterion=criterion)
        assert hierarchy.merges.tolist() == [[2, 4], [0, 1], [0, 2], [0, 3]]
        assert len(np.unique(np.round(hierarchy.scores, 12))) == 1

    @pytest.mark.parametrize("criterion", ["mfa", "lde"])
    def test_classes_of_one_sample_have_no_neighbors_within(self, criterion):
        with pytest.raises(BagwiseError, match="no such pair"):
            merge_words([[3.0, 0, 1, 2], [0, 2, 1, 5]], ["a", "b"], criterion=criterion)

    @pytest.mark.parametrize("criterion", ["nda", "mfa", "lde"])
    def test_a_class_of_one_sample(self, criterion):
        rng = np.random.default_rng(0)
        hierarchy = merge_words(rng.random((9, 5)), [0] * 8 + [1], criterion=criterion)
        assert np.isfinite(hierarchy.scores).all()

    @pytest.mark.parametrize("criterion", ["csm", "nda", "mfa", "lde"])
    def test_one_class_is_an_error(self, data, criterion):
        with pytest.raises(BagwiseError, match=r"at least two classes.*only one class"):
            merge_words(data[0], np.zeros(30), criterion=criterion)

    def test_equal_class_means(self):
        X = np.array([[0.0, 1, 2], [2, 3, 0], [0, 1, 2], [2, 3, 0]])
        hierarchy = merge_words(X, [0, 0, 1, 1], criterion="csm")
        np.testing.assert_allclose(hierarchy.scores, 0, atol=1e-12)


class TestBadInput:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"X": [[np.nan, 1], [1, 2]]}, "NaN"),
            ({"X": [[np.inf, 1], [1, 2]]}, "infinity"),
            ({"X": [1.0, 2.0]}, "1D array"),
            ({"X": [["a", "b"], ["c", "d"]]}, "could not convert"),
            ({"X": [[1.0, 2.0]], "y": [0]}, "1 sample"),
            ({"X": np.empty((2, 0))}, "0 feature"),
            ({"y": [0, 1, 1]}, "inconsistent"),
            ({"y": [[0, 1], [1, 0]]}, "one label per sample"),
            ({"y": [0.5, 1.7]}, "continuous"),
            ({"y": None, "criterion": "csm"}, "requires y.*'clusters'"),
            ({"criterion": "cms"}, "Did you mean 'csm'"),
            ({"criterion": 3}, "Accepted: 'aib', 'auto'"),
            ({"kernel": "linera"}, "Did you mean 'linear'"),
            ({"search": "bond"}, "Did you mean 'bound'"),
            ({"n_groups": 0}, "at least 1, got 0"),
            ({"n_groups": 2.5}, "an integer, got 2.5"),
            ({"n_groups": True}, "an integer, got True"),
            ({"callback": 5}, "callable"),
            ({"memory_limit": "much"}, "not a size"),
        ],
    )
    def test_messages_say_what_is_wrong(self, change, message):
        arguments = {"X": [[1.0, 2.0, 3.0], [0.0, 1.0, 5.0]], "y": [0, 1]} | change
        with pytest.raises(ValueError, match=message):
            merge_words(**arguments)

    def test_a_class_instead_of_an_object(self, data):
        from bagwise.criteria import ClassSeparability

        with pytest.raises(BagwiseError, match=r"pass an object, ClassSeparability\(...\)"):
            merge_words(*data, criterion=ClassSeparability)

    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    def test_negative_values_where_they_matter(self, data, form):
        X, y = data
        X[4, 7] = -1
        with pytest.raises(BagwiseError, match="sample 4, word 7 is -1"):
            merge_words(form(X), y, criterion="nda")
        assert merge_words(form(X), y, criterion="csm").min_groups == 1

    def test_too_little_memory_is_told_before_it_is_taken(self, data):
        X = sp.csr_array(([1.0, 2.0, 5.0], ([0, 1, 1], [0, 3, 9_000])), shape=(3, 10_000))
        many = sp.csr_array(np.random.default_rng(0).random((3, 2000)))
        with pytest.raises(
            BagwiseError, match=r"2000 words needs.*64\.00 MB.*limit is 10\.00 MB \(memory_limit\).*790 fit"
        ):
            merge_words(many, [0, 1, 1], memory_limit="10MB", store="dense", criterion="csm")
        assert merge_words(many, [0, 1, 1], memory_limit="10MB", criterion="csm").n_words == 2000
        assert merge_words(X, [0, 1, 1], memory_limit="10MB", criterion="csm").n_words == 10_000

    def test_the_default_limit_is_a_share_of_what_is_free(self, monkeypatch):
        from bagwise._utils import memory as _memory

        monkeypatch.setattr(_memory, "free_memory", lambda: 1000)
        with pytest.raises(BagwiseError, match=r"limit is 800 bytes \(80 % of the free memory\)"):
            merge_words(np.random.default_rng(0).random((4, 20)), [0, 1, 0, 1], criterion="csm")


class TestCallback:
    def test_it_sees_every_merge_in_order(self, data):
        X, y = data
        X[:, [1, 8, 9]] = 0  # folded words are reported as well
        seen = []
        hierarchy = merge_words(X, y, callback=lambda *merge: seen.append(merge), criterion="csm")
        assert [level for level, _, _ in seen] == list(range(11, 0, -1))
        assert [list(pair) for _, pair, _ in seen] == hierarchy.merges.tolist()
        np.testing.assert_array_equal([score for _, _, score in seen], hierarchy.scores)

    @pytest.mark.parametrize("level", [11, 7, 1])
    def test_it_may_stop_the_run(self, data, level):
        stopped = merge_words(*data, callback=lambda n, pair, score: n == level, criterion="csm")
        assert stopped == merge_words(*data, n_groups=level, criterion="csm")

    def test_only_true_stops(self, data):
        assert merge_words(*data, callback=lambda *_: "go on", criterion="csm").min_groups == 1

    def test_its_errors_come_through(self, data):
        def fail(*_):
            raise RuntimeError("mine")

        with pytest.raises(RuntimeError, match="mine"):
            merge_words(*data, callback=fail, criterion="csm")


class TestInterruption:
    def test_the_merges_so_far_are_kept(self, data):
        def interrupt(level, pair, score):
            if level == 6:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt) as caught:
            merge_words(*data, callback=interrupt, criterion="csm")
        assert isinstance(caught.value, MergingInterrupted)
        partial, whole = caught.value.hierarchy, merge_words(*data, criterion="csm")
        assert partial.min_groups <= 6
        np.testing.assert_array_equal(partial.merges, whole.merges[: len(partial.merges)])

    def test_a_signal_within_the_search_keeps_the_merges_before(self, monkeypatch):
        X, y = np.random.default_rng(0).random((20, 120)), np.arange(20) % 2
        whole, search, sizes = merge_words(X, y, criterion="csm"), SEARCHES["bound"], []
        advance = search.advance

        def interrupted(self, merges, scores):
            advance(self, merges, scores)
            sizes.append(len(merges))
            if len(sizes) == 3:
                signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(search, "advance", interrupted)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        try:
            with pytest.raises(MergingInterrupted) as caught:
                merge_words(X, y, criterion="csm")
        finally:
            signal.signal(signal.SIGINT, before)
        partial = caught.value.hierarchy
        assert len(partial.merges) == sum(sizes[:2]) > 0
        np.testing.assert_array_equal(partial.merges, whole.merges[: len(partial.merges)])

    def test_steps_that_take_long_become_small(self, monkeypatch):
        """Signals wait for compiled code, which makes as many merges at a time as take less than a moment."""
        X, y = np.random.default_rng(0).random((20, 400)), np.arange(20) % 2
        whole, search, sizes, now = merge_words(X, y, criterion="csm"), SEARCHES["bound"], [], [0.0]
        advance = search.advance

        def slow(self, merges, scores):
            advance(self, merges, scores)
            sizes.append(len(merges))
            now[0] += 1.0 if sum(sizes) < 200 else 0.0

        monkeypatch.setattr(search, "advance", slow)
        monkeypatch.setattr("time.perf_counter", lambda: now[0])
        assert merge_words(X, y, criterion="csm") == whole
        assert sizes[:6] == [16, 8, 4, 2, 1, 1]
        assert max(sizes) > 16  # where they are quick again

    @pytest.mark.stress
    @pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="sends a signal to this thread")
    def test_ctrl_c_is_heeded_within_a_long_run(self):
        """A real signal, while compiled code runs. Exhaustive search of this size takes many seconds."""
        rng = np.random.default_rng(0)
        X, y = rng.random((20, 3000)), np.arange(20) % 2
        started = threading.Event()
        main = threading.get_ident()

        def send():
            started.wait()
            signal.pthread_kill(main, signal.SIGINT)

        sender = threading.Thread(target=send)
        sender.start()
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        try:
            with pytest.raises(MergingInterrupted) as caught:
                merge_words(X, y, search="exhaustive", callback=lambda *_: started.set(), criterion="csm")
        finally:
            signal.signal(signal.SIGINT, before)
        sender.join()
        partial = caught.value.hierarchy
        assert 0 < len(partial.merges) < 2999
        np.testing.assert_array_equal(
            partial.merges, merge_words(X, y, n_groups=partial.min_groups, criterion="csm").merges
        )


def test_progress_is_shown_when_asked_for(data, capsys):
    merge_words(*data, criterion="csm")
    assert capsys.readouterr().err == ""
    merge_words(*data, verbose=1, criterion="csm")
    assert "merging words" in (shown := capsys.readouterr().err)
    assert "100%" in shown


class TestScaleAndRounding:
    @pytest.mark.parametrize("size", [1e155, 1e-160])
    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    def test_values_whose_products_cannot_be_represented(self, size, form):
        X = np.random.default_rng(0).random((30, 70)) * size
        with pytest.raises(BagwiseError, match="Scale X"):
            merge_words(form(X), np.arange(30) % 2, criterion="csm")

    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    @pytest.mark.parametrize("kind", ["whole", "real"])
    @pytest.mark.parametrize("criterion", ["csm", "mfa", "lpp"])
    def test_a_large_mean_does_not_matter(self, form, kind, criterion):
        rng = np.random.default_rng(0)
        y = np.arange(40) % 2
        X = rng.integers(0, 9, (40, 12)) + 2.0 * y[:, None] * (np.arange(12) < 4)
        X = X if kind == "whole" else X + rng.random((40, 12))
        plain, shifted = merge_words(X, y, criterion=criterion), merge_words(form(X + 2.0**23), y, criterion=criterion)
        np.testing.assert_array_equal(plain.merges, shifted.merges)
        np.testing.assert_allclose(plain.scores, shifted.scores, rtol=1e-6)

    def test_ties_between_neighbors_do_not_depend_on_the_form(self):
        for seed in range(20):
            rng = np.random.default_rng(seed)
            X = rng.integers(0, 4, (40, 25)) + 0.0
            X /= X.sum(axis=1, keepdims=True)
            for criterion in ("lpp", "mfa"):
                dense, sparse = (
                    merge_words(form(X), np.arange(40) % 2, criterion=criterion) for form in (np.asarray, sp.csr_array)
                )
                np.testing.assert_allclose(dense.scores, sparse.scores, rtol=1e-7, atol=1e-12)


class TestEqualMerges:
    """Where no merge is better than any other, words are merged in their order, and no search is needed."""

    @pytest.mark.parametrize("search", SEARCHES)
    @pytest.mark.parametrize("kind", ["two samples", "one sample per class", "equal means", "copies of one word"])
    def test_the_order_of_the_words(self, kind, search):
        rng = np.random.default_rng(0)
        X, y = rng.random((6, 500)), np.arange(6)
        if kind == "two samples":
            X, y = X[:2], y[:2]
        elif kind == "equal means":
            X, y = np.vstack([X, X]), np.repeat([0, 1], 6)
        elif kind == "copies of one word":
            X, y = np.repeat(rng.random((6, 1)), 500, axis=1), np.arange(6) % 2
        hierarchy = merge_words(X, y, search=search, criterion="csm")
        assert hierarchy.merges.tolist() == [[0, t] for t in range(1, 500)]
        np.testing.assert_allclose(hierarchy.scores, hierarchy.scores[0], rtol=1e-9, atol=1e-12)

    def test_scores_are_undefined_once_nothing_varies(self):
        X = np.array([[1.0, 0, 3], [0, 1, 3], [0.5, 0.5, 3]])
        hierarchy = merge_words(X, [0, 1, 2], criterion="csm")
        assert hierarchy.scores[0] == pytest.approx(1.0) or np.isnan(hierarchy.scores[0])
        assert np.isnan(hierarchy.scores[-1])


def test_a_callback_may_answer_with_a_numpy_bool(data):
    stopped = merge_words(*data, callback=lambda level, pair, score: np.bool_(level == 6), criterion="csm")
    assert stopped.min_groups == 6


@pytest.mark.parametrize("y", [5, sp.csr_array(np.eye(30)), np.ones((30, 2)), [["a"], ["a", "b"]] * 15])
def test_labels_of_a_wrong_shape(data, y):
    with pytest.raises(BagwiseError, match=r"one label per sample|one per sample"):
        merge_words(data[0], y, criterion="csm")


WEIGHTED = ["csm", "aib", "mlt"]


class TestSampleWeight:
    @pytest.mark.parametrize(
        ("criterion", "kernel"),
        [*((name, "linear") for name in WEIGHTED), ("csm", "chi2"), ("csm", "jensen_shannon")],
    )
    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    def test_integer_weights_are_repeated_samples(self, criterion, form, kernel):
        rng = np.random.default_rng(0)
        y, weights = np.arange(30) % 3, rng.integers(0, 4, 30)
        X = rng.random((30, 25)) * (rng.random((30, 25)) < 0.6)
        weighted = merge_words(form(X), y, criterion=criterion, kernel=kernel, sample_weight=weights)
        repeated = merge_words(
            form(np.repeat(X, weights, axis=0)), np.repeat(y, weights), criterion=criterion, kernel=kernel
        )
        np.testing.assert_array_equal(weighted.merges, repeated.merges)
        np.testing.assert_allclose(weighted.scores, repeated.scores, rtol=1e-9, atol=1e-12)
        plain = merge_words(form(X), y, criterion=criterion, kernel=kernel)
        assert not np.allclose(weighted.scores, plain.scores)

    @pytest.mark.parametrize("criterion", WEIGHTED)
    def test_counts_to_the_last_bit(self, criterion):
        """Ties of counts are the same ties."""
        rng = np.random.default_rng(2)
        X, y, weights = rng.poisson(0.7, (30, 60)) * 1.0, np.arange(30) % 3, rng.integers(0, 4, 30)
        repeated = merge_words(np.repeat(X, weights, axis=0), np.repeat(y, weights), criterion=criterion)
        assert merge_words(X, y, criterion=criterion, sample_weight=weights) == repeated
        assert merge_words(X, y, criterion=criterion, sample_weight=np.ones(30)) == merge_words(
            X, y, criterion=criterion
        )

    @pytest.mark.parametrize(
        "criterion", sorted(name for name, known in NAMED_CRITERIA.items() if not known.takes_sample_weight)
    )
    def test_other_criteria_say_that_they_take_none(self, data, criterion):
        known = "'aib', 'classifier', 'clusters', 'csm', 'mlt'"
        with pytest.raises(BagwiseError, match=rf"'{criterion}' does not support sample_weight.*{known}"):
            merge_words(*data, criterion=criterion, sample_weight=np.ones(len(data[1])))

    @pytest.mark.parametrize("weights", [[1.0], np.full(20, np.nan), -np.ones(20), np.zeros(20), np.ones((20, 1))])
    def test_bad_weights(self, weights):
        X, y = np.random.default_rng(0).random((20, 5)), np.arange(20) % 2
        with pytest.raises(BagwiseError, match=r"one finite, non-negative number per sample, shape \(20,\)"):
            merge_words(X, y, sample_weight=weights, criterion="csm")


@pytest.mark.parametrize("criterion", ["aib", "gml", "uvd", ClassPosterior("evidence")], ids=str)
def test_relative_frequencies_merge_as_counts_do(criterion):
    """Smoothing and the floors of variances are relative to the data."""
    rng = np.random.default_rng(0)
    y = np.arange(24) % 3
    rates = rng.dirichlet(np.ones(18), 3)
    rates[0, 4] = 0  # no variance in one class
    X = rng.multinomial(60, (rates / rates.sum(axis=1, keepdims=True))[y].tolist())
    counts, frequencies = (merge_words(data, y, criterion=criterion) for data in (X, X / 60))
    np.testing.assert_array_equal(counts.merges, frequencies.merges)
    np.testing.assert_allclose(counts.scores, frequencies.scores, rtol=1e-9, atol=1e-12)


class TestAuto:
    """The default criterion: AIB with labels, clusters without; CSM or LPP where options are for trace ratios."""

    @pytest.mark.parametrize(
        ("options", "with_labels", "without"),
        [
            ({}, "aib", "clusters"),
            ({"criterion": "AUTO"}, "aib", "clusters"),
            ({"kernel": "hellinger"}, "csm", "lpp"),
            ({"search": "exhaustive"}, "csm", "lpp"),
            ({"store": "sparse"}, "csm", "lpp"),
        ],
    )
    def test_what_it_stands_for(self, data, options, with_labels, without):
        X, y = data
        named = {name: value for name, value in options.items() if name != "criterion"}
        for labels, expected in ((y, with_labels), (None, without)):
            found = merge_words(X, labels, **options)
            assert found.criterion == expected
            assert found == merge_words(X, labels, criterion=expected, **named)
            assert WordMerger(**options).fit(X, labels).criterion_ == expected

    def test_statistics_are_merged_by_aib(self, data):
        X, y = data
        sums = Statistics.of(X, np.unique(y, return_inverse=True)[1], len(np.unique(y)), gram=False)
        assert merge_statistics(sums) == merge_words(X, y)

    def test_labels_are_not_required(self):
        assert not WordMerger().__sklearn_tags__().target_tags.required
        assert WordMerger(criterion="aib").__sklearn_tags__().target_tags.required
        assert WordMergerCV().__sklearn_tags__().target_tags.required

    def test_what_does_not_fit_names_others(self, data):
        with pytest.raises(BagwiseError, match=r"'mmi' keeps the values.*SketchMerger.*'lpp'"):
            merge_words(data[0], criterion="mmi", memory_limit=1000)
