"""The verdict sees what it is there to see: each kind of wrong, in a life made up for it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from streams.layout import Kind
from streams.model.events import (
    EndStatus,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeStarted,
    LogEvent,
    StepAnnounced,
    StepKind,
    StepRecorded,
)
from streams.model.triggers import Budget, EventTrigger
from streams.ports.log import Commit, Recorded
from tests.chaos.ledger import Call, Effect, Entries
from tests.chaos.verdict import Verdict, exercised, judge

BEGUN: Final = datetime(2030, 1, 1, tzinfo=UTC)
KEY: Final = "one:1"


def opened(episode_id: str = "one") -> EpisodeOpened:
    return EpisodeOpened(
        episode_id=episode_id,
        actor_id="orders",
        expectation_id="settle",
        trigger=EventTrigger(event_id="e1", event_type="order.settle", payload={}),
        dedupe_key="e1",
        budget=Budget(),
    )


STARTED: Final = EpisodeStarted(node="n1", attempt=1, claim_revision=1)
ANNOUNCED: Final = StepAnnounced(
    step_no=1, fingerprint="f", tool_name="charges.charge", idempotency_key=KEY
)
RECORDED: Final = StepRecorded(
    step_no=1, kind=StepKind.TOOL_CALL, fingerprint="f", result=msgspec.Raw(b'{"receipt":1}')
)
DONE: Final = EpisodeFinished(status=EndStatus.DONE)
WELL: Final = (opened(), STARTED, ANNOUNCED, RECORDED, DONE)


def life(*events: LogEvent) -> Sequence[Recorded]:
    """Return a life with one event in each commit, a second apart."""
    return [
        Recorded(
            subject="vigil.episode.one",
            seq=n + 1,
            commit=Commit(id=f"c{n}", at=BEGUN + timedelta(seconds=n), events=(event,)),
        )
        for n, event in enumerate(events)
    ]


def called(at_s: float, *, node: str = "n1") -> Call:
    begun_at = BEGUN + timedelta(seconds=at_s)
    return Call(key=KEY, honoured=True, node=node, begun_at=begun_at)


def ledger(*calls: Call, effects: int = 1) -> Entries:
    return Entries(
        {KEY: list(calls)}, {KEY: [Effect(key=KEY, receipt=n + 1) for n in range(effects)]}
    )


WELL_CALLED: Final = ledger(called(2.5))


def verdict(
    *lives: Sequence[Recorded],
    entries: Entries = WELL_CALLED,
    diffs: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> Verdict:
    numbered = {(Kind.EPISODE, f"id{n}"): each for n, each in enumerate(lives)}
    return judge(["e1"], numbered, entries, diffs, missing)


def test_a_life_as_it_should_be_is_not_complained_about():
    assert verdict(life(*WELL)).faults() == []


def test_a_call_made_again_before_it_was_recorded_is_as_it_should_be():
    entries = ledger(called(2.1), called(2.9, node="n2"))

    assert verdict(life(*WELL), entries=entries).faults() == []


def test_an_event_that_nobody_heard_is_lost():
    assert len(verdict(entries=Entries({}, {})).lost) == 1


def test_an_episode_that_failed_for_no_reason_is_lost():
    failed = EpisodeFinished(status=EndStatus.FAILED, error_class="attempts_exhausted")

    assert len(verdict(life(*WELL[:-1], failed)).lost) == 1


def test_only_an_effect_that_cannot_be_repeated_may_end_as_unknown():
    unknown = EpisodeFinished(status=EndStatus.FAILED, error_class="outcome_unknown")
    notify = msgspec.structs.replace(opened(), expectation_id="notify")

    assert len(verdict(life(opened(), STARTED, ANNOUNCED, unknown)).lost) == 1
    assert verdict(life(notify, STARTED, ANNOUNCED, unknown)).faults() == []


def test_a_recorded_effect_that_the_outside_does_not_know_is_lost():
    assert len(verdict(life(*WELL), entries=Entries({}, {})).lost) == 1


def test_two_episodes_of_one_event_are_doubled():
    assert len(verdict(life(*WELL), life(*WELL)).doubled) == 1


def test_a_second_end_and_a_second_record_of_a_step_are_doubled():
    assert len(verdict(life(*WELL, DONE)).doubled) == 1
    assert len(verdict(life(*WELL[:-1], RECORDED, DONE)).doubled) == 1


def test_two_effects_of_one_key_are_doubled():
    entries = ledger(called(2.5), called(2.6, node="n2"), effects=2)

    assert len(verdict(life(*WELL), entries=entries).doubled) == 1


def test_a_call_that_began_after_its_step_was_recorded_is_doubled():
    entries = ledger(called(2.5), called(3.5, node="n2"))

    assert len(verdict(life(*WELL), entries=entries).doubled) == 1


def test_an_episode_that_has_not_ended_is_stuck():
    assert len(verdict(life(*WELL[:-1])).stuck) == 1


def test_a_table_that_differs_is_told():
    assert verdict(life(*WELL), diffs=["a row"]).faults() == ["projection_diffs: a row"]


def test_what_nobody_was_told_counts():
    assert verdict(life(*WELL), missing=["an event"]).faults() == ["events_missing: an event"]


def test_the_steps_of_branches_are_told_apart_by_their_paths():
    """Both are announced as the next step; and a sleep that was announced has no effect."""
    begun = [
        msgspec.structs.replace(ANNOUNCED, idempotency_key=f"one:{path}", path=path)
        for path in ("1.1.1", "1.2.1")
    ]
    slept = msgspec.structs.replace(ANNOUNCED, path="1.3.1", until=BEGUN, tool_name="sleep")
    done = [
        msgspec.structs.replace(RECORDED, step_no=number, path=path)
        for number, path in enumerate(("1.2.1", "1.1.1", "1.3.1"), start=1)
    ]
    lived = life(opened(), STARTED, *begun, slept, *done, DONE)
    noted = Entries({}, {f"one:{path}": [Effect(key="", receipt=1)] for path in ("1.1.1", "1.2.1")})
    assert verdict(lived, entries=noted).faults() == []


def counted(*events: LogEvent):
    return exercised({(Kind.EPISODE, "one"): life(*events)}, Entries({}, {}))


def test_a_takeover_counts_though_steps_were_recorded_after_it():
    taken_over = (opened(), STARTED, STARTED, ANNOUNCED, RECORDED, DONE)

    assert counted(*taken_over)["takeovers"] == 1
    assert counted(*WELL)["takeovers"] == 0
