import base64
import hashlib
import re
from dataclasses import fields, replace
from functools import cache
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise._utils.text import count
from bagwise.app.report import (
    Baseline,
    ClassCount,
    Comparison,
    ConfusionMatrix,
    CriterionResult,
    Example,
    Hit,
    MergingCurve,
    ReportData,
    SearchResults,
    WordGroup,
    render_comparison,
    render_report,
    render_results,
    write_report,
    write_results,
)
from bagwise.app.report.clusters import ClusterCard, ClusterSummary, ClusterTermTable, ShownItem
from bagwise.clustering import ClusterNumbers
from bagwise.display import Tree, TreeRow, thumbnail
from bagwise.display.svg import DARK, LIGHT, contrast, shades
from bagwise.display.texts import digits_for, fixed, one_line, percent, plain, rounded_to_sum, seconds
from bagwise.errors import BagwiseError
from report_helpers import Page, digits_report, matrix_of, scores_of

HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "'; --><!-- ]]> </style></svg></title>",
    "https://example.com/x.js",
    "javascript:alert(1)",
    "two\nlines\r\nand\ttab",
    "caf\udce9 \ud800",
    "\u202egpj.exe\u2066 \u200f",
    "\x00\x1b[31m\x7f\x9b\ufeff\uffff",
    "{{ 7 * 7 }} {% raw %} {# #}",
    "&lt;b&gt; &amp; &#60;",
    "a|b *c* _d_ `e` $f$ [g](h)",
    "日本語 עברית العربية 👩‍👩‍👧",
    " ",
    "",
]
PICTURE = thumbnail(np.eye(8), 16)


@cache
def digits():
    return digits_report()


def data_of(names):
    """A report with the same hostile texts in every place that takes texts."""
    n = len(names)
    return ReportData(
        names[0],
        facts={name: name for name in names},
        classes=[ClassCount(name, i, i) for i, name in enumerate(names)],
        curve=MergingCurve([1, 2], [0.5, 0.25], [0.1, 0.1], names[0], 2, 1, names[-1], [1, 2], [0.0, 1.0]),
        confusion=ConfusionMatrix(names, np.arange(n * n).reshape(n, n), names[0]),
        groups=[
            WordGroup(i, n, 1 / n, names, [PICTURE], [(other, -1.0) for other in names], name, name, 1.0)
            for i, name in enumerate(names)
        ],
        examples=[
            Example(name, name, names[0], PICTURE, name, [(0, 1.0), (99, -1.0)], 0.5, 0.5, (name, 0.25))
            for name in names
        ],
        timings=dict.fromkeys(names, 1.0),
        versions={name: name for name in names},
        notes=names,
        baselines=[Baseline(name, 0.5, 0.1, 7, 0.25) for name in names],
        tree=Tree([TreeRow(n, range(n), [1 / n] * n, range(n), names)], n, names, n),
        clusters=clusters_of(names),
    )


def clusters_of(names, **more):
    """Clusters with the same texts in every place that takes texts."""
    n, items = len(names), [ShownItem(name, None, name) for name in names]
    cards = [
        ClusterCard(
            i, name, n - i, 0.5, 0.75, [(other, 0.5, 0.1) for other in names], [PICTURE], items[i], items, items[0]
        )
        for i, name in enumerate(names)
    ]
    points = np.random.default_rng(0).normal(size=(3 * n, 2)).astype(np.float32)
    given = {
        "numbers": ClusterNumbers((2, 3, 4), (0.5, 0.9, 0.6), (0.1, 0.1, 0.1)),
        "agreement": (0.5, 0.25, 9, 3),
        "points": points,
        "point_clusters": np.repeat(np.arange(n, dtype=np.int32), 3),
        "table": ClusterTermTable(names, range(n), np.linspace(0, 1, n * n).reshape(n, n)),
    }
    return ClusterSummary(cards, "kmeans", "words", 9 * n, 2, **given | more)


