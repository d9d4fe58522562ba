"""The eight questions that the explorer answers: clicks in Chromium, on texts, photographs, a table, without labels.

    python benchmarks/eight_questions.py [--only DATA] [--pictures DIR]

Each question begins on the page that opens. A click is a click; moving the pointer over something is none. What must
be there at the end is waited for, so that a question without an answer stops the script. With ``--pictures``, the last
page of each question is saved, wide in light and dark, and 390 pixels wide.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from harness import print_table

MOST_CLICKS = 3
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
DATA = ("texts", "photographs", "table", "unlabelled")


class Clicks:
    """A page, and how often something was clicked on it."""

    def __init__(self, page: Page, unlabelled: bool) -> None:
        self.page, self.unlabelled, self.n = page, unlabelled, 0

    def click(self, selector: str) -> None:
        """Click the first element that fits."""
        self.n += 1
        self.page.locator(selector).first.click()

    def see(self, selector: str) -> None:
        """Wait for an element."""
        self.page.locator(selector).first.wait_for()


def where_it_is_wrong(on: Clicks) -> None:
    on.see("figure .curve")
    on.click(".heat td:not(.same):not(.l0) a, .heat td:not(.same) a")
    on.see("main .lead a")


def what_decides(on: Clicks) -> None:
    on.click(".heat td:not(.same) a")
    on.see(".mirror tbody tr[data-group], .mirror tbody tr")


def why_this_answer(on: Clicks) -> None:
    on.click(".heat td:not(.same) a")
    on.click(".strip .item")
    on.see(".sum .total")
    on.click(".sum input[type=checkbox]")
    on.page.wait_for_function("() => document.querySelector('.why [role=status]')?.textContent.includes('→')")


def which_labels(on: Clicks) -> None:
    on.click("nav >> text=Labels")
    on.see("main .lead")


def what_a_group_means(on: Clicks) -> None:
    on.click("nav >> text=Groups")
    on.click(".card h3 a")
    on.see(".one .wordlist, .one img.patches")


def what_is_in_it(on: Clicks) -> None:
    if not on.unlabelled:
        on.click("nav >> text=Map")
        on.see("main canvas, main button")
        return
    on.see(".card")


def what_is_like_it(on: Clicks) -> None:
    on.click("nav >> text=Items")
    on.click(".grid .item")
    on.see(".strip .item")


def what_it_costs(on: Clicks) -> None:
    on.click("nav >> text=Steer")
    on.click(".compact summary")
    on.click(".compact button:text-is('Lock'), .compact button:text-is('Rename')")
    on.see("#notice:not([hidden]) p")
    on.page.wait_for_function("() => !document.querySelector('#notice').textContent.includes('Working')")


QUESTIONS: dict[str, Callable[[Clicks], None]] = {
    "1 How good is it, where is it wrong?": where_it_is_wrong,
    "2 What decides between two classes?": what_decides,
    "3 Why this answer, what would change it?": why_this_answer,
    "4 Which labels are probably wrong?": which_labels,
    "5 What does this group mean?": what_a_group_means,
    "6 What is in this collection?": what_is_in_it,
    "7 What is like this item?": what_is_like_it,
    "8 What does a change of groups cost?": what_it_costs,
}
OF_CLASSES = ("1", "2", "3", "4")  # questions about classes


def make(data: str, folder: Path) -> Path:
    """Make small data of a kind, and return an index of a model."""
    from sklearn.datasets import load_wine

    from bagwise import fit_model
    from bagwise.app import FitOptions
    from bagwise.app.index.item_index import index_of_fit
    from bagwise.datasets import make_corpus, make_photos, write_dataset

    options: dict[str, Any] = {}
    if data == "texts":
        source: Any = write_dataset(make_corpus(200), folder / "texts.csv")
    elif data == "table":
        wine = load_wine()
        rows = [",".join(["class", *wine.feature_names])]
        rows += [
            ",".join([str(wine.target_names[k]), *map(str, x)]) for x, k in zip(wine.data, wine.target, strict=True)
        ]
        source = folder / "wine.csv"
        source.write_text("\n".join(rows))
        options = {"label": "class", "n_groups": 8}
    else:
        source = write_dataset(make_photos(), folder / "photos")
        options = {"descriptor": "sift+color", "n_words": 200, "n_groups": 12}
        if data == "unlabelled":
            flat = folder / "flat"
            flat.mkdir()
            for k, file in enumerate(sorted(source.rglob("*.*"))):
                shutil.copy(file, flat / f"{k:04}{file.suffix}")
            source = flat
    model = fit_model(source, **options)
    index = index_of_fit(model.fit_, None, source, FitOptions())
    return Path((index.with_clusters() if data == "unlabelled" else index).save(folder / f"{data}.index"))


def answered(
    browser: Any, address: str, question: Callable[[Clicks], None], unlabelled: bool, file: Path | None
) -> int:
    """Answer a question, and return the clicks it took."""
    views = [(1440, "light")] if file is None else [(1440, "light"), (1440, "dark"), (390, "dark")]
    taken = []
    for width, scheme in views:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector("main h1")
        on = Clicks(page, unlabelled)
        question(on)
        taken.append(on.n)
        if file is not None:
            page.wait_for_load_state("networkidle")
            page.screenshot(path=f"{file}-{width}-{scheme}.png")
        context.close()
    return max(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=DATA, action="append")
    parser.add_argument("--pictures", type=Path)
    given = parser.parse_args()
    from bagwise.app.explorer import Server, open_workspace
    from bagwise.app.explorer.running import Explorer

    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if given.pictures:
        given.pictures.mkdir(parents=True, exist_ok=True)
    clicks: dict[str, dict[str, str]] = {name: {"question": name} for name in QUESTIONS}
    with tempfile.TemporaryDirectory() as place, sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=FLAGS)
        for data in given.only or DATA:
            unlabelled = data == "unlabelled"
            with Explorer(Server(open_workspace(make(data, Path(tempfile.mkdtemp(dir=place)))))) as explorer:
                address = explorer.address
                for name, question in QUESTIONS.items():
                    if unlabelled and name.startswith(OF_CLASSES):
                        clicks[name][data] = "–"
                        continue
                    file = given.pictures / f"{data}-{name[0]}" if given.pictures else None
                    clicks[name][data] = str(answered(browser, address, question, unlabelled, file))
                    print(f"{data}: {name} {clicks[name][data]} clicks", flush=True)
        browser.close()
    rows = list(clicks.values())
    print_table(rows, {name: name for name in rows[0]})
    numbers = [int(n) for row in rows for name, n in row.items() if name != "question" and n != "–"]
    print(f"At most {max(numbers)} clicks; the goal is {MOST_CLICKS}.")
    if max(numbers) > MOST_CLICKS:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
