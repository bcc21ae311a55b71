"""What becomes of children when code changes, nodes lack some, or their parent begins anew."""

from __future__ import annotations

import asyncio

import pytest

from engine.app.actor import Actor
from engine.app.app import App
from engine.app.triggers import event, manual
from engine.episodes.episode import fold
from engine.episodes.recovery import SweepVerdict
from engine.errors import NondeterministicReplay
from engine.node.node import Node
from engine.operations.replay import load, record, replay
from engine.operations.sweep import Candidate, EpisodeSweeper
from engine.reactor import follow_up
from engine.reactor.follow_up import EpisodeState, SendCommand
from engine.waits.requests import resolve
from streams.model.children import ChildStart
from streams.model.commands import Attend
from streams.model.events import (
    EndStatus,
    EpisodeFinished,
    EpisodeStarted,
    StepAnnounced,
    StepRecorded,
)
from streams.model.triggers import Budget
from streams.ports.log import Commit, Recorded
from tests.engine.functions.stage import Ledger
from tests.engine.functions.test_children import app_of, played
from tests.engine.stage import (
    CLOCK,
    HAPPENED,
    blocked,
    lived,
    open_episode,
    opening,
    parked,
    running,
)
from vigil import ConvergeResult
from vigil.testing import run


async def squares(ctx, trigger):
    await ctx.episode("worker", "square", {"n": 1})


async def squares_in_metres(ctx, trigger):
    await ctx.episode("worker", "square", {"n": 1, "unit": "m"})


async def squares_slowly(ctx, trigger):
    await ctx.episode("worker", "square", {"n": 1, "takes_s": 100_000})


async def squares_slowly_in_metres(ctx, trigger):
    await ctx.episode("worker", "square", {"n": 1, "takes_s": 100_000, "unit": "m"})


async def history_of(parent):
    async with run(app_of(parent)) as vigil:
        return load(await record(vigil.ports, (await played(vigil)).id))


async def test_the_end_of_a_child_stands_though_the_code_asks_with_another_payload():
    again = await replay(await history_of(squares), app_of(squares_in_metres))
    assert "worker.square" in again.other_values


async def test_a_child_that_has_not_ended_must_be_asked_for_with_the_same_payload():
    with pytest.raises(NondeterministicReplay, match=r"worker\.square.*value"):
        await replay(await history_of(squares_slowly), app_of(squares_slowly_in_metres))


async def test_two_calls_with_one_key_count_what_their_child_has_used_once():
    async def parent(ctx, trigger):
        first = await ctx.episode("worker", "square", {"n": 1, "takes_s": 60}, key="k")
        second = await ctx.episode("worker", "square", {"n": 1, "takes_s": 60}, key="k")
        return ConvergeResult(result=first.episode_id == second.episode_id)

    async with run(app_of(parent)) as vigil:
        boss = await played(vigil)
        (child,) = vigil.children(boss.id)
        parent_, child_ = [await episode_of(vigil.ports, each) for each in (boss.id, child.id)]
    assert boss.result is True
    assert parent_.turns_used == 2 + child_.finished.turns_used


async def episode_of(ports, episode_id):
    return fold(await ports.log.read(ports.stack.episode(episode_id)))


# An end of a child, and nodes that lack the code of its parent.


async def waits(ctx, trigger):
    return ConvergeResult(result=[(await ctx.episode("worker", "kid", {})).value])


async def kid(ctx, trigger):
    await ctx.wait("go")
    return ConvergeResult(result=1)


def family(**parents) -> App:
    worker = Actor("worker")
    for name, parent in parents.items():
        worker.expect(name, parent, on=event(HAPPENED))
    worker.expect("kid", kid, on=manual())
    return App(actors=[worker])


async def parent_and_child(ports):
    async with running(family(thing=waits), ports):
        parent_id = await open_episode(ports, family(thing=waits))
        (announced,) = (await blocked(ports, parent_id)).of(StepAnnounced)
        await blocked(ports, announced.child.episode_id)
    return parent_id, announced.child.episode_id


