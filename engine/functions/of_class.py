"""`StrategyLoop`: a `Strategy` class is run as a function, so that one machine replays both.

    init ──▶ next_step ──a step──▶ StrategyRun.taken ──▶ handle_result ──▶ next_step …
                 └──converge()──▶ converge

The path of a step is the number of its turn. States are kept without being asked for: the first
one, since `init` may have read the outside; the one at each wait, so that what follows is replayed
from there; and those at a `checkpoint(…)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from engine import validation
from engine.app.actions import Action, Checkpoint, Converge, Done, Pause, Sleep, Step
from engine.app.actor import Expectation
from engine.app.context import Context, EpisodeView, Findings, migrate
from engine.app.strategy import (
    IN_STRATEGY,
    Abort,
    ConvergeResult,
    Retry,
    StepTaken,
    Strategy,
    checked_result,
)
from engine.app.tools import Failure
from engine.episodes.episode import Performed, Save
from engine.errors import EpisodeFailed, InvalidAction, InvalidResult, Unencodable
from engine.functions.run import StrategyRun, Taken
from engine.usercode.call import call
from engine.usercode.cancel_scope import CancelScope
from engine.waits import wait
from streams.model.events import CheckpointSaved, EpisodeOpened
from streams.model.triggers import Trigger

INIT: Final = "init"
"""Phase of the state that `Strategy.init` returned."""


@dataclass(frozen=True)
class StrategyLoop:
    """The strategy class of one episode, to be called as a function with its run as `ctx`.

    Its exceptions become `EpisodeFailed`.
    """

    strategy: Strategy[Any]
    expectation: Expectation
    opened: EpisodeOpened
    view: EpisodeView
    findings: Findings
    """The stack's, for `converge`."""
    scope: CancelScope
    """What it runs in."""
    checkpoint: CheckpointSaved | None
    """The newest state; None: `init` makes the first one."""
    waits_for_people: bool
    """Whether waits are real; otherwise they are answered at once."""
    converges: bool
    """Whether `converge` is called; otherwise the loop returns that the strategy asks for it."""

    async def __call__(
        self, run: StrategyRun, trigger: Trigger
    ) -> ConvergeResult | Converge | None:
        """Return the conclusion, or None if the strategy asks for none."""
        IN_STRATEGY.set(True)
        state, is_kept = await self._first_state(trigger), self.checkpoint is not None
        while True:
            if run.has_replayed:  # guard: exhausted-state-after-last-step
                run.note_state(state)
            ctx = self._context(run)
            action = await self._next_step(state, ctx)
            if self.scope.is_canceled:  # guard: class-cut-off-stays-so
                raise asyncio.CancelledError  # The class has caught it.
            match action:
                case Done():
                    return None
                case Converge():
                    run.check_all_asked()  # guard: class-converges-once-replayed
                    return await self._converge(state, ctx) if self.converges else action
                case _:
                    waits = isinstance(action, Pause) and self.waits_for_people
                    if run.has_replayed and (waits or not is_kept):  # guard: class-state-kept
                        run.record(await self._keep(state, wait.PHASE if waits else INIT))
                        is_kept = True
                    taken = await run.taken(action)
                    state = await self._handle(run, state, action, taken)
                    if isinstance(action, Checkpoint) and isinstance(taken, Performed):
                        run.record(await self._keep(state, action.phase))
                        await run.settle()

    async def _first_state(self, trigger: Trigger) -> Any:  # noqa: ANN401 - a strategy's own
        if self.checkpoint is None:
            first = await _free(self.strategy.init, self.view, trigger)
            self._check(first, "init")  # guard: unstorable-first-state-told
            return first
        expectation, version = self.expectation, self.checkpoint.schema_version
        schema = expectation.state_schema
        migrated = await call(migrate, self.checkpoint.state, schema, version=version)
        return await call(validation.decode, migrated, type_=expectation.state_type, what="state")

    async def _next_step(self, state: object, ctx: Context) -> Action:
        action = await call(self.strategy.next_step, state, ctx)
        if not isinstance(action, Action):
            raise InvalidAction(
                f"next_step() returned a {type(action).__name__};"
                " return converge(), done(), tool_call(…), …"
            )
        return action

    async def _handle(self, run: StrategyRun, state: Any, action: Step, taken: Taken) -> Any:  # noqa: ANN401
        step_no, kind = run.step_no_of(taken), taken.kind
        step = StepTaken(step_no=step_no, kind=kind, tool=taken.tool_name, action=action)
        if taken.error_class:
            result: object = Failure(taken.error_class, taken.error_detail)
        elif isinstance(action, Sleep):  # guard: sleep-of-class-brings-nothing
            result = None
        else:
            result = await run.result_of(taken)
        handled = await call(self.strategy.handle_result, state, step, result)
        if isinstance(handled, Abort):
            raise EpisodeFailed(handled.error_class, handled.detail)
        new = handled.state if isinstance(handled, Retry) else handled
        if new is None and state is not None:  # guard: strategy-returns-state
            what = "handle_result() returned None; return the state"
            raise EpisodeFailed(InvalidResult.error_class, what)
        if run.has_replayed:  # Those before were checked when their steps were taken.
            self._check(new, "handle_result")  # guard: unstorable-state-told
        return new

    def _check(self, state: object, method: str) -> None:
        """Refuse a state that cannot be stored, before it must be, so that it is told at once."""
        try:
            validation.encode(state, what="state", bytes_max=None)
        except Unencodable as error:
            told = f"{error}; {type(self.strategy).__qualname__}.{method}() returned it"
            raise EpisodeFailed(error.error_class, told) from error

    async def _converge(self, state: object, ctx: Context) -> ConvergeResult:
        result = await _free(self.strategy.converge, state, replace(ctx, findings=self.findings))
        return checked_result(result)

    async def _keep(self, state: object, phase: str) -> Save:
        """Return the command that stores the state, unless a replay could not restore it."""
        expectation = self.expectation
        if not isinstance(state, expectation.state_type):
            raise EpisodeFailed(
                Unencodable.error_class,
                f"state: a {type(state).__name__}, where the strategy declares"
                f" {expectation.state_type.__name__}; set `State`",
            )
        kept = await call(validation.encode, state, what="state")
        return Save(phase=phase, state=kept, schema_version=expectation.state_schema.version)

    def _context(self, run: StrategyRun) -> Context:
        return Context(
            episode_id=self.opened.episode_id,
            actor_id=self.opened.actor_id,
            expectation_id=self.opened.expectation_id,
            mode=self.opened.mode,
            budget=self.opened.budget,
            turn=run.turn,
            tokens_used=run.tokens_used,
        )


async def _free(method: Callable[..., Any], *given: object) -> Any:  # noqa: ANN401
    """Return what a method of the strategy does that no replay calls again."""
    IN_STRATEGY.set(False)  # guard: kit-init-opens
    try:
        return await call(method, *given)
    finally:
        IN_STRATEGY.set(True)
