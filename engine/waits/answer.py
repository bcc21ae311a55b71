"""The answer to a blocked episode, or why an answer is refused. Pure.

An answer is one commit of two events: the step with the result, and the end of the wait. Of two
answers at the same time, the version refuses one, which is decided again and finds that the other
one won. Times are the server's: a decision counts from when its command was stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from engine.app.workflow import APPROVAL_EXPIRED, DENIED
from engine.episodes import episode as commands
from engine.episodes.episode import CancelEpisode, Episode, Performed, decide, evolve, fold
from engine.errors import Refused
from engine.waits import grant
from engine.waits.approval import (
    approved_by,
    changed_hash,
    denial_in_words,
    end_in_words,
    is_enough,
    one_more,
    problem_of_changes,
    problem_of_command,
    problem_of_time,
)
from engine.waits.parked import TOO_LATE
from engine.waits.signal import Decision as SignalledDecision
from engine.waits.signal import Signal
from engine.waits.wait import Blocked, is_denial
from streams.json import NOTHING, JsonObject, raw, unraw
from streams.model.commands import Decide, Resolve, Verdict
from streams.model.events import (
    GRANT_TOOL,
    EpisodeApprovalGiven,
    EpisodeBlocked,
    EpisodeEvent,
    EpisodeFinished,
    EpisodeResolved,
    Resolution,
    StepKind,
    StepRecorded,
)
from streams.model.waits import Approval, OnExpiry
from streams.ports.log import Recorded

WAIT_EXPIRED: Final = "wait_expired"
"""Error class of a wait that expired with `fail`."""

SUPERSEDED: Final = "superseded"
"""Error class of a request that was approved for an older episode with an equal one."""

PLAN: Final = "plan"
"""Where the result of an approval has the plan, if that was changed."""

IN_TIME: Final = "nobody decided in time"
"""The reason of an approval or denial by expiry."""

Decision: TypeAlias = Decide | Resolve


class WaitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The events of an answer."""

    events: tuple[EpisodeEvent, ...]
    resolved: EpisodeResolved | None
    """The last of them, which ends the wait; None: others have to approve it as well."""


class EpisodeWait(msgspec.Struct, frozen=True, kw_only=True):
    """One wait of an episode."""

    blocked: Blocked
    end: EpisodeResolved | EpisodeFinished | None = None
    """None: it still waits."""
    ended_at: datetime | None = None


def waits_of(records: Iterable[Recorded]) -> list[EpisodeWait]:
    """Return all waits of the episode of `records`, oldest first."""
    waits: list[EpisodeWait] = []
    for record in records:
        at = record.commit.at
        for event in record.commit.events:
            match event:
                case EpisodeBlocked():
                    waits.append(EpisodeWait(blocked=Blocked(event=event, at=at)))
                case EpisodeApprovalGiven(blocked=blocked, since=since) if waits:
                    waits[-1] = replace(waits[-1], blocked=Blocked(event=blocked, at=since))
                case EpisodeResolved() | EpisodeFinished() if waits and waits[-1].end is None:
                    waits[-1] = replace(waits[-1], end=event, ended_at=at)
                case _:
                    pass
    return waits


def answer(records: Sequence[Recorded], decision: Decision, *, at: datetime) -> WaitAnswer | None:
    """Return the result of `decision`, or raise `Refused`; None: it was recorded before."""
    waits = [each for each in waits_of(records) if _is_about(each.blocked, decision)]
    if not waits:
        raise Refused(_not_asked(decision))
    if any(_is_by(each, decision) for each in waits):  # guard: same-decision-twice
        return None
    wait = waits[-1]
    if wait.end is not None:  # guard: answer-at-decided-version
        raise Refused(f"it does not wait any more: {_told(wait)}")
    episode = fold(records)
    if problem := _problem(wait.blocked, decision, episode, at):
        raise Refused(problem)
    if isinstance(decision, Decide) and decision.verdict is Verdict.APPROVE:
        blocked = _approved_once_more(wait.blocked, decision, at=at)
        if not _is_enough(blocked, decision):
            return _noted(episode, blocked, decision)
        return _answer(episode, *_decided(blocked, decision))
    return _answer(episode, *_decided(wait.blocked, decision))


