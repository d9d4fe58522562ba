"""Lines and files of Python in each package of src, and in each folder of tests: ``make lines``."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def counted(top: str) -> tuple[Counter[str], Counter[str]]:
    """Count lines and files by folder below `top`, of what git knows and is there."""
    named = subprocess.run(["git", "ls-files", f"{top}/*.py"], cwd=ROOT, check=True, capture_output=True, text=True)
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path in map(Path, named.stdout.splitlines()):
        if (ROOT / path).exists():
            inside = path.relative_to(top).parts
            deep = 2 if inside[0] == "app" else 1
            folder = "/".join(inside[:-1][:deep]) or "."
            lines[folder] += len((ROOT / path).read_bytes().splitlines())
            files[folder] += 1
    return lines, files


def main() -> None:
    for top in ("src/bagwise", "tests"):
        lines, files = counted(top)
        print(f"{top:<16}{'lines':>8}{'files':>7}")
        for folder in sorted(lines, key=lambda one: -lines[one]):
            print(f"  {folder:<14}{lines[folder]:>8,}{files[folder]:>7}")
        print(f"  {'all':<14}{lines.total():>8,}{files.total():>7}\n")


if __name__ == "__main__":
    main()
