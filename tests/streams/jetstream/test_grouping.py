"""Every message has the outcome that it would have had alone, whatever becomes of its batch.

The server here is a list with a scripted wire in front of it: an answer may be lost before or
after the message is stored, or the message may land when nobody waits for it any more. What
a real server does with batches is in `test_batches.py`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, TypeVar

from hypothesis import given as forall
from hypothesis import strategies as st

from streams.errors import StreamError, TooLarge, Unavailable, UnknownOutcome
from streams.jetstream.connection.settings import GroupSettings
from streams.jetstream.messages.grouping import BATCH_TASK, BODY_BYTES_MAX, STALL_S, Grouping
from streams.jetstream.messages.publish import Ack, BatchRefused, Write, WrongSequence
from tests.simulation.time import SimClock, simulate

T = TypeVar("T")

ROUND_TRIP_S: Final = 0.002
LATE_S: Final = 0.02
TIMEOUT_S: Final = 0.01
LIMIT_BYTES: Final = 100
"""Of one message."""

NEVER: Final = 99
"""A version that no subject is at."""


class Fault(Enum):
    """What becomes of one request."""

    NONE = auto()
    AWAY = auto()
    LOST_REQUEST = auto()
    LOST_ANSWER = auto()
    LATE = auto()
    BUSY = auto()


@dataclass
class Server:
    """Stores what it is sent, one message or one batch at a time."""

    faults: list[Fault] = field(default_factory=list)
    stored: list[Write] = field(default_factory=list)
    sent: Counter[bytes] = field(default_factory=Counter)
    batches: list[Sequence[Write]] = field(default_factory=list)
    under_way: int = 0
    under_way_most: int = 0

    async def store(self, write: Write) -> Ack:
        self.sent[write.data] += 1
        return await self._answer(lambda: self._keep([write])[0], Unavailable("it", detail="busy"))

    async def store_all(self, writes: Sequence[Write]) -> Sequence[Ack]:
        self.sent.update(write.data for write in writes)
        self.batches.append(writes)
        self.under_way += 1
        self.under_way_most = max(self.under_way, self.under_way_most)
        try:
            return await self._answer(lambda: self._keep(writes), BatchRefused("too many"))
        except WrongSequence as error:
            raise BatchRefused("wrong last sequence") from error
        finally:
            self.under_way -= 1

    def seqs_of(self, data: bytes) -> list[int]:
        return [seq for seq, write in enumerate(self.stored, 1) if write.data == data]

    async def _answer(self, effect: Callable[[], T], busy: StreamError) -> T:
        match self.faults.pop() if self.faults else Fault.NONE:
            case Fault.AWAY:
                raise Unavailable("it", detail="not connected")
            case Fault.BUSY:
                await asyncio.sleep(ROUND_TRIP_S)
                raise busy
            case Fault.LOST_REQUEST:
                await asyncio.sleep(TIMEOUT_S)
                raise UnknownOutcome("it", detail="no answer")
            case Fault.LOST_ANSWER | Fault.LATE as fault:
                after_s = LATE_S if fault is Fault.LATE else ROUND_TRIP_S
                asyncio.get_running_loop().call_later(after_s, _regardless, effect)
                await asyncio.sleep(TIMEOUT_S)
                raise UnknownOutcome("it", detail="no answer")
            case Fault.NONE:
                await asyncio.sleep(ROUND_TRIP_S)
                return effect()

    def _keep(self, writes: Sequence[Write]) -> Sequence[Ack]:
        for write in writes:
            if len(write.data) > LIMIT_BYTES:
                raise TooLarge(write.subject, size_bytes=len(write.data), limit_bytes=LIMIT_BYTES)
        for write in writes:
            if int(write.headers["expected"]) != self._version(write.subject):
                raise WrongSequence(write.subject, in_flight=False)
        before = len(self.stored)
        self.stored += writes
        return [Ack(seq=before + place) for place, _ in enumerate(writes, 1)]

    def _version(self, subject: str) -> int:
        seqs = [seq for seq, write in enumerate(self.stored, 1) if write.subject == subject]
        return seqs[-1] if seqs else 0


def _regardless(effect: Callable[[], object]) -> None:
    try:
        effect()
    except StreamError:
        return


@dataclass(frozen=True)
class Caller:
    """Stores one message, which its number tells from all others."""

    number: int
    subject: str = ""
    comes_s: float = 0.0
    expected: int = 0
    is_large: bool = False
    gives_up_s: float | None = None

    @property
    def data(self) -> bytes:
        return b"%d" % self.number + b"." * (LIMIT_BYTES if self.is_large else 0)

    @property
    def write(self) -> Write:
        subject = self.subject or f"s{self.number}"
        return Write(subject, self.data, {"expected": str(self.expected)}, key=subject)

    async def store(self, grouping: Grouping) -> int | BaseException:
        """Return the sequence, or the error that told why there is none."""
        await asyncio.sleep(self.comes_s)
        storing = asyncio.create_task(grouping.store(self.write))
        if self.gives_up_s is not None:
            asyncio.get_running_loop().call_later(self.gives_up_s, storing.cancel)
        (outcome,) = await asyncio.gather(storing, return_exceptions=True)
        return outcome.seq if isinstance(outcome, Ack) else outcome


EAGER: Final = GroupSettings(least=2, is_fixed=True)
TIMES_S: Final = st.sampled_from([0.0, 0.0, 0.001, 0.002, 0.003, 0.01])


@st.composite
def callers(draw: st.DrawFn) -> list[Caller]:
    return [
        Caller(
            number,
            subject=draw(st.sampled_from(["", "", "", "shared"])),
            comes_s=draw(TIMES_S),
            expected=draw(st.sampled_from([0] * 9 + [NEVER])),
            is_large=draw(st.sampled_from([False] * 9 + [True])),
            gives_up_s=draw(st.one_of(st.none(), st.none(), st.none(), TIMES_S)),
        )
        for number in range(draw(st.integers(1, 16)))
    ]


settings_drawn = st.builds(
    GroupSettings,
    least=st.integers(0, 4),
    most=st.integers(1, 6),
    is_fixed=st.booleans(),
)


async def everyone(
    server: Server, given: Sequence[Caller], settings: GroupSettings = EAGER
) -> list[int | BaseException]:
    """Return what each of `given` was told, once nothing is under way any more."""
    grouping = Grouping(server, settings, SimClock())
    outcomes = await asyncio.gather(*(caller.store(grouping) for caller in given))
    await asyncio.sleep(LATE_S + TIMEOUT_S)
    server.faults.clear()
    server.batches.clear()
    assert await Caller(1_000).store(grouping) == len(server.stored)
    assert settings.least == 0 or not server.batches, "who comes to an idle stream goes alone"
    return outcomes


@forall(callers(), st.lists(st.sampled_from(Fault), max_size=20), settings_drawn)
def test_no_outcome_is_ever_wrong(given, faults, settings):
    server = Server(faults)
    for caller, outcome in zip(given, simulate(everyone(server, given, settings)), strict=True):
        seqs = server.seqs_of(caller.data)
        match outcome:
            case int():
                assert seqs == [outcome]
            case UnknownOutcome() | asyncio.CancelledError():
                assert len(seqs) <= 1
            case WrongSequence() | TooLarge() | Unavailable():
                assert seqs == []
            case _:
                raise AssertionError(outcome)


@forall(callers(), st.lists(st.sampled_from(Fault), max_size=20), settings_drawn)
def test_batches_stay_within_their_limits(given, faults, settings):
    server = Server(faults)
    batches: list[Sequence[Write]] = server.batches

    async def run() -> None:
        grouping = Grouping(server, settings, SimClock())
        await asyncio.gather(*(caller.store(grouping) for caller in given))
        await asyncio.sleep(LATE_S)

    simulate(run())
    assert server.under_way_most <= 1
    for batch in batches:
        assert max(1, settings.least) <= len(batch) <= settings.most
        assert len({write.key for write in batch}) == len(batch)


@forall(callers())
def test_without_faults_only_those_who_deserve_it_are_refused(given):
    stays = [caller for caller in given if caller.gives_up_s is None]
    outcomes = simulate(everyone(Server(), stays))
    shared = [o for c, o in zip(stays, outcomes, strict=True) if c.subject]
    alone = [(c, o) for c, o in zip(stays, outcomes, strict=True) if not c.subject]
    assert sum(isinstance(outcome, int) for outcome in shared) <= 1
    for caller, outcome in alone:
        deserves = caller.is_large or caller.expected == NEVER
        assert isinstance(outcome, WrongSequence | TooLarge) == deserves


def test_what_comes_while_others_are_in_flight_shares_a_batch():
    server = Server()

    async def run():
        grouping = Grouping(server, EAGER, SimClock())
        return await asyncio.gather(*(Caller(n).store(grouping) for n in range(10)))

    assert sorted(simulate(run())) == list(range(1, 11))
    assert [len(batch) for batch in server.batches] == [8]


def test_whoever_comes_alone_goes_alone_and_at_once():
    server = Server()

    async def run():
        grouping = Grouping(server, EAGER, SimClock())
        for number in range(5):
            await Caller(number).store(grouping)
        return asyncio.get_running_loop().time()

    assert simulate(run()) == 5 * ROUND_TRIP_S
    assert server.batches == []


def test_messages_leave_in_the_order_in_which_they_came():
    server = Server()
    simulate(everyone(server, [Caller(number) for number in range(50)]))
    assert [write.data for write in server.stored[:50]] == [Caller(n).data for n in range(50)]


def test_what_was_given_up_before_it_was_sent_is_never_sent():
    server = Server()
    given = [Caller(0), Caller(1), Caller(2), Caller(3, gives_up_s=0.0), Caller(4)]
    outcomes = simulate(everyone(server, given))
    assert isinstance(outcomes[3], asyncio.CancelledError)
    assert server.sent[b"3"] == 0
    assert [type(outcome) for outcome in outcomes[:3]] == [int] * 3


def test_who_is_let_go_and_gives_up_at_that_moment_leaves_the_room_to_others():
    server = Server()

    async def run():
        grouping = Grouping(server, EAGER, SimClock())
        storing = [asyncio.create_task(grouping.store(Caller(n).write)) for n in range(3)]
        await asyncio.sleep(ROUND_TRIP_S)
        (waiting,) = grouping._waiting
        while not waiting.outcome.done():  # noqa: ASYNC110 - the moment is between two turns
            await asyncio.sleep(0)
        storing[2].cancel()
        await asyncio.gather(*storing, return_exceptions=True)
        await asyncio.gather(*(grouping.store(Caller(n).write) for n in range(3, 10)))

    simulate(run())
    assert server.sent[b"2"] == 0
    assert len(server.stored) == 9


def test_giving_up_in_the_middle_of_a_batch_disturbs_nobody():
    server = Server()
    given = [Caller(n, gives_up_s=1.5 * ROUND_TRIP_S if n == 5 else None) for n in range(10)]
    outcomes = simulate(everyone(server, given))
    assert isinstance(outcomes.pop(5), asyncio.CancelledError)
    assert all(isinstance(outcome, int) for outcome in outcomes)
    assert len(server.seqs_of(b"5")) == 1


def test_who_must_not_share_goes_at_once_though_others_wait():
    server = Server()

    async def run():
        grouping = Grouping(server, EAGER, SimClock())
        given = [asyncio.create_task(Caller(n).store(grouping)) for n in range(6)]
        await asyncio.sleep(1.5 * ROUND_TRIP_S)
        given.append(asyncio.create_task(grouping.store(Caller(9).write, alone=True)))
        await asyncio.sleep(0)
        assert (server.sent[b"9"], server.under_way) == (1, 1)
        await asyncio.gather(*given)

    simulate(run())
    assert Caller(9).write not in [write for batch in server.batches for write in batch]


def test_a_batch_holds_so_many_bytes_and_no_more():
    body = bytes(BODY_BYTES_MAX // 3 + 1)
    writes = [Write(f"s{n}", body, {"expected": "0"}, key=f"s{n}") for n in range(8)]
    server = Server()

    async def run():
        grouping = Grouping(server, EAGER, SimClock())
        await asyncio.gather(*(grouping.store(write) for write in writes), return_exceptions=True)

    simulate(run())
    assert {len(batch) for batch in server.batches} == {2}


def test_a_batch_that_is_cancelled_with_the_program_leaves_nobody_waiting():
    server = Server()

    async def run():
        grouping = Grouping(server, EAGER, SimClock())
        storing = [asyncio.create_task(Caller(n).store(grouping)) for n in range(5)]
        await asyncio.sleep(1.5 * ROUND_TRIP_S)
        for task in asyncio.all_tasks():
            if task.get_name() == BATCH_TASK:
                task.cancel()
        return await asyncio.gather(*storing)

    outcomes = simulate(run())
    assert [type(outcome) for outcome in outcomes] == [int, int] + [UnknownOutcome] * 3


class Silent(Server):
    """Never answers the first message that comes alone."""

    async def store(self, write: Write) -> Ack:
        if not self.sent:
            self.sent[write.data] += 1
            await asyncio.get_running_loop().create_future()
        return await super().store(write)


def test_a_message_without_an_answer_holds_up_the_others_for_a_moment_only():
    server = Silent()

    async def run():
        grouping = Grouping(server, EAGER, SimClock())
        silent = asyncio.create_task(Caller(0).store(grouping))
        await asyncio.sleep(0)
        times = (0.0, 0.0, 0.0, 2 * STALL_S)
        later = [Caller(n, comes_s=s) for n, s in enumerate(times, 1)]
        outcomes = await asyncio.gather(*(caller.store(grouping) for caller in later))
        silent.cancel()
        await asyncio.gather(silent, return_exceptions=True)
        return outcomes

    assert all(isinstance(outcome, int) for outcome in simulate(run()))


class Misspelled(Server):
    """Cannot even send a batch, because of one message in it."""

    async def store_all(self, writes: Sequence[Write]) -> Sequence[Ack]:
        raise ValueError("one of them")


def test_what_nobody_expected_of_a_batch_is_left_to_each_to_find_out_alone():
    given = [Caller(number) for number in range(5)]

    async def run():
        grouping = Grouping(Misspelled(), EAGER, SimClock())
        return await asyncio.gather(*(caller.store(grouping) for caller in given))

    outcomes = simulate(run())
    assert {type(outcome) for outcome in outcomes} == {int, UnknownOutcome}
    assert len({id(outcome) for outcome in outcomes}) == len(outcomes)
