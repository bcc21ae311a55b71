"""The test kit knows agents: their calls, their people, and a node that dies at every moment."""

from __future__ import annotations

from collections import Counter

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

import vigil
from tests.moments import STRIDE
from vigil.agents import toolset
from vigil.testing import crash_everywhere, run


def told(messages):
    parts = [part for each in messages for part in each.parts]
    return [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]


def app_of(asked: Counter):
    """Return an app whose agent makes five requests and six calls, three of them at once."""

    def expert_model(messages, info):
        asked["expert"] += 1
        found = told(messages)
        if found:
            return ModelResponse([TextPart(found[0])])
        return ModelResponse([ToolCallPart("lookup", {"q": "why"})])

    def model(messages, info):
        asked["triage"] += 1
        match len(told(messages)):
            case 0:
                calls = [("measure", {"what": "cpu"}), ("expert", {"q": "x"}), ("restart", {})]
            case 3:
                calls = [("measure", {"what": "disk"}), ("measure", {"what": "net"})]
            case _:
                return ModelResponse([TextPart("; ".join(told(messages)))])
        return ModelResponse([ToolCallPart(name, args) for name, args in calls])

    @vigil.tool
    async def lookup(q: str) -> str:
        """Look something up."""
        return f"found {q}"

    @vigil.tool
    async def measure(what: str) -> str:
        """Measure something."""
        return f"{what} is high"

    @vigil.tool(side_effect=True, idempotent=True)
    async def restart() -> str:
        """Restart the service."""
        return "it is up"

    answers = Agent(FunctionModel(expert_model), name="expert", toolsets=[toolset(lookup)])

    async def expert(ctx, q: str) -> str:
        """Ask an expert."""
        return (await ctx.agent(answers, q)).output

    tools = toolset(measure, expert, restart, requires_approval=[restart])
    triage = Agent(FunctionModel(model), name="triage", toolsets=[tools])
    monitor = vigil.Actor("monitor", tools=[lookup, measure, restart])

    @monitor.expectation(on=vigil.event("alarm"), budget=vigil.Budget(turns=50, tokens=0))
    async def healthy(ctx, trigger):
        result = await ctx.agent(triage, "what broke?")
        return vigil.raise_finding(
            "healthy:web", class_="broken", severity="high", summary=result.output
        )

    return vigil.App(actors=[monitor])


EXPECTED = "cpu is high; found why; it is up; disk is high; net is high"


async def story(vigil):
    await vigil.publish("alarm")
    await vigil.run_until_idle()
    await vigil.approve()
    await vigil.run_until_idle()
    assert vigil.finding("healthy:web").summary == EXPECTED
    assert len({each.idempotency_key for each in vigil.calls("restart.call")}) == 1


async def test_a_node_may_die_at_every_moment_of_an_agent():
    asked = Counter()
    moments = await crash_everywhere(lambda: run(app_of(asked), allow=("*",)), story, every=STRIDE)
    assert moments > 20


async def test_nothing_is_asked_twice_though_people_decide_in_between():
    asked = Counter()
    async with run(app_of(asked), allow=("*",)) as vigil:
        await story(vigil)
    assert asked == {"triage": 3, "expert": 2}
