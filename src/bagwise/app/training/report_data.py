"""Data of the report of a fitted model, or of an evaluation: curves, word groups and examples."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix

from bagwise._utils.text import how_many
from bagwise.app.modalities import MODALITIES
from bagwise.app.model import Model, PathErrors
from bagwise.app.report.data import ClassCount, ConfusionMatrix, Example, MergingCurve, ReportData
from bagwise.app.training.baselines import baselines_of
from bagwise.app.training.evaluate import Evaluation
from bagwise.app.training.fit import Fit
from bagwise.app.training.group_data import hierarchy_tree, word_groups
from bagwise.app.training.provenance import versions
from bagwise.sources.collection import Collection

__all__ = ["evaluation_report_data", "fit_report_data"]

N_EXAMPLE_CLASSES = 20
PICTURE_SIDE = 240


def fit_report_data(fit: Fit, evaluation: Evaluation | None = None, title: str | None = None) -> ReportData:
    """Collect the data of the report of a fit.

    Parameters
    ----------
    fit : Fit
    evaluation : Evaluation, default=None
        Results on the test split. Without it, the confusion matrix and the examples come from cross-validation.
    title : str, default=None
        None: the name of the source.

    Returns
    -------
    data : ReportData

    Examples
    --------
    >>> from bagwise.sources import Collection
    >>> from bagwise.app import fit_model, fit_report_data
    >>> rows = Collection.from_matrix(np.array([[4, 1, 0], [1, 0, 5]] * 3), list("abcdef"), [("cat",), ("dog",)] * 3)
    >>> data = fit_report_data(fit_model(rows, n_groups=2, folds=3).fit_)
    >>> data.curve.sizes, data.confusion.n_wrong, [group.n_words for group in data.groups]
    ((2, 3), 0, [1, 2])
    """
    model, data = fit.model, fit.data
    predictions, notes = None if evaluation is None else _tested(model, evaluation), list(fit.notes)
    about = None if evaluation is None else evaluation.about_seen(model, " of the split test")
    notes += [] if about is None else [about]
    if evaluation is None and fit.held_out is not None and fit.codes is not None and model.path is not None:
        known = data.first(len(fit.codes))
        predictions = _Predictions(
            known.collection,
            known.histograms,
            fit.codes,
            fit.held_out[model.path.sizes.index(model.n_groups)],
            model.path.protocol_of_answers,
        )
        notes.append(
            f"The predictions of the examples come from {predictions.protocol}: each item was classified by a model "
            "trained without it. The scores and contributions come from the final model, trained on all items, "
            "which may predict another class."
        )
    curve = _curve(model, model.path, evaluation)
    if curve.test_seen is None:  # the split test is not the training data
        curve = replace(curve, test_seen=0.0)
    return ReportData(
        title=str(model.provenance["source"]) if title is None else title,
        facts=_facts(model, evaluation),
        classes=_class_counts(model, evaluation),
        curve=curve,
        confusion=_confusion(model, predictions),
        groups=word_groups(model, data.collection, data.histograms, data.samples),
        examples=_examples(model, predictions),
        timings=fit.timings,
        versions=model.provenance["versions"],
        notes=notes,
        baselines=baselines_of(model, evaluation),
        tree=hierarchy_tree(model),
    )


def evaluation_report_data(model: Model, evaluation: Evaluation, title: str | None = None) -> ReportData:
    """Collect the data of the report of an evaluation.

    Parameters
    ----------
    model : Model
    evaluation : Evaluation
    title : str, default=None
        None: the name of the evaluated source.

    Returns
    -------
    data : ReportData
        The test errors and the frequencies of the groups are those of the evaluated items.
    """
    predictions = _tested(model, evaluation)
    about = evaluation.about_seen(model)
    notes = [] if about is None else [about]
    notes += [f"{evaluation.n_skipped} items could not be read, or have no label."] if evaluation.n_skipped else []
    return ReportData(
        title=evaluation.collection.source if title is None else title,
        facts=_facts(model, evaluation),
        classes=_class_counts(model, evaluation),
        curve=_curve(model, model.path, evaluation),
        confusion=_confusion(model, predictions),
        groups=word_groups(model, evaluation.collection, evaluation.histograms, evaluation.samples),
        examples=_examples(model, predictions),
        versions=versions(),
        notes=notes,
        baselines=baselines_of(model, evaluation),
        tree=hierarchy_tree(model),
    )


@dataclass(frozen=True)
class _Predictions:
    """Items with their histograms, true and predicted class indices, and how they were predicted."""

    collection: Collection
    histograms: Any
    codes: NDArray[np.int64]
    predicted: NDArray[np.int64]
    protocol: str


def _tested(model: Model, evaluation: Evaluation) -> _Predictions | None:
    if model.n_groups not in evaluation.sizes:
        return None
    predicted, protocol = evaluation.at(model.n_groups), _test_protocol(evaluation)
    return _Predictions(evaluation.collection, evaluation.histograms, evaluation.codes, predicted, protocol)


def _test_protocol(evaluation: Evaluation) -> str:
    return f"a test on {len(evaluation.collection):,} items"


def _facts(model: Model, evaluation: Evaluation | None) -> dict[str, str | int]:
    provenance = model.provenance
    facts: dict[str, str | int] = {}
    if "source" in provenance:
        facts["Source"] = str(provenance["source"])
    if "n_items" in provenance:
        facts["Training items"] = how_many(provenance["n_items"], model.modality)
    if model.classes:
        facts["Classes"] = len(model.classes)
    if evaluation is not None:
        facts["Test items"] = how_many(len(evaluation.collection), model.modality)
    if model.descriptors:
        facts["Descriptor"] = "; ".join(map(_describe, model.descriptors))
    criterion, reason = str(model.hierarchy.criterion), provenance.get("criterion_reason")
    criterion = f"{criterion} ({reason})" if reason not in (None, "as given") else criterion
    words = (
        " + ".join(map(str, model.layout.vocabularies))
        if len(model.layout.vocabularies) > 1
        else model.hierarchy.n_words
    )
    facts |= {"Words": words, "Groups": model.n_groups, "Criterion": criterion}
    if (model.term, model.norm) == ("log", "l2") and model.word_weights is not None:
        facts["Weights of words"] = "sublinear TF-IDF"
    elif model.column_shift is not None:
        divided = "" if model.word_weights is None else ", divided by its range"
        facts["Columns"] = f"measurements, each shifted to a minimum of 0{divided}"
    elif (model.term, model.norm) == ("sqrt", "l2"):
        facts["Weights of words"] = "square roots of relative frequencies"
    soft = [one for one in model.assignment or () if one.name != "hard"]
    if soft:
        by_length = ", by the square of its length" if soft[0].by_length else ""
        facts["Assignment"] = f"each descriptor counts for its {soft[0].n_entries} nearest words{by_length}"
    if len(model.pyramid) > 1:
        facts["Pyramid"] = ", ".join(f"{rows}x{columns}" for rows, columns in model.pyramid)
    C = model.options.get("C")
    if model.heads and C is not None:
        follows = model.hierarchy.criterion == "classifier"
        what = "linear SVM on all words, followed by the groups" if follows else "linear SVM"
        facts["Classifier"] = f"{what}, C = {C:g}"
    return facts


def _describe(record: Any) -> str:
    """Return the name of a descriptor with its main parameters."""
    names = ("patch", "step", "cell", "layer", "side", "n_frames", "max_side", "mode", "space", "features")
    parameters = ", ".join(f"{name} {value}" for name in names if (value := record.parameters.get(name)) is not None)
    return f"{record.name}, {parameters}" if parameters else str(record.name)


def _class_counts(model: Model, evaluation: Evaluation | None) -> tuple[ClassCount, ...]:
    n_train = model.provenance.get("class_counts", {})
    n_test: Any = [None] * len(model.classes)
    if evaluation is not None:
        n_test = np.bincount(evaluation.codes, minlength=len(model.classes)).tolist()
    return tuple(ClassCount(name, int(n_train.get(name, 0)), n) for name, n in zip(model.classes, n_test, strict=True))


def _curve(model: Model, path: PathErrors | None, evaluation: Evaluation | None) -> MergingCurve:
    """Return the errors of cross-validation and of the test, and the scores of the hierarchy."""
    scores = model.hierarchy.scores
    sizes = model.hierarchy.n_words - 1 - np.arange(len(scores))
    finite = np.isfinite(scores)
    points: dict[str, Any] = {"sizes": (), "errors": ()}
    if path is not None:
        points = {name: getattr(path, name) for name in ("sizes", "errors", "standard_errors", "protocol", "auto")}
    if evaluation is not None:
        points |= {"test_sizes": evaluation.sizes, "test_errors": evaluation.errors}
        points["n_test"] = len(evaluation.collection)
        seen = evaluation.seen
        points["test_seen"] = None if seen is None else seen.estimate / max(len(evaluation.collection), 1)
    return MergingCurve(
        **points,
        n_groups=model.n_groups,
        criterion_name=str(model.hierarchy.criterion),
        criterion_sizes=sizes[finite][::-1].tolist(),
        criterion_values=scores[finite][::-1].tolist(),
        n_words=model.hierarchy.n_words,
    )


def _confusion(model: Model, predictions: _Predictions | None) -> ConfusionMatrix | None:
    if predictions is None:
        return None
    matrix = confusion_matrix(predictions.codes, predictions.predicted, labels=np.arange(len(model.classes)))
    return ConfusionMatrix(model.classes, matrix, predictions.protocol)


def _examples(model: Model, predictions: _Predictions | None) -> tuple[Example, ...]:
    """Return one correct and one wrong item of each of the largest classes."""
    if predictions is None:
        return ()
    codes, predicted = predictions.codes, predictions.predicted
    chosen: list[int] = []
    for code in sorted(c for c, _ in Counter(codes.tolist()).most_common(N_EXAMPLE_CLASSES)):
        for correct in (True, False):
            chosen += np.flatnonzero((codes == code) & ((predicted == code) == correct))[:1].tolist()
    explanations = model.explain(predictions.histograms[chosen])
    examples = []
    for number, why in zip(chosen, explanations, strict=True):
        item, answer = predictions.collection[number], int(predicted[number])
        picture, excerpt = MODALITIES[model.modality].preview(item, PICTURE_SIDE)
        rival = max((other for other in range(len(model.classes)) if other != answer), key=why.score_of)
        examples.append(
            Example(
                item.id,
                model.classes[codes[number]],
                model.classes[answer],
                picture,
                excerpt,
                tuple((term.group, term.contribution) for term in why.groups(answer)),
                why.score_of(answer),
                why.intercept_of(answer),
                (model.classes[rival], why.score_of(rival)),
            )
        )
    return tuple(examples)
