"""`vigil episodes cancel`: the named ones, or all of an actor."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from streams.model.events import EndStatus
from vigil import options
from vigil.client.client import Client
from vigil.commands.call import call, named
from vigil.errors import EXIT_TROUBLE, Mistake
from vigil.printing.output import show_rows
from vigil.settings import Config

if TYPE_CHECKING:
    from vigil.client.episodes import EpisodeToCancel

app = typer.Typer()


class Unended(StrEnum):
    """Statuses of episodes that can be canceled."""

    QUEUED = "queued"
    RUNNING = "running"
    BLOCKED = "blocked"
    PARKED = "parked"
    """Those of the blocked that wait for other code."""


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
    if actor is None:
        found = call(ctx, partial(_named, ids or (), is_latest=is_latest))
    else:
        found = call(ctx, partial(unended, actor, expectation=expectation, status=status))
    if actor is not None and found and not is_sure:
        options.require_consent(f"cancel {len(found):,} episodes of {actor}?")
    call(ctx, lambda client: client.episodes.cancel_each(found, reason=reason, say=_say), by=by)
    after = found
    if is_waiting:
        after = call(ctx, lambda client: client.episodes.wait_each(found, timeout_s=timeout_s))
    if is_json:
        show_rows([each.as_row() for each in after], (), is_json=True)
    elif actor is None:
        _print_each(after, options.config(ctx))
    else:
        counts = Counter(each.outlook for each in after)
        words = (f"{count:,} {outlook}" for outlook, count in counts.items())
        print(", ".join(words) or "nothing to cancel")
    canceled = EndStatus.CANCELED
    known = [each for each in after if each.status]
    if len(known) < len(after) or (is_waiting and any(e.status != canceled for e in known)):
        raise typer.Exit(EXIT_TROUBLE)


async def _named(
    texts: Sequence[str], client: Client, *, is_latest: bool
) -> Sequence[EpisodeToCancel]:
    wanted = [await named(client, each) for each in texts]
    latest = [await named(client, None, is_latest=True)] if is_latest else []
    return await client.episodes.read(wanted + latest)


async def unended(
    actor: str, client: Client, *, expectation: str | None, status: str | None
) -> Sequence[EpisodeToCancel]:
    """Return the unended episodes of an actor; `NotFound`: nobody knows the actor."""
    return await client.episodes.unended(actor, expectation=expectation, status=status, say=_say)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print_each(episodes: Sequence[EpisodeToCancel], config: Config) -> None:
    hint = "`vigil episodes list` shows those that there are"
    for each in episodes:
        if each.status:
            print(f"{each.episode_id}: {each.outlook}")
        else:
            what = f"no episode {each.episode_id} in stack {config.stack.name}"
            print(f"vigil: {what}; {hint}", file=sys.stderr)
