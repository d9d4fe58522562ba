"""Why an item gets its class: contributions of groups, words and places that add up to the score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise.app.modalities import MODALITIES
from bagwise.app.modalities.base import Located, Terms
from bagwise.errors import BagwiseError, unknown_name

if TYPE_CHECKING:
    from bagwise.app.modalities.images import Patch
    from bagwise.app.modalities.tables import Column
    from bagwise.app.modalities.texts import Span
    from bagwise.app.model.changes import Change, Move
    from bagwise.app.model.model import Model

__all__ = [
    "Explanation",
    "GroupTerm",
    "WordTerm",
    "explain",
    "sum_cells",
]


class GroupTerm(NamedTuple):
    """The contribution of a group to the score of a class."""

    group: int
    name: str
    contribution: float


class WordTerm(NamedTuple):
    """The contribution of a word of an item, in one of its groups; `name` is None for words without names."""

    word: int
    name: str | None
    group: int
    contribution: float


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Why an item gets its class. Made by `Model.explain`.

    The score of a class is its intercept plus the contributions of all groups: weight of the group times its
    feature, summed over the cells of a pyramid. The contribution of a group is divided among its words in the item
    in proportion to their weighted counts, and that of a word among its places, in proportion to what each counts
    for it. The methods take the name or the number of a class; None is the predicted one. With `against`, another
    class, all of this is of the difference of both scores: why the item is rather of the one than of the other.

    Parameters
    ----------
    classes : tuple of str
    scores, intercepts : ndarray of shape (n_classes,)
    coef : ndarray of shape (n_classes, n_cells * n_groups)
    features : ndarray of shape (n_cells * n_groups,)
        Of the item.
    group_names : sequence of str
    terms : Terms
        Words of the item.
    word_names : sequence of str, default=None
    content : Located, default=None
        What is needed for places.
    id : str, default=None
        Of the item.
    probability : float, default=None
        Calibrated probability of the predicted class, where the model has one.
    model : Model, default=None
    histogram : CSR array or ndarray of shape (1, n_cells * d), default=None
        Of the item, for what would change the answer.

    Examples
    --------
    >>> from bagwise import Hierarchy, Model
    >>> from bagwise.app.model import Head
    >>> model = Model(
    ...     modality="texts",
    ...     hierarchy=Hierarchy(3, [[0, 2]], [0.5]),
    ...     n_groups=2,
    ...     word_names=["cat", "dog", "kitten"],
    ...     normalize=(),
    ...     classes=["cats", "dogs"],
    ...     heads={2: Head([[1, -1], [-1, 1]], [0.5, 0])},
    ... )
    >>> why = model.explain("A cat, its kitten, a dog")
    >>> why
    <Explanation: cats, score 1.5 = 0.5 + contributions of 2 groups; then dogs, -1>
    >>> why.contributions(), why.contributions("dogs")
    (array([ 2., -1.]), array([-2.,  1.]))
    >>> why.words()[0], why.places()[1]
    (WordTerm(word=0, name='cat', group=0, contribution=1.0), Span(start=11, end=17, weight=1.0))
    >>> change = why.changes()
    >>> [word.name for word in change.removed], change.becomes
    (['cat', 'kitten'], 'dogs')
    """

    classes: tuple[str, ...]
    scores: NDArray[np.float64]
    intercepts: NDArray[np.floating]
    coef: NDArray[np.floating]
    features: NDArray[np.floating]
    group_names: Sequence[str]
    terms: Terms
    word_names: Sequence[str] | None = None
    content: Located | None = None
    id: str | None = None
    probability: float | None = None
    model: Model | None = None
    histogram: Any = None

    @property
    def _order(self) -> NDArray[np.intp]:
        return np.argsort(-self.scores, kind="stable")

    @property
    def predicted(self) -> str:
        """The class with the highest score."""
        return self.classes[self._order[0]]

    @property
    def score(self) -> float:
        """The score of the predicted class."""
        return float(self.scores.max())

    @property
    def intercept(self) -> float:
        """The intercept of the predicted class."""
        return self.intercept_of(None)

    @property
    def runner_up(self) -> str:
        """The class with the second highest score."""
        return self.classes[self._order[1]]

    @property
    def runner_up_score(self) -> float:
        """The second highest score."""
        return float(self.scores[self._order[1]])

    @property
    def margin(self) -> float:
        """The difference between the highest score and the second highest."""
        return self.score - self.runner_up_score

    def score_of(self, label: str | int | None, against: str | int | None = None) -> float:
        """Return the score of a class."""
        return float(self._of(self.scores, label, against))

    def intercept_of(self, label: str | int | None, against: str | int | None = None) -> float:
        """Return the intercept of a class."""
        return float(self._of(self.intercepts, label, against))

    def contributions(self, label: str | int | None = None, against: str | int | None = None) -> NDArray[np.float64]:
        """Return the contribution of each group to the score of a class; intercept and contributions add up to it."""
        return sum_cells(self._products(label, against)[np.newaxis], len(self.group_names))[0]

    def groups(self, label: str | int | None = None, against: str | int | None = None) -> list[GroupTerm]:
        """Return the groups that contribute to the score of a class, the largest absolute contribution first."""
        added = self.contributions(label, against)
        order = np.argsort(-np.abs(added), kind="stable")
        return [GroupTerm(int(g), str(self.group_names[g]), float(added[g])) for g in order if added[g] != 0]

    def sums(
        self, n_groups: int, label: str | None = None, against: str | None = None
    ) -> list[tuple[str, float, float]]:
        """Return what adds up to the score of a class, and the same terms of another one.

        Parameters
        ----------
        n_groups : int
            Groups with a row of their own, those with the largest absolute contributions; with `against`, those whose
            contributions to both differ most.
        label : str, default=None
            None: the predicted class.
        against : str, default=None
            The other class. None: the runner-up, or the predicted class if that is not `label`.

        Returns
        -------
        rows : list of (name, contribution, contribution to the other class)
            The intercept, groups, and the sum of all other groups, if there are any.
        """
        first = self.predicted if label is None else label
        other = against or (self.runner_up if first == self.predicted else self.predicted)
        added, others = self.contributions(first), self.contributions(other)
        order = np.argsort(-np.abs(added if against is None else added - others), kind="stable")
        shown = [k for k in order[:n_groups] if added[k] != 0 or others[k] != 0]
        rest = np.setdiff1d(np.flatnonzero((added != 0) | (others != 0)), shown)
        rows = [("intercept", self.intercept_of(first), self.intercept_of(other))]
        rows += [(str(self.group_names[k]), float(added[k]), float(others[k])) for k in shown]
        if len(rest):
            name = f"{len(rest)} other group{'s' if len(rest) > 1 else ''}"
            rows.append((name, float(added[rest].sum()), float(others[rest].sum())))
        return rows

    def words(self, label: str | int | None = None, against: str | int | None = None) -> list[WordTerm]:
        """Return the words of the item with their contributions, the largest absolute contribution first.

        The contributions of the words of a group add up to that of the group.
        """
        terms, n = self.terms, len(self.group_names)
        pairs, inverse = np.unique(terms.words * n + terms.features % n, return_inverse=True)
        sums = np.bincount(inverse, self._shares(label, against), len(pairs))
        names = self.word_names
        order = np.argsort(-np.abs(sums), kind="stable")
        numbers = [(*divmod(int(pairs[k]), n), float(sums[k])) for k in order]
        return [WordTerm(w, None if names is None else str(names[w]), g, added) for w, g, added in numbers]

    def places(
        self, label: str | int | None = None, against: str | int | None = None
    ) -> list[Span] | list[Patch] | list[Column]:
        """Return the parts of the item with their parts of the score.

        Texts have spans of tokens in the original text, images have patches in pixels of the original image, rows of
        tables have columns. There are none for videos, for images by a descriptor that counts words itself (`LBPD5`),
        for bags, and for histograms, except those of tables.
        """
        return [] if self.content is None else self.content.places(self.terms, self._shares(label, against))

    def changes(self, by: str = "words", most: int = 64) -> Change | None:
        """Return few words or groups of the item without which it gets another class.

        They are found greedily: those that speak most for the predicted class against one of the three with the next
        scores are removed until the model, asked again, answers with another class; then those that were not needed are
        put back. So there may be fewer that do the same, but without these the answer is another one. All occurrences
        of a word are removed; of measurements, the column goes to its least value (``Model.column_shift``).

        Parameters
        ----------
        by : {"words", "groups"}, default="words"
        most : int, default=64
            Number of words or groups that are removed at most.

        Returns
        -------
        change : Change or None
            None if no such set was found.
        """
        from bagwise.app.model.changes import change_by_removing

        return change_by_removing(self, by, most)

    def moves(self) -> list[Move]:
        """Return the columns of a table that alone change the answer, at most three, those that move least first.

        Measurements move within the range that they had when the model was learned, and are compared in units of it;
        counts move by at most eight times the mean count of the row. Of many columns, those with the largest weights
        are tried. Empty for items that are no rows of a table.
        """
        from bagwise.app.model.changes import changing_moves

        return changing_moves(self)

    def to_dict(self, label: str | None = None, against: str | None = None) -> dict[str, Any]:
        """Return the explanation as JSON values: of one class, or of the predicted class and the runner-up.

        The latter has what would change the answer too (`changes` of words, and `moves`).
        """
        if label is None:
            answer = {"id": self.id, **self.to_dict(self.predicted), "runner_up": self.to_dict(self.runner_up)}
            answer["margin"] = self.margin
            if self.model is not None:
                change = self.changes()
                answer["changes"] = None if change is None else change.to_dict()
                answer["moves"] = [move._asdict() for move in self.moves()]
            return answer if self.probability is None else answer | {"probability": self.probability}
        told = {} if against is None else {"against": against}
        return told | {
            "class": label,
            "score": self.score_of(label, against),
            "intercept": self.intercept_of(label, against),
            "groups": [term._asdict() for term in self.groups(label, against)],
            "words": [term._asdict() for term in self.words(label, against)],
            "places": [one._asdict() for one in self.places(label, against)],
        }

    def _number(self, label: str | int | None) -> int:
        if label is None:
            return int(self._order[0])
        if isinstance(label, str):
            if label not in self.classes:
                raise unknown_name("class", label, self.classes)
            return self.classes.index(label)
        return int(label)

    def _of(self, rows: NDArray[Any], label: str | int | None, against: str | int | None) -> Any:
        """Return the row of a class, less that of another one."""
        of_label = rows[self._number(label)].astype(np.float64)
        return of_label if against is None else of_label - rows[self._number(against)].astype(np.float64)

    def _products(self, label: str | int | None, against: str | int | None = None) -> NDArray[np.float64]:
        """Return the contribution of each feature."""
        return np.asarray(self._of(self.coef, label, against) * self.features.astype(np.float64))

    def _shares(self, label: str | int | None, against: str | int | None = None) -> NDArray[np.float64]:
        """Return the contribution of each word of `terms`."""
        return self._products(label, against)[self.terms.features] * self.terms.shares

    def __repr__(self) -> str:
        n = np.count_nonzero(self.contributions())
        total = f"{self.score:.4g} = {self.intercept:.4g} + contributions of {n} group{'' if n == 1 else 's'}"
        return f"<Explanation: {self.predicted}, score {total}; then {self.runner_up}, {self.runner_up_score:.4g}>"

    def _repr_html_(self) -> str:
        from bagwise.app.model.display import explanation_html  # deferred: only notebooks need it

        return explanation_html(self)


