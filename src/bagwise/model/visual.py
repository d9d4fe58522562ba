"""`VisualVectorizer`: from images and videos to histograms of visual words."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.checks import generator
from bagwise._utils.memory import parse_size
from bagwise._utils.threads import number_of_threads
from bagwise.bags import Bags
from bagwise.bags.files import DEFAULT_LIMIT, BagsSpool
from bagwise.codebooks.batches import Reservoir, batches_of_width
from bagwise.codebooks.pyramids import n_cells
from bagwise.descriptors.describing import Describer, describe_items
from bagwise.errors import BagwiseError
from bagwise.model.histograms import Histograms, WordSample, as_histograms
from bagwise.model.parts import DescriptorRecord, LazyDescriptor
from bagwise.model.vectorizers import Run, Vectorizer
from bagwise.sources.collection import Collection
from bagwise.sources.items import ItemIterator, Skipped
from bagwise.sources.media import images_in_mode

__all__ = ["N_SAMPLED_VECTORS", "VisualVectorizer"]

_BATCH_SIZE = 32
N_SAMPLED_VECTORS = 100_000  # that the words of a vocabulary are learned from


class VisualVectorizer(Vectorizer):
    """Count visual words: describe images or videos, and find the nearest words of the descriptors.

    Several descriptors each have a vocabulary of their own, side by side in each cell of the pyramid; each item is read
    once and described by all. Without a `descriptor`, only `Bags` are accepted. There are no `codebooks` before
    `fit_transform`, and none for descriptors that count words themselves, such as `LBPD5`. `n_words` has the number of
    words of each vocabulary; with `fewer`, there are fewer where fewer descriptors differ. Descriptors of a fit beyond
    `memory_limit` go to a temporary file, see `BagsSpool`.
    """

    descriptor = LazyDescriptor()
    descriptor_records: tuple[DescriptorRecord, ...]

    def __init__(
        self,
        modality: str,
        descriptor: Any,
        codebooks: Sequence[NDArray[np.float32]] = (),
        pyramid: tuple[tuple[int, int], ...] = ((1, 1),),
        *,
        n_words: Sequence[int] = (1000,),
        random_state: Any = 0,
        memory_limit: int | float | str | None = None,
        fewer: bool = False,
    ) -> None:
        self.modality = modality
        self.descriptor = descriptor
        self.codebooks = tuple(codebooks)
        self.pyramid = pyramid
        self._asked = tuple(map(len, codebooks)) or tuple(n_words)
        self.vocabularies = self._asked
        self.n_words = sum(self.vocabularies)
        self.fewer = fewer
        self.random_state = random_state
        self.memory_limit = memory_limit

    def _settings(self) -> dict[str, Any] | None:
        if self.descriptor is None or not isinstance(self.random_state, Integral):
            return None
        from bagwise.descriptors.base import settings_of

        given = self.descriptor if isinstance(self.descriptor, tuple) else (self.descriptor,)
        return {
            "descriptors": [settings_of(one) for one in given],
            "n_words": self._asked,
            "pyramid": self.pyramid,
            "random_state": int(self.random_state),
            **({"fewer": True} if self.fewer else {}),
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
        from bagwise.codebooks.encoders import HardEncoder  # deferred, as all that needs numba: texts do without

        return [HardEncoder(codebook) for codebook in self.codebooks]

    def _fit_transform(self, X: Any, run: Run) -> Histograms:
        """Describe all items once, learn words by k-means from a sample of descriptors, and count them."""
        describing = self._describe(X, run)
        step, n_items, n = f"Describing {self.modality}", describing.n_items, len(self.vocabularies)
        limit = (DEFAULT_LIMIT if self.memory_limit is None else parse_size(self.memory_limit)) // n
        randoms = [generator(self.random_state) for _ in range(n)]
        reservoirs = [Reservoir(N_SAMPLED_VECTORS, random) for random in randoms]
        times = [time.perf_counter()]
        with ExitStack() as stack:
            spools = [stack.enter_context(BagsSpool(limit)) for _ in range(n)]
            for batch in describing:
                for bags, spool, reservoir in zip(batch, spools, reservoirs, strict=True):
                    spool.append(bags)
                    reservoir.add(bags.values)
                run.progress(step, describing.n_done, n_items)
            times.append(time.perf_counter())
            self._set_codebooks(
                self._learn_words(X, reservoir, size, random, run, k)
                for k, (reservoir, size, random) in enumerate(zip(reservoirs, self._asked, randoms, strict=True))
            )
            times.append(time.perf_counter())
            counting = _Counting(self, run, describing.kept, n_items)
            for batch in zip(*spools, strict=True):
                counting.add(self._checked(batch))
                run.progress("Counting words", counting.n_rows, len(describing.kept))
        times.append(time.perf_counter())
        stages = zip(("describing", "learning words", "counting words"), np.diff(times).tolist(), strict=True)
        return dataclasses.replace(counting.histograms(describing.skipped), seconds=dict(stages))

    def _learn_words(
        self, X: Any, reservoir: Reservoir, size: int, random: np.random.Generator, run: Run, k: int
    ) -> NDArray[Any]:
        """Learn vocabulary number k, unless an earlier run has learned it from the same items."""
        steps, settings = run.steps, self._settings() if isinstance(X, Collection) else None
        if steps is not None and settings is not None:
            settings = {
                "descriptor": settings["descriptors"][k],
                "n_words": size,
                "random_state": settings["random_state"],
                "fewer": self.fewer,
                "on_error": run.on_error,
            }
            held = steps.load("words", X, settings, f"{size:,} words")
            if held is not None:
                return held["codebook"]

        def follow(done: int, total: int) -> None:
            n_steps = total * len(self.vocabularies)  # all vocabularies have as many
            run.progress(f"Learning {self.n_words} words", k * total + done, n_steps)

        from bagwise.codebooks.kmeans import kmeans_words

        given: dict[str, Any] = {"random_state": random, "n_jobs": run.n_jobs, "progress": follow, "fewer": self.fewer}
        if steps is None or settings is None:
            return kmeans_words(reservoir.vectors(), size, n_init=1, **given).words
        unfinished = steps.checkpoint("unfinished", X, settings)
        words = kmeans_words(reservoir.vectors(), size, n_init=1, checkpoint=unfinished, **given).words
        steps.save("words", X, settings, {"codebook": words})
        unfinished.remove()
        return words

    def _transform(self, X: Any, run: Run) -> Histograms:
        """Count the words of items, of `Bags` (tuples of them for several vocabularies), or of an iterable of them."""
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
            counting = _Counting(self, run, None, 0)
            for batch in self._batches(X):
                counting.add(batch)
            return counting.histograms(())
        describing = self._describe(X, run)
        counting = _Counting(self, run, describing.kept, describing.n_items)
        for batch in describing:
            counting.add(self._checked(batch))
            run.progress("Counting words", describing.n_done, describing.n_items)
        return counting.histograms(describing.skipped)

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
        if not self.descriptor_records:
            raise BagwiseError(
                f"This model has no descriptor: it takes Bags of the descriptors of {self.modality}, got "
                f"{type(X).__name__}. Describe the items first, as for its codebook."
            )
        if isinstance(X, Collection) and any(record.color for record in self.descriptor_records):
            X = images_in_mode(X, "rgb")  # grey images would be described as well, but not as when words were learned
        describing = describe_items(self._describers(run), X, batch_size=_BATCH_SIZE, on_error=run.on_error)
        describing.warn = False
        return describing

    def _describers(self, run: Run) -> list[Any]:
        """Return what describes items: functions for descriptors from files, where there are some, or estimators."""
        held = self.__dict__["_descriptors"]
        if all(isinstance(one, DescriptorRecord) and one.known.function is not None for one in held):
            return [Describer(one.name, one.parameters, run.n_jobs, run.cache) for one in held]
        from sklearn.base import clone  # deferred: scikit-learn takes long to import

        given = self.descriptor if isinstance(self.descriptor, tuple) else (self.descriptor,)
        changes = {name: value for name, value in (("n_jobs", run.n_jobs), ("cache", run.cache)) if value is not None}
        return [clone(descriptor).set_params(**changes) for descriptor in given] if changes else list(given)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of `Model` that describe the fitted vectorizer."""
        return {"descriptor": self.descriptor, "codebook": self.codebooks or None, "pyramid": self.pyramid}