def _approved_once_more(blocked: Blocked, decision: Decide, *, at: datetime) -> Blocked:
    asked = blocked.event.approval
    assert asked is not None, "a decision about a request"
    after = one_more(asked, decision, at=at, plan=decision.edited_plan)
    return replace(blocked, event=replace(blocked.event, approval=after))


def _is_enough(blocked: Blocked, decision: Decide) -> bool:
    asked = blocked.event.approval
    assert asked is not None, "a decision about a request"
    # What was decided for an equal request was so by as many as it takes.
    is_shared = bool(decision.acting_episode_id and asked.request)
    return is_shared or is_enough(asked)


def _noted(episode: Episode, blocked: Blocked, decision: Decide) -> WaitAnswer:
    """Return that somebody has approved what others have to approve as well."""
    noted = decide(
        episode,
        EpisodeApprovalGiven(
            step_no=blocked.step_no,
            by=decision.by,
            reason=decision.reason,
            decision_id=decision.id,
            blocked=blocked.event,
            since=blocked.at,
        ),
    )
    return WaitAnswer(events=(noted,), resolved=None)


class SharedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that answers all equal requests that were made before it."""

    signal: Signal
    request_no: int
    """As in `Decide`."""
    at: datetime
    """When it was appended, by the clock of a node."""


def shared(records: Sequence[Recorded], step_no: int) -> SharedDecision | None:
    """Return the decision of a step, to be shared; None: it is for this episode alone."""
    waits = [each for each in waits_of(records) if each.blocked.step_no == step_no]
    if not waits:
        return None
    approval, end, at = waits[-1].blocked.event.approval, waits[-1].end, waits[-1].ended_at
    if approval is None or at is None:
        return None
    if not isinstance(end, EpisodeResolved) or not end.request_no:
        return None
    is_approval = end.resolution is Resolution.APPROVED
    plan = _edited_plan(records, step_no) if end.edited_hash else NOTHING
    decision = SignalledDecision(
        verdict=Verdict.APPROVE if is_approval else Verdict.DENY,
        plan_hash=approval.plan_hash,
        reason=end.reason,
        edited_hash=end.edited_hash,
        edited_plan=plan,
        acting_episode_id=_episode_of(records),
    )
    said = Signal(id=end.decision_id, ref=approval.request, by=end.by, result=raw(decision))
    return SharedDecision(signal=said, request_no=end.request_no, at=at)


def _episode_of(records: Sequence[Recorded]) -> str:
    opened = fold(records).opened
    assert opened is not None, "an episode that asked was opened"
    return opened.episode_id


def _edited_plan(records: Sequence[Recorded], step_no: int) -> msgspec.Raw:
    events = (event for record in records for event in record.commit.events)
    steps = (each for each in events if isinstance(each, StepRecorded) and each.step_no == step_no)
    found = [msgspec.json.decode(each.result, type=dict[str, msgspec.Raw]) for each in steps]
    return found[-1][PLAN] if found else NOTHING


def expire(records: Sequence[Recorded], *, at: datetime) -> WaitAnswer | None:
    """Return the result of the expiry at `at`; None: it does not wait, or may wait longer."""
    waits = waits_of(records)
    if not waits or waits[-1].end is not None or not waits[-1].blocked.pending.is_expired(at=at):
        return None
    blocked = waits[-1].blocked
    if blocked.event.parked is not None:
        return _given_up(fold(records), blocked.event.parked.number)
    ending = commands.AnswerEpisode(
        resolution=Resolution.EXPIRED, reason=IN_TIME, decision_id=f"expiry.{blocked.step_no}"
    )
    return _answer(fold(records), _expired(blocked), ending)


def _given_up(episode: Episode, park_no: int) -> WaitAnswer:
    """Return the end of the wait for other code, which is no step."""
    id_ = f"expiry.{park_no}"
    ending = commands.AnswerEpisode(
        resolution=Resolution.EXPIRED, reason=TOO_LATE, decision_id=id_, park_no=park_no
    )
    resolved = decide(episode, ending)
    assert isinstance(resolved, EpisodeResolved), "an answer ends a wait"
    return WaitAnswer(events=(resolved,), resolved=resolved)


def denied(episode: Episode, error_class: str, detail: str) -> CancelEpisode | None:
    """Return the end of an episode that gives up because of a decision; None: another reason."""
    # It is canceled, not failed: the decision was meant to end it.
    blocked, resolved = episode.blocked, episode.resolved
    if blocked is None or resolved is None:
        return None
    if error_class == SUPERSEDED and resolved.resolution is Resolution.SUPERSEDED:
        said = _superseded_in_words(resolved.acting_episode_id, by=resolved.by)
    elif error_class == DENIED and is_denial(blocked, resolved):  # guard: denied-is-cancelled
        said = denial_in_words(by=resolved.by, reason=resolved.reason)
    else:
        return None
    told = said if detail in ("", said) else f"{said}; {detail}"
    return CancelEpisode(error_class=error_class, error_detail=told)


def _is_about(blocked: Blocked, decision: Decision) -> bool:
    match decision:
        case Decide(step_no=step_no):
            return blocked.event.approval is not None and blocked.step_no == step_no
        case Resolve(ref=ref):
            return blocked.ref == ref


def _is_by(wait: EpisodeWait, decision: Decision) -> bool:
    if isinstance(wait.end, EpisodeResolved) and wait.end.decision_id == decision.id:
        return True
    asked = wait.blocked.event.approval
    return asked is not None and any(each.decision_id == decision.id for each in asked.given)


def _not_asked(decision: Decision) -> str:
    if isinstance(decision, Resolve):
        return f"it does not wait for {decision.ref!r}"
    return f"it does not ask for approval as its step {decision.step_no}"


def _problem(blocked: Blocked, decision: Decision, episode: Episode, at: datetime) -> str | None:
    approval = blocked.event.approval
    if isinstance(decision, Decide) and approval is not None:
        if blocked.event.asks_for_grant and decision.edited_hash:
            grant.check(decision.edited_plan, episode)  # guard: impossible-grant-refused
        problem = problem_of_command(approval, decision, at=at)
        if problem is None and decision.edited_hash:  # guard: impossible-edit-refused
            return problem_of_changes(approval, unraw(decision.edited_plan))
        return problem
    return problem_of_time(blocked.terms, at=at)  # guard: word-after-expiry-late


def _decided(blocked: Blocked, decision: Decision) -> tuple[Performed, commands.AnswerEpisode]:
    match decision:
        case Resolve():
            ending = _ending(decision, Resolution.RESOLVED)
            return _step(blocked, result=decision.result), ending
        case Decide(verdict=Verdict.APPROVE) if _is_superseded(blocked, decision):
            ending = _decision(decision, Resolution.SUPERSEDED)
            acting = decision.acting_episode_id
            return _superseded(blocked, decision), replace(ending, acting_episode_id=acting)
        case Decide(verdict=Verdict.APPROVE):
            asked = blocked.event.approval
            assert asked is not None, "a decision about a request"
            by, edited = approved_by(asked), changed_hash(asked)
            ending = replace(_decision(decision, Resolution.APPROVED), by=by)
            # guard: strategy-gets-approved-plan
            plan = {PLAN: asked.plan} if edited else _granted(blocked)
            approved = _approved(blocked, by=by, reason=decision.reason, **plan)
            return approved, replace(ending, edited_hash=edited)  # guard: edited-plan-hash-kept
        case Decide():
            ending = _decision(decision, Resolution.DENIED)
            return _denied(blocked, by=decision.by, reason=decision.reason), ending


def _granted(blocked: Blocked) -> dict[str, msgspec.Raw]:
    """Return the plan for the result of a grant: the log strategy may drop a step's arguments."""
    event = blocked.event
    if event.approval is None or not event.asks_for_grant:
        return {}
    return {PLAN: event.approval.plan}  # guard: grant-in-result


