"""Checks of parameters and arrays that several packages share."""

from __future__ import annotations

import json
from collections import Counter
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise._utils.devices import is_on_device, to_device, to_host
from bagwise.errors import BagwiseError

# The names of NumPy's types in safetensors, such as F32 for float32.
TYPE_NAMES = {
    np.dtype(f"<{code}"): f"{code[0].upper()}{8 * int(code[1])}"
    for code in ("f2", "f4", "f8", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")
}

# Checks look at pieces of about this many numbers, so that they take little memory beside the values; on a device, to
# which each piece is a question, at larger ones.
_PIECE, _DEVICE_PIECE = 1 << 20, 1 << 26
# The largest count, such as of iterations, and the largest number of threads that anything asks for.
_LARGEST_COUNT, MOST_JOBS = 1 << 40, 1 << 10


def check_integer(value: Any, name: str, lowest: int, highest: int | None = None, also: str = "") -> int:
    """Return `value` as an int; raise an error if it is none, or outside of the range.

    `also` says what else the caller accepts, such as ``', or "auto"'``.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise BagwiseError(f"{name} must be an integer{also}, got {value!r}.")
    value, most = int(value), _LARGEST_COUNT if highest is None else highest
    if not lowest <= value <= most:
        accepted = f"at least {lowest}" if highest is None and value < lowest else f"from {lowest} to {most}"
        raise BagwiseError(f"{name} must be {accepted}{also}, got {_shown(value)}.")
    return value


def _shown(value: int) -> str:
    """Write an integer; Python refuses to write those of very many digits."""
    return str(value) if abs(value) < 10**100 else f"a number of {value.bit_length()} bits"


def check_n_jobs(n_jobs: Any) -> int | None:
    """Return `n_jobs` if it is None or a number of threads; raise an error for others."""
    return None if n_jobs is None else check_integer(n_jobs, "n_jobs", -MOST_JOBS, MOST_JOBS)


def check_stored_parameters(parameters: Any, **most: int) -> None:
    """Raise an error for numbers among the parameters in a file that nobody gives: they overflow, or never end.

    `most` are the largest values of some parameters.
    """
    for name, value in parameters.items() if isinstance(parameters, dict) else ():
        whole, real = type(value) is int, type(value) is float
        limit = most.get(name, _LARGEST_COUNT - 1)
        sound = abs(value) <= limit if whole or (real and name in most) else np.isfinite(value) if real else True
        if name == "n_jobs":
            sound = value is None or (whole and value != 0 and abs(value) <= MOST_JOBS)
        if not sound:
            accepted = "None, or a number of threads" if name == "n_jobs" else f"numbers up to {limit}"
            raise BagwiseError(f"its {name} is {value!r:.40}; expected {accepted}.")


def as_numpy(values: Any) -> NDArray[Any]:
    """Convert an array-like, or an array of CuPy or PyTorch on any device, to an array; imports neither."""
    return np.asarray(to_host(values))


def as_dtype(dtype: Any, array: NDArray[Any]) -> np.dtype[Any]:
    """Resolve the `dtype` parameter; None is the type of `array`."""
    try:
        wanted = (array.dtype if dtype is None else np.dtype(dtype)).newbyteorder("=")
    except TypeError as error:
        raise BagwiseError(f"dtype={dtype!r} is not a type of numbers: {error}.") from error
    if wanted not in TYPE_NAMES:
        known = ", ".join(str(known) for known in TYPE_NAMES)
        raise BagwiseError(f"Bags cannot hold {wanted}. Accepted: {known}.")
    return wanted


def as_values(values: Any, dtype: Any, where: str = "values", xp: Any = np) -> NDArray[Any]:
    """Return values as a C-contiguous matrix of finite numbers, without a copy if nothing changes.

    `xp` is the module of the array, see `bagwise._utils.devices`.
    """
    array = as_numpy(values) if xp is np else to_device(values, xp)
    if array.ndim != 2:
        raise BagwiseError(
            f"{where} must have two dimensions, one row per item; got shape {array.shape}. "
            "For items that are single numbers use reshape(-1, 1)."
        )
    if array.dtype.kind not in "fiub":
        raise BagwiseError(f"{where} must be real numbers, got {array.dtype}.")
    wanted = as_dtype(dtype, array)
    if wanted.kind in "iu" and array.dtype.kind == "f":
        raise BagwiseError(
            f"{where} are {array.dtype} and would be truncated to {wanted}. Round them first, or use a float dtype."
        )
    with np.errstate(over="ignore"):  # what does not fit becomes infinite and is reported below
        converted = to_device(array, xp, wanted)
    _check_numbers(array, converted, where)
    return converted


def _check_numbers(array: NDArray[Any], converted: NDArray[Any], where: str) -> None:
    if converted.dtype.kind == "f":
        sound, what = lambda rows: np.isfinite(converted[rows]), "finite numbers"
    elif converted.dtype != array.dtype:
        sound, what = lambda rows: converted[rows] == array[rows], f"within the range of {converted.dtype}"
    else:
        return
    step = max(1, (_DEVICE_PIECE if is_on_device(converted) else _PIECE) // max(1, converted.shape[1]))
    for start in range(0, len(converted), step):
        fits = sound(slice(start, start + step))
        if not fits.all():
            row, column = np.unravel_index(int(np.argmin(fits)), fits.shape)
            number = array[start + row, column]
            raise BagwiseError(
                f"{where} must be {what}, but row {start + row}, column {column} is {number} "
                f"(held as {converted.dtype}). Remove or replace such rows first."
            )


def as_offsets(offsets: Any, n_rows: int) -> NDArray[np.int64]:
    """Return offsets as int64; they must increase from 0 to `n_rows` (equal ones are empty bags)."""
    array = as_numpy(offsets)
    if array.ndim != 1 or len(array) == 0 or array.dtype.kind not in "iu":
        raise BagwiseError(
            "offsets must be a list of integers, one more than there are bags; "
            f"got shape {array.shape} of {array.dtype}."
        )
    starts = np.array(array, dtype=np.int64)
    if starts[0] != 0 or starts[-1] != n_rows:
        raise BagwiseError(
            f"offsets must go from 0 to the number of rows, {n_rows}; they go from {array[0]} to {array[-1]}."
        )
    falls = np.flatnonzero(starts[1:] < starts[:-1])
    if len(falls):
        i = falls[0]
        raise BagwiseError(f"offsets must not fall, but bag {i} goes from row {starts[i]} to row {starts[i + 1]}.")
    return starts


def as_positions(positions: Any, n_rows: int, where: str = "positions") -> NDArray[np.float32]:
    """Return positions as a C-contiguous matrix of x and y in [0, 1]."""
    array = as_numpy(positions)
    if array.size == 0 and n_rows == 0:
        return np.empty((0, 2), dtype=np.float32)
    if array.shape != (n_rows, 2) or array.dtype.kind not in "fiub":
        raise BagwiseError(
            f"{where} must have one row (x, y) of numbers per item, shape ({n_rows}, 2); "
            f"got shape {array.shape} of {array.dtype}."
        )
    inside = (array >= 0) & (array <= 1)
    if not inside.all():
        row = int(np.argmin(inside.all(axis=1)))
        raise BagwiseError(
            f"{where} must lie in [0, 1] x [0, 1], but row {row} is {tuple(array[row].tolist())}. "
            "Divide x by the width and y by the height."
        )
    return np.ascontiguousarray(array, dtype=np.float32)


def generator(random_state: Any) -> np.random.Generator:
    """Convert `random_state`, None, a seed, a Generator or a RandomState (which is advanced), to a Generator."""
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(0, 2**32, size=4, dtype=np.uint64)
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise BagwiseError(
            f"random_state must be None, a non-negative integer, a Generator or a RandomState; got {random_state!r}."
        ) from error


def chosen_numbers(key: Any, n: int, what: str) -> NDArray[np.int64]:
    """Convert an index array or a boolean mask over n objects, called `what` in errors, to indices from 0 to n - 1."""
    chosen = np.asarray(key)
    if chosen.ndim == 1 and chosen.dtype == bool:
        if len(chosen) != n:
            raise BagwiseError(f"A mask needs one entry per {what}, {n}; got {len(chosen)}.")
        return np.flatnonzero(chosen)
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise BagwiseError(
            f"One {what} is chosen by its number, several by a slice, a list of numbers or a boolean mask; "
            f"got {type(key).__name__} of shape {chosen.shape} and type {chosen.dtype}."
        )
    numbers = chosen.astype(np.int64)
    outside = (numbers < -n) | (numbers >= n)
    if outside.any():
        raise IndexError(f"There is no {what} {numbers[outside][0]}: there are {n}, numbered from 0.")
    return np.where(numbers < 0, numbers + n, numbers)


def reset_fitted(estimator: Any) -> None:
    """Remove what an earlier fit left, so that a fit that fails leaves an estimator that is not fitted."""
    for name in [name for name in vars(estimator) if name.endswith("_") and not name.startswith("_")]:
        delattr(estimator, name)


def frozen(array: ArrayLike) -> NDArray[Any]:
    """Return a read-only copy."""
    copy: NDArray[Any] = np.array(array, order="C")
    copy.setflags(write=False)
    return copy


def json_copy(value: Any, name: str) -> Any:
    """Return a value as it is after saving and loading it as JSON; NumPy scalars become numbers."""
    try:
        return json.loads(json.dumps(value, allow_nan=False, default=_scalar))
    except (TypeError, ValueError, RecursionError) as error:
        accepted = "strings, finite numbers, true, false, null, lists and mappings"
        raise BagwiseError(f"{name} must consist of JSON values ({accepted}): {error}.") from error


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"there is an object of type {type(value).__name__}")


def checked_names(names: Any, what: str, *, unique: bool) -> tuple[str, ...]:
    """Check a list of strings."""
    if isinstance(names, (str, bytes)) or not hasattr(names, "__iter__"):
        raise BagwiseError(f"{what} must be a list of strings, got {names!r:.100}.")
    listed = tuple(names)
    for number, name in enumerate(listed):
        if not isinstance(name, str):
            raise BagwiseError(f"{what} must be strings, but entry {number} is {name!r:.100}. Use str(...) first.")
    plain = tuple(map(str, listed))  # numpy.str_ becomes str
    if unique and len(set(plain)) < len(plain):
        repeated = Counter(plain).most_common(1)[0][0]
        raise BagwiseError(f"{what} must be unique, but {repeated!r:.100} occurs more than once.")
    return plain
