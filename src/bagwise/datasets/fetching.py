"""Data sets of others, downloaded and cached by scikit-learn."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from bagwise.errors import BagwiseError

__all__ = ["fetch_20newsgroups", "fetch_openml"]


def fetch_20newsgroups(
    *,
    subset: str = "train",
    categories: Sequence[str] | None = None,
    remove: Sequence[str] = ("headers", "footers", "quotes"),
    random_state: Any = 0,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Any:
    """Load the 20 newsgroups texts by `sklearn.datasets.fetch_20newsgroups`, from its cache or the net (14 MB).

    Parameters
    ----------
    subset : {"train", "test", "all"}, default="train"
    categories : sequence of str, default=None
        Groups to load; None: all 20.
    remove : sequence of str, default=("headers", "footers", "quotes")
        What is removed of texts. With it, a text is classified by what it says, not by who wrote it.
    random_state : int, RandomState or None, default=0
    data_home : path, default=None
        Folder of the cache; None: that of scikit-learn.
    download_if_missing : bool, default=True
        False: only look into the cache.
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    newsgroups : Bunch
        With data (list of str), target, target_names and DESCR, as of `make_corpus`.

    Raises
    ------
    BagwiseError
        If the texts are not in the cache, and cannot or must not be downloaded.

    Examples
    --------
    >>> from bagwise.datasets import fetch_20newsgroups, make_corpus
    >>> try:
    ...     texts = fetch_20newsgroups(download_if_missing=False)
    ... except ValueError:
    ...     texts = make_corpus()
    >>> type(texts.data[0])
    <class 'str'>
    """
    from sklearn.datasets import fetch_20newsgroups

    options: dict[str, Any] = {"subset": subset, "categories": categories, "remove": tuple(remove)}
    options |= {"random_state": random_state, "data_home": data_home, "return_X_y": return_X_y}
    try:
        return fetch_20newsgroups(download_if_missing=download_if_missing, **options)
    except OSError as error:
        raise _missing("The 20 newsgroups texts", data_home, download_if_missing, error, "make_corpus()") from error


def fetch_openml(
    name: str,
    version: int = 1,
    *,
    parser: str = "liac-arff",
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Any:
    """Load a table of numbers of OpenML by `sklearn.datasets.fetch_openml`, from its cache or the net.

    Parameters
    ----------
    name : str
        Name of the data set, such as "mnist_784".
    version : int, default=1
        Its version.
    parser : {"liac-arff", "pandas", "auto"}, default="liac-arff"
        "pandas" is faster, but needs pandas, and does not read sparse data.
    data_home : path, default=None
        Folder of the cache; None: that of scikit-learn.
    download_if_missing : bool, default=True
        False: only look into the cache.
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    table : Bunch
        With data (an array, or a CSR matrix of sparse data), target, feature_names and DESCR.

    Raises
    ------
    BagwiseError
        If the table is not in the cache, and cannot or must not be downloaded.
    """
    from sklearn.datasets import fetch_openml, get_data_home

    what = f"The OpenML data set {name!r}, version {version},"
    if not download_if_missing:
        # the first file of a data set that scikit-learn stores
        listed = f"openml/openml.org/api/v1/json/data/list/data_name/{name}/limit/2/data_version/{version}.gz"
        if not os.path.exists(os.path.join(get_data_home(data_home), listed)):
            raise _missing(what, data_home, download_if_missing, None, "make_cells()")
    options: dict[str, Any] = {"parser": parser, "data_home": data_home, "return_X_y": return_X_y, "as_frame": False}
    try:
        return fetch_openml(name, version=version, n_retries=1, **options)
    except OSError as error:
        raise _missing(what, data_home, download_if_missing, error, "make_cells()") from error


def _missing(what: str, data_home: Any, download: bool, error: OSError | None, instead: str) -> BagwiseError:
    from sklearn.datasets import get_data_home

    cache = get_data_home(data_home)
    if not download:
        advice = f"Download them by download_if_missing=True, or use bagwise.datasets.{instead}."
        return BagwiseError(f"{what} are not in the cache, {cache}. {advice}")
    advice = "Connect this machine to the net, copy the cache of another one (data_home=)"
    return BagwiseError(
        f"{what} are not in the cache, {cache}, and cannot be downloaded: {error}. {advice}, or use "
        f"bagwise.datasets.{instead}."
    )
