"""`vigil actors`: who runs them, what waits for them, why they did not fire, pausing, defining."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Final, TypeAlias

import typer
from typer import Argument, Option

from streams.clock import SystemClock
from vigil import options
from vigil.asking.refusals import REFUSALS, refusal_row
from vigil.asking.stack import DISABLED, in_short, source_in_words
from vigil.client.actors import DRAIN_S, USUAL
from vigil.client.client import Client
from vigil.commands import definitions
from vigil.commands.call import call
from vigil.options import By, IsJson, IsWide, Limit, Timeout
from vigil.printing import columns, tables
from vigil.printing.columns import Column, Listing
from vigil.printing.output import rows_of, show_record, show_sheet, show_table, waiting
from vigil.printing.tables import Row, as_words

app = typer.Typer(no_args_is_help=True)

LISTING: Final = Listing(
    (
        Column("actor", "actor_id"),
        Column("state", "state"),
        Column("queued", "queued"),
        Column("running", "running"),
        Column("blocked", "blocked"),
        Column("backlog", "waiting"),
        Column("on nodes", "nodes"),
        Column("opens episodes on", "opened_on"),
        Column("source", "source"),
        Column("expectations", "expectations"),
        Column("domain", "domain"),
    ),
    spare=("domain", "source", "expectations", "opens episodes on", "on nodes", "backlog"),
)

LABELS: Final[Mapping[str, str]] = {
    "nodes": "nodes that have it",
    "waking": "nodes that open episodes",
    "running_on": "nodes that run episodes",
    "slots": "episodes at a time",
    "queued": "episodes queued",
    "running": "episodes running",
    "blocked": "episodes blocked",
    "events": "events that wait",
    "due": "timers that are due",
    "commands": "commands that wait",
    "cooling_down": "subjects that cool down",
    "waiting_for_calm": "subjects that wait for calm",
}
"""Column → what it is called where one actor or expectation is shown."""

_CLOCK: Final = SystemClock()

ActorId: TypeAlias = Annotated[str, Argument(metavar="ACTOR", help="The actor's id.")]


@app.command("list")
def list_(ctx: typer.Context, *, is_wide: IsWide = False, is_json: IsJson = False) -> None:
    """List the actors that nodes have, that were defined, that are paused, or have open episodes.

    Events, due timers (fires by hand, ticks, debounced events) and commands are those that wait or
    are being handled. Without Postgres, queued, running and blocked stay empty.
    """
    rows = rows_of(call(ctx, lambda client: client.actors.list()))
    print_actors(rows, is_json=is_json, is_wide=is_wide)


def print_actors(rows: Sequence[Row], *, is_json: bool = False, is_wide: bool = False) -> None:
    """Print a list of actors."""
    shown = rows if is_json else [_listed(row) for row in rows]
    show_table(shown, LISTING, is_json=is_json, is_wide=is_wide)


def _listed(row: Row) -> Row:
    """Return an actor as a table has it: what waits for it in one column, and no more than that."""
    counted = {"event": row["events"], "timer": row["due"], "command": row["commands"]}
    return {
        **tables.in_words(in_short(row)),
        "state": state_of(row),
        "waiting": tables.SEPARATOR.join(filter(None, map(_counted, counted, counted.values()))),
        "opened_on": None if row["waking"] == row["nodes"] else tables.as_list(row["waking"]),
    }


def state_of(row: Row) -> str:
    """Return whether an actor is paused, or disabled; empty: neither."""
    why, paused = str(row["paused"]), ""
    if why:
        paused = f"paused {why}" if why.startswith("by ") else f"paused: {why}"
    disabled = DISABLED if row["source"] == DISABLED else ""
    return tables.SEPARATOR.join(filter(None, (paused, disabled)))


def _counted(what: str, count: object) -> str:
    """Return how many there are in words; empty: none. A text says why that cannot be known."""
    if not isinstance(count, int):
        return f"{what}s: {count}" if count else ""
    return f"{count:,} {what}{'' if count == 1 else 's'}" if count else ""


@app.command()
def show(ctx: typer.Context, *, actor: ActorId, is_json: IsJson = False) -> None:
    """Show one actor, and the state of each of its expectations."""
    found = call(ctx, lambda client: client.actors.get(actor))
    (row,), expectations = rows_of([found.summary]), rows_of(found.expectations)
    row |= {**found.definition, "differences": list(found.differences)}
    if is_json:
        show_record({**row, "expectations": expectations}, is_json=True)
        return
    print_actor(row, expectations, now=_CLOCK.now())


def print_actor(row: Row, expectations: Sequence[Row], *, now: datetime) -> None:
    """Print one actor, and each of its expectations."""
    usual = {"slots": 0, "events": 0, "due": 0, "commands": 0, "cooling_down": 0}
    usual |= {"waiting_for_calm": 0}
    # Who has it does both, unless it is said.
    same = [each for each in ("waking", "running_on") if row[each] == row["nodes"]]
    none = {each: tables.NONE for each in ("waking", "running_on") if not row[each]}
    hidden = ["actor_id", "expectations", *same]
    told = columns.sheet(_in_words({**row, **none}), usual=usual, hidden=hidden, labels=LABELS)
    if row["paused"]:
        told["what to do"] = f"vigil actors resume {row['actor_id']}"
    show_sheet(f"actor {row['actor_id']}", told)
    for each in expectations:
        print()
        words = _in_words(with_ticks(each, now))
        told = columns.sheet(words, usual=usual, hidden=("expectation",), labels=LABELS)
        show_sheet(f"expectation {each['expectation']}", told, utc=False)


def with_ticks(row: Row, now: datetime) -> Row:
    """Return an expectation with the next tick of each schedule beside it, as people read both."""
    triggers, ticks, breaker = row["triggers"], row["next_ticks"], row["breaker"]
    assert isinstance(triggers, list)
    assert isinstance(ticks, Mapping)
    shown = [f"{columns.with_intervals(each)}{_next(ticks.get(each), now)}" for each in triggers]
    closed = f"{breaker} (ok)" if breaker == "closed" else breaker
    rest = {each: at for each, at in ticks.items() if each not in triggers}
    return {**row, "triggers": shown, "next_ticks": rest, "breaker": closed}


def _next(at: object, now: datetime) -> str:
    if not isinstance(at, datetime):
        return ""
    far = columns.age(at, now)
    return f" (next {far})" if far.startswith("in ") else f" (due {far} ago)"


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
    paused = call(ctx, lambda client: client.actors.pause(actor, reason=reason), by=by)
    with waiting(f"{actor} stays paused; `vigil actors resume {actor}` ends that"):
        print(f"{actor}: {paused.says}", flush=True)
        if is_waiting:
            call(ctx, partial(_print_left, actor=actor, timeout_s=timeout_s))
            print(f"{actor}: drained")


async def _print_left(client: Client, actor: str, timeout_s: float) -> None:
    async for left in client.actors.drain(actor, timeout_s=timeout_s):
        print(left, flush=True)


@app.command()
def resume(
    ctx: typer.Context, *, actor: ActorId, reason: options.Reason = "", by: By = None
) -> None:
    """Resume a paused actor: nodes open episodes again, first for events that have waited."""
    resumed = call(ctx, lambda client: client.actors.resume(actor, reason=reason), by=by)
    print(f"{actor}: {resumed.says}")


@app.command()
def reset(
    ctx: typer.Context,
    *,
    actor: ActorId,
    expectation: Annotated[str, Argument(metavar="EXPECTATION", help="Its name.")],
    reason: options.Reason = "",
    by: By = None,
) -> None:
    """Close the circuit breaker of an expectation, and forget the failures that it has counted."""
    closed = call(ctx, lambda client: client.actors.reset(actor, expectation, reason=reason), by=by)
    print(f"{actor}, {expectation}: {closed.says}")


@app.command()
def why(
    ctx: typer.Context,
    *,
    actor: ActorId,
    expectation: Annotated[str, Argument(metavar="EXPECTATION", help="Its name.")],
    limit: Limit = 20,
    is_wide: IsWide = False,
    is_json: IsJson = False,
) -> None:
    """List why events did not fire an expectation, the newest first, with what it compared.

    The newest 200 of the last 24 hours are kept. `vigil events why ID` tells of one event.
    """
    refusals = call(ctx, lambda client: client.actors.refusals(actor, expectation, limit=limit))
    rows = [refusal_row(each) for each in refusals]
    print_refusals(rows, f"{actor}.{expectation}", is_json=is_json, is_wide=is_wide)


def print_refusals(
    rows: Sequence[Row],
    of: str,
    *,
    is_json: bool = False,
    is_wide: bool = False,
    now: datetime | None = None,
) -> None:
    """Print why events did not fire an expectation: `of` is its actor's name and its own."""
    at = now or _CLOCK.now()
    brief = [{**row, "compared_with": columns.in_brief(row["compared_with"], at)} for row in rows]
    show_table(
        rows if is_json or is_wide else brief,
        REFUSALS,
        is_json=is_json,
        is_wide=is_wide,
        title=f"Events that did not fire {of}, and why (last 24 hours)",
        why_none=f"every event of the last 24 hours has fired {of}, or none came",
        now=at,
    )


definitions.add_to(app)


def _in_words(row: Row) -> Row:
    """Return a row of `show` as people read it: nothing that is as by default."""
    said = {
        column: as_words(value, usual=USUAL.get(column)) or None
        for column, value in row.items()
        if isinstance(value, Mapping)
    }
    if "source" in row:
        said |= {"source": source_in_words(row), "revisions": None}
    return tables.in_words({**row, **said})
