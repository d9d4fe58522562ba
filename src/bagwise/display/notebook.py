"""Small views for notebooks: HTML without scripts that takes its colours from the page around it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bagwise.display.icicle import N_TONES
from bagwise.display.svg import LIGHT
from bagwise.display.texts import clean, one_line, shortened

__all__ = ["bar_cell", "embedded", "line", "marked", "name_cell", "number_cell", "table", "view"]

_LONGEST = 60  # characters of a cell; the whole text is shown on hover
# The text colour of the notebook, light or dark, is kept; colours of bars can be told from both backgrounds.
_STYLE = """
.bagwise { font-variant-numeric: tabular-nums; }
.bagwise p { margin: 0 0 .4em; }
.bagwise table { border-collapse: collapse; margin: .4em 0; }
.bagwise th, .bagwise td { padding: .15em .8em .15em 0; text-align: start; background: none; color: inherit;
  border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
.bagwise th { font-weight: 600; }
.bagwise .number { text-align: end; }
.bagwise .quiet { opacity: .75; }
.bagwise .track { display: inline-block; width: 6em; height: .6em;
  background: color-mix(in srgb, currentColor 12%, transparent); }
.bagwise .track svg { display: block; width: 100%; height: 100%; }
.bagwise .for { fill: #2f8f98; } .bagwise .against { fill: #c4553a; }
.bagwise .icicle { display: block; width: 100%; max-width: 60em; margin: .4em 0; }
.bagwise .icicle text { fill: currentColor; font: 12px system-ui, sans-serif; }
.bagwise .icicle .on-tone { fill: #fff; }
.bagwise .icicle .chosen-row { font-weight: 700; }
.bagwise .text { max-width: 50em; white-space: pre-wrap; overflow-wrap: anywhere; }
.bagwise .tone { fill: color-mix(in srgb, currentColor 15%, transparent); }
"""


def view(*parts: str) -> str:
    """Join parts of a view to one element with its style sheet."""
    tones = "".join(f".bagwise .tone-{k} {{ fill: {LIGHT[f'series-{k + 1}']}; }}\n" for k in range(N_TONES))
    for mark in range(1, 5):
        for kind, color in (("m", "#2f8f98"), ("n", "#c4553a")):
            part = f"color-mix(in srgb, {color} {12 * mark}%, transparent)"
            tones += f".bagwise .{kind}{mark} {{ background: {part}; }}\n"
    return f'<div class="bagwise"><style>{_STYLE}{tones}</style>{"".join(parts)}</div>'


def line(content: str, quiet: bool = False) -> str:
    """Return a text as a paragraph."""
    kind = ' class="quiet"' if quiet else ""
    return f"<p{kind}>{escape(one_line(content))}</p>"


def name_cell(name: str, longest: int = _LONGEST) -> str:
    """Return a name as a cell; what does not fit is shown on hover."""
    shown, whole = shortened(name, longest), one_line(name)
    title = f' title="{escape(whole)}"' if shown != whole else ""
    return f"<td><bdi{title}>{escape(shown)}</bdi></td>"


def number_cell(number: str) -> str:
    """Return a number as a cell."""
    return f'<td class="number">{escape(number)}</td>'


def bar_cell(value: float, largest: float) -> str:
    """Return a number as a bar, from the left; negative ones have another colour."""
    part = min(abs(value) / largest, 1.0) if largest > 0 else 0.0
    kind = "against" if value < 0 else "for"
    drawn = f'<rect class="{kind}" width="{100 * part:.1f}" height="8"/>'
    return (
        '<td><span class="track" aria-hidden="true"><svg viewBox="0 0 100 8" preserveAspectRatio="none">'
        f"{drawn}</svg></span></td>"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of cells."""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def embedded(page: str) -> str:
    """Return a whole page as a frame inside a notebook. It cannot reach the notebook, and its links stay in it."""
    style = "width: 100%; height: 40rem; border: 1px solid rgba(128, 128, 128, .4); border-radius: 6px"
    return f'<iframe sandbox="allow-scripts" srcdoc="{escape(page)}" title="bagwise" style="{style}"></iframe>'


def marked(pieces: Sequence[tuple[str, int]]) -> str:
    """Return a text with highlights; see `bagwise.app.report.explained.marked_text`."""
    shown = []
    for piece, mark in pieces:
        content = escape(clean(piece))
        shown.append(f'<span class="{"m" if mark > 0 else "n"}{abs(mark)}">{content}</span>' if mark else content)
    return f'<p class="text">{"".join(shown)}</p>'