def test_a_report_of_clusters_opens_with_them():
    names = ["key, chip", "orbit, moon", "car, engine"]
    summary = clusters_of(names)
    html = render_report(replace(digits(), clusters=summary))
    page = Page(html)
    sections = [id for id in page.ids if id in ("clusters", "map", "terms", "setup", "groups")]
    assert sections == ["clusters", "map", "terms", "setup", "groups"]
    for part in (
        *names,
        "27 items in 3 clusters",
        "2 items without words of the vocabulary",
        "NMI 0.50",
        "9 items of 27",
    ):
        assert part in page.text, part
    assert "halves of the items agree most about clusters (0.90 of 1)" in page.text
    assert sum(line.count("h0") for line in re.findall('<path d="([^"]*)" class="dots', html)) == 9
    empty = {"numbers": None, "agreement": None, "table": None, "points": np.zeros((0, 2), np.float32)}
    alone = Page(render_report(ReportData("Posts", clusters=clusters_of(names, **empty))))
    assert [tag for tag in alone.tags if tag == "section"] == ["section"]
    assert "is a suggestion" not in alone.text
    assert "clusters" not in Page(render_report(digits())).ids


def test_few_agreements_of_halves_are_called_little_and_many_clusters_are_listed():
    names = [f"word{i}" for i in range(70)]
    little = ClusterNumbers((2, 3), (0.2, 0.1), (0.1, 0.1))
    page = Page(render_report(ReportData("Posts", clusters=clusters_of(names, numbers=little))))
    assert "That is little: there may be no clusters." in page.text
    assert "10 more clusters" in page.text
    assert [tag for tag in page.tags if tag == "article"] == ["article"] * 60
    measured = replace(clusters_of(names[:3]), shares_of="columns")
    shown = Page(render_report(ReportData("Wine", clusters=measured))).text
    assert "Columns by cluster" in shown
    assert "+0.5" in shown


def test_a_page_is_one_file_that_fetches_nothing_and_runs_its_script_alone():
    html = render_report(digits())
    page = Page(html)
    assert len(page.pictures) >= len(digits().examples) + len(digits().groups)
    style = re.search(r"<style>(.*?)</style>", html, re.S)[1]
    policy = next(a["content"] for a in page.attributes if "http-equiv" in a)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (script,) = page.scripts
    run = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = ["default-src 'none'", "img-src data:", f"style-src 'sha256-{digest}'", f"script-src 'sha256-{run}'"]
    assert policy.split("; ")[:4] == allowed
    assert "innerHTML" not in script
    assert not re.search(r"\b(import|export)\b.*;$", script, re.M)
    assert set(re.findall(r"var\(--([\w-]+)\)", style)) <= set(re.findall(r"--([\w-]+):", style))
    assert style.count("{") == style.count("}")
    assert "url(" not in style
    assert "@import" not in style
    assert set(re.findall(r"https?://[^\"]*", html)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    without = Page(render_report(replace(digits(), tree=None)))
    assert without.scripts == []
    assert "script-src" not in next(a["content"] for a in without.attributes if "http-equiv" in a)


def test_the_figures_of_the_data_are_on_the_page():
    data = digits()
    html = render_report(data)
    text = Page(html).text
    for name, value in data.facts.items():
        assert name in text
        assert plain(value) in text
    for error, spread in zip(data.curve.errors, data.curve.standard_errors, strict=True):
        assert f"{percent(error)} ± {percent(spread)}" in text
    decimals = digits_for(max(abs(weight) for group in data.groups for _, weight in group.classes))
    for group in data.groups:
        assert f"{percent(group.frequency)} of all occurrences" in text
        assert f"{group.decides:.3f}" in text
        assert all(fixed(weight, decimals, sign=True) in text for _, weight in group.classes)
    for example in data.examples:
        assert example.id in text
    assert all(seconds(time) in text for time in data.timings.values())
    assert all(version in text for version in data.versions.values())
    assert all(note in text for note in data.notes)
    np.testing.assert_array_equal(matrix_of(html), data.confusion.counts)


def test_shown_parts_of_scores_add_up_and_groups_are_sorted_by_what_they_decide():
    data = digits()
    html = render_report(data)
    by_id = {example.id: example for example in data.examples}
    ids = re.findall(r'<p class="id"><bdi>(.*?)</bdi>', html)
    for id, (parts, score) in zip(ids, scores_of(html), strict=True):
        example = by_id[id]
        assert round(sum(parts), 6) == score
        assert score == pytest.approx(example.score, abs=0.01)
        np.testing.assert_allclose(parts[:5], [value for _, value in example.contributions[:5]], atol=0.01)
        assert parts[-1] == pytest.approx(example.intercept, abs=0.01)
        assert len(parts) == 7  # five groups, all others, the intercept
    shown = [int(number) for number in re.findall(r'<article class="card" id="group-(\d+)"', html)]
    assert shown == [group.number for group in sorted(data.groups, key=lambda group: -group.decides)]


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=12), st.integers(0, 6))
def test_rounded_parts_add_up_to_the_rounded_sum(values, digits):
    parts = rounded_to_sum(values, sum(values), digits)
    assert round(sum(parts), digits) == pytest.approx(round(sum(values), digits), abs=1e-9)
    np.testing.assert_allclose(parts, values, atol=1.001 * 10.0**-digits)


