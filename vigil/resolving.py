"""Bringing word of what episodes wait for, by its reference, and seeing what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from engine.errors import BadRequest, Refused
from engine.waits.answer import Wait, waits_of
from engine.waits.requests import resolve as bring_word
from engine.waits.signal import RESOLVED, WaitEntry
from engine.waits.signals import find_waiters
from streams.model.events import EpisodeResolved
from streams.ports.all import Ports
from streams.ports.log import Recorded
from vigil.errors import Mistake, Trouble
from vigil.outcomes import Outcome, Sent, Stand, batches, watch
from vigil.settings import Reading
from vigil.work import connected

DONE: Final = "resolved"


def resolve(
    reading: Reading,
    ref: str,
    result: object,
    *,
    episode_id: str | None,
    by: str,
    wait_s: float | None,
) -> list[Outcome]:
    """Say that what episodes wait for has come about, and return what came of it for each.

    Args:
        reading: the settings.
        ref: what they wait for.
        result: any JSON value, for their strategies.
        episode_id: the only episode that is meant; None: all that wait for it.
        by: who says so.
        wait_s: as for `watch`.

    Raises:
        Mistake: a value is impossible.
        BadName: the reference is not valid Unicode text.
        Trouble: no such episode waits for it.
        UnreadableEvent: a newer version has written one of them.
        Unavailable, Incompatible: the log is away. Saying it again is safe.
    """

    async def done() -> list[Outcome]:
        async with connected(reading, creates=False) as ports:
            waiters = await _waiters(ports, ref, episode_id)
            id_ = await _bring(ports, ref, result, by=by, episode_id=episode_id)
            return await watch(ports, [_sent(ports, each, id_) for each in waiters], wait_s=wait_s)

    return asyncio.run(done())


async def _waiters(ports: Ports, ref: str, episode_id: str | None) -> list[WaitEntry]:
    """Return the episodes that wait for `ref`: there may be an entry of one that was answered."""
    found = await find_waiters(ports, ref)
    meant = [each for each in found if episode_id in (None, each.episode_id)]
    waiting: list[WaitEntry] = []
    for some in batches(meant):
        journals = await asyncio.gather(*(ports.log.read(_subject(ports, each)) for each in some))
        newest = [_newest(records, ref) for records in journals]
        both = zip(some, newest, strict=True)
        waiting += [each for each, wait in both if wait is not None and wait.end is None]
    return waiting


async def _bring(ports: Ports, ref: str, result: object, *, by: str, episode_id: str | None) -> str:
    try:
        return await bring_word(ports, ref, result, by=by, episode_id=episode_id)
    except BadRequest as error:
        raise Mistake(str(error)) from error
    except Refused as error:
        raise Trouble(f"{error}; for one that is about to, publish {RESOLVED}") from error


def _sent(ports: Ports, waiter: WaitEntry, id_: str) -> Sent:
    def stand(records: Sequence[Recorded]) -> Stand | None:
        wait = _newest(records, waiter.ref)
        if wait is None or wait.end is None:
            return None
        is_wanted = isinstance(wait.end, EpisodeResolved) and wait.end.decision_id == id_
        return Stand(DONE if is_wanted else "it had ended by then", is_wanted)

    return Sent(
        name=waiter.episode_id,
        actor_id=waiter.actor_id,
        episode_id=waiter.episode_id,
        subject=_subject(ports, waiter),
        stand=stand,
    )


def _newest(records: Sequence[Recorded], ref: str) -> Wait | None:
    """Return when an episode waited for `ref` last; None: never."""
    waits = [each for each in waits_of(records) if each.blocked.ref == ref]
    return waits[-1] if waits else None


def _subject(ports: Ports, waiter: WaitEntry) -> str:
    return ports.stack.episode(waiter.episode_id)
