"""The browser is given the name of a private file; the file has an address that works once."""

import os
import re
import subprocess
import sys
import tempfile
import webbrowser
from html import unescape
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import url2pathname, urlopen

import pytest
from typer.testing import CliRunner

from bagwise.app.cli.app import app
from bagwise.app.explorer import Server
from bagwise.app.explorer.running import Explorer
from browsing import IN_BROWSER, playwright
from commands import SOURCES
from waiting import PATIENCE


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where temporary files are made."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def given(monkeypatch):
    """What browsers are told to open; `given.answer` is what opening returns."""

    class Given(list):
        answer = True

    told = Given()
    monkeypatch.setattr(webbrowser, "open", lambda url: (told.append(url), told.answer)[1])
    return told


def path_of(url):
    assert url.startswith("file://")
    return Path(url2pathname(urlsplit(url).path))


def address_in(path):
    return unescape(re.search(r'content="0; url=([^"]*)"', path.read_text())[1])


def status(address):
    try:
        return urlopen(address, timeout=PATIENCE).status
    except HTTPError as error:
        return error.code


def test_the_browser_gets_a_private_file_with_an_address_for_one_use(space, folder, given):
    with Explorer(Server(space)) as running:
        assert running.open_page()
        path = path_of(given[0])
        assert path.parent == folder.resolve()
        assert running._server.token not in given[0] + path.read_text()
        if os.name == "posix":
            assert path.stat().st_mode & 0o777 == 0o600
        once = address_in(path)
        assert once.split("=")[0] == running.address.split("=")[0]
        assert once.split("=")[1] not in given[0]
        assert status(once) == 200
        assert not path.exists()
        assert status(once) == 403
        assert status(running.address) == status(running.address) == 200


def test_the_file_goes_with_the_explorer_if_no_browser_comes(space, folder, given):
    with Explorer(Server(space)) as running:
        running.open_page()
        running.open_page()
        assert len(list(folder.iterdir())) == 2
    assert list(folder.iterdir()) == []


def test_the_file_goes_if_there_is_no_browser(space, folder, given):
    given.answer = False
    with Explorer(Server(space)) as running:
        assert not running.open_page()
        assert list(folder.iterdir()) == []


def test_the_file_goes_with_a_process_that_does_not_close_the_explorer(tmp_path):
    script = (
        "import numpy as np, webbrowser\n"
        "from bagwise import Model, fit_model\n"
        "from bagwise.sources import Collection\n"
        "webbrowser.open = lambda url: print(url) or True\n"
        "rows = Collection.from_matrix(np.array([[4, 1, 0], [1, 0, 5]] * 3), labels=[('cat',), ('dog',)] * 3)\n"
        "running = fit_model(rows, n_groups=2, folds=0).explore()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), "TMPDIR": str(tmp_path), "TEMP": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    path = path_of(done.stdout.strip())
    assert path.parent == tmp_path.resolve()
    assert not path.exists()


@pytest.mark.parametrize("opened", [True, False])
def test_the_command_prints_the_address_that_can_be_used_again(explored, monkeypatch, folder, given, opened):
    held = {}

    def run(self, started):
        started()
        for thread in held["threads"]:
            thread.join()
        held.update(token=self.token, files=[file.path.exists() for file in self._page_files])

    import threading

    class Kept(threading.Thread):
        def start(self):
            held.setdefault("threads", []).append(self)
            super().start()

    given.answer = opened
    monkeypatch.setattr(Server, "run", run)
    monkeypatch.setattr("bagwise.app.cli.exploring.threading.Thread", Kept)
    told = CliRunner().invoke(app, ["explore", str(explored)])
    assert told.exit_code == 0
    assert f"?token={held['token']}" in told.stdout
    assert held["token"] not in given[0]
    assert held["files"] == [opened]
    assert ("No browser could be opened here" in told.stderr) == (not opened)


class TestInChromium:
    pytestmark = IN_BROWSER

    def test_the_file_leads_into_the_explorer(self, space, folder, given, browser):
        with Explorer(Server(space)) as running:
            running.open_page()
            page = browser.new_page()
            page.goto(given[0])
            playwright().expect(page.locator("main h1")).to_have_text("Overview")
            assert page.url == running.address.split("?")[0]
            assert list(folder.iterdir()) == []
            page.close()

    def test_a_link_of_another_site_leads_into_the_explorer(self, space, browser, tmp_path):
        with Explorer(Server(space)) as running:
            notebook = tmp_path / "notebook.html"
            notebook.write_text(running._repr_html_())
            page = browser.new_page()
            page.goto(notebook.as_uri())
            with page.expect_popup() as opened:
                page.click("a")
            playwright().expect(opened.value.locator("main h1")).to_have_text("Overview")
            opened.value.close()
            page.close()
