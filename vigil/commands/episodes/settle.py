"""`vigil episodes settle`: what became of a call, where the engine cannot know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from vigil import options
from vigil.client.client import Client
from vigil.commands.call import call, named
from vigil.errors import Mistake

if TYPE_CHECKING:
    from vigil.client.episodes import EpisodeReceipt

app = typer.Typer()


@app.command()
def settle(
    ctx: typer.Context,
    *,
    episode_id: options.EpisodeIdOrLatest = None,
    is_latest: options.IsLatest = False,
    has_happened: Annotated[
        bool, Option("--happened", help="It has happened, and returned --result.")
    ] = False,
    has_not_happened: Annotated[
        bool, Option("--not-happened", help="It has not: the call fails as not_happened.")
    ] = False,
    is_again: Annotated[
        bool, Option("--again", help="Make it again, with the same idempotency key.")
    ] = False,
    result: Annotated[
        str | None,
        Option(help="With --happened: what the call returns, any JSON value; @FILE, or -."),
    ] = None,
    call_no: Annotated[
        str, Option("--call", help="Which call, such as 4.2.1, if several are open in a function.")
    ] = "",
    reason: options.Reason = "",
    by: options.By = None,
    is_waiting: options.IsWaitingForEnd = False,
    timeout_s: options.Timeout = options.WAIT_S,
    is_json: options.IsJson = False,
) -> None:
    """Say what became of a call of an episode that ended as outcome_unknown, and have it go on."""
    from vigil.commands.episodes.fork import follow_fork

    said = {"happened": has_happened, "not_happened": has_not_happened, "again": is_again}
    settlements = [each for each, is_said in said.items() if is_said]
    if len(settlements) != 1:
        problem = "say one thing" if settlements else "say what became of the call"
        raise Mistake(f"{problem}: --happened, --not-happened or --again")
    if has_happened and result is None:
        raise Mistake("--happened needs --result: what the call returns, as JSON; null if nothing")
    (settlement,) = settlements
    returned = None if result is None else options.read_json(result, what="--result")

    async def settled(client: Client) -> tuple[str, EpisodeReceipt]:
        wanted = await named(client, episode_id, is_latest=is_latest)
        opened = await client.episodes.settle(
            wanted, settlement, result=returned, call=call_no, reason=reason
        )
        return str(wanted), opened

    wanted, opened = call(ctx, settled, by=by)
    origin = {"forked_from": wanted, "settled": settlement}
    wait_s = timeout_s if is_waiting else None
    follow_fork(ctx, opened, origin, wait_s=wait_s, is_json=is_json)
