"""Requests for approval as the journal has them: those of an episode, and those of an output.

Both are asked and decided in the same words, so that one fold reads either. The newest request is
the one that people are asked; each has a number, so that whoever decided on one finds it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import msgspec

from streams.json import unraw
from streams.model.events import (
    EpisodeBlocked,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeResolved,
    LogEvent,
    OutputApproved,
    OutputCanceled,
    OutputFailed,
    OutputProposed,
    OutputRejected,
    OutputRetried,
    Resolution,
)
from streams.model.waits import Approval
from streams.ports.log import Recorded
from vigil.tables import Row, as_json

APPROVED: Final = Resolution.APPROVED.value
EXPIRED: Final = Resolution.EXPIRED.value
REJECTED: Final = "rejected"
CANCELED: Final = "canceled"
"""How the requests of outputs end, and any request that nobody need decide any more."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """How a request was decided, or ended without."""

    outcome: str
    """`approved`, `denied`, `rejected`, `expired` or `canceled`."""
    at: datetime
    by: str = ""
    """Who decided; empty: nobody."""
    reason: str = ""
    id: str = ""
    """Of the request that it follows; empty: of none."""

    @property
    def in_words(self) -> str:
        """Return what was decided, by whom, when and why."""
        by = f" by {self.by}" if self.by else ""
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.outcome}{by} at {self.at:%Y-%m-%d %H:%M:%S} UTC{why}"


@dataclass(frozen=True, kw_only=True)
class Request:
    """Something that people are asked, or were."""

    number: int
    """The step of an episode, or the proposal of an output."""
    approval: Approval
    plan: msgspec.Raw
    """What is to be done; of an output, what is to be delivered."""
    asked_at: datetime
    decision: Decision | None = None
    """None: it waits."""

    def as_row(self) -> Row:
        """Return it as people read it before they decide, the plan last."""
        asked = self.approval
        return {
            "summary": asked.summary or None,
            "approvers": ", ".join(asked.approvers) or "anybody",
            "asked_at": self.asked_at,
            "expires_at": asked.expires_at,
            "on_expiry": asked.on_expiry.value if asked.expires_at else None,
            "plan_hash": asked.plan_hash,
            "plan": as_json(unraw(self.plan)),
        }


def requests(records: Iterable[Recorded]) -> list[Request]:
    """Return every request of one episode, or of one output, oldest first.

    Args:
        records: of the episode or the output, oldest first.
    """
    found: list[Request] = []
    for record in records:
        for event in record.commit.events:
            asked = _asked(event, record.commit.at) or _asked_again(event, found, record.commit.at)
            decision = _decided(event, record.commit.at)
            if asked is not None:
                found.append(asked)
            elif decision is not None and found and found[-1].decision is None:
                found[-1] = replace(found[-1], decision=decision)
    return found


def owner_of(records: Iterable[Recorded]) -> tuple[str, str]:
    """Return the actor and the episode whose request it is, of an output by its newest proposal.

    Both are empty if it is nobody's.
    """
    owners = [
        (event.actor_id, event.episode_id)
        for record in records
        for event in record.commit.events
        if isinstance(event, EpisodeOpened | OutputProposed)
    ]
    return owners[-1] if owners else ("", "")


def _asked(event: LogEvent, at: datetime) -> Request | None:
    match event:
        case EpisodeBlocked(step_no=number, approval=Approval() as approval):
            return Request(number=number, approval=approval, plan=approval.plan, asked_at=at)
        case OutputProposed(proposal_no=number, payload=payload, approval=Approval() as approval):
            return Request(number=number, approval=approval, plan=payload, asked_at=at)
        case _:
            return None


def _asked_again(event: LogEvent, asked: Sequence[Request], at: datetime) -> Request | None:
    """Return the request that was made once more because nobody had decided it in time."""
    if not asked or not isinstance(event, OutputRetried) or event.approval is None:
        return None
    return replace(asked[-1], approval=event.approval, asked_at=at, decision=None)


def _decided(event: LogEvent, at: datetime) -> Decision | None:
    match event:
        case EpisodeResolved(resolution=resolution, by=by, reason=reason, decision_id=id_):
            return Decision(outcome=resolution.value, at=at, by=by, reason=reason, id=id_)
        case OutputApproved(by=by, reason=reason, decision_id=id_):
            outcome = APPROVED if by else EXPIRED
            return Decision(outcome=outcome, at=at, by=by, reason=reason, id=id_)
        case OutputRejected(by=by, reason=reason, decision_id=id_, is_expiry=is_expiry):
            outcome = EXPIRED if is_expiry else REJECTED
            return Decision(outcome=outcome, at=at, by=by, reason=reason, id=id_)
        case OutputFailed(attempt=0, error_detail=reason):  # Nobody has approved it in time.
            return Decision(outcome=EXPIRED, at=at, reason=reason)
        case OutputCanceled(reason=reason):
            return Decision(outcome=CANCELED, at=at, reason=reason)
        case EpisodeFinished(error_detail=detail):
            return Decision(outcome=CANCELED, at=at, reason=detail)
        case _:
            return None
