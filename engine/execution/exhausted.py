"""Makes a result of what an episode has gathered when its budget is used up: `on_exhausted`.

Like `converge`, the callback may read the outside, and runs again if the node dies before its
result is recorded.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from engine.app.context import Exhausted, Findings, GatheredStep, PartialResult, view_of
from engine.app.tools import ToolFailed
from engine.episodes import dry_run
from engine.episodes.episode import Episode
from engine.episodes.results import fetch
from engine.errors import BudgetExceeded, EpisodeFailed
from engine.functions.history import CHANGED
from engine.functions.result import conclusion
from engine.runtime.store import read_up_to
from engine.usercode.call import attempt, call
from streams.clock import Clock
from streams.errors import VersionConflict
from streams.json import unraw
from streams.model.events import (
    GRANTED,
    EpisodeConverged,
    EpisodeOpened,
    EpisodeStarted,
    StepKind,
    StepRecorded,
)
from streams.ports.all import Ports
from streams.ports.log import Recorded

EXHAUSTED_S_MAX: Final = 10.0
"""Longest that `on_exhausted` may take, in seconds: the budget of its episode is used up."""


def has_cut_off(episode: Episode) -> bool:
    """Return whether nobody knows the outcome of a side effect: that must not look like success."""
    return any(each.is_call for each in episode.announced)  # guard: exhausted-cut-side-effect


def gathered(records: Sequence[Recorded]) -> Sequence[StepRecorded]:
    """Return what was done in `records`, oldest first, since the strategy last restarted."""
    steps: list[StepRecorded] = []
    for event in (event for record in records for event in record.commit.events):
        if isinstance(event, EpisodeStarted) and event.fresh:  # guard: exhausted-since-restart
            steps = []
        elif isinstance(event, StepRecorded) and event.kind is not StepKind.CHECKPOINT:
            steps.append(event)
    # guard: exhausted-changes-no-steps
    return [each for each in steps if not each.path.startswith((CHANGED, GRANTED))]


@dataclass(frozen=True)
class ExhaustedEpisode:
    """An episode whose budget is used up, on the node that has it."""

    ports: Ports
    clock: Clock
    opened: EpisodeOpened
    findings: Findings
    version: int
    """Everything that was recorded is durable up to this."""
    reported: Sequence[str]
    """The keys of the findings that it has reported."""

    async def converge(
        self, on_exhausted: PartialResult, failed: BudgetExceeded, state: object
    ) -> EpisodeConverged:
        """Return the result that `on_exhausted` makes; `EpisodeFailed`: it makes none."""
        try:
            records = await self._records()
            exhausted = Exhausted(
                limit=failed.limit,
                detail=failed.detail,
                episode=view_of(self.opened, self.ports.stack.name, self.findings),
                trigger=self.opened.trigger,
                steps=[await self._as_gathered(each) for each in gathered(records)],
                state=state,
            )
            async with self.clock.timeout(EXHAUSTED_S_MAX):  # guard: exhausted-ten-seconds
                returned = await attempt(_asked(on_exhausted, exhausted))
            converged = await call(conclusion, returned)
            if converged is None:
                raise failed  # guard: exhausted-without-result-fails
            known = self.reported
            # guard: exhausted-dry-findings-apart
            apart = await call(dry_run.set_apart, converged, self.opened, reported=known)
        except TimeoutError:
            why = f"not done within {EXHAUSTED_S_MAX:g} s"
            raise _after_all(failed, why) from None
        except BudgetExceeded:
            raise
        except (ToolFailed, EpisodeFailed) as error:
            raise _after_all(failed, f"{error.error_class}: {error.detail}") from error
        return replace(apart, exhausted=failed.detail)  # guard: exhausted-why-converged

    async def _as_gathered(self, step: StepRecorded) -> GatheredStep:
        stored = step.stored
        # guard: exhausted-large-results-whole
        result = step.result if stored is None else await fetch(self.ports.objects, stored)
        return GatheredStep(
            kind=step.kind,
            tool=step.tool_name,
            args=unraw(step.args),
            result=unraw(result),
            error_class=step.error_class,
            error_detail=step.error_detail,
        )

    async def _records(self) -> Sequence[Recorded]:
        subject = self.ports.stack.episode(self.opened.episode_id)
        last = await self.ports.log.last(subject)
        if last is None or last.seq != self.version:
            raise VersionConflict(subject, expected=self.version)
        return await read_up_to(self.ports.log, self.clock, last)


async def _asked(callback: PartialResult, exhausted: Exhausted) -> object:
    returned = callback(exhausted)
    return await returned if inspect.isawaitable(returned) else returned


def _after_all(failed: BudgetExceeded, why: str) -> EpisodeFailed:
    return EpisodeFailed(failed.error_class, f"{failed.detail}; on_exhausted: {why}")
