"""What processes reach beyond the log: a ledger of every call that left one of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tests.simulation.faults import Fault
from tests.simulation.wire import Wire
from vigil import CallContext

TOOL_S_MAX: Final = 1.0
"""How long a call takes at most, unless its tool says otherwise."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a tool or a model that left a process."""

    episode_id: str
    step_no: int
    tool: str
    key: str
    node: str
    life: int
    head: int
    """The journal's newest sequence when it happened."""


class Delivery(msgspec.Struct, kw_only=True):
    """One call of an adapter that left a process."""

    output_key: str
    adapter: str
    idempotency_key: str
    attempt: int
    episode_id: str
    node: str
    life: int
    head: int
    """As in `Call`."""
    began_s: float
    ended_s: float = float("inf")
    """When the adapter returned; never, if its process died."""
    is_accepted: bool = False
    """Whether the receiver has it, whatever the adapter said."""


@dataclass
class Ledger:
    """Every call that left any process, in order."""

    calls: list[Call] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)


@dataclass
class Outside:
    """What one process can reach beyond the log."""

    wire: Wire
    ledger: Ledger

    async def call(self, tool: str, ctx: CallContext, *, takes_s: float = TOOL_S_MAX) -> int:
        """Let something happen outside, and return a number that nobody could have guessed."""
        life, servers = self.wire.life, self.wire.servers
        await life.passage()
        await self.wire.strike(tool, Fault.FROZEN, Fault.DEAD)
        self.ledger.calls.append(
            Call(
                episode_id=ctx.episode_id,
                step_no=ctx.step_no,
                tool=tool,
                key=ctx.idempotency_key,
                node=life.name,
                life=life.number,
                head=servers.newest(),
            )
        )
        servers.note(life.name, f"call {tool}", f"{ctx.episode_id} step {ctx.step_no}")
        await self.wire.strike(tool, Fault.DEAD_AFTER)
        await asyncio.sleep(servers.weather.between(0, takes_s))
        await self.wire.strike(tool, Fault.FROZEN_AFTER)
        return servers.weather.rng.randrange(1, 1_000_000)
