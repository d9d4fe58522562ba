"""Files of folders and archives, and their labels and splits by folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bagwise._io.storage import Url, as_place, storage_errors
from bagwise._utils.threads import map_in_order
from bagwise.errors import BagwiseError, argument
from bagwise.sources.annotations import LabelFile
from bagwise.sources.archives import check_name, is_archive, list_archive
from bagwise.sources.collection import Collection
from bagwise.sources.columns import SPLIT_FOLDERS
from bagwise.sources.contents import FileContent, UrlContent
from bagwise.sources.items import Content, Decoder, Item
from bagwise.sources.limits import Limits

__all__ = ["FileContent", "arrange", "collect", "ending", "is_file", "linked_notes", "list_place"]

# Folders by URL that are listed at a time, and how deep they may be.
_AT_A_TIME, _MOST_LEVELS = 16, 100
_NAMED = 5  # links in a note


def list_place(path: str | os.PathLike[str], limits: Limits | None = None) -> tuple[dict[str, Content], list[str]]:
    """List the files of a folder, an archive or a single file: their contents by name, and ignored names.

    Names are relative, with ``/`` between folders, in order of code points. Ignored are hidden files (or those in a
    hidden folder), what macOS adds to archives, and what is not a regular file.

    Links to folders of this machine are followed, but each folder is read once: links to a folder that is read already,
    or to one that the place is in, are ignored, and so are links that lead nowhere; `linked_notes` says so.
    """
    path = as_place(path)
    if isinstance(path, Url):
        limits = limits or Limits()
        if limits not in path.memo:  # a list takes long: what opens a place asks for it several times
            path.memo[limits] = _visible(*_list_url(Url(path.url, path.options), limits))
        return path.memo[limits]
    place = Path(path)
    absolute = str(place.resolve())  # so that other processes find it
    if place.is_dir():
        names, ignored = _walk(place)
        found: dict[str, Content] = {name: FileContent(os.path.join(absolute, name)) for name in names}
    elif not place.exists():
        raise BagwiseError(f"{os.fspath(path)} does not exist. Give a folder, a zip or tar archive, or a file.")
    elif is_archive(place):
        found, ignored = dict(list_archive(absolute, limits or Limits())), []
    else:
        return {place.name: FileContent(absolute)}, []
    return _visible(found, ignored)


def _visible(found: dict[str, Content], ignored: list[str]) -> tuple[dict[str, Content], list[str]]:
    """Sort files by name, and put hidden ones to those that are ignored."""
    hidden = {name for name in found if any(part.startswith((".", "__MACOSX")) for part in name.split("/"))}
    return {name: found[name] for name in sorted(set(found) - hidden)}, sorted([*ignored, *hidden])


def _list_url(place: Url, limits: Limits) -> tuple[dict[str, Content], list[str]]:
    """List a folder, an archive or a single file by URL."""
    system, path = place.opened()
    with storage_errors(str(place)):
        system.invalidate_cache()  # what an earlier list said may be old
        about: dict[str, Any] = {"type": "directory"} if place.url.split("::")[0].endswith("/") else system.info(path)
    if about["type"] == "directory":
        try:
            return _walk_url(place, limits)
        finally:
            system.invalidate_cache()  # it holds all names
    content = UrlContent.listed(place, path, about)
    if is_archive(place.name):
        return dict(list_archive(content, limits)), []
    return {place.name: content}, []


def _walk_url(place: Url, limits: Limits) -> tuple[dict[str, Content], list[str]]:
    """List the files below a folder by URL, several folders at a time. All folders and files count as members."""
    system, path = place.opened()
    root = path.rstrip("/")
    found: dict[str, Content] = {}
    ignored: list[str] = []
    folders, known = [root or path], {root}

    def listed(folder: str) -> list[dict[str, Any]]:
        with storage_errors(f"{place}: the folder {folder}"):
            return system.ls(folder, detail=True)

    for _ in range(_MOST_LEVELS):
        below: list[str] = []
        for folder, entries in zip(folders, map_in_order(listed, folders, _AT_A_TIME), strict=True):
            for entry in entries:
                full = str(entry["name"])
                if full.rstrip("/") in (root, folder.rstrip("/")):
                    continue  # object stores may have an empty object for a folder
                if root and not full.startswith(f"{root}/"):
                    raise BagwiseError(f"{place} is refused: it says that it holds {full!r}, which is elsewhere.")
                name = full[len(root) :].removeprefix("/")
                check_name(name, str(place))
                if entry["type"] == "directory":
                    if full.rstrip("/") not in known:
                        known.add(full.rstrip("/"))
                        below.append(full)
                elif entry["type"] == "file" and not name.endswith("/"):
                    found[name] = UrlContent.listed(place, full, entry)
                else:
                    ignored.append(name)
            n = len(found) + len(ignored) + len(known)
            what = f"{place} is refused: it holds more than {limits.members:,} files and folders"
            limits.check("members", n, what)
        if not below:
            return found, ignored
        folders = below
    raise BagwiseError(f"{place} is refused: its folders are more than {_MOST_LEVELS} levels deep.")


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
    """List the regular files below a folder (links to files included), and apart from them everything else.

    Links to folders are followed after all folders that are no links, in order of their names.
    """
    root = os.path.realpath(folder)
    read = {_place_of(above) for above in (root, *map(str, Path(root).parents))}
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
    place = _place_of(folder / name)
    if place in read:
        ignored.append(name)
        return []
    read.add(place)
    return [f"{name}/"]


def _place_of(folder: str | Path) -> tuple[int, int]:
    about = os.stat(folder)
    return about.st_dev, about.st_ino


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # links that lead to one another
        return False


def linked_notes(path: Any, ignored: Sequence[str]) -> list[str]:
    """Say which links in a folder of this machine were ignored, by what `list_place` ignored."""
    if isinstance(path, Url) or not os.path.isdir(path):
        return []
    there = {name: Path(path, name) for name in ignored if not any(part.startswith(".") for part in name.split("/"))}
    twice = [name for name, place in there.items() if place.is_dir()]
    lost = [name for name, place in there.items() if place.is_symlink() and not os.path.exists(place)]
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


def arrange(names: Iterable[str]) -> dict[str, tuple[str | None, str | None]]:
    """Return label and split of each file, by its folders.

    1. A single outermost folder that holds nothing but folders is skipped.
    2. If all outermost folders are named like splits (train, training, test, testing, val, valid, validation, dev; in
       upper or lower case), they are the splits ``train``, ``test`` and ``validation``.
    3. The next folder is the class. Folders below it have no meaning. A file outside any folder has no class.

    >>> arrange(["train/cat/1.jpg", "test/dog/old/2.jpg"])
    {'train/cat/1.jpg': ('cat', 'train'), 'test/dog/old/2.jpg': ('dog', 'test')}
    """
    folders = {name: name.split("/")[:-1] for name in names}
    while folders and all(len(parts) > 1 for parts in folders.values()):
        outer = {parts[0] for parts in folders.values()}
        if len(outer) > 1 or min(outer).lower() in SPLIT_FOLDERS:
            break
        folders = {name: parts[1:] for name, parts in folders.items()}
    divided = all(parts and parts[0].lower() in SPLIT_FOLDERS for parts in folders.values())
    arranged = {}
    for name, parts in folders.items():
        split = SPLIT_FOLDERS[parts[0].lower()] if divided else None
        classes = parts[1:] if divided else parts
        arranged[name] = (classes[0] if classes else None, split)
    return arranged


def collect(
    path: str | os.PathLike[str],
    modality: str,
    decoder: Decoder,
    choose: Callable[[Mapping[str, Content]], list[str]],
    *,
    accepted: frozenset[str] | None = None,
    labels: Any = "folders",
    splits: Any = "folders",
    limits: Limits | None = None,
) -> Collection:
    """Make a collection of the files in a folder or an archive that `choose` chooses by their names and contents.

    `accepted` are their usual endings, for messages. `labels` and `splits` are ``"folders"``, None, or what
    `Collection.with_labels` and `with_splits` take.
    """
    from bagwise.sources.manifests import as_manifest, open_manifest  # deferred: they use what is here
    from bagwise.sources.shards import as_shards, open_shards

    path, limits = as_place(path), limits or Limits()
    given: dict[str, Any] = {"labels": labels, "splits": splits, "limits": limits}
    manifest = as_manifest(path, limits)
    if manifest is not None:
        return open_manifest(manifest, modality, decoder, **given)
    shards = as_shards(path, limits)
    if shards is not None:
        return open_shards(shards, modality, decoder, accepted, **given)
    contents, ignored = list_place(path, limits)
    contents = without_file(contents, labels)
    chosen = choose(contents)
    if not chosen:
        raise nothing_found(os.fspath(path), modality, contents, accepted, f"; others by {argument('extensions')}")
    by_folder = arrange(chosen)
    items = []
    for name in chosen:
        label, split = by_folder[name]
        own = (label,) if _by_folder(labels) and label is not None else ()
        items.append(Item(name, contents[name], decoder, own, split if _by_folder(splits) else None))
    others = sorted([*ignored, *(set(contents) - set(chosen))])
    notes = linked_notes(path, ignored)
    tables = [name for name in others if "/" not in name and ending(name) in (".csv", ".tsv", ".xlsx")]
    if _by_folder(labels) and len(tables) == 1 and os.path.isdir(path) and not any(item.labels for item in items):
        beside = argument("labels", os.path.join(path, tables[0]))
        notes.append(f"Items have no labels, which come from folders. If {tables[0]} holds them: {beside}")
    collection = Collection(items, modality, os.fspath(path), others, notes, limits=limits)
    return annotated(collection, labels, splits)


def _by_folder(given: Any) -> bool:
    return isinstance(given, str) and given == "folders"


def annotated(collection: Collection, labels: Any, splits: Any) -> Collection:
    """Apply the `labels` and `splits` parameters where they are mappings or files."""
    if labels is not None and not _by_folder(labels):
        collection = collection.with_labels(labels)
    if splits is not None and not _by_folder(splits):
        collection = collection.with_splits(splits)
    return collection


def chosen_endings(extensions: Iterable[str] | str | None, usual: frozenset[str]) -> frozenset[str] | None:
    """Resolve the `extensions` parameter: None is the usual ones, ``"*"`` any file; several in a list, or by commas."""
    if extensions is None:
        return usual
    if extensions == "*":
        return None
    given = extensions.split(",") if isinstance(extensions, str) else list(extensions)
    endings = frozenset("." + extension.strip().lower().lstrip(".") for extension in given)
    if "." in endings or not endings:
        raise BagwiseError(f"{argument('extensions', extensions)} has no endings of files. Give some such as .log,.md")
    return endings


def with_endings(endings: frozenset[str] | None) -> Callable[[Mapping[str, Content]], list[str]]:
    """Return what chooses the files with one of these endings, None: all files."""
    return lambda contents: [name for name in contents if endings is None or ending(name) in endings]


def without_file(contents: Mapping[str, Content], labels: Any) -> dict[str, Content]:
    """Leave out the file of labels, if it lies beside the items."""
    path = labels.path if isinstance(labels, LabelFile) else labels
    if not isinstance(path, (str, os.PathLike)) or _by_folder(path):
        return dict(contents)
    path = as_place(path)
    if isinstance(path, Url):
        own: Any = path.opened()[1]
        return {name: one for name, one in contents.items() if not isinstance(one, UrlContent) or one.path != own}
    own = FileContent(str(Path(path).resolve()))
    return {name: content for name, content in contents.items() if content != own}


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
