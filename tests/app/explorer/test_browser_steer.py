"""Edits in a real browser: made, undone, saved, by keyboard alone, with hostile names, refused in read-only mode."""

import re
import shutil
from urllib.parse import urljoin

import pytest

from bagwise.app import FitOptions, ItemIndex, run_fit
from bagwise.app.index.item_index import index_of_fit
from browsing import IN_BROWSER, explorer, playwright, violations, visits
from small_sources import write_text_folder

pytestmark = IN_BROWSER
expect = playwright().expect
HOSTILE = "<img src=x onerror=alert(1)> & “felines”"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """An index whose model is edited by all tests of this module."""
    folder = write_text_folder(tmp_path_factory.mktemp("steered") / "texts")
    fit = run_fit(folder, FitOptions(n_groups=6, folds=3))
    return index_of_fit(fit, None, folder, FitOptions()).save(folder.parent / "texts.index")


@pytest.fixture(scope="module")
def address(path):
    with explorer(path) as opened:
        yield opened


def notice(page, text):
    expect(page.locator("#notice")).to_contain_text(text)


def errors(page, row=0):
    """The errors before and after an edit, as they are shown."""
    shown = page.locator(".edits tbody tr").nth(row)
    shown.wait_for()
    cells = shown.locator("td").all_inner_texts()
    assert all(re.fullmatch(r"\d+\.\d % ± \d+\.\d %", text) for text in cells[-2:]), cells
    return cells[-2:]


def check_page(page):
    """The page fits its window, and axe-core finds nothing serious."""
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert violations(page) == []


def open_controls(page, name):
    page.locator(".compact tr", has=page.get_by_role("link", name=name, exact=True)).locator("summary").click()


def test_an_edit_is_shown_saved_and_undone(visit, path):
    page = visit("/steer", bypass_csp=True)
    expect(page.locator(".figure")).to_contain_text("Error at 6 groups")
    names = page.locator(".compact th a").all_inner_texts()
    open_controls(page, names[0])
    chosen = page.locator("details[open] option").filter(has_text=names[1]).first.get_attribute("value")
    page.locator("details[open] select").select_option(chosen)
    page.click("details[open] button:text-is('Join')")
    notice(page, "Saved.")
    expect(page.locator(".compact tbody tr")).to_have_count(5)
    assert "n=5" in page.url
    before, after = errors(page)
    expect(page.locator(".figure")).to_contain_text("Error at 5 groups")
    expect(page.locator(".figure")).to_contain_text(after)
    assert ItemIndex.load(path).model.n_groups == 5
    check_page(page)
    for place, selector, n in (("/groups", ".card", 5), ("/", "main h1", 1)):  # other pages show it too
        page.goto(urljoin(page.url, place))
        page.wait_for_selector(selector)
        expect(page.locator(selector)).to_have_count(n)
        assert page.locator("#size-number").input_value() == "5"
    page.keyboard.press("Control+z")
    notice(page, "Undone: Joined")
    expect(page.locator("#size-number")).to_have_value("6")
    assert ItemIndex.load(path).model.edits == ()
    page.keyboard.press("Control+Shift+z")
    notice(page, "Made again: Joined")
    assert len(ItemIndex.load(path).model.edits) == 1
    page.goto(urljoin(page.url, "/steer"))
    assert errors(page) == [before, after]
    page.reload()
    expect(page.locator(".edits tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Undo").first.click()
    notice(page, "Undone: Joined")
    expect(page.get_by_text("None yet.")).to_be_visible()
    expect(page.get_by_role("button", name="Undo").first).to_be_disabled()


def test_words_are_moved_by_keyboard_alone(visit, path):
    page = visit("/groups?n=6&group=0", 390, color_scheme="dark", bypass_csp=True)
    n_words = page.locator(".ticked input").count()
    page.locator(".ticked input").first.focus()
    page.keyboard.press("Space")
    expect(page.locator(".moving [role=status]")).to_have_text("1 word to ")
    page.locator(".moving button").focus()
    page.keyboard.press("Enter")
    notice(page, "to a new group")
    expect(page.locator(".card")).to_have_count(7)
    model = ItemIndex.load(path).model
    assert (model.n_groups, model.edits[0]["to"], len(model.edits[0]["words"])) == (7, None, 1)
    page.goto(urljoin(page.url, "/groups?group=0"))
    page.wait_for_selector(".one")
    assert page.locator(".ticked input").count() in (1, n_words - 1)
    page.locator(".controls input").focus()
    page.keyboard.press("Control+a")
    page.keyboard.type(HOSTILE)
    page.keyboard.press("Enter")
    notice(page, "Named")
    expect(page.locator(".one h2")).to_have_text(HOSTILE)
    assert page.locator("main img").count() == 0
    check_page(page)
    assert HOSTILE in ItemIndex.load(path).model.given_names.values()
    page.locator(".controls input").focus()
    page.keyboard.press("Control+z")  # of the text field
    page.locator(".one h2 a").focus()
    for _ in range(2):
        page.keyboard.press("Control+z")
        notice(page, "Undone")
        page.locator("#notice button").last.click()
    assert ItemIndex.load(path).model.edits == ()


def test_locks_and_rules_are_taken_back(visit, path):
    page = visit("/groups?n=6")
    for word in ("hammer", "apple"):
        page.fill(".finder input", word)
        page.click(f".found button:text-is('{word}')")
    page.get_by_role("button", name="Keep together").click()
    notice(page, "Put hammer and apple into one group")
    expect(page.locator(".finder input")).to_have_value("")  # the page is drawn again
    page.locator(".card summary").first.click()
    page.click(".card details[open] button:text-is('Lock')")
    notice(page, "Locked")
    page.goto(urljoin(page.url, "/steer"))
    expect(page.locator(".rules li")).to_have_count(2)
    for left in (1, 0):
        page.locator(".rules button").first.click()
        expect(page.locator(".rules li")).to_have_count(left)
    model = ItemIndex.load(path).model
    assert [edit["edit"] for edit in model.edits] == ["must_link", "lock", "unlock", "unlink"]
    expect(page.locator(".edits tbody tr")).to_have_count(4)
    for _ in range(4):
        page.get_by_role("button", name="Undo").first.click()
        notice(page, "Undone")
        page.locator("#notice button").last.click()


def test_a_page_of_an_older_state_is_told_to_reload(browser, address):
    context = browser.new_context()
    pages = [context.new_page(), context.new_page()]
    for page in pages:
        page.goto(address)
        page.wait_for_selector("main h1")
        page.goto(address.split("?")[0] + "steer")
    for page, text in zip(pages, ("Split", "Reload the page"), strict=True):
        page.locator(".compact summary").first.click()
        page.click("details[open] button:text-is('Split')")
        notice(page, text)
    pages[0].get_by_role("button", name="Undo").first.click()
    notice(pages[0], "Undone")
    context.close()


def test_read_only_has_no_controls(browser, path, tmp_path):
    shutil.copy(path, tmp_path / "read.index")
    with explorer(tmp_path / "read.index", "--read-only") as address, visits(browser, address) as visit:
        page = visit("/steer")
        expect(page.locator(".lead")).to_contain_text("--read-only")
        assert page.locator(".editing, main button:text-is('Undo')").count() == 0
        page.goto(urljoin(page.url, "/groups?group=0"))
        page.wait_for_selector(".one")
        assert page.locator(".editing, .ticked, .moving").count() == 0
