"""`vigil fire`: an episode by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from vigil.cli import context
from vigil.cli.output import WAIT_S, IsJson, Timeout, say_begun, waiting

if TYPE_CHECKING:
    from vigil.firing import Asked, Request


def fire(
    ctx: typer.Context,
    *,
    actor: Annotated[str, typer.Argument(metavar="ACTOR", help="The actor's id.")],
    expectation: Annotated[
        str, typer.Argument(metavar="EXPECTATION", help="The name of one of its expectations.")
    ],
    payload: Annotated[
        str, typer.Option(help="The payload, a JSON object; @FILE, or - for standard input.")
    ] = "{}",
    reason: Annotated[str, typer.Option(help="The reason, for people.")] = "",
    key: Annotated[
        str | None,
        typer.Option(help="Idempotency key: the same key opens no second episode."),
    ] = None,
    priority: Annotated[int, typer.Option(help="In a lane, a higher priority goes first.")] = 0,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="When to fire, such as 2030-01-31T09:00:00Z.")
    ] = None,
    within: Annotated[
        str | None,
        typer.Option("--in", metavar="DURATION", help="Delay of the fire, such as 90s, 15m or 2d."),
    ] = None,
    is_dry: Annotated[
        bool, typer.Option("--dry-run", help="Run it as a rehearsal, without effects outside.")
    ] = False,
    overrides: Annotated[
        str | None,
        typer.Option(
            help="Results for a dry run: a JSON object with tools,"
            " synthesis, persist_findings; @FILE, or - for standard input."
        ),
    ] = None,
    by: Annotated[str | None, typer.Option(help="The person; by default the current user.")] = None,
    is_waiting: Annotated[
        bool, typer.Option("--wait", help="Wait until it ends; exit code 1 unless it is done.")
    ] = False,
    timeout_s: Timeout = WAIT_S,
    is_json: IsJson = False,
) -> None:
    """Fire an expectation by hand, now or later, and print the episode's id."""
    from vigil import firing
    from vigil.who import who

    reading = context.reading(ctx)
    request = firing.Request(
        actor=actor,
        expectation=expectation,
        payload=firing.payload_of(payload),
        by=who(reading, by),
        reason=reason,
        key=key,
        priority=priority,
        at=firing.time_of(at, within),
        dry_run=is_dry,
        overrides=None if overrides is None else firing.overrides_of(overrides),
    )
    asked = firing.send(reading, request)
    row = None
    with waiting(f"it goes on; `vigil episodes show {asked.episode_id}` says how far it is"):
        say_begun(
            actor, asked.episode_id, used=asked.used, obstacle=asked.obstacle, is_json=is_json
        )
        if is_waiting:
            row = firing.wait_end(reading, asked.episode_id, at=request.at, timeout_s=timeout_s)
    if is_json:
        _print_json(request, asked, row)
    elif row is not None:
        print(_in_a_line(row))
    _exit_unless_done(row)


def _print_json(request: Request, asked: Asked, row: Mapping[str, object] | None) -> None:
    from vigil import tables

    said = {
        "episode_id": asked.episode_id,
        "is_new": asked.used is None,
        "actor_id": request.actor,
        "expectation_id": request.expectation,
        "mode": "dry_run" if request.dry_run else "live",
        "at": request.at,
    }
    print(tables.as_json(said if row is None else {**said, **row}))


def _in_a_line(row: Mapping[str, object]) -> str:
    """Return how an episode ended. Of a traceback, its end says what went wrong."""
    detail = str(row["error_detail"] or "").splitlines()[-1:]
    said = (row["status"], row["error_class"], *detail, row["summary"])
    return ": ".join(str(each) for each in said if each)


def _exit_unless_done(row: Mapping[str, object] | None) -> None:
    from streams.model.events import EndStatus
    from vigil.errors import EXIT_TROUBLE

    if row is not None and row["status"] != EndStatus.DONE:
        raise typer.Exit(EXIT_TROUBLE)
