"""`Refused`: a change that is not allowed now."""

from __future__ import annotations

from bagwise.errors import BagwiseError

__all__ = ["Refused"]


class Refused(BagwiseError):
    """A change that is not allowed now: the explorer is read-only (403), or the model has changed meanwhile (409)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
