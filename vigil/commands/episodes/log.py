"""`vigil episodes log` and `tail`: what an episode did, as people may see it."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer
from typer import Option

from projections.postgres.pool import Pool
from projections.postgres.query_result import Row
from projections.postgres.reader import list_log_lines, show_episode
from streams.model.triggers import LogStrategy
from vigil import options
from vigil.asking.episode_ids import find_episode
from vigil.asking.episode_log import live_log, why_silent
from vigil.asking.rows import ask, require
from vigil.printing import tables
from vigil.printing.output import say_aside, show_rows

app = typer.Typer()

ShownStrategy: TypeAlias = Annotated[
    LogStrategy | None,
    Option("--strategy", help="How much to print, of what is kept; by default the episode's own."),
]


@app.command()
def log(
    ctx: typer.Context,
    *,
    episode_id: options.EpisodeIdOrLatest = None,
    is_latest: options.IsLatest = False,
    strategy: ShownStrategy = None,
    is_json: options.IsJson = False,
) -> None:
    """Print what one episode did, in order, as far as its log strategy lets people see it."""
    config = options.config(ctx)
    wanted = find_episode(config, episode_id, is_latest=is_latest)

    async def question(pool: Pool) -> tuple[Row, list[Row]]:
        found = await show_episode(pool, config.stack, wanted)
        episode = require(found, f"episode {wanted}", config.stack)
        return episode, await list_log_lines(pool, config.stack, wanted, strategy=strategy)

    episode, lines = ask(config, question)
    if is_json:
        show_rows(lines, (), is_json=True)
        return
    for each in lines:
        print(tables.printable(str(each["line"])))
    if not lines:
        say_aside(why_silent(episode, strategy))


@app.command()
def tail(
    ctx: typer.Context,
    *,
    episode_id: options.EpisodeIdOrLatest = None,
    is_latest: options.IsLatest = False,
    strategy: ShownStrategy = None,
    timeout_s: options.Timeout = options.WAIT_S,
    is_json: Annotated[bool, Option("--json", help="Print JSON: a line each.")] = False,
) -> None:
    """Print what one episode did and does, until it ends: the log, as it grows."""
    config = options.config(ctx)
    wanted = find_episode(config, episode_id, is_latest=is_latest)

    async def follow(pool: Pool) -> None:
        lines = live_log(pool, config.stack, wanted, strategy=strategy, timeout_s=timeout_s)
        async for each in lines:
            text = tables.as_json_line(each) if is_json else str(each["line"])
            print(tables.printable(text), flush=True)

    ask(config, follow)
