"""A function starts episodes and waits for their ends: `ctx.episode`."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pytest
from msgspec.structs import replace

from engine.children import rules as children
from engine.episodes.episode import Episode
from engine.episodes.fire import FireRequest, ParentCall, fire_timer
from engine.lanes.lane import needs_no_turn
from engine.waits.wait import block_in
from streams.memory.log import MemoryLog
from streams.model.children import ChildStart
from streams.model.events import (
    EndStatus,
    EpisodeBlocked,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeResolved,
    EpisodeStarted,
    StepAnnounced,
    StepRecorded,
)
from streams.model.money import USD_LEAST
from streams.model.triggers import Budget, ManualTrigger, Overrides
from streams.ports.domain_events import HOPS_MAX
from vigil import Actor, App, CallFailed, ConvergeResult, Failure, event, manual, raise_finding
from vigil.ports import fork
from vigil.testing import run

NO_LIMIT = Budget(turns=0, tokens=0, wall_s=0)


async def square(ctx, trigger):
    number = trigger.payload["n"]
    await ctx.sleep(trigger.payload.get("takes_s", 0))
    if number < 0:
        raise CallFailed("negative", f"{number} has no root")
    return ConvergeResult(result=number * number, summary=f"{number} squared")


def app_of(parent, *, child=square, budget=NO_LIMIT, budget_of_child=None, **declared) -> App:
    """Return an app in which `parent` starts episodes of `worker.square`."""
    declared |= {"budget": budget_of_child} if budget_of_child else {}
    boss, worker = Actor("boss"), Actor("worker")
    boss.expect("all", parent, on=event("go"), budget=budget)
    worker.expect("square", child, on=manual(), **declared)
    return App(actors=[boss, worker])


def squares(*numbers, **how):
    async def parent(ctx, trigger):
        asked = (ctx.episode("worker", "square", {"n": each}, **how) for each in numbers)
        return ConvergeResult(result=[each.value for each in await ctx.gather(*asked)])

    return parent


async def played(vigil):
    """Return the parent, once all is done."""
    await vigil.publish("go")
    await vigil.advance(hours=1)
    return vigil.episode(actor="boss")


async def events_of(vigil, episode_id):
    records = await vigil.ports.log.read(vigil.ports.stack.episode(episode_id))
    return [each for record in records for each in record.commit.events]


async def test_a_function_gets_what_its_child_returned():
    async def parent(ctx, trigger):
        end = await ctx.episode("worker", "square", {"n": 3})
        assert end
        return ConvergeResult(result=[end.status, end.value, end.summary, end.episode_id])

    async with run(app_of(parent)) as vigil:
        boss = await played(vigil)
        child = vigil.episode(actor="worker")
        assert boss.result == ["done", 9, "3 squared", child.id]
        assert (child.payload, child.parent) == ({"n": 3}, boss.id)
        assert vigil.children(boss.id) == [child]


async def test_a_parent_that_only_waits_has_many_children_and_is_called_once_for_all_of_them():
    async with run(app_of(squares(*range(40)))) as vigil:
        boss = await played(vigil)
        assert boss.result == [number * number for number in range(40)]
        assert len(vigil.children(boss.id)) == 40
        kinds = [type(each) for each in await events_of(vigil, boss.id)]
        assert (kinds.count(EpisodeBlocked), kinds.count(EpisodeResolved)) == (1, 1)
        assert kinds.count(StepRecorded) == 40


async def test_what_is_known_of_a_parent_is_not_read_again_for_each_end(monkeypatch):
    read, commits = MemoryLog.read, Counter()

    async def counted(log, subject, *, after=0):
        found = await read(log, subject, after=after)
        commits[subject] += len(found)
        return found

    monkeypatch.setattr(MemoryLog, "read", counted)
    async with run(app_of(squares(*range(100)))) as vigil:
        boss = await played(vigil)
        subject = vigil.ports.stack.episode(boss.id)
        assert commits[subject] < 10 * len(await read(vigil.ports.log, subject))


async def test_a_branch_goes_on_as_soon_as_its_own_child_has_ended():
    async def one(ctx, number):
        end = await ctx.episode("worker", "square", {"n": number, "takes_s": number * 60})
        return (ctx.now() - ctx.start).total_seconds() // 60, end.value

    async def parent(ctx, trigger):
        ctx.start = ctx.now()
        return ConvergeResult(result=await ctx.gather(one(ctx, 1), one(ctx, 2)))

    async with run(app_of(parent)) as vigil:
        assert (await played(vigil)).result == [[1, 1], [2, 4]]


async def test_what_a_child_reports_reaches_its_parent():
    async def child(ctx, trigger):
        return raise_finding("a:b:c", class_="x", severity="low", subject=("a", "b"), summary="s")

    async def parent(ctx, trigger):
        end = await ctx.episode("worker", "square")
        return ConvergeResult(result=[each.finding_key for each in end.findings])

    async with run(app_of(parent, child=child)) as vigil:
        assert (await played(vigil)).result == ["a:b:c"]


async def test_a_child_that_fails_raises_its_class_where_it_was_awaited_also_in_a_replay():
    async def parent(ctx, trigger):
        try:
            await ctx.episode("worker", "square", {"n": -1})
        except CallFailed as failed:
            await ctx.sleep(60)
            return ConvergeResult(result=[failed.error_class, failed.recorded is not None])

    async with run(app_of(parent)) as vigil:
        assert (await played(vigil)).result == ["negative", True]
        assert await vigil.check_replay(processes=0) == 2


async def test_a_failure_that_nobody_catches_fails_the_parent_with_the_class_of_the_child():
    async with run(app_of(squares(-1))) as vigil:
        assert (await played(vigil)).error_class == "negative"


async def test_a_parent_may_get_the_failure_as_a_result():
    async def parent(ctx, trigger):
        end = await ctx.episode("worker", "square", {"n": -1}, on_failure="return")
        return ConvergeResult(result=[end.status, end.error_class, bool(end)])

    async with run(app_of(parent)) as vigil:
        assert (await played(vigil)).result == ["failed", "negative", False]


@pytest.mark.parametrize(
    ("actor", "expectation", "error_class"),
    [("nobody", "square", "no_such_actor"), ("worker", "cube", "no_such_expectation")],
)
async def test_what_no_node_can_start_fails_the_call(actor, expectation, error_class):
    async def parent(ctx, trigger):
        end = await ctx.episode(actor, expectation, on_failure="return")
        return ConvergeResult(result=[end.status, end.error_class, end.episode_id])

    async with run(app_of(parent)) as vigil:
        assert (await played(vigil)).result == ["refused", error_class, ""]


async def test_episodes_that_start_each_other_come_to_an_end():
    async def parent(ctx, trigger):
        return ConvergeResult(result=(await ctx.episode("boss", "all")).value)

    async with run(app_of(parent)) as vigil:
        await vigil.publish("go")
        await vigil.advance(hours=1)
        assert len(vigil.episodes()) == HOPS_MAX + 1
        assert {each.error_class for each in vigil.episodes()} == {"too_many_hops"}


async def test_a_payload_that_is_too_large_fails_at_the_line_of_the_call():
    async def parent(ctx, trigger):
        await ctx.episode("worker", "square", {"n": "x" * 300_000})

    async with run(app_of(parent)) as vigil:
        boss = await played(vigil)
        assert boss.error_class == "unencodable"
        assert len(vigil.episodes()) == 1


async def test_branches_that_run_code_are_still_sixteen():
    async def one(ctx):
        return (await ctx.episode("worker", "square", {"n": 1})).value

    async def parent(ctx, trigger):
        await ctx.gather(*(one(ctx) for _ in range(17)))

    async with run(app_of(parent)) as vigil:
        assert "17 branches, the limit is 16" in (await played(vigil)).error_detail


async def test_an_episode_waits_for_a_thousand_children_at_most(monkeypatch):
    monkeypatch.setattr(children, "CHILDREN_MAX", 3)
    async with run(app_of(squares(1, 2, 3, 4))) as vigil:
        boss = await played(vigil)
        assert boss.error_class == "too_many_children"
        assert len(vigil.children(boss.id)) == 3


@pytest.mark.parametrize(
    ("how", "problem"), [({"on_failure": "no"}, "on_failure"), ({"with_parent": "no"}, "with_pare")]
)
async def test_a_word_that_is_none_is_refused(how, problem):
    async with run(app_of(squares(1, **how))) as vigil:
        assert problem in (await played(vigil)).error_detail


async def test_calls_with_one_key_are_one_child():
    async def parent(ctx, trigger):
        first = await ctx.episode("worker", "square", {"n": 2}, key="two")
        again = await ctx.episode("worker", "square", {"n": 2}, key="two")
        return ConvergeResult(result=[first.value, first.episode_id == again.episode_id])

    async with run(app_of(parent)) as vigil:
        assert (await played(vigil)).result == [4, True]
        assert len(vigil.episodes(actor="worker")) == 1


async def test_a_child_is_told_its_parent_and_the_call():
    async with run(app_of(squares(1))) as vigil:
        boss = await played(vigil)
        opened = (await events_of(vigil, vigil.children(boss.id)[0].id))[0]
        trigger = opened.trigger
        assert (trigger.parent_id, trigger.parent_actor_id) == (boss.id, "boss")
        assert (trigger.call, trigger.hops) == ("1.1.1", 1)


# Budgets.


async def test_what_a_child_uses_counts_for_its_parent():
    async def child(ctx, trigger):
        await ctx.observe(1)
        await ctx.observe(2)

    async with run(app_of(squares(1), child=child)) as vigil:
        boss = await played(vigil)
        assert boss.turns == 1 + 3  # Its call; two calls and the conclusion of the child.


async def test_the_time_that_a_child_runs_counts_for_its_parent():
    async def child(ctx, trigger):
        await ctx.sleep(4)

    async with run(app_of(squares(1), child=child)) as vigil:
        boss = await played(vigil)
        (recorded,) = [e for e in await events_of(vigil, boss.id) if isinstance(e, StepRecorded)]
        assert recorded.child.wall_ms >= 4_000
        assert recorded.wall_used_ms >= 4_000


async def test_a_child_gets_no_more_than_is_left_of_its_parents_budget():
    budget = Budget(turns=10, tokens=1_000, wall_s=50)
    async with run(app_of(squares(1, 2), budget=budget)) as vigil:
        boss = await played(vigil)
        first, second = vigil.children(boss.id)
        assert {first.budget.turns, second.budget.turns} == {8, 9}
        assert first.budget.tokens == 1_000
        assert 0 < first.budget.wall_s <= 50


async def test_a_child_gets_no_more_than_it_declares():
    async with run(app_of(squares(1))) as vigil:
        boss = await played(vigil)
        assert vigil.children(boss.id)[0].budget == Budget()


async def test_a_parent_whose_children_used_its_budget_up_makes_no_more_calls():
    async def parent(ctx, trigger):
        await ctx.gather(*(ctx.episode("worker", "square", {"n": n}) for n in range(3)))
        await ctx.observe("one more")

    async with run(app_of(parent, budget=Budget(turns=6, tokens=0, wall_s=0))) as vigil:
        assert (await played(vigil)).error_class == "budget_exceeded"


async def test_children_at_the_same_time_share_the_dollars_of_their_parent():
    budget = replace(NO_LIMIT, usd="1.00")
    app = app_of(squares(1, 2, 3), budget=budget, budget_of_child=Budget(usd="0.40"))
    async with run(app) as vigil:
        boss = await played(vigil)
        dollars = sorted(each.budget.usd for each in vigil.children(boss.id))
        assert dollars == [Decimal("0.20"), Decimal("0.40"), Decimal("0.40")]


async def test_a_child_without_a_limit_of_its_own_gets_all_dollars_that_are_left():
    app = app_of(squares(1, 2), budget=replace(NO_LIMIT, usd="1.00"))
    async with run(app) as vigil:
        boss = await played(vigil)
        dollars = sorted(each.budget.usd for each in vigil.children(boss.id))
        assert dollars == [USD_LEAST, Decimal("1.00")]


def test_a_child_counts_with_what_it_has_spent_and_with_what_it_may_have():
    said = ChildStart(episode_id="c1", actor_id="worker", expectation_id="square", budget=Budget())
    announced = StepAnnounced(
        step_no=1, fingerprint="f", tool_name="", idempotency_key="k", child=said
    )
    request = StepAnnounced(
        step_no=1,
        fingerprint="f",
        tool_name="",
        idempotency_key="k",
        path="1",
        reserved_usd=Decimal("0.30"),
    )
    finished = EpisodeFinished(status=EndStatus.CANCELED)
    opened = EpisodeOpened(
        episode_id="c1",
        actor_id="worker",
        expectation_id="square",
        trigger=ManualTrigger(requested_by="a test"),
        dedupe_key="k",
        budget=Budget(),
    )
    child = Episode(
        opened=opened, usd_used=Decimal("0.05"), announced=(request,), finished=finished
    )
    assert children.performed(announced, child).child.usd == Decimal("0.35")


# What ends otherwise.


async def test_children_are_canceled_with_their_parent_unless_they_are_left():
    async def parent(ctx, trigger):
        work = {"n": 1, "takes_s": 600}
        await ctx.gather(
            ctx.episode("worker", "square", work),
            ctx.episode("worker", "square", work, with_parent="leave"),
        )

    async with run(app_of(parent)) as vigil:
        await vigil.publish("go")
        await vigil.run_until_idle()
        await vigil.cancel(vigil.episode(actor="boss").id)
        await vigil.advance(hours=1)
        ends = [each.status for each in vigil.episodes(actor="worker")]
        assert sorted(ends) == ["canceled", "done"]
        assert vigil.dead_letters() == []


async def test_a_child_that_is_not_open_when_its_parent_has_ended_is_not_run():
    async with run(app_of(squares(1))) as vigil:
        boss = await played(vigil)
        await request(vigil, boss.id, "square")
        late = vigil.children(boss.id)[-1]
        assert (late.status, late.error_class, late.steps) == ("canceled", "parent_ended", ())


async def request(vigil, parent_id, expectation):
    """Ask for a child as the reactor does."""
    parent = ParentCall(actor_id="boss", episode_id=parent_id, call="9", budget=Budget())
    asked = FireRequest(
        expectation=expectation, requested_by="x", key="late", payload={"n": 1}, parent=parent
    )
    await vigil.ports.timers.send(fire_timer(asked, actor="worker"), id="late")
    await vigil.advance(hours=1)


async def test_a_child_whose_expectation_no_node_has_any_more_ends_so_that_its_parent_hears_of_it():
    async with run(app_of(squares(1))) as vigil:
        boss = await played(vigil)
        await request(vigil, boss.id, "gone")
        late = vigil.children(boss.id)[-1]
        assert (late.status, late.error_class) == ("canceled", "not_opened")
        assert vigil.dead_letters() == []


async def test_a_child_that_may_not_overlap_fails_its_call():
    async def parent(ctx, trigger):
        asked = ({"n": 1, "host": "a", "takes_s": 600}, {"n": 2, "host": "a"})
        ends = await ctx.gather(
            *(ctx.episode("worker", "square", each, on_failure="return") for each in asked)
        )
        return ConvergeResult(result=sorted([each.status, each.error_class] for each in ends))

    async with run(app_of(parent, subject_key="host", overlap="skip")) as vigil:
        assert (await played(vigil)).result == [["canceled", "overlap"], ["done", ""]]


@pytest.mark.parametrize("declared", [{}, {"subject_key": "host", "overlap": "skip"}])
async def test_a_child_that_gets_no_place_in_the_lane_fails_its_call(declared):
    async def parent(ctx, trigger):
        work = [{"n": 1, "takes_s": 3, "host": f"h{each}"} for each in range(6)]
        ends = await ctx.gather(
            *(ctx.episode("worker", "square", each, on_failure="return") for each in work)
        )
        return ConvergeResult(result=sorted({each.error_class for each in ends}))

    boss, worker = Actor("boss"), Actor("worker", max_concurrent_cluster=1, overflow="drop")
    boss.expect("all", parent, on=event("go"), budget=NO_LIMIT)
    worker.expect("square", square, on=manual(), **declared)
    async with run(App(actors=[boss, worker])) as vigil:
        assert (await played(vigil)).result == ["", "shed_oldest"]


async def test_a_dry_run_has_children_that_are_dry_runs():
    async with run(app_of(squares(3))) as vigil:
        asked = Overrides(persist_findings="try")
        id_ = await vigil.fire("boss", "all", dry_run=True, overrides=asked)
        await vigil.advance(minutes=1)
        assert vigil.episode(id_).result == [9]
        opened = (await events_of(vigil, vigil.children(id_)[0].id))[0]
        assert (opened.mode, opened.overrides.persist_findings) == ("dry_run", "try")


async def test_a_fork_starts_children_of_its_own_after_its_past():
    async def parent(ctx, trigger):
        first = await ctx.episode("worker", "square", {"n": 1})
        second = await ctx.episode("worker", "square", {"n": 2})
        return ConvergeResult(result=[first.value, second.value])

    async with run(app_of(parent)) as vigil:
        boss = await played(vigil)
        forked = await fork(vigil.ports, boss.id, at=1, by="ann")
        await vigil.advance(hours=1)
        assert vigil.episode(forked).result == [1, 4]
        assert [each.payload["n"] for each in vigil.children(forked)] == [2]
        assert len(vigil.children(boss.id)) == 2


async def test_a_fork_of_a_child_has_no_parent():
    async with run(app_of(squares(1))) as vigil:
        boss = await played(vigil)
        child = vigil.children(boss.id)[0]
        forked = await fork(vigil.ports, child.id, at=0, by="ann")
        await vigil.advance(hours=1)
        assert vigil.episode(forked).status == "done"
        assert vigil.episode(forked).parent == ""


async def test_people_are_asked_once_no_child_runs_any_more():
    async def parent(ctx, trigger):
        answer, end = await ctx.gather(
            ctx.approval({"a": 1}), ctx.episode("worker", "square", {"n": 2, "takes_s": 60})
        )
        return ConvergeResult(result=[bool(answer), end.value])

    async with run(app_of(parent)) as vigil:
        await vigil.publish("go")
        await vigil.run_until_idle()
        assert [each for each in vigil.waits() if each.plan_hash] == []
        await vigil.advance(minutes=2)
        await vigil.approve()
        await vigil.advance(minutes=1)
        assert vigil.episode(actor="boss").result == [True, 4]


async def test_a_sleep_ends_in_time_although_children_have_ended_meanwhile():
    async def sleeper(ctx):
        await ctx.sleep(300)
        return (ctx.now() - ctx.start).total_seconds() // 60

    async def parent(ctx, trigger):
        ctx.start = ctx.now()
        asked = [{"n": n, "takes_s": n * 60} for n in (1, 2, 60)]
        kids = ctx.gather(*(ctx.episode("worker", "square", each) for each in asked))
        woke, _ = await ctx.gather(sleeper(ctx), kids)
        return ConvergeResult(result=woke)

    async with run(app_of(parent)) as vigil:
        await vigil.publish("go")
        await vigil.advance(minutes=4)
        await vigil.crash()
        await vigil.advance(hours=2)
        assert vigil.episode(actor="boss").result == 5


async def test_between_the_ends_of_children_their_parent_is_known_to_wait_and_until_when():
    async def parent(ctx, trigger):
        asked = [{"n": n, "takes_s": n * 60} for n in (1, 60)]
        kids = ctx.gather(*(ctx.episode("worker", "square", each) for each in asked))
        await ctx.gather(ctx.sleep(300), kids)

    async with run(app_of(parent)) as vigil:
        await vigil.publish("go")
        await vigil.advance(minutes=2)
        boss = vigil.ports.stack.episode(vigil.episode(actor="boss").id)
        newest = await vigil.ports.log.last(boss)
        assert isinstance(newest.commit.events[-1], StepRecorded)
        block = block_in(newest)
        began = vigil.episode(actor="boss").opened_at
        assert round((block.terms.expires_at - began).total_seconds()) == 300
        assert needs_no_turn(newest)
        await vigil.advance(minutes=4)
        assert block_in(await vigil.ports.log.last(boss)).terms.expires_at is None


async def test_a_child_that_ends_while_its_parent_runs_is_recorded_once_that_waits():
    async def parent(ctx, trigger):
        async def busy():
            for _ in range(3):
                await ctx.sleep(2)

        await ctx.episode("worker", "square", {"n": 1})
        asked = ({"n": 2}, {"n": 3, "takes_s": 60})
        kids = ctx.gather(*(ctx.episode("worker", "square", each) for each in asked))
        await ctx.gather(kids, busy())

    async with run(app_of(parent)) as vigil:
        boss = await played(vigil)
        assert (boss.status, boss.attempts) == ("done", 3)
        child = "worker.square"
        assert [each.name for each in boss.steps] == [child, *["wait"] * 3, child, child]


async def test_a_large_result_of_a_child_is_in_the_object_store():
    async def child(ctx, trigger):
        return ConvergeResult(result="x" * 200_000, classification={"y": "y" * 200_000})

    async with run(app_of(squares(1), child=child)) as vigil:
        boss = await played(vigil)
        assert [len(each) for each in boss.result] == [200_000]
        assert boss.steps[0].stored is not None


async def test_a_test_may_answer_in_the_place_of_a_child():
    answers = {"worker.*": lambda payload: payload["n"] + 100}
    async with run(app_of(squares(1, 2)), episodes=answers) as vigil:
        assert (await played(vigil)).result == [101, 102]
        assert await vigil.check_replay(processes=0) == 1

    failing = {"worker.square": Failure("down", "no")}
    async with run(app_of(squares(1)), episodes=failing) as vigil:
        assert (await played(vigil)).error_class == "down"


async def test_a_stub_of_an_expectation_that_there_is_not_is_told():
    with pytest.raises(ValueError, match=r"it has boss\.all, worker\.square"):
        async with run(app_of(squares(1)), episodes={"worker.cube": 1}):
            pass


async def test_a_child_is_announced_once_however_often_its_parent_runs():
    async def parent(ctx, trigger):
        await ctx.gather(
            ctx.episode("worker", "square", {"n": 1, "takes_s": 600}), ctx.sleep(60), ctx.sleep(120)
        )

    async with run(app_of(parent)) as vigil:
        boss = await played(vigil)
        found = await events_of(vigil, boss.id)
        assert sum(isinstance(each, StepAnnounced) and bool(each.child) for each in found) == 1
        assert sum(isinstance(each, EpisodeStarted) for each in found) > 2
        assert sum(isinstance(each, EpisodeOpened) for each in found) == 1
