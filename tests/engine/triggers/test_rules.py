"""Whether an event fires an expectation; every refusal has a reason, and they have an order."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from engine.app.actor import Expectation
from engine.app.checks import Breaker
from engine.app.conditions import gt, missing
from engine.app.strategy import ConvergeResult, Strategy
from engine.app.triggers import event, sources_of
from engine.episodes.breakers.breaker import BreakerState
from engine.triggers.rules import (
    REASONS,
    Debounced,
    Fire,
    LookUp,
    Refuse,
    TriggerState,
    rule,
    rule_tick,
    share_of,
)
from streams.model.refusals import (
    AgainstBreaker,
    AgainstCooldown,
    AgainstFilter,
    AgainstHops,
    AgainstSample,
)
from streams.model.triggers import ScheduleTrigger
from streams.ports.domain_events import HOPS_MAX, DomainEvent
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


OPEN = BreakerState(status="open", failures=("e1",), opened_at=EPOCH)
MOMENT = EPOCH + timedelta(seconds=1)


def standing(**seen):
    """Return what the cluster remembers: nothing that holds an event back, unless `seen`."""
    return TriggerState(**{"episode_id": "mine", "now": MOMENT, "is_calm": True, **seen})


def ruling(expectation, event_, seen=None):
    return rule(expectation, event_, stack="vigil", actor="monitor", trigger_state=seen)


ALL_GATES = {"cooldown_s": 60, "debounce_s": 3, "breaker": Breaker(threshold=1)}

OVER_90 = partial(AgainstFilter, path="used", wanted={"gt": 90})
IS_OPEN = AgainstBreaker(
    status="open", failures=("e1",), until=EPOCH + timedelta(seconds=Breaker().half_open_after_s)
)
SHARE = share_of("x1", "vigil", "monitor", "limits")

REFUSALS = [
    ("not_watched", None, {"name": "disk.changed"}, {}, {}),
    ("too_many_hops", AgainstHops(hops=17, hops_max=16), {"hops": HOPS_MAX + 1}, {}, {}),
    ("filter", OVER_90(found=90), {"payload": {"used": 90}}, {}, {}),
    ("filter_key_missing", OVER_90(is_missing=True), {"payload": {}}, {}, {}),
    ("filter_type", OVER_90(found="95"), {"payload": {"used": "95"}}, {}, {}),
    (
        "cooldown",
        AgainstCooldown(episode_id="other", until=MOMENT),
        {},
        {},
        {"cooled_by": "other", "cooled_until": MOMENT},
    ),
    ("calm", None, {}, {}, {"is_calm": False}),
    ("superseded", None, {}, {}, {"is_superseded": True}),
    ("breaker_open", IS_OPEN, {}, {}, {"breaker": OPEN}),
    ("sampled_out", AgainstSample(share=SHARE, sample=1e-9), {}, {"sample": 1e-9}, {}),
]
"""Every rule in the order in which they are asked: what is told, and what it takes: of the event,
of the declaration, of what the cluster remembers. Calm is waited for; the others refuse."""

RULES = [reason for reason, *_ in REFUSALS]
OF_THE_FILTER = {"filter", "filter_key_missing", "filter_type"}


def answer(ruled):
    """Return the reason of a ruling, or the rule whose waiting it is."""
    return "calm" if isinstance(ruled, Debounced) else ruled.reason


def ruled_by(*rules):
    """Return the ruling on an event that each of `rules` would hold back."""
    said, declared, seen = {}, {}, {}
    for reason, _, more_said, more_declared, more_seen in REFUSALS:
        if reason in rules:
            said, declared = {**said, **more_said}, {**declared, **more_declared}
            seen = {**seen, **more_seen}
    return ruling(expecting(**ALL_GATES, **declared), happened(**said), standing(**seen))


@pytest.mark.parametrize(
    ("reason", "against"),
    [(reason, against) for reason, against, *_ in REFUSALS if reason != "calm"],
)
def test_a_refusal_says_what_the_event_was_compared_with(reason, against):
    assert ruled_by(reason) == Refuse(reason, against)


def test_there_are_no_other_reasons():
    assert sorted([*REASONS, "calm"]) == sorted(RULES)


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (first, later)
        for place, first in enumerate(RULES)
        for later in RULES[place + 1 :]
        if not {first, later} <= OF_THE_FILTER
    ],
)
def test_of_two_rules_that_hold_an_event_back_the_first_is_told(first, later):
    assert answer(ruled_by(first, later)) == first


def test_an_event_that_every_rule_holds_back_is_told_the_first():
    assert answer(ruled_by(*RULES)) == "not_watched"


@pytest.mark.parametrize("gate", list(ALL_GATES))
def test_what_the_cluster_remembers_is_looked_up_for_those_who_need_it(gate):
    gated = expecting(**{gate: ALL_GATES[gate]})
    assert ruling(gated, happened()) == LookUp()
    assert ruling(gated, happened("disk.changed")) == Refuse("not_watched")
    assert isinstance(ruling(gated, happened(), standing()), Fire)


def test_without_a_gate_what_the_cluster_remembers_is_not_asked():
    held_back = standing(cooled_by="other", is_calm=False, is_superseded=True, breaker=OPEN)
    assert isinstance(ruling(expecting(), happened(), held_back), Fire)


def test_the_cause_that_began_a_cooldown_passes_it_again():
    gated = expecting(cooldown_s=60)
    assert isinstance(ruling(gated, happened(), standing(cooled_by="mine")), Fire)


def test_what_fires_after_calm_says_how_many_it_stands_for():
    fired = ruling(expecting(debounce_s=3), happened(), standing(coalesced=4))
    assert fired.trigger.coalesced == 4


TRIED_AGAIN = EPOCH + timedelta(seconds=60)


def test_the_first_event_after_a_breakers_time_is_its_probe():
    gated = expecting(breaker=Breaker(threshold=1, half_open_after_s=60))
    fired = ruling(gated, happened(), standing(breaker=OPEN, now=TRIED_AGAIN))
    assert (fired.breaker.status, fired.breaker.probe) == ("half_open", "mine")
    again = ruling(gated, happened(), standing(breaker=fired.breaker, now=TRIED_AGAIN))
    assert (isinstance(again, Fire), again.breaker) == (True, None)
    other = standing(breaker=fired.breaker, now=TRIED_AGAIN, episode_id="other")
    assert ruling(gated, happened(), other).reason == "breaker_open"


def test_an_event_that_is_not_in_the_sample_is_no_probe():
    rare = expecting(breaker=Breaker(threshold=1, half_open_after_s=60), sample=1e-9)
    ruled = ruling(rare, happened(), standing(breaker=OPEN, now=TRIED_AGAIN))
    assert ruled.reason == "sampled_out"


TICKED = ScheduleTrigger(scheduled_at=EPOCH, schedule="every 900s")


def tick_ruling(expectation, seen):
    return rule_tick(expectation, TICKED, stack="vigil", actor="monitor", trigger_state=seen)


@pytest.mark.parametrize(
    ("seen", "declared", "ruled"),
    [
        ({}, {}, "fires"),
        ({"cooled_by": "other", "is_calm": False}, {}, "fires"),
        ({"breaker": OPEN}, {}, "breaker_open"),
        ({}, {"sample": 1e-9}, "sampled_out"),
        ({"breaker": OPEN}, {"sample": 1e-9}, "breaker_open"),
    ],
)
def test_a_tick_is_held_back_by_breaker_and_sample_and_by_nothing_else(seen, declared, ruled):
    gated = expecting(**{**ALL_GATES, **declared})
    said = tick_ruling(gated, standing(**seen))
    assert ("fires" if isinstance(said, Fire) else said.reason) == ruled


def test_a_tick_may_be_the_probe():
    gated = expecting(breaker=Breaker(threshold=1, half_open_after_s=60))
    fired = tick_ruling(gated, standing(breaker=OPEN, now=TRIED_AGAIN))
    assert (fired.trigger, fired.breaker.probe) == (TICKED, "mine")


def test_a_tick_is_in_the_sample_by_its_own_time():
    share = share_of(EPOCH.isoformat(), "vigil", "monitor", "limits")
    in_it, out_of_it = expecting(sample=share + 1e-6), expecting(sample=share)
    assert isinstance(tick_ruling(in_it, standing()), Fire)
    assert tick_ruling(out_of_it, standing()).reason == "sampled_out"


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
        ({"used": "95"}, ("filter_type", "used")),
        ({"error": "none"}, ("filter_key_missing", "used")),
        ({"used": 5}, ("filter", "used")),
    ],
)
def test_when_none_fits_the_reason_is_that_of_the_first_that_watches(payload, refusal):
    on = [event("disk.lost", filter={"host": missing()}), *SEVERAL]
    ruled = ruling(expecting(on), happened(payload=payload))
    assert (ruled.reason, ruled.against.path) == refusal


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


@pytest.mark.parametrize("id_", ["e-1", "e-2", "e-3"])
def test_a_sample_of_0_is_none(id_):
    assert ruling(expecting(sample=0), happened(id_=id_)).reason == "sampled_out"


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
