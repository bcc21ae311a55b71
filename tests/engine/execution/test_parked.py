"""An episode whose replay takes another way than the recorded one waits for other code."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from engine.app.actions import tool_call, wait
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.triggers import event
from engine.episodes.cancel import cancel
from engine.episodes.episode import fold
from engine.episodes.fork import fork
from engine.execution import commands
from engine.runtime.store import Store
from engine.waits.parked import retried
from engine.waits.requests import resolve
from streams.keys import PARKED
from streams.memory import memory_ports
from streams.model.events import (
    BlockReason,
    EndStatus,
    EpisodeBlocked,
    EpisodeResolved,
    EpisodeStarted,
    Resolution,
    StepAnnounced,
    StepRecorded,
)
from tests.engine.functions.stage import Ledger, app_of, play
from tests.engine.stage import (
    CLOCK,
    HAPPENED,
    Scripted,
    blocked,
    eventually,
    leave,
    lived,
    open_episode,
    parked,
    running,
)


async def old(ctx, trigger):
    await ctx.call("disk.read")
    await ctx.wait("go")
    await ctx.call("disk.read")


async def renamed(ctx, trigger):
    await ctx.call("disk.measure")
    await ctx.wait("go")
    await ctx.call("disk.measure")


async def renamed_otherwise(ctx, trigger):
    await ctx.call("disk.look")
    await ctx.wait("go")


OLD = Scripted(tool_call("disk", "read"), wait("go"), tool_call("disk", "read"))
"""The same as a class, whose replay begins at the state that it had when it began to wait."""

OTHER = Scripted(tool_call("disk", "read"), tool_call("disk", "look"))


@pytest.fixture
def ports():
    return memory_ports(clock=CLOCK)


@pytest.fixture
def disk():
    return Ledger()


async def waiting(ports, strategy, disk, **options):
    """Open an episode, which waits for a signal once its first call is recorded; return its id."""
    app = app_of(strategy, tools={"disk": disk}, **options)
    async with running(app, ports):
        episode_id = await open_episode(ports, app)
        await blocked(ports, episode_id)
    return episode_id


async def met(ports, strategy, disk, episode_id, *, number=1, **options):
    """Have the episode wake on a node with other code; return its life once it is parked."""
    async with running(app_of(strategy, tools={"disk": disk}, **options), ports):
        if number == 1:
            await resolve(ports, "go", by="ann")
        return await parked(ports, episode_id, number)


@pytest.mark.parametrize(("before", "since"), [(old, renamed), (OLD, OTHER)])
async def test_it_goes_on_as_soon_as_a_node_has_the_code_that_began_it(ports, disk, before, since):
    episode_id = await waiting(ports, before, disk)
    life = await met(ports, since, disk, episode_id)
    assert life.episode.blocked.reason is BlockReason.NONDETERMINISTIC_REPLAY

    async with running(app_of(before, tools={"disk": disk}), ports):
        life = await lived(ports, episode_id)

    assert life.end.status is EndStatus.DONE
    assert disk.calls == ["read", "read"]
    assert [each.resolution for each in life.of(EpisodeResolved)] == ["resolved", "retried"]


async def test_a_node_that_has_the_code_already_is_called_when_it_is_parked(ports, disk):
    """As in a deploy that replaces one node after the other."""
    episode_id = await waiting(ports, old, disk)
    async with AsyncExitStack() as nodes:
        for number, strategy in enumerate((renamed, old, renamed)):
            app = app_of(strategy, tools={"disk": disk})
            await nodes.enter_async_context(running(app, ports, f"n{number}"))
        await resolve(ports, "go", by="ann")
        life = await lived(ports, episode_id)

    assert life.end.status is EndStatus.DONE
    assert disk.calls == ["read", "read"]
    assert life.episode.parks <= 1, "code that was tried leaves it to other code"


async def test_in_a_lane_it_is_parked_again_soon_if_the_other_code_is_gone(
    ports, disk, monkeypatch
):
    """Others wait for its place."""
    monkeypatch.setattr(commands, "OTHER_CODE_LANED_DELIVERIES_MAX", 2)
    monkeypatch.setattr(commands, "OTHER_CODE_LANED_S", 0.0)

    def laned(strategy):
        actor = Actor("worker", max_concurrent_cluster=1)
        actor.expect("thing", strategy, on=event(HAPPENED))
        return App(actors=[actor], tools={"disk": disk})

    async with running(laned(old), ports):
        episode_id = await open_episode(ports, laned(old))
        await blocked(ports, episode_id)
    async with running(laned(renamed), ports):
        await resolve(ports, "go", by="ann")
        await parked(ports, episode_id)
        store = Store(ports.log, CLOCK, fold)
        await store.change(
            ports.stack.episode(episode_id), lambda now, _: retried(now, "gone"), id="unpark"
        )
        life = await parked(ports, episode_id, 2)
    first, second = [each.parked.codes for each in life.of(EpisodeBlocked) if each.parked]
    assert first == second


async def test_each_code_is_tried_once(ports, disk):
    episode_id = await waiting(ports, old, disk)
    await met(ports, renamed, disk, episode_id)
    life = await met(ports, renamed_otherwise, disk, episode_id, number=2)
    first, second = [each.parked.codes for each in life.of(EpisodeBlocked) if each.parked]
    assert second == (*first, second[-1])
    for strategy in (renamed, renamed_otherwise):
        app = app_of(strategy, tools={"disk": disk})
        async with running(app, ports):  # Until another episode has come to where it waits.
            await blocked(ports, await open_episode(ports, app, id_=strategy.__name__))
    life = await parked(ports, episode_id, 2)
    assert len(life.of(EpisodeStarted)) == 3


async def test_it_is_parked_no_longer_for_being_tried_again(ports, disk):
    episode_id = await waiting(ports, old, disk)
    await met(ports, renamed, disk, episode_id)
    life = await met(ports, renamed_otherwise, disk, episode_id, number=2)
    first, second = [each.wait.expires_at for each in life.of(EpisodeBlocked) if each.parked]
    assert first == second


async def test_it_fails_when_no_other_code_has_come_in_time(ports, disk):
    episode_id = await waiting(ports, old, disk)
    async with running(app_of(renamed, tools={"disk": disk}, park_s=0.1), ports):
        await resolve(ports, "go", by="ann")
        life = await lived(ports, episode_id)
    assert (life.end.status, life.end.error_class) == (EndStatus.FAILED, "nondeterministic_replay")
    assert "call 1 was tool_call disk.read; the replay asks for" in life.end.error_detail
    assert life.end.error_detail.endswith("; no other code came in time")
    assert life.of(EpisodeResolved)[-1].resolution is Resolution.EXPIRED
    assert await ports.gates.entries(under=PARKED) == {}


async def test_it_can_be_canceled_by_hand(ports, disk):
    episode_id = await waiting(ports, old, disk)
    async with running(app_of(renamed, tools={"disk": disk}), ports):
        await resolve(ports, "go", by="ann")
        await parked(ports, episode_id)
        await cancel(ports, "worker", episode_id, by="ann", reason="")
        life = await lived(ports, episode_id)
    assert life.end.status is EndStatus.CANCELED
    assert await ports.gates.entries(under=PARKED) == {}


async def test_it_can_be_forked_by_hand(ports, disk):
    episode_id = await waiting(ports, old, disk)
    async with running(app_of(renamed, tools={"disk": disk}), ports):
        await resolve(ports, "go", by="ann")
        await parked(ports, episode_id)
        forked = await fork(ports, episode_id, at=0, by="ann")
        assert (await blocked(ports, forked)).of(EpisodeBlocked)[0].wait.ref == "go"


async def test_a_fork_that_differs_from_its_own_past_fails_at_once(ports, disk):
    episode_id = await waiting(ports, old, disk)
    async with running(app_of(renamed, tools={"disk": disk}), ports):
        forked = await fork(ports, episode_id, at=1, by="ann")
        life = await lived(ports, forked)
    assert life.end.error_class == "nondeterministic_replay"


async def test_a_fork_that_differs_from_what_it_did_itself_is_told_what_any_episode_is(ports, disk):
    forked = await fork(ports, await waiting(ports, old, disk), at=0, by="ann")
    async with running(app_of(old, tools={"disk": disk}), ports):
        await blocked(ports, forked)
    life = await met(ports, renamed, disk, forked)
    assert "ctx.changed" in life.parked
    assert "fork earlier" not in life.parked


async def test_a_run_that_differs_records_nothing(ports, disk):
    async def changed(ctx, trigger):
        ctx.changed("new")
        await ctx.gather(ctx.call("disk.read"), notes(ctx))
        await ctx.call("disk.measure")

    async def notes(ctx):
        ctx.now()

    async def gathering(ctx, trigger):
        await ctx.gather(ctx.call("disk.read"), ctx.wait("go"))
        await ctx.call("disk.read")

    episode_id = await waiting(ports, gathering, disk)
    life = await met(ports, changed, disk, episode_id)
    at = life.events.index(life.of(EpisodeStarted)[1])
    assert [type(each) for each in life.events[at + 1 :]] == [EpisodeBlocked]
    assert disk.calls == ["read"]


async def test_nothing_is_done_before_what_was_announced_is_asked_for_again(ports):
    """Neither in the branch that has it, nor in those beside."""

    async def sends(ctx, trigger):
        await ctx.gather(ctx.call("mail.send"), ctx.call("disk.read"))

    async def sends_else(ctx, trigger):
        await ctx.gather(ctx.call("mail.write"), ctx.call("disk.read"))

    tools = {"mail": Ledger(side_effect=True, idempotent=True), "disk": Ledger()}
    announced = (await play(sends, tools=tools)).of(StepAnnounced)
    used = {"mail": Ledger(side_effect=True, idempotent=True), "disk": Ledger()}
    app = app_of(sends_else, tools=used)
    async with running(app, ports):
        life = await parked(ports, await leave(ports, app, *announced))
    assert "call 1.1.1 was tool_call mail.send" in life.parked
    assert life.of(StepRecorded) == []
    assert used["mail"].calls == used["disk"].calls == []


async def test_a_call_under_way_whose_tool_is_gone_is_made_once_under_its_key(ports):
    async def sends(ctx, trigger):
        await ctx.call("mail.send")

    mail = Ledger(side_effect=True, idempotent=True)
    announced = (await play(sends, tools={"mail": mail})).of(StepAnnounced)
    app, without = app_of(sends, tools={"mail": mail}), app_of(sends, tools={"disk": Ledger()})
    mail.calls.clear()
    mail.keys.clear()
    episode_id = await leave(ports, app, *announced)
    async with running(without, ports):
        assert "this node has no such tool" in (await parked(ports, episode_id)).parked
    async with running(app, ports):
        life = await lived(ports, episode_id)
    assert life.end.status is EndStatus.DONE
    assert mail.keys == [announced[0].idempotency_key]


async def test_an_episode_that_has_got_further_is_parked_anew(ports, disk):
    episode_id = await waiting(ports, twice, disk)
    await met(ports, renamed, disk, episode_id)
    async with running(app_of(twice, tools={"disk": disk}), ports):
        await lived(ports, episode_id, lambda life: life.episode.blocked.wait.ref == "again")
    async with running(app_of(renamed, tools={"disk": disk}), ports):
        await resolve(ports, "again", by="ann")
        life = await parked(ports, episode_id, 2)
    first, second = [each for each in life.of(EpisodeBlocked) if each.parked]
    assert first.parked.codes == second.parked.codes
    assert first.wait.expires_at < second.wait.expires_at


async def twice(ctx, trigger):
    await ctx.call("disk.read")
    await ctx.wait("go")
    await ctx.call("disk.read")
    await ctx.wait("again")


async def test_the_key_of_an_episode_that_goes_on_is_removed(ports, disk):
    episode_id = await waiting(ports, old, disk)
    await met(ports, renamed, disk, episode_id)
    assert len(await ports.gates.entries(under=PARKED)) == 1
    async with running(app_of(old, tools={"disk": disk}), ports):
        await lived(ports, episode_id)

        async def is_empty():
            return not await ports.gates.entries(under=PARKED)

        await eventually(is_empty)


async def test_where_the_code_is_the_same_people_are_sent_to_the_check(ports, disk):
    calls = iter(("read", "measure", "look"))

    async def by_chance(ctx, trigger):
        await ctx.call(f"disk.{next(calls)}")
        await ctx.wait("go")

    episode_id = await waiting(ports, by_chance, disk)
    life = await met(ports, by_chance, disk, episode_id)
    assert "the code is the one that has recorded this: `vigil check` lists" in life.parked
    assert "ctx.changed" not in life.parked


async def test_a_class_is_told_what_its_replay_asks_for(ports, disk):
    episode_id = await waiting(ports, OLD, disk)
    life = await met(ports, OTHER, disk, episode_id)
    assert life.parked.startswith("call 2 was wait; the replay asks for tool_call disk.look at ")
