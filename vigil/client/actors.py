"""Actors: who runs them, what waits for them, why they did not fire; pausing them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from engine.app.actor import Actor
from engine.app.checks import Breaker
from engine.cluster.differences import differences
from engine.cluster.nodes import ExpectationInfo, known
from engine.episodes.breakers.breaker import BreakerState
from engine.orders.store import give_order
from engine.triggers import schedule
from projections.errors import NotCaughtUp, PostgresUnavailable, QueryRefused
from projections.postgres.pool import Pool
from projections.postgres.progress import caught_up, heads
from projections.postgres.reader import list_service_levels
from projections.records import ServiceLevelRecord, record_of
from streams.errors import UnreadableEvent
from streams.keys import COOLDOWNS, breaker_key
from streams.model.events import ActorPaused, ActorResumed, BreakerReset
from streams.model.events.definitions import DefinitionKind
from streams.model.refusals import Refusal
from streams.model.service_levels import ServiceLevel
from streams.model.triggers import AdaptiveBudget
from streams.ports.all import Ports
from streams.ports.bucket import BucketEntry
from streams.subjects import Stack
from vigil.asking import stack as stacks
from vigil.asking.rows import answer
from vigil.asking.stack import StackView
from vigil.client.connections import Connections
from vigil.client.stack.orders import OrderOutcome
from vigil.errors import Trouble

DRAIN_S: Final = 600.0
"""How long to wait by default until nothing of a paused actor is left, in seconds."""

LOOK_S: Final = 0.5

CALM_LOOKS: Final = 2
"""Looks in a row that find nothing: a node may open an episode before it hears of the pause."""

CATCH_UP_S_MAX: Final = 10.0

PER_NODE: Final = "per node"
"""The state of a breaker that each node has one of."""

USUAL: Final[Mapping[str, Mapping[str, object]]] = {
    "limits": vars(Actor("any")),
    "options": {
        "adaptive_budget": msgspec.to_builtins(AdaptiveBudget()),
        "breaker": msgspec.to_builtins(Breaker()),
        "service_level": msgspec.to_builtins(ServiceLevel()),
    },
}
"""Column → what it has where an actor or an expectation says nothing else."""

Counts: TypeAlias = Mapping[str, Mapping[str, object]]
"""Actor → how many of its episodes are queued, how many run, and how many are blocked."""


class ActorSummary(msgspec.Struct, frozen=True, kw_only=True):
    """An actor: who runs it, and what waits for it."""

    actor_id: str
    domain: str | None
    description: str | None
    """What it is for, in words of whoever declared it."""
    spec_rev: str | None
    source: str | None
    """`code`, `definition` or `disabled`; None: no node has it."""
    revision: int | None
    revisions: Mapping[str, int]
    """Node → the revision that it has; 0: it declares it in code."""
    problems: Mapping[str, str]
    """Node → why it cannot run the definition."""
    nodes: Sequence[str]
    waking: Sequence[str]
    """The nodes that open episodes of it."""
    running_on: Sequence[str]
    slots: int
    limits: object
    paused: str
    """Why, or by whom; empty: it is not."""
    expectations: Sequence[str]
    queued: object
    running: object
    blocked: object
    """Its episodes, as the rows count them; None: there are no rows to ask."""
    events: object
    due: object
    commands: object
    """What waits for it or is being handled; a text if that cannot be known."""


class ExpectationSummary(msgspec.Struct, frozen=True, kw_only=True):
    """An expectation of an actor, and the state of its gate."""

    expectation: str
    triggers: Sequence[str]
    next_ticks: Mapping[str, object]
    """Schedule → when it is due next."""
    breaker: str | None
    """The state of its circuit breaker; None: it has none."""
    cooling_down: int
    waiting_for_calm: int
    options: Mapping[str, object]


class ActorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An actor, with all that is known of it."""

    summary: ActorSummary
    definition: Mapping[str, object]
    """Who applied or disabled it, when and why, in columns; empty: it is not defined as data."""
    expectations: Sequence[ExpectationSummary]
    differences: Sequence[str] = ()
    """How nodes declare it differently, in words; during a deploy they do."""


