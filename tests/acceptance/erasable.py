"""An app whose episodes have a client's name in all that they say and do."""

from __future__ import annotations

import os
from typing import Final

from vigil import (
    Actor,
    App,
    CallFailed,
    ConvergeResult,
    Retries,
    Route,
    event,
    propose_output,
    raise_finding,
    tool,
)
from vigil.adapters import Webhook

TIMES: Final = 60_000
"""How often a large result has the name: it is over what the journal keeps."""

RECEIVER: Final = os.environ.get("ERASABLE_URL", "http://127.0.0.1:1/hook")


@tool
async def read_client(client_id: str, name: str) -> dict[str, str]:
    """Return what is known of a client."""
    return {"client_id": client_id, "name": name}


@tool
async def read_letters(name: str) -> list[str]:
    """Return more than the journal keeps."""
    return [name] * TIMES


@tool
async def refuse(name: str) -> None:
    """Fail with the name."""
    raise ValueError(f"no entry with {name}")


async def contact(ctx, trigger):
    """Ask, raise, and propose with the client's name."""
    client, name = trigger.payload["client_id"], trigger.payload["name"]
    known = await ctx.call(read_client, client_id=client, name=name)
    letters = await ctx.call(read_letters, name=name)
    try:
        await ctx.call(refuse, name=name)
    except CallFailed:
        ctx.log("not there")
    if trigger.payload.get("asks"):
        await ctx.approval({"call": name}, summary=f"call {name}?")
    await ctx.checkpoint({"name": name})
    finding = raise_finding(
        f"late:{client}",
        class_="late",
        summary=f"{name} is late",
        subject=("client_id", client),
        evidence={"name": known["name"], "letters": len(letters)},
    )
    output = propose_output("pager", {"to": name}, summary=f"page {name}")
    return ConvergeResult(
        summary=f"{name} was called",
        classification={"name": name},
        findings=[finding],
        outputs=[output],
    )


desk = Actor("desk", tools=[read_client, read_letters, refuse])
desk.expect("contact", contact, on=event("client.called"), subject_key="client_id")
pager = Route(Webhook(RECEIVER), retries=Retries(attempts_max=1))
app = App(actors=[desk], outputs={"pager": pager})
