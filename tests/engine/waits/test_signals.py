"""Who waits for word from outside is found, and nobody else."""

from __future__ import annotations

import msgspec

from engine.app.actions import fingerprint, wait
from engine.episodes.cancel import cancel
from engine.waits.signal import WaitEntry
from engine.waits.signals import find_waiters
from streams.json import raw
from streams.keys import wait_key
from streams.model.events import EpisodeResolved, Resolution, StepKind, StepRecorded
from tests.engine.stage import (
    Scripted,
    all_answered,
    app_of,
    lived,
    open_episode,
    running,
    told,
    write,
)
from tests.engine.waits.test_wait import blocked

REF = "payment:42"
PAYMENT = wait(REF)


async def answered_and_left(ports, app) -> str:
    """Have an episode wait for word and get it, from a node that died before it went on."""
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await blocked(ports, id_)
    mark = fingerprint(PAYMENT)
    step = StepRecorded(step_no=1, kind=StepKind.WAIT, fingerprint=mark, result=raw(7))
    resolved = EpisodeResolved(step_no=1, resolution=Resolution.RESOLVED, decision_id="d")
    await write(ports, id_, step, resolved)
    return id_


async def test_an_episode_that_waits_is_found(ports):
    app = app_of(Scripted(PAYMENT))
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await blocked(ports, id_)
    assert [each.episode_id for each in await find_waiters(ports, REF)] == [id_]
    assert list(await ports.registry.entries()) == [wait_key(REF, id_, 1)]


async def test_one_that_has_its_answer_is_found_no_more_though_its_node_left_the_entry(ports):
    await answered_and_left(ports, app_of(Scripted(PAYMENT)))
    assert await ports.registry.entries() != {}
    assert await find_waiters(ports, REF) == []
    assert await ports.registry.entries() == {}


async def test_one_that_waits_for_the_same_once_more_is_found_by_that_alone(ports):
    app = app_of(Scripted(PAYMENT))
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await blocked(ports, id_)
    old = WaitEntry(actor_id="worker", episode_id=id_, ref=REF)
    await ports.registry.put(wait_key(REF, id_, 0), msgspec.json.encode(old))
    assert len(await find_waiters(ports, REF)) == 1
    assert list(await ports.registry.entries()) == [wait_key(REF, id_, 1)]


async def test_nothing_is_left_of_a_wait_that_was_answered_and_canceled(ports):
    app = app_of(Scripted(PAYMENT))
    id_ = await answered_and_left(ports, app)
    async with running(app, ports):
        await cancel(ports, "worker", id_, by="ada")
        await lived(ports, id_)
        await all_answered(ports.commands)
    assert await ports.registry.entries() == {}


async def test_the_world_is_told_of_an_answer_though_the_episode_is_canceled_at_once(ports):
    """Whoever answered it died before they told, and after its end nobody else would."""
    app = app_of(Scripted(PAYMENT))
    id_ = await answered_and_left(ports, app)
    async with running(app, ports):
        await cancel(ports, "worker", id_, by="ada")
        await lived(ports, id_)
        await all_answered(ports.commands)
    assert [name for name, _ in told(ports)][-2:] == ["episode.resumed", "episode.canceled"]
