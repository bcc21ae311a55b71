"""Asks an actor for an episode, for a person or a program: the fire by hand."""

from __future__ import annotations

from datetime import datetime
from uuid import uuid4

from engine.errors import BadRequest
from engine.firing import Fire, fire_timer, fired_episode_id
from streams.armed import due_time
from streams.json import JsonObject
from streams.ports import Ports
from streams.tracing import traceparent
from streams.triggers import Mode, Overrides


async def fire(
    ports: Ports,
    actor: str,
    expectation: str,
    payload: JsonObject | None = None,
    *,
    by: str,
    reason: str = "",
    key: str | None = None,
    priority: int = 0,
    at: datetime | None = None,
    dry_run: bool = False,
    overrides: Overrides | None = None,
) -> str:
    """Ask `actor` for an episode of `expectation`, and return the id of the episode.

    The request is durable when this returns, and waits until a node that runs the actor opens the
    episode. If none knows the expectation, it becomes a dead letter.

    Args:
        ports: of the stack.
        actor: the actor's id.
        expectation: the name of one of its expectations.
        payload: a JSON object for the strategy, `trigger.payload`, of up to 512 KiB.
        by: who asks, for people: 1 to 200 characters.
        reason: why, for people: up to 4,000 characters.
        key: the idempotency key, 1 to 512 characters: asking again with the same one opens no
            second episode, and before a later time has come takes the place of the first request.
            By default every call is a request of its own.
        priority: from -1,000 to 1,000; the higher, the sooner its turn comes, where episodes wait
            for one.
        at: when to open it, with a time zone; None or a time in the past: at once.
        dry_run: whether nothing outside is to change; see `engine.dryrun`.
        overrides: what a dry run uses in the place of the outside, made by `overrides(…)`, before
            what the expectation declares.

    Raises:
        BadRequest: a value is impossible; the error names the field.
        UnknownOutcome: no answer. It may be asked for; asking again with the same `key` is safe.
        Unavailable: the server refused. It is not asked for.
    """
    asked = Fire(
        expectation=expectation,
        requested_by=by,
        key=uuid4().hex if key is None else key,
        reason=reason,
        payload={} if payload is None else payload,
        priority=priority,
        mode=Mode.DRY_RUN if dry_run else Mode.LIVE,
        overrides=overrides,
    )
    timer = fire_timer(asked, actor=actor)
    episode_id = fired_episode_id(
        stack=ports.stack.name,
        actor=actor,
        expectation=expectation,
        key=asked.key,
        mode=asked.mode,
    )
    if at is None:
        await ports.timers.send(timer, id=f"fire.{episode_id}", trace=traceparent())
    else:
        await ports.timers.arm(timer, at=_time(at), trace=traceparent())
    return episode_id


def _time(at: datetime) -> datetime:
    try:
        return due_time(at)
    except ValueError as error:
        raise BadRequest(field="at", problem=str(error)) from error
