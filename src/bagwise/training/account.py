"""What a report tells of a fit: curves, the largest groups, and examples with the groups that decided."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.text import how_many
from bagwise.model import Head, Model, PathErrors
from bagwise.report.data import ClassCount, Confusion, Example, MergingCurve, ReportData
from bagwise.report.pictures import thumbnail
from bagwise.sources.collection import Collection
from bagwise.sources.items import Item
from bagwise.training.evaluate import Evaluation, confusion_matrix
from bagwise.training.fit import Fit
from bagwise.training.provenance import versions
from bagwise.training.word_groups import described_groups, over_cells

__all__ = ["account_of", "account_of_evaluation", "excerpt_of", "picture_of"]

N_EVIDENCE = 5
N_EXAMPLE_CLASSES = 20
EXCERPT = 300
PICTURE_SIDE = 160


def account_of(fit: Fit, evaluation: Evaluation | None = None, title: str | None = None) -> ReportData:
    """Gather what a report shows of a fit.

    Parameters
    ----------
    fit : Fit
    evaluation : Evaluation, default=None
        Of items kept apart. Without it, confusion and examples are those of cross-validation.
    title : str, default=None
        None: the name of the source.

    Returns
    -------
    data : ReportData

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.sources import TableCollection
    >>> X = np.array([[4, 1, 0], [5, 0, 1], [3, 2, 0], [0, 1, 5], [1, 0, 4], [0, 2, 3]])
    >>> rows = TableCollection(X, list("abcdef"), [("cat",)] * 3 + [("dog",)] * 3)
    >>> from bagwise.training import FitOptions, account_of, fit_model
    >>> account = account_of(fit_model(rows, FitOptions(to=2, folds=3)))
    >>> account.curve.sizes, account.confusion.n_wrong, [group.n_words for group in account.groups]
    ((2, 3), 0, [2, 1])
    """
    model, data = fit.model, fit.data
    answers, notes = None if evaluation is None else _answers_of(model, evaluation), list(fit.notes)
    if evaluation is None and fit.held_out is not None and fit.codes is not None and model.path is not None:
        answers = _Answers(
            data.collection,
            data.histograms,
            fit.codes,
            fit.held_out[model.path.sizes.index(model.n_words)],
            model.path.protocol,
        )
        notes.append(
            f"Answers of the examples are those of {model.path.protocol}: each item was classified by a model that had "
            "not learned from it. What the words added to these answers is told by the model of all items, which may "
            "answer otherwise."
        )
    return ReportData(
        title=str(model.provenance["source"]) if title is None else title,
        facts=_facts(model, evaluation),
        classes=_class_counts(model, evaluation),
        curve=_curve(model, model.path, evaluation),
        confusion=_confusion(model, answers),
        groups=described_groups(model, data.collection, data.histograms, fit.codes),
        examples=_examples(model, answers),
        timings=tuple(fit.timings.items()),
        versions=tuple(model.provenance["versions"].items()),
        notes=notes,
    )


def account_of_evaluation(model: Model, evaluation: Evaluation, title: str | None = None) -> ReportData:
    """Gather what a report shows of a model that was tried on other items.

    Parameters
    ----------
    model : Model
    evaluation : Evaluation
    title : str, default=None
        None: the name of what was tried.

    Returns
    -------
    data : ReportData
        The curve has the errors of these items; groups are described by them as well.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.sources import TableCollection
    >>> X = np.array([[4, 1, 0], [5, 0, 1], [3, 2, 0], [0, 1, 5], [1, 0, 4], [0, 2, 3]])
    >>> rows = TableCollection(X, list("abcdef"), [("cat",)] * 3 + [("dog",)] * 3)
    >>> from bagwise.training import FitOptions, account_of_evaluation, evaluate_model, fit_model
    >>> model = fit_model(rows, FitOptions(to=2, folds=0)).model
    >>> account_of_evaluation(model, evaluate_model(model, rows[::2])).curve.protocol
    'a test on 3 items'
    """
    answers = _answers_of(model, evaluation)
    notes = [f"{evaluation.n_skipped} items could not be read, or have no label."] if evaluation.n_skipped else []
    return ReportData(
        title=evaluation.collection.source if title is None else title,
        facts=_facts(model, evaluation),
        classes=_class_counts(model, evaluation),
        curve=_curve(model, None, evaluation),
        confusion=_confusion(model, answers),
        groups=described_groups(model, evaluation.collection, evaluation.histograms, evaluation.codes),
        examples=_examples(model, answers),
        versions=tuple(versions().items()),
        notes=notes,
    )


@dataclass(frozen=True)
class _Answers:
    """Items, their words, their classes, the classes they were given at the size of the model, and how."""

    collection: Collection
    histograms: Any
    codes: NDArray[np.int64]
    predicted: NDArray[np.int64]
    protocol: str


def _answers_of(model: Model, evaluation: Evaluation) -> _Answers | None:
    if model.n_words not in evaluation.sizes:
        return None
    return _Answers(
        evaluation.collection,
        evaluation.histograms,
        evaluation.codes,
        evaluation.at(model.n_words),
        _tested(evaluation),
    )


def _facts(model: Model, evaluation: Evaluation | None) -> tuple[tuple[str, str], ...]:
    made = model.provenance
    facts = []
    if "source" in made:
        facts.append(("Source", str(made["source"])))
    if "n_items" in made:
        facts.append(("Learned from", how_many(made["n_items"], model.items)))
    if model.classes:
        facts.append(("Classes", str(len(model.classes))))
    if evaluation is not None:
        facts.append(("Tested on", how_many(len(evaluation.collection), model.items)))
    if model.descriptor_record is not None:
        facts.append(("Descriptor", _described(model.descriptor_record)))
    facts += [
        ("Words before merging", f"{model.hierarchy.n_words:,}"),
        ("Words after merging", f"{model.n_words:,}"),
        ("Criterion", str(model.hierarchy.criterion)),
    ]
    if len(model.pyramid) > 1:
        facts.append(("Pyramid", ", ".join(f"{rows}x{columns}" for rows, columns in model.pyramid)))
    if model.heads and "penalty" in model.options:
        facts.append(("Classifier", f"linear SVM, C = {model.options['penalty']:g}"))
    return tuple(facts)


def _described(record: Any) -> str:
    named = ("patch", "step", "cell", "mode", "space", "features")
    some = ", ".join(f"{name} {record.parameters[name]}" for name in named if name in record.parameters)
    return f"{record.name}, {some}" if some else str(record.name)


def _class_counts(model: Model, evaluation: Evaluation | None) -> tuple[ClassCount, ...]:
    learned = model.provenance.get("class_counts", {})
    tested: Any = [None] * len(model.classes)
    if evaluation is not None:
        tested = np.bincount(evaluation.codes, minlength=len(model.classes)).tolist()
    return tuple(ClassCount(name, int(learned.get(name, 0)), n) for name, n in zip(model.classes, tested, strict=True))


def _curve(model: Model, path: PathErrors | None, evaluation: Evaluation | None) -> MergingCurve:
    """Errors of cross-validation if they are given, otherwise those of the test; the criterion in any case."""
    scores = model.hierarchy.scores
    left = model.hierarchy.n_words - 1 - np.arange(len(scores))
    finite = np.isfinite(scores)
    common: dict[str, Any] = {
        "chosen": model.n_words,
        "criterion_name": str(model.hierarchy.criterion),
        "criterion_sizes": left[finite][::-1].tolist(),
        "criterion_values": scores[finite][::-1].tolist(),
        "n_before": model.hierarchy.n_words,
    }
    if path is not None:
        return MergingCurve(path.sizes, path.errors, path.standard_errors, path.protocol, one_se=path.one_se, **common)
    if evaluation is not None:
        return MergingCurve(evaluation.sizes, evaluation.errors, protocol=_tested(evaluation), **common)
    return MergingCurve((), (), **common)


def _confusion(model: Model, answers: _Answers | None) -> Confusion | None:
    if answers is None:
        return None
    matrix = confusion_matrix(answers.codes, answers.predicted, len(model.classes))
    return Confusion(model.classes, matrix, answers.protocol)


def _tested(evaluation: Evaluation) -> str:
    return f"a test on {len(evaluation.collection):,} items"


def _examples(model: Model, answers: _Answers | None) -> tuple[Example, ...]:
    """For each class an item that was recognised and one that was not."""
    if answers is None:
        return ()
    chosen = _chosen(answers.codes, answers.predicted)
    rows = model.group(answers.histograms[chosen])
    examples = []
    for k, number in enumerate(chosen):
        item, answer = answers.collection[number], int(answers.predicted[number])
        picture, excerpt = picture_of(item, model.items)
        evidence = _evidence(rows[[k]], model.head, answer, model.n_words)
        label = model.classes[answers.codes[number]]
        examples.append(Example(item.id, label, model.classes[answer], picture, excerpt, evidence))
    return tuple(examples)


def _chosen(codes: NDArray[np.int64], predicted: NDArray[np.int64]) -> list[int]:
    """The first item that was recognised and the first that was not, of the largest classes, class by class."""
    chosen = []
    for code in sorted(c for c, _ in Counter(codes.tolist()).most_common(N_EXAMPLE_CLASSES)):
        for right in (True, False):
            some = np.flatnonzero((codes == code) & ((predicted == code) == right))
            chosen += some[:1].tolist()
    return chosen


def _evidence(row: Any, head: Head, answer: int, n_groups: int) -> tuple[tuple[int, float], ...]:
    """The groups that added most to the score of the answer, or took most from it."""
    values = row.toarray() if sp.issparse(row) else np.asarray(row)
    contributions = over_cells(values * head.coef[answer], n_groups)[0]
    strongest = np.argsort(-np.abs(contributions), kind="stable")[:N_EVIDENCE]
    return tuple((int(group), float(contributions[group])) for group in strongest if contributions[group] != 0)


def picture_of(item: Item, items: str) -> tuple[bytes | None, str | None]:
    """A small picture of an image, or the beginning of a text; nothing of rows and videos.

    Parameters
    ----------
    item : Item
    items : str
        What kind of collection it is from.

    Returns
    -------
    picture : bytes or None
    excerpt : str or None
    """
    if items == "images":
        return thumbnail(item.load(), PICTURE_SIDE), None
    if items == "texts":
        return None, excerpt_of(item.load())
    return None, None


def excerpt_of(text: str) -> str:
    """The beginning of a text, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= EXCERPT else line[: EXCERPT - 1] + "…"
