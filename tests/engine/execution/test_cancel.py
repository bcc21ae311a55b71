"""Episodes that somebody wants canceled: wherever they are, and whatever dies meanwhile."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from engine.app.actions import tool_call
from engine.episodes.cancel import CANCELED, cancel
from engine.episodes.episode import Status
from engine.errors import BadRequest
from engine.execution import commands
from engine.execution.cancel import CancelHandler
from engine.operations.dead_letters import DeadLetterRequests
from streams.clock import SKEW_S
from streams.errors import Unavailable
from streams.keys import cancel_key
from streams.layout import Stream
from streams.memory import memory_ports
from streams.model.commands import Cancel
from streams.model.events import (
    DeadLettered,
    EndStatus,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeLeft,
    EpisodeStarted,
)
from streams.ports.delivery import ACK_WAIT_S
from streams.ports.log import START, Commit
from streams.wire import codec
from tests.engine.crew import crew_of, parts_of
from tests.engine.lane_stage import begun, lane_reached, laned, news, publish
from tests.engine.stage import (
    CLOCK,
    STARTED,
    WAIT_S,
    Counter,
    Scripted,
    all_answered,
    announced,
    app_of,
    ask_start,
    doomed,
    eventually,
    leave,
    life,
    lived,
    open_episode,
    opening,
    running,
    stored,
    told,
    write,
)
from tests.simulation.time import SimClock, simulate

STEP = tool_call("tool", "a")
ID = "5f9e1d3c-2b4a-8c6d-9e7f-0a1b2c3d4e5f"
"""Of no episode."""


def held(**declared):
    """Return an app whose episodes wait in their first step, and the tool they wait for."""
    tool = Counter(open_=False)
    return app_of(Scripted(STEP), tools={"tool": tool}, **declared), tool


def untouchable(**declared):
    """Return an app whose code must not run: its episodes would fail."""
    strategy = Scripted()
    strategy.init = None
    return app_of(strategy, **declared)


async def want_canceled(ports, episode_id, *, reason="not wanted"):
    await cancel(ports, "worker", episode_id, by="ada", reason=reason)


async def command_alone(ports, episode_id, *, id_="c1"):
    """Send the command, as if its key had lapsed."""
    command = Cancel(actor_id="worker", episode_id=episode_id, by="ada", reason="not wanted")
    await ports.commands.send(command, id=id_)


async def opened_alone(ports, app):
    """Open an episode that nobody is asked to start, and return its id."""
    opened = uncalled(app)
    await write(ports, opened.episode_id, opened)
    return opened.episode_id


def uncalled(app):
    """Return the opening of an episode that only its lane would start."""
    return msgspec.structs.replace(opening(app), in_lane=True)


def check_canceled(life_):
    """The one end says who wanted it, and why."""
    assert len(life_.of(EpisodeFinished)) == 1
    assert (life_.end.status, life_.end.error_class) == (EndStatus.CANCELED, CANCELED)
    assert life_.end.error_detail.startswith("by ada: not wanted")


# Episodes that wait.


async def test_an_episode_that_is_queued_ends_and_none_of_its_code_runs(ports):
    app = untouchable()
    id_ = await opened_alone(ports, app)
    await want_canceled(ports, id_)
    async with running(app, ports):
        life_ = await lived(ports, id_)
        await all_answered(ports.commands)
    check_canceled(life_)
    assert not life_.of(EpisodeStarted)
    assert [name for name, _ in told(ports)] == ["episode.canceled"]
    assert await ports.gates.get(cancel_key(id_)) is None


async def test_a_start_that_comes_later_finds_it_ended(ports):
    app = untouchable()
    id_ = await opened_alone(ports, app)
    await command_alone(ports, id_)
    async with running(app, ports):
        await lived(ports, id_)
        await ask_start(ports, id_)
        await all_answered(ports.commands)
    check_canceled(await life(ports, id_))
    assert len(told(ports)) == 1


async def test_a_command_that_comes_before_the_first_commit_waits_for_it(ports):
    app = untouchable()
    opened = uncalled(app)
    await command_alone(ports, opened.episode_id)
    async with running(app, ports):
        await eventually(lambda: _deliveries(ports) > 1)
        await write(ports, opened.episode_id, opened)
        check_canceled(await lived(ports, opened.episode_id))
        await all_answered(ports.commands)


def _deliveries(ports):
    given = [
        each for queue in ports.commands._durables.values() for each in queue._unanswered.values()
    ]
    return max((each.deliveries for each in given), default=0)


async def test_an_episode_that_waits_for_its_turn_leaves_its_lane(ports):
    tool = Counter(open_=False)
    app = laned(Scripted(STEP), tools={"tool": tool}, cluster=1)
    waits = opening(app, id_="x1").episode_id
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "x0", "x1")
        await lane_reached(ports, lambda lane: lane.waiting)
        await want_canceled(ports, waits)
        check_canceled(await lived(ports, waits))
        lane = await lane_reached(ports, lambda lane: not lane.waiting)
        assert len(lane.admitted) == 1
        tool.gate.set()
        await lane_reached(ports, lambda lane: not lane.admitted)
    assert [each["episode_id"] for each in news(ports, "episode.canceled")] == [waits]


# Episodes that run.


@pytest.mark.parametrize("most", [1, 5], ids=["a full node", "a node with room"])
async def test_an_episode_that_runs_is_interrupted(ports, most):
    app, tool = held(most=most)
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await asyncio.wait_for(tool.called.wait(), WAIT_S)
        await want_canceled(ports, id_)
        check_canceled(await lived(ports, id_))
        # It was handed back, and not left to come again.
        async with asyncio.timeout(ACK_WAIT_S / 2):
            await all_answered(ports.commands)
    assert await ports.gates.get(cancel_key(id_)) is None


class Uncalled:
    """An inbox to whose node nobody says anything about its episodes."""

    def __init__(self, inbox):
        self._commands = inbox

    def __getattr__(self, name):
        return getattr(self._commands, name)

    async def open_attending(self, actor):
        return await self._commands.open_attending(f"not-{actor}")


async def test_who_gets_the_command_has_the_node_that_runs_it_hear_of_it(ports):
    app, tool = held(most=1)
    deaf = dataclasses.replace(ports, commands=Uncalled(ports.commands))
    async with running(app, deaf, "n1"):
        id_ = await open_episode(ports, app)
        await asyncio.wait_for(tool.called.wait(), WAIT_S)
        async with running(app, ports, "n2"):
            await command_alone(ports, id_)
            check_canceled(await lived(ports, id_))
            await all_answered(ports.commands)
    assert tool.calls == ["a"]


async def test_of_two_who_cancel_at_once_one_says_why_and_both_are_answered(ports):
    app, tool = held()
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await asyncio.wait_for(tool.called.wait(), WAIT_S)
        await asyncio.gather(want_canceled(ports, id_), cancel(ports, "worker", id_, by="bob"))
        life_ = await lived(ports, id_)
        await all_answered(ports.commands)
    assert len(life_.of(EpisodeFinished)) == 1
    assert life_.end.error_detail in ("by ada: not wanted", "by bob")
    assert len(news(ports, "episode.canceled")) == 1


async def test_an_announced_side_effect_is_admitted_by_the_next_owner(ports):
    app = untouchable(tools={"tool": Counter(side_effect=True)})
    id_ = await opened_alone(ports, app)
    await write(ports, id_, STARTED, announced(1, STEP, episode_id=id_))
    await command_alone(ports, id_)
    async with running(app, ports):
        life_ = await lived(ports, id_)
    check_canceled(life_)
    assert "nobody knows whether it happened" in life_.end.error_detail


# Owners that are gone.


async def test_the_next_owner_cancels_what_a_crashed_node_ran(ports):
    app, tool = held(recovery="fail")
    async with doomed(app, ports):
        id_ = await open_episode(ports, app)
        await asyncio.wait_for(tool.called.wait(), WAIT_S)
    await want_canceled(ports, id_)
    async with running(app, ports):
        life_ = await lived(ports, id_)
        await all_answered(ports.commands)
    check_canceled(life_)
    assert tool.calls == ["a"]
    assert len(life_.of(EpisodeStarted)) == 1


async def test_the_next_owner_cancels_what_a_stopping_node_left(ports):
    app, _ = held()
    id_ = await leave(ports, app, EpisodeLeft(node="dead"))
    await want_canceled(ports, id_)
    async with running(app, ports):
        check_canceled(await lived(ports, id_))
        await all_answered(ports.commands)


class CutOff:
    """A port that answers until it is cut off, and then never; but lets a task clean up."""

    def __init__(self, port, cut):
        self._port, self._cut = port, cut

    def __getattr__(self, name):
        real = getattr(self._port, name)
        return real if name in ("ttl_s", "watch", "follow", "delete") else self._answering(real)

    def _answering(self, real):
        async def call(*args, **more):
            if self._cut.is_set():
                await asyncio.Event().wait()
            return await real(*args, **more)

        return call


class Deaf:
    """Gates that tell this node of no change."""

    def __init__(self, gates):
        self._gates = gates
        self.put, self.get, self.delete = gates.put, gates.get, gates.delete
        self.entries = gates.entries

    def watch(self, *, under=""):
        del under
        return self._gates.watch(under="nothing")


async def test_the_next_owner_cancels_what_a_node_runs_that_is_cut_off(ports):
    """I2: the node that is cut off can write nothing more."""
    app, tool = held(most=1)
    cut = asyncio.Event()
    away = replace(
        ports,
        gates=Deaf(CutOff(ports.gates, cut)),
        leases=CutOff(ports.leases, cut),
        log=CutOff(ports.log, cut),
        commands=CutOff(ports.commands, cut),
    )
    async with doomed(app, away, "away"):
        id_ = await open_episode(ports, app)
        await asyncio.wait_for(tool.called.wait(), WAIT_S)
        cut.set()
        await want_canceled(ports, id_)
        async with running(app, ports, "n2"):
            check_canceled(await lived(ports, id_))
            await all_answered(ports.commands)
    assert tool.calls == ["a"]


async def test_an_end_that_the_lane_could_not_hear_of_is_told_it_when_the_command_comes_again(
    ports,
):
    app = untouchable_in_turn()
    id_ = await opened_alone(ports, app)
    silent = Silent(ports.timers)
    await command_alone(ports, id_)
    async with running(app, replace(ports, timers=silent)):
        await lived(ports, id_)
        await asyncio.wait_for(silent.was_asked.wait(), WAIT_S)
        silent.is_silent = False
        await all_answered(ports.commands)
    assert has_left(ports, id_)


def untouchable_in_turn():
    strategy = Scripted()
    strategy.init = None
    return laned(strategy)


def has_left(ports, episode_id) -> bool:
    """Return whether its lane was told that an episode needs its place no more."""
    return f"left.{episode_id}".encode() in stored(ports)


class Silent:
    """A lane that can be told nothing for a while."""

    def __init__(self, timers):
        self._timers, self.is_silent = timers, True
        self.was_asked = asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._timers, name)

    async def send(self, timer, *, id, trace=""):
        if self.is_silent:
            self.was_asked.set()
            raise Unavailable(timer.purpose, detail="away")
        return await self._timers.send(timer, id=id, trace=trace)


def test_who_stood_still_with_the_command_tells_the_lane_of_the_end_for_whoever_died_of_it():
    """They have the first delivery; the second was another's, who wrote the end without a claim."""

    async def story():
        ports = memory_ports(clock=SimClock())
        app = untouchable_in_turn()
        id_ = await opened_alone(ports, app)
        source = await ports.commands.open_attending("worker")
        await command_alone(ports, id_)
        (held,) = await source.receive(room=1, wait_s=0)
        (dies,) = await source.receive(room=1, wait_s=2 * ACK_WAIT_S)
        with suppress(Unavailable):
            await carry_out(app, replace(ports, timers=Silent(ports.timers)), dies)
        assert (await life(ports, id_)).end.status is EndStatus.CANCELED
        before = has_left(ports, id_)
        assert await carry_out(app, ports, held)
        return before, has_left(ports, id_)

    assert simulate(story()) == (False, True)


