"""Outputs: the intents of strategies, and their outcomes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from streams.model.struct import Struct
from streams.model.waits import OnExpiry

SUCCESSES: Final = frozenset({"delivered", "duplicate", "dry_run"})
"""Outcomes that an episode wants."""

FAILURES: Final = frozenset({"failed"})
"""Outcomes that count against it. What people reject or cancel counts neither way."""

DUPLICATE: Final = "duplicate"

DRY_RUN: Final = "dry_run"

ALL_OUTPUTS_FAILED: Final = "all_outputs_failed"
"""Error class of an episode all of whose outputs failed."""


class OutputStatus(StrEnum):
    """An output's state."""

    AWAITING_APPROVAL = "awaiting_approval"
    PROPOSED = "proposed"
    """To be delivered: for the first time, or again after an attempt that failed for now."""
    DELIVERED = "delivered"
    FAILED = "failed"
    """For good, unless a person has it tried again: it has a dead letter."""
    REJECTED = "rejected"
    """Somebody denied it, or nobody approved it in time and that means the same."""
    CANCELED = "canceled"
    """Somebody canceled it, or its episode was canceled, before it was delivered."""


class OutputIntent(Struct, frozen=True, kw_only=True):
    """Deliver something to the outside, once."""

    adapter: str
    """Who delivers it: a name in `App.outputs`."""
    payload: msgspec.Raw
    """Any JSON value; what of it goes where is the adapter's matter."""
    dedupe_key: str = ""
    """Whatever has the same key, of any episode, is delivered once; empty: see `key`."""
    key: str = ""
    """Tells outputs of one adapter and one episode apart, where there is no `dedupe_key`. Without
    either, each output of the episode is one of its own."""
    requires_approval: bool = False
    summary: str = ""
    """For those who are to approve it, in one sentence."""
    approvers: tuple[str, ...] = ()
    """As in `Approval`."""
    quorum: int = 1
    """How many different people have to approve it."""
    requester_may_approve: bool = True
    """Whether who has asked for its episode may decide, too."""
    expires_s: float = 0.0
    """How long it can be approved, in seconds; 0: for as long as it takes."""
    on_expiry: OnExpiry = OnExpiry.DENY
    remind_every_s: float = 0.0
    """Seconds between two public reminders that it waits for approval; 0: none."""


class OutputOutcome(Struct, frozen=True, kw_only=True):
    """What became of one output of an episode, when the episode ended or could wait no longer."""

    output_key: str
    outcome: str
    """`delivered`, `failed`, `canceled`; `rejected` when people did, whoever proposed it;
    `duplicate` when another episode sees to it: it may be decided or delivered later; `dry_run`."""
    error_class: str = ""


class OutputResult(Struct, frozen=True, kw_only=True):
    """What the strategy gets as the result of a step that had something delivered."""

    output_key: str
    status: str
    """An outcome, if it is settled; else an `OutputStatus`."""
    error_class: str = ""


OUTCOMES: Final[Mapping[OutputStatus, str]] = {
    OutputStatus.DELIVERED: "delivered",
    OutputStatus.FAILED: "failed",
    OutputStatus.REJECTED: "rejected",
    OutputStatus.CANCELED: "canceled",
}
"""Status → outcome, of those in which an output is settled."""

SETTLED: Final = frozenset({*OUTCOMES.values(), DUPLICATE, DRY_RUN})
