"""Asks for an episode, or for its end, for a person or a program: fires by hand, and cancels."""

from __future__ import annotations

from datetime import datetime
from uuid import uuid4

from engine.canceling import KEY_TTL_S, cancel_command
from engine.errors import BadRequest
from engine.fields import check_name, check_switch
from engine.firing import FireRequest, fire_timer, fired_episode_id
from engine.runtime.census import open_episodes
from streams import codec
from streams.armed import due_time
from streams.commands import Cancel
from streams.json import JsonObject
from streams.keys import cancel_key
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
        Unavailable: the server refused. It is not asked for. `UnknownOutcome` is one of these.
    """
    check_switch("dry_run", value=dry_run)
    asked = FireRequest(
        expectation=expectation,
        requested_by=by,
        key=uuid4().hex if key is None else key,
        reason=reason,
        payload={} if payload is None else payload,
        priority=priority,
        mode=Mode.DRY_RUN if dry_run else Mode.LIVE,
        overrides=overrides,
    )
    return await send_fire(ports, actor, asked, at=at)


async def send_fire(
    ports: Ports, actor: str, asked: FireRequest, *, at: datetime | None = None
) -> str:
    """Ask `actor` for what is `asked`, at a time or at once; return the id of the episode.

    Raises:
        BadRequest, UnknownOutcome, Unavailable: as `fire`.
    """
    timer = fire_timer(asked, actor=actor)
    episode_id = fired_episode_id(
        stack=ports.stack.name,
        actor=actor,
        expectation=asked.expectation,
        key=asked.key,
        mode=asked.mode,
    )
    if at is None:
        await ports.timers.send(timer, id=f"fire.{episode_id}", trace=traceparent())
    else:
        await ports.timers.arm(timer, at=_time(at), trace=traceparent())
    return episode_id


async def cancel(ports: Ports, actor: str, episode_id: str, *, by: str, reason: str = "") -> None:
    """Ask for an episode of `actor` to be canceled, whether it is queued or runs.

    The request is durable when this returns. A node that runs the episode hears of it at once,
    interrupts what waits (a tool, a synthesizer, a callback) and ends it; one that is queued is
    ended by any node of the actor, though it may have no room. Of one that has decided what is true
    the outputs are canceled that are not delivered yet; if there are none, it finishes as it would
    have. One that has ended stays as it is. An episode that the journal does not hold for about two
    minutes makes the request a dead letter.

    Args:
        ports: of the stack.
        actor: the actor's id.
        episode_id: the episode's.
        by: who asks, for people: 1 to 200 characters.
        reason: why, for people: up to 4,000 characters.

    Raises:
        BadRequest: a value is impossible; the error names the field.
        Unavailable: no answer, or the server refused. It may be asked for; asking again is safe.
    """
    command = cancel_command(actor, episode_id, by=by, reason=reason)
    await ask_to_cancel(ports, command, id=f"cancel.{episode_id}.{uuid4().hex}")


async def ask_to_cancel(ports: Ports, command: Cancel, *, id: str) -> None:
    """Send a command that has an episode canceled, under `id`.

    Raises:
        Unavailable: no answer, or the server refused. Doing it again is safe.
    """
    key, said = cancel_key(command.episode_id), codec.encode_command(command)
    # The command last: whoever answers for it deletes the key.
    await ports.gates.put(key, said, ttl_s=KEY_TTL_S)
    await ports.inbox.send(command, id=id, trace=traceparent())


async def cancel_related(
    ports: Ports, actor: str, expectation: str, *, by: str, reason: str = ""
) -> list[str]:
    """Ask for every episode of an expectation to be canceled that has not ended; return their ids.

    Also those that wait for people or for the outside. Which they are is read from the journal, all
    of it: a matter of seconds per million commits. One that is opened meanwhile is not canceled.

    Args:
        ports: of the stack.
        actor: the actor's id.
        expectation: the name of one of its expectations.
        by: who asks, for people: 1 to 200 characters.
        reason: why, for people: up to 4,000 characters.

    Raises:
        BadRequest: a value is impossible; the error names the field.
        UnreadableEvent: a newer version of the engine has written to the journal.
        Unavailable: no answer, or the server refused. Asking again is safe.
    """
    check_name("actor", actor)
    check_name("expectation", expectation)
    found = await open_episodes(ports, actor, expectation)
    for episode_id in found:
        await cancel(ports, actor, episode_id, by=by, reason=reason)
    return found


def _time(at: datetime) -> datetime:
    given: object = at
    if not isinstance(given, datetime):
        raise BadRequest(field="at", problem=f"{at!r} is not a datetime with a time zone")
    try:
        return due_time(at)
    except (ValueError, OverflowError) as error:
        raise BadRequest(field="at", problem=str(error)) from error
