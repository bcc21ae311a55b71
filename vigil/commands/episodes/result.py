"""`vigil episodes result`: the result of a step, also where the object store has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import msgspec
import typer
from typer import Option

from projections.episodes import is_whole, shown_result
from streams.model.events import StepRecorded
from vigil import options
from vigil.asking.connect import with_ports
from vigil.asking.episode_ids import find_episode
from vigil.errors import Trouble
from vigil.printing import tables

if TYPE_CHECKING:
    from streams.ports.all import Ports

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
    config = options.config(ctx)
    wanted = find_episode(config, episode_id, is_latest=is_latest)

    async def read(ports: Ports) -> msgspec.Raw:
        return await _shown(ports, wanted, step_no)

    print(tables.as_json(msgspec.json.decode(with_ports(config, read, is_reading=True))))


async def _shown(ports: Ports, episode_id: UUID, step_no: int) -> msgspec.Raw:
    """Return the result of a step as people may see it; `Trouble`: there is none."""
    from engine.episodes.results import fetch
    from engine.errors import EpisodeFailed

    records = await ports.log.read(ports.stack.episode(str(episode_id)))
    events = [event for record in records for event in record.commit.events]
    steps = [each for each in events if isinstance(each, StepRecorded) and each.step_no == step_no]
    if not steps:
        raise Trouble(f"no step {step_no} of an episode {episode_id} in stack {ports.stack.name}")
    step = steps[0]
    if step.error_class:
        raise Trouble(f"step {step_no} has failed: {step.error_class}: {step.error_detail}")
    if step.is_hidden:  # guard: command-shows-no-more
        raise Trouble(f"nothing of the result of step {step_no} may be shown to people")
    if step.stored is None or not is_whole(step):
        return shown_result(step)
    try:
        return await fetch(ports.objects, step.stored)
    except EpisodeFailed as lost:
        raise Trouble(lost.detail) from lost
