"""Whether an event fires an expectation; every refusal has a reason, and they have an order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from engine.expectation import Expectation
from engine.convergence import ConvergeResult
from engine.filters import gt, missing
from engine.gating import REASONS, Fire, Refuse, rule, share_of
from engine.strategy import Strategy
from engine.trigger import event, sources_of
from streams.world import HOPS_MAX, DomainEvent
from tests.spec import EPOCH


class Watch(Strategy):
    def init(self, episode, trigger):
        return {}

    def next_step(self, state, ctx):
        raise NotImplementedError

    def converge(self, state, ctx):
        return ConvergeResult()


FULL = event("disk.measured", filter={"used": gt(90)})


def expecting(on=FULL, **options):
    return Expectation(
        name="limits", strategy=Watch(), state_type=dict, on=sources_of(on), **options
    )


def happened(name="disk.measured", payload=None, *, id_="x1", hops=0):
    payload = {"used": 95} if payload is None else payload
    return DomainEvent(id=id_, name=name, payload=payload, seq=1, at=EPOCH, hops=hops)


def ruling(expectation, event_):
    return rule(expectation, event_, stack="vigil", actor="monitor")


REFUSALS = [
    ("not_watched", "", {"name": "disk.changed"}, {}),
    ("too_many_hops", "17 of at most 16", {"hops": HOPS_MAX + 1}, {}),
    ("filter", "used", {"payload": {"used": 90}}, {}),
    ("filter_key_missing", "used", {"payload": {}}, {}),
    ("filter_type", "used", {"payload": {"used": "95"}}, {}),
    ("sampled_out", "", {}, {"sample": 1e-9}),
]
"""Every reason in the order in which they are found: what it says, and what it takes."""


@pytest.mark.parametrize(("reason", "detail", "said", "declared"), REFUSALS)
def test_a_refusal_says_why(reason, detail, said, declared):
    assert ruling(expecting(**declared), happened(**said)) == Refuse(reason, detail)


def test_there_are_no_other_reasons():
    assert sorted(REASONS) == sorted(reason for reason, *_ in REFUSALS)


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("not_watched", "too_many_hops"),
        ("too_many_hops", "filter"),
        ("too_many_hops", "filter_key_missing"),
        ("too_many_hops", "filter_type"),
        ("filter", "sampled_out"),
        ("filter_key_missing", "sampled_out"),
        ("filter_type", "sampled_out"),
    ],
)
def test_of_two_reasons_the_first_is_told(first, later):
    needs = {reason: (said, declared) for reason, _, said, declared in REFUSALS}
    (said, declared), (more_said, more_declared) = needs[first], needs[later]
    event_ = happened(**more_said, **said)
    assert ruling(expecting(**more_declared, **declared), event_).reason == first


def test_an_event_that_passes_all_fires():
    fired = ruling(expecting(subject_key="used"), happened(hops=HOPS_MAX))
    assert isinstance(fired, Fire)
    assert (fired.trigger.event_id, fired.trigger.entity_id) == ("x1", "95")


def test_any_of_several_names_fires():
    either = expecting(event("disk.measured", "disk.changed"))
    assert isinstance(ruling(either, happened("disk.changed")), Fire)


@pytest.mark.parametrize("name", ["disk", "disk.measured.twice", "disk.*"])
def test_a_name_is_meant_as_it_stands(name):
    assert ruling(expecting(), happened(name)) == Refuse("not_watched")


SEVERAL = [
    event("disk.measured", filter={"used": gt(90)}),
    event("disk.measured", filter={"error": "io"}),
    event("disk.lost"),
]


@pytest.mark.parametrize(
    ("name", "payload", "fires"),
    [
        ("disk.measured", {"used": 95}, True),
        ("disk.measured", {"used": 5, "error": "io"}, True),
        ("disk.measured", {"error": "io"}, True),
        ("disk.measured", {"used": 95, "error": "io"}, True),
        ("disk.lost", {}, True),
        ("disk.measured", {"used": 5, "error": "none"}, False),
        ("disk.found", {"used": 95}, False),
    ],
)
def test_the_first_of_several_triggers_that_fits_fires_once(name, payload, fires):
    assert isinstance(ruling(expecting(SEVERAL), happened(name, payload)), Fire) == fires


@pytest.mark.parametrize(
    ("payload", "refusal"),
    [
        ({"used": "95"}, Refuse("filter_type", "used")),
        ({"error": "none"}, Refuse("filter_key_missing", "used")),
        ({"used": 5}, Refuse("filter", "used")),
    ],
)
def test_when_none_fits_the_reason_is_that_of_the_first_that_watches(payload, refusal):
    on = [event("disk.lost", filter={"host": missing()}), *SEVERAL]
    assert ruling(expecting(on), happened(payload=payload)) == refusal


@pytest.mark.parametrize(
    ("id_", "share"),
    [("x1", 0.23176866760167414), ("x2", 0.4547010560971323), ("ä/…", 0.668691503897108)],
)
def test_where_an_event_lies_is_the_same_on_every_node_for_ever(id_, share):
    assert share_of(id_, "vigil", "monitor", "limits") == share


@forall(st.text(max_size=40))
def test_a_share_is_from_0_to_under_1_so_that_a_sample_of_1_is_all(id_):
    id_ = id_.encode(errors="replace").decode()
    assert 0 <= share_of(id_, "vigil", "monitor", "limits") < 1
    assert isinstance(ruling(expecting(sample=1.0), happened(id_=id_)), Fire)


def chosen(sample, *, count=2_000, **of):
    place = {"stack": "vigil", "actor": "monitor", "expectation": "limits", **of}
    ids = [f"x{number}" for number in range(count)]
    return {id_ for id_ in ids if share_of(id_, **place) < sample}


def test_a_sample_is_that_share_of_the_events():
    assert len(chosen(0.1)) == pytest.approx(200, abs=60)
    assert len(chosen(0.5)) == pytest.approx(1_000, abs=100)


def test_a_larger_sample_holds_all_of_a_smaller_one():
    assert chosen(0.1) < chosen(0.2) < chosen(0.9)


@pytest.mark.parametrize("part", ["stack", "actor", "expectation"])
def test_each_expectation_has_a_sample_of_its_own(part):
    assert chosen(0.5) != chosen(0.5, **{part: "other"})


def test_the_same_event_is_ruled_the_same_again():
    half = expecting(sample=0.5)
    again = replace(half)
    for number in range(20):
        event_ = happened(id_=f"x{number}")
        assert ruling(half, event_) == ruling(again, event_)
        assert isinstance(ruling(half, event_), Fire) == (f"x{number}" in chosen(0.5, count=20))
