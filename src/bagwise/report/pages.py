"""From a template to a page: one file without a script, that fetches nothing and shows hostile texts harmlessly.

Three things keep it so. Every text is cleaned (`bagwise.report.texts.clean`) and escaped on its way into a template,
because the environment does both to all of them. A Content-Security-Policy lets the browser load nothing but pictures
that are in the file, and apply no style but the one whose hash it names. And there is no script: values on hover, the
choice of colours and folding are done by the style sheet and HTML.
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from typing import Any

from bagwise._utils.extras import require
from bagwise.report import texts
from bagwise.report._fields import picture_type
from bagwise.report.confusions import N_LEVELS, level_from
from bagwise.report.palette import DARK, LIGHT, shades
from bagwise.report.sentences import Name, Sentence
from bagwise.report.svg import bar

__all__ = ["markup", "picture_uri", "render_page"]


def render_page(template: str, **context: Any) -> str:
    """Fill in one of the templates; `context` holds texts, data and what `markup` was asked for."""
    environment = _environment()
    style = environment.get_template("style.css.j2").render(
        light=LIGHT, dark=DARK, light_shades=shades(LIGHT), dark_shades=shades(DARK)
    )
    return environment.get_template(template).render(style=markup(style), policy=_policy(style), **context)


def markup(content: str) -> Any:
    """Mark a text as HTML or SVG of our own making, which is not to be escaped."""
    return require("markupsafe", "report", "The HTML report").Markup(content)


def picture_uri(content: bytes) -> str:
    """Give a PNG or JPEG file as an address that holds it."""
    return f"data:{picture_type(content, 'picture')};base64,{base64.b64encode(content).decode('ascii')}"


def _policy(style: str) -> str:
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    return f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


@lru_cache(maxsize=1)
def _environment() -> Any:
    jinja2 = require("jinja2", "report", "The HTML report")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bagwise.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_cleaned,
    )
    environment.filters |= {
        "count": texts.count,
        "number": texts.number,
        "one_line": texts.one_line,
        "percent": texts.percent,
        "plain": texts.plain,
        "plural": texts.plural,
        "say": _said,
        "seconds": texts.seconds,
        "uri": picture_uri,
    }
    environment.globals |= {
        "bar": lambda *numbers, **options: markup(bar(*numbers, **options)),
        "levels": [(level, level_from(level)) for level in range(1, N_LEVELS + 1)],
        "share_of": texts.share_of,
    }
    return environment


def _cleaned(value: Any) -> Any:
    return texts.clean(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _said(sentences: list[Sentence] | Sentence) -> Any:
    """Write sentences as HTML, each name set apart from the words around it."""
    whole = sentences if isinstance(sentences, list) else [sentences]
    named = markup("“<bdi>{}</bdi>”")
    said = [
        markup("").join(named.format(texts.one_line(part)) if isinstance(part, Name) else part for part in sentence)
        for sentence in whole
    ]
    return markup(" ").join(said)
