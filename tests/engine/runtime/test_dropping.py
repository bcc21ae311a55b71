"""A buffer of what may be lost: who puts never waits, and there is never more than fits."""

from __future__ import annotations

from engine.runtime.dropping import DroppingBuffer


def buffer_of(*, line_max=3, items_max=10, **lines):
    buffer = DroppingBuffer(line_max=line_max, items_max=items_max)
    for key, items in lines.items():
        for item in items:
            buffer.put(key, item)
    return buffer


def test_all_is_taken_together_and_once():
    buffer = buffer_of(a=[1, 2], b=[3])

    assert buffer.news.is_set()
    assert buffer.take() == ([1, 2, 3], 0)
    assert buffer.take() == ([], 0)
    assert not buffer.news.is_set()


def test_a_busy_key_loses_its_oldest_and_no_other_key_any():
    assert buffer_of(quiet=[0], busy=range(1, 9)).take() == ([0, 6, 7, 8], 5)


def test_a_full_buffer_loses_what_has_waited_longest():
    assert buffer_of(items_max=4, a=[1, 2], b=[3, 4], c=[5, 6, 7]).take() == ([4, 5, 6, 7], 3)


def test_there_is_room_again_for_as_many_as_were_lost():
    buffer = buffer_of(items_max=4, a=range(9), b=range(9))
    buffer.take()
    for item in range(4):
        buffer.put(item, item)

    assert buffer.take() == ([0, 1, 2, 3], 0)
