"""How long things are kept, what people hold, and letting go what is old."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from engine.retention.step import StepReport
from engine.retention.worker import RunReport
from projections.postgres import reader
from projections.postgres.prune import OldRows
from streams.keys import RETENTION
from streams.layout import Stream
from streams.model.events import HoldAdded, HoldRemoved, OrderEvent
from streams.model.retention import HoldKind, RetentionCut
from vigil.client.connections import Connections
from vigil.client.episodes import EpisodeCalls
from vigil.client.page import checked_one_of
from vigil.client.stack.orders import OrderOutcome
from vigil.errors import Mistake, NotFound, Trouble

if TYPE_CHECKING:
    from engine.retention.step import RetentionStep
    from engine.retention.store import RetentionState
    from projections.postgres.pool import Pool
    from streams.ports.all import Ports
    from streams.subjects import Stack

LEVEL_S: Final = 30.0
"""Longest wait until the rows know a hold, or what is cut, in seconds."""

_ADDED: Final = "held from now on: nothing of it goes"
_REMOVED: Final = "it is kept for as long as everything else again"
_HELD_ALREADY: Final = "it was held already"
_NOT_HELD: Final = "nobody holds it"


class KeptTime(msgspec.Struct, frozen=True, kw_only=True):
    """How long something is kept after its end."""

    what: str
    """`done`, `failed`, `findings`, `outputs`, `results`, `dead_letters`, `events`, `journal` or
    `archive`."""
    actor_id: str | None
    """Whose; null: of every actor that says nothing of its own."""
    kept_s: int


class RetentionHold(msgspec.Struct, frozen=True, kw_only=True):
    """What people hold: nothing of it goes."""

    kind: str
    """`subject`, `actor` or `episode`."""
    held: str
    since: datetime | None
    by: str
    reason: str


class RetentionView(msgspec.Struct, frozen=True, kw_only=True):
    """How long a stack keeps things, and how far that is carried out."""

    kept: Sequence[KeptTime]
    """What is not named is kept for ever."""
    holds: Sequence[RetentionHold]
    cuts: Sequence[RetentionCut]
    """The times before which things have left the tables."""
    old: Sequence[OldRows]
    """What is old enough to leave now, and has not yet."""
    last: RunReport | None
    """The last run; null: there was none, or nobody knows."""


class RetentionOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has let go; of a dry run, what it would have."""

    is_dry: bool
    steps: Sequence[StepReport]
    old: Sequence[OldRows]
    """What was old enough to leave the tables before the run."""
    deleted: Mapping[str, int]
    """Table → rows that were deleted; of a dry run none."""


