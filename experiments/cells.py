"""Experiments made of cells (a task, a fold, a method), each kept in a file as soon as it is done.

A run that was broken off goes on where it stopped. A file is only continued with the settings it was begun with, so
that figures in one table belong together.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from bagwise._files import write_atomically

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
from harness import machine


class Cells:
    """Figures by key, such as "Sci|3|LDA-FEK", in memory and in a JSON file.

    Parameters
    ----------
    path : Path or None
        File to keep them in; None keeps them in memory only.
    settings : dict
        What the figures depend on.
    """

    def __init__(self, path: Path | None, settings: dict[str, Any]) -> None:
        self.path = path
        self.settings = json.loads(json.dumps(settings))  # as the file has them: lists for tuples
        self.machine = machine()
        self.machines: list[dict[str, Any]] = []  # where and when what is in the file was measured
        self.figures: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            found = json.loads(path.read_text())
            if found["settings"] != self.settings:
                sys.exit(f"{path} was begun with other settings. Give another file by --out, or remove this one.")
            self.figures, self.machines = found["cells"], found["machines"]

    def __contains__(self, key: tuple[Any, ...]) -> bool:
        return _name(key) in self.figures

    def __getitem__(self, key: tuple[Any, ...]) -> dict[str, Any]:
        return self.figures[_name(key)]

    def add(self, figures: dict[tuple[Any, ...], dict[str, Any]]) -> None:
        """Take in some cells, and write all of them."""
        self.figures.update({_name(key): value for key, value in figures.items()})
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.machine not in self.machines:
                self.machines.append(self.machine)
            content = {"machines": self.machines, "settings": self.settings, "cells": self.figures}
            write_atomically(self.path, json.dumps(content, indent=1).encode())


def _name(key: tuple[Any, ...]) -> str:
    return "|".join(str(part) for part in key)


def options_of(description: str | None) -> argparse.ArgumentParser:
    """Options that experiments of cells share."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("BAGWISE_DATA"), help="folder of data sets")
    parser.add_argument("--quick", action="store_true", help="little of the data, to see that it works")
    parser.add_argument("--out", type=Path, help="keep the figures in this JSON file, and go on from what is there")
    parser.add_argument("--n-jobs", type=int, default=2, help="processes")
    return parser


def parse(parser: argparse.ArgumentParser, needed: str) -> argparse.Namespace:
    """Read the options; `data` is checked to have what is needed."""
    options = parser.parse_args()
    if options.data is None or not (Path(options.data) / needed).is_file():
        sys.exit(
            f"Give the folder of data sets, with {needed} in it, by --data DIR or BAGWISE_DATA=DIR; got {options.data}."
        )
    options.data = Path(options.data)
    return options