def test_all_words_of_a_group_can_be_opened_in_a_page_of_bounded_size():
    words = [f"word{i:05}" for i in range(40_000)]
    sizes = [25_000, 10_000, 4_990, 10]
    ends = np.cumsum(sizes)
    groups = [
        WordGroup(i, size, 0.25, words[end - size : end], name=f"name {i}", decides=1.0 - i / 10)
        for i, (size, end) in enumerate(zip(sizes, ends, strict=True))
    ]
    html = render_report(ReportData("Words", groups=groups))
    text = Page(html).text
    assert len(html) < 1_000_000
    shown = re.findall(r"<summary>and ([\d,]+) more</summary>", html)
    assert shown == ["24,988", "9,988"]
    assert ", ".join(words[12:25_000]) in text
    hidden = 25_000 + 10_000 - 2 * 12 - 30_000
    assert f"and {hidden:,} more, which bagwise groups lists" in text
    assert "and 4,978 more, which bagwise groups lists" in text  # nothing is left to open
    assert all(word in text for word in words[-10:])


def test_same_data_same_bytes(tmp_path):
    first, second = tmp_path / "a.html", tmp_path / "b.html"
    write_report(digits(), first)
    write_report(replace(digits()), second)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    "name", [field.name for field in fields(ReportData) if field.name not in ("title", "clusters")]
)
def test_sections_without_data_are_left_out(name):
    whole, empty = digits(), ReportData("Empty")
    alone = Page(render_report(replace(empty, **{name: getattr(whole, name)})))
    without = Page(render_report(replace(whole, **{name: getattr(empty, name)})))
    section = {"facts": "setup", "classes": "setup"}.get(name, name)
    assert [tag for tag in alone.tags if tag == "section"] == ["section"]
    assert section in alone.ids
    if name not in ("facts", "classes"):
        assert section not in without.ids
    assert "section" not in Page(render_report(empty)).tags


def test_hostile_texts_are_shown_harmlessly():
    html = render_report(data_of(HOSTILE))
    page = Page(html)
    html.encode("utf-8")
    assert all(one_line(text) in page.text for text in HOSTILE)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", html)


@settings(max_examples=25)
@given(st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=4, unique=True))
def test_any_text_is_shown_harmlessly(names):
    page = Page(render_report(data_of(names)))
    page.text.encode("utf-8")
    other = Page(render_report(data_of([f"name {i}" for i in range(len(names))])))
    plain, expected = ([tag for tag in one.tags if tag not in ("bdi", "wbr")] for one in (page, other))
    assert plain == expected


def test_other_pages_show_hostile_texts_harmlessly():
    hits = [Hit(name, 0.5, name, PICTURE, name, "./" + quote(name.encode("utf-8", "replace"))) for name in HOSTILE]
    rows = [Hit(name, 0.5, name, values=[1.0] * len(HOSTILE)) for name in HOSTILE]
    for text in HOSTILE:
        results = SearchResults(text, hits, PICTURE, text, text, {text: text}, itself=HOSTILE, source=(text, "./x"))
        page = Page(render_results(results))
        assert all(one_line(name) in page.text for name in HOSTILE)
        assert len(page.pictures) == len(hits) + 1
        assert len(page.links) == 2 * len(hits) + 1
        page = Page(render_results(SearchResults(text, rows, columns=HOSTILE, query_values=[1.0] * len(HOSTILE))))
        assert all(page.text.count(one_line(name)) >= 2 for name in HOSTILE)
        criteria = [CriterionResult(name, [0.5, 0.25], [0.1, 0.1], 1.0) for name in HOSTILE]
        page = Page(render_comparison(Comparison(text, [1, 2], criteria, text, {text: text})))
        assert all(one_line(name) in page.text for name in HOSTILE)


