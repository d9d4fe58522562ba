"""Compare, exports and search in a real browser."""

import io
import re
from urllib.parse import urljoin
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from browsing import IN_BROWSER, explorer, playwright, violations

pytestmark = IN_BROWSER
expect = playwright().expect


@pytest.fixture(scope="module")
def address(explored, space, tmp_path_factory):
    other = space.model.cut(2).save(tmp_path_factory.mktemp("other") / "<b>other.bagwise")
    with explorer(explored, "--compare", other) as opened:
        yield opened


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_pages_fit_their_window_and_are_accessible(visit, width, scheme):
    page = visit("/compare?n=5", width, color_scheme=scheme, bypass_csp=True)
    for path, drawn in {
        "/compare?n=5": ".four",
        "/compare?against=size&n=2&m=7": ".four",
        "/search?like=3&by=groups&n=5": ".strip .item",
    }.items():
        page.goto(urljoin(page.url, path))
        page.wait_for_selector(f"main {drawn}")
        for closed in page.locator("main details").all():
            closed.locator("summary").click()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert violations(page) == []


def test_answers_of_both_lead_to_their_items_and_back(visit):
    page = visit("/compare?n=5")
    expect(page.locator(".lead")).to_contain_text("<b>other")
    cell = page.locator(".heat td:not(.same) a").first
    times = int(cell.inner_text())
    cell.click()
    page.wait_for_selector(".gridbox")
    expect(page.locator(".grid .item")).to_have_count(times)
    expect(page.locator(".grid .item").first).to_contain_text("<b>other:")
    page.get_by_label("Compared").select_option("agree")
    expect(page.locator("main")).to_contain_text("0 items of")
    page.click("text=without comparison")
    assert "which" not in page.url
    page.go_back()
    page.wait_for_selector(".four")


def test_another_size_is_compared_by_keyboard(visit, space):
    page = visit("/compare?n=5")
    page.locator("main form select").first.select_option("size")
    expect(page.locator(".lead")).not_to_contain_text("<b>other")  # the page is drawn anew, with its fields
    page.get_by_label("Its groups").fill("3")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("m=3"))
    expect(page.locator(".lead")).to_contain_text("3 groups")
    page.reload()
    expect(page.get_by_label("Its groups")).to_have_value("3")


def downloaded(page, name):
    with page.expect_download() as started:
        page.get_by_role("button", name=name).first.click()
    return started.value.path().read_bytes()


def test_figures_are_saved_as_pictures(visit):
    page = visit("/?n=5")
    page.click("text=Export")
    drawn = ElementTree.fromstring(downloaded(page, "Curve as SVG"))
    curves = [one for one in drawn.iter() if one.tag.endswith("polyline")]
    assert len(curves) == 1
    assert curves[0].get("stroke").startswith("rgb")  # no style sheet is needed
    size = tuple(2 * int(drawn.get(name)) for name in ("width", "height"))
    picture = Image.open(io.BytesIO(downloaded(page, "Curve as PNG")))
    assert picture.size == size
    assert len(np.unique(np.asarray(picture.convert("L")))) > 10
    matrix = downloaded(page, "Confusion matrix as CSV").decode().splitlines()
    assert len(matrix) == 1 + page.locator(".heat tbody tr").count()
    page.goto(urljoin(page.url, "/groups?n=5"))
    page.click("text=Export")
    picture = Image.open(io.BytesIO(downloaded(page, "Hierarchy as PNG")))
    assert len(np.unique(np.asarray(picture.convert("L")))) > 10


@pytest.mark.parametrize(
    ("path", "figure"),
    [
        ("/?n=5", "Confusion matrix"),
        ("/groups?n=5", None),  # drawn on a canvas
        ("/items?n=5&find=onerror", "Classes"),
        ("/items?item=0&n=5", "Contributions"),
        ("/search?like=3", "Scores"),
        ("/compare?n=5", "Answers"),
        ("/steer?n=5", "Errors"),
    ],
)
def test_every_page_saves_a_table_a_figure_and_its_python_lines(visit, path, figure):
    page = visit(path)
    if figure == "Errors":
        page.wait_for_selector(".figure")  # the classifiers are trained
    page.click("summary:text-is('Export')")
    expect(page.locator(".lines code")).to_contain_text("import")
    compile(page.locator(".lines code").inner_text(), "lines", "exec")
    assert len(downloaded(page, re.compile("as CSV$")).splitlines()) > 1
    if figure is not None:
        drawn = ElementTree.fromstring(downloaded(page, f"{figure} as SVG"))
        filled = {one.get("fill") for one in drawn.iter() if one.tag.endswith(("rect", "text"))}
        assert len(filled) > 2
        assert all(one.startswith("rgb") or one == "none" for one in filled)  # no style sheet is needed
    picture = Image.open(io.BytesIO(downloaded(page, re.compile("as PNG$"))))
    assert len(np.unique(np.asarray(picture.convert("L")))) > 10
    assert page.locator("body > .unseen svg").count() == 0


def test_a_search_is_asked_again_in_another_way(visit):
    page = visit("/items?item=3&n=5")
    page.click("text=Search with this item as the query")
    page.wait_for_selector(".strip .item")
    expect(page.locator(".strip .excerpt")).to_have_count(24)
    before = page.locator(".strip .small").first.inner_text()
    page.get_by_label("Compare by").select_option("groups")
    page.get_by_label("Metric").select_option("chi2")
    expect(page.locator(".shared").first).to_contain_text("differs most by")
    assert page.locator(".strip .small").first.inner_text() != before
    page.get_by_label("Show").select_option("12")
    expect(page.locator(".strip > li")).to_have_count(12)
    page.goto(urljoin(page.url, "/search"))
    page.fill("#query", "apple pear")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".shared").first).to_contain_text("shares")
    page.get_by_label("Compare by").select_option("words")
    expect(page.locator(".shared").first).to_contain_text("apple")
    assert page.locator("#query").input_value() == "apple pear"


def test_items_are_filtered_by_confidence(visit):
    page = visit("/items?n=5")
    page.get_by_label("Largest margin").fill("0")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("0 items of")
    assert "at_most=0" in page.url