@dataclass(frozen=True)
class ActorCalls:
    """Calls about actors: `client.actors`. They read the log."""

    _connections: Connections

    async def list(self) -> Sequence[ActorSummary]:
        """Return the actors that nodes have, that were defined, are paused, or have open episodes.

        Without Postgres, `queued`, `running` and `blocked` are None.
        """
        async with self._connections.log(is_reading=True) as ports:
            seen, counts = await stacks.read_stack(ports), await self._counts_if_any()
            defined = [each.id for each in seen.definitions if each.kind is DefinitionKind.AGENT]
            names = sorted({*seen.actors(), *seen.orders.pauses, *defined, *(counts or {})})
            return [await _summary(ports, seen, counts, name) for name in names]

    async def get(self, actor: str) -> ActorRecord:
        """Return one actor, and the state of each of its expectations.

        Raises:
            NotFound: nobody knows it.
        """
        async with self._connections.log(is_reading=True) as ports:
            seen, counts = await stacks.read_stack(ports), await self._counts_if_any()
            await stacks.require_known(self._connections.raw_rows, ports, seen, actor)
            expectations = known(seen.nodes, actor) or {}
            debounced = await stacks.debounced_of(ports, actor)
            return ActorRecord(
                summary=await _summary(ports, seen, counts, actor),
                definition=await stacks.story_columns(ports, *stacks.defined_by(actor)),
                expectations=[
                    await _expectation(ports, actor, name, each, debounced=debounced.get(name, 0))
                    for name, each in sorted(expectations.items())
                ],
                differences=[each.says for each in differences(seen.nodes, only=actor)],
            )

    async def refusals(self, actor: str, expectation: str, *, limit: int = 20) -> Sequence[Refusal]:
        """Return why events did not fire an expectation, the newest first.

        The newest 200 of the last 24 hours are kept.

        Raises:
            NotFound: there are none, and nobody knows the actor, or it has no such expectation.
        """
        async with self._connections.log(is_reading=True) as ports:
            refusals = await ports.refusals.newest(actor, expectation)
            if not refusals:
                seen = await stacks.read_stack(ports)
                await stacks.require_plausible(self._connections.raw_rows, ports, seen, actor)
                stacks.require_expectation(seen, actor, expectation)
            return refusals[:limit]

    async def service_levels(
        self, *, actor: str | None = None, limit: int = 50
    ) -> Sequence[ServiceLevelRecord]:
        """Return what expectations promise and how many of their latest episodes have kept it.

        Of the rows, those that keep it worst first. An expectation that promises nothing, or none
        of whose episodes has ended, has none.
        """
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            rows = await list_service_levels(pool, stack, actor=actor, limit=limit)
        return [record_of(each, ServiceLevelRecord) for each in rows]

    async def pause(self, actor: str, *, reason: str = "", by: str | None = None) -> OrderOutcome:
        """Pause an actor: no node opens episodes of it. Open episodes go on, and new events wait.

        Raises:
            NotFound: nodes are up, and nobody knows it.
        """
        order = ActorPaused(actor_id=actor, by=self._connections.who(by), reason=reason)
        async with self._connections.log() as ports:
            seen = await stacks.read_stack(ports)
            await stacks.require_plausible(self._connections.raw_rows, ports, seen, actor)
            is_new = await give_order(ports, order, clock=self._connections.clock)
            without = "" if actor in seen.actors() else "; no node that is up has it"
            return OrderOutcome(is_new=is_new, says=f"paused{without}")

    async def resume(self, actor: str, *, reason: str = "", by: str | None = None) -> OrderOutcome:
        """Resume a paused actor: nodes open episodes again, first for events that have waited.

        Raises:
            NotFound: it was not paused, and nobody knows it.
        """
        order = ActorResumed(actor_id=actor, by=self._connections.who(by), reason=reason)
        async with self._connections.log() as ports:
            seen = await stacks.read_stack(ports)
            if await give_order(ports, order, clock=self._connections.clock):
                return OrderOutcome(is_new=True, says="resumed")
            await stacks.require_known(self._connections.raw_rows, ports, seen, actor)
            return OrderOutcome(is_new=False, says="was not paused")

    async def reset(
        self, actor: str, expectation: str, *, reason: str = "", by: str | None = None
    ) -> OrderOutcome:
        """Close the circuit breaker of an expectation, and forget the failures that it has counted.

        Raises:
            NotFound: nodes are up, and nobody knows the actor, or it has no such expectation.
            Trouble: the expectation has no circuit breaker that the cluster shares.
        """
        order = BreakerReset(
            actor_id=actor,
            expectation_id=expectation,
            by=self._connections.who(by),
            reason=reason,
        )
        async with self._connections.log() as ports:
            seen = await stacks.read_stack(ports)
            await stacks.require_plausible(self._connections.raw_rows, ports, seen, actor)
            _require_breaker(seen, actor, expectation)
            was = await _breaker_before(ports, actor, expectation)
            is_new = await give_order(ports, order, clock=self._connections.clock)
            return OrderOutcome(is_new=is_new, says=was)

    async def drain(self, actor: str, *, timeout_s: float = DRAIN_S) -> AsyncIterator[str]:
        """Wait until nothing of a paused actor is queued or runs; yield what is left, in words.

        Raises:
            NotFound: nobody knows it.
            Trouble: something is left after `timeout_s`.
        """
        clock = self._connections.clock
        async with self._connections.log() as ports, self._connections.rows() as pool:
            seen = await stacks.read_stack(ports)
            # guard: unknown-actor-not-drained
            await stacks.require_known(self._connections.raw_rows, ports, seen, actor)
            until_s, left, calm = clock.monotonic_s() + timeout_s, "", 0
            while calm < CALM_LOOKS:
                if calm or left:
                    await clock.sleep(LOOK_S)
                before, left = left, await _left(ports, pool, actor)
                calm = 0 if left else calm + 1
                if left and left != before:
                    yield left
                if left and clock.monotonic_s() > until_s:
                    raise Trouble(f"{actor} is not drained after {timeout_s:g} s: {left}")

    async def _counts_if_any(self) -> Counts | None:
        try:
            async with self._connections.raw_rows() as pool:
                return await _counts(pool, self._connections.stack)
        except (PostgresUnavailable, QueryRefused, Trouble):
            return None


