"""Branches of a function: they run at the same time, and a replay gives each what is its own."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import permutations

import pytest
from msgspec.structs import replace

from engine.app.strategy import ConvergeResult
from engine.app.tools import Tool
from engine.errors import CallFailed
from streams.json import unraw
from streams.model.events import (
    EndStatus,
    EpisodeBlocked,
    EpisodeConverged,
    StepAnnounced,
    StepRecorded,
)
from streams.model.triggers import Budget
from tests.engine.functions.stage import Ledger, app_of, middle, play, resume
from tests.engine.stage import decide, lived, open_episode, ports_in_memory, running

MANY = Budget(turns=100)


class Gates(Tool):
    """Answers calls in the order in which they are named, once all of them were made."""

    side_effect = idempotent = True

    def __init__(self, *order: str) -> None:
        self.order, self.calls = list(order), []
        self._moved = asyncio.Condition()

    async def call(self, action, args, ctx):
        self.calls.append(action)
        async with self._moved:
            await self._moved.wait_for(lambda: not self.order or self.order[0] == action)
            self.order = self.order[1:]
            self._moved.notify_all()
        return action


def classified(life) -> object:
    assert life.end.status is EndStatus.DONE, life.end.error_detail
    return unraw(life.of(EpisodeConverged)[0].classification)


def paths(life) -> list[str]:
    return [step.path for step in life.of(StepRecorded)]


async def three(ctx, trigger):
    """Call three tools, each in a branch of two calls, which share a list."""
    met = []

    async def branch(name):
        met.append(await ctx.call(f"gate.{name}"))
        await ctx.observe([name, len(met)])
        return name

    names = await ctx.gather(*(branch(name) for name in "abc"))
    await ctx.call("mail.send", met=met)
    return ConvergeResult(classification={"names": names, "met": met})


async def test_branches_run_at_the_same_time_and_bring_their_results_in_order():
    gate = Gates("c", "a", "b")
    life = await play(three, tools={"gate": gate, "mail": Ledger()})
    assert classified(life) == {"names": ["a", "b", "c"], "met": ["c", "a", "b"]}
    assert set(paths(life)) == {"1.1.1", "1.1.2", "1.2.1", "1.2.2", "1.3.1", "1.3.2", "2"}
    assert paths(life)[-1] == "2"


async def test_several_side_effects_are_announced_at_once():
    life = await play(three, tools={"gate": Gates("c", "a", "b"), "mail": Ledger()})
    begun = [each for each in middle(life) if isinstance(each, StepAnnounced | StepRecorded)]
    assert [type(each) for each in begun[:3]] == [StepAnnounced] * 3
    assert [each.path for each in begun[:3]] == ["1.1.1", "1.2.1", "1.3.1"]
    keys = [each.idempotency_key.split(":")[1] for each in begun[:3]]
    assert keys == ["1.1.1", "1.2.1", "1.3.1"]


async def test_a_side_effect_stays_announced_when_another_branch_has_recorded_its_own():
    whole = await play(three, tools={"gate": Gates("b", "a", "c"), "mail": Ledger()})
    events = middle(whole)
    first = next(n for n, each in enumerate(events) if isinstance(each, StepRecorded))
    used = Ledger(side_effect=True)
    life = await resume(app_of(three, tools={"gate": used, "mail": Ledger()}), events[: first + 1])
    assert (life.end.error_class, used.calls) == ("outcome_unknown", [])


@pytest.mark.parametrize("order", list(permutations("abc")), ids="".join)
async def test_whenever_a_node_dies_and_whichever_branch_is_first_the_end_is_the_same(order):
    whole = await play(three, tools={"gate": Gates(*order), "mail": Ledger()})
    events = [each for each in middle(whole) if not isinstance(each, EpisodeConverged)]
    for cut in range(len(events) + 1):
        done = [each.path for each in events[:cut] if isinstance(each, StepRecorded)]
        branches = {"a": "1.1.1", "b": "1.2.1", "c": "1.3.1"}
        gate = Gates(*(name for name in order if branches[name] not in done))
        again = await resume(app_of(three, tools={"gate": gate, "mail": Ledger()}), events[:cut])
        assert classified(again) == classified(whole), cut
        assert sorted(gate.calls) == sorted(n for n in "abc" if branches[n] not in done)
        assert sorted(paths(again)) == sorted(paths(whole))
        assert paths(again)[: len(done)] == done


async def test_gathers_may_be_within_each_other():
    async def pair(ctx, first):
        return await ctx.gather(ctx.observe(first), ctx.observe(first + 1))

    async def check(ctx, trigger):
        await ctx.observe(0)
        return ConvergeResult(classification={"seen": await ctx.gather(pair(ctx, 1), pair(ctx, 3))})

    life = await play(check)
    assert classified(life) == {"seen": [[1, 2], [3, 4]]}
    assert sorted(paths(life)) == ["1", "2.1.1.1.1", "2.1.1.2.1", "2.2.1.1.1", "2.2.1.2.1"]
    events = [each for each in middle(life) if not isinstance(each, EpisodeConverged)]
    for cut in range(len(events) + 1):
        assert classified(await resume(app_of(check), events[:cut])) == classified(life)


async def test_the_first_failure_in_order_is_raised_once_all_branches_have_ended():
    async def check(ctx, trigger):
        async def late():
            await ctx.observe(1)
            await ctx.call("disk.fail", late=True)

        try:
            await ctx.gather(late(), ctx.call("disk.fail"), ctx.observe(2))
        except CallFailed as failed:
            return ConvergeResult(classification={"class": failed.error_class})

    life = await play(check, tools={"disk": Ledger()})
    assert classified(life) == {"class": "busy"}
    assert len(paths(life)) == 4


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, KeyError])
async def test_no_exception_of_a_branch_ends_the_node(error):
    async def check(ctx, trigger):
        async def bad():
            raise error

        await ctx.gather(bad(), ctx.observe(1))

    life = await play(check)
    assert life.end.error_class == "crash"


async def test_a_budget_reaches_every_branch():
    async def check(ctx, trigger):
        async def often(name):
            for number in range(100):
                await ctx.observe([name, number])

        await ctx.gather(often("a"), often("b"))

    life = await play(check, budget=Budget(turns=7))
    assert (life.end.error_class, len(paths(life))) == ("budget_exceeded", 7)


@pytest.mark.parametrize("turns", [1, 3, 16])
@pytest.mark.parametrize("durability", ["pipelined", "strict"])
async def test_no_branch_makes_a_call_beyond_the_budget(turns, durability):
    async def check(ctx, trigger):
        await ctx.gather(*(ctx.call("disk.read", n=n) for n in range(16)))

    disk = Ledger()
    budget = Budget(turns=turns)
    life = await play(check, tools={"disk": disk}, budget=budget, durability=durability)
    assert (len(disk.calls), len(paths(life))) == (turns, turns)
    assert life.end.error_class == ("" if turns == 16 else "budget_exceeded")


async def test_sleeps_findings_and_calls_beside_each_other_use_up_one_budget():
    async def check(ctx, trigger):
        await ctx.gather(ctx.sleep(0.01), ctx.findings.get("k"), ctx.call("disk.read"))

    disk = Ledger()
    life = await play(check, tools={"disk": disk}, budget=Budget(turns=2))
    assert (life.end.error_class, disk.calls) == ("budget_exceeded", [])
    assert len(paths(life)) <= 2
    assert (await play(check, tools={"disk": disk}, budget=Budget(turns=3))).end.error_class == ""


async def test_the_wall_budget_cuts_off_every_branch():
    hanging = []

    async def hang(args, ctx):
        hanging.append(1)
        try:
            await asyncio.Event().wait()
        finally:
            hanging.append(-1)

    async def check(ctx, trigger):
        await ctx.gather(ctx.call("hang.on"), ctx.call("hang.on", n=2))

    life = await play(check, tools={"hang": hang}, budget=Budget(wall_s=1))
    assert (life.end.error_class, sum(hanging), len(hanging)) == ("budget_exceeded", 0, 4)


async def test_branches_sleep_beside_each_other():
    async def check(ctx, trigger):
        async def nap(seconds):
            await ctx.sleep(seconds)
            return await ctx.observe(seconds)

        return ConvergeResult(
            classification={"slept": await ctx.gather(nap(0.9), nap(0.1), nap(0.5))}
        )

    life = await play(check)
    assert classified(life) == {"slept": [0.9, 0.1, 0.5]}
    recorded = [path for path in paths(life) if path.endswith(".1")]
    assert recorded == ["1.2.1", "1.3.1", "1.1.1"]


async def test_an_episode_is_left_when_every_branch_waits_and_sleeps_come_first():
    async def check(ctx, trigger):
        await ctx.gather(ctx.approval({"x": 1}), ctx.sleep(3_600), ctx.sleep(60))

    life = await play(check, reached=lambda so_far: so_far.of(EpisodeBlocked))
    block = life.of(EpisodeBlocked)[0]
    assert (block.path, block.approval) == ("1.3.1", None)
    slept = {each.path: each.until for each in life.of(StepAnnounced)}
    assert set(slept) == {"1.2.1", "1.3.1"}
    assert block.wait.expires_at == slept["1.3.1"]


async def test_a_sleep_ends_when_it_would_have_whenever_a_node_dies():
    async def check(ctx, trigger):
        await ctx.gather(ctx.sleep(3_600), ctx.sleep(0.01))

    blocked = lambda so_far: so_far.of(EpisodeBlocked)  # noqa: E731
    life = await play(check, reached=blocked)
    first = {each.path: each.until for each in life.of(StepAnnounced)}["1.1.1"]
    assert life.of(EpisodeBlocked)[0].wait.expires_at == first

    announced = [each for each in life.of(StepAnnounced) if each.path == "1.1.1"]
    over = [replace(each, until=each.until - timedelta(hours=2)) for each in announced]
    assert (await resume(app_of(check), over)).end.status is EndStatus.DONE


async def test_a_short_sleep_goes_on_after_a_crash_and_does_not_begin_anew():
    async def check(ctx, trigger):
        await ctx.sleep(4.5)

    begun = await play(check, reached=lambda so_far: so_far.of(StepAnnounced))
    (sleeps,) = begun.of(StepAnnounced)
    over = replace(sleeps, until=sleeps.until - timedelta(seconds=4.5))

    async with asyncio.timeout(4):
        assert (await resume(app_of(check), [over])).end.status is EndStatus.DONE


async def test_people_are_asked_for_one_thing_at_a_time():
    async def check(ctx, trigger):
        answers = await ctx.gather(ctx.approval({"x": 1}), ctx.approval({"x": 2}))
        return ConvergeResult(classification={"by": [answer.by for answer in answers]})

    ports = ports_in_memory()
    app = app_of(check)
    async with running(app, ports):
        episode_id = await open_episode(ports, app)
        for number, by in enumerate(("ann", "bob"), start=1):
            asked = lambda so_far, n=number: len(so_far.of(EpisodeBlocked)) == n  # noqa: E731
            await lived(ports, episode_id, asked)
            await decide(ports, episode_id, by=by)
        life = await lived(ports, episode_id)
    assert classified(life) == {"by": ["ann", "bob"]}


async def test_outputs_of_branches_are_delivered_once_each():
    seen = []

    async def pager(view):
        seen.append(view.idempotency_key)
        return "delivered"

    async def check(ctx, trigger):
        await ctx.gather(*(ctx.output("pager", {"to": name}) for name in "abc"))

    life = await play(check, outputs={"pager": pager})
    assert life.end.status is EndStatus.DONE
    assert (len(seen), len(set(seen))) == (3, 3)
    used = [each for each in middle(life) if not isinstance(each, EpisodeConverged)]
    for cut in range(len(used) + 1):
        again = await resume(app_of(check, outputs={"pager": pager}), used[:cut])
        assert again.end.status is EndStatus.DONE, again.end.error_detail
    assert len(set(seen)) == 3


@pytest.mark.parametrize(
    ("works", "problem"),
    [
        (lambda ctx: [ctx.observe(n) for n in range(17)], "17 branches, the limit is 16"),
        (lambda ctx: [7], "a int cannot be awaited"),
    ],
)
async def test_what_cannot_be_gathered_is_refused(works, problem):
    async def check(ctx, trigger):
        await ctx.gather(*works(ctx))

    life = await play(check)
    assert life.end.error_class == "invalid_action"
    assert problem in life.end.error_detail


async def test_nothing_is_gathered_to_nothing():
    async def check(ctx, trigger):
        return ConvergeResult(classification={"got": await ctx.gather()})

    assert classified(await play(check)) == {"got": []}


async def test_a_checkpoint_in_a_branch_is_refused():
    async def check(ctx, trigger):
        await ctx.gather(ctx.checkpoint(1))

    life = await play(check)
    assert life.end.error_class == "invalid_action"


async def test_a_changed_branch_is_told_with_the_line_of_its_gather():
    async def first(ctx, trigger):
        await ctx.gather(ctx.observe(1), ctx.observe(2))

    async def then(ctx, trigger):
        await ctx.gather(ctx.observe(1), ctx.observe(3))

    steps = (await play(first)).of(StepRecorded)
    life = await resume(app_of(then, replay="strict"), steps)
    assert "call 1.2.1 was observation" in life.parked
    assert "at test_gather.py:" in life.parked


async def test_branches_that_an_earlier_version_began_go_its_way():
    async def old(ctx, trigger):
        await ctx.gather(*(ctx.call("disk.read", i=i) for i in range(2)))

    async def new(ctx, trigger):
        async def one(i):
            if ctx.changed("checks"):
                await ctx.observe("checked")
            await ctx.call("disk.read", i=i)

        await ctx.gather(one(0), one(1))

    tools = {"disk": Ledger()}
    steps = (await play(old, tools=tools)).of(StepRecorded)
    second = [replace(each, step_no=1) for each in steps if each.path == "1.2.1"]
    life = await resume(app_of(new, tools=tools), second)
    assert life.end.status is EndStatus.DONE, life.end.error_detail
    assert paths(life) == ["1.2.1", "changed:checks", "1.1.1"]


async def test_equal_calls_of_branches_are_no_loop():
    async def check(ctx, trigger):
        await ctx.gather(*(ctx.call("disk.read") for _ in range(4)))
        await ctx.observe("after")

    life = await play(check, tools={"disk": Ledger()})
    assert life.end.status is EndStatus.DONE, life.end.error_detail


async def test_branches_that_go_round_together_are_a_loop():
    async def check(ctx, trigger):
        while True:
            await ctx.gather(*(ctx.call("disk.read") for _ in range(2)))

    life = await play(check, tools={"disk": Ledger()}, budget=MANY)
    assert life.end.error_class == "loop_detected"
