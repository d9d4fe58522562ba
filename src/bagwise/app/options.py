"""The one table of the options of a fit.

`FitOptions` declares each option once. From it derive the signature of `fit_model`, the command line, configuration
files, the tables of options in the documentation, what a model and an index keep, and keys of the cache.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bagwise._io.storage import with_options_of
from bagwise._utils.memory import parse_size
from bagwise._utils.text import sources
from bagwise.app.declaring import (
    RUN,
    SOURCE,
    Checked,
    Choice,
    IntegerRule,
    NumberRule,
    Switch,
    Text,
    documented,
    joined,
    option,
    options_of,
)
from bagwise.descriptors import registry
from bagwise.errors import BagwiseError, OptionError, unknown_name
from bagwise.sources.limits import Limits, as_limits

__all__ = ["FitOptions", "check_options", "read_config"]

# The largest number of threads, as in `bagwise._utils.checks`, which imports NumPy: help does without.
_MOST_JOBS = 1 << 10
_CONFIG_BYTES = 1 << 20  # of a configuration file


def _named_criteria() -> tuple[str, ...]:
    from bagwise.merging.criteria import NAMED_CRITERIA  # deferred: it imports scikit-learn

    return tuple(NAMED_CRITERIA)


def _checked_descriptors(value: Any) -> str:
    """Return names of descriptors as one string."""
    joined_names = "+".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    names = registry.split_names(joined_names)
    for name in names:
        if registry.named_descriptor(name) is None:
            known = (one.option for one in registry.DESCRIPTORS.values() if one.option is not None)
            raise unknown_name("descriptor", name, ("auto", *known))
    if len(set(names)) < len(names):
        raise BagwiseError(f"Descriptors beside each other must differ, got {joined_names!r}.")
    return joined_names


def _checked_pyramid(value: Any) -> Any:
    from bagwise.codebooks.pyramids import resolve_pyramid  # deferred: it imports NumPy

    resolve_pyramid(value)
    return value


def _checked_size(value: Any) -> Any:
    parse_size(value)
    return value


def _checked_mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BagwiseError(f'storage_options must be a mapping, such as {{"key": …}}; got {type(value).__name__}.')
    return value


def _names_for(modality: str) -> str:
    return ", ".join(
        known.option for known in registry.DESCRIPTORS.values() if known.option and modality in known.modalities
    )


_VISUAL = ("images", "videos")


@dataclass(frozen=True)
class FitOptions:
    """Options of `fit_model`, which takes them as keyword arguments.

    Parameters
    ----------
    %(options)s

    Examples
    --------
    >>> from bagwise.app import FitOptions
    >>> FitOptions(n_groups=20, descriptor="patches").with_changes(n_groups=10).n_groups
    10
    """

    n_groups: int | str = option(
        "auto",
        "--groups",
        help="Number of groups that merging leaves.",
        rule=IntegerRule(1, also={"auto": "", "best": "the number of the lowest error in cross-validation"}),
        unset="the smallest number whose error in cross-validation is within half a standard error of the difference "
        "to the lowest; 50 without cross-validation",
        metavar="N|auto|best",
        stage="groups",
        common=True,
    )
    n_words: int | None = option(
        None,
        "--words",
        help="Size of the vocabulary.",
        rule=IntegerRule(2),
        unset="1000 for images and videos (2000 network words from 50 classes on), 50000 for texts (30000 without "
        "pairs of words, 20000 without classes)",
        details="Texts have the most frequent words and n-grams. Descriptors after the first have half as many each.",
        metavar="N",
        modalities=("images", "videos", "texts"),
        stage="words",
    )
    criterion: str = option(
        "auto",
        "--criterion",
        help="What merging preserves: classifier, aib, csm, mmi, nda, lpp, …",
        rule=Choice(_named_criteria, also={"auto": ""}),
        unset="classifier; aib or csm with fewer groups than classes, for measurements, or with a pyramid; clusters "
        "without classes",
        details="A name from `bagwise.criteria`. Of aib and csm, csm is for two classes of images or videos.",
        metavar="NAME",
    )
    descriptor: str = option(
        "auto",
        "--descriptor",
        help=f"Of images {_names_for('images')} or network:FILE.onnx, a network of yours; of videos "
        f"{_names_for('videos')}. Several joined by + have a vocabulary each.",
        rule=Checked(_checked_descriptors, "str or list of str", also={"auto": ""}),
        unset="for images network where bagwise[network] is installed, otherwise sift+color, or sift if they are grey",
        details="Small images with classes are tried by cross-validation, see `choose_descriptor`. A step or a patch "
        "chooses SIFT.",
        metavar="NAME",
        modalities=_VISUAL,
        common=True,
        stage="words",
    )
    n_frames: int | None = option(
        None,
        "--frames",
        help="frames that a network describes, evenly spread.",
        rule=IntegerRule(1),
        unset="16",
        metavar="N",
        modalities=("videos",),
        stage="words",
    )
    step: int | None = option(
        None,
        "--step",
        help="pixels between two descriptors.",
        rule=IntegerRule(1),
        unset="that of the descriptor",
        details="Of several descriptors, those of the first.",
        metavar="N",
        modalities=_VISUAL,
        stage="words",
    )
    patch: int | None = option(
        None,
        "--patch",
        help="side in pixels of the square that each descriptor describes.",
        rule=IntegerRule(1),
        unset="that of the descriptor",
        details="Of several descriptors, those of the first. sift describes squares of this side and of twice "
        "this side.",
        metavar="N",
        modalities=_VISUAL,
        stage="words",
    )
    max_side: int = option(
        480,
        "--max-side",
        help="those with a longer side are shrunk by area averaging until that is their longer side.",
        rule=IntegerRule(registry.SIDE.least, registry.SIDE.most, also={0: "they keep their size"}),
        details="Step and patch are pixels after that.",
        metavar="N",
        modalities=("images",),
        stage="words",
    )
    pyramid: int | None = option(
        None,
        "--pyramid",
        help="cells of the spatial pyramid: 5, 8 or 21.",
        rule=Checked(_checked_pyramid, "{5, 8, 21}", int),
        unset="the whole image",
        metavar="5|8|21",
        modalities=("images",),
        stage="words",
    )
    root: str = option(
        "auto",
        "--root",
        help="whether square roots of relative frequencies are taken before or after the words of a group are summed.",
        rule=Choice(("before", "after"), also={"auto": ""}),
        unset="before for the criteria classifier and, with two classes, csm; after for others",
        metavar="before|after",
        modalities=("images", "videos", "table"),
    )
    min_count: int = option(
        1,
        "--min-count",
        help="words that occur in fewer texts are not part of the vocabulary.",
        rule=IntegerRule(1),
        metavar="N",
        modalities=("texts",),
        stage="words",
    )
    stop_words: str | None = option(
        None,
        "--stop-words",
        help="english removes English stop words.",
        rule=Choice(("english",)),
        unset="none are removed",
        metavar="english",
        modalities=("texts",),
        stage="words",
    )
    analyzer: str = option(
        "auto",
        "--analyzer",
        help="what n-grams are made of: words or characters.",
        rule=Choice(("word", "char"), also={"auto": ""}),
        unset="char where most letters are of scripts without spaces, such as Chinese, Japanese, Thai; otherwise word",
        metavar="word|char",
        modalities=("texts",),
        stage="words",
    )
    ngrams: int | None = option(
        None,
        "--ngrams",
        help="the longest n-grams of the vocabulary.",
        rule=IntegerRule(1),
        unset="2 words where texts have classes, otherwise 1, or 3 characters",
        details="Those of several words must occur in at least two texts.",
        metavar="N",
        modalities=("texts",),
        stage="words",
    )
    C: float = option(
        1.0,
        "--C",
        help="C of the linear SVM on the features of groups, as in scikit-learn.",
        rule=NumberRule(above=0),
        metavar="NUMBER",
        stage="groups",
    )
    class_weight: str | None = option(
        None,
        "--class-weight",
        help="What an error on an item costs classifiers: balanced, the less the more items its class has.",
        rule=Choice(("balanced",)),
        unset="every item counts the same",
        details="As the parameter of scikit-learn's `LinearSVC`. The recall of small classes rises, and the error over "
        "all items may rise with it.",
        metavar="balanced",
        stage="groups",
    )
    folds: int = option(
        5,
        "--folds",
        help="Folds of cross-validation along the merging path.",
        rule=IntegerRule(2, also={0: "no cross-validation"}),
        metavar="N",
        stage="groups",
    )
    modality: str = option(
        "auto",
        "--modality",
        help="Items to open: images, texts, videos, records or table.",
        rule=Text(),
        unset="detected",
        panel=SOURCE,
        metavar="NAME",
        stage="read",
    )
    image: str | None = option(
        None,
        help="Column of images, for tables in memory; see `open_collection`.",
        rule=Text(),
        panel=SOURCE,
        stage="read",
    )
    text: str | None = option(
        None,
        "--text",
        help="Column of texts in a table; several, with commas between them, are joined.",
        rule=Text(sep=","),
        unset="text, body, content or document, or the only column of long strings",
        panel=SOURCE,
        metavar="COLUMN",
        stage="read",
        common=True,
    )
    label: str | None = option(
        None,
        "--label",
        help="Column of labels in a file of records, a table, or the file of labels.",
        rule=Text(),
        unset="label, labels, class, category or target; otherwise the only column of few values beside texts, or the "
        "only one with text beside numbers",
        details="A note says which column was taken, or which may hold the labels.",
        panel=SOURCE,
        metavar="COLUMN",
        stage="read",
        common=True,
    )
    id: str | None = option(
        None,
        "--id",
        help="Column of ids, in the same files.",
        rule=Text(),
        unset="id",
        panel=SOURCE,
        metavar="COLUMN",
        stage="read",
    )
    split: str | None = option(
        None,
        "--split",
        help="Column of splits, train or test, in the same files.",
        rule=Text(),
        unset="split",
        panel=SOURCE,
        metavar="COLUMN",
        stage="read",
    )
    keep: str | None = option(
        None,
        "--keep",
        help="Column of a table to use as a word although it seems to number the rows.",
        rule=Text(),
        details="Such are `Unnamed: 0`, `index` and `id`; without it a column `id` with equal values is left out too, "
        "and rows are named by their numbers. A note names columns with another value for each label: they tell the "
        "class.",
        panel=SOURCE,
        metavar="COLUMN",
        stage="read",
    )
    labels: str | None = option(
        None,
        "--labels",
        help="File with the labels of items: columns filename, label and, if you like, split.",
        rule=Text(),
        details="CSV, TSV, JSON lines, Excel, Parquet or SQLite; `id`, `file`, `path`, `image`, … are names of the "
        "first column too, `class`, … of the second. File names are paths below the folder, or their last parts if "
        "only one item ends so, with or without the ending. Items that are not in the file have no label, which a note "
        "counts; contradictions are errors.",
        panel=SOURCE,
        metavar="FILE",
        stage="read",
        kept=False,
        common=True,
    )
    relabel: str | None = option(
        None,
        "--relabel",
        help="File with corrected labels of some items, on top of those of the source: columns id and label.",
        rule=Text(),
        details="An empty label leaves the item out; items that are not in the file keep theirs. The page Labels of "
        "the explorer writes such a file.",
        panel=SOURCE,
        metavar="FILE",
        kept=False,
    )
    extensions: str | None = option(
        None,
        "--extensions",
        help="Endings of the files of a folder that are items, such as .log,.md.",
        rule=Text(sep=","),
        unset="the usual ones",
        panel=SOURCE,
        metavar=".log,.md",
        stage="read",
    )
    sep: str | None = option(
        None,
        "--sep",
        help="Character between the fields of a CSV file, or tab.",
        rule=Text(),
        unset="a comma, or another character if that is plain from the first rows; then numbers may have decimal "
        "commas",
        panel=SOURCE,
        metavar="CHARACTER",
        stage="read",
    )
    sheet: str | None = option(
        None,
        "--sheet",
        help="Sheet of an Excel file, or its number from 1.",
        rule=Text(),
        unset="the first",
        details="Needs bagwise[excel]. Dates become texts such as `2024-05-03`.",
        panel=SOURCE,
        metavar="NAME",
        stage="read",
    )
    encoding: str | None = option(
        None,
        "--encoding",
        help="Encoding of texts and CSV files, such as latin-1.",
        rule=Text(),
        unset="UTF-8; if much is not UTF-8, a guess, which a note tells",
        panel=SOURCE,
        metavar="NAME",
        stage="read",
    )
    header: bool | None = option(
        None,
        "--header/--no-header",
        help="The first line of a CSV, TSV or Excel file has the names of columns, or not.",
        rule=Switch(),
        unset="detected, which a note tells",
        details="Without names, columns are numbered from 1, as in `--text 2 --label 1`.",
        panel=SOURCE,
        stage="read",
    )
    missing: str | None = option(
        None,
        "--missing",
        help="Missing numbers of a table, such as empty cells and NA: zero, median (of the column in this source) or "
        "drop (leaves such rows out).",
        rule=Choice(("zero", "median", "drop")),
        unset="an error that names rows and columns",
        modalities=("table",),
        panel=SOURCE,
        stage="read",
    )
    layer: str | None = option(
        None,
        "--layer",
        help="Layer of an .h5ad file of AnnData, or raw.",
        rule=Text(),
        unset="its matrix X",
        details="Needs bagwise[anndata]. Labels, ids and splits are columns of `obs` there.",
        panel=SOURCE,
        metavar="NAME",
        stage="read",
    )
    limits: Limits | None = option(
        None,
        "--limit",
        help="Accept larger sources and items than usual, or fewer: rows, columns, members, pixels, seconds, "
        "table_bytes, …; may be repeated.",
        rule=Checked(as_limits, "Limits, mapping or list of str", list[str]),
        details="Texts such as `pixels=200000000` or `table_bytes=32GB`; messages name the limit that was exceeded.",
        panel=SOURCE,
        metavar="NAME=NUMBER",
        stage="read",
        kept=False,
        config="limits",
    )
    on_error: str | None = option(
        None,
        "--on-error",
        help="Items that cannot be read: skip them, or raise an error.",
        rule=Choice(("raise", "skip")),
        unset="they are skipped, but a fit stops if they are more than a fifth (and five or more)",
        panel=SOURCE,
        metavar="skip|raise",
        kept=False,
    )
    cache: str | os.PathLike[str] | None = option(
        None,
        "--cache",
        help="Folder that keeps what each step gives for the next run.",
        rule=Checked(lambda value: value, "path or URL"),
        unset="nothing is kept",
        details="It holds descriptors, words, histograms, groups and errors, so that an interrupted fit goes on from "
        "its last finished step, and one with another number of groups or criterion begins with merging.",
        panel=RUN,
        metavar="DIR",
        kept=False,
        common=True,
    )
    storage_options: Mapping[str, Any] | None = option(
        None,
        help="What fsspec opens the file systems of URLs with, such as credentials: that of the source, and that "
        "of `cache` if it is on the same store or server, or the source is none by URL.",
        rule=Checked(_checked_mapping, "mapping"),
        unset="by environment variables and fsspec's configuration files",
        details="Never kept in files.",
        panel=RUN,
        kept=False,
        secret=True,
    )
    memory_limit: int | float | str | None = option(
        None,
        "--memory-limit",
        help="Histograms beyond this size stay in partitions: words and classifiers are learned from sums over them. "
        "Without it, descriptors beyond 32 MiB go to temporary files.",
        rule=Checked(_checked_size, "int, float or str"),
        unset="unlimited histograms",
        panel=RUN,
        metavar="SIZE",
        kept=False,
    )
    partition: int | None = option(
        None,
        "--partition",
        help="With a cluster: number of items that a worker takes at a time; with transform, those of a part.",
        rule=IntegerRule(1),
        unset="64 images, 8 videos, 10000 texts or rows; parts have 4096",
        details="The model does not depend on it.",
        panel=RUN,
        metavar="N",
        kept=False,
    )
    random_state: int = option(
        0,
        "--seed",
        help="The same seed gives the same model.",
        rule=IntegerRule(0, 2**32 - 1),
        metavar="N",
        stage="groups",
    )
    n_jobs: int = option(
        -1,
        "--jobs",
        help="Threads.",
        rule=IntegerRule(1, _MOST_JOBS, also={-1: "one per core"}),
        panel=RUN,
        metavar="N",
        kept=False,
    )

    def __post_init__(self) -> None:
        for name, known in options_of(self).items():
            value = getattr(self, name)
            if value is None and getattr(type(self), name) is None:
                continue
            try:
                object.__setattr__(self, name, known.rule.checked(name, value))
            except BagwiseError as error:
                raise OptionError(name, str(error)) from error

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], where: str = "options") -> FitOptions:
        """Build options from names of parameters and values; `where` is the origin of the options, for errors."""
        for name in values:
            if name not in options_of(cls):
                raise unknown_name(f"option in {where}", name, options_of(cls))
        return cls(**values)

    @property
    def asked_groups(self) -> int | None:
        """The number of groups that is asked for; None if cross-validation chooses one."""
        return None if isinstance(self.n_groups, str) else self.n_groups

    def with_changes(self, **changes: Any) -> FitOptions:
        """Return options with some changed."""
        return dataclasses.replace(self, **changes)

    def changed(self) -> dict[str, Any]:
        """Return the options that are not the defaults."""
        return {name: value for name, value in self.to_dict().items() if value != getattr(type(self), name)}

    def to_dict(self) -> dict[str, Any]:
        """Return options as numbers, strings and None; those of `limits` that are not the defaults as a dict.

        Without `storage_options`, which may be secrets.
        """
        changed = None if self.limits is None else self.limits.changed() or None
        values = {name: getattr(self, name) for name, known in options_of(self).items() if not known.secret}
        return values | {"limits": changed}

    def kept(self, stage: str | None = None) -> dict[str, Any]:
        """Return what files keep of the options, or of those of a stage: nothing about one machine or one run."""
        known = options_of(self).items()
        return {name: getattr(self, name) for name, one in known if one.kept and stage in (None, one.stage)}

    def of_stage(self, stage: str) -> dict[str, Any]:
        """Return the options of a stage, see `option`."""
        return {name: getattr(self, name) for name, one in options_of(self).items() if one.stage == stage}

    def for_source(self, source: Any) -> FitOptions:
        """Return options whose `cache` has the `storage_options`, if they are for it.

        >>> def cache_for(source):
        ...     return FitOptions(cache="s3://b/cache", storage_options={"key": "x"}).for_source(source).cache
        >>> cache_for("s3://a"), cache_for("photos"), cache_for("gs://a")
        (Url('s3://b/cache'), Url('s3://b/cache'), 's3://b/cache')
        """
        return self.with_changes(cache=with_options_of(self.cache, source, self.storage_options))


_THESE = {"table": "this is a table, whose columns are its words"}


def check_options(options: FitOptions, modality: str) -> None:
    """Raise an error if an option has no effect on this modality."""
    these = _THESE.get(modality, f"these are {modality}")
    for name, known in options_of(options).items():
        if (
            known.modalities
            and modality not in known.modalities
            and getattr(options, name) != getattr(type(options), name)
        ):
            accepted = joined([sources(one) for one in known.modalities])
            raise OptionError(name, f"{name} is for {accepted}, but {these}. Remove {name}.")


documented(FitOptions, FitOptions)


def read_config(path: str | os.PathLike[str], table: type[FitOptions] = FitOptions) -> dict[str, Any]:
    r"""Read options from a TOML file: its table ``[fit]``, or the whole file if it has no tables.

    Options have the names of the command line, such as ``groups`` and ``stop-words``.

    Parameters
    ----------
    path : path
    table : type, default=FitOptions
        The options that are accepted.

    Returns
    -------
    options : dict
        Parameters of `FitOptions`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bagwise.app import read_config
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "fit.toml")
    ...     _ = path.write_text("[fit]\ngroups = 20")
    ...     read_config(path)
    {'n_groups': 20}
    """
    import tomllib  # deferred: most commands read no configuration

    shown = os.fspath(path)
    try:
        with open(path, "rb") as file:
            text = file.read(_CONFIG_BYTES + 1)
        if len(text) > _CONFIG_BYTES:
            raise BagwiseError(f"The configuration {shown} has more than {_CONFIG_BYTES:,} bytes, which is too much.")
        content = tomllib.loads(text.decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BagwiseError(f"The configuration {shown} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:  # also for numbers of thousands of digits
        raise BagwiseError(f"The configuration {shown} is not valid TOML: {error}") from error
    section = content.get("fit", content)
    nested = ["fit"]
    if isinstance(section, dict):
        nested = [name for name, value in section.items() if isinstance(value, dict) and name != "limits"]
    if nested:
        raise BagwiseError(
            f"The configuration {shown} has a table or value {nested[0]!r} that is not known. "
            "Accepted: options such as groups = 50, at the top or in a table [fit], and a table of limits."
        )
    known = {one.config: name for name, one in options_of(table).items() if one.config}
    for name in section:
        if name not in known:
            raise unknown_name(f"option in {shown}", name, known)
    parameters = {known[name]: value for name, value in section.items()}
    try:
        table(**parameters)
    except OptionError as error:
        raise OptionError(error.parameter, f"The configuration {shown} is wrong: {error}") from error
    return parameters
