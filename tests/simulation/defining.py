"""An actor that is data, and people who define it anew, disable it and apply it again.

What is drawn anew for each body is in all that comes of it: how many steps an episode takes, with
which arguments, and what it converges on. So whoever goes on with an episode under another revision
than its own ends it otherwise than its own body says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from engine.definitions.store import apply_definition, disable_definition
from streams.json import raw
from streams.model.events import DefinitionKind
from streams.ports.all import Ports
from tests.simulation.people import surely
from tests.simulation.strategies import Plan, Sum
from vigil import Context, ConvergeResult, tool_call

ACTOR: Final = "defined"
EXPECTATION: Final = "made"
EVENT: Final = "sim.made"
TEMPLATE: Final = "stamped"

STEPS_MAX: Final = 14
"""Long enough that a node often dies, and the definition changes, while an episode runs."""
MARKS: Final = 1_000_000
CHANGES: Final = (5, 9)
"""How often people change it, at least and at most, before it is applied for good."""

BEGIN_S_MAX: Final = 4.0
REST_S: Final = (0.5, 6.0)
"""Between two changes."""

WAYS: Final[Mapping[str, int]] = {"anew": 5, "disable": 3, "same": 1, "two at once": 2, "both": 1}
"""How people change a definition, and how likely each is."""


class Stamped(Plan):
    """Looks as often as its configuration says, and bears its mark."""

    def __init__(self, *, mark: int, steps: int) -> None:
        super().__init__(*(tool_call("look", "up", {"mark": mark, "n": n}) for n in range(steps)))
        self._mark = mark

    def converge(self, state: Sum, ctx: Context) -> ConvergeResult:
        """Say what was added up, and by whom."""
        result = super().converge(state, ctx)
        return replace(result, classification={"total": state.total, "mark": self._mark})


def stamped(config: Mapping[str, Any]) -> Stamped:
    """Return the strategy of a configuration: the template that definitions name."""
    return Stamped(mark=config["mark"], steps=config["steps"])


def body(rng: Random) -> dict[str, Any]:
    """Return a definition that differs from all others."""
    config = {"mark": rng.randrange(MARKS), "steps": rng.randint(1, STEPS_MAX)}
    thing = {
        "on": {"event": EVENT},
        "strategy": {"template": TEMPLATE, "config": config},
        "budget": {"turns": 40, "tokens": 0, "wall_s": 0},
        "attempts_max": 100,
    }
    most = rng.randint(1, 3)
    return {"id": ACTOR, "max_concurrent_episodes": most, "expectations": {EXPECTATION: thing}}


def config_of(said: msgspec.Raw) -> dict[str, Any]:
    """Return the configuration in a definition."""
    found: dict[str, Any] = msgspec.json.decode(said)
    config: dict[str, Any] = found["expectations"][EXPECTATION]["strategy"]["config"]
    return config


async def define(ports: Ports, rng: Random) -> None:
    """Apply it, change it again and again, and leave it applied."""
    await asyncio.sleep(rng.uniform(0.0, BEGIN_S_MAX))
    said = body(rng)
    await _apply(ports, said)
    for _ in range(rng.randint(*CHANGES)):
        await asyncio.sleep(rng.uniform(*REST_S))
        said = await _change(ports, said, rng)
    await _apply(ports, said)


async def _change(ports: Ports, said: dict[str, Any], rng: Random) -> dict[str, Any]:
    """Change it in one of many ways, and return the body that was wanted last."""
    new, (way,) = body(rng), rng.choices([*WAYS], [*WAYS.values()])
    match way:
        case "disable":
            await _disable(ports)
            return said
        case "same":
            await _apply(ports, said)
            return said
        case "two at once":
            await asyncio.gather(_apply(ports, new), _apply(ports, body(rng)))
        case "both":
            await asyncio.gather(_apply(ports, new), _disable(ports))
        case _:
            await _apply(ports, new)
    return new


async def _apply(ports: Ports, said: dict[str, Any]) -> None:
    kind = DefinitionKind.AGENT
    await surely(partial(apply_definition, ports, kind, ACTOR, raw(said), by="ada"))


async def _disable(ports: Ports) -> None:
    await surely(partial(disable_definition, ports, DefinitionKind.AGENT, ACTOR, by="bob"))
