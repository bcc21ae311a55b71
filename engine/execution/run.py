"""One attempt of one node at one episode: claim → fence → drive → conclude → inform.

Each stage is durable before the next begins and safe to repeat, so an attempt that ends anywhere,
by a crash or a lost claim, leaves the next one exactly the rest. The claim is given up last; if
anything goes wrong before, it lapses, and the lapse calls for recovery. An episode that has to wait
is left once the timer or command that continues it is in place. The journal is read before the
claim is made: if the episode moves in between, the first commit, the fence, names the version that
was read and is refused. Only after the fence is the command acknowledged.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from engine import telemetry
from engine.dead_letters.write import DeadLetterWriter
from engine.episodes import recovery
from engine.episodes.cancel import EpisodeRun
from engine.episodes.episode import (
    ENDED,
    UNOPENED,
    Begin,
    CancelEpisode,
    Episode,
    FailEpisode,
    Performed,
    Status,
    expiry,
)
from engine.episodes.open import left
from engine.episodes.recovery import Takeover
from engine.episodes.service_level import labels_of, times_of
from engine.episodes.writer import JournalWriter
from engine.errors import OUTCOME_UNKNOWN
from engine.execution.conclude import Conclusion
from engine.execution.driver import Driver, Leaving, admitting
from engine.execution.report import FindingReports
from engine.execution.steps import OutputSteps
from engine.execution.takeover import decide_takeover
from engine.findings.apply import FindingApplier, log_raised
from engine.outputs.deliver import NOTHING_DONE, ConclusionState, OutputDelivery
from engine.outputs.pool import OutputContext
from engine.runtime.leases import NO_CLAIM, Busy, EpisodeLease
from engine.runtime.store import Contended
from engine.waits.handle import WaitRegistry
from streams.errors import LeaseLost, TooLarge, Unavailable, Unwritable, VersionConflict
from streams.keys import episode_claim
from streams.model.commands import Recover
from streams.model.events import EndStatus, EpisodeEvent, EpisodeFinished, EpisodeOpened
from streams.ports.log import START, Recorded

Accept: TypeAlias = Callable[[], Awaitable[None]]

PLAN_BYTES_MAX: Final = 200
"""How much of a plan without a summary a log line shows."""

_FRAME: Final = re.compile(r'File "([^"\n]+)", line (\d+), in (\S+)')
"""A line of a traceback, as `usercode` writes it: without frames of ours."""

log = structlog.get_logger("vigil.execution")


def _line_of(detail: str) -> dict[str, str]:
    """Return the user's line in the traceback of a crash, as a field of a log line."""
    frames = _FRAME.findall(detail)
    if not frames:
        return {}
    file, line, function = frames[-1]
    return {"at": f"{Path(file).name}:{line}, in {function}"}