def _is_superseded(blocked: Blocked, decision: Decide) -> bool:
    """Return whether another episode acts on an approval of the request that both have made."""
    approval = blocked.event.approval
    # guard: approval-one-effect
    return bool(decision.acting_episode_id) and approval is not None and not approval.per_episode


def _decision(decision: Decide, how: Resolution) -> commands.AnswerEpisode:
    ending = _ending(decision, how)
    return replace(ending, reason=decision.reason, request_no=decision.request_no)


def _expired(blocked: Blocked) -> Performed:
    terms = blocked.terms
    match terms.on_expiry:
        case OnExpiry.APPROVE:
            return _approved(blocked, by="", reason=IN_TIME)
        case OnExpiry.DENY:
            return _denied(blocked, by="", reason=IN_TIME)
        case OnExpiry.CONTINUE:
            # A sleep is told apart from the last one by when it ends, as loop detection sees it.
            ended = NOTHING if blocked.ref else raw(terms.expires_at)
            return _step(blocked, result=ended)
        case OnExpiry.FAIL:
            is_approval = isinstance(terms, Approval)
            error_class = APPROVAL_EXPIRED if is_approval else WAIT_EXPIRED
            when = f"{terms.expires_at:%Y-%m-%d %H:%M:%S} UTC" if terms.expires_at else ""
            return _step(
                blocked, error_class=error_class, error_detail=f"nobody answered by {when}"
            )


