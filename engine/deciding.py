"""Whether a decision on a request for approval may stand: of an episode, or of an output. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from streams.blocks import Approval
from streams.commands import Decide

APPROVAL_EXPIRED: Final = "approval_expired"
"""Error class of what nobody has approved in time, and what fails then."""


def problem_of_decision(approval: Approval, command: Decide, *, at: datetime) -> str | None:
    """Return why `command` cannot decide `approval`, which waits, in words; None if it can.

    Args:
        approval: the request.
        command: the decision.
        at: when it was made, by the server's clock. After `expires_at` it is late, whether or not
            anything has come of the expiry yet.
    """
    if command.plan_hash != approval.plan_hash:
        return f"it is about another plan; the one that waits has hash {approval.plan_hash}"
    if approval.approvers and command.by not in approval.approvers:
        return f"{command.by!r} is none of those who may decide: {', '.join(approval.approvers)}"
    if approval.expires_at is not None and at > approval.expires_at:
        return f"it expired at {approval.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    return None
