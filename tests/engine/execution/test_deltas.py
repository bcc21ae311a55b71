"""When deltas of an answer are published, and what each has."""

from __future__ import annotations

import asyncio

import pytest

from engine.episodes.redaction import ANSWER_BYTES_MAX, answer_bytes_max
from engine.execution.deltas import FLUSH_BYTES, FLUSH_S, DeltaWriter
from streams.clock import SystemClock
from streams.model.deltas import DeltaEnd
from streams.model.triggers import LogStrategy


class Told:
    """Notes what is published."""

    def __init__(self):
        self.deltas = []

    def publish(self, episode_id, delta):
        assert episode_id == "e1"
        self.deltas.append(delta)


class Stopped(SystemClock):
    """A clock whose sleeps end when a test says so."""

    def __init__(self):
        self.slept_s, self.over = [], asyncio.Event()

    async def sleep(self, seconds):
        self.slept_s.append(seconds)
        await self.over.wait()
        self.over.clear()


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def clock():
    return Stopped()


def writer_of(told, clock, shown_max=10_000):
    return DeltaWriter(told, clock, "e1", path="1.m1.1", attempt=3, shown_max=shown_max)


def seen(told):
    return [(each.place, each.text, each.tools, each.end) for each in told.deltas]


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_pieces_of_the_same_moment_are_one_delta(told, clock):
    writer = writer_of(told, clock)
    async with writer.open():
        writer.say("it ")
        await turns()
        writer.say("is")
        writer.call("restart")
        assert told.deltas == []
        clock.over.set()
        await turns()
        assert seen(told) == [(0, "it is", ("restart",), None)]
        writer.done()
    assert clock.slept_s == [FLUSH_S]
    assert seen(told)[1:] == [(1, "", (), DeltaEnd.DONE)]
    assert {(each.path, each.attempt) for each in told.deltas} == {("1.m1.1", 3)}


async def test_much_text_waits_for_no_moment(told, clock):
    writer = writer_of(told, clock)
    async with writer.open():
        writer.say("é" * (FLUSH_BYTES // 2))
        assert [each.text for each in told.deltas] == ["é" * (FLUSH_BYTES // 2)]


async def test_text_after_the_beginning_of_a_call_is_in_a_delta_of_its_own(told, clock):
    writer = writer_of(told, clock)
    async with writer.open():
        writer.call("look")
        writer.say("and then")
        writer.done()
    assert seen(told) == [(0, "", ("look",), None), (1, "and then", (), DeltaEnd.DONE)]


async def test_an_answer_that_is_cut_off_says_that_it_has_failed(told, clock):
    writer = writer_of(told, clock)

    async def answers():
        async with writer.open():
            writer.say("hal")
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await answers()
    assert seen(told) == [(0, "hal", (), DeltaEnd.FAILED)]


async def test_people_are_told_no_more_than_they_may_see_of_the_answer(told, clock):
    writer = writer_of(told, clock, shown_max=4)
    async with writer.open():
        writer.say("abc")
        writer.say("éf")
        writer.say("ghi")
        writer.call("look")
        writer.done()
    assert seen(told) == [(0, "abc…", ("look",), DeltaEnd.DONE)]


def test_a_strategy_that_shows_no_answer_tells_nothing_of_it():
    shown = {each: answer_bytes_max(each) for each in LogStrategy}
    assert {each for each in shown if shown[each]} == set(ANSWER_BYTES_MAX)
