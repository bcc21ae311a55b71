"""Icons, as drawings of lines on a grid of 16. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from htpy import Element, circle, path, svg

_LINES: Final[Mapping[str, str]] = {
    "bolt": "M9 1.8 3.5 9H8l-1 5.2L12.5 7H8l1-5.2Z",
    "check": "m3 8.5 3.2 3.2L13 5",
    "clock": "M8 4.5V8l2.3 1.6M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
    "cross": "m4 4 8 8M12 4l-8 8",
    "dash": "M3.5 8h9",
    "fork": "M4.5 2.5v11M4.5 8.5h4a3 3 0 0 0 3-3v-3M9.5 4.5l2-2 2 2",
    "half": "m3 8.5 2.4 2.4L9 7M10.5 10.5 13 13M13 10.5 10.5 13",
    "hand": "M4.5 8.5V4.2a1 1 0 0 1 2 0M6.5 7.5V3a1 1 0 0 1 2 0v4.5M8.5 7.5V3.6a1 1 0 0 1 2 0V8"
    "M10.5 8V5.5a1 1 0 0 1 2 0V10a4 4 0 0 1-4 4h-.6a4 4 0 0 1-3-1.4L2.5 9.8a1 1 0 0 1 1.5-1.3l.5.6",
    "info": "M8 7.4v3.4M8 5.2v.1M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
    "pause": "M5.5 3.5v9M10.5 3.5v9",
    "play": "M5 3.2v9.6L12.5 8 5 3.2Z",
    "question": "M5.6 6A2.4 2.4 0 1 1 8 8.6v1.2M8 12.2v.1",
    "turn": "M13.5 8A5.5 5.5 0 1 1 8 2.5",
    "warning": "M8 2.5 14 13H2L8 2.5ZM8 6.5v3M8 11.4v.1",
}
"""Name → what is drawn."""


def icon(name: str) -> Element:
    """Return an icon for the eyes alone: what it means stands in words beside it."""
    return svg(".icon", viewBox="0 0 16 16", aria_hidden="true")[path(d=_LINES[name])]


def mark() -> Element:
    """Return the mark of Vigil: an open eye in a shield."""
    return svg(viewBox="0 0 22 22", aria_hidden="true")[
        path(fill="currentColor", d="M11 1l9 3v7c0 5-3.8 8.4-9 10-5.2-1.6-9-5-9-10V4z"),
        circle(cx="11", cy="10.5", r="4.2", fill="#fff"),
        circle(cx="11", cy="10.5", r="1.9", fill="currentColor"),
    ]
