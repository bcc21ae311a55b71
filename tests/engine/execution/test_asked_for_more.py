"""An episode whose budget is used up asks people for more, and goes on where it was."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
from msgspec.structs import replace

from engine.app.actions import approval
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.strategy import ConvergeResult
from engine.app.triggers import event, manual
from engine.errors import DeclarationError, Refused
from streams.memory import memory_ports
from streams.model.commands import Recover
from streams.model.events import (
    EndStatus,
    EpisodeBlocked,
    EpisodeConverged,
    Fork,
    StepAnnounced,
    StepKind,
    StepRecorded,
)
from streams.model.money import Spending
from streams.model.triggers import Budget, EpisodeTrigger, Grant, Mode, WorkflowTrigger
from tests.engine.functions.stage import Ledger
from tests.engine.spending.asking import answered_at_once, ask
from tests.engine.stage import (
    CLOCK,
    HAPPENED,
    Scripted,
    ask_start,
    decide,
    lived,
    open_episode,
    opening,
    running,
    write,
)
from vigil.testing import crash_everywhere, run

THREE = [ask(number, worst="0.30", cost="0.20") for number in (1, 2, 3)]


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """Answer every request at once, and note it."""
    return answered_at_once(monkeypatch)


async def three_calls(ctx, trigger):
    done = [await ctx.call("disk.check", n=number) for number in (1, 2, 3)]
    return ConvergeResult(summary=f"{len(done)} checks")


def app_of(strategy, *, actor=(), tools=None, **options):
    worker = Actor("worker", spending=actor, tools=tools or {"disk": Ledger()})
    declared = {"on": event(HAPPENED), "on_exhausted": "ask", **options}
    worker.expect("thing", strategy, **declared)
    return App(actors=[worker])


class Told:
    """An episode, and what people say to its requests, one after the other."""

    def __init__(self, app, ports=None):
        self.app, self.ports = app, ports or memory_ports(clock=CLOCK)
        self.id = ""

    async def asked(self, times=1):
        """Return the life of the episode once it has asked for more so often."""
        return await lived(self.ports, self.id, lambda life: len(requests_of(life)) == times)

    async def play(self, *words):
        """Return the life of the episode, whose n-th request is answered by the n-th word.

        A word is a verdict, or the plan that is approved instead.
        """
        async with running(self.app, self.ports):
            self.id = await open_episode(self.ports, self.app)
            for times, word in enumerate(words, start=1):
                await self.asked(times)
                verdict = word if isinstance(word, str) else "approve"
                changed = {} if isinstance(word, str) else {"plan": word}
                await decide(self.ports, self.id, verdict, reason="why not", **changed)
            return await lived(self.ports, self.id)


def requests_of(life):
    return [each.approval for each in life.of(EpisodeBlocked)]


def grants_of(life):
    return [each for each in life.of(StepRecorded) if each.is_grant]


DOLLARS = {"budget": Budget(turns=0, usd="0.45")}


@pytest.mark.parametrize(
    ("strategy", "options", "plan", "summary"),
    [
        (
            Scripted(*THREE),
            DOLLARS,
            b'{"usd":"0.45"}',
            "usd: 0.20 used of 0.45; the next request may cost 0.30; grant 0.45 more?",
        ),
        (
            three_calls,
            {"budget": Budget(turns=2)},
            b'{"turns":2}',
            "turns: 2 used of 2; grant 2 more?",
        ),
    ],
)
async def test_people_are_asked_for_as_much_again_and_it_goes_on_where_it_was(
    strategy, options, plan, summary
):
    life = await Told(app_of(strategy, **options)).play("approve")
    (request,) = requests_of(life)
    assert (bytes(request.plan), request.summary, request.editable) == (plan, summary, True)
    assert life.end.status is EndStatus.DONE
    (grant,) = grants_of(life)
    assert (grant.kind, grant.tool_name) == (StepKind.APPROVAL, "budget")
    calls = [each for each in life.of(StepRecorded) if not each.is_grant]
    assert len(calls) == len({each.path for each in calls}) == 3


async def test_where_as_much_again_is_not_enough_people_are_asked_for_what_is():
    asking = Scripted(ask(1, worst="0.0113250000001", cost="0.01"))
    life = await Told(app_of(asking, budget=Budget(turns=0, usd="0.002"))).play("approve")
    (request,) = requests_of(life)
    assert bytes(request.plan) == b'{"usd":"0.009325000001"}'
    assert request.summary.endswith("; grant 0.009325000001 more?")
    assert life.end.status is EndStatus.DONE


async def test_what_is_granted_is_no_turn_and_counts_over_all_attempts():
    life = await Told(app_of(three_calls, budget=Budget(turns=2))).play({"turns": 5})
    assert life.episode.granted == Grant(turns=5)
    assert life.episode.budget.turns == 7
    assert life.end.turns_used == 4


async def test_it_may_ask_any_number_of_times(asked):
    told = Told(app_of(Scripted(*THREE), **DOLLARS))
    life = await told.play({"usd": "0.05"}, {"usd": 0.04}, {"usd": "0.16", "turns": 1})
    assert life.end.status is EndStatus.DONE, life.end.error_detail
    assert life.episode.granted == Grant(usd=Decimal("0.25"), turns=1)
    assert asked == ["1", "2", "3"]
    assert life.end.usd_used == Decimal("0.60")


@pytest.mark.parametrize(("word", "why"), [("deny", "by ada: why not")])
async def test_denied_it_ends_as_it_would_have_without_asking(word, why, asked):
    life = await Told(app_of(Scripted(*THREE), **DOLLARS)).play(word)
    assert (life.end.status, life.end.error_class) == (EndStatus.FAILED, "budget_exceeded")
    used = "usd: 0.20 used of 0.45; the next request may cost 0.30"
    assert life.end.error_detail == f"{used}; no more was granted: {why}"
    assert asked == ["1"]


async def test_one_that_nobody_grants_in_time_ends_as_well():
    asking = approval({"usd": "9"}, approvers="ann", expires_s=0.05, summary="Triage")
    life = await Told(app_of(Scripted(*THREE), **{**DOLLARS, "on_exhausted": asking})).play()
    (request,) = requests_of(life)
    assert bytes(request.plan) == b'{"usd":"9.00"}'
    assert request.approvers == ("ann",)
    assert request.summary.startswith("Triage; usd: 0.20 used of 0.45")
    assert life.end.error_class == "budget_exceeded"
    assert life.end.error_detail.endswith("no more was granted: nobody decided in time")


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ({"usd": "-1"}, "not from 0"),
        ({"usd": "0.00"}, "grants nothing"),
        ({"turns": 1.5}, "not a whole number"),
        ({"wall_s": 5}, "'wall_s' cannot be granted; known: turns, tokens, usd"),
        ({"turn": 2, "turns": 4}, "'turn' cannot be granted; did you mean turns?"),
        ({}, "is no grant"),
        ("more", "is no grant"),
    ],
)
async def test_a_plan_that_grants_nothing_is_refused(plan, why):
    told = Told(app_of(Scripted(*THREE), **DOLLARS))
    async with running(told.app, told.ports):
        told.id = await open_episode(told.ports, told.app)
        await told.asked()
        with pytest.raises(Refused, match=why):
            await decide(told.ports, told.id, plan=plan)
        await decide(told.ports, told.id, "deny")
        await lived(told.ports, told.id)


async def test_what_the_actor_may_spend_is_not_granted():
    app = app_of(Scripted(*THREE), actor=[Spending(usd="0.45")], budget=Budget(turns=0, usd="9"))
    life = await Told(app).play()
    assert life.end.error_class == "budget_exceeded"
    assert "by actor worker in the day" in life.end.error_detail
    assert requests_of(life) == []


async def test_in_branches_one_question_is_open_at_a_time():
    async def both(ctx, trigger):
        done = await ctx.gather(*(ctx.call("disk.check", n=number) for number in range(4)))
        return ConvergeResult(summary=f"{len(done)} checks")

    life = await Told(app_of(both, budget=Budget(turns=1))).play("approve", "approve", {"turns": 9})
    assert life.of(EpisodeConverged)[0].summary == "4 checks"
    assert len(grants_of(life)) == 3


async def both_ask(ctx, trigger):
    asking = ({"number": number, "worst": "0.30", "cost": "0.20"} for number in (1, 2))
    done = await ctx.gather(*(ctx.call("model.ask", **each) for each in asking))
    return ConvergeResult(summary=f"{len(done)} answers")


async def test_what_another_branch_leaves_is_used_before_people_are_asked():
    life = await Told(app_of(both_ask, budget=Budget(turns=0, usd="0.50"))).play()
    assert life.end.status is EndStatus.DONE, life.end.error_detail
    assert requests_of(life) == []


async def test_people_are_asked_once_what_other_branches_do_has_ended(asked):
    life = await Told(app_of(both_ask, budget=Budget(turns=0, usd="0.35"))).play("approve")
    (request,) = requests_of(life)
    assert request.summary.startswith("usd: 0.20 used of 0.35; the next request may cost 0.30")
    assert life.end.usd_used == Decimal("0.40")
    assert len(asked) == 2


async def test_a_call_that_the_function_gives_up_meanwhile_is_recorded_so():
    async def impatient(ctx, trigger):
        async def patient():
            return await ctx.call("disk.wait")

        async def hasty():
            try:
                async with asyncio.timeout(None) as self_:
                    patience.append(self_)
                    return await ctx.call("disk.check")
            except TimeoutError:
                return "given up"

        said = await ctx.gather(patient(), hasty())
        return ConvergeResult(summary=said[1])

    patience: list[asyncio.Timeout] = []

    async def wait(args, ctx):
        patience[0].reschedule(asyncio.get_running_loop().time())
        return "waited"

    async def check(args, ctx):
        raise AssertionError("it does not fit in the budget")

    app = app_of(impatient, tools={"disk": {"wait": wait, "check": check}}, budget=Budget(turns=1))
    life = await Told(app).play()
    assert life.of(EpisodeConverged)[0].summary == "given up"
    assert [each.error_class for each in life.of(StepRecorded)] == ["", "call_timeout"]


async def test_a_dry_run_asks_nobody():
    app, ports = app_of(three_calls, budget=Budget(turns=2)), memory_ports(clock=CLOCK)
    opened = replace(opening(app), mode=Mode.DRY_RUN)
    async with running(app, ports):
        await write(ports, opened.episode_id, opened)
        await ask_start(ports, opened.episode_id)
        life = await lived(ports, opened.episode_id)
    assert (life.end.error_class, requests_of(life)) == ("budget_exceeded", [])


async def test_a_child_asks_nobody_since_its_budget_is_its_parents():
    app, ports = app_of(three_calls, budget=Budget(turns=2)), memory_ports(clock=CLOCK)
    trigger = EpisodeTrigger(parent_id="p1", parent_actor_id="worker", call="1")
    opened = replace(opening(app), trigger=trigger)
    async with running(app, ports):
        await write(ports, opened.episode_id, opened)
        await ask_start(ports, opened.episode_id)
        life = await lived(ports, opened.episode_id)
    assert (life.end.error_class, requests_of(life)) == ("budget_exceeded", [])


@pytest.mark.parametrize(
    ("strategy", "options", "kept", "fork", "asks"),
    [
        (Scripted(*THREE), DOLLARS, "0.45", None, False),
        (Scripted(*THREE), DOLLARS, "0", None, True),
        (Scripted(*THREE), DOLLARS, "0.45", Fork(episode_id="e0", step_no=0, by="ada"), True),
        (three_calls, {"budget": Budget(turns=2)}, "0.45", None, True),
    ],
)
async def test_a_step_is_granted_none_of_the_dollars_of_its_workflow(
    strategy, options, kept, fork, asks
):
    app, ports = app_of(strategy, **options), memory_ports(clock=CLOCK)
    trigger = WorkflowTrigger(
        workflow_instance_id="i", workflow_step_id="s", budget_usd=Decimal(kept)
    )
    opened = replace(opening(app), trigger=trigger, fork=fork)
    async with running(app, ports):
        await write(ports, opened.episode_id, opened)
        await ask_start(ports, opened.episode_id)
        life = await lived(
            ports, opened.episode_id, lambda life: life.episode.finished or requests_of(life)
        )
    assert bool(requests_of(life)) is asks


@pytest.mark.parametrize(
    ("declared", "kept", "told"),
    [
        ("0.45", "0.25", "; 0.25 was left of its workflow's budget"),
        ("0", "0.25", "; 0.25 was left of its workflow's budget"),
        ("0.25", "0.25", ""),
        ("0.25", "2.00", ""),
    ],
)
async def test_a_step_that_got_less_than_it_declares_says_where_its_dollars_come_from(
    declared, kept, told
):
    app = app_of(Scripted(*THREE), budget=Budget(turns=0, usd=declared), on_exhausted=None)
    trigger = WorkflowTrigger(
        workflow_instance_id="i", workflow_step_id="s", budget_usd=Decimal(kept)
    )
    budget = Budget(turns=0, usd="0.25")
    ports, opened = memory_ports(clock=CLOCK), replace(opening(app), trigger=trigger, budget=budget)
    async with running(app, ports):
        await write(ports, opened.episode_id, opened)
        await ask_start(ports, opened.episode_id)
        life = await lived(ports, opened.episode_id)
    used = "usd: 0.00 used of 0.25; the next request may cost 0.30"
    assert life.end.error_detail == f"{used}{told}"


async def test_who_grants_a_step_more_turns_grants_no_dollars_of_its_workflow():
    app, ports = app_of(three_calls, budget=Budget(turns=2, usd="0.45")), memory_ports(clock=CLOCK)
    trigger = WorkflowTrigger(
        workflow_instance_id="i", workflow_step_id="s", budget_usd=Decimal("0.45")
    )
    opened = replace(opening(app), trigger=trigger)
    async with running(app, ports):
        await write(ports, opened.episode_id, opened)
        await ask_start(ports, opened.episode_id)
        await lived(ports, opened.episode_id, requests_of)
        with pytest.raises(Refused, match="dollars are those of its workflow"):
            await decide(ports, opened.episode_id, plan={"turns": 5, "usd": "100"})
        await decide(ports, opened.episode_id, plan={"turns": 5})
        life = await lived(ports, opened.episode_id)
    assert (life.end.status, life.episode.budget.usd) == (EndStatus.DONE, Decimal("0.45"))


async def test_what_was_granted_is_left_for_children():
    async def starts_a_part(ctx, trigger):
        await ctx.observe(1)
        await ctx.observe(2)
        return ConvergeResult(summary=(await ctx.episode("worker", "part")).status)

    async def part(ctx, trigger):
        return ConvergeResult()

    app = app_of(starts_a_part, budget=Budget(turns=2))
    app.actors["worker"].expect("part", part, on=manual())
    life = await Told(app).play({"turns": 4})
    (announced,) = life.of(StepAnnounced)
    assert announced.child.budget.turns == 3
    assert life.of(EpisodeConverged)[0].summary == "done"


async def test_a_quiet_log_keeps_what_was_granted():
    app = app_of(three_calls, budget=Budget(turns=2), log_strategy="summary_only")
    life = await Told(app).play("approve")
    assert life.end.status is EndStatus.DONE
    assert life.episode.granted == Grant(turns=2)


async def test_after_a_crash_at_each_moment_it_goes_on_with_what_was_granted():
    app = app_of(Scripted(*THREE), **DOLLARS)
    undisturbed = await Told(app).play("approve")
    for until in range(2, len(undisturbed.records)):
        life = await resumed(app, undisturbed.records[:until])
        assert life.end.status is EndStatus.DONE, until
        assert life.end.usd_used == undisturbed.end.usd_used
        assert life.episode.granted == undisturbed.episode.granted
        assert len(requests_of(life)) == len(grants_of(life)) == 1


async def resumed(app, records):
    """Return the life of an episode whose node died after `records`; people grant what it asks."""
    told = Told(app)
    told.id = opening(app).episode_id
    for record in records:
        await write(told.ports, told.id, *record.commit.events)
    command = Recover(actor_id="worker", episode_id=told.id, reason="lapsed")
    await told.ports.commands.send(command, id="lapse.1")
    async with running(app, told.ports):
        life = await told.asked()
        if not grants_of(life):
            await decide(told.ports, told.id)
        return await lived(told.ports, told.id)


async def test_it_ends_in_the_same_way_whenever_a_node_dies():
    app = app_of(three_calls, budget=Budget(turns=2))

    async def story(vigil):
        await vigil.publish(HAPPENED, {})
        await vigil.run_until_idle()
        assert [each.summary for each in vigil.waits()] == ["turns: 2 used of 2; grant 2 more?"]
        await vigil.approve()
        await vigil.run_until_idle()
        assert vigil.episode().summary == "3 checks"

    moments = await crash_everywhere(lambda: run(app, tools={"disk.check": "fine"}), story)
    assert moments > 8


async def test_the_history_of_one_that_has_asked_can_be_replayed():
    app = app_of(three_calls, budget=Budget(turns=2))
    async with run(app, tools={"disk.check": "fine"}) as vigil:
        await vigil.publish(HAPPENED, {})
        await vigil.run_until_idle()
        assert await vigil.check_replay() == 1
        await vigil.approve()
        await vigil.run_until_idle()
        assert await vigil.check_replay() == 1


@pytest.mark.parametrize("given", ["converge", "fail", 7])
def test_what_is_neither_a_function_nor_a_question_is_refused(given):
    with pytest.raises(DeclarationError, match="on_exhausted"):
        app_of(Scripted(), on_exhausted=given)


@pytest.mark.parametrize(
    ("asking", "why"),
    [
        (approval({"usd": "0"}), "grants nothing"),
        (approval("more"), "is no grant"),
        (approval({"usd": "1"}, on_expiry="approve", expires_s=5), "on_expiry"),
    ],
)
def test_a_question_that_can_grant_nothing_is_refused(asking, why):
    with pytest.raises(DeclarationError, match=why):
        app_of(Scripted(), on_exhausted=asking)
