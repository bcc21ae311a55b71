"""Runs one attempt at one episode: claim → fence → drive → conclude → inform → release.

Each stage is durable before the next begins and safe to repeat, so an attempt that ends anywhere,
by a crash or a lost claim, leaves the next one exactly the rest. The claim is released last; if
anything goes wrong before, it lapses, and the lapse calls for recovery. An episode that has to wait
is left once the timer or command that continues it is in place. The journal is read before the
claim is made: if the episode moves in between, the first commit, the fence, names the version that
was read and is refused. `engine/episodes/attempt.py` has the states that an attempt goes through.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

import structlog

from engine import telemetry
from engine.dead_letters.write import DeadLetterWriter
from engine.episodes import recovery
from engine.episodes.attempt import Attempt, AttemptCause, AttemptState, cover_of
from engine.episodes.episode import (
    ENDED,
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
from engine.errors import OUTCOME_UNKNOWN, cause_line
from engine.execution.conclude import Conclusion
from engine.execution.driver import Driver, Leaving, admitting
from engine.execution.parts import ActorParts
from engine.execution.report import FindingReports
from engine.execution.steps import OutputSteps
from engine.execution.takeover import decide_takeover, parked_too_long
from engine.findings.apply import FindingApplier, log_raised
from engine.outputs.deliver import NOTHING_DONE, ConclusionState, OutputDelivery
from engine.runtime.claim import Busy, EpisodeClaim
from engine.runtime.context import ActorContext
from engine.runtime.store import Contended
from engine.spending.episode import EpisodeSpending
from engine.usercode.leavable import NOT_THE_USERS
from engine.waits import parked
from engine.waits.handle import WaitRegistry
from streams.errors import LeaseLost, TooLarge, Unavailable, Unwritable, VersionConflict
from streams.keys import episode_claim
from streams.model.commands import Recover
from streams.model.events import EndStatus, EpisodeFinished, EpisodeOpened
from streams.ports.log import START, Recorded

PLAN_BYTES_MAX: Final = 200
"""How much of a plan without a summary a log line shows."""

_FRAME: Final = re.compile(r'File "([^"\n]+)", line (\d+), in (\S+)')
"""A line of a traceback, as `usercode` writes it: without frames of ours."""

log = structlog.get_logger("vigil.execution")


def new_attempt(
    context: ActorContext,
    opened: EpisodeOpened,
    episode: Episode,
    cause: AttemptCause,
    *,
    claims_first: bool = False,
    called_at: datetime | None = None,
    is_called_over: bool = False,
    on_only_commit: Callable[[], object] | None = None,
) -> Attempt:
    """Return an attempt of this node at an episode; the options are those of `Attempt`.

    It is to be run in the task that calls this, which a lost claim cancels. `is_called_over`: it is
    called for because no node has the episode any more.
    """
    task = asyncio.current_task()
    assert task is not None
    # What follows an end is told by nobody else: it is claimed before.
    is_told = context.is_laned or has_breaker(context, opened)
    claim = EpisodeClaim(
        context.leases,
        episode_claim(opened.actor_id, opened.episode_id),
        attempt=episode.attempts + 1,  # guard: claim-for-counted-attempt
        on_lost=task.cancel,
        node_lease=None if is_told else context.node_lease,  # guard: told-end-claimed
        covered_by=None if is_called_over else cover_of(episode),
    )
    # Whoever informs others of an end has its claim, or two would at the same time.
    claims_first = claims_first or episode.status in ENDED
    return Attempt(
        opened,
        claim,
        cause,
        claims_first=claims_first,
        called_at=called_at,
        on_only_commit=on_only_commit,
    )


async def run_episode(
    parts: ActorParts, attempt: Attempt, episode: Episode, records: Sequence[Recorded] = ()
) -> AttemptState:
    """Do all that can be done now of an episode; return what became of the attempt.

    Without `records`, its opening is the first event of the first commit. `Unavailable` is raised
    only before it is durable that this node has the episode, or by what acknowledges the cause.
    """
    work: EndedEpisode | EpisodeExecution
    if episode.status in ENDED:  # guard: breaker-end-noted-by-successor
        work = EndedEpisode(parts, attempt, episode, records)
    else:
        work = EpisodeExecution(parts, attempt, episode, records)
    return await _under_claim(attempt, work)


async def deliver_rest(parts: ActorParts, attempt: Attempt, episode: Episode) -> AttemptState:
    """Deliver the remaining outputs of an ended episode; return what became of the attempt."""
    return await _under_claim(attempt, UndeliveredOutputs(parts, attempt, episode))


class Work(Protocol):
    """What is done under a claim."""

    async def run(self) -> None:
        """Do it, move the attempt to its result, and release the claim unless it must lapse."""


async def _under_claim(attempt: Attempt, work: Work) -> AttemptState:
    """Return what became of an attempt. Its claim is not kept after that, whatever happens."""
    task = asyncio.current_task()
    assert task is not None
    try:
        if attempt.claims_first:
            await attempt.make_claim()
        await work.run()
    except Busy:
        attempt.move(AttemptState.NOT_BEGUN)
    except asyncio.CancelledError:
        if not attempt.claim.is_lost:
            raise
        task.uncancel()
        log.warning("stopped: the claim was lost")
        attempt.lose()
    finally:
        attempt.claim.let_lapse()
    return attempt.state


def _conclusion(parts: ActorParts, attempt: Attempt) -> Conclusion:
    context = parts.context
    applier = FindingApplier(
        context.ports,
        context.catalog.actors,
        context.clock,
        context.turns,
        owner=context.actor,
        index=parts.finding_index,
    )
    output_delivery = OutputDelivery(context, parts.adapters, attempt, next(context.writer_ids))
    return Conclusion(context, parts.adapters, attempt, applier, output_delivery)


async def _inform(
    parts: ActorParts, conclusion: Conclusion, episode: Episode, *, version: int
) -> None:
    """Inform breaker and lane of an end at `version`, while the episode is still claimed."""
    context, opened, finished = parts.context, conclusion.attempt.opened, episode.finished
    assert finished is not None, "an end that is noted"
    if episode.blocked is not None:  # guard: cancelled-wait-no-timer
        await WaitRegistry(context).forget(opened, was_parked=bool(episode.parks))
    elif episode.deferred is not None:
        await conclusion.sleep()
    if episode.status is Status.FAILED and episode.outputs_left:
        await conclusion.wake(context.clock.now())
    if has_breaker(context, opened):
        # guard: breaker-event-names-commit
        await parts.breakers.record_end(opened, finished, seq=version)
    if conclusion.attempt.is_placeless:  # guard: placeless-end-untold
        return
    if context.is_laned:  # guard: dispatcher-hears-ends
        timer = left(opened.actor_id, opened.episode_id)
        await context.ports.timers.send(timer, id=f"left.{opened.episode_id}")


def has_breaker(context: ActorContext, opened: EpisodeOpened) -> bool:
    """Return whether a circuit breaker is told of the end of an episode."""
    expectation = context.actor.expectations.get(opened.expectation_id)
    return expectation is not None and expectation.breaker is not None


@dataclass(frozen=True)
class EndedEpisode:
    """An episode that has ended: the node that wrote the end may not have informed anybody."""

    parts: ActorParts
    attempt: Attempt
    episode: Episode
    records: Sequence[Recorded]

    async def run(self) -> None:
        """Do what follows the end once more."""
        conclusion = _conclusion(self.parts, self.attempt)
        # guard: breaker-end-noted-after-crash
        await _inform(self.parts, conclusion, self.episode, version=self.records[-1].seq)
        progress = await conclusion.check(self.episode)
        await conclusion.wake(progress.wakes_at, progress.pending)
        await self.attempt.finish()
        await self.attempt.claim.give_up(error=_failure(self.episode.finished))


@dataclass(frozen=True)
class UndeliveredOutputs:
    """The outputs that an ended episode has left."""

    parts: ActorParts
    attempt: Attempt
    episode: Episode

    async def run(self) -> None:
        """Deliver them; what called for it may be acknowledged at once, for a lapse calls, too."""
        attempt, conclusion = self.attempt, _conclusion(self.parts, self.attempt)
        await attempt.secure()
        try:
            progress = await conclusion.deliver_rest(self.episode)
            await conclusion.wake(progress.wakes_at, progress.pending)
        except (VersionConflict, LeaseLost) as error:
            attempt.claim.note_lost(error)
            attempt.lose()
        except Unavailable as error:
            log.warning("stopped; what is left is for the next owner", error=str(error))
            attempt.lose()
        else:
            await attempt.finish()
            await attempt.claim.give_up()


class EpisodeExecution:
    """An episode that goes on: the stages of one attempt."""

    def __init__(
        self,
        parts: ActorParts,
        attempt: Attempt,
        episode: Episode,
        records: Sequence[Recorded],
    ) -> None:
        """Continue after `records`."""
        self._parts, self._context = parts, parts.context
        self._attempt, self._records = attempt, records
        context, opened = parts.context, attempt.opened
        self._journal = JournalWriter(
            context.ports.log,
            context.clock,
            subject=context.ports.stack.episode(opened.episode_id),
            episode=episode,
            version=records[-1].seq if records else START,
            writer_id=next(context.writer_ids),
            attempt=attempt,
            # guard: level-takeover-knows-opening
            times=times_of(records) if opened.service_level is not None else None,
        )
        self._conclusion = _conclusion(parts, attempt)
        self._output_steps = OutputSteps(self._conclusion, opened)
        self._reports = FindingReports(self._conclusion.applier, opened, self._journal)

    @property
    def _episode(self) -> Episode:
        return self._journal.episode

    async def run(self) -> None:
        """Go through the stages; what stops them decides whether the claim is released."""
        attempt = self._attempt
        try:
            await self._complete()  # guard: claim-released-last
        except Leaving:
            await self._hand_over()  # guard: leaving-node-calls-another
        except Contended as error:
            log.warning(
                "others change a finding again and again; handing the episode over",
                error=str(error),
            )
            await self._hand_over()  # guard: lost-races-handed-over
        except (VersionConflict, LeaseLost) as error:
            await self._stand_back(error)
        except (TooLarge, Unwritable):
            if attempt.state is AttemptState.FENCED:
                raise
            attempt.move(AttemptState.NOT_BEGUN)
            await attempt.claim.give_up()
        except Unavailable as error:
            if attempt.state is not AttemptState.FENCED:
                raise
            log.warning(
                "stopped: the log is away; what is left is for the next owner", error=str(error)
            )
            attempt.lose()
        else:
            await attempt.finish()
            log.debug("episode ended", status=self._episode.status.value)
            await attempt.claim.give_up(error=_failure(self._episode.finished))

    async def _complete(self) -> None:
        """Do all that can be done now.

        Raises:
            Leaving: the node is stopping; the episode is for another node.
            Busy: another node has the claim, and nothing was written.
            Contended: others change a finding again and again.
            LeaseLost, VersionConflict: another node may have taken over, or has.
            TooLarge, Unwritable: the journal cannot store an event.
        """
        context, opened = self._context, self._attempt.opened
        labels = {"actor": context.actor.id, "mode": opened.mode.value}
        started_s = context.clock.monotonic_s()
        telemetry.episodes_running.add(1, labels)
        try:
            with self._parts.running.during(self._attempt):  # guard: running-known-before-breaker
                if has_breaker(context, opened):
                    # Only now: a breaker that opens after this finds the attempt there.
                    await self._parts.breakers.check(self._attempt)
                progress = await self._go_on()
            if self._episode.status in ENDED:
                # guard: breaker-end-noted-before-release
                await _inform(
                    self._parts, self._conclusion, self._episode, version=self._journal.version
                )
            else:
                await self._leave_waiting(progress)
        finally:
            telemetry.episodes_running.add(-1, labels)
            await self._journal.close()
        if self._episode.status in ENDED:
            _report_end(opened, self._episode)
            telemetry.episode_duration.record(context.clock.monotonic_s() - started_s, labels)

    async def _go_on(self) -> ConclusionState:
        canceled = self._called_off()
        if canceled is not None:
            await self._end(canceled)
            return NOTHING_DONE
        if self._episode.status is Status.BLOCKED:
            await self._check_newest()  # guard: waiting-call-by-leader
            return NOTHING_DONE
        await self._drive(await self._fence())
        return await self._conclude()

    def _called_off(self) -> CancelEpisode | None:
        """Return the end of an episode that is canceled or has expired; else None.

        Once it has converged only undelivered outputs can be canceled, which delivery handles.
        """
        canceled, episode = self._attempt.canceled, self._episode
        # guard: queued-cancelled-before-code
        if canceled is not None and episode.converged is None:
            return admitting(canceled, episode)
        return expiry(episode, at=self._context.clock.now())

    async def _end(self, canceled: CancelEpisode) -> None:
        """Write the end of an episode that must not begin or continue."""
        spending = EpisodeSpending(self._context, self._attempt.opened, lambda: self._episode)
        await spending.settle_recorded(self._records)  # guard: recorded-settled-before-end
        if self._episode.outputs_left:
            await self._attempt.make_claim()
            canceled = await self._output_steps.cancel(self._episode, canceled)
        self._journal.record(*self._opening, *await self._cut_off(), canceled)
        await self._journal.barrier()

    async def _check_newest(self) -> None:
        """Raise `VersionConflict` if a waiting episode has moved.

        Nothing is appended to it, so no version would show that a replica lags.
        """
        subject = self._context.ports.stack.episode(self._attempt.opened.episode_id)
        newest = await self._context.ports.log.last(subject)
        if newest is None or newest.seq != self._journal.version:
            raise VersionConflict(subject, expected=self._journal.version)

    @property
    def _opening(self) -> Sequence[EpisodeOpened]:
        return (self._attempt.opened,) if self._episode.opened is None else ()

    async def _fence(self) -> Takeover:
        """Write this node's start, and return how it takes over from a node that has crashed."""
        context, opened, takeover = self._context, self._attempt.opened, Takeover()
        # Only what a strategy may go on with needs an expectation: this node may not know it.
        if self._episode.status is Status.RUNNING:  # guard: carried-without-expectation
            takeover = await decide_takeover(context, opened, self._episode)
        elif self._episode.parked and parked.is_over(self._episode, at=context.clock.now()):
            takeover = parked_too_long(self._episode)  # guard: parked-until-its-time
        fresh, code = takeover.fresh, context.codes.get(opened.expectation_id, "")
        # guard: lone-crash-on-journal
        begin = Begin(node=context.node, fresh=fresh, alone=context.is_alone, code=code)
        self._journal.record(*self._opening, begin)
        if self._attempt.claims_first:  # guard: takeover-fence-awaited
            await self._journal.barrier()
        return takeover

    async def _drive(self, takeover: Takeover) -> None:
        """Run the strategy, unless it has ended before or may not go on."""
        if takeover.error_class:
            await self._give_up(takeover)
        elif self._episode.status is Status.RUNNING:
            driver = Driver(
                self._parts, self._attempt, self._journal, self._output_steps, self._reports
            )
            await driver.drive(() if takeover.fresh else self._records)

    async def _give_up(self, takeover: Takeover) -> None:
        """End the episode as the takeover decided, after its dead letter if it gets one."""
        error_class, detail = takeover.error_class, takeover.detail
        if error_class in {recovery.ATTEMPTS_EXHAUSTED, OUTCOME_UNKNOWN}:
            dead_letters = DeadLetterWriter(self._context.ports, self._context.clock)
            opened = self._attempt.opened
            await dead_letters.write_episode(opened, reason=error_class, detail=detail)
        settled = self._episode.outputs_settled
        self._journal.record(
            *await self._cut_off(),
            FailEpisode(error_class=error_class, error_detail=detail, outputs=settled),
        )
        await self._journal.barrier()

    async def _cut_off(self) -> list[Performed]:
        """Return the steps of reports that a crash has cut off, once their findings are applied."""
        # guard: report-announced-applied
        if not any(each.findings for each in self._episode.announced):
            return []
        await self._attempt.make_claim()
        return await self._reports.settle()

    async def _conclude(self) -> ConclusionState:
        """Apply and deliver the result of an episode that has converged."""
        if self._episode.status is not Status.CONVERGING:
            return NOTHING_DONE
        progress = await self._conclusion.carry_out(self._episode, self._journal)
        self._journal.record(progress.end)
        await self._journal.barrier()
        return progress

    async def _leave_waiting(self, progress: ConclusionState) -> None:
        """Make sure that the episode continues when its answer arrives or its time is up."""
        if self._episode.status is Status.BLOCKED:
            # guard: blocked-served-by-next-call
            await WaitRegistry(self._context).register(self._attempt.opened)
            encrypts = self._context.ports.encrypts
            _report_block(self._attempt.opened, self._episode, encrypts=encrypts)
        else:
            await self._conclusion.leave(progress, version=self._journal.version)

    async def _stand_back(self, error: VersionConflict | LeaseLost) -> None:
        """Leave an episode that is another node's, or has moved since it was read."""
        attempt = self._attempt
        if attempt.state is AttemptState.FENCED:
            attempt.claim.note_lost(error)
            return attempt.lose()
        attempt.move(AttemptState.NOT_BEGUN)
        # A claim that replaced a lapsed one has removed the marker of the lapse, and the call for
        # recovery may have been answered elsewhere: then nothing else calls for the episode.
        id_ = f"refused.{attempt.claim}"
        lapsed = attempt.claim.lapse_revision
        # guard: stolen-lapse-remembered
        if not lapsed or await self._call("lapsed", id_=id_, lapsed=lapsed):
            await attempt.claim.give_up()
        return None

    async def _hand_over(self) -> None:
        """Call another node to an episode that goes on there."""
        attempt = self._attempt
        id_ = f"leave.{attempt.opened.episode_id}.{self._episode.attempts}"
        has_called = await self._call("handover", id_=id_)
        if has_called and attempt.state is AttemptState.FENCED:
            attempt.move(AttemptState.HANDED_OVER)
            log.info("handed over")
        else:
            attempt.lose()
        if has_called:
            await attempt.claim.give_up()

    async def _call(self, reason: str, *, id_: str, lapsed: int = 0) -> bool:
        """Send a command for the episode. Only then may the claim go: its lapse would call, too."""
        opened = self._attempt.opened
        recover = Recover(
            actor_id=opened.actor_id,
            episode_id=opened.episode_id,
            reason=reason,
            lapse_revision=lapsed,
        )
        try:
            await self._context.ports.commands.send(recover, id=id_)
        except Unavailable as error:
            log.warning("no other node called; the lease will lapse", error=str(error))
            return False
        return True


