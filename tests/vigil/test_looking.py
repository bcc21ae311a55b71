"""Who is known, and what keeps an actor from doing anything, as far as live nodes say."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from functools import partial

import pytest

from engine.cluster.modes import ModeOrder, Orders, PauseOrder
from engine.cluster.nodes import ActorInfo, ExpectationInfo, NodeInfo
from engine.orders.store import follow_order, give_order
from streams.clock import SystemClock
from streams.memory import memory_ports
from streams.model.events import ActorPaused, LaneMoved
from streams.model.modes import NodeMode
from streams.ports.log import Commit
from tests.engine.definitions.test_store import Around
from tests.vigil.program import NOWHERE
from vigil import settings
from vigil.asking.connect import pooled
from vigil.asking.repairs.diagnosis import look_at_orders
from vigil.asking.stack import (
    StackView,
    require_expectation,
    require_known,
    require_plausible,
    running_obstacle,
    waking_obstacle,
)
from vigil.errors import Trouble, hint


def node(name: str = "n1", **actors: ActorInfo) -> NodeInfo:
    return NodeInfo(
        name=name,
        host="h",
        pid=1,
        since=datetime(2030, 1, 1, tzinfo=UTC),
        mode=NodeMode.FULL,
        setting=NodeMode.FULL,
        lease_s=30.0,
        actors=actors,
    )


def knows(*expectations: str, wakes: bool = True, runs: bool = True) -> ActorInfo:
    known = {name: ExpectationInfo() for name in expectations}
    return ActorInfo(runs=runs, wakes=wakes, slots=1, expectations=known)


def seen(*nodes: NodeInfo, **orders: object) -> StackView:
    return StackView(nodes=nodes, orders=Orders(**orders))


def test_an_expectation_is_known_if_any_node_knows_it():
    nodes = node(watcher=knows("look")), node("n2", watcher=knows("look", "listen"))
    require_expectation(seen(*nodes), "watcher", "listen")


def test_where_no_node_has_the_actor_nobody_can_say():
    require_expectation(seen(), "watcher", "anything")
    require_expectation(seen(node(other=knows("look"))), "watcher", "anything")


def test_a_node_that_says_nothing_of_its_expectations_refuses_none():
    require_expectation(seen(node(watcher=knows())), "watcher", "anything")


def test_an_expectation_that_no_node_with_the_actor_knows_is_refused_with_a_hint():
    with pytest.raises(Trouble, match=r"no expectation 'lok'; did you mean look\?"):
        require_expectation(seen(node(watcher=knows("look"))), "watcher", "lok")


@pytest.mark.parametrize(
    ("wanted", "names", "says"),
    [
        ("wacher", ["watcher", "other"], "did you mean watcher?"),
        ("watch", ["watcher", "watched"], "did you mean watcher or watched?"),
        ("x", ["watcher", "other"], "known: other, watcher"),
        ("x", [], "none is known"),
        ("x", [f"actor{n:02}" for n in range(13)], "known: actor00, "),
    ],
)
def test_a_hint_says_what_may_have_been_meant(wanted, names, says):
    assert hint(wanted, names).startswith(says)


def test_a_hint_lists_no_more_than_one_reads():
    assert hint("x", [f"actor{n:02}" for n in range(13)]).endswith("actor11, …")


@pytest.mark.parametrize(
    ("look", "waking", "running"),
    [
        (seen(), "no node that is up has it", "no node that is up has it"),
        (seen(node(a=knows())), "", ""),
        (seen(node(a=knows(runs=False)), node("n2", a=knows())), "", ""),
        (seen(node(a=knows(wakes=False))), "no node that is up wakes it", ""),
        (
            seen(node(a=knows(runs=False))),
            "no node that is up runs it",
            "no node that is up runs it",
        ),
        (
            seen(node(a=knows(wakes=False)), pauses={"a": PauseOrder(reason="deploy")}),
            "it is paused (deploy)",
            "",
        ),
        (
            seen(node(b=knows()), pauses={"a": PauseOrder(by="ann")}),
            "it is paused (by ann), and no node that is up has it",
            "no node that is up has it",
        ),
    ],
)
def test_what_keeps_an_actor_from_doing_anything_is_said(look, waking, running):
    assert (waking_obstacle(look, "a"), running_obstacle(look, "a")) == (waking, running)


def test_an_actor_is_mentioned_if_it_is_paused_or_has_a_mode_of_its_own():
    orders = {
        "pauses": {"a": PauseOrder()},
        "modes": {"n1": ModeOrder(actors={"b": NodeMode.DISABLED})},
    }
    assert seen(**orders).mentioned() == {"a", "b"}


@pytest.fixture
def without_rows(tmp_path):
    """Tables that nobody can be asked for."""
    there = {"postgres_dsn": NOWHERE["VIGIL_POSTGRES_DSN"]}
    return partial(pooled, settings.read(there, folder=tmp_path))


@pytest.fixture
def ports():
    return memory_ports(clock=SystemClock())


async def test_an_actor_with_a_lane_is_known_though_no_node_has_it_and_no_rows_can_be_asked(
    ports, without_rows
):
    moved = Commit(id="lane.1", at=SystemClock().now(), events=(LaneMoved(left=("e1",)),))
    await ports.log.append(ports.stack.lane("retired"), moved, after=0)
    await require_known(without_rows, ports, seen(node(a=knows())), "retired")


async def test_an_actor_that_people_spoke_of_is_known(ports, without_rows):
    look = seen(node(a=knows()), pauses={"retired": PauseOrder()})
    await require_known(without_rows, ports, look, "retired")


async def test_an_actor_that_nobody_knows_is_plausible_only_while_no_node_is_up(
    ports, without_rows
):
    await require_plausible(without_rows, ports, seen(), "nobody")
    with pytest.raises(Trouble, match="nobody knows an actor 'nobody'; known: a"):
        await require_plausible(without_rows, ports, seen(node(a=knows())), "nobody")
    with pytest.raises(Trouble, match="none is known"):
        await require_known(without_rows, ports, seen(), "nobody")


PAUSED = ActorPaused(actor_id="a", by="ann")


async def test_an_order_whose_copy_is_on_its_way_is_no_problem(ports):
    commit = Commit(id="c1", at=datetime(2030, 1, 1, tzinfo=UTC), events=(PAUSED,))
    await ports.log.append(ports.stack.order("pause.a"), commit, after=0)

    async def copy():
        await follow_order(ports, "pause.a")

    slow = dataclasses.replace(ports, registry=Around(ports.registry, "get", behind=copy))
    (check,) = await look_at_orders(slow)

    assert (check.what, check.status) == ("orders", "ok")


async def test_an_order_that_no_node_sees_is_a_problem(ports):
    await give_order(ports, PAUSED)
    await ports.registry.delete("pause.a")

    (check,) = await look_at_orders(ports)

    assert (check.what, check.status) == ("pause.a", "problem")
    assert "vigil orders rebuild" in check.remedy
