"""Plans of several calls, on nodes that die at every moment."""

from __future__ import annotations

from collections import Counter

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

import vigil
from vigil.agents import plan_of, run_plan, toolset
from vigil.testing import crash_everywhere, run


def app_of(asked: Counter, *, proposes: bool):
    """Return an app whose agent wants to restart three services, by a plan or by calls at once."""
    wanted = [{"service": name} for name in ("web", "db", "cache")]

    @vigil.tool
    async def who_uses(service: str) -> str:
        """Tell who uses a service."""
        return f"users of {service}"

    @vigil.tool(risk="change", idempotent=True)
    async def restart(service: str) -> str:
        """Restart a service."""
        return f"{service} is up"

    def model(messages, info):
        asked["model"] += 1
        if proposes:
            calls = [{"tool": "restart", "args": args} for args in wanted]
            plan = {"summary": "restart all", "calls": calls}
            return ModelResponse([ToolCallPart("final_result", plan)])
        if len(messages) == 1:
            return ModelResponse([ToolCallPart("restart", args) for args in wanted])
        return ModelResponse([TextPart("; ".join(str(p.content) for p in messages[-1].parts))])

    plans = plan_of(restart, previews={restart: who_uses})
    offered = toolset(restart, ask_from="change", ask="together")
    proposing = Agent(FunctionModel(model), name="triage", output_type=plans)
    calling = Agent(FunctionModel(model), name="triage", toolsets=[offered])
    monitor = vigil.Actor("monitor", tools=[restart, who_uses])

    @monitor.expectation(on=vigil.event("alarm"), budget=vigil.Budget(turns=50, tokens=0))
    async def healthy(ctx, trigger):
        if not proposes:
            return vigil.ConvergeResult(summary=(await ctx.agent(calling, "heal")).output)
        result = await run_plan(ctx, (await ctx.agent(proposing, "heal")).output)
        return vigil.ConvergeResult(summary="; ".join(each.result for each in result.calls))

    return vigil.App(actors=[monitor])


async def decided(vigil):
    """Have people leave one call out and change another one."""
    await vigil.publish("alarm")
    await vigil.run_until_idle()
    (wait,) = vigil.waits()
    assert [*wait.plan] == ["1", "2", "3"]
    changed = {**wait.plan["3"], "args": {"service": "queue"}}
    await vigil.approve(
        by="ann", reason="not the database", plan={"1": wait.plan["1"], "3": changed}
    )
    await vigil.run_until_idle()
    assert len({each.idempotency_key for each in vigil.calls("restart.call")}) == 2


async def test_a_proposed_plan_is_carried_out_once_whenever_a_node_dies():
    asked = Counter()

    async def story(vigil):
        await decided(vigil)
        assert vigil.episode().summary == "web is up; queue is up"

    moments = await crash_everywhere(lambda: run(app_of(asked, proposes=True), allow=("*",)), story)
    assert moments > 10


async def test_calls_that_were_decided_on_together_are_made_once_whenever_a_node_dies():
    asked = Counter()

    async def story(vigil):
        await decided(vigil)
        said = "web is up; left out by ann: not the database; queue is up"
        assert vigil.episode().summary == said

    moments = await crash_everywhere(
        lambda: run(app_of(asked, proposes=False), allow=("*",)), story
    )
    assert moments > 8


async def test_a_dry_run_makes_no_call_of_a_plan_that_changes_something():
    asked = Counter()
    async with run(app_of(asked, proposes=True), allow=("*",)) as vigil:
        await vigil.fire("monitor", "healthy", dry_run=True)
        await vigil.run_until_idle()
        assert vigil.calls("restart.call") == []
        assert len(vigil.calls("who_uses.call")) == 3
