"""Begins a run of what an expectation declares, a function or a class, after what is recorded."""

from __future__ import annotations

from functools import partial
from typing import Final

from engine.app.actor import Expectation
from engine.app.context import migrate, view_of
from engine.app.strategy import Function, Strategy
from engine.episodes.episode import seed_of
from engine.errors import NondeterministicReplay
from engine.functions.context import FunctionContext
from engine.functions.history import History
from engine.functions.of_class import StrategyLoop
from engine.functions.order import REMEDY, REMEDY_OF_CLASS, REMEDY_OF_FORK
from engine.functions.run import LiveTurns, StrategyRun, called
from engine.usercode.call import call
from streams.json import NOTHING, unraw
from streams.model.events import EpisodeOpened

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
    converges: bool = True,
) -> tuple[StrategyRun, object]:
    """Return a run of the expectation's strategy after `history`, and the `ctx` to run it with.

    Args:
        stack: its name.
        remedy: what to do if the strategy takes another way than its history; by default, what to
            do on a node.
        converges: whether `converge` of a class is called, which may read the outside.

    Raises:
        NondeterministicReplay: a class has begun the episode, and a function is to go on.
        EpisodeFailed: the checkpoint of a function cannot be migrated.
    """
    strategy, kept = expectation.strategy, history.checkpoint
    seed = seed_of(opened)  # guard: fork-seed-of-past
    remedy = remedy or _remedy(opened, strategy)
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
        run = StrategyRun(loop, history, turns, seed=seed, remedy=remedy, origin=origin)
        return run, run
    if history.is_of_class:  # guard: function-for-class-told
        raise NondeterministicReplay(OF_A_CLASS)
    code = partial(called, strategy, turns.scope)
    run = StrategyRun(code, history, turns, seed=seed, remedy=remedy)
    schema, state = expectation.state_schema, NOTHING
    if kept is not None:
        state = await call(migrate, kept.state, schema, version=kept.schema_version)
    run.note_state(unraw(state))
    resumed = unraw(state)  # guard: exhausted-state-as-kept
    findings, version = turns.findings, schema.version
    return run, FunctionContext(run, opened, findings, resumed=resumed, schema_version=version)


def _remedy(opened: EpisodeOpened, strategy: object) -> str:
    if opened.fork is not None:  # guard: told-to-fork-earlier
        return REMEDY_OF_FORK
    return REMEDY if isinstance(strategy, Function) else REMEDY_OF_CLASS
