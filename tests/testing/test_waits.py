"""What people and other systems do to an app in a test."""

from __future__ import annotations

import pytest

from tests.engine.stage import HAPPENED, Scripted
from tests.testing.apps import ASKS, WAITS, app_with
from vigil import (
    Actor,
    App,
    ConvergeResult,
    Refused,
    Workflow,
    approval,
    propose_output,
    workflow,
)
from vigil.testing import run


async def test_who_may_approves():
    async with run(app_with(Scripted(ASKS))) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        (waiting,) = vigil.waits()
        assert (waiting.plan, waiting.approvers) == ({"delete": "/var/log"}, ("ann",))

        await vigil.approve()
        await vigil.run_until_idle()
        assert vigil.episode().classification["seen"][0]["by"] == "ann"


async def test_who_approves_may_change_the_plan():
    asks = approval({"delete": "/var/log"}, editable=True)
    async with run(app_with(Scripted(asks))) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        await vigil.approve(plan={"delete": "/srv/old"})
        await vigil.run_until_idle()
        assert vigil.episode().classification["seen"][0]["plan"] == {"delete": "/srv/old"}


async def test_who_may_not_is_refused():
    async with run(app_with(Scripted(ASKS))) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        with pytest.raises(Refused, match="'zoe' is none of those who may decide"):
            await vigil.approve(by="zoe")


async def test_what_is_denied_is_not_done():
    async with run(app_with(Scripted(ASKS))) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        await vigil.deny(by="ann", reason="no")
        await vigil.run_until_idle()
        assert vigil.episode().classification["seen"] == ["denied"]


async def test_an_approval_expires_in_its_time():
    async with run(app_with(Scripted(ASKS))) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.advance(minutes=59)
        assert vigil.episode().status == "blocked"
        await vigil.advance(minutes=2)
        assert vigil.episode().classification["seen"] == ["denied"]


async def test_of_several_that_wait_one_is_named():
    async with run(app_with(Scripted(ASKS))) as vigil:
        for _ in range(2):
            await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        with pytest.raises(AssertionError, match="2 times approval that waits, and one is meant"):
            await vigil.approve()

        first = vigil.episodes()[0].id
        await vigil.approve(first)
        await vigil.run_until_idle()
        assert [each.id for each in vigil.episodes(status="done")] == [first]


@pytest.mark.parametrize("decide", ["approve", "deny"])
async def test_equal_requests_are_one_for_who_decides(decide):
    async with run(app_with(Scripted(ASKS))) as vigil:
        for _ in range(2):
            await vigil.publish(HAPPENED, {"host": "web-1"})
        await vigil.run_until_idle()
        first, second = vigil.waits()
        assert first.request == second.request != ""

        await getattr(vigil, decide)(by="ann")
        await vigil.run_until_idle()
        assert [each.status for each in vigil.episodes()] == ["done", "done"]


async def test_of_requests_that_differ_one_is_named_however_many_are_equal():
    async with run(app_with(Scripted(ASKS))) as vigil:
        for host in ("web-1", "web-1", "web-2"):
            await vigil.publish(HAPPENED, {"host": host})
        await vigil.run_until_idle()
        with pytest.raises(AssertionError, match="2 times approval that waits, and one is meant"):
            await vigil.approve(by="ann")
        await vigil.approve(vigil.episodes(subject="web-1")[1].id)
        await vigil.run_until_idle()
        assert [each.subject for each in vigil.episodes(status="blocked")] == ["web-2"]


async def test_a_request_that_is_made_alone_is_one_of_its_own():
    asks = approval({"delete": "/var/log"}, shared=False)
    async with run(app_with(Scripted(asks))) as vigil:
        for _ in range(2):
            await vigil.publish(HAPPENED, {"host": "web-1"})
        await vigil.run_until_idle()
        assert [each.request for each in vigil.waits()] == ["", ""]
        with pytest.raises(AssertionError, match="2 times approval that waits"):
            await vigil.approve()


async def test_a_signal_comes_to_who_waits_for_it():
    async with run(app_with(Scripted(WAITS))) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        assert [each.ref for each in vigil.waits()] == ["ticket:1"]

        await vigil.signal("ticket:1", {"paid": True})
        await vigil.run_until_idle()
        assert vigil.episode().classification["seen"] == [{"paid": True}]


class Asking(Scripted):
    def converge(self, state, ctx):
        asked = propose_output("pager", {"n": 1}, requires_approval=True, approvers=["ann"])
        return ConvergeResult(outputs=[asked])


@pytest.mark.parametrize(("decide", "status"), [("approve", "delivered"), ("deny", "rejected")])
async def test_people_decide_on_an_output(decide, status):
    async with run(app_with(Asking())) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        assert vigil.output().status == "awaiting_approval"
        await getattr(vigil, decide)(vigil.output().key)
        await vigil.run_until_idle()
        assert vigil.output().status == status


async def test_an_episode_can_be_canceled():
    async with run(app_with(Scripted(WAITS))) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        await vigil.cancel(vigil.episode().id)
        await vigil.run_until_idle()
        assert vigil.episode().status == "canceled"


async def test_who_approves_a_step_of_a_workflow_may_change_its_inputs():
    async def paid(ctx, trigger):
        return ConvergeResult(result=trigger.payload)

    clerk, review = Actor("clerk"), Workflow("review")
    clerk.expect("pay", paid, on=workflow())
    review.step("pay", "clerk", "pay", requires_approval=True, input=lambda t, p: {"sum": 7})
    async with run(App(actors=[clerk], workflows=[review])) as vigil:
        id_ = await vigil.start_workflow("review")
        await vigil.run_until_idle()
        await vigil.approve(plan=[{"sum": 5}])
        await vigil.run_until_idle()
        assert vigil.workflow(id_).results == {"pay": {"sum": 5}}
