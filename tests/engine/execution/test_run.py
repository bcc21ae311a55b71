"""What is durable, and when, before a node may go on with an episode."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from engine.app.actions import approval, observe, tool_call
from engine.app.checks import Breaker
from engine.episodes.episode import Status
from engine.episodes.writer import EVENTS_PER_COMMIT_MAX
from engine.runtime.claim import NO_CLAIM
from streams.errors import Unavailable
from streams.keys import episode_claim
from streams.model.commands import Recover
from streams.model.events import (
    CheckpointSaved,
    EndStatus,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeStarted,
    StepRecorded,
)
from streams.model.triggers import Budget
from tests.engine.stage import (
    HAPPENED,
    STARTED,
    WAIT_S,
    Closed,
    Counter,
    Scripted,
    all_answered,
    app_of,
    ask_start,
    doomed,
    eventually,
    gates,
    life,
    lived,
    no_claim_made,
    open_episode,
    opening,
    play,
    running,
    told,
    write,
)


def shape(life_):
    return [[type(event) for event in record.commit.events] for record in life_.records]


async def woken(ports, app):
    """The life of the episode that one event opens on a node with room."""
    async with running(app, ports):
        await eventually(lambda: gates(ports.domain_events))
        await ports.domain_events.publish(HAPPENED, {}, id="x1")
        return await lived(ports, opening(app).episode_id)


async def test_an_episode_without_steps_is_one_commit(ports):
    life_ = await woken(ports, app_of(Scripted()))
    assert shape(life_) == [[EpisodeOpened, EpisodeStarted, EpisodeConverged, EpisodeFinished]]


async def test_an_episode_of_its_own_thoughts_is_one_commit(ports):
    life_ = await woken(ports, app_of(Scripted(observe(1))))
    assert len(life_.records) == 1


async def test_an_episode_that_is_over_with_its_first_commit_claims_nothing(ports):
    """Should its node die, the event comes again: it is acknowledged when all has been told."""
    async with ports.leases.watch() as watch:
        life_ = await woken(ports, app_of(Scripted()))
        assert await no_claim_made(watch)
    (started,) = life_.of(EpisodeStarted)
    assert started.claim_revision == NO_CLAIM


async def test_an_episode_whose_first_commit_does_not_hold_its_end_is_covered(ports):
    """However quickly it came to the end: until the end is durable, its node may die."""
    thoughts = Scripted(*map(observe, range(EVENTS_PER_COMMIT_MAX)))
    life_ = await woken(ports, app_of(thoughts, budget=Budget(turns=2 * EVENTS_PER_COMMIT_MAX)))
    (started,) = life_.of(EpisodeStarted)
    assert len(life_.records) == 2
    assert started.node_lease_since is not None


async def test_an_event_is_acknowledged_before_its_episode_ends_only_when_it_is_covered(ports):
    tool = Counter(open_=False)
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": tool})
    async with running(app, ports):
        await eventually(lambda: gates(ports.domain_events))
        await ports.domain_events.publish(HAPPENED, {}, id="x1")
        await tool.called.wait()
        await all_answered(ports.domain_events)
        (started,) = (await life(ports, opening(app).episode_id)).of(EpisodeStarted)
        tool.gate.set()
    assert started.node_lease_since is not None


@pytest.mark.parametrize("told", [{"breaker": Breaker(threshold=3)}, {"priority": 1}])
async def test_an_episode_whose_end_others_are_told_of_is_claimed(ports, told):
    """The journal does not show whether they were."""
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": Counter()}, **told)
    (started,) = (await woken(ports, app)).of(EpisodeStarted)
    assert started.claim_revision > NO_CLAIM


async def test_a_waiting_episode_was_claimed_before_it_waited(ports):
    app = app_of(Scripted(approval({})))
    async with ports.leases.watch() as watch, running(app, ports):
        id_ = await open_episode(ports, app)
        await lived(ports, id_, lambda so_far: so_far.episode.status is Status.BLOCKED)
        made = [each.key for each in await watch.receive(most=10, wait_s=WAIT_S)]
    assert episode_claim("worker", id_) in made


async def test_a_repeated_call_leaves_an_episode_to_the_node_whose_lease_covers_it(ports):
    tool = Counter(open_=False)
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": tool})
    async with running(app, ports, "n1"):
        id_ = await open_episode(ports, app)
        await tool.called.wait()
        async with running(app, ports, "n2"):
            await ask_start(ports, id_, id_="again")
            queue = ports.commands._durables["inbox-worker", 0]
            await eventually(lambda: any(one.deliveries > 2 for one in queue._unanswered.values()))
            tool.gate.set()
            life_ = await lived(ports, id_)
    assert [each.node for each in life_.of(EpisodeStarted)] == ["n1"]


async def test_an_episode_goes_on_elsewhere_once_the_lease_that_covers_it_has_lapsed(ports):
    tool = Counter(open_=False)
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": tool})
    async with doomed(app, ports, "n1"):
        id_ = await open_episode(ports, app)
        await tool.called.wait()
    tool.gate.set()
    async with running(app, ports, "heir"):
        life_ = await lived(ports, id_)
    assert [each.node for each in life_.of(EpisodeStarted)] == ["n1", "heir"]
    assert life_.end.status is EndStatus.DONE


class Silent:
    """A world that can be told nothing."""

    def __init__(self, world):
        self._domain_events, self.was_asked = world, asyncio.Event()
        self.open, self.stored = world.open, world.stored

    async def fence(self, name, payload, *, id):
        self.was_asked.set()
        raise Unavailable(name, detail="away")


async def test_an_event_whose_episode_could_not_be_told_of_is_answered_for_and_others_tell(ports):
    app = app_of(Scripted())
    world = Silent(ports.domain_events)
    async with doomed(app, replace(ports, domain_events=world)):
        await eventually(lambda: gates(ports.domain_events))
        await ports.domain_events.publish(HAPPENED, {}, id="x1")
        await lived(ports, opening(app).episode_id)
        await all_answered(ports.domain_events)
        await world.was_asked.wait()
    assert told(ports) == []
    async with running(app, ports, "n2"):
        names = ["episode.started", "episode.completed"]
        await eventually(lambda: [name for name, _ in told(ports)] == names)


async def test_a_queued_episode_starts_and_ends_in_one_commit():
    life_ = await play(Scripted())
    assert shape(life_) == [[EpisodeOpened], [EpisodeStarted, EpisodeConverged, EpisodeFinished]]


async def test_a_strict_episode_has_a_commit_for_each_step(ports):
    tool = Counter()
    plan = (tool_call("tool", "a"), tool_call("tool", "b"))
    life_ = await woken(ports, app_of(Scripted(*plan), tools={"tool": tool}, durability="strict"))
    assert shape(life_) == [
        [EpisodeOpened, EpisodeStarted, CheckpointSaved],
        [StepRecorded],
        [StepRecorded],
        [EpisodeConverged, EpisodeFinished],
    ]


@pytest.mark.parametrize("is_queued", [False, True])
async def test_no_tool_is_called_before_the_fence_is_durable(ports, is_queued):
    """I3: another node may have made the call, and recorded it."""
    tool = Counter()
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": tool})
    closed = Closed(ports.log)
    async with running(app, replace(ports, log=closed)):
        await eventually(lambda: gates(ports.domain_events))
        if is_queued:
            await open_episode(ports, app)
        else:
            await ports.domain_events.publish(HAPPENED, {}, id="x1")
        await closed.tried.wait()
        await asyncio.sleep(0)
        assert tool.calls == []
        closed.open.set()
        await lived(ports, opening(app).episode_id)
    assert tool.calls == ["a"]


async def test_an_event_that_is_published_again_calls_no_tool_again(ports):
    """I1, I3."""
    tool = Counter()
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": tool})
    first = await woken(ports, app)
    seq = await ports.domain_events.publish(HAPPENED, {}, id="x1")
    async with running(app, ports):
        await ports.domain_events.republish(seq, id="again")
        await all_answered(ports.domain_events)
        await all_answered(ports.commands)
    assert tool.calls == ["a"]
    assert (await life(ports, opening(app).episode_id)) == first


class Refusing:
    """A log that is away for its first appends."""

    def __init__(self, log, *, times):
        self._log, self._times = log, times

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def append(self, subject, commit, *, after):
        if self._times:
            self._times -= 1
            raise Unavailable(subject, detail="away")
        return await self._log.append(subject, commit, after=after)


async def test_a_start_that_may_have_crashed_a_node_is_durable_before_any_code_runs(ports):
    """Else code that kills its node would kill one after the other, and nobody would count."""
    strategy, seen = Scripted(), []
    app = app_of(strategy)

    async def converge(state, ctx):
        seen.append(len((await life(ports, id_)).of(EpisodeStarted)))
        return Scripted.converge(strategy, state, ctx)

    strategy.converge = converge
    id_ = await open_episode(ports, app)
    async with running(app, replace(ports, log=Refusing(ports.log, times=1))):
        await lived(ports, id_)
    assert seen == [0, 1]


async def test_an_episode_that_another_node_had_is_fenced_first(ports):
    """The fence of a takeover is durable before the strategy is asked for anything."""
    strategy = Scripted(observe("seen"))
    app = app_of(strategy)
    opened = opening(app)
    await write(ports, opened.episode_id, opened)
    await write(ports, opened.episode_id, STARTED)
    fences = []

    async def init(episode, trigger):
        fences.extend((await life(ports, opened.episode_id)).of(EpisodeStarted))
        return Scripted.State()

    strategy.init = init
    await ask_start(ports, opened.episode_id)
    async with running(app, ports):
        await lived(ports, opened.episode_id)
    assert [event.node for event in fences] == ["dead", "n1"]


class Overtaken:
    """A log where a rival is faster, once."""

    def __init__(self, ports, rival):
        self._ports, self._rival = ports, rival
        self.read, self.last = ports.log.read, ports.log.last

    async def append(self, subject, commit, *, after):
        rival, self._rival = self._rival, None
        if rival is not None:
            await write(self._ports, *rival)
        return await self._ports.log.append(subject, commit, after=after)


class Noting:
    """An inbox that notes what it is sent."""

    def __init__(self, inbox):
        self._commands, self.sent = inbox, []
        self.open, self.is_waiting = inbox.open, inbox.is_waiting
        self.open_attending = inbox.open_attending

    async def send(self, command, *, id, trace=""):
        self.sent.append((id.partition(".")[0], command))
        await self._commands.send(command, id=id, trace=trace)


async def test_who_takes_a_lapsed_claim_in_vain_calls_for_recovery_itself(ports):
    """Taking the claim removed the marker of the lapse: nobody else would call any more."""
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": Counter()})
    id_ = opening(app).episode_id
    await write(ports, id_, opening(app))
    await ports.leases.acquire(episode_claim("worker", id_), holder="dead")
    async with asyncio.timeout(WAIT_S), ports.leases.watch() as watch:
        lapsed = False
        while not lapsed:
            changes = await watch.receive(most=10, wait_s=WAIT_S)
            lapsed = any(change.state == "expired" for change in changes)

    inbox = Noting(ports.commands)
    log = Overtaken(ports, (id_, STARTED))
    await ask_start(ports, id_)
    async with running(app, replace(ports, log=log, commands=inbox)):
        await lived(ports, id_)
    called = [command for name, command in inbox.sent if name == "refused"]
    (call,) = called
    lapsed = call.lapse_revision
    assert lapsed > 0
    assert call == Recover(
        actor_id="worker", episode_id=id_, reason="lapsed", lapse_revision=lapsed
    )