async def _left(ports: Ports, pool: Pool, actor: str) -> str:
    nodes = (await stacks.read_stack(ports)).nodes
    waking = [each.name for each in nodes if actor in each.actors and each.actors[actor].wakes]
    commands = await ports.commands.backlog(actor)
    try:
        await caught_up(pool, ports.stack, await heads(ports), timeout_s=CATCH_UP_S_MAX)
    except NotCaughtUp:
        return "the rows are not up to date"
    counts = (await _counts(pool, ports.stack)).get(actor, {})
    found = {
        "nodes that do not know yet": len(waking),
        "queued": counts.get("queued"),
        "running": counts.get("running"),
        "commands on their way": commands,
    }
    return ", ".join(f"{count} {what}" for what, count in found.items() if count)


async def _counts(pool: Pool, stack: Stack) -> Counts:
    found = await answer(pool, stack, "unended_by_actor")
    return {str(row["actor_id"]): row for row in found.as_rows()}


async def _summary(
    ports: Ports, seen: StackView, counts: Counts | None, actor: str
) -> ActorSummary:
    infos = {node.name: node.actors[actor] for node in seen.nodes if actor in node.actors}
    expectations = known(seen.nodes, actor) or {}
    paused, counted = seen.orders.pauses.get(actor), (counts or {}).get(actor, {})
    none = None if counts is None else 0
    # Several differ only while another version is being rolled out.
    newest = infos[max(infos)] if infos else None
    row = {
        "actor_id": actor,
        "domain": newest.domain if newest else None,
        "description": (newest.description or None) if newest else None,
        "spec_rev": (newest.spec_rev or None) if newest else None,
        **stacks.origin(seen.nodes, seen.definitions, *stacks.defined_by(actor)),
        "nodes": sorted(infos),
        "waking": sorted(name for name, info in infos.items() if info.wakes),
        "running_on": sorted(name for name, info in infos.items() if info.runs),
        "slots": sum(info.slots for info in infos.values() if info.runs),
        "limits": (newest.limits or None) if newest else None,
        "paused": "" if paused is None else (paused.reason or f"by {paused.by}"),
        "expectations": sorted(expectations),
        **{each: counted.get(each, none) for each in ("queued", "running", "blocked")},
        **await stacks.backlog_of(ports, actor, expectations.values()),
    }
    return msgspec.convert(row, ActorSummary)


