"""Requests to the application of the explorer, without a network."""

import copy
from urllib.parse import urlsplit

TOKEN, HOST = "secret", "127.0.0.1:8000"


async def respond(app, method, path, headers, body):
    parts = urlsplit(path)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": parts.path,
        "raw_path": parts.path.encode(),
        "root_path": "",
        "query_string": parts.query.encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }
    pieces = [body[k : k + 1_000_000] for k in range(0, max(len(body), 1), 1_000_000)]
    sent = []

    async def receive():
        if pieces:
            piece = pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(pieces)}
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    start = sent[0]
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, content


def with_seen(items, seen):
    """Items of the explorer of which others are known to be training items; None: that is not known."""
    other = copy.copy(items)
    other.seen = seen
    return other
