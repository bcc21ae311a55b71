"""Signals and waits for them: whichever comes second sees the other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given as draw
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.waits import signal as rules
from engine.waits.approval import REQUESTS
from engine.waits.signal import CLOCKS_S, KEPT_S, Signal, SignalState
from streams.json import raw
from streams.model.events import SignalEvent, SignalGiven, SignalWaited
from streams.ports.log import Commit, Recorded

REF = "payment:42"
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def at(after_s: float) -> datetime:
    return NOON + timedelta(seconds=after_s)


def waited(
    episode: str,
    *,
    since_s: float = 0.0,
    step_no: int = 1,
    takes: str = "",
    is_ahead: bool = False,
) -> SignalWaited:
    return SignalWaited(
        ref=REF,
        actor_id="worker",
        episode_id=episode,
        step_no=step_no,
        since=at(since_s),
        signal_id=takes,
        is_ahead=is_ahead,
    )


def said(id_: str) -> Signal:
    return Signal(id=id_, ref=REF, by="bank", result=raw(id_))


def sent(id_: str, *episodes: str, at_s: float = 0.0, ahead: tuple[str, ...] = ()) -> SignalGiven:
    return SignalGiven(
        ref=REF,
        id=id_,
        by="bank",
        at=at(at_s),
        result=raw(id_),
        episodes=episodes,
        ahead=ahead,
    )


def given(*past: SignalEvent) -> SignalState:
    return rules.fold(
        Recorded(subject="s", seq=n, commit=Commit(id=f"c{n}", at=NOON, events=(each,)))
        for n, each in enumerate(past, start=1)
    )


def due(state: SignalState) -> dict[str, str]:
    return {episode: each.id for episode, each in state.due.items()}


# A signal comes.


def test_a_signal_is_for_all_that_wait():
    past = given(waited("a"), waited("b"))
    events = rules.give(past, said("s1"), ["a", "b"], at=at(0))
    assert events == (sent("s1", "a", "b"),)
    assert due(given(waited("a"), waited("b"), *events)) == {"a": "s1", "b": "s1"}


def test_a_signal_that_comes_again_is_one():
    past = given(waited("a"), sent("s1", "a"))
    assert rules.give(past, said("s1"), ["a"], at=at(0)) == ()
    assert due(past) == {"a": "s1"}, "and whoever brings it again knows to whom"


def test_of_an_episode_that_waits_no_more_nothing_is_kept():
    past = given(waited("a"), waited("b"), sent("s1", "b"))
    assert list(past.waits) == ["b"]


def test_a_signal_that_is_sent_anew_reaches_who_waits_by_now():
    past = given(sent("s1"), waited("a", since_s=KEPT_S + 1))
    assert rules.give(past, said("s1"), ["a"], at=at(7_200)) == (sent("s1", "a", at_s=7_200),)


def test_a_signal_that_somebody_has_had_is_not_kept_when_it_is_sent_anew():
    past = given(waited("a"), sent("s1", "a"))
    assert rules.give(past, said("s1"), [], at=at(300)) == ()


# An episode begins to wait.


@pytest.mark.parametrize(
    ("since_s", "takes"), [(-60.0, "s1"), (0.0, "s1"), (KEPT_S, "s1"), (KEPT_S + 1, "")]
)
def test_a_signal_that_nobody_has_had_counts_for_an_hour(since_s, takes):
    (event,) = rules.wait(given(sent("s1")), waited("a", since_s=since_s))
    assert event == waited("a", since_s=since_s, takes=takes)


def test_it_is_for_one():
    past = given(sent("s1"), waited("a", since_s=60, takes="s1"))
    assert rules.wait(past, waited("b", since_s=61)) == (waited("b", since_s=61),)
    assert due(past) == {"a": "s1"}


def test_they_are_taken_in_the_order_in_which_they_came_and_each_is_for_one():
    past = given(sent("s1"), sent("s2", at_s=1))
    assert rules.wait(past, waited("a", since_s=2)) == (waited("a", since_s=2, takes="s1"),)
    past = given(sent("s1"), sent("s2", at_s=1), waited("a", since_s=2, takes="s1"))
    assert rules.wait(past, waited("b", since_s=3)) == (waited("b", since_s=3, takes="s2"),)


@pytest.mark.parametrize(
    ("since_s", "takes"), [(-60.0, "s1"), (CLOCKS_S, "s1"), (CLOCKS_S + 1, "")]
)
def test_what_others_have_had_is_for_those_too_who_waited_and_were_not_on_the_journal_yet(
    since_s, takes
):
    past = given(waited("a"), sent("s1", "a"))
    (event,) = rules.wait(past, waited("b", since_s=since_s))
    assert event.signal_id == takes


def test_no_episode_takes_the_same_signal_twice():
    past = given(waited("a"), sent("s1", "a", at_s=1))
    assert rules.wait(past, waited("a", since_s=1, step_no=2)) == (
        waited("a", since_s=1, step_no=2),
    )
    past = given(sent("s1"), waited("a", takes="s1"))
    assert rules.wait(past, waited("a", step_no=2)) == (waited("a", step_no=2),)


def test_a_wait_is_written_down_once():
    past = given(sent("s1"), waited("a", takes="s1"), waited("a", since_s=9, step_no=2))
    assert rules.wait(past, waited("a", since_s=9, step_no=2)) == ()
    assert rules.wait(past, waited("a")) == (), "nor does a slow node put an old one in its place"


# Several in a row.


def test_an_episode_is_due_what_came_first_since_it_waits():
    assert due(given(waited("a"), sent("s1", "a"), sent("s2", "a"))) == {"a": "s1"}
    assert due(given(waited("a"), sent("s1", "a"), waited("a", step_no=2))) == {}


def test_what_comes_while_another_is_due_is_for_the_next_wait_in_the_order_of_arrival():
    past: list[SignalEvent] = [waited("a")]
    past += [sent(each, "a") for each in ("s1", "s2", "s3")]
    assert given(*past).is_unclaimed(said("s2")), "as long as no wait has taken it"
    for step_no, takes in ((2, "s2"), (3, "s3"), (4, "")):
        (taken,) = rules.wait(given(*past), waited("a", step_no=step_no))
        assert taken.signal_id == takes
        past.append(taken)
        assert due(given(*past)) == ({"a": takes} if takes else {})


def test_so_it_is_if_another_episode_has_had_it_meanwhile_for_an_hour():
    past = given(waited("a"), sent("s1", "a"), waited("b"), sent("s2", "a", "b"))
    assert due(past) == {"a": "s1", "b": "s2"}
    for since_s, takes in ((KEPT_S, "s2"), (KEPT_S + 1, "")):
        (taken,) = rules.wait(past, waited("a", since_s=since_s, step_no=2))
        assert taken.signal_id == takes


def test_one_that_is_sent_anew_reaches_the_next_wait_that_has_nothing_due():
    past = given(
        waited("a"), sent("s1", "a"), sent("s2", "a"), waited("a", step_no=2), sent("s2", "a")
    )
    assert due(past) == {"a": "s2"}
    again = given(waited("a"), sent("s1", "a"), sent("s1", "a", at_s=300))
    assert due(again) == {"a": "s1"}, "and is no second one to whom it is due already"
    assert not again.is_unclaimed(said("s1"))


def test_a_wait_with_a_signal_due_is_answered_and_a_wait_ahead_is_not():
    past = given(waited("a"), sent("s1", "a"), waited("b"), waited("c", is_ahead=True))
    left = past.unanswered(past.waits.values())
    assert [each.episode_id for each in left] == ["b", "c"]


def test_what_others_have_had_is_not_taken_once_a_newer_one_was():
    past = given(sent("s1", "b"), waited("a"), sent("s2", "a"))
    (taken,) = rules.wait(past, waited("a", since_s=1, step_no=2))
    assert taken.signal_id == ""


def test_who_has_waited_before_takes_in_order_what_others_have_had_too():
    past = given(waited("a"), sent("s1", "a"), sent("s2", "b"), sent("s3"))
    (taken,) = rules.wait(past, waited("a", since_s=1, step_no=2))
    assert taken.signal_id == "s2"


def test_who_is_new_takes_what_nobody_has_had_before_what_others_had_before_it_waited():
    past = given(sent("s1", "b"), sent("s2"))
    assert rules.wait(past, waited("a", since_s=1))[0].signal_id == "s2"
    assert rules.wait(past, waited("a", since_s=0))[0].signal_id == "s1", "it waited by then"


def test_of_two_decisions_on_a_request_its_episode_takes_the_first_that_comes_to_it():
    first, second = [
        replace(sent(name, "a"), ref=f"{REQUESTS}1", request_no=1) for name in ("d1", "d2")
    ]
    assert due(given(waited("a"), first, second)) == {"a": "d2"}


# Whatever their order.


@draw(st.permutations(["a", "b", "s1", "s2"]))
def test_with_a_signal_for_each_nobody_is_left_without_one(order):
    events: list[SignalEvent] = []
    had: set[str] = set()
    for number, each in enumerate(order):
        state = given(*events)
        if each.startswith("s"):
            waiting = [one for one in state.waits if one not in had]
            events += rules.give(state, said(each), waiting, at=at(number * 60))
        else:
            events += rules.wait(state, waited(each, since_s=number * 60))
        had |= set(due(given(*events)))
    assert had == {"a", "b"}


# An episode that waits for something else first.


LATE_S = 9 * KEPT_S


def test_what_came_before_its_turn_is_sent_to_nobody_and_kept():
    past = given(waited("a", is_ahead=True))
    events = rules.give(past, said("s1"), [], at=at(0), ahead=["a"])
    assert events == (sent("s1", ahead=("a",)),)
    after = given(waited("a", is_ahead=True), *events)
    assert (due(after), after.kept_for(said("s1"))) == ({}, {"a"})
    assert after.is_unclaimed(said("s1"))


def test_what_came_before_its_turn_is_taken_then_however_late():
    past = given(waited("a", is_ahead=True), sent("s1", ahead=("a",)))
    late = waited("a", step_no=2, since_s=LATE_S)
    assert rules.wait(past, late) == (waited("a", step_no=2, since_s=LATE_S, takes="s1"),)


def test_each_of_several_that_came_before_is_for_one_of_its_waits_in_the_order_they_came():
    past: list[SignalEvent] = [waited("a", is_ahead=True)]
    past += [sent("s1", ahead=("a",)), sent("s2", at_s=5, ahead=("a",))]
    took = []
    for step_no in (2, 3, 4):
        (taken,) = rules.wait(given(*past), waited("a", step_no=step_no, since_s=LATE_S))
        took.append(taken.signal_id)
        past.append(taken)
    assert took == ["s1", "s2", ""]


def test_what_others_had_before_its_turn_is_for_it_as_well():
    past = given(waited("a", is_ahead=True), waited("b"), sent("s1", "b", ahead=("a",)))
    assert due(past) == {"b": "s1"}
    (taken,) = rules.wait(past, waited("a", step_no=2, since_s=LATE_S))
    assert taken.signal_id == "s1"


def test_what_comes_anew_is_still_kept_for_whom_it_was_kept_before():
    again = sent("s1", "b", at_s=7_200)
    past = given(waited("a", is_ahead=True), sent("s1", ahead=("a",)), waited("b"), again)
    assert past.kept_for(said("s1")) == {"a"}
    assert list(past.waits) == ["b"], "of all others it was seen that they wait no more"


def test_a_wait_ahead_is_written_down_once_and_does_not_stand_for_the_wait():
    past = given(waited("a", is_ahead=True))
    assert rules.wait(past, waited("a", step_no=5, is_ahead=True)) == ()
    assert not past.is_registered("a", 1)
    assert rules.wait(past, waited("a")) == (waited("a"),)


def test_who_waits_already_need_not_wait_ahead():
    past = given(waited("a", step_no=3))
    assert rules.wait(past, waited("a", step_no=3, is_ahead=True)) == ()


def test_a_wait_ahead_follows_one_of_the_same_episode_that_is_over():
    past = given(waited("a"), sent("s1", "a"))
    ahead = waited("a", step_no=2, is_ahead=True)
    assert rules.wait(past, ahead) == (ahead,), "and what it had is not for it again"


def test_an_early_signal_is_kept_for_a_wait_ahead():
    (ahead,) = rules.wait(given(sent("s1")), waited("a", since_s=9, is_ahead=True))
    assert ahead.signal_id == "s1"
    after = given(sent("s1"), ahead)
    assert (due(after), after.is_unclaimed(said("s1"))) == ({}, True)
    (taken,) = rules.wait(after, waited("a", step_no=2, since_s=LATE_S))
    assert taken.signal_id == "s1"


@pytest.mark.parametrize(("coming", "takes"), [(["a"], ""), ([], "s1")])
def test_what_is_kept_is_for_another_only_if_nobody_comes_to_it_any_more(coming, takes):
    past = given(waited("a", is_ahead=True), sent("s1", ahead=("a",)))
    assert [each.episode_id for each in past.first_in_line("b")] == ["a"]
    (event,) = rules.wait(past, waited("b", since_s=60), coming=coming)
    assert event.signal_id == takes


def test_nobody_is_first_in_line_for_what_somebody_has_had_or_before_itself():
    ahead = waited("a", is_ahead=True)
    assert given(ahead, sent("s1", "b", ahead=("a",))).first_in_line("c") == []
    assert given(ahead, sent("s1", ahead=("a",))).first_in_line("a") == []
    assert given(waited("a"), sent("s1", ahead=("a",))).first_in_line("b") == []


@draw(st.lists(st.sampled_from(["signal", "wait"]), max_size=12))
def test_an_episode_that_waits_again_and_again_has_all_signals_in_order(steps):
    """Whether they come before a wait, while another is due, or between two waits."""
    past: list[SignalEvent] = []
    came: list[str] = []
    had: list[str] = []
    for number, step in enumerate([*steps, *["wait"] * len(steps)], start=1):
        state = given(*past)
        if step == "signal":
            came.append(f"s{number}")
            past += rules.give(state, said(came[-1]), list(state.waits), at=at(number))
        else:  # It has got what was due to its wait before.
            past += rules.wait(state, waited("a", since_s=number, step_no=number))
        had += [id_ for id_ in due(given(*past)).values() if id_ not in had]
    assert had == came
