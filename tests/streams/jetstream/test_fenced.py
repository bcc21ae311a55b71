"""Events under a fence stay in order and are stored once, whatever becomes of single messages."""

from __future__ import annotations

import pytest

from streams.clock import SystemClock
from streams.errors import Unavailable, UnknownOutcome, VersionConflict
from streams.jetstream.connection.settings import GroupSettings, LinkSettings
from streams.jetstream.messages.fenced import JetStreamFencedWriter
from streams.jetstream.messages.publish import Ack, BatchRefused, WrongSequence
from streams.ports.domain_events import Publication
from streams.subjects import Stack

STACK = Stack("s")


class Link:
    """All that a writer asks of a link, but for messages."""

    def __init__(self, *, patience_s: float = 5.0):
        self.clock = SystemClock()
        self.settings = LinkSettings(patience_s=patience_s, group=GroupSettings(least=4, most=8))


class Server:
    """Stores each id once, and fails as it is told: call → error, before or after storing."""

    def __init__(self, *, refuses=(), loses=()):
        self.refuses, self.loses = dict(refuses), dict(loses)
        self.stored: list[str] = []
        self.calls: list[int] = []

    async def store(self, write) -> Ack:
        return self._store([write])

    async def store_all(self, writes) -> list[Ack]:
        return [self._store(writes)] * len(writes)

    def _store(self, writes) -> Ack:
        number = sum(self.calls)
        self.calls.append(len(writes))
        if number in self.refuses:
            raise self.refuses[number]
        self.stored += [each.key for each in writes if each.key not in self.stored]
        if number in self.loses:
            raise self.loses[number]
        return Ack(seq=1)


def writer(server: Server, *, is_one: bool = True, patience_s: float = 5.0):
    made = JetStreamFencedWriter(
        Link(patience_s=patience_s), STACK, "s.event.fence", 7, is_one=is_one
    )
    made._publisher = server
    return made


def events(count: int) -> list[Publication]:
    return [Publication(name="a.b", data=b"{}", id=f"e{number}") for number in range(count)]


def ids(count: int) -> list[str]:
    return [f"e{number}" for number in range(count)]


@pytest.mark.parametrize(
    ("count", "is_one", "calls"),
    [
        (1, True, [1]),
        (3, True, [1, 1, 1]),
        (4, True, [4]),
        (20, True, [8, 8, 4]),
        (1, False, [1]),
        (2, False, [2]),
    ],
)
async def test_few_go_side_by_side_on_one_replica_and_others_together(count, is_one, calls):
    server = Server()
    await writer(server, is_one=is_one).publish(events(count))
    assert (server.calls, server.stored) == (calls, ids(count))


@pytest.mark.parametrize("count", [3, 6], ids=["alone", "together"])
async def test_what_nobody_answered_goes_again(count):
    lost = UnknownOutcome("a", detail="no answer")
    server = Server(loses={0: lost})
    await writer(server).publish(events(count))
    assert server.stored == ids(count)


async def test_what_was_refused_goes_again_with_all_behind_it():
    server = Server(refuses={1: Unavailable("a", detail="no room")})
    await writer(server).publish(events(3))
    assert server.calls == [1, 1, 1, 1, 1]
    assert sorted(server.stored) == ids(3)


async def test_a_batch_with_one_that_is_stored_already_goes_message_by_message():
    server = Server(refuses={0: BatchRefused("10201")})
    await writer(server).publish(events(5))
    assert (server.calls, server.stored) == ([5, 1, 1, 1, 1, 1], ids(5))


async def test_one_in_flight_is_waited_for():
    server = Server(refuses={0: WrongSequence("a", in_flight=True)})
    await writer(server).publish(events(1))
    assert server.stored == ids(1)


@pytest.mark.parametrize("count", [1, 6], ids=["alone", "together"])
async def test_whoever_was_overtaken_stops(count):
    wrong = {number: WrongSequence("a", in_flight=False) for number in range(20)}
    refuses = {**wrong, 0: BatchRefused("10071")} if count > 1 else wrong
    server = Server(refuses=refuses)
    with pytest.raises(VersionConflict):
        await writer(server).publish(events(count))
    assert server.stored == []


async def test_patience_ends():
    away = {number: Unavailable("a", detail="away") for number in range(1_000)}
    with pytest.raises(Unavailable):
        await writer(Server(refuses=away), patience_s=0.1).publish(events(1))
