"""Colours of pages and figures: one accent, on paper or in the dark; and shades of it for heat maps."""

from __future__ import annotations

from bagwise.report.confusions import N_LEVELS

__all__ = ["DARK", "LIGHT", "SERIES_DASHES", "contrast", "shades"]

LIGHT = {
    "paper": "#fbfaf7",
    "surface": "#ffffff",
    "ink": "#1c1f22",
    "muted": "#5a6066",
    "rule": "#dedbd3",
    "track": "#edeae3",
    "accent": "#0b6a73",
    "wash": "#cfe3e4",
    "series-1": "#0b6a73",
    "series-2": "#b0432b",
    "series-3": "#4a55a8",
    "series-4": "#8a6a00",
    "series-5": "#9c3a78",
    "series-6": "#4d6b2f",
}
DARK = {
    "paper": "#14171a",
    "surface": "#1b1f23",
    "ink": "#e8e6e1",
    "muted": "#a4a9ae",
    "rule": "#343a40",
    "track": "#2a2f34",
    "accent": "#62c3c9",
    "wash": "#24484c",
    "series-1": "#62c3c9",
    "series-2": "#ee8e73",
    "series-3": "#9aa5f0",
    "series-4": "#d6b24a",
    "series-5": "#df8fc0",
    "series-6": "#a3c47f",
}
# After the colours are used up, lines of a chart differ by their dashes as well.
SERIES_DASHES = ("", "6 3", "2 3")


def shades(palette: dict[str, str]) -> list[tuple[str, str]]:
    """Give the background and the text colour of each level of a heat map, from the lightest on."""
    found = []
    for level in range(1, N_LEVELS + 1):
        background = _mixed(palette["surface"], palette["accent"], 0.06 + 0.94 * level / N_LEVELS)
        # of black and white, one always has a contrast of at least 4.5
        text = max("#000000", "#ffffff", key=lambda colour: contrast(colour, background))
        found.append((background, text))
    return found


def contrast(first: str, second: str) -> float:
    """Contrast of two colours, from 1 to 21, as the Web Content Accessibility Guidelines define it."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [channel / 255 for channel in _channels(colour)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _mixed(first: str, second: str, part: float) -> str:
    channels = zip(_channels(first), _channels(second), strict=True)
    return "#" + "".join(f"{round((1 - part) * a + part * b):02x}" for a, b in channels)


def _channels(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))
