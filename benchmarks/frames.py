"""How fast the explorer draws: frame times of the map and of the hierarchy while they are moved and zoomed.

    python benchmarks/frames.py [--quick] [--items N] [--words D] [--index FILE]

Opens the pages of the index of random texts of ``benchmarks/explorer.py`` (100,000 items, 20,000 words) in headless
Chromium without a graphics processor, moves and zooms by real mouse events, and prints the time between frames and the
time that drawing takes of each. Needs Playwright and Chromium (``make browser``).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from explorer import make_index
from harness import machine, print_table, print_targets

GOAL = 50.0  # milliseconds
WIDTH, HEIGHT = 1280, 900
# Times between frames next to one that was drawn, and of what pages do in them.
WATCH = """() => {
    const plain = (window.plain_frame ??= window.requestAnimationFrame.bind(window));
    const told = (window.frames_told = { between: [], drawing: [], drew: 0 });
    window.requestAnimationFrame = (act) => plain((now) => {
        const began = performance.now();
        act(now);
        told.drawing.push(performance.now() - began);
        told.drew = 2;
    });
    let last = null;
    const next = (now) => {
        if (window.frames_told !== told) return;
        if (last !== null && told.drew-- > 0) told.between.push(now - last);
        last = now;
        plain(next);
    };
    plain(next);
}"""
FOUND = "() => [window.frames_told.between, window.frames_told.drawing]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--words", type=int, default=20_000)
    parser.add_argument("--index", type=Path, help="an index with a map, in place of random texts")
    parser.add_argument("--quick", action="store_true", help="2,000 items of 1,000 words")
    given = parser.parse_args()
    if given.quick:
        given.items, given.words = 2000, 1000
    print(json.dumps(machine()))
    with tempfile.TemporaryDirectory() as folder:
        path = given.index
        if path is None:
            path = make_index(Path(folder), given.items, given.words)
        measure(path)


def measure(path: Path) -> None:
    """Start the explorer, move and zoom, print times."""
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    command = [sys.executable, "-m", "bagwise", "explore", str(path), "--no-open"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = re.findall(r"http://\S+", server.stdout.readline())[0]
        with sync_playwright() as running:
            browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            rows = []
            for ratio in (1, 2):
                context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=ratio)
                page = context.new_page()
                page.goto(address)
                page.wait_for_selector("main h1")
                for name, where, canvas in (("map", "/map", ".map"), ("icicle", "/groups", ".icicle")):
                    page.goto(address.split("/?")[0] + where)
                    page.wait_for_selector(canvas)
                    page.wait_for_timeout(1500)
                    rows += [moved(page, name, canvas, ratio), zoomed(page, name, canvas, ratio)]
                context.close()
            browser.close()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()
    print(f"\nLoad of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    columns = {"what": "what", "ratio": "pixels", "n": "frames", "median": "median [ms]", "p95": "95 % below [ms]"}
    columns |= {"drawing": "drawing, median [ms]", "drawing95": "drawing, 95 % below [ms]"}
    print_table(rows, columns)
    for name in ("map", "icicle"):
        usual = max(row["p95"] for row in rows if row["what"].startswith(name) and row["ratio"] == 1)
        print_targets([(f"{name}, 95 % of frames below, ms", usual, "<=", GOAL)])


def moved(page: Any, name: str, canvas: str, ratio: int) -> dict[str, Any]:
    """Drag to and fro, after zooming in a little."""
    x, y = middle(page, canvas)
    for _ in range(3):
        page.keyboard.press("+")
    page.mouse.move(x, y)
    page.evaluate(WATCH)
    page.mouse.down()
    for step in range(120):
        page.mouse.move(x + 180 * np.sin(step / 9), y + 90 * np.sin(step / 7))
        page.wait_for_timeout(16)
    page.mouse.up()
    return row(page, f"{name}, moving", ratio)


def zoomed(page: Any, name: str, canvas: str, ratio: int) -> dict[str, Any]:
    """Zoom in and out by the wheel."""
    x, y = middle(page, canvas)
    page.keyboard.press("Home")
    page.mouse.move(x, y)
    page.evaluate(WATCH)
    for step in range(80):
        page.mouse.wheel(0, -60 if step % 40 < 20 else 60)
        page.wait_for_timeout(16)
    return row(page, f"{name}, zooming", ratio)


def middle(page: Any, canvas: str) -> tuple[float, float]:
    """Focus a canvas and return its middle."""
    page.locator(canvas).scroll_into_view_if_needed()
    page.focus(canvas)
    box = page.locator(canvas).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def row(page: Any, what: str, ratio: int) -> dict[str, Any]:
    """Read the times of frames and of drawing."""
    frames, drawing = page.evaluate(FOUND)
    median, p95 = np.percentile(frames, [50, 95]).tolist()
    alone, alone95 = np.percentile(drawing, [50, 95]).tolist()
    return {
        "what": what,
        "ratio": ratio,
        "n": len(frames),
        "median": median,
        "p95": p95,
        "drawing": alone,
        "drawing95": alone95,
    }


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
