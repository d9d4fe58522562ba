"""Formulas as MathML, which browsers draw by themselves: pages need no script and nothing from elsewhere."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.util import logging

_LOGGER = logging.getLogger(__name__)


def _mathml(node: nodes.Element) -> str:
    formula = latex2mathml.tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block))
    return formula.replace(">‖</mo>", ' stretchy="false">‖</mo>')  # the second one has an exponent and does not grow


def _check(app: Any, doctree: nodes.document) -> None:
    """Warn of formulas that cannot be converted when pages are read, with their places."""
    for node in doctree.findall(lambda one: isinstance(one, nodes.math | nodes.math_block)):
        try:
            _mathml(node)
        except MathError as error:
            _LOGGER.warning("formula %r: %s", node.astext(), error, location=node)


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(_mathml(node))
    raise nodes.SkipNode


def _display(self: Any, node: nodes.math_block) -> None:
    self.body.append(f"{self.starttag(node, 'div', CLASS='formula')}{_mathml(node)}</div>\n")
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer, and choose it."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    app.config.html_math_renderer = "mathml"
    app.connect("doctree-read", _check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
