"""Options of a fit, for Python, the command line and configuration files alike, and what follows from them."""

from __future__ import annotations

import os
import sys
import tomllib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any

from bagwise._io.storage import Url, as_place, is_url, with_options_of
from bagwise._utils.checks import MOST_JOBS, check_integer
from bagwise._utils.memory import parse_size
from bagwise.app.model.vectorizers import TableVectorizer, TextVectorizer, Vectorizer
from bagwise.app.model.visual import VisualVectorizer
from bagwise.descriptors import registry
from bagwise.distributed.executors import Executor
from bagwise.errors import BagwiseError, OptionError, unknown_name
from bagwise.sources.collection import Collection
from bagwise.sources.frames import is_frame
from bagwise.sources.items import SkippedItemsWarning
from bagwise.sources.limits import Limits, as_limits
from bagwise.sources.manifests import as_manifest
from bagwise.sources.opening import modality_of, open_collection

__all__ = [
    "FitOptions",
    "make_descriptors",
    "make_vectorizer",
    "open_source",
    "place_of",
    "read_config",
    "reading_options",
    "visual_words",
]

# Names on the command line, and the classes behind them. Several are joined by "+".
# Parameters whose options have other names, on the command line and in configuration files.
_OPTION_NAMES = {
    "n_groups": "groups",
    "n_words": "words",
    "n_jobs": "jobs",
    "n_frames": "frames",
    "random_state": "seed",
}

# Frames of a video that a network describes.
_N_FRAMES = 16
# Longer side that larger images are shrunk to: photos of cameras give about 5000 descriptors then.
MAX_SIDE = 480
IMAGE_WORDS = 1000
# Network words of many classes: with 100 classes of Caltech-101, 2000 words err on 6.3 %, 1000 on 6.9 %.
MANY_CLASSES, MANY_CLASSES_WORDS = 50, 2000
TEXT_WORDS = 30_000
# Patches of two sizes: cross-validation on training parts of Scene-15, Corel-1k and Caltech-101 gave errors (all words)
# of 26.7, 7.0 and 2.0 %; with one size of 16 pixels 30.0, 7.2 and 3.2 %, of 32 pixels 31.0, 6.4 and 1.5 %.
SIFT_SCALES = (1.0, 2.0)
MANIFOLD_WORDS = 128  # that are moved by `ManifoldBagOfFeatures`, which is its default
# Without classes: more are no better for clusters of texts.
CLUSTERED_TEXT_WORDS = 20_000
_CONFIG_BYTES = 1 << 20  # of a configuration file
# Options that say how a source is read.
_COLUMNS = ("image", "text", "label", "id", "split")
_READING = (*_COLUMNS, "keep", "labels", "extensions", "sep", "sheet", "encoding", "layer", "limits")
# The modalities of options that do not apply to all.
_ONLY_FOR: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("descriptor", "step", "patch"), ("images", "videos")),
    "max_side": ("images",),
    "n_frames": ("videos",),
    "root": ("images", "videos", "table"),
    **dict.fromkeys(("min_count", "stop_words", "ngrams"), ("texts",)),
}
_TOKEN = r"(?u)\b\w\w+\b"


