"""The explorer in a real browser: Chromium, driven by Playwright."""

import re
from urllib.parse import urljoin

import pytest

from bagwise.app.explorer import pages
from browsing import IN_BROWSER, playwright, violations

pytestmark = IN_BROWSER
expect = playwright().expect


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_page_fits_its_window_and_is_accessible(visit, width, scheme):
    page = visit("/?n=5", width, color_scheme=scheme, bypass_csp=True)
    for path, drawn in {
        "/?n=5": ".heat",
        "/groups?n=5": ".card:nth-of-type(5)",
        "/groups?n=5&group=1": ".one .wordlist",
        "/items": ".grid .item",
        "/items?item=0": ".strip .item",
        "/between?n=2&first=0&second=1": ".mirror",
        "/labels?n=2": ".issue",
        "/search": "#query",
    }.items():
        page.goto(urljoin(page.url, path))
        page.wait_for_selector(f"main {drawn}")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert page.title().endswith("· texts · bagwise")
        assert "token" not in page.url
        assert violations(page) == []


def test_the_slider_recuts_the_model(visit, space):
    page = visit("/groups")
    for n in (2, 10):
        page.fill("#size-number", str(n))
        page.press("#size-number", "Enter")
        expect(page.locator("main h2").first).to_have_text(f"{n} groups")
        expect(page.locator(".card")).to_have_count(n)
        assert f"n={n}" in page.url
    page.focus("#size-slider")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("main h2").first).to_have_text("9 groups")
    twice = "slider => [1, 2].map(() => slider.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowLeft'})))"
    page.locator("#size-slider").evaluate(twice)  # before the first is answered
    expect(page.locator("main h2").first).to_have_text("7 groups")
    page.reload()
    expect(page.locator("main h2").first).to_have_text("7 groups")
    page.click("#size-default")
    expect(page.locator("main h2").first).to_have_text(f"{space.model.n_groups} groups")


def test_the_confusion_matrix_leads_to_two_classes_and_their_items(visit):
    page = visit("/?n=2")
    cell = page.locator(".heat td:not(.same) a").filter(has_text=re.compile(r"\d")).first
    times = int(cell.inner_text())
    cell.click()
    page.wait_for_url("**/between?**")
    rows = page.locator(".mirror tbody tr:has(input)")
    expect(rows).to_have_count(2)
    expect(page.locator(".strip .wrong").first).to_be_visible()
    marked = page.locator(".strip mark")
    expect(marked).to_have_count(0)
    rows.first.hover()
    expect(marked.first).to_be_visible()
    page.hover("h1")
    expect(marked).to_have_count(0)
    rows.first.get_by_role("checkbox").uncheck()
    page.wait_for_url("**without=**")
    expect(page.locator("main [role=status]").first).to_contain_text("Without the words of 1 group: error")
    page.click("text=All groups again")
    page.wait_for_url(lambda url: "without" not in url)
    page.locator("main .lead a").first.click()
    page.wait_for_selector(".gridbox")
    expect(page.locator(".grid .wrong")).to_have_count(times)
    page.locator(".grid .item").first.click()
    page.wait_for_selector(".strip .item")
    page.click("text=Back to the items")
    page.wait_for_selector(".gridbox")
    expect(page.locator(".grid .item")).to_have_count(times)


def test_labels_are_decided_by_keys(visit, explored):
    page = visit("/labels?n=2")
    first, second = (page.locator(".issue").nth(k) for k in (0, 1))
    first.focus()
    expect(first.locator(".near .item").first).to_be_visible()
    page.keyboard.press("c")
    expect(first.locator(".decided")).to_contain_text("changed to")
    expect(second).to_be_focused()
    page.keyboard.press("x")
    expect(second.locator(".decided")).to_have_text("left out")
    file = explored.with_name("texts.labels.csv")
    expect(page.locator(".deciding")).to_contain_text("2 decisions, 1 left out")
    assert len(file.read_text().splitlines()) == 3
    for n in (1, 0):
        page.keyboard.press("u")
        expect(page.locator(".deciding")).to_contain_text(f"{n} decision")
    expect(page.locator(".decided")).to_have_count(0)
    page.get_by_label("Order").select_option("margin")
    page.wait_for_url("**sort=margin**")
    page.click("summary:text-is('Export')")
    expect(page.locator(".lines code")).to_contain_text("label_issues(scored, 'margin')")
    file.unlink()