def sum_cells(contributions: NDArray[Any], n_groups: int) -> NDArray[np.float64]:
    """Sum the contributions of each group over all cells of a pyramid: (n, n_cells * n_groups) to (n, n_groups)."""
    return contributions.reshape(len(contributions), -1, n_groups).sum(axis=1, dtype=np.float64)


def explain(model: Model, X: Any, n_jobs: int | None = None) -> list[Explanation]:
    """Explain the classes of items. See `Model.explain`."""
    head = model.head  # raises where there is none
    histograms, ids, contents = _counted(model, X, n_jobs)
    features = _dense(model.group(histograms))
    scores = head.scores(features)
    probable = model.probabilities(scores).max(axis=1) if model.n_groups in model.calibration else None
    weighted = model.weighting.apply(histograms)
    names = tuple(map(str, model.group_names()))
    return [
        Explanation(
            classes=model.classes,
            scores=scores[k],
            intercepts=head.intercept,
            coef=head.coef,
            features=features[k],
            group_names=names,
            terms=_terms_of(model, _dense(weighted[[k]])[0]),
            word_names=model.word_names,
            content=contents[k] if contents else None,
            id=ids[k] if ids else None,
            probability=None if probable is None else float(probable[k]),
            model=model,
            histogram=histograms[[k]],
        )
        for k in range(len(scores))
    ]


