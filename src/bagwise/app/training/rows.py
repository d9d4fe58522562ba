"""Rows of a fit, in one block or in many: sums over blocks, and a sample of the items where they are many.

A fit whose histograms take more memory than the options allow leaves them in partitions. Words are weighted, merged and
classified by sums over all items. What needs the items themselves, such as
cross-validation, reports and criteria of neighbours, is done with a sample of them, and notes say so.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.hashing import hash_names
from bagwise._utils.memory import parse_size
from bagwise.app.modalities.steps import hash_arrays
from bagwise.app.modalities.vectorizers import Part, Progress, group_features
from bagwise.app.options import FitOptions
from bagwise.app.training.few_labels import Unlabelled, train_with_groups
from bagwise.app.training.method import Method, make_svm
from bagwise.app.training.parts import CountedParts, stacked
from bagwise.app.training.seen import item_hashes
from bagwise.codebooks.normalizing import WordWeighting
from bagwise.codebooks.pyramids import WordLayout
from bagwise.distributed.executors import Executor, LocalExecutor
from bagwise.distributed.linear import add_all, fit_svm
from bagwise.merging.clusterings import Clusterings
from bagwise.merging.criteria import Criterion, TraceRatio, resolve_criterion
from bagwise.merging.data import Pairs
from bagwise.merging.pooling import pool
from bagwise.merging.statistics import Statistics
from bagwise.merging.teacher import ScoreMoments, Teacher, answers, class_sizes

if TYPE_CHECKING:
    from bagwise.app.training.preparing import WordData

__all__ = ["Facts", "PartedRows", "Rows", "add_scatters", "blocks_to_merge", "deal_items", "exceeds", "fit_linear"]
__all__ += ["sample_items"]

_BLOCK_BYTES = 32 << 20  # of histograms that a worker goes through in one task, at least
_MOST_BLOCKS = 8192
_LEAST_OF_CLASS = 100  # items of each class in a sample, if there are as many
MOST_HASHES = 1 << 20
# Items that are compared with each other, by criteria that need items and take time with the square of their number.
MOST_MERGED = 20_000
# Words up to which blocks of items have matrices A and B, of 256 MiB together. Adding two takes three times as much.
MOST_SUMMED = 4096
_SENT_BYTES = 512 << 20  # of histograms that are sent to workers in blocks, unless one block has more

Values = NDArray[np.float64]


def exceeds(counted: CountedParts, options: FitOptions) -> bool:
    """Whether histograms take more memory than the options let this process hold of them."""
    return options.memory_limit is not None and sum(counted.n_bytes) > parse_size(options.memory_limit)


def sample_items(ids: Sequence[str], codes: Any, counted: CountedParts, options: FitOptions) -> NDArray[np.intp]:
    """Choose items whose histograms fit into this process, by hashes of their ids: the same for any partitions.

    Of each class, or of all items without classes, there are about 100 or more, if there are as many; of all, at least
    two. Items with samples of descriptors belong to it.
    """
    assert options.memory_limit is not None  # or there would be no sample
    limit = parse_size(options.memory_limit)
    share = np.full(len(ids), min(1.0, limit / max(sum(counted.n_bytes), 1)))
    codes = np.zeros(len(ids), np.int64) if codes is None else codes
    sizes = np.maximum(np.bincount(codes), 1)
    share = np.maximum(share, np.minimum(1.0, _LEAST_OF_CLASS / sizes)[codes])
    places = (hash_names(ids, options.random_state) >> np.uint64(11)) * 2.0**-53
    chosen = places < share
    chosen[np.argsort(places, kind="stable")[:2]] = True
    chosen[list(counted.samples)] = True
    return np.flatnonzero(chosen)


def blocks_to_merge(
    criterion: Any, X: Any, n_words: int, ids: Sequence[str], codes: Any, seed: int
) -> list[NDArray[np.intp]]:
    """Return the rows of X that words are merged on by a criterion that compares items.

    For trace ratios these are blocks of at most `MOST_MERGED` rows, and items are compared with those of the same
    block. Other criteria, and trace ratios of very many words, use one block.
    """
    n = len(ids)
    if not isinstance(criterion, TraceRatio) or n_words > MOST_SUMMED:
        return [np.linspace(0, n - 1, min(n, MOST_MERGED)).astype(np.intp)]
    n_bytes = X.data.nbytes + X.indices.nbytes if sp.issparse(X) else X.nbytes
    most = max(MOST_MERGED, int(_SENT_BYTES / max(n_bytes / n, 1)))
    return deal_items(ids, codes if criterion.supervised else None, seed, most)


def deal_items(ids: Sequence[str], codes: Any, seed: int, n_most: int) -> list[NDArray[np.intp]]:
    """Divide at most `n_most` items into blocks of at most `MOST_MERGED`, by hashes of their ids.

    Items of each class are dealt to the blocks in turn. There are so few blocks that each has items of two classes, and
    two of the largest; blocks that become too large for that lose items of large classes.
    """
    order = np.argsort(hash_names(ids, seed), kind="stable")[:n_most]
    n_blocks = -(-len(order) // MOST_MERGED)
    if codes is None:
        return [np.sort(order[number::n_blocks]) for number in range(n_blocks)]
    order = order[np.argsort(codes[order], kind="stable")]
    sizes = np.sort(np.append(np.bincount(codes[order]), 0))
    n_blocks = max(1, min(n_blocks, int(sizes[-2]), int(sizes[-1]) // 2))
    blocks = []
    for block in (order[number::n_blocks] for number in range(n_blocks)):
        _, starts, counts = np.unique(codes[block], return_index=True, return_counts=True)
        pair = (np.arange(len(block)) - np.repeat(starts, counts)) // 2  # in its class
        blocks.append(np.sort(block[np.argsort(pair, kind="stable")[:MOST_MERGED]]))
    return blocks


def add_scatters(
    executor: Executor,
    criterion: TraceRatio,
    X: Any,
    codes: Any,
    blocks: Sequence[NDArray[np.intp]],
) -> Pairs:
    """Sum A and B of a trace ratio criterion over blocks of rows, in which neighbours are found."""
    data = [X[rows] for rows in blocks]
    labels = [None if codes is None else codes[rows] for rows in blocks]
    function = partial(_scatters, criterion)
    return executor.map_reduce(function, operator.add, data, labels, step="Comparing items")


def _scatters(criterion: TraceRatio, X: Any, codes: Any) -> Pairs:
    return Pairs.of(criterion, X.astype(np.float64), codes)


@dataclass(frozen=True)
class Facts:
    """What is known of all items from sums over them: class sums, documents of each word, hashes of items."""

    statistics: Statistics  # of whole items, without products of words
    n_items_with: NDArray[np.int64]  # each word
    hashes: NDArray[np.int64]  # the smallest distinct ones
    n_filled: int  # items with words

    @property
    def idf(self) -> Values:
        """Inverse document frequencies, see `inverse_document_frequencies`."""
        return 1.0 + np.log((1.0 + self.statistics.n_samples) / (1.0 + self.n_items_with))

    def totals(self, shift: Values | None) -> Values:
        """Return the occurrences of each word, or the sum of each column of measurements above its minimum."""
        totals = self.statistics.word_totals
        return totals if shift is None else np.maximum(totals - self.statistics.n_samples * shift, 0.0)

    @property
    def n_hashed(self) -> int:
        """Number of distinct items with words; at least, if not all hashes are kept."""
        return len(self.hashes) if len(self.hashes) < MOST_HASHES else max(self.n_filled, len(self.hashes) + 1)

    def __add__(self, other: Facts) -> Facts:
        hashes = np.unique(np.concatenate([self.hashes, other.hashes]))[:MOST_HASHES]
        with_word = self.n_items_with + other.n_items_with
        return Facts(self.statistics + other.statistics, with_word, hashes, self.n_filled + other.n_filled)


@dataclass(frozen=True)
class PartedRows:
    """Histograms of all items, in partitions that lie where they were counted.

    `codes` has the classes of the items of each partition, None without classes.
    """

    executor: Executor
    counted: CountedParts
    layout: WordLayout
    codes: list[NDArray[Any]] = field(default_factory=list)
    n_classes: int = 1
    ids: Sequence[str] = ()
    labels: Sequence[str | None] = ()

    @property
    def n_items(self) -> int:
        """Number of items that could be read."""
        return sum(self.counted.n_rows)

    def labelled(
        self, ids: Sequence[str], labels: Sequence[str | None], codes: NDArray[np.int64] | None, n_classes: int
    ) -> PartedRows:
        """Return the same rows with the ids, labels and classes of all items."""
        ends = np.cumsum(self.counted.n_rows)[:-1]
        numbers = np.zeros(self.n_items, np.int64) if codes is None else codes
        parts = np.split(numbers.astype(np.min_scalar_type(max(n_classes, 1))), ends)
        return replace(self, codes=parts, n_classes=max(n_classes, 1), ids=ids, labels=labels)

    def sample(self, chosen: NDArray[np.intp]) -> Any:
        """Bring some rows, ascending, into this process."""
        starts = np.concatenate([[0], np.cumsum(self.counted.n_rows)])
        cuts = np.searchsorted(chosen, starts)
        of_each = [chosen[a:b] - start for a, b, start in zip(cuts[:-1], cuts[1:], starts[:-1], strict=True)]
        keep = self.executor.keep
        return stacked(self.executor, self.executor.map(partial(_taken, keep), self.counted.rows, of_each))

    @cached_property
    def facts(self) -> Facts:
        """Sums over all items."""
        function = partial(_facts, self.layout.whole, self.n_classes)
        return self.executor.map_reduce(function, operator.add, self.counted.rows, self.codes, step="Adding up words")

    def statistics(
        self,
        transform: Callable[[Any], Any],
        part: slice,
        sums: Sequence[str],
        clusterings: Clusterings | None = None,
    ) -> Statistics:
        """Sum up what `transform` makes of whole items, in some columns; `sums` are those that a criterion needs.

        Sums are over classes, or over the clusters of `clusterings`, which take all columns.
        """
        wanted = dict.fromkeys(sums, True)
        function = partial(_statistics, self.layout.whole, transform, part, self.n_classes, wanted, clusterings)
        return self.executor.map_reduce(function, operator.add, self.counted.rows, self.codes, step="Adding up words")

    def blocks(self, transform: Callable[[Any], Any], whole: bool = False) -> list[Any]:
        """Return handles of blocks of batches, pairs of features and classes: some partitions each, fixed by sizes."""
        size = max(_BLOCK_BYTES, sum(self.counted.n_bytes) // _MOST_BLOCKS)
        filled = np.concatenate([[0], np.cumsum(self.counted.n_bytes)[:-1]]) // size
        groups = np.split(np.arange(len(filled)), np.flatnonzero(np.diff(filled)) + 1)
        function = partial(_block, self.executor.keep, transform, self.layout.whole if whole else None)
        rows = [[self.counted.rows[k] for k in group] for group in groups]
        codes = [[self.codes[k] for k in group] for group in groups]
        return self.executor.map(function, rows, codes, step="Weighting words")


@dataclass(frozen=True)
class Rows:
    """Weighted words of the items of a fit: in one block in this process, or in blocks that lie where they were made.

    Attributes
    ----------
    executor : Executor
    keep : callable
        Holds what is computed of a block, see `Executor`.
    blocks, whole : list of handles
        Blocks of batches, pairs of weighted words of all cells, or of whole items, and classes.
    merged : ndarray or CSR array
        What words are merged on, unless sums over `parted` rows do: of all items, or of those of a sample.
    codes : ndarray, or None
        Classes of the rows of `merged`.
    ids : sequence of str
        Of the same.
    layout : WordLayout
    n_classes : int
    inputs : tuple of arrays
        What all of this depends on, for results in a cache.
    parted : PartedRows, or None
    needed : callable
        From counts of whole items to what words are merged on.
    sample : Rows, or None
        Those of the sample, for what needs items.
    unlabelled : Unlabelled, or None
        Further items, without a label, of which the classifier on words learns as well.
    """

    executor: Executor
    keep: Callable[[Iterable[Any]], Iterable[Any]]
    blocks: list[Any]
    whole: list[Any]
    merged: Any
    codes: NDArray[np.int64] | None
    ids: Sequence[str]
    layout: WordLayout
    n_classes: int
    inputs: tuple[Any, ...] = ()
    parted: PartedRows | None = None
    needed: Callable[[Any], Any] | None = None
    sample: Rows | None = None
    unlabelled: Unlabelled | None = None

    @classmethod
    def of(cls, data: WordData, codes: NDArray[np.int64] | None, method: Method, weighting: WordWeighting) -> Rows:
        """Weight the words of a fit."""
        weighted = weighting.apply(data.histograms)
        whole = weighted if data.layout.n_cells == 1 else weighting.apply(data.whole())
        merged, ids = method.merging_input(data.whole(), whole), data.collection.ids
        here = cls.here(weighted, whole, merged, codes, ids, data.layout)
        inputs = (data.histograms, codes, weighting.weights, weighting.shift)
        here = replace(here, inputs=tuple(one for one in inputs if one is not None))
        if data.rows is None:
            return here
        parted, facts = data.rows, data.rows.facts
        blocks = [] if codes is None else parted.blocks(weighting.apply)
        of_whole = blocks
        if data.layout.n_cells > 1 and method.follows:
            of_whole = parted.blocks(weighting.apply, True)
        return replace(
            here,
            executor=parted.executor,
            keep=parted.executor.keep,
            blocks=blocks,
            whole=of_whole,
            inputs=(*here.inputs, facts.statistics.class_sums, facts.n_items_with, facts.hashes),
            parted=parted,
            needed=partial(_merging_input, method, weighting),
            sample=here,
        )

    @classmethod
    def here(cls, weighted: Any, whole: Any, merged: Any, codes: Any, ids: Sequence[str], layout: WordLayout) -> Rows:
        """Put rows in this process into one block."""
        blocks = [[(weighted, codes)]]
        of_whole = blocks if whole is weighted else [[(whole, codes)]]
        n_classes = 1 if codes is None else int(codes.max()) + 1
        return cls(LocalExecutor(), list, blocks, of_whole, merged, codes, ids, layout, n_classes)

    @property
    def n_words(self) -> int:
        """Size of the vocabulary."""
        return int(self.merged.shape[1])

    @cached_property
    def fingerprint(self) -> str:
        """The hash of all that the words of these items depend on, for results in a cache."""
        return hash_arrays(self.inputs)

    def __getitem__(self, items: NDArray[np.intp]) -> Rows:
        """Return some rows of the block in this process."""
        assert self.parted is None
        ((weighted, _),), ((whole, _),) = self.blocks[0], self.whole[0]
        some = weighted[items]
        of_whole = some if whole is weighted else whole[items]
        merged = some if self.merged is weighted else of_whole if self.merged is whole else self.merged[items]
        codes = None if self.codes is None else self.codes[items]
        ids = [self.ids[number] for number in items.tolist()]
        here = Rows.here(some, of_whole, merged, codes, ids, self.layout)
        unlabelled = None if self.unlabelled is None else self.unlabelled[items]
        return replace(here, n_classes=self.n_classes, unlabelled=unlabelled)

    def learning_from(self, unlabelled: Unlabelled) -> Rows:
        """Return the same rows, beside items without a label; for rows in one block."""
        added = (unlabelled.weighted, unlabelled.groups, unlabelled.of_labelled)
        return replace(self, unlabelled=unlabelled, inputs=(*self.inputs, *added))

    @property
    def weighted(self) -> Any:
        """Weighted words of the block in this process."""
        return self.blocks[0][0][0]

    def compared(self, method: Method, seed: int) -> list[NDArray[np.intp]]:
        """Return the items that words are merged on by criteria that compare items, see `blocks_to_merge`."""
        if not method.in_blocks or not method.compares_items:
            return [np.arange(self.merged.shape[0])]
        criterion, most_words = resolve_criterion(method.criterion), max(method.vocabularies or (self.n_words,))
        return blocks_to_merge(criterion, self.merged, most_words, self.ids, self.codes, seed)

    def merging(
        self, method: Method, options: FitOptions, progress: Progress
    ) -> tuple[Criterion, Callable[[slice], tuple[Any, Any]]]:
        """Return the criterion, and what gives the data of some columns, or sums over all items, and classes."""
        criterion = resolve_criterion(method.criterion)
        if self.parted is not None and not method.compares_items:
            # items are clustered by the sample, and all of them assigned
            parted, needed = self.parted, self.needed
            assert needed is not None
            learned, sums = method.clusterings(self.merged, options.n_jobs, progress), criterion.sums_needed or ()
            return criterion, lambda part: (parted.statistics(needed, part, sums, learned), None)
        criterion = method.criterion_for(self.merged, options.n_jobs, progress)
        y = self.codes if criterion.supervised else None
        blocks = self.compared(method, options.random_state)
        if len(blocks) > 1:
            add = partial(add_scatters, self.executor, criterion)
            return criterion, lambda part: (add(self.merged[:, part], y, blocks), None)
        some = slice(None) if len(blocks[0]) == self.merged.shape[0] else blocks[0]
        X, some_codes = self.merged[some], None if y is None else y[some]
        return criterion, lambda part: (X[:, part], some_codes)

    def teacher(self, whole: bool, options: FitOptions, progress: Callable[[int, int], Any]) -> Teacher:
        """Train the classifier on all words, and find how much each word counts; see `Teacher.of`."""
        blocks, n_features = (self.whole, self.n_words) if whole else (self.blocks, self.layout.n_columns)
        if self.unlabelled is None:
            coef, intercept = fit_linear(self.executor, blocks, self.n_classes, n_features, options, progress)
        else:
            others = self.unlabelled.whole if whole else self.unlabelled.weighted
            ((X, codes),) = blocks[0]
            coef, intercept, _ = train_with_groups(X, others, self.unlabelled, codes, options, progress)
            blocks = [*blocks, [(others, None)]]
        teacher = Teacher(coef, intercept, np.arange(self.n_classes), np.ones(n_features))
        of_class = self._of_answers(teacher, blocks)
        squares, total = self._over(blocks, partial(_squares, teacher, of_class))
        return replace(teacher, mass=squares / total)

    def _of_answers(self, teacher: Teacher, blocks: list[Any]) -> Values:
        """Return the weight of an item by the class that the teacher gives it; see `balanced_weights`."""
        (sizes,) = self._over(blocks, partial(_answered, teacher))
        return 1.0 / class_sizes(sizes)

    def moments(self, teacher: Teacher, labels: NDArray[np.int64], size: int) -> ScoreMoments:
        """Sum up the moments of groups of words and of the scores of the teacher."""
        blocks = self.blocks if self.unlabelled is None else [*self.blocks, [(self.unlabelled.weighted, None)]]
        of_class, columns = self._of_answers(teacher, blocks), self.layout.over_cells(labels, size)
        function = partial(_moments, teacher, of_class, columns, self.layout.width(size))
        return self._over(blocks, function, operator.add)

    def _over(self, blocks: list[Any], function: Callable[[Any], Any], join: Any = None) -> Any:
        return self.executor.map_reduce(function, join or add_all, blocks)

    def head(
        self, labels: NDArray[np.int64], size: int, method: Method, options: FitOptions, progress: Any
    ) -> tuple[Values, Values]:
        """Train the classifier on the features of groups; those of measurements are standardised before."""
        executor, n_classes, width = self.executor, self.n_classes, self.layout.width(size)
        function = partial(_grouped, self.keep, labels, size, self.layout, method.normalize)
        grouped = executor.map(function, self.blocks)
        if method.scaling is None:
            return fit_linear(executor, grouped, n_classes, width, options, progress)
        sums, n = self._over(grouped, _column_sums)
        mean = sums / n
        (squares,) = self._over(grouped, partial(_squared_deviations, mean))
        scale = np.sqrt(squares / n)
        scale[scale == 0] = 1.0  # as StandardScaler
        standardized = executor.map(partial(_standardized, self.keep, mean, scale), grouped)
        coef, intercept = fit_linear(executor, standardized, n_classes, width, options, progress)
        coef = coef / scale
        return coef, intercept - coef @ mean


def fit_linear(
    executor: Executor,
    blocks: Sequence[Any],
    n_classes: int,
    n_features: int,
    options: FitOptions,
    progress: Callable[[int, int], Any] = lambda done, total: None,
) -> tuple[Values, Values]:
    """Train a linear SVM on blocks of batches: one by liblinear, more by `fit_svm`; returns weights and intercepts."""
    if len(blocks) > 1:
        weights = None
        if options.class_weight is not None:
            (sizes,) = executor.map_reduce(partial(_class_sizes, n_classes), add_all, blocks)
            weights = sizes.sum() / (np.count_nonzero(sizes) * np.maximum(sizes, 1))
        return fit_svm(executor, blocks, n_classes, n_features, options.C, class_weights=weights, progress=progress)
    (block,) = executor.gather(blocks)
    matrices, codes = zip(*block, strict=True)
    X = matrices[0]
    if len(matrices) > 1:
        X = sp.vstack(matrices, format="csr") if sp.issparse(X) else np.concatenate(matrices)
    progress(0, 1)
    svm = make_svm(options).fit(X, np.concatenate(codes))
    progress(1, 1)
    return svm.coef_, svm.intercept_


def _class_sizes(n_classes: int, block: Any) -> tuple[NDArray[np.int64]]:
    return (np.sum([np.bincount(codes, minlength=n_classes) for _, codes in block], axis=0),)


def _matrix(part: Part) -> Any:
    ((matrix, _),) = part.content
    return matrix


def _taken(keep: Any, part: Part, rows: NDArray[np.intp]) -> Part:
    return Part(keep([(_matrix(part)[rows], [])]), rows)


def _facts(whole: Callable[[Any], Any], n_classes: int, part: Part, codes: NDArray[Any]) -> Facts:
    matrix = _matrix(part)
    X = whole(matrix)
    present = X.data != 0 if sp.issparse(X) else None
    with_word = (
        np.count_nonzero(X, axis=0) if present is None else np.bincount(X.indices[present], minlength=X.shape[1])
    )
    hashes = item_hashes(matrix)
    distinct = np.unique(hashes[hashes != 0])[:MOST_HASHES]
    statistics = Statistics.of(X.astype(np.float64), codes, n_classes, gram=False)
    return Facts(statistics, with_word.astype(np.int64), distinct, int(np.count_nonzero(hashes)))


def _statistics(
    whole: Any,
    transform: Any,
    columns: slice,
    n_classes: int,
    wanted: dict[str, bool],
    clusterings: Clusterings | None,
    part: Part,
    codes: Any,
) -> Statistics:
    X = transform(whole(_matrix(part)))
    if clusterings is not None:
        return Statistics.of(X[:, columns], clusterings.codes(X), clusterings.n_clusters, False)
    X = X[:, columns]
    return Statistics.of(X, codes, n_classes, wanted.get("gram", False), frequencies=wanted.get("frequencies", False))


def _block(keep: Any, transform: Any, whole: Any, parts: list[Part], codes: list[NDArray[Any]]) -> Any:
    matrices = (_matrix(part) if whole is None else whole(_matrix(part)) for part in parts)
    return keep((transform(matrix), labels) for matrix, labels in zip(matrices, codes, strict=True))


def _answered(teacher: Teacher, block: Any) -> tuple[NDArray[np.int64]]:
    n = max(len(teacher.coef), 2)
    return (np.sum([np.bincount(answers(teacher.scores(X)), minlength=n) for X, _ in block], axis=0),)


def _squares(teacher: Teacher, of_class: Values, block: Any) -> tuple[Any, Any]:
    sums = []
    for X, _ in block:
        weights = of_class[answers(teacher.scores(X))]
        squares = X.multiply(X) if sp.issparse(X) else np.square(X, dtype=np.float64)
        sums.append((np.asarray(squares.T @ weights, dtype=np.float64).ravel(), float(weights.sum())))
    return sum(one[0] for one in sums), sum(one[1] for one in sums)


def _moments(teacher: Teacher, of_class: Values, columns: Any, width: int, block: Any) -> ScoreMoments:
    total: ScoreMoments | None = None
    for X, _ in block:
        scores = teacher.scores(X)
        of_batch = ScoreMoments.of(pool(X, columns, width), scores, of_class[answers(scores)])
        total = of_batch if total is None else total + of_batch
    assert total is not None  # blocks have partitions
    return total


def _grouped(keep: Any, labels: Any, size: int, layout: WordLayout, normalize: Any, block: Any) -> Any:
    return keep((group_features(X, labels, size, layout, normalize).astype(np.float64), codes) for X, codes in block)


def _standardized(keep: Any, mean: Values, scale: Values, block: Any) -> Any:
    return keep((((X.toarray() if sp.issparse(X) else X) - mean) / scale, codes) for X, codes in block)


def _column_sums(block: Any) -> tuple[Values, int]:
    sums = [(np.asarray(X.sum(axis=0)).ravel(), X.shape[0]) for X, _ in block]
    return np.sum([one[0] for one in sums], axis=0), sum(one[1] for one in sums)


def _squared_deviations(mean: Values, block: Any) -> tuple[Values]:
    return (sum(np.square((X.toarray() if sp.issparse(X) else X) - mean).sum(axis=0) for X, _ in block),)


def _merging_input(method: Method, weighting: WordWeighting, counts: Any) -> Any:
    return method.merging_input(counts, weighting.apply(counts))
