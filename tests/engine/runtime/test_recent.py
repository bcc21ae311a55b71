"""A node that reads a long aggregate often reads only what is new, and never too little."""

from __future__ import annotations

import pytest

from engine.runtime import store as stores
from engine.runtime.store import Recent, Store
from streams.memory import memory_ports
from streams.model.events import SignalWaited
from tests.engine.stage import CLOCK

SUBJECT = "vigil.signal.r"


class Counting:
    """A log that notes past which version it was read."""

    def __init__(self, log):
        self._log, self.reads = log, []

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def read(self, subject, *, after=0):
        self.reads.append(after)
        return await self._log.read(subject, after=after)


@pytest.fixture
def log():
    return Counting(memory_ports(clock=CLOCK).log)


def store_of(log, recent=None) -> Store:
    return Store(log, CLOCK, len, recent=recent)


async def append(log, count: int, *, subject: str = SUBJECT) -> None:
    for _ in range(count):
        store = store_of(log)
        loaded = await store.load(subject)
        event = SignalWaited(ref="r", actor_id="a", episode_id="e", step_no=1, since=CLOCK.now())
        await store.append(loaded, [event], id=f"c{loaded.version}", at=CLOCK.now())
    log.reads.clear()


async def test_only_what_is_new_is_read(log):
    await append(log, 3)
    store = store_of(log, Recent())
    first = await store.load(SUBJECT)
    await append(log, 2)
    second = await store.load(SUBJECT)
    third = await store.load(SUBJECT)
    assert [each.state for each in (first, second, third)] == [3, 5, 5]
    assert list(second.records) == list(await log._log.read(SUBJECT))
    assert log.reads == [first.version]


async def test_what_a_node_has_appended_it_need_not_read(log):
    await append(log, 2)
    store = store_of(log, Recent())
    event = SignalWaited(ref="r", actor_id="a", episode_id="e", step_no=1, since=CLOCK.now())
    await store.append(await store.load(SUBJECT), [event], id="mine", at=CLOCK.now())
    log.reads.clear()
    assert (await store.load(SUBJECT)).state == 3
    assert log.reads == []


async def test_a_stream_that_was_made_anew_is_read_from_its_beginning(log):
    await append(log, 3)
    recent = Recent()
    await store_of(log, recent).load(SUBJECT)
    anew = Counting(memory_ports(clock=CLOCK).log)
    await append(anew, 2)
    assert (await store_of(anew, recent).load(SUBJECT)).state == 2


async def test_a_node_keeps_no_more_than_the_newest_of_them(log, monkeypatch):
    monkeypatch.setattr(stores, "RECENT_MAX", 2)
    recent, subjects = Recent(), [f"vigil.signal.r{n}" for n in range(3)]
    for subject in subjects:
        await append(log, 2, subject=subject)
        await store_of(log, recent).load(subject)
    log.reads.clear()
    for subject in reversed(subjects):
        await store_of(log, recent).load(subject)
    assert log.reads == [0]
