"""One node's time with one episode: fence → drive → carry out → finish → tell.

An episode that has to wait for somebody is left once what is to call a node back to it is in place.

Each stage is durable before the next begins and harmless to repeat, so a tenure that ends
anywhere, in a crash or in a lost claim, leaves the next one exactly what is left to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from engine import publicity, recovery, telemetry
from engine.commands import Begin, Cancel, Fail
from engine.episode import Episode
from engine.expiry import expiry
from engine.publicity import PublicEvent
from engine.recovery import Takeover
from engine.runtime.applier import Applier
from engine.runtime.blocker import Blocker
from engine.runtime.carried import NOTHING_DONE, CarriedOut
from engine.runtime.carrier import Carrier
from engine.runtime.courier import Courier
from engine.runtime.driver import admitting
from engine.runtime.epilogue import Epilogue
from engine.runtime.helm import driver_of
from engine.runtime.herald import Herald
from engine.runtime.hold import NO_CLAIM, Hold
from engine.runtime.intended import oldest_of
from engine.runtime.output_crew import OutputCrew
from engine.runtime.running import Run
from engine.runtime.scribe import Scribe
from engine.runtime.sender import Sender
from engine.runtime.successor import decide_takeover
from engine.runtime.undertaker import Undertaker
from engine.status import ENDED, RUNS, Status
from streams.errors import VersionConflict
from streams.events import EpisodeEvent, EpisodeFinished, EpisodeOpened
from streams.log import START, Recorded


class Tenure:
    """From the fence to the last public event."""

    def __init__(
        self,
        crew: OutputCrew,
        opened: EpisodeOpened,
        episode: Episode,
        records: Sequence[Recorded],
        *,
        hold: Hold,
        accept: Callable[[], Awaitable[None]],
        called_at: datetime | None = None,
    ) -> None:
        """Take over where `records` end; without any, `opened` is the first event of the first.

        Args:
            crew: the actor's.
            opened: what the episode is about.
            episode: the fold of `records`.
            records: the episode's journal.
            hold: on the episode.
            accept: called once nothing can be lost any more: when the fence is durable under a
                claim, or when all is done.
            called_at: when this node was called because something may be due, by the server's
                clock; None: it was called for another reason.
        """
        self.opened = opened
        self._crew, self._records, self._hold, self._accept = crew, records, hold, accept
        self.is_accepted = False
        """Whether whoever offered the episode has been answered."""
        self._has_begun = False
        self._run = Run(opened)
        self._takeover = Takeover()
        self._telling: asyncio.Task[None] | None = None
        self._since = oldest_of(records)
        self._fenced_at = START
        self._had_ended = episode.status in ENDED
        self._had_crashed = episode.status in RUNS
        self._was_deferred = episode.status is Status.DELIVERING
        self._scribe = Scribe(
            crew.ports.log,
            crew.clock,
            subject=crew.ports.stack.episode(opened.episode_id),
            episode=episode,
            version=records[-1].seq if records else START,
            pen=next(crew.pens),
            before_fence=self._secure,
            after_fence=self._note_fenced,
        )
        applier = Applier(crew.ports, crew.cast.actors, crew.clock, crew.turns, owner=crew.actor)
        courier = Courier(crew, opened, next(crew.pens), self._check_claim, called_at)
        self._carrier = Carrier(crew, opened, self._run, applier, courier)
        self._sender = Sender(self._carrier, opened, self._publish, self._retells)
        self._epilogue = Epilogue(crew, opened, self._carrier)
        self._herald = Herald(crew.ports.world)

    @property
    def episode(self) -> Episode:
        """The episode as far as this tenure knows it."""
        return self._scribe.episode

    @property
    def is_fenced(self) -> bool:
        """Whether this node's start is durable: from then on nobody else can append."""
        return self._scribe.is_fenced

    @property
    def has_ended(self) -> bool:
        """Whether the end of the episode is durable, be it by this tenure or an earlier one."""
        return self._had_ended or (self.is_fenced and self.episode.status in ENDED)

    async def complete(self, *, careful: bool) -> None:
        """Put up the fence, and do all that is left, to the last public event.

        Args:
            careful: wait for the fence before anything else. Otherwise it may ride in one commit
                with what comes next, and is waited for only before the first step of the outside.

        Raises:
            Leaving: the node may not go on; the episode is for another node.
            Busy: someone else has the claim, and nothing was written.
            LeaseLost, VersionConflict: another node may have taken over, or has.
            Contended: a finding is fought over without end. What is left is for another time.
            TooLarge, Unwritable: the journal cannot keep an event.
            Unavailable: the log is away. What is left is for the next owner.
        """
        labels = {"actor": self._crew.actor.id, "mode": self.opened.mode.value}
        started_s = self._crew.clock.monotonic_s()
        telemetry.episodes_running.add(1, labels)
        try:
            with self._crew.running.during(self._run):
                # Only now: a breaker that opens after this finds the run there.
                await self._crew.breakers.check(self._run)
                carried = await self._go_on(careful=careful)
            if self.episode.status in ENDED:
                await self._epilogue.note(self.episode, seq=self._scribe.version)
                await self._tell([*carried.news, *self._ended()])
            else:
                await self._leave_waiting(carried)
            await self._accept_once()
        finally:
            telemetry.episodes_running.add(-1, labels)
            await self._close()
        if self.episode.status not in ENDED:
            return
        self._epilogue.count(self.episode)
        telemetry.episode_duration.record(self._crew.clock.monotonic_s() - started_s, labels)

    async def tell_again(self) -> None:
        """Publish what an episode that has ended has to tell; whoever ended it may not have.

        Raises:
            Unavailable: try again later.
        """
        await self._epilogue.note(self.episode, seq=self._scribe.version)
        carried = await self._carrier.tell_again(self.episode, since=self._since)
        await self._carrier.wake(carried.wakes_at, carried.pending)
        await self._publish([*carried.news, *self._ended()])
        await self._accept_once()

    async def settle(self) -> None:
        """Carry what is left of the outputs of an episode that has ended; it stays as it is.

        Raises:
            LeaseLost, VersionConflict: another node may have the episode, or has.
            Contended: an output is fought over without end.
            Unavailable: what is left is for the next owner.
        """
        await self._accept_once()
        carried = await self._carrier.settle(self.episode)
        await self._carrier.wake(carried.wakes_at, carried.pending)
        await self._publish(carried.news)

    async def _go_on(self, *, careful: bool) -> CarriedOut:
        """Do what the journal leaves to be done; of an episode that waits, nothing is."""
        if self.episode.status is Status.BLOCKED and self._called_off() is None:
            await self._check_newest()
            return NOTHING_DONE
        await self._fence(careful=careful)
        return await self._drive_and_finish()

    def _ended(self) -> Sequence[PublicEvent]:
        return self._epilogue.news(self.episode, seq=self._scribe.version)

    async def _check_newest(self) -> None:
        """Raise `VersionConflict` if the episode has moved: its answer may be what we are here for.

        Nothing is appended to one that waits, so no version tells that a replica was behind.
        """
        subject = self._crew.ports.stack.episode(self.opened.episode_id)
        newest = await self._crew.ports.log.last(subject)
        if newest is None or newest.seq != self._scribe.version:
            raise VersionConflict(subject, expected=self._scribe.version)

    async def _leave_waiting(self, carried: CarriedOut) -> None:
        """See to it that the episode is gone on with once it has its answer, or its time."""
        await self._tell(carried.news)
        if self.episode.status is Status.BLOCKED:
            await Blocker(self._crew).settle(self.opened)
        else:
            await self._carrier.leave(carried, version=self._scribe.version)

    async def _fence(self, *, careful: bool) -> None:
        """Put down this node's start, and the opening if there is none yet.

        Instead of the start, what is not to be begun or gone on with any more gets its end.
        """
        opening = (self.opened,) if self.episode.opened is None else ()
        if canceled := self._called_off():
            if self.episode.outputs_left:
                await self._hold.claim()
                canceled = await self._sender.cancel(self.episode, canceled)
            self._scribe.record(*opening, canceled)
            return await self._scribe.barrier()
        # Only what a strategy may go on with needs an expectation: this node may not know it.
        if self.episode.status is Status.RUNNING:
            self._takeover = await decide_takeover(self._crew, self.opened, self.episode)
        self._has_begun = True
        self._scribe.record(*opening, Begin(node=self._crew.node, fresh=self._takeover.fresh))
        if careful:
            await self._scribe.barrier()
        return None

    def _called_off(self) -> Cancel | None:
        """Return how the episode ends if no node shall run it any more; else None.

        Once it is recorded what is true, it is too late to cancel it, but for outputs that are not
        delivered yet: the carrier sees to those.
        """
        canceled, episode = self._run.canceled, self.episode
        if canceled is not None and episode.converged is None:
            return admitting(canceled, episode.announced)
        return expiry(episode, at=self._crew.clock.now())

    async def _secure(self, first: Sequence[EpisodeEvent]) -> int:
        """Return the revision of the claim, which is made now unless the `first` commit is all."""
        if not any(isinstance(event, EpisodeFinished) for event in first):
            await self._hold.claim()
        self._check_claim()
        return self._hold.revision

    async def _note_fenced(self) -> None:
        """Tell who waits for it that the fence is up; and the world, if the end is not near."""
        self._fenced_at = self._scribe.version
        if self._hold.revision != NO_CLAIM:
            await self._accept_once()
        if self.episode.status not in ENDED and not self._was_deferred:
            self._telling = asyncio.create_task(self._publish([self._started()]))

    async def _accept_once(self) -> None:
        if not self.is_accepted:
            self.is_accepted = True
            await self._accept()

    async def _tell(self, news: Sequence[PublicEvent]) -> None:
        if self._telling is not None:
            await self._telling
        elif self._has_begun and not self._was_deferred:
            news = [self._started(), *news]
        await self._publish(news)

    async def _publish(self, news: Sequence[PublicEvent]) -> None:
        if publicity.is_public(self.opened):
            await self._herald.tell(news)

    async def _close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
        await self._scribe.close()

    async def _drive_and_finish(self) -> CarriedOut:
        if self._takeover.error_class:
            await self._give_up()
        elif self.episode.status is Status.RUNNING:
            records = () if self._takeover.fresh else self._records
            driver = driver_of(
                self._crew,
                self.opened,
                scribe=self._scribe,
                sender=self._sender,
                run=self._run,
                check_claim=self._check_claim,
            )
            await driver.drive(records)
        if self.episode.status is not Status.CONVERGING:
            return NOTHING_DONE
        carried = await self._carrier.carry_out(
            self.episode,
            since=self._since,
            version=self._scribe.version,
            retells=self._retells(),
        )
        self._scribe.record(carried.end)
        await self._scribe.barrier()
        return carried

    async def _give_up(self) -> None:
        """End the episode as the takeover says, its dead letter first if it gets one."""
        why = self._takeover
        if why.error_class == recovery.ATTEMPTS_EXHAUSTED:
            undertaker = Undertaker(self._crew.ports, self._crew.clock)
            await undertaker.bury_episode(self.opened, reason=why.error_class, detail=why.detail)
        settled = self.episode.outputs_settled
        self._scribe.record(
            Fail(error_class=why.error_class, error_detail=why.detail, outputs=settled)
        )
        await self._scribe.barrier()

    def _retells(self) -> bool:
        """Return whether whoever had the episode before may have died before they told."""
        return self._had_crashed or self._hold.is_stolen

    def _check_claim(self) -> None:
        self._hold.check(monotonic_s=self._crew.clock.monotonic_s())

    def _started(self) -> PublicEvent:
        return publicity.started(
            self.opened,
            attempt=self.episode.attempts,
            node=self._crew.node,
            seq=self._fenced_at,
        )
