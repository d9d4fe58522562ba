"""Print the oldest versions that pyproject.toml admits as constraints for pip: `python tests/minimum.py EXTRA…`.

The constraints are those of the dependencies and of the named extras, with the extras that these name.
"""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def minimum(extras: list[str]) -> dict[str, str]:
    """Names of packages and their oldest versions; the newest of them if one is named twice."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    if unknown := [extra for extra in extras if extra not in optional]:
        sys.exit(f"No such extra: {', '.join(unknown)}. There are {', '.join(optional)}.")
    found: dict[str, str] = {}
    lines, waiting = list(project["dependencies"]), list(extras)
    while waiting:
        for line in optional[waiting.pop()]:
            if inner := re.fullmatch(r"bagwise\[(.+)\]", line):
                waiting += inner[1].split(",")
            else:
                lines.append(line)
    for line in lines:
        match = re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?>=([\d.]+)(?:\s*;.*)?", line)
        if match is None:
            sys.exit(f"pyproject.toml: {line!r} has no lower bound of the form name>=version.")
        name, version = match.groups()
        found[name] = max(found.get(name, version), version, key=lambda text: [int(part) for part in text.split(".")])
    return found


if __name__ == "__main__":
    for name, version in sorted(minimum(sys.argv[1:]).items()):
        print(f"{name}=={version}.*")
