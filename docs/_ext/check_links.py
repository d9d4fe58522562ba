"""Check a built site: every link, picture and script inside it is there, and nothing is loaded from elsewhere.

python docs/_ext/check_links.py build/docs
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

# Attributes that lead to other files; those of the second kind are loaded with the page.
_FOLLOWED = {"a": ("href",)}
_LOADED = {"img": ("src",), "script": ("src",), "link": ("href",), "iframe": ("src",), "source": ("src",)}


class _Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.followed: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {value for key in ("id", "name") if (value := given.get(key))}
        for table, found in ((_FOLLOWED, self.followed), (_LOADED, self.loaded)):
            found += [value for key in table.get(tag, ()) if (value := given.get(key))]


def broken_links(site: Path) -> list[str]:
    """Return a line for each link that leads nowhere, and for each file that is not the site's own."""
    pages = {path: _Page(path) for path in site.rglob("*.html") if "_static" not in path.parts}
    wrong = []
    for path, page in pages.items():
        name = path.relative_to(site)
        wrong += [f"{name}: loads {link} from elsewhere" for link in page.loaded if _is_elsewhere(link)]
        for link in (*page.followed, *page.loaded):
            if _is_elsewhere(link) or link.startswith(("mailto:", "data:")):
                continue
            address, anchor = urldefrag(link)
            target = (path.parent / unquote(address.partition("?")[0])).resolve() if address else path
            if not target.is_file():
                wrong.append(f"{name}: {link} is not there")
            elif anchor and target in pages and unquote(anchor) not in pages[target].ids:
                wrong.append(f"{name}: {link} has no such place")
    return wrong


def _is_elsewhere(link: str) -> bool:
    return bool(urlparse(link).netloc)


if __name__ == "__main__":
    lines = broken_links(Path(sys.argv[1]).resolve())
    print("\n".join(lines) or "All links inside the site lead somewhere.")
    sys.exit(bool(lines))
