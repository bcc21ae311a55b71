"""Writers of one node that take turns read together what is there, and never too little."""

from __future__ import annotations

import asyncio

import pytest

from engine.runtime.store import Store, Turns
from streams.memory import memory_ports
from streams.model.events import SignalWaited
from tests.engine.stage import CLOCK

SUBJECT = "vigil.signal.r"


class Counting:
    """A log that notes past which version it was read."""

    def __init__(self):
        self._log, self.reads = memory_ports(clock=CLOCK).log, []

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def last(self, subject):
        await asyncio.sleep(0)  # As a server, so that others come meanwhile.
        return await self._log.last(subject)

    async def read(self, subject, *, after=0):
        self.reads.append(after)
        return await self._log.read(subject, after=after)


@pytest.fixture
def log():
    return Counting()


def waited(number: int) -> SignalWaited:
    return SignalWaited(
        ref="r", actor_id="a", episode_id=f"e{number}", step_no=1, since=CLOCK.now()
    )


async def append(log, count: int) -> None:
    for _ in range(count):
        loaded = await Store(log, CLOCK, len).load(SUBJECT)
        event = waited(loaded.version)
        await Store(log, CLOCK, len).append(
            loaded, [event], id=f"c{loaded.version}", at=CLOCK.now()
        )
    log.reads.clear()


async def test_those_that_wait_for_their_turn_read_only_what_is_new(log):
    await append(log, 3)
    store = Store(log, CLOCK, len, turns=Turns())
    lengths = []

    async def one(number: int) -> None:
        def rule(length, _):
            lengths.append(length)
            return (waited(number),)

        await store.change(SUBJECT, rule, id=f"n{number}")

    await asyncio.gather(*(one(number) for number in range(20)))
    assert lengths == list(range(3, 23))
    assert log.reads == [0]


async def test_what_others_have_written_meanwhile_is_read(log):
    await append(log, 3)
    turns = Turns()
    store, turn = Store(log, CLOCK, len, turns=turns), turns.of(SUBJECT)
    assert (await store.change(SUBJECT, lambda *_: (), id="x")).after.state == 3
    before = turn.known.version
    await append(log, 2)
    assert (await store.change(SUBJECT, lambda *_: (), id="x")).after.state == 5
    assert log.reads == [before]


async def test_nothing_is_kept_once_nobody_waits_for_a_turn(log):
    await append(log, 3)
    turns = Turns()
    await Store(log, CLOCK, len, turns=turns).change(SUBJECT, lambda *_: (), id="x")
    assert list(turns._locks) == []


async def test_a_stream_that_was_made_anew_is_read_from_its_beginning(log):
    await append(log, 3)
    turns, anew = Turns(), Counting()
    turn = turns.of(SUBJECT)
    await Store(log, CLOCK, len, turns=turns).change(SUBJECT, lambda *_: (), id="x")
    assert len(turn.known.records) == 3
    await append(anew, 2)
    done = await Store(anew, CLOCK, len, turns=turns).change(SUBJECT, lambda *_: (), id="x")
    assert done.after.state == 2


async def test_commits_are_folded_once_where_a_state_can_be_folded_on(log):
    await append(log, 3)
    folded = []

    def fold(records, state=0):
        folded.append(len(records))
        return state + len(records)

    store = Store(log, CLOCK, fold, turns=Turns(kept_max=1), folds_on=True)
    await store.change(SUBJECT, lambda *_: (), id="x")
    for number in range(3):
        await append(log, 2)
        done = await store.change(SUBJECT, lambda *_: (), id=f"{number}")
        assert (done.after.state, len(done.after.records)) == (5 + 2 * number, 1)
    assert folded == [3, 2, 2, 2]


async def test_so_many_are_kept_as_were_used_last(log):
    turns = Turns(kept_max=2)
    for subject in ("a", "b", "a", "c"):
        turns.of(subject)
    assert sorted(turns._locks) == ["a", "c"]
