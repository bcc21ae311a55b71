"""`vigil episodes fork`: another episode with the same first steps."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Option

from vigil import options
from vigil.asking.episode_ids import find_episode

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
    """Open an episode that begins with the first steps of another one, and print its id."""
    from vigil.asking.forks import ForkRequest, open_fork
    from vigil.commands.fire import overrides_of

    config = options.config(ctx)
    asked = ForkRequest(
        episode_id=find_episode(config, episode_id, is_latest=is_latest),
        at=at,
        by=options.who(config, by),
        reason=reason,
        payload=None if payload is None else options.read_object(payload, what="--payload"),
        key=key,
        is_dry=is_dry,
        overrides=None if overrides is None else overrides_of(overrides),
    )
    open_fork(config, asked, wait_s=timeout_s if is_waiting else None, is_json=is_json)
