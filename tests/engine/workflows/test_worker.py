"""Workflows on whole nodes: what begins, what runs, what follows, whoever dies in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import count

import msgspec
import pytest

from engine.app.triggers import event
from engine.app.workflow import Workflow, retrying
from engine.app.workflow_plan import spec_of, starter_id
from engine.definitions.make import in_code
from engine.definitions.resolver import RevisionResolver
from engine.episodes.overlap.places import Places
from engine.runtime.catalog import Catalog
from engine.workflows.decide import decide
from engine.workflows.effector import Effector
from engine.workflows.instance import fold_instance
from engine.workflows.start import start_of, started
from engine.workflows.steps import Code
from engine.workflows.store import InstanceStore
from engine.workflows.worker import InstanceHandler
from streams.clock import SystemClock
from streams.keys import SUBJECTS, workflow_subject_key
from streams.memory.log import MemoryLog
from streams.model.commands import (
    Advance,
    CancelWorkflow,
    DecideStep,
    ResumeWorkflow,
    StepDone,
    Verdict,
)
from streams.model.events import (
    EndStatus,
    EpisodeFinished,
    EpisodeOpened,
    StepBegun,
    WorkflowFinished,
)
from streams.model.triggers import ManualTrigger
from streams.model.workflows import ResumeHow, StepStatus, WorkflowStatus
from streams.ports.log import Commit
from tests.engine.stage import (
    CLOCK,
    WAIT_S,
    doomed,
    eventually,
    gates,
    lived,
    reacting,
    running,
    told,
    write,
)
from tests.engine.workflow_stage import (
    Script,
    app_of,
    begin,
    check_none_doubled,
    ended,
    history,
    instance,
    reached,
)


@pytest.fixture
def script() -> Script:
    return Script()


def flow(**options) -> Workflow:
    return Workflow("w", **options)


def diamond(width: int) -> Workflow:
    made = flow()
    made.step("first", "act", "first")
    middle = [f"m{n}" for n in range(width)]
    for name in middle:
        made.step(name, "act", name, depends_on=["first"])
    made.step("last", "act", "last", depends_on=middle)
    return made


async def test_a_diamond_runs_its_middle_at_the_same_time_and_its_end_once(ports, script):
    app = app_of(diamond(8), script=script)
    let_go = [script.hold(f"m{n}") for n in range(8)]
    async with running(app, ports):
        id_ = await begin(ports, "w")
        for n in range(8):
            await script.wait_called(f"m{n}")
        assert script.called("last") == 0
        for each in let_go:
            each.set()
        done = await ended(ports, id_)
    assert done.status is WorkflowStatus.DONE
    assert [script.called(name) for name in ("first", "m0", "m7", "last")] == [1, 1, 1, 1]
    await check_none_doubled(ports, id_)


async def test_results_are_whole_values_and_reach_the_steps_after(ports, script):
    made = flow()
    made.step("screen", "act", "screen", input=lambda trigger, prior: trigger.payload)
    made.step("rate", "act", "rate", depends_on=["screen"], input=lambda _, prior: prior["screen"])
    script.results["screen"] = {"hit": True, "names": ["a", "b"]}
    async with running(app_of(made, script=script), ports):
        await ended(ports, await begin(ports, "w", {"client": 7}))
    assert script.calls == [
        ("screen", {"client": 7}),
        ("rate", {"hit": True, "names": ["a", "b"]}),
    ]


async def test_a_step_runs_for_each_of_a_list_and_the_next_one_gets_all_results_in_order(
    ports, script
):
    made = flow()
    made.step("split", "act", "split")
    made.step("each", "act", "each", depends_on=["split"], for_each=lambda _, prior: prior["split"])
    made.step("join", "act", "join", depends_on=["each"], input=lambda _, prior: prior)
    script.results["split"] = [{"n": n} for n in range(20)]
    async with running(app_of(made, script=script), ports):
        done = await ended(ports, await begin(ports, "w"))
    assert done.status is WorkflowStatus.DONE
    joined = dict(script.calls)["join"]
    assert [each["input"]["n"] for each in joined["each"]] == list(range(20))


async def test_a_retry_is_made_when_its_time_has_come_though_all_nodes_were_gone(ports, script):
    made = flow()
    made.step("rate", "act", "rate", on_failure=retrying(attempts=2, backoff_s=0.5))
    script.failures["rate"] = 1
    app = app_of(made, script=script)
    async with doomed(app, ports):
        id_ = await begin(ports, "w")
        await reached(ports, id_, lambda i: [*i.with_status(StepStatus.RETRYING)])
        await eventually(lambda: not any(ports.commands._durables["workflow-w", 0]._unanswered))
    async with running(app, ports, "another"):
        done = await ended(ports, id_)
    assert (done.status, script.called("rate")) == (WorkflowStatus.DONE, 2)


@pytest.mark.parametrize(("how", "calls"), [("retry", 2), ("skip", 1)])
async def test_a_paused_step_goes_on_as_a_person_says(ports, script, how, calls):
    made = flow()
    made.step("rate", "act", "rate", on_failure="pause")
    made.step("tell", "act", "tell", depends_on=["rate"])
    script.failures["rate"] = 1
    async with running(app_of(made, script=script), ports):
        id_ = await begin(ports, "w")
        await reached(ports, id_, lambda i: i.status is WorkflowStatus.BLOCKED)
        resume = ResumeWorkflow(
            workflow="w", instance_id=id_, id="r1", step="rate", how=ResumeHow(how), by="ada"
        )
        await ports.commands.send(resume, id="r1")
        done = await ended(ports, id_)
    assert (done.status, script.called("rate")) == (WorkflowStatus.DONE, calls)
    assert "workflow.blocked" in _names(ports)


async def test_a_cancel_reaches_the_episode_that_runs_and_nothing_more_begins(ports, script):
    made = flow()
    made.step("slow", "act", "slow")
    made.step("next", "act", "next", depends_on=["slow"])
    script.hold("slow")
    async with running(app_of(made, script=script), ports):
        id_ = await begin(ports, "w")
        await script.wait_called("slow")
        cancel = CancelWorkflow(workflow="w", instance_id=id_, by="ada", reason="not wanted")
        await ports.commands.send(cancel, id="c1")
        done = await ended(ports, id_)
        (begun,) = [e for e in await history(ports, id_) if isinstance(e, StepBegun)]
        episode = await lived(ports, begun.episode_id)
    assert (done.status, episode.end.status.value) == (WorkflowStatus.CANCELED, "canceled")
    assert script.called("next") == 0


async def test_what_was_done_is_undone_last_first_when_a_step_fails_for_good(ports, script):
    made = flow()
    made.step("a", "act", "a", compensate=("act", "undo_a"))
    made.step("b", "act", "b", depends_on=["a"], compensate=("act", "undo_b"))
    made.step("c", "act", "c", depends_on=["b"])
    script.failures["c"] = 1
    async with running(app_of(made, script=script), ports):
        done = await ended(ports, await begin(ports, "w"))
    assert done.status is WorkflowStatus.FAILED
    assert [name for name, _ in script.calls] == ["a", "b", "c", "undo_b", "undo_a"]


async def test_a_workflow_runs_as_a_step_of_another_and_its_end_is_the_result(ports, script):
    inner = Workflow("inner")
    inner.step("work", "act", "work")
    outer = flow()
    outer.sub("part", "inner")
    outer.step("tell", "act", "tell", depends_on=["part"], input=lambda _, prior: prior)
    script.results["work"] = "done well"
    async with running(app_of(outer, inner, script=script), ports):
        done = await ended(ports, await begin(ports, "w"))
    assert done.status is WorkflowStatus.DONE
    assert dict(script.calls)["tell"] == {"part": {"work": "done well"}}


async def test_a_cancel_reaches_the_workflow_within(ports, script):
    inner = Workflow("inner")
    inner.step("work", "act", "work")
    outer = flow()
    outer.sub("part", "inner")
    script.hold("work")
    async with running(app_of(outer, inner, script=script), ports):
        id_ = await begin(ports, "w")
        await script.wait_called("work")
        cancel = CancelWorkflow(workflow="w", instance_id=id_, by="ada")
        await ports.commands.send(cancel, id="c1")
        done = await ended(ports, id_)
        (begun,) = [e for e in await history(ports, id_) if isinstance(e, StepBegun)]
        inside = await ended(ports, begun.episode_id)
    assert (done.status, inside.status) == (WorkflowStatus.CANCELED, WorkflowStatus.CANCELED)


async def test_one_instance_at_a_time_is_busy_with_a_subject_that_may_have_only_one(ports, script):
    made = flow(on=event("client.changed"), subject_key="client", overlap="skip")
    made.step("slow", "act", "slow")
    let_go = script.hold("slow")
    async with running(app_of(made, script=script), ports):
        await eventually(lambda: gates(ports.domain_events))
        for n, client in enumerate([7, 7, 8]):
            await ports.domain_events.publish("client.changed", {"client": client}, id=f"e{n}")
        await script.wait_called("slow", 2)
        await eventually(lambda: _begun_and_skipped(ports) == (2, 1))
        let_go.set()
        await eventually(lambda: _names(ports).count("workflow.completed") == 2)
        await _freed(ports, "7")
        await ports.domain_events.publish("client.changed", {"client": 7}, id="e9")
        await script.wait_called("slow", 3)


async def _freed(ports, subject) -> None:
    """Wait until no instance is busy with a subject."""
    key = workflow_subject_key("w", subject)
    async with asyncio.timeout(WAIT_S), ports.gates.watch(under=SUBJECTS) as watch:
        while await ports.gates.get(key) is not None:
            await watch.receive(most=100, wait_s=WAIT_S)


def _names(ports) -> list[str]:
    return [name for name, _ in told(ports)]


def _begun_and_skipped(ports) -> tuple[int, int]:
    said = _names(ports)
    return said.count("workflow.started"), said.count("workflow.skipped")


async def test_a_subject_whose_instance_is_over_is_taken_from_whoever_left_it_locked(ports, script):
    made = flow(subject_key="client", overlap="skip")
    made.step("work", "act", "work")
    async with running(app_of(made, script=script), ports):
        first = await begin(ports, "w", {"client": 7})
        await ended(ports, first)
        left = msgspec.json.encode(Places(holder=first))
        await ports.gates.put(workflow_subject_key("w", "7"), left)
        second = await begin(ports, "w", {"client": 7}, key="k2")
        assert (await ended(ports, second)).status is WorkflowStatus.DONE


async def test_a_dry_run_runs_all_steps_as_dry_runs_and_the_world_hears_nothing(ports, script):
    made = flow(subject_key="client", overlap="skip")
    made.step("work", "act", "work")
    async with running(app_of(made, script=script), ports):
        id_ = await begin(ports, "w", {"client": 7}, dry_run=True)
        done = await ended(ports, id_)
        (begun,) = [e for e in await history(ports, id_) if isinstance(e, StepBegun)]
        life = await lived(ports, begun.episode_id)
    (opened,) = life.of(EpisodeOpened)
    assert (done.status, opened.mode.value) == (WorkflowStatus.DONE, "dry_run")
    assert told(ports) == []
    assert await ports.gates.get(workflow_subject_key("w", "7")) is None


async def test_an_attempt_that_takes_too_long_is_canceled_and_has_failed(ports, script):
    made = flow()
    made.step("slow", "act", "slow", timeout_s=0.3)
    script.hold("slow")
    async with running(app_of(made, script=script), ports):
        id_ = await begin(ports, "w")
        done = await ended(ports, id_)
        (begun,) = [e for e in await history(ports, id_) if isinstance(e, StepBegun)]
        episode = await lived(ports, begun.episode_id)
    assert (done.finished.error_class, episode.end.status.value) == ("step_timeout", "canceled")


async def test_an_instance_that_takes_too_long_is_aborted(ports, script):
    made = flow(timeout_s=0.3)
    made.step("slow", "act", "slow")
    script.hold("slow")
    async with running(app_of(made, script=script), ports):
        done = await ended(ports, await begin(ports, "w"))
    assert done.finished.error_class == "workflow_timeout"


async def test_a_step_of_an_actor_whose_episodes_take_turns_runs_when_its_turn_comes(ports, script):
    app = app_of(diamond(4), script=script, laned=True)
    async with running(app, ports):
        done = await ended(ports, await begin(ports, "w"))
    assert done.status is WorkflowStatus.DONE


async def test_a_command_that_comes_twice_changes_nothing(ports, script):
    async with running(app_of(diamond(2), script=script), ports):
        id_ = await begin(ports, "w")
        await ended(ports, id_)
        before = await history(ports, id_)
        begun = next(e for e in before if isinstance(e, StepBegun))
        again = StepDone(
            workflow="w",
            instance_id=id_,
            step=begun.step,
            item=0,
            attempt=1,
            episode_id=begun.episode_id,
        )
        for n, command in enumerate([again, again, Advance(workflow="w", instance_id=id_)]):
            await ports.commands.send(command, id=f"again.{n}")
        await eventually(lambda: not ports.commands._durables["workflow-w", 0].backlog)
        assert await history(ports, id_) == before


async def test_a_cause_that_comes_twice_begins_one_instance(ports, script):
    made = flow(on=event("client.changed"))
    made.step("work", "act", "work")
    async with running(app_of(made, script=script), ports):
        await eventually(lambda: gates(ports.domain_events))
        for _ in range(2):
            ports.domain_events.publish_raw("client.changed", b"{}", {"ce-id": "same"})
        await script.wait_called("work")
        await eventually(lambda: "workflow.completed" in _names(ports))
    assert _names(ports).count("workflow.started") == 1


async def test_whoever_comes_after_a_crash_does_what_the_last_commit_asked_for(ports, script):
    made = flow()
    made.step("a", "act", "a")
    app = app_of(made, script=script)
    id_ = await _left_after_begin(ports, app)
    async with running(app, ports, "another"):
        await ports.commands.send(Advance(workflow="w", instance_id=id_), id="left")
        assert (await ended(ports, id_)).status is WorkflowStatus.DONE


async def _left_after_begin(ports, app) -> str:
    """Leave an instance that has begun a step whose episode nobody has opened."""
    workflow = app.workflows["w"]
    spec, trigger = spec_of(workflow, app.actors), ManualTrigger(requested_by="ada")
    first = started(spec, start_of(spec.name, trigger, "manual:left", stack=ports.stack.name))
    subject, now = ports.stack.workflow(first.instance_id), CLOCK.now()
    await ports.log.append(subject, Commit(id="x1", at=now, events=(first,)), after=0)
    so_far = fold_instance(await ports.log.read(subject))
    code = Code(workflow=workflow, stack=ports.stack.name)
    advance = Advance(workflow="w", instance_id=first.instance_id)
    more = decide(so_far, advance, code=code, at=now)
    await ports.log.append(subject, Commit(id="x2", at=now, events=more), after=so_far.version)
    return first.instance_id


async def test_instances_go_on_when_a_node_is_killed_in_the_middle(ports, script):
    app = app_of(diamond(10), script=script)
    async with running(app, ports, "n1"), running(app, ports, "n2"):
        async with doomed(app, ports, "n3"):
            ids = [await begin(ports, "w", key=f"k{n}") for n in range(10)]
            await script.wait_called("m5", 3)
        async with asyncio.timeout(30):
            ends = [await ended(ports, each) for each in ids]
    assert {each.status for each in ends} == {WorkflowStatus.DONE}
    for each in ids:
        await check_none_doubled(ports, each)
        finished = [e for e in await history(ports, each) if isinstance(e, WorkflowFinished)]
        assert len(finished) == 1


class Behind(SystemClock):
    """A node's clock that is a second behind the servers'."""

    def now(self):
        return super().now() - timedelta(seconds=1)


async def test_a_timer_that_fires_before_its_time_by_our_clock_is_armed_again(ports, script):
    made = flow()
    made.step("rate", "act", "rate", on_failure=retrying(attempts=2, backoff_s=0.5))
    script.failures["rate"] = 1
    async with running(app_of(made, script=script), ports, clock=Behind()):
        done = await ended(ports, await begin(ports, "w"))
    assert (done.status, script.called("rate")) == (WorkflowStatus.DONE, 2)


async def test_a_timer_that_fires_too_soon_and_comes_with_the_end_of_a_step_is_armed_again(
    ports, script
):
    """What else is decided then is about the step: nothing else asks when the timer is due."""
    made = flow()
    made.step("a", "act", "a", on_failure=retrying(attempts=2, backoff_s=0.5))
    made.step("b", "act", "b")
    app = app_of(made, script=script)
    id_ = await _left_after_begin(ports, app)
    begun = {e.step: e for e in await history(ports, id_) if isinstance(e, StepBegun)}
    handler, advance = _handler(app, ports, Behind()), Advance(workflow="w", instance_id=id_)
    fired = await ports.timers.open(starter_id("w"))
    await handler.put(id_, [advance])
    await handler.put(id_, [await _ended_as(ports, begun["a"], EndStatus.FAILED, id_)])
    (due,) = await fired.receive(room=1, wait_s=WAIT_S)
    await due.ack()
    await handler.put(id_, [advance, await _ended_as(ports, begun["b"], EndStatus.DONE, id_)])
    (again,) = await fired.receive(room=1, wait_s=WAIT_S)
    assert again.seq > due.seq
    assert [*(await instance(ports, id_)).with_status(StepStatus.RETRYING)]


@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_a_timer_that_fires_too_soon_while_there_are_no_dollars_is_armed_again(
    ports, script, is_elsewhere
):
    """Nothing is due while another step has them; after its end the same time is due again."""
    made = flow(budget_usd=1)
    made.step("a", "act", "a", on_failure=retrying(attempts=2, backoff_s=0.5))
    made.step("b", "act", "b", requires_approval=True)
    app = app_of(made, script=script)
    id_ = await _left_after_begin(ports, app)
    handler, advance = _handler(app, ports, Behind()), Advance(workflow="w", instance_id=id_)
    another = _handler(app, ports, CLOCK, "n2") if is_elsewhere else handler
    fired = await ports.timers.open(starter_id("w"))
    await handler.put(id_, [advance])
    await handler.put(id_, [await _end_of(ports, "a", EndStatus.FAILED, id_)])
    asked = (await instance(ports, id_)).steps["b"].asked
    approved = DecideStep(
        workflow="w",
        instance_id=id_,
        id="d1",
        step="b",
        verdict=Verdict.APPROVE,
        plan_hash=asked.approval.plan_hash,
        by="ada",
    )
    await handler.put(id_, [approved])
    (due,) = await fired.receive(room=1, wait_s=WAIT_S)
    await due.ack()
    await another.put(id_, [advance])
    await handler.put(id_, [await _end_of(ports, "b", EndStatus.DONE, id_)])
    (again,) = await fired.receive(room=1, wait_s=WAIT_S)
    assert again.seq > due.seq


async def _end_of(ports, step: str, status: EndStatus, id_: str) -> StepDone:
    """Have the episode of a step's newest attempt end, and return what tells its instance."""
    begun = [e for e in await history(ports, id_) if isinstance(e, StepBegun) and e.step == step]
    return await _ended_as(ports, begun[-1], status, id_)