def _approved(blocked: Blocked, *, by: str, reason: str, **edited: msgspec.Raw) -> Performed:
    said = {"resolution": Resolution.APPROVED.value, "by": by, "reason": reason, **edited}
    return _step(blocked, result=raw(said))


def _superseded(blocked: Blocked, decision: Decide) -> Performed:
    acting, by = decision.acting_episode_id, decision.by
    said = {"acting_episode_id": acting, "by": by, "reason": decision.reason}
    told = _superseded_in_words(acting, by=by)
    return _step(blocked, result=raw(said), error_class=SUPERSEDED, error_detail=told)


def _superseded_in_words(acting: str, *, by: str) -> str:
    return f"approved by {by} for episode {acting}, which acts"


def _denied(blocked: Blocked, *, by: str, reason: str) -> Performed:
    return _step(blocked, error_class=DENIED, error_detail=denial_in_words(by=by, reason=reason))


def _step(
    blocked: Blocked,
    *,
    result: msgspec.Raw = NOTHING,
    error_class: str = "",
    error_detail: str = "",
) -> Performed:
    approval = blocked.event.approval
    return Performed(
        kind=StepKind(blocked.event.reason.value),
        fingerprint=blocked.event.fingerprint,
        tool_name=GRANT_TOOL if blocked.event.asks_for_grant else "",
        args=_asked_plan(approval) if approval else raw(_waited_for(blocked)),
        result=result,
        error_class=error_class,
        error_detail=error_detail,
        path=blocked.event.path,
    )


def _asked_plan(approval: Approval) -> msgspec.Raw:
    return approval.asked_plan if approval.asked_hash else approval.plan


def _waited_for(blocked: Blocked) -> JsonObject:
    if blocked.ref or blocked.event.wait is None:
        return {"ref": blocked.ref}
    return {"until": blocked.terms.expires_at, "seconds": blocked.event.wait.seconds}


def _ending(decision: Decision, resolution: Resolution) -> commands.AnswerEpisode:
    return commands.AnswerEpisode(resolution=resolution, by=decision.by, decision_id=decision.id)


def _answer(episode: Episode, step: Performed, ending: commands.AnswerEpisode) -> WaitAnswer:
    recorded = decide(episode, step)
    resolved = decide(evolve(episode, recorded), ending)
    assert isinstance(resolved, EpisodeResolved), "an answer ends a wait"
    return WaitAnswer(events=(recorded, resolved), resolved=resolved)


def _told(wait: EpisodeWait) -> str:
    match wait.end:
        case EpisodeResolved(resolution=resolution, by=by, reason=reason):
            return end_in_words(f"it was {resolution}", by=by, at=wait.ended_at, reason=reason)
        case _:
            return end_in_words("it was canceled", at=wait.ended_at)
