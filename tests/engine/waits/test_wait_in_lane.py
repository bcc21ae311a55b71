"""Episodes that wait for somebody where turns are taken: they need no turn meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from engine.app.actions import approval, tool_call, wait
from engine.episodes import open as placing
from engine.episodes.cancel import cancel
from engine.waits.requests import resolve
from streams.model.events import (
    EndStatus,
    EpisodeBlocked,
    EpisodeFinished,
    EpisodeResolved,
)
from tests.engine.lane_stage import (
    Point,
    begun,
    killed_at,
    lane_of,
    lane_reached,
    laned,
    news,
    publish,
    turns_of,
)
from tests.engine.stage import (
    LOOK_S,
    WAIT_S,
    Counter,
    Scripted,
    blocked,
    decide,
    eventually,
    lived,
    opening,
    running,
)
from tests.engine.waits.test_wait import waiting_now

PLAN = {"restart": "db1"}
WORK = tool_call("tool", "a")


def id_of(app, name) -> str:
    return opening(app, id_=name).episode_id


async def agree(ports, id_) -> None:
    await blocked(ports, id_)
    await decide(ports, id_)


async def test_who_waits_for_people_frees_the_place_and_asks_for_one_again(ports):
    """Three wait at once where one may run; answered at once, they go on one after the other."""
    tool = Counter()
    app = laned(Scripted(WORK, approval(PLAN), WORK), tools={"tool": tool})
    ids = [id_of(app, name) for name in "abc"]
    async with running(app, ports, "n1"), running(app, ports, "n2"):
        await begun(ports)
        await publish(ports, *"abc")
        for id_ in ids:
            await blocked(ports, id_)
        await lane_reached(ports, lambda lane: not lane.admitted and not lane.waiting)
        for id_ in ids:
            await agree(ports, id_)
        for id_ in ids:
            assert (await lived(ports, id_)).end.status is EndStatus.DONE
        await lane_reached(ports, lambda lane: not lane.admitted and not lane.waiting)
    assert (await turns_of(ports)).most_at_once == 1
    assert len(tool.calls) == 6
    assert len(news(ports, "episode.queued")) <= 3


async def test_one_that_has_its_answer_waits_for_its_turn(ports):
    tool = Counter(open_=False)
    app = laned(Scripted(approval(PLAN), WORK), tools={"tool": tool})
    first, second = id_of(app, "a"), id_of(app, "b")
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "a", "b")
        await blocked(ports, first)
        await blocked(ports, second)
        await agree(ports, first)
        await eventually(lambda: len(tool.calls) == 1)
        await agree(ports, second)
        lane = await lane_reached(ports, lambda lane: lane.waiting)
        assert [each.episode_id for each in lane.waiting] == [second]
        assert [each.resumes for each in lane.waiting] == [True]
        tool.gate.set()
        for id_ in (first, second):
            await lived(ports, id_)
    assert (await turns_of(ports)).most_at_once == 1


async def test_who_is_said_to_wait_and_has_gone_on_since_keeps_the_place(ports):
    """A node that was slow says so of a wait that is over: another one would get in besides."""
    tool = Counter(open_=False)
    app = laned(Scripted(approval(PLAN), WORK), tools={"tool": tool})
    first = id_of(app, "a")
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "a")
        await agree(ports, first)
        await eventually(lambda: tool.calls)
        await ports.timers.send(placing.left_for_now("worker", first), id="late")
        await eventually(lambda: not due_unanswered(ports))
        assert [each.episode_id for each in (await lane_of(ports)).admitted] == [first]
        tool.gate.set()
        await lived(ports, first)


def due_unanswered(ports) -> bool:
    return any(each.pending or each._unanswered for each in ports.timers._durables.values())


def is_of_a_reference(subject, *_, **__):
    return ".signal." in subject


def has(kind):
    """Return whether an append has an event of a kind."""
    return lambda _, commit, **__: any(isinstance(each, kind) for each in commit.events)


@pytest.mark.parametrize(
    "point",
    [
        Point("timers", "arm", lambda timer, **_: timer.purpose == "attend"),
        Point("log", "append", is_of_a_reference),
        Point("log", "append", is_of_a_reference, is_done=True),
        Point("log", "append", has(EpisodeBlocked), is_done=True),
        Point("timers", "send", lambda timer, **_: timer.payload == {placing.FOR_NOW: True}),
        Point(
            "timers",
            "send",
            lambda timer, **_: timer.payload == {placing.FOR_NOW: True},
            is_done=True,
        ),
        Point("leases", "complete", lambda lease: lease.key.startswith("episode.")),
    ],
)
async def test_whatever_its_node_died_at_it_is_found_and_frees_the_place(ports, point):
    app = laned(Scripted(wait("payment:42", expires_s=3_600)))
    first, second = id_of(app, "a"), id_of(app, "b")
    async with killed_at(app, ports, point):
        await publish(ports, "a", "b")
    async with running(app, ports, "other"):
        await blocked(ports, second)
        await lane_reached(ports, lambda lane: not lane.admitted and not lane.waiting)
        await eventually(lambda: len(news(ports, "episode.blocked")) >= 2)
        # The world is told of a block before its wait is written down.
        async with asyncio.timeout(WAIT_S):
            while len(await waiting_now(ports)) < 2:  # noqa: ASYNC110 - a journal rings no bell
                await asyncio.sleep(LOOK_S)
        await resolve(ports, "payment:42", by="billing")
        for id_ in (first, second):
            done = await lived(ports, id_)
            assert (done.end.status, done.seen, done.takeovers) == (EndStatus.DONE, [None], 0)
            assert len(done.of(EpisodeBlocked)) == 1
            assert len(done.of(EpisodeFinished)) == 1
    assert (await turns_of(ports)).most_at_once == 1


@pytest.mark.parametrize(
    "point",
    [
        Point("log", "append", has(EpisodeResolved), is_done=True),
        Point("timers", "send", lambda timer, **_: timer.purpose == placing.PLACE),
        Point("timers", "send", lambda timer, **_: timer.purpose == placing.PLACE, is_done=True),
    ],
)
async def test_an_answer_is_gone_on_with_whatever_its_node_died_at(ports, point):
    app = laned(Scripted(wait("payment:42")))
    first = id_of(app, "a")
    async with running(app, ports, "n1"):
        await begun(ports)
        await publish(ports, "a")
        await blocked(ports, first)
        await lane_reached(ports, lambda lane: not lane.admitted)
    async with killed_at(app, ports, point):
        await resolve(ports, "payment:42", "paid", by="billing")
    async with running(app, ports, "other"):
        done = await lived(ports, first)
        await lane_reached(ports, lambda lane: not lane.admitted and not lane.waiting)
        await eventually(lambda: len(news(ports, "episode.resumed")) == 1)
    assert (done.end.status, done.seen) == (EndStatus.DONE, ["paid"])


async def test_one_that_waits_is_canceled_without_a_turn(ports):
    tool = Counter(open_=False)
    app = laned(Scripted(approval(PLAN)), tools={"tool": tool})
    first = id_of(app, "a")
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "a")
        await blocked(ports, first)
        await cancel(ports, "worker", first, by="ada")
        assert (await lived(ports, first)).end.status is EndStatus.CANCELED
        await lane_reached(ports, lambda lane: not lane.admitted and not lane.waiting)


async def test_what_nobody_answers_in_time_is_answered_where_turns_are_taken(ports):
    app = laned(Scripted(wait("x", expires_s=0.05, on_expiry="continue")))
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "a")
        assert (await lived(ports, id_of(app, "a"))).seen == [None]