async def test_a_node_without_the_code_of_a_parent_records_the_ends_of_its_children(ports):
    parent_id, child_id = await parent_and_child(ports)
    async with running(family(other=waits), ports):
        await resolve(ports, "go", by="ann")
        await lived(ports, child_id)
        await lived(ports, parent_id, lambda so_far: so_far.of(StepRecorded))
    async with running(family(thing=waits), ports):
        assert (await lived(ports, parent_id)).end.status is EndStatus.DONE


async def end_by_hand(ports, episode_id):
    subject = ports.stack.episode(episode_id)
    end = Commit(id="by-hand", at=CLOCK.now(), events=(EpisodeFinished(status=EndStatus.DONE),))
    await ports.log.append(subject, end, after=(await ports.log.last(subject)).seq)


async def test_a_node_without_the_code_of_a_parent_is_enough_to_look_for_ends(ports):
    """A child may have ended before its parent waited: no end of it calls anybody then."""
    parent_id, child_id = await parent_and_child(ports)
    await end_by_hand(ports, child_id)
    deaf = Node(family(other=waits), ports, name="deaf", clock=CLOCK, reacts=False)
    runs = asyncio.create_task(deaf.run())
    await ports.commands.send(Attend(actor_id="worker", episode_id=parent_id), id="look")
    await lived(ports, parent_id, lambda so_far: so_far.of(StepRecorded))
    deaf.stop()
    assert await runs


async def test_a_sweep_calls_for_a_parent_whose_child_has_ended(ports):
    parent_id, child_id = await parent_and_child(ports)
    sweeper = EpisodeSweeper(ports, CLOCK, "sweep", 0.0)
    candidate = Candidate(actor_id="worker", episode_id=parent_id)
    (before,) = await sweeper.sweep([candidate])
    await end_by_hand(ports, child_id)
    (after,) = await sweeper.sweep([candidate])
    assert (before, after) == (SweepVerdict.WAITING, SweepVerdict.RECOVERED)


# What a parent began before it began anew.


def test_the_end_of_a_parent_cancels_what_it_began_before_a_restart_too():
    def asks(child_id):
        child = ChildStart(
            episode_id=child_id, actor_id="worker", expectation_id="kid", budget=Budget()
        )
        return StepAnnounced(
            step_no=1,
            fingerprint="f",
            tool_name="worker.kid",
            idempotency_key="k",
            path="1",
            child=child,
        )

    state = EpisodeState(opened=opening(family(thing=waits)), is_public=True)
    restart = EpisodeStarted(node="n2", attempt=2, fresh=True)
    end = EpisodeFinished(status=EndStatus.FAILED)
    events = (EpisodeStarted(node="n1", attempt=1), asks("one"), restart, asks("two"), end)
    commit = Commit(id="all", at=CLOCK.now(), events=events)
    _, effects = follow_up.of_episode(state, Recorded(subject="s", seq=1, commit=commit))
    commands = [each.command for each in effects if isinstance(each, SendCommand)]
    assert [each.episode_id for each in commands if hasattr(each, "reason")] == ["one", "two"]


# A parked episode.


def with_call(action, disk) -> App:
    async def reads(ctx, trigger):
        await ctx.call(f"disk.{action}")
        await ctx.wait("go")
        await ctx.call("disk.read")

    worker = Actor("worker")
    worker.expect("thing", reads, on=event(HAPPENED))
    return App(actors=[worker], tools={"disk": disk})


async def test_the_history_of_a_parked_episode_fits_the_code_that_recorded_it(ports):
    disk = Ledger()
    recorded_by, other = with_call("read", disk), with_call("measure", disk)
    async with running(recorded_by, ports):
        episode_id = await open_episode(ports, recorded_by)
        await blocked(ports, episode_id)
    async with running(other, ports):
        await resolve(ports, "go", by="ann")
        await parked(ports, episode_id)
        history = load(await record(ports, episode_id))
    assert (await replay(history, recorded_by)).asks is not None
    with pytest.raises(NondeterministicReplay):
        await replay(history, other)
