"""`vigil episodes approve`, `deny` and `resolve`: what episodes wait for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer
from typer import Argument, Option

from vigil import options
from vigil.client.client import Client
from vigil.commands.call import call, named
from vigil.errors import Mistake, NotFound
from vigil.printing.output import report

if TYPE_CHECKING:
    from engine.operations.decide_request import ApprovalTarget
    from vigil.asking.requests import CommandOutcome

APPROVAL: Final = "approval"
"""The kind of what waits in the inbox that these commands decide on."""

IsLatestAsked: TypeAlias = Annotated[
    bool, Option("--latest", help="Instead of an id: the episode that asked last.")
]

app = typer.Typer()


@app.command()
def approve(
    ctx: typer.Context,
    *,
    episode_id: options.EpisodeIdOrLatest = None,
    is_latest: IsLatestAsked = False,
    changes: options.Changes = None,
    hash_: options.Hash = None,
    is_sure: options.IsSure = False,
    reason: options.Reason = "",
    by: options.By = None,
    is_waiting: options.IsWaiting = True,
    timeout_s: options.Timeout = options.DECISION_S,
) -> None:
    """Approve what an episode asks for. Shows the plan first, and asks for confirmation."""
    from vigil.commands.choice import Choice, decide

    wait_s = timeout_s if is_waiting else None
    choice = Choice("approve", hash_, is_sure, by, reason, wait_s)
    target_of = partial(_target, text=episode_id, is_latest=is_latest, is_sure=is_sure)
    decide(ctx, choice.with_changes(changes), target_of)


@app.command()
def deny(
    ctx: typer.Context,
    *,
    episode_id: options.EpisodeIdOrLatest = None,
    is_latest: IsLatestAsked = False,
    hash_: options.Hash = None,
    is_sure: options.IsSure = False,
    reason: options.Reason = "",
    by: options.By = None,
    is_waiting: options.IsWaiting = True,
    timeout_s: options.Timeout = options.DECISION_S,
) -> None:
    """Deny what an episode asks for. Shows the plan first, and asks for confirmation."""
    from vigil.commands.choice import Choice, decide

    choice = Choice("deny", hash_, is_sure, by, reason, timeout_s if is_waiting else None)
    target_of = partial(_target, text=episode_id, is_latest=is_latest, is_sure=is_sure)
    decide(ctx, choice, target_of)


@app.command()
def resolve(
    ctx: typer.Context,
    *,
    ref: Annotated[
        str, Argument(metavar="REF", help="What episodes wait for, such as payment:42.")
    ],
    result: Annotated[
        str, Option(help="JSON for the strategies; @FILE, or - for standard input.")
    ] = "null",
    episode_id: Annotated[
        str | None, Option("--episode", metavar="ID", help="Only this episode.")
    ] = None,
    by: options.By = None,
    is_waiting: options.IsWaiting = True,
    timeout_s: options.Timeout = options.DECISION_S,
) -> None:
    """Resolve a wait: give the episodes that wait for a reference its result."""
    body = options.read_json(result, what="--result")
    wait_s = timeout_s if is_waiting else None

    async def resolved(client: Client) -> Sequence[CommandOutcome]:
        only = None if episode_id is None else await client.episodes.find(episode_id)
        return await client.signals.resolve(ref, body, episode_id=only, wait_s=wait_s)

    report(call(ctx, resolved, by=by))


async def _target(
    client: Client, text: str | None, *, is_latest: bool, is_sure: bool
) -> ApprovalTarget:
    from vigil.ports import ApprovalTarget

    if not is_latest or text is not None:
        return ApprovalTarget("episode", str(await named(client, text, is_latest=is_latest)))
    asking = await client.inbox(kind=APPROVAL, reverse=True, limit=2)
    if not asking.rows:
        raise NotFound(f"no episode asks for approval; {asking.why_none}".removesuffix("; "))
    if is_sure and len(asking.rows) > 1:  # guard: unseen-latest-alone
        raise Mistake(
            "several episodes ask, and --yes shows no plan; give an id, or leave --yes out"
        )
    return ApprovalTarget("episode", str(asking.rows[0]["id"]))