def test_hostile_names_are_text(visit):
    page = visit("/items?find=onerror")
    expect(page.locator(".grid .item")).to_have_count(1)
    page.locator(".grid .item").click()
    page.wait_for_selector(".text")
    expect(page.locator(".text")).to_contain_text("<script>alert(1)</script>")
    assert page.locator("main script").count() == 0
    assert page.locator("main img").count() == 0


def test_a_text_is_searched_for_by_keyboard_alone(visit):
    page = visit("/search")
    page.focus("#query")
    page.keyboard.type("apple pear plum")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".strip .item")
    expect(page.locator(".strip .id").first).to_contain_text("fruit/")
    expect(page.locator(".why")).to_contain_text("fruit")


def test_words_are_found_and_joined(visit, space):
    page = visit("/groups")
    for word in ("hammer", "drill"):
        page.fill(".finder input", word)
        page.click(f".found button:text-is('{word}')")
    expect(page.locator(".finder [role=status]")).to_contain_text("in one group at")
    first, second = (space.model.word_names.index(word) for word in ("hammer", "drill"))
    joined = space.model.hierarchy.joined_at(first, second)
    expect(page.locator(".finder [role=status]")).to_contain_text(f"at {joined} groups")


def test_a_group_of_the_hierarchy_is_chosen_by_a_click_or_by_keys(visit):
    page = visit("/groups")
    box = page.locator(".icicle").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 33)  # the second row
    page.wait_for_selector(".one")
    assert "n=2" in page.url
    page.focus(".icicle")
    for key in ("+", "ArrowRight", "-", "Home", "ArrowUp"):
        page.keyboard.press(key)
    expect(page.locator(".tip")).to_contain_text("At 1 group:")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    chosen = page.locator(".tip").inner_text().removeprefix("At 5 groups: ").split(" · ")[0]
    page.keyboard.press("Enter")
    page.wait_for_function("() => !location.search.includes('n=2&')")
    expect(page.locator(".one h2")).to_have_text(chosen)


def test_the_wheel_scrolls_the_page_until_the_hierarchy_has_the_focus(visit):
    page = visit("/groups", height=500)
    page.hover(".icicle")
    picture = "() => document.querySelector('.icicle').toDataURL()"
    before = page.evaluate(picture)
    page.mouse.wheel(0, -100)
    page.mouse.wheel(0, 50)
    page.wait_for_function("() => window.scrollY > 0")
    assert page.evaluate(picture) == before
    page.focus(".icicle")
    page.hover(".icicle")
    at = page.evaluate("window.scrollY")
    page.mouse.wheel(0, -100)
    page.wait_for_function("(before) => document.querySelector('.icicle').toDataURL() !== before", arg=before)
    assert page.evaluate("window.scrollY") == at