async def carry_out(app, ports, delivery) -> bool:
    """Do what a delivery asks for now, on a node of its own; return whether it is answered for."""
    clock = SimClock()
    life_ = await life(ports, delivery.content.episode_id)
    parts = parts_of(crew_of(app, ports, clock=clock))
    cancellation = CancelHandler(parts, delivery.content, delivery)
    return await cancellation.carry_out(life_.episode, life_.records)


class KeptKeys:
    """Gates whose keys cannot be deleted: the server is away."""

    def __init__(self, gates):
        self._gates = gates

    def __getattr__(self, name):
        return getattr(self._gates, name)

    async def delete(self, key, **said):
        raise Unavailable(key, detail="away")


async def test_a_cancel_that_could_not_be_acknowledged_comes_again(ports):
    app = untouchable()
    id_ = await leave(ports, app, STARTED)
    await command_alone(ports, id_)
    queue = await ports.commands.open_attending("worker")
    (delivery,) = await queue.receive(room=1, wait_s=WAIT_S)
    assert not await carry_out(app, replace(ports, gates=KeptKeys(ports.gates)), delivery)
    await queue.close()
    assert (await life(ports, id_)).episode.status is Status.CANCELED


@pytest.mark.parametrize(
    ("past", "ago_s"),
    [((), SKEW_S + 1), ((STARTED,), 0.0)],
    ids=["was written long before", "had a claim"],
)
async def test_a_lane_is_not_told_again_of_an_end_that_others_have_told_it_or_are_called_to(
    ports, past, ago_s
):
    app = untouchable_in_turn()
    opened = opening(app)
    end = EpisodeFinished(status=EndStatus.CANCELED, error_class=CANCELED)
    commit = Commit(
        id="by-hand", at=CLOCK.now() - timedelta(seconds=ago_s), events=(opened, *past, end)
    )
    await ports.log.append(ports.stack.episode(opened.episode_id), commit, after=START)
    await command_alone(ports, opened.episode_id)
    async with running(app, ports):
        await all_answered(ports.commands)
    assert not has_left(ports, opened.episode_id)


