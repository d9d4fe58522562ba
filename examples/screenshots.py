"""Pictures of the explorer and of reports, for README and docs.

    python examples/screenshots.py --out docs/images           # those that README and docs show
    python examples/screenshots.py --out pictures --all        # every page, wide and narrow, light and dark

Needs ``bagwise[app]``, Playwright, and Chromium (``make browser``). The data:
handwritten digits and drawn photographs of `bagwise.datasets`, and docstrings of the standard library.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from first_hour import QUERY, write_texts
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from bagwise import fit_model
from bagwise.app.explorer import Server, open_other, open_workspace
from bagwise.app.explorer.pages import PAGES
from bagwise.app.explorer.running import Explorer
from bagwise.app.index.item_index import index_of_fit
from bagwise.app.options import FitOptions
from bagwise.datasets import load_digit_images, make_photos, write_dataset

DATA = ("texts", "photos", "digits")
WIDTHS = {"wide": (1280, 900), "phone": (390, 844)}
SCHEMES = ("light", "dark")
# Pictures of README and docs: data, page, width and colours.
SHOWN = {
    "photos-groups-wide-light",
    "photos-between-wide-light",
    "photos-labels-wide-light",
    "texts-item-wide-light",
    "texts-overview-wide-light",
    "texts-map-wide-light",
    "texts-steer-wide-light",
    "photos-report-wide-light",
}
# Addresses of the pages.
ADDRESSES = {
    "overview": "/",
    "groups": "/groups",
    "group": "/groups?group=0",
    "clusters": "/clusters",
    "items": "/items?sort=margin",
    "item": "/items?item={item}",
    "between": "/between",
    "labels": "/labels",
    "map": "/map",
    "search": "/search",
    "compare": "/compare",
    "steer": "/steer",
}


def fitted(source: Path, folder: Path, **options: Any) -> Path:
    """Fit a model; write its index and report, and a second model by another criterion; return the index."""
    model = fit_model(source, **options)
    model.report(folder / f"{source.stem}.report.html")
    fit_model(source, **options | {"criterion": "aib", "n_groups": max(model.n_groups // 2, 2)}).save(
        folder / f"{source.stem}-2.bagwise"
    )
    path = folder / f"{source.stem}.index"
    index_of_fit(model.fit_, None, source, FitOptions()).with_map("tsne").save(path)
    return path


def make(data: str, folder: Path) -> Path:
    """Make some data and fit a model; return its index."""
    if data == "texts":
        write_texts(folder)
        return fitted((folder / "docs").rename(folder / "texts"), folder)
    if data == "photos":
        return fitted(write_dataset(make_photos(), folder / "photos"), folder, n_words=300, n_groups=12)
    options = {"descriptor": "patches", "n_words": 100, "pyramid": 5, "n_groups": 20}
    return fitted(write_dataset(load_digit_images(), folder / "digits.zip"), folder, **options)


def a_wrong_item(index: Path) -> int:
    """Return the number of an item that is nearly or really wrong."""
    space = open_workspace(index)
    answers, codes = space.cut().answers, space.items.codes
    wrong = np.flatnonzero(answers.predicted != codes)
    return int(wrong[0] if len(wrong) else answers.margin.argmin())


def take(page: Page, path: Path, whole: bool = False) -> None:
    """Take a picture, with a palette of 128 colours."""
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(400)  # pictures and canvases are drawn
    page.screenshot(path=path, full_page=whole)
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path} {path.stat().st_size // 1024} kB", flush=True)


def visit(
    browser: Browser, name: str, wanted: Callable[[str], bool], out: Path, open_page: Callable[[Page], None]
) -> None:
    """Take pictures of one page in all widths and colours that are wanted."""
    for width, (across, down) in WIDTHS.items():
        for scheme in SCHEMES:
            file = f"{name}-{width}-{scheme}"
            if wanted(file):
                size: Any = {"width": across, "height": down}
                context = browser.new_context(viewport=size, color_scheme=scheme)
                page = context.new_page()
                open_page(page)
                take(page, out / f"{file}.png")
                context.close()


def edit_groups(editor: Any) -> None:
    """Split the largest group, and name the first of the others."""
    editor.start()
    model = editor.current.model
    groups = model.describe_groups()
    largest = max(groups, key=lambda group: len(group.words)).number
    named = next(group for group in groups if group.number != largest and len(group.words) > 2)
    of_images = model.word_names is None
    name = f"parts of {named.class_name}" if of_images else f"{named.class_name}: {named.words[0]} and the like"
    editor.edit(
        {"edit": "rename", "n_groups": model.n_groups, "group": named.number, "name": name}, editor.space.revision
    )
    editor.edit({"edit": "split", "n_groups": model.n_groups, "group": largest}, editor.space.revision)


def explorer_pages(browser: Browser, data: str, index: Path, wanted: Callable[[str], bool], out: Path) -> None:
    """Take pictures of the pages of the explorer."""
    space = open_workspace(index)
    space.other = open_other(space, index.with_name(f"{index.stem}-2.bagwise"))
    item = a_wrong_item(index)
    with Explorer(Server(space)) as running:
        base = running.address.split("/?")[0]
        for name, address in ADDRESSES.items():
            if address.strip("/").partition("?")[0] not in PAGES:
                continue

            if name == "steer":
                edit_groups(space.editor)

            def open_page(page: Page, name: str = name, address: str = address) -> None:
                page.goto(running.address)
                page.wait_for_selector("main h1")
                page.goto(base + address.format(item=item))
                page.wait_for_selector("main h1")
                if name == "search" and data == "texts":
                    page.fill("#query", QUERY)
                    page.press("#query", "Control+Enter")
                    page.wait_for_selector(".strip .item")

            visit(browser, f"{data}-{name}", wanted, out, open_page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the pictures")
    parser.add_argument("--all", action="store_true", help="all pages, not only those of README and docs")
    parser.add_argument("--only", choices=DATA, action="append", help="only pictures of these data")
    options = parser.parse_args()
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("Chromium is needed: make browser, or set CHROMIUM to its path.")
    options.out.mkdir(parents=True, exist_ok=True)

    def wanted(name: str) -> bool:
        return options.all or name in SHOWN

    out = options.out.resolve()
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place), sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for data in options.only or DATA:
            index = make(data, Path())
            report = index.with_name(f"{data}.report.html").resolve().as_uri()

            def open_report(page: Page, report: str = report) -> None:
                page.goto(report)

            visit(browser, f"{data}-report", wanted, out, open_report)
            explorer_pages(browser, data, index, wanted, out)
        browser.close()


if __name__ == "__main__":
    main()
