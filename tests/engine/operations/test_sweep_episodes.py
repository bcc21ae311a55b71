"""Which episodes a sweep calls a node to, with the log as it is."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from engine.app.actions import observe, tool_call
from engine.episodes.recovery import SweepVerdict
from engine.operations.sweep import Candidate, EpisodeSweeper
from engine.waits.signals import References
from streams.clock import SystemClock
from streams.keys import episode_claim
from streams.model.events import EndStatus, EpisodeFinished, SignalWaited
from tests.engine.stage import (
    CLOCK,
    STARTED,
    Counter,
    Scripted,
    app_of,
    ask_start,
    kept,
    lived,
    opening,
    running,
    write,
)
from tests.engine.waits.test_wait import by_hand

STALE_AFTER_S = 120.0


class Later(SystemClock):
    """A clock by which everything happened an hour ago."""

    def now(self):
        return super().now() + timedelta(hours=1)


@pytest.fixture
def app():
    return app_of(Scripted(observe("seen")))


def sweeper_of(ports, *, clock=None, is_dry=False):
    return EpisodeSweeper(ports, clock or Later(), "sweep", STALE_AFTER_S, is_dry)


async def swept(ports, episode_id, **how):
    candidate = Candidate(actor_id="worker", episode_id=episode_id)
    (verdict,) = await sweeper_of(ports, **how).sweep([candidate])
    return verdict


async def opened(ports, app, *events):
    opening_ = opening(app)
    await write(ports, opening_.episode_id, opening_, *events)
    return opening_.episode_id


async def test_a_queued_episode_without_a_start_is_started(ports, app):
    episode_id = await opened(ports, app)

    assert await swept(ports, episode_id) is SweepVerdict.RECOVERED
    async with running(app, ports):
        assert (await lived(ports, episode_id)).end.status is EndStatus.DONE


async def test_a_running_episode_that_nobody_holds_is_recovered(ports, app):
    episode_id = await opened(ports, app, STARTED, kept())

    assert await swept(ports, episode_id) is SweepVerdict.RECOVERED
    async with running(app, ports):
        recovered = await lived(ports, episode_id)
    assert recovered.end.status is EndStatus.DONE
    assert recovered.episode.attempts == 2


async def test_a_held_episode_is_left_to_its_node(ports):
    tool = Counter(open_=False)
    app = app_of(Scripted(tool_call("t", "wait")), tools={"t": tool})
    episode_id = await opened(ports, app)
    await ask_start(ports, episode_id)
    async with running(app, ports):
        await tool.called.wait()
        assert await swept(ports, episode_id) is SweepVerdict.HELD
        tool.gate.set()
        assert (await lived(ports, episode_id)).episode.attempts == 1


async def test_an_episode_whose_wait_ahead_is_not_written_down_is_called(ports, app):
    asks = replace(by_hand(), ahead=("payment:42",))
    episode_id = await opened(ports, app, STARTED, kept(), asks)
    assert await swept(ports, episode_id) is SweepVerdict.RECOVERED
    references = References(ports, CLOCK)
    waited = SignalWaited(
        ref="payment:42",
        actor_id="worker",
        episode_id=episode_id,
        step_no=1,
        since=CLOCK.now(),
        is_ahead=True,
    )
    await references.wait(waited)
    assert await swept(ports, episode_id) is not SweepVerdict.RECOVERED


async def test_an_episode_that_spoke_a_moment_ago_is_left_alone(ports, app):
    episode_id = await opened(ports, app)
    assert await swept(ports, episode_id, clock=SystemClock()) is SweepVerdict.HELD
    assert not await ports.commands.is_waiting("worker", episode_id)


async def test_an_episode_whose_command_waits_is_not_called_again(ports, app):
    episode_id = await opened(ports, app)
    await ask_start(ports, episode_id)
    assert await swept(ports, episode_id) is SweepVerdict.CALLED


async def test_an_episode_that_has_ended_is_left_alone(ports, app):
    episode_id = await opened(ports, app, STARTED, EpisodeFinished(status=EndStatus.DONE))
    assert await swept(ports, episode_id) is SweepVerdict.ENDED
    assert await swept(ports, "not-on-the-journal") is SweepVerdict.ENDED


async def test_what_this_version_cannot_read_is_left_to_a_newer_one(ports, app):
    episode_id = await opened(ports, app)
    ports.log.publish_raw(ports.stack.episode(episode_id), b'{"type":"newer@9"}', {})
    assert await swept(ports, episode_id) is SweepVerdict.UNREADABLE


async def test_a_dry_run_calls_nobody(ports, app):
    episode_id = await opened(ports, app)
    assert await swept(ports, episode_id, is_dry=True) is SweepVerdict.RECOVERED
    assert not await ports.commands.is_waiting("worker", episode_id)


async def test_a_sweep_leaves_the_claim_free(ports, app):
    episode_id = await opened(ports, app)
    await swept(ports, episode_id)
    key = episode_claim("worker", episode_id)
    assert await ports.leases.acquire(key, holder="n1") is not None


async def test_two_sweeps_at_once_call_once(ports, app):
    episode_id = await opened(ports, app)
    one, other = await asyncio.gather(swept(ports, episode_id), swept(ports, episode_id))
    assert SweepVerdict.RECOVERED in {one, other}
    source = await ports.commands.open("worker")
    assert len(await source.receive(room=10, wait_s=0)) == 1
    await source.close()


async def test_a_sweep_answers_for_each_candidate_in_order(ports, app):
    episode_id = await opened(ports, app)
    candidates = [
        Candidate(actor_id="worker", episode_id=one) for one in ("gone", episode_id, "away")
    ]
    verdicts = await sweeper_of(ports).sweep(candidates)
    assert verdicts == [SweepVerdict.ENDED, SweepVerdict.RECOVERED, SweepVerdict.ENDED]
