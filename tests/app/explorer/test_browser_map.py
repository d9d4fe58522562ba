"""The map in a real browser."""

import csv
import re
import shutil

import numpy as np
import pytest

from bagwise.app import ItemIndex
from bagwise.display.texts import clean
from browsing import IN_BROWSER, explorer, playwright, violations, visits

pytestmark = IN_BROWSER
expect = playwright().expect


@pytest.fixture(scope="module")
def path(explored, tmp_path_factory):
    """An index without a map, at first."""
    return shutil.copy(explored, tmp_path_factory.mktemp("map") / "texts.index")


@pytest.fixture(scope="module")
def address(path):
    with explorer(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def index(browser, address, path):
    """The index with its map, which is made in the browser."""
    with visits(browser, address) as visit:
        page = visit("/map", 390, color_scheme="dark", bypass_csp=True)
        expect(page.locator(".lead")).to_contain_text("no map yet")
        assert violations(page) == []
        page.click("text=Make a map by spectral")
        page.wait_for_selector(".map")
        expect(page.locator(".mapnote")).to_contain_text("It is kept in the index.")
    return ItemIndex.load(path)  # has the map


@pytest.fixture(scope="module")
def tab(browser, address, index):
    """A page that tests share."""
    with visits(browser, address) as visit:
        yield visit()


@pytest.fixture
def opened(tab, address, index):
    """The page with a map; gives the page, and the place of each item on it."""
    page = tab
    page.goto(address.split("/?")[0] + "/map?n=5")
    page.wait_for_selector(".map")
    box = page.locator(".map").evaluate(
        "(c) => [c.getBoundingClientRect().x, c.getBoundingClientRect().y, c.clientLeft, c.clientWidth, c.clientHeight]"
    )
    x, y, border, width, height = box
    points = index.map.points
    low, high = points.min(axis=0), points.max(axis=0)
    scale = 0.94 * min(width / (high - low)[0], height / (high - low)[1])
    places = (
        np.array([width / 2, height / 2]) + (points - (low + high) / 2) * scale * [1, -1] + [x + border, y + border]
    )
    return page, places


def settle(page):
    """Wait until the address names what the map has shown since the last event: timers end in their order."""
    page.evaluate("() => new Promise((done) => setTimeout(done, 400))")


def number_of(text):
    return int(re.search(r"([\d,]+) item", text)[1].replace(",", ""))


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page_fits_its_window_and_is_accessible(visit, index, width, scheme):
    page = visit("/map?n=5&by=cluster", width, color_scheme=scheme, bypass_csp=True)
    page.wait_for_selector(".map")
    page.focus(".map")
    page.keyboard.press("s")
    page.wait_for_selector(".selection .item")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert violations(page) == []


def test_a_point_leads_to_its_item_and_back(opened, index):
    page, places = opened
    apart = np.linalg.norm(places[:, None] - places, axis=2) + 1e9 * np.eye(len(places))
    number = int(apart.min(axis=1).argmax())  # that of which no other is near
    page.mouse.move(*places[number])
    expect(page.locator(".maptip .id")).to_have_text(clean(index.ids[number]))
    page.mouse.click(*places[number])
    page.wait_for_selector(".why")
    expect(page.locator("h1")).to_have_text(clean(index.ids[number]))
    page.click("text=On the map")
    page.wait_for_selector(".map")
    assert f"item={number}" in page.url
    expect(page.locator(".maptip .id")).to_have_text(clean(index.ids[number]))
    box = page.locator(".map").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)  # it is in the middle
    page.wait_for_selector(".why")
    expect(page.locator("h1")).to_have_text(clean(index.ids[number]))


def test_dragging_moves_the_map_and_back_restores_it(opened, index):
    page, places = opened
    box = page.locator(".map").bounding_box()
    start = box["x"] + 15, box["y"] + 90
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(start[0] + 80, start[1] - 40, steps=4)
    page.mouse.up()
    settle(page)
    moved = page.url
    assert "zoom=" in moved
    number = int(places[:, 0].argmin())
    page.mouse.move(*(places[number] + [80, -40]))
    expect(page.locator(".maptip .id")).to_have_text(clean(index.ids[number]))
    page.click("nav >> text=Items")
    page.wait_for_selector(".gridbox")
    page.go_back()
    page.wait_for_selector(".map")
    assert page.url == moved
    page.mouse.wheel(0, 300)  # the page scrolls, the map stays as it is
    page.wait_for_function("() => window.scrollY > 0")
    settle(page)
    assert page.url == moved


