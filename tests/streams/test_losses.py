"""Whether a stream has lost its past, by what was known of it."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from streams.model.losses import (
    Consent,
    KnownPast,
    Lack,
    LogLost,
    Loss,
    StreamState,
    accepted,
    ends_early,
    further,
    may_catch_up,
    read_notes,
    what_is_lost,
)

FIRST = "2030-01-01T00:00:00Z"
LATER = "2030-02-01T00:00:00Z"
AT = datetime(2030, 3, 1, tzinfo=UTC)


def known(seq=0, *, created=FIRST, floor=1) -> KnownPast:
    return KnownPast(created=created, seq=seq, floor=floor)


def holding(first, last, *, created=FIRST) -> StreamState:
    return StreamState(
        created=created, first_seq=first, last_seq=last, messages=max(0, last - first + 1)
    )


EMPTY = holding(0, 0)


@pytest.mark.parametrize(
    ("part", "was", "now"),
    [
        ("journal", known(), EMPTY),
        ("journal", known(7), holding(1, 7)),
        ("journal-0of4", known(7), holding(1, 9)),
        ("state", KnownPast(), holding(1, 9)),
        ("journal", known(7, floor=5), holding(5, 9)),
        ("journal", known(7, floor=8), holding(8, 7)),
        ("events", known(7), holding(8, 7)),
        ("work", known(7), holding(6, 9)),
        ("dead", known(7), holding(3, 9)),
        ("claims", known(7), holding(8, 7)),
        ("registry", known(7), holding(7, 7)),
        ("gates", known(), EMPTY),
        ("blobs", KnownPast(), None),
    ],
)
def test_a_stream_that_has_what_was_known_has_lost_nothing(part, was, now):
    assert what_is_lost(part, was, now) is None


@pytest.mark.parametrize(
    ("part", "was", "now", "lack"),
    [
        ("journal", known(7), None, Lack.MISSING),
        ("journal", KnownPast(seq=7), None, Lack.MISSING),
        ("blobs", known(), None, Lack.MISSING),
        ("work", known(7), holding(1, 9, created=LATER), Lack.MADE_ANEW),
        ("journal", known(7), holding(1, 6), Lack.ENDS_EARLY),
        ("events", known(7), holding(3, 6), Lack.ENDS_EARLY),
        ("journal", known(7), holding(8, 7), Lack.BEGINS_LATE),
        ("journal-3of4", known(7), holding(2, 7), Lack.BEGINS_LATE),
        ("state", KnownPast(), holding(2, 7), Lack.BEGINS_LATE),
        ("journal", known(7, floor=5), holding(6, 9), Lack.BEGINS_LATE),
        ("registry", known(7), holding(8, 7), Lack.EMPTIED),
        ("gates", known(7), holding(8, 7), Lack.EMPTIED),
    ],
)
def test_a_stream_that_lacks_what_was_known_has_lost_its_past(part, was, now, lack):
    lost = what_is_lost(part, was, now)
    assert lost is not None
    assert (lost.part, lost.lack, lost.known_seq) == (part, lack, was.seq)


def test_who_knows_only_a_position_does_not_mind_where_a_stream_begins():
    assert ends_early("journal", 7, holding(5, 9)) is None
    assert ends_early("journal", 0, EMPTY) is None
    assert ends_early("journal", 7, holding(1, 6)).lack is Lack.ENDS_EARLY
    assert ends_early("journal", 7, None).lack is Lack.MISSING


def test_what_is_known_never_goes_back():
    assert further(known(7), holding(1, 9)) == known(9)
    assert further(KnownPast(seq=9), holding(1, 7)) == known(9)


def test_an_accepted_loss_is_none_any_more_and_says_who_accepted_it():
    was, now = known(7), holding(8, 7)
    lost = what_is_lost("journal", was, now)
    after = accepted(lost, now, Consent(by="ann", at=AT, reason="drill"))
    assert what_is_lost("journal", after, now) is None
    assert what_is_lost("journal", after, holding(9, 8)).lack is Lack.BEGINS_LATE
    assert (after.accepted.consent.by, after.accepted.consent.reason) == ("ann", "drill")
    assert after.accepted.lack is Lack.BEGINS_LATE


@pytest.mark.parametrize(
    ("lack", "first", "last", "position", "resumed"),
    [
        (Lack.ENDS_EARLY, 1, 6, 9, 6),
        (Lack.ENDS_EARLY, 1, 6, 4, 4),
        (Lack.BEGINS_LATE, 8, 7, 7, 7),
        (Lack.BEGINS_LATE, 8, 7, 3, 7),
        (Lack.BEGINS_LATE, 5, 9, 7, 7),
        (Lack.MADE_ANEW, 1, 9, 7, 0),
        (Lack.MISSING, 0, 0, 7, 0),
    ],
)
def test_a_position_moves_to_what_the_stream_has(lack, first, last, position, resumed):
    loss = Loss(part="journal", lack=lack, known_seq=9, first_seq=first, last_seq=last)
    assert loss.resumed(position) == resumed


def test_of_a_bucket_the_other_one_knows_better():
    noted = msgspec.json.encode({"registry": known(created=LATER), "gates": known(created=LATER)})
    other = msgspec.json.encode({"registry": known(), "gates": known(), "journal": known()})
    notes = read_notes(noted, other)
    assert {part: each.created for part, each in notes.items()} == {
        "registry": FIRST,
        "gates": LATER,
        "journal": FIRST,
    }


def test_the_line_says_what_is_lost_and_what_to_do():
    lost = what_is_lost("journal", known(1_200), holding(1, 6))
    said = str(LogLost("orders", [lost]))
    assert "stack orders has lost its past: stream orders-journal ends at 6" in said
    assert "up to 1,200 were known" in said
    assert "`vigil doctor`" in said
    assert "`vigil recover --accept-loss`" in said
    assert "\n" not in said


def copied(last, *, copies) -> StreamState:
    return replace(holding(1, last), copies=copies)


def test_only_one_of_several_copies_may_still_catch_up():
    loss = ends_early("journal", 7, holding(1, 6))
    assert may_catch_up(loss, copied(6, copies=3))
    assert not may_catch_up(loss, copied(6, copies=1))


@pytest.mark.parametrize(
    ("was", "now"), [(known(), holding(3, 9)), (known(), holding(1, 9, created=LATER))]
)
def test_what_was_emptied_or_made_anew_catches_up_with_nothing(was, now):
    loss = what_is_lost("journal", was, now)
    assert not may_catch_up(loss, replace(now, copies=3))
