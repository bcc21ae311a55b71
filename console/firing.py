"""Firing an expectation by hand from the command line, and waiting for what comes of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec

from console.errors import Mistake, Trouble
from console.reading import ask
from console.settings import Reading
from console.work import connected
from engine import nodes
from engine.durations import seconds_of
from engine.errors import BadRequest
from engine.nodes import NodeInfo
from engine.overrides import parse_overrides
from engine.runtime.presence import live_nodes
from engine.runtime.requester import fire
from projections.postgres.pool import Pool
from projections.postgres.reader import Row, show_episode
from streams.clock import SystemClock
from streams.events import EndStatus
from streams.json import UNDECODABLE, JsonObject
from streams.triggers import Overrides
from streams.world import EVENT_BYTES_MAX

TEXT_BYTES_MAX: Final = EVENT_BYTES_MAX
"""Most that is read of a file or of standard input: no payload may be longer."""

DELAY_S_MAX: Final = 366 * 86_400
"""Longest `--in`, in seconds. A later time can be said with `--at`."""

WAIT_S_MAX: Final = 3_600.0
"""Longest wait for the end of an episode, in seconds, from the time that it is asked for."""

LOOK_S: Final = 0.2
"""Between two looks at the rows, in seconds."""

ENDS: Final = frozenset(each.value for each in EndStatus)

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


def payload_of(text: str) -> JsonObject:
    """Return the JSON object that `text` says; of `@file`, the file; of `-`, standard input.

    Raises:
        Mistake: it says none.
        OSError: the file cannot be read.
    """
    try:
        said = msgspec.json.decode(_read(text, what="payload"))
    except UNDECODABLE as error:
        raise Mistake(f"payload: not JSON: {error}") from error
    if not isinstance(said, dict):
        raise Mistake(f"payload: a {type(said).__name__}, not a JSON object")
    return said


def overrides_of(text: str) -> Overrides:
    """Return the overrides that `text` says, or the file or standard input, as for a payload.

    Raises:
        Mistake: it says none.
        OSError: the file cannot be read.
    """
    try:
        return parse_overrides(_read(text, what="overrides"))
    except ValueError as error:
        raise Mistake(f"overrides: {error}") from error


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


def send(reading: Reading, request: Request) -> str:
    """Ask for an episode, and return its id.

    Raises:
        Mistake: it cannot work, or no live node knows the actor or the expectation.
        Unavailable, Incompatible: the server cannot keep it.
    """
    return asyncio.run(_send(reading, request))


def wait_end(reading: Reading, episode_id: str, *, at: datetime | None) -> Row:
    """Return the row of an episode once it has ended.

    Args:
        reading: the settings.
        episode_id: the episode's, which may not be opened yet.
        at: when it is to be opened; None: now.

    Raises:
        Trouble: it has not ended after `WAIT_S_MAX`, or there are no rows.
        PostgresUnavailable: no server there, or it does not let us in.
    """
    delay_s = 0.0 if at is None else max(0.0, (at - _CLOCK.now()).total_seconds())

    async def ended(pool: Pool) -> Row:
        deadline_s = _CLOCK.monotonic_s() + delay_s + WAIT_S_MAX
        while True:
            row = await show_episode(pool, reading.stack, UUID(episode_id))
            if row is not None and row["status"] in ENDS:
                return row
            if _CLOCK.monotonic_s() >= deadline_s:
                status = "not opened" if row is None else row["status"]
                raise Trouble(f"episode {episode_id} is still {status} after {WAIT_S_MAX:,.0f} s")
            await _CLOCK.sleep(LOOK_S)

    return ask(reading, ended)


def check_known(living: Sequence[NodeInfo], *, actor: str, expectation: str) -> None:
    """Check that a node could open the episode, as far as those that live say so.

    Where no node lives, nobody can say; the request waits for one.

    Raises:
        Mistake: none knows the actor, or the expectation.
    """
    expectations = nodes.known(living, actor)
    if living and expectations is None:
        actors = {known for info in living for known in info.actors}
        raise Mistake(f"no live node has an actor {actor!r}; {_hint(actor, actors)}")
    if expectations and expectation not in expectations:
        hint = _hint(expectation, expectations)
        raise Mistake(f"actor {actor!r} has no expectation {expectation!r}; {hint}")


async def _send(reading: Reading, request: Request) -> str:
    async with connected(reading) as ports:
        living = await live_nodes(ports.gates)
        check_known(living, actor=request.actor, expectation=request.expectation)
        try:
            return await fire(ports, **vars(request))
        except BadRequest as error:
            raise Mistake(str(error)) from error


def _read(text: str, *, what: str) -> bytes:
    data = _data(text)
    if len(data) > TEXT_BYTES_MAX:
        raise Mistake(f"{what}: over {TEXT_BYTES_MAX:,} bytes")
    return data


def _data(text: str) -> bytes:
    if text == "-":
        return sys.stdin.buffer.read(TEXT_BYTES_MAX + 1)
    if not text.startswith("@"):
        return text.encode(errors="surrogateescape")
    with Path(text[1:]).open("rb") as file:
        return file.read(TEXT_BYTES_MAX + 1)


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


def _hint(wanted: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = get_close_matches(wanted, names, n=1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
