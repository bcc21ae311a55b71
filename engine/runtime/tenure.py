"""One node's time with one episode: fence → drive → carry out → finish → tell.

Each stage is durable before the next begins and harmless to repeat, so a tenure that ends
anywhere, in a crash or in a lost claim, leaves the next one exactly what is left to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from engine import publicity, telemetry
from engine.actor import Actor
from engine.app import App
from engine.episode import Begin, Episode, Finish, Status, fold
from engine.publicity import PublicEvent
from engine.runtime.applier import Applied, Applier
from engine.runtime.driver import Driver
from engine.runtime.herald import Herald
from engine.runtime.performer import Performer
from engine.runtime.scribe import Scribe
from engine.runtime.thinker import Thinker
from streams.clock import Clock
from streams.events import EpisodeOpened
from streams.log import START, Recorded
from streams.ports import Ports


@dataclass(frozen=True)
class Crew:
    """What every tenure of one actor on one node works with."""

    app: App
    actor: Actor
    ports: Ports
    clock: Clock
    node: str
    stopping: asyncio.Event


class Tenure:
    """From the fence to the release of one claim."""

    def __init__(
        self, crew: Crew, records: Sequence[Recorded], *, subject: str, revision: int
    ) -> None:
        """Take over where `records` end.

        Args:
            crew: the actor's.
            records: the episode's journal.
            subject: the episode's.
            revision: the claim's fencing token.
        """
        self._crew, self._records, self._revision = crew, records, revision
        self._scribe = Scribe(
            crew.ports.log,
            crew.clock,
            subject=subject,
            episode=fold(records),
            version=records[-1].seq if records else START,
            pen=f"r{revision}",
        )
        self._applier = Applier(crew.ports.log, crew.ports.stack, crew.clock)
        self._herald = Herald(crew.ports.world)

    @property
    def episode(self) -> Episode:
        """The episode as far as this tenure knows it."""
        return self._scribe.episode

    @property
    def opened(self) -> EpisodeOpened:
        """What the episode is about. It must have been opened."""
        opened = self.episode.opened
        assert opened is not None, "a tenure of an episode that was never opened"
        return opened

    async def fence(self) -> None:
        """Put this node's start on the journal: from here on nobody else can append.

        Raises:
            VersionConflict: the episode moved since it was read.
            Unavailable: the log is away; nothing was started.
        """
        self._scribe.record(Begin(node=self._crew.node, claim_revision=self._revision))
        await self._scribe.barrier()

    async def complete(self) -> None:
        """Do all that is left, to the last public event.

        Raises:
            Leaving: the node is going down; the episode is for another node.
            VersionConflict: another node has taken over.
            Unavailable: the log is away. What is left is for the next owner.
        """
        labels = {"actor": self._crew.actor.id}
        started_s = self._crew.clock.monotonic_s()
        telemetry.episodes_running.add(1, labels)
        telling = asyncio.create_task(self._herald.tell([self._started()]))
        try:
            applied = await self._drive_and_finish()
            await telling
            await self._herald.tell(self._news(applied))
        finally:
            telemetry.episodes_running.add(-1, labels)
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
            await self._scribe.close()
        telemetry.episodes_ended.add(1, {**labels, "status": self.episode.status.value})
        telemetry.episode_duration.record(self._crew.clock.monotonic_s() - started_s, labels)

    async def tell_again(self) -> None:
        """Publish what an episode that has ended has to tell; whoever ended it may not have.

        Raises:
            Unavailable: try again later.
        """
        converged = self.episode.converged
        intents = converged.findings if converged else ()
        applied = await self._applier.look(intents, episode_id=self.opened.episode_id)
        await self._herald.tell(self._news(applied))

    async def _drive_and_finish(self) -> Sequence[Applied]:
        if self.episode.status is Status.RUNNING:
            await self._driver().drive(self._records)
        if self.episode.status is not Status.CONVERGING:
            return ()
        assert self.episode.converged is not None
        applied = await self._applier.apply(
            self.episode.converged.findings, opened=self.opened, attempt=self.episode.attempts
        )
        outcomes = tuple(one.outcome for one in applied)
        self._scribe.record(Finish(turns_used=self.episode.steps_recorded + 1, findings=outcomes))
        await self._scribe.barrier()
        return applied

    def _driver(self) -> Driver:
        crew = self._crew
        expectation = crew.actor.expectations[self.opened.expectation_id]
        return Driver(
            scribe=self._scribe,
            thinker=Thinker(expectation, self.opened, crew.ports.stack.name),
            performer=Performer(crew.app, crew.actor, expectation, crew.clock),
            clock=crew.clock,
            leaving=crew.stopping,
        )

    def _started(self) -> PublicEvent:
        return publicity.started(
            self.opened,
            attempt=self.episode.attempts,
            node=self._crew.node,
            seq=self._scribe.version,
        )

    def _news(self, applied: Sequence[Applied]) -> list[PublicEvent]:
        """Return what the end of the episode has to tell: its findings first, then itself."""
        episode = self.episode
        assert episode.finished is not None
        changes = [
            publicity.finding_changed(self.opened, one.event, index=one.index, seq=one.seq)
            for one in applied
            if one.event is not None
        ]
        end = publicity.ended(
            self.opened, episode.converged, episode.finished, seq=self._scribe.version
        )
        return [*changes, end]
