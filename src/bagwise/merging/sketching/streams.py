"""Reading a stream of matrices, with errors that name the position in the stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bagwise._utils.progress import ProgressBar
from bagwise.errors import BagwiseError

__all__ = ["Chunks", "open_chunks", "read_chunks"]

Chunks = Iterable[Any] | Callable[[], Iterable[Any]]


def open_chunks(chunks: Chunks) -> Iterator[Any]:
    """Iterate over matrices, or over the return value of a function."""
    source = chunks() if callable(chunks) else chunks
    if hasattr(source, "shape"):  # a single matrix
        raise BagwiseError(
            f"chunks is one {type(source).__name__} of shape {source.shape}, expected an iterable of matrices. "
            "Give [X], or use fit."
        )
    try:
        return iter(source)
    except TypeError as error:
        raise BagwiseError(
            f"chunks is a {type(source).__name__}, expected an iterable of matrices or a function that returns one."
        ) from error


def check_can_be_read_again(chunks: Chunks, why: str) -> None:
    """Raise for iterators and generators, which can be read only once."""
    if not callable(chunks) and iter(open_chunks(chunks)) is chunks:
        raise BagwiseError(
            f"{why}, but chunks is a {type(chunks).__name__}, which can be read only once. "
            "Give a list, or a function without arguments that returns a new iterator each time."
        )


def read_chunks(
    chunks: Chunks,
    take: Callable[[Any], int],
    *,
    n_samples: int | None = None,
    after_failure: str = "",
    after_excess: str = "",
    task: str = "reading",
    verbose: int = 0,
) -> int:
    """Pass each matrix to `take`, which returns its number of samples or raises ValueError; return the total.

    Raises as soon as there are more than `n_samples`, and at the end if there are fewer. `after_failure` and
    `after_excess` are advice for the messages of errors. The progress bar is shown if `n_samples` is known.
    """
    stream = open_chunks(chunks)
    n_chunks = n_taken = 0

    def so_far() -> str:
        advice = after_failure if n_taken else ""
        return f"Until then {n_taken} samples came (number of chunks: {n_chunks}). {advice}".rstrip()

    with ProgressBar(task, n_samples or 1, enabled=bool(verbose) and n_samples is not None) as bar:
        while True:
            try:
                chunk = next(stream)
            except StopIteration:
                break
            except Exception as error:
                raise BagwiseError(
                    f"The stream of chunks failed with {type(error).__name__}: {error}. {so_far()}"
                ) from error
            try:
                n_new = take(chunk)
            except ValueError as error:
                raise BagwiseError(f"Chunk {n_chunks} (counted from 0) cannot be used: {error} {so_far()}") from error
            n_taken += n_new
            if n_samples is not None and n_taken > n_samples:
                raise BagwiseError(
                    f"Only {n_samples} samples were to come, but with chunk {n_chunks} (counted from 0) there are "
                    f"{n_taken}. {after_excess}".rstrip()
                )
            n_chunks += 1
            bar.update(n_taken)
    if n_taken == 0:
        raise BagwiseError(f"The stream had no samples, in {n_chunks} chunks. At least one sample is needed.")
    if n_samples is not None and n_taken < n_samples:
        raise BagwiseError(f"The stream ended, but {n_samples} samples were to come. {so_far()}")
    return n_taken
