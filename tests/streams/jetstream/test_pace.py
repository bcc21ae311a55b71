"""From how many messages on a batch is taken for the faster way."""

from __future__ import annotations

import pytest

from streams.jetstream import LinkSettings
from streams.jetstream.messages.pace import REFUSED_MAX, Pace

LEAST = LinkSettings().group.least
"""Of a batch, as nodes have it."""

ROUNDS_MAX = 1_000


def fresh():
    return Pace(least=LEAST, is_fixed=False)


def after(*, single_s, batch_s, rounds=50):
    """A pace that has timed both ways, in turns."""
    pace = fresh()
    for _ in range(rounds):
        pace.note_singles(64, 64 * single_s)
        pace.note_batch(batch_s)
    return pace


def test_messages_go_one_by_one_until_they_were_timed():
    pace = fresh()
    assert pace.worth > 1_000
    pace.note_singles(100, 100 * 0.000_25)
    assert pace.worth == LEAST


@pytest.mark.parametrize(
    ("single_s", "batch_s"), [(0.000_11, 0.004), (0.000_4, 0.004), (0.002, 0.012), (0.01, 0.001)]
)
def test_where_each_message_is_synced_the_fewest_of_a_batch_always_make_one(single_s, batch_s):
    assert after(single_s=single_s, batch_s=batch_s).worth == LEAST


def test_elsewhere_a_batch_is_worth_a_quarter_more_messages_than_could_go_alone_meanwhile():
    assert after(single_s=0.000_04, batch_s=0.004).worth == pytest.approx(125, abs=1)


def test_it_is_never_worth_less_than_the_least():
    assert after(single_s=0.000_09, batch_s=0.000_5).worth == LEAST


def test_a_fixed_worth_stays_whatever_is_timed():
    pace = Pace(least=3, is_fixed=True)
    pace.note_batch(1.0)
    assert pace.worth == 3


def test_a_stream_that_refuses_every_batch_soon_gets_few():
    pace = after(single_s=0.000_25, batch_s=0.004)
    for _ in range(REFUSED_MAX):
        pace.note_refused_batch(64, 0.004)
    assert pace.worth > 64


def test_a_batch_that_a_conflict_refuses_changes_little():
    pace = after(single_s=0.000_25, batch_s=0.004)
    for _ in range(2 * REFUSED_MAX):
        pace.note_refused_batch(64, 0.004)
        pace.note_batch(0.004)
    assert pace.worth == LEAST


@pytest.mark.parametrize("batch_s", [0.02, 0.13])
def test_a_client_that_is_busy_still_batches_where_each_message_is_synced(batch_s):
    """It hears late of a batch, and takes it for slower than it is; the server's work is halved."""
    assert after(single_s=0.000_25, batch_s=batch_s).worth == LEAST


def test_where_nothing_is_synced_a_batch_must_be_faster_for_the_client():
    assert after(single_s=0.000_03, batch_s=0.004).worth > LEAST


def test_one_slow_batch_hardly_counts():
    pace = after(single_s=0.000_25, batch_s=0.004)
    before = pace.worth
    pace.note_batch(3_600.0)
    assert pace.worth <= 1.5 * before


def test_a_disk_that_has_become_slow_is_believed_soon():
    pace = after(single_s=0.000_25, batch_s=0.004)
    for _ in range(20):
        pace.note_batch(1.0)
    assert pace.worth > 100


def test_the_way_that_is_not_in_use_is_tried_again():
    pace = after(single_s=0.001, batch_s=0.004)
    in_flight, rounds = 64, 0
    while pace.worth <= in_flight and rounds < ROUNDS_MAX:
        pace.note_batch(0.004)
        rounds += 1
    assert rounds < ROUNDS_MAX
