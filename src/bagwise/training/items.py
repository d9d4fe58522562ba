"""Items for a model: open a source as the model needs it, and count the words of its items."""

from __future__ import annotations

import csv
import os
from typing import Any

from bagwise._utils.extras import require
from bagwise.errors import BagwiseError, OptionError
from bagwise.model.model import Model
from bagwise.model.steps import StepCache
from bagwise.model.vectorizers import Histograms, Progress, no_progress
from bagwise.sources.collection import Collection
from bagwise.sources.media import images_in_mode
from bagwise.sources.opening import modality_of
from bagwise.training.options import FitOptions, open_source
from bagwise.training.provenance import versions

__all__ = ["count_words", "open_items", "step_cache"]

_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}


def open_items(model: Model, source: Any, options: FitOptions | None = None) -> Collection:
    """Open a source of items for a model.

    Options that are not given are those of the fit: the encoding of texts, the columns of texts and labels in files,
    colours. From a folder with several modalities, the images or videos that the model takes are opened; texts need
    ``modality="texts"``.

    Parameters
    ----------
    model : Model
    source : Collection or path
    options : FitOptions, default=None

    Returns
    -------
    collection : Collection
        Of the modality of the model, not empty.
    """
    options = FitOptions() if options is None else options
    changes: dict[str, Any] = {}
    is_file = not isinstance(source, Collection) and os.path.isfile(source)
    if options.modality == "auto" and model.modality != "texts" and not is_file:
        changes["modality"] = model.modality
    if model.modality == "texts":
        if options.encoding is None:
            changes["encoding"] = model.options.get("encoding")
        if options.text is None and is_file:
            changes["text"] = model.options.get("text")
    if model.modality == "table" and options.label is None and is_file:
        changes["label"] = _label_column(model, source)
    more: dict[str, Any] = {}
    if model.modality == "table" and model.word_names and is_file and options.text is None:
        known = options.modality if options.modality != "auto" else modality_of(source, {})
        more = {"words": model.word_names} if known == "table" else {}
    collection = open_source(source, options.with_changes(**changes), **more)
    if collection.modality != model.modality:
        message = f"The model takes {model.modality}, but {collection.source} holds {collection.modality}."
        if model.modality == "texts":
            raise OptionError("modality", f"{message} Texts among them are opened by modality=texts.")
        raise BagwiseError(f"{message} Give {model.modality}.")
    if not len(collection):
        raise BagwiseError(f"{collection.source} has no items.")
    return images_in_mode(collection, "rgb") if any(record.color for record in model.descriptor_records) else collection


def _label_column(model: Model, path: Any) -> str | None:
    """Return the label column of the fit, if this table has it: new data may have no labels."""
    label, ending = model.options.get("label"), os.path.splitext(path)[1].lower()
    if label is None or ending not in (*_DELIMITERS, ".parquet"):
        return None
    if ending == ".parquet":
        return label if label in require("pyarrow.parquet", "io", "Reading Parquet").read_schema(path).names else None
    with open(path, newline="", encoding="utf-8-sig", errors="replace") as file:
        return label if label in next(csv.reader(file, delimiter=_DELIMITERS[ending]), []) else None


def count_words(
    model: Model,
    collection: Collection,
    options: FitOptions | None = None,
    *,
    n_samples: int = 0,
    progress: Progress | None = None,
) -> Histograms:
    """Count the words of the items that can be read, over the full vocabulary.

    Parameters
    ----------
    model : Model
    collection : Collection
        Items of the model's modality, see `open_items`.
    options : FitOptions, default=None
        `on_error`, `n_jobs` and `cache` are used.
    n_samples : int, default=0
        Number of images to return a `WordSample` of, for the patches of a report.
    progress : callable, default=None
        See `fit_model`.

    Returns
    -------
    histograms : Histograms
    """
    options = FitOptions() if options is None else options
    reading = {name: getattr(options, name) for name in ("on_error", "n_jobs", "cache")}
    report = progress or no_progress
    steps = step_cache(options, report)
    return model.vectorizer.transform(collection, **reading, n_samples=n_samples, progress=report, steps=steps)


def step_cache(options: FitOptions, progress: Progress) -> StepCache | None:
    """Return the results of earlier runs, if there is a cache."""
    return None if options.cache is None else StepCache(options.cache, {"versions": versions()}, progress)
