"""`vigil episodes fork`: another episode with the same first steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from vigil import options
from vigil.client.client import Client
from vigil.commands.call import call, named
from vigil.commands.episodes.cancel import Unended, unended
from vigil.errors import EXIT_TROUBLE, Mistake
from vigil.printing.output import report_begun, rows_of, say_begun, show_rows, waiting

if TYPE_CHECKING:
    from vigil.client.episodes import EpisodeReceipt, ForkEachOutcome

app = typer.Typer()


@app.command()
def fork(
    ctx: typer.Context,
    *,
    episode_id: options.EpisodeIdOrLatest = None,
    is_latest: options.IsLatest = False,
    at: Annotated[
        int, Option(min=0, help="The last step that both have, as `vigil episodes steps` shows it.")
    ],
    payload: Annotated[
        str | None,
        Option(help="Another payload for the trigger: a JSON object; @FILE, or -."),
    ] = None,
    actor: Annotated[
        str | None, Option(help="Instead of an id: all of this actor that wait for other code.")
    ] = None,
    expectation: Annotated[
        str | None, Option(help="With --actor: only of this expectation.")
    ] = None,
    is_sure: Annotated[
        bool, Option("--yes", help="With --actor: do not ask for confirmation.")
    ] = False,
    reason: options.Reason = "",
    key: Annotated[
        str | None, Option(help="Idempotency key: the same one opens no second fork.")
    ] = None,
    is_dry: options.IsDry = False,
    overrides: options.OverridesText = None,
    by: options.By = None,
    is_waiting: options.IsWaitingForEnd = False,
    timeout_s: options.Timeout = options.WAIT_S,
    is_json: options.IsJson = False,
) -> None:
    """Open an episode that begins with the first steps of another one, and print its id.

    With --actor, one for each that is parked; those wait on, until they are canceled.
    """
    from vigil.commands.fire import overrides_of

    if actor is not None:
        if episode_id or is_latest or payload or key or overrides or is_waiting:
            goes = "--at, --expectation, --reason, --dry-run, --by, --yes and --json"
            raise Mistake(f"with --actor go {goes}")
        found = call(ctx, partial(unended, actor, expectation=expectation, status=Unended.PARKED))
        if found and not is_sure:
            options.require_consent(f"fork {len(found):,} parked episodes of {actor} at {at}?")
        forked = call(
            ctx,
            lambda client: client.episodes.fork_each(found, at=at, reason=reason, dry_run=is_dry),
            by=by,
        )
        _show_forked(forked, is_json=is_json)
        return
    if expectation or is_sure:
        raise Mistake("--expectation and --yes go with --actor")
    replaced = None if overrides is None else overrides_of(overrides)
    body = None if payload is None else options.read_object(payload, what="--payload")

    async def forked_one(client: Client) -> tuple[str, EpisodeReceipt]:
        wanted = await named(client, episode_id, is_latest=is_latest)
        opened = await client.episodes.fork(
            wanted,
            at=at,
            payload=body,
            reason=reason,
            key=key,
            dry_run=is_dry,
            overrides=replaced,
        )
        return str(wanted), opened

    wanted, opened = call(ctx, forked_one, by=by)
    origin = {"forked_from": wanted, "forked_at_step": at}
    wait_s = timeout_s if is_waiting else None
    follow_fork(ctx, opened, origin, wait_s=wait_s, is_json=is_json)


def follow_fork(
    ctx: typer.Context,
    opened: EpisodeReceipt,
    origin: Mapping[str, object],
    *,
    wait_s: float | None,
    is_json: bool,
) -> None:
    """Print the id of a fork; with `wait_s`, wait so long for its end and print that."""
    id_, actor, row = opened.episode_id, opened.actor_id, None
    with waiting(f"it goes on; `vigil episodes tail {id_}` shows how far it is"):
        say_begun(actor, id_, used="", obstacle=opened.obstacle, is_json=is_json)
        if wait_s is not None:
            timeout_s = wait_s
            row = call(ctx, lambda client: client.episodes.describe_end(id_, timeout_s=timeout_s))
    report_begun({"episode_id": id_, "actor_id": actor, **origin}, row, is_json=is_json)


def _show_forked(forked: Sequence[ForkEachOutcome], *, is_json: bool) -> None:
    """Print what became of several forks; exit code 1 if one of them was refused."""
    if is_json:
        show_rows(rows_of(forked), (), is_json=True)
    else:
        for each in forked:
            print(f"{each.forked_from}: {each.refused or f'goes on as {each.episode_id}'}")
        if not forked:
            print("no episode waits for other code")
    if any(each.refused for each in forked):
        raise typer.Exit(EXIT_TROUBLE)
