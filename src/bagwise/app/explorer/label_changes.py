"""`LabelChanges`: labels that people have corrected, kept in a small file, and fitting again with them."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np

from bagwise._io.locks import EditedFile
from bagwise.app.explorer.refused import Refused
from bagwise.app.index.item_index import ItemIndex
from bagwise.app.index.item_scores import ItemScores
from bagwise.app.options import FitOptions
from bagwise.app.training.items import open_source
from bagwise.app.training.relabelling import read_relabelling, relabelled, write_relabelling
from bagwise.errors import BagwiseError

__all__ = ["LabelChanges"]


class LabelChanges:
    """Decisions about labels, saved after each of them.

    Parameters
    ----------
    path : Path or None
        The CSV file, which is read if it is there. None: decisions are kept while the explorer runs.
    read_only : bool, default=False

    Attributes
    ----------
    labels : dict
        The label that was decided on, by the id of the item: its own to keep it, "" to leave the item out.
    problem : str or None
        Why the decisions could not be saved.
    running : bool
        Whether a fit is going on.
    refitted : dict or None
        Errors before and after the last fit with these labels, or a ``problem``.
    """

    def __init__(self, path: Path | None, read_only: bool = False) -> None:
        self.path, self.read_only = path, read_only
        self._file = None if path is None else EditedFile(path)
        self.labels = read_relabelling(path) if path is not None and path.exists() else {}
        self.problem: str | None = None
        self.running = False
        self.refitted: dict[str, Any] | None = None
        self._before: list[tuple[str, str | None]] = []
        self._lock = threading.RLock()

    @property
    def n_undoable(self) -> int:
        """How many decisions can be undone."""
        return len(self._before)

    def decide(self, id: str, label: str | None) -> None:
        """Decide on the label of an item: its name, "" to leave the item out, None for no decision."""
        with self._lock:
            self._check()
            self._before.append((id, self.labels.get(id)))
            self._put(id, label)

    def undo(self) -> None:
        """Take the last decision back."""
        with self._lock:
            self._check()
            if not self._before:
                raise BagwiseError("There is no decision to undo.")
            self._put(*self._before.pop())

    def _check(self) -> None:
        if self.read_only:
            raise Refused(403, "The explorer was started with --read-only, so that nothing can be changed.")

    def _put(self, id: str, label: str | None) -> None:
        self.labels.pop(id, None)
        if label is not None:
            self.labels[id] = label
        try:
            if self._file is not None:
                self._file.save(self)
            self.problem = None
        except (BagwiseError, OSError) as error:
            self.problem = str(error)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the decisions as a CSV file, as ``bagwise fit --relabel`` reads it."""
        write_relabelling(path, self.labels)

    def refit(self, index: ItemIndex, scored: ItemScores) -> None:
        """Begin to fit a model again with these labels, as the model of an index was fitted; see `refitted`."""
        with self._lock:
            self._check()
            if self.running:
                raise BagwiseError("A model is being fitted already.")
            if not index.source or not os.path.exists(index.source):
                raise BagwiseError(f"{index.source or 'The source'} of the items does not exist any more.")
            self.running, self.refitted, labels = True, None, dict(self.labels)
        threading.Thread(target=self._refit, args=(index, scored, labels), daemon=True).start()

    def _refit(self, index: ItemIndex, scored: ItemScores, labels: dict[str, str]) -> None:
        try:
            self.refitted = refitted(index, scored, labels)
        except BagwiseError as error:
            self.refitted = {"problem": str(error)}
        except Exception as error:
            self.refitted = {"problem": f"Internal error of bagwise: {type(error).__name__}: {error}"}
            raise
        finally:
            self.running = False


def refitted(index: ItemIndex, scored: ItemScores, labels: dict[str, str]) -> dict[str, Any]:
    """Fit a model to the source of an index with some labels changed; return its error, and those of the old answers.

    Errors are of held-out answers: of the model of the index, for the labels that it was learned from and for the new
    ones, and of the new model for the new ones.
    """
    from bagwise.app.training.fit import run_fit  # deferred: with scikit-learn

    model, known = index.model, FitOptions
    fitted = {name: value for name, value in model.options.items() if hasattr(known, name) and value is not None}
    options = FitOptions(**fitted | {"n_groups": model.n_groups})
    source = open_source(index.source, options.with_changes(**index.reading))
    collection, note = relabelled(source, labels, "the page Labels")
    fair = scored.fair & (scored.codes >= 0)
    kept = fair & np.array([labels.get(id) != "" for id in index.ids])
    if not kept.any():
        raise BagwiseError("No label that is kept has a held-out answer, so the errors cannot be compared.")
    path = run_fit(collection, options).model.path
    if path is None or model.n_groups not in path.sizes:
        raise BagwiseError("The new model was not cross-validated: too few items of a class are left.")
    number = {name: code for code, name in enumerate(model.classes)}
    codes = np.array([number.get(labels.get(id) or "", -1) for id in index.ids])
    predicted = scored.top.predicted
    row = path.sizes.index(model.n_groups)
    new = np.where(codes >= 0, codes, scored.codes)
    return {
        "note": note,
        "before": float((predicted != scored.codes)[fair].mean()),
        "old_answers": float((predicted != new)[kept].mean()),
        "after": path.errors[row],
        "standard_error": path.standard_errors[row],
        "protocol": path.protocol,
    }
