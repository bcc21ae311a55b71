"""Concludes an episode: applies its findings, then delivers its outputs. All of it may be repeated.

If something must wait (a retry, an approval), no node keeps the episode, and a timer calls one
back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import structlog

from engine.app.outputs import missing
from engine.episodes import dry_run
from engine.episodes import open as opening
from engine.episodes.attempt import Attempt
from engine.episodes.episode import CancelEpisode, Episode, Status
from engine.episodes.open import ATTEND, call_by
from engine.findings.apply import FindingApplier
from engine.findings.store import OwnJournal
from engine.outputs.deliver import ConclusionState, DeliveryState, OutputDelivery, added_up
from engine.outputs.keys import wanted
from engine.outputs.pool import AdapterPool
from engine.runtime.context import ActorContext
from engine.runtime.gather import gather_bounded
from streams.model.events import EpisodeOpened
from streams.model.findings import FindingOutcome
from streams.model.outputs import FAILURES, OUTCOMES, OutputIntent, OutputOutcome, OutputStatus

OUTPUTS_IN_FLIGHT_MAX: Final = 16
"""Outputs of one episode that are delivered at a time."""

_CANCELED: Final = OUTCOMES[OutputStatus.CANCELED]

log = structlog.get_logger("vigil.outputs")


@dataclass(frozen=True)
class Conclusion:
    """Applies and delivers the result of one episode, on one node."""

    context: ActorContext
    adapters: AdapterPool
    attempt: Attempt
    applier: FindingApplier
    output_delivery: OutputDelivery

    @property
    def opened(self) -> EpisodeOpened:
        """The opening of the episode."""
        return self.attempt.opened

    async def carry_out(self, episode: Episode, journal: OwnJournal) -> ConclusionState:
        """Do all that can be done now for `episode`, which has converged.

        `journal`: see `FindingApplier`. `LeaseLost` or `VersionConflict`: another node has the
        episode.
        """
        findings = await self._findings(episode, journal)
        outputs = await self._outputs(episode)
        canceled = self.attempt.canceled
        if canceled is not None:  # guard: put-off-cancelled-too
            outputs = await self._drop_pending(episode, outputs, why=canceled)
        progress = replace(outputs, findings=findings)
        if canceled is None or not any(one.outcome == _CANCELED for one in progress.outputs):
            return progress
        end = CancelEpisode(
            error_class=canceled.error_class,
            error_detail=canceled.error_detail,
            findings=findings,
            outputs=progress.outputs,
        )
        return replace(progress, canceled=end)

    async def check(self, episode: Episode) -> ConclusionState:
        """Return how far the outputs of an `episode` that has ended are, and change nothing."""
        return added_up(await self._each(self._wanted(episode), self.output_delivery.state))

    async def deliver_rest(self, episode: Episode) -> ConclusionState:
        """Deliver the remaining outputs of an ended episode.

        If it was canceled, only outputs that a person has retried since.
        """
        finished = episode.finished
        assert finished is not None, "what is settled after an end"

        async def carry(key: str) -> DeliveryState:
            # guard: only-retried-delivered-after-cancel
            if episode.status is Status.CANCELED and not await self.output_delivery.is_retried(key):
                return await self.output_delivery.cancel(key, None, reason=finished.error_detail)
            return await self.output_delivery.carry(key, None)

        return added_up(await self._each(self._wanted(episode), carry))

    async def cancel(self, keys: Iterable[str], why: CancelEpisode) -> ConclusionState:
        """Cancel outputs of steps unless they are settled."""

        async def cancel(key: str) -> DeliveryState:
            return await self.output_delivery.cancel(key, None, reason=why.error_detail)

        return added_up(await self._each(keys, cancel))

    async def leave(self, progress: ConclusionState, *, version: int) -> None:
        """Arm the timer for what is pending, and give the lane's place back; raises `LeaseLost`."""
        self.attempt.claim.check()
        await self.wake(progress.wakes_at, progress.pending)
        if self.context.is_laned:
            actor, episode_id = self.opened.actor_id, self.opened.episode_id
            left = opening.left_for_now(actor, episode_id)
            await self.context.ports.timers.send(left, id=f"left.{episode_id}.deferred.{version}")

    async def wake(self, at: datetime | None, pending: Iterable[str] = ()) -> None:
        """Arm the timer that calls a node by `at`, or sooner if a route has a place."""
        if at is not None:
            await call_by(self.context.ports, self.opened, at)
            self.adapters.line_up(pending, self.opened)  # guard: left-episode-in-line

    async def sleep(self) -> None:
        """Cancel that timer."""
        await self.context.ports.timers.cancel(self.opened.actor_id, ATTEND, self.opened.episode_id)

    def _wanted(self, episode: Episode) -> dict[str, OutputIntent | None]:
        return wanted(episode, self.opened) if dry_run.delivers(self.opened) else {}

    async def _findings(self, episode: Episode, journal: OwnJournal) -> tuple[FindingOutcome, ...]:
        """Apply the findings, unless that was done before."""
        assert episode.converged is not None, "what is carried out was decided"
        if episode.deferred is not None:
            return episode.deferred.findings
        applied = await self.applier.apply(
            episode.converged.findings,
            opened=self.opened,
            attempt=episode.attempts,
            number=len(episode.reported),  # guard: report-returned-is-another
            journal=journal,
        )
        return tuple(one.outcome for one in applied)

    async def _outputs(self, episode: Episode) -> ConclusionState:
        assert episode.converged is not None, "what is carried out was decided"
        if not episode.converged.outputs and not episode.outputs_left:
            return ConclusionState(outputs=episode.outputs_settled)
        keyed, known = wanted(episode, self.opened), _known(episode)
        if not dry_run.delivers(self.opened):
            known = {one.output_key: one for one in episode.outputs_settled}
            known |= {key: self._undelivered(key, intent) for key, intent in keyed.items()}
        is_new = episode.attempts == 1 and episode.deferred is None

        async def carry(key: str) -> DeliveryState:
            if self.attempt.canceled is not None:  # guard: cancelled-episode-cancels-outputs
                reason = self.attempt.canceled.error_detail
                return await self.output_delivery.cancel(key, keyed[key], reason=reason)
            is_first = is_new and key not in episode.outputs
            return await self.output_delivery.carry(key, keyed[key], is_new=is_first)

        left = [key for key in keyed if key not in known]
        return added_up(await self._each(left, carry), known=known, order=keyed)

    def _undelivered(self, key: str, intent: OutputIntent | None) -> OutputOutcome:
        has_adapter = intent is None or self.adapters.of(intent.adapter) is not None
        if intent is not None and not has_adapter:
            log.warning("not delivered", output_key=key, why=missing(intent.adapter))
        return dry_run.undelivered(key, has_adapter=has_adapter)

    async def _drop_pending(
        self, episode: Episode, progress: ConclusionState, *, why: CancelEpisode
    ) -> ConclusionState:
        """Cancel the postponed outputs, too; return the state of all."""
        keyed = wanted(episode, self.opened)

        async def cancel(key: str) -> DeliveryState:
            return await self.output_delivery.cancel(key, keyed[key], reason=why.error_detail)

        known = {one.output_key: one for one in progress.outputs}
        return added_up(await self._each(progress.pending, cancel), known=known, order=keyed)

    async def _each(
        self, keys: Iterable[str], carry: Callable[[str], Awaitable[DeliveryState]]
    ) -> list[DeliveryState]:
        """Carry several outputs, some at a time; if one fails, the others are stopped."""
        return await gather_bounded(carry, keys, in_flight_max=OUTPUTS_IN_FLIGHT_MAX)


def _known(episode: Episode) -> dict[str, OutputOutcome]:
    """Return what is settled for good: a person may have retried what failed."""
    later = episode.deferred.outputs if episode.deferred else ()
    settled = (*episode.outputs_settled, *later)
    return {one.output_key: one for one in settled if one.outcome not in FAILURES}
