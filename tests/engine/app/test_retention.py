"""How long things are kept, as a stack and its actors declare it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.app.actor import Actor
from engine.app.checks import kept_of, problem_of_retention
from engine.errors import DeclarationError
from streams.model.retention import Retention

DAY_S = 86_400


def test_times_are_written_as_seconds_words_or_timedeltas():
    kept = kept_of(Retention(done="30d", failed=timedelta(days=400), findings=7_200))
    assert kept == {"done": 30 * DAY_S, "failed": 400 * DAY_S, "findings": 7_200}


def test_what_nobody_gives_a_time_for_is_kept_for_ever():
    assert kept_of(Retention()) == {}


def test_failures_are_kept_four_times_as_long_unless_somebody_says_otherwise():
    assert kept_of(Retention(done="30d")) == {"done": 30 * DAY_S, "failed": 120 * DAY_S}
    assert kept_of(Retention(done="30d", failed="10d"))["failed"] == 10 * DAY_S
    assert kept_of(Retention(failed="10d")) == {"failed": 10 * DAY_S}
    assert kept_of(Retention(done="36600d"))["failed"] == 36_600 * DAY_S


@pytest.mark.parametrize(
    ("retention", "problem"),
    [
        ("30d", "'30d' is not a Retention(done=…, …)"),
        (Retention(done="soon"), "done='soon' is not a duration"),
        (Retention(findings="59m"), "findings='59m' is not from 1h to"),
        (Retention(outputs=True), "outputs=True is not a duration"),
    ],
)
def test_what_cannot_be_kept_so_is_refused_by_stacks_and_actors(retention, problem):
    assert problem in problem_of_retention(retention)
    with pytest.raises(DeclarationError) as refused:
        Actor("a", retention=retention)
    assert refused.value.field == "retention"
    assert problem in str(refused.value)


@pytest.mark.parametrize("name", ["dead_letters", "events", "journal", "archive"])
def test_an_actor_says_nothing_of_what_the_whole_stack_shares(name):
    with pytest.raises(DeclarationError, match=f"{name}: is for the whole stack"):
        Actor("a", retention=Retention(**{name: "30d"}))


@pytest.mark.parametrize(
    ("journal", "events", "is_refused"),
    [("7d", None, False), ("6d", None, True), ("2d", "2d", False), ("8d", "9d", True)],
)
def test_the_journal_is_kept_at_least_as_long_as_events_that_could_open_an_episode_again(
    journal, events, is_refused
):
    problem = problem_of_retention(Retention(journal=journal, events=events))
    assert is_refused is ("could open its episode again" in (problem or ""))


@pytest.mark.parametrize(
    ("archive", "journal", "is_refused"),
    [("14d", "14d", False), ("13d", "14d", True), ("14d", None, True), (None, "14d", False)],
)
def test_the_archive_is_kept_at_least_as_long_as_the_journal(archive, journal, is_refused):
    problem = problem_of_retention(Retention(archive=archive, journal=journal))
    assert is_refused is ("keep the archive at least as long" in (problem or ""))