async def _expectation(
    ports: Ports, actor: str, name: str, said: ExpectationInfo, *, debounced: int
) -> ExpectationSummary:
    return ExpectationSummary(
        expectation=name,
        triggers=list(said.triggers),
        next_ticks={spec: await _next(ports, actor, name, spec) for spec in said.schedules},
        breaker=await _breaker(ports, actor, name, said),
        cooling_down=len(await ports.gates.entries(under=f"{COOLDOWNS}.{actor}.{name}")),
        waiting_for_calm=debounced,
        options=said.options,
    )


async def _next(ports: Ports, actor: str, expectation: str, spec: str) -> object:
    try:
        timer = await ports.timers.pending(actor, schedule.PURPOSE, f"{expectation}/{spec}")
    except UnreadableEvent:
        return stacks.UNREADABLE
    return None if timer is None else timer.due_at


async def _breaker(ports: Ports, actor: str, expectation: str, said: ExpectationInfo) -> str | None:
    """Return the state of an expectation's circuit breaker; None: it has none."""
    breaker = said.options.get("breaker")
    if breaker is None:
        return None
    if breaker["scope"] == "node":
        return PER_NODE
    entry = await ports.gates.get(breaker_key(actor, expectation))
    if entry is None or entry.value is None:
        return BreakerState().status
    try:
        return msgspec.json.decode(entry.value, type=BreakerState).status
    except (msgspec.DecodeError, UnicodeDecodeError):
        return stacks.UNREADABLE


async def _breaker_before(ports: Ports, actor: str, expectation: str) -> str:
    """Return what became of a breaker that is closed now, in words."""
    entry = await ports.gates.get(breaker_key(actor, expectation))
    if entry is None:
        return "was closed already"
    said = _breaker_in_words(entry)
    return "was closed already" if said == BreakerState().status else f"closed; it was {said}"


def _breaker_in_words(entry: BucketEntry) -> str:
    try:
        state = msgspec.json.decode(entry.value or b"", type=BreakerState)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "unreadable"
    since = f" since {state.opened_at:%Y-%m-%d %H:%M:%S} UTC" if state.opened_at else ""
    failed = f"; failed: {', '.join(state.failures)}" if state.failures else ""
    return f"{state.status.replace('_', ' ')}{since}{failed}"


def _require_breaker(seen: StackView, actor: str, expectation: str) -> None:
    """Refuse what has no breaker that the cluster shares; without nodes, nobody can tell."""
    stacks.require_expectation(seen, actor, expectation)
    expectations = known(seen.nodes, actor)
    if not expectations:
        return
    rules = expectations[expectation].options.get("breaker")
    if rules is None:
        raise Trouble(f"{expectation} of actor {actor} has no circuit breaker")
    if rules.get("scope") == "node":
        raise Trouble(
            f'the circuit breaker of {expectation} has scope="node": each node has one of its own, '
            "which is closed again when that node is restarted"
        )
