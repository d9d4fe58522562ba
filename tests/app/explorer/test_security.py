"""Only the browser that was given the token is answered."""

import asyncio
import json
import re
from html import unescape
from importlib import resources

import pytest
from typer.testing import CliRunner

from bagwise.app.cli.app import app
from bagwise.app.explorer import Server, serving
from bagwise.app.explorer.app import make_app
from bagwise.app.explorer.pages.search import MOST_BYTES
from bagwise.app.explorer.security import Guard
from explorer_requests import HOST, TOKEN, respond

PATHS = (
    "/",
    "/groups",
    "/static/main.js",
    "/colors.css",
    "/favicon.ico",
    "/api/overview",
    "/api/items/0",
    "/api/items/0/picture",
)


def led_to(body):
    """Where the page that the token is answered with leads to."""
    return unescape(re.search(r'http-equiv="refresh" content="0; url=([^"]*)"', body.decode())[1])


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
    status, headers, body = ask(f"/items?n=3&token={TOKEN}", cookie=None)
    assert status == 200
    assert led_to(body) == "/items?n=3"
    assert TOKEN.encode() not in body
    assert headers["set-cookie"] == f"bagwise-8000={TOKEN}; Path=/; HttpOnly; SameSite=Strict"
    status, headers, _ = ask("/?token=wrong", cookie=None)
    assert status == 403
    assert "set-cookie" not in headers


@pytest.mark.parametrize("query", ['"><script>alert(1)</script>', "%22%3E%3Cscript%3E", "' onload=alert(1)"])
def test_what_the_token_leads_to_is_no_markup(ask, query):
    _, _, body = ask(f"/items?find={query}&token={TOKEN}", cookie=None)
    assert b"<script" not in body
    assert body.count(b'"') == ask(f"/items?find=x&token={TOKEN}", cookie=None)[2].count(b'"')


def test_a_token_for_one_use_works_once(space):
    used = []
    guard = Guard(make_app(space), token=TOKEN, hosts=[HOST], most_bytes=10)
    token, other = guard.one_time(lambda: used.append(1)), guard.one_time(lambda: used.append(2))
    assert len({token, other, TOKEN}) == 3

    def asked(token, **more):
        return asyncio.run(respond(guard, "GET", f"/?token={token}", {"host": HOST, **more}, b""))

    status, headers, _ = asked(token)
    assert (status, used) == (200, [1])
    assert headers["set-cookie"] == f"bagwise-8000={TOKEN}; Path=/; HttpOnly; SameSite=Strict"
    status, headers, body = asked(token)
    assert (status, used) == (403, [1])
    assert b"was used already" in body
    assert "set-cookie" not in headers
    assert asked(other)[0] == 200
    assert asked(TOKEN)[0] == asked(TOKEN)[0] == 200  # the one that is printed can be used again
    cookie = {"cookie": f"bagwise-8000={token}"}  # it is no cookie
    assert asyncio.run(respond(guard, "GET", "/colors.css", {"host": HOST, **cookie}, b""))[0] == 403


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example/", "/a\\..", "/\u0142"])
def test_the_token_leads_nowhere_else(ask, path):
    status, _, body = ask(f"{path}?token={TOKEN}", cookie=None)
    assert status == 200
    place = led_to(body)
    assert place.startswith("/")
    assert not place.startswith("//")
    assert "\\" not in place
    assert place.isascii()


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


@pytest.mark.parametrize(
    "host", ["192.168.1.5:8000", "[fe80::1]:8000", "evil.example:8000", "192.168.1.5.evil.example:8000"]
)
def test_a_server_on_all_addresses_is_reached_by_each_of_them_but_by_no_foreign_name(space, host):
    app = Guard(make_app(space), token=TOKEN, hosts=[HOST], most_bytes=10, any_address=True)
    headers = {"host": host, "cookie": f"bagwise-8000={TOKEN}"}
    status, *_ = asyncio.run(respond(app, "GET", "/colors.css", headers, b""))
    assert status == (421 if "evil" in host else 200)


def test_addresses_of_servers_on_all_addresses_and_on_port_80(space, monkeypatch):
    class Bound:
        def getsockname(self):
            return "", 80

    monkeypatch.setattr(serving, "_bound", lambda host, port: Bound())
    assert Server(space, "0.0.0.0").address.startswith("http://127.0.0.1:80/")
    server = Server(space)
    for host in ("127.0.0.1", "localhost:80", "[::1]"):  # browsers leave port 80 out
        headers = {"host": host, "cookie": f"bagwise-80={server.token}"}
        assert asyncio.run(respond(server.app, "GET", "/colors.css", headers, b""))[0] == 200


@pytest.mark.parametrize(("given", "says"), [([], "see the items and edit"), (["--read-only"], "can see the items.")])
def test_a_server_that_others_reach_warns(explored, monkeypatch, given, says):
    monkeypatch.setattr(Server, "run", lambda self, started: started())
    command = ["explore", str(explored), "--no-open", *given]
    told = CliRunner().invoke(app, [*command, "--host", "0.0.0.0"])
    assert told.exit_code == 0
    assert says in told.stderr
    assert "Explorer: http://127.0.0.1:" in told.stdout
    assert "knows the token" not in CliRunner().invoke(app, command).output


def test_pages_are_small(space):
    folders = [resources.files(package).joinpath("static") for package in ("bagwise.app.explorer", "bagwise.display")]
    files = [f"/static/{file.name}" for folder in folders for file in folder.iterdir()]
    served = make_app(space)
    paths = ("/", "/colors.css", "/favicon.ico", *files)
    answers = [asyncio.run(respond(served, "GET", path, {}, b"")) for path in paths]
    assert {status for status, *_ in answers} == {200}
    assert sum(len(body) for *_, body in answers) < 500_000


def test_long_texts_are_not_searched_for(ask):
    status, _, body = ask("/api/search", method="POST", body=b"hammer " * 800_000)
    assert status == 400
    assert "limited to 4 MB" in json.loads(body)["error"]
