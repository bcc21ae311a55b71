"""`vigil events`: what became of one, and what rules would do with those of the last time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Argument, Option

from streams.clock import SystemClock
from vigil import options
from vigil.client.client import Client
from vigil.client.events import REPLAYED_DEFAULT
from vigil.commands.call import call
from vigil.errors import Mistake
from vigil.options import IsJson, IsWide
from vigil.printing import columns
from vigil.printing.columns import SENTENCE, Column, Form, Listing
from vigil.printing.output import say_aside, show_record, show_sheet, show_table
from vigil.printing.tables import Row

if TYPE_CHECKING:
    from engine.operations.events.why_event import EventVerdict, EventVerdicts
    from engine.operations.events.would_fire import Replay, WouldRuling
    from vigil.asking.would import EventsReplayed

app = typer.Typer(no_args_is_help=True)

FIRE: Final = "fire"

EVENTS_MAX: Final = 10_000_000
"""Most events that are read: each takes some 10 µs for each expectation."""

SHOWN_MAX: Final = 1_000

COUNTS: Final = Listing(
    (
        Column("actor", "actor_id"),
        Column("expectation", "expectation_id"),
        Column("would", "ruling"),
        Column("events", "events"),
    )
)
WOULD: Final = Listing(
    (
        Column("at", "at", Form.TIME),
        Column("expectation", "expectation_id"),
        Column("event", "event"),
        Column("event id", "event_id"),
        Column("about", "subject_id"),
        Column("would", "ruling"),
        Column("episode", "episode_id", Form.ID),
        Column("compared", "compared_with", room=SENTENCE),
    ),
    spare=("episode", "event", "compared", "about", "at"),
    wraps=("compared",),
)
VERDICTS: Final = Listing(
    (
        Column("actor", "actor_id"),
        Column("expectation", "expectation_id"),
        Column("outcome", "outcome"),
        Column("why", "why", room=SENTENCE),
        Column("episode", "episode_id", Form.ID),
    ),
    spare=("why", "episode"),
    wraps=("why",),
)

_CLOCK: Final = SystemClock()


@app.command()
def why(
    ctx: typer.Context,
    *,
    event_id: Annotated[str, Argument(metavar="ID", help="The event's id.")],
    is_wide: IsWide = False,
    is_json: IsJson = False,
) -> None:
    """Tell what each expectation did with an event: the episode it opened, or why it did not.

    Of the last 24 hours, and the newest 200 refusals of each expectation. Beyond that, only the
    episodes of an event are known.
    """
    found = call(ctx, lambda client: client.events.why(event_id))
    if is_json:
        rows = [_row(each) for each in found.verdicts]
        show_record({**_event_row(event_id, found), "verdicts": rows}, is_json=True)
        return
    print_verdicts(event_id, found, is_wide=is_wide, now=_CLOCK.now())


def print_verdicts(
    event_id: str, found: EventVerdicts, *, now: datetime, is_wide: bool = False
) -> None:
    """Print what each expectation did with an event."""
    if found.name:
        about = {each.refusal.subject for each in found.verdicts if each.refusal is not None}
        told = {
            "event": found.name,
            "about": ", ".join(sorted(filter(None, about))),
            "at": columns.moment(found.at, now),
            "note": found.why_none,
        }
        show_sheet(f"event {event_id}", columns.sheet(told, usual={}))
        print()
    rows = [_row(each) for each in found.verdicts]
    if not is_wide:
        rows = [{**row, "why": columns.in_brief(row["why"], now)} for row in rows]
    title = "What expectations did with it"
    show_table(rows, VERDICTS, is_wide=is_wide, title=title, why_none=found.why_none)


@app.command()
def would(
    ctx: typer.Context,
    *,
    file: Annotated[
        str,
        Option(
            help="The rules: a Python file with an app, such as rule.py or rule.py:app;"
            " or a definition, such as rule.yaml."
        ),
    ],
    since: Annotated[str, Option(help="The first event: a time, or how long ago.")] = "24h",
    actor: Annotated[str | None, Option(help="Only this actor of the file.")] = None,
    ruling: Annotated[
        str, Option(help="Which events to list: those that fire, or those of one reason.")
    ] = FIRE,
    show: Annotated[int, Option(min=0, max=SHOWN_MAX, help="Most events to list.")] = 20,
    limit: Annotated[
        int, Option(min=1, max=EVENTS_MAX, help="Most events to read.")
    ] = REPLAYED_DEFAULT,
    is_wide: IsWide = False,
    is_json: IsJson = False,
) -> None:
    """Tell what rules would have fired for the stack's own events that are kept. Changes nothing.

    Cooldown, debounce and equal causes are built from these events alone. Each episode is taken to
    end at once and well: no breaker opens, no subject is held, no lane is full.
    """
    from vigil.serving.rules import rules_in

    begins = options.read_past(since, what="--since", now=_CLOCK.now())
    assert begins is not None, "it has a default"
    name = options.config(ctx).stack.name
    actors = rules_in(file, stack=name, actor=actor, option="--file")

    async def replayed(client: Client) -> EventsReplayed:
        try:
            return await client.events.would(
                *actors, since=begins, limit=limit, kept_max=show, on_progress=say_aside
            )
        except Mistake as error:
            raise Mistake(f"--file {file}: {error}") from error

    found = call(ctx, replayed)
    counts = _count_rows(found.replay)
    first = [_would_row(each) for each in found.replay.kept if each.ruling == ruling][:show]
    more = "" if found.is_whole else f"; there are more, which --limit {limit} leaves out"
    if is_json:
        record = {
            "events": found.events,
            "unreadable": found.unreadable,
            "since": begins,
            "until": found.until,
            "is_whole": found.is_whole,
            "counts": counts,
            "first": first,
        }
        show_record(record, is_json=True)
        return
    print_would(counts, first, ruling, is_wide=is_wide)
    say_aside(f"{found.events:,} events since {begins:%Y-%m-%d %H:%M:%S} UTC{more}")


def print_would(
    counts: Sequence[Row], first: Sequence[Row], ruling: str, *, is_wide: bool = False
) -> None:
    """Print how many events would have had each ruling, and the first of one of them."""
    shown = [{**each, "events": f"{each['events']:,}"} for each in counts]
    show_table(shown, COUNTS, is_wide=is_wide)
    if first:
        print()
        title = "The first that would fire" if ruling == FIRE else f"The first refused: {ruling}"
        show_table(first, WOULD, is_wide=is_wide, title=title)


def _count_rows(replay: Replay) -> list[Row]:
    """Return how many events had each ruling; of those of which none fires, that, too."""
    rulings = {(actor, expectation, FIRE): 0 for actor, expectation in replay.watching}
    rulings |= replay.counts
    return [
        {"actor_id": actor, "expectation_id": expectation, "ruling": ruling, "events": count}
        for (actor, expectation, ruling), count in sorted(
            rulings.items(), key=lambda each: (each[0][:2], each[0][2] != FIRE, each[0][2])
        )
    ]


def _would_row(each: WouldRuling) -> Row:
    import msgspec

    return {
        "at": each.at,
        "event_id": each.event_id,
        "event": each.event,
        "seq": each.seq,
        "actor_id": each.actor,
        "expectation_id": each.expectation,
        "subject_id": each.subject or None,
        "ruling": each.ruling,
        "episode_id": each.episode_id or None,
        "instance_id": each.instance_id or None,
        "compared_with": each.why or None,
        "against": msgspec.to_builtins(each.against),
    }


def _event_row(event_id: str, found: EventVerdicts) -> Row:
    return {
        "event_id": event_id,
        "event": found.name or None,
        "at": found.at,
        "why_none": found.why_none or None,
    }


def _row(verdict: EventVerdict) -> Row:
    from vigil.asking.refusals import refusal_row

    return {
        "actor_id": verdict.actor,
        "expectation_id": verdict.expectation,
        "outcome": verdict.outcome,
        "why": verdict.why,
        "episode_id": verdict.episode_id or None,
        "instance_id": verdict.instance_id or None,
        "refusal": refusal_row(verdict.refusal) if verdict.refusal is not None else None,
    }
