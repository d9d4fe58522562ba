"""The explorer on a large index: start to first page, time of requests, memory.

    python benchmarks/explorer.py [--quick] [--items N] [--words D]

Makes an index of texts from random words (Zipf's law, 20 classes), with a model whose hierarchy and classifiers are
random too: what is shown means nothing, but costs as much as if it did. Starts ``bagwise explore`` on it in a fresh
process and asks for everything that pages ask for, at many numbers of groups and places in the list of items.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np
import scipy.sparse as sp

from harness import machine, print_table, print_targets

N_CLASSES, WORDS_PER_ITEM = 20, 100
GOAL_START, GOAL_REQUEST, GOAL_MEMORY = 2.0, 100.0, 300.0  # seconds, milliseconds, MB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--words", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--quick", action="store_true", help="2,000 items of 1,000 words")
    given = parser.parse_args()
    if given.quick:
        given.items, given.words, given.repeats = 2000, 1000, 5
    print(json.dumps(machine()))
    with tempfile.TemporaryDirectory() as folder:
        path = make_index(Path(folder), given.items, given.words)
        print(f"\n{given.items:,} items, {given.words:,} words, index of {path.stat().st_size / 1e6:.0f} MB")
        measure(path, given.items, given.words, given.repeats)


def make_index(folder: Path, n_items: int, n_words: int) -> Path:
    """Write an index of random texts, with the texts as files."""
    from bagwise import Hierarchy, Model
    from bagwise.app import FitOptions, ItemIndex
    from bagwise.app.model import Head, PathErrors
    from bagwise.app.training.item_answers import TopClasses
    from bagwise.merging.sizes import path_sizes
    from bagwise.sources import open_collection

    random = np.random.default_rng(0)
    chances = 1 / np.arange(10, n_words + 10)
    words = random.choice(n_words, (n_items, WORDS_PER_ITEM), p=chances / chances.sum())
    names = [f"word{k}" for k in range(n_words)]
    codes = np.sort(random.integers(N_CLASSES, size=n_items))
    texts = folder / "texts"
    for k in range(N_CLASSES):
        (texts / f"class{k:02}").mkdir(parents=True)
    for number, row in enumerate(words):
        text = " ".join([names[k] for k in row])
        (texts / f"class{codes[number]:02}" / f"text{number:06}.txt").write_text(text)
    ones = np.ones(words.size, np.float32)
    starts = np.arange(0, words.size + 1, WORDS_PER_ITEM)
    histograms = sp.csr_array((ones, words.ravel(), starts), shape=(n_items, n_words))
    histograms.sum_duplicates()
    totals = np.asarray(histograms.sum(axis=0)).ravel().astype(np.float64)
    order = random.permutation(n_words - 1) + 1
    merges = [(int(random.integers(t)), int(t)) for t in np.sort(order)[::-1]]
    sizes = path_sizes(n_words)
    heads = {
        n: Head(random.normal(size=(N_CLASSES, n)).astype(np.float32), np.zeros(N_CLASSES, np.float32)) for n in sizes
    }
    errors = np.linspace(0.5, 0.2, len(sizes)).tolist()
    model = Model(
        modality="texts",
        hierarchy=Hierarchy(n_words, merges, np.arange(len(merges), 0, -1.0), "random"),
        n_groups=50,
        word_names=names,
        word_totals=totals,
        tokenizer={"token_pattern": r"(?u)\b\w\w+\b"},
        term="log",
        word_weights=np.log(n_items / np.maximum(totals, 1)).clip(0.1).astype(np.float32),
        norm="l2",
        normalize=(),
        classes=[f"class{k:02}" for k in range(N_CLASSES)],
        heads=heads,
        path=PathErrors(sizes, errors, [0.01] * len(sizes), "5-fold cross-validation"),
    )
    held_out = TopClasses.empty(len(sizes), n_items, N_CLASSES)
    for k in range(len(sizes)):
        held_out.put(k, slice(n_items), random.normal(size=(n_items, N_CLASSES)))
    collection = open_collection(texts)
    index = ItemIndex.build(model, collection, histograms, source=texts, options=FitOptions(), held_out=held_out)
    started = time.process_time()
    mapped = index.with_map()
    print(f"\nSpectral map of {n_items:,} items: {time.process_time() - started:.1f} s of CPU")
    return mapped.save(folder / "large.index")


class Browser:
    """Requests to a running explorer, with its cookie."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=120)
        self.headers = {"Origin": f"http://{parts.hostname}:{parts.port}"}
        self.connection.request("GET", f"/?{parts.query}", headers=self.headers)
        answer = self.connection.getresponse()
        answer.read()
        self.headers["Cookie"] = (answer.getheader("Set-Cookie") or "").split(";")[0]

    def ask(self, path: str, body: bytes | None = None, **query: object) -> float:
        """Return the milliseconds of a request."""
        started = time.perf_counter()
        target = f"{path}?{urlencode(query)}" if query else path
        self.connection.request("GET" if body is None else "POST", target, body, self.headers)
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{target} answered {answer.status}: {content[:300]!r}")
        return 1000 * (time.perf_counter() - started)


