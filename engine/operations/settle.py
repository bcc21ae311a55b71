"""Settles a call of unknown outcome, as a person says: read → `settled` → open the fork → append.

The id of the fork comes from the episode, so of two people one is refused; asking again completes
what a crash cut off.
"""

from __future__ import annotations

from typing import Final

from engine.dead_letters.letter import DeadLetter
from engine.dead_letters.write import letters
from engine.dead_letters.write import settle as settle_letter
from engine.episodes import settle as rules
from engine.episodes.fork import open_fork
from engine.errors import Refused, Rejected
from engine.runtime.store import Loaded, read_current
from engine.validation import check_id
from streams.clock import Clock, SystemClock
from streams.layout import Kind
from streams.model.events import DeadRequeued, EpisodeOpened
from streams.ports.all import Ports

_CLOCK: Final = SystemClock()


async def settle(
    ports: Ports,
    episode_id: str,
    settlement: str,
    *,
    by: str,
    reason: str = "",
    result: object = None,
    call: str = "",
    clock: Clock = _CLOCK,
) -> str:
    """Say what became of a call of unknown outcome, and return the id of the fork that goes on.

    The fork begins with all that the episode, which has ended as `outcome_unknown`, has recorded.
    The dead letter of the episode is settled. Asking again with the same values changes nothing.

    Args:
        settlement: `happened`: the call returns `result`. `not_happened`: it fails as
            `not_happened`. `again`: it is made again, with the same idempotency key.
        by: who says it, for people: 1 to 200 characters.
        reason: why, for people: up to 4,000 characters.
        result: any JSON value, of up to 256 KiB.
        call: the path of the call, where several are open; empty: the only one.
        clock: what the time is, by default the machine's.

    Raises:
        BadRequest: a value is impossible; the error names the field.
        Refused: there is nothing to settle, or somebody has; the message says it.
    """
    check_id("episode_id", episode_id)
    command = rules.checked(settlement, by=by, reason=reason, result=result, call=call)
    records = await read_current(ports.log, clock, ports.stack.episode(episode_id))
    opened, past = rules.settled(records, command, stack=ports.stack.name)
    store = letters(ports, clock)
    letter = await store.load(ports.stack.dead(Kind.EPISODE, episode_id))
    requeued = DeadRequeued(by=by, episode_id=opened.episode_id)
    _check_waiting(letter, requeued)
    await open_fork(ports, opened, past, at=clock.now())
    first, *_ = await read_current(ports.log, clock, ports.stack.episode(opened.episode_id))
    if first.commit.events != (opened, *past):  # guard: settling-first-person
        raise Refused(_settled_before(first.commit.events[0]))
    if letter.state.lettered is not None:
        await _settle_letter(ports, clock, letter, requeued)
    return opened.episode_id


def _check_waiting(letter: Loaded[DeadLetter], requeued: DeadRequeued) -> None:
    settled = letter.state.settled
    if settled is None or getattr(settled, "episode_id", "") == requeued.episode_id:
        return
    raise Refused(f"its dead letter was {letter.state.status} by {settled.by}")


async def _settle_letter(
    ports: Ports, clock: Clock, letter: Loaded[DeadLetter], requeued: DeadRequeued
) -> None:
    if letter.state.settled == requeued:
        return
    try:
        await settle_letter(letters(ports, clock), letter, requeued)
    except Rejected as error:
        raise Refused(
            f"it goes on as {requeued.episode_id}; of its dead letter, {error}"
        ) from error


def _settled_before(opened: object) -> str:
    fork = opened.fork if isinstance(opened, EpisodeOpened) else None
    assert isinstance(opened, EpisodeOpened), "an episode begins with its opening"
    assert fork is not None, "its id is made for a fork"
    return f"{fork.by} has said {fork.settled}: it goes on as {opened.episode_id}"
