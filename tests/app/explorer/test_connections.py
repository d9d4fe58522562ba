"""Many connections, of which none asks for anything, do not silence the explorer, nor fill its log."""

import asyncio
import contextlib
import logging
import os
import re
import socket
import subprocess
import sys
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from bagwise.app.explorer import Server, connections
from bagwise.app.explorer.connections import Seldom, tell_seldom
from bagwise.app.explorer.running import Explorer
from commands import SOURCES
from waiting import PATIENCE, until

HALF = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: "
N_FILES, N_HALF = 320, 500  # descriptors of the server, and connections that are opened to it

START = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
from bagwise.app.cli import main
sys.argv = ["bagwise", "explore", sys.argv[2], "--no-open"]
main()
"""


def connected(address):
    parts = urlsplit(address)
    return socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE)


def closed(one):
    """Whether the other side closed a connection; waits for it, or for bytes."""
    try:
        return one.recv(1000) == b""
    except ConnectionError:
        return True


@pytest.mark.skipif(os.name != "posix", reason="limits of descriptors")
def test_half_sent_headers_silence_neither_the_server_nor_its_log(explored):
    command = [sys.executable, "-c", START, str(N_FILES), str(explored)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    address = re.search(r"http\S+", server.stdout.readline())[0]
    with contextlib.ExitStack() as held:
        for _ in range(N_HALF):
            one = held.enter_context(connected(address))
            with contextlib.suppress(ConnectionError):  # it had to make place for others already
                one.sendall(HALF)
        assert urlopen(address, timeout=PATIENCE).status == 200  # while they are there
    assert urlopen(address, timeout=PATIENCE).status == 200
    server.terminate()
    _, told = server.communicate(timeout=PATIENCE)
    assert server.returncode == 143
    assert len(told) < 10_000


def ended(one):
    """Whether the other side ends a connection on which one byte comes after the other."""
    one.settimeout(0.02)

    def closes():
        try:
            one.sendall(b"x")
            return one.recv(1000) == b""
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    until(closes)
    return True


def test_a_request_that_does_not_end_is_ended(space, monkeypatch):
    monkeypatch.setattr(connections, "_REQUEST_SECONDS", 0.2)
    with Explorer(Server(space)) as running, connected(running.address) as silent, connected(running.address) as half:
        with contextlib.suppress(ConnectionError):  # it was too late
            half.sendall(HALF)
        assert closed(silent)
        assert ended(half)  # more of the header does not prolong it
        monkeypatch.undo()
        with pytest.raises(HTTPError, match="403"):
            urlopen(running.address.split("?")[0], timeout=PATIENCE)


def test_what_comes_after_a_refusal_is_not_read_for_ever(space, monkeypatch):
    with Explorer(Server(space)) as running, connected(running.address) as one:
        host = urlsplit(running.address).netloc
        request = f"POST /api/search HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000000\r\n\r\n".encode()
        one.sendall(request[:1])
        monkeypatch.setattr(connections, "_REQUEST_SECONDS", 0.2)  # of what comes next
        one.sendall(request[1:])
        assert one.recv(1000).startswith(b"HTTP/1.1 403")
        assert ended(one)


def test_the_oldest_connection_makes_place(space, monkeypatch):
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 3)
    with Explorer(Server(space)) as running, contextlib.ExitStack() as held:
        held_open = [held.enter_context(connected(running.address)) for _ in range(4)]
        assert closed(held_open[0])
        host = urlsplit(running.address).netloc
        for one in held_open[1:]:
            one.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert one.recv(1000).startswith(b"HTTP/1.1 403")


def test_messages_of_one_kind_are_counted_after_the_first_few():
    now = [0.0]
    seldom = Seldom(lambda: now[0])

    def told(text):
        record = logging.LogRecord("x", logging.WARNING, "", 1, text, (), None)
        return record.getMessage() if seldom.filter(record) else None

    assert [told("one") for _ in range(1000)].count("one") == 5
    assert told("another") == "another"
    now[0] = 61.0
    assert told("one") == "one (995 more were left out)"
    assert told("one") == "one"


def test_errors_of_the_loop_are_told_seldom(caplog):
    loop = asyncio.new_event_loop()
    tell_seldom(loop)
    for _ in range(100):
        loop.call_exception_handler({"message": "socket.accept() out of system resource"})
    loop.close()
    assert len(caplog.records) == 5
