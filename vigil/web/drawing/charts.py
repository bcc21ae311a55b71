"""Charts, drawn here as SVG: bars over time, and how the steps of an episode lie in it. Pure.

Lengths are percent of the width, so a chart fits every screen without a script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from htpy import Element, line, path, rect, svg, text
from htpy import title as tip

BAR_MIN: Final = 0.4
"""Least width of a bar, in percent: what took no time is seen, too."""

TICKS: Final = 5
"""Marks of time above a timeline, its beginning and its end among them."""

UNITS: Final = (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0), ("s", 1.0), ("ms", 0.001))
"""Units of the marks, and how long one is, in seconds: all marks of a timeline have the same."""

FEWEST: Final = 2
"""Of a unit, that a timeline lasts at least whose marks have it."""

TALL: Final = 100.0
"""The height of a chart in its own units."""


class Bar(NamedTuple):
    """A column of a chart: what it stands for, and how much of each hue."""

    says: str
    amounts: Mapping[str, int]
    """Hue of the style sheet → how much."""
    mark: str = ""
    """What was deployed then, in words; empty: nothing was."""


def columns(bars: Sequence[Bar], label: str) -> Element:
    """Return stacked columns of equal width, as high as the highest needs."""
    highest = max((sum(bar.amounts.values()) for bar in bars), default=0) or 1
    wide = 100 / max(len(bars), 1)
    drawn: list[Element] = []
    for number, bar in enumerate(bars):
        top = TALL
        for hue, amount in bar.amounts.items():
            tall = amount * TALL / highest
            top -= tall
            drawn.append(
                rect(
                    class_=hue,
                    x=percent(number * wide + wide * 0.1),
                    width=percent(wide * 0.8),
                    y=f"{top:.2f}%",
                    height=f"{tall:.2f}%",
                )[tip[bar.says]]
            )
        if bar.mark:
            at = percent(number * wide)
            drawn.append(line(".deploy", x1=at, x2=at, y1="0", y2="100%")[tip[bar.mark]])
    return svg(".columns", role="img", aria_label=label)[drawn]


def sparkline(values: Sequence[float], label: str) -> Element:
    """Return a line through values, with the area below it."""
    highest = max(values, default=0) or 1
    wide = 100 / max(len(values) - 1, 1)
    points = [
        f"{number * wide:.2f} {TALL - each * (TALL - 8) / highest:.2f}"
        for number, each in enumerate(values)
    ]
    drawn = "M" + "L".join(points) if points else "M0 0"
    return svg(
        ".spark", viewBox="0 0 100 100", preserveAspectRatio="none", role="img", aria_label=label
    )[path(".area", d=f"{drawn}L100 100L0 100Z"), path(d=drawn)]


def track(begin_s: float, end_s: float, *, of_s: float) -> Element:
    """Return a bar from its beginning to its end, on a track `of_s` seconds long."""
    whole = of_s or 1
    left = min(begin_s * 100 / whole, 100 - BAR_MIN)
    wide = max((end_s - begin_s) * 100 / whole, BAR_MIN)
    lines = [number * 100 / (TICKS - 1) for number in range(TICKS)]
    return svg(".track", aria_hidden="true")[
        (line(".grid", x1=percent(at), x2=percent(at), y1="0", y2="100%") for at in lines),
        rect(
            ".b",
            x=percent(left),
            width=percent(min(wide, 100 - left)),
            y="30%",
            height="40%",
            rx="3",
        ),
    ]


def share(part: float, whole: float) -> Element:
    """Return a bar that is as long as a part is of the whole."""
    wide = max(part * 100 / whole, BAR_MIN) if whole else 0
    return svg(".share", aria_hidden="true")[
        rect(".b", x="0", width=percent(min(wide, 100)), y="0", height="100%", rx="3")
    ]


def scale(of_s: float) -> Element:
    """Return the marks of time above a timeline that is `of_s` seconds long."""
    marks = [number / (TICKS - 1) for number in range(TICKS)]
    anchors = {0: "start", TICKS - 1: "end"}
    unit, of_one_s = next((each for each in UNITS if of_s >= FEWEST * each[1]), UNITS[-1])
    return svg(".track", aria_hidden="true")[
        (
            text(x=percent(at * 100), y="62%", text_anchor=anchors.get(number, "middle"))[
                f"+{at * of_s / of_one_s:.3g} {unit}"
            ]
            for number, at in enumerate(marks)
        )
    ]


def percent(number: float) -> str:
    """Return a length as SVG has it."""
    return f"{number:.2f}%"