def measure(path: Path, n_items: int, n_words: int, repeats: int) -> None:
    """Start the explorer, ask for all kinds of answers, and print times and memory."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "bagwise", "explore", str(path), "--no-open"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = re.findall(r"http://\S+", server.stdout.readline())[0]
        browser = Browser(address)
        for first in ("/static/main.js", "/api/overview"):
            browser.ask(first)
        start = time.perf_counter() - started
        browser.ask("/api/hierarchy")  # waits for what is prepared
        browser.ask("/api/items/0")
        rows = []
        for name in KINDS:
            before = processor_seconds(server.pid)
            rows.append(timed_kind(browser, name, n_items, n_words, repeats))
            rows[-1]["cpu"] = 1000 * (processor_seconds(server.pid) - before) / repeats
        memory = memory_beside_maps(server.pid)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()
    columns = {"kind": "request", "median": "median [ms]", "p95": "95 % below [ms]", "worst": "longest [ms]"}
    columns["cpu"] = "CPU each [ms]"  # also where other programs take most of the machine
    print(f"Load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print_table(rows, columns)
    print_targets(
        [
            ("start to first page, seconds", start, "<=", GOAL_START),
            ("slowest kind of request, 95 % below, ms", max(row["p95"] for row in rows), "<=", GOAL_REQUEST),
            ("memory beside mapped files, MB", memory / 1e6, "<=", GOAL_MEMORY),
        ]
    )


KINDS = (
    "overview",
    "groups",
    "one group",
    "words",
    "hierarchy",
    "items",
    "items, filtered",
    "items with a group",
    "items by id",
    "one item",
    "items, certain",
    "similar items",
    "search",
    "map",
    "points of the map",
    "answers on the map",
    "a selection",
    "rows of a selection",
    "compare",
    "items that differ",
    "Python lines",
)


def timed_kind(browser: Browser, kind: str, n_items: int, n_words: int, repeats: int) -> dict[str, Any]:
    """Ask for one kind of answer, at another number of groups each time."""
    random = np.random.default_rng(KINDS.index(kind))
    times = []
    for _ in range(repeats):
        n = int(np.exp(random.uniform(np.log(2), np.log(n_words))))
        item, first, group = int(random.integers(n_items)), int(random.integers(n_items)), int(random.integers(n))
        some = random.permutation(n_items)[: n_items // 10].astype("<i4")
        text = " ".join(f"word{k}" for k in random.integers(n_words, size=WORDS_PER_ITEM))
        asked: dict[str, tuple[str, dict[str, object]]] = {
            "overview": ("/api/overview", {"n": n}),
            "groups": ("/api/groups", {"n": n, "most": 60}),
            "one group": (f"/api/groups/{group}", {"n": n}),
            "words": ("/api/words", {"n": n, "find": f"word{item % 100}"}),
            "hierarchy": ("/api/hierarchy", {}),
            "items": ("/api/items", {"n": n, "first": first}),
            "items, filtered": ("/api/items", {"n": n, "label": 3, "right": "wrong", "sort": "margin", "find": "7"}),
            "items with a group": ("/api/items", {"n": n, "group": group}),
            "items by id": ("/api/items", {"n": n, "sort": "id", "first": first}),
            "one item": (f"/api/items/{item}", {"n": n}),
            "similar items": (f"/api/items/{item}/similar", {"k": 12}),
            "items, certain": ("/api/items", {"n": n, "at_least": 0.2, "at_most": 0.9, "sort": "margin"}),
            "search": ("/api/search", {"n": n, "k": 24}),
            "map": ("/api/map", {}),
            "points of the map": ("/api/map/points", {}),
            "answers on the map": ("/api/map/answers", {"n": n}),
            "a selection": ("/api/map/select", {}),
            "rows of a selection": ("/api/map/rows", {"n": n}),
            "compare": ("/api/compare", {"n": n, "m": 1 + item % n_words}),
            "items that differ": ("/api/items", {"n": n, "m": 1 + item % n_words, "which": "first_wrong"}),
            "Python lines": ("/api/python/items", {"n": n, "label": 3, "right": "wrong", "find": "7"}),
        }
        bodies = {"search": text.encode(), "a selection": some.tobytes(), "rows of a selection": some.tobytes()}
        path, query = asked[kind]
        times.append(browser.ask(path, bodies.get(kind), **query))
    median, p95 = np.percentile(times, [50, 95]).tolist()
    return {"kind": kind, "median": median, "p95": p95, "worst": max(times)}


def processor_seconds(pid: int) -> float:
    """Return the CPU time that a process has used; Linux only."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_beside_maps(pid: int) -> int:
    """Return the resident memory of a process without pages of files, in bytes; Linux only."""
    found = re.search(r"^RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else -1


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
