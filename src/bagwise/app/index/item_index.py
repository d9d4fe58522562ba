"""`ItemIndex`: a search index with its model and the names of its items, in one file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._io.storage import absolute
from bagwise._utils.checks import check_integer
from bagwise._utils.matrices import first_not_finite
from bagwise.app.index.index_features import (
    SIMILARITIES,
    add_rows,
    chosen_by,
    class_scores,
    features,
    second_features,
    weighted_words,
)
from bagwise.app.index.item_clusters import ItemClusters
from bagwise.app.index.item_map import ItemMap
from bagwise.app.modalities.vectorizers import Progress
from bagwise.app.model.editing import unedited_model
from bagwise.app.model.files import is_item_index
from bagwise.app.model.model import Model
from bagwise.app.options import FitOptions
from bagwise.app.training.folds import FoldModels
from bagwise.app.training.item_answers import HELD_OUT, ItemAnswers, TopClasses
from bagwise.app.training.items import first_labels, reading_of, with_sheet
from bagwise.app.training.seen import SeenItems
from bagwise.errors import BagwiseError, parameter_name, unknown_name
from bagwise.retrieval.bag_index import BagIndex
from bagwise.retrieval.blends import BlendSettings, ClassBlend, GroupBlend
from bagwise.sources.collection import Collection
from bagwise.sources.frames import is_frame

if TYPE_CHECKING:
    from bagwise.app.index.index_words import CountedWords, IndexedWords
    from bagwise.app.index.shared_terms import Shared
    from bagwise.app.index.suggesting import Suggestion
    from bagwise.app.model.explanation import Explanation
    from bagwise.app.training.evaluate import Evaluation
    from bagwise.app.training.fit import Fit
    from bagwise.app.training.known_items import KnownItems
    from bagwise.app.training.steering import Steering
    from bagwise.app.training.validating import Fold

__all__ = ["SIMILARITIES", "Found", "ItemIndex", "index_of_fit"]

# Metrics by which items are compared, unless another one is given.
_METRICS = {"words": "inner", "groups": "hellinger", "classes": "inner", "both": "inner"}
# Clusters of a map: as many as classes, within these bounds; the default if there are none.
_LEAST_CLUSTERS, _MOST_CLUSTERS, _DEFAULT_CLUSTERS = 2, 20, 10

_Blend: TypeAlias = "ClassBlend | GroupBlend | None"


class Found(NamedTuple):
    """An item that a search found: its id, its score, and its label if it has one."""

    id: str
    score: float
    label: str | None


@dataclass(frozen=True)
class ItemIndex:
    """A search index of items, with the model that computes their features and those of queries.

    Its file holds the model, the features (a `BagIndex`) and the ids of the items, not the items themselves.

    Attributes
    ----------
    model : Model
    index : BagIndex
        Features of the items, which are numbered from 0; see `by`.
    ids : tuple of str
    labels : tuple of str or None
    source : str
        Path of the items when they were indexed.
    reading : dict
        How they were read: `modality`, `text`, `label`, `encoding`, and `id`, `sep`, `sheet`, `extensions` if given.
    by : {"words", "groups", "classes", "both"}
        What items are compared by:

        - "words": all words, before they are merged. With the metric "inner", the default, words are weighted and rows
          have unit norm: TF-IDF for texts, square roots of relative frequencies for others, in each vocabulary. With
          other metrics, relative frequencies are compared.
        - "groups": relative frequencies of the groups. The smallest index.
        - "classes": the probability that both are of the same class, by the model's classifier of the most groups.
          Useless for items of classes that the model does not know.
        - "both": words and classes, weighted by how well the classes fit the query, see `ClassBlend`; words and groups
          if the model has no classifier, see `GroupBlend`.
    blend : ClassBlend, GroupBlend or None
        Only if items are compared by classes or by both.
    answers : ItemAnswers or None
        Answers for the items at several numbers of groups; None if the model has no classifier.
    map : ItemMap or None
        The items in two dimensions, see `with_map`.
    clusters : ItemClusters or None
        Clusters of the items with their names, see `with_clusters`.
    folds : FoldModels or None
        What the folds of the model's cross-validation have learned.

    Examples
    --------
    >>> from bagwise.sources import Collection
    >>> from bagwise.app import ItemIndex, fit_model
    >>> rows = Collection.from_matrix(np.array([[4, 1, 0], [1, 0, 5]]), ["a", "b"], [("cat",), ("dog",)])
    >>> model = fit_model(rows, n_groups=2, folds=0)
    >>> ItemIndex.build(model, rows, model.histograms(rows)).search([[9.0, 1.0, 0.0]], k=1)[0][0].label
    'cat'
    """

    model: Model
    index: BagIndex
    ids: tuple[str, ...]
    labels: tuple[str | None, ...]
    source: str
    reading: Mapping[str, Any]
    by: str = "groups"
    blend: ClassBlend | GroupBlend | None = None
    answers: ItemAnswers | None = None
    map: ItemMap | None = None
    clusters: ItemClusters | None = None
    folds: FoldModels | None = None

    @classmethod
    def build(
        cls,
        model: Model,
        collection: Collection,
        histograms: Any,
        *,
        source: str | os.PathLike[str] = "",
        options: FitOptions | None = None,
        by: str = "auto",
        metric: str | None = None,
        settings: BlendSettings | None = None,
        held_out: TopClasses | None = None,
        folds: Sequence[Fold] = (),
        answered: bool = True,
        seen: SeenItems | None = None,
    ) -> ItemIndex:
        """Index items.

        Parameters
        ----------
        model : Model
        collection : Collection
        histograms : CSR array or ndarray of shape (n_items, n_cells * d)
            Counts of their words, see `count_words`.
        source : path, default=""
            Path of the items.
        options : FitOptions, default=None
            Options the items were read with.
        by : {"auto", "words", "groups", "classes", "both"}, default="auto"
            What items are compared by. "auto": "both" if no metric is given, otherwise "words".
        metric : str, default=None
            For "words" and "groups", see `BagIndex`. None: "inner" for words, "hellinger" for groups.
        settings : BlendSettings, default=None
            For classes.
        held_out : TopClasses, default=None
            Answers of cross-validation for the first items, see `Fit.held_out_top`.
        folds : sequence of Fold, default=()
            Of the cross-validation that gave these answers, see `Fit.folds`.
        answered : bool, default=True
            Whether the index has answers for the items.
        seen : SeenItems, default=None
            Which items the model was learned from, if it is known already, see `seen_items`.

        Returns
        -------
        index : ItemIndex
        """
        source, options = with_sheet(source, FitOptions() if options is None else options)
        by = chosen_by(model, by, metric)
        index = BagIndex(metric=metric or _METRICS[by])
        scores = class_scores(model, histograms) if by in ("classes", "both") and model.heads else None
        blend: _Blend = GroupBlend() if by == "both" else None
        if scores is not None:
            blend = ClassBlend.of(scores, settings)
        add_rows(index, model, histograms, by, blend, scores)
        labels, reading = first_labels(collection), reading_of(options)
        answers = ItemAnswers.of(model, collection, histograms, held_out, seen=seen) if answered else None
        kept = FoldModels.of(folds, len(collection))
        location = os.fspath(source)
        return cls(model, index, tuple(collection.ids), labels, location, reading, by, blend, answers, folds=kept)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def metric(self) -> str:
        """Metric of the index, see `BagIndex`."""
        return self.index.metric

    @property
    def described(self) -> str:
        """What items are compared by, in words, with the metric if it is not the default."""
        what = f"words and {self.beside_words}" if self.by == "both" else self.by
        return what if self.index.metric == _METRICS[self.by] else f"{what}, metric {self.index.metric}"

    @property
    def beside_words(self) -> str:
        """What "both" compares items by beside words: "classes", or "groups" without a classifier."""
        return "groups" if isinstance(self.blend, GroupBlend) else "classes"

    @property
    def score_name(self) -> str:
        """Name of the scores: "similarity", or that of the metric where it was chosen or is one of groups."""
        return "similarity" if self.index.metric == "inner" else self.index.metric

    def search(self, histograms: Any, k: int = 10, *, by: str | None = None) -> list[list[Found]]:
        """Find the items that are most like each query, best first.

        Parameters
        ----------
        histograms : CSR array or ndarray of shape (n_queries, n_cells * d)
            Counts of the words of queries, see `count_words`.
        k : int, default=10
        by : {"words", "classes", "groups", "both"}, default=None
            What to compare by. None: as the index was built. An index built for "both" can also be searched by "words"
            alone, and by "classes" or "groups" alone, whichever it has.

        Returns
        -------
        found : list of lists of Found
        """
        wanted = self.wanted(by)
        k = min(check_integer(k, "k", 1), len(self))
        if self.by != "both":
            return self.named(*self.index.search(self.plain_rows(histograms), k))
        return self.named(*self._blended(*self.blended_parts(histograms), wanted, k))

    def searched_by(self, client: Any, path: str | os.PathLike[str], progress: Progress | None = None) -> ItemIndex:
        """Return the index, whose searches are done by the workers of a Dask cluster, block by block.

        Parameters
        ----------
        client : distributed.Client
        path : path
            File that the index was loaded from. Workers map it where it is, so that they must share its folder.
        progress : callable, default=None
            See `fit_model`.
        """
        from bagwise.app.index.index_files import load_features
        from bagwise.distributed.executors import executor_of
        from bagwise.distributed.searching import SearchedByWorkers

        searched: Any = SearchedByWorkers(self.index, path, load_features, executor_of(client, progress))
        return replace(self, index=searched)

    def blended_parts(self, histograms: Any) -> tuple[Any, Any]:
        """Return what the blend of the index takes of queries: words, and scores of classes or groups."""
        assert self.blend is not None
        return weighted_words(self.model, histograms), second_features(self.model, histograms, self.blend)

    def plain_rows(self, histograms: Any) -> Any:
        """Return queries as rows of the index, where nothing is blended with words."""
        if not isinstance(self.blend, ClassBlend):
            return features(self.model, histograms, self.by, self.index.metric)
        return self.blend.probabilities(class_scores(self.model, histograms))

    def similar(self, number: int, k: int = 10, *, by: str | None = None) -> list[Found]:
        """Find the items that are most like one of them, best first, by what the index holds of it.

        Parameters
        ----------
        number : int
            Of the item, from 0.
        k, by
            As in `search`.

        Returns
        -------
        found : list of Found
            The item itself is among them; none for an item without words.
        """
        wanted = self.wanted(by)
        number = check_integer(number, "number", 0, len(self) - 1)
        k = min(check_integer(k, "k", 1), len(self))
        if not self.index.row(number).nnz:
            return []
        row, second = self.held(number)
        if second is None:
            return self.named(*self.index.search(row, k))[0]
        return self.named(*self._blended(row, second, wanted, k))[0]

    def suggest(self, n: int = 20, labels: Mapping[str, str | None] | None = None) -> list[Suggestion]:
        """Suggest items to label next, so that few labels tell much.

        1. While one of 15 clusters of the items has no label, its most central item comes first.
        2. Then come items that a classifier of the labels so far is least sure of, from different clusters.

        Near duplicates of an item that has a label, or is suggested, come last.

        Parameters
        ----------
        n : int, default=20
        labels : mapping from ids to str, default=None
            Labels so far; None or "" for an item that was skipped and is not suggested again. None: those that the
            items had when they were indexed.

        Returns
        -------
        suggestions : list of Suggestion
            With the class that each would get, and the second best; None as long as there are no two classes.

        Examples
        --------
        >>> from bagwise.sources import Collection
        >>> from bagwise.app import ItemIndex, fit_model
        >>> X = np.array([[9, 1, 0, 0], [8, 2, 0, 0], [7, 2, 0, 1], [0, 0, 6, 2], [0, 1, 5, 5], [0, 0, 2, 7]])
        >>> rows = Collection.from_matrix(X, list("abcdef"))
        >>> model = fit_model(rows, n_groups=2, root="before")
        >>> index = ItemIndex.build(model, rows, model.histograms(rows))
        >>> sorted(one.id for one in index.suggest(2, {"b": "first", "d": "second"}))
        ['c', 'e']
        """
        from bagwise.app.index.suggesting import suggest_items

        return suggest_items(self, n, labels)

    def held(self, number: int) -> tuple[Any, Any]:
        """Return an item as a query: its row and None, or its words and its scores of classes or its groups."""
        row = self.index.row(number)
        n_words = self.model.layout.n_columns
        if self.by != "both":
            rooted = self.index.metric == "hellinger"  # square roots of what is given are held
            return sp.csr_array(row.multiply(row)) if rooted else row, None
        if not isinstance(self.blend, ClassBlend):
            return row[:, :n_words], row[:, n_words:]
        if not self.blend.settings.soft:
            raise BagwiseError(
                "The index has no scores of classes (soft=0). Search for the content of the item instead."
            )
        profile = row[:, n_words : n_words + len(self.model.classes)].toarray().astype(np.float64)
        # scores up to a constant, which changes no probability
        scores = 2 * np.log(np.maximum(profile, np.finfo(np.float32).tiny)) / self.blend.settings.soft
        return row[:, :n_words], scores

    def shared(
        self, query: Any, numbers: Sequence[int], *, by: str | None = None, cut: Model | None = None
    ) -> list[list[Shared]]:
        """Return what items share with a query, and how much each word, group or class adds to their scores.

        Parameters
        ----------
        query : int, or CSR array or ndarray of shape (1, n_cells * d)
            The number of an item, or counts of the words of another one.
        numbers : sequence of int
            Items, by their numbers.
        by
            As in `search`.
        cut : Model, default=None
            A cut of the model: contributions of words are added up in its groups, for words without names.

        Returns
        -------
        shared : list of lists of Shared
            For each item, those that add most first. They add up to the score that `search` or `similar` gives; of
            distances too, where they are differences (with the metric "euclidean" they add up to the squared distance).

        Examples
        --------
        >>> from bagwise.sources import Collection
        >>> from bagwise.app import ItemIndex, fit_model
        >>> rows = Collection.from_matrix(np.array([[4, 1, 0], [1, 0, 5]]), ["a", "b"], [("cat",), ("dog",)])
        >>> model = fit_model(rows, n_groups=2, folds=0)
        >>> index = ItemIndex.build(model, rows, model.histograms(rows), by="words")
        >>> [(one.number, round(one.contribution, 3)) for one in index.shared([[9.0, 1.0, 0.0]], [0])[0]]
        [(0, 0.849), (1, 0.141)]
        """
        from bagwise.app.index.shared_terms import shared_terms

        return shared_terms(self, query, numbers, self.wanted(by), cut)

    def answered_by(
        self, number: int, n_groups: int | None = None, steering: Callable[[], Steering | None] | None = None
    ) -> Model | None:
        """Return the model that gave the held-out answer for an item, which has not seen it.

        Parameters
        ----------
        number : int
            Of the item, from 0.
        n_groups : int, default=None
            Number of groups; answers may be for the nearest one that has some. None: that of the model.
        steering : callable, default=None
            Returns what measures edits, if it is there already.

        Returns
        -------
        model : Model or None
            With the groups and the classifier of the fold of cross-validation that tested the item. None if there is no
            held-out answer, or if that of the fold is not kept: the answer is explained by the model of the index then.
        """
        folds, answers = self.folds, self.answers
        nearest = None if answers is None else answers.nearest(n_groups or self.model.n_groups)
        if folds is None or answers is None or nearest is None or answers.origins[number] != HELD_OUT:
            return None
        size = answers.sizes[nearest]
        cut, original = self.model.cut(size), unedited_model(self.model)
        if size >= original.hierarchy.min_groups and np.array_equal(original.hierarchy.cut(size), cut.lookup):
            return folds.model(original, number, size)
        learned = self.steering() if steering is None else steering()
        return None if learned is None else learned.answered_by(cut, number)

    def steering(self, words: IndexedWords | CountedWords | None = None) -> Steering | None:
        """Return what measures edits by the folds that the index keeps; None without all of their items and words.

        Parameters
        ----------
        words : IndexedWords or CountedWords, default=None
            Of the items. None: as the index holds them.
        """
        from bagwise.app.index.index_words import IndexedWords
        from bagwise.app.training.steering import Steering  # loads scikit-learn

        folds, number = self.folds, {name: k for k, name in enumerate(self.model.classes)}
        words = IndexedWords.of(self) if words is None else words
        if words is None or folds is None or not folds.complete:
            return None
        codes = [number.get(self.labels[k] or "", -1) for k in np.flatnonzero(folds.tested).tolist()]
        return Steering(self.model, folds, words.words(folds.tested), np.array(codes)) if min(codes) >= 0 else None

    def explain(self, item: int | str, n_groups: int | None = None, *, content: Any = None) -> Explanation:
        """Explain the answer for an item, by the model that gave it.

        Items that the model was learned from have answers of cross-validation, which a model gave that has not seen
        the item (`answered_by`); others have those of the model.

        Parameters
        ----------
        item : int or str
            The number of the item, from 0, or its id.
        n_groups : int, default=None
            See `answered_by`.
        content : Item, str, array or histogram, default=None
            The item itself, as `Model.explain` takes it. None: it is read where it was when it was indexed.

        Returns
        -------
        why : Explanation

        Examples
        --------
        >>> from bagwise.sources import Collection
        >>> from bagwise.app import fit_model
        >>> from bagwise.app.index.item_index import index_of_fit
        >>> from bagwise.app.options import FitOptions
        >>> counts = np.array([[4, 1, 0], [1, 0, 5]] * 3)
        >>> rows = Collection.from_matrix(counts, list("abcdef"), [("cat",), ("dog",)] * 3)
        >>> index = index_of_fit(fit_model(rows, n_groups=2, folds=3).fit_, None, rows, FitOptions())
        >>> index.explain("a", content=[[4, 1, 0]]).predicted
        'cat'
        """
        from bagwise.app.index.results_data import IndexedItems

        if isinstance(item, str) and item not in self.ids:
            raise BagwiseError(f"The index has no item {item!r:.100}. Its {len(self):,} ids are in its `ids`.")
        number = self.ids.index(item) if isinstance(item, str) else check_integer(item, "item", 0, len(self) - 1)
        model = self.answered_by(number, n_groups) or self.model.cut(n_groups or self.model.n_groups)
        if content is None and (content := IndexedItems(self).by_id.get(self.ids[number])) is None:
            where = self.source or "an unknown place"
            raise BagwiseError(f"{self.ids[number]} is not in {where} any more. Give it as content.")
        why = model.explain(content)
        return why[0] if isinstance(why, list) else why

    def compared_by_groups(self, model: Model, features: Any, metric: str = "hellinger") -> ItemIndex:
        """Return an index of the same items that compares them by groups of a cut of the model.

        Parameters
        ----------
        model : Model
            Cut at a number of groups.
        features : CSR array or ndarray of shape (n_items, n_cells * n_groups)
            Relative frequencies of its groups: ``model.group(histograms, normalize=("l1",))``.
        metric : str, default="hellinger"
            See `BagIndex`.
        """
        index = BagIndex(metric=metric).add(features)
        return replace(self, model=model, index=index, by="groups", blend=None, answers=None)

    def _blended(self, words: Any, second: Any, wanted: str, k: int) -> tuple[NDArray[np.float64], NDArray[Any]]:
        if isinstance(self.blend, GroupBlend):
            return self.blend.search(self.index, words, second, k, wanted)
        assert self.blend is not None
        if wanted == "both":
            return self.blend.search(self.index, words, second, k)
        return self.index.search(self.blend.rows_alone(words, second, wanted), k)

    def named(self, scores: NDArray[np.float64], numbers: NDArray[Any]) -> list[list[Found]]:
        """Return items with their ids and labels, for scores and numbers that the index found."""
        if self.index.larger_is_nearer:
            scores = np.clip(scores, 0, 1)  # rounding errors of float32
        return [
            [Found(self.ids[i], float(score), self.labels[i]) for i, score in zip(row, of_row, strict=True)]
            for row, of_row in zip(np.asarray(numbers).tolist(), scores, strict=True)
        ]

    def class_weights(self, histograms: Any, *, by: str | None = None) -> NDArray[np.float64]:
        """Return how much classes count in a search for each query, from 0 (not at all) to 1.

        Parameters
        ----------
        histograms, by
            As in `search`.

        Returns
        -------
        weights : ndarray of shape (n_queries,)
        """
        wanted = self.wanted(by)
        if wanted != "both" or not isinstance(self.blend, ClassBlend):
            return np.full(np.shape(histograms)[0], float(wanted == "classes"))
        return self.blend.class_weights(self.index, *self.blended_parts(histograms))

    def similarity_by_words(
        self, histograms: Any, hits: Sequence[Found], *, by: str | None = None
    ) -> list[float] | None:
        """Return how similar items are to a query by words alone, whatever else they were found by.

        Parameters
        ----------
        histograms : CSR array or ndarray of shape (1, n_cells * d)
            Counts of the words of the query.
        hits : sequence of Found
            What `search` found for it, with the same `by`.

        Returns
        -------
        similarities : list of float, or None
            None if the index does not hold words, or compares them by a distance.

        Examples
        --------
        >>> from bagwise.sources import Collection
        >>> from bagwise.app import ItemIndex, fit_model
        >>> rows = Collection.from_matrix(np.array([[4, 1, 0], [1, 0, 5]]), ["a", "b"], [("cat",), ("dog",)])
        >>> model = fit_model(rows, n_groups=2, folds=0)
        >>> index, query = ItemIndex.build(model, rows, model.histograms(rows)), [[4.0, 0.0, 0.0]]
        >>> [round(one, 3) for one in index.similarity_by_words(query, index.search(query)[0])]
        [0.894, 0.408]
        """
        wanted = self.wanted(by)
        if wanted == "words":
            return [one.score for one in hits] if self.index.larger_is_nearer else None
        if self.by != "both" or self.blend is None:
            return None
        words, second = self.blended_parts(histograms)
        alone = self.blend.query_rows if isinstance(self.blend, GroupBlend) else self.blend.rows_alone
        terms = self.index.contributions(alone(words, second, "words"), [self._numbers[one.id] for one in hits])
        return np.clip(terms.sum(axis=1), 0, 1).ravel().tolist()

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {id: number for number, id in enumerate(self.ids)}

    def wanted(self, by: str | None) -> str:
        """Return what to compare by; raise an error if the index has no items, or no features for it."""
        if not len(self):
            raise BagwiseError("The index is empty, so it cannot be searched. Build one of at least one item.")
        accepted = ("words", self.beside_words, "both") if self.by == "both" else (self.by,)
        if by is None or by in accepted:
            return by or self.by
        if by not in SIMILARITIES:
            raise unknown_name(parameter_name("by"), by, accepted)
        raise BagwiseError(
            f"This index compares items by {self.by}, so it cannot be searched by {by!r}; accepted: "
            f"{', '.join(accepted)}. Build another one by: bagwise index MODEL SOURCE --by {by}"
        )

    def known_items(self) -> KnownItems:
        """Return what a fit takes to keep the words of the model and of the items: `add` of `fit_model`.

        Relative frequencies of the words of images and videos are read from the index. Words of texts, of which an
        index holds weights, are counted again from their source.
        """
        from bagwise.app.index.index_words import known_items

        return known_items(self)

    def add(self, collection: Collection, histograms: Any, *, replace: bool = False) -> ItemIndex:
        """Return an index with further items, as `build` would index them, after those that are there.

        Parameters
        ----------
        collection : Collection
        histograms : CSR array or ndarray of shape (n_new, n_cells * d)
            Counts of their words, see `count_words`.
        replace : bool, default=False
            Whether items of the index with the same ids are removed; otherwise such ids are an error.

        Returns
        -------
        index : ItemIndex
            Answers for new items are those of the model; which of them it was learned from is known by their words. On
            the map, new items are placed by their neighbours, see `bagwise.app.index.item_map.ItemMap`.

        Examples
        --------
        >>> from bagwise.sources import Collection
        >>> from bagwise.app import ItemIndex, fit_model
        >>> rows = Collection.from_matrix(np.array([[4, 1, 0], [1, 0, 5]]), ["a", "b"], [("cat",), ("dog",)])
        >>> model = fit_model(rows, n_groups=2, folds=0)
        >>> index = ItemIndex.build(model, rows, model.histograms(rows))
        >>> more = Collection.from_matrix(np.array([[9, 2, 0]]), ["c"], [("cat",)])
        >>> index.add(more, model.histograms(more)).remove(["b"]).ids
        ('a', 'c')
        """
        from bagwise.app.index.index_changes import with_items

        return with_items(self, collection, histograms, replace)

    def remove(self, ids: Sequence[str]) -> ItemIndex:
        """Return an index without some items; raise an error if one of the ids is not there."""
        from bagwise.app.index.index_changes import without_items

        return without_items(self, ids)

    def with_map(
        self, method: str = "spectral", *, random_state: int = 0, progress: Progress | None = None
    ) -> ItemIndex:
        """Arrange the items in two dimensions, by what the index holds of them; without classes, if there are words.

        Parameters
        ----------
        method : {"spectral", "tsne"}, default="spectral"
            See `bagwise.app.index.item_map.ItemMap`.
        random_state : int, default=0
        progress : callable, default=None
            See `fit_model`.

        Returns
        -------
        index : ItemIndex
            The same items, with a map. Its clusters are those of the index, if it has some; otherwise as many as there
            are classes: from 2 to 20, 10 if there are none.
        """
        n_words = self.model.layout.n_columns if self.by == "both" else None
        parts = [sp.csr_array(block.rows()[:, :n_words]) for block in self.index.blocks()]
        rows = sp.csr_array(sp.vstack(parts)) if parts else sp.csr_array((0, 1))
        if (wrong := first_not_finite(rows)) is not None:  # from a file that was mapped, not read
            raise BagwiseError(f"The index is damaged: its item {wrong[0]} holds {wrong[2]}.")
        if self.index.metric not in ("inner", "hellinger"):  # relative frequencies: compared by their square roots
            rows = rows.sqrt()
        n_classes = len(self.model.classes) or _DEFAULT_CLUSTERS
        n_clusters = min(max(n_classes, _LEAST_CLUSTERS), _MOST_CLUSTERS)
        clusters = None if self.clusters is None else self.clusters.labels
        how: dict[str, Any] = {"clusters": clusters, "random_state": random_state, "progress": progress}
        item_map = ItemMap.of(rows, method, n_clusters=n_clusters, **how)
        return replace(self, map=item_map)

    def with_clusters(
        self,
        n_clusters: int | None = None,
        *,
        method: str = "auto",
        histograms: Any = None,
        random_state: int = 0,
        n_jobs: int | None = None,
        progress: Progress | None = None,
    ) -> ItemIndex:
        """Cluster the items by the groups of their words, and name the clusters; no labels are used.

        Features are those of `bagwise.app.index.item_clusters.cluster_features`, read from the index where it compares
        items by words or by groups; items with the same features count once.

        Parameters
        ----------
        n_clusters : int, default=None
            None: the most stable number, see `bagwise.clustering.suggest_n_clusters`.
        method : {"auto", "kmeans", "spectral", "manifold"}, default="auto"
            "kmeans" of the features; "spectral": `SpectralClusterer`. "manifold" is k-means, for a model whose words
            were learned by `ManifoldBagOfFeatures`. "auto" is "kmeans": on seven collections of texts
            its NMI with classes is .56 on the mean, that of "spectral" .49 (``benchmarks/unlabelled.py``).
        histograms : CSR array or ndarray of shape (n_items, n_cells * d), default=None
            Counts of the words of the items, which indexes of measurements, and of classes alone, do not hold.
        random_state : int, default=0
        n_jobs : int, default=None
        progress : callable, default=None
            See `fit_model`.

        Returns
        -------
        index : ItemIndex

        Examples
        --------
        >>> from bagwise.sources import Collection
        >>> from bagwise.app import ItemIndex, fit_model
        >>> rows = Collection.from_matrix(np.array([[4, 1, 0], [5, 2, 0], [1, 0, 5], [0, 0, 4]]), list("abcd"))
        >>> index = ItemIndex.build(fit_model(rows, n_groups=3), rows, rows.X).with_clusters(2)
        >>> index.clusters.labels.tolist(), index.clusters.sizes.tolist()
        ([0, 0, 1, 1], [2, 2])
        """
        from bagwise.app.index.clustering import with_clusters

        return with_clusters(
            self, n_clusters, method=method, histograms=histograms, random_state=random_state, n_jobs=n_jobs,
            progress=progress,
        )  # fmt: skip

    def apply(self, edits: Iterable[Mapping[str, Any]], *, histograms: Any = None) -> ItemIndex:
        """Change groups of words and clusters of items by hand.

        Parameters
        ----------
        edits : iterable of mappings
            One after the other. Edits of groups are those of `Model.apply`. Edits of clusters name, join and split
            them, and move items between them; numbers of clusters are those before the edit:

            - ``{"edit": "rename_cluster", "cluster": 3, "name": "space"}``; a name of None takes the given one back.
            - ``{"edit": "join_clusters", "clusters": [3, 7]}``: they get the least number, larger ones move up.
            - ``{"edit": "split_cluster", "cluster": 3}``: by k-means; the larger part keeps the number.
            - ``{"edit": "move_items", "items": ["a.txt"], "to": 3}``: to another cluster, by their ids; to a new one if
              ``to`` is None.
        histograms : CSR array or ndarray of shape (n_items, n_cells * d), default=None
            Counts of the words of the items, for indexes that do not hold them, see `with_clusters`.

        Returns
        -------
        index : ItemIndex
            After edits of groups, answers for items stay where groups do. At the new number of groups the classifier is
            fitted anew, and answers of cross-validation are given anew by the folds that the index keeps; without
            them, the classifier is derived. Certainties of clusters are those for the new centres;
            `bagwise.app.index.cluster_edits.measure_clusters` says what an edit of clusters is worth.

        Examples
        --------
        >>> from bagwise.sources import Collection
        >>> from bagwise.app import ItemIndex, fit_model
        >>> counts = np.array([[4, 1, 0], [5, 2, 0], [1, 0, 5], [0, 0, 4]])
        >>> rows = Collection.from_matrix(counts, list("abcd"), [()] * 4)
        >>> index = ItemIndex.build(fit_model(rows, n_groups=3), rows, counts).with_clusters(2)
        >>> edited = index.apply([{"edit": "move_items", "items": ["a"], "to": None},
        ...                       {"edit": "rename_cluster", "cluster": 2, "name": "alone"}])
        >>> edited.clusters.labels.tolist(), edited.clusters.name(2)
        ([2, 0, 1, 1], 'alone')
        >>> edited.undo(2).clusters.labels.tolist()
        [0, 0, 1, 1]
        """
        from bagwise.app.index.editing import apply_edits

        return apply_edits(self, edits, histograms)

    def undo(self, k: int = 1, *, histograms: Any = None) -> ItemIndex:
        """Return the index without its last k edits, of groups and of clusters in the order in which they were made."""
        from bagwise.app.index.editing import undo_edits

        return undo_edits(self, k, histograms)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the index to one file, atomically. An existing file is replaced.

        To change an index that other processes may change too, use `change_index`: of two that load, change and save
        it, one would undo the change of the other.
        """
        from bagwise.app.index.index_files import FILE, index_to_parts

        return FILE.save(path, *index_to_parts(self), private=True)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        verify: bool = False,
        trust_pattern: bool = False,
        network: Any = None,
    ) -> ItemIndex:
        """Open a file that `save` wrote, memory-mapped.

        With `verify`, what is mapped is read once and checked; for `trust_pattern` and `network` see
        `Model.load`.
        """
        file = Path(path)
        if not file.exists():
            raise BagwiseError(f"{file} does not exist. Create an index by: bagwise index MODEL SOURCE")
        if not is_item_index(file):
            raise BagwiseError(f"{file} is not an index. Create one by: bagwise index MODEL SOURCE")
        from bagwise.app.index.index_files import FILE, index_from_parts

        make = partial(index_from_parts, verify=verify, trust_pattern=trust_pattern)
        index: ItemIndex = FILE.load(file, make, mmap=True, verify=verify)
        return index if network is None else replace(index, model=index.model.with_network(network))


def index_of_fit(fit: Fit, evaluation: Evaluation | None, source: Any, options: FitOptions) -> ItemIndex:
    """Index the items that a model was fitted to, and those it was evaluated on."""
    collection, histograms = fit.data.collection, fit.data.histograms
    seen: SeenItems | None = SeenItems.training(collection.ids)
    if evaluation is not None:
        seen = None if evaluation.seen is None else SeenItems.training(collection.ids).joined(evaluation.seen)
        joined = [*collection, *evaluation.collection]
        collection = Collection.of(joined, collection.modality, collection.source, limits=collection.limits)
        both = [histograms, evaluation.histograms]
        histograms = sp.vstack(both, format="csr") if sp.issparse(histograms) else np.concatenate(both)
    location = "" if isinstance(source, Collection) or is_frame(source) else absolute(source)
    return ItemIndex.build(
        fit.model,
        collection,
        histograms,
        source=location,
        options=options,
        held_out=fit.held_out_top,
        folds=fit.folds,
        seen=seen,
    )
