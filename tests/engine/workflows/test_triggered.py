"""What a cause of a workflow comes to: an instance with the id of the cause, and no episode."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from engine.app.dedupe import event_key
from engine.app.triggers import event, every, tick_key
from engine.app.workflow import Workflow
from engine.node.node import Node
from engine.workflows.instance import Instance, fold_instance, instance_id
from streams.errors import TooLarge, Unavailable
from streams.layout import Kind, Stream
from streams.memory import MemoryPorts, memory_ports
from streams.model.events import DeadLettered, EpisodeOpened
from streams.model.modes import NodeMode
from streams.model.triggers import ScheduleTrigger
from streams.model.workflows import WorkflowStatus
from tests.engine.stage import running, told
from tests.engine.workflow_stage import Script, app_of
from tests.simulation.time import SimClock, simulate

HAPPENED = "client.changed"
AWAY_S = 600.0


def flow(**options: object) -> Workflow:
    made = Workflow("w", **{"on": event(HAPPENED), **options})
    made.step("a", "act", "a")
    return made


def id_for(dedupe_key: str) -> str:
    return instance_id(stack="vigil", workflow="w", dedupe_key=dedupe_key)


async def all_events(ports: MemoryPorts, stream: Stream = Stream.JOURNAL) -> list[object]:
    async with ports.log.follow(stream) as follower:
        records = await follower.receive(most=1_000, wait_s=0)
    return [each for record in records for each in record.commit.events]


async def instances(ports: MemoryPorts) -> list[Instance]:
    async with ports.log.follow() as follower:
        records = await follower.receive(most=1_000, wait_s=0)
    of = {each.subject: ports.stack.aggregate_of(each.subject) for each in records}
    ids = [key for kind, key in dict.fromkeys(of.values()) if kind is Kind.WORKFLOW]
    return [fold_instance(await ports.log.read(ports.stack.workflow(id_))) for id_ in ids]


class Troubled:
    """A log whose first commits of instances go wrong as a test says."""

    def __init__(self, ports: MemoryPorts, trouble: Callable[[], Exception | None]) -> None:
        self._ports, self._trouble = ports, trouble

    def __getattr__(self, name: str) -> object:
        return getattr(self._ports.log, name)

    async def append(self, subject, commit, *, after):
        is_instance = self._ports.stack.aggregate_of(subject)[0] is Kind.WORKFLOW
        error = self._trouble() if is_instance and after == 0 else None
        if error is not None and not isinstance(error, _StoredError):
            raise error
        seq = await self._ports.log.append(subject, commit, after=after)
        if error is not None:
            raise error
        return seq


class _StoredError(Unavailable):
    """The answer is lost, and the commit is stored."""


def after_one_event(
    trouble: Callable[[], Exception | None] = lambda: None, *, waits_s: float = 60.0
) -> tuple[MemoryPorts, list[Instance], Script]:
    """Return what there is a while after an event."""

    async def story():
        script, ports = Script(), memory_ports(clock=SimClock())
        troubled = replace(ports, log=Troubled(ports, trouble))
        async with running(app_of(flow(), script=script), troubled, clock=SimClock()):
            await asyncio.sleep(1.0)
            await ports.domain_events.publish(HAPPENED, {"client": 7}, id="x1")
            await asyncio.sleep(waits_s)
            return ports, await instances(ports), script

    return simulate(story())


def test_an_event_has_the_instance_of_its_id_and_no_episode_but_those_of_the_steps():
    ports, found, _ = after_one_event()
    (done,) = found
    assert done.begun.instance_id == id_for(event_key("x1"))
    assert done.status is WorkflowStatus.DONE
    opened = [each for each in simulate(all_events(ports)) if isinstance(each, EpisodeOpened)]
    assert [each.actor_id for each in opened] == ["act"]
    assert {each["actor_id"] for name, each in told(ports) if "actor_id" in each} == {"act"}


def test_an_event_that_comes_again_since_the_answer_of_the_log_was_lost_starts_nothing_else():
    errors = [_StoredError("log", detail="lost")]
    _, found, script = after_one_event(lambda: errors.pop() if errors else None)
    assert [each.status for each in found] == [WorkflowStatus.DONE]
    assert script.called("a") == 1


def test_a_cause_is_kept_however_long_the_log_is_away():
    clock = SimClock()
    away = Unavailable("log", detail="away")
    trouble = lambda: away if clock.monotonic_s() < AWAY_S else None  # noqa: E731
    _, found, script = after_one_event(trouble, waits_s=2 * AWAY_S)
    assert [each.status for each in found] == [WorkflowStatus.DONE]
    assert script.called("a") == 1


def test_a_cause_of_which_the_journal_can_store_nothing_is_a_dead_letter():
    large = TooLarge("workflow", size_bytes=2, limit_bytes=1)
    ports, found, _ = after_one_event(lambda: large)
    assert found == []
    (letter,) = simulate(all_events(ports, Stream.DEAD))
    assert isinstance(letter, DeadLettered)
    assert (letter.reason, letter.actor_id) == ("too_large", "workflow-w")


def test_a_tick_has_the_instance_of_its_time():
    schedule = every("30s")

    async def story():
        ports = memory_ports(clock=SimClock())
        async with running(app_of(flow(on=schedule), script=Script()), ports, clock=SimClock()):
            await asyncio.sleep(100.0)
            return await instances(ports)

    found = simulate(story())
    assert len(found) == 3
    for each in found:
        trigger = each.begun.trigger
        assert isinstance(trigger, ScheduleTrigger)
        assert each.begun.instance_id == id_for(tick_key(schedule, trigger.scheduled_at))
    times = [each.begun.trigger.scheduled_at for each in found]
    assert times[1] - times[0] == timedelta(seconds=30)


def test_a_node_that_runs_nothing_starts_instances_which_others_run():
    async def story():
        script, ports = Script(), memory_ports(clock=SimClock())
        app, clock = app_of(flow(), script=script), SimClock()
        node = Node(app, ports, name="gate", clock=clock, mode=NodeMode.TRIGGER_ONLY)
        task = asyncio.create_task(node.run())
        await asyncio.sleep(1.0)
        await ports.domain_events.publish(HAPPENED, {"client": 7}, id="x1")
        await asyncio.sleep(30.0)
        begun = [each.status for each in await instances(ports)]
        async with running(app, ports, "n2", clock=clock):
            await asyncio.sleep(60.0)
            ended = [each.status for each in await instances(ports)]
        node.stop()
        await task
        return begun, ended

    assert simulate(story()) == ([WorkflowStatus.RUNNING], [WorkflowStatus.DONE])


@pytest.mark.parametrize("overlap", ["skip", "buffer_one"])
def test_of_two_events_of_a_burst_the_newest_starts_one(overlap):
    made = flow(subject_key="client", debounce_s=5.0, overlap=overlap)

    async def story():
        ports = memory_ports(clock=SimClock())
        async with running(app_of(made, script=Script()), ports, clock=SimClock()):
            await asyncio.sleep(1.0)
            for n in (1, 2):
                await ports.domain_events.publish(HAPPENED, {"client": 7, "n": n}, id=f"x{n}")
            await asyncio.sleep(60.0)
            return await instances(ports)

    (found,) = simulate(story())
    assert (found.begun.trigger.payload["n"], found.begun.trigger.coalesced) == (2, 1)
