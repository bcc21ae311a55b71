"""Actors, from the command line: who runs them, what waits for them, and pausing them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from engine.app.actor import Actor
from engine.app.checks import Breaker
from engine.cluster.modes import PauseOrder
from engine.cluster.nodes import ActorInfo, ExpectationInfo, NodeInfo, known
from engine.episodes.breaker import BreakerState
from engine.triggers import schedule
from projections.errors import NotCaughtUp, PostgresUnavailable, QueryRefused
from projections.postgres.pool import Pool
from projections.postgres.progress import caught_up, heads
from streams.clock import SystemClock
from streams.errors import UnreadableEvent
from streams.keys import COOLDOWNS, breaker_key, pause_key
from streams.model.events.definitions import DefinitionKind
from streams.ports.all import Ports
from streams.subjects import Stack
from vigil import questions, tables
from vigil.editions import defined_by, origin, source_in_words
from vigil.errors import Trouble
from vigil.looking import Look, look_at, require_known, require_plausible
from vigil.settings import Reading
from vigil.stories import told
from vigil.tables import Row, as_words
from vigil.waiting import UNREADABLE, held, waiting
from vigil.who import who
from vigil.work import connected, pooled

LOOK_S: Final = 0.5
"""Between two looks at an actor that is being drained, in seconds."""

CALM_LOOKS: Final = 2
"""Looks in a row that find nothing: what a node opens while it hears of the pause comes in time."""

CATCH_UP_S_MAX: Final = 10.0
"""Longest wait for the rows at each look, in seconds."""

PER_NODE: Final = "per node"
"""State of a circuit breaker that each node has one of: nobody else knows it."""

_CLOCK: Final = SystemClock()

Counts = Mapping[str, Mapping[str, object]]
"""Actor → how many of its episodes are queued, how many run, and how many are blocked."""


def list_actors(reading: Reading) -> list[Row]:
    """Return a row for each actor that nodes have, was defined, is paused or has open episodes.

    Raises:
        Unavailable, Incompatible: the log is away. Without rows their columns are empty.
    """

    async def asked() -> list[Row]:
        async with connected(reading, creates=False) as ports:
            seen, counts = await look_at(ports), await _counts_if_any(reading)
            defined = [each.id for each in seen.editions if each.kind is DefinitionKind.AGENT]
            names = sorted({*seen.actors(), *seen.orders.pauses, *defined, *(counts or {})})
            return [await _actor_row(ports, seen, counts, name) for name in names]

    return asyncio.run(asked())


def show_actor(reading: Reading, actor: str) -> tuple[Row, list[Row]]:
    """Return an actor's row, and one for each of its expectations.

    Raises:
        BadName: `actor` cannot name an actor.
        Trouble: nobody knows it.
        Unavailable, Incompatible: the log is away.
    """

    async def asked() -> tuple[Row, list[Row]]:
        async with connected(reading, creates=False) as ports:
            seen, counts = await look_at(ports), await _counts_if_any(reading)
            await require_known(reading, ports, seen, actor)
            row = await _actor_row(ports, seen, counts, actor)
            row = {**row, **await told(ports, *defined_by(actor))}
            expectations, calming = known(seen.nodes, actor) or {}, await held(ports, actor)
            return row, [
                await _expectation_row(ports, actor, name, each, held=calming.get(name, 0))
                for name, each in sorted(expectations.items())
            ]

    return asyncio.run(asked())


def in_words(row: Row) -> Row:
    """Return a row of `show_actor` as people read it: nothing that is as by default."""
    usual: Mapping[str, Row] = {
        "limits": vars(Actor("any")),
        "options": {"breaker": msgspec.to_builtins(Breaker())},
    }
    said = {
        column: as_words(value, usual=usual.get(column)) or None
        for column, value in row.items()
        if isinstance(value, Mapping)
    }
    if "source" in row:
        said |= {"source": source_in_words(row), "revisions": None}
    return tables.in_words({**row, **said})


def pause(reading: Reading, actor: str, *, reason: str, by: str | None) -> str:
    """Have an actor woken nowhere, and return one line about it.

    Raises:
        BadName: `actor` cannot name an actor.
        Mistake: `by` is empty.
        Trouble: a node is up, and nobody knows the actor.
        Unavailable, Incompatible: the log is away.
    """
    order = PauseOrder(by=who(reading, by), reason=reason, at=_CLOCK.now())

    async def done() -> str:
        async with connected(reading, creates=False) as ports:
            seen = await look_at(ports)
            await require_plausible(reading, ports, seen, actor)
            await ports.registry.put(pause_key(actor), msgspec.json.encode(order))
            is_up = actor in seen.actors()
            return f"{actor}: paused" + ("" if is_up else "; no node that is up has it")

    return asyncio.run(done())


def resume(reading: Reading, actor: str) -> str:
    """Have an actor woken again, and return one line about it.

    Raises:
        BadName: `actor` cannot name an actor.
        Trouble: nobody knows it.
        Unavailable, Incompatible: the log is away.
    """

    async def done() -> str:
        async with connected(reading, creates=False) as ports:
            seen = await look_at(ports)
            if await ports.registry.get(pause_key(actor)) is None:
                await require_known(reading, ports, seen, actor)
                return f"{actor}: was not paused"
            await ports.registry.delete(pause_key(actor))
            return f"{actor}: resumed"

    return asyncio.run(done())


def wait_drained(
    reading: Reading, actor: str, *, say: Callable[[str], None], timeout_s: float
) -> None:
    """Wait until nothing of a paused actor is queued or runs. What is blocked needs no node.

    Args:
        reading: the settings.
        actor: a paused one.
        say: told what is left whenever that changes.
        timeout_s: longest wait, in seconds.

    Raises:
        Trouble: something is left after that.
        PostgresUnavailable, Unavailable: nobody can be asked.
    """

    async def done() -> None:
        async with connected(reading, creates=False) as ports, pooled(reading) as pool:
            until_s, left, calm = _CLOCK.monotonic_s() + timeout_s, "", 0
            while calm < CALM_LOOKS:
                if calm or left:
                    await _CLOCK.sleep(LOOK_S)
                before, left = left, await _left(ports, pool, actor)
                calm = 0 if left else calm + 1
                if left and left != before:
                    say(left)
                if left and _CLOCK.monotonic_s() > until_s:
                    raise Trouble(f"{actor} is not drained after {timeout_s:g} s: {left}")

    asyncio.run(done())


async def _left(ports: Ports, pool: Pool, actor: str) -> str:
    """Return what is left of a paused actor, in words; empty: nothing."""
    waking = [node.name for node in (await look_at(ports)).nodes if _wakes(node, actor)]
    commands = await ports.inbox.backlog(actor)
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


def _wakes(node: NodeInfo, actor: str) -> bool:
    return actor in node.actors and node.actors[actor].wakes


async def _counts_if_any(reading: Reading) -> Counts | None:
    """Return what the rows say, or None if there are none to ask."""
    try:
        async with pooled(reading) as pool:
            return await _counts(pool, reading.stack)
    except (PostgresUnavailable, QueryRefused):
        return None


async def _counts(pool: Pool, stack: Stack) -> Counts:
    found = await questions.answer(pool, stack, "unended_by_actor")
    return {str(row["actor_id"]): row for row in found.as_rows()}


async def _actor_row(ports: Ports, seen: Look, counts: Counts | None, actor: str) -> Row:
    infos = {node.name: node.actors[actor] for node in seen.nodes if actor in node.actors}
    expectations = known(seen.nodes, actor) or {}
    paused, counted = seen.orders.pauses.get(actor), (counts or {}).get(actor, {})
    none = None if counts is None else 0
    return {
        "actor_id": actor,
        "domain": _newest(infos).domain if infos else None,
        "spec_rev": (_newest(infos).spec_rev or None) if infos else None,
        **origin(seen.nodes, seen.editions, *defined_by(actor)),
        "nodes": sorted(infos),
        "waking": sorted(name for name, info in infos.items() if info.wakes),
        "running_on": sorted(name for name, info in infos.items() if info.runs),
        "slots": sum(info.slots for info in infos.values() if info.runs),
        "limits": (_newest(infos).limits or None) if infos else None,
        "paused": "" if paused is None else (paused.reason or f"by {paused.by}"),
        "expectations": sorted(expectations),
        "queued": counted.get("queued", none),
        "running": counted.get("running", none),
        "blocked": counted.get("blocked", none),
        **await waiting(ports, actor, expectations.values()),
    }


def _newest(infos: Mapping[str, ActorInfo]) -> ActorInfo:
    """Return one of several; they differ only while another version is being rolled out."""
    return infos[max(infos)]


async def _expectation_row(
    ports: Ports, actor: str, name: str, said: ExpectationInfo, *, held: int
) -> Row:
    return {
        "expectation": name,
        "triggers": list(said.triggers),
        "next_ticks": {spec: await _next(ports, actor, name, spec) for spec in said.schedules},
        "breaker": await _breaker(ports, actor, name, said),
        "cooling_down": await _cooling(ports, actor, name),
        "waiting_for_calm": held,
        "options": said.options,
    }


async def _next(ports: Ports, actor: str, expectation: str, spec: str) -> object:
    """Return when a schedule ticks next; None: no tick of it is pending."""
    try:
        timer = await ports.timers.pending(actor, schedule.PURPOSE, f"{expectation}/{spec}")
    except UnreadableEvent:
        return UNREADABLE
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
        return UNREADABLE


async def _cooling(ports: Ports, actor: str, expectation: str) -> int:
    """Return for how many subjects an expectation has fired and rests."""
    return len(await ports.gates.entries(under=f"{COOLDOWNS}.{actor}.{expectation}"))