@pytest.mark.parametrize("mode", ["Lasso", "Rectangle"])
def test_a_selection_is_listed_and_saved(opened, index, mode):
    page, places = opened
    page.check(f"text={mode}")
    low, high = np.quantile(places, [0.2, 0.7], axis=0)
    inside = np.flatnonzero(((places > low) & (places < high)).all(axis=1))
    assert 0 < len(inside) < len(places)
    corners = [low, [high[0], low[1]], high, [low[0], high[1]]]
    page.mouse.move(*corners[0])
    page.mouse.down()
    for corner in corners[1:] if mode == "Lasso" else corners[2:3]:
        page.mouse.move(*corner, steps=3)
    page.mouse.up()
    page.wait_for_selector(".selection .item")
    expect(page.locator(".selection h2")).to_have_text(re.compile(rf"^{len(inside)} items? selected"))
    with page.expect_download() as started:
        page.click(".selection >> text=Save as CSV")
    rows = list(csv.DictReader(started.value.path().read_text(encoding="utf-8").splitlines()))
    assert list(rows[0]) == ["id", "label", "predicted", "x", "y"]
    assert [row["label"] for row in rows] == [index.labels[k] for k in inside]
    np.testing.assert_allclose(
        [[float(row["x"]), float(row["y"])] for row in rows], index.map.points[inside], rtol=1e-6
    )
    page.locator(".selection .item").first.click()
    page.wait_for_selector(".why")
    page.go_back()  # to the same selection
    page.wait_for_selector(".selection .item")
    expect(page.locator(".selection h2")).to_have_text(re.compile(rf"^{len(inside)} items? selected"))
    page.click("text=Open in Items")
    page.wait_for_selector(".gridbox")
    expect(page.locator(".grid .item")).to_have_count(min(len(inside), 60))
    page.click("text=all items")
    expect(page.locator("p[role=status]").first).to_contain_text(f"{len(places)} items")


def test_the_map_is_used_by_keyboard_alone(opened, index):
    page, places = opened
    page.mouse.move(*places[0])  # where it rests, also when the page moves
    page.focus(".map")
    for key in ("+", "+", "ArrowLeft", "ArrowDown", "-"):
        page.keyboard.press(key)
    page.wait_for_url("**zoom=1.5*")
    expect(page.locator(".maptip .id")).to_have_count(1)
    page.keyboard.press("s")
    page.wait_for_selector(".selection .item")
    assert 0 < number_of(page.locator(".selection h2").inner_text()) < len(places)
    page.keyboard.press("Home")
    page.keyboard.press("s")
    expect(page.locator(".selection h2")).to_have_text(f"{len(places)} items selected")
    page.click(".selection .more")
    expect(page.locator(".selection li")).to_have_count(len(places))
    assert "<img src=x onerror=alert(1)>" in page.locator(".selection").inner_text()  # hostile names are text
    page.focus(".map")
    assert page.locator("main img").count() == 0
    page.keyboard.press("Escape")
    expect(page.locator(".selection h2")).to_have_count(0)
    middle = np.linalg.norm(places - (places.min(axis=0) + places.max(axis=0)) / 2, axis=1)
    shown = index.ids[int(middle.argmin())]
    page.mouse.wheel(0, 60)  # moves the page, not the pointer
    expect(page.locator(".maptip .id")).to_have_text(clean(shown))
    page.keyboard.press("Enter")
    page.wait_for_selector(".why")
    expect(page.locator("h1")).to_have_text(clean(shown))


def test_an_item_opens_while_the_map_moves(opened, index):
    page, _ = opened
    asked = []
    page.route("**/api/overview*", lambda route: asked.append(route))  # a server that does not answer yet
    page.focus(".map")
    with page.expect_request("**/api/overview*"):
        page.keyboard.press("+")  # is noted in the address of the map after a moment
        page.keyboard.press("Enter")
    settle(page)
    for route in asked:
        route.continue_()
    page.wait_for_selector(".why")
    assert asked
    page.unroute("**/api/overview*")
    assert "item=" in page.url


def test_the_legend_filters(opened, index):
    page, places = opened
    counts = {name: index.labels.count(name) for name in set(index.labels)}
    table = {
        row.split("\t")[0].strip(): int(row.split("\t")[1]) for row in page.locator(".legend tr").all_inner_texts()
    }
    assert table == counts
    hidden = sorted(counts)[0]
    page.locator(".legend label", has_text=hidden).click()
    page.click("text=Select view")
    expect(page.locator(".selection h2")).to_have_text(f"{len(places) - counts[hidden]} items selected")
    page.select_option("main select", "error")
    expect(page.locator(".legend caption")).to_have_text("Items by right or wrong")
    page.click("text=Hide all")
    page.click("text=Select view")
    expect(page.locator(".selection")).to_contain_text("No item is in the selection")


def test_a_picture_is_saved(opened):
    page, _ = opened
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    with page.expect_download() as started:
        page.click("summary:text('Export')")
        page.click("text=Map as PNG")
    assert started.value.path().read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    colours = page.evaluate("""() => {
        const canvas = document.querySelector(".map");
        const found = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(found.data.buffer)).size;
    }""")
    expect(page.locator(".exports code")).to_contain_text("index.map.points")
    assert colours >= 3  # paper, and a colour for each class


def test_fingers_zoom(visit, index):
    page = visit("/map?n=5", 390, 844, has_touch=True, is_mobile=True)
    page.wait_for_selector(".map")
    page.locator(".map").scroll_into_view_if_needed()
    box = page.locator(".map").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    touch = page.context.new_cdp_session(page)

    def send(kind, *spans):
        points = [{"x": x + side * span, "y": y, "id": k} for span in spans for k, side in enumerate((-1, 1))]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    send("touchStart", 20)
    for span in (40, 60, 80):
        send("touchMove", span)
    send("touchEnd")
    settle(page)
    assert float(re.search(r"zoom=([\d.]+)", page.url)[1]) == pytest.approx(4, rel=0.2)
