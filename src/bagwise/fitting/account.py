"""What a report tells of a fit: curves, the largest groups, and examples with the groups that decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.codebooks.distances import WordDistances, nearest_words
from bagwise.fitting.evaluate import Evaluation, confusion_matrix, histograms_of
from bagwise.fitting.fit import Fit
from bagwise.model import Head, Model
from bagwise.report.data import ClassCount, Confusion, Example, MergingCurve, ReportData, WordGroup
from bagwise.report.pictures import thumbnail
from bagwise.sources.collection import Collection
from bagwise.sources.items import Item

__all__ = ["account_of", "picture_of"]

N_GROUPS = 16
N_NAMES = 12
N_PATCHES = 16
N_CLASSES_SHOWN = 3
N_EVIDENCE = 5
# Classes with examples, and items whose patches are looked through.
N_EXAMPLE_CLASSES = 20
N_PATCH_ITEMS = 80
EXCERPT = 300
PICTURE_SIDE = 160


def account_of(fit: Fit, evaluation: Evaluation | None = None, title: str | None = None) -> ReportData:
    """Gather what a report shows.

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
    """
    model = fit.model
    features = model.group(fit.data.histograms)
    return ReportData(
        title=str(model.provenance["source"]) if title is None else title,
        facts=_facts(fit, evaluation),
        classes=_class_counts(fit, evaluation),
        curve=_curve(fit, evaluation),
        confusion=_confusion(fit, evaluation),
        groups=_groups(fit, features),
        examples=_examples(fit, evaluation, features),
        timings=tuple(fit.timings.items()),
        versions=tuple(model.provenance["versions"].items()),
        notes=fit.notes,
    )


def _facts(fit: Fit, evaluation: Evaluation | None) -> tuple[tuple[str, str], ...]:
    model = fit.model
    facts = [("Source", str(model.provenance["source"])), ("Items", f"{len(fit.data.collection)} {model.items}")]
    if model.classes:
        facts.append(("Classes", str(len(model.classes))))
    if evaluation is not None:
        facts.append(("Kept apart for testing", f"{len(evaluation.collection)} items"))
    if model.descriptor is not None:
        facts.append(("Descriptor", repr(model.descriptor)))
    facts += [
        ("Words before merging", f"{fit.data.n_words:,}"),
        ("Words after merging", f"{model.n_words:,}"),
        ("Criterion", str(model.options["criterion"])),
    ]
    if len(model.pyramid) > 1:
        facts.append(("Pyramid", ", ".join(f"{rows}x{columns}" for rows, columns in model.pyramid)))
    if model.heads:
        facts.append(("Classifier", f"linear SVM, C = {model.options['penalty']:g}"))
    return tuple(facts)


def _class_counts(fit: Fit, evaluation: Evaluation | None) -> tuple[ClassCount, ...]:
    if fit.codes is None:
        return ()
    learned = np.bincount(fit.codes, minlength=len(fit.model.classes))
    if evaluation is None:
        return tuple(ClassCount(name, int(n)) for name, n in zip(fit.model.classes, learned, strict=True))
    tested = np.bincount(evaluation.codes, minlength=len(fit.model.classes))
    return tuple(ClassCount(*row) for row in zip(fit.model.classes, learned.tolist(), tested.tolist(), strict=True))


def _curve(fit: Fit, evaluation: Evaluation | None) -> MergingCurve:
    """Errors of cross-validation where there are some, otherwise those of the test; the criterion in any case."""
    model = fit.model
    scores = model.hierarchy.scores
    left = model.hierarchy.n_words - 1 - np.arange(len(scores))
    finite = np.isfinite(scores)
    common: dict[str, Any] = {
        "chosen": model.n_words,
        "criterion_name": str(model.options["criterion"]),
        "criterion_sizes": left[finite][::-1].tolist(),
        "criterion_values": scores[finite][::-1].tolist(),
    }
    if model.path is not None:
        path = model.path
        return MergingCurve(path.sizes, path.errors, path.standard_errors, path.protocol, one_se=path.one_se, **common)
    if evaluation is not None:
        return MergingCurve(evaluation.sizes, evaluation.errors, protocol=_tested(evaluation), **common)
    return MergingCurve((), (), **common)


def _confusion(fit: Fit, evaluation: Evaluation | None) -> Confusion | None:
    model = fit.model
    if evaluation is not None:
        return Confusion(model.classes, evaluation.confusion(model.n_words), _tested(evaluation))
    if fit.held_out is None or fit.codes is None or model.path is None:
        return None
    predicted = fit.held_out[model.path.sizes.index(model.n_words)]
    return Confusion(model.classes, confusion_matrix(fit.codes, predicted, len(model.classes)), model.path.protocol)


def _tested(evaluation: Evaluation) -> str:
    return f"{len(evaluation.collection)} items kept apart"


def _groups(fit: Fit, features: Any) -> tuple[WordGroup, ...]:
    """The groups that occur most, with their words or patches and the classes they speak for."""
    model = fit.model
    lookup = model.lookup
    occurrences = np.asarray(fit.data.whole().sum(axis=0), dtype=np.float64).ravel()
    totals = np.bincount(lookup, weights=occurrences, minlength=model.n_words)
    largest = np.argsort(-totals, kind="stable")[:N_GROUPS]
    weights = None if fit.codes is None else _class_weights(model, features, fit.codes)
    patches = _patches(model, fit.data.collection, largest) if model.items == "images" else {}
    groups = []
    for group in largest.tolist():
        members = np.flatnonzero(lookup == group)
        names: Iterable[str] = ()
        if model.word_names is not None:
            frequent = members[np.argsort(-occurrences[members], kind="stable")][:N_NAMES]
            names = [model.word_names[word] for word in frequent]
        speaks: list[tuple[str, float]] = []
        if weights is not None:
            strongest = np.argsort(-np.abs(weights[:, group]), kind="stable")[:N_CLASSES_SHOWN]
            speaks = [(model.classes[c], float(weights[c, group])) for c in strongest]
        share = float(totals[group] / max(totals.sum(), 1e-300))
        groups.append(WordGroup(group, len(members), share, tuple(names), tuple(patches.get(group, ())), tuple(speaks)))
    return tuple(groups)


def _class_weights(model: Model, features: Any, codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """How much more a group adds to the score of a class for items of that class than for all: (classes, groups)."""
    coef = model.heads[model.n_words].coef
    n_classes = len(model.classes)
    members = sp.csr_array((np.ones(len(codes)), (codes, np.arange(len(codes)))), shape=(n_classes, len(codes)))
    sums = members @ features
    means = (sums.toarray() if sp.issparse(sums) else np.asarray(sums)) / np.bincount(codes, minlength=n_classes)[
        :, None
    ]
    overall = np.asarray(features.mean(axis=0)).ravel()
    return _over_cells(coef * (means - overall), model.n_words)


def _over_cells(contributions: NDArray[Any], n_groups: int) -> NDArray[np.float64]:
    """Add up what a group contributes in all cells of the pyramid."""
    return contributions.reshape(len(contributions), -1, n_groups).sum(axis=1, dtype=np.float64)


def _patches(model: Model, collection: Collection, groups: NDArray[np.int64]) -> dict[int, list[bytes]]:
    """Squares of images around the descriptors that are closest to words of each group, at most one an image."""
    wanted = set(groups.tolist())
    table = WordDistances(model.codebook)
    found: dict[int, list[tuple[float, int, bytes]]] = {group: [] for group in wanted}
    for number in np.unique(np.linspace(0, len(collection) - 1, N_PATCH_ITEMS).astype(int)).tolist():
        image = collection[number].load()
        values, positions = model.descriptor.describe(image)
        if not len(values):
            continue
        words = nearest_words(values, table, 1)
        distances = np.linalg.norm(values - model.codebook[words], axis=1)
        seen = model.lookup[words]
        for group in wanted.intersection(seen.tolist()):
            own = np.flatnonzero(seen == group)
            best = own[np.argmin(distances[own])]
            square = _square(image, positions[best], _side(model.descriptor))
            found[group].append((float(distances[best]), number, thumbnail(square, 48)))
    return {group: [patch for _, _, patch in sorted(some)[:N_PATCHES]] for group, some in found.items()}


def _side(descriptor: Any) -> int:
    """Pixels along the side of what one descriptor sees."""
    parameters = descriptor.get_params(deep=False)
    return int(parameters.get("patch", 3 * parameters.get("cell", 8)))


def _square(image: NDArray[Any], position: NDArray[Any], side: int) -> NDArray[Any]:
    """Cut a square out of an image, moved inwards at borders."""
    height, width = image.shape[:2]
    top = int(np.clip(round(position[1] * height - side / 2), 0, max(height - side, 0)))
    left = int(np.clip(round(position[0] * width - side / 2), 0, max(width - side, 0)))
    return image[top : top + side, left : left + side]


def _examples(fit: Fit, evaluation: Evaluation | None, features: Any) -> tuple[Example, ...]:
    """For each class an item that was recognised and one that was not."""
    model = fit.model
    if evaluation is not None:
        collection, codes = evaluation.collection, evaluation.codes
        predicted = evaluation.predicted[evaluation.sizes.index(model.n_words)]
        chosen = _chosen(codes, predicted)
        histograms, _ = histograms_of(model, collection[np.array(chosen)])
        rows = model.group(histograms)
    elif fit.held_out is not None and fit.codes is not None and model.path is not None:
        collection, codes = fit.data.collection, fit.codes
        predicted = fit.held_out[model.path.sizes.index(model.n_words)]
        chosen = _chosen(codes, predicted)
        rows = features[chosen]
    else:
        return ()
    head = model.heads[model.n_words]
    examples = []
    for k, number in enumerate(chosen):
        answer = int(predicted[number])
        picture, excerpt = picture_of(collection[number], model.items)
        examples.append(
            Example(
                collection[number].id,
                model.classes[codes[number]],
                model.classes[answer],
                picture,
                excerpt,
                _evidence(rows[[k]], head, answer, model.n_words),
            )
        )
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
    contributions = _over_cells(values * head.coef[answer], n_groups)[0]
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
        text = " ".join(item.load().split())
        return None, text if len(text) <= EXCERPT else text[: EXCERPT - 1] + "…"
    return None, None
