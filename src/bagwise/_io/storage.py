"""Storage by URL: object stores and servers, through fsspec. Local paths never come here."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from bagwise._io.atomic import check_writable, open_atomically, write_atomically
from bagwise._utils.extras import require
from bagwise.errors import BagwiseError, in_python

__all__ = ["Storage", "Url", "absolute", "as_place", "is_url", "open_for_writing", "same_system", "storage_errors"]
__all__ += ["with_options_of"]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(://|::)")
_LOCAL = ("file", "local")
# Stores that show an object only when all of it is there; who serves them does not depend on the URL.
STORES = frozenset(["s3", "s3a", "gs", "gcs", "abfs", "az", "hf", "memory", "oci", "oss"])
_WITH_ACCOUNTS = frozenset(["abfs", "az"])  # container@account
ARCHIVES = frozenset(["zip", "tar", "libarchive"])  # links of a chain whose path is in the archive
# Packages of protocols, where fsspec does not name them.
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hf": "huggingface_hub", "az": "adlfs"}
_PACKAGES |= {"abfs": "adlfs", "sftp": "paramiko", "ssh": "paramiko"}
_PACKAGES |= dict.fromkeys(("http", "https"), "aiohttp and requests")


# Tables of SQLite files, see `names_table`.
_TABLE = re.compile(r"(?!\w+://).+\.(sqlite3?|db)::[^:/]+", re.DOTALL)


def is_url(path: Any) -> bool:
    """Whether a path is a URL that is not of this machine: ``s3://…``, or a chain such as ``zip://a.jpg::s3://…``.

    >>> is_url("s3://bucket/photos"), is_url("file:///data"), is_url("photos"), is_url("C:/photos")
    (True, False, False, False)
    """
    if isinstance(path, Url):
        return True
    match = _URL.match(path) if isinstance(path, str) else None
    if match is None or _is_local(path) or names_table(path):
        return False
    return match[1] == "://" or not os.path.lexists(path)  # a file may be named a::b


def names_table(path: str) -> bool:
    """Whether a path names a table of an SQLite file of this machine, as in ``data.sqlite::table``."""
    return _TABLE.fullmatch(path) is not None


def _is_local(url: str) -> bool:
    return "::" not in url and url.split("://", 1)[0].lower() in _LOCAL


def as_place(path: Any, options: Mapping[str, Any] | None = None) -> Any:
    """Return a `Url` for URLs, with their storage options; a local path for ``file://…``; others as they are."""
    if isinstance(path, Url):
        return path if options is None else Url(path.url, dict(options))
    if is_url(path):
        return Url(path, dict(options or {}))
    if options:
        raise BagwiseError(f"storage_options= are for URLs, such as s3://bucket/folder; got {os.fspath(path)!r}.")
    match = _URL.match(path) if isinstance(path, str) else None
    if match is not None and match[1] == "://":
        return unquote(urlsplit(path).path) if path.startswith("file:///") else path.split("://", 1)[1]
    return path


def absolute(path: str | os.PathLike[str]) -> str:
    """Return a path that holds in other folders, or a URL as messages show it."""
    location = as_place(path)
    return os.fspath(location) if isinstance(location, Url) else os.path.abspath(location)


@dataclass(frozen=True, slots=True)
class Url(os.PathLike[str]):
    """A file or folder by URL, with the options that its file system is opened with.

    ``os.fspath`` and messages give it without passwords and queries; options are in neither. `memo` is for what was
    found out about it, such as a list of files, while a collection is opened; it is not pickled.
    """

    url: str
    options: dict[str, Any] = field(default_factory=dict, hash=False, repr=False)
    memo: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Url, (self.url, self.options)

    def __fspath__(self) -> str:
        return redacted(self.url)

    def __str__(self) -> str:
        return redacted(self.url)

    def __repr__(self) -> str:
        return f"Url({redacted(self.url)!r})"

    def opened(self) -> tuple[Any, str]:
        """Return fsspec's file system, and the path in it."""
        core = require("fsspec.core", "dask", "Reading URLs")
        protocol = self.url.split("://", 1)[0].split("::", 1)[0]
        try:
            return core.url_to_fs(self.url, **self.options)
        except ImportError as error:
            package = _PACKAGES.get(protocol.lower())
            needs = package or "a package that is not there"
            install = f"Install it with: pip install {needs.replace(' and', '')}" if package else "Install it"
            raise BagwiseError(f"{self} cannot be opened: {protocol}:// needs {needs}. {install} ({error}).") from error
        except (ValueError, TypeError, KeyError) as error:
            raise BagwiseError(
                f"{self} cannot be opened: {error}. Give a local path, or a URL that fsspec knows, such as "
                f"s3://bucket/folder{in_python(', with storage_options= that its file system takes')}."
            ) from error
        except Exception as error:
            raise _cannot(str(self), error) from error

    def beside(self, name: str) -> Url:
        """Return the URL of a relative name in the folder of this file."""
        first, *rest = self.url.split("::")
        return Url("::".join([f"{first.rsplit('/', 1)[0]}/{name}", *rest]), self.options)

    def inside(self, name: str) -> Url:
        """Return the URL of a relative name in this folder."""
        first, *rest = self.url.split("::")
        return Url("::".join([f"{first}{'' if first.endswith('/') else '/'}{name}", *rest]), self.options)

    @property
    def name(self) -> str:
        """The last part of the path, without a query."""
        first = self.url.split("::", 1)[0]
        if first.lower().startswith(("http:", "https:")):
            first = unquote(urlsplit(first).path)
        return first.split("://", 1)[-1].rstrip("/").rsplit("/", 1)[-1]


