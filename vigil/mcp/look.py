"""Looks at a fired episode on its journal, which any process can do, and at what it waits for."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from engine.episodes.episode import Status
from engine.outputs.keys import wanted
from streams.model.events import EpisodeBlocked
from vigil.client.client import Client
from vigil.errors import PastLost, ServerAway, StackNotFound, Trouble
from vigil.mcp.fired import TaskView, Waits, block_waits, output_waits
from vigil.ports import ApprovalTarget

OUTPUTS_ASKED_MAX: Final = 20
"""Most outputs of an episode that are looked at for one that waits for approval."""

AWAY: Final = (PastLost, ServerAway, StackNotFound)
"""What says nothing of what was asked for, but that nobody can know it now."""


async def task_view(client: Client, id: UUID) -> TaskView:
    """Return an episode as its journal has it.

    Raises:
        NotFound: it is not on the journal.
    """
    frames, episode_id = await client.episodes.replay(id), str(id)
    episode, last = frames[-1].episode, frames[-1]
    blocks = [each.seq for each in frames if isinstance(each.event, EpisodeBlocked)]
    waits: Waits | None = None
    if blocks:
        waits = block_waits(episode_id, episode, block_seq=blocks[-1])
    if episode.status is Status.DELIVERING:
        assert episode.opened is not None, "what delivers was opened"
        waits = await _output_waits(client, tuple(wanted(episode, episode.opened)))
    return TaskView(
        episode_id=episode_id,
        episode=episode,
        opened_at=frames[0].at,
        changed_at=last.at,
        waits=waits,
    )


async def _output_waits(client: Client, keys: tuple[str, ...]) -> Waits | None:
    """Return the first of some outputs that waits for approval; None: none does."""
    for key in keys[:OUTPUTS_ASKED_MAX]:
        try:
            asked = await client.approvals.read(ApprovalTarget("output", key))
        except Trouble as error:
            if isinstance(error, AWAY):
                raise
            continue  # It is not there yet, does not ask, or does not wait any more.
        return output_waits(key, asked.approval.approvers, asked_at=asked.asked_at)
    return None
