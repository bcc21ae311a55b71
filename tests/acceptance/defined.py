"""An app without actors, and an actor as data that it can run: it looks at orders while it may."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import msgspec

from engine.definitions import agent_of, canonical
from vigil import App, JsonObject

ACTOR: Final = "order_clerk"
EVENT: Final = "order.placed"

ROOM: Final = 20
"""Episodes of the actor that a node runs at a time."""

LOOK_S: Final = 0.05
"""Between two looks whether it may go on, in seconds."""

LOOKS_MAX: Final = 2_000
"""Longer than any test waits."""


async def orders(payload: JsonObject, options: JsonObject) -> JsonObject:
    """Answer once somebody has made the file that the order names, or nobody has for long."""
    until = Path(str(payload["until"]))
    for _ in range(LOOKS_MAX):
        if until.exists():  # noqa: ASYNC240 - a look takes no time
            break
        await asyncio.sleep(LOOK_S)
    return {"asked_as": options["as"], "is_known": True}


def definition(word: str) -> msgspec.Raw:
    """Return the actor whose episodes ask as `word`, and find that orders are of that class."""
    return canonical(
        agent_of(
            {
                "id": ACTOR,
                "max_concurrent_episodes": ROOM,
                "expectations": {
                    "order_is_known": {
                        "on": {"event": EVENT},
                        "subject_key": "order",
                        "strategy": {
                            "template": "observe_classify_converge",
                            "config": {
                                "gatherer": "orders",
                                "options": {"as": word},
                                "rules": [{"when": {"is_known": True}, "class": word}],
                                "finding_config": {
                                    "summary_template": "asked as {observed.asked_as}, is {class}"
                                },
                            },
                        },
                    }
                },
            }
        )
    )


def text_of_step(word: str) -> str:
    """Return what an episode says that was opened while the actor was `definition(word)`."""
    return f"asked as {word}, is {word}"


app = App(gatherers={"orders": orders})
