"""Which event is held until its subject is calm, and until when."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from engine.app.actor import Expectation
from engine.app.triggers import event, sources_of
from engine.triggers.debounce import PendingDebounce, Rearm, calming_in, hold, is_newer, payload_of
from streams.model.triggers import CloudEvent
from streams.ports.domain_events import DomainEvent
from tests.engine.triggers.test_rules import Watch
from tests.spec import EPOCH


def expecting(*, debounce_s=10.0, max_wait_s=0.0):
    return Expectation(
        name="limits",
        strategy=Watch(),
        state_type=dict,
        on=sources_of(event("disk.measured")),
        debounce_s=debounce_s,
        max_wait_s=max_wait_s,
    )


def after(seconds):
    return EPOCH + timedelta(seconds=seconds)


def happened(at_s, *, seq=None, **more):
    return DomainEvent(
        id=f"x{at_s}",
        name="disk.measured",
        payload={"used": at_s},
        seq=at_s if seq is None else seq,
        at=after(at_s),
        **more,
    )


def held_after(*events, expectation=None):
    """Return what is held once `events` have come, each ruled on when it was stored."""
    rearm = None
    for one in events:
        rearm = hold(expectation or expecting(), one, rearm, now=one.at) or rearm
    return rearm


def test_the_first_event_is_held_for_as_long_as_calm_was_asked_for():
    one = happened(1)
    assert held_after(one) == Rearm(
        PendingDebounce(expectation="limits", event=one, since=after(1), coalesced=0), after(11)
    )


def test_the_newest_takes_the_place_of_what_is_held_and_calm_is_waited_for_anew():
    newest = held_after(happened(1), happened(4), happened(9))
    assert newest == Rearm(
        PendingDebounce(expectation="limits", event=happened(9), since=after(1), coalesced=2),
        after(19),
    )


@pytest.mark.parametrize("late", [happened(4), happened(9, seq=8)])
def test_what_is_older_than_what_is_held_is_counted_and_changes_nothing_else(late):
    held = held_after(happened(9))
    counted = msgspec.structs.replace(held.debounced, coalesced=1)
    assert hold(expecting(), late, held, now=after(12)) == Rearm(counted, held.due_at)


@pytest.mark.parametrize(
    ("late", "is_repeat"), [(happened(4), True), (happened(9), False), (happened(9), True)]
)
def test_what_may_have_been_counted_is_not_counted_again(late, is_repeat):
    held = held_after(happened(9))
    assert hold(expecting(), late, held, now=after(9), is_repeat=is_repeat) is None


def test_of_two_events_stored_at_one_instant_the_later_in_the_stream_is_newer():
    one, other = happened(1, seq=1), happened(1, seq=2)
    assert is_newer(other, one)
    assert not is_newer(one, other)
    assert not is_newer(one, one)


@pytest.mark.parametrize(
    ("last_s", "due_s"), [(1, 11), (10, 20), (15, 25), (16, 26), (20, 26), (26, 26)]
)
def test_the_longest_wait_is_counted_from_the_first_event(last_s, due_s):
    bounded = expecting(max_wait_s=25.0)
    first = held_after(happened(1), expectation=bounded)
    last = hold(bounded, happened(last_s, seq=100), first, now=after(last_s))
    assert last.due_at == after(due_s)


def test_a_node_whose_clock_is_slow_does_not_make_the_wait_short():
    assert hold(expecting(), happened(100), None, now=after(1)).due_at == after(110)


def test_a_node_that_rules_late_waits_for_calm_from_then_on():
    assert hold(expecting(), happened(1), None, now=after(100)).due_at == after(110)


@forall(st.permutations(range(1, 7)))
def test_in_whatever_order_events_come_the_newest_stands_for_all_of_them(order):
    held = None
    for number in order:
        held = hold(expecting(), happened(number), held, now=after(10))
    assert (held.debounced.event.id, held.debounced.coalesced) == ("x6", 5)


CLOUD = CloudEvent(type="t", source="s")


@pytest.mark.parametrize(
    "one",
    [happened(1), happened(2, hops=3, stream="ORDERS"), happened(3, cloud=CLOUD)],
)
def test_a_timer_says_all_that_was_held(one):
    debounced = PendingDebounce(expectation="limits", event=one, since=after(1), coalesced=7)
    sent = msgspec.json.decode(msgspec.json.encode(payload_of(debounced)))
    assert calming_in(sent) == debounced


@pytest.mark.parametrize("said", [{}, {"expectation": "limits"}, {"expectation": 1, "event": {}}])
def test_what_is_nothing_of_ours_is_told_apart(said):
    assert calming_in(said) is None
