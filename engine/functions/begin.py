"""Begins a run of what an expectation declares, a function or a class, after what is recorded."""

from __future__ import annotations

import math
from functools import partial
from typing import Final

from engine.app.actor import Expectation
from engine.app.context import migrate, view_of
from engine.app.strategy import Function, Strategy
from engine.episodes.episode import seed_of
from engine.errors import ReplayDiffers
from engine.functions.context import FunctionContext
from engine.functions.history import History
from engine.functions.of_class import StrategyLoop
from engine.functions.order import REMEDY, REMEDY_IF_SAME, REMEDY_OF_CLASS, REMEDY_OF_FORK
from engine.functions.run import LiveTurns, StrategyRun, called
from engine.usercode.call import call
from streams.json import NOTHING, unraw
from streams.model.events import EpisodeOpened, Fork

OF_A_CLASS: Final = (
    "a strategy class began it, and a function has taken the class's place: declare the function"
    " under a name of its own"
)


async def begin(
    expectation: Expectation,
    history: History,
    opened: EpisodeOpened,
    turns: LiveTurns,
    *,
    stack: str,
    remedy: str = "",
    is_same_code: bool = False,
    converges: bool = True,
) -> tuple[StrategyRun, object]:
    """Return a run of the expectation's strategy after `history`, and the `ctx` to run it with.

    Args:
        stack: its name.
        remedy: what to do if the strategy takes another way than its history; by default, what to
            do on a node.
        is_same_code: whether the code is known to be the one that has recorded the history.
        converges: whether `converge` of a class is called, which may read the outside.

    Raises:
        ReplayDiffers: a class has begun the episode, and a function is to go on.
        EpisodeFailed: the checkpoint of a function cannot be migrated.
    """
    strategy, kept = expectation.strategy, history.checkpoint
    seed = seed_of(opened)  # guard: fork-seed-of-past
    remedy = remedy or _remedy(opened, strategy, history, is_same_code=is_same_code)
    strict_up_to = _strict_up_to(expectation, opened)
    if isinstance(strategy, Strategy):
        loop = StrategyLoop(
            strategy,
            expectation,
            opened,
            view_of(opened, stack, turns.findings),
            turns.findings,
            turns.scope,
            kept,
            waits_for_people=turns.waits_for_people,
            converges=converges,
        )
        origin = f"{type(strategy).__qualname__}.next_step"
        run = StrategyRun(
            loop,
            history,
            turns,
            seed=seed,
            remedy=remedy,
            strict_up_to=strict_up_to,
            origin=origin,
        )
        return run, run
    if history.is_of_class:  # guard: function-for-class-told
        raise ReplayDiffers(OF_A_CLASS)
    code = partial(called, strategy, turns.scope)
    run = StrategyRun(code, history, turns, seed=seed, remedy=remedy, strict_up_to=strict_up_to)
    schema, state = expectation.state_schema, NOTHING
    if kept is not None:
        state = await call(migrate, kept.state, schema, version=kept.schema_version)
    run.note_state(unraw(state))
    resumed = unraw(state)  # guard: exhausted-state-as-kept
    findings, version = turns.findings, schema.version
    return run, FunctionContext(run, opened, findings, resumed=resumed, schema_version=version)


def _strict_up_to(expectation: Expectation, opened: EpisodeOpened) -> float:
    """Return the last step whose values must be the same; the past of a fork is somebody else's."""
    if expectation.replay == "strict":
        return math.inf
    return opened.fork.step_no if opened.fork is not None else 0


def _remedy(
    opened: EpisodeOpened, strategy: object, history: History, *, is_same_code: bool
) -> str:
    # guard: told-to-fork-earlier
    if opened.fork is not None and not _has_gone_on(history, opened.fork):
        return REMEDY_OF_FORK
    if is_same_code:
        return REMEDY_IF_SAME
    return REMEDY if isinstance(strategy, Function) else REMEDY_OF_CLASS


def _has_gone_on(history: History, fork: Fork) -> bool:
    """Return whether a fork has recorded anything of its own."""
    kept = () if history.checkpoint is None else (history.checkpoint,)
    own = (*kept, *history.steps, *history.announced)
    return any(each.step_no > fork.step_no for each in own)  # guard: fork-gone-on-parks
