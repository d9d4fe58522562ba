"""Only the browser that was given the token is answered."""

import json

import pytest

from bagwise.explorer.app import MOST_BYTES
from explorer_requests import HOST, TOKEN

PATHS = ("/", "/groups", "/static/main.js", "/colors.css", "/api/overview", "/api/items/0", "/api/items/0/picture")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("cookie", [None, "", "bagwise-8000=wrong", f"bagwise-8001={TOKEN}", f"x={TOKEN}"])
def test_without_the_cookie_nothing_is_answered(ask, path, cookie):
    status, headers, body = ask(path, cookie=cookie)
    assert status == 403
    assert b"token" in body
    assert "set-cookie" not in headers


@pytest.mark.parametrize("host", [None, "", "evil.example", "evil.example:8000", "127.0.0.1", "127.0.0.1:8001"])
def test_other_hosts_are_refused(ask, host):
    assert ask("/api/overview", host=host)[0] == 421


def test_the_token_becomes_a_cookie_and_leaves_the_address(ask):
    status, headers, _ = ask(f"/items?n=3&token={TOKEN}", cookie=None)
    assert status == 303
    assert headers["location"] == "/items?n=3"
    assert headers["set-cookie"] == f"bagwise-8000={TOKEN}; Path=/; HttpOnly; SameSite=Strict"
    status, headers, _ = ask("/?token=wrong", cookie=None)
    assert status == 403
    assert "set-cookie" not in headers


def test_the_token_leads_nowhere_else(ask):
    _, headers, _ = ask(f"//evil.example/?token={TOKEN}", cookie=None)
    assert headers["location"].startswith("/")
    assert not headers["location"].startswith("//")


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", f"https://{HOST}"])
def test_requests_of_other_pages_change_and_find_nothing(ask, origin):
    assert ask("/api/search", method="POST", body=b"hammer", origin=origin)[0] == 403


def test_long_uploads_are_refused(ask):
    status, _, body = ask("/api/search", method="POST", body=b"x", content_length=str(MOST_BYTES + 1))
    assert (status, body) == (413, b"Uploads are limited to 32 MB.")
    assert ask("/api/search", method="POST", body=b"x", content_length="-1")[0] == 400
    # without a length, the body is cut off
    status, _, body = ask("/api/search", method="POST", body=b"x" * (MOST_BYTES + 1))
    assert status == 413
    assert json.loads(body) == {"error": "Uploads are limited to 32 MB."}


def test_every_answer_has_a_strict_policy(ask):
    for path in (*PATHS, "/nothing", "/api/nothing"):
        for cookie in (f"bagwise-8000={TOKEN}", None):
            _, headers, _ = ask(path, cookie=cookie)
            assert headers["content-security-policy"].startswith(
                "default-src 'none'; script-src 'self'; style-src 'self'"
            )
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd"])
def test_static_files_are_those_of_the_package(ask, path):
    assert ask(path)[0] == 404