# Too late, or for nobody.


async def test_what_is_true_already_is_carried_out(ports):
    app = app_of(Scripted())
    id_ = await leave(ports, app, EpisodeConverged())
    await want_canceled(ports, id_)
    async with running(app, ports):
        assert (await lived(ports, id_)).end.status is EndStatus.DONE
        await all_answered(ports.commands)
    assert await ports.gates.get(cancel_key(id_)) is None


async def test_a_command_that_comes_too_late_is_answered_and_leaves_the_rest_to_others(ports):
    app = app_of(Scripted())
    id_ = await opened_alone(ports, app)
    await write(ports, id_, STARTED, EpisodeConverged())
    await command_alone(ports, id_)
    async with running(app, ports):
        await all_answered(ports.commands)
    assert (await life(ports, id_)).episode.status is Status.CONVERGING


async def test_an_episode_that_has_ended_stays_as_it_is(ports):
    app = app_of(Scripted())
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await lived(ports, id_)
        await all_answered(ports.commands)
        await want_canceled(ports, id_)
        await all_answered(ports.commands)
        assert (await life(ports, id_)).end.status is EndStatus.DONE
    assert await ports.gates.get(cancel_key(id_)) is None


async def test_an_episode_that_no_node_can_run_any_more_is_canceled(ports):
    app, other = untouchable(), app_of(Scripted())
    id_ = await leave(ports, app)
    other.actors["worker"].expectations.clear()
    await command_alone(ports, id_)
    async with running(other, ports):
        check_canceled(await lived(ports, id_))
        await all_answered(ports.commands)
    assert [name for name, _ in told(ports)] == ["episode.started", "episode.canceled"]


