"""What requests ask for, and answers to them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from bagwise._utils.json_text import parse_json
from bagwise.app.explorer.refused import Refused
from bagwise.app.explorer.workspace import Workspace
from bagwise.errors import BagwiseError

__all__ = [
    "MOST_ROWS",
    "answer_json",
    "answer_text",
    "answered",
    "as_json",
    "changing",
    "locked",
    "maybe_number",
    "maybe_value",
    "needed_number",
    "number_or",
    "numbers_of",
    "posting",
    "reading",
    "safe",
    "size_of",
]

MOST_ROWS = 200
_MOST_BYTES = 1 << 20  # of a change
_DIGITS = 9  # of numbers in addresses

Answer = Callable[[QueryParams, dict[str, Any]], Any]


def reading(answer: Answer) -> Callable[[Request], Response]:
    """Answer requests with what a function gives for the parameters of the address and of its path."""

    def respond(request: Request) -> Response:
        return answered(lambda: answer(request.query_params, request.path_params))

    return respond


def locked(space: Workspace, answer: Answer) -> Callable[[Request], Response]:
    """Answer requests one after the other, as far as they are for the same number of groups."""

    def held(query: QueryParams, path: dict[str, Any]) -> Any:
        with space.cut(size_of(query)).lock:
            return answer(query, path)

    return reading(held)


def answered(answer: Callable[[], Any]) -> Response:
    """Answer with JSON; errors of the library become their sentence."""
    try:
        return answer_json(answer())
    except Refused:
        raise
    except BagwiseError as error:
        return answer_json({"error": str(error)}, 400)


def safe(respond: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """Answer errors of the library by their sentence, and the status of something that is not there."""

    def responding(request: Request) -> Response:
        try:
            return respond(request)
        except BagwiseError as error:
            return answer_json({"error": str(error)}, 404)

    return responding


def changing(change: Callable[[dict[str, Any]], None], answer: Callable[[], Any]) -> Callable[[Request], Any]:
    """Make a change with the JSON object of a request, and answer with what a function gives then."""

    def changed(query: QueryParams, path: dict[str, Any], content: dict[str, Any]) -> Any:
        change(content)
        return answer()

    return posting(changed)


def posting(answer: Callable[[QueryParams, dict[str, Any], dict[str, Any]], Any]) -> Callable[[Request], Any]:
    """Answer a request with what a function gives for its parameters, as `reading`, and its JSON object."""

    def responded(request: Request, body: bytes) -> Response:
        try:
            return answered(lambda: answer(request.query_params, request.path_params, _content(body)))
        except Refused as error:
            return answer_json({"error": str(error)}, error.status)

    async def posted(request: Request) -> Response:
        try:
            body = await request.body()
        except ClientDisconnect:
            body = b""
        return await run_in_threadpool(responded, request, body)

    return posted


def _content(body: bytes) -> dict[str, Any]:
    """Read the JSON object of a request."""
    try:
        content = parse_json(body) if len(body) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise BagwiseError(f"A change must be a JSON object of at most {_MOST_BYTES >> 20} MB.")
    return content


def answer_json(content: Any, status: int = 200) -> Response:
    """Answer with JSON."""
    return answer_text(as_json(content), status)


def as_json(content: Any) -> str:
    """Write JSON without spaces."""
    return json.dumps(content, separators=(",", ":"))


def answer_text(text: str, status: int = 200) -> Response:
    """Answer with JSON that is written already."""
    return Response(text, status, media_type="application/json")


def maybe_number(query: QueryParams, name: str) -> int | None:
    """Return a number of the address, or None."""
    text = query.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        raise BagwiseError(f"{name} must be a whole number, got {text!r:.40}.")
    return int(text)


def maybe_value(query: QueryParams, name: str) -> float | None:
    """Return a number of the address that need not be whole, or None."""
    text = query.get(name, "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BagwiseError(f"{name} must be a number, got {text!r:.40}.")
    return value


def number_or(query: QueryParams, name: str, default: int) -> int:
    """Return a number of the address, or the default."""
    number = maybe_number(query, name)
    return default if number is None else number


def needed_number(query: QueryParams, name: str) -> int:
    """Return a number of the address; raise an error if there is none."""
    number = maybe_number(query, name)
    if number is None:
        raise BagwiseError(f"The address needs a number for {name}.")
    return number


def numbers_of(query: QueryParams, name: str) -> list[int]:
    """Return several numbers of the address, such as "3,7"; none if there are none."""
    text = query.get(name, "")
    parts = text.split(",") if text else []
    if len(parts) > MOST_ROWS or not all(
        part.isascii() and part.isdecimal() and len(part) <= _DIGITS for part in parts
    ):
        raise BagwiseError(f"{name} must be whole numbers with commas between them, got {text!r:.40}.")
    return list(dict.fromkeys(map(int, parts)))


def size_of(query: QueryParams) -> int | None:
    """Return the number of groups of the address; None: that of the model."""
    return maybe_number(query, "n")
