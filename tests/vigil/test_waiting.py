"""What waits for an actor, as the command line counts it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.cluster.nodes import ExpectationInfo
from engine.triggers.debounce import PURPOSE
from engine.triggers.debounce_store import DebounceStore, fired_of
from streams.clock import SystemClock
from streams.memory import memory_ports
from streams.model.commands import Start
from streams.ports.timers import Timer
from tests.engine.crew import crew_of
from tests.engine.stage import Scripted, app_of
from tests.engine.triggers.test_debounce_store import calming_of, happened, hold, thing_of
from vigil.asking.stack import backlog_of, debounced_of

CLOCK = SystemClock()
ON_BOTH = [ExpectationInfo(triggers=("event a", "event b", "manual"))]


@pytest.fixture
def ports():
    return memory_ports(clock=CLOCK)


async def published(ports, *names):
    for number, name in enumerate(names, 1):
        await ports.domain_events.publish(name, {}, id=f"{name}{number}")


async def test_an_event_is_held_until_it_fires_and_not_after_it_has_fired(ports):
    app = app_of(Scripted(), subject_key="host", debounce_s=60.0)
    assert await debounced_of(ports, "worker") == {}
    await hold(app, ports, happened(1, host="a"))
    await hold(app, ports, happened(2, host="b"))
    assert await debounced_of(ports, "worker") == {"thing": 2}

    await ports.timers.cancel("worker", PURPOSE, "thing/a")
    fired = fired_of(calming_of(happened(1, host="a")), thing_of(app), is_repeat=False)
    await DebounceStore(crew_of(app, ports)).note_fired(fired)
    assert await debounced_of(ports, "worker") == {"thing": 1}
    assert await debounced_of(ports, "other") == {}


async def test_events_that_no_gate_has_answered_for_wait(ports):
    source = await ports.domain_events.open("worker", ["a", "b"])
    await published(ports, "a", "b", "c")
    assert (await backlog_of(ports, "worker", ON_BOTH))["events"] == 2
    for delivery in await source.receive(room=1, wait_s=0):
        await delivery.ack()
    assert (await backlog_of(ports, "worker", ON_BOTH))["events"] == 1


async def test_what_is_due_and_what_is_sent_to_episodes_waits(ports):
    await ports.timers.send(Timer(actor="worker", purpose="fire", key="k", payload={}), id="1")
    later = Timer(actor="worker", purpose="tick", key="k", payload={})
    await ports.timers.arm(later, at=CLOCK.now() + timedelta(hours=1))
    await ports.commands.open("worker")
    await ports.commands.send(Start(actor_id="worker", episode_id="e1"), id="e1")
    found = await backlog_of(ports, "worker", ON_BOTH)
    assert (found["events"], found["due"], found["commands"]) == (0, 1, 1)