@dataclass(frozen=True)
class FitOptions:
    """Options of `fit_model`, which takes them as keyword arguments.

    Parameters
    ----------
    n_groups : int or "auto", default="auto"
        Number of groups that merging leaves. "auto": the smallest number whose error in cross-validation is within one
        standard error of the best; 50 if there is no cross-validation.
    n_words : int, default=None
        Size of the vocabulary: words learned from images (None: 1000; descriptors after the first have half as many
        words each), or the most frequent words of texts (None:
        30,000, without classes 20,000). The columns of a table are its words, so this does not apply to tables.
    criterion : str, default="auto"
        A name from `bagwise.criteria`. "auto": "classifier" if there are at least as many groups as classes, or
        their number is chosen by cross-validation; with fewer groups or a pyramid "csm" for two classes of images or
        videos, "aib" for others and for measurements; without classes "clusters".
    descriptor : str or list of str, default="auto"
        "network" (or "network:FILE.onnx"), "sift", "color-sift", "keypoint-sift", "color", "hog-lbp" or "patches" for
        images, "hog-hof" or "network" for videos. Several
        in a list, or joined by "+", have a vocabulary each. "auto" for images: "network" where ``bagwise[network]`` is
        installed, otherwise "sift+color", or "sift" if they are grey; see `choose_descriptor` for small ones.
    n_frames : int, default=None
        Videos: frames that a network describes, evenly spread; None: 16.
    step, patch : int, default=None
        Pixels between two descriptors, and the side of the square each describes; None: defaults of the descriptor. Of
        several descriptors, those of the first. "sift" describes squares of this side and of twice this side.
    max_side : int, default=480
        Images with a longer side are shrunk by area averaging until that is their longer side; step and patch are
        pixels after that. 0: images keep their size.
    pyramid : int, default=None
        5, 8 or 21 cells of a spatial pyramid; None: the whole image.
    root : {"auto", "before", "after"}, default="auto"
        Images, videos and tables: whether square roots of relative frequencies are taken before or after the words of a
        group are summed. "auto": before for the criteria "classifier" and, with two classes, "csm"; after for others.
    min_count : int, default=1
        Texts: words that occur in fewer texts are not part of the vocabulary.
    stop_words : {"english", None}, default=None
        Texts: a list of stop words.
    ngrams : int, default=1
        Texts: the longest n-grams of the vocabulary.
    C : float, default=1.0
        Regularisation of the linear SVM on the features of groups, as in scikit-learn.
    folds : int, default=5
        Folds of cross-validation along the merging path; 0: none.
    modality : str, default="auto"
        Items to open, see `open_collection`.
    image : str, default=None
        Column of images, for tables in memory; see `open_collection`.
    text, label, id, split : str, default=None
        Columns with texts, labels, ids and splits, for files of records and tables. Where items are files, the last
        three are columns of the file that `labels` is.
    keep : str, default=None
        Column of a table to use as a word although it seems to number the rows, see `open_table`.
    labels : path, default=None
        File with the labels of items, and their splits, if it has such a column; see `Collection.with_labels`.
    extensions : str or list of str, default=None
        Endings of the files of a folder that are items, such as ".log,.md".
    sep, sheet : str, default=None
        Character between the fields of a CSV file; sheet of an Excel file. See `open_records`.
    encoding : str, default=None
        Encoding of texts and CSV files; None: UTF-8.
    layer : str, default=None
        Layer of an AnnData file, see `open_table`; None: its matrix X.
    limits : Limits, mapping or list of str, default=None
        Sources and items beyond them are refused: a `bagwise.sources.Limits`, or those that are not the defaults, by a
        mapping, or texts such as "pixels=200000000". They are never kept in files.
    on_error : {"raise", "skip"}, default="skip"
        Whether an item that cannot be read raises an error, or is skipped.
    cache : path or URL, default=None
        Folder that keeps descriptors, words, histograms, groups and errors, so that an interrupted fit goes on from its
        last finished step, and one with another number of groups or criterion begins with merging.
    storage_options : mapping, default=None
        What fsspec opens the file systems of URLs with, such as credentials: that of the source, and that of `cache` if
        it is on the same store or server, or the source is none by URL. They are never kept in files. None: by
        environment variables and fsspec's configuration files.
    memory_limit : int, float or str, default=None
        Descriptors beyond this size go to a temporary file during a fit; None: 32 MiB. With a cluster, histograms
        beyond it stay on the workers; None: 1 GiB.
    partition : int, default=None
        With a cluster: number of items that a worker takes at a time. None: 64 images, 8 videos, 10,000 texts or rows.
        The model does not depend on it.
    random_state : int, default=0
        The same seed gives the same model.
    n_jobs : int, default=-1
        Threads; -1: one per core.

    Examples
    --------
    >>> from bagwise.app import FitOptions
    >>> FitOptions(n_groups=20, descriptor="patches").with_changes(n_groups=10).n_groups
    10
    """

    n_groups: int | str = "auto"
    n_words: int | None = None
    criterion: str = "auto"
    descriptor: str = "auto"
    n_frames: int | None = None
    step: int | None = None
    patch: int | None = None
    max_side: int = MAX_SIDE
    pyramid: int | None = None
    root: str = "auto"
    min_count: int = 1
    stop_words: str | None = None
    ngrams: int = 1
    C: float = 1.0
    folds: int = 5
    modality: str = "auto"
    image: str | None = None
    text: str | None = None
    label: str | None = None
    id: str | None = None
    split: str | None = None
    keep: str | None = None
    labels: str | None = None
    extensions: str | None = None
    sep: str | None = None
    sheet: str | None = None
    encoding: str | None = None
    layer: str | None = None
    limits: Limits | None = None
    on_error: str = "skip"
    cache: str | os.PathLike[str] | None = None
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)
    memory_limit: int | float | str | None = None
    partition: int | None = None
    random_state: int = 0
    n_jobs: int = -1

    def __post_init__(self) -> None:
        from bagwise.codebooks.pyramids import resolve_pyramid

        if isinstance(self.descriptor, (list, tuple)):
            object.__setattr__(self, "descriptor", "+".join(map(str, self.descriptor)))
        if isinstance(self.extensions, (list, tuple)):
            object.__setattr__(self, "extensions", ",".join(map(str, self.extensions)))
        if self.limits is not None:
            with _option("limits"):
                object.__setattr__(self, "limits", as_limits(self.limits))
        if self.labels is not None:
            object.__setattr__(self, "labels", os.fspath(self.labels))
        if self.storage_options is not None and not isinstance(self.storage_options, Mapping):
            got = type(self.storage_options).__name__
            raise OptionError("storage_options", f'storage_options must be a mapping, such as {{"key": …}}; got {got}.')
        if isinstance(self.n_groups, str) and self.n_groups != "auto":
            raise OptionError("n_groups", f'n_groups must be an integer or "auto", got {self.n_groups!r}.')
        if self.n_groups != "auto":
            self._check_integer("n_groups", 1)
        for name, least in (("n_words", 2), ("n_frames", 1), ("step", 1), ("patch", 1), ("partition", 1)):
            if getattr(self, name) is not None:
                self._check_integer(name, least)
        for name, least in (("min_count", 1), ("ngrams", 1), ("folds", 0)):
            self._check_integer(name, least)
        if self.max_side is None or not (self.max_side == 0 or registry.SIDE.accepts(self.max_side)):
            accepted = f"an integer from {registry.SIDE.least} to {registry.SIDE.most}, or 0: images keep their size"
            raise OptionError("max_side", f"max_side must be {accepted}; got {self.max_side!r}.")
        self._check_integer("n_jobs", -1, MOST_JOBS)
        self._check_integer("random_state", 0, 2**32 - 1)
        if self.folds == 1:
            raise OptionError("folds", "folds=1 leaves no training data. Set 0 (no cross-validation), or at least 2.")
        if self.n_jobs == 0:
            raise OptionError("n_jobs", "n_jobs=0 is no number of threads. Set at least 1, or -1 for all cores.")
        is_number = isinstance(self.C, (int, float)) and not isinstance(self.C, bool)
        if not is_number or not 0 < self.C <= sys.float_info.max:
            raise OptionError("C", f"C must be a finite number above 0, got {self.C!r:.100}.")
        with _option("pyramid"):
            resolve_pyramid(self.pyramid)
        if self.memory_limit is not None:
            with _option("memory_limit"):
                parse_size(self.memory_limit)
        if self.criterion != "auto":
            from bagwise.merging.criteria import NAMED_CRITERIA  # deferred: it imports scikit-learn

            self._check_name("criterion", ("auto", *NAMED_CRITERIA))
        for name, known in (
            ("on_error", ("raise", "skip")),
            ("root", ("auto", "before", "after")),
            ("stop_words", (None, "english")),
        ):
            self._check_name(name, known)
        names = registry.split_names(str(self.descriptor))
        for name in names if self.descriptor != "auto" else ():
            if registry.named_descriptor(name) is None:
                options = (one.option for one in registry.DESCRIPTORS.values() if one.option is not None)
                raise OptionError("descriptor", str(unknown_name("descriptor", name, ("auto", *options))))
        if len(set(names)) < len(names):
            raise OptionError("descriptor", f"Descriptors beside each other must differ, got {self.descriptor!r}.")

    def _check_name(self, name: str, known: tuple[str | None, ...]) -> None:
        if getattr(self, name) not in known:
            choices = [choice for choice in known if choice is not None]
            raise OptionError(name, str(unknown_name(name, getattr(self, name), choices)))

    def _check_integer(self, name: str, least: int, most: int | None = None) -> None:
        with _option(name):
            check_integer(getattr(self, name), name, least, *(() if most is None else (most,)))

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any], where: str = "options") -> FitOptions:
        """Build options from names of parameters and values; `where` is the origin of the options, for errors."""
        known = {one.name for one in fields(cls)}
        for name in given:
            if name not in known:
                raise unknown_name(f"option in {where}", name, known)
        return cls(**given)

    def with_changes(self, **changes: Any) -> FitOptions:
        """Return options with some changed."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return options as numbers, strings and None; those of `limits` that are not the defaults as a dict.

        Without `storage_options`, which may be secrets.
        """
        changed = None if self.limits is None else self.limits.changed() or None
        names = [one.name for one in fields(self) if one.name != "storage_options"]
        return {name: getattr(self, name) for name in names} | {"limits": changed}

    def for_source(self, source: Any) -> FitOptions:
        """Return options whose `cache` has the `storage_options`, if they are for it.

        >>> def cache_for(source):
        ...     return FitOptions(cache="s3://b/cache", storage_options={"key": "x"}).for_source(source).cache
        >>> cache_for("s3://a"), cache_for("photos"), cache_for("gs://a")
        (Url('s3://b/cache'), Url('s3://b/cache'), 's3://b/cache')
        """
        return self.with_changes(cache=with_options_of(self.cache, source, self.storage_options))


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    r"""Read options from a TOML file: its table ``[fit]``, or the whole file if it has no tables.

    Options have the names of the command line, such as ``groups`` and ``stop-words``.

    Parameters
    ----------
    path : path

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
    table = content.get("fit", content)
    nested = ["fit"]
    if isinstance(table, dict):
        nested = [name for name, value in table.items() if isinstance(value, dict) and name != "limits"]
    if nested:
        raise BagwiseError(
            f"The configuration {shown} has a table or value {nested[0]!r} that is not known. "
            "Accepted: options such as groups = 50, at the top or in a table [fit], and a table of limits."
        )
    parameters = _parameters(table, shown)
    try:
        FitOptions(**parameters)
    except OptionError as error:
        raise OptionError(error.parameter, f"The configuration {shown} is wrong: {error}") from error
    return parameters


def _parameters(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Replace the names of options by those of the parameters."""
    known = {_OPTION_NAMES.get(one.name, one.name).replace("_", "-"): one.name for one in fields(FitOptions)}
    for name in given:
        if name not in known:
            raise unknown_name(f"option in {where}", name, known)
    return {known[name]: value for name, value in given.items()}