def _handler(app, ports, clock, node="n1") -> InstanceHandler:
    """Return who decides for the instances of `w` on a node with that clock."""
    catalog = Catalog(in_code(app))
    store = InstanceStore(ports, (f"{node}.{number}" for number in count()))
    effector = Effector(catalog, ports, clock, node)
    return InstanceHandler("w", catalog, RevisionResolver(ports, app), clock, store, effector)


async def _ended_as(ports, begun: StepBegun, status: EndStatus, id_: str) -> StepDone:
    """Have the episode of an attempt end, and return what tells its instance."""
    await write(ports, begun.episode_id, EpisodeFinished(status=status, error_class="boom"))
    told_of = {"step": begun.step, "item": begun.item, "attempt": begun.attempt}
    return StepDone(workflow="w", instance_id=id_, episode_id=begun.episode_id, **told_of)


async def test_a_step_whose_episode_gets_no_place_has_failed(ports, script):
    made = flow()
    for name in ("a", "b", "c"):
        made.step(name, "act", name, on_failure="continue")
    app = app_of(made, script=script, laned=True, most=1, overflow="drop")
    let_go = [script.hold(name) for name in ("a", "b", "c")]
    async with running(app, ports):
        id_ = await begin(ports, "w")
        await reached(ports, id_, lambda i: len([*i.with_status(StepStatus.SKIPPED)]) == 2)
        for each in let_go:
            each.set()
        assert (await ended(ports, id_)).status is WorkflowStatus.DONE
    assert len(script.calls) == 1