def _dense(matrix: Any) -> NDArray[Any]:
    return matrix.toarray() if hasattr(matrix, "toarray") else np.asarray(matrix)


def _counted(model: Model, X: Any, n_jobs: int | None) -> tuple[Any, Sequence[str], Sequence[Located]]:
    """Return the histograms of items, their ids if they have some, and what is needed for places if there are some."""
    from bagwise.sources.collection import Collection
    from bagwise.sources.items import Item

    modality, ids = MODALITIES[model.modality], tuple[str, ...]()
    if isinstance(X, Item):
        X, ids = modality.collected(X), (X.id,)
    if isinstance(X, Collection):
        if X.modality != model.modality:
            raise BagwiseError(f"This model takes {model.modality}, got {X.modality} from {X.source}.")
        ids = tuple(X.ids)
    histograms, contents = modality.contents(model, X, n_jobs)
    return histograms, ids, contents


def _terms_of(model: Model, weighted: NDArray[Any]) -> Terms:
    """Return the words of an item, from its weighted counts, with their shares of features."""
    d, n = model.hierarchy.n_words, model.n_groups
    columns = np.flatnonzero(weighted)
    cells, words = columns // d, columns % d
    values = weighted[columns].astype(np.float64)
    features = cells * n + model.lookup[words]
    sums, counts = (np.bincount(features, some, model.layout.width(n)) for some in (values, None))
    # words of a group whose values cancel each other share its contribution, which is 0 but for rounding, evenly
    shares = np.where(
        sums[features] == 0, 1 / counts[features], values / np.where(sums[features] == 0, 1, sums[features])
    )
    return Terms(words, cells, features, shares)
