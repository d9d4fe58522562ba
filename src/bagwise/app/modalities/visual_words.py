"""`VisualVectorizer`: from images and videos to histograms of visual words."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.checks import generator
from bagwise._utils.hashing import hash_names, hashes
from bagwise._utils.threads import number_of_threads
from bagwise.app.modalities import MODALITIES
from bagwise.app.modalities.histograms import Histograms, WordSample, as_histograms
from bagwise.app.modalities.steps import hash_arrays
from bagwise.app.modalities.vectorizers import Part, Run, Vectorizer, sampled_items
from bagwise.app.modalities.visual import checked_assignments, checked_descriptors
from bagwise.bags import Bags
from bagwise.codebooks.batches import batches_of_width
from bagwise.codebooks.pyramids import WordLayout
from bagwise.descriptors.base import describe_items
from bagwise.errors import BagwiseError
from bagwise.sources.collection import Collection
from bagwise.sources.items import ItemIterator, NothingReadError, Skipped
from bagwise.sources.media import images_in_mode

__all__ = ["N_SAMPLED_VECTORS", "VisualVectorizer"]

_BATCH_SIZE = 32
N_SAMPLED_VECTORS = 100_000  # that the words of a vocabulary are learned from
# Items that words are moved by, vectors of each, and its neighbours on the manifold.
_MOVED_BY, _MOVED_VECTORS, _NEIGHBORS = 2000, 200, 10


class Drawn(NamedTuple):
    """Descriptors that were drawn by their keys, hashes of the id of the item and their number in it, from 0 to 1."""

    keys: NDArray[np.float64]
    vectors: NDArray[Any]
    bags: tuple[Bags, ...] = ()  # a few of each item, if words are moved


class VisualVectorizer(Vectorizer):
    """Count visual words: describe images or videos, and assign the descriptors to words.

    Words are learned from at most 5000 images, or 500 videos, of a collection, chosen by hashes of their ids, or from
    all if these have fewer than 100,000 descriptors.
    Several descriptors each have a vocabulary of their own, side by side in each cell of the pyramid; each item is read
    once and described by all. Without a `descriptor`, only `Bags` are accepted. There are no `codebooks` before
    `fit_transform`, and none for descriptors that count words themselves, such as `LBPD5`. `n_words` has the number of
    words of each vocabulary; with `fewer`, there are fewer where fewer descriptors differ. With `n_components`, words
    are moved by `ManifoldBagOfFeatures`.
    """

    def __init__(
        self,
        modality: str,
        descriptor: Any,
        codebooks: Sequence[NDArray[np.float32]] = (),
        pyramid: tuple[tuple[int, int], ...] = ((1, 1),),
        *,
        n_words: Sequence[int] = (1000,),
        assignments: Sequence[Any] | None = None,
        random_state: Any = 0,
        fewer: bool = False,
        n_components: int | None = None,
    ) -> None:
        self.modality = modality
        self.descriptors = checked_descriptors(descriptor)
        self.codebooks = tuple(codebooks)
        self.pyramid = pyramid
        self._asked = tuple(map(len, codebooks)) or tuple(n_words)
        self.vocabularies = self._asked
        self.assignments = checked_assignments(assignments, len(self._asked))
        self.n_words = sum(self.vocabularies)
        self.fewer = fewer
        self.n_components = n_components
        self.random_state = random_state

    @property
    def layout(self) -> WordLayout:
        """The words of each vocabulary in each cell of the pyramid: the columns of histograms."""
        return WordLayout(self.vocabularies, self.pyramid)

    def _settings(self) -> dict[str, Any] | None:
        if not self.descriptors or not isinstance(self.random_state, Integral):
            return None
        return {
            "descriptors": [one._made_by() for one in self.descriptors],
            "n_words": self._asked,
            "pyramid": self.pyramid,
            "random_state": int(self.random_state),
            **({"fewer": True} if self.fewer else {}),
            **({} if self.n_components is None else {"n_components": self.n_components}),
            "assignments": [one.to_dict() for one in self.assignments],
        }

    def _learned(self) -> dict[str, NDArray[Any]]:
        return {f"codebook {k}": codebook for k, codebook in enumerate(self.codebooks)}

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        names = sorted(name for name in arrays if name.startswith("codebook "))
        self._set_codebooks(arrays[name] for name in names)

    def _set_codebooks(self, codebooks: Iterable[NDArray[Any]]) -> None:
        self.codebooks = tuple(codebooks)
        self.vocabularies = tuple(map(len, self.codebooks))
        self.n_words = sum(self.vocabularies)
        self.__dict__.pop("_encoders", None)

    @cached_property
    def _encoders(self) -> list[Any]:
        return [how.on(words) for how, words in zip(self.assignments, self.codebooks, strict=True)]

    def items_to_learn_from(self, X: Any) -> NDArray[np.intp] | None:
        """Choose the items of a collection that words are learned from, ascending; None: all."""
        most = MODALITIES[self.modality].most_learned_from
        if not isinstance(X, Collection) or len(X) <= most:
            return None
        return np.sort(np.argsort(hash_names(X.ids, self._seed), kind="stable")[:most])

    def read_part(self, X: Any, run: Run, keep: Callable[[Iterable[Any]], Iterable[Any]] = list) -> Part:
        """Describe the items: batches of bags, a tuple with one entry per vocabulary."""
        describing = self._describe(X, run)
        sizes = np.zeros(len(self.vocabularies), np.int64)
        averages: list[NDArray[np.float32]] = []

        def batches() -> Iterator[tuple[Any, ...]]:
            for described in describing:
                batch = _without_pooled(described, averages)
                for k, bags in enumerate(batch):
                    sizes[k] += np.count_nonzero(bags.values.any(axis=1))
                yield batch
                run.progress(f"Describing {self.modality}", describing.n_done, describing.n_items)

        try:
            content = keep(batches())
        except NothingReadError as error:
            return Part(keep(()), np.empty(0, np.intp), error.skipped, sizes)
        kept = np.array(describing.kept, np.intp)
        ids = X.ids if isinstance(X, Collection) else [str(number) for number in range(describing.n_items)]
        keys = hash_names([ids[number] for number in describing.kept], self._seed)
        return Part(content, kept, tuple(describing.skipped), sizes, keys=keys, pooled=_joined(averages))

    def summary(self, part: Part, limits: Any = None) -> list[Drawn]:
        """Draw descriptors for each vocabulary whose keys are below its limit; those of zeros (flat patches) are none.

        Whether one is drawn depends on the id of its item and its number there, and so not on other parts.
        """
        bounds = [1.0] * len(self.vocabularies) if limits is None else limits
        samples: list[list[Drawn]] = [[] for _ in self.vocabularies]
        first = 0
        for batch in part.content:
            items = part.keys[first : first + len(batch[0])].tolist()
            first += len(items)
            for k, bags in enumerate(batch):
                streams = [hashes(int(n), key) for n, key in zip(bags.lengths, items, strict=True)]
                keys: NDArray[np.float64] = (np.concatenate(streams) >> np.uint64(11)) * np.float64(2.0**-53)
                rows = np.flatnonzero(keys < bounds[k])
                vectors = np.asarray(bags.values[rows])
                filled = vectors.any(axis=1)
                few = () if self.n_components is None else (_few_of_each(bags, keys),)
                samples[k].append(Drawn(keys[rows][filled], vectors[filled], few))
        return [_joined_samples(some) for some in samples]

    def join(self, one: list[Drawn], other: list[Drawn]) -> list[Drawn]:
        """Join samples."""
        return [_joined_samples(both) for both in zip(one, other, strict=True)]

    def learn(self, summary: list[Drawn], run: Run, source: str = "the source") -> None:
        """Learn the words of each vocabulary by k-means from the vectors with the smallest keys."""
        bags = [drawn.bags for drawn in summary]
        words = []
        for k in range(len(summary)):
            keys, vectors, _ = summary[k]
            summary[k] = Drawn(keys[:0], vectors[:0])  # each sample is let go once it has been scaled
            sample = vectors[np.argsort(keys, kind="stable")[:N_SAMPLED_VECTORS]]
            del vectors
            words.append(self._learn_words(sample, run, k))
            del sample
        self._set_codebooks(words)
        if self.n_components is not None:
            self._set_codebooks([self._moved_words(some, k, run) for k, some in enumerate(bags)])

    def count_part(self, part: Part, run: Run, wanted: Iterable[int] = (), X: Any = None) -> Histograms:
        """Count the words of the descriptors, and those of items that were not described before."""
        if part.chosen is None:
            return self._count_described(part, run, set(wanted), len(part.kept))
        assert X is not None
        rest = np.setdiff1d(np.arange(len(X)), part.chosen)
        of_chosen, of_rest = (set(np.flatnonzero(np.isin(some, list(wanted))).tolist()) for some in (part.chosen, rest))
        counted = [(part.chosen, self._count_described(part, run, of_chosen, len(X)))]
        if len(rest):
            try:
                counted.append((rest, self._count_items(X[rest], run, of_rest)))
            except NothingReadError as error:
                none = _Counting(self, run, [], set())
                counted.append((rest, none.histograms(error.skipped)))
        return Histograms.in_order(counted)

    def _count_described(self, part: Part, run: Run, wanted: set[int], n_items: int) -> Histograms:
        counting = _Counting(self, run, part.kept.tolist(), wanted)
        for batch in part.content:
            counting.add(self._checked(batch))
            run.progress("Counting words", counting.n_rows, n_items)
        return dataclasses.replace(counting.histograms(part.skipped), pooled=part.pooled)

    def _count_items(self, X: Any, run: Run, wanted: Iterable[int] | None = None) -> Histograms:
        """Describe items and count their words; nothing is held but histograms. `wanted` None: those of the run."""
        describing = self._describe(X, run)
        some = sampled_items(describing.n_items, run.n_samples) if wanted is None else wanted
        counting = _Counting(self, run, describing.kept, set(some))
        averages: list[NDArray[np.float32]] = []
        for described in describing:
            counting.add(self._checked(_without_pooled(described, averages)))
            run.progress("Counting words", describing.n_done, describing.n_items)
        return dataclasses.replace(counting.histograms(describing.skipped), pooled=_joined(averages))

    @property
    def _seed(self) -> int:
        return int(self.random_state) if isinstance(self.random_state, Integral) else 0

    def _learn_words(self, vectors: NDArray[Any], run: Run, k: int) -> Any:
        """Learn vocabulary number k, unless an earlier run has learned it from the same vectors."""
        steps, settings, size = run.steps, self._settings(), self._asked[k]
        compared, content = self.assignments[k].compared(vectors), ""
        if steps is not None and settings is not None:
            content = hash_arrays([vectors])
            settings = {
                "descriptor": settings["descriptors"][k],
                "assignment": self.assignments[k].to_dict(),
                "n_words": size,
                "random_state": settings["random_state"],
                "fewer": self.fewer,
            }
            cached = steps.load("words", content, settings, f"{size:,} words")
            if cached is not None:
                return cached["codebook"]

        def follow(done: int, total: int) -> None:
            n_steps = total * len(self.vocabularies)  # all vocabularies have as many
            run.progress(f"Learning {self.n_words} words", k * total + done, n_steps)

        from bagwise.codebooks.kmeans import kmeans_words

        how: dict[str, Any] = {"n_jobs": run.n_jobs, "progress": follow, "fewer": self.fewer}
        words = kmeans_words(compared, size, random_state=generator(self.random_state), **how).words
        if steps is not None and settings is not None:
            steps.save("words", content, settings, {"codebook": words})
        return words

    def _moved_words(self, some: Sequence[Bags], k: int, run: Run) -> NDArray[np.float32]:
        """Move the words of a vocabulary until histograms show the manifold of the items: `ManifoldBagOfFeatures`."""
        from bagwise.codebooks.manifold.manifold_bag_of_features import ManifoldBagOfFeatures

        bags = Bags.concatenate(
            [Bags(self.assignments[k].compared(few.values), few.offsets, dtype=None) for few in some]
        )
        bags = bags[np.flatnonzero(bags.lengths > 0)]
        run.progress(f"Moving {self.vocabularies[k]} words along the manifold of the items", 0, 0)
        assert self.n_components is not None
        learner = ManifoldBagOfFeatures(
            self.vocabularies[k],
            n_components=min(self.n_components, max(len(bags) - 1, 1)),
            n_neighbors=min(_NEIGHBORS, max(len(bags) - 1, 1)),
            max_objects=min(len(bags), _MOVED_BY),
            random_state=generator(self.random_state).integers(2**31),
            n_jobs=run.n_jobs,
        )
        return np.asarray(learner.fit(bags).codebook_, np.float32)

    def count(self, X: Any, run: Run, wanted: Iterable[int] | None = None) -> Histograms:
        """Count the words of items, of `Bags` (tuples of them for several vocabularies), or of an iterable of them."""
        import scipy.sparse as sp

        first = None
        if isinstance(X, (list, tuple)) and len(X):
            first = X[0]
        elif isinstance(X, Iterator):
            first = next(X, None)
            X = [] if first is None else itertools.chain([first], X)
        nested = first[0] if isinstance(first, tuple) and first else first
        if isinstance(X, Bags) or isinstance(nested, Bags) or sp.issparse(first):
            if not self.codebooks and not sp.issparse(first):
                raise BagwiseError("This model has no codebook: it takes images or counts of patterns, got Bags.")
            counting = _Counting(self, run, None, set())
            for batch in self._batches(X):
                counting.add(batch)
            return counting.histograms(())
        return self._count_items(X, run, wanted)

    def _batches(self, X: Any) -> Iterator[tuple[Any, ...]]:
        """Iterate over batches, each a tuple of bags with one entry per vocabulary."""
        n = len(self.vocabularies)
        if not self.codebooks:
            yield from ((batch,) for batch in X)
        elif n == 1:
            (codebook,) = self.codebooks
            for batch in batches_of_width(X, codebook.shape[1], codebook.dtype, "this model"):
                yield (batch,)
        else:
            for parts in [X] if isinstance(X, (tuple, Bags)) else X:
                lengths = [len(bags) for bags in parts if isinstance(bags, Bags)] if isinstance(parts, tuple) else []
                if len(lengths) != n or len(set(lengths)) != 1:
                    raise BagwiseError(
                        f"This model has {n} vocabularies: it takes tuples of {n} Bags of the same items, one per "
                        f"vocabulary; got {type(parts).__name__}{f' of {lengths} items' if lengths else ''}."
                    )
                yield self._checked(tuple(parts))

    def _checked(self, batch: tuple[Any, ...]) -> tuple[Any, ...]:
        """Check the width of the descriptors of a batch."""
        if not self.codebooks:
            return batch
        return tuple(
            next(batches_of_width(bags, codebook.shape[1], codebook.dtype, "this model"))
            for bags, codebook in zip(batch, self.codebooks, strict=True)
        )

    def describe(self, X: Any, **options: Any) -> ItemIterator:
        """Iterate over batches of described items, tuples of `Bags`; options as in `transform`."""
        return self._describe(X, Run(**options))

    def _describe(self, X: Any, run: Run) -> ItemIterator:
        if not self.descriptors:
            raise BagwiseError(
                f"This model has no descriptor: it takes Bags of the descriptors of {self.modality}, got "
                f"{type(X).__name__}. Describe the items first, as for its codebook."
            )
        if isinstance(X, Collection) and any(one.color for one in self.descriptors):
            X = images_in_mode(X, "rgb")  # grey images would be described as well, but not as when words were learned
        describing = describe_items(self._describers(run), X, batch_size=_BATCH_SIZE, on_error=run.on_error)
        describing.warn = False
        return describing

    def _describers(self, run: Run) -> list[Any]:
        """Return the descriptors, with the threads and the cache of a run."""
        descriptors = self.descriptors
        if run.pooled:
            descriptors = tuple(one.pooling() if hasattr(one, "pooling") else one for one in descriptors)
        changes = {name: value for name, value in (("n_jobs", run.n_jobs), ("cache", run.cache)) if value is not None}
        return [copy.copy(descriptor).set_params(**changes) for descriptor in descriptors]

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of `Model` that describe the fitted vectorizer."""
        words = {"codebook": self.codebooks or None, "assignment": self.assignments if self.codebooks else None}
        return {"descriptor": self.descriptors, "pyramid": self.pyramid, **words}


