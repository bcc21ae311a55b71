"""What comes of an episode whose budget is used up, if its expectation says so."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from engine.app.actions import observe, tool_call
from engine.app.findings import raise_finding
from engine.app.outputs import propose_output
from engine.app.strategy import ConvergeResult
from engine.app.tools import Synthesis, overrides
from engine.errors import DeclarationError
from engine.execution.exhausted import EXHAUSTED_S_MAX
from engine.operations.replay import replay
from streams.json import unraw
from streams.memory import memory_ports
from streams.model.events import (
    EndStatus,
    EpisodeConverged,
    FindingRaised,
    StepRecorded,
)
from streams.model.triggers import Budget, Mode
from tests.engine.functions import stage as functions
from tests.engine.functions.stage import Ledger
from tests.engine.stage import (
    Counter,
    Scripted,
    app_of,
    ask_start,
    did,
    kept,
    leave,
    life,
    lived,
    open_episode,
    opening,
    play,
    ports_in_memory,
    running,
    write,
)
from tests.simulation.time import SimClock, simulate

TURNS = Budget(turns=2, tokens=0, wall_s=0)
MANY = [observe(number) for number in range(5)]


def partial_report(exhausted):
    done = [each.result for each in exhausted.steps]
    return ConvergeResult(summary=f"{len(done)} of 5", classification={"done": done})


def ended(life_) -> tuple[str, str, str]:
    converged = life_.episode.converged
    return (
        life_.end.status.value,
        converged.summary if converged else "",
        converged.exhausted if converged else life_.end.error_detail,
    )


async def test_without_it_the_episode_fails():
    assert ended(await play(Scripted(*MANY), budget=TURNS)) == ("failed", "", "turns: 2 used of 2")


async def test_a_strategy_converges_with_what_was_gathered():
    life_ = await play(Scripted(*MANY), budget=TURNS, on_exhausted=partial_report)

    assert ended(life_) == ("done", "2 of 5", "turns: 2 used of 2")
    assert unraw(life_.episode.converged.classification) == {"done": [0, 1]}


async def test_a_function_converges_with_what_was_gathered():
    async def check(ctx, trigger):
        ctx.changed("counts")
        for number in range(5):
            await ctx.observe(number)

    budget = Budget(turns=3, tokens=0, wall_s=0)
    life_ = await functions.play(check, budget=budget, on_exhausted=partial_report)

    assert ended(life_) == ("done", "2 of 5", "turns: 3 used of 3")


async def test_it_is_told_what_was_used_up_and_all_that_is_known():
    told = []

    async def explain(exhausted):
        told.append(exhausted)
        return ConvergeResult()

    app_tools = {"disk": Ledger()}
    script = Scripted(tool_call("disk", "read", {"at": 1}), tool_call("disk", "fail"), observe(3))
    await play(script, tools=app_tools, budget=TURNS, on_exhausted=explain)

    [exhausted] = told
    assert (exhausted.limit, exhausted.detail) == ("turns", "turns: 2 used of 2")
    assert [(each.tool, each.args, each.result, each.error_class) for each in exhausted.steps] == [
        ("disk.read", {"at": 1}, {"did": "read", "at": 1}, ""),
        ("disk.fail", {}, None, "busy"),
    ]
    assert exhausted.state == Scripted.State(2, [{"did": "read", "at": 1}, "busy"])
    assert exhausted.episode.expectation_id == "thing"
    assert exhausted.trigger.event_id == "x1"


async def test_a_function_is_told_what_its_newest_checkpoint_was_given():
    async def check(ctx, trigger):
        for number in range(5):
            await ctx.observe(number)
            await ctx.checkpoint({"counted": number})

    life_ = await functions.play(
        check,
        budget=Budget(turns=5, tokens=0, wall_s=0),
        on_exhausted=lambda exhausted: ConvergeResult(
            classification={"state": exhausted.state, "steps": len(exhausted.steps)}
        ),
    )
    assert unraw(life_.episode.converged.classification) == {"state": {"counted": 1}, "steps": 3}


async def test_large_results_are_told_whole():
    async def read(args, ctx):
        return "x" * 2 * 1024 * 1024

    async def check(ctx, trigger):
        for _ in range(5):
            await ctx.call("disk.read")

    life_ = await functions.play(
        check,
        tools={"disk": read},
        budget=TURNS,
        on_exhausted=lambda exhausted: ConvergeResult(
            classification={"sizes": [len(each.result) for each in exhausted.steps]}
        ),
    )
    assert unraw(life_.episode.converged.classification) == {"sizes": [2 * 1024 * 1024] * 2}


async def test_used_up_tokens_count_too():
    async def think(prompt, transient, ctx):
        return Synthesis(content=prompt, output_tokens=60)

    async def check(ctx, trigger):
        for number in range(5):
            await ctx.synthesize(number)

    life_ = await functions.play(
        check,
        synthesizer=think,
        budget=Budget(turns=0, tokens=100, wall_s=0),
        on_exhausted=partial_report,
    )
    assert ended(life_) == ("done", "2 of 5", "tokens: 120 used of 100")


@pytest.mark.parametrize("is_function", [True, False])
async def test_used_up_time_cuts_the_step_off_and_leaves_the_rest(is_function):
    slow = Counter(open_=False)

    async def check(ctx, trigger):
        await ctx.observe(1)
        await ctx.call("slow.wait")

    declared = {
        "tools": {"slow": slow},
        "budget": Budget(turns=0, tokens=0, wall_s=0.05),
        "on_exhausted": partial_report,
    }
    if is_function:
        life_ = await functions.play(check, **declared)
    else:
        life_ = await play(Scripted(observe(1), tool_call("slow", "wait")), **declared)
    assert ended(life_) == ("done", "1 of 5", "wall_s: all 0.05 used")


async def test_findings_and_outputs_are_carried_out():
    ports, sent = ports_in_memory(), []

    async def pager(view):
        sent.append(view.payload)
        return "delivered"

    async def check(ctx, trigger):
        for number in range(5):
            await ctx.observe(number)

    life_ = await functions.play(
        check,
        ports=ports,
        outputs={"pager": pager},
        budget=TURNS,
        on_exhausted=lambda exhausted: [
            raise_finding("slow", class_="unfinished"),
            propose_output("pager", {"text": "slow"}),
        ],
    )
    raised = await ports.log.last(ports.stack.finding("slow"))
    assert isinstance(raised.commit.events[0], FindingRaised)
    assert (life_.end.status, sent) == (EndStatus.DONE, [{"text": "slow"}])


async def test_a_dry_run_keeps_its_findings_apart(ports):
    app = app_of(
        Scripted(*MANY),
        budget=TURNS,
        on_exhausted=lambda exhausted: raise_finding("slow", class_="unfinished"),
    )
    opened = opening(app)
    kept = overrides(persist_findings="try")
    dry = replace(opened, mode=Mode.DRY_RUN, overrides=kept)
    await write(ports, opened.episode_id, dry)
    async with running(app, ports):
        await ask_start(ports, opened.episode_id)
        await lived(ports, opened.episode_id)
    assert await ports.log.last(ports.stack.finding("slow")) is None
    assert await ports.log.last(ports.stack.finding("try:slow")) is not None


def explode(exhausted):
    raise RuntimeError("no idea")


async def of_the_wrong_type(exhausted):
    return {"summary": "x"}


@pytest.mark.parametrize(
    ("on_exhausted", "why"),
    [
        (lambda exhausted: None, "turns: 2 used of 2"),
        (explode, "RuntimeError: no idea"),
        (of_the_wrong_type, "on_exhausted: invalid_result: the function returned a dict"),
    ],
)
async def test_an_episode_that_gets_no_result_fails_after_all(on_exhausted, why):
    life_ = await play(Scripted(*MANY), budget=TURNS, on_exhausted=on_exhausted)

    assert (life_.end.error_class, life_.of(EpisodeConverged)) == ("budget_exceeded", [])
    assert why in life_.end.error_detail


def test_it_has_ten_seconds():
    async def hang(exhausted):
        await asyncio.Event().wait()

    async def work():
        clock = SimClock()
        ports = memory_ports(clock=clock)
        app = app_of(Scripted(*MANY), budget=TURNS, on_exhausted=hang)
        async with running(app, ports, clock=clock):
            episode_id = await open_episode(ports, app)
            await clock.sleep(EXHAUSTED_S_MAX - 1)
            before = await life(ports, episode_id)
            await clock.sleep(2)
            return before.episode.finished, (await life(ports, episode_id)).end

    before, end = simulate(work())
    assert before is None
    assert end.error_detail == "turns: 2 used of 2; on_exhausted: not done within 10 s"


async def test_a_side_effect_that_was_cut_off_is_no_success():
    hanging = Counter(side_effect=True, idempotent=True, open_=False)
    life_ = await play(
        Scripted(observe(1), tool_call("mail", "send")),
        tools={"mail": hanging},
        budget=Budget(turns=0, tokens=0, wall_s=0.05),
        on_exhausted=partial_report,
    )
    assert life_.end.error_class == "budget_exceeded"


async def test_a_strategy_without_a_state_yet_has_nothing_to_converge_with():
    async def hang(*args):
        await asyncio.Event().wait()

    script = Scripted()
    script.init = hang
    life_ = await play(
        script, budget=Budget(turns=0, tokens=0, wall_s=0.05), on_exhausted=partial_report
    )
    assert life_.end.error_class == "budget_exceeded"


async def test_other_failures_are_none_of_its_business():
    async def check(ctx, trigger):
        await ctx.call("disk.fail")

    life_ = await functions.play(check, tools={"disk": Ledger()}, on_exhausted=partial_report)
    assert life_.end.error_class == "busy"


async def test_after_a_crash_the_next_node_makes_the_result():
    async def check(ctx, trigger):
        for number in range(5):
            await ctx.observe(number)

    app = functions.app_of(check, budget=TURNS, on_exhausted=partial_report)
    whole = await functions.play(check, budget=TURNS, on_exhausted=partial_report)
    life_ = await functions.resume(app, whole.of(StepRecorded))
    assert ended(life_) == ("done", "2 of 5", "turns: 2 used of 2")


async def test_what_a_strategy_did_before_it_was_restarted_is_not_told(ports):
    app = app_of(
        Scripted(*MANY),
        budget=Budget(turns=3, tokens=0, wall_s=0),
        recovery="restart",
        on_exhausted=partial_report,
    )
    ended_early = (await play(Scripted(*MANY), budget=TURNS)).of(StepRecorded)
    episode_id = await leave(ports, app, *ended_early)
    async with running(app, ports):
        assert ended(await lived(ports, episode_id)) == ("done", "1 of 5", "turns: 3 used of 3")


@pytest.mark.parametrize("is_function", [True, False])
async def test_a_replay_knows_that_the_strategy_did_not_converge_itself(is_function):
    async def check(ctx, trigger):
        for number in range(5):
            await ctx.observe(number)

    build = functions.app_of if is_function else app_of
    app = build(
        check if is_function else Scripted(*MANY), budget=TURNS, on_exhausted=partial_report
    )
    ports = ports_in_memory()
    async with running(app, ports):
        life_ = await lived(ports, await open_episode(ports, app))
    replayed = await replay(life_.records, app)
    assert (replayed.steps, replayed.asks) == (2, observe(2))


def test_what_cannot_be_called_is_refused_at_once():
    with pytest.raises(DeclarationError, match="on_exhausted"):
        app_of(Scripted(), on_exhausted="converge")


async def test_a_class_that_is_cut_off_while_it_is_replayed_has_no_state_yet(ports):
    class Slow(Scripted):
        async def next_step(self, state, ctx):
            await asyncio.sleep(0.15)
            return super().next_step(state, ctx)

    steps = [observe(number) for number in range(1, 6)]
    app = app_of(Slow(*steps), budget=Budget(wall_s=0.4), on_exhausted=partial_report)
    past = [did(number, steps[number - 1], number) for number in range(1, 5)]
    async with running(app, ports):
        life_ = await lived(ports, await leave(ports, app, kept(), *past))
    assert life_.end.error_class == "budget_exceeded"


async def test_a_function_that_was_resumed_is_told_what_its_checkpoint_was_given():
    async def counts(ctx, trigger):
        state = ctx.resumed or {"n": 0}
        while True:
            await ctx.observe(state["n"])
            state["n"] += 1
            if state["n"] == 1:
                await ctx.checkpoint(state)

    def told(exhausted):
        return ConvergeResult(summary=f"{exhausted.state}")

    app = functions.app_of(counts, budget=Budget(turns=5), on_exhausted=told)
    whole = await functions.play(counts, budget=Budget(turns=5), on_exhausted=told)
    past = functions.middle(whole)[:3]
    resumed = await functions.resume(app, past)
    assert (whole.episode.converged.summary, resumed.episode.converged.summary) == 2 * ("{'n': 1}",)