class Attempt:
    """One attempt, from the fence to what follows the end."""

    def __init__(
        self,
        context: OutputContext,
        opened: EpisodeOpened,
        episode: Episode,
        records: Sequence[Recorded],
        *,
        hold: EpisodeLease,
        accept: Accept,
        called_at: datetime | None = None,
    ) -> None:
        """Continue after `records`; without any, `opened` is the first event of the first commit.

        Args:
            accept: called once a crash of this node loses nothing: when the fence is durable under
                a claim, or when all is done.
            called_at: when the timer that called this node fired, by the server's clock; None: it
                was called for another reason.
        """
        self.opened = opened
        self._context, self._records, self._hold, self._accept = context, records, hold, accept
        self.is_accepted = False
        """Whether `accept` was called."""
        self._run = EpisodeRun(opened)
        self._takeover = Takeover()
        self._had_ended = episode.status in ENDED
        expectation = context.actor.expectations.get(opened.expectation_id)
        self._has_breaker = expectation is not None and expectation.breaker is not None
        self._journal = JournalWriter(
            context.ports.log,
            context.clock,
            subject=context.ports.stack.episode(opened.episode_id),
            episode=episode,
            version=records[-1].seq if records else START,
            writer_id=next(context.writer_ids),
            before_fence=self._secure,
            after_fence=self._note_fenced,
            # guard: level-takeover-knows-opening
            times=times_of(records) if opened.service_level is not None else None,
        )
        applier = FindingApplier(
            context.ports,
            context.catalog.actors,
            context.clock,
            context.turns,
            owner=context.actor,
            index=context.finding_index,
        )
        output_delivery = OutputDelivery(
            context, opened, next(context.writer_ids), self._check_claim, called_at
        )
        self._conclusion = Conclusion(context, opened, self._run, applier, output_delivery)
        self._output_steps = OutputSteps(self._conclusion, opened)
        self._reports = FindingReports(applier, opened, self._journal)

    @property
    def episode(self) -> Episode:
        """The episode as this attempt knows it."""
        return self._journal.episode

    @property
    def is_fenced(self) -> bool:
        """Whether this node's start is durable: from then on no other node can append."""
        return self._journal.is_fenced

    @property
    def has_ended(self) -> bool:
        """Whether the end of the episode is durable, by this attempt or an earlier one."""
        return self._had_ended or (self.is_fenced and self.episode.status in ENDED)

    async def complete(self, *, careful: bool) -> None:
        """Write the fence, and do all that is left.

        With `careful`, wait for the fence before anything else. Otherwise it may share a commit
        with what follows, and is awaited only before the first side effect.

        Raises:
            Leaving: the node is stopping; the episode is for another node.
            Busy: another node has the claim, and nothing was written.
            LeaseLost, VersionConflict: another node may have taken over, or has.
            TooLarge, Unwritable: the journal cannot store an event.
        """
        labels = {"actor": self._context.actor.id, "mode": self.opened.mode.value}
        started_s = self._context.clock.monotonic_s()
        telemetry.episodes_running.add(1, labels)
        try:
            with self._context.running.during(self._run):  # guard: running-known-before-breaker
                if self._has_breaker:
                    # Only now: a breaker that opens after this finds the run there.
                    await self._context.breakers.check(self._run)
                progress = await self._go_on(careful=careful)
            if self.episode.status in ENDED:
                await self._inform()  # guard: breaker-end-noted-before-release
            else:
                await self._leave_waiting(progress)
            await self._accept_once()
        finally:
            telemetry.episodes_running.add(-1, labels)
            await self._journal.close()
        if self.episode.status not in ENDED:
            return
        self._report_end()
        telemetry.episode_duration.record(self._context.clock.monotonic_s() - started_s, labels)

    async def inform_again(self) -> None:
        """Do what follows the end once more: the node that wrote the end may not have."""
        await self._inform()  # guard: breaker-end-noted-after-crash
        progress = await self._conclusion.check(self.episode)
        await self._conclusion.wake(progress.wakes_at, progress.pending)
        await self._accept_once()

    async def deliver_rest(self) -> None:
        """Deliver the remaining outputs of an ended episode, which stays as it is."""
        await self._accept_once()
        progress = await self._conclusion.deliver_rest(self.episode)
        await self._conclusion.wake(progress.wakes_at, progress.pending)

    async def _inform(self) -> None:
        """Inform breaker and lane of the end, while the episode is still claimed."""
        context, opened, finished = self._context, self.opened, self.episode.finished
        assert finished is not None, "an end that is noted"
        await self._update_timers()
        if self._has_breaker:
            # guard: breaker-event-names-commit
            await context.breakers.record_end(opened, finished, seq=self._journal.version)
        if context.is_laned:  # guard: dispatcher-hears-ends
            timer = left(opened.actor_id, opened.episode_id)
            await context.ports.timers.send(timer, id=f"left.{opened.episode_id}")

    async def _update_timers(self) -> None:
        episode = self.episode
        if episode.blocked is not None:  # guard: cancelled-wait-no-timer
            await WaitRegistry(self._context).forget(self.opened)
        elif episode.deferred is not None:
            await self._conclusion.sleep()
        if episode.status is Status.FAILED and episode.outputs_left:
            await self._conclusion.wake(self._context.clock.now())

    def _report_end(self) -> None:
        """Count an end that this node has written, and log it if the episode has failed."""
        finished = self.episode.finished
        # guard: only-failure-logged
        if finished is not None and finished.status is EndStatus.FAILED:
            detail = finished.error_detail.rstrip().splitlines()[-1:]
            log.warning(
                "episode failed",
                actor=self.opened.actor_id,
                episode_id=self.opened.episode_id,
                error_class=finished.error_class,
                detail="".join(detail),
                **_line_of(finished.error_detail),
            )
        if finished is not None and finished.findings:
            log_raised(self.opened, finished.findings)
        # guard: dry-episodes-counted-apart
        labels = {"actor": self.opened.actor_id, "mode": self.opened.mode.value}
        telemetry.episodes_ended.add(1, {**labels, "status": self.episode.status.value})
        if finished is not None and finished.service_level is not None:
            # guard: level-met-counted
            telemetry.service_levels.add(1, labels_of(self.opened, finished.service_level))

    def _report_block(self) -> None:
        """Log what people or programs are to answer."""
        blocked = self.episode.blocked
        if blocked is None or (blocked.wait is not None and not blocked.wait.ref):
            return  # A sleep ends by itself.
        what = blocked.wait.ref if blocked.wait is not None else ""
        if (asked := blocked.approval) is not None:  # As `vigil inbox` shows it.
            what = asked.summary or bytes(asked.plan)[:PLAN_BYTES_MAX].decode(errors="ignore")
        log.info(
            "episode waits",
            actor=self.opened.actor_id,
            episode_id=self.opened.episode_id,
            reason=blocked.reason.value,
            what=what,
        )

    async def _go_on(self, *, careful: bool) -> ConclusionState:
        if self.episode.status is Status.BLOCKED and self._called_off() is None:
            await self._check_newest()  # guard: waiting-call-by-leader
            return NOTHING_DONE
        await self._fence(careful=careful)
        return await self._drive_and_finish()

    async def _check_newest(self) -> None:
        """Raise `VersionConflict` if a waiting episode has moved.

        Nothing is appended to it, so no version would show that a replica lags.
        """
        subject = self._context.ports.stack.episode(self.opened.episode_id)
        newest = await self._context.ports.log.last(subject)
        if newest is None or newest.seq != self._journal.version:
            raise VersionConflict(subject, expected=self._journal.version)

    async def _leave_waiting(self, progress: ConclusionState) -> None:
        """Make sure that the episode continues when its answer arrives or its time is up."""
        if self.episode.status is Status.BLOCKED:
            # guard: blocked-served-by-next-call
            await WaitRegistry(self._context).register(self.opened)
            self._report_block()
        else:
            await self._conclusion.leave(progress, version=self._journal.version)

    async def _fence(self, *, careful: bool) -> None:
        """Write this node's start, or the end of an episode that must not begin or continue."""
        opening = (self.opened,) if self.episode.opened is None else ()
        if canceled := self._called_off():
            if self.episode.outputs_left:
                await self._hold.claim()
                canceled = await self._output_steps.cancel(self.episode, canceled)
            self._journal.record(*opening, *await self._cut_off(), canceled)
            return await self._journal.barrier()
        # Only what a strategy may go on with needs an expectation: this node may not know it.
        if self.episode.status is Status.RUNNING:  # guard: carried-without-expectation
            self._takeover = await decide_takeover(self._context, self.opened, self.episode)
        context, fresh = self._context, self._takeover.fresh
        # guard: lone-crash-on-journal
        begin = Begin(node=context.node, fresh=fresh, alone=context.is_alone)
        self._journal.record(*opening, begin)
        if careful:  # guard: takeover-fence-awaited
            await self._journal.barrier()
        return None

    async def _cut_off(self) -> list[Performed]:
        """Return the steps of reports that a crash has cut off, once their findings are applied."""
        # guard: report-announced-applied
        if not any(each.findings for each in self.episode.announced):
            return []
        await self._hold.claim()
        return await self._reports.settle()

    def _called_off(self) -> CancelEpisode | None:
        """Return the end of an episode that is canceled or has expired; else None.

        Once it has converged only undelivered outputs can be canceled, which delivery handles.
        """
        canceled, episode = self._run.canceled, self.episode
        # guard: queued-cancelled-before-code
        if canceled is not None and episode.converged is None:
            return admitting(canceled, episode)
        return expiry(episode, at=self._context.clock.now())

    async def _secure(self, first: Sequence[EpisodeEvent]) -> int:
        """Return the revision of the claim, made now unless the `first` commit is everything."""
        # guard: continued-episode-claimed
        is_all = any(isinstance(event, EpisodeFinished) for event in first)
        if is_all and self._hold.held is None:
            return NO_CLAIM
        if not is_all:
            await self._hold.claim()
        self._check_claim()
        return self._hold.revision

    async def _note_fenced(self) -> None:
        """Report that the fence is durable."""
        if self._hold.held is not None:  # guard: wakened-waits-until-told
            await self._accept_once()

    async def _accept_once(self) -> None:
        if not self.is_accepted:
            self.is_accepted = True
            await self._accept()

    async def _drive_and_finish(self) -> ConclusionState:
        if self._takeover.error_class:
            await self._give_up()
        elif self.episode.status is Status.RUNNING:
            records = () if self._takeover.fresh else self._records
            driver = Driver(
                self._context,
                self.opened,
                self._journal,
                self._output_steps,
                self._reports,
                self._run,
                self._check_claim,
            )
            await driver.drive(records)
        if self.episode.status is not Status.CONVERGING:
            return NOTHING_DONE
        progress = await self._conclusion.carry_out(self.episode, self._journal.check_newest)
        self._journal.record(progress.end)
        await self._journal.barrier()
        return progress

    async def _give_up(self) -> None:
        """End the episode as the takeover decided, after its dead letter if it gets one."""
        why = self._takeover
        if why.error_class in {recovery.ATTEMPTS_EXHAUSTED, OUTCOME_UNKNOWN}:
            dead_letters = DeadLetterWriter(self._context.ports, self._context.clock)
            await dead_letters.write_episode(self.opened, reason=why.error_class, detail=why.detail)
        settled = self.episode.outputs_settled
        self._journal.record(
            *await self._cut_off(),
            FailEpisode(error_class=why.error_class, error_detail=why.detail, outputs=settled),
        )
        await self._journal.barrier()

    def _check_claim(self) -> None:
        self._hold.check(monotonic_s=self._context.clock.monotonic_s())


