"""Which nodes wake an actor and which run it: settings, the registry, and who is asked first."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from engine.cluster.modes import (
    Orders,
    PauseOrder,
    Switch,
    mode_of,
    orders_of,
    switch,
)
from streams.keys import mode_key, pause_key
from streams.model.modes import NodeMode
from streams.ports.bucket import BucketEntry

FULL, TRIGGER_ONLY, DISABLED = NodeMode
BOTH = Switch(wakes=True, runs=True)
WAKES = Switch(wakes=True, runs=False)
RUNS = Switch(wakes=False, runs=True)
NEITHER = Switch(wakes=False, runs=False)
AT = datetime(2030, 1, 2, tzinfo=UTC)


def said(key: str, value: object, *, revision: int = 1) -> BucketEntry:
    data = value if isinstance(value, bytes | None) else msgspec.json.encode(value)
    return BucketEntry(key=key, value=data, revision=revision)


def of_n1(orders: Orders, *, setting: NodeMode = FULL, actor: str = "a") -> Switch:
    return switch(orders, node="n1", setting=setting, actor=actor)


@pytest.mark.parametrize(
    ("mode", "may"), [(FULL, BOTH), (TRIGGER_ONLY, WAKES), (DISABLED, NEITHER)]
)
def test_a_mode_says_whether_a_node_wakes_and_runs(mode, may):
    assert of_n1(Orders(), setting=mode) == may
    assert of_n1(orders_of([said(mode_key("n1"), {"mode": mode})])) == may


@pytest.mark.parametrize("setting", NodeMode)
def test_the_registry_comes_before_the_nodes_own_setting(setting):
    orders = orders_of([said(mode_key("n1"), {"mode": "trigger_only"})])

    assert of_n1(orders, setting=setting) == WAKES
    assert mode_of(orders, node="n1", setting=setting) is TRIGGER_ONLY


def test_an_actors_own_mode_comes_before_that_of_its_node():
    orders = orders_of([said(mode_key("n1"), {"mode": "disabled", "actors": {"a": "full"}})])

    assert of_n1(orders, actor="a") == BOTH
    assert of_n1(orders, actor="b") == NEITHER


def test_a_mode_of_one_actor_alone_leaves_the_others_to_the_nodes_setting():
    orders = orders_of([said(mode_key("n1"), {"actors": {"a": "disabled"}})])

    assert of_n1(orders, actor="a") == NEITHER
    assert of_n1(orders, actor="b", setting=TRIGGER_ONLY) == WAKES


def test_what_is_said_of_one_node_says_nothing_of_another():
    orders = orders_of([said(mode_key("n2"), {"mode": "disabled"})])

    assert of_n1(orders) == BOTH


def test_a_paused_actor_is_woken_by_no_node_and_still_run_by_those_that_run_it():
    orders = orders_of([said(pause_key("a"), {"by": "ann", "reason": "deploy"})])

    assert of_n1(orders, actor="a") == RUNS
    assert of_n1(orders, actor="b") == BOTH
    assert of_n1(orders, actor="a", setting=DISABLED) == NEITHER
    assert orders.pauses == {"a": PauseOrder(by="ann", reason="deploy")}


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"off",
        b"\xff",
        b'"\xff"',
        b'"disabled"',
        b"null",
        b'{"mode":"off"}',
        b'{"mode":1}',
        b'{"mod":"disabled"}',
        b'{"actors":["a"]}',
        b'{"actors":{"a":"gone"}}',
        b'{"at":"yesterday"}',
    ],
)
def test_an_entry_that_cannot_be_read_says_nothing_and_is_named(value):
    orders = orders_of([said(mode_key("n1"), value), said(mode_key("n2"), {"mode": "disabled"})])

    assert of_n1(orders) == BOTH
    assert list(orders.problems) == ["mode.n1"]
    assert list(orders.modes) == ["n2"]


def test_entries_of_other_kinds_and_what_is_gone_are_passed_over():
    others = [said("actor.a", b"anything"), said(mode_key("n1"), None), said(pause_key("a"), None)]

    assert orders_of(others) == Orders()


def test_what_was_taken_back_says_nothing_any_more():
    over = said(pause_key("a"), {"is_over": True, "order_no": 2, "by": "ann"})

    assert orders_of([over, said(mode_key("n1"), {"order_no": 2})]) == Orders()
