"""Written from `bagwise.app.options` by ``make options``: editors complete the options of a fit."""

import os
from collections.abc import Mapping
from typing import Any

from bagwise.app.modalities.vectorizers import Progress
from bagwise.app.model import Model
from bagwise.sources.limits import Limits

def fit_model(
    source: Any,
    *,
    n_groups: int | str = "auto",
    n_words: int | None = None,
    criterion: str = "auto",
    descriptor: str = "auto",
    n_frames: int | None = None,
    step: int | None = None,
    patch: int | None = None,
    max_side: int = 480,
    pyramid: int | None = None,
    root: str = "auto",
    min_count: int = 1,
    stop_words: str | None = None,
    analyzer: str = "auto",
    ngrams: int | None = None,
    C: float = 1.0,
    class_weight: str | None = None,
    folds: int = 5,
    modality: str = "auto",
    image: str | None = None,
    text: str | None = None,
    label: str | None = None,
    id: str | None = None,
    split: str | None = None,
    keep: str | None = None,
    labels: str | None = None,
    relabel: str | None = None,
    extensions: str | None = None,
    sep: str | None = None,
    sheet: str | None = None,
    encoding: str | None = None,
    header: bool | None = None,
    missing: str | None = None,
    layer: str | None = None,
    limits: Limits | None = None,
    on_error: str | None = None,
    cache: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    memory_limit: int | float | str | None = None,
    partition: int | None = None,
    random_state: int = 0,
    n_jobs: int = -1,
    add: Any = None,
    client: Any = None,
    progress: Progress | None = None,
) -> Model: ...
