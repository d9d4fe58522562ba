"""Opening a model with its items, and serving the explorer until Ctrl-C."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bagwise._io.locks import EditedFile
from bagwise._utils.extras import require
from bagwise.app.explorer.comparison import Other
from bagwise.app.explorer.editor import Editor
from bagwise.app.explorer.items import Items
from bagwise.app.explorer.label_changes import LabelChanges
from bagwise.app.explorer.opening import PageFile
from bagwise.app.explorer.workspace import Origin, Workspace
from bagwise.app.index.index_words import CountedWords, IndexedWords
from bagwise.app.index.item_index import ItemIndex, is_item_index
from bagwise.app.modalities import MODALITIES
from bagwise.app.model import Model
from bagwise.app.options import FitOptions
from bagwise.app.training.comparing import same_vocabulary, same_weighting
from bagwise.app.training.items import count_words, open_items
from bagwise.app.training.seen import seen_items
from bagwise.errors import BagwiseError

if TYPE_CHECKING:
    from bagwise.app.modalities.vectorizers import Progress

__all__ = ["Server", "open_other", "open_workspace"]

_LOCAL = ("127.0.0.1", "localhost", "::1")
# Hosts that stand for all addresses of a machine, and those of them that lead to the machine itself.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def open_workspace(
    path: str | os.PathLike[str],
    source: Any = None,
    options: FitOptions | None = None,
    *,
    read_only: bool = False,
    network: Any = None,
    progress: Progress | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> Workspace:
    """Open a model or an index, and its items.

    Items of an index with answers and words are shown as the index knows them, and their source is opened when their
    content is. Words of other items are counted: those of a source that is given, and of indexes that compare items
    by something else than words.

    Parameters
    ----------
    path : path
        File of a model or an index.
    source : Collection or path, default=None
        Items. None: those of the index; a model has none.
    options : FitOptions, default=None
        How to read the items.
    read_only : bool, default=False
        Whether edits are refused. Otherwise they are saved to the file.
    network : path, default=None
        See `Model.load`.
    progress : callable, default=None
        See `fit_model`.
    note : callable, default=None
        Called with messages for the user.

    Returns
    -------
    workspace : Workspace
    """
    file_path = Path(path)
    if not file_path.exists():
        raise BagwiseError(f"{file_path} does not exist. Create a model with: bagwise fit SOURCE")
    file = EditedFile(file_path)  # first: what changes it from here on is noticed
    opened = ItemIndex.load(file_path, network=network) if is_item_index(file_path) else None
    model = Model.load(file_path, network=network) if opened is None else opened.model
    options = FitOptions() if options is None else options

    def ready(items: Items | None = None, *counted: Any) -> Workspace:
        space = _workspace(model, items, Origin(str(file_path), opened is not None, *counted))
        Editor(space, file, opened, read_only=read_only)
        space.labels = LabelChanges(file_path.with_name(f"{file_path.stem}.labels.csv"), read_only)
        return space

    known = opened if source is None and opened is not None and len(opened) else None
    if known is not None and known.answers is not None:
        words = IndexedWords.of(known)
        if words is not None:
            return ready(Items(known, words))
    if known is not None and known.source:
        if os.path.exists(known.source):
            source, options = known.source, FitOptions.from_mapping(known.reading)
        else:
            note(f"{known.source} does not exist any more, so no items are shown. Give their location as SOURCE.")
    if source is None:
        return ready()
    items, where = count_items(model, source, options, known, progress=progress, note=note)
    return ready(items) if items.stored else ready(items, where, options.changed())


def count_items(
    model: Model,
    source: Any,
    options: FitOptions,
    known: ItemIndex | None = None,
    *,
    progress: Progress | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> tuple[Items, str]:
    """Count the words of the items of a source, and return them and the source; see `open_workspace`.

    They are those of the index `known`, if that has the same ids, or of an index that is made here.
    """
    collection = open_items(model, source, options)
    n_samples = MODALITIES[model.modality].n_sampled
    counted = count_words(model, collection, options, n_samples=n_samples, progress=progress)
    if counted.skipped:
        note(f"{len(counted.skipped)} of {len(collection)} items could not be read and are not shown.")
        collection = collection[counted.kept]
    index, seen = known, None
    if index is None or tuple(collection.ids) != index.ids:
        index = ItemIndex.build(model, collection, counted.matrix, options=options, answered=False)
    if index.answers is None:
        seen = seen_items(model, collection, counted.matrix)
    words = CountedWords(model, counted.matrix)
    return Items(index, words, collection, counted.samples, seen), collection.source


def _workspace(model: Model, items: Items | None, origin: Origin) -> Workspace:
    space = Workspace(model, items, title=Path(origin.path).stem)
    space.origin = origin
    return space


def open_other(
    space: Workspace,
    path: str | os.PathLike[str],
    options: FitOptions | None = None,
    *,
    progress: Progress | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> Other:
    """Open a second model or index, to compare it with the model of a workspace on the same items.

    An index has answers of its own. For a model with the same vocabulary the words of the items are known already;
    others count theirs in the source of the items.

    Parameters
    ----------
    space : Workspace
        Of the first model. If it has no items, only groups are compared.
    path : path
        File of a model or an index.
    options, progress, note
        As for `open_workspace`.

    Returns
    -------
    other : Other
    """
    items, file_path = space.items, Path(path)
    if not file_path.exists():
        raise BagwiseError(f"{file_path} does not exist. Give a model or an index to compare with.")
    if items is None:
        return Other(file_path.stem, open_workspace(path, progress=progress, note=note))
    if not is_item_index(file_path):
        model = Model.load(path)
        counted = items.histograms is not None
        if same_vocabulary(space.model, model) and (counted or same_weighting(space.model, model)):
            return Other(file_path.stem, _workspace(model, None, Origin(str(file_path), False)), recounts=True)
        source, reading = _source_of(space, options)
        opened = open_workspace(path, source, reading, progress=progress, note=note)
    else:
        opened = open_workspace(path, progress=progress, note=note)
    other = Other(file_path.stem, opened)
    if opened.items is not None and not (other.places(space) >= 0).any():
        ids = [f"{one.ids[0]!r:.60}" for one in (space, opened)]
        raise BagwiseError(
            f"{file_path} has none of the items that are shown: ids there are such as {ids[1]}, here such as {ids[0]}. "
            "Items are matched by their ids: give an index of the same source, or a model."
        )
    return other


def _source_of(space: Workspace, options: FitOptions | None) -> tuple[Any, FitOptions | None]:
    """Return where the items of a workspace can be read, and how."""
    assert space.items is not None
    if space.items.collection is not None:
        return space.items.collection, options
    index = space.items.index
    if not index.source or not os.path.exists(index.source):
        raise BagwiseError(
            f"The other model has other words, which have to be counted, but {index.source or 'the source'} of the "
            "items does not exist any more. Give their location as SOURCE."
        )
    return index.source, FitOptions.from_mapping(index.reading)


class Server:
    """Serves a workspace to one browser. Needs ``bagwise[app]``.

    The port is bound when the server is made, so that `address` is known before `run` is called.

    Parameters
    ----------
    space : Workspace
    host : str, default="127.0.0.1"
    port : int, default=0
        0: any free port.
    """

    def __init__(self, space: Workspace, host: str = "127.0.0.1", port: int = 0) -> None:
        for module in ("starlette", "uvicorn"):
            require(module, "app", "The explorer")
        from bagwise.app.explorer.app import make_app, prepare
        from bagwise.app.explorer.pages.search import MOST_BYTES
        from bagwise.app.explorer.security import Guard, new_token

        def edited(new: Workspace) -> None:
            threading.Thread(target=prepare, args=(new,), daemon=True).start()

        self._prepare = partial(prepare, space)
        self._running: Any = None
        self.space = space
        (space.editor or Editor(space)).changed = edited
        self._socket = _bound(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self.token = new_token()
        names = {host, *_LOCAL} if host in _LOCAL else {host, socket.gethostname(), socket.getfqdn(), *_LOCAL}
        bare = [f"[{name}]" if ":" in name else name for name in names]
        hosts = [f"{name}:{self.port}" for name in bare] + (bare if self.port == 80 else [])
        everywhere = host in _EVERYWHERE
        self.app = Guard(make_app(space), token=self.token, hosts=hosts, most_bytes=MOST_BYTES, any_address=everywhere)
        self._page_files: list[PageFile] = []

    @property
    def address(self) -> str:
        """The address to open, with its token."""
        return self._address(self.token)

    def _address(self, token: str) -> str:
        name = _EVERYWHERE.get(self.host, self.host)
        host = f"[{name}]" if ":" in name else name
        return f"http://{host}:{self.port}/?token={token}"

    def open_page(self) -> bool:
        """Open the page in the browser of this machine; return whether there is one.

        The browser gets the name of a private file with an address that works once, see `PageFile`. The file is removed
        when that address was used, and when the server ends.
        """
        import webbrowser

        file = PageFile(self._address(self.app.one_time(lambda: file.remove())))
        self._page_files.append(file)
        opened = webbrowser.open(file.url)
        if not opened:
            file.remove()
        return opened

    def run(self, on_start: Callable[[], None] = lambda: None, *, freeze: bool = True) -> None:
        """Serve until Ctrl-C, SIGTERM or `stop`; `on_start` is called when the server answers.

        With `freeze`, for a process that does nothing else, garbage collections leave out what is there at the start.
        """
        import uvicorn

        from bagwise.app.explorer.connections import BACKLOG, MOST_CONNECTIONS, Connection, tell_seldom

        def prepared() -> None:
            self._prepare()
            if freeze:
                gc.freeze()  # collections need not look at 100,000 items again and again

        begin = threading.Thread(target=prepared, daemon=True).start

        class Running(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                tell_seldom(asyncio.get_running_loop())
                await super().startup(sockets)
                on_start()
                begin()

        config = uvicorn.Config(
            self.app,
            loop="asyncio",
            http=Connection,
            ws="none",
            lifespan="off",
            log_level="warning",
            server_header=False,
            backlog=BACKLOG,
            limit_concurrency=MOST_CONNECTIONS + 1,
            timeout_graceful_shutdown=2,
        )
        self._running = Running(config)
        try:
            self._running.run(sockets=[self._socket])
        finally:
            self._socket.close()
            for file in self._page_files:
                file.remove()

    def stop(self) -> None:
        """End `run`, which another thread is in."""
        if self._running is not None:
            self._running.should_exit = True


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small answers at once only on sockets that say they are TCP
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except (OSError, OverflowError) as error:
        bound.close()
        raise BagwiseError(
            f"The explorer cannot listen on {host}, port {port}: {getattr(error, 'strerror', None) or error}. "
            "Choose another host or port; port 0 is any free one."
        ) from error
    return bound
