"""What an expectation promises of its episodes, and whether one of them has kept it. Pure."""

from __future__ import annotations

from enum import StrEnum

from streams.model.struct import Struct


class ServiceLevel(Struct, frozen=True, kw_only=True):
    """What an expectation promises: how soon its episodes start and end, and how many keep that."""

    start_s: float = 0.0
    """Longest time from the opening of an episode to its first start, in seconds; 0: any."""
    end_s: float = 0.0
    """Longest time from its opening to its end, in seconds, with all that it waits for; 0: any."""
    success: float = 0.99
    """The objective: share of the episodes that start and end in time and do not fail, over 0 and
    up to 1."""
    window: int = 100
    """How many of the latest episodes that share is of."""


class LevelOutcome(StrEnum):
    """Whether an episode kept what its expectation promised; else the first thing it broke."""

    MET = "met"
    LATE_START = "late_start"
    FAILED = "failed"
    LATE_END = "late_end"
