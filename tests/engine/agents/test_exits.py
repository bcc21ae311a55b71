"""A tool that exits must not end the node."""

from __future__ import annotations

import asyncio

import pytest

from engine.agents.toolset import toolset
from tests.engine.agents.stage import MANY, Script, agent_of, classified
from tests.engine.agents.test_failures import asking
from tests.engine.functions.stage import play


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("many", [1, 2])
async def test_a_tool_that_exits_fails_its_agent_alone(own, many):
    async def exits_plain() -> str:
        raise SystemExit(3)

    async def exits(ctx) -> str:
        raise SystemExit(3)

    if own:
        agent = agent_of(Script([("exits_plain", {})] * many, "no"), exits_plain)
    else:
        agent = agent_of(Script([("exits", {})] * many, "no"), toolsets=[toolset(exits)])
    life = await asyncio.wait_for(play(asking(agent), budget=MANY), 20)
    said = classified(life)["said"]
    assert said.startswith("failed: crash")
    assert own or "pydantic_ai" not in said, "it shows the tool's own lines"
