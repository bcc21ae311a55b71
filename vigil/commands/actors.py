"""`vigil actors`: who runs them, what waits for them, why they did not fire, pausing, defining."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

import msgspec
import typer
from typer import Argument, Option

from engine.app.actor import Actor
from engine.app.checks import Breaker
from engine.cluster.modes import PauseOrder
from engine.cluster.nodes import ExpectationInfo, known
from engine.episodes.breakers.breaker import CLOSED, BreakerState
from engine.triggers import schedule
from projections.errors import NotCaughtUp, PostgresUnavailable, QueryRefused
from projections.postgres.pool import Pool
from projections.postgres.progress import caught_up, heads
from streams.clock import SystemClock
from streams.errors import UnreadableEvent
from streams.key_changes import Change, change_key
from streams.keys import COOLDOWNS, breaker_key, pause_key
from streams.model.events.definitions import DefinitionKind
from streams.model.service_levels import ServiceLevel
from streams.model.triggers import AdaptiveBudget
from streams.ports.all import Ports
from streams.ports.bucket import Bucket, BucketEntry
from streams.subjects import Stack
from vigil import options
from vigil.asking import stack as stacks
from vigil.asking.connect import pooled, with_ports
from vigil.asking.refusals import REFUSAL_COLUMNS, REFUSAL_SPARE, refusal_row
from vigil.asking.requests import waiting
from vigil.asking.rows import answer
from vigil.commands import definitions
from vigil.errors import Trouble
from vigil.options import By, IsJson, Limit, Timeout, who
from vigil.printing import tables
from vigil.printing.output import show_record, show_rows
from vigil.printing.tables import Row, as_words
from vigil.settings import Config

app = typer.Typer(no_args_is_help=True)

COLUMNS: Final = (
    "actor_id", "domain", "source", "nodes", "waking", "paused", "expectations",
    "queued", "running", "blocked", "events", "due", "commands",
)  # fmt: skip
SPARE: Final = ("expectations", "domain", "source", "waking", "commands", "due", "events")

DRAIN_S: Final = 600.0

LOOK_S: Final = 0.5

CALM_LOOKS: Final = 2
"""Looks in a row that find nothing: a node may open an episode before it hears of the pause."""

CATCH_UP_S_MAX: Final = 10.0

PER_NODE: Final = "per node"
"""The state of a breaker that each node has one of."""

_CLOCK: Final = SystemClock()

ActorId: TypeAlias = Annotated[str, Argument(metavar="ACTOR", help="The actor's id.")]

Counts: TypeAlias = Mapping[str, Mapping[str, object]]
"""Actor → how many of its episodes are queued, how many run, and how many are blocked."""


@app.command("list")
def list_(ctx: typer.Context, *, is_json: IsJson = False) -> None:
    """List the actors that nodes have, that were defined, that are paused, or have open episodes.

    Events, due timers (fires by hand, ticks, debounced events) and commands are those that wait or
    are being handled. Without Postgres, queued, running and blocked stay empty.
    """
    config = options.config(ctx)

    async def listed(ports: Ports) -> list[Row]:
        seen, counts = await stacks.read_stack(ports), await _counts_if_any(config)
        defined = [each.id for each in seen.definitions if each.kind is DefinitionKind.AGENT]
        names = sorted({*seen.actors(), *seen.orders.pauses, *defined, *(counts or {})})
        return [await _actor_row(ports, seen, counts, name) for name in names]

    rows = with_ports(config, listed, is_reading=True)
    shown = rows if is_json else [tables.in_words(stacks.in_short(row)) for row in rows]
    show_rows(shown, COLUMNS, is_json=is_json, spare=SPARE)


@app.command()
def show(ctx: typer.Context, *, actor: ActorId, is_json: IsJson = False) -> None:
    """Show one actor, and the state of each of its expectations."""
    config = options.config(ctx)

    async def shown(ports: Ports) -> tuple[Row, list[Row]]:
        seen, counts = await stacks.read_stack(ports), await _counts_if_any(config)
        await stacks.require_known(config, ports, seen, actor)
        row = await _actor_row(ports, seen, counts, actor)
        row = {**row, **await stacks.story_columns(ports, *stacks.defined_by(actor))}
        expectations, debounced = (
            known(seen.nodes, actor) or {},
            await stacks.debounced_of(ports, actor),
        )
        return row, [
            await _expectation_row(ports, actor, name, each, debounced=debounced.get(name, 0))
            for name, each in sorted(expectations.items())
        ]

    row, expectations = with_ports(config, shown, is_reading=True)
    if is_json:
        show_record({**row, "expectations": expectations}, is_json=True)
        return
    for each in (row, *expectations):
        show_record(_in_words(each), is_json=False)
        print()


@app.command()
def pause(
    ctx: typer.Context,
    *,
    actor: ActorId,
    reason: options.Reason = "",
    by: By = None,
    is_waiting: Annotated[
        bool, Option("--wait", help="Wait until nothing of it is queued or running.")
    ] = False,
    timeout_s: Timeout = DRAIN_S,
) -> None:
    """Pause an actor: no node opens episodes of it. Open episodes go on, and new events wait."""
    config = options.config(ctx)
    order = PauseOrder(by=who(config, by), reason=reason, at=_CLOCK.now())

    async def paused(ports: Ports) -> str:
        seen = await stacks.read_stack(ports)
        await stacks.require_plausible(config, ports, seen, actor)
        await ports.registry.put(pause_key(actor), msgspec.json.encode(order))
        is_up = actor in seen.actors()
        return f"{actor}: paused" + ("" if is_up else "; no node that is up has it")

    done = with_ports(config, paused)
    with waiting(f"{actor} stays paused; `vigil actors resume {actor}` ends that"):
        print(done, flush=True)
        if is_waiting:
            with_ports(config, lambda ports: _wait_drained(config, ports, actor, timeout_s))
            print(f"{actor}: drained")


@app.command()
def resume(ctx: typer.Context, *, actor: ActorId) -> None:
    """Resume a paused actor: nodes open episodes again, first for events that have waited."""
    config = options.config(ctx)

    async def resumed(ports: Ports) -> str:
        seen = await stacks.read_stack(ports)
        if await ports.registry.get(pause_key(actor)) is None:
            await stacks.require_known(config, ports, seen, actor)
            return f"{actor}: was not paused"
        await ports.registry.delete(pause_key(actor))
        return f"{actor}: resumed"

    print(with_ports(config, resumed))


@app.command()
def reset(
    ctx: typer.Context,
    *,
    actor: ActorId,
    expectation: Annotated[str, Argument(metavar="EXPECTATION", help="Its name.")],
) -> None:
    """Close the circuit breaker of an expectation, and forget the failures that it has counted."""
    config = options.config(ctx)

    async def closed(ports: Ports) -> str:
        seen = await stacks.read_stack(ports)
        await stacks.require_plausible(config, ports, seen, actor)
        _require_breaker(seen, actor, expectation)
        was = await _close(ports.gates, breaker_key(actor, expectation))
        return f"{actor}, {expectation}: {was}"

    print(with_ports(config, closed))


@app.command()
def why(
    ctx: typer.Context,
    *,
    actor: ActorId,
    expectation: Annotated[str, Argument(metavar="EXPECTATION", help="Its name.")],
    limit: Limit = 20,
    is_json: IsJson = False,
) -> None:
    """List why events did not fire an expectation, the newest first, with what it compared.

    The newest 200 of the last 24 hours are kept. `vigil events why ID` tells of one event.
    """
    config = options.config(ctx)

    async def found(ports: Ports) -> tuple[list[Row], str]:
        refusals = await ports.refusals.newest(actor, expectation)
        if not refusals:
            seen = await stacks.read_stack(ports)
            await stacks.require_plausible(config, ports, seen, actor)
            stacks.require_expectation(seen, actor, expectation)
        why_none = f"no event was refused in the last 24 hours, for {expectation} of {actor}"
        return [refusal_row(each) for each in refusals[:limit]], why_none

    rows, why_none = with_ports(config, found, is_reading=True)
    show_rows(rows, REFUSAL_COLUMNS, is_json=is_json, spare=REFUSAL_SPARE, why_none=why_none)


definitions.add_to(app)


def _in_words(row: Row) -> Row:
    """Return a row of `show` as people read it: nothing that is as by default."""
    usual: Mapping[str, Row] = {
        "limits": vars(Actor("any")),
        "options": {
            "adaptive_budget": msgspec.to_builtins(AdaptiveBudget()),
            "breaker": msgspec.to_builtins(Breaker()),
            "service_level": msgspec.to_builtins(ServiceLevel()),
        },
    }
    said = {
        column: as_words(value, usual=usual.get(column)) or None
        for column, value in row.items()
        if isinstance(value, Mapping)
    }
    if "source" in row:
        said |= {"source": stacks.source_in_words(row), "revisions": None}
    return tables.in_words({**row, **said})


async def _wait_drained(config: Config, ports: Ports, actor: str, timeout_s: float) -> None:
    """Wait until nothing of a paused actor is queued or runs, and print what is left."""
    async with pooled(config) as pool:
        until_s, left, calm = _CLOCK.monotonic_s() + timeout_s, "", 0
        while calm < CALM_LOOKS:
            if calm or left:
                await _CLOCK.sleep(LOOK_S)
            before, left = left, await _left(ports, pool, actor)
            calm = 0 if left else calm + 1
            if left and left != before:
                print(left, flush=True)
            if left and _CLOCK.monotonic_s() > until_s:
                raise Trouble(f"{actor} is not drained after {timeout_s:g} s: {left}")


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


async def _counts_if_any(config: Config) -> Counts | None:
    try:
        async with pooled(config) as pool:
            return await _counts(pool, config.stack)
    except (PostgresUnavailable, QueryRefused):
        return None


async def _counts(pool: Pool, stack: Stack) -> Counts:
    found = await answer(pool, stack, "unended_by_actor")
    return {str(row["actor_id"]): row for row in found.as_rows()}


async def _actor_row(
    ports: Ports, seen: stacks.StackView, counts: Counts | None, actor: str
) -> Row:
    infos = {node.name: node.actors[actor] for node in seen.nodes if actor in node.actors}
    expectations = known(seen.nodes, actor) or {}
    paused, counted = seen.orders.pauses.get(actor), (counts or {}).get(actor, {})
    none = None if counts is None else 0
    # Several differ only while another version is being rolled out.
    newest = infos[max(infos)] if infos else None
    return {
        "actor_id": actor,
        "domain": newest.domain if newest else None,
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


async def _expectation_row(
    ports: Ports, actor: str, name: str, said: ExpectationInfo, *, debounced: int
) -> Row:
    return {
        "expectation": name,
        "triggers": list(said.triggers),
        "next_ticks": {spec: await _next(ports, actor, name, spec) for spec in said.schedules},
        "breaker": await _breaker(ports, actor, name, said),
        "cooling_down": len(await ports.gates.entries(under=f"{COOLDOWNS}.{actor}.{name}")),
        "waiting_for_calm": debounced,
        "options": said.options,
    }


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


async def _close(gates: Bucket, key: str) -> str:
    """Have the breaker at `key` be closed, and return what it was before, in words."""
    closed = msgspec.json.encode(CLOSED)

    async def decide(entry: BucketEntry | None) -> Change[str]:
        if entry is None:
            return "was closed already", None
        if entry.value == closed:
            return "was closed already", closed
        # A deleted key may stand again after a crash of the server: the breaker would be open.
        said = f"closed; it was {_breaker_in_words(entry)}"
        return said, closed  # guard: reset-breaker-stored-closed

    return await change_key(gates, key, decide)


def _breaker_in_words(entry: BucketEntry) -> str:
    try:
        state = msgspec.json.decode(entry.value or b"", type=BreakerState)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "unreadable"
    since = f" since {state.opened_at:%Y-%m-%d %H:%M:%S} UTC" if state.opened_at else ""
    failed = f"; failed: {', '.join(state.failures)}" if state.failures else ""
    return f"{state.status.replace('_', ' ')}{since}{failed}"


def _require_breaker(seen: stacks.StackView, actor: str, expectation: str) -> None:
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