def make_descriptors(options: FitOptions, modality: str) -> list[Any]:
    """Build the descriptors of the options, for images or videos."""
    default = "hog-hof" if modality == "videos" else "sift"
    names = registry.split_names(default if options.descriptor == "auto" else options.descriptor)
    accepted = [one.option for one in registry.DESCRIPTORS.values() if one.option and modality in one.modalities]
    made = []
    for name in names:
        found = registry.named_descriptor(name)
        if found is None or modality not in registry.DESCRIPTORS[found[0]].modalities:
            message = f"The descriptor {name!r} does not describe {modality}. Accepted: {', '.join(accepted)}."
            raise OptionError("descriptor", message)
        kind, parameters = found
        cls = registry.descriptor_class(kind)
        made.append(cls(**parameters, n_jobs=options.n_jobs, cache=options.cache))
        if modality == "images":
            made[-1].set_params(max_side=options.max_side or None)
        elif "n_frames" in cls.rules():
            made[-1].set_params(n_frames=options.n_frames or _N_FRAMES)
        if name == "sift":
            made[-1].set_params(scales=SIFT_SCALES)
    if options.n_frames is not None and not any("n_frames" in one.get_params() for one in made):
        message = f"The descriptor {names[0]!r} has no n_frames. Remove n_frames, or choose network."
        raise OptionError("n_frames", message)
    first, taken = made[0], made[0].get_params()
    for option, parameter in (("step", "step"), ("patch", "cell" if "cell" in taken else "patch")):
        value = getattr(options, option)
        if value is None:
            continue
        if parameter not in taken:
            message = f"The descriptor {names[0]!r} has no {option}. Remove {option}, or choose another."
            raise OptionError(option, message)
        first.set_params(**{parameter: value})
    return made