@dataclass(frozen=True)
class EpisodeRunner:
    """Runs one attempt under a claim.

    `Unavailable` is raised only before it is durable that this node has the episode.
    """

    context: OutputContext
    accept: Accept
    """See `Attempt`."""
    called_at: datetime | None = None
    """See `Attempt`."""

    async def open(self, opened: EpisodeOpened) -> bool:
        """Open an episode and run it at once; return whether this node got it."""
        return await self._run(opened, UNOPENED, (), careful=False)

    async def deliver_rest(self, episode: Episode, records: Sequence[Recorded]) -> bool:
        """Deliver the remaining outputs of an ended episode; return whether this node may."""
        assert episode.opened is not None, "an end of what was never opened"
        return await self._run(episode.opened, episode, records, careful=True, settles=True)

    async def take_over(
        self, episode: Episode, records: Sequence[Recorded], *, careful: bool
    ) -> bool:
        """Do what is left of an episode; return whether this node got it.

        With `careful`, the claim and the start are durable first: a crash of its code then counts.
        """
        assert episode.opened is not None, "an attempt at an episode that was never opened"
        is_over = episode.status in ENDED
        return await self._run(episode.opened, episode, records, careful=careful or is_over)

    async def _run(
        self,
        opened: EpisodeOpened,
        episode: Episode,
        records: Sequence[Recorded],
        *,
        careful: bool,
        settles: bool = False,
    ) -> bool:
        task = asyncio.current_task()
        assert task is not None
        key = episode_claim(opened.actor_id, opened.episode_id)
        leases = self.context.leases
        # guard: claim-for-counted-attempt
        hold = EpisodeLease(leases, key, attempt=episode.attempts + 1, on_lost=task.cancel)
        # guard: acknowledged-after-fence
        this_attempt = Attempt(
            self.context,
            opened,
            episode,
            records,
            hold=hold,
            accept=self.accept,
            called_at=self.called_at,
        )
        try:
            if careful:
                await hold.claim()
            await self._work(this_attempt, hold, careful=careful, settles=settles)
        except Busy:
            return False
        except asyncio.CancelledError:
            if not hold.is_lost:
                raise
            task.uncancel()
            log.warning("stopped: the claim was lost")
        finally:
            hold.let_lapse()
        return this_attempt.is_fenced or this_attempt.has_ended or this_attempt.is_accepted

    async def _work(
        self, this_attempt: Attempt, hold: EpisodeLease, *, careful: bool, settles: bool
    ) -> None:
        if settles:
            may_go = await self._settle(this_attempt, hold)
        elif this_attempt.has_ended:
            await this_attempt.inform_again()  # guard: breaker-end-noted-by-successor
            may_go = True
        else:
            # guard: claim-released-last
            may_go = await self._serve(this_attempt, hold, careful=careful)
        if may_go:
            has_failed = this_attempt.has_ended and not settles
            finished = this_attempt.episode.finished if has_failed else None
            await hold.give_up(error=_failure(finished))

    async def _settle(self, this_attempt: Attempt, hold: EpisodeLease) -> bool:
        """Deliver outputs of an ended episode; return whether the claim may be given up."""
        try:
            await this_attempt.deliver_rest()
        except (VersionConflict, LeaseLost) as error:
            hold.note_lost(error)
            return False
        except Unavailable as error:
            log.warning("stopped; what is left is for the next owner", error=str(error))
            return False
        return True

    async def _serve(self, this_attempt: Attempt, hold: EpisodeLease, *, careful: bool) -> bool:
        """Run an attempt to its end; return whether its claim may be given up."""
        try:
            await this_attempt.complete(careful=careful)
        except Leaving:
            return await self._hand_over(this_attempt)  # guard: leaving-node-calls-another
        except Contended as error:
            log.warning(
                "others change a finding again and again; handing the episode over",
                error=str(error),
            )
            return await self._hand_over(this_attempt)  # guard: lost-races-handed-over
        except (VersionConflict, LeaseLost) as error:
            if not this_attempt.is_fenced:
                return await self._stand_back(this_attempt, hold)
            hold.note_lost(error)
            return False
        except (TooLarge, Unwritable):
            if this_attempt.is_fenced:
                raise
            return True
        except Unavailable as error:
            if not this_attempt.is_fenced:
                raise
            log.warning(
                "stopped: the log is away; what is left is for the next owner", error=str(error)
            )
            return False
        log.debug("episode ended", status=this_attempt.episode.status.value)
        return True

    async def _stand_back(self, this_attempt: Attempt, hold: EpisodeLease) -> bool:
        """Leave an episode that has moved since it was read; return whether the claim may go.

        A claim that replaced a lapsed one has removed the marker of the lapse, and the call for
        recovery may have been answered elsewhere: then nothing else calls for the episode.
        """
        id_ = f"refused.{hold}"
        # guard: stolen-lapse-remembered
        return not hold.is_stolen or await self._call(this_attempt, reason="lapsed", id_=id_)

    async def _hand_over(self, this_attempt: Attempt) -> bool:
        leave_id = f"leave.{this_attempt.opened.episode_id}.{this_attempt.episode.attempts}"
        handed_over = await self._call(this_attempt, reason="handover", id_=leave_id)
        if handed_over:
            log.info("handed over")
        return handed_over

    async def _call(self, this_attempt: Attempt, *, reason: str, id_: str) -> bool:
        """Send a command for the episode. Only then may the claim go: its lapse would call, too."""
        opened = this_attempt.opened
        recover = Recover(actor_id=opened.actor_id, episode_id=opened.episode_id, reason=reason)
        try:
            await self.context.ports.commands.send(recover, id=id_)
        except Unavailable as error:
            log.warning("no other node called; the lease will lapse", error=str(error))
            return False
        return True


def _failure(finished: EpisodeFinished | None) -> str:
    if finished is None or finished.status is not EndStatus.FAILED:
        return ""
    return f"{finished.error_class}: {finished.error_detail}"
