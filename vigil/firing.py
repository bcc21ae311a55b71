"""Firing an expectation by hand from the command line, and waiting for what comes of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from engine.app.tools import parse_overrides
from engine.episodes.fire import fire
from engine.errors import BadRequest
from engine.validation import seconds_of
from projections.postgres.pool import Pool
from projections.postgres.query_result import Row
from streams.clock import SystemClock
from streams.json import JsonObject
from streams.model.triggers import Overrides
from vigil import typed
from vigil.ends import wait_ended
from vigil.errors import Mistake
from vigil.looking import (
    look_at,
    require_expectation,
    require_in_force,
    require_plausible,
    waking_obstacle,
)
from vigil.reading import ask
from vigil.settings import Reading
from vigil.used import Use, use_of
from vigil.work import connected

DELAY_S_MAX: Final = 366 * 86_400
"""Longest `--in`, in seconds. A later time can be said with `--at`."""

_CLOCK: Final = SystemClock()


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was typed, as `engine.runtime.requester.fire` takes it."""

    actor: str
    expectation: str
    payload: JsonObject
    by: str
    reason: str = ""
    key: str | None = None
    priority: int = 0
    at: datetime | None = None
    dry_run: bool = False
    overrides: Overrides | None = None


@dataclass(frozen=True, kw_only=True)
class Asked:
    """An episode that was asked for."""

    episode_id: str
    obstacle: str
    """Why nothing comes of it now, in words; empty: something does."""
    used: Use | None = None
    """The earlier use of its key, so that nothing new comes of it; None: none is known."""


def payload_of(text: str) -> JsonObject:
    """Return the JSON object that `text` says; of `@file`, the file; of `-`, standard input.

    Raises:
        Mistake: it says none.
        Trouble: the file cannot be read.
    """
    return typed.object_of(text, what="--payload")


def overrides_of(text: str) -> Overrides:
    """Return the overrides that `text` says, or the file or standard input, as for a payload.

    Raises:
        Mistake: it says none.
        Trouble: the file cannot be read.
    """
    try:
        return parse_overrides(typed.read(text, what="--overrides"))
    except ValueError as error:
        raise Mistake(f"--overrides: {error}") from error


def time_of(at: str | None, within: str | None) -> datetime | None:
    """Return the time that `--at` or `--in` says; None if neither does.

    Raises:
        Mistake: both do, or what one says is no time.
    """
    if at is not None and within is not None:
        raise Mistake("--at and --in both say when; leave one out")
    if within is not None:
        return _CLOCK.now() + timedelta(seconds=_delay_s(within))
    return None if at is None else _time(at)


def send(reading: Reading, request: Request) -> Asked:
    """Ask for an episode.

    Raises:
        BadName: actor or expectation is no name.
        Mistake: it cannot work.
        Trouble: a node is up, and nobody knows the actor, or no node that has it the expectation;
            or it was disabled.
        Unavailable, Incompatible: the server cannot keep it.
    """
    return asyncio.run(_send(reading, request))


def wait_end(reading: Reading, episode_id: str, *, at: datetime | None, timeout_s: float) -> Row:
    """Return the row of an episode once it has ended.

    Args:
        reading: the settings.
        episode_id: the episode's, which may not be opened yet.
        at: when it is to be opened; None: now.
        timeout_s: longest wait from then on, in seconds.

    Raises:
        Trouble: it has not ended by then, or there are no rows.
        PostgresUnavailable: no server there, or it does not let us in.
    """
    delay_s = 0.0 if at is None else max(0.0, (at - _CLOCK.now()).total_seconds())
    until_s = _CLOCK.monotonic_s() + delay_s + timeout_s

    async def ended(pool: Pool) -> Row:
        id_, stack = UUID(episode_id), reading.stack
        return await wait_ended(pool, stack, id_, until_s=until_s, said_s=timeout_s)

    return ask(reading, ended)


async def _send(reading: Reading, request: Request) -> Asked:
    async with connected(reading, creates=False) as ports:
        seen = await look_at(ports)
        await require_plausible(reading, ports, seen, request.actor)
        await require_in_force(ports, seen, request.actor)
        require_expectation(seen, request.actor, request.expectation)
        try:
            used = await use_of(
                ports, request.actor, request.expectation, request.key, dry_run=request.dry_run
            )
            episode_id = await fire(ports, **vars(request))
        except BadRequest as error:
            raise Mistake(str(error)) from error
        is_over = used is not None and used.is_over
        obstacle = "" if is_over else waking_obstacle(seen, request.actor)
        return Asked(episode_id=episode_id, obstacle=obstacle, used=used)


def _delay_s(within: str) -> float:
    try:
        return seconds_of(within, least_s=0, most_s=DELAY_S_MAX)
    except ValueError as error:
        raise Mistake(f"--in: {within!r}: write 90s, 15m or 2d, up to 366d") from error


def _time(at: str) -> datetime:
    try:
        time = datetime.fromisoformat(at)
    except ValueError as error:
        raise Mistake(f"--at: {at!r} is not a time, such as 2030-01-31T09:00:00Z") from error
    if time.utcoffset() is None:
        raise Mistake(f"--at: {at!r} is in no time zone; write Z or +01:00 after it")
    return time
