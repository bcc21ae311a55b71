"""An episode that waits for a signal is found, and nobody else."""

from __future__ import annotations

from engine.app.actions import fingerprint, wait
from engine.episodes.cancel import cancel
from engine.waits.signal import Signal
from engine.waits.signals import References
from streams.json import raw
from streams.model.events import (
    EpisodeResolved,
    Resolution,
    SignalWaited,
    StepKind,
    StepRecorded,
)
from tests.engine.stage import (
    CLOCK,
    Scripted,
    all_answered,
    app_of,
    lived,
    open_episode,
    running,
    told,
    write,
)
from tests.engine.waits.test_wait import blocked, waiting_now

REF = "payment:42"
PAYMENT = wait(REF)


async def answered_and_left(ports, app) -> str:
    """Have an episode wait for a signal and get it, from a node that died before it went on."""
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await blocked(ports, id_)
    mark = fingerprint(PAYMENT)
    step = StepRecorded(step_no=1, kind=StepKind.WAIT, fingerprint=mark, result=raw(7), path="1")
    resolved = EpisodeResolved(step_no=1, resolution=Resolution.RESOLVED, decision_id="d")
    await write(ports, id_, step, resolved)
    return id_


async def test_an_episode_that_waits_is_found(ports):
    app = app_of(Scripted(PAYMENT))
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await blocked(ports, id_)
    assert await waiting_now(ports) == [(id_, 1)]


async def test_one_that_has_its_answer_is_found_no_more(ports):
    await answered_and_left(ports, app_of(Scripted(PAYMENT)))
    assert await waiting_now(ports) == []


async def test_a_wait_that_a_slow_node_writes_down_late_is_none(ports):
    app = app_of(Scripted(PAYMENT))
    id_ = await answered_and_left(ports, app)
    waited = SignalWaited(ref=REF, actor_id="worker", episode_id=id_, step_no=1, since=CLOCK.now())
    nobodys = Signal(id="s1", ref=REF, by="bank")
    state = await References(ports, CLOCK).give(nobodys, at=CLOCK.now())
    assert (state.waits, state.is_unclaimed(nobodys)) == ({}, True)
    await References(ports, CLOCK).wait(waited)
    state = await References(ports, CLOCK).give(nobodys, at=CLOCK.now())
    assert state.is_unclaimed(nobodys), "it would be lost on an episode that waits no more"


async def test_the_world_is_told_of_an_answer_though_the_episode_is_canceled_at_once(ports):
    """Whoever answered it died before they told, and after its end nobody else would."""
    app = app_of(Scripted(PAYMENT))
    id_ = await answered_and_left(ports, app)
    async with running(app, ports):
        await cancel(ports, "worker", id_, by="ada")
        await lived(ports, id_)
        await all_answered(ports.commands)
    assert [name for name, _ in told(ports)][-2:] == ["episode.resumed", "episode.canceled"]
