"""`StrategyRunner`: calls one episode's strategy, and restores its state after a crash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from engine import validation
from engine.app.actions import Action, Converge, Done, Step, fingerprint, problem_of
from engine.app.actor import Expectation
from engine.app.context import OUT_OF_REACH, Context, Findings, migrate, view_of
from engine.app.strategy import IN_STRATEGY, Abort, Retry, StepTaken, Strategy, conclude
from engine.app.tools import Failure
from engine.episodes import dry_run, recovery, results
from engine.episodes.episode import Performed, Save
from engine.episodes.results import Fetch
from engine.errors import (
    EpisodeFailed,
    InvalidAction,
    InvalidResult,
    NondeterministicReplay,
    Unencodable,
)
from engine.usercode.call import call
from streams.json import unraw
from streams.model.events import (
    CheckpointSaved,
    EpisodeConverged,
    EpisodeOpened,
    StepAnnounced,
    StepRecorded,
)
from streams.ports.log import Recorded

_encoder: Final = msgspec.json.Encoder()


@dataclass(frozen=True)
class Restored:
    """Where a strategy goes on."""

    state: Any
    left: Sequence[StepRecorded] = ()
    """The attempts so far at the call of its next turn; none: it has not begun."""


@dataclass(frozen=True)
class StrategyRunner:
    """The strategy of one episode. Its exceptions become `EpisodeFailed`."""

    expectation: Expectation
    strategy: Strategy[Any]
    """The expectation's."""
    opened: EpisodeOpened
    stack: str
    findings: Findings = OUT_OF_REACH
    """The stack's findings, for `init` and `converge`."""
    fetch: Fetch = results.out_of_reach
    """Returns a result that is in the object store."""

    async def restore(self, records: Sequence[Recorded]) -> Restored:
        """Return the state that the journal leads to; recorded steps are not done again."""
        if not records:
            return Restored(await self.begin(None))
        found = recovery.tail(records)
        current, tokens_used = await self.begin(found.checkpoint), found.tokens_before
        for turn, steps in enumerate(found.turns, start=found.turns_before + 1):
            current = await self.redo(current, steps, turn=turn, tokens_used=tokens_used)
            tokens_used += steps[-1].cost_tokens
        return Restored(current, found.left)

    async def begin(self, checkpoint: CheckpointSaved | None) -> Any:
        """Return the stored state, or a fresh one if there is none."""
        if checkpoint is None:
            view = view_of(self.opened, self.stack, self.findings)
            return await call(self.strategy.init, view, self.opened.trigger)
        return await self._kept(checkpoint)

    async def redo(
        self, current: Any, steps: Sequence[StepRecorded], *, turn: int, tokens_used: int
    ) -> Any:
        """Return the state after the `steps` of a turn, which the strategy must ask for again."""
        action = await self.next_step(current, turn=turn, tokens_used=tokens_used)
        await self.check_same(steps[0], action)
        assert isinstance(action, Step)
        return await self.handle(current, action, steps[-1], step_no=steps[-1].step_no)

    async def check_same(self, recorded: recovery.Asked, action: Action) -> None:
        """Check that `action`, asked for in a replay, is the `recorded` one."""
        if isinstance(action, Converge | Done):
            raise ended_early(recorded, action)
        mark = await call(fingerprint, action)
        await call(recovery.check_same, recorded, asked=mark, action=action)

    async def next_step(self, current: Any, *, turn: int, tokens_used: int) -> Action:
        """Return the strategy's action for its `turn`-th turn."""
        ctx = self._context(turn=turn, tokens_used=tokens_used)
        action = await _decided(self.strategy.next_step, current, ctx)
        if not isinstance(action, Action):
            raise EpisodeFailed(
                InvalidAction.error_class,
                f"next_step() returned a {type(action).__name__};"
                " return converge(), done(), tool_call(…), …",
            )
        if problem := problem_of(action):  # guard: action-values-checked
            raise EpisodeFailed(
                InvalidAction.error_class,
                f"next_step() returned a {type(action).__name__}: {problem}",
            )
        return action

    async def handle(
        self,
        current: Any,
        action: Step,
        step: Performed | StepRecorded,
        *,
        step_no: int,
    ) -> Any:
        """Return the state after `step`, which `action` asked for."""
        taken = StepTaken(step_no=step_no, kind=step.kind, tool=step.tool_name, action=action)
        failure = Failure(step.error_class, step.error_detail) if step.error_class else None
        stored = step.stored
        kept = step.result if stored is None else await self.fetch(stored)
        result = failure or unraw(kept)
        handled = await _decided(self.strategy.handle_result, current, taken, result)
        if isinstance(handled, Abort):
            raise EpisodeFailed(handled.error_class, handled.detail)
        kept = handled.state if isinstance(handled, Retry) else handled
        if kept is None and current is not None:  # guard: strategy-returns-state
            what = "handle_result() returned None; return the state"
            raise EpisodeFailed(InvalidResult.error_class, what)
        try:
            # guard: unstorable-state-told
            _encoder.encode(kept)  # Before it must be stored, so that it is told at once.
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise EpisodeFailed(Unencodable.error_class, f"state: {error}") from error
        return kept

    async def converge(
        self, current: Any, *, turn: int, tokens_used: int, reported: Sequence[str]
    ) -> EpisodeConverged:
        """Return the strategy's conclusion; `reported` are the keys of findings before."""
        known = self._context(turn=turn, tokens_used=tokens_used)
        ctx = replace(known, findings=self.findings)
        result = await call(self.strategy.converge, current, ctx)
        converged = await call(conclude, result)
        if not converged.findings:
            return converged
        return await call(dry_run.set_apart, converged, self.opened, reported=reported)

    async def keep(self, current: Any, *, phase: str) -> Save:
        """Return the command that stores the state, unless a replay could not restore it."""
        expectation = self.expectation
        if not isinstance(current, expectation.state_type):
            raise EpisodeFailed(
                Unencodable.error_class,
                f"state: a {type(current).__name__}, where the strategy declares"
                f" {expectation.state_type.__name__}; set `State`",
            )
        kept = await call(validation.encode, current, what="state")
        return Save(phase=phase, state=kept, schema_version=expectation.state_schema.version)

    async def _kept(self, checkpoint: CheckpointSaved) -> Any:
        expectation = self.expectation
        migrated = await call(
            migrate, checkpoint.state, expectation.state_schema, version=checkpoint.schema_version
        )
        return await call(validation.decode, migrated, type_=expectation.state_type, what="state")

    def _context(self, *, turn: int, tokens_used: int) -> Context:
        return Context(
            episode_id=self.opened.episode_id,
            actor_id=self.opened.actor_id,
            expectation_id=self.opened.expectation_id,
            mode=self.opened.mode,
            budget=self.opened.budget,
            turn=turn,
            tokens_used=tokens_used,
        )


async def _decided(method: Callable[..., Any], *given: Any) -> Any:
    """Return what a method of the strategy does that a replay calls again."""
    IN_STRATEGY.set(True)  # guard: kit-class-opens-nothing
    try:
        return await call(method, *given)
    finally:
        IN_STRATEGY.set(False)


def ended_early(recorded: recovery.Asked, action: Converge | Done) -> EpisodeFailed:
    """Return the error for a replay that asks to end before `recorded`, which did happen."""
    if isinstance(recorded, StepAnnounced):
        before = recorded.tool_name
    else:
        before = recorded.kind if isinstance(recorded, StepRecorded) else recorded.reason
    return EpisodeFailed(
        NondeterministicReplay.error_class,
        f"step {recorded.step_no} was {before}; the replay asks for {action!r}",
    )
