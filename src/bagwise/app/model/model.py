"""`Model`: from items to features of word groups and classes, in one object that can be saved, loaded and cut."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise._io.storage import as_place
from bagwise._utils.arrays import softmax
from bagwise._utils.checks import check_integer, checked_names, frozen, json_copy
from bagwise._utils.text import how_many
from bagwise.app.modalities import MODALITIES
from bagwise.app.modalities.visual import checked_descriptors
from bagwise.app.model import files as model_files
from bagwise.app.model.compact import SmallForms, groups_of
from bagwise.app.model.cutting import check_flattened, with_derived_head
from bagwise.app.model.display import ModelViews
from bagwise.app.model.editing import Unedited, apply_edits, check_edits, rename_edits, undo_edits
from bagwise.app.model.groups import Group, checked_group_names, describe_groups, moved_names, name_model_groups
from bagwise.app.model.parts import (
    Head,
    PathErrors,
    checked_calibration,
)
from bagwise.codebooks.normalizing import WordWeighting, resolve_steps
from bagwise.codebooks.pyramids import WordLayout, cell_names, n_cells, resolve_pyramid
from bagwise.errors import BagwiseError, parameter_name, unknown_name
from bagwise.merging.group_statistics import GroupStatistics
from bagwise.merging.hierarchy import Hierarchy
from bagwise.runtime import ITEMS, KIND, MOST_GROUPS, MOST_TABLE, MOST_WORDS, OPTIONAL, SCHEMA
from bagwise.sources.contents import local_copy
from bagwise.sources.limits import Limits

if TYPE_CHECKING:
    from bagwise.app.modalities.vectorizers import Vectorizer
    from bagwise.app.model.explanation import Explanation
    from bagwise.app.training.fit import Fit
    from bagwise.codebooks.encoders import FewEncoder
    from bagwise.sources.items import Item

__all__ = ["Head", "Model", "PathErrors"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Model(SmallForms, ModelViews):
    """A fitted model: it turns items into features of word groups, and features into classes.

    1. Count the words of an item over the full vocabulary of d words. Descriptors of images and videos count for
       their nearest word in the codebook, or in parts for several near words (`assignment`), in each cell of the
       pyramid; the columns of a table are words.
    2. Weight words: a term function, a weight per word, and a norm over all words, see `WordWeighting`. By default
       counts stay as they are.
    3. Sum the words of each group. The hierarchy is cut at `n_groups`; all cells have the same groups.
    4. Normalise the row (by default Hellinger normalisation).
    5. Score the classes by a linear classifier, the head.

    There may be heads for several numbers of groups, so that `cut` needs no training. A model is immutable; `cut`
    returns another one. ``docs/model-file.md`` describes the file format; `bagwise.runtime` reads it with NumPy alone.

    Parameters
    ----------
    modality : {"images", "videos", "texts", "table"}
    hierarchy : Hierarchy
        Merges of the d words.
    n_groups : int
        Number of groups, at which the hierarchy is cut.
    descriptor : descriptor of this library, or list of them, default=None
        For images and videos. Without it, the model takes `Bags`. Several descriptors each have a vocabulary of their
        own: the words of the second are numbered after those of the first.
    codebook : array-like of shape (d, D), or list of such, default=None
        For images and videos, stored as float32. None only if the descriptor counts words itself, as `LBPD5` does. A
        list has one codebook per vocabulary, d words together; the attribute is a tuple then.
    assignment : encoder, or one per codebook, default=None
        How descriptors are assigned to words; None: to the nearest. The attribute is a tuple, one per codebook.
    word_names : sequence of str, default=None
        The vocabulary of texts, or the names of the columns of a table.
    word_hashes : array-like of shape (d,), default=None
        For texts, hashes of the vocabulary instead of `word_names`, in ascending order; see `compact`.
    word_totals : array-like of shape (d,), default=None
        Occurrences of each word, to name groups by their most typical words.
    tokenizer : mapping, default={}
        For texts, options of `WordCounts`: analyzer, binary, lowercase, ngram_range, stop_words, strip_accents and
        token_pattern.
    pyramid : as in `BagOfFeatures`, default=((1, 1),)
        Grids of (rows, columns), for bags with positions.
    term : {"count", "log", "sqrt"}, default="count"
        Function of the count of a word: itself, 1 + log of it, or its square root.
    word_weights : array-like of shape (d,), default=None
        Factor of each word, such as its inverse document frequency. Finite, not negative, stored as float32.
    column_shift : array-like of shape (d,), default=None
        For tables of measurements: what is subtracted from each column before anything else, such as its minimum.
    norm : {"l1", "l2"}, default=None
        Norm over all words, or over those of each vocabulary, by which a row is divided before words are summed.
    normalize : sequence out of {"l1", "power", "l2"}, default=("l1", "power")
        Steps of `BagNormalizer`, on the whole row of groups.
    given_names : mapping from int to str, default={}
        Names that people gave to groups, by their numbers; see `rename_groups`.
    flattened : int, default=None
        The largest number of groups, if it is not the number of words: merges before that only say which words are in
        a group (`merges_of`), and have no scores. See `trim`.
    classes : sequence of str, default=()
    heads : mapping from int to Head, default={}
        Linear classifiers, by their number of groups.
    calibration : mapping from int to float, default={}
        For numbers of groups of heads: the factor of scores whose softmax are probabilities, see `predict_proba`.
    path : PathErrors, default=None
        Errors at several numbers of groups.
    item_hashes : array-like of int64, default=None
        Hashes of the words of training items, all different and ascending; see `bagwise.app.training.seen`. A file
        keeps the smallest ones, at most 1 % of its size.
    group_statistics : GroupStatistics, default=None
        Statistics of up to 1,000 groups of the unedited hierarchy, to merge them again under links, see `apply`.
    edits : sequence of dict, default=()
        Edits that people made of the groups, in their order; see `apply`. `hierarchy` is the edited one.
    unedited : Unedited, default=None
        What the model was before its first edit, if there are edits.
    quantized : bool, default=False
        Whether the file has codebooks and heads as 8-bit integers, where that changes none of their numbers; see
        `quantize`.
    options, provenance : mapping, default={}
        Options of the fit, and facts about its data. JSON values.

    Attributes
    ----------
    fit_ : Fit or None
        Of a model that `fit_model` returned: training data, predictions of cross-validation, test split, timings and
        notes. Neither saved nor pickled. It refers to the model in turn, so that the training data of a model that is
        no longer used are let go when Python's garbage collector runs.

    See Also
    --------
    WordMerger : The merging alone, as a scikit-learn estimator.
    bagwise.runtime.load : Reads saved models with NumPy alone.

    Notes
    -----
    Features are computed in float64 and returned as float32. Sparse histograms give sparse features.

    Examples
    --------
    >>> from bagwise import Bags, Hierarchy, Model
    >>> from bagwise.app.model import Head
    >>> model = Model(
    ...     modality="images",
    ...     hierarchy=Hierarchy(3, [[0, 2], [0, 1]], [0.5, 0.1]),
    ...     n_groups=2,
    ...     codebook=[[0.0], [5.0], [1.0]],
    ...     classes=["cat", "dog"],
    ...     heads={2: Head([[1, -1], [-1, 1]], [0, 0])},
    ... )
    >>> bags = Bags.from_list([[[0.1], [0.8], [0.2]], [[4.9], [4.0], [0.0], [5.5]]])
    >>> model.histograms(bags).toarray()
    array([[2., 0., 1.],
           [1., 3., 0.]], dtype=float32)
    >>> model.transform(bags).toarray() ** 2
    array([[1.  , 0.  ],
           [0.25, 0.75]], dtype=float32)
    >>> model.predict(bags)
    array(['cat', 'dog'], dtype='<U3')
    >>> model.cut(1).transform(bags).toarray()
    array([[1.],
           [1.]], dtype=float32)
    """

    modality: str
    hierarchy: Hierarchy
    n_groups: int
    descriptor: Any = None
    codebook: NDArray[np.float32] | tuple[NDArray[np.float32], ...] | None = None
    assignment: tuple[FewEncoder, ...] | None = None
    word_names: tuple[str, ...] | None = None
    word_hashes: NDArray[np.uint32] | None = None
    word_totals: NDArray[np.float64] | None = None
    tokenizer: Mapping[str, Any] = field(default_factory=dict)
    pyramid: tuple[tuple[int, int], ...] = ((1, 1),)
    term: str = "count"
    word_weights: NDArray[np.floating] | None = None
    column_shift: NDArray[np.float64] | None = None
    norm: str | None = None
    normalize: tuple[str, ...] = ("l1", "power")
    given_names: Mapping[int, str] = field(default_factory=dict)
    flattened: int | None = None
    classes: tuple[str, ...] = ()
    heads: Mapping[int, Head] = field(default_factory=dict)
    calibration: Mapping[int, float] = field(default_factory=dict)
    path: PathErrors | None = None
    item_hashes: NDArray[np.int64] | None = None
    group_statistics: GroupStatistics | None = None
    edits: tuple[dict[str, Any], ...] = ()
    unedited: Unedited | None = None
    quantized: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    fit_: Fit | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.modality, str) or self.modality not in ITEMS:
            raise unknown_name("modality", self.modality, ITEMS)
        if not isinstance(self.hierarchy, Hierarchy) or not 1 <= self.hierarchy.n_words <= MOST_WORDS:
            accepted = f"a Hierarchy of 1 to {MOST_WORDS} words"
            raise BagwiseError(f"hierarchy must be {accepted}, got {self.hierarchy!r:.100}.")
        if self.hierarchy.min_groups > MOST_GROUPS:
            raise BagwiseError(
                f"A model has at most {MOST_GROUPS} groups, but the hierarchy of {self.hierarchy.n_words} words goes "
                f"down to {self.hierarchy.min_groups}. Merge further."
            )
        self._set_descriptors(self.descriptor)
        check_flattened(self.hierarchy, self.flattened)
        self._set(n_groups=self._checked_size(self.n_groups), pyramid=_checked_pyramid(self))
        self._set(normalize=resolve_steps(self.normalize))
        MODALITIES[self.modality].check(self)
        _ = self.weighting  # checks the names of term and norm
        self._check_classes()
        self._set(given_names=checked_group_names(self.given_names, self.n_groups))
        if self.path is not None and not isinstance(self.path, PathErrors):
            raise BagwiseError(f"path must be PathErrors or None, got {type(self.path).__name__}.")
        if not isinstance(self.quantized, bool):
            raise BagwiseError(f"quantized must be True or False, got {self.quantized!r:.100}.")
        if self.item_hashes is not None:
            self._set(item_hashes=_checked_item_hashes(self.item_hashes))
        for name in ("options", "provenance"):
            if not isinstance(getattr(self, name), Mapping):
                raise BagwiseError(f"{name} must be a mapping, got {type(getattr(self, name)).__name__}.")
            self._set(**{name: json_copy(dict(getattr(self, name)), name)})
        check_edits(self)

    def __getstate__(self) -> dict[str, Any]:
        # of pickles: training data, and credentials of their storage, do not belong into files of models
        return copy.copy(self).__dict__ | {"fit_": None}

    def __copy__(self) -> Model:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.__dict__.pop("lookup", None)  # it depends on `n_groups`, which copies change
        return other

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the model by name."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.init}

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _set_descriptors(self, descriptors: Any) -> None:
        some = checked_descriptors(descriptors)
        self._set(descriptor=some if len(some) > 1 else some[0] if some else None)

    def _checked_size(self, n: Any) -> int:
        least, most = self.hierarchy.min_groups, self.flattened or self.hierarchy.n_words
        n = check_integer(n, "n_groups", 1)
        if not least <= n <= most:
            what = f"{parameter_name('n_groups')} must be from {least} to {most}"
            raise BagwiseError(f"{what}, where the hierarchy can be cut; got {n}.")
        return n

    def _check_classes(self) -> None:
        self._set(classes=checked_names(self.classes, "classes", unique=True))
        if not isinstance(self.heads, Mapping):
            raise BagwiseError(f"heads must be a mapping from numbers of groups to Head, got {self.heads!r:.100}.")
        heads = {self._checked_size(size): head for size, head in self.heads.items()}
        for size, head in heads.items():
            expected = (len(self.classes), self.layout.width(size))
            if not isinstance(head, Head) or len(self.classes) < 2 or head.coef.shape != expected:
                what = f"one of shape {head.coef.shape}" if isinstance(head, Head) else type(head).__name__
                raise BagwiseError(
                    f"The head for {size} groups must be a Head of shape {expected}, for at least two classes "
                    f"and all cells; got {what}."
                )
        self._set(heads=dict(sorted(heads.items())), calibration=checked_calibration(self.calibration, heads))

    @cached_property
    def layout(self) -> WordLayout:
        """The words of each vocabulary in each cell of the pyramid: the columns of histograms."""
        return WordLayout(tuple(map(len, self.codebooks)) or (self.hierarchy.n_words,), self.pyramid)

    @property
    def descriptors(self) -> tuple[Any, ...]:
        """The descriptors of all vocabularies; () if there are none."""
        return checked_descriptors(self.descriptor)

    @property
    def codebooks(self) -> tuple[NDArray[np.float32], ...]:
        """The codebooks of all vocabularies; () if words need none."""
        return () if self.codebook is None else self.codebook if isinstance(self.codebook, tuple) else (self.codebook,)

    @cached_property
    def weighting(self) -> WordWeighting:
        """What is done to histograms before words are summed: `column_shift`, `term`, `word_weights`, `norm`."""
        weights = None if self.word_weights is None else self.word_weights.astype(np.float64)
        return WordWeighting(self.term, weights, self.norm, self.layout.vocabularies, self.column_shift)

    @cached_property
    def lookup(self) -> NDArray[np.int64]:
        """The group of each word, shape (d,): the hierarchy cut at `n_groups`."""
        return frozen(self.hierarchy.cut(self.n_groups))

    def groups(self) -> list[NDArray[np.int64]]:
        """Return the words of each group."""
        ends = np.cumsum(np.bincount(self.lookup, minlength=self.n_groups))[:-1]
        return np.split(np.argsort(self.lookup, kind="stable"), ends)

    @cached_property
    def vectorizer(self) -> Vectorizer:
        """The vectorizer that turns items into histograms over the full vocabulary."""
        return MODALITIES[self.modality].restore(self)

    def histograms(self, X: Any, *, n_jobs: int | None = None) -> Any:
        """Count the words of items, over the full vocabulary.

        Parameters
        ----------
        X : Collection, iterable of items, Bags, iterable of Bags, matrix, or table in memory
            Images and videos are arrays, texts are str. Tables in memory are those that `open_collection` takes. Models
            of images and videos also take bags, and iterators over them such as
            ``model.descriptor.iter_transform(collection, on_error="skip")``. A matrix, dense or sparse, holds
            histograms; the number of its columns is checked, and their names if they have any. Models with several
            vocabularies take a tuple of Bags, one per vocabulary, or an iterator over such tuples. Image files of a
            collection are read in colour if a descriptor needs that.
        n_jobs : int, default=None
            Threads, for images, videos and bags. None: one, or those of the descriptor.

        Returns
        -------
        histograms : CSR array, or ndarray if X is a dense matrix, of shape (n, n_cells * d)
        """
        from bagwise.app.modalities.histograms import as_histograms
        from bagwise.sources.collection import Collection
        from bagwise.sources.frames import frame_columns, is_frame

        n_columns = self.layout.n_columns
        if is_frame(X) and (not hasattr(X, "columns") or len(frame_columns(X)) != n_columns):
            X = MODALITIES[self.modality].open_frame(X, self)
        if isinstance(X, Collection) and X.modality != self.modality:
            raise BagwiseError(f"This model takes {self.modality}, got a collection of {X.modality} from {X.source}.")
        if len(getattr(X, "shape", ())) == 2:
            return as_histograms(X, n_columns, self.word_names, "" if MODALITIES[self.modality].rows else self.modality)
        return self.vectorizer.transform(X, n_jobs=n_jobs).matrix

    def group(self, histograms: Any, n: int | None = None, *, normalize: Sequence[str] | None = None) -> Any:
        """Weight words, sum those of each group, and normalise the rows.

        Parameters
        ----------
        histograms : ndarray or sparse matrix of shape (n_items, n_cells * d)
        n : int, default=None
            Number of groups. None: `n_groups`.
        normalize : sequence out of {"l1", "power", "l2"}, default=None
            None: `normalize` of the model.

        Returns
        -------
        features : ndarray or CSR of float32, shape (n_items, n_cells * n)
            Sparse if histograms are.
        """
        from bagwise.app.modalities.vectorizers import as_histograms, group_features

        n_groups = self.n_groups if n is None else self._checked_size(n)
        labels = self.lookup if n_groups == self.n_groups else self.hierarchy.cut(n_groups)
        counts = as_histograms(histograms, self.layout.n_columns)
        steps = self.normalize if normalize is None else normalize
        return group_features(counts, labels, n_groups, self.layout, steps, self.weighting)

    def transform(self, X: Any, *, n_jobs: int | None = None) -> Any:
        """Turn items into features: ``group(histograms(X))``."""
        return self.group(self.histograms(X, n_jobs=n_jobs))

    def decision_function(self, X: Any, *, n_jobs: int | None = None) -> NDArray[np.float64]:
        """Return the scores of all classes, shape (n_items, n_classes), for any X that `histograms` takes."""
        return self.head.scores(self.transform(X, n_jobs=n_jobs))

    def predict(self, X: Any, *, n_jobs: int | None = None) -> NDArray[Any]:
        """Return the class with the highest score of each item, for any X that `histograms` takes."""
        return np.array(self.classes)[self.decision_function(X, n_jobs=n_jobs).argmax(axis=1)]

    def predict_proba(self, X: Any, *, n_jobs: int | None = None) -> NDArray[np.float64]:
        """Return calibrated probabilities of all classes, shape (n_items, n_classes); X as in `histograms`.

        They are the softmax of scores times a factor, the most likely one for the held-out items of cross-validation;
        a model fitted without cross-validation has none. The class with the highest score has the highest probability.
        """
        return self.probabilities(self.decision_function(X, n_jobs=n_jobs))

    def probabilities(self, scores: Any) -> NDArray[np.float64]:
        """Return calibrated probabilities for scores of `decision_function`, of the same shape."""
        if self.n_groups not in self.calibration:
            others = ", ".join(map(str, self.calibration))
            why = f"it has them for {others} groups" if others else "they come from cross-validation, fit it with folds"
            raise BagwiseError(f"This model has no calibrated probabilities for {self.n_groups} groups: {why}.")
        return softmax(self.calibration[self.n_groups] * np.asarray(scores, np.float64))

    @overload
    def explain(self, X: str | Item, n_groups: int | None = None, *, n_jobs: int | None = None) -> Explanation: ...
    @overload
    def explain(self, X: Any, n_groups: int | None = None, *, n_jobs: int | None = None) -> list[Explanation]: ...

    def explain(self, X: Any, n_groups: int | None = None, *, n_jobs: int | None = None) -> Any:
        """Explain the predicted classes: contributions of groups, words and places that add up to the scores.

        Parameters
        ----------
        X : str, Item, or as for `histograms`
            A text, an item of a collection, or several items.
        n_groups : int, default=None
            Another number of groups, for which there is a classifier.
        n_jobs : int, default=None

        Returns
        -------
        explanation : Explanation, or list of them for several items
        """
        from bagwise.app.model.explanation import explain
        from bagwise.sources.items import Item

        explanations = explain(
            self if n_groups is None else self.cut(n_groups), [X] if isinstance(X, str) else X, n_jobs
        )
        return explanations[0] if isinstance(X, (str, Item)) else explanations

    @property
    def head(self) -> Head:
        """The linear classifier for `n_groups`."""
        if self.n_groups not in self.heads:
            if not self.heads:
                why = f"for {self.n_groups} groups" if self.classes else "because it was fitted without classes"
                raise BagwiseError(f"This model has no classifier {why}. Use transform.")
            sizes = ", ".join(map(str, self.heads))
            raise BagwiseError(f"This model has classifiers for {sizes} groups, not for {self.n_groups}. Cut it there.")
        return self.heads[self.n_groups]

    def cut(self, n: int) -> Model:
        """Return the same model with n groups. Nothing is learned; arrays are shared.

        Where there is no classifier for n groups, it is derived from that for the next larger number that has one: the
        weight of a group is the sum of those of its parts, each times its share of the occurrences, or the square root
        of it where square roots of sums are features. That costs little with many groups, and several points of error
        with fewer than 20; models by the criterion "classifier" have trained ones there. Groups that are the same keep
        their given names.
        """
        if n != self.n_groups and self.unedited is None and groups_of(self.hierarchy) is not None:
            raise BagwiseError(
                f"This model is compact: it always has {self.n_groups} groups, not {n}. Cut the model it was made from."
            )
        other = copy.copy(self)
        other._set(n_groups=self._checked_size(n), given_names=moved_names(self, n))
        with_derived_head(other)
        return other

    def group_names(self) -> NDArray[Any]:
        """Return names of the groups: those given, or else their most typical words.

        Groups of words without names, as of images, are called by the class that they speak for most and their number,
        such as ``"cat #3"``, or ``"group3"`` without classes.

        Words are typical by their frequency; for texts with TF-IDF weights those that occur in some of the texts, not
        in nearly all or in one, come first.

        Returns
        -------
        names : ndarray of str objects, shape (n_groups,)
        """
        return name_model_groups(self)

    def rename_groups(self, names: Mapping[int, str | None]) -> Model:
        """Return the same model with other names of some groups, by their numbers; None takes a given name back.

        Each name is an edit, see `apply`. All names together must differ.

        Examples
        --------
        >>> from bagwise import Hierarchy, Model
        >>> hierarchy, names = Hierarchy(3, [[0, 2]], [0.5]), ["cat", "dog", "kitten"]
        >>> model = Model(modality="texts", hierarchy=hierarchy, n_groups=2, word_names=names)
        >>> model.rename_groups({0: "felines"}).group_names()
        array(['felines', 'dog'], dtype=object)
        """
        return self.apply(rename_edits(self, names))

    def apply(self, edits: Iterable[Mapping[str, Any]]) -> Model:
        """Return an edited model, cut at the number of groups after the last edit. Nothing is learned.

        An edit is an object of JSON values. Groups are numbers at the ``n_groups`` of the edit, after all edits before
        it; words are numbers, or names where words have names:

        - ``{"edit": "rename", "n_groups": 37, "group": 3, "name": "felines"}``; the name None takes a name back
        - ``{"edit": "move", "n_groups": 37, "words": [17, 405], "to": 3}``; None: to a new group of their own
        - ``{"edit": "split", "n_groups": 37, "group": 3}``, where the hierarchy does
        - ``{"edit": "join", "n_groups": 37, "groups": [3, 7]}``
        - ``{"edit": "lock", "n_groups": 37, "group": 3}``: the group is whole at every size, is not merged any further,
          and other edits of it are refused, until an edit "unlock"
        - ``{"edit": "must_link", "n_groups": 37, "words": [17, 405]}``, ``"cannot_link"``: words that must be in one
          group, or of which no two may be, at every size, until an edit "unlink" of the same words

        The hierarchy is edited: at the new number of groups it has the edited ones, at others it keeps as much of the
        order of merges as these leave, see `bagwise.merging.regrouping.regroup`. Links merge again under constraints,
        from the statistics that a fit keeps of 1,000 groups; locked groups and those that edits made stay as they are.
        Classifiers, calibration and errors stay for numbers of groups whose groups are unchanged; a classifier for the
        edited groups is derived as in `cut`, from the one that the model had before its edits.

        Parameters
        ----------
        edits : iterable of mappings

        Returns
        -------
        model : Model
            Its `edits` are those so far and these. They are part of its file; `undo` takes them back.

        Examples
        --------
        >>> from bagwise import Hierarchy, Model
        >>> names = ["cat", "dog", "kitten", "puppy"]
        >>> hierarchy = Hierarchy(4, [[0, 2], [1, 3], [0, 1]], [3, 2, 1])
        >>> model = Model(modality="texts", hierarchy=hierarchy, n_groups=2, word_names=names)
        >>> edited = model.apply([{"edit": "move", "n_groups": 2, "words": ["puppy"], "to": None}])
        >>> edited.lookup, edited.n_groups, edited.undo() == model
        (array([0, 1, 0, 2]), 3, True)
        """
        return apply_edits(self, edits)

    def undo(self, k: int = 1) -> Model:
        """Return the model before its last k edits, cut at the number of groups it had then; see `apply`."""
        return undo_edits(self, k)

    def describe_groups(self) -> list[Group]:
        """Return all groups with their names, words, and the class that each speaks for most."""
        return describe_groups(self)

    def feature_names(self) -> NDArray[Any]:
        """Name the features: by groups (by numbers where words have no names), with the cell first in a pyramid."""
        groups = name_model_groups(self, by_class=False)
        return np.array([cell + name for cell in cell_names(self.pyramid) for name in groups], dtype=object)

    def info(self) -> dict[str, Any]:
        """Return the header of the model's file, a dict of JSON values."""
        return {"kind": KIND, "schema": SCHEMA} | OPTIONAL | model_files.parts_of(self)[0]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model to one file, atomically. An existing file is replaced."""
        return model_files.write_model(path, self)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        trust_pattern: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        network: Any = None,
    ) -> Model:
        """Read a model that `save` wrote. It is checked, and no code in it runs.

        The file may be a URL, such as ``s3://bucket/photos.bagwise``: it is copied to a temporary file first.
        `storage_options` are for URLs, see `open_collection`.

        A ``token_pattern`` that is not known to be fast (docs/model-file.md) is refused, unless `trust_pattern` is
        true. Models of images described by a network of yours need its file, `network`: see `with_network`.
        """
        with local_copy(as_place(path, storage_options), Limits()) as local:
            model = model_files.read_model(local, cls, trust_pattern=trust_pattern)
        return model if network is None else model.with_network(network)

    def with_network(self, network: Any) -> Model:
        """Return the model with the network that describes its images, from a file or from tensors.

        Models name networks by their SHA-256, and never open a path by themselves.

        Parameters
        ----------
        network : path, or mapping of str to ndarray of float16
            ONNX file that the model was fitted with, or the tensors of the network that `NetworkFeatures` has by
            default (`NetworkFeatures.tensors`).

        Returns
        -------
        model : Model

        Raises
        ------
        BagwiseError
            If it is another network than that of the model, or the model has none.
        """
        return self._with_networks(lambda descriptor: descriptor.with_network(network))

    def embed_network(self) -> Model:
        """Return the model with a copy of the network that describes its images, so that its file needs no package.

        The file grows by 5.9 MB, and has the notice of the weights. For the network that `NetworkFeatures` has by
        default; those of files are not embedded, so that files of models hold no ONNX.

        Returns
        -------
        model : Model

        Raises
        ------
        BagwiseError
            If the model has another network, or none.
        """
        return self._with_networks(lambda descriptor: descriptor.embed())

    def _with_networks(self, change: Callable[[Any], Any]) -> Model:
        """Change the first descriptor that is a network."""
        descriptors = self.descriptors
        networks = [k for k, one in enumerate(descriptors) if one.name == "NetworkFeatures"]
        if not networks:
            names = ", ".join(one.name for one in descriptors) or "no descriptor"
            raise BagwiseError(f"This model has no network: its items are described by {names}.")
        changed, other = change(descriptors[networks[0]]), copy.copy(self)
        other.__dict__.pop("vectorizer", None)
        other._set_descriptors([*descriptors[: networks[0]], changed, *descriptors[networks[0] + 1 :]])
        return other

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Model):
            return NotImplemented
        (header, tensors), (others_header, others_tensors) = model_files.parts_of(self), model_files.parts_of(other)
        return (
            header == others_header
            and tensors.keys() == others_tensors.keys()
            and all(np.array_equal(tensors[name], others_tensors[name], equal_nan=True) for name in tensors)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        classes = f", {how_many(len(self.classes), 'classes')}" if self.classes else ""
        words = f"{self.hierarchy.n_words} words merged into {how_many(self.n_groups, 'groups')}"
        return f"<Model: {self.modality}, {words}{classes}>"


def _checked_pyramid(model: Model) -> tuple[tuple[int, int], ...]:
    """Return the grids of a pyramid; raise an error if there are too many cells."""
    grids = resolve_pyramid(model.pyramid)
    n_columns = n_cells(grids) * model.hierarchy.n_words
    if n_cells(grids) > 1 and n_columns > MOST_TABLE:
        raise BagwiseError(
            f"{n_cells(grids)} cells of {model.hierarchy.n_words} words make {n_columns} columns; a model has at "
            f"most {MOST_TABLE}. Take fewer words, or no pyramid."
        )
    return grids


def _checked_item_hashes(values: ArrayLike) -> NDArray[np.int64]:
    """Check hashes of items: int64, ascending."""
    hashes = np.asarray(values)
    if hashes.ndim != 1 or hashes.dtype != np.int64 or not (hashes[1:] > hashes[:-1]).all():
        raise BagwiseError(f"item_hashes must be int64, all different and ascending; got {hashes!r:.100}.")
    return frozen(hashes)
