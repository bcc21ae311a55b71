"""What an episode waits for, and when somebody has to look after it. Pure.

    running ──EpisodeBlocked──▶ blocked ──StepRecorded, EpisodeResolved──▶ queued ──▶ running
                                   │  ▲
                                   └──┘ attended: reminded of, or nothing was due

No node has an episode that is blocked, nor one that delivers later. All that time brings about it
goes through one timer, which is armed for the next moment at which something is due. It says no
more than that: whoever attends the episode does what is due by then, and arms it for the next.

What the world is told about an episode, and what came of it: public events, as data. Pure.

Each is told at least once: a node that dies in between leaves it to the next one to tell, which
may be one too many. Its id comes from what it tells and stays the same, so whoever hears it can
tell a repeat. The stream keeps one of the same id within two minutes; no actor is woken twice.

The world is told nothing of a dry run. Whoever hears of a finding acts on it, and a word in the
payload would hold back only those who look for it: filters that were written before there were
dry runs do not, nor do programs that know the stream and not the engine.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from engine.app import context
from engine.app.actions import Pause, RequestApproval, WaitFor, fingerprint
from engine.app.outputs import plan_hash
from engine.episodes.episode import BlockEpisode
from engine.episodes.events import _event, _ids
from engine.runtime.publish import PublicEvent
from engine.waits.approval import next_reminder_at, reminder_no
from streams.json import JsonObject
from streams.model.events import (
    BlockReason,
    EpisodeBlocked,
    EpisodeOpened,
    EpisodeResolved,
    Resolution,
)
from streams.model.waits import Approval, OnExpiry, Wait
from streams.ports.log import Recorded

PHASE: Final = "blocked"
"""Phase of the state that is kept when an episode begins to wait."""


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """One time that an episode has begun to wait."""

    event: EpisodeBlocked
    at: datetime
    """Since when, by the clock of the node that it was on."""

    @property
    def step_no(self) -> int:
        """The step that the answer will be."""
        return self.event.step_no

    @property
    def terms(self) -> Approval | Wait:
        """Until when it waits, and what becomes of it then."""
        terms = self.event.approval or self.event.wait
        assert terms is not None, "a block by nothing"
        return terms

    @property
    def ref(self) -> str:
        """What it waits for; empty if people are to decide."""
        return self.event.wait.ref if self.event.wait else ""


def block_for(action: Pause, *, at: datetime) -> BlockEpisode:
    """Return what has an episode wait for what `action` asks for, from `at` on.

    Raises:
        Unencodable: the plan is nothing that JSON can say, or is too large.
    """
    mark = fingerprint(action)
    match action:
        case RequestApproval():
            approval = _approval(action, at)
            return BlockEpisode(reason=BlockReason.APPROVAL, fingerprint=mark, approval=approval)
        case WaitFor():
            wait = Wait(
                ref=action.ref,
                expires_at=_expires_at(action.expires_s, at),
                on_expiry=action.on_expiry,
                remind_every_s=action.remind_every_s,
            )
            return BlockEpisode(reason=BlockReason.WAIT, fingerprint=mark, wait=wait)


def block_in(newest: Recorded | None) -> Blocked | None:
    """Return what an episode waits for, given its newest commit; None: for nothing any more."""
    events = newest.commit.events if newest else ()
    if newest is None or not events or not isinstance(events[-1], EpisodeBlocked):
        return None
    return Blocked(event=events[-1], at=newest.commit.at)


def is_answered(newest: Recorded | None) -> bool:
    """Return whether an episode has its answer and nobody has gone on with it since."""
    return bool(step_answered(newest))


def step_answered(newest: Recorded | None) -> int:
    """Return the step that an episode has waited for and can go on with; 0: there is none."""
    events = newest.commit.events if newest else ()
    return events[-1].step_no if events and isinstance(events[-1], EpisodeResolved) else 0


def is_expired(blocked: Blocked, *, at: datetime) -> bool:
    """Return whether nobody can answer any more at `at`."""
    expires_at = blocked.terms.expires_at
    return expires_at is not None and expires_at <= at


def reminder_due(blocked: Blocked, *, at: datetime) -> int:
    """Return which reminder is the newest that is due at `at`; 0: none is yet."""
    return reminder_no(blocked.at, every_s=blocked.terms.remind_every_s, at=at)


def next_wake(blocked: Blocked, *, after: datetime) -> datetime | None:
    """Return when something is due next; None: nothing will be.

    Args:
        after: what was due by then has been done, but for the expiry.
    """
    terms = blocked.terms
    reminder_at = next_reminder_at(blocked.at, every_s=terms.remind_every_s, at=after)
    wakes = (each for each in (terms.expires_at, reminder_at) if each is not None)
    return min(wakes, default=None)


def is_denial(blocked: EpisodeBlocked, resolved: EpisodeResolved) -> bool:
    """Return whether the answer, or that there was none, means that people said no."""
    if resolved.resolution is not Resolution.EXPIRED:
        return resolved.resolution is Resolution.DENIED
    return blocked.approval is not None and blocked.approval.on_expiry is OnExpiry.DENY


def _approval(action: RequestApproval, at: datetime) -> Approval:
    plan = context.encode(action.plan, what="plan")
    return Approval(
        plan_hash=plan_hash(plan),
        plan=plan,
        summary=action.summary,
        approvers=action.approvers,
        expires_at=_expires_at(action.expires_s, at),
        on_expiry=action.on_expiry,
        remind_every_s=action.remind_every_s,
    )


def _expires_at(expires_s: float, at: datetime) -> datetime | None:
    return at + timedelta(seconds=expires_s) if expires_s else None


def blocked(opened: EpisodeOpened, block: Blocked, *, seq: int) -> PublicEvent:
    """Return `episode.blocked`: it waits for people or for word from outside."""
    payload = {**_ids(opened), **_block(block), "journal_seq": seq}
    return _event(opened, "episode.blocked", f"blocked.{block.step_no}", payload)


def reminder(opened: EpisodeOpened, block: Blocked, *, number: int, seq: int) -> PublicEvent:
    """Return `episode.reminder`: it still waits. An id for each time that people are reminded."""
    payload = {**_ids(opened), **_block(block), "number": number, "journal_seq": seq}
    id_ = f"reminder.{block.step_no}.{number}"
    return _event(opened, "episode.reminder", id_, payload)


def resumed(opened: EpisodeOpened, answer: EpisodeResolved, *, seq: int) -> PublicEvent:
    """Return `episode.resumed`: it has its answer, and goes on."""
    payload = {
        **_ids(opened),
        "step_no": answer.step_no,
        "resolution": answer.resolution.value,
        "by": answer.by,
        "reason": answer.reason,
        "journal_seq": seq,
    }
    return _event(opened, "episode.resumed", f"resumed.{answer.step_no}", payload)


def _block(block: Blocked) -> JsonObject:
    """Return what the world is told of a block. A plan is for those who may look it up."""
    event, terms = block.event, block.terms
    return {
        "step_no": block.step_no,
        "reason": event.reason.value,
        "ref": block.ref,
        "summary": event.approval.summary if event.approval else "",
        "plan_hash": event.approval.plan_hash if event.approval else "",
        "approvers": list(event.approval.approvers) if event.approval else [],
        "expires_at": terms.expires_at.isoformat() if terms.expires_at else None,
        "blocked_at": block.at.isoformat(),
    }
