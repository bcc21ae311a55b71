"""In which order the pieces of answers belong, and what becomes of those of a dead attempt."""

from __future__ import annotations

from streams.model.deltas import Delta, DeltaEnd, DeltaOrder
from streams.wire.deltas import decode_delta, encode_delta


def delta(place=0, *, attempt=1, path="1.m1.1", **more):
    return Delta(path=path, attempt=attempt, place=place, **more)


def placed(*deltas):
    """Return, for each of `deltas`, how many are missing before it and whether it begins anew."""
    order = DeltaOrder()
    found = [order.place(each) for each in deltas]
    return [each and (each.missing, each.is_anew) for each in found]


def test_what_comes_one_after_the_other_lacks_nothing():
    assert placed(delta(0), delta(1), delta(2)) == [(0, False)] * 3


def test_what_is_lost_shows_by_its_number():
    assert placed(delta(2), delta(3), delta(7)) == [(2, False), (0, False), (3, False)]


def test_a_new_attempt_begins_anew_and_the_dead_one_says_nothing_more():
    seen = placed(delta(0), delta(0, attempt=2), delta(1), delta(1, attempt=2))
    assert seen == [(0, False), (0, True), None, (0, False)]


def test_what_comes_twice_is_taken_once():
    assert placed(delta(0), delta(0), delta(1)) == [(0, False), None, (0, False)]


def test_each_request_is_counted_by_itself():
    seen = placed(delta(0), delta(0, path="1.m2.1"), delta(1), delta(1, path="1.m2.1"))
    assert seen == [(0, False)] * 4


def test_a_delta_is_read_as_it_was_written():
    for each in (delta(3, text="é", tools=("a", "b")), delta(end=DeltaEnd.FAILED)):
        assert decode_delta(encode_delta(each)) == each


def test_what_is_no_delta_is_none():
    assert [decode_delta(each) for each in (b"", b"{}", b"\xff", b'{"path":1}')] == [None] * 4
