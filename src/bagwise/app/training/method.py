"""How words are weighted and merged and items classified: the choices behind ``criterion="auto"``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bagwise._utils.text import percent
from bagwise._utils.threads import WhileAny, one_blas_thread
from bagwise.app.modalities import MODALITIES
from bagwise.app.modalities.vectorizers import Progress, no_progress
from bagwise.app.model import Head
from bagwise.app.options import FitOptions
from bagwise.codebooks.normalizing import WordWeighting, inverse_document_frequencies
from bagwise.codebooks.pyramids import WordLayout
from bagwise.errors import OptionError
from bagwise.merging.clusterings import Clusterings
from bagwise.merging.compact import MOST_FITTED
from bagwise.merging.criteria import resolve_criterion
from bagwise.merging.criteria.base import Criterion, TraceRatio
from bagwise.merging.criteria.clusters import Clusters
from bagwise.merging.criteria.others import Linkage
from bagwise.merging.group_statistics import GroupStatistics
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.refining import merge_refined
from bagwise.merging.scaling import Scaling
from bagwise.merging.scoring import WeightLoss
from bagwise.merging.sizes import path_sizes
from bagwise.merging.teacher import ScoreMoments, Teacher, mean_weights

__all__ = [
    "FollowedPath",
    "Method",
    "choose_method",
    "choose_weighting",
    "fitting_svms",
]

# Steps of `BagNormalizer`: Hellinger normalisation.
HELLINGER = ("l1", "power")


# Groups are too unequal if one in so many of them, and at least two, hold this fraction of all occurrences.
_FEW_OF, _NEARLY_ALL = 20, 0.99


@dataclass(frozen=True)
class Method:
    """How words are merged and items classified.

    Attributes
    ----------
    criterion : str
    reason : str
        Why this criterion, one clause; "as given" if the user chose it.
    root : {"before", "after"} or None
        Whether square roots of relative frequencies are taken before or after the words of a group are summed. None:
        words have TF-IDF weights.
    vocabularies : tuple of int
        Numbers of words of several vocabularies side by side, each with its own relative frequencies; () for one. Each
        is merged by itself and keeps its share of the groups, unless a classifier is followed: words of different
        vocabularies with like weights are then merged as well.
    scaling : Scaling or None
        How the columns of a table of measurements are brought to a common scale. Their groups are standardised for the
        classifier. None for words that are counted.
    in_blocks : bool
        Whether criteria that compare items do so in blocks of them, see `blocks_to_merge`: in fits whose histograms
        are too large for one process.
    items_by : {"auto", "tfidf", "hellinger"}
        How words are weighted where items are clustered, see `Clusters`.
    seed : int
        Of clusterings of the items, if words are merged by these.
    """

    criterion: str
    reason: str
    root: str | None
    vocabularies: tuple[int, ...] = ()
    scaling: Scaling | None = None
    in_blocks: bool = False
    items_by: str = "auto"
    seed: int = 0

    @property
    def follows(self) -> bool:
        """Whether classifiers of groups follow one on all words, instead of being trained on labels."""
        return self.criterion == "classifier"

    @property
    def compares_items(self) -> bool:
        """Whether words are merged by comparing items, and not only from sums over them."""
        return not self.follows and resolve_criterion(self.criterion).sums_needed is None

    @property
    def normalize(self) -> tuple[str, ...]:
        """Steps that normalise rows of groups.

        Groups of texts by clusters are for finding alike texts: their weights are compared as frequencies.
        """
        of_texts = self.root is None and self.criterion == Clusters.name
        if (self.root != "after" and not of_texts) or self.scaling is not None:
            return ()
        return ("power",) if self.vocabularies else HELLINGER  # several are scaled before words are summed

    def merging_input(self, counts: Any, weighted: Any) -> Any:
        """Return what words are merged on.

        These are weighted words where a classifier on them is followed, for roots before merging and for measurements;
        relative frequencies for other criteria of distances between items, so that long items do not outweigh short
        ones; and counts for criteria of occurrences.
        """
        distances = isinstance(resolve_criterion(self.criterion), (TraceRatio, Linkage))
        if self.follows or self.scaling is not None or (self.root == "before" and distances):
            return weighted
        return WordWeighting("count", None, "l1", self.vocabularies).apply(counts) if distances else counts

    def clusterings(self, X: Any, n_jobs: int | None = None, progress: Progress = no_progress) -> Clusterings | None:
        """Cluster items by the words of all vocabularies together, if words are merged by clusters of the items.

        X is what words are merged on.
        """
        if self.criterion != Clusters.name:
            return None
        apart = WordWeighting("sqrt", None, "l2", self.vocabularies) if len(self.vocabularies) > 1 else None
        return Clusters(weighting=self.items_by, random_state=self.seed).learn(
            X, effective_n_jobs(n_jobs), weighting=apart, progress=partial(progress, "Clustering items")
        )

    def criterion_for(self, X: Any, n_jobs: int | None = None, progress: Progress = no_progress) -> Criterion:
        """Return the criterion that merges the words of each vocabulary; X is what all of them are merged on."""
        learned = self.clusterings(X, n_jobs, progress)
        return resolve_criterion(self.criterion if learned is None else Clusters(clusterings=learned.codes(X)))


def merge_vocabularies(sizes: Sequence[int], merge_part: Callable[[slice], Hierarchy]) -> Hierarchy:
    """Join the hierarchies of vocabularies side by side, see `Hierarchy.interleave`."""
    ends = np.cumsum(sizes).tolist()
    return Hierarchy.interleave([merge_part(slice(end - size, end)) for end, size in zip(ends, sizes, strict=True)])


def choose_method(options: FitOptions, modality: str, n_classes: int, vocabularies: tuple[int, ...] = ()) -> Method:
    """Choose the criterion and the place of the square root that the options leave open.

    - No classes: "clusters".
    - At least as many groups as classes, or a number of groups that is chosen later: "classifier".
    - Fewer groups, in which the scores of all classes have no room, a pyramid (its cells share the groups, but not the
      weights), or roots after merging: "csm" for two classes of images or videos, otherwise "aib".

    By cross-validation on training parts of Corel-1k, four Caltech classes, Scene-15 and pairs of their classes, and of
    tables, "classifier" had the lowest errors, or errors within the noise of them, from 10 groups on.
    """
    asked, several, kind = options.asked_groups, n_classes >= 2, MODALITIES[modality]
    if options.criterion != "auto":
        criterion, reason = options.criterion, "as given"
    elif not several:
        criterion, reason = "clusters", "there are no classes"
    elif options.root != "after" and options.pyramid is None and (asked is None or asked >= n_classes):
        criterion, reason = "classifier", "groups keep the scores of a classifier on all words"
    elif kind.two_classes_by is not None and n_classes == 2:
        why = (
            "roots after merging" if options.root == "after" else "a pyramid" if options.pyramid else f"{asked} groups"
        )
        criterion, reason = kind.two_classes_by, f"{why} for two classes of {modality}"
    elif options.root == "after" or options.pyramid is not None:
        after = options.root == "after"
        criterion, reason = "aib", "roots are taken after merging" if after else "cells of a pyramid share the groups"
    else:
        criterion, reason = "aib", f"{asked} groups are fewer than the {n_classes} classes"
    items_by, seed = kind.clusters_by, options.random_state
    root = kind.root(options.root, criterion, n_classes)
    if criterion == "classifier" and root == "after":
        message = "root='after' is not for the criterion 'classifier', whose scores are sums over words."
        raise OptionError("root", f"{message} Set root='before', or another criterion.")
    apart = vocabularies if len(vocabularies) > 1 else ()
    return Method(criterion, reason, root, apart, items_by=items_by, seed=seed)


def adapt_to_table(method: Method, X: Any, modality: str, options: FitOptions) -> Method:
    """Find out whether a table holds measurements, which are scaled (`find_scaling`), unless `root` is given.

    The default criterion with classes is "aib" then: a classifier on all columns, which "classifier" follows, overfits
    where there are more columns than items, as of genes.
    """
    scaling = MODALITIES[modality].scaling(X, options)
    if scaling is None:
        return method
    if options.criterion == "auto" and method.criterion == "classifier":
        method = replace(method, criterion="aib", reason="columns are measurements")
    return replace(method, scaling=scaling, root="after")


def refined_size(options: FitOptions, n_classes: int) -> int:
    """Return the size at which a hierarchy that follows a classifier is refined: the one asked for, if there is one.

    Otherwise 20, or three groups per class, where greedy merging loses most and a choice by cross-validation is likely.
    """
    return max(20, 3 * n_classes) if options.asked_groups is None else options.asked_groups


def choose_weighting(method: Method, counts: Any, idf: NDArray[np.float64] | None = None) -> WordWeighting:
    """Return how words are weighted before they are summed; TF-IDF weights are learned from counts of whole items.

    With `idf`, inverse document frequencies are given.
    """
    if method.scaling is not None:
        shift, scale = method.scaling
        weights = None if scale is None else scale.astype(np.float32).astype(np.float64)
        return WordWeighting(weights=weights, shift=shift.astype(np.float64))
    if method.root is None:
        frequencies = inverse_document_frequencies(counts) if idf is None else idf
        return WordWeighting("log", frequencies.astype(np.float32).astype(np.float64), "l2")
    if method.root == "before":
        return WordWeighting("sqrt", None, "l2", method.vocabularies)
    return WordWeighting("count", None, "l1", method.vocabularies) if method.vocabularies else WordWeighting()


def sizes_of(n_words: int, options: FitOptions, method: Method, n_classes: int) -> tuple[int, ...]:
    """Return the numbers of groups along the path.

    Groups that follow a classifier are at least as many as classes, unless fewer are asked for: below, some classes
    have no group of their own, and errors rise steeply.
    """
    asked = () if options.asked_groups is None else (options.asked_groups,)
    if not method.follows:
        return path_sizes(n_words, *asked)
    least = min(n_classes, n_words)
    return tuple(size for size in path_sizes(n_words, *asked, least) if size >= least or size in asked)


def unequal_groups(groups: NDArray[np.int64], totals: NDArray[np.float64]) -> str | None:
    """Return a note if nearly all occurrences of words are in so few groups that features hardly differ between items.

    `groups` is the group of each word, `totals` how often it occurs. Measurements, which may be negative, do not occur.
    """
    if totals.min() < 0:
        return None
    sizes = np.sort(np.bincount(groups, weights=totals))[::-1]
    few = max(2, len(sizes) // _FEW_OF)
    if len(sizes) <= 2 * few or sizes[:few].sum() <= _NEARLY_ALL * sizes.sum():
        return None
    shares = sizes[sizes > 0] / sizes.sum()
    effective = float(np.exp(-(shares * np.log(shares)).sum()))
    return (
        f"{few} of {len(sizes)} groups hold {percent(shares[:few].sum())} of all occurrences of words. That is as much "
        f"as {effective:.1f} groups of equal size, and tells little about an item. Use another criterion, stop "
        "words, or fewer words."
    )


def make_svm(options: FitOptions) -> LinearSVC:
    """Return the linear SVM of the options, to be fitted inside of `fitting_svms`.

    It is solved in the primal, which draws no random numbers: liblinear has one generator per process, which fits in
    several threads would share.
    """
    how: dict[str, Any] = {"C": options.C, "class_weight": options.class_weight, "random_state": options.random_state}
    return LinearSVC(dual=False, max_iter=3000, **how)


def folds_of(codes: NDArray[np.int64], options: FitOptions) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Return the training and test items of each fold.

    A class of fewer items than folds, but at least two, is tested in some of the folds; if all classes are such, there
    are as many folds as the largest has items.
    """
    n_folds = min(options.folds, int(np.bincount(codes).max()))
    splitter = StratifiedKFold(n_folds, shuffle=True, random_state=options.random_state)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)  # a note says it
        return list(splitter.split(codes, codes))


