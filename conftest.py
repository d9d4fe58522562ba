"""What doctests of pages and docstrings run in."""

import os
from collections.abc import Iterator

import pytest

os.environ["COLUMNS"] = (
    "80"  # of terminals, so that tables are as wide with and without one, and on any number of workers
)


@pytest.fixture(autouse=True)
def in_an_empty_folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run examples of docstrings and pages where readers would, outside of the repository; they leave nothing there."""
    if not isinstance(request.node, pytest.DoctestItem):
        yield
        return
    folder = request.getfixturevalue("tmp_path")
    monkeypatch.chdir(folder)
    yield
    assert os.listdir(folder) == []