@pytest.mark.parametrize(
    "link", ["javascript:alert(1)", "https://example.com", "//example.com/x", "x.html", "/etc/passwd"]
)
def test_links_lead_to_files_beside_the_page(link):
    with pytest.raises(BagwiseError, match=r"Links must begin with \./, \.\./ or file:///"):
        render_results(SearchResults("query", [Hit("a", 0.5, link=link)]))


def test_a_page_of_results_has_the_hits_in_order():
    hits = [Hit(f"item {i}", 1 / (i + 3), excerpt="x" if i % 2 else None) for i in range(30)]
    text = Page(render_results(SearchResults("query", hits, score_name="chi² distance", facts={"items": 12345}))).text
    places = [text.index(f"item {i}\n") for i in range(30)]
    assert places == sorted(places)
    assert all(f"{hit.score:.4f}" in text for hit in hits)
    assert "30 results, best first" in text
    assert "12,345" in text
    assert "No results" in Page(render_results(SearchResults("query"))).text


def test_a_page_of_a_comparison_has_all_errors():
    rng = np.random.default_rng(0)
    criteria = [
        CriterionResult(f"criterion {i}", rng.random(5).tolist(), (rng.random(5) / 10).tolist(), float(i))
        for i in range(20)
    ]
    comparison = Comparison("Many", [2, 5, 10, 100, 1000], criteria, facts={"items": 7})
    text = Page(render_comparison(comparison)).text
    for result in comparison.criteria:
        for error, spread in zip(result.errors, result.standard_errors, strict=True):
            assert f"{percent(error)} ± {percent(spread)}" in text


def test_much_data_stays_small_and_says_what_is_left_out():
    rng = np.random.default_rng(0)
    names = [f"class {i}" for i in range(1000)]
    sizes = range(1, 10_001)
    errors = np.clip(0.2 + 1 / np.array(sizes) + 0.01 * rng.normal(size=len(sizes)), 0, 1).tolist()
    pictures = [thumbnail(rng.integers(0, 256, (128, 128, 3), dtype=np.uint8), 96) for _ in range(4)]
    matrix = rng.integers(0, 3, (1000, 1000)) + 50 * np.eye(1000, dtype=int)
    data = ReportData(
        "Large",
        classes=[ClassCount(name, 100, 50) for name in names],
        curve=MergingCurve(sizes, errors, [0.01] * len(sizes), "", 4321, 17, "x", sizes, errors),
        confusion=ConfusionMatrix(names, matrix),
        groups=[WordGroup(i, 50, 1 / 200, [f"word {i} {k}" for k in range(50)]) for i in range(200)],
        examples=[Example(f"item {i}", names[i], names[i], pictures[i % 4]) for i in range(200)],
    )
    html = render_report(data)
    page = Page(html)
    assert len(page.pictures) == 200
    assert len(html) < 4_000_000
    shown = matrix_of(html)
    assert shown.shape == (100, 101)
    assert shown.sum(axis=1).tolist() == [int(matrix[i].sum()) for i in _rows_shown(html)]
    assert "Shown are the 100 of 1,000 classes with the most confusions" in page.text
    assert (
        "200 groups of 10,000 words, the most frequent first; after 60 of them, the others are only listed."
        in page.text
    )
    assert "140 more groups" in page.text
    assert f"of {count(10_000)} sizes" in page.text
    assert percent(errors[4320]) in page.text


def _rows_shown(html):
    body = re.search(r'<table class="heat.*?<tbody>(.*?)</tbody>', html, re.S)[1]
    return [int(name) for name in re.findall(r"<bdi>class (\d+)</bdi>", body)]


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_colours_can_be_told_apart(palette):
    for ground in (palette["paper"], palette["surface"]):
        assert all(contrast(palette[name], ground) >= 4.5 for name in ("ink", "muted", "accent"))
        assert all(contrast(colour, ground) >= 3 for name, colour in palette.items() if name.startswith("series"))
    assert contrast(palette["ink"], palette["wash"]) >= 4.5
    assert all(contrast(text, ground) >= 4.5 for ground, text in shades(palette))
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_a_failed_page_leaves_the_old_file(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    broken = Hit("a", 0.5, picture=b"GIF89a")
    with pytest.raises(BagwiseError, match="must be PNG or JPEG files; this one begins with b'GIF89a'"):
        write_results(SearchResults("query", [broken]), path)
    assert path.read_text() == "old"
    assert write_results(SearchResults("query"), path) == path
    assert path.read_bytes().endswith(b"</html>")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
