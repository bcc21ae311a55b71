"""The verdict sees what it is there to see: each kind of wrong, in a life made up for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from msgspec.structs import replace as changed

from streams.json import raw
from streams.model.events import (
    BlockReason,
    EndStatus,
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeStarted,
    LogEvent,
    StepAnnounced,
    StepKind,
    StepRecorded,
)
from streams.model.triggers import Budget, EventTrigger
from streams.model.waits import Approval, Wait
from streams.ports.log import Commit, Recorded
from streams.subjects import Stack
from streams.wire.messages import MESSAGE_ID_HEADER, StreamMessage
from tests.attack.evidence import Evidence
from tests.attack.faults import Fault
from tests.attack.ledger import Entry
from tests.attack.stories import Story
from tests.attack.verdict import breaches, outcomes_unknown
from tests.told import expected

STACK: Final = Stack("attack1")
BEGUN: Final = datetime(2030, 1, 1, tzinfo=UTC)
ID: Final = "0c043058-db6d-81b1-86e9-27853dad373b"

OPENED: Final = EpisodeOpened(
    episode_id=ID,
    actor_id="attacked",
    expectation_id="letters",
    trigger=EventTrigger(event_id="order1", event_type="attack.letters", payload={}),
    dedupe_key="order1",
    budget=Budget(),
)
STARTED: Final = EpisodeStarted(node="n1", attempt=1, claim_revision=1)
TAKEN_OVER: Final = EpisodeStarted(node="n2", attempt=2, claim_revision=2)
DONE: Final = EpisodeFinished(status=EndStatus.DONE)
UNKNOWN: Final = EpisodeFinished(status=EndStatus.FAILED, error_class="outcome_unknown")

NONCES: Final = ("0" * 12, "1" * 12)


def announced(number: int, tool: str) -> StepAnnounced:
    return StepAnnounced(
        step_no=number, fingerprint="f", tool_name=f"{tool}.call", idempotency_key=key(number)
    )


def recorded(number: int, tool: str, tag: str) -> StepRecorded:
    return StepRecorded(
        step_no=number,
        kind=StepKind.TOOL_CALL,
        fingerprint="f",
        tool_name=f"{tool}.call",
        args=raw({"tag": tag}),
        result=raw(NONCES[number - 1]),
    )


def key(number: int) -> str:
    return f"{ID}:{number}:f"


CONVERGED: Final = EpisodeConverged(result=raw({"seen": NONCES}))
CALLED: Final = (
    announced(1, "charge"),
    recorded(1, "charge", "a"),
    announced(2, "letter"),
    recorded(2, "letter", "b"),
)
WELL: Final = (OPENED, STARTED, *CALLED, CONVERGED, DONE)

CHARGED: Final = Entry(
    what="charge",
    tag="a",
    key=key(1),
    nonce=NONCES[0],
    node="n1",
    at_s=(BEGUN + timedelta(seconds=2.5)).timestamp(),
)
SENT: Final = Entry(
    what="letter",
    tag="b",
    key=key(2),
    nonce=NONCES[1],
    seen=NONCES[:1],
    node="n1",
    at_s=(BEGUN + timedelta(seconds=4.5)).timestamp(),
)

LETTERS: Final = Story(name="letters", calls="ab", findings=0)


def life(*events: LogEvent) -> Sequence[Recorded]:
    """Return a life with one event in each commit, a second apart."""
    return [
        Recorded(
            subject=STACK.episode(ID),
            seq=n + 1,
            commit=Commit(id=f"c{n}", at=BEGUN + timedelta(seconds=n), events=(event,)),
        )
        for n, event in enumerate(events)
    ]


def left_behind(
    *events: LogEvent,
    entries: Sequence[Entry] = (CHARGED, SENT),
    fault: Fault | None = Fault.DROP,
    story: Story = LETTERS,
) -> Evidence:
    """Return what a case has left behind whose events have been told."""
    records = life(*events)
    follows = [each for told in expected(records, STACK).values() for each in told]
    told = [
        StreamMessage(
            seq=seq,
            subject=STACK.event(event.name),
            headers={MESSAGE_ID_HEADER: event.id},
            data=bytes(raw(event.payload)),
            at=BEGUN,
        )
        for seq, event in enumerate(follows, start=1)
    ]
    return Evidence(
        story=story, fault=fault, stack=STACK, records=records, told=told, entries=entries
    )


def test_a_case_that_ended_as_it_should_is_not_complained_about():
    assert breaches(left_behind(*WELL)) == []


def test_an_episode_that_goes_on_after_its_end_is_a_breach():
    (found, *_) = breaches(left_behind(*WELL, TAKEN_OVER))

    assert "goes on after its end" in found


def test_an_episode_that_does_not_end_is_a_breach():
    assert any("has not ended" in each for each in breaches(left_behind(*WELL[:-1])))


def test_an_event_that_opens_nothing_is_a_breach():
    evidence = Evidence(story=LETTERS, fault=None, stack=STACK, records=(), told=(), entries=())

    assert "the event has opened 0 episodes or instances" in breaches(evidence)


def test_what_is_written_to_an_earlier_episode_is_a_breach():
    (found,) = breaches(left_behind_stray())

    assert "of an earlier case" in found


def left_behind_stray() -> Evidence:
    return replace(left_behind(*WELL), records=life(STARTED))


def test_a_letter_that_is_sent_twice_is_a_breach():
    assert breaches(left_behind(*WELL, entries=(CHARGED, SENT, SENT))) == [
        "letter b was sent 2 times"
    ]


def test_a_charge_with_two_keys_is_a_breach():
    again = changed(CHARGED, key=key(9))
    (found,) = breaches(left_behind(*WELL, entries=(CHARGED, again, SENT)))

    assert found == "charge a was made with 2 keys, for 1 receipts"


def test_a_charge_that_is_repeated_under_its_key_is_as_it_should_be():
    assert breaches(left_behind(*WELL, entries=(CHARGED, CHARGED, SENT))) == []


def test_a_charge_that_is_made_once_it_is_recorded_is_a_breach():
    late = changed(CHARGED, at_s=(BEGUN + timedelta(seconds=3.5)).timestamp())
    (found,) = breaches(left_behind(*WELL, entries=(CHARGED, late, SENT)))

    assert found == "charge a was made 0.500 s after it was recorded"


@pytest.mark.parametrize(("entry", "is_breach"), [(CHARGED, False), (SENT, True)])
def test_a_node_that_stood_still_in_a_call_goes_on_with_what_is_known_by_its_key(entry, is_breach):
    late = changed(entry, at_s=(BEGUN + timedelta(seconds=60)).timestamp())
    found = breaches(replace(left_behind(*WELL, entries=(CHARGED, SENT, late)), fault=Fault.FREEZE))
    assert any("after it was recorded" in each for each in found) is is_breach


def test_a_call_that_was_told_something_else_than_the_journal_has_is_a_breach():
    misled = changed(SENT, seen=("2" * 12,))
    (found,) = breaches(left_behind(*WELL, entries=(CHARGED, misled)))

    assert "is not on the journal" in found


def test_a_conclusion_from_something_else_than_the_journal_has_is_a_breach():
    misled = EpisodeConverged(result=raw({"seen": ["2" * 12]}))
    (found,) = breaches(left_behind(*WELL[:-2], misled, DONE))

    assert "concluded from" in found


def test_a_call_that_was_not_made_is_a_breach():
    shorter = EpisodeConverged(result=raw({"seen": NONCES[:1]}))
    (found,) = breaches(left_behind(*WELL[:4], shorter, DONE, entries=(CHARGED,)))

    assert found == "calls recorded: {} too many, {'b': 1} too few"


def test_a_step_that_is_recorded_twice_is_a_breach():
    twice = (*WELL[:4], recorded(1, "charge", "a"), *WELL[4:])

    assert any("recorded the steps [1, 1, 2]" in each for each in breaches(left_behind(*twice)))


BLOCKED: Final = EpisodeBlocked(step_no=2, reason=BlockReason.WAIT, fingerprint="f")


def test_a_letter_that_was_open_at_a_takeover_may_leave_an_outcome_unknown():
    evidence = left_behind(*WELL[:5], TAKEN_OVER, UNKNOWN)

    assert breaches(evidence) == []
    assert outcomes_unknown(evidence) == 1


def test_no_outcome_is_unknown_where_no_letter_was_open():
    (found,) = breaches(left_behind(*WELL[:4], TAKEN_OVER, UNKNOWN, entries=(CHARGED,)))

    assert "no letter was open at a takeover" in found


def test_a_node_that_was_told_to_stop_leaves_no_outcome_unknown():
    (found,) = breaches(left_behind(*WELL[:5], TAKEN_OVER, UNKNOWN, fault=Fault.TERM))

    assert "no node has crashed" in found


def test_people_who_are_asked_twice_are_a_breach():
    asked = changed(BLOCKED, reason=BlockReason.APPROVAL, approval=Approval(plan_hash="h"))
    story = replace(LETTERS, approvals=1)
    found = breaches(left_behind(*WELL[:-1], asked, asked, DONE, story=story))

    assert f"episode {ID} asked 2 times at 2" in found


def test_a_sleep_that_begins_anew_or_is_cut_short_is_a_breach():
    def asleep(until_s: float) -> EpisodeBlocked:
        until = BEGUN + timedelta(seconds=until_s)
        return changed(BLOCKED, step_no=3, wait=Wait(ref="", expires_at=until))

    woken = StepRecorded(step_no=3, kind=StepKind.WAIT, fingerprint="f")
    story = replace(LETTERS, sleeps=(94.0,))
    found = breaches(
        left_behind(*WELL[:6], asleep(100), asleep(200), woken, *WELL[6:], story=story)
    )

    assert any("began its sleep at 3 anew" in each for each in found)
    assert any("woke at" in each for each in found)


def test_a_public_event_that_is_missing_or_comes_twice_is_a_breach():
    evidence = left_behind(*WELL)
    first, *others = evidence.told

    assert "nobody was told" in breaches(replace(evidence, told=others))[0]
    assert breaches(replace(evidence, told=[first, first, *others])) != []


def test_a_public_event_that_follows_from_nothing_is_a_breach():
    evidence = left_behind(*WELL)
    made_up = StreamMessage(
        seq=9,
        subject=STACK.event("finding.raised"),
        headers={MESSAGE_ID_HEADER: "made up"},
        data=b"{}",
        at=BEGUN,
    )
    (found,) = breaches(replace(evidence, told=[*evidence.told, made_up]))

    assert found == "finding.raised made up was published, and follows from nothing"
