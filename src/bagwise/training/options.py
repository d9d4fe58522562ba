"""What can be asked of a fit: one set of options for Python, the command line and configuration files."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from bagwise._utils.checks import check_integer
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["DESCRIPTORS", "FitOptions", "make_descriptor", "read_config"]

# The names of the command line, and the classes behind them.
DESCRIPTORS = {
    "sift": "DenseSIFT",
    "color-sift": "ColorSIFT",
    "keypoint-sift": "KeypointSIFT",
    "hog-lbp": "HogLbp",
    "patches": "Patches",
    "hog-hof": "VideoHogHof",
}
_ON_ERROR = ("raise", "skip")


@dataclass(frozen=True)
class FitOptions:
    """Options of `fit_model` and `compare_criteria`.

    Parameters
    ----------
    to : int or "auto", default=50
        Words to be left after merging. "auto": the smallest number whose error in cross-validation is within one
        standard error of the best.
    words : int, default=None
        Words to begin with: learned from images (None: 1000), or the most frequent ones of texts (None: 20,000). The
        columns of a table are its words, so this does not apply to tables.
    criterion : str, default="auto"
        A name from `bagwise.criteria`. "auto": "aib"; where there are no classes, "mmi" for images and videos, "lpp"
        for texts and tables.
    descriptor : str, default="auto"
        "sift", "color-sift", "keypoint-sift", "hog-lbp" or "patches" for images ("auto": "sift"), "hog-hof" for videos.
    step, patch : int, default=None
        Pixels between two descriptors, and the side of the square each describes; None: as the descriptor has it.
    pyramid : int, default=None
        5, 8 or 21 cells laid over each image; None: the whole image.
    min_count : int, default=2
        Texts: words that occur in fewer texts are left out.
    stop_words : {"english", None}, default=None
        Texts: a list of words to leave out.
    ngrams : int, default=1
        Texts: up to so many words in a row are taken as one word.
    penalty : float, default=1.0
        Parameter C of the linear SVM on the merged words.
    folds : int, default=5
        Folds of cross-validation along the path of merging; 0: none.
    kind : str, default="auto"
        What to look for in the source, see `open_collection`.
    text, label : str, default=None
        Columns with texts and labels, for files of records and tables.
    encoding : str, default=None
        Encoding of texts; None: UTF-8.
    on_error : {"raise", "skip"}, default="skip"
        What to do with items that cannot be read.
    cache : path, default=None
        A folder in which descriptors are kept, so that a fit that was broken off goes on where it was.
    seed : int, default=0
        The same seed gives the same model.
    jobs : int, default=-1
        Threads; -1: as many as there are cores.

    Examples
    --------
    >>> from bagwise.training import FitOptions
    >>> FitOptions(to=20, descriptor="patches").with_changes(to=10).to
    10
    """

    to: int | str = 50
    words: int | None = None
    criterion: str = "auto"
    descriptor: str = "auto"
    step: int | None = None
    patch: int | None = None
    pyramid: int | None = None
    min_count: int = 2
    stop_words: str | None = None
    ngrams: int = 1
    penalty: float = 1.0
    folds: int = 5
    kind: str = "auto"
    text: str | None = None
    label: str | None = None
    encoding: str | None = None
    on_error: str = "skip"
    cache: str | None = None
    seed: int = 0
    jobs: int = -1

    def __post_init__(self) -> None:
        from bagwise.codebooks.pyramids import resolve_pyramid
        from bagwise.merging.criteria import NAMED_CRITERIA

        if isinstance(self.to, str) and self.to != "auto":
            raise BagwiseError(f'to must be a number of words or "auto", got {self.to!r}.')
        if self.to != "auto":
            check_integer(self.to, "to", 1)
        for name, least in (("words", 2), ("step", 1), ("patch", 1)):
            if getattr(self, name) is not None:
                check_integer(getattr(self, name), name, least)
        for name, least in (("min_count", 1), ("ngrams", 1), ("folds", 0), ("jobs", -1)):
            check_integer(getattr(self, name), name, least)
        check_integer(self.seed, "seed", 0, 2**32 - 1)
        if self.folds == 1:
            raise BagwiseError("folds=1 leaves nothing to learn from. Give 0 (no cross-validation), or 2 or more.")
        if self.jobs == 0:
            raise BagwiseError("jobs=0 threads can do nothing. Give a number of threads, or -1 for all cores.")
        is_number = isinstance(self.penalty, (int, float)) and not isinstance(self.penalty, bool)
        if not is_number or not 0 < self.penalty < float("inf"):
            raise BagwiseError(f"penalty must be a finite number above 0, got {self.penalty!r}.")
        resolve_pyramid(self.pyramid)
        _check_name(self.criterion, "criterion", ("auto", *NAMED_CRITERIA))
        _check_name(self.descriptor, "descriptor", ("auto", *DESCRIPTORS))
        _check_name(self.on_error, "on_error", _ON_ERROR)
        if self.stop_words not in (None, "english"):
            raise unknown_name("stop_words", self.stop_words, ("english",))

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any], where: str = "options") -> FitOptions:
        """Build options from names and values; dashes in names count as underscores.

        Parameters
        ----------
        given : mapping
        where : str
            Where they come from, for errors.

        Returns
        -------
        options : FitOptions

        Examples
        --------
        >>> from bagwise.training import FitOptions
        >>> FitOptions.from_mapping({"to": 20, "stop-words": "english"}).stop_words
        'english'
        """
        known = {field.name for field in fields(cls)}
        named = {name.replace("-", "_"): value for name, value in given.items()}
        for name in named:
            if name not in known:
                raise unknown_name(f"option in {where}", name, known)
        return cls(**named)

    def with_changes(self, **changes: Any) -> FitOptions:
        """The same options but for those given."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """All options, as numbers, strings and None."""
        return asdict(self)


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    r"""Read options from a TOML file: its table ``[fit]``, or the whole file if it has no tables.

    Parameters
    ----------
    path : path

    Returns
    -------
    options : dict
        For `FitOptions.from_mapping`.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise.training import read_config
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "fit.toml")
    ...     _ = path.write_text("[fit]\nto = 20")
    ...     read_config(path)
    {'to': 20}
    """
    shown = os.fspath(path)
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BagwiseError(f"The configuration {shown} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise BagwiseError(f"The configuration {shown} is not valid TOML: {error}") from error
    table = content.get("fit", content)
    nested = [name for name, value in table.items() if isinstance(value, dict)] if isinstance(table, dict) else ["fit"]
    if nested:
        raise BagwiseError(
            f"The configuration {shown} has a table or value {nested[0]!r} that is not known. "
            "Accepted: options such as to = 50, at the top or in a table [fit]."
        )
    FitOptions.from_mapping(table, shown)  # what is wrong is said with the name of the file
    return dict(table)


def make_descriptor(options: FitOptions, items: str) -> Any:
    """Make the descriptor that the options ask for.

    Parameters
    ----------
    options : FitOptions
    items : {"images", "videos"}

    Returns
    -------
    descriptor : Descriptor
    """
    from bagwise import descriptors

    default = "hog-hof" if items == "videos" else "sift"
    name = default if options.descriptor == "auto" else options.descriptor
    if (name == "hog-hof") != (items == "videos"):
        accepted = [known for known in DESCRIPTORS if (known == "hog-hof") == (items == "videos")]
        raise BagwiseError(f"The descriptor {name!r} does not describe {items}. Accepted: {', '.join(accepted)}.")
    made = getattr(descriptors, DESCRIPTORS[name])(n_jobs=options.jobs, cache=options.cache)
    taken = made.get_params(deep=False)
    for option, parameter in (("step", "step"), ("patch", "cell" if name == "hog-lbp" else "patch")):
        value = getattr(options, option)
        if value is None:
            continue
        if parameter not in taken:
            raise BagwiseError(f"The descriptor {name!r} has no {option}. Leave {option} out, or take another one.")
        made.set_params(**{parameter: value})
    return made


def _check_name(value: Any, name: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise unknown_name(name, value, known)