class _Counting:
    """Histograms of one batch of bags after the other, and samples of some of their items."""

    def __init__(self, vectorizer: VisualVectorizer, run: Run, kept: list[int] | None, wanted: set[int]) -> None:
        self._vectorizer = vectorizer
        self._n_threads = number_of_threads(run.n_jobs)
        self._kept = kept  # grows while items are described
        self._wanted = wanted if vectorizer.codebooks else set()
        self._samples: dict[int, WordSample] = {}
        self._parts: list[Any] = []
        self.n_rows = 0

    def add(self, batch: tuple[Any, ...]) -> None:
        """Count the words of a batch, a tuple with one entry per vocabulary."""
        if not self._vectorizer.codebooks:
            part = as_histograms(batch[0], self._vectorizer.n_words)
        else:
            from bagwise.codebooks.encoding import pooled

            pyramid = self._vectorizer.pyramid
            counts = [
                pooled(bags, encoder, "sum", pyramid, True, self._n_threads)
                for bags, encoder in zip(batch, self._vectorizer._encoders, strict=True)
            ]
            part = _side_by_side(counts, self._vectorizer.layout)
            for k in range(len(batch[0])) if self._wanted else ():
                if self._kept is not None and self._kept[self.n_rows + k] in self._wanted:
                    self._sample(batch, k)
        self._parts.append(part)
        self.n_rows += part.shape[0]

    def _sample(self, batch: tuple[Bags, ...], k: int) -> None:
        from bagwise._utils.threads import one_blas_thread

        first, assigned, positions = 0, [], []
        most = max(encoder.n_entries for encoder in self._vectorizer._encoders)
        with one_blas_thread():
            for bags, encoder in zip(batch, self._vectorizer._encoders, strict=True):
                for _, (words, weights, distances) in encoder.assign(bags[k]):
                    more = ((0, 0), (0, most - words.shape[1]))  # words of no weight, so that all have as many
                    assigned.append((first + np.pad(words, more, "edge"), np.pad(weights, more), distances))
                positions += [] if bags.positions is None else [bags.positions_of(k)]
                first += len(encoder.codebook)
        words, weights, distances = map(np.concatenate, zip(*assigned, strict=True))
        places = np.concatenate(positions) if len(positions) == len(batch) else None
        self._samples[self.n_rows + k] = WordSample(words, weights, distances, places)

    def histograms(self, skipped: Sequence[Skipped]) -> Histograms:
        """Return the histograms of all batches."""
        import scipy.sparse as sp

        none = sp.csr_array((0, self._vectorizer.layout.n_columns), dtype=np.float32)
        matrix = sp.csr_array(sp.vstack(self._parts, format="csr")) if self._parts else none
        kept = np.arange(matrix.shape[0]) if self._kept is None else np.array(self._kept, np.intp)
        return Histograms(matrix, kept, tuple(skipped), self._samples)


