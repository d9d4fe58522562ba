"""The memory that images take while they are decoded: one account of the process, whoever decodes them."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from bagwise._utils.memory import give_back_memory, readable_size
from bagwise.sources.limits import Deadline, Limits

__all__ = ["DECODING", "DecodingMemory"]

# Bytes that are admitted whatever memory is free, and from which on they are given back: both take time to do.
_FEW, _MUCH = 1 << 26, 1 << 28


class DecodingMemory:
    """Admits decoders, in the order in which they come, while the bytes that they take together are within a limit."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin with nothing admitted, and nobody waiting."""
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self.n_bytes = 0

    @contextmanager
    def admit(self, n_bytes: int, limits: Limits, deadline: Deadline) -> Iterator[None]:
        """Take bytes for a block, at most `decode_bytes` with all others; waiting takes no time of the deadline."""
        ticket, began = object(), time.monotonic()
        with self._changed:
            self._waiting.append(ticket)
            try:
                while not (self._waiting[0] is ticket and self._fits(n_bytes, limits)):
                    self._changed.wait()
                self.n_bytes += n_bytes
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()
        try:
            deadline.extend(time.monotonic() - began)
            yield
        finally:
            if n_bytes >= _MUCH:
                give_back_memory()
            with self._changed:
                self.n_bytes -= n_bytes
                self._changed.notify_all()

    def _fits(self, n_bytes: int, limits: Limits) -> bool:
        """Whether the first that waits is admitted now; it is refused if it is too much by itself."""
        if self.n_bytes + n_bytes <= min(_FEW, limits.decode_bytes):
            return True
        if not self.n_bytes:
            limits.check("decode_bytes", n_bytes, f"it takes about {readable_size(n_bytes)} to decode")
            return True
        most = limits.most("decode_bytes")
        return most is None or self.n_bytes + n_bytes <= most


DECODING = DecodingMemory()


if hasattr(os, "register_at_fork"):  # threads of the parent, which have taken some, are not in the child
    os.register_at_fork(after_in_child=DECODING.reset)
