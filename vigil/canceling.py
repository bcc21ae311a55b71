"""Canceling episodes from the command line, by their ids or all that an actor has open."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar
from uuid import UUID

from engine.cluster.members import live_nodes
from engine.episodes.cancel import cancel
from engine.episodes.episode import ENDED, Status, fold
from engine.errors import BadRequest
from engine.operations.why_unheard import unheard
from projections.postgres.pool import Pool
from projections.postgres.query_result import ROWS_MAX, Row
from projections.postgres.reader import list_unended_episodes
from streams.clock import SystemClock
from streams.ports.all import Ports
from streams.subjects import Stack
from vigil.ends import wait_ended
from vigil.errors import Mistake
from vigil.looking import look_at, require_expectation, require_known
from vigil.reading import ask
from vigil.settings import Reading
from vigil.work import connected

IN_FLIGHT_MAX: Final = 64
"""Episodes looked up, or asked to be canceled, at a time."""

ROUNDS_MAX: Final = 100
"""Most questions for what an actor has open: a million episodes, at the rows' `ROWS_MAX` each."""

TOLD_EVERY_S: Final = 1.0
"""Between two lines of progress, in seconds."""

UNKNOWN: Final = ""
"""Status of an episode that the journal does not hold."""

_CLOCK: Final = SystemClock()

_T = TypeVar("_T")


@dataclass(frozen=True)
class Episode:
    """An episode, and where it is in its life."""

    episode_id: UUID
    actor_id: str
    status: str

    @property
    def is_known(self) -> bool:
        """Whether there is such an episode."""
        return self.status != UNKNOWN

    @property
    def is_open(self) -> bool:
        """Whether it can still be canceled, unless it decides what is true before."""
        return self.is_known and self.status not in ENDED

    @property
    def is_canceled(self) -> bool:
        """Whether it was canceled."""
        return self.status == Status.CANCELED

    @property
    def outlook(self) -> str:
        """What becomes of it, in words: for good, or once a node has heard of it."""
        return f"{self.status}, to be canceled" if self.is_open else self.status

    def as_row(self) -> Row:
        """Return it as programs read it."""
        return {**vars(self), "episode_id": str(self.episode_id)}


def named(reading: Reading, ids: Iterable[UUID]) -> list[Episode]:
    """Return the episodes of these ids as the journal has them, each once.

    Raises:
        UnreadableEvent: a newer version has written one of them.
        Unavailable, Incompatible: the log is away.
    """

    async def done() -> list[Episode]:
        async with connected(reading, creates=False) as ports:
            found: list[Episode] = []
            for some in _batches(list(dict.fromkeys(ids))):
                found += await asyncio.gather(*(_look_up(ports, each) for each in some))
            return found

    return asyncio.run(done())


def unended(
    reading: Reading, *, actor: str, expectation: str | None, status: str | None
) -> list[Episode]:
    """Return the episodes of an actor that have not ended as far as the rows show, oldest first.

    Raises:
        PostgresUnavailable: no server there, or it does not let us in.
        Trouble: there are no rows to look at; or there is no such episode, and nobody knows the
            actor, or no node that has it the expectation.
    """

    async def question(pool: Pool) -> list[Episode]:
        return await every_unended(
            pool, reading.stack, actor=actor, expectation=expectation, status=status
        )

    found = ask(reading, question)
    if not found:
        asyncio.run(_require_known(reading, actor, expectation))
    return found


async def every_unended(
    pool: Pool,
    stack: Stack,
    *,
    actor: str,
    expectation: str | None = None,
    status: str | None = None,
    round_max: int = ROWS_MAX,
) -> list[Episode]:
    """Return the episodes of an actor that have not ended, oldest first, and all of them.

    Args:
        pool: of the rows.
        stack: the episodes'.
        actor: whose.
        expectation: only of this one.
        status: only these.
        round_max: how many are asked for at a time. Says on stderr if `ROUNDS_MAX` such rounds do
            not find all.
    """
    found: list[Episode] = []
    past: Row | None = None
    for _ in range(ROUNDS_MAX):
        rows = await list_unended_episodes(
            pool,
            stack,
            actor=actor,
            expectation=expectation,
            status=status,
            past=past,
            limit=round_max,
        )
        found += map(_of_row, rows)
        if len(rows) < round_max:
            return found
        past = rows[-1]
    print(f"vigil: these are the oldest {len(found):,}; ask again", file=sys.stderr, flush=True)
    return found


