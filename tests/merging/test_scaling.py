"""Measurements on a common scale, and weights of words."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from bagwise import BagwiseError, WordMerger, WordMergerCV, merge_words
from bagwise.merging import Statistics
from bagwise.merging.scaling import find_scaling

WINE = load_wine(return_X_y=True)


@pytest.fixture
def counts():
    rng = np.random.default_rng(5)
    y = np.arange(60) % 3
    return rng.poisson(0.3 + 2 * rng.random((3, 14))[y]).astype(np.float64), y


@pytest.fixture
def wide_counts(counts):
    """Counts of which one word is more frequent than others by far."""
    X, _ = counts
    return np.column_stack([X[:, :13], 1000 * X[:, 13] + 1])


class TestWhatIsScaled:
    def test_counts_and_frequencies_stay_as_they_are(self, counts):
        X, _ = counts
        rows = X / X.sum(axis=1, keepdims=True)
        for data in (X, rows, rows + 1 / 14, np.sqrt(X), 1000 * X, load_digits().data, np.log1p(X)):
            assert find_scaling(data) is find_scaling(sp.csr_array(data)) is None
        assert find_scaling(1 + X) is None  # whole numbers are counts, wherever they start

    def test_columns_are_shifted(self, counts):
        X, _ = counts
        for data in (X - 0.5, X / 7 + 5):
            scaling = find_scaling(data)
            assert scaling.scale is None
            np.testing.assert_array_equal(scaling.apply(data).min(axis=0), 0)

    @pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
    def test_columns_of_different_scales_are_divided_by_their_ranges(self, load):
        X = load().data
        scaled = find_scaling(X).apply(X)
        np.testing.assert_allclose(scaled.min(axis=0), 0)
        np.testing.assert_allclose(scaled.max(axis=0), 1)

    def test_constant_columns(self):
        X = np.array([[-3.0, 2, 1e4], [-3.0, 5, 0.5], [-3.0, 5, 7.0], [-3.0, 4, 9e6]])
        assert find_scaling(X).apply(X)[:, 0].tolist() == [0, 0, 0, 0]
        assert WordMerger(2, scaling="range").fit(X, [0, 1, 0, 1]).transform(X).shape == (4, 2)

    @pytest.mark.parametrize("number", [1 / 3, 1 / 7, 0.37, "row"])
    def test_counts_divided_by_numbers_are_counts(self, wide_counts, number):
        factor = np.random.default_rng(1).random((60, 1)) if number == "row" else number
        for data in (wide_counts * factor, (wide_counts * factor).astype(np.float32)):
            assert find_scaling(data) is find_scaling(sp.csr_array(data)) is None
        # neither weighted words nor decimals are
        assert find_scaling(wide_counts * (0.5 + np.arange(14) % 3 / 7)) is not None
        assert find_scaling(wide_counts / 10) is not None

    def test_sums_tell_the_same(self, wide_counts):
        X, y = WINE
        empty = X / X.sum(axis=1, keepdims=True)
        empty[3] = 0.0  # has no frequencies
        thirds = np.vstack([wide_counts / 3, wide_counts[:1] * 0])
        for data in (X, X - X.mean(axis=0), X / X.sum(axis=1, keepdims=True), empty, thirds, wide_counts / 10):
            halves = [Statistics.of(data[part], y[: len(data)][part], 3) for part in (slice(0, 9), slice(9, None))]
            here, there = find_scaling(data), find_scaling(sum(halves))
            assert (here is None) == (there is None)
            if here is not None and there is not None:
                np.testing.assert_allclose(here.shift, there.shift)

    def test_whole_weights_are_copies(self, wide_counts):
        for data in (wide_counts[:10] / 10, WINE[0][::18]):
            weights = np.full(len(data), 2.0)
            assert find_scaling(data) is find_scaling(data, sample_weight=weights / 20) is None
            copied, weighted = find_scaling(np.repeat(data, 2, axis=0)), find_scaling(data, sample_weight=weights)
            assert str(copied) == str(weighted) != "None"
        half = np.vstack([wide_counts / 3, np.sqrt(wide_counts)])
        weights = np.repeat([2.0, 1.0], 60)
        assert find_scaling(half) is not None
        assert find_scaling(half, sample_weight=weights) is None
        assert find_scaling(np.repeat(half, weights.astype(int), axis=0)) is None


class TestMergingMeasurements:
    @pytest.mark.parametrize("criterion", ["aib", "mmi"])
    def test_it_is_merging_scaled_data(self, criterion):
        X, y = WINE
        merger = WordMerger(4, criterion=criterion).fit(X, y)
        scaled = (X - merger.shift_) * merger.scale_
        expected = WordMerger(4, criterion=criterion).fit(scaled, y)
        assert expected.shift_ is None or not expected.shift_.any()
        np.testing.assert_array_equal(merger.labels_, expected.labels_)
        np.testing.assert_allclose(merger.transform(X), expected.transform(scaled), atol=1e-12)
        assert merger.hierarchy_ == merge_words(X, y, criterion=criterion)

    def test_an_offset_and_a_scale_of_each_column_do_not_matter(self):
        X, y = WINE
        rng = np.random.default_rng(0)
        other = X * np.exp(rng.normal(0, 4, 13)) + rng.normal(0, 10, 13)
        one, two = (WordMerger(5, scaling="range").fit(data, y) for data in (X, other))
        np.testing.assert_array_equal(one.labels_, two.labels_)
        np.testing.assert_allclose(one.transform(X), two.transform(other), rtol=1e-6, atol=1e-8)

    def test_transforming_goes_back(self):
        X, y = WINE
        for pooling in ("sum", "mean", "sqrt"):
            merger = WordMerger(4, pooling=pooling, word_weights=np.arange(13.0)).fit(X, y)
            Z = merger.transform(X)
            np.testing.assert_allclose(merger.transform(merger.inverse_transform(Z)), Z, rtol=1e-9)
            np.testing.assert_allclose(merger.transform(sp.csr_array(X)).toarray(), Z, rtol=1e-9)
            back = merger.inverse_transform(sp.csr_array(Z))
            np.testing.assert_allclose(back.toarray(), merger.inverse_transform(Z), rtol=1e-9)

    def test_weights_count_samples(self):
        X, y = WINE
        weights = np.random.default_rng(1).integers(0, 3, len(y))
        weighted, repeated = (
            WordMerger(4).fit(X, y, weights),
            WordMerger(4).fit(*(np.repeat(a, weights, 0) for a in WINE)),
        )
        np.testing.assert_allclose(weighted.scores_, repeated.scores_, rtol=1e-9, atol=1e-14)
        np.testing.assert_array_equal(weighted.shift_, repeated.shift_)

    def test_chunks_give_the_same(self):
        X, y = WINE
        merger = WordMerger(4, word_weights=np.arange(1.0, 14)).fit(X, y)
        chunked = da.from_array(X, chunks=(50, 13))
        lazy = WordMerger(4, word_weights=np.arange(1.0, 14)).fit(chunked, y)
        np.testing.assert_array_equal(merger.labels_, lazy.labels_)
        np.testing.assert_allclose(merger.scores_, lazy.scores_, rtol=1e-8, atol=1e-14)
        np.testing.assert_allclose(lazy.transform(chunked).compute(), merger.transform(X), rtol=1e-9)
        with pytest.raises(BagwiseError, match="'idf' needs the samples in memory"):
            WordMerger(word_weights="idf").fit(chunked, y)

    @pytest.mark.parametrize("data", ["wine", "negative", "counts"])
    @pytest.mark.parametrize("scaling", ["auto", "shift", "range"])
    @pytest.mark.filterwarnings("ignore:X has negative values")
    def test_dense_and_sparse_data_give_the_same_groups(self, counts, data, scaling):
        X, y = WINE if data == "wine" else counts
        X = X - (X > 2) * 7.5 if data == "negative" else X
        weights = np.random.default_rng(1).integers(0, 3, len(y))
        for criterion in ("aib", "mmi", "clusters"):
            if criterion != "aib" and X.min() < 0:
                with pytest.raises(BagwiseError, match=rf"'{criterion}' needs non-negative.*X.toarray\(\)"):
                    merge_words(sp.csr_array(X), criterion=criterion, scaling=scaling)
                continue
            more = {"sample_weight": weights} if criterion == "aib" else {}
            dense, sparse = (
                WordMerger(4, criterion=criterion, scaling=scaling).fit(form(X), y, **more)
                for form in (np.asarray, sp.csr_array)
            )
            np.testing.assert_array_equal(dense.hierarchy_.merges, sparse.hierarchy_.merges)
            np.testing.assert_allclose(dense.scores_, sparse.scores_, rtol=1e-9, atol=1e-12)
            np.testing.assert_array_equal(dense.shift_, sparse.shift_)
            np.testing.assert_array_equal(dense.scale_, sparse.scale_)
            assert (dense.shift_ is None) == (scaling == "auto" and data == "counts")
            Z = sparse.transform(sp.csr_array(X))
            assert sp.issparse(Z)
            np.testing.assert_allclose(Z.toarray(), dense.transform(X), rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    def test_shifting_negative_values_unasked_warns(self, form):
        X, y = np.eye(4) - 2 * np.eye(4, k=1), [0, 1, 1, 0]
        with pytest.warns(UserWarning, match=r"down to -2 in word 1.*'aib'.*scaling='shift'"):
            expected = merge_words(form(X), y)
        assert merge_words(form(X), y, scaling="shift") == expected
        with pytest.raises(BagwiseError, match="sample 0, word 1 is -2"):
            merge_words(form(X), y, scaling=None)
        assert WordMerger(scaling=None).__sklearn_tags__().input_tags.positive_only

    def test_what_may_be_counts_warns(self, wide_counts, counts):
        X, y = wide_counts / 10, counts[1]
        with pytest.warns(UserWarning, match=r"fractions, zeros.*'aib'.*scaling=None if they are counts"):
            expected = merge_words(X, y)
        assert merge_words(X, y, scaling="range") == expected
        for scaling in ("auto", None):  # without a warning
            WordMerger(scaling=scaling).fit(X if scaling is None else WINE[0][:60], y)

    def test_scaling_is_for_criteria_of_counts(self):
        with pytest.raises(BagwiseError, match="'aib', 'mmi', 'clusters', and 'csm' takes data as they are"):
            merge_words(*WINE, criterion="csm", scaling="range")
        with pytest.raises(BagwiseError, match=r"Unknown scaling: 'shft'. Did you mean 'shift'"):
            WordMerger(scaling="shft").fit(*WINE)
        found = WordMergerCV([2, 4], scaling=None, cv=2).fit(*WINE)
        assert found.shift_ is None

    def test_it_is_said(self, capsys):
        WordMerger(4, verbose=1).fit(*WINE)
        assert "each shifted to a minimum of 0, and divided by its range" in capsys.readouterr().out

    def test_tags(self):
        assert not WordMerger().__sklearn_tags__().input_tags.positive_only
        assert not WordMergerCV(criterion="aib").__sklearn_tags__().input_tags.positive_only
        assert WordMerger(criterion="mlt").__sklearn_tags__().input_tags.positive_only


class TestWordWeights:
    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    def test_words_are_multiplied_before_they_are_summed(self, counts, form):
        X, y = counts
        weights = np.random.default_rng(0).random(14)
        merger = WordMerger(5, word_weights=weights).fit(form(X), y)
        plain = WordMerger(5).fit(X, y)
        assert merger.hierarchy_ == plain.hierarchy_
        Z = merger.transform(form(X))
        np.testing.assert_allclose(Z.toarray() if sp.issparse(Z) else Z, plain.transform(X * weights))
        np.testing.assert_array_equal(merger.word_weights_, weights)
        assert plain.word_weights_ is None

    def test_idf_is_that_of_scikit_learn(self, counts):
        X, y = counts
        found = WordMerger(word_weights="idf").fit(sp.csr_array(X), y).word_weights_
        np.testing.assert_allclose(found, TfidfTransformer().fit(X).idf_)

    def test_log_odds_by_the_definition(self, counts):
        X, y = counts
        found = WordMerger(word_weights="log_odds").fit(X, y).word_weights_
        for word in range(14):
            odds = []
            for c in range(3):
                own, rest = X[y == c].sum(axis=0) + 1, sum(X[y == k].sum(axis=0) + 1 for k in range(3) if k != c)
                odds.append(abs(np.log(own[word] / own.sum() / (rest[word] / rest.sum()))))
            assert found[word] == pytest.approx(max(odds))
        half = np.where(np.arange(60) < 30, y, -1)
        some = WordMerger(word_weights="log_odds", criterion="semi_supervised").fit(X, half).word_weights_
        np.testing.assert_allclose(some, WordMerger(word_weights="log_odds").fit(X[:30], y[:30]).word_weights_)

    @pytest.mark.parametrize("data", ["counts", "wine"])
    def test_cross_validation_uses_them_and_the_scaling(self, counts, data):
        X, y = counts if data == "counts" else WINE
        folds = list(StratifiedKFold(2).split(X, y))
        model = LogisticRegression(max_iter=2000)
        weights = "idf" if data == "counts" else np.linspace(1, 2, 13)
        search = WordMergerCV([3, 6], cv=folds, estimator=model, word_weights=weights).fit(X, y)
        for k, (train, test) in enumerate(folds):
            merger = WordMerger(6, word_weights=weights).fit(X[train], y[train])
            score = model.fit(merger.transform(X[train]), y[train]).score(merger.transform(X[test]), y[test])
            assert search.cv_results_[f"split{k}_test_score"][1] == score
        np.testing.assert_array_equal(search.transform(X), search.merger_.transform(X))
        np.testing.assert_array_equal(search.word_weights_, search.merger_.word_weights_)

    @pytest.mark.parametrize(
        ("weights", "message"),
        [
            ("ifd", "Did you mean 'idf'"),
            (np.ones(3), r"each of the 14 words; got .* of shape \(3,\)"),
            (-np.ones(14), "non-negative number"),
            (np.full(14, np.nan), "finite"),
        ],
    )
    def test_bad_ones(self, counts, weights, message):
        with pytest.raises(BagwiseError, match=message):
            WordMerger(word_weights=weights).fit(*counts)

    def test_log_odds_need_labels_and_counts(self, counts):
        X, y = counts
        with pytest.raises(BagwiseError, match="'log_odds' needs labels"):
            WordMerger(word_weights="log_odds").fit(X)
        with pytest.raises(BagwiseError, match="'log_odds' needs counts"):
            WordMerger(word_weights="log_odds", scaling="shift").fit(X - 1, y)
