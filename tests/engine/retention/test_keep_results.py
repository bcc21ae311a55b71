"""Large results stay for as long as what refers to them is open or held, or as long as asked."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from msgspec.structs import replace

from engine.orders.store import give_order
from engine.retention.keep_results import EVERY_S, KeepResults, _noted
from engine.retention.rules import DAY_S
from engine.retention.worker import run_steps
from streams.errors import DamagedObject, Unavailable
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

    def lose(self, *digests):
        """Have objects be gone."""
        for digest in digests:
            del self.ports.objects._put_at[digest]

    def count(self):
        """Return how many objects there ever were."""
        return len(self.ports.objects._objects)

    def refuse(self, digest, error):
        """Have one object never be renewed."""
        renew = self.ports.objects.renew

        async def refusing(asked):
            if asked == digest:
                raise error
            await asyncio.sleep(0)
            return await renew(asked)

        self.ports.objects.renew = refusing

    async def run(self, *, is_dry=False, fails=False):
        report = await run_steps(
            self.ports,
            by="n1",
            clock=self.clock,
            check=lambda: None,
            is_dry=is_dry,
            steps=[KeepResults()],
        )
        (step,) = report.steps
        assert fails or not step.problem
        return step

    async def pass_days(self, days, *, fails=False):
        """Let days pass, with a run on each."""
        for _ in range(days):
            self.clock.move(DAY_S)
            await self.run(fails=fails)

    async def has(self, digest):
        return await self.ports.objects.get(digest) is not None


class Unreadable:
    """A log that has something that no version can read."""

    def __init__(self, log):
        self._log = log

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def page(self, *_, **__):
        raise Unavailable("a commit", detail="cannot be read")


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


def test_a_result_that_several_refer_to_stays_for_the_longest_whoever_ended_last():
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


@pytest.mark.parametrize("lost", ["the note", "garbage", "a day", "what is open", "all objects"])
def test_notes_that_are_lost_are_made_anew_of_the_journal(lost):
    async def scene(stage):
        await stage.keep(YEAR_S)
        ended, begun = await stage.live("e1"), await stage.begin("e2")
        await stage.run()
        noted, _ = await _noted(stage.ports)
        if lost == "the note":
            await stage.ports.gates.delete(KEPT_RESULTS)
        elif lost == "garbage":
            await stage.ports.gates.put(KEPT_RESULTS, b"nonsense")
        else:
            objects = {"a day": noted.days.values(), "what is open": [noted.open]}
            stage.lose(*objects.get(lost, noted.objects))
        await stage.pass_days(300)
        return await stage.has(ended), await stage.has(begun)

    assert staged(scene) == (True, True)


@pytest.mark.parametrize("error", [Unavailable("an object", detail="away"), DamagedObject("0")])
def test_one_result_that_cannot_be_renewed_stops_no_other(error):
    async def scene(stage):
        await stage.keep(YEAR_S)
        digests = [await stage.live(f"e{number}") for number in range(20)]
        stage.refuse(digests[7], error)
        await stage.pass_days(200, fails=True)
        return [await stage.has(each) for each in digests], await stage.run(is_dry=True)

    there, _ = staged(scene)
    assert there == [number != 7 for number in range(20)]


def test_what_is_known_is_renewed_while_the_journal_cannot_be_read():
    async def scene(stage):
        await stage.keep(YEAR_S)
        digest = await stage.live("e1")
        await stage.run()
        await stage.live("e2")
        stage.ports = dataclasses.replace(stage.ports, log=Unreadable(stage.ports.log))
        await stage.pass_days(200, fails=True)
        return (await stage.run(fails=True)).problem, await stage.has(digest)

    told, is_there = staged(scene)
    assert ("cannot be read" in told, is_there) == (True, True)


def test_notes_that_have_not_changed_are_stored_once():
    async def scene(stage):
        await stage.keep(YEAR_S)
        await stage.live("e1")
        await stage.run()
        before = stage.count()
        await stage.live("e2", result="result of e1")
        for _ in range(10):
            stage.clock.move(EVERY_S)
            await stage.run()
        return before, stage.count()

    before, after = staged(scene)
    assert after == before


def test_a_straggler_whose_beginning_has_left_the_journal_stays_if_it_is_held():
    async def scene(stage):
        await stage.begin("e1")
        later = await stage.step("e1", "later")
        await stage.end("e1")
        await stage.ports.states.purge(stage.ports.stack.part(Stream.JOURNAL), below=3)
        await stage.hold("episode", "e1")
        await stage.pass_days(200)
        return await stage.has(later)

    assert staged(scene)


def test_what_a_journal_had_that_is_made_anew_is_open_no_more():
    async def scene(stage):
        await stage.keep(YEAR_S)
        digest = await stage.begin("e1")
        await stage.run()
        stage.ports.states.stream(stage.ports.stack.part(Stream.JOURNAL)).make_anew()
        await stage.pass_days(AGE.days + 1)
        return await stage.has(digest)

    assert not staged(scene)


def test_what_was_to_stay_does_so_when_nobody_asks_for_it_any_more():
    async def scene(stage):
        await stage.keep(YEAR_S)
        digest = await stage.live("e1")
        await stage.run()
        await stage.order(RetentionDeclared(kept_s={}, by="n2"))
        await stage.pass_days(365)
        stayed = await stage.has(digest)
        await stage.pass_days(AGE.days + 1)
        return stayed, await stage.has(digest)

    assert staged(scene) == (True, False)


def test_a_node_whose_clock_was_far_ahead_holds_up_nothing():
    async def scene(stage):
        await stage.keep(YEAR_S)
        digest = await stage.live("e1")
        stage.clock.move(YEAR_S / 2)
        await stage.run()
        stage.clock.move(-YEAR_S / 2)
        await stage.pass_days(100)
        noted, _ = await _noted(stage.ports)
        return noted.renewed_at == stage.clock.now(), await stage.has(digest)

    assert staged(scene) == (True, True)


def test_what_stays_is_renewed_some_times_a_day_and_at_once_if_something_else_is_asked():
    async def scene(stage):
        await stage.keep(YEAR_S)
        await stage.live("e1")
        await stage.run()
        await stage.live("e2")
        soon = await stage.run()
        await stage.hold("episode", "e1")
        asked = await stage.run()
        stage.clock.move(EVERY_S)
        return soon.says, soon.held, asked.held, (await stage.run()).says

    kept, held = "how long results are kept", "holds"
    says, *counts, due = staged(scene)
    assert (says.startswith("renewed at"), due) == (True, "")
    assert counts == [{kept: 1}, {kept: 2, held: 1}]


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
