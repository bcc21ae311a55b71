"""An app whose schedules ask people, each second, whether a host may be restarted."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from vigil import Actor, App, CallContext, ConvergeResult, every, tool

RESTARTS: Final = "CHAOS_RESTARTS"
"""The variable with the path of the file that has a line for each restart."""

RESTART_S: Final = 0.5
"""How long a restart takes, in which a node may die."""


@tool(capability="ops", side_effect=True, idempotent=True)
def restart(host: str, *, ctx: CallContext) -> None:
    """Restart a host: a line with its key before, so that a call that is cut off counts, too."""
    with Path(os.environ[RESTARTS]).open("a") as lines:
        lines.write(f"{host} {ctx.idempotency_key}\n")
    time.sleep(RESTART_S)


async def host_answers(ctx, trigger):
    """Ask, and restart."""
    if await ctx.approval({"restart": trigger.entity_id}):
        await ctx.call(restart, host=trigger.entity_id)
        return ConvergeResult(summary="restarted")
    return ConvergeResult(summary="left")


merged = Actor("merged", tools=[restart])
merged.expect(
    "host_answers",
    host_answers,
    on=every("1s", payload={"host": "merged"}),
    subject_key="host",
)
single = Actor("single", tools=[restart])
single.expect(
    "host_answers",
    host_answers,
    on=every("1s", payload={"host": "single"}),
    subject_key="host",
    overlap="skip",
)

app = App(actors=[merged, single])
