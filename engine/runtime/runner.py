"""Runs an actor's episodes: pull what there is room for, read, claim, serve, give up the claim.

The journal is read before the claim is made, to know which attempt it is for, and whether this
node can have the episode at all. What happens in between does no harm: the fence names the
version that was read, and is refused.

The claim is given up last and on purpose. Whatever goes wrong in between leaves it to
lapse, which calls for recovery: the next owner replays the journal and does what is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import structlog
from structlog.contextvars import bound_contextvars

from engine import telemetry
from engine.episode import ENDED, Episode, fold
from engine.runtime.applier import Contended
from engine.runtime.backoff import backoff_s
from engine.runtime.driver import Leaving
from engine.runtime.intake import taking
from engine.runtime.keeper import Held, Keeper
from engine.runtime.tenure import NO_SUCH_EPISODE, Crew, Obstacle, Tenure, obstacle
from engine.runtime.undertaker import Undertaker
from streams.commands import Command, Recover
from streams.delivery import Delivery, Unreadable
from streams.errors import LeaseLost, Unavailable, UnreadableEvent, VersionConflict
from streams.events import EndStatus
from streams.log import Recorded
from streams.tracing import context_of

WAIT_S: Final = 5.0
"""Longest silent wait for commands; only how often an idle runner looks up."""

BUSY_S: Final = 0.05
"""First wait before a command comes again whose episode is not free; doubles each time."""

BUSY_MAX_S: Final = 10.0
"""Longest such wait."""

OBSTACLE_MAX_S: Final = 60.0
"""Longest wait before a command comes again whose episode this node cannot have."""

MISSING_DELIVERIES_MAX: Final = 12
"""Deliveries of a command before an episode that the journal does not hold counts as missing:
about 2 minutes. A replica may show an opening later than the command that follows it."""

OBSTACLE_DELIVERIES_MAX: Final = 70
"""Deliveries of a command that no node can follow before it is a dead letter: about an hour, which
is longer than a deploy takes to bring a node that can."""

NOTED_MAX: Final = 10_000
"""Episodes remembered because this node cannot have them. Forgetting them repeats a log line."""

Contain: TypeAlias = Callable[[Coroutine[Any, Any, None]], Coroutine[Any, Any, None]]
"""Wraps work so that what it raises by surprise harms nothing else."""

log = structlog.get_logger("vigil.runner")


@dataclass
class Runner:
    """The runner of one actor on one node."""

    crew: Crew
    keeper: Keeper
    undertaker: Undertaker
    contain: Contain
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the queue is open."""
    _running: set[asyncio.Task[None]] = field(default_factory=set)
    _noted: set[str] = field(default_factory=set)

    async def serve(self) -> None:
        """Run the actor's episodes until the node stops and the last of them has been left.

        Cancelled, it ends at once what runs; the leases lapse, which calls for recovery.

        Raises:
            Unavailable: the actor's queue could not be opened. What runs goes on.
        """
        try:
            await self._take_work()
            await self._wait_idle()
        except asyncio.CancelledError:
            await self._cut_off()
            raise

    async def _take_work(self) -> None:
        labels = {"actor": self.crew.actor.id, "queue": "commands"}
        opening = self.crew.ports.inbox.open(self.crew.actor.id)
        async with taking(opening, stopping=self.crew.stopping) as source:
            self.is_open.set()
            while not self.crew.stopping.is_set():
                room = await self._wait_room()
                for delivery in await source.receive(room=room, wait_s=WAIT_S):
                    self._begin(delivery)
                telemetry.backlog.set(source.pending, labels)

    async def _cut_off(self) -> None:
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _begin(self, delivery: Delivery[Command | Unreadable]) -> None:
        task = asyncio.create_task(self.contain(self._answer(delivery)))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _wait_idle(self) -> None:
        while self._running:
            await asyncio.wait(self._running)

    async def _wait_room(self) -> int:
        """Wait until another episode may run, and return how many."""
        most = self.crew.actor.max_concurrent_episodes
        while len(self._running) >= most:
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        return most - len(self._running)

    async def _answer(self, delivery: Delivery[Command | Unreadable]) -> None:
        content = delivery.content
        try:
            if isinstance(content, Unreadable):
                await self.undertaker.bury(content, actor_id=self.crew.actor.id)
                return await delivery.term(content.reason)
            with (
                bound_contextvars(episode_id=content.episode_id, actor=content.actor_id),
                telemetry.tracer.start_as_current_span("episode", context_of(delivery.trace)),
            ):
                await self._follow(delivery, content)
        except Unavailable as error:
            log.warning("command handed back: the log is away", error=str(error))
            await _hand_back(delivery)

    async def _follow(self, delivery: Delivery[Command | Unreadable], command: Command) -> None:
        subject = self.crew.ports.stack.episode(command.episode_id)
        try:
            records = await self.crew.ports.log.read(subject)
        except UnreadableEvent as error:
            unreadable = Obstacle("unreadable_journal", f"this version cannot read it: {error}")
            return await self._refuse(delivery, command, unreadable)
        hindrance = obstacle(self.crew.actor, records)
        if hindrance is not None:
            return await self._refuse(delivery, command, hindrance)
        return await self._claim(delivery, command, records, subject=subject)

    async def _refuse(
        self, delivery: Delivery[Command | Unreadable], command: Command, hindrance: Obstacle
    ) -> None:
        """Leave a command to another node, or to a person if none has followed it for long."""
        is_missing = hindrance.reason == NO_SUCH_EPISODE
        most = MISSING_DELIVERIES_MAX if is_missing else OBSTACLE_DELIVERIES_MAX
        if delivery.deliveries >= most:
            await self.undertaker.bury_command(
                command, seq=delivery.seq, reason=hindrance.reason, detail=hindrance.detail
            )
            await delivery.term(hindrance.reason)
        else:
            self._note(command.episode_id, hindrance)
            await _hand_back(delivery, most_s=OBSTACLE_MAX_S)

    def _note(self, episode_id: str, hindrance: Obstacle) -> None:
        """Say once why this node cannot have the episode."""
        if episode_id in self._noted:
            return
        if len(self._noted) >= NOTED_MAX:
            self._noted.clear()
        self._noted.add(episode_id)
        log.warning("command handed back", reason=hindrance.reason, why=hindrance.detail)

    async def _claim(
        self,
        delivery: Delivery[Command | Unreadable],
        command: Command,
        records: Sequence[Recorded],
        *,
        subject: str,
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        key = self.crew.ports.stack.episode_claim(command.actor_id, command.episode_id)
        attempt = fold(records).attempts + 1
        held = await self.keeper.acquire(key, attempt=attempt, on_lost=task.cancel)
        if held is None:
            return await _hand_back(delivery)
        try:
            left = await self._own(delivery, records, subject=subject, held=held)
            if left is not None:
                await self._give_up(held, left)
        except asyncio.CancelledError:
            if not held.lost:
                raise
            task.uncancel()
            log.warning("stopped: the lease was lost")
        finally:
            self.keeper.forget(held)

    async def _own(
        self,
        delivery: Delivery[Command | Unreadable],
        records: Sequence[Recorded],
        *,
        subject: str,
        held: Held,
    ) -> Episode | None:
        """Do what is left of an episode, and return how; None if its claim is to lapse."""
        tenure = Tenure(self.crew, records, subject=subject, claim=lambda: held.lease)
        if tenure.episode.status in ENDED:
            await tenure.tell_again()
            await delivery.ack()
            return tenure.episode
        try:
            # Whoever took over from us may not have put up a fence yet: then the version would
            # let us in, behind the back of the latest claim. But then our trust has ended, too.
            held.lease.check(monotonic_s=self.crew.clock.monotonic_s())
            await tenure.fence()
        except (LeaseLost, VersionConflict):  # The read was stale, or another node is at it.
            await _hand_back(delivery)
            # A claim that was taken over from a lapsed one has removed the marker of the lapse, and
            # this command may have been answered elsewhere: then nothing else calls for recovery.
            called = not held.lease.stolen or await self._call(
                tenure, reason="lapsed", id_=f"refused.{held.lease.key}.{held.lease.revision}"
            )
            return tenure.episode if called else None
        await delivery.ack()
        return tenure.episode if await self._serve(tenure, held) else None

    async def _give_up(self, held: Held, episode: Episode) -> None:
        """Give the claim up, saying so if the episode has failed."""
        finished = episode.finished
        if finished is not None and finished.status is EndStatus.FAILED:
            error = f"{finished.error_class}: {finished.error_detail}"
            await self.keeper.fail(held, error=error)
        else:
            await self.keeper.complete(held)

    async def _serve(self, tenure: Tenure, held: Held) -> bool:
        """Serve a fenced tenure to its end, and return whether its claim may be given up."""
        try:
            await tenure.complete()
        except Leaving:
            return await self._hand_over(tenure)
        except Contended as error:
            log.warning("a finding is fought over; handing the episode over", error=str(error))
            return await self._hand_over(tenure)
        except VersionConflict as error:
            self.keeper.note_lost(held, why=f"another node has taken over: {error}")
            return False
        except LeaseLost as error:
            self.keeper.note_lost(held, why=str(error))
            return False
        except Unavailable as error:
            log.warning("stopped: the log is away; the lease will lapse", error=str(error))
            return False
        log.debug("episode ended", status=tenure.episode.status.value)
        return True

    async def _hand_over(self, tenure: Tenure) -> bool:
        opened, attempt = tenure.opened, tenure.episode.attempts
        leave_id = f"leave.{opened.episode_id}.{attempt}"
        handed_over = await self._call(tenure, reason="handover", id_=leave_id)
        if handed_over:
            log.info("handed over")
        return handed_over

    async def _call(self, tenure: Tenure, *, reason: str, id_: str) -> bool:
        """Call a node to the episode. Only then may the claim go: its lapse would call, too."""
        opened = tenure.opened
        recover = Recover(actor_id=opened.actor_id, episode_id=opened.episode_id, reason=reason)
        try:
            await self.crew.ports.inbox.send(recover, id=id_)
        except Unavailable as error:
            log.warning("no other node called; the lease will lapse", error=str(error))
            return False
        return True


async def _hand_back(
    delivery: Delivery[Command | Unreadable], *, most_s: float = BUSY_MAX_S
) -> None:
    """Let the command come again, later each time."""
    await delivery.nak(delay_s=backoff_s(delivery.deliveries, first_s=BUSY_S, most_s=most_s))
