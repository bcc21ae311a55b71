"""Tells the world what becomes of outputs that no node carries, as people decide and time passes.

Whoever carries an output tells of it themselves; what both tell has one id, and is told once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from engine import publicity
from engine.output import is_own
from engine.output_publicity import DECIDED, output_news, output_reminder
from engine.reminding import reminder_no
from engine.runtime.herald import Herald
from engine.runtime.parcel import Parcel
from streams.events import EpisodeOpened
from streams.log import START
from streams.outputs import OutputStatus
from streams.world import World


@dataclass(frozen=True)
class OutputHerald:
    """Tells of the outputs of one episode.

    Raises:
        Unavailable: from each of its methods; tell of it again later.
    """

    world: World
    opened: EpisodeOpened

    async def tell(self, parcel: Parcel, names: Collection[str]) -> None:
        """Tell what of these names has happened to an output."""
        proposal = parcel.proposal_of(self.opened.episode_id)
        if proposal is None or not publicity.is_public(self.opened):
            return
        news = output_news(self.opened, proposal.proposed, proposal.history, since=START)
        told = [each for each in news if each.name in names]
        if told:
            await Herald(self.world).tell(told)

    async def tell_decided(self, parcel: Parcel) -> None:
        """Tell how an output was decided, if nothing has followed from that yet."""
        is_ours = is_own(parcel.output, episode_id=self.opened.episode_id)
        if is_ours and not parcel.output.attempts:
            await self.tell(parcel, DECIDED)

    async def remind(self, parcel: Parcel, *, at: datetime) -> None:
        """Remind people of an output that waits for them, if that is due `at` this time."""
        output = parcel.output
        if output.status is not OutputStatus.AWAITING_APPROVAL or output.proposed is None:
            return
        approval, since = output.proposed.approval, output.asked_at
        if approval is None or since is None or not publicity.is_public(self.opened):
            return
        number = reminder_no(since, every_s=approval.remind_every_s, at=at)
        if number:
            news = output_reminder(self.opened, output, number=number, seq=parcel.version)
            await Herald(self.world).tell([news])
