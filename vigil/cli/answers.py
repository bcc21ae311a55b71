"""Commands of `vigil episodes` by which people answer an episode that waits for them."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from streams.model.commands import Verdict
from vigil.cli import context, verdicts
from vigil.cli.verdicts import PATIENCE_S, By, Choice, Hash, IsSure, IsWaiting, Patience, Reason

EpisodeId: TypeAlias = Annotated[
    str, typer.Argument(metavar="ID", help="The episode's id, from `vigil episodes list`.")
]


def approve(
    ctx: typer.Context,
    *,
    episode_id: EpisodeId,
    hash_: Hash = None,
    is_sure: IsSure = False,
    reason: Reason = "",
    by: By = None,
    is_waiting: IsWaiting = True,
    timeout_s: Patience = PATIENCE_S,
) -> None:
    """Approve the plan of an episode. Shows it first, and asks."""
    choice = Choice(
        verdict=Verdict.APPROVE,
        hash=hash_,
        is_sure=is_sure,
        by=by,
        reason=reason,
        wait_s=timeout_s if is_waiting else None,
    )
    verdicts.settle_episode(context.reading(ctx), episode_id, choice)


def deny(
    ctx: typer.Context,
    *,
    episode_id: EpisodeId,
    hash_: Hash = None,
    is_sure: IsSure = False,
    reason: Reason = "",
    by: By = None,
    is_waiting: IsWaiting = True,
    timeout_s: Patience = PATIENCE_S,
) -> None:
    """Deny the plan of an episode. Shows it first, and asks."""
    choice = Choice(
        verdict=Verdict.DENY,
        hash=hash_,
        is_sure=is_sure,
        by=by,
        reason=reason,
        wait_s=timeout_s if is_waiting else None,
    )
    verdicts.settle_episode(context.reading(ctx), episode_id, choice)


def resolve(
    ctx: typer.Context,
    *,
    ref: Annotated[str, typer.Argument(metavar="REF", help="The reference, such as payment:42.")],
    result: Annotated[
        str, typer.Option(help="JSON for the strategies; @file, or - for standard input.")
    ] = "null",
    episode_id: Annotated[
        str | None, typer.Option("--episode", metavar="ID", help="Only this episode.")
    ] = None,
    by: By = None,
    is_waiting: IsWaiting = True,
    timeout_s: Patience = PATIENCE_S,
) -> None:
    """Answer the episodes that wait for a reference, with a result."""
    from vigil import resolving, typed
    from vigil.reading import parse_id
    from vigil.who import who

    said = typed.json_of(result, what="--result")
    only = None if episode_id is None else str(parse_id(episode_id))
    reading = context.reading(ctx)
    outcomes = resolving.resolve(
        reading,
        ref,
        said,
        episode_id=only,
        by=who(reading, by),
        wait_s=timeout_s if is_waiting else None,
    )
    verdicts.say(outcomes)
