"""What the log says of retention: how long things are kept, what is held, and what is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from engine.app.checks import kept_of
from engine.orders.order import CutOrder, HoldOrder, Order, RetentionOrder
from engine.orders.store import READS_IN_FLIGHT_MAX, give_order, read_order
from engine.retention.rules import KeptTimes, RetentionHolds
from engine.runtime.gather import gather_bounded
from streams.clock import Clock
from streams.keys import CUTS, HOLDS, RETENTION, name_in, retention_key
from streams.layout import Kind
from streams.model.events import RetentionDeclared, RowsCut
from streams.model.retention import Retention, RetentionCut
from streams.ports.all import Ports

BY_SETTINGS: Final = "the settings of node {}"
BY_CODE: Final = "the actors of node {}"


@dataclass(frozen=True)
class RetentionState:
    """What the log says of retention."""

    times: KeptTimes = field(default_factory=KeptTimes)
    holds: RetentionHolds = field(default_factory=RetentionHolds)
    hold_orders: Sequence[HoldOrder] = ()
    """The holds that stand, with who wanted them."""
    cuts: tuple[RetentionCut, ...] = ()


async def read_state(ports: Ports, *, clock: Clock) -> RetentionState:
    """Return how long things are kept, what is held, and what is gone from the tables."""
    keys = [each for each in await _keys(ports) if each.partition(".")[0] in (RETENTION, HOLDS)]
    read = partial(_read, ports, clock)
    found = dict(
        zip(keys, await gather_bounded(read, keys, in_flight_max=READS_IN_FLIGHT_MAX), strict=True)
    )
    cuts = await read_order(ports, CUTS, clock=clock)
    assert isinstance(cuts, CutOrder)
    orders = [each for each in found.values() if isinstance(each, HoldOrder) and not each.is_over]
    return RetentionState(
        times=_times(found),
        holds=RetentionHolds(frozenset((each.kind, each.held) for each in orders if each.kind)),
        hold_orders=orders,
        cuts=cuts.cuts,
    )


async def is_wanted(ports: Ports, *, clock: Clock) -> bool:
    """Return whether anything is to go or is held, in one request if nobody has ever said so."""
    keys = [each for each in await _keys(ports) if each.partition(".")[0] in (RETENTION, HOLDS)]
    read = partial(_read, ports, clock)
    orders = await gather_bounded(read, keys, in_flight_max=READS_IN_FLIGHT_MAX)
    return any(_asks(each) for each in orders)


def _asks(order: Order) -> bool:
    if isinstance(order, HoldOrder):
        return not order.is_over  # guard: holds-want-a-run
    return isinstance(order, RetentionOrder) and bool(order.kept_s)


async def declare(
    ports: Ports,
    *,
    node: str,
    stack: Retention | None,
    actors: Mapping[str, Retention],
    clock: Clock,
) -> None:
    """Note how long a node's settings and its actors want things to be kept, where that is new.

    `stack`: None says nothing, as an actor does that is not among `actors`.
    """
    wanted = {actor_id: kept_of(each) for actor_id, each in actors.items()}
    events = [
        RetentionDeclared(actor_id=actor_id, kept_s=kept, by=BY_CODE.format(node))
        for actor_id, kept in sorted(wanted.items())
    ]
    if stack is not None:
        by = BY_SETTINGS.format(node)
        events.append(RetentionDeclared(kept_s=kept_of(stack), by=by))
    for event in events:
        await give_order(ports, event, clock=clock)


async def note_cuts(ports: Ports, cuts: tuple[RetentionCut, ...], *, by: str, clock: Clock) -> bool:
    """Note what is gone from the tables from now on; return whether that is news."""
    return bool(cuts) and await give_order(ports, RowsCut(cuts=cuts, by=by), clock=clock)


async def _keys(ports: Ports) -> Sequence[str]:
    subjects = await ports.log.subjects(Kind.ORDER)
    return [ports.stack.aggregate_of(subject)[1] for subject in subjects]


async def _read(ports: Ports, clock: Clock, key: str) -> Order:
    return await read_order(ports, key, clock=clock)


def _times(orders: Mapping[str, Order]) -> KeptTimes:
    kept = {key: order.kept_s for key, order in orders.items() if isinstance(order, RetentionOrder)}
    stack = kept.pop(retention_key(), {})
    return KeptTimes(stack=stack, actors={name_in(key): each for key, each in kept.items()})