async def test_a_node_that_lacks_a_function_leaves_the_instance_to_others(ports, script):
    older, newer = flow(), flow()
    older.step("a", "act", "a", when=lambda trigger, prior: True)
    newer.step("a", "act", "a")
    script.hold("a")
    async with doomed(app_of(older, script=script), ports, "older"):
        id_ = await begin(ports, "w")
        await script.wait_called("a")
    script.hold("a").set()
    async with running(app_of(newer, script=script), ports, "newer"):
        # The episode itself goes on there; what comes of its end does not.
        (begun,) = [e for e in await history(ports, id_) if isinstance(e, StepBegun)]
        await lived(ports, begun.episode_id)
        await eventually(lambda: _handed_back(ports))
        assert (await instance(ports, id_)).status is WorkflowStatus.RUNNING
        async with running(app_of(older, script=script), ports, "older-again"):
            assert (await ended(ports, id_)).status is WorkflowStatus.DONE


def _handed_back(ports) -> bool:
    unanswered = ports.commands._durables["workflow-w", 0]._unanswered.values()
    return any(each.deliveries > 1 for each in unanswered)


class Lagging(MemoryLog):
    """A log of which reads show the newest commits of instances only at the second look."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.looks = Counter()

    async def read(self, subject, *, after=0):
        records = await super().read(subject, after=after)
        if ".workflow." not in subject or not records:
            return records
        self.looks[subject, records[-1].seq] += 1
        return records if self.looks[subject, records[-1].seq] > 1 else records[:-1]


async def test_an_end_is_not_lost_where_what_is_read_lags_behind_what_was_written(ports, script):
    made = flow()
    made.step("rate", "act", "rate", on_failure="pause")
    script.failures["rate"] = 1
    app = app_of(made, script=script)
    async with reacting(ports):
        async with doomed(app, ports, "n1"):
            id_ = await begin(ports, "w")
            await reached(ports, id_, lambda i: i.status is WorkflowStatus.BLOCKED)
            let_go = script.hold("rate")
            resume = ResumeWorkflow(
                workflow="w", instance_id=id_, id="r1", step="rate", how=ResumeHow.RETRY, by="ada"
            )
            await ports.commands.send(resume, id="r1")
            await script.wait_called("rate", 2)
            await eventually(lambda: not ports.commands._durables["workflow-w", 0].backlog)
        let_go.set()
        # What another node sees at first is that the step is paused, and that nothing of it runs.
        lagging = replace(ports, log=Lagging(ports.log._streams, stack=ports.stack))
        async with running(app, lagging, "n2"):
            assert (await ended(ports, id_)).status is WorkflowStatus.DONE
