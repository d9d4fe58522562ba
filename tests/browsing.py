"""What tests in a real browser share: Chromium, driven by Playwright, and axe-core."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from commands import SOURCES
from waiting import PATIENCE

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
AXE = Path(__file__).parent / "app" / "explorer" / "vendor" / "axe.min.js"  # axe-core 4.14.0
# for `pytestmark` of a module
IN_BROWSER = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="browser tests need Chromium: make browser"),
]


def playwright():
    """The synchronous API of Playwright; tests are skipped without it."""
    api = pytest.importorskip("playwright.sync_api", reason="browser tests need Playwright")
    api.expect.set_options(timeout=1000 * PATIENCE)
    return api


def violations(page):
    """What axe-core finds wrong with a page that was opened with ``bypass_csp``: pairs of a rule and an element."""
    page.add_script_tag(path=AXE)
    found = page.evaluate("async () => (await axe.run()).violations")
    return [(fault["id"], fault["nodes"][0]["html"]) for fault in found if fault["impact"] != "minor"]


@contextmanager
def explorer(*arguments):
    """Run ``bagwise explore`` with these arguments; gives its address."""
    command = [sys.executable, "-m", "bagwise", "explore", *map(str, arguments), "--no-open"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    line = server.stdout.readline()
    assert line, server.stderr.read()
    yield re.search(r"http\S+", line)[0]
    server.terminate()
    server.communicate(timeout=PATIENCE)
    assert server.returncode == 143


@contextmanager
def visits(browser, address):
    """Give a function that opens pages of the explorer; at the end there must have been no error of a script, no
    dialog, and no request to another place.
    """
    base = address.split("/?")[0]
    problems, contexts = [], []

    def seen(request):
        if not request.url.startswith((base, "blob:")):
            problems.append(request.url)

    def heard(message):
        if message.type in ("error", "warning"):
            problems.append(f"{message.text} ({message.location['url']})")

    def open_page(path="/", width=1280, height=900, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        context.set_default_timeout(1000 * PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("console", heard)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        page.on("request", seen)
        page.goto(address)
        page.wait_for_selector("main h1")
        if path != "/":
            page.goto(base + path)
            page.wait_for_selector("main h1")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not problems, problems
