"""`vigil episodes cancel`: the named ones, or all of an actor."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

import typer
from typer import Argument, Option

from projections.postgres.pool import Pool
from projections.postgres.query_result import ROWS_MAX, Row
from projections.postgres.reader import list_unended_episodes
from streams.clock import SystemClock
from streams.model.events import EndStatus
from streams.subjects import Stack
from vigil import options
from vigil.asking.connect import with_ports
from vigil.asking.episode_ids import find_episode
from vigil.asking.rows import ENDS, ask, wait_ended
from vigil.errors import EXIT_TROUBLE, Mistake
from vigil.printing.output import show_rows
from vigil.settings import Config

if TYPE_CHECKING:
    from streams.ports.all import Ports

app = typer.Typer()

ROUNDS_MAX: Final = 100
"""Most questions for the episodes of an actor."""

TOLD_EVERY_S: Final = 1.0

UNKNOWN: Final = ""
"""Status of an episode that is not on the journal."""

_CLOCK: Final = SystemClock()


class Unended(StrEnum):
    """Statuses of episodes that can be canceled."""

    QUEUED = "queued"
    RUNNING = "running"
    BLOCKED = "blocked"


@dataclass(frozen=True)
class EpisodeToCancel:
    """An episode, and its status."""

    episode_id: UUID
    actor_id: str
    status: str

    @property
    def is_open(self) -> bool:
        """Whether it can still be canceled."""
        return self.status not in {UNKNOWN, *ENDS}

    @property
    def outlook(self) -> str:
        """What becomes of it, in words: for good, or once a node has handled the request."""
        return f"{self.status}, to be canceled" if self.is_open else self.status

    def as_row(self) -> Row:
        """Return it as programs read it."""
        return {**vars(self), "episode_id": str(self.episode_id)}


@app.command()
def cancel(
    ctx: typer.Context,
    *,
    ids: Annotated[
        list[str] | None,
        Argument(metavar="ID", help="Episodes, by their ids or the beginnings of these."),
    ] = None,
    is_latest: options.IsLatest = False,
    actor: Annotated[
        str | None, Option(help="Instead of ids: all of this actor that have not ended.")
    ] = None,
    expectation: Annotated[
        str | None, Option(help="With --actor: only of this expectation.")
    ] = None,
    status: Annotated[Unended | None, Option(help="With --actor: only with this status.")] = None,
    is_sure: Annotated[
        bool, Option("--yes", help="With --actor: do not ask for confirmation.")
    ] = False,
    reason: options.Reason = "",
    by: options.By = None,
    is_waiting: Annotated[
        bool, Option("--wait", help="Wait for their ends; exit code 1 unless all are canceled.")
    ] = False,
    timeout_s: options.Timeout = options.WAIT_S,
    is_json: options.IsJson = False,
) -> None:
    """Cancel episodes, whether they are queued, running or blocked."""
    if bool(ids) + is_latest + (actor is not None) != 1:
        raise Mistake("name the episodes, or give --latest, or --actor")
    if actor is None and (expectation or status or is_sure):
        raise Mistake("--expectation, --status and --yes go with --actor")
    config = options.config(ctx)
    if actor is None:
        wanted = [find_episode(config, each) for each in ids or ()]
        latest = [find_episode(config, None, is_latest=True)] if is_latest else []
        found = _named(config, wanted + latest)
    else:
        found = _unended(config, actor=actor, expectation=expectation, status=status)
    if actor is not None and found and not is_sure:
        options.require_consent(f"cancel {len(found):,} episodes of {actor}?")
    _request_cancel(config, found, by=options.who(config, by), reason=reason)
    after = _wait_ends(config, found, timeout_s=timeout_s) if is_waiting else found
    if is_json:
        show_rows([each.as_row() for each in after], (), is_json=True)
    elif actor is None:
        _print_each(after, config)
    else:
        counts = Counter(each.outlook for each in after)
        words = (f"{count:,} {outlook}" for outlook, count in counts.items())
        print(", ".join(words) or "nothing to cancel")
    canceled = EndStatus.CANCELED
    known = [each for each in after if each.status != UNKNOWN]
    if len(known) < len(after) or (is_waiting and any(e.status != canceled for e in known)):
        raise typer.Exit(EXIT_TROUBLE)


def _print_each(episodes: Sequence[EpisodeToCancel], config: Config) -> None:
    hint = "`vigil episodes list` shows those that there are"
    for each in episodes:
        if each.status != UNKNOWN:
            print(f"{each.episode_id}: {each.outlook}")
        else:
            what = f"no episode {each.episode_id} in stack {config.stack.name}"
            print(f"vigil: {what}; {hint}", file=sys.stderr)


def _named(config: Config, ids: Iterable[UUID]) -> list[EpisodeToCancel]:
    from engine.episodes.episode import fold
    from vigil.asking.requests import in_batches

    async def found(ports: Ports) -> list[EpisodeToCancel]:
        async def one(id_: UUID) -> EpisodeToCancel:
            episode = fold(await ports.log.read(ports.stack.episode(str(id_))))
            if episode.opened is None:
                return EpisodeToCancel(id_, "", UNKNOWN)
            return EpisodeToCancel(id_, episode.opened.actor_id, episode.status.value)

        return await in_batches(list(dict.fromkeys(ids)), one)

    return with_ports(config, found)


def _unended(
    config: Config, *, actor: str, expectation: str | None, status: str | None
) -> list[EpisodeToCancel]:
    """Return the unended episodes of an actor; `Trouble`: nobody knows the actor."""
    from vigil.asking.stack import read_stack, require_expectation, require_known

    async def known(ports: Ports) -> None:
        seen = await read_stack(ports)
        await require_known(config, ports, seen, actor)
        if expectation is not None:
            require_expectation(seen, actor, expectation)

    question = partial(read_unended, stack=config.stack, actor=actor)
    found = ask(config, partial(question, expectation=expectation, status=status))
    if not found:
        with_ports(config, known)
    return found


async def read_unended(
    pool: Pool,
    stack: Stack,
    *,
    actor: str,
    expectation: str | None = None,
    status: str | None = None,
    round_max: int = ROWS_MAX,
) -> list[EpisodeToCancel]:
    """Return all episodes of an actor that have not ended as far as the rows show, oldest first.

    `round_max` are asked for at a time; prints on stderr if `ROUNDS_MAX` such rounds find not all.
    """
    found: list[EpisodeToCancel] = []
    past: Row | None = None
    of_actor = partial(
        list_unended_episodes, pool, stack, actor=actor, expectation=expectation, status=status
    )
    for _ in range(ROUNDS_MAX):
        rows = await of_actor(past=past, limit=round_max)
        found += [
            EpisodeToCancel(UUID(str(row["episode_id"])), str(row["actor_id"]), str(row["status"]))
            for row in rows
        ]
        if len(rows) < round_max:  # guard: cancel-all-rounds
            return found
        past = rows[-1]
    print(f"vigil: these are the oldest {len(found):,}; ask again", file=sys.stderr, flush=True)
    return found


def _request_cancel(
    config: Config, episodes: Sequence[EpisodeToCancel], *, by: str, reason: str
) -> None:
    """Request that the open ones be canceled; print progress, and what no node can end now."""
    from engine.cluster.members import live_nodes
    from engine.episodes import cancel as episodes_cancel
    from engine.operations.why_unheard import unheard
    from vigil.asking.requests import IN_FLIGHT_MAX, in_batches, request

    open_ = [each for each in episodes if each.is_open]

    async def done(ports: Ports) -> None:
        asked, told_s = 0, _CLOCK.monotonic_s()

        async def one(each: EpisodeToCancel) -> None:
            id_ = str(each.episode_id)
            await episodes_cancel.cancel(ports, each.actor_id, id_, by=by, reason=reason)

        for at in range(0, len(open_), IN_FLIGHT_MAX):
            asked += len(await in_batches(open_[at : at + IN_FLIGHT_MAX], one))
            if _CLOCK.monotonic_s() - told_s >= TOLD_EVERY_S:
                told_s = _CLOCK.monotonic_s()
                print(f"asked for {asked:,} of {len(open_):,}", file=sys.stderr, flush=True)
        nodes = await live_nodes(ports.gates)
        for actor in sorted({each.actor_id for each in open_}):
            # To end an episode a node needs neither its revision nor its expectation.
            if why := unheard(nodes, actor):
                print(f"vigil: {why}", file=sys.stderr, flush=True)

    if open_:
        request(config, done)


def _wait_ends(
    config: Config, episodes: Sequence[EpisodeToCancel], *, timeout_s: float
) -> list[EpisodeToCancel]:
    until_s = _CLOCK.monotonic_s() + timeout_s

    async def as_ended(pool: Pool, each: EpisodeToCancel) -> EpisodeToCancel:
        if not each.is_open:
            return each
        ended = partial(wait_ended, pool, config.stack, each.episode_id)
        row = await ended(until_s=until_s, timeout_s=timeout_s)
        return replace(each, status=str(row["status"]))

    async def question(pool: Pool) -> list[EpisodeToCancel]:
        return [await as_ended(pool, each) for each in episodes]

    return ask(config, question)
