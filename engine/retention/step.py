"""A step of a run: what it is given, and what it says. The list of all is in `worker`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import msgspec

from engine.retention.store import RetentionState
from streams.clock import Clock
from streams.ports.all import Ports


@dataclass(frozen=True, kw_only=True)
class RetentionRun:
    """One run, as each of its steps sees it."""

    ports: Ports
    clock: Clock
    by: str
    """Who runs it: a node, or a person."""
    now: datetime
    """When it began: times are counted back from here."""
    state: RetentionState
    """As the log had it then. What is held may be more by now."""
    is_dry: bool
    """Whether it only counts."""
    check: Callable[[], None]
    """Raises `LeaseLost` once this process may not go on. To be called before each slice."""


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a step has let go; of a dry run, what it would have."""

    step: str
    gone: Mapping[str, int] = {}
    """What, such as `dead letters` → how many."""
    held: Mapping[str, int] = {}
    """By what, such as `actor a` → how many were left for that."""
    says: str = ""
    """What else people should know, in words."""
    problem: str = ""
    """Why it could not do all; empty: it did."""


class RetentionStep(Protocol):
    """One kind of things that are let go."""

    @property
    def name(self) -> str:
        """What reports call it."""

    async def run(self, run: RetentionRun) -> StepReport:
        """Let go what is over due, in bounded slices; of a dry run, only count it.

        Raises:
            LeaseLost: `run.check` says so. What is done stays done; the next run does the rest.
        """
