"""Connections of the explorer: few at a time, none that never asks for anything, and a log that stays short."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["BACKLOG", "MOST_CONNECTIONS", "Connection", "Seldom", "tell_seldom"]

MOST_CONNECTIONS = 100  # browsers have six to a site
# Connections that are accepted in one step, each with a descriptor until the step ends: systems allow a process 256.
BACKLOG = 64
_REQUEST_SECONDS = 10.0  # until a request with all its headers is there
_TOLD = 5  # messages of one kind in `_TELLING_SECONDS`
_TELLING_SECONDS = 60.0


class Seldom(logging.Filter):
    """Lets few messages of each kind pass, and says how many it left out with the next one that passes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[str, tuple[float, int]] = {}  # since when, and how many since then

    def count(self, kind: str) -> int | None:
        """Count a message; return how many were left out before it, or None if it is left out itself."""
        now = self._clock()
        since, times = self._kinds.get(kind, (now, 0))
        left_out = 0
        if now - since >= _TELLING_SECONDS:
            left_out, since, times = max(times - _TOLD, 0), now, 0
        self._kinds[kind] = (since, times + 1)
        return left_out if times < _TOLD else None

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record passes."""
        left_out = self.count(str(record.msg))
        if left_out:
            record.msg = f"{record.msg} ({left_out:,} more were left out)"
        return left_out is not None


_log = logging.getLogger("uvicorn.error.bagwise")
_log.setLevel(logging.WARNING)
_log.addFilter(Seldom())


def tell_seldom(loop: asyncio.AbstractEventLoop) -> None:
    """Have a loop tell errors of one kind a few times only, such as that there are no descriptors left."""
    seldom = Seldom()

    def tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        left_out = seldom.count(str(context.get("message")))
        if left_out is None:
            return
        more = f" ({left_out:,} more were left out)" if left_out else ""
        loop.default_exception_handler({**context, "message": f"{context.get('message')}{more}"})

    loop.set_exception_handler(tell)


class Connection(H11Protocol):
    """A connection that is closed if no whole request comes in time, or if others need its place.

    uvicorn waits for headers without end, and takes connections until the process has no descriptors left. Here a new
    connection takes the place of the one that has waited longest for a request; where all are being answered, it is
    refused by ``limit_concurrency``.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.logger = _log
        self._deadline: asyncio.TimerHandle | None = None
        self._since = 0.0

    @property
    def _waits(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, and give up another one if there are too many."""
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > MOST_CONNECTIONS:
            waiting = [
                one for one in self.connections if isinstance(one, Connection) and one._waits and one is not self
            ]
            if waiting:
                min(waiting, key=lambda one: one._since).end()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request; the time it may take goes on."""
        super().data_received(data)
        if not self.transport.is_closing():
            self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop()
        super().connection_lost(exc)

    def end(self) -> None:
        """Close the connection at once."""
        self._stop()
        self.connections.discard(self)
        self.transport.abort()

    def _watch(self) -> None:
        if not self._waits:
            self._stop()
        elif self._deadline is None:
            self._since = self.loop.time()
            self._deadline = self.loop.call_later(_REQUEST_SECONDS, self.end)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