def redacted(url: str) -> str:
    """Return a URL without user, password and query.

    >>> redacted("https://me:secret@host/a.jpg?token=1")
    'https://host/a.jpg'
    """
    url = re.sub(r"(://)[^/\s]*@", r"\1", url)
    return re.sub(r"(?i)(https?://[^\s?#]*)[?#](?:(?!::)\S)*", r"\1", url)


def same_system(one: str, other: str) -> bool:
    """Whether two URLs are of one store or server, so that the credentials of one may go to the other.

    >>> same_system("s3://a/1", "s3://b/2"), same_system("https://a/1", "https://b/1"), same_system("s3://a", "gs://a")
    (True, False, False)
    >>> same_system("zip://1::https://a/z", "zip://2::https://b/z"), same_system("abfs://c@a/1", "abfs://c@b/1")
    (False, False)
    >>> same_system("zip://a@1.jpg::s3://b/z.zip", "zip://b@2.jpg::s3://b/z.zip")
    True
    """
    return _system(one) == _system(other)


def with_options_of(path: Any, other: Any, options: Mapping[str, Any] | None) -> Any:
    """Return a path; a URL with the options that were given for `other`, unless this is a URL of another system."""
    if options is None or isinstance(path, Url) or not is_url(path):
        return path
    elsewhere = is_url(other) and not same_system(as_place(other).url, path)
    return path if elsewhere else as_place(path, options)


def _system(url: str) -> list[tuple[str, str]]:
    """Return protocol and host of each link of a URL; stores have no host, those of Azure have accounts."""
    links = []
    for link in url.split("::"):
        protocol, _, rest = link.partition("://")
        host = rest.split("/", 1)[0]
        if protocol in _WITH_ACCOUNTS:
            host = host.rpartition("@")[2] if "@" in host else ""
        elif protocol in STORES or protocol in ARCHIVES:
            host = ""
        links.append((protocol, host))
    return links


@contextmanager
def storage_errors(what: str) -> Iterator[None]:
    """Turn whatever a file system raises into a `BagwiseError`; `what` cannot be read."""
    try:
        yield
    except (BagwiseError, MemoryError):
        raise
    except Exception as error:  # of boto, aiohttp, google.auth, …: each has errors of its own
        raise _cannot(what, error) from error


def _cannot(what: str, error: Exception) -> BagwiseError:
    if isinstance(error, FileNotFoundError):
        advice = "" if what == "it" else ". Give a folder, an archive or a file."
        return BagwiseError(f"{what} does not exist{advice or ', or no longer'}")
    about = f"{type(error).__name__}: {redacted(str(error)):.300}".rstrip(".: ")
    if isinstance(error, PermissionError) or "credential" in str(error).lower():
        advice = in_python("pass storage_options=", "set the variables or configuration files of its file system")
        return BagwiseError(f"{what} cannot be read: access is denied ({about}). For credentials {advice}")
    return BagwiseError(f"{what} cannot be read: {about}")


@contextmanager
def open_for_writing(path: Any) -> Iterator[BinaryIO]:
    """Open a path or URL for writing, wholly or not at all: see `open_atomically`.

    What goes to a URL is written to a temporary file first, and uploaded when it is complete.
    """
    location = as_place(path)
    if not isinstance(location, Url):
        with open_atomically(location) as file:
            yield file
        return
    with tempfile.NamedTemporaryFile(prefix="bagwise-") as file:
        yield file  # type: ignore[misc]
        file.flush()
        folder, name = Storage(location.beside("")), location.name
        folder.upload(name, file.name)


