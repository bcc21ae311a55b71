"""What an episode waits for, and when something about it is due; its public events. Pure.

    running ──EpisodeBlocked──▶ blocked ──StepRecorded, EpisodeResolved──▶ queued ──▶ running
                                   │  ▲
                                   └──┘ attended: reminded of, or nothing was due

One timer serves all that is due: it is armed again for the next time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from engine import validation
from engine.app.actions import (
    Pause,
    RequestApproval,
    Sleep,
    StartEpisode,
    WaitFor,
    fingerprint,
)
from engine.app.outputs import plan_hash
from engine.episodes.episode import Announce, BlockEpisode, Performed
from engine.episodes.events import context_of, episode_event
from engine.runtime.publish import PublicEvent
from engine.waits.approval import Pending, approval_for, expiry_of
from streams.json import JsonObject, raw
from streams.model.children import ChildEnd
from streams.model.events import (
    BlockReason,
    EpisodeApprovalGiven,
    EpisodeBlocked,
    EpisodeOpened,
    EpisodeResolved,
    Resolution,
    StepKind,
    StepRecorded,
)
from streams.model.waits import Approval, OnExpiry, Wait
from streams.ports.log import Recorded

PHASE: Final = "blocked"
"""Phase of the state that is stored when an episode begins to wait."""

HELD_S: Final = 5.0
"""Longest sleep for which the episode stays on its node, in seconds: to leave it and to be called
again costs two commits, a timer and a command."""

SLEEP: Final = "sleep"
"""The tool of the announcement of a sleep."""


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """The start of a wait."""

    event: EpisodeBlocked
    at: datetime
    """Since when, by the clock of its node."""

    @property
    def step_no(self) -> int:
        """The step that the answer becomes."""
        return self.event.step_no

    @property
    def terms(self) -> Approval | Wait:
        """The time limit, and what happens then."""
        terms = self.event.approval or self.event.wait
        assert terms is not None, "a block by nothing"
        return terms

    @property
    def pending(self) -> Pending[Approval | Wait]:
        """What is due about it, and when."""
        return Pending(self.terms, self.at)

    @property
    def ref(self) -> str:
        """The signal; empty: people decide, or it sleeps."""
        return self.event.wait.ref if self.event.wait else ""

    @property
    def reference(self) -> str:
        """The reference that it waits for: of a signal, or of a request that may be shared."""
        return self.event.approval.request if self.event.approval else self.ref

    @property
    def refs(self) -> tuple[str, ...]:
        """Its reference, if any, and those of the signals for which it will wait afterwards."""
        return tuple(filter(None, (self.reference, *self.event.ahead)))

    @property
    def is_sleep(self) -> bool:
        """Whether it waits for nobody and nothing but time, or its children."""
        return self.event.wait is not None and not self.ref and not self.is_parked

    @property
    def is_parked(self) -> bool:
        """Whether it waits for other code."""
        return self.event.parked is not None

    @property
    def id(self) -> str:
        """Which of the episode's waits it is."""
        return id_of(self.step_no, self.event.parked.number if self.event.parked else 0)


def id_of(step_no: int, park_no: int) -> str:
    """Return which of an episode's waits is meant: before the wait for a step, it may be parked."""
    return f"{step_no}.{park_no}" if park_no else f"{step_no}"


def block_for(action: Pause | StartEpisode, *, at: datetime, requester: str = "") -> BlockEpisode:
    """Return the command that blocks an episode; `Unencodable` if the plan is too large.

    `requester` is who has asked for the episode.
    """
    mark = fingerprint(action)
    match action:
        case RequestApproval():
            plan = validation.encode(action.plan, what="plan")
            approval = approval_for(
                action, plan_hash=plan_hash(plan), plan=plan, at=at, requester=requester
            )
            return BlockEpisode(reason=BlockReason.APPROVAL, fingerprint=mark, approval=approval)
        case WaitFor():
            wait = Wait(
                ref=action.ref,
                expires_at=expiry_of(action.expires_s, at=at),
                on_expiry=action.on_expiry,
                remind_every_s=action.remind_every_s,
            )
            return BlockEpisode(reason=BlockReason.WAIT, fingerprint=mark, wait=wait)
        case Sleep(seconds=seconds):
            ends = _rest(expiry_of(seconds, at=at), seconds=seconds)
            return BlockEpisode(reason=BlockReason.WAIT, fingerprint=mark, wait=ends)
        case StartEpisode():
            return BlockEpisode(reason=BlockReason.WAIT, fingerprint=mark, wait=_rest(None))


def sleep_until(until: datetime, mark: str, path: str) -> Announce:
    """Return the command that announces when the sleep at `path` ends."""
    return Announce(fingerprint=mark, tool_name=SLEEP, idempotency_key="", path=path, until=until)