def test_colours_are_kept(visit):
    page = visit("/", color_scheme="light")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.select_option("#theme", "dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark != light
    page.reload()
    page.wait_for_selector("main h1")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


def test_items_are_filtered_by_a_group(visit, space):
    page = visit("/items?n=5")
    page.get_by_label("Contains group").select_option("3")
    page.wait_for_url("**group=3**")
    n = pages.items.items(space, 5, pages.items.ItemQuery(group=3))["total"]
    expect(page.locator("main [role=status]").first).to_contain_text(f"{n} items")
    expect(page.get_by_label("Contains group")).to_have_value("3")
    page.get_by_label("Contains group").select_option("")
    page.wait_for_url(lambda url: "group=" not in url)


def test_a_list_is_saved(visit):
    page = visit("/items?n=5&sort=margin")
    page.click("text=Export")
    with page.expect_download() as started:
        page.click("text=Items as CSV")
    lines = started.value.path().read_text().splitlines()
    assert lines[0] == "id,label,predicted,score,runner_up,margin"
    margins = [float(line.rsplit(",", 1)[1]) for line in lines[1:]]
    assert margins == sorted(margins)


def test_without_the_token_nothing_is_shown(browser, address):
    page = browser.new_page()
    response = page.goto(address.split("?")[0])
    assert response.status == 403
    page.close()


@pytest.mark.parametrize("path", ["/items?n=5&group=4", "/groups?n=5&group=4"])
def test_another_cut_has_other_groups(visit, path):
    page = visit(path)
    page.get_by_role("spinbutton", name="Number of groups").fill("3")
    page.keyboard.press("Enter")
    page.wait_for_url("**n=3")
    expect(page.locator("main .problem")).to_have_count(0)
    assert "group=" not in page.url


def test_a_wrong_answer_is_explained_against_the_true_class_by_the_model_that_gave_it(visit, stored):
    rows = [pages.items.item(stored, 2, number) for number in range(len(stored.items))]
    one = next(row for row in rows if row["right"] is False)
    page = visit(f"/items?n=2&item={one['number']}")
    expect(page.locator("main .lead")).to_contain_text(
        f"Class {one['label']}. Held-out answer: {one['predicted']}, which is wrong. "
        "It is that of a model that was not trained on this item"
    )
    explained = page.locator("main section", has=page.locator(".why"))
    heading = explained.locator("h2").first
    expect(heading).to_have_text(f"Why it is taken for {one['predicted']}, not {one['label']}")
    expect(explained.locator(".explains")).to_have_text(
        "This explains the held-out answer, by a model that has not seen this item, at 2 groups."
    )
    expect(explained.locator(".why p").first).to_contain_text(
        f"A model that has not seen this item says {one['predicted']}"
    )
    expect(explained.locator(".sum .total")).to_contain_text(f"{one['why']['of_score']:.3g}"[:4])
    expect(explained.locator(".sum .total th")).to_have_text("difference")
    rows = explained.locator(".sum tr[data-group]")
    rows.first.hover()
    expect(page.locator(".text .in-group").first).to_be_visible()
    rows.first.get_by_role("checkbox").uncheck()
    expect(explained.locator("[role=status]")).to_contain_text("→")
    explained.get_by_role("button", name="As it is").click()
    expect(explained.locator("[role=status]")).to_have_text("")
    page.fill("[aria-label='Words to add']", "hammer")
    page.keyboard.press("Enter")
    expect(explained.locator(".chips")).to_contain_text("hammer")
    explained.get_by_label("less that of").select_option("none")
    page.wait_for_url("**than=none**")
    expect(heading).to_have_text(f"Why it is taken for {one['predicted']}")
    expect(explained.locator(".sum .total th")).to_have_text("score")
    above = "([one, other]) => (one.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_FOLLOWING) !== 0"
    for shown in (".text", ".why"):  # the marks in the text, and the sum
        assert page.evaluate(
            f"() => ({above})([document.querySelector('.explains'), document.querySelector('{shown}')])"
        )
    page.goto(urljoin(page.url, "/search?n=5"))
    page.fill("#query", "apple pear plum")
    page.press("#query", "Control+Enter")
    expect(page.locator(".explains")).to_contain_text("This explains the final model at 5 groups")


def test_the_error_of_the_header_says_where_it_was_measured(visit, stored):
    assert stored.cut(7).answered_at == 5
    page = visit("/?n=7")
    expect(page.locator("#size-error")).to_have_text(re.compile(r"of items wrong, measured at 5 groups$"))
    page.fill("#size-number", "5")
    page.press("#size-number", "Enter")
    expect(page.locator("#size-error")).to_have_text(re.compile("of items wrong$"))


def test_items_open_at_the_top_and_back_returns_to_the_place(visit):
    page = visit("/items", height=300)
    page.mouse.wheel(0, 400)
    page.wait_for_function("() => window.scrollY > 100")
    at = page.evaluate("window.scrollY")
    page.evaluate(
        "[...document.querySelectorAll('.grid .item')].find((one) => one.getBoundingClientRect().top > 0).click()"
    )
    page.wait_for_selector(".why")
    assert page.evaluate("window.scrollY") == 0
    page.wait_for_selector(".strip .item")
    page.mouse.wheel(0, 200)
    page.wait_for_function("() => window.scrollY > 100")
    below = page.evaluate("window.scrollY")
    page.evaluate("document.querySelector('.strip .item').click()")  # another item
    page.wait_for_function("() => window.scrollY === 0")
    page.go_back()
    page.wait_for_function("(y) => window.scrollY === y", arg=below)
    page.go_back()
    page.wait_for_selector(".gridbox")
    page.wait_for_function("(y) => window.scrollY === y", arg=at)
    page.reload()
    page.wait_for_selector(".gridbox")
    page.wait_for_function("(y) => window.scrollY === y", arg=at)
    page.fill("#size-number", "3")  # stays where it is
    page.press("#size-number", "Enter")
    page.wait_for_url("**n=3**")
    expect(page.locator("#size-error")).to_contain_text("measured at")
    assert page.evaluate("window.scrollY") == at
