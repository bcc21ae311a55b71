"""What a blocked episode waits for: a decision of people, or a signal. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from streams.json import NOTHING
from streams.model.struct import Struct


class OnExpiry(StrEnum):
    """What it means that nobody has answered in time."""

    DENY = "deny"
    """Of an approval: as if somebody had denied it."""
    APPROVE = "approve"
    """Of an approval: as if somebody had approved it."""
    CONTINUE = "continue"
    """Of a wait: it goes on with nothing, JSON `null`, as the result."""
    FAIL = "fail"
    """The strategy gets a failure; unless it knows better, the episode fails. Of an output: it has
    failed, as if it could not be delivered."""


class PlanForm(StrEnum):
    """What a plan that is about calls of tools has, and what may become of it."""

    ARGUMENTS = "arguments"
    """The arguments of one call, which may be others."""
    CALLS = "calls"
    """Calls by their numbers, which may have other arguments or be left out."""
    PLAN = "plan"
    """Calls by their numbers, which may be of other tools, too, or more."""


class EditableCalls(Struct, frozen=True, kw_only=True):
    """Calls of tools that people are asked about, as far as they may change them."""

    form: PlanForm
    arguments: dict[str, tuple[str, ...] | None]
    """Tool → the names of the arguments that it takes; None: any."""


class GivenApproval(Struct, frozen=True, kw_only=True):
    """Somebody has approved what still needs others to."""

    by: str
    at: datetime
    reason: str = ""
    decision_id: str = ""


class Approval(Struct, frozen=True, kw_only=True):
    """A request to people, who are to say whether something may be done."""

    plan_hash: str
    """SHA-256 of the plan as JSON with its keys sorted, in hex. A decision names it."""
    plan: msgspec.Raw = NOTHING
    """What is to be done, for people to read; of an output it is the payload, which is beside."""
    summary: str = ""
    """In one sentence."""
    approvers: tuple[str, ...] = ()
    """Names of those who may decide, and `group:` with the name of a group; none: anybody."""
    quorum: int = 1
    """How many different people have to approve it. One denial denies it."""
    barred: str = ""
    """Who may not decide, since that one has asked for all of it; empty: nobody is barred."""
    given: tuple[GivenApproval, ...] = ()
    """The approvals so far, of the plan as it is now."""
    asked_hash: str = ""
    """The hash of the plan as it was asked, if who approved first has changed it: then `plan_hash`
    and `plan` are those of what the others are to approve. Empty: nobody has."""
    asked_plan: msgspec.Raw = NOTHING
    """The plan as it was asked, if `asked_hash` says that there is another one now."""
    expires_at: datetime | None = None
    """Until when it can be decided; None: it waits for as long as it takes."""
    on_expiry: OnExpiry = OnExpiry.DENY
    remind_every_s: float = 0.0
    """Seconds between two public reminders; 0: none."""
    editable: bool = False
    """Whether who approves may change the plan."""
    calls: EditableCalls | None = None
    """What may become of an editable plan that is about calls of tools; None: anything."""
    request: str = ""
    """The reference of the request, if other episodes may have made the same; empty: it is of this
    one alone."""
    per_episode: bool = False
    """Whether an approval counts for every episode with the same request; otherwise one acts."""


class Wait(Struct, frozen=True, kw_only=True):
    """Something outside is under way; who knows of its end resolves it by a reference."""

    ref: str
    """What they call it, such as `payment:42`. Several episodes may wait for the same. Empty: a
    sleep, which its time ends, or the end of children; without a time, children alone."""
    expires_at: datetime | None = None
    """Until when it waits; None: for as long as it takes."""
    on_expiry: OnExpiry = OnExpiry.FAIL
    remind_every_s: float = 0.0
    """Seconds between two public reminders; 0: none."""
    seconds: float = 0.0
    """Of a sleep: how long it was asked for."""


def progress(quorum: int, approved_by: Sequence[str]) -> str:
    """Return how many have approved what takes several, and who: `1 of 2 approved: ann`.

    Empty: one is enough.
    """
    if quorum <= 1:
        return ""
    said = f"{len(approved_by)} of {quorum} approved"
    return f"{said}: {', '.join(approved_by)}" if approved_by else said