async def test_a_wish_that_nobody_can_read_is_passed_over(ports):
    app, tool = held()
    first, second = opening(app, id_="x1").episode_id, opening(app, id_="x2").episode_id
    async with running(app, ports):
        for name in ("x1", "x2"):
            await open_episode(ports, app, id_=name)
        await eventually(lambda: len(tool.calls) == 2)
        await ports.gates.put(cancel_key(first), b"what?")
        said = codec.encode_command(
            Cancel(actor_id="worker", episode_id=second, by="ada", reason="not wanted")
        )
        await ports.gates.put(cancel_key(second), said)
        check_canceled(await lived(ports, second))
        tool.gate.set()
        assert (await lived(ports, first)).end.status is EndStatus.DONE


@pytest.fixture
def impatient(monkeypatch):
    """A node that has waited for minutes."""
    monkeypatch.setattr(commands, "BUSY_S", 0.001)
    monkeypatch.setattr(commands, "MISSING_DELIVERIES_MAX", 3)
    monkeypatch.setattr(commands, "MISSING_S", 0.0)


@pytest.mark.usefixtures("impatient")
async def test_a_dead_letter_that_was_to_cancel_gives_nobodys_turn_away(ports):
    async with running(laned(cluster=1), ports):
        await command_alone(ports, "e1")
        await all_answered(ports.commands)
    assert len(await _letters(ports)) == 1
    assert b"left.e1" not in stored(ports)


@pytest.mark.usefixtures("impatient")
async def test_a_command_for_an_episode_that_never_was_is_a_dead_letter_and_can_be_tried_again(
    ports,
):
    app = untouchable()
    id_ = opening(app).episode_id
    async with running(app, ports):
        await command_alone(ports, id_)
        await all_answered(ports.commands)
        (letter,) = await _letters(ports)
        assert letter.reason == "no_such_episode"
        await opened_alone(ports, app)
        await DeadLetterRequests(ports, CLOCK).requeue(f"{letter.stream}.{letter.seq}", by="ann")
        check_canceled(await lived(ports, id_))


async def _letters(ports):
    async with ports.log.follow(stream=Stream.DEAD) as follower:
        records = await follower.receive(most=10, wait_s=0)
    events = [event for record in records for event in record.commit.events]
    return [event for event in events if isinstance(event, DeadLettered)]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"actor": "no name"}, "actor"),
        ({"episode_id": "nope"}, "episode_id"),
        ({"episode_id": ID.upper()}, "episode_id"),
        ({"episode_id": 7}, "episode_id"),
        ({"by": ""}, "by"),
        ({"by": "x" * 201}, "by"),
        ({"reason": "x" * 4_001}, "reason"),
        ({"reason": "\ud800"}, "reason"),
    ],
)
async def test_a_request_that_cannot_work_is_refused(ports, asked, field):
    wanted = {"actor": "worker", "episode_id": ID, "by": "ada", **asked}
    with pytest.raises(BadRequest, match=f"^{field}: "):
        await cancel(ports, **wanted)
    assert not await ports.gates.entries()