def reading_options(options: FitOptions) -> dict[str, Any]:
    """Return the options that say how a source is read, as `open_collection` takes them."""
    return {name: getattr(options, name) for name in _READING if getattr(options, name) is not None}


def place_of(source: Any, options: FitOptions) -> Any:
    """Return the path or URL of a source; a URL has its storage options."""
    return as_place(source, options.storage_options if is_url(source) else None)


def open_source(source: Any, options: FitOptions, executor: Executor | None = None, **more: Any) -> Collection:
    """Open the source of a fit, a collection or a path, as the options say; `more` are given to the reader as well.

    Records that cannot be read are in `skipped` of the collection, unless the options say that they are an error. An
    `executor` lists shards where it runs.
    """
    in_memory = isinstance(source, Collection) or is_frame(source)
    if in_memory and options.storage_options is not None and not is_url(options.cache):
        message = "storage_options are for URLs, but neither the source nor cache is one. Remove storage_options."
        raise OptionError("storage_options", message)
    if isinstance(source, Collection):
        return source
    source, given = place_of(source, options), reading_options(options) | more
    if not in_memory and not isinstance(source, Url) and _are_for_source(source, options):
        given["storage_options"] = options.storage_options
    if executor is not None:
        given["mapping"] = executor.mapping("Listing shards")
    modality = modality_of(source, given) if options.modality == "auto" else options.modality
    if modality == "records":
        given["on_error"] = options.on_error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkippedItemsWarning)  # those who read items tell of these, too
        collection = open_collection(source, modality, **given)
    several = next((item for item in collection if len(item.labels) > 1), None) if options.labels else None
    if several is not None:
        first, second, *_ = several.labels
        raise BagwiseError(
            f"{options.labels} gives {several.id!r} two labels, {first!r} and {second!r}. Items have one; remove a row."
        )
    return collection


