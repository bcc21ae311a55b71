"""Who decides on a request: the groups of whoever does, as the people of the stack are now."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from engine.people.store import PeopleStore
from engine.waits.approval import names_group
from streams.clock import Clock
from streams.model.commands import Decide, DecideStep
from streams.model.waits import Approval
from streams.ports.all import Ports

D = TypeVar("D", Decide, DecideStep)


async def with_groups(ports: Ports, clock: Clock, decision: D, approval: Approval | None) -> D:
    """Return a decision with the groups of who has made it, whatever its sender says of them."""
    groups: tuple[str, ...] = ()
    if approval is not None and names_group(approval):
        groups = await PeopleStore(ports, clock).groups_of(decision.by)
    return replace(decision, groups=groups)  # guard: groups-of-the-people
