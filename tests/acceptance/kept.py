"""An app whose episodes ask a person before they do anything."""

from __future__ import annotations

from typing import Final

from vigil import Actor, App, Context, ConvergeResult, Trigger, manual, raise_finding

APPROVER: Final = "ann"

keeper = Actor("keeper", max_concurrent_episodes=8)


@keeper.expectation(on=manual())
async def db_is_up(ctx: Context, trigger: Trigger) -> ConvergeResult:
    """Ask for a restart, and find that it was done."""
    host = str(trigger.payload["host"])
    await ctx.approval({"restart": host}, approvers=(APPROVER,), summary=f"Restart {host}")
    return ConvergeResult(
        summary=f"restarted {host}",
        confidence=1.0,
        findings=[
            raise_finding(
                f"db:{host}", class_="down", severity="high", subject=("host", host), summary="down"
            )
        ],
    )


app = App(actors=[keeper])
