"""Who approves may change the plan, where whoever asks carries out what it becomes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.app.actions import approval, fingerprint
from engine.app.outputs import plan_hash
from engine.app.strategy import ConvergeResult
from engine.errors import Refused
from engine.waits import answer as answers
from streams.json import raw, unraw
from streams.model.commands import Decide, Verdict
from streams.model.events import EpisodeBlocked, EpisodeConverged, EpisodeResolved, StepRecorded
from streams.model.waits import EditableCalls, PlanForm
from tests.engine.functions import stage as functions
from tests.engine.functions.stage import Ledger
from tests.engine.stage import Scripted, app_of, decide, lived, open_episode, running

PLAN = {"restart": "db1", "at": 3}
EDITED = {"restart": "db2", "at": 3}


def blocked(so_far) -> bool:
    return so_far.episode.blocked is not None and so_far.episode.resolved is None


async def asked(ports, id_) -> str:
    """Wait until an episode asks, and return the hash of its plan."""
    return (await lived(ports, id_, blocked)).of(EpisodeBlocked)[-1].approval.plan_hash


async def answered(ports, app, **decision):
    """Return the life of an episode of `app` whose request is approved so."""
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await asked(ports, id_)
        await decide(ports, id_, by="ann", **decision)
        return await lived(ports, id_)


async def carried_out(ctx, trigger):
    """Do what was approved."""
    answer = await ctx.approval(PLAN, editable=True)
    await ctx.call("host.restart", **answer.plan)
    return ConvergeResult(summary=f"{answer.is_edited} by {answer.by}")


def app_that_restarts(host=None):
    return functions.app_of(carried_out, tools={"host": host or Ledger()})


async def test_a_function_gets_the_plan_as_it_was_changed(ports):
    life_ = await answered(ports, app_that_restarts(), plan=EDITED)

    assert unraw(life_.of(StepRecorded)[-1].args) == EDITED
    assert life_.of(EpisodeConverged)[0].summary == "True by ann"


async def test_a_function_gets_the_plan_that_was_not_changed_too(ports):
    life_ = await answered(ports, app_that_restarts())

    assert unraw(life_.of(StepRecorded)[-1].args) == PLAN
    assert life_.of(EpisodeConverged)[0].summary == "False by ann"


async def test_both_hashes_are_on_the_journal(ports):
    life_ = await answered(ports, app_that_restarts(), plan=EDITED)

    assert life_.of(EpisodeBlocked)[0].approval.plan_hash == plan_hash(raw(PLAN))
    assert life_.of(EpisodeResolved)[0].edited_hash == plan_hash(raw(EDITED))
    step = life_.of(StepRecorded)[0]
    assert (unraw(step.args), unraw(step.result)["plan"]) == (PLAN, EDITED)


async def test_after_a_crash_the_changed_plan_is_still_the_one(ports):
    whole = await answered(ports, app_that_restarts(), plan=EDITED)
    host = Ledger()
    answered_only = functions.middle(whole)[:3]
    assert isinstance(answered_only[-1], EpisodeResolved)
    life_ = await functions.resume(app_that_restarts(host), answered_only)

    assert host.calls == ["restart"]
    assert unraw(life_.of(StepRecorded)[-1].args) == EDITED


async def test_a_strategy_gets_it_with_the_result(ports):
    life_ = await answered(ports, app_of(Scripted(approval(PLAN, editable=True))), plan=EDITED)

    assert life_.seen == [
        {"resolution": "approved", "by": "ann", "reason": "", "plan": EDITED},
    ]


async def test_nothing_may_be_what_a_plan_becomes(ports):
    async def check(ctx, trigger):
        answer = await ctx.approval(PLAN, editable=True)
        return ConvergeResult(summary=f"{answer.plan} {answer.is_edited}")

    life_ = await answered(ports, functions.app_of(check), plan=None)
    assert life_.of(EpisodeConverged)[0].summary == "None True"


async def test_a_plan_that_nobody_looks_at_again_cannot_be_changed(ports):
    app = app_of(Scripted(approval(PLAN)))
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await asked(ports, id_)
        with pytest.raises(Refused, match="its plan cannot be changed"):
            await decide(ports, id_, plan=EDITED)
        await decide(ports, id_, by="ann")
        assert (await lived(ports, id_)).seen == [
            {"resolution": "approved", "by": "ann", "reason": ""}
        ]


async def test_a_node_refuses_it_too(ports):
    app = app_of(Scripted(approval(PLAN)))
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        hash_ = await asked(ports, id_)
        records = await ports.log.read(ports.stack.episode(id_))
    edited = Decide(
        actor_id="worker",
        episode_id=id_,
        id="d1",
        verdict=Verdict.APPROVE,
        plan_hash=hash_,
        by="ann",
        step_no=1,
        edited_hash=plan_hash(raw(EDITED)),
        edited_plan=raw(EDITED),
    )
    with pytest.raises(Refused, match="its plan cannot be changed"):
        answers.answer(records, edited, at=records[-1].commit.at)
    assert answers.answer(records, replace(edited, edited_hash=""), at=records[-1].commit.at)


def test_a_request_that_is_not_editable_has_the_fingerprint_that_it_always_had():
    asks = approval({"restart": "db1"}, summary="s", approvers=["ann"])
    assert fingerprint(asks).startswith("598406cf8e605272")
    assert fingerprint(asks) != fingerprint(
        approval({"restart": "db1"}, summary="s", approvers=["ann"], editable=True)
    )


def test_what_may_become_of_a_plan_is_no_part_of_its_fingerprint():
    calls = EditableCalls(form=PlanForm.ARGUMENTS, arguments={"restart": ("service",)})
    asks = approval({"service": "web"}, editable=True)
    assert fingerprint(approval({"service": "web"}, editable=calls)) == fingerprint(asks)


async def test_who_may_change_calls_only_is_told_what_is_none_of_them_and_decides_again(ports):
    async def check(ctx, trigger):
        calls = EditableCalls(form=PlanForm.ARGUMENTS, arguments={"restart": ("restart", "at")})
        answer = await ctx.approval(PLAN, editable=calls)
        return ConvergeResult(summary=answer.plan["restart"])

    app = functions.app_of(check)
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await asked(ports, id_)
        with pytest.raises(Refused, match="there is no argument 'when'; known: restart, at"):
            await decide(ports, id_, plan={**PLAN, "when": 3})
        await decide(ports, id_, plan=EDITED)
        assert (await lived(ports, id_)).of(EpisodeConverged)[0].summary == "db2"
