"""Views of models and explanations in notebooks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bagwise._utils.text import how_many
from bagwise.app.model.groups import word_shares
from bagwise.display import notebook
from bagwise.display.texts import percent
from bagwise.errors import BagwiseError

if TYPE_CHECKING:
    from bagwise.app.explorer import Explorer
    from bagwise.app.modalities.texts import Span
    from bagwise.app.modalities.vectorizers import Progress
    from bagwise.app.model.explanation import Explanation
    from bagwise.app.model.model import Model

__all__ = ["ModelViews", "explanation_html"]

_GROUPS, _WORDS, _TERMS = 12, 6, 8
_MOST_TEXT = 4000  # characters


class ModelViews:
    """How a model shows itself: in notebooks, and in the explorer."""

    def explore(
        self,
        source: Any = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        block: bool = False,
        open_page: bool | None = None,
        progress: Progress | None = None,
    ) -> Explorer:
        """Open the model in the explorer, in the browser. Needs ``bagwise[app]``.

        A model that `fit_model` returned shows the items it was fitted to, with the answers of cross-validation.
        Nothing is saved for it.

        Parameters
        ----------
        source : Collection or path, default=None
            Items to show. None: those of the fit, if there are any.
        host : str, default="127.0.0.1"
            Address to listen on.
        port : int, default=0
            0: any free port.
        block : bool, default=False
            Whether to wait until Ctrl-C, as scripts should. Otherwise the explorer runs in the background until it is
            closed, or Python ends.
        open_page : bool, default=None
            Whether to open the page in the browser. None: unless this is a notebook, which shows the link.
        progress : callable, default=None
            See `fit_model`.

        Returns
        -------
        explorer : Explorer
            Has an `address`; its `model` has the edits that were made, and `close` ends it. In a notebook it is shown
            as a link.
        """
        from bagwise.app.explorer import explore  # deferred: the explorer is built on models

        options: dict[str, Any] = {"host": host, "port": port, "block": block, "open_page": open_page}
        return explore(cast("Model", self), source, progress=progress, **options)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the report of the fit, one HTML page. Needs ``bagwise[app]``.

        The confusion matrix and the examples are those of the split "test", if there is one, otherwise those of
        cross-validation.

        Raises
        ------
        BagwiseError
            If the model is not as `fit_model` returned it, or cut at another size of its `path`: files of models have
            no training data.
        """
        fit = cast("Model", self).fit_
        if fit is None:
            raise BagwiseError(
                "A report needs the items of the fit, which the file of a model does not have. Use report() of the "
                "model that fit_model returns, or evaluate_model and evaluation_report_data with other items."
            )
        return fit.report(path, cast("Model", self))

    def _repr_html_(self) -> str:
        return _model_html(cast("Model", self))


def _model_html(model: Model) -> str:
    """Return a model as a table of groups, those first that occur often and speak most for a class."""
    groups = model.describe_groups()
    word_parts, of = word_shares(model)
    shares = [float(word_parts[members].sum()) for members in model.groups()]
    by_class = groups[0].class_name is not None
    order = sorted(
        range(len(groups)), key=lambda k: -shares[k] * ((groups[k].class_weight or 0.0) if by_class else 1.0)
    )
    rows = []
    for group, share in ((groups[k], shares[k]) for k in order[:_GROUPS]):
        words = ", ".join(group.words[:_WORDS]) if model.word_names is not None else how_many(len(group.words), "words")
        cells = [
            notebook.number_cell(str(group.number)),
            notebook.name_cell(group.title, 40),
            notebook.name_cell(words),
        ]
        cells += [notebook.name_cell(group.class_name or "", 40)] if by_class else []
        rows.append([*cells, notebook.number_cell(percent(share)), notebook.bar_cell(share, max(shares))])
    head = ["", "group", "words", *(["speaks for"] if by_class else []), f"part of all {of}", ""]
    more = len(groups) - len(rows)
    left = notebook.line(f"and {how_many(more, 'more groups')}", quiet=True) if more > 0 else ""
    return notebook.view(notebook.line(repr(model)[1:-1]), *_errors(model), notebook.table(head, rows), left)


def _errors(model: Model) -> list[str]:
    path = model.path
    if path is None or model.n_groups not in path.sizes:
        return []
    k = path.sizes.index(model.n_groups)
    told = f"error {percent(path.errors[k])} ± {percent(path.standard_errors[k])} in {path.protocol}"
    baselines = model.provenance.get("baselines") or ()
    if baselines:
        told += f"; strongest simple baseline ({baselines[0]['name']}): {percent(baselines[0]['error'])}"
    return [notebook.line(told, quiet=True)]


def explanation_html(why: Explanation) -> str:
    """Return an explanation as the answer, the highlighted text, and what adds up to the score."""
    from bagwise.app.report.explained import marked_text  # deferred: with all pages

    sure = "" if why.probability is None else f", probability {percent(why.probability)}"
    answer = f"{why.predicted}: score {why.score:.3f}{sure}; then {why.runner_up}: {why.runner_up_score:.3f}"
    text = getattr(why.content, "text", None)
    shown = ""
    if isinstance(text, str):
        spans = [span for span in cast("list[Span]", why.places()) if span.end <= _MOST_TEXT]
        shown = notebook.marked(marked_text(text[:_MOST_TEXT], spans) + ([("…", 0)] if len(text) > _MOST_TEXT else []))
    sums = why.sums(_TERMS)
    titles = {} if why.model is None else {one.name: one.title for one in why.model.describe_groups()}
    largest = max(abs(value) for _, value, _ in sums)
    rows = []
    for name, value, other in sums:
        numbers = [notebook.number_cell(f"{one:+.3f}") for one in (value, other)]
        rows.append(
            [notebook.name_cell(titles.get(name, name)), numbers[0], notebook.bar_cell(value, largest), numbers[1]]
        )
    head = ["adds to the score", why.predicted, "", why.runner_up]
    return notebook.view(notebook.line(answer), shown, notebook.table(head, rows))
