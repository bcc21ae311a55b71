"""Gives orders: notes them on the log, and makes what was ordered so.

    noted on the log ──▶ copied (modes, pauses) or carried out (resets), by whoever gave it
                    └──▶ and again by the reactor, which makes sure of it

A copy is made of what the log has after the key was read, and put as it was read: whoever is late
never replaces a newer one. A key that was ordered is never deleted, so none comes back either. A
circuit breaker names the newest reset that was carried out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final
from uuid import uuid4

import msgspec

from engine.episodes.breakers import breaker
from engine.episodes.breakers.breaker import CLOSED, BreakerState
from engine.orders.order import BreakerOrder, Order, decide, fold, key_of
from engine.runtime.gather import gather_bounded
from engine.runtime.store import Store
from engine.validation import check_cause
from streams.clock import Clock, SystemClock
from streams.json import UNDECODABLE
from streams.key_changes import Change, change_key
from streams.keys import BREAKERS, MODES, PAUSES
from streams.layout import Kind
from streams.model.events import OrderEvent
from streams.ports.all import Ports
from streams.ports.bucket import BucketEntry

READS_IN_FLIGHT_MAX: Final = 32
"""Things whose orders are read at a time."""

COPIED: Final = (MODES, PAUSES)
"""The kinds of keys in the registry that are copies of orders."""

_CLOCK: Final = SystemClock()


class OrderDrift(msgspec.Struct, frozen=True, kw_only=True):
    """A key of the registry that is not as people have ordered."""

    key: str
    says: str
    """What is wrong with it, for people."""


async def give_order(ports: Ports, event: OrderEvent, *, clock: Clock = _CLOCK) -> bool:
    """Note an order and make it so; return False if all was so already, and nothing was noted.

    Raises:
        BadRequest: `by` or `reason` is impossible; the error names the field.
        BadName: what it is about cannot exist.
        Unavailable: the log is away. It may have been given; give it again.
    """
    check_cause(event.by, event.reason)
    key = key_of(event)

    def rule(order: Order, _: datetime) -> Sequence[OrderEvent]:
        return decide(order, event)

    store = _store(ports, key, clock)
    changed = await store.change(ports.stack.order(key), rule, id=f"order.{uuid4().hex}")
    await follow_order(ports, key, clock=clock)  # guard: order-copied-by-its-giver
    return bool(changed.events)


async def follow_order(ports: Ports, key: str, *, clock: Clock = _CLOCK) -> None:
    """Make what was ordered of one thing so, if it is not; repeated, it changes nothing."""
    kind = key.partition(".")[0]
    if kind == BREAKERS:
        await change_key(ports.gates, key, partial(_reset, ports, key, clock))
    elif kind in COPIED:
        await change_key(ports.registry, key, partial(_copied, ports, key, clock))


async def read_order(ports: Ports, key: str, *, clock: Clock = _CLOCK) -> Order:
    """Return what was ordered of the thing with this key."""
    return (await _store(ports, key, clock).load(ports.stack.order(key))).state


def _store(ports: Ports, key: str, clock: Clock) -> Store[Order, OrderEvent]:
    return Store(ports.log, clock, partial(fold, key=key))


async def _copied(ports: Ports, key: str, clock: Clock, _: BucketEntry | None) -> Change[None]:
    return None, _copy_of(await read_order(ports, key, clock=clock))


def _copy_of(order: Order) -> bytes | None:
    """Return what the registry must have for `order`; None: nothing."""
    return msgspec.json.encode(order) if order.order_no else None


async def _reset(ports: Ports, key: str, clock: Clock, entry: BucketEntry | None) -> Change[None]:
    order = await read_order(ports, key, clock=clock)
    assert isinstance(order, BreakerOrder)
    known = CLOSED if entry is None else _breaker_in(entry)
    after = breaker.reset(known, order=order.newest)
    if entry is not None and after is known:
        return None, entry.value
    # A deleted key may stand again after a crash of the server: the breaker would be open.
    return None, msgspec.json.encode(after)  # guard: reset-breaker-stored-closed


def _breaker_in(entry: BucketEntry) -> BreakerState:
    try:
        return msgspec.json.decode(entry.value or b"", type=BreakerState)
    except UNDECODABLE:
        return CLOSED


async def find_drifts(ports: Ports) -> Sequence[OrderDrift]:
    """Return the modes and pauses in the registry that are not as people have ordered, by key.

    One whose order is given in this moment may be among them.
    """
    subjects = await ports.log.subjects(Kind.ORDER)
    keys = {ports.stack.aggregate_of(subject)[1] for subject in subjects}
    for kind in COPIED:
        keys |= (await ports.registry.entries(under=kind, from_leader=True)).keys()
    copied = sorted(key for key in keys if key.partition(".")[0] in COPIED)
    look = partial(_look_at, ports)
    found = await gather_bounded(look, copied, in_flight_max=READS_IN_FLIGHT_MAX)
    return [each for each in found if each is not None]


async def _look_at(ports: Ports, key: str) -> OrderDrift | None:
    ordered = _copy_of(await read_order(ports, key))
    entry = await ports.registry.get(key)
    stands = None if entry is None else entry.value
    if stands == ordered:
        return None
    if stands is None:
        return OrderDrift(key=key, says="was ordered, and is not in the registry")
    if ordered is None:
        return OrderDrift(key=key, says="is in the registry, and nobody has ordered it")
    return OrderDrift(key=key, says="is in the registry, but not as it was ordered")


async def rebuild_copies(ports: Ports, *, dry_run: bool = False) -> Sequence[OrderDrift]:
    """Make the modes and pauses in the registry what people have ordered; return what was not so.

    What nobody has ordered is removed. With `dry_run` nothing is changed.
    """
    drifts = await find_drifts(ports)
    if not dry_run:
        for each in drifts:
            await follow_order(ports, each.key)
    return drifts
