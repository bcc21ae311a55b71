"""`vigil recover`: find what everyone has forgotten, and have some node go on."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from vigil.cli import context
from vigil.cli.output import IsJson, show_rows

STALE_AFTER_S: Final = 120.0
"""Silence that makes something worth a look, in seconds: the default wall time of a whole
episode. Looking at one that is well costs three requests and changes nothing."""

NEEDED: Final = "recovered"
"""The count of what nobody would have gone on with."""

COLUMNS: Final = ("episode_id", "actor_id", "status", "latest_at", "verdict")
INSTANCE_COLUMNS: Final = ("instance_id", "workflow_id", "status", "latest_at", "verdict")


def recover(
    ctx: typer.Context,
    *,
    stale_after_s: Annotated[
        float,
        typer.Option(
            "--stale-after", min=0.0, help="How long an episode has not changed, in seconds."
        ),
    ] = STALE_AFTER_S,
    is_dry: Annotated[bool, typer.Option("--dry-run", help="Only list them.")] = False,
    is_json: IsJson = False,
) -> None:
    """Restart episodes and workflow instances that no node is running.

    Nodes recover from crashes without this command; it finds what they have missed.
    """
    from vigil import sweeping, tables, unserved

    done = sweeping.sweep(context.reading(ctx), stale_after_s=stale_after_s, is_dry=is_dry)
    if is_json:
        said = {
            "dry_run": is_dry,
            "episodes": done.episodes,
            "instances": done.instances,
            "unserved": done.unserved,
        }
        print(tables.as_json({**done.counts, **said}))
        return
    if done.episodes:
        show_rows(done.episodes, COLUMNS, is_json=False)
    if done.instances:
        show_rows(done.instances, INSTANCE_COLUMNS, is_json=False)
    for each in unserved.by_workflow(done.unserved):
        print(unserved.told(each))
    counts = ", ".join(f"{name} {count:,}" for name, count in done.counts.items())
    print(f"dry run: {counts}" if is_dry else counts)
    if not done.counts[NEEDED] and not done.unserved:
        print("nothing was forgotten: each waits for something that will come, or is being done")
