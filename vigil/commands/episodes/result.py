"""`vigil episodes result`: the result of a step, also where the object store has it."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Option

from vigil import options
from vigil.client.client import Client
from vigil.commands.call import call, named
from vigil.printing import tables

app = typer.Typer()


@app.command()
def result(
    ctx: typer.Context,
    *,
    episode_id: options.EpisodeIdOrLatest = None,
    is_latest: options.IsLatest = False,
    step_no: Annotated[
        int, Option("--step", min=1, help="Its number, as `vigil episodes steps` shows it.")
    ],
) -> None:
    """Print the result of a step as JSON, however large, as far as people may see it."""

    async def read(client: Client) -> object:
        wanted = await named(client, episode_id, is_latest=is_latest)
        return await client.episodes.result(wanted, step_no)

    print(tables.as_json(call(ctx, read)))
