"""Memory that is available, and checks against limits."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from numbers import Real
from pathlib import Path

from bagwise.errors import BagwiseError

Limit = int | float | str | None  # bytes, or text such as "2GB"; None: a fraction of the free memory
# Fraction of the free memory that may be used if there is no limit.
_DEFAULT_FRACTION = 0.8

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def readable_size(n_bytes: float) -> str:
    """Format a number of bytes.

    >>> readable_size(1_600_000_000)
    '1.60 GB'
    """
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.2f} {unit}"
    return f"{n_bytes:.0f} bytes"


def parse_size(size: int | float | str) -> int:
    """Return a number of bytes, given as a number or a string such as ``"2GB"`` or ``"512 MiB"``.

    >>> parse_size("2GB")
    2000000000
    """
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", size.lower())
        if match is None:
            raise BagwiseError(
                f"memory_limit={size!r} is not a size. Give bytes, or a string such as '2GB' or '512MiB'."
            )
        size = float(match[1]) * _UNITS[match[2] or ""]
    if isinstance(size, bool) or not isinstance(size, Real) or not 0 < size < float("inf"):
        raise BagwiseError(f"memory_limit must be a positive number of bytes or a string such as '2GB', got {size!r}.")
    return int(size)


def free_memory() -> int | None:
    """Return the available memory in bytes; None if it is unknown. Obeys the limit of a container (cgroup) on Linux."""
    limits = []
    try:
        meminfo = Path("/proc/meminfo").read_text()
        limits.append(int(re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE)[1]) * 1024)  # type: ignore[index]
    except (OSError, TypeError):
        try:
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        except (AttributeError, OSError, ValueError):
            return None
    for limit_file, used_file in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            limit = Path(limit_file).read_text().strip()
            used = Path(used_file).read_text().strip()
        except OSError:
            continue
        if limit.isdigit():
            limits.append(max(int(limit) - int(used) + _reclaimable(limit_file), 0))
    return min(limits)


def _reclaimable(limit_file: str) -> int:
    """Return the memory of a container that only caches files, and is released when needed."""
    try:
        text = Path(limit_file).with_name("memory.stat").read_text()
    except OSError:
        return 0
    match = re.search(r"^(?:total_)?inactive_file (\d+)", text, re.MULTILINE)
    return int(match[1]) if match else 0


def give_back_memory() -> None:
    """Give freed memory back to the system where the C library keeps it, for each thread apart (glibc)."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def resolve_limit(memory_limit: Limit) -> int | None:
    """Convert the parameter `memory_limit` to bytes; None: a fraction of the free memory, None if that is unknown."""
    if memory_limit is not None:
        return parse_size(memory_limit)
    free = free_memory()
    return None if free is None else int(_DEFAULT_FRACTION * free)


def check_memory(need: int, memory_limit: Limit, what: str, advice: str) -> None:
    """Raise an error if `need` bytes exceed the limit; `what` names their purpose, `advice` an alternative."""
    limit = resolve_limit(memory_limit)
    if limit is None or need <= limit:
        return
    origin = "memory_limit" if memory_limit is not None else "80 % of the free memory"
    raise BagwiseError(
        f"{what}, {readable_size(need)} together; the limit is {readable_size(limit)} ({origin}). "
        f"Ways out: raise memory_limit, free memory, or {advice}."
    )
