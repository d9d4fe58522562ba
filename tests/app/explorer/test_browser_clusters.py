"""Clusters in a real browser: renamed, joined, split, items moved, undone, and their labels saved."""

import csv
from urllib.parse import urljoin

import numpy as np
import pytest

from bagwise.app import FitOptions, ItemIndex, run_fit
from bagwise.app.index.item_index import index_of_fit
from browsing import IN_BROWSER, explorer, playwright, violations
from small_sources import texts

pytestmark = IN_BROWSER
expect = playwright().expect
HOSTILE = "<img src=x onerror=alert(1)> & “fruit”"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    place = tmp_path_factory.mktemp("clustered")
    folder = place / "texts"
    folder.mkdir()
    for number, (text, kind) in enumerate(texts(n_each=15)):
        (folder / f"{number:03}{kind}.txt").write_text(text)
    fit = run_fit(folder, FitOptions(n_groups=8, folds=0, n_jobs=1))
    return index_of_fit(fit, None, folder, FitOptions()).with_map().with_clusters(3).save(place / "texts.index")


@pytest.fixture(scope="module")
def address(path):
    with explorer(path) as opened:
        yield opened


def notice(page, text):
    expect(page.locator("#notice")).to_contain_text(text)


def check_page(page):
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert violations(page) == []


def test_clusters_are_corrected_and_become_labels(visit, path):
    before = ItemIndex.load(path).clusters
    page = visit("/", bypass_csp=True)
    cards = page.locator(".card")
    expect(page.locator("nav [aria-current]")).to_have_text("Clusters")
    expect(cards).to_have_count(3)
    expect(page.locator("main")).to_contain_text("of the items would be put into another one")
    expect(page.locator("canvas.map")).to_be_visible()
    expect(cards.first).to_contain_text("fruit")  # the beginning of a text, read from its source
    check_page(page)

    cards.first.locator("summary").click()
    cards.first.locator("input").fill(HOSTILE)
    page.keyboard.press("Enter")
    notice(page, f"“{HOSTILE}”. 3 clusters")
    expect(cards.first.locator("h3")).to_contain_text(HOSTILE)
    assert page.locator("main h3 img").count() == 0
    cards.nth(1).locator("summary").click()
    cards.nth(1).locator("select").select_option(label=HOSTILE)
    cards.nth(1).get_by_role("button", name="Join").click()
    notice(page, "Joined")
    expect(cards).to_have_count(2)
    cards.first.locator("summary").click()
    cards.first.get_by_role("button", name="Split").click()
    notice(page, "2 → 3 clusters")
    expect(cards).to_have_count(3)
    assert len(ItemIndex.load(path).clusters.edits) == 3

    page.goto(urljoin(page.url, "/clusters?cluster=0"))
    expect(page.locator(".tick input").first).to_be_visible()
    moved = page.locator(".tick input").first.get_attribute("aria-label").removeprefix("Choose ")
    page.locator(".tick input").first.check()
    page.get_by_role("button", name="Move").click()
    notice(page, "Moved 1 item to a new cluster")
    check_page(page)
    saved = ItemIndex.load(path)
    assert saved.clusters.labels[saved.ids.index(moved)] == 3
    page.goto(urljoin(page.url, "/"))
    with page.expect_download() as started:
        page.get_by_role("button", name="Save the labels as CSV").click()
    rows = list(csv.reader(started.value.path().read_text().splitlines()))
    assert rows[0] == ["filename", "label"]
    assert dict(rows[1:]) == {
        id: saved.clusters.name(k) for id, k in zip(saved.ids, saved.clusters.labels, strict=True)
    }
    for left in (3, 2, 1, 0):
        page.get_by_role("button", name="Undo").first.click()
        notice(page, "Undone")
        page.locator("#notice button").last.click()
        assert len(ItemIndex.load(path).clusters.edits) == left
    np.testing.assert_array_equal(ItemIndex.load(path).clusters.labels, before.labels)


def test_the_map_and_a_phone(visit):
    page = visit("/map?by=cluster", 390, color_scheme="dark", bypass_csp=True)
    expect(page.locator(".legend tbody tr")).to_have_count(3)
    check_page(page)
    page.goto(urljoin(page.url, "/"))
    expect(page.locator(".card")).to_have_count(3)
    check_page(page)
    page.goto(urljoin(page.url, "/items?cluster=1&sort=certainty"))
    expect(page.locator(".item").first).to_be_visible()
    check_page(page)
