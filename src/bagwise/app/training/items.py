"""Items for a model: open a source as the model needs it, and count the words of its items."""

from __future__ import annotations

import os
import warnings
from typing import Any

from bagwise._io.storage import Url, as_place, is_url
from bagwise._utils.text import one_source
from bagwise.app.modalities import MODALITIES
from bagwise.app.modalities.steps import StepCache
from bagwise.app.modalities.vectorizers import Histograms, Progress
from bagwise.app.model.model import Model
from bagwise.app.options import FitOptions
from bagwise.app.training.parts import count_with
from bagwise.app.training.provenance import versions
from bagwise.distributed.executors import Executor, executor_of
from bagwise.errors import BagwiseError, OptionError
from bagwise.sources.archives import is_archive
from bagwise.sources.collection import Collection
from bagwise.sources.frames import is_frame
from bagwise.sources.items import SkippedItemsWarning
from bagwise.sources.limits import as_limits
from bagwise.sources.manifests import as_manifest
from bagwise.sources.media import images_in_mode
from bagwise.sources.opening import (
    SeveralModalities,
    column_names,
    found_source,
    has_endings,
    located,
    open_collection,
)
from bagwise.sources.places import Listing, ending
from bagwise.sources.read_table import split_table
from bagwise.sources.roles import columns_of

__all__ = ["READING", "count_words", "first_labels", "open_items", "open_source", "reading_of"]
__all__ += ["step_cache", "with_sheet"]

# Options that an index keeps, of how its items were read.
READING = tuple(FitOptions().kept("read"))


def reading_options(options: FitOptions) -> dict[str, Any]:
    """Return the options that say how a source is read, as `open_collection` takes them."""
    reading = options.of_stage("read")
    return {name: value for name, value in reading.items() if value is not None and name != "modality"}


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
    source, options = with_sheet(source, options)
    source, reading = place_of(source, options), reading_options(options) | more
    if not in_memory and not isinstance(source, Url) and _are_for_source(source, options):
        reading["storage_options"] = options.storage_options
    if executor is not None:
        reading["mapping"] = executor.mapping("Listing shards")
    modality = options.modality
    if modality == "auto":
        source, modality = located(source, reading)
    if modality == "records":
        reading["on_error"] = options.on_error or "skip"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkippedItemsWarning)  # those who read items tell of these, too
        collection = open_collection(source, modality, **reading)
    several = collection.several() if options.labels else None
    if several is not None:
        first, second, *_ = several.labels
        raise BagwiseError(
            f"{options.labels} gives {several.id!r} two labels, {first!r} and {second!r}. Items have one; remove a row."
        )
    return collection


def with_sheet(source: Any, options: FitOptions) -> tuple[Any, FitOptions]:
    """Return the path of an SQLite file, and options with the table that is named behind it."""
    source, sheet = split_table(source)
    return source, options if sheet is None else options.with_changes(sheet=sheet)


def _are_for_source(source: Any, options: FitOptions) -> bool:
    """Whether storage options are for a source that is no URL: a manifest of URLs, unless they are for the cache."""
    if options.storage_options is None:
        return False
    return not is_url(options.cache) or as_manifest(source, as_limits(options.limits)) is not None


def open_items(
    model: Model, source: Any, options: FitOptions | None = None, executor: Executor | None = None
) -> Collection:
    """Open a source of items for a model.

    Options that are not given are those of the fit: the encoding of texts, the columns of texts and labels in files,
    colours, endings of files. From a folder with several modalities, the images or videos that the model takes are
    opened; texts need ``modality="texts"``.

    Parameters
    ----------
    model : Model
    source : Collection or path
    options : FitOptions, default=None
    executor : Executor, default=None
        Lists shards where it runs.

    Returns
    -------
    collection : Collection
        Of the modality of the model, not empty.
    """
    options = FitOptions() if options is None else options
    if isinstance(source, Collection):
        collection = source
        _check_modality(model, collection.modality, collection.source)
    elif is_frame(source):
        reading = reading_options(options)
        collection = MODALITIES[model.modality].open_frame(source, model, **reading)
    else:
        source, options = with_sheet(source, options)
        source = _listed(source, options)
        options = options.with_changes(modality=_modality_for(model, source, options))
        _check_modality(model, "texts" if options.modality == "records" else options.modality, os.fspath(source))
        options = options.with_changes(**_as_in_fit(model, source, options))
        collection = open_source(source, options, executor, **MODALITIES[model.modality].reader_options(model))
    if not len(collection):
        raise BagwiseError(f"{collection.source} has no items.")
    return images_in_mode(collection, "rgb") if any(one.color for one in model.descriptors) else collection


