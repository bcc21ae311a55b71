"""What a fire by hand says on its way, and what it cannot say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.app import dedupe
from engine.app.actor import PRIORITY_MAX, REVISION_MAX
from engine.app.checks import COUNT_MAX
from engine.app.dedupe import KEY_CHARS_MAX
from engine.app.tools import OVERRIDES_BYTES_MAX, overrides
from engine.episodes import fire as firing
from engine.episodes.fire import (
    FireRequest,
    budget_for,
    fire_dedupe_key,
    fire_timer,
    fired_episode_id,
    manual_trigger,
    parse_fire,
)
from engine.errors import BadRequest
from engine.validation import BY_CHARS_MAX, REASON_CHARS_MAX
from streams.json import raw
from streams.model.triggers import Budget, LogStrategy, ManualTrigger, Mode
from streams.ports.domain_events import EVENT_BYTES_MAX
from streams.tokens import encode_token
from streams.wire.timers import timer_body
from tests.spec import EPOCH

ASKED = FireRequest(expectation="limits", requested_by="ann", key="k1")
WHOLE = FireRequest(
    expectation="limits",
    requested_by="ann",
    key="k1",
    reason="to see",
    payload={"host": "h1", "parts": [1, None]},
    priority=-3,
    mode=Mode.DRY_RUN,
    overrides=overrides(tools={"mail.send": {"id": 7}}, synthesis="x", persist_findings=True),
    hops=2,
    budget={"turns": 5, "wall_s": 1.5},
    revision=3,
    log_strategy=LogStrategy.TIMELINE,
    attempts_max=7,
)


HALF = overrides(synthesis="x" * (OVERRIDES_BYTES_MAX // 2))
LARGE = {"rate": HALF, "screen": HALF}
"""Each alone would do."""


@pytest.mark.parametrize("fire", [ASKED, WHOLE])
def test_a_fire_arrives_as_it_was_sent(fire):
    timer = fire_timer(fire, actor="monitor")
    assert (timer.actor, timer.purpose) == ("monitor", "fire")
    assert parse_fire(timer.payload) == fire


@given(st.builds(FireRequest, expectation=st.just("e"), requested_by=st.text(), key=st.text()))
def test_a_fire_is_refused_or_arrives_as_it_was_sent(fire):
    try:
        timer = fire_timer(fire, actor="monitor")
    except BadRequest:
        return
    assert parse_fire(timer.payload) == fire


def test_the_timer_is_named_after_the_cause():
    named = fire_timer(ASKED, actor="monitor").key
    assert fire_timer(replace(ASKED, reason="later"), actor="monitor").key == named
    others = [
        replace(ASKED, expectation="x"),
        replace(ASKED, key="x"),
        replace(ASKED, mode=Mode.DRY_RUN),
    ]
    assert named not in {fire_timer(other, actor="monitor").key for other in others}


def test_one_key_is_one_episode_of_an_expectation():
    cause = {"stack": "s", "actor": "a", "expectation": "e"}
    assert fired_episode_id(**cause, key="k") == dedupe.episode_id(**cause, dedupe_key="manual:k")


def test_a_dry_run_is_another_cause_than_the_real_thing():
    assert fire_dedupe_key("k") == "manual:k"
    assert fire_dedupe_key("k", Mode.DRY_RUN) == "dry_run:k"


def test_the_strategy_gets_who_asked_for_what_and_about_which_subject():
    assert manual_trigger(WHOLE, subject_key="host") == ManualTrigger(
        requested_by="ann", reason="to see", payload=WHOLE.payload, entity_id="h1", hops=2
    )


def test_a_limit_that_is_not_asked_for_is_the_expectations():
    declared = Budget(turns=3, tokens=4, wall_s=9.0)
    assert budget_for(ASKED, declared) == declared
    assert budget_for(WHOLE, declared) == Budget(turns=5, tokens=4, wall_s=1.5)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"expectation": "no good"}, "expectation"),
        ({"expectation": 7}, "expectation"),
        ({"requested_by": ""}, "by"),
        ({"requested_by": "x" * (BY_CHARS_MAX + 1)}, "by"),
        ({"requested_by": None}, "by"),
        ({"reason": "x" * (REASON_CHARS_MAX + 1)}, "reason"),
        ({"reason": "\ud800"}, "reason"),
        ({"key": ""}, "key"),
        ({"key": "x" * (KEY_CHARS_MAX + 1)}, "key"),
        ({"key": "ä" * KEY_CHARS_MAX}, "key"),
        ({"priority": PRIORITY_MAX + 1}, "priority"),
        ({"priority": -PRIORITY_MAX - 1}, "priority"),
        ({"priority": True}, "priority"),
        ({"budget": {"turn": 5}}, "budget"),
        ({"budget": {"turns": 2.5}}, "budget"),
        ({"budget": {"turns": -1}}, "budget"),
        ({"budget": {"wall_s": -0.5}}, "budget"),
        ({"budget": {"wall_s": math.inf}}, "budget"),
        ({"budget": {"tokens": COUNT_MAX + 1}}, "budget"),
        ({"budget": 5}, "budget"),
        ({"revision": -1}, "revision"),
        ({"revision": REVISION_MAX + 1}, "revision"),
        ({"attempts_max": -1}, "attempts_max"),
        ({"attempts_max": True}, "attempts_max"),
        ({"attempts_max": COUNT_MAX + 1}, "attempts_max"),
        ({"hops": -1}, "hops"),
        ({"hops": COUNT_MAX + 1}, "hops"),
        ({"payload": [1]}, "payload"),
        ({"payload": {"a": object()}}, "payload"),
        ({"payload": {"a": [math.nan]}}, "payload"),
        ({"payload": {"a": {"b": -math.inf}}}, "payload"),
        ({"payload": {"a": "x" * EVENT_BYTES_MAX}}, "payload"),
        ({"overrides": overrides()}, "overrides"),
        ({"mode": Mode.DRY_RUN, "overrides": {"tools": {}}}, "overrides"),
        ({"step_overrides": {"rate": overrides()}}, "step_overrides.rate"),
        ({"mode": Mode.DRY_RUN, "step_overrides": {"rate": {}}}, "step_overrides.rate"),
        ({"mode": Mode.DRY_RUN, "step_overrides": {"a.b": overrides()}}, "step_overrides"),
        ({"mode": Mode.DRY_RUN, "step_overrides": [overrides()]}, "step_overrides"),
        ({"mode": Mode.DRY_RUN, "step_overrides": LARGE}, "step_overrides"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_with_the_field(change, field):
    with pytest.raises(BadRequest, match=f"^{field}: ") as refused:
        fire_timer(replace(ASKED, **change), actor="monitor")
    assert refused.value.field == field


def test_an_actor_has_a_name():
    with pytest.raises(BadRequest, match=r"^actor: 'a\.b' is not a name"):
        fire_timer(ASKED, actor="a.b")


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"expectation": "limits", "requested_by": "ann"},
        {"expectation": "limits", "requested_by": "ann", "key": 7},
        {"expectation": "no good", "requested_by": "ann", "key": "k"},
        {"expectation": "limits", "requested_by": "ann", "key": "k", "mode": "half"},
        {"expectation": "limits", "requested_by": "ann", "key": "k", "overrides": {}},
        {"expectation": "limits", "requested_by": "ann", "key": "k", "priority": 1001},
    ],
)
def test_a_timer_that_says_no_fire_that_can_work_is_refused(said):
    with pytest.raises(BadRequest) as refused:
        parse_fire(said)
    assert refused.value.problem


def test_what_a_newer_version_adds_is_passed_over():
    said = fire_timer(ASKED, actor="monitor").payload
    assert parse_fire({**said, "mood": "good"}) == ASKED


def test_the_largest_fire_fits_in_a_timer():
    room = OVERRIDES_BYTES_MAX - len(b'"""null"')
    largest = replace(
        WHOLE,
        requested_by="\x01" * BY_CHARS_MAX,
        reason="\x01" * REASON_CHARS_MAX,
        payload={"a": "x" * (EVENT_BYTES_MAX - len(raw({"a": ""})))},
        overrides=overrides(tools={"mail.send": "x" * (room - 20)}),
    )
    timer = fire_timer(largest, actor="monitor")
    assert timer_body(timer, due_at=EPOCH)
    assert encode_token(timer.key)
    assert timer.purpose == firing.PURPOSE
