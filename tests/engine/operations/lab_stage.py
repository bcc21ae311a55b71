"""Builders for the lab: an agent that looks into disks, and what its episodes have recorded."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from engine.agents.toolset import toolset
from engine.app.findings import raise_finding
from engine.app.function_tool import tool
from engine.app.outputs import propose_output
from engine.app.strategy import ConvergeResult
from engine.episodes.fire import fire
from engine.operations.lab import lab
from engine.operations.replay import load, record
from streams.memory import memory_ports
from tests.engine.agents.stage import MANY
from tests.engine.functions.stage import app_of
from tests.engine.output_stage import Pager
from tests.engine.stage import CLOCK, lived, running

CAREFUL = "be careful"
"""Instructions with which the model takes batch hosts for fine."""

CURIOUS = "look at everything"
"""Instructions with which the model also looks at what nobody has recorded."""


class DiskModel:
    """Looks at the disk of a host, and says what it has seen; some prompts lead it astray."""

    def __init__(self):
        self.asked = 0

    def __call__(self, messages, info):
        self.asked += 1
        host = messages[0].parts[0].content
        prompt = messages[-1].instructions or ""
        seen = [p for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]
        if not seen:
            return calls(("disk", {"host": host}))
        if prompt == CURIOUS and host.startswith("batch") and len(seen) == 1:
            return calls(("disk", {"host": "everything"}))
        if prompt == CAREFUL and host.startswith("batch"):
            return ModelResponse([TextPart("fine")])
        return ModelResponse([TextPart(str(seen[0].content))])


def calls(*wanted):
    return ModelResponse([ToolCallPart(n, a, f"call-{i}") for i, (n, a) in enumerate(wanted)])


class Desk:
    """An app that looks into disks, and what it has done outside."""

    def __init__(self, instructions="be brief", **options):
        self.model, self.done = DiskModel(), []

        @tool(side_effect=True, idempotent=True)
        async def disk(host: str) -> str:
            """Look at the disk of a host."""
            self.done.append(host)
            return "full"

        agent = Agent(
            FunctionModel(self.model, model_name="disks"),
            name="triage",
            instructions=instructions,
            toolsets=[toolset(disk)],
        )

        async def check(ctx, trigger):
            host = trigger.payload["host"]
            said = (await ctx.agent(agent, host)).output
            await ctx.call(disk, host=host)
            if said != "full":
                return ConvergeResult(classification={"disk": said})
            return ConvergeResult(
                classification={"disk": said},
                findings=[raise_finding(f"disk:{host}", class_="disk_full", severity="high")],
                outputs=[propose_output("page", {"host": host}, dedupe_key=f"page:{host}")],
            )

        self.pager = Pager()
        self.app = app_of(
            check, tools=[disk], outputs={"page": self.pager}, **{"budget": MANY, **options}
        )


async def recorded(app, *payloads):
    """Run an episode with each of `payloads` to its end; return their histories, in order."""
    ports = memory_ports(clock=CLOCK)
    async with running(app, ports):
        ids = [
            await fire(ports, "worker", "thing", payload=payload, by="ada", key=f"k{number}")
            for number, payload in enumerate(payloads)
        ]
        for id_ in ids:
            await lived(ports, id_)
    return [await record(ports, id_) for id_ in ids]


async def verdict(history, app, **how):
    return await lab(load(history), app, **how)
