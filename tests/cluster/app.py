"""The app of the chaos, on nodes that let go what is old within seconds, where others take days.

A node looks every second whether a run of retention is due, and has one every few; each archives
the journal, purges it in small slices, and notes up to where rows have left.
"""

from __future__ import annotations

from typing import Final

from engine.archive import purge
from engine.retention import rules, worker
from projections.postgres import prune
from tests.chaos.app import app
from vigil.archiving import step

__all__ = ["app"]

EVERY_S: Final = 3.0
"""Between two runs, in seconds."""

for module, name, value in (
    (worker, "LOOK_S", 1.0),
    (worker, "EVERY_S", EVERY_S),
    (step, "EVERY_S", EVERY_S),
    (prune, "PRUNE_S", EVERY_S),
    (rules, "HOUR_S", 1),
    (purge, "SLICE_MIN", 200),
):
    setattr(module, name, value)
