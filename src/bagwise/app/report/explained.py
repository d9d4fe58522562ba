"""The page of one explanation: highlights in a text, a heat map over an image, bars for columns and groups."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._io.atomic import write_atomically
from bagwise.app.report.html import render_page
from bagwise.display.pictures import photograph, thumbnail
from bagwise.display.svg import LIGHT
from bagwise.display.texts import rounded_sums

__all__ = ["heat_picture", "marked_text", "render_explanation", "spread_weights", "write_explanation"]

N_MARKS = 4  # strengths of highlights
_N_GROUPS, _N_WORDS = 20, 30
_SIDE = 640  # of pictures, in pixels
_STRONGEST = 0.85  # opacity of colours over an image, from this quantile of contributions on
_QUANTILE = 0.98
_COLORED = 0.4  # of the colours of an image below the heat


def marked_text(text: str, spans: Sequence[tuple[int, int, float]]) -> list[tuple[str, int]]:
    """Divide a text into pieces with marks from -4 (strongest against) over 0 (none) to 4 (strongest for).

    Spans of less than an eighth of the largest weight have no mark.

    Examples
    --------
    >>> marked_text("a fine day", [(2, 6, 1.0), (7, 10, -0.2)])
    [('a ', 0), ('fine', 4), (' ', 0), ('day', -1)]
    """
    largest = max((abs(weight) for *_, weight in spans), default=0.0)
    pieces, end = [], 0
    for start, stop, weight in spans:
        if start < end or stop <= start:  # tokens of other n-grams; empty ones
            continue
        strength = round(N_MARKS * abs(weight) / largest) if largest else 0
        pieces += [(text[end:start], 0), (text[start:stop], strength if weight > 0 else -strength)]
        end = stop
    return [(piece, mark) for piece, mark in [*pieces, (text[end:], 0)] if piece]


def heat_picture(
    image: NDArray[Any],
    patches: Sequence[tuple[float, float, float, float]],
    side: int = _SIDE,
    *,
    smooth: bool = False,
) -> bytes:
    """Draw the weights of patches over an image in pale colours, as a PNG file. Needs ``bagwise[app]``.

    The weight of a patch is spread over its pixels. Pixels that add to the score are teal, those that lower it red; the
    stronger, the more opaque.

    Parameters
    ----------
    image : ndarray of shape (height, width) or (height, width, 3)
    patches : sequence of (x, y, side, weight)
        In pixels of the image.
    side : int, default=640
        Longer side of the picture.
    smooth : bool, default=False
        Whether weights fade out from the centre of a patch, for a few large ones such as regions of a network.

    Returns
    -------
    png : bytes
    """
    height, width = image.shape[:2]
    heat = spread_weights(height, width, patches, smooth=smooth)
    grey = image if image.ndim == 2 else image.mean(axis=2)
    largest = np.quantile(np.abs(heat), _QUANTILE) or np.abs(heat).max() or 1.0
    opacity = _STRONGEST * np.minimum(np.abs(heat) / largest, 1.0)[..., np.newaxis]
    colours = [np.array([int(LIGHT[name][k : k + 2], 16) for k in (1, 3, 5)]) for name in ("series-1", "series-2")]
    colour = np.where(heat[..., np.newaxis] > 0, *colours)
    plain = np.repeat(grey[..., np.newaxis].astype(np.float64), 3, axis=2)
    pale = plain if image.ndim == 2 else _COLORED * image + (1 - _COLORED) * plain  # so that the heat shows
    ground = 96 + 0.6 * pale
    mixed = (1 - opacity) * np.minimum(ground, 255) + opacity * colour
    return thumbnail(np.rint(mixed).astype(np.uint8), side)


def fades(model: Any) -> bool:
    """Whether weights of places are drawn smoothly: those of regions of a network, see `spread_weights`."""
    return any(one.regions for one in getattr(model, "descriptors", ()))


def spread_weights(
    height: int,
    width: int,
    patches: Sequence[tuple[float, float, float, float]],
    scale: float = 1.0,
    *,
    smooth: bool = False,
) -> NDArray[np.float64]:
    """Spread the weight of each patch (x, y, side, weight) over its pixels: an array whose sum is that of the weights.

    The array has `scale` pixels per pixel of the patches; a patch that is smaller than a pixel covers one. If `smooth`,
    weights fall linearly to 0 at two thirds of a side from the centre: patches on a grid have a sum without edges then.
    """
    x, y, sides, weights = np.array(patches, np.float64).reshape(-1, 4).T
    if smooth:
        parts = []
        for starts, size in ((y, height), (x, width)):
            centres, reach = scale * (starts + sides / 2), np.maximum(2 / 3 * scale * sides, 1.0)
            tent = np.maximum(1 - np.abs(np.arange(size)[:, np.newaxis] + 0.5 - centres) / reach, 0.0)
            sums = tent.sum(axis=0)
            parts.append(tent / np.where(sums > 0, sums, 1.0))
        return (parts[0] * weights) @ parts[1].T

    def edges(starts: NDArray[np.float64], size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        first, last = (np.rint(scale * at).astype(np.intp) for at in (starts, starts + sides))
        first = np.clip(first, 0, size - 1)
        return first, np.clip(last, first + 1, size)

    (left, right), (top, bottom) = edges(x, width), edges(y, height)
    density = weights / ((right - left) * (bottom - top))
    changes = np.zeros((height + 1, width + 1))
    for rows, columns, sign in ((top, left, 1), (top, right, -1), (bottom, left, -1), (bottom, right, 1)):
        np.add.at(changes, (rows, columns), sign * density)
    return changes.cumsum(axis=0).cumsum(axis=1)[:height, :width]


def render_explanation(
    explanation: Any,
    *,
    title: str,
    content: Any = None,
    label: str | None = None,
    class_name: str | None = None,
    against: str | None = None,
    facts: dict[str, str] | None = None,
) -> str:
    """Render an explanation as an HTML page. Needs ``bagwise[app]``.

    Parameters
    ----------
    explanation : Explanation
        Of `Model.explain`.
    title : str
        Name of the item.
    content : str or ndarray, default=None
        The text or the image that was explained.
    label : str, default=None
        Its true class, if known.
    class_name : str, default=None
        The class whose score is explained. None: the predicted one.
    against : str, default=None
        Another class: the difference of both scores is explained. None: the score.
    facts : mapping of str to str, default=None

    Returns
    -------
    html : str
        See `render_report`.
    """
    shown = explanation.predicted if class_name is None else class_name
    places = explanation.places(shown, against)
    context: dict[str, Any] = {"pieces": None, "picture": None, "heat": None, "columns": None}
    if isinstance(content, str):
        context["pieces"] = marked_text(content, places)
    elif isinstance(content, np.ndarray) and content.ndim in (2, 3) and places:
        context |= {
            "picture": photograph(content, _SIDE),
            "heat": heat_picture(content, places, smooth=fades(explanation.model)),
        }
    elif content is None and places and hasattr(places[0], "value"):
        context["columns"] = sorted(places, key=lambda column: -abs(column.weight))[:_N_WORDS]
    rows = rounded_sums(explanation, _N_GROUPS, shown, against)
    words = [] if context["columns"] is not None else explanation.words(shown, against)
    words = [term for term in words if term.name is not None]
    return render_page(
        "explanation.html.j2",
        explanation=explanation,
        title=title,
        label=label,
        shown=shown,
        score=explanation.score_of(shown),
        against=against,
        other=against or (explanation.runner_up if shown == explanation.predicted else explanation.predicted),
        rows=rows,
        largest=max((abs(value) for _, *values in rows for value in values), default=0.0),
        words=words[:_N_WORDS],
        n_words=len(words),
        facts=facts or {},
        marks=[*range(-N_MARKS, 0), *range(1, N_MARKS + 1)],
        **context,
    )


def write_explanation(explanation: Any, path: str | os.PathLike[str], **options: Any) -> Path:
    """Write an explanation to an HTML file atomically; see `render_explanation`.

    Parameters
    ----------
    explanation : Explanation
    path : path
        An existing file is replaced.
    **options
        As in `render_explanation`.

    Returns
    -------
    path : Path
    """
    return write_atomically(path, render_explanation(explanation, **options).encode(), private=True)
