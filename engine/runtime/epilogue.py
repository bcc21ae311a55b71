"""What follows the end of an episode: whoever waits for it hears of it, and the world.

All of it may be done again, by whoever comes back to the episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine import placing, publicity, telemetry
from engine.episode import Episode
from engine.publicity import PublicEvent
from engine.runtime.blocker import Blocker
from engine.runtime.carrier import Carrier
from engine.runtime.episode_crew import EpisodeCrew
from engine.runtime.instance_meter import count_skipped
from engine.runtime.instances import tell_instance
from engine.status import Status
from engine.workflows import publicity as workflow_publicity
from streams.events import EpisodeOpened


@dataclass(frozen=True)
class Epilogue:
    """Of one episode, on one node."""

    crew: EpisodeCrew
    opened: EpisodeOpened
    carrier: Carrier

    async def note(self, episode: Episode, *, seq: int) -> None:
        """Have breaker, workflow and lane know of the end, while someone comes back to it.

        Args:
            episode: the episode.
            seq: what the journal has its end at.

        Raises:
            Unavailable: note it again.
        """
        assert episode.finished is not None, "an end that is noted"
        await self._see_to_timers(episode)
        await self.crew.breakers.note(self.opened, episode.finished, seq=seq)
        await tell_instance(self.crew.ports, self.opened)
        if self.crew.is_laned:
            left = placing.left(self.opened.actor_id, self.opened.episode_id)
            await self.crew.ports.timers.send(left, id=f"left.{self.opened.episode_id}")

    async def _see_to_timers(self, episode: Episode) -> None:
        """Have nobody attend what is over, and somebody what is left of its outputs."""
        if (block := episode.blocked) is not None:
            await Blocker(self.crew).forget(self.opened, block)
        elif episode.deferred is not None:
            await self.carrier.sleep()
        if episode.status is Status.FAILED and episode.outputs_left:
            await self.carrier.wake(self.crew.clock.now())

    def news(self, episode: Episode, *, seq: int) -> Sequence[PublicEvent]:
        """Return what the world is told of the end, which the journal has at `seq`."""
        assert episode.finished is not None, "an end that is told of"
        converged = episode.converged
        ended = publicity.ended(self.opened, converged, episode.finished, seq=seq)
        skipped = workflow_publicity.skipped(self.opened, converged, seq=seq)
        return (ended,) if skipped is None else (ended, skipped)

    def count(self, episode: Episode) -> None:
        """Measure an end that this node has brought about."""
        status, mode = episode.status.value, self.opened.mode.value
        labels = {"actor": self.opened.actor_id, "mode": mode, "status": status}
        telemetry.episodes_ended.add(1, labels)
        count_skipped(self.opened, episode.converged)