def slept(until: datetime | None, seconds: float, mark: str, path: str) -> Performed:
    """Return the step of a sleep that is over, for which the episode stayed on its node."""
    return Performed(
        kind=StepKind.WAIT,
        fingerprint=mark,
        args=raw({"until": until, "seconds": seconds}),
        result=raw(until),
        path=path,
    )


def block_in(newest: Recorded | None) -> Blocked | None:
    """Return what an episode waits for, by its newest commit; None: nothing any more."""
    events = newest.commit.events if newest else ()
    match events:
        case [*_, EpisodeBlocked() as blocked] if newest is not None:
            return Blocked(event=blocked, at=newest.commit.at)
        case [EpisodeApprovalGiven(blocked=blocked, since=since)]:
            return Blocked(event=blocked, at=since)  # guard: block-goes-on-after-approval
        # guard: block-goes-on-after-child
        case [StepRecorded(child=ChildEnd()), *_] if newest is not None:
            return _goes_on(events[-1], at=newest.commit.at)
        case _:
            return None


def asked_in(records: Sequence[Recorded]) -> Approval | None:
    """Return what the episode of `records` asks people; None: nothing, or not any more."""
    block = block_in(records[-1]) if records else None
    return None if block is None else block.event.approval


def _goes_on(last: object, *, at: datetime) -> Blocked | None:
    """Return the block of an episode after the end of one of its children; None: that ended it."""
    if not isinstance(last, StepRecorded) or last.child is None:
        return None
    rests = EpisodeBlocked(
        step_no=last.child.block_no,
        reason=BlockReason.WAIT,
        fingerprint="",
        wait=_rest(last.child.until),
        for_children=True,
    )
    return Blocked(event=rests, at=at)


def _rest(until: datetime | None, *, seconds: float = 0.0) -> Wait:
    """Return the wait for nobody: until a time, if any, or until children end."""
    return Wait(ref="", expires_at=until, on_expiry=OnExpiry.CONTINUE, seconds=seconds)


def is_answered(newest: Recorded | None) -> bool:
    """Return whether an episode has its answer and no node has continued it since."""
    return bool(step_answered(newest))


def step_answered(newest: Recorded | None) -> int:
    """Return the step with the answer that an episode can continue with; 0: there is none."""
    events = newest.commit.events if newest else ()
    return events[-1].step_no if events and isinstance(events[-1], EpisodeResolved) else 0


def is_denial(blocked: EpisodeBlocked, resolved: EpisodeResolved) -> bool:
    """Return whether the answer, or the expiry, counts as a denial."""
    if resolved.resolution is not Resolution.EXPIRED:
        return resolved.resolution is Resolution.DENIED
    return blocked.approval is not None and blocked.approval.on_expiry is OnExpiry.DENY


def blocked(opened: EpisodeOpened, block: Blocked, *, seq: int) -> PublicEvent:
    """Return `episode.blocked`."""
    payload = {**context_of(opened), **_block(block), "journal_seq": seq}
    return episode_event(opened, "episode.blocked", f"blocked.{block.id}", payload)


def reminder(opened: EpisodeOpened, block: Blocked, *, number: int, seq: int) -> PublicEvent:
    """Return `episode.reminder`. Each reminder has its own id."""
    payload = {**context_of(opened), **_block(block), "number": number, "journal_seq": seq}
    id_ = f"reminder.{block.step_no}.{number}"
    return episode_event(opened, "episode.reminder", id_, payload)


def resumed(opened: EpisodeOpened, answer: EpisodeResolved, *, seq: int) -> PublicEvent:
    """Return `episode.resumed`: it has its answer."""
    payload = {
        **context_of(opened),
        "step_no": answer.step_no,
        "resolution": answer.resolution.value,
        "by": answer.by,
        "reason": answer.reason,
        "acting_episode_id": answer.acting_episode_id,
        "journal_seq": seq,
    }
    id_ = f"resumed.{id_of(answer.step_no, answer.park_no)}"
    return episode_event(opened, "episode.resumed", id_, payload)


def _block(block: Blocked) -> JsonObject:
    """Return the public fields of a wait, without the plan."""
    event, terms = block.event, block.terms
    return {
        "step_no": block.step_no,
        "reason": event.reason.value,
        "ref": block.ref,
        "summary": event.approval.summary if event.approval else _how(event),
        "plan_hash": event.approval.plan_hash if event.approval else "",
        "approvers": list(event.approval.approvers) if event.approval else [],
        "request": event.approval.request if event.approval else "",
        "expires_at": terms.expires_at.isoformat() if terms.expires_at else None,
        "blocked_at": block.at.isoformat(),
    }


def _how(event: EpisodeBlocked) -> str:
    return event.parked.how if event.parked is not None else ""
