"""Whatever a strategy asks for, and wherever a node dies."""

from __future__ import annotations

import asyncio

from hypothesis import HealthCheck, settings
from hypothesis import given as forall
from hypothesis import strategies as st

from engine.app.actions import checkpoint, observe, synthesize, tool_call
from engine.app.tools import Synthesis, ToolFailed
from engine.episodes.episode import fold
from streams.model.commands import Recover
from streams.model.events import EndStatus, EpisodeFinished, StepRecorded
from streams.model.triggers import Budget
from tests.engine.stage import (
    Counter,
    Life,
    Scripted,
    app_of,
    doomed,
    lived,
    open_episode,
    opening,
    play,
    ports_in_memory,
    running,
    write,
)
from tests.spec import given

QUICK = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

small = st.integers(0, 3)
actions = st.one_of(
    small.map(observe),
    small.map(lambda n: synthesize(n, transient={"n": n})),
    small.map(lambda n: checkpoint(f"p{n}")),
    st.builds(
        lambda name, n: tool_call(name, "do", {"n": n, "_secret": n}),
        st.sampled_from(["works", "fails", "absent", "changes"]),
        small,
    ),
)
plans = st.lists(actions, max_size=8)


async def works(args, ctx):
    return args["n"]


async def fails(args, ctx):
    raise ToolFailed("no_luck")


async def think(prompt, transient, ctx):
    return Synthesis(content=prompt, output_tokens=10)


def tools():
    return {"works": works, "fails": fails, "changes": Counter(side_effect=True)}


def check(life: Life, budget: Budget) -> None:
    steps = [step.step_no for step in life.of(StepRecorded)]
    assert steps == list(range(1, len(steps) + 1))
    assert len(life.of(EpisodeFinished)) == 1
    assert isinstance(life.events[-1], EpisodeFinished)
    assert len(steps) <= budget.turns
    assert life.end.tokens_used < budget.tokens + 10
    if life.end.status is EndStatus.FAILED:
        assert life.end.error_class in {"budget_exceeded", "loop_detected"}


@QUICK
@forall(plans, st.integers(1, 8), st.integers(5, 50))
def test_every_episode_ends_once_and_within_its_budget(plan, turns, tokens):
    """I4."""
    budget = Budget(turns=turns, tokens=tokens)
    life = asyncio.run(play(Scripted(*plan), tools=tools(), synthesizer=think, budget=budget))
    check(life, budget)


@QUICK
@forall(plans, st.data())
def test_an_interrupted_episode_ends_as_if_nobody_had_died(plan, data):
    """I3: whatever prefix of its commits is durable, the next node makes the same of it."""
    whole = asyncio.run(play(Scripted(*plan), tools=tools(), synthesizer=think))
    cut = data.draw(st.integers(2, len(whole.events) - 1))
    announced = given(*whole.events[:cut]).episode.announced
    again = asyncio.run(resumed(whole.events[1:cut], plan))

    if not announced:
        assert again.end.status is whole.end.status
        assert again.end.error_class == whole.end.error_class
        assert [step.fingerprint for step in again.of(StepRecorded)] == [
            step.fingerprint for step in whole.of(StepRecorded)
        ]
    else:
        assert again.end.error_class == "outcome_unknown"


async def resumed(events, plan) -> Life:
    ports, app = ports_in_memory(), app_of(Scripted(*plan), tools=tools(), synthesizer=think)
    begun = opening(app)
    await write(ports, begun.episode_id, begun)
    await write(ports, begun.episode_id, *events)
    command = Recover(actor_id="worker", episode_id=begun.episode_id, reason="lapsed")
    await ports.commands.send(command, id="lapse")
    async with running(app, ports):
        return await lived(ports, begun.episode_id)


async def test_a_brutal_death_at_any_step_leaves_a_journal_that_folds_and_goes_on(ports):
    tool = Counter(open_=False)
    plan = (observe(1), checkpoint("half"), tool_call("tool", "a"))
    app = app_of(Scripted(*plan), tools={"tool": tool})
    async with doomed(app, ports):
        id_ = await open_episode(ports, app)
        await tool.called.wait()
        tool.gate.set()
    async with running(app, ports):
        life = await lived(ports, id_)
    assert fold(life.records) == fold(life.records[2:], fold(life.records[:2]))
    assert life.end.status is EndStatus.DONE
