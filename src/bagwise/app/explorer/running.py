"""The explorer from Python: `Model.explore` serves a model in the background, until it is closed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

from bagwise.app.explorer.items import Items
from bagwise.app.explorer.serving import Server, count_items
from bagwise.app.explorer.workspace import Workspace
from bagwise.app.index.index_words import CountedWords, IndexedWords
from bagwise.app.index.item_index import index_of_fit
from bagwise.app.model import Model
from bagwise.app.model.editing import unedited_model
from bagwise.app.options import FitOptions
from bagwise.app.training.fit import Fit
from bagwise.errors import BagwiseError

if TYPE_CHECKING:
    from bagwise.app.modalities.vectorizers import Progress

__all__ = ["Explorer", "explore", "workspace_of"]

_STARTING = 30.0  # seconds


class Explorer:
    """A running explorer: `address` opens it in the browser of this machine, `model` has its edits, `close` ends it.

    Use it in a ``with`` block to have it closed at its end.

    Parameters
    ----------
    server : Server
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._started = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="bagwise explorer", daemon=True)
        self._thread.start()
        self._started.wait(_STARTING)
        if self._problem is not None:
            raise BagwiseError(f"The explorer could not be started: {self._problem}") from self._problem

    def _run(self) -> None:
        try:
            self._server.run(self._started.set, freeze=False)
        except BaseException as error:  # shown by the thread that waits
            self._problem = error
        finally:
            self._started.set()

    @property
    def address(self) -> str:
        """The address to open, with its token."""
        return self._server.address

    @property
    def model(self) -> Model:
        """The model with the edits that were made in the explorer."""
        editor = self._server.space.editor
        assert editor is not None  # a server makes one
        return editor.current.model

    def open_page(self) -> bool:
        """Open it in the browser of this machine; return whether there is one. See `Server.open_page`."""
        return self._server.open_page()

    @property
    def running(self) -> bool:
        """Whether it answers."""
        return self._thread.is_alive()

    def wait(self) -> None:
        """Wait until it is closed; Ctrl-C closes it."""
        try:
            while self.running:
                self._thread.join(0.5)
        except KeyboardInterrupt:
            self.close()

    def close(self) -> None:
        """End the explorer. Closing it again does nothing."""
        self._server.stop()
        self._thread.join()

    def __enter__(self) -> Explorer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Explorer: {self.address if self.running else 'closed'}>"

    def _repr_html_(self) -> str:
        if not self.running:
            return "<p>The explorer is closed.</p>"
        link = f'<a href="{escape(self.address)}" target="_blank" rel="noopener">{escape(self.address)}</a>'
        return f"<p>Explorer: {link}; <code>.close()</code> ends it.</p>"


def explore(
    model: Model,
    source: Any = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    block: bool = False,
    open_page: bool | None = None,
    progress: Progress | None = None,
) -> Explorer:
    """Serve a model with its items; see `Model.explore`."""
    running = Explorer(Server(workspace_of(model, source, progress=progress), host, port))
    if open_page is None:
        open_page = "ipykernel" not in sys.modules  # a notebook shows the link
    if open_page:
        running.open_page()
    if block:
        print(f"Explorer: {running.address}\nCtrl-C ends it.", flush=True)
        running.wait()
    return running


def workspace_of(
    model: Model,
    source: Any = None,
    options: FitOptions | None = None,
    *,
    progress: Progress | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> Workspace:
    """Return a workspace of a model in memory, with the items of a source, or those it was fitted to, or none.

    Parameters
    ----------
    model : Model
    source : Collection or path, default=None
        None: the items of a model that `fit_model` returned; other models have none.
    options, progress, note
        As for `open_workspace`.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise import fit_model
    >>> from bagwise.sources import Collection
    >>> rows = Collection.from_matrix(np.array([[4, 1, 0], [1, 0, 5]] * 3), list("abcdef"), [("cat",), ("dog",)] * 3)
    >>> space = workspace_of(fit_model(rows, n_groups=2, folds=3))
    >>> len(space.items), space.cut().error
    (6, 0.0)
    """
    title = str(model.provenance.get("source", ""))
    if source is not None:
        read = FitOptions() if options is None else options
        return Workspace(model, count_items(model, source, read, progress=progress, note=note)[0], title=title)
    items = None if model.fit_ is None else _items_of_fit(model, model.fit_)
    return Workspace(model, items, title=title)


def _items_of_fit(model: Model, fit: Fit) -> Items:
    """Return the items of a fit, with the answers of cross-validation where groups are still those of the fit."""
    same = model.hierarchy is fit.model.hierarchy
    folds = fit.folds if unedited_model(model).hierarchy is fit.model.hierarchy else ()
    fit = replace(fit, model=model, held_out_top=fit.held_out_top if same else None, folds=folds)
    data = fit.data
    index = index_of_fit(fit, None, data.collection, FitOptions())
    words = IndexedWords.of(index) or CountedWords(model, data.histograms)
    return Items(index, words, data.collection, data.samples or None)
