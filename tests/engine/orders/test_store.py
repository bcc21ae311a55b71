"""An order is on the log before nodes see it, and they see it, whoever dies or is late."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec
import pytest

from engine.cluster.modes import ModeOrder, PauseOrder, orders_of
from engine.episodes.breakers.breaker import BreakerState
from engine.errors import BadRequest
from engine.orders.store import find_drifts, follow_order, give_order, read_order, rebuild_copies
from engine.reactor.reactor import Reactor
from streams.clock import SystemClock
from streams.keys import breaker_key, mode_key, pause_key
from streams.layout import Stream
from streams.model.events import ActorPaused, ActorResumed, BreakerReset, LayoutSet, NodeModeSet
from streams.model.modes import NodeMode
from tests.engine.definitions.test_store import Around
from tests.spec import EPOCH

PAUSED = ActorPaused(actor_id="a", by="ann", reason="deploy")
RESUMED = ActorResumed(actor_id="a", by="bob")
RESET = BreakerReset(actor_id="a", expectation_id="e", by="ann")
OPEN = BreakerState(status="open", failures=("e1",), opened_at=EPOCH)
BREAKER = breaker_key("a", "e")


async def pauses(ports):
    return orders_of((await ports.registry.entries()).values()).pauses


async def breaker_of(ports):
    entry = await ports.gates.get(BREAKER)
    return entry and msgspec.json.decode(entry.value, type=BreakerState)


async def trip(ports, state=OPEN):
    await ports.gates.put(BREAKER, msgspec.json.encode(state))


def dying(ports, bucket="registry"):
    """Return ports of a process that dies once its order is on the log."""

    async def die():
        raise ConnectionError

    return dataclasses.replace(ports, **{bucket: Around(getattr(ports, bucket), "get", before=die)})


async def react(ports):
    """Do what follows from all that was ordered."""
    reactor = Reactor(ports, SystemClock(), node="n1", since=EPOCH, stream=Stream.STATE)
    reactor.end()
    await reactor.follow()


async def test_nodes_see_what_was_ordered_by_whom_and_why(ports):
    assert await give_order(ports, PAUSED)
    assert await give_order(ports, NodeModeSet(node="n1", mode=NodeMode.DISABLED, by="ann"))

    assert (await pauses(ports))["a"].reason == "deploy"
    (mode,) = orders_of((await ports.registry.entries()).values()).modes.values()
    assert (mode.mode, mode.by) == (NodeMode.DISABLED, "ann")
    assert isinstance(await read_order(ports, mode_key("n1")), ModeOrder)


async def test_an_order_that_changes_nothing_is_noted_once(ports):
    assert await give_order(ports, PAUSED)
    assert not await give_order(ports, PAUSED)
    assert not await give_order(ports, ActorResumed(actor_id="other", by="ann"))

    assert len(ports.log.records(Stream.STATE)) == 1
    assert await ports.registry.get(pause_key("other")) is None


async def test_who_orders_has_a_name(ports):
    with pytest.raises(BadRequest):
        await give_order(ports, ActorPaused(actor_id="a", by=""))
    assert ports.log.records(Stream.STATE) == []


async def test_an_order_whose_giver_died_is_seen_once_a_node_has_followed_it(ports):
    with pytest.raises(ConnectionError):
        await give_order(dying(ports), PAUSED)
    assert await pauses(ports) == {}

    await react(ports)

    assert list(await pauses(ports)) == ["a"]


async def test_a_reset_whose_giver_died_closes_the_breaker_once(ports):
    await trip(ports)
    with pytest.raises(ConnectionError):
        await give_order(dying(ports, "gates"), RESET)
    assert await breaker_of(ports) == OPEN

    await react(ports)
    closed = await breaker_of(ports)
    assert closed == BreakerState(reset=closed.reset)

    opened_again = msgspec.structs.replace(OPEN, reset=closed.reset)
    await trip(ports, opened_again)
    await follow_order(ports, BREAKER)
    assert await breaker_of(ports) == opened_again


async def test_a_reset_of_what_nobody_can_read_closes_it(ports):
    await ports.gates.put(BREAKER, b"\xff")

    await give_order(ports, RESET)

    assert (await breaker_of(ports)).status == "closed"


async def test_a_reset_is_carried_out_though_the_log_has_lost_the_one_before(ports):
    await give_order(ports, RESET)
    closed = await breaker_of(ports)
    await trip(ports, msgspec.structs.replace(OPEN, reset=closed.reset))
    ports.log._partition(Stream.STATE, 0).make_anew()

    await give_order(ports, RESET)

    assert (await breaker_of(ports)).status == "closed"


async def test_whoever_is_late_does_not_replace_what_was_ordered_since(ports):
    async def resume():
        await give_order(ports, RESUMED)

    late = dataclasses.replace(ports, registry=Around(ports.registry, "put", before=resume))
    await give_order(late, PAUSED)

    assert await pauses(ports) == {}
    assert await find_drifts(ports) == []


async def test_two_who_order_at_once_leave_what_the_log_has_last(ports):
    orders = [ActorPaused(actor_id="a", by=f"p{number}") for number in range(8)]

    await asyncio.gather(*(give_order(ports, each) for each in orders))

    (paused,) = (await pauses(ports)).values()
    assert paused == await read_order(ports, pause_key("a"))
    assert paused.order_no == len(orders)


async def test_the_layout_has_no_copy(ports):
    assert await give_order(ports, LayoutSet(partitions=4, by="ann"))
    assert await ports.registry.entries() == {}
    assert await find_drifts(ports) == []


async def test_copies_that_are_not_as_ordered_are_found_and_made_so(ports):
    for actor in ("gone", "changed", "well"):
        await give_order(ports, ActorPaused(actor_id=actor, by="ann"))
    await ports.registry.delete(pause_key("gone"))
    await ports.registry.put(pause_key("changed"), b'{"is_over":true,"order_no":9}')
    await ports.registry.put(mode_key("n9"), b'{"mode":"disabled"}')

    drifts = await rebuild_copies(ports, dry_run=True)
    assert [(each.key, each.says) for each in drifts] == [
        ("mode.n9", "is in the registry, and nobody has ordered it"),
        ("pause.changed", "is in the registry, but not as it was ordered"),
        ("pause.gone", "was ordered, and is not in the registry"),
    ]
    assert await find_drifts(ports) == drifts

    assert await rebuild_copies(ports) == drifts

    assert await find_drifts(ports) == []
    assert {"changed", "gone", "well"} == (await pauses(ports)).keys()
    assert await ports.registry.get(mode_key("n9")) is None


async def test_a_pause_that_is_over_stays_in_the_registry(ports):
    await give_order(ports, PAUSED)
    await give_order(ports, RESUMED)

    entry = await ports.registry.get(pause_key("a"))
    assert entry is not None
    assert msgspec.json.decode(entry.value, type=PauseOrder).is_over
