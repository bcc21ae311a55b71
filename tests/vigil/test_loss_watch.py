"""A process notices that a stream of its stack has lost its past: in memory, on virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

import pytest

from engine.app.app import App
from engine.archive.purge import purge
from engine.node.node import Node
from engine.reactor.reactor import Reactor
from streams.keys import lost_key, node_key, published_key
from streams.layout import Stream
from streams.memory import memory_ports
from streams.model.losses import Lack, LogLost
from tests.engine.reactor import journals as given
from tests.simulation.time import SimClock, simulate
from tests.streams.three_copies import OfThree
from vigil.serving.loss_watch import CATCH_UP_S, CONFIRM_S, LOOK_S, LossWatch

NOTICED_S: Final = 5.0


def stack_of(commits: int):
    ports = memory_ports(stack=given.STACK, clock=SimClock())

    async def fill() -> None:
        for number in range(commits):
            subject = given.STACK.episode(f"e{number}")
            await ports.log.append(subject, given.recorded("s", 1, given.OPENED).commit, after=0)

    return ports, fill


def watch(ports, node="n1", **known) -> LossWatch:
    return LossWatch(ports, SimClock(), node=node, rows=known)


async def lost_within(watching, seconds: float = NOTICED_S) -> LogLost:
    with pytest.raises(LogLost) as told:
        async with SimClock().timeout(seconds):
            await watching.follow()
    return told.value


@pytest.mark.parametrize(
    ("do", "lack"),
    [("purge", Lack.BEGINS_LATE), ("make_anew", Lack.MADE_ANEW), ("delete", Lack.MISSING)],
)
def test_what_is_done_to_a_journal_by_hand_is_noticed_within_5_s(do, lack):
    ports, fill = stack_of(3)

    async def play():
        await fill()
        watching = watch(ports)
        await watching.begin()
        getattr(ports.states.stream("journal"), do)()
        return await lost_within(watching)

    lost = simulate(play())
    assert [(each.part, each.lack, each.known_seq) for each in lost.losses] == [
        ("journal", lack, 3)
    ]


def test_a_look_that_finds_a_loss_is_confirmed_by_another_one():
    ports, fill = stack_of(3)
    clock = SimClock()

    async def play():
        await fill()
        watching = watch(ports)
        await watching.begin()
        began_s = clock.monotonic_s()
        ports.states.stream("journal").purge()
        await lost_within(watching)
        return clock.monotonic_s() - began_s

    assert LOOK_S + CONFIRM_S <= simulate(play()) < NOTICED_S


def test_a_journal_that_was_purged_up_to_a_floor_that_is_noted_has_lost_nothing():
    ports, fill = stack_of(9)
    clock = SimClock()

    async def play():
        await fill()
        watching = watch(ports)
        await watching.begin()
        await purge(ports, "journal", floor=4, clock=clock, check=lambda: None)
        with pytest.raises(TimeoutError):
            async with clock.timeout(3 * NOTICED_S):
                await watching.follow()
        await ports.states.purge("journal", below=6)
        return await lost_within(watching)

    (lost,) = simulate(play()).losses
    assert (lost.lack, lost.first_seq) == (Lack.BEGINS_LATE, 6)


def test_a_journal_that_is_purged_again_while_a_loss_is_confirmed_has_lost_nothing():
    ports, fill = stack_of(9)
    clock = SimClock()

    async def play():
        await fill()
        watching = watch(ports)
        await watching.begin()
        async with clock.timeout(3 * NOTICED_S), asyncio.TaskGroup() as group:
            following = group.create_task(watching.follow())
            for floor in range(2, 9):
                await purge(ports, "journal", floor=floor, clock=clock, check=lambda: None)
                await clock.sleep(CONFIRM_S)
            following.cancel()

    simulate(play())


def test_rows_that_know_more_than_a_stream_has_stop_the_process_before_it_begins():
    ports, fill = stack_of(3)

    async def play():
        await fill()
        await watch(ports, journal=3).begin()
        with pytest.raises(LogLost) as told:
            await watch(ports, journal=4).begin()
        return told.value

    (lost,) = simulate(play()).losses
    assert (lost.lack, lost.known_seq, lost.last_seq) == (Lack.ENDS_EARLY, 4, 3)


def test_a_leader_that_was_started_again_is_given_time_to_catch_up():
    ports, fill = stack_of(3)
    clock = SimClock()

    async def play():
        await fill()
        states = OfThree(ports.states)
        watching = watch(replace(ports, states=states), journal=3)
        await watching.begin()
        following = asyncio.create_task(watching.follow())
        for _ in range(3):  # Each time anew.
            await clock.sleep(CATCH_UP_S - 2 * LOOK_S)
            assert not following.done()
            states.is_behind = False
            await clock.sleep(2 * LOOK_S)
            states.is_behind = True
        following.cancel()

    simulate(play())


def test_a_leader_that_does_not_catch_up_has_lost_its_past():
    ports, fill = stack_of(3)

    async def play():
        await fill()
        watching = watch(replace(ports, states=OfThree(ports.states)), journal=3)
        await watching.begin()
        return await lost_within(watching, CATCH_UP_S + LOOK_S + NOTICED_S)

    (lost,) = simulate(play()).losses
    assert (lost.lack, lost.known_seq, lost.last_seq) == (Lack.ENDS_EARLY, 3, 2)


def test_a_reactor_that_knows_more_than_a_stream_has_stops_the_process_before_it_begins():
    ports, fill = stack_of(3)

    async def play():
        await fill()
        await ports.gates.put(published_key("journal"), b"4")
        with pytest.raises(LogLost) as told:
            await watch(ports).begin()
        return told.value

    (lost,) = simulate(play()).losses
    assert (lost.lack, lost.known_seq) == (Lack.ENDS_EARLY, 4)


def test_a_stream_that_was_made_anew_while_nobody_ran_is_known_by_its_notes():
    ports, fill = stack_of(3)

    async def play():
        await fill()
        await watch(ports).begin()
        ports.states.stream("work").make_anew()
        with pytest.raises(LogLost) as told:
            await watch(ports, node="n2").begin()
        return told.value

    (lost,) = simulate(play()).losses
    assert (lost.part, lost.lack) == ("work", Lack.MADE_ANEW)


def test_a_process_that_saw_nothing_stops_at_the_mark_of_another_one():
    ports, fill = stack_of(3)

    async def play():
        await fill()
        first, second = watch(ports), watch(ports, node="n2")
        await first.begin()
        await second.begin()
        following = asyncio.create_task(lost_within(second, 1.0))
        await SimClock().sleep(0.1)
        ports.states.stream("journal").purge()
        with pytest.raises(LogLost) as told:
            await first._look_at(["journal"])
        await first.mark(told.value.losses)
        marked = await ports.registry.get(lost_key("journal"))
        return marked, await following

    marked, lost = simulate(play())
    assert marked is not None
    assert [each.lack for each in lost.losses] == [Lack.BEGINS_LATE]


def test_a_reactor_does_not_begin_anew_in_a_stream_that_ends_before_its_position():
    ports, fill = stack_of(3)

    async def play():
        await fill()
        await ports.gates.put(published_key("journal"), b"4")
        reactor = Reactor(ports, SimClock(), "n1", SimClock().now(), Stream.JOURNAL)
        with pytest.raises(LogLost):
            async with SimClock().timeout(NOTICED_S):
                await reactor.follow()

    simulate(play())


def test_a_reactor_waits_while_the_leader_of_several_copies_catches_up():
    ports, fill = stack_of(3)
    clock = SimClock()

    async def play():
        await fill()
        await ports.gates.put(published_key("journal"), b"3")
        states = OfThree(ports.states)
        reactor = Reactor(replace(ports, states=states), clock, "n1", clock.now(), Stream.JOURNAL)
        following = asyncio.create_task(reactor.follow())
        await clock.sleep(NOTICED_S)
        assert not following.done()
        states.is_behind = False
        await ports.log.append(
            given.STACK.episode("e3"), given.recorded("s", 1, given.OPENED).commit, after=0
        )
        await clock.sleep(CATCH_UP_S)
        assert int((await ports.gates.get(published_key("journal"))).value) == 4
        following.cancel()

    simulate(play())


def test_a_node_whose_reactor_finds_a_loss_writes_nothing_more_and_says_why():
    ports, fill = stack_of(3)

    async def play():
        await fill()
        await ports.gates.put(published_key("journal"), b"4")
        node = Node(App(actors=[]), ports, name="n1", clock=SimClock())
        with pytest.raises(LogLost):
            async with SimClock().timeout(NOTICED_S):
                await node.run()
        return node_key("n1") in await ports.gates.entries()

    assert simulate(play())  # Its entry lapses: it has not even taken leave.
