"""Episodes that an episode starts and waits for: its children. Pure."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal

import msgspec

from streams.json import JsonObject
from streams.model.findings import FindingOutcome
from streams.model.money import NO_USD
from streams.model.struct import Struct
from streams.model.triggers import Budget


class WithParent(StrEnum):
    """What becomes of a child when its parent ends before it."""

    CANCEL = "cancel"
    LEAVE = "leave"
    """It goes on, and nobody is told of its end."""


class ChildStart(Struct, frozen=True, kw_only=True):
    """The child that an announcement is of: all that follows to open it."""

    episode_id: str
    actor_id: str
    expectation_id: str
    payload: JsonObject = msgspec.field(default_factory=dict)
    budget: Budget
    """What its parent had left. The child gets that or what its expectation declares, whichever is
    less; 0: the parent has no such limit."""
    with_parent: WithParent = WithParent.CANCEL
    group: str = ""
    """The path of the `gather` that waits for it and for others, and runs no code in between;
    empty: it is waited for alone."""


class ChildEnd(Struct, frozen=True, kw_only=True):
    """What a step has of the child whose end it is, beside its result."""

    episode_id: str
    turns: int = 0
    wall_ms: int = 0
    """What the child has used of its parent's budget, beside tokens."""
    usd: Decimal = NO_USD
    """The dollars of it: what its requests have cost, and what was reserved for those of which
    nobody knows the outcome."""
    block_no: int = 0
    """The step that its parent's block names; the block goes on unless its end follows."""
    until: datetime | None = None
    """When that block ends by itself; None: it waits for children alone."""


class EpisodeResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a child has ended; true if it is done."""

    episode_id: str
    """Empty if it was refused before it had one."""
    status: Literal["done", "partially_failed", "failed", "canceled", "refused"]
    """`partially_failed`: some of its outputs were not delivered; `refused`: it was not started."""
    value: Any = None
    """What it returned as `ConvergeResult(result=…)`, as JSON has it."""
    summary: str = ""
    classification: Any = None
    confidence: float | None = None
    findings: tuple[FindingOutcome, ...] = ()
    error_class: str = ""
    """Why it failed, or was canceled or refused."""
    error_detail: str = ""

    def __bool__(self) -> bool:
        """Return whether it is done."""
        return self.status == "done"