@contextmanager
def _ignoring_svms() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


_quiet = WhileAny(_ignoring_svms)


@contextmanager
def fitting_svms() -> Iterator[None]:
    """Fit SVMs on one thread of BLAS, so that results do not depend on the number of threads.

    SVMs that do not converge are ignored: few groups may not separate the classes, and the weights are good enough.
    """
    with one_blas_thread(), _quiet():
        yield


@dataclass(frozen=True)
class FollowedPath:
    """A hierarchy, and classifiers of its groups that follow a linear classifier on all words.

    Attributes
    ----------
    hierarchy : Hierarchy
    coefs : mapping
        Weights of shape (n_outputs, n_cells * size) and intercepts by size; one output for two classes.
    teacher : Teacher
        The classifier on all words of all cells.
    merged : Teacher
        That on all words of whole items, by which they were merged; the same with one cell.
    """

    hierarchy: Hierarchy
    coefs: Mapping[int, tuple[NDArray[np.float64], NDArray[np.float64]]]
    teacher: Teacher
    merged: Teacher

    @classmethod
    def of(
        cls,
        teacher: Teacher,
        merged: Teacher,
        sizes: Sequence[int],
        layout: WordLayout,
        n_refined: int,
        moments_of: Callable[[NDArray[np.int64], int], ScoreMoments],
        progress: Progress = no_progress,
    ) -> FollowedPath:
        """Merge words by one classifier, and fit the weights of groups to the scores of another.

        `moments_of` is called with the groups of words and their number, once.
        """
        hierarchy = merge_refined(
            merged.mass, merged.coef.T, "classifier", n_refined, partial(progress, "Merging words")
        )
        coefs: dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        moments: ScoreMoments | None = None
        finer = np.empty(0, dtype=np.int64)  # groups that the moments are of
        for k, size in enumerate(sorted(sizes, reverse=True)):
            progress("Training classifiers", k, len(sizes))
            labels = hierarchy.cut(size)
            spread, width = layout.over_cells(labels, size), layout.width(size)
            mean = mean_weights(teacher, spread, width)
            if size == hierarchy.n_words or width > MOST_FITTED:
                coefs[size] = mean
                continue
            if moments is None:
                moments = moments_of(labels, size)
            else:
                moments = moments.merged(_between(finer, spread), width)
            finer = spread
            coefs[size] = moments.weights(mean[0])
        progress("Training classifiers", len(sizes), len(sizes))
        return cls(hierarchy, coefs, teacher, merged)

    def statistics(self) -> GroupStatistics | None:
        """Return what is needed to merge its groups again."""
        states = WeightLoss(self.merged.mass, self.merged.coef.T).states
        return GroupStatistics.of_states(self.hierarchy, states)

    def head(self, size: int) -> Head:
        """Return the classifier of a size, one row of weights per class."""
        return two_sided(*self.coefs[size])


def classifier_of(method: Method, svm: LinearSVC) -> Any:
    """Return the classifier of features of groups; those of measurements are standardised."""
    return svm if method.scaling is None else make_pipeline(StandardScaler(), svm)


def head_of(fitted: Any) -> Head:
    """Return the head of a fitted `classifier_of`; standardising becomes part of the weights."""
    if not isinstance(fitted, Pipeline):
        return two_sided(fitted.coef_, fitted.intercept_)
    scaler, svm = fitted[0], fitted[-1]
    coef = svm.coef_ / scaler.scale_
    return two_sided(coef, svm.intercept_ - coef @ scaler.mean_)


def two_sided(coef: NDArray[Any], intercept: NDArray[Any]) -> Head:
    """Return a head with one row of weights per class; for two classes the first is the negative of the second."""
    if len(coef) == 1:
        coef, intercept = np.vstack([-coef, coef]), np.concatenate([-intercept, intercept])
    return Head(coef.astype(np.float32), intercept.astype(np.float32))


def _between(finer: NDArray[np.int64], coarser: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the coarser group of each finer one."""
    labels = np.empty(int(finer.max()) + 1, dtype=np.int64)
    labels[finer] = coarser
    return labels
