"""Waits and signals of a stack from before references were aggregates are not lost."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from engine.app.actions import wait
from engine.waits.adopt import WaitEntry
from engine.waits.requests import resolve
from engine.waits.signal import KEPT_S
from engine.waits.signals import QUEUE, SIGNAL
from streams.keys import brought_key
from streams.model.events import EpisodeResolved, Resolution, StepKind, StepRecorded
from streams.ports.timers import Timer
from tests.engine.stage import (
    CLOCK,
    STARTED,
    Scripted,
    app_of,
    eventually,
    kept,
    life,
    lived,
    open_episode,
    opening,
    running,
    write,
)
from tests.engine.waits.test_wait import blocked, for_payment, letters, waiting_now

REF = "payment:42"
APP = app_of(Scripted(wait(REF)))


async def waited_before(ports, id_: str = "x1") -> str:
    """Leave an episode that waits as an earlier version has left it."""
    opened = opening(APP, id_=id_)
    await write(ports, opened.episode_id, opened, STARTED, kept(), for_payment())
    entry = WaitEntry(actor_id="worker", episode_id=opened.episode_id, ref=REF)
    await ports.registry.put(key_of(opened.episode_id), msgspec.json.encode(entry))
    return opened.episode_id


def key_of(episode_id: str, step_no: int = 1) -> str:
    return f"wait.payment=3A42.{episode_id}.{step_no}"


async def arm_before(ports, *, ago_s: float, ref: str = REF) -> None:
    """Arm the timer of a signal as an earlier version has armed it."""
    word = {"id": "w1", "ref": ref, "by": "bank", "result": 7}
    at = CLOCK.now() - timedelta(seconds=ago_s)
    payload = {"kept": {"word": word, "at": at.isoformat()}, "seq": 3}
    timer = Timer(actor=QUEUE, purpose=SIGNAL, key="w1", payload=payload)
    await ports.timers.arm(timer, at=CLOCK.now())


async def all_adopted(ports) -> None:
    async with running(APP, ports):
        await eventually(lambda: not [k for k in ports.registry._entries if k.startswith("wait.")])


async def test_a_wait_is_written_down_when_a_node_starts_and_can_be_answered(ports):
    ids = [await waited_before(ports, name) for name in "ab"]
    async with running(APP, ports):
        await eventually(lambda: not [k for k in ports.registry._entries if k.startswith("wait.")])
        assert sorted(await waiting_now(ports)) == sorted((each, 1) for each in ids)
        await resolve(ports, REF, 7, by="bank")
        for each in ids:
            assert (await lived(ports, each)).seen == [7]


async def test_a_wait_that_is_over_is_not(ports):
    id_ = await waited_before(ports)
    step = StepRecorded(step_no=1, kind=StepKind.WAIT, fingerprint="f", result=msgspec.Raw(b"7"))
    resolved = EpisodeResolved(step_no=1, resolution=Resolution.RESOLVED, decision_id="d")
    await write(ports, id_, step, resolved)
    await ports.registry.put("wait.payment=3A42.strange.1", b"{not json")
    await all_adopted(ports)
    assert await ports.log.last(ports.stack.signal(REF)) is None


@pytest.mark.parametrize("ago_s", [60.0, KEPT_S + 60.0])
async def test_a_signal_that_has_a_timer_reaches_who_waits_when_that_is_due(ports, ago_s):
    await arm_before(ports, ago_s=ago_s)
    id_ = await waited_before(ports)
    async with running(APP, ports):
        assert (await lived(ports, id_)).seen == [7]
    assert await letters(ports) == []


async def test_a_signal_that_has_a_timer_is_kept_until_its_hour_is_over(ports):
    await arm_before(ports, ago_s=60.0)
    async with running(APP, ports):
        await eventually(lambda: ports.log._streams["vigil-state"].past(0))
        assert (await lived(ports, await open_episode(ports, APP))).seen == [7]
    assert await letters(ports) == []


async def test_a_signal_that_an_episode_has_had_is_for_nobody_else(ports):
    await arm_before(ports, ago_s=60.0)
    await ports.gates.put(brought_key("w1"), b"", ttl_s=KEPT_S)
    async with running(APP, ports):
        await eventually(lambda: ports.timers._durables)
        await eventually(lambda: not any(each.backlog for each in ports.timers._durables.values()))
        id_ = await open_episode(ports, APP)
        await blocked(ports, id_)
        assert (await life(ports, id_)).episode.converged is None
    assert await waiting_now(ports) == [(id_, 1)]
