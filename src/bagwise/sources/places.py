"""Files of folders and archives, and their labels and splits by folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bagwise._io.storage import Url, as_place, storage_errors
from bagwise._utils.threads import map_in_order
from bagwise.errors import BagwiseError, argument
from bagwise.sources.annotations import LabelFile
from bagwise.sources.archives import check_name, is_archive, list_archive
from bagwise.sources.collection import Collection, Contents, Root
from bagwise.sources.contents import FileContent, UrlContent, version_of
from bagwise.sources.item_tables import item_table, numbers, to_bytes
from bagwise.sources.items import Content
from bagwise.sources.limits import Limits
from bagwise.sources.roles import SPLIT_FOLDERS

__all__ = [
    "Folder",
    "Listing",
    "annotated",
    "arrange",
    "by_folder",
    "chosen_endings",
    "ending",
    "is_file",
    "linked_notes",
    "list_place",
]
__all__ += ["nothing_found", "with_endings"]

# Folders by URL that are listed at a time, and how deep they may be.
_AT_A_TIME, _MOST_LEVELS = 16, 100
_NAMED = 5  # links in a note


@dataclass(frozen=True)
class Folder(Root):
    """The files of a folder of this machine, or by URL, by their names: paths below it."""

    location: Any  # an absolute path, or a URL
    prefix: str = ""  # by URL: what comes before a name in paths of the file system

    def content(self, id: str, url: Any = None, offset: Any = None, size: Any = None, version: Any = None) -> Content:
        """Return a file."""
        if isinstance(self.location, Url):
            return UrlContent(self.location, f"{self.prefix}{id}", size, version)
        return FileContent(os.path.join(self.location, id))


class Listing(Mapping[str, Content], os.PathLike[str]):
    """The files of a folder, an archive or a single file, by name: a place that was listed.

    Names are relative, with ``/`` between folders, in order of code points. Contents are made when they are asked for.
    `ignored` is what is there, but is no regular file; `about` has size and version of files by URL.
    """

    def __init__(
        self,
        location: Any,
        names: Iterable[str],
        root: Root,
        ignored: Iterable[str] = (),
        about: Mapping[str, tuple[int | None, str | None]] | None = None,
    ) -> None:
        visible: list[str] = []
        hidden: list[str] = []
        for name in names:
            (hidden if _is_hidden(name) else visible).append(name)
        self.location, self.root, self._about = location, root, about
        self.ignored = sorted([*ignored, *hidden])
        self._names = dict.fromkeys(sorted(visible))

    def __fspath__(self) -> str:
        return os.fspath(self.location)

    def __getitem__(self, name: str) -> Content:
        if name not in self._names:
            raise KeyError(name)
        size, version = (None, None) if self._about is None else self._about[name]
        return self.root.content(name, None, None, size, version)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def is_file(self) -> bool:
        """Whether the place is a single file, and no archive."""
        return isinstance(self.root, Contents) and not is_archive(os.fspath(self.location))

    def without(self, labels: Any) -> Listing:
        """Return the listing without the file of labels, if it lies beside the items."""
        path = labels.path if isinstance(labels, LabelFile) else labels
        if not isinstance(path, (str, os.PathLike)) or by_folder(path):
            return self
        path = as_place(path)
        labels_path = path.opened()[1] if isinstance(path, Url) else str(Path(path).resolve())
        last = os.path.basename(labels_path)
        for name in self:
            if name.rsplit("/", 1)[-1] == last and getattr(self[name], "path", None) == labels_path:
                return Listing(
                    self.location, (one for one in self if one != name), self.root, self.ignored, self._about
                )
        return self

    def table(self, names: Sequence[str], labels: Any = None, splits: Any = None) -> Any:
        """Return the table of a collection of some files."""
        if self._about is None:
            return item_table(names, labels, splits)
        sizes, versions = zip(*(self._about[name] for name in names), strict=True)
        known = np.array([-1 if size is None else size for size in sizes], np.int64)
        return item_table(names, labels, splits, {"size": numbers(known), "version": to_bytes(versions)})


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "__MACOSX")) or "/." in name or "/__MACOSX" in name


def list_place(path: Any, limits: Limits | None = None) -> Listing:
    """List the files of a folder, an archive or a single file, unless it is listed already.

    Ignored are hidden files and folders, what macOS adds to archives, and what is not a regular file. Links to folders
    of this machine are followed, but each folder is read once; links that lead nowhere are ignored.
    """
    if isinstance(path, Listing):
        return path
    path, limits = as_place(path), limits or Limits()
    if isinstance(path, Url):
        return _list_url(path, limits)
    folder = Path(path)
    absolute = str(folder.resolve())  # so that other processes find it
    if folder.is_dir():
        names, ignored = _walk(folder)
        return Listing(path, names, Folder(absolute), ignored)
    if not folder.exists():
        raise BagwiseError(f"{os.fspath(path)} does not exist. Give a folder, a zip or tar archive, or a file.")
    if is_archive(folder):
        members = list_archive(absolute, limits)
        return Listing(path, members, Contents(members))
    return Listing(path, [folder.name], Contents({folder.name: FileContent(absolute)}))


def _list_url(url: Url, limits: Limits) -> Listing:
    """List a folder, an archive or a single file by URL."""
    bare = Url(url.url, url.options)
    system, path = bare.opened()
    with storage_errors(str(url)):
        system.invalidate_cache()  # what an earlier list said may be old
        about: dict[str, Any] = {"type": "directory"} if url.url.split("::")[0].endswith("/") else system.info(path)
    if about["type"] == "directory":
        try:
            return _walk_url(bare, limits)
        finally:
            system.invalidate_cache()  # it holds all names
    content = UrlContent.listed(bare, path, about)
    members = dict(list_archive(content, limits)) if is_archive(url.name) else {url.name: content}
    return Listing(url, members, Contents(members))


def _walk_url(url: Url, limits: Limits) -> Listing:
    """List the files below a folder by URL, several folders at a time. All folders and files count as members."""
    system, path = url.opened()
    root = path.rstrip("/")
    files: dict[str, tuple[int | None, str | None]] = {}
    ignored: list[str] = []
    folders, known = [root or path], {root}
    prefix = f"{root}/" if root else ""

    def listed(folder: str) -> list[dict[str, Any]]:
        with storage_errors(f"{url}: the folder {folder}"):
            return system.ls(folder, detail=True)

    for _ in range(_MOST_LEVELS):
        below: list[str] = []
        for folder, entries in zip(folders, map_in_order(listed, folders, _AT_A_TIME), strict=True):
            for entry in entries:
                full = str(entry["name"])
                if full.rstrip("/") in (root, folder.rstrip("/")):
                    continue  # object stores may have an empty object for a folder
                if not root and full.startswith("/"):
                    prefix = "/"
                if root and not full.startswith(prefix):
                    raise BagwiseError(f"{url} is refused: it says that it holds {full!r}, which is elsewhere.")
                name = full.removeprefix(prefix)
                check_name(name, str(url))
                if entry["type"] == "directory":
                    if full.rstrip("/") not in known:
                        known.add(full.rstrip("/"))
                        below.append(full)
                elif entry["type"] == "file" and not name.endswith("/"):
                    files[name] = (entry.get("size"), version_of(entry))
                else:
                    ignored.append(name)
            n = len(files) + len(ignored) + len(known)
            what = f"{url} is refused: it holds more than {limits.members:,} files and folders"
            limits.check("members", n, what)
        if not below:
            return Listing(url, files, Folder(url, prefix), ignored, files)
        folders = below
    raise BagwiseError(f"{url} is refused: its folders are more than {_MOST_LEVELS} levels deep.")


def is_file(path: Any) -> bool:
    """Whether a path or URL is that of a file, not of a folder."""
    if not isinstance(path, Url):
        return os.path.isfile(path)
    if path.url.split("::")[0].endswith("/"):
        return False
    if is_file not in path.memo:
        system, inner = path.opened()
        with storage_errors(str(path)):
            system.invalidate_cache()
            path.memo[is_file] = bool(system.isfile(inner))
    return path.memo[is_file]


def _walk(folder: Path) -> tuple[list[str], list[str]]:
    """List the regular files below a folder, and apart from them all else; links to folders come last, by name."""
    root = os.path.realpath(folder)
    read = {_inode_of(above) for above in (root, *map(str, Path(root).parents))}
    names: list[str] = []
    ignored: list[str] = []
    links: list[str] = []
    folders = [""]
    while folders or links:
        if not folders:
            links.sort(reverse=True)
            folders = _unread(folder, links.pop(), read, ignored)
            continue
        here = folders.pop()
        with os.scandir(folder / here) as entries:
            for entry in entries:
                name = f"{here}{entry.name}"
                if entry.is_symlink() and os.path.isdir(entry.path):
                    links.append(name)
                elif entry.is_dir(follow_symlinks=False):
                    folders += _unread(folder, name, read, ignored)
                elif _is_file(entry):
                    names.append(name)
                else:
                    ignored.append(name)
    return names, ignored


def _unread(folder: Path, name: str, read: set[tuple[int, int]], ignored: list[str]) -> list[str]:
    """Return a folder below another as one to read, unless it was read: then its name goes to the ignored ones."""
    inode = _inode_of(folder / name)
    if inode in read:
        ignored.append(name)
        return []
    read.add(inode)
    return [f"{name}/"]


def _inode_of(folder: str | Path) -> tuple[int, int]:
    about = os.stat(folder)
    return about.st_dev, about.st_ino


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # links that lead to one another
        return False


def linked_notes(listing: Listing) -> list[str]:
    """Say which links in a folder of this machine were ignored."""
    path = listing.location
    if isinstance(path, Url) or not os.path.isdir(path):
        return []
    there = {name: Path(path, name) for name in listing.ignored if not _is_hidden(name)}
    twice = [name for name, link in there.items() if link.is_dir()]
    lost = [name for name, link in there.items() if link.is_symlink() and not os.path.exists(link)]
    notes = []
    if twice:
        notes.append(
            f"Folders are read once, so links to folders that are read by another name, or that {os.fspath(path)} is "
            f"in, were left out: {_some(twice)}."
        )
    if lost:
        notes.append(f"Links that lead nowhere were left out: {_some(lost)}.")
    return notes


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(sorted(names)[:_NAMED]) + more


def ending(name: str) -> str:
    """Return the ending of a file's name in lower case, with its dot: that of `os.path.splitext`, in less time.

    >>> [ending(name) for name in ("a/b.JPG", "a.b/c", ".hidden", "c.")]
    ['.jpg', '', '', '']
    """
    if os.sep != "/":
        name = name.replace(os.sep, "/")
    stem, _, end = name.rpartition(".")
    if not end or "/" in end or not stem[stem.rfind("/") + 1 :].strip("."):
        return ""
    return f".{end}".lower()


def arrange(names: Iterable[str]) -> tuple[list[str | None], list[str | None]]:
    """Return the labels and the splits of files, by their folders.

    1. A single outermost folder that holds nothing but folders is skipped.
    2. If all outermost folders are named like splits (train, training, test, testing, val, valid, validation, dev; in
       upper or lower case), they are the splits ``train``, ``test`` and ``validation``.
    3. The next folder is the class. Folders below it have no meaning. A file outside any folder has no class.

    >>> arrange(["train/cat/1.jpg", "test/dog/old/2.jpg"])
    (['cat', 'dog'], ['train', 'test'])
    """
    of_names = [name.rpartition("/")[0] for name in names]
    folders = {folder: folder.split("/") if folder else [] for folder in of_names}
    while folders and all(len(parts) > 1 for parts in folders.values()):
        outer = {parts[0] for parts in folders.values()}
        if len(outer) > 1 or min(outer).lower() in SPLIT_FOLDERS:
            break
        folders = {folder: parts[1:] for folder, parts in folders.items()}
    divided = all(parts and parts[0].lower() in SPLIT_FOLDERS for parts in folders.values())
    labels: dict[str, str | None] = {}
    for folder, parts in folders.items():
        classes = parts[1:] if divided else parts
        labels[folder] = classes[0] if classes else None
    splits = {folder: SPLIT_FOLDERS[parts[0].lower()] if divided else None for folder, parts in folders.items()}
    return [labels[folder] for folder in of_names], [splits[folder] for folder in of_names]


def by_folder(annotations: Any) -> bool:
    """Whether labels or splits are those of folders."""
    return isinstance(annotations, str) and annotations == "folders"


def annotated(collection: Collection, labels: Any, splits: Any) -> Collection:
    """Apply the `labels` and `splits` parameters where they are mappings or files."""
    if labels is not None and not by_folder(labels):
        collection = collection.with_labels(labels)
    if splits is not None and not by_folder(splits):
        collection = collection.with_splits(splits)
    return collection


def chosen_endings(extensions: Iterable[str] | str | None, usual: frozenset[str]) -> frozenset[str] | None:
    """Resolve the `extensions` parameter: None is the usual ones, ``"*"`` any file; several in a list, or by commas."""
    if extensions is None:
        return usual
    if extensions == "*":
        return None
    listed = extensions.split(",") if isinstance(extensions, str) else list(extensions)
    endings = frozenset("." + extension.strip().lower().lstrip(".") for extension in listed)
    if "." in endings or not endings:
        raise BagwiseError(f"{argument('extensions', extensions)} has no endings of files. Give some such as .log,.md")
    return endings


def with_endings(endings: frozenset[str] | None) -> Callable[[Mapping[str, Content]], list[str]]:
    """Return what chooses the files with one of these endings, None: all files."""
    return lambda contents: [name for name in contents if endings is None or ending(name) in endings]


def nothing_found(
    path: str, modality: str, names: Mapping[str, Any], endings: frozenset[str] | None, others: str = ""
) -> BagwiseError:
    """Build the error for a path without items; `others` says how to open files with other endings."""
    if not names:
        hidden = " (hidden files do not count)" if os.path.isdir(path) and os.listdir(path) else ""
        return BagwiseError(f"{path} holds no {modality}; it is empty{hidden}. Give a folder or file with items.")
    there = Counter(ending(name) for name in names)
    listed = ", ".join(f"{n} {end or 'without an ending'}" for end, n in there.most_common(5))
    holds = f"its {len(names)} files are: {listed}" if len(names) > 1 else f"its only file is {next(iter(names))}"
    if all(is_archive(name) for name in names):
        return BagwiseError(f"{path} holds no {modality}; {holds}. Archives in archives are not read: unpack it first.")
    accepted = f" Accepted: {', '.join(sorted(endings))}{others}." if endings is not None else ""
    return BagwiseError(f"{path} holds no {modality}; {holds}.{accepted}")
