"""`vigil fire`: an episode by hand."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Argument, Option

from engine.app.checks import LIMITS
from engine.app.tools import parse_overrides
from engine.validation import seconds_of
from streams.clock import SystemClock
from streams.model.money import usd_of
from streams.model.triggers import LogStrategy, Overrides
from vigil import options
from vigil.client.client import Client
from vigil.commands.call import call
from vigil.errors import Mistake
from vigil.printing.output import report_begun, say_begun, waiting

if TYPE_CHECKING:
    from vigil.client.episodes import EpisodeReceipt

DELAY_S_MAX: Final = 366 * 86_400
"""Longest `--in`, in seconds. A later time can be given with `--at`."""

_CLOCK: Final = SystemClock()


def fire(
    ctx: typer.Context,
    *,
    actor: Annotated[str, Argument(metavar="ACTOR", help="The actor's id.")],
    expectation: Annotated[
        str, Argument(metavar="EXPECTATION", help="The name of one of its expectations.")
    ],
    payload: Annotated[
        str, Option(help="A JSON object for the strategy; @FILE, or - for standard input.")
    ] = "{}",
    reason: options.Reason = "",
    key: Annotated[
        str | None, Option(help="Idempotency key: the same one opens no second episode.")
    ] = None,
    priority: Annotated[int, Option(help="Episodes with a higher number run earlier.")] = 0,
    at: Annotated[
        str | None, Option(metavar="TIME", help="When, such as 2030-01-31T09:00:00Z.")
    ] = None,
    within: Annotated[
        str | None, Option("--in", metavar="DURATION", help="When, such as 90s, 15m or 2d.")
    ] = None,
    is_dry: options.IsDry = False,
    overrides: options.OverridesText = None,
    metadata: Annotated[
        str, Option(help="A JSON object to find the episode by; @FILE, or - for standard input.")
    ] = "{}",
    budget: Annotated[
        str | None,
        Option(
            metavar="LIMITS",
            help="What it may use, whatever the expectation says: turns=5,wall_s=60,usd=0.50.",
        ),
    ] = None,
    revision: Annotated[
        int, Option(min=0, help="The revision of the actor's definition to run it on; 0: today's.")
    ] = 0,
    log_strategy: Annotated[
        LogStrategy | None, Option(help="What people may see of it, instead of what is declared.")
    ] = None,
    attempts_max: Annotated[
        int, Option(min=0, help="Crashes that end it, instead of what is declared; 0: that.")
    ] = 0,
    by: options.By = None,
    is_waiting: options.IsWaitingForEnd = False,
    timeout_s: options.Timeout = options.WAIT_S,
    is_json: options.IsJson = False,
) -> None:
    """Open an episode by hand, now or later, and print its id."""
    body = options.read_object(payload, what="--payload")
    when, replaced = time_of(at, within), None if overrides is None else overrides_of(overrides)
    limits = None if budget is None else budget_of(budget)
    labels = options.read_object(metadata, what="--metadata")

    async def send(client: Client) -> EpisodeReceipt:
        return await client.fire(
            actor,
            expectation,
            body,
            reason=reason,
            key=key,
            priority=priority,
            at=when,
            dry_run=is_dry,
            overrides=replaced,
            metadata=labels,
            budget=limits,
            revision=revision,
            log_strategy=None if log_strategy is None else log_strategy.value,
            attempts_max=attempts_max,
        )

    fired, row = call(ctx, send, by=by), None
    id_ = fired.episode_id
    with waiting(f"it goes on; `vigil episodes show {id_}` shows how far it is"):
        say_begun(actor, id_, used=fired.used, obstacle=fired.obstacle, is_json=is_json)
        if is_waiting:
            delay_s = 0.0 if when is None else max(0.0, (when - _CLOCK.now()).total_seconds())
            row = call(
                ctx,
                lambda client: client.episodes.describe_end(
                    id_, timeout_s=timeout_s, delay_s=delay_s
                ),
            )
    begun = {
        "episode_id": id_,
        "is_new": fired.is_new,
        "actor_id": actor,
        "expectation_id": expectation,
        "mode": "dry_run" if is_dry else "live",
        "at": when,
    }
    report_begun(begun, row, is_json=is_json)


def overrides_of(text: str, *, what: str = "--overrides") -> Overrides:
    """Return the overrides in `text`, read as by `options.read_bytes`."""
    try:
        return parse_overrides(options.read_bytes(text, what=what))
    except ValueError as error:
        raise Mistake(f"{what}: {error}") from error


def budget_of(text: str) -> dict[str, int | float | str]:
    """Return limit → value of `--budget`, such as `turns=5,wall_s=60,usd=0.50`."""
    return dict(_limit_of(part.strip()) for part in text.split(","))


def _limit_of(part: str) -> tuple[str, int | float | str]:
    name, _, value = part.partition("=")
    if name not in LIMITS:
        known = ", ".join(LIMITS)
        raise Mistake(
            f"--budget: {part!r}: write turns=5,wall_s=60,usd=0.50; the limits are {known}"
        )
    try:
        if name == "usd":
            return name, str(usd_of(value))
        return name, float(value) if name == "wall_s" else int(value)
    except ValueError as error:
        if name == "usd":
            raise Mistake(f"--budget: usd: {error}") from error
        kind = "number of seconds" if name == "wall_s" else "whole number"
        raise Mistake(f"--budget: {name}: {value!r} is not a {kind}") from error


def time_of(at: str | None, within: str | None) -> datetime | None:
    """Return the time of `--at` or `--in`; None: neither is given."""
    if at is not None and within is not None:
        raise Mistake("--at and --in both give the time; leave one out")
    if within is not None:
        try:
            delay_s = seconds_of(within, least_s=0, most_s=DELAY_S_MAX)
        except ValueError as error:
            raise Mistake(f"--in: {within!r}: write 90s, 15m or 2d, up to 366d") from error
        return _CLOCK.now() + timedelta(seconds=delay_s)
    if at is None:
        return None
    return options.read_time(at, what="--at")