def _report_end(opened: EpisodeOpened, episode: Episode) -> None:
    """Count an end that this node has written, and log it if the episode has failed."""
    finished = episode.finished
    # guard: only-failure-logged
    if finished is not None and finished.status is EndStatus.FAILED:
        log.warning(
            "episode failed",
            actor=opened.actor_id,
            episode_id=opened.episode_id,
            error_class=finished.error_class,
            detail=cause_line(finished.error_detail),
            **_line_of(finished.error_detail),
        )
    if finished is not None and finished.findings:
        log_raised(opened, finished.findings)
    # guard: dry-episodes-counted-apart
    labels = {"actor": opened.actor_id, "mode": opened.mode.value}
    telemetry.episodes_ended.add(1, {**labels, "status": episode.status.value})
    if finished is not None and finished.service_level is not None:
        # guard: level-met-counted
        telemetry.service_levels.add(1, labels_of(opened, finished.service_level))


def _line_of(detail: str) -> dict[str, str]:
    """Return the user's line in the traceback of a crash, as a field of a log line."""
    frames = _FRAME.findall(detail)
    if not frames:
        return {}
    own = [each for each in frames if not each[0].startswith(NOT_THE_USERS)]
    file, line, function = (own or frames)[-1]  # guard: users-line-logged
    return {"at": f"{Path(file).name}:{line}, in {function}"}


def _report_block(opened: EpisodeOpened, episode: Episode, *, encrypts: bool) -> None:
    """Log what people or programs are to answer; without contents, if the stack encrypts them."""
    blocked = episode.blocked
    if blocked is not None and blocked.parked is not None:
        log.warning(
            "episode parked: its replay takes another way",
            actor=opened.actor_id,
            episode_id=opened.episode_id,
            how=blocked.parked.how,
        )
        return
    if blocked is None or (blocked.wait is not None and not blocked.wait.ref):
        return  # A sleep ends by itself.
    what = blocked.wait.ref if blocked.wait is not None else ""
    # guard: encrypted-plan-not-logged
    if (asked := blocked.approval) is not None and not encrypts:  # As `vigil inbox` shows it.
        what = asked.summary or bytes(asked.plan)[:PLAN_BYTES_MAX].decode(errors="ignore")
    log.info(
        "episode waits",
        actor=opened.actor_id,
        episode_id=opened.episode_id,
        reason=blocked.reason.value,
        what=what,
    )


def _failure(finished: EpisodeFinished | None) -> str:
    if finished is None or finished.status is not EndStatus.FAILED:
        return ""
    return f"{finished.error_class}: {finished.error_detail}"
