"""Requests to blocked episodes, for people and programs: approve, deny, resolve.

Each reads the journal and refuses at once what is not allowed. Otherwise it sends a durable
command, and a node checks the journal again: another request may be faster.
"""

from __future__ import annotations

from typing import Final
from uuid import uuid4

import msgspec
from msgspec import UNSET

from engine import validation
from engine.app.outputs import plan_hash as hash_of
from engine.episodes.episode import fold
from engine.errors import BadRequest, Refused, Unencodable
from engine.runtime.store import read_current
from engine.validation import check_cause, check_hash, check_id
from engine.waits import answer as answers
from engine.waits.signal import command_for, signal
from engine.waits.signals import References
from streams.clock import Clock, SystemClock
from streams.json import NOTHING
from streams.model.commands import Decide, DecideStep, Resolve, Verdict
from streams.ports.all import Ports
from streams.ports.log import Recorded
from streams.tracing import traceparent

_CLOCK: Final = SystemClock()

AS_IT_IS: Final = ("", NOTHING)
"""In the place of `edit_of`: what is asked about is approved unchanged."""


async def approve(
    ports: Ports,
    episode_id: str,
    *,
    plan_hash: str,
    by: str,
    reason: str = "",
    plan: object = UNSET,
    clock: Clock = _CLOCK,
) -> str:
    """Ask that what an episode waits for be approved, and return the decision's id.

    The request is durable when this returns. The episode continues as soon as a node of its actor
    has room, unless somebody else decides first: the journal names the winning decision's id.

    Args:
        plan_hash: of the plan that is approved: 64 hex digits.
        by: who approves: 1 to 200 characters; one of the approvers, if the request names any.
        reason: why, for people and for the strategy: up to 4,000 characters.
        plan: what is approved instead, any JSON value of up to 256 KiB, where the request allows
            that; by default the plan as it is.
        clock: what the time is, by default the machine's.

    Raises:
        BadRequest: a value is impossible; the error names the field.
        Refused: it is not allowed; the message says why.
    """
    verdict = Verdict.APPROVE
    return await _decide(
        ports, episode_id, verdict, plan_hash, by=by, reason=reason, plan=plan, clock=clock
    )


async def deny(
    ports: Ports,
    episode_id: str,
    *,
    plan_hash: str,
    by: str,
    reason: str = "",
    clock: Clock = _CLOCK,
) -> str:
    """Ask that what an episode waits for be denied, and return the decision's id.

    The strategy gets a `Failure` of class `denied`; by default this cancels the episode. Otherwise
    as `approve`.
    """
    verdict = Verdict.DENY
    return await _decide(ports, episode_id, verdict, plan_hash, by=by, reason=reason, clock=clock)


async def resolve(
    ports: Ports, ref: str, result: object = None, *, by: str, episode_id: str | None = None
) -> str:
    """Send the signal `ref` to the episodes that wait for it now; return the signal's id.

    A program that does not know whether an episode waits already publishes the event
    `wait.resolved` instead; see `engine.waits.signal`.

    Args:
        result: any JSON value, of up to 256 KiB, for their strategies.
        by: who sends it, for people: 1 to 200 characters.
        episode_id: only this episode; None: all that wait for it.

    Raises:
        BadRequest: a value is impossible; the error names the field.
        Refused: no such episode waits for it.
    """
    said = signal(uuid4().hex, ref, result, by)
    if episode_id is not None:
        check_id("episode_id", episode_id)
    references = References(ports, _CLOCK)
    waiting = await references.waiting(ref)
    commands = [
        command_for(said, each)
        for each in waiting
        # guard: one-episode-resolved
        if episode_id in (None, each.episode_id) and not each.is_ahead
    ]
    will_wait = episode_id is None and any(each.is_ahead for each in waiting)
    whom = "no episode waits" if episode_id is None else "the episode does not wait"
    if not will_wait and not any([await _is_waited_for(ports, each) for each in commands]):
        raise Refused(f"{whom} for {ref!r}")
    if episode_id is None:
        state = await references.give(said, at=None)
        # guard: row-second-person-told
        if said.id not in state.sent:  # Another one was faster.
            raise Refused(f"{whom} for {ref!r}")
        return said.id
    for each in commands:
        id_ = f"resolve.{each.episode_id}.{each.id}"
        await ports.commands.send(each, id=id_, trace=traceparent())
    return said.id


async def _decide(
    ports: Ports,
    episode_id: str,
    verdict: Verdict,
    plan_hash: str,
    *,
    by: str,
    reason: str,
    clock: Clock,
    plan: object = UNSET,
) -> str:
    check_id("episode_id", episode_id)
    check_hash("plan_hash", plan_hash)
    check_cause(by, reason)
    edited_hash, edited_plan = AS_IT_IS if plan is UNSET else edit_of(plan, what="plan")
    records = await read_episode(ports, episode_id)
    asked = [each for each in answers.waits_of(records) if each.blocked.event.approval]
    opened = fold(records).opened
    if not asked or opened is None:
        raise Refused("it does not ask for approval" if opened else "there is no such episode")
    request = asked[-1].blocked.reference
    command = Decide(
        actor_id=opened.actor_id,
        episode_id=episode_id,
        id=uuid4().hex,
        verdict=verdict,
        plan_hash=plan_hash,
        by=by,
        reason=reason,
        step_no=asked[-1].blocked.step_no,
        edited_hash=edited_hash,
        edited_plan=edited_plan,
        # It is one of them at least, also if its own node has not counted it yet.
        # guard: sharers-counted-at-decision
        request_no=max(1, await References(ports, clock).newest_no(request)) if request else 0,
    )
    answers.answer(records, command, at=clock.now())
    return await send_decision(ports, command)


def edit_of(plan: object, *, what: str) -> tuple[str, msgspec.Raw]:
    """Return hash and JSON of what is approved instead.

    Raises `BadRequest` about the field `what` if it could not have been asked about.
    """
    try:
        edited = validation.encode(plan, what=what)
    except Unencodable as error:  # guard: edited-output-could-be-proposed
        raise BadRequest(field=what, problem=str(error)) from error
    return hash_of(edited), edited


async def send_decision(ports: Ports, command: Decide | DecideStep) -> str:
    """Send a decision that the rules allow by now; return its id."""
    await ports.commands.send(command, id=f"decide.{command.id}", trace=traceparent())
    return command.id


async def read_episode(ports: Ports, episode_id: str) -> list[Recorded]:
    """Return an episode's commits, oldest first; none: there is no such episode."""
    # guard: approval-refused-by-leader
    return list(await read_current(ports.log, _CLOCK, ports.stack.episode(episode_id)))


async def _is_waited_for(ports: Ports, command: Resolve | Decide) -> bool:
    records = await read_episode(ports, command.episode_id)
    try:
        return answers.answer(records, command, at=_CLOCK.now()) is not None
    except Refused:
        return False
