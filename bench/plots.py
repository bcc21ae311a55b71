"""Draws results: few plots, plain, the same bytes for the same numbers.

Backgrounds are transparent and text is of a middle gray, so that a page may be light or dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.lines import best, number, of, quickest
from bench.measure import Line

GRAY: Final = "#808080"
OURS: Final = "#2a9d8f"
THEIRS: Final = "#8d99ae"
STYLE: Final = {
    "svg.hashsalt": "vigil",
    "svg.fonttype": "none",  # Text stays text: small files, and the reader's own font.
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": GRAY,
    "axes.labelcolor": GRAY,
    "axes.edgecolor": GRAY,
    "xtick.color": GRAY,
    "ytick.color": GRAY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "savefig.transparent": True,
}

WIDE: Final = (8.0, 2.6)
"""Inches, of a plot that stands beside text."""


def draw(lines: Sequence[Line], folder: Path) -> None:
    """Write every plot that `lines` have numbers for into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        if compared := of(lines, "comparison"):
            _save(_peers(compared), folder / "peers.svg")
        if replayed := of(lines, "replay"):
            _save(_replay(replayed), folder / "replay.svg")
        if kept := of(lines, "retained"):
            _save(_retained(kept), folder / "retained.svg")


def _peers(lines: Sequence[Line]) -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=WIDE)
    strict = "steps_strict"
    systems = {"Vigil": ("vigil", strict), "Restate": ("restate", ""), "DBOS": ("dbos", "")}
    busy = {name: best(lines, system, case=case) for name, (system, case) in systems.items()}
    alone = {name: quickest(lines, system, case=case) for name, (system, case) in systems.items()}
    _bars(left, {name: number(line, "per_s") for name, line in busy.items()})
    left.set_title("per second, each at its best", fontsize=10)
    _bars(right, {name: number(line, "p50_ms") for name, line in alone.items()})
    right.set_title("ms, one at a time (median)", fontsize=10)
    return figure


def _bars(axes: Axes, values: dict[str, float]) -> None:
    names = list(reversed(values))
    colors = [OURS if name == "Vigil" else THEIRS for name in names]
    bars = axes.barh(names, [values[name] for name in names], color=colors, height=0.6)
    axes.bar_label(bars, fmt="{:,.3g}", padding=4, color=GRAY)
    axes.margins(x=0.2)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)


def _replay(lines: Sequence[Line]) -> Figure:
    figure, axes = plt.subplots(figsize=WIDE)
    for case, color in (("strict", OURS), ("pipelined", THEIRS)):
        points = [(number(x, "events"), number(x, "p50_ms")) for x in lines if x["case"] == case]
        if points:
            axes.loglog(*zip(*sorted(points), strict=True), marker="o", color=color, label=case)
    axes.set_xlabel("events in the journal")
    axes.set_ylabel("ms to bring back")
    axes.legend(frameon=False)
    return figure


def _retained(lines: Sequence[Line]) -> Figure:
    figure, axes = plt.subplots(figsize=WIDE)
    counts = [round(number(line, "retained")) for line in lines if line["case"] == "memory"]
    for case, color in (("converge_only", OURS), ("steps_strict", THEIRS)):
        per_s = [number(line, "per_s") for line in lines if line["case"] == case]
        axes.plot(per_s, marker="o", color=color, label=case)
    axes.set_ylim(bottom=0)
    axes.set_xticks(range(len(counts)), [f"{count:,}" for count in counts])
    axes.set_xlabel("episodes retained")
    axes.set_ylabel("episodes per second")
    axes.legend(frameon=False)
    return figure


def _save(figure: Figure, file: Path) -> None:
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None, "Creator": None})
    plt.close(figure)
