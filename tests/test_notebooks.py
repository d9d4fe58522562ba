"""What notebooks show of models, hierarchies, estimators, explanations and reports."""

import html
import re

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline

from bagwise import CompactClassifier, Hierarchy, Model, WordMerger, WordMergerCV
from bagwise.app.model import Head, PathErrors
from bagwise.app.report import Comparison, CriterionResult, Hit, ReportData, SearchResults, render_results
from bagwise.baselines import HashMerger
from bagwise.display.texts import one_line
from report_helpers import Page
from small_sources import table

HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "</style></svg>",
    "\u202egpj\x00 \ud800",
    "",
]


@pytest.fixture(scope="module")
def hostile():
    """A model whose words and classes have hostile names."""
    rng = np.random.default_rng(0)
    d, k = len(HOSTILE), 3
    return Model(
        modality="table",
        hierarchy=Hierarchy(d, [[0, 1], [2, 3], [0, 2], [0, 4]], np.arange(4.0)),
        n_groups=k,
        word_names=HOSTILE,
        word_totals=np.arange(1.0, d + 1),
        classes=HOSTILE[:3],
        heads={k: Head(rng.normal(size=(3, k)), np.zeros(3))},
        path=PathErrors((k,), (0.25,), (0.125,), HOSTILE[0]),
        provenance={"baselines": [{"name": HOSTILE[1], "error": 0.5}]},
    )


def parsed(view):
    """A view is one element without scripts, whose tags are balanced, and which loads nothing."""
    page = Page(view)
    assert page.scripts == []
    assert page.pictures == page.links == page.ids == []
    assert "url(" not in view
    assert page.tags[0] == "div"
    return page


def test_models_and_explanations_show_hostile_names_as_text(hostile):
    page = parsed(hostile._repr_html_())
    assert one_line(HOSTILE[0]) in page.text
    assert "error 25.0\u202f% ± 12.5\u202f%" in page.text
    assert page.text.count("%") >= 3 + hostile.n_groups
    why = hostile.explain(np.ones((1, 5)))[0]
    page = parsed(why._repr_html_())
    assert one_line(why.predicted) in page.text
    assert f"{why.score:.3f}" in page.text
    titles = {group.name: group.title for group in hostile.describe_groups()}
    for name, value, _ in why.sums(8):
        assert f"{value:+.3f}" in page.text
        assert one_line(titles.get(name, name))[:30] in page.text
    plain = Model(modality="images", hierarchy=Hierarchy(2, [], []), n_groups=2, codebook=[[0.0], [1.0]])
    assert "group1" in parsed(plain._repr_html_()).text


def test_an_explained_text_is_highlighted():
    model = Model(
        modality="texts",
        hierarchy=Hierarchy(2, [], []),
        n_groups=2,
        word_names=["script", "alert"],
        normalize=(),
        classes=["a", "b"],
        heads={2: Head([[1, -1], [-1, 1]], [0, 0])},
    )
    view = model.explain("<script>alert</script>")._repr_html_()
    page = parsed(view)
    assert "<script>alert</script>" in page.text
    assert view.count('<span class="m4">script</span>') == 2
    assert view.count('<span class="n4">alert</span>') == 1


@pytest.mark.parametrize("n_merges", [0, 1, 30, 59])
def test_a_hierarchy_is_drawn_at_several_cuts(n_merges):
    merges = np.stack([np.zeros(n_merges, int), np.arange(1, n_merges + 1)], axis=1)
    view = Hierarchy(60, merges, np.zeros(n_merges))._repr_html_()
    page = parsed(view)
    assert "60 words" in page.text
    shown = [n for n in (1, 2, 5, 10, 20, 50) if n >= 60 - n_merges]
    assert re.findall(r'<text[^>]*class="tick"[^>]*>(\d+)<', view) == list(map(str, shown))
    assert page.tags.count("rect") == sum(shown)
    assert parsed(Hierarchy(0, [], [])._repr_html_()).tags.count("rect") == 0


def test_estimators_keep_the_diagram_of_scikit_learn():
    X, y = table()
    merger = WordMerger(3)
    assert merger._repr_mimebundle_()["text/html"].count('class="bagwise"') == 0
    for fitted in (
        WordMerger(3).fit(X, y),
        HashMerger(3).fit(X, y),
        CompactClassifier(n_groups=3).fit(X, y),
        WordMergerCV([2, 3], estimator=CompactClassifier(n_groups=2), cv=2).fit(X, y),
    ):
        view = fitted._repr_mimebundle_()["text/html"]
        diagram, own = view[: view.index('<div class="bagwise"')], view[view.index('<div class="bagwise"') :]
        assert type(fitted).__name__ in diagram
        assert "sk-container" in diagram or "sk-top-container" in diagram
        page = parsed(own)
        names = fitted.get_feature_names_out()
        assert f"12 words merged into {len(names)} group" in page.text
        assert all(name in page.text for name in names)
        assert fitted._repr_html_().count('class="bagwise"') == 1
        with config_context(display="text"):
            assert "text/html" not in fitted._repr_mimebundle_()
    whole = make_pipeline(WordMerger(3), CompactClassifier(n_groups=2)).fit(X, y)
    assert "WordMerger" in BaseEstimator._repr_mimebundle_(whole)["text/html"]


def test_reports_are_frames():
    results = SearchResults(HOSTILE[0], [Hit(HOSTILE[1], 0.5)])
    for data in (results, ReportData(HOSTILE[0]), Comparison("x", [1], [CriterionResult(HOSTILE[0], [0.5])])):
        frame = re.fullmatch(
            r'<iframe sandbox="allow-scripts" srcdoc="([^"]*)" title="bagwise" style="[^"]*"></iframe>',
            data._repr_html_(),
        )
        Page(html.unescape(frame[1]))
    assert html.unescape(re.search('srcdoc="([^"]*)"', results._repr_html_())[1]) == render_results(results)
