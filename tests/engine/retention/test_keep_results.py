"""Large results stay for as long as what refers to them is open or held, or as long as asked."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from engine.orders.store import give_order
from engine.retention.keep_results import EVERY_S, KeepResults
from engine.retention.rules import DAY_S
from engine.retention.worker import run_steps
from streams.keys import KEPT_RESULTS
from streams.layout import Stream
from streams.memory import memory_ports
from streams.memory.objects import AGE
from streams.model.events import (
    HoldAdded,
    HoldRemoved,
    KeptJson,
    KeptPrompt,
    RetentionDeclared,
    StoredResult,
)
from streams.model.retention import HoldKind
from streams.model.triggers import EventTrigger
from streams.ports.log import Commit
from streams.subjects import Stack
from tests.engine.reactor import journals as given
from tests.engine.retention.test_worker import MovedClock

YEAR_S = 365 * DAY_S
ABOUT_WEB = EventTrigger(event_id="x1", event_type="a.b", entity_id="web-1", payload={})


def stored(digest):
    return StoredResult(digest=digest, size_bytes=9)


class Keeping:
    """A stack whose episodes have large results, and the step that keeps them."""

    def __init__(self, *, partitions=1):
        self.clock = MovedClock()
        self.ports = memory_ports(stack=Stack("s", partitions=partitions), clock=self.clock)

    async def append(self, name, *events):
        subject = self.ports.stack.episode(name)
        last = await self.ports.log.last(subject)
        commit = Commit(id=f"{name}-{last.seq if last else 0}", at=self.clock.now(), events=events)
        await self.ports.log.append(subject, commit, after=last.seq if last else 0)

    async def begin(self, name, *, actor="monitor", result=None):
        """Begin an episode about web-1, with a large result; return its digest."""
        opened = replace(given.OPENED, episode_id=name, actor_id=actor, trigger=ABOUT_WEB)
        await self.append(name, opened, given.STARTED)
        return await self.step(name, result or f"result of {name}")

    async def step(self, name, result, **more):
        digest = await self.ports.objects.put(result.encode())
        await self.append(name, replace(given.STEP, stored=stored(digest), **more))
        return digest

    async def end(self, *names):
        for name in names:
            await self.append(name, given.FINISHED)

    async def live(self, name, **how):
        digest = await self.begin(name, **how)
        await self.end(name)
        return digest

    async def order(self, event):
        await give_order(self.ports, event, clock=self.clock)

    async def keep(self, kept_s, *, actor=""):
        """Say for how long results of an actor stay; of none, those of all."""
        kept = {"results": kept_s}
        await self.order(RetentionDeclared(actor_id=actor, kept_s=kept, by="n1"))

    async def hold(self, kind, held):
        await self.order(HoldAdded(kind=HoldKind(kind), held=held, by="ann"))

    async def run(self, *, is_dry=False):
        report = await run_steps(
            self.ports,
            by="n1",
            clock=self.clock,
            check=lambda: None,
            is_dry=is_dry,
            steps=[KeepResults()],
        )
        (step,) = report.steps
        assert not step.problem
        return step

    async def pass_days(self, days):
        """Let days pass, with a run on each."""
        for _ in range(days):
            self.clock.move(DAY_S)
            await self.run()

    async def has(self, digest):
        return await self.ports.objects.get(digest) is not None


def staged(scene):
    """Return what a scene comes to."""

    async def play():
        return await scene(Keeping())

    return asyncio.run(play())


def test_without_a_wish_results_go_by_their_age_and_the_journal_is_not_read():
    async def scene(stage):
        digest = await stage.begin("e1")
        await stage.pass_days(91)
        return await stage.has(digest), await stage.ports.gates.get(KEPT_RESULTS)

    assert staged(scene) == (False, None)


def test_results_of_an_ended_episode_stay_for_as_long_as_was_asked_and_go_then():
    async def scene(stage):
        await stage.keep(YEAR_S)
        digest = await stage.live("e1")
        await stage.pass_days(365)
        stayed = await stage.has(digest)
        await stage.pass_days(AGE.days)
        return stayed, await stage.has(digest)

    assert staged(scene) == (True, False)


def test_results_of_what_is_open_stay_until_it_has_ended():
    async def scene(stage):
        await stage.keep(DAY_S)
        digest = await stage.begin("e1")
        await stage.pass_days(400)
        stayed = await stage.has(digest)
        await stage.end("e1")
        await stage.pass_days(AGE.days + 1)
        return stayed, await stage.has(digest)

    assert staged(scene) == (True, False)


def test_an_actor_keeps_its_own_for_its_own_time():
    async def scene(stage):
        await stage.keep(YEAR_S, actor="audit")
        audited = await stage.live("e1", actor="audit")
        other = await stage.live("e2")
        await stage.pass_days(200)
        return await stage.has(audited), await stage.has(other)

    assert staged(scene) == (True, False)


@pytest.mark.parametrize(
    ("kind", "held"), [("episode", "e1"), ("actor", "monitor"), ("subject", "web-1")]
)
def test_results_of_what_people_hold_stay_until_they_let_go_of_it(kind, held):
    async def scene(stage):
        digest = await stage.live("e1")
        stage.clock.move(60 * DAY_S)
        await stage.hold(kind, held)
        await stage.pass_days(400)
        stayed = await stage.has(digest)
        await stage.order(HoldRemoved(kind=HoldKind(kind), held=held, by="ann"))
        await stage.keep(DAY_S)
        await stage.pass_days(AGE.days + 1)
        return stayed, await stage.has(digest)

    assert staged(scene) == (True, False)


def test_what_is_held_holds_nothing_else():
    async def scene(stage):
        await stage.hold("episode", "e1")
        held, other = await stage.live("e1"), await stage.live("e2")
        await stage.pass_days(100)
        return await stage.has(held), await stage.has(other)

    assert staged(scene) == (True, False)


def test_a_result_that_several_refer_to_stays_for_the_longest():
    async def scene(stage):
        await stage.keep(YEAR_S, actor="audit")
        await stage.keep(DAY_S)
        digest = await stage.live("e1", actor="audit", result="same")
        await stage.live("e2", result="same")
        await stage.pass_days(300)
        return await stage.has(digest)

    assert staged(scene)


def test_what_models_were_asked_stays_with_the_rest():
    async def scene(stage):
        await stage.keep(YEAR_S)
        agent, messages = [await stage.ports.objects.put(each) for each in (b"agent", b"said")]
        kept = [KeptJson(stored=stored(each)) for each in (agent, messages)]
        prompt = KeptPrompt(agent=kept[0], messages=kept[1])
        await stage.append("e1", given.OPENED, given.STARTED, replace(given.STEP, prompt=prompt))
        await stage.end("e1")
        await stage.pass_days(300)
        return await stage.has(agent), await stage.has(messages)

    assert staged(scene) == (True, True)


def test_results_that_come_in_several_runs_all_stay():
    async def scene(stage):
        await stage.keep(YEAR_S)
        first = await stage.begin("e1")
        await stage.pass_days(1)
        second = await stage.step("e1", "another", step_no=2)
        await stage.pass_days(1)
        await stage.end("e1")
        await stage.pass_days(300)
        return await stage.has(first), await stage.has(second)

    assert staged(scene) == (True, True)


def test_what_was_to_stay_does_so_after_its_journal_has_gone_and_something_else_is_asked():
    async def scene(stage):
        await stage.keep(YEAR_S)
        digest = await stage.live("e1")
        await stage.pass_days(1)
        await stage.ports.states.purge(stage.ports.stack.part(Stream.JOURNAL), below=100)
        await stage.hold("actor", "other")
        await stage.pass_days(300)
        return await stage.has(digest)

    assert staged(scene)


def test_a_journal_that_is_made_anew_is_read_from_its_beginning():
    async def scene(stage):
        await stage.keep(YEAR_S)
        await stage.live("e1")
        await stage.pass_days(1)
        stage.ports.states.stream(stage.ports.stack.part(Stream.JOURNAL)).make_anew()
        digest = await stage.live("e2")
        await stage.pass_days(300)
        return await stage.has(digest)

    assert staged(scene)


@pytest.mark.parametrize("lost", ["the note", "the object", "both, as garbage"])
def test_notes_that_are_lost_are_made_anew_of_the_journal(lost):
    async def scene(stage):
        await stage.keep(YEAR_S)
        digest = await stage.live("e1")
        await stage.run()
        if lost == "the note":
            await stage.ports.gates.delete(KEPT_RESULTS)
        elif lost == "the object":
            noted = b'{"digest":"0","asked":"","at":"2020-01-01T00:00:00Z"}'
            await stage.ports.gates.put(KEPT_RESULTS, noted)
        else:
            await stage.ports.gates.put(KEPT_RESULTS, b"nonsense")
        await stage.pass_days(300)
        return await stage.has(digest)

    assert staged(scene)


def test_the_journal_is_read_some_times_a_day_and_at_once_if_something_else_is_asked():
    async def scene(stage):
        await stage.keep(YEAR_S)
        await stage.run()
        await stage.live("e1")
        soon = await stage.run()
        await stage.hold("episode", "e1")
        asked = await stage.run()
        await stage.live("e2")
        stage.clock.move(EVERY_S)
        return soon.held, asked.held, (await stage.run()).held

    kept, held = "how long results are kept", "holds"
    assert staged(scene) == ({}, {kept: 1, held: 1}, {kept: 2, held: 1})


def test_a_dry_run_says_what_stays_and_changes_nothing():
    async def scene(stage):
        await stage.keep(YEAR_S)
        digest = await stage.live("e1")
        told = await stage.run(is_dry=True)
        stage.clock.move(89 * DAY_S)
        await stage.run(is_dry=True)
        stage.clock.move(2 * DAY_S)
        noted = await stage.ports.gates.get(KEPT_RESULTS)
        return told.held, await stage.has(digest), noted

    assert staged(scene) == ({"how long results are kept": 1}, False, None)


def test_what_is_gone_already_is_told():
    async def scene(stage):
        await stage.live("e1")
        stage.clock.move(AGE.total_seconds())
        await stage.hold("episode", "e1")
        return (await stage.run()).says

    assert staged(scene) == "1 are gone, or damaged"


def test_every_partition_of_the_journal_is_read():
    async def scene(stage):
        stage = Keeping(partitions=3)
        await stage.keep(YEAR_S)
        digests = [await stage.live(f"e{number}") for number in range(12)]
        await stage.pass_days(300)
        return [await stage.has(each) for each in digests]

    assert staged(scene) == [True] * 12
