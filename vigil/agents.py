"""Agents of pydantic-ai in episodes: `await ctx.agent(agent, "what broke?")`.

    agent = Agent("openai:gpt-5", name="triage", toolsets=[toolset(largest, restart)])

`pip install "vigil-engine[agents]"`, and what your provider needs: `pydantic-ai-slim[openai]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vigil.public import public

if TYPE_CHECKING:
    from engine.agents.cuts import Cut, head, tail
    from engine.agents.data import ABOUT_DATA, data
    from engine.agents.plans.carry_out import MadeCall, PlanResult, run_plan
    from engine.agents.plans.plan import CallPlan, PlannedCall, plan_of
    from engine.agents.result import AgentResult, AgentUsage
    from engine.agents.toolset import toolset
    from engine.agents.unit import MODEL_RETRIES

__all__ = [
    "ABOUT_DATA",
    "MODEL_RETRIES",
    "AgentResult",
    "AgentUsage",
    "CallPlan",
    "Cut",
    "MadeCall",
    "PlanResult",
    "PlannedCall",
    "data",
    "head",
    "plan_of",
    "run_plan",
    "tail",
    "toolset",
]

_HOMES: Final = {
    "engine.agents.cuts": "Cut head tail",
    "engine.agents.data": "ABOUT_DATA data",
    "engine.agents.plans.carry_out": "MadeCall PlanResult run_plan",
    "engine.agents.plans.plan": "CallPlan PlannedCall plan_of",
    "engine.agents.result": "AgentResult AgentUsage",
    "engine.agents.toolset": "toolset",
    "engine.agents.unit": "MODEL_RETRIES",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = public(__name__, _HOMES)
