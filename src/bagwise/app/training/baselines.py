"""Simple methods beside a model: the most frequent class, all words, colours alone, in the same cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise.app.modalities import MODALITIES
from bagwise.app.model import Model, PathErrors
from bagwise.app.options import FitOptions
from bagwise.app.report.data import Baseline
from bagwise.codebooks.normalizing import normalize_rows

if TYPE_CHECKING:
    from bagwise.app.training.evaluate import Evaluation
    from bagwise.app.training.method import Method
    from bagwise.app.training.preparing import WordData

__all__ = ["POOLED", "baselines_of", "measure_baselines", "with_pooled"]

MAJORITY = "most frequent class"
POOLED = "pooled features of the network, logistic regression"
_COLORS = "ColorCells"


def measure_baselines(
    data: WordData, codes: NDArray[np.int64], path: PathErrors, method: Method, options: FitOptions
) -> list[dict[str, Any]]:
    """Measure simple methods in the folds of `path`, the lowest error first, as JSON values.

    - the most frequent class of the training items
    - all words, weighted as for the model, and a linear SVM: the largest size of the path, if that is all words. For
      texts this is TF-IDF of words and pairs of words with a linear SVM.
    - for images described by several descriptors one of which is `ColorCells`: its words alone, L1 normalised with
      square roots, and a linear SVM, which is a histogram of colours
    """
    from bagwise.app.training.method import HELLINGER, fitting_svms, folds_of, make_svm  # loads scikit-learn

    splits = folds_of(codes, options)
    baselines = [_baseline(MAJORITY, [_majority_error(codes, *parts) for parts in splits], 0)]
    if path.sizes[-1] == data.n_words:
        baselines.append(
            {
                "name": MODALITIES[data.collection.modality].baseline_of_all(
                    data.vectorizer, method.scaling is not None
                ),
                "error": float(path.errors[-1]),
                "standard_error": float(path.standard_errors[-1]),
                "n_features": int(data.histograms.shape[1]),
            }
        )
    colors = _color_words(data)
    if colors is not None:
        features = normalize_rows(data.whole()[:, colors].astype(np.float64), HELLINGER)
        errors = []
        with fitting_svms():
            for train, test in splits:
                svm = make_svm(options).fit(features[train], codes[train])
                errors.append(float(np.mean(svm.predict(features[test]) != codes[test])))
        baselines.append(_baseline("histogram of colours, linear SVM", errors, features.shape[1]))
    return sorted(baselines, key=lambda one: float(one["error"]))


def with_pooled(
    baselines: Sequence[dict[str, Any]], pooled: NDArray[np.float32], codes: NDArray[np.int64], options: FitOptions
) -> list[dict[str, Any]]:
    """Add pooled features of a network, what it averages over an image, to the baselines, in the same folds.

    Standardised, with a logistic regression, they are what most people take from a network.
    """
    joined = [*baselines, pooled_baseline(pooled, codes, options)]
    return sorted(joined, key=lambda one: float(one["error"]))


def pooled_baseline(pooled: NDArray[np.float32], codes: NDArray[np.int64], options: FitOptions) -> dict[str, Any]:
    """Cross-validate a logistic regression on standardised pooled features; see `with_pooled`."""
    from bagwise.app.training.method import folds_of

    return _baseline(POOLED, _pooled_errors(pooled, codes, folds_of(codes, options), options), pooled.shape[1])


def baselines_of(model: Model, evaluation: Evaluation | None = None) -> tuple[Baseline, ...]:
    """Return the baselines of a model, the lowest error first; () for models without any.

    Parameters
    ----------
    model : Model
    evaluation : Evaluation, default=None
        Results on a test, for those baselines whose answers the model knows: all words and the most frequent class.

    Examples
    --------
    >>> from bagwise.sources import Collection
    >>> from bagwise.app import fit_model
    >>> rows = Collection.from_matrix(np.array([[4, 1, 0], [1, 0, 5]] * 3), list("abcdef"), [("cat",), ("dog",)] * 3)
    >>> for one in baselines_of(fit_model(rows, n_groups=2, folds=3)):
    ...     print(one.name, one.error)
    all words, Hellinger, linear SVM 0.0
    most frequent class 0.5
    """
    measured = [
        Baseline(str(one["name"]), float(one["error"]), one.get("standard_error"), one.get("n_features"))
        for one in model.provenance.get("baselines", ())
    ]
    if evaluation is None or not len(evaluation.codes):
        return tuple(measured)
    all_words, counts = model.layout.n_columns, model.provenance.get("class_counts", {})
    tested = []
    for one in measured:
        error = None
        if one.name == MAJORITY and counts:
            most = max(range(len(model.classes)), key=lambda k: counts.get(model.classes[k], 0))
            error = float(np.mean(evaluation.codes != most))
        elif one.n_features == all_words and model.hierarchy.n_words in evaluation.sizes:
            error = float(evaluation.errors[evaluation.sizes.index(model.hierarchy.n_words)])
        tested.append(one._replace(test_error=error))
    return tuple(tested)


def _baseline(name: str, errors: Sequence[float], n_features: int) -> dict[str, Any]:
    spread = float(np.std(errors, ddof=1) / np.sqrt(len(errors))) if len(errors) > 1 else 0.0
    return {"name": name, "error": float(np.mean(errors)), "standard_error": spread, "n_features": n_features}


def _pooled_errors(
    pooled: NDArray[np.float32],
    codes: NDArray[np.int64],
    splits: Sequence[tuple[NDArray[np.intp], NDArray[np.intp]]],
    options: FitOptions,
) -> list[float]:
    """Return the error of a logistic regression on pooled features in each fold."""
    from joblib import effective_n_jobs
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.utils.parallel import Parallel, delayed

    from bagwise.app.training.method import fitting_svms

    def error(train: NDArray[np.intp], test: NDArray[np.intp]) -> float:
        model = make_pipeline(
            StandardScaler(), LogisticRegression(C=options.C, class_weight=options.class_weight, max_iter=1000)
        )
        return float(np.mean(model.fit(pooled[train], codes[train]).predict(pooled[test]) != codes[test]))

    with fitting_svms():
        return Parallel(min(effective_n_jobs(options.n_jobs), len(splits)), require="sharedmem")(
            delayed(error)(*parts) for parts in splits
        )


def _majority_error(codes: NDArray[np.int64], train: NDArray[np.intp], test: NDArray[np.intp]) -> float:
    return float(np.mean(codes[test] != np.bincount(codes[train]).argmax()))


def _color_words(data: WordData) -> slice | None:
    """Return the words of the descriptor of colours, if there are others beside it."""
    if len(data.layout.vocabularies) < 2:
        return None
    names = [one.name for one in getattr(data.vectorizer, "descriptors", ())]
    if _COLORS not in names:
        return None
    number = names.index(_COLORS)
    return data.layout.slices[number]
