"""Requests about what episodes wait for, for people and programs: resolve a wait.

The journal says at once what is not allowed. Otherwise a durable command is sent, and a node checks
the journal again: another request may be faster.
"""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from engine.errors import Refused
from engine.runtime.store import read_current
from engine.validation import check_id
from engine.waits import answer as answers
from engine.waits.signal import command_for, signal
from engine.waits.signals import References
from streams.clock import SystemClock
from streams.model.commands import Decide, Resolve
from streams.ports.all import Ports
from streams.ports.log import Recorded
from streams.tracing import traceparent

_CLOCK: Final = SystemClock()


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