def ask_for_end(reading: Reading, episodes: Sequence[Episode], *, by: str, reason: str) -> None:
    """Ask for those of `episodes` that are open to be canceled.

    Says on stderr how far that is, and whose episodes nothing can end now.

    Raises:
        Mistake: a value is impossible.
        Unavailable, Incompatible: the log is away. Asking again is safe.
    """
    open_ = [each for each in episodes if each.is_open]

    async def done() -> None:
        async with connected(reading, creates=False) as ports:
            await _ask_all(ports, open_, by=by, reason=reason)
            nodes = await live_nodes(ports.gates)
            for actor in sorted({each.actor_id for each in open_}):
                # Who only ends an episode needs neither its revision nor its expectation.
                if why := unheard(nodes, actor):
                    print(f"vigil: {why}", file=sys.stderr, flush=True)

    if open_:
        asyncio.run(done())


def wait_ends(reading: Reading, episodes: Sequence[Episode], *, timeout_s: float) -> list[Episode]:
    """Return `episodes` as they ended, once the rows show that of all that are known.

    Args:
        reading: the settings.
        episodes: those that were asked to end.
        timeout_s: longest wait for all of them together, in seconds.

    Raises:
        Trouble: one has not ended by then, or there are no rows.
        PostgresUnavailable: no server there, or it does not let us in.
    """
    until_s = _CLOCK.monotonic_s() + timeout_s

    async def as_ended(pool: Pool, each: Episode) -> Episode:
        if not each.is_open:
            return each
        id_, stack = each.episode_id, reading.stack
        row = await wait_ended(pool, stack, id_, until_s=until_s, said_s=timeout_s)
        return replace(each, status=str(row["status"]))

    async def question(pool: Pool) -> list[Episode]:
        return [await as_ended(pool, each) for each in episodes]

    return ask(reading, question)


async def _require_known(reading: Reading, actor: str, expectation: str | None) -> None:
    async with connected(reading, creates=False) as ports:
        seen = await look_at(ports)
        await require_known(reading, ports, seen, actor)
        if expectation is not None:
            require_expectation(seen, actor, expectation)


def _of_row(row: Row) -> Episode:
    return Episode(UUID(str(row["episode_id"])), str(row["actor_id"]), str(row["status"]))


async def _look_up(ports: Ports, episode_id: UUID) -> Episode:
    episode = fold(await ports.log.read(ports.stack.episode(str(episode_id))))
    if episode.opened is None:
        return Episode(episode_id, "", UNKNOWN)
    return Episode(episode_id, episode.opened.actor_id, episode.status.value)


async def _ask_all(ports: Ports, episodes: Sequence[Episode], *, by: str, reason: str) -> None:
    asked, told_s = 0, _CLOCK.monotonic_s()
    for some in _batches(episodes):
        requests = (
            cancel(ports, each.actor_id, str(each.episode_id), by=by, reason=reason)
            for each in some
        )
        try:
            await asyncio.gather(*requests)
        except BadRequest as error:
            raise Mistake(str(error)) from error
        asked += len(some)
        if _CLOCK.monotonic_s() - told_s >= TOLD_EVERY_S:
            told_s = _CLOCK.monotonic_s()
            print(f"asked for {asked:,} of {len(episodes):,}", file=sys.stderr, flush=True)


def _batches(items: Sequence[_T]) -> Iterable[Sequence[_T]]:
    return (items[at : at + IN_FLIGHT_MAX] for at in range(0, len(items), IN_FLIGHT_MAX))
