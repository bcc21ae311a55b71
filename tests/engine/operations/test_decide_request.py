"""One request decides, whoever asks: an episode, an output, or a step of a workflow."""

from __future__ import annotations

import pytest

from engine.operations.decide_request import ApprovalTarget, decide_request
from streams.subjects import Stack
from vigil import (
    Actor,
    App,
    BadRequest,
    ConvergeResult,
    Refused,
    Workflow,
    event,
    propose_output,
    workflow,
)
from vigil.testing import run

NOBODY = "00000000-0000-0000-0000-000000000001"
ALL = pytest.mark.parametrize("kind", ["episode", "output", "step"])
TERMS = {"approvers": ["ann"], "expires_s": 3_600}


async def delivered(output):
    return "ref"


async def plans(ctx, trigger):
    answer = await ctx.approval({"n": 1}, editable=True, **TERMS)
    return ConvergeResult(summary=answer.status)


async def proposes(ctx, trigger):
    page = propose_output("pager", {"n": 1}, dedupe_key="k", requires_approval=True, **TERMS)
    return ConvergeResult(outputs=[page])


async def does(ctx, trigger):
    return ConvergeResult()


def app() -> App:
    worker, flow = Actor("worker"), Workflow("flow")
    worker.expect("plan", plans, on=event("episode.wanted"))
    worker.expect("page", proposes, on=event("output.wanted"))
    worker.expect("do", does, on=workflow())
    step = {"requires_approval": True, "approvers": ["ann"], "approval_expires_s": 3_600}
    flow.step("do", "worker", "do", input=lambda trigger, past: {"n": 1}, **step)
    return App(actors=[worker], workflows=[flow], outputs={"pager": delivered})


async def asking(vigil, kind):
    """Have something ask for approval, and return what it is and the hash of its plan."""
    if kind == "step":
        await vigil.start_workflow("flow")
    else:
        await vigil.publish(f"{kind}.wanted")
    await vigil.run_until_idle()
    (wait,) = vigil.waits()
    return ApprovalTarget(wait.what, wait.id, wait.step), wait.plan_hash


async def decided(vigil, target, plan_hash, verdict="approve", *, by="ann", **said):
    how = {"plan_hash": plan_hash, "by": by, "clock": vigil._clock, **said}
    return await decide_request(vigil.ports, target, verdict, **how)


@ALL
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"plan_hash": "0" * 64}, "another plan; the one that waits has hash"),
        ({"by": "bob"}, "'bob' is none of those who may decide: ann"),
    ],
)
async def test_a_decision_that_cannot_stand_is_refused_at_once(kind, wrong, why):
    async with run(app()) as vigil:
        target, plan_hash = await asking(vigil, kind)
        with pytest.raises(Refused, match=why):
            await decided(vigil, target, **{"plan_hash": plan_hash, **wrong})
        assert len(vigil.waits()) == 1


@ALL
@pytest.mark.parametrize(
    ("verdict", "said"), [("approve", "approved"), ("deny", "(denied|rejected)")]
)
async def test_who_decides_again_learns_who_has_decided(kind, verdict, said):
    async with run(app()) as vigil:
        target, plan_hash = await asking(vigil, kind)
        await decided(vigil, target, plan_hash, verdict, reason="seen")
        await vigil.run_until_idle()
        words = rf"it does not wait any more: it was {said} by ann at 2030-.* \(seen\)"
        with pytest.raises(Refused, match=words):
            await decided(vigil, target, plan_hash)


@ALL
async def test_what_is_not_there_cannot_be_decided_on(kind):
    async with run(app()) as vigil:
        with pytest.raises(Refused, match=r"there is no such (episode|output|instance)"):
            await decided(vigil, ApprovalTarget(kind, NOBODY, "do"), "0" * 64)


@ALL
@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("verdict", {"verdict": "maybe"}),
        ("plan_hash", {"plan_hash": "12ab"}),
        ("by", {"by": ""}),
        ("reason", {"reason": "x" * 4_001}),
        ("plan: only an approval may change it", {"verdict": "deny", "plan": [{}]}),
        ("plan: ", {"plan": [object()]}),
    ],
)
async def test_what_is_impossible_names_its_field(kind, field, wrong):
    async with run(app()) as vigil:
        target, plan_hash = await asking(vigil, kind)
        with pytest.raises(BadRequest, match=f"^{field}"):
            await decided(vigil, target, **{"plan_hash": plan_hash, **wrong})


@ALL
async def test_what_is_approved_instead_is_no_larger_than_what_could_be_asked(kind):
    limit = 524_288 if kind == "step" else 262_144
    async with run(app()) as vigil:
        target, plan_hash = await asking(vigil, kind)
        with pytest.raises(BadRequest, match=f"^plan: .* the limit is {limit:,}"):
            await decided(vigil, target, plan_hash, plan=["x" * limit])


@pytest.mark.parametrize(
    ("field", "what"), [("kind", ("lane", NOBODY)), ("id", ("episode", "x")), ("id", ("step", "x"))]
)
def test_nothing_else_asks(field, what):
    with pytest.raises(BadRequest, match=f"^{field}: "):
        ApprovalTarget(*what).check()
    with pytest.raises(BadRequest, match=f"^{field}: "):
        ApprovalTarget(*what).subject(Stack("s"))
