"""The first hour with bagwise: runs its commands on texts, a table and images, and writes what they print.

    python examples/first_hour.py                            # prints the transcript, a minute or two
    python examples/first_hour.py --out docs/first-hour.md
    python examples/first_hour.py --check docs/first-hour.md # whether commands still print what the page says

The data come with Python and scikit-learn: docstrings of five packages of the standard library, in files without
endings; measurements of wines, as pandas saves them; and handwritten digits as images.
"""

from __future__ import annotations

import argparse
import ast
import csv
import difflib
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits, load_wine

PACKAGES = ("asyncio", "email", "http", "unittest", "xml")
# Every fourth text is new to the model.
NEW = 4
SHORTEST = 80
WIDTH = 100
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
UNIT = r"(?:ms|s|min|h|bytes|[kMG]B)\b"  # of times and sizes
HASH = r"\b[0-9a-f]{32}\b"
NUMBER = r"[-+<>]?\d[\d,]*\.?\d*(?: %)?(?: ± \d+\.?\d*)?"
QUERY = "Parse the headers of a message and return its charset"


def docstrings(package: Path) -> Iterator[str]:
    """Yield the docstrings of a package that are long enough to tell its subject."""
    for path in sorted(package.rglob("*.py")):
        if "test" in path.parts[len(package.parts) :]:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node)
                if text and len(text) >= SHORTEST:
                    yield text


def write_texts(folder: Path) -> None:
    """Write the docstrings to ``docs/PACKAGE/NUMBER``, and every fourth to ``new-docs``."""
    library = Path(sysconfig.get_paths()["stdlib"])
    for package in PACKAGES:
        for number, text in enumerate(docstrings(library / package)):
            place = folder / ("new-docs" if number % NEW == 0 else "docs") / package / f"{number:04}"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")


def write_table(path: Path) -> None:
    """Write the wines as ``DataFrame.to_csv`` does, with the numbers of rows in a column without a name."""
    wines = load_wine()
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["", *wines.feature_names, "cultivar"])
        for number, (row, kind) in enumerate(zip(wines.data.tolist(), wines.target, strict=True)):
            writer.writerow([number, *row, wines.target_names[kind]])


def write_images(folder: Path) -> None:
    """Write 30 images of each digit, six times as large as they are; those of the nine beside the folder."""
    digits = load_digits()
    for digit in range(10):
        place = folder.with_name("nine") if digit == 9 else folder / str(digit)
        place.mkdir(parents=True)
        for number in np.flatnonzero(digits.target == digit)[:30].tolist():
            pixels = (digits.images[number] * 255 / 16).astype(np.uint8)
            Image.fromarray(pixels).resize((48, 48), Image.Resampling.BICUBIC).save(place / f"{number:04}.png")


# A heading begins with "# "; other lines are prose, or commands after "$ ".
HOUR = f"""
$ bagwise --help

# Texts, from a folder as it is
The folders are the classes; the files have no endings. A dry run says what would be done.
$ bagwise fit docs --groups 20 --dry-run
$ bagwise fit docs --groups 20
The model has been written, with a search index and a report. New texts say how good it is.
$ bagwise evaluate docs.bagwise new-docs
The texts it was learned from do not, and bagwise says so.
$ bagwise evaluate docs.bagwise docs

# Answers
$ bagwise predict docs.bagwise new-docs --out answers.csv
$ head -n 4 answers.csv
Where the probability of a class is low, no class may be better than a wrong one.
$ bagwise predict docs.bagwise new-docs/http --min-probability 0.8 --show text
$ bagwise predict docs.bagwise -t "{QUERY}"
$ bagwise explain docs.bagwise -t "{QUERY}"
$ bagwise search docs.index -t "{QUERY}" -k 5

# What the model holds
$ bagwise info docs.bagwise
$ bagwise groups docs.bagwise --sort by-class
$ bagwise groups docs.bagwise --rename 0="mail formats" --out named.bagwise
$ bagwise cut docs.bagwise --groups 12 --out small.bagwise
$ bagwise evaluate small.bagwise new-docs

In the browser: `bagwise explore docs.index` shows the errors, the groups, every text and why it got its class.

# A table from pandas
$ head -n 2 wine.csv
$ bagwise fit wine.csv

# Images
With a cache, a second fit does not describe the images and learn the words again.
$ bagwise fit digits --words 200 --cache cache --groups 20
$ bagwise fit digits --words 200 --cache cache --groups 50 --force
$ bagwise info --cache cache
$ bagwise search digits.index digits/3/0003.png -k 3
Another class, put into the folder: words are kept, and only new images are described.
$ mv nine digits/9
$ bagwise fit digits --add digits.index --groups 50 --force

# Which criterion
$ bagwise compare wine.csv

# When something is wrong
$ bagwise fit dogs
$ bagwise fit docs --gruops 5
$ bagwise evaluate docs.bagwise digits
$ bagwise fit docs --label subject --force
"""


