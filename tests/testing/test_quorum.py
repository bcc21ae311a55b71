"""What several people have to approve, and who has asked for it may not: of every kind."""

from __future__ import annotations

import pytest

from vigil import Actor, App, ConvergeResult, Refused, Workflow, manual
from vigil.testing import run

ops = Actor("ops")


@ops.expectation(on=manual())
async def restart(ctx, trigger):
    answer = await ctx.approval(
        {"restart": "db1"},
        approvers=["ann", "bob", "group:oncall"],
        quorum=2,
        requester_may_approve=False,
        editable=True,
    )
    said = {"is_approved": bool(answer), "by": answer.by, "plan": answer.plan}
    return ConvergeResult(classification=said)


@ops.expectation(on=manual())
async def ask_a_child(ctx, trigger):
    await ctx.episode("ops", "restart")


@ops.expectation(on=manual())
async def mail(ctx, trigger):
    await ctx.output(
        "mail", {"to": "all"}, requires_approval=True, quorum=2, requester_may_approve=False
    )


flow = Workflow("flow")
flow.step(
    "restart",
    actor="ops",
    expectation="restart",
    requires_approval=True,
    quorum=2,
    requester_may_approve=False,
)


async def sent(output):
    return "sent"


app = App(actors=[ops], workflows=[flow], outputs={"mail": sent})


async def fired(vigil, expectation, by="zoe"):
    await vigil.fire("ops", expectation, by=by)
    await vigil.run_until_idle()


async def test_two_people_approve_and_the_strategy_learns_who():
    async with run(app) as vigil:
        await fired(vigil, "restart")
        await vigil.approve()
        await vigil.run_until_idle()
        (waiting,) = vigil.waits()
        assert (waiting.quorum, waiting.approved_by, waiting.barred) == (2, ("ann",), "zoe")
        await vigil.approve()
        await vigil.run_until_idle()
        assert vigil.episode().classification == {
            "is_approved": True, "by": "ann, bob", "plan": {"restart": "db1"},
        }  # fmt: skip


async def test_who_has_fired_it_may_not_approve_even_as_one_of_the_group():
    async with run(app) as vigil:
        await vigil.add_person("zoe", groups=["oncall"])
        await vigil.add_person("cid", groups=["oncall"])
        await fired(vigil, "restart")
        with pytest.raises(Refused, match="'zoe' has asked for it, and may not decide on it"):
            await vigil.approve(by="zoe")
        with pytest.raises(Refused, match="'dan' is none of those who may decide"):
            await vigil.approve(by="dan")
        await vigil.approve(by="cid")
        await vigil.run_until_idle()
        with pytest.raises(Refused, match="'cid' has approved it already; somebody else"):
            await vigil.approve(by="cid")
        await vigil.approve(by="ann")
        await vigil.run_until_idle()
        assert vigil.episode().classification["by"] == "cid, ann"


async def test_a_changed_plan_is_what_the_others_approve():
    async with run(app) as vigil:
        await fired(vigil, "restart")
        await vigil.approve(by="ann")
        await vigil.run_until_idle()
        await vigil.approve(by="bob", plan={"restart": "db2"})
        await vigil.run_until_idle()
        (waiting,) = vigil.waits()
        assert (waiting.plan, waiting.approved_by) == ({"restart": "db2"}, ("bob",))
        await vigil.approve(by="ann")
        await vigil.run_until_idle()
        result = vigil.episode().classification
        assert (result["by"], result["plan"]) == ("bob, ann", {"restart": "db2"})


async def test_who_has_fired_the_parent_may_not_approve_what_its_child_asks():
    async with run(app) as vigil:
        await fired(vigil, "ask_a_child", by="ann")
        (waiting,) = (each for each in vigil.waits() if each.plan_hash)
        assert waiting.barred == "ann"


async def test_an_output_is_delivered_once_two_others_have_approved_it():
    async with run(app) as vigil:
        await fired(vigil, "mail")
        with pytest.raises(Refused, match="'zoe' has asked for it"):
            await vigil.approve(by="zoe")
        await vigil.approve()
        await vigil.run_until_idle()
        assert vigil.outputs()[0].status == "awaiting_approval"
        await vigil.approve()
        await vigil.run_until_idle()
        assert vigil.outputs()[0].status == "delivered"


async def test_a_step_runs_once_two_others_have_approved_it_and_its_starter_is_known_within():
    async with run(app) as vigil:
        await vigil.start_workflow("flow", {}, by="ann")
        await vigil.run_until_idle()
        with pytest.raises(Refused, match="'ann' has asked for it"):
            await vigil.approve(by="ann")
        await vigil.approve(by="bob", plan=[{"x": 1}])
        await vigil.run_until_idle()
        (waiting,) = vigil.waits()
        assert (waiting.plan, waiting.approved_by) == ([{"x": 1}], ("bob",))
        await vigil.approve(by="cid")
        await vigil.run_until_idle()
        (within,) = vigil.waits()  # What the step asks itself.
        assert within.barred == "ann"


async def test_one_denial_denies():
    async with run(app) as vigil:
        await fired(vigil, "restart")
        await vigil.approve(by="ann")
        await vigil.run_until_idle()
        await vigil.deny(by="bob", reason="not now")
        await vigil.run_until_idle()
        assert vigil.episode().classification["is_approved"] is False
