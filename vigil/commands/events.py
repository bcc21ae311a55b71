"""`vigil events`: what became of one, and what rules would do with those of the last time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Argument, Option

from streams.clock import SystemClock
from vigil import options
from vigil.asking.connect import with_ports
from vigil.errors import Mistake
from vigil.options import IsJson
from vigil.printing.output import say_aside, show_record, show_rows
from vigil.printing.tables import Row

if TYPE_CHECKING:
    from engine.operations.why_event import EventVerdict, EventVerdicts
    from engine.operations.would_fire import Replay, WouldRuling

app = typer.Typer(no_args_is_help=True)

FIRE: Final = "fire"

EVENTS_DEFAULT: Final = 100_000
EVENTS_MAX: Final = 10_000_000
"""Most events that are read: each takes some 10 µs for each expectation."""

SHOWN_MAX: Final = 1_000

COUNT_COLUMNS: Final = ("actor_id", "expectation_id", "ruling", "events")
WOULD_COLUMNS: Final = (
    "at", "expectation_id", "event", "event_id", "subject_id", "ruling", "episode_id",
    "compared_with",
)  # fmt: skip
WOULD_SPARE: Final = ("episode_id", "event", "subject_id", "at", "compared_with")
WHY_COLUMNS: Final = ("actor_id", "expectation_id", "outcome", "why")

_CLOCK: Final = SystemClock()


@app.command()
def why(
    ctx: typer.Context,
    *,
    event_id: Annotated[str, Argument(metavar="ID", help="The event's id.")],
    is_json: IsJson = False,
) -> None:
    """Tell what each expectation did with an event: the episode it opened, or why it did not.

    Of the last 24 hours, and the newest 200 refusals of each expectation. Beyond that, only the
    episodes of an event are known.
    """
    from engine.operations.why_event import why_event

    config = options.config(ctx)
    found = with_ports(
        config, lambda ports: why_event(ports, event_id, clock=_CLOCK), is_reading=True
    )
    rows = [_row(each) for each in found.verdicts]
    if is_json:
        show_record({**_event_row(event_id, found), "verdicts": rows}, is_json=True)
        return
    if found.name:
        show_record(_event_row(event_id, found), is_json=False)
        print()
    show_rows(rows, WHY_COLUMNS, is_json=False, why_none=found.why_none)


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
    ] = EVENTS_DEFAULT,
    is_json: IsJson = False,
) -> None:
    """Tell what rules would have fired for the stack's own events that are kept. Changes nothing.

    Cooldown, debounce and equal causes are built from these events alone. Each episode is taken to
    end at once and well: no breaker opens, no subject is held, no lane is full.
    """
    from engine.operations.would_fire import Replay
    from vigil.asking.would import replayed
    from vigil.serving.rules import rules_in

    config, now = options.config(ctx), _CLOCK.now()
    begins = options.read_past(since, what="--since", now=now)
    assert begins is not None, "it has a default"
    actors = rules_in(file, stack=config.stack.name, actor=actor, option="--file")
    replay = Replay(actors, stack=config.stack.name, kept_max=show)
    if not replay.watching:
        raise Mistake(f"--file {file}: no expectation in it is fired by events of the stack")
    found = with_ports(
        config,
        lambda ports: replayed(
            ports, replay, since=begins, limit=limit, clock=_CLOCK, say=say_aside
        ),
        is_reading=True,
    )
    counts = _count_rows(found.replay)
    first = [_would_row(each) for each in found.replay.kept if each.ruling == ruling][:show]
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
    show_rows(counts, COUNT_COLUMNS, is_json=False)
    if first:
        print()
        show_rows(first, WOULD_COLUMNS, is_json=False, spare=WOULD_SPARE)
    more = "" if found.is_whole else f"; there are more, which --limit {limit} leaves out"
    say_aside(f"{found.events:,} events since {begins:%Y-%m-%d %H:%M:%S} UTC{more}")


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