def _without_pooled(described: tuple[Any, ...], averages: list[NDArray[np.float32]]) -> tuple[Any, ...]:
    """Return the bags of a batch; pooled features beside them, those of the first network, are added to a list."""
    pairs = [one for one in described if isinstance(one, tuple)]
    averages += [pooled for _, pooled in pairs[:1]]
    return tuple(one[0] if isinstance(one, tuple) else one for one in described)


def _joined(averages: list[NDArray[np.float32]]) -> NDArray[np.float32] | None:
    return np.concatenate(averages) if averages else None


def _joined_samples(some: Sequence[Drawn]) -> Drawn:
    some = [one for one in some if one.vectors.shape[1]]
    if not some:
        return Drawn(np.empty(0), np.empty((0, 0), np.float32))
    keys, vectors = (np.concatenate([one[part] for one in some]) for part in (0, 1))
    return Drawn(keys, vectors, tuple(few for one in some for few in one.bags))


def _few_of_each(bags: Bags, keys: NDArray[np.float64]) -> Bags:
    """Return the vectors of each bag that words are moved by: those with the smallest keys."""
    numbers = np.repeat(np.arange(len(bags)), bags.lengths)
    order = np.lexsort((keys, numbers))
    rank = np.arange(len(order)) - bags.offsets[:-1][numbers]  # of each in the order of its bag
    rows = np.sort(order[rank < _MOVED_VECTORS])
    ends = np.cumsum(np.minimum(bags.lengths, _MOVED_VECTORS))
    return Bags(np.asarray(bags.values[rows]), np.concatenate([[0], ends]), dtype=None)


def _side_by_side(counts: Sequence[Any], layout: WordLayout) -> Any:
    """Put histograms of several vocabularies side by side in each cell; CSR arrays of shape (n_items, n_cells * size).

    >>> import scipy.sparse as sp
    >>> one, other = sp.csr_array([[1, 2, 3, 4]]), sp.csr_array([[8, 9]])
    >>> _side_by_side([one, other], WordLayout((2, 1), ((1, 2),))).toarray()
    array([[1, 2, 8, 3, 4, 9]])
    """
    import scipy.sparse as sp

    if len(counts) == 1:
        return counts[0]
    parts = []
    for part, size, words in zip(counts, layout.vocabularies, layout.slices, strict=True):
        columns = part.indices // size * layout.n_words + words.start + part.indices % size
        parts.append(sp.csr_array((part.data, columns, part.indptr), shape=(part.shape[0], layout.n_columns)))
    return sum(parts[1:], start=parts[0])
