"""Tables of Polars and Arrow as X of estimators: columns are words, and names are kept, without pandas."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.naive_bayes import MultinomialNB

from bagwise import BagwiseError, CompactClassifier, LatentDirichlet, SketchMerger, WordMerger, WordMergerCV
from small_sources import table

polars, arrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
X, Y = table(n_each=10, n_words=8)
NAMES = [f"w{k}" for k in range(X.shape[1])]
TABLES = {
    "polars": (polars.DataFrame(X, schema=NAMES), polars.Series(Y)),
    "arrow": (arrow.table({name: X[:, k] for k, name in enumerate(NAMES)}), arrow.array(Y.tolist())),
}
TRANSFORMERS = [
    WordMerger(3),
    WordMergerCV([2, 3], estimator=MultinomialNB(), cv=2),
    SketchMerger(3, random_state=0),
    LatentDirichlet(2, max_iter=3, random_state=0),
]


@pytest.mark.parametrize("library", TABLES)
@pytest.mark.parametrize("estimator", TRANSFORMERS, ids=lambda one: type(one).__name__)
def test_a_table_is_its_matrix_with_names(estimator, library):
    frame, y = TABLES[library]
    by_matrix, by_frame = clone(estimator).fit(X, Y), clone(estimator).fit(frame, y)
    np.testing.assert_array_equal(by_frame.transform(frame), by_matrix.transform(X))
    assert by_frame.feature_names_in_.tolist() == NAMES
    out = by_frame.set_output(transform="polars").transform(frame)
    assert isinstance(out, polars.DataFrame)
    assert out.columns == by_frame.get_feature_names_out().tolist()
    np.testing.assert_array_equal(out.to_numpy(), by_matrix.transform(X))
    with pytest.raises(ValueError, match="feature names"):
        by_frame.transform(frame.select(NAMES[::-1]))


@pytest.mark.parametrize("library", TABLES)
def test_a_classifier_of_a_table(library):
    frame, y = TABLES[library]
    by_matrix, by_frame = CompactClassifier(n_groups=3).fit(X, Y), CompactClassifier(n_groups=3).fit(frame, y)
    np.testing.assert_array_equal(by_frame.predict(frame), by_matrix.predict(X))


@pytest.mark.parametrize("form", [sp.csr_array, sp.csr_matrix])
@pytest.mark.parametrize(
    "estimator", [*TRANSFORMERS[:3], CompactClassifier(n_groups=3)], ids=lambda one: type(one).__name__
)
def test_groups_of_sparse_data_are_sparse_columns_of_pandas(estimator, form):
    pandas = pytest.importorskip("pandas")
    fitted = clone(estimator).fit(form(X), Y)
    expected = fitted.transform(form(X))
    out = fitted.set_output(transform="pandas").transform(form(X))
    assert all(isinstance(kind, pandas.SparseDtype) for kind in out.dtypes)
    assert out.columns.tolist() == fitted.get_feature_names_out().tolist()
    np.testing.assert_array_equal(out.to_numpy(), expected.toarray())
    with pytest.raises(BagwiseError, match="polars has no sparse columns"):
        fitted.set_output(transform="polars").transform(form(X))
