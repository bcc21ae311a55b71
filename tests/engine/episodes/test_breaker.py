"""The circuit breaker: when it opens, whom it lets through, and when it closes."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.app.checks import HALF_OPEN_AFTER_S_MAX, THRESHOLD_MAX, Breaker, problem_of_breaker
from engine.episodes.breakers.breaker import (
    CLOSED,
    BreakerState,
    cancels,
    change_by,
    outcome_of,
    pass_through,
    record,
    transition,
)
from streams.model.events import EndStatus, EpisodeFinished, EpisodeOpened
from streams.model.triggers import Budget, EventTrigger, ManualTrigger, Mode, ScheduleTrigger
from tests.spec import EPOCH

BREAKER = Breaker(threshold=3, half_open_after_s=60)


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def told(*ends, state=CLOSED, breaker=BREAKER):
    """Return the state after `ends`: ("e1", "failed"), … at second 0."""
    for episode_id, outcome in ends:
        state = record(state, breaker, episode_id=episode_id, outcome=outcome, now=at(0))
    return state


def failed(*ids):
    return [(id_, "failed") for id_ in ids]


OPEN = told(*failed("e1", "e2", "e3"))
PROBED = pass_through(OPEN, BREAKER, episode_id="p1", now=at(60)).becomes


def asked(state, episode_id, *, seconds, breaker=BREAKER):
    return pass_through(state, breaker, episode_id=episode_id, now=at(seconds))


def ended(state, episode_id, outcome, *, seconds=70, breaker=BREAKER):
    return record(state, breaker, episode_id=episode_id, outcome=outcome, now=at(seconds))


# Closed.


def test_a_breaker_keeps_which_order_to_close_it_was_carried_out():
    state = BreakerState(reset="c2")
    for number, outcome in enumerate(["failed", "succeeded", "failed", "failed", "failed"]):
        state = ended(state, f"e{number}", outcome)
        assert state.reset == "c2"
    assert state.status == "open"
    probing = asked(state, "p", seconds=1000).becomes
    assert probing is not None
    assert {ended(probing, "p", each).reset for each in ("failed", "succeeded", "canceled")} == {
        "c2"
    }


def test_a_closed_breaker_allows_everything_and_stays_as_it_is():
    passage = asked(CLOSED, "e1", seconds=0)
    assert (passage.allowed, passage.becomes) == (True, None)


@pytest.mark.parametrize(
    ("ends", "failures"),
    [
        (failed("e1"), ("e1",)),
        (failed("e1", "e2"), ("e1", "e2")),
        (failed("e1", "e1", "e2", "e1"), ("e1", "e2")),
        ([*failed("e1", "e2"), ("e3", "succeeded")], ()),
        ([*failed("e1"), ("e2", "succeeded"), *failed("e3")], ("e3",)),
        ([*failed("e1"), ("e2", "canceled"), *failed("e3")], ("e1", "e3")),
        ([("e1", "canceled"), ("e2", "canceled"), ("e3", "canceled")], ()),
    ],
)
def test_failures_one_after_the_other_are_counted_once_each(ends, failures):
    assert told(*ends) == BreakerState(failures=failures)


def test_it_opens_with_the_last_failure_of_the_threshold():
    assert BreakerState(status="open", failures=("e1", "e2", "e3"), opened_at=at(0)) == OPEN


def test_a_threshold_of_one_opens_at_once():
    breaker = Breaker(threshold=1)
    assert told(("e1", "failed"), breaker=breaker).status == "open"


def test_a_threshold_that_was_lowered_holds_from_the_next_failure():
    before = told(*failed("e1", "e2"))
    state = ended(before, "e3", "failed", breaker=Breaker(threshold=1))
    assert (state.status, state.failures) == ("open", ("e3",))


@pytest.mark.parametrize("outcome", ["succeeded", "canceled"])
def test_what_changes_nothing_returns_the_same_state(outcome):
    assert ended(CLOSED, "e1", outcome) is CLOSED
    one = told(*failed("e1"))
    assert ended(one, "e1", "failed") is one


# Open.


@pytest.mark.parametrize("seconds", [-5, 0, 59.999])
def test_an_open_breaker_refuses_until_its_time_is_over(seconds):
    passage = asked(OPEN, "p1", seconds=seconds)
    assert (passage.allowed, passage.becomes) == (False, None)


@pytest.mark.parametrize("seconds", [60, 61, 10**6])
def test_after_that_one_episode_is_let_through_as_the_probe(seconds):
    passage = asked(OPEN, "p1", seconds=seconds)
    assert passage.allowed
    assert (passage.becomes.status, passage.becomes.probe) == ("half_open", "p1")
    assert passage.becomes.probe_since == at(seconds)


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "canceled"])
@pytest.mark.parametrize("state", [OPEN, PROBED])
def test_while_it_is_not_closed_only_the_probe_has_a_say(state, outcome):
    assert ended(state, "e0", outcome) is state


# Half open.


@pytest.mark.parametrize("seconds", [60, 119.999, 500])
def test_the_probe_may_ask_again(seconds):
    passage = asked(PROBED, "p1", seconds=seconds)
    assert (passage.allowed, passage.becomes) == (True, None)


@pytest.mark.parametrize("seconds", [60, 119.999])
def test_nobody_else_is_let_through_beside_the_probe(seconds):
    assert not asked(PROBED, "p2", seconds=seconds).allowed


def test_a_probe_that_does_not_end_makes_room_for_another_one():
    passage = asked(PROBED, "p2", seconds=120)
    assert passage.allowed
    assert (passage.becomes.probe, passage.becomes.probe_since) == ("p2", at(120))


def test_a_probe_that_made_room_has_no_say_any_more():
    replaced = asked(PROBED, "p2", seconds=120).becomes
    assert ended(replaced, "p1", "succeeded", seconds=130) is replaced
    assert not asked(replaced, "p1", seconds=130).allowed


def test_a_canceled_probe_makes_room_at_once():
    freed = ended(PROBED, "p1", "canceled")
    assert (freed.status, freed.probe, freed.probe_since) == ("half_open", "", None)
    assert asked(freed, "p2", seconds=70).becomes.probe == "p2"


def test_a_probe_that_succeeds_closes_it():
    assert ended(PROBED, "p1", "succeeded") == BreakerState(probe="p1")


def test_one_that_fails_opens_it_for_another_time():
    state = ended(PROBED, "p1", "failed")
    assert state == BreakerState(status="open", failures=("e2", "e3", "p1"), opened_at=at(70))
    assert not asked(state, "p2", seconds=129.999).allowed
    assert asked(state, "p2", seconds=130).allowed


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "canceled"])
def test_telling_of_the_probe_twice_in_a_row_changes_nothing_more(outcome):
    once = ended(PROBED, "p1", outcome)
    expected = once if outcome != "failed" else ended(once, "p1", "failed", seconds=71)
    assert ended(once, "p1", outcome, seconds=71) == expected == once


# What is told of it.

FREED = ended(PROBED, "p1", "canceled")


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (CLOSED, CLOSED, None),
        (CLOSED, told(*failed("e1")), None),
        (CLOSED, OPEN, "opened"),
        (OPEN, OPEN, None),
        (OPEN, PROBED, "half_opened"),
        (PROBED, FREED, None),
        (PROBED, OPEN, "opened"),
        (PROBED, CLOSED, "closed"),
    ],
)
def test_a_change_of_status_is_told(before, after, change):
    assert transition(before, after) == change


@pytest.mark.parametrize(
    ("episode_id", "state", "change"),
    [
        ("e3", OPEN, "opened"),
        ("e2", OPEN, None),
        ("e3", CLOSED, None),
        ("e3", told(*failed("e1", "e3")), None),
        ("p1", ended(PROBED, "p1", "failed"), "opened"),
        ("p1", ended(PROBED, "p1", "succeeded"), "closed"),
        ("e3", ended(PROBED, "p1", "succeeded"), None),
        ("p1", PROBED, None),
        ("p1", FREED, None),
    ],
)
def test_it_shows_for_as_long_as_it_stands_whose_end_changed_it(episode_id, state, change):
    assert change_by(episode_id, state) == change


# Whom it has to do with.


def opened(id_="e1", *, trigger=None, mode=Mode.LIVE):
    return EpisodeOpened(
        episode_id=id_,
        actor_id="a",
        expectation_id="x",
        trigger=trigger or EventTrigger(event_id="1", event_type="thing.happened", payload={}),
        dedupe_key="k",
        budget=Budget(),
        mode=mode,
    )


TICK = ScheduleTrigger(scheduled_at=EPOCH, schedule="every 60s")
BY_HAND = ManualTrigger(requested_by="ada")


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (EndStatus.DONE, "succeeded"),
        (EndStatus.PARTIALLY_FAILED, "succeeded"),
        (EndStatus.FAILED, "failed"),
        (EndStatus.CANCELED, "canceled"),
    ],
)
@pytest.mark.parametrize("trigger", [None, TICK])
def test_every_end_says_something_to_it(status, outcome, trigger):
    assert outcome_of(opened(trigger=trigger), EpisodeFinished(status=status)) == outcome


@pytest.mark.parametrize("outside", [{"trigger": BY_HAND}, {"mode": Mode.DRY_RUN}])
def test_what_stands_outside_counts_for_nothing_and_is_not_canceled(outside):
    rules = Breaker(cancel_in_flight=True)
    assert outcome_of(opened(**outside), EpisodeFinished(status=EndStatus.FAILED)) is None
    assert not cancels(OPEN, rules, opened(**outside))


@pytest.mark.parametrize(
    ("state", "id_", "canceled"),
    [
        (CLOSED, "e1", False),
        (told(*failed("e1")), "e1", False),
        (OPEN, "e9", True),
        (PROBED, "e9", True),
        (PROBED, "p1", False),
        (FREED, "p1", True),
        (ended(PROBED, "p1", "succeeded"), "e9", False),
    ],
)
def test_while_it_is_not_closed_only_the_probe_runs_on(state, id_, canceled):
    assert cancels(state, Breaker(cancel_in_flight=True), opened(id_)) is canceled
    assert not cancels(state, Breaker(), opened(id_))


@pytest.mark.parametrize("state", [CLOSED, OPEN, PROBED, FREED])
def test_a_state_survives_the_way_to_json_and_back(state):
    assert msgspec.json.decode(msgspec.json.encode(state), type=BreakerState) == state


def test_what_json_leaves_out_is_a_closed_breaker():
    assert msgspec.json.decode(b"{}", type=BreakerState) == CLOSED


# What may be declared.


@pytest.mark.parametrize(
    "breaker",
    [
        Breaker(),
        Breaker(threshold=1, half_open_after_s=0.001, scope="node", cancel_in_flight=True),
        Breaker(threshold=THRESHOLD_MAX, half_open_after_s=HALF_OPEN_AFTER_S_MAX),
        Breaker(half_open_after_s=60),
    ],
)
def test_a_breaker_that_can_work_has_no_problem(breaker):
    assert problem_of_breaker(breaker) is None


@pytest.mark.parametrize(
    ("breaker", "problem"),
    [
        (5, "5 is not a Breaker(threshold=…"),
        (Breaker, "is not a Breaker(threshold=…"),
        (None, "None is not a Breaker"),
        (Breaker(threshold=0), "threshold=0 is not a whole number from 1 to 100"),
        (Breaker(threshold=THRESHOLD_MAX + 1), "threshold=101 is not"),
        (Breaker(threshold=2.0), "threshold=2.0 is not"),
        (Breaker(threshold=True), "threshold=True is not"),
        (Breaker(half_open_after_s=0), "half_open_after_s=0 is not a number of seconds over 0"),
        (Breaker(half_open_after_s=-1.0), "half_open_after_s=-1.0"),
        (Breaker(half_open_after_s=float("nan")), "half_open_after_s=nan"),
        (Breaker(half_open_after_s=float("inf")), "up to 604,800"),
        (Breaker(half_open_after_s=True), "half_open_after_s=True"),
        (Breaker(half_open_after_s="1m"), "half_open_after_s='1m'"),
        (Breaker(scope="planet"), "scope='planet' is not one of cluster, node"),
        (Breaker(scope=["node"]), "scope=['node'] is not one of"),
        (Breaker(cancel_in_flight=1), "cancel_in_flight=1 is not True or False"),
    ],
)
def test_one_that_cannot_is_told_so(breaker, problem):
    assert problem in problem_of_breaker(breaker)


class AnyLife(RuleBasedStateMachine):
    """Any order of asking, ending, losing and waiting. Episodes are numbered as they ask."""

    def __init__(self):
        super().__init__()
        self.state, self.now_s, self.asked = CLOSED, 0.0, 0
        self.running: set[str] = set()
        self.probing: dict[str, float] = {}  # Allowed while not closed, and when.
        self.in_a_row: list[str] = []  # Failed since it closed or one succeeded.

    @rule(seconds=st.sampled_from([1.0, 29.0, 59.0, 60.0, 200.0]))
    def time_passes(self, seconds):
        self.now_s += seconds

    @rule()
    def a_new_episode_asks(self):
        self.asked += 1
        self.ask(f"e{self.asked}")

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def an_episode_asks_again(self, data):
        self.ask(f"e{data.draw(st.integers(1, self.asked))}")

    def ask(self, id_):
        passage = asked(self.state, id_, seconds=self.now_s)
        if passage.allowed:
            self.running.add(id_)
            self.state = passage.becomes or self.state
            if self.state.status != "closed":
                self.probing[id_] = (self.state.probe_since - EPOCH).total_seconds()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), outcome=st.sampled_from(["succeeded", "failed", "failed", "canceled"]))
    def an_episode_ends(self, data, outcome):
        id_ = data.draw(st.sampled_from(sorted(self.running)))
        before, self.state = self.state, ended(self.state, id_, outcome, seconds=self.now_s)
        assert ended(self.state, id_, outcome, seconds=self.now_s) == self.state
        self.running.discard(id_)
        self.probing.pop(id_, None)
        self.count(id_, outcome, before)

    def count(self, id_, outcome, before):
        change = transition(before, self.state)
        if before.status == "closed" and outcome == "failed" and id_ not in self.in_a_row:
            self.in_a_row.append(id_)
        if (outcome == "succeeded" and before.status == "closed") or change == "closed":
            self.in_a_row.clear()
        if before.status == "closed":
            assert (change == "opened") == (len(self.in_a_row) == BREAKER.threshold)

    @invariant()
    def there_are_never_two_probes(self):
        under_way = [
            id_
            for id_, since_s in self.probing.items()
            if self.now_s - since_s < BREAKER.half_open_after_s
        ]
        assert len(under_way) <= 1

    @invariant()
    def it_keeps_no_more_than_it_needs(self):
        assert len(self.state.failures) <= BREAKER.threshold
        assert not (self.state.probe and self.state.status == "open")

    @invariant()
    def it_is_never_shut_for_good(self):
        later_s = self.now_s + BREAKER.half_open_after_s
        assert asked(self.state, "later", seconds=later_s).allowed


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(deadline=None)