def _are_for_source(source: Any, options: FitOptions) -> bool:
    """Whether storage options are for a source that is no URL: a manifest of URLs, unless they are for the cache."""
    if options.storage_options is None:
        return False
    return not is_url(options.cache) or as_manifest(source, as_limits(options.limits)) is not None


def check_options(options: FitOptions, modality: str) -> None:
    """Raise an error if an option has no effect on this modality."""
    if options.pyramid is not None and modality != "images":
        raise OptionError("pyramid", f"pyramid is for images, but these are {modality}. Remove pyramid.")
    for name, modalities in _ONLY_FOR.items():
        if modality not in modalities and getattr(options, name) != getattr(FitOptions, name):
            accepted = " and ".join(filter(None, (", ".join(modalities[:-1]), modalities[-1])))
            raise OptionError(name, f"{name} is for {accepted}, but these are {modality}. Remove {name}.")
    if modality == "table" and options.n_words is not None:
        raise OptionError("n_words", "The columns of a table are its words; n_words does not apply. Remove n_words.")


def text_words(options: FitOptions, has_classes: bool) -> int:
    """Return the largest size of the vocabulary of texts."""
    return options.n_words or (TEXT_WORDS if has_classes else CLUSTERED_TEXT_WORDS)


def visual_words(options: FitOptions, descriptors: Sequence[Any], n_classes: int = 0) -> tuple[int, ...]:
    """Return the number of words of the vocabulary of each descriptor of images or videos."""
    many = n_classes >= MANY_CLASSES and descriptors[0].name == "NetworkFeatures"
    first = options.n_words or (MANY_CLASSES_WORDS if many else IMAGE_WORDS)
    return (first, *[max(2, first // 2)] * (len(descriptors) - 1))


def make_vectorizer(
    options: FitOptions, modality: str, *, n_classes: int = 0, n_components: int | None = None
) -> Vectorizer:
    """Build the vectorizer of a modality as the options say; see `bagwise.app.model.vectorizers`.

    With `n_components`, words of images and videos are moved along a manifold of so many dimensions.
    """
    from bagwise.codebooks.pyramids import resolve_pyramid

    check_options(options, modality)
    if n_components is not None and modality not in ("images", "videos"):
        what = "texts have words already" if modality == "texts" else "the columns of a table are its words"
        raise OptionError(
            "method", f"method='manifold' moves words that are learned from images or videos, but {what}. Use 'kmeans'."
        )
    if modality == "table":
        return TableVectorizer()
    if modality == "texts":
        tokenizer = {
            "lowercase": True,
            "token_pattern": _TOKEN,
            "ngram_range": [1, options.ngrams],
            "stop_words": options.stop_words,  # n-grams skip them, so that the model must do so as well
        }
        return TextVectorizer(tokenizer, n_words=text_words(options, n_classes > 0), min_count=options.min_count)
    descriptors = make_descriptors(options, modality)
    asked = options if n_components is None else options.with_changes(n_words=options.n_words or MANIFOLD_WORDS)
    return VisualVectorizer(
        modality,
        descriptors,
        pyramid=resolve_pyramid(options.pyramid),
        n_words=visual_words(asked, descriptors, n_classes),
        assignments=[one.assignment for one in descriptors],
        fewer=options.n_words is None,  # a default is no error
        n_components=n_components,
        random_state=options.random_state,
        memory_limit=options.memory_limit,
    )


@contextmanager
def _option(parameter: str) -> Iterator[None]:
    """Raise a `BagwiseError` of the block as the error of an option."""
    try:
        yield
    except BagwiseError as error:
        raise OptionError(parameter, str(error)) from error