def _listed(source: Any, options: FitOptions) -> Any:
    """Return a folder or an archive as it was listed, so that this is done once; others as they are."""
    location = place_of(source, options)
    if options.modality != "auto" or (ending(os.fspath(location)) and not is_archive(os.fspath(location))):
        return location
    listing = found_source(location, as_limits(options.limits))
    return listing if isinstance(listing, Listing) else location


def _modality_for(model: Model, source: Any, options: FitOptions) -> str:
    """Return the modality that a source is opened as; of several that it holds, the images or videos of the model."""
    if options.modality != "auto":
        return options.modality
    reading = reading_options(options) | _fitted_endings(model, source, options)
    modality = MODALITIES[model.modality]
    if (
        modality.records is not None
        and "text" not in reading
        and model.options.get("text") is not None
        and columns_of(model.options["text"], column_names(source, as_limits(options.limits))) is not None
    ):
        return modality.records
    try:
        return located(source, reading)[1]
    except SeveralModalities as error:
        if model.modality in error.found and modality.records is None:
            return model.modality
        others = " and ".join(name for name in error.found if name != model.modality)
        message = f"The model takes {model.modality}, but {error.source} holds {others}"
        if model.modality in error.found:
            raise OptionError("modality", f"{message} too. The texts are opened by modality=texts.") from error
        raise BagwiseError(f"{message}. Give {model.modality}.") from error


def _check_modality(model: Model, modality: str, source: str) -> None:
    if modality != model.modality:
        offered, taken = (one_source(name) for name in (modality, model.modality))
        raise BagwiseError(f"The model takes {taken}, but {source} holds {offered}. Give {taken}.")


def _fitted_endings(model: Model, source: Any, options: FitOptions) -> dict[str, Any]:
    """Return the endings of files that the fit was told, if the options name none and the source has such files."""
    endings = model.options.get("extensions")
    usable = options.extensions is None and endings is not None and has_endings(source, endings, options.limits)
    return {"extensions": endings} if usable else {}


def _as_in_fit(model: Model, source: Any, options: FitOptions) -> dict[str, Any]:
    """Return how the source is read as that of the fit was, where the options do not say and it applies."""
    fitted, modality = model.options, MODALITIES[model.modality]
    changes = {name: fitted.get(name) for name in modality.reading if getattr(options, name) is None}
    changes |= _fitted_endings(model, source, options)
    if options.layer is None and ending(os.fspath(source)) == ".h5ad":
        changes["layer"] = fitted.get("layer")
    if columns := modality.columns(options.modality):
        there = column_names(
            source, as_limits(options.limits), sep=options.sep, sheet=options.sheet, encoding=options.encoding
        )
        for name in columns:
            known = None if fitted.get(name) is None else columns_of(fitted[name], there)
            if getattr(options, name) is None and known is not None:
                changes[name] = ",".join(known)
    return changes


def count_words(
    model: Model,
    collection: Collection,
    options: FitOptions | None = None,
    *,
    n_samples: int = 0,
    progress: Progress | None = None,
    client: Any = None,
) -> Histograms:
    """Count the words of the items that can be read, over the full vocabulary.

    Parameters
    ----------
    model : Model
    collection : Collection
        Items of the model's modality, see `open_items`.
    options : FitOptions, default=None
        `on_error`, `n_jobs`, `cache` and `partition` are used.
    n_samples : int, default=0
        Number of images to return a `WordSample` of, for the patches of a report.
    progress : callable, default=None
        See `fit_model`.
    client : distributed.Client, default=None
        Workers of this Dask cluster read the items and count their words.

    Returns
    -------
    histograms : Histograms
    """
    options = FitOptions() if options is None else options
    return count_with(model.vectorizer, collection, options, executor_of(client, progress), n_samples)


def reading_of(options: FitOptions) -> dict[str, Any]:
    """Return what an index keeps of how its items were read, to open them again."""
    return {name: value for name, value in options.kept("read").items() if value is not None}


def first_labels(collection: Collection) -> tuple[str | None, ...]:
    """Return the label of each item, the first of several; None for items without one."""
    return tuple(labels[0] if labels else None for labels in collection.label_sets)


def step_cache(options: FitOptions, progress: Progress) -> StepCache | None:
    """Return the results of earlier runs, if there is a cache."""
    return None if options.cache is None else StepCache(options.cache, {"versions": versions()}, progress)
