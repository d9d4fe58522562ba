"""Who may talk to the explorer: one browser on this machine, which was given the address with the token."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from bagwise.app.explorer.opening import leading_page

__all__ = ["POLICY", "Guard", "new_token"]

_Scope = MutableMapping[str, Any]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_SAFE_METHODS = ("GET", "HEAD")


def new_token() -> str:
    """Return a random token for the address of the explorer."""
    return secrets.token_urlsafe(24)


class Guard:
    """ASGI middleware that answers only requests of the browser that was given the token.

    - The Host header must be one of `hosts`, so that no foreign name that resolves to this machine is answered.
    - A first request with ``?token=`` sets a cookie and leads to the same address without it; all others need the
      cookie. A token of `one_time` works once.
    - Requests that change something must come from a page of the explorer, by the Origin header.
    - Bodies are at most `most_bytes` long.
    - All answers have a strict content security policy, and are not stored by the browser.

    Parameters
    ----------
    app : ASGI application
    token : str
    hosts : iterable of str
        Accepted values of the Host header, such as "127.0.0.1:8000".
    most_bytes : int
        Longest body of a request.
    any_address : bool, default=False
        Whether numbers are accepted in place of names: no page of another site has an address of numbers, so that
        this is safe for a server that listens on all addresses of a machine.
    """

    def __init__(
        self, app: Any, *, token: str, hosts: Iterable[str], most_bytes: int, any_address: bool = False
    ) -> None:
        self._app = app
        self._token = token
        self._hosts = frozenset(host.lower() for host in hosts)
        self._most_bytes = most_bytes
        self._any_address = any_address
        self._one_time: dict[str, Callable[[], None]] = {}

    def one_time(self, used: Callable[[], None]) -> str:
        """Return a token that lets one browser in, once; `used` is called when it did."""
        token = new_token()
        self._one_time[token] = used
        return token

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "").lower()
        name, port = _parts(host)
        if host not in self._hosts and not (self._any_address and _is_address(name)):
            await _reply(send, 421, "This address is not the one that the explorer was started with.")
            return
        cookie = f"bagwise-{port}"
        tokens = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if tokens is not None and scope["method"] == "GET":
            await self._let_in(scope, send, cookie, tokens[-1])
            return
        if not self._same(_cookies(headers.get("cookie", "")).get(cookie, "")):
            await _reply(send, 403, "Open the address that bagwise explore printed, with its token.")
            return
        if scope["method"] not in _SAFE_METHODS and headers.get("origin", "").lower() != f"http://{host}":
            await _reply(send, 403, "This request does not come from a page of the explorer.")
            return
        if not headers.get("content-length", "0").isdecimal():
            await _reply(send, 400, "The length of the request is not a number.")
            return
        if int(headers.get("content-length", "0")) > self._most_bytes:
            await _reply(send, 413, f"Uploads are limited to {self._most_bytes >> 20} MB.")
            return
        await self._app(scope, self._limited(receive), _with_headers(send))

    async def _let_in(self, scope: _Scope, send: _Send, cookie: str, text: str) -> None:
        if not (self._same(text) or self._spend(text)):
            sentence = "The token is wrong, or was used already. Open the address that bagwise explore printed."
            await _reply(send, 403, sentence)
            return
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        rest = urlencode([(name, value) for name, values in query.items() if name != "token" for value in values])
        path = urlsplit(scope["path"]).path or "/"
        path = "/" + quote(path.lstrip("/\\"))  # "//host" and "/\\host" would lead elsewhere
        extra = {
            "content-type": "text/html; charset=utf-8",
            "set-cookie": f"{cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict",
        }
        await _reply(send, 200, leading_page(f"{path}?{rest}" if rest else path), extra)

    def _spend(self, text: str) -> bool:
        """Whether a token is one of those that work once, which it is not after that."""
        known = next((token for token in list(self._one_time) if _equal(text, token)), None)
        used = None if known is None else self._one_time.pop(known, None)
        if used is None:
            return False
        used()
        return True

    def _same(self, text: str) -> bool:
        return _equal(text, self._token)

    def _limited(self, receive: _Receive) -> _Receive:
        """Count the bytes of a body without a stated length; a client that sends more is cut off."""
        seen = 0

        async def limited() -> MutableMapping[str, Any]:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most_bytes:
                return {"type": "http.disconnect"}
            return message

        return limited


def _equal(text: str, token: str) -> bool:
    return hmac.compare_digest(text.encode("utf-8", "replace"), token.encode())


def _parts(host: str) -> tuple[str, str]:
    """Return name and port of a Host header; browsers leave port 80 out."""
    name, sign, port = host.rpartition(":")
    return (name, port) if sign and port.isdecimal() else (host, "80")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _cookies(header: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in header.split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _with_headers(send: _Send) -> _Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            known = {name.lower() for name, _ in message.get("headers", ())}
            more = [(name.encode(), value.encode()) for name, value in _HEADERS.items() if name.encode() not in known]
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return sending


async def _reply(send: _Send, status: int, sentence: str, extra: MutableMapping[str, str] | None = None) -> None:
    headers = {"content-type": "text/plain; charset=utf-8", **_HEADERS, **(extra or {})}
    raw = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": sentence.encode()})
