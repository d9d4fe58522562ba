"""A model of texts with their items, for the explorer."""

import asyncio
import json

import pytest

from bagwise.app.explorer import open_workspace
from bagwise.app.explorer.app import make_app
from bagwise.app.explorer.pages.search import MOST_BYTES
from bagwise.app.explorer.security import Guard
from browsing import explorer, visits
from explorer_requests import HOST, TOKEN, respond
from small_sources import write_text_folder


@pytest.fixture(scope="session")
def explored(tmp_path_factory):
    """The path of an index of texts, some of which have hostile names and contents."""
    from bagwise.app import FitOptions, run_fit
    from bagwise.app.index.item_index import index_of_fit

    folder = write_text_folder(tmp_path_factory.mktemp("explored") / "texts")
    hostile = folder / "tools" / "<img src=x onerror=alert(1)> & \u202etxt.txt"
    hostile.write_text("hammer saw \U0001f528 <script>alert(1)</script> nail steel \x07 handle")
    fit = run_fit(folder, FitOptions(n_groups=5, folds=3, criterion="aib"))  # which is wrong at 2 groups
    return index_of_fit(fit, None, folder, FitOptions()).save(folder.parent / "texts.index")


@pytest.fixture(scope="session")
def space(explored):
    """Items that are counted from their source."""
    return open_workspace(explored, explored.parent / "texts")


@pytest.fixture(scope="session")
def stored(explored):
    """The same items as their index knows them."""
    return open_workspace(explored)


@pytest.fixture
def ask(space):
    """Send a request to the guarded application; gives status, headers and body."""
    app = Guard(make_app(space), token=TOKEN, hosts=[HOST], most_bytes=MOST_BYTES)

    def send(path, method="GET", body=b"", **headers):
        given = {"host": HOST, "cookie": f"bagwise-8000={TOKEN}", "origin": f"http://{HOST}"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        return asyncio.run(respond(app, method, path, {k: v for k, v in given.items() if v is not None}, body))

    return send


@pytest.fixture
def answer(ask):
    """The JSON answer of an address."""

    def read(path, code=200, **options):
        status, _, body = ask(path, **options)
        assert status == code, body
        return json.loads(body)

    return read


@pytest.fixture(scope="module")
def address(explored):
    """The address of an explorer that serves the index; a module may have its own."""
    with explorer(explored) as opened:
        yield opened


@pytest.fixture
def visit(browser, address):
    """Open a page of the explorer; see `visits`."""
    with visits(browser, address) as open_page:
        yield open_page