class _Counting:
    """Histograms of one batch of bags after the other, and samples of some of their items."""

    def __init__(self, vectorizer: VisualVectorizer, run: Run, kept: list[int] | None, n_items: int) -> None:
        self._vectorizer = vectorizer
        self._n_threads = number_of_threads(run.n_jobs)
        self._kept = kept  # grows while items are described
        n_samples = run.n_samples if vectorizer.codebooks else 0
        self._wanted = set(np.linspace(0, n_items - 1, n_samples).astype(int).tolist())
        self._tables: list[Any] = []
        if self._wanted:
            from bagwise.codebooks.distances import WordDistances

            self._tables = [WordDistances(codebook) for codebook in vectorizer.codebooks]
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
            part = _side_by_side(counts, self._vectorizer.vocabularies, n_cells(pyramid))
            for k in range(len(batch[0])) if self._wanted else ():
                if self._kept is not None and self._kept[self.n_rows + k] in self._wanted:
                    self._sample(batch, k)
        self._parts.append(part)
        self.n_rows += part.shape[0]

    def _sample(self, batch: tuple[Bags, ...], k: int) -> None:
        from bagwise.codebooks.distances import assign

        first, words, distances, positions = 0, [], [], []
        for bags, table, codebook in zip(batch, self._tables, self._vectorizer.codebooks, strict=True):
            nearest, _ = assign(bags[k], table, 1)
            words.append(first + nearest)
            distances.append(np.linalg.norm(bags[k] - codebook[nearest], axis=1))
            positions += [] if bags.positions is None else [bags.positions_of(k)]
            first += len(codebook)
        places = np.concatenate(positions) if len(positions) == len(batch) else None
        self._samples[self.n_rows + k] = WordSample(np.concatenate(words), np.concatenate(distances), places)

    def histograms(self, skipped: Sequence[Skipped]) -> Histograms:
        """Return the histograms of all batches."""
        matrix = sp.csr_array(sp.vstack(self._parts, format="csr"))
        kept = np.arange(matrix.shape[0]) if self._kept is None else np.array(self._kept)
        return Histograms(matrix, kept, tuple(skipped), self._samples)


def _side_by_side(counts: Sequence[Any], sizes: Sequence[int], cells: int) -> Any:
    """Put histograms of several vocabularies side by side in each cell; CSR arrays of shape (n_items, cells * size).

    >>> one, other = sp.csr_array([[1, 2, 3, 4]]), sp.csr_array([[8, 9]])
    >>> _side_by_side([one, other], (2, 1), 2).toarray()
    array([[1, 2, 8, 3, 4, 9]])
    """
    if len(counts) == 1:
        return counts[0]
    total, first, parts = sum(sizes), 0, []
    for part, size in zip(counts, sizes, strict=True):
        columns = part.indices // size * total + first + part.indices % size
        parts.append(sp.csr_array((part.data, columns, part.indptr), shape=(part.shape[0], cells * total)))
        first += size
    return sum(parts[1:], start=parts[0])
