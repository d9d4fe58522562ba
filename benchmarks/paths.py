"""What one fit goes through: ``make paths`` traces ``bagwise fit`` of 16 images, with an index and a report.

It counts modules of which a function is called, calls from one package to another, and the files that the data of an
image go through on their way to the model. ``--write`` puts these into CONTRIBUTING.md, ``--check`` names those that
differ there. Compiled loops are not seen.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dis
import io
import re
import sys
import tempfile
import threading
from collections import Counter
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "bagwise"
GUIDE = ROOT / "CONTRIBUTING.md"
N_IMAGES, SIDE = 16, 64
# Below everything: what they do is not told of each step.
BELOW = ("_utils", "_io", "errors.py", "_compat.py", "__init__.py")
BEGIN, END = "<!-- paths: written by `make paths` -->", "<!-- end of paths -->"


def write_images(folder: Path, n: int = N_IMAGES, side: int = SIDE) -> None:
    """Write images of two classes: stripes across, and stripes along."""
    from PIL import Image

    random = np.random.default_rng(0)
    for number in range(n):
        waves = np.sin(np.arange(side) * (0.3 + 0.4 * random.random()))[:, np.newaxis] * np.ones(side)
        kind, grey = ("across", waves) if number % 2 else ("along", waves.T)
        pixels = np.clip(128 + 90 * grey + random.normal(0, 8, grey.shape), 0, 255)[:, :, np.newaxis]
        (folder / kind).mkdir(parents=True, exist_ok=True)
        colours = np.uint8(pixels * [1.0, 0.8, 0.6])
        Image.fromarray(colours).save(folder / kind / f"{number:02d}.png")


def package_of(file: str) -> str:
    """Return the package of a file below `SOURCE`: two levels below `app`.

    >>> package_of("app/training/fit.py"), package_of("bags/bags.py"), package_of("errors.py")
    ('app/training', 'bags', 'errors.py')
    """
    parts = file.split("/")
    return "/".join(parts[: 2 if parts[0] == "app" and len(parts) > 2 else 1])


@cache
def _start(code: CodeType) -> int:
    """Return where a function starts to run."""
    return next(one.offset for one in dis.get_instructions(code) if one.opname == "RESUME")


class Trace:
    """Calls of functions of the library, while it is active.

    Attributes
    ----------
    files : Counter
        Calls of functions of each file, by its path below `SOURCE`, in the order of the first calls.
    borders : Counter
        Calls from a package to another, by the names of both. Functions of other libraries that call back are skipped.
    data : dict
        Files of which a function took or returned items or what was computed from them, in the order of first calls.
    """

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.functions: set[tuple[str, str]] = set()
        self.borders: Counter[tuple[str, str]] = Counter()
        self.data: dict[str, None] = {}
        self._known: dict[str, str | None] = {}

    def _file(self, frame: FrameType) -> str | None:
        name = frame.f_code.co_filename
        if name not in self._known:
            path = Path(name)
            inside = path.is_relative_to(SOURCE) and path.suffix == ".py"
            self._known[name] = path.relative_to(SOURCE).as_posix() if inside else None
        return self._known[name]

    def _follow(self, frame: FrameType, event: str, value: Any) -> None:
        if event not in ("call", "return"):
            return
        file = self._file(frame)
        if file is None or frame.f_code.co_name == "<module>":
            return
        if file not in self.data and not file.startswith(BELOW):
            code = frame.f_code
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            values = [frame.f_locals.get(name) for name in names] if event == "call" else [value]
            if any(map(is_data, values)):
                self.data[file] = None
        if event == "return" or frame.f_lasti > _start(frame.f_code):
            return  # a generator that goes on is no new call
        self.files[file] += 1
        self.functions.add((file, frame.f_code.co_qualname))
        caller = frame.f_back
        while caller is not None and self._file(caller) is None:
            caller = caller.f_back
        if caller is not None and caller.f_code.co_name != "<module>":
            one, other = package_of(self._file(caller) or ""), package_of(file)
            if one != other:
                self.borders[one, other] += 1

    def __enter__(self) -> Trace:
        threading.setprofile(self._follow)
        sys.setprofile(self._follow)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


DATA = ("Item", "Bags", "Histograms", "Rows", "WordData", "Part", "Hierarchy", "Model", "csr_array", "csr_matrix")


def is_data(value: Any) -> bool:
    """Whether a value is an item, or was computed from items: pixels, descriptors, histograms, merges, a model."""
    if isinstance(value, np.ndarray):
        return value.size >= N_IMAGES
    return any(kind.__name__ in DATA for kind in type(value).__mro__[:-1])


def run_fit(arguments: list[str]) -> None:
    """Run the command line in this process; what it prints is left out."""
    from bagwise.app.cli import main

    before = sys.argv
    sys.argv = ["bagwise", *arguments]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            main()
    except SystemExit as ended:
        if ended.code:
            raise
    finally:
        sys.argv = before


def traced(*, with_index: bool, descriptor: str = "sift+color") -> Trace:
    """Trace a fit of a folder of images; a first one, which is not traced, imports and compiles what it needs."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        write_images(here / "images")
        extra = ["--page", str(here / "r.html")] if with_index else ["--no-index", "--no-page"]
        arguments = ["fit", str(here / "images"), "--out", str(here / "m.bagwise"), *extra]
        arguments += ["--descriptor", descriptor, "--words", "20", "--quiet", "--jobs", "1"]
        run_fit(arguments)
        with Trace() as trace:
            run_fit([*arguments, "--force"])
        if not trace.data:
            raise SystemExit(f"The bagwise that runs is not that in {SOURCE}. Run `make paths`.")
        return trace


