"""How an episode is opened, once, and asks for its turn."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from engine.app.actor import Actor
from engine.app.triggers import event
from engine.episodes.open import open_episode, untouched
from engine.lanes.intake import wanted_of
from engine.lanes.lane import EMPTY, LaneInputs, Limits, Wanted, beginning, closing, decide, evolve
from streams.errors import VersionConflict
from streams.model.events import (
    EndStatus,
    EpisodeFinished,
    EpisodeLeft,
    EpisodeOpened,
    EpisodeStarted,
    LaneKept,
    LaneMoved,
)
from streams.model.triggers import Budget, EventTrigger
from streams.ports.log import Commit, Recorded
from tests.engine.stage import Scripted
from tests.spec import EPOCH


def opened(payload=None, *, priority=0):
    trigger = EventTrigger(event_id="x", event_type="thing.happened", payload=payload or {})
    return EpisodeOpened(
        episode_id="e1",
        actor_id="worker",
        expectation_id="thing",
        trigger=trigger,
        dedupe_key="event:x",
        budget=Budget(),
        priority=priority,
    )


def expectation(**options):
    return Actor("worker").expect("thing", Scripted(), on=event("thing.happened"), **options)


def recorded(*events, seq=1):
    return Recorded(subject="s", seq=seq, commit=Commit(id="c", at=EPOCH, events=events))


@pytest.mark.parametrize(
    ("payload", "key"),
    [
        ({"order": {"customer": "ann"}}, "ann"),
        ({"order": {"customer": 7}}, "7"),
        ({"order": {"customer": None}}, ""),
        ({"order": {}}, ""),
        ({}, ""),
    ],
)
def test_the_key_is_the_value_at_the_path_as_text_and_without_one_none_counts(payload, key):
    wanted = wanted_of(
        opened(payload), expectation(concurrency_key="order.customer", concurrency=3)
    )
    assert (wanted.key, wanted.key_limit) == (key, 3 if key else 0)


def test_two_long_keys_are_two_however_much_they_share():
    keys = {
        wanted_of(opened({"k": "x" * 100_000 + end}), expectation(concurrency_key="k")).key
        for end in "ab"
    }
    assert len(keys) == 2


def test_the_priority_is_the_episodes_own():
    assert wanted_of(opened(priority=7), expectation(priority=1)).priority == 7


@pytest.mark.parametrize(
    "newest",
    [
        None,
        recorded(opened(), EpisodeStarted(node="n1", attempt=1)),
        recorded(EpisodeLeft(node="n1")),
        recorded(EpisodeFinished(status=EndStatus.CANCELED)),
    ],
)
def test_only_what_nobody_has_begun_may_wait(newest):
    assert untouched(newest) is None
    assert untouched(recorded(opened())) == opened()


def test_a_lane_that_is_closed_lets_all_that_wait_run():
    wanted = [Wanted(episode_id=each, expectation_id="thing") for each in ("e1", "e2", "e3")]
    seen = LaneInputs(wanted=wanted)
    (moved,) = decide(EMPTY, seen, Limits(capacity=1))
    lane = evolve(EMPTY, moved, version=1)

    moved, kept = closing(lane)
    assert isinstance(moved, LaneMoved)
    assert moved.admitted == ("e2", "e3")
    for each in (moved, kept):
        lane = evolve(lane, each, version=2)
    assert (lane.waiting, lane.admitted) == ((), ())
    assert kept == LaneKept(newest_number=3)
    assert beginning(recorded(moved, kept, seq=2)) == 1


class Unanswered:
    """A log that gets no answer to an append, and looks whether the commit of that id is there."""

    def __init__(self, log):
        self._log = log

    async def append(self, subject, commit, *, after):
        try:
            return await self._log.append(subject, commit, after=after)
        except VersionConflict:
            for record in await self._log.read(subject, after=after):
                if record.commit.id == commit.id:
                    return record.seq
            raise


async def test_what_was_opened_before_is_not_new_though_no_answer_came(ports):
    unanswered = replace(ports, log=Unanswered(ports.log))
    first = await open_episode(ports, opened(), at=EPOCH, trace="")
    later = EPOCH + timedelta(seconds=12)
    assert (first, await open_episode(unanswered, opened(), at=later, trace="")) == (True, False)
