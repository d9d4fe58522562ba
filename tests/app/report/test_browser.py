"""Pages in a real browser: Chromium, driven by Playwright."""

import numpy as np
import pytest

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
    write_comparison,
    write_report,
    write_results,
)
from bagwise.display import Tree, TreeRow, photograph
from browsing import IN_BROWSER, playwright, violations

playwright()
pytestmark = IN_BROWSER
HOSTILE = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)> & \u2028 \u202e"]
LONG = "a/very_long.name/" + "of-a-class-without-any-space" * 2

# Elements that stick out of the window, though no box around them scrolls, and texts that are cut off.
CLIPPED = """() => [...document.querySelectorAll('main *')].filter(element => {
  const box = element.getBoundingClientRect(), style = getComputedStyle(element);
  if (element.closest('.unseen') || !box.width) return false;
  if (element.closest('[title]') && style.textOverflow === 'ellipsis') return false; // shown on hover
  if (style.overflowX === 'hidden' && element.scrollWidth > element.clientWidth + 1) return true;
  return box.right > innerWidth + 1 && !element.parentElement.closest('.scroll');
}).map(element => element.outerHTML.slice(0, 120))"""
# Headings that may be the last line of a printed page.
ORPHANS = """() => [...document.querySelectorAll('h1, h2, h3, .lead')].filter(
  element => getComputedStyle(element).breakAfter !== 'avoid').map(element => element.outerHTML)"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A report, a comparison, and results of searches for photographs and for rows, all with long names."""
    folder = tmp_path_factory.mktemp("pages")
    picture = photograph(np.random.default_rng(0).integers(0, 256, (60, 200, 3), dtype=np.uint8))
    classes, tested = [LONG, "short"], {"test_sizes": [2, 50], "test_errors": [0.4, 0.2], "n_test": 10}
    curve = MergingCurve([2, 50], [0.5, 0.2], [0.1, 0.1], "2 folds", 50, 50, "x", [1, 2, 50], [0, 1, 2], 900, **tested)
    words = [f"word{k}" for k in range(500)]
    report = ReportData(
        LONG,
        {"Source": LONG, "Items": 20},
        [ClassCount(name, 10, 5) for name in classes],
        curve,
        ConfusionMatrix(classes, np.array([[4, 1], [1, 4]])),
        [WordGroup(i, 500, 0.5, words, [picture], [(LONG, 0.5)], "", f"{LONG}{i}", 1.0) for i in range(2)],
        [Example(LONG, LONG, "short", picture, LONG, [(0, 0.5), (1, -0.25)], 0.5, 0.25, (LONG, 0.25))],
        {"merging": 1.5},
        {"numpy": "2"},
        [LONG],
        [Baseline(LONG, 0.3, 0.1, 900, 0.25)],
        Tree([TreeRow(1, [0], [1.0], [1], [LONG]), TreeRow(2, [0, 1], [0.75, 0.25], [0, 1], HOSTILE)], 900, classes, 2),
    )
    write_report(report, folder / "report.html")
    results = [CriterionResult(f"{LONG} {i}", [0.5 - i / 30] * 9, [0.01] * 9, 1.0) for i in range(3)]
    write_comparison(Comparison("Criteria", [2**k for k in range(1, 10)], results), folder / "comparison.html")
    hits = [Hit(f"{LONG}{i}.jpg", 0.5, LONG, picture, link="./x.jpg") for i in range(4)]
    write_results(SearchResults(LONG, hits, picture, facts={"Index": LONG}), folder / "photographs.html")
    names = [f"column {k}" for k in range(24)]
    rows = [Hit(str(i), 0.5, "class", values=[1e5 / 3] * 24) for i in range(4)]
    write_results(SearchResults("rows", rows, columns=names, query_values=[1.0] * 24), folder / "rows.html")
    return sorted(folder.iterdir())


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_pages_fit_their_window_and_are_accessible(browser, pages, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    for path in pages:
        page = context.new_page()
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), path
        assert page.evaluate(CLIPPED) == [], path
        shown = page.evaluate("[...document.querySelectorAll('.chart')].map(one => getComputedStyle(one).display)")
        assert shown in ([], ["block", "none"] if width > 640 else ["none", "block"])
        assert violations(page) == [], path
    context.close()


def test_links_lead_to_cards_and_tables_scroll_in_their_boxes(browser, pages):
    context = browser.new_context(viewport={"width": 390, "height": 900})
    opened = {path.stem: context.new_page() for path in pages}
    for path in pages:
        opened[path.stem].goto(path.as_uri())
    for name in ("comparison", "rows"):
        box = opened[name].locator(".scroll")
        assert box.evaluate("box => box.scrollWidth > box.clientWidth && getComputedStyle(box).overflowX === 'auto'")
    report = opened["report"]
    link = report.locator(".evidence a").first
    target = link.get_attribute("href")
    link.click()
    assert report.locator(target).evaluate("card => card.getBoundingClientRect().top < innerHeight")
    more = report.locator("details.all").first
    assert not more.locator(".words").is_visible()
    more.locator("summary").click()
    assert more.locator(".words").is_visible()
    context.close()


def test_the_hierarchy_is_drawn_by_the_script_and_leads_to_cards(browser, pages):
    (path,) = [path for path in pages if path.stem == "report"]
    problems, context = [], browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    page.goto(path.as_uri())
    canvas = page.locator("#tree canvas")
    light = canvas.evaluate("canvas => canvas.toDataURL()")
    page.locator(".theme label").nth(2).click()  # dark
    page.wait_for_function("light => document.querySelector('#tree canvas').toDataURL() !== light", arg=light)
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 33)
    assert page.locator("#tree .tip").inner_text().startswith("At 2 groups: <img src=x onerror=alert(1)> &")
    page.mouse.click(box["x"] + 0.9 * box["width"], box["y"] + 33)
    page.wait_for_url("**#group-1")
    assert page.locator("#tree img").count() == 0
    assert problems == []
    context.close()
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.locator("#tree-place svg rect").count() == 3
    assert page.locator("#tree-place svg").is_visible()
    context.close()


def test_printed_headings_stay_with_what_follows(browser, pages):
    context = browser.new_context()
    for path in pages:
        page = context.new_page()
        page.goto(path.as_uri())
        page.emulate_media(media="print")
        assert page.evaluate(ORPHANS) == [], path
        assert page.evaluate("getComputedStyle(document.querySelector('.theme')).display") == "none"
    context.close()
