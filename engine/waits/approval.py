"""Whether a decision on an episode, output or step is valid, and when reminders are due. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from streams.model.commands import Decide
from streams.model.waits import Approval

APPROVAL_EXPIRED: Final = "approval_expired"
"""Error class of a request that expired with `fail`."""


def problem_of_decision(approval: Approval, command: Decide, *, at: datetime) -> str | None:
    """Return why `command` cannot decide the pending `approval`, for people; None: it can."""
    # `at` is its time by the server's clock: after `expires_at` it is late, though not expired yet.
    if command.plan_hash != approval.plan_hash:
        return f"it is about another plan; the one that waits has hash {approval.plan_hash}"
    if approval.approvers and command.by not in approval.approvers:
        return f"{command.by!r} is none of those who may decide: {', '.join(approval.approvers)}"
    if approval.expires_at is not None and at > approval.expires_at:
        return f"it expired at {approval.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    return None


def reminder_no(since: datetime, *, every_s: float, at: datetime) -> int:
    """Return the number, from 1, of the newest reminder that is due; 0: none."""
    if every_s <= 0 or at < since:
        return 0
    return int((at - since).total_seconds() / every_s)


def next_reminder_at(since: datetime, *, every_s: float, at: datetime) -> datetime | None:
    """Return when the first reminder after `at` is due; None: there are none."""
    if every_s <= 0:
        return None
    number = reminder_no(since, every_s=every_s, at=at) + 1
    return since + timedelta(seconds=number * every_s)