@dataclass(frozen=True)
class RetentionCalls:
    """Calls about how long things are kept: `client.retention`."""

    _connections: Connections

    async def show(self) -> RetentionView:
        """Return how long things are kept, what is held, what is over due, and the last run."""
        from engine.retention.rules import cuts_at
        from engine.retention.store import read_state
        from engine.retention.worker import last_run
        from projections.postgres.prune import count_old

        clock = self._connections.clock
        async with self._connections.log(is_reading=True) as ports:
            state, last = await read_state(ports, clock=clock), await last_run(ports.gates)
        cuts = cuts_at(clock.now(), state.times, known=state.cuts)
        async with self._connections.rows() as pool:
            old = await count_old(pool, self._connections.stack, cuts)
        times = state.times
        whose = [(None, times.stack), *((each, kept) for each, kept in times.actors.items())]
        return RetentionView(
            kept=[
                KeptTime(what=what, actor_id=actor_id, kept_s=kept_s)
                for actor_id, kept in whose
                for what, kept_s in kept.items()
            ],
            holds=_holds(state),
            cuts=state.cuts,
            old=old,
            last=last,
        )

    async def run(self, *, dry_run: bool = False, by: str | None = None) -> RetentionOutcome:
        """Let go what is old now, and do not wait for the node that does so every hour.

        Args:
            dry_run: change nothing, and return what would be done.

        Raises:
            Trouble: a node is at it, or the rows do not show yet what the log has.
        """
        from engine.retention.rules import cuts_at
        from engine.retention.store import read_state
        from engine.retention.worker import run_steps
        from projections.postgres.prune import count_old

        connections, name = self._connections, self._connections.who(by)
        clock, stack = connections.clock, connections.stack
        async with connections.log() as ports, connections.rows() as pool:
            state = await read_state(ports, clock=clock)
            old = await count_old(pool, stack, cuts_at(clock.now(), state.times, known=state.cuts))
            if dry_run:
                report = await run_steps(
                    ports,
                    by=name,
                    clock=clock,
                    check=_may_always,
                    is_dry=True,
                    steps=_steps(pool, stack),
                )
                return RetentionOutcome(is_dry=True, steps=report.steps, old=old, deleted={})
            steps = await self._run(ports, name, _steps(pool, stack))
            deleted = await self._prune(ports)
        return RetentionOutcome(is_dry=False, steps=steps, old=old, deleted=deleted)

    async def hold(
        self,
        kind: str,
        held: str,
        *,
        reason: str = "",
        unseen: bool = False,
        by: str | None = None,
    ) -> OrderOutcome:
        """Hold something: nothing of it goes, however old it is, until it is released.

        Args:
            kind: `subject`, `actor` or `episode`.
            held: the subject's id alone, the actor, or the episode's id or its beginning.
            unseen: hold it though the tables have nothing of it.

        Raises:
            Mistake: there is no such kind, or nothing can be called so.
            NotFound: the tables have nothing of it.
            Trouble: it is held, and the rows do not know that yet; call it again.
        """
        of, name = _kind(kind), self._connections.who(by)
        whole = await self._seen(of, _held(held), unseen=unseen)
        is_new = await self._order(HoldAdded(kind=of, held=whole, by=name, reason=reason))
        return OrderOutcome(is_new=is_new, says=_ADDED if is_new else _HELD_ALREADY)

    async def release(
        self, kind: str, held: str, *, reason: str = "", by: str | None = None
    ) -> OrderOutcome:
        """Let go of what is held: it is kept for as long as everything else again.

        Args:
            held: as for `hold`; the beginning of an episode's id is enough, if it is one's alone.

        Raises:
            Mistake: there is no such kind, or nothing can be called so.
        """
        of, name, whole = _kind(kind), self._connections.who(by), _held(held)
        if of is HoldKind.EPISODE:
            ids = [each.held for each in await self.holds() if each.kind == kind]
            begun = [each for each in ids if each.startswith(whole)]
            whole = begun[0] if len(begun) == 1 else whole
        is_new = await self._order(HoldRemoved(kind=of, held=whole, by=name, reason=reason))
        return OrderOutcome(is_new=is_new, says=_REMOVED if is_new else _NOT_HELD)

    async def holds(self) -> Sequence[RetentionHold]:
        """Return what is held, by whom and why."""
        from engine.retention.store import read_state

        async with self._connections.log(is_reading=True) as ports:
            return _holds(await read_state(ports, clock=self._connections.clock))

    async def _seen(self, kind: HoldKind, held: str, *, unseen: bool) -> str:
        """Return what is to be held as the tables have it: a hold of nothing keeps nothing."""
        connections = self._connections
        if kind is HoldKind.EPISODE:
            held = str(await EpisodeCalls(connections).find(held))
        if unseen:
            return held
        async with connections.rows() as pool:
            if await reader.is_seen(pool, connections.stack, kind.value, held):
                return held
        value = held.partition("/")[2]
        remedy = "give --unseen to hold what may come"
        if kind is HoldKind.SUBJECT and value:
            remedy = f"a subject is held by its value alone, such as {value!r}; or {remedy}"
        raise NotFound(f"the tables have nothing of {kind.value} {held!r}", remedy=remedy)

    async def _order(self, event: OrderEvent) -> bool:
        """Give an order, and return whether it is new once the rows know it."""
        from engine.orders.store import give_order

        async with self._connections.log() as ports:
            is_new = await give_order(ports, event, clock=self._connections.clock)
            if isinstance(event, HoldAdded):  # guard: held-once-rows-know
                await self._wait_level(ports, Stream.STATE)
        return is_new

    async def _run(
        self, ports: Ports, name: str, steps: Sequence[RetentionStep]
    ) -> Sequence[StepReport]:
        from engine.retention.worker import run_steps
        from engine.runtime.leases import lease_of

        clock, node = self._connections.clock, self._connections.node
        async with lease_of(ports.leases, RETENTION, holder=node, clock=clock) as check:
            if check is None:
                raise Trouble("another process lets go what is old now", remedy="try again later")
            report = await run_steps(ports, by=name, clock=clock, check=check, steps=steps)
            return report.steps

    async def _prune(self, ports: Ports) -> Mapping[str, int]:
        from projections.postgres.prune import prune

        await self._wait_level(ports, Stream.STATE)
        async with self._connections.rows() as pool:
            return (await prune(ports, pool, clock=self._connections.clock)).deleted

    async def _wait_level(self, ports: Ports, stream: Stream) -> None:
        from projections.postgres.progress import caught_up, heads

        newest = await heads(ports, [stream])
        async with self._connections.rows() as pool:
            await caught_up(pool, ports.stack, newest, timeout_s=LEVEL_S)


def _holds(state: RetentionState) -> Sequence[RetentionHold]:
    return [
        RetentionHold(
            kind=each.kind.value, held=each.held, since=each.at, by=each.by, reason=each.reason
        )
        for each in state.hold_orders
        if each.kind is not None
    ]


def _steps(pool: Pool, stack: Stack) -> Sequence[RetentionStep]:
    """Return what a run does that needs no archive."""
    from engine.archive.purge_dead_letters import PurgeDeadLetters
    from engine.retention.worker import STEPS
    from vigil.asking.archiving import rows_in

    return [*STEPS, PurgeDeadLetters(partial(rows_in, pool, stack))]


def _may_always() -> None:
    """Let a dry run go on: it changes nothing."""


def _kind(kind: str) -> HoldKind:
    checked_one_of("kind", kind, [each.value for each in HoldKind])
    return HoldKind(kind)


def _held(held: str) -> str:
    if not held.strip():
        raise Mistake("held: give the id of a subject, an actor or an episode")
    return held