def write_sources(folder: Path) -> None:
    """Write what the commands read."""
    write_texts(folder)
    write_table(folder / "wine.csv")
    write_images(folder / "digits")


def transcript(folder: Path, run: Callable[[str, Path], Iterable[str]]) -> Iterator[str]:
    """Run the hour in a folder; yield the lines of a page."""
    yield "# The first hour"
    yield ""
    yield "Commands and what they print, made by `python examples/first_hour.py --out docs/first-hour.md`."
    yield f"The texts are those of Python {VERSION}."
    block = after_heading = False
    for line in HOUR.strip().splitlines():
        if block and not line.startswith("$ "):
            yield "```"
            block = False
        if line.startswith("# "):
            yield from ("", f"#{line}", "")
        elif line.startswith("$ "):
            if not block:
                yield from (*([] if after_heading else [""]), "```console")
                block = True
            yield line
            yield from run(line.removeprefix("$ "), folder)
        elif line:
            yield line
        after_heading = line.startswith("# ")
    if block:
        yield "```"


def run(command: str, folder: Path) -> Iterator[str]:
    """Run a command; yield what it prints."""
    called = command.replace("bagwise", f"{sys.executable} -m bagwise", 1) if command.startswith("bagwise") else command
    environment = {**os.environ, "COLUMNS": str(WIDTH), "PYTHONWARNINGS": "default"}
    done = subprocess.run(
        called, shell=True, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    yield from (shown.rstrip() for shown in done.stdout.splitlines())
    if done.returncode:
        yield f"(exit code {done.returncode})"


def normalized(lines: Iterable[str]) -> list[str]:
    """Return lines with # for numbers, times and sizes, and rows of tables, whatever they hold, as one.

    >>> normalized(["in 3.2 s", "groups  error", "     5  17.2 %", "    10   9.9 %"])
    ['in #', 'groups error', '(rows)']
    """
    found: list[str] = []
    for line in lines:
        cells = re.split(r"\s{2,}", line.strip())
        is_row = len(cells) > 1 and any(re.fullmatch(NUMBER, cell) for cell in cells)
        said = "(rows)" if is_row else re.sub(f"{HASH}|(?:{NUMBER} ?{UNIT} ?)+|{NUMBER}", "#", " ".join(line.split()))
        if said != "(rows)" or found[-1:] != ["(rows)"]:
            found.append(said)
    return found


def differences(page: Path, lines: Iterable[str]) -> list[str]:
    """Return how a page differs from lines of a transcript, apart from numbers and rows of tables."""
    there = normalized(page.read_text(encoding="utf-8").splitlines())
    return list(difflib.unified_diff(there, normalized(lines), str(page), "printed now", lineterm=""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="Markdown file to write")
    parser.add_argument(
        "--check", type=Path, help="Markdown file to compare with, apart from numbers and rows of tables"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        write_sources(Path(place))
        lines = []
        for line in transcript(Path(place), run):
            lines.append(line)
            print(line, flush=True)
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if options.check is not None and (changed := differences(options.check, lines)):
        sys.exit("\n".join(changed))


if __name__ == "__main__":
    main()