@dataclass(frozen=True, slots=True)
class Storage:
    """A folder for results: of this machine, or by URL. Files are written wholly or not at all. Picklable.

    Locally, a file takes its name when it is complete. Object stores show an object when its upload is complete; on
    other file systems by URL, a file has a temporary name before.

    Examples
    --------
    >>> folder = Storage.of("memory://results")
    >>> folder.write("a/1", b"x"), folder.names(), folder.read("a/1"), folder.exists("b")
    (None, ['a/1'], b'x', False)
    """

    location: Any

    @classmethod
    def of(cls, path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Storage:
        """Return the storage of a folder, which need not exist yet."""
        location = as_place(path, storage_options)
        return cls(location if isinstance(location, Url) else Path(location).absolute())

    def __str__(self) -> str:
        return str(self.location)

    def write(self, name: str, content: bytes) -> None:
        """Write a file."""
        if isinstance(self.location, Path):
            target = self.location / name
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise BagwiseError(f"{self.location} cannot be written as a folder: {error.strerror}.") from error
            write_atomically(target, content)
            return
        self._put(name, lambda system, path: system.pipe_file(path, content))

    def upload(self, name: str, local: str) -> None:
        """Write a file from one of this machine; only to a URL."""
        self._put(name, lambda system, path: system.put_file(local, path))

    def _put(self, name: str, put: Callable[[Any, str], object]) -> None:
        with storage_errors(f"{self.location} cannot be written: {name}"):
            system, path = self._at(name)
            if _puts_whole(system):
                put(system, path)
                return
            system.makedirs(system._parent(path), exist_ok=True)
            part = f"{path}.{secrets.token_hex(8)}.part"  # another process may write a file of the same name
            try:
                put(system, part)
                system.mv(part, path)
            except BaseException:
                with suppress(Exception):  # the first error is what counts; there may be nothing to remove
                    system.rm_file(part)
                raise

    def read(self, name: str, most: int | None = None) -> bytes:
        """Read a file; an error if there is none, or if it has more than `most` bytes."""
        if isinstance(self.location, Path):
            try:
                self._check_size(name, (self.location / name).stat().st_size, most)
                return (self.location / name).read_bytes()
            except OSError as error:
                raise BagwiseError(f"{self.location / name} cannot be read: {error.strerror}.") from error
        with storage_errors(f"{self.location}/{name}"):
            system, path = self._at(name)
            system.invalidate_cache(path)  # others may have written it since it was listed
            if most is not None:
                self._check_size(name, system.info(path).get("size") or 0, most)  # not known to every server
            content = system.cat_file(path)
            self._check_size(name, len(content), most)
            return content

    def _check_size(self, name: str, size: int, most: int | None) -> None:
        if most is not None and size > most:
            raise BagwiseError(f"{self.location}/{name} has {size:,} bytes; at most {most:,} are read.")

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""
        if isinstance(self.location, Path):
            return (self.location / name).is_file()
        with storage_errors(f"{self.location}/{name}"):
            system, path = self._at(name)
            system.invalidate_cache()
            return system.isfile(path)

    def names(self) -> list[str]:
        """Return the names of all files, sorted; none if the folder does not exist."""
        if isinstance(self.location, Path):
            if self.location.exists() and not self.location.is_dir():
                raise BagwiseError(f"{self.location} is a file, and no folder. Give another name.")
            files = [path for path in self.location.rglob("*") if path.is_file() and not path.name.endswith(".part")]
            return sorted(path.relative_to(self.location).as_posix() for path in files)
        with storage_errors(str(self.location)):
            system, root = self.location.opened()
            system.invalidate_cache()
            start = len(root.rstrip("/")) + 1
            return sorted(path[start:] for path in system.find(root) if not path.endswith(".part"))

    def check_writable(self) -> None:
        """Raise an error unless files can be written; by URL, one is written and removed."""
        if isinstance(self.location, Path):
            check_writable(next(path for path in (self.location, *self.location.parents) if path.exists()))
            return
        name = f"{secrets.token_hex(8)}.part"
        self.write(name, b"")
        self.remove(name)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        if isinstance(self.location, Path):
            (self.location / name).unlink(missing_ok=True)
            return
        with storage_errors(f"{self.location}/{name}"):
            system, path = self._at(name)
            if system.isfile(path):
                system.rm_file(path)

    def file(self, name: str) -> Any:
        """Return the path or URL of a file."""
        return self.location.inside(name) if isinstance(self.location, Url) else self.location / name

    def _at(self, name: str) -> tuple[Any, str]:
        return self.location.inside(name).opened()


def _puts_whole(system: Any) -> bool:
    """Whether a file system shows an object only when all of it is there."""
    names = (system.protocol,) if isinstance(system.protocol, str) else system.protocol
    return bool(STORES & set(names))