def first_sentence(file: str) -> str:
    """Return the first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse((SOURCE / file).read_text(encoding="utf-8"))) or ""
    return re.split(r"\.(?:\s|$)", " ".join(text.split("\n\n")[0].split()))[0]


def path_of(fit: Trace) -> list[str]:
    """Return the files that one image goes through, as a list in Markdown."""
    return [f"{number}. `{file}`: {first_sentence(file)}" for number, file in enumerate(fit.data, 1)]


def different_files(fit: Trace) -> list[str]:
    """Return the files that the list in CONTRIBUTING.md lacks, or has although no image goes through them."""
    _, _, after = GUIDE.read_text(encoding="utf-8").partition(BEGIN)
    told = set(re.findall(r"^\d+\. `([^`]+)`", after.partition(END)[0], re.MULTILINE))
    return sorted(told ^ set(fit.data))


def write_path(fit: Trace) -> None:
    """Write the list into CONTRIBUTING.md."""
    before, _, after = GUIDE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = after.partition(END)
    GUIDE.write_text("\n".join([f"{before}{BEGIN}\n", *path_of(fit), f"\n{END}{after}"]), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--borders", action="store_true", help="print the calls between each two packages")
    parser.add_argument("--modules", action="store_true", help="print the calls of each module")
    parser.add_argument("--write", action="store_true", help="write the path of one image into CONTRIBUTING.md")
    parser.add_argument("--check", action="store_true", help="compare the path of one image with CONTRIBUTING.md")
    asked = parser.parse_args()
    fit = traced(with_index=False)
    if asked.check:
        differ = different_files(fit)
        if differ:
            raise SystemExit(f"CONTRIBUTING.md has another path of one image: {', '.join(differ)}. Run `make paths`.")
        return
    if asked.write:
        write_path(fit)
    whole = traced(with_index=True)
    print(f"fit, index and report of {N_IMAGES} images")
    print(f"  modules with a function called   {len(whole.files):>6,}   (at most 60)")
    print(f"  functions called                 {len(whole.functions):>6,}")
    print(f"  calls from package to package    {whole.borders.total():>6,}   (at most 1,200)")
    print(f"files that one image goes through  {len(fit.data):>6,}   (at most 30)")
    print("\n".join(path_of(fit)))
    if asked.modules:
        for file, n in sorted(whole.files.items()):
            print(f"{n:>8,} {file}")
    if asked.borders:
        for (one, other), n in whole.borders.most_common():
            print(f"{n:>8,} {one} -> {other}")


if __name__ == "__main__":
    main()
