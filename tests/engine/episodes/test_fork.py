"""A fork begins with the recorded past of another episode, and goes on by itself."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from engine.app.actions import approval, observe, tool_call
from engine.app.tools import overrides
from engine.episodes.episode import evolve, fold
from engine.episodes.fork import begun_with, fork
from engine.errors import BadRequest, Refused
from engine.reactor.follow_up import SendCommand, SendTimer, of_episode
from streams.json import raw
from streams.model.commands import Start, StepDone
from streams.model.events import (
    CheckpointSaved,
    EndStatus,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeResolved,
    EpisodeStarted,
    Fork,
    Resolution,
    StepKind,
    StepRecorded,
)
from streams.model.outputs import OutputResult
from streams.model.triggers import Mode, ScheduleTrigger, WorkflowTrigger
from streams.ports.log import Commit, Recorded
from tests.engine.functions.stage import app_of as function_app_of
from tests.engine.stage import (
    CLOCK,
    STARTED,
    Counter,
    Scripted,
    app_of,
    did,
    kept,
    life,
    lived,
    open_episode,
    opening,
    ports_in_memory,
    running,
    write,
)

COUNT, LOOK = tool_call("box", "count", {}), observe({"n": 1})

ORIGIN = Fork(episode_id="e", step_no=2, by="ann")


@pytest.fixture
def ports():
    return ports_in_memory()


class Payload(Scripted):
    """Looks at what is under `n` in the payload, and then counts."""

    def init(self, episode, trigger):
        return self.State(seen=[trigger.payload.get("n")])

    def next_step(self, state, ctx):
        self.plan = (observe({"n": state.seen[0]}), COUNT)
        return super().next_step(state, ctx)


async def ended(ports, app):
    """Run an episode to its end, and return its id."""
    id_ = await open_episode(ports, app)
    await lived(ports, id_)
    return id_


async def test_a_fork_is_fed_what_the_other_recorded_and_goes_on_from_there(ports):
    counter = Counter(side_effect=True)
    app = app_of(Scripted(COUNT, LOOK, COUNT), tools={"box": counter})
    async with running(app, ports):
        first = await ended(ports, app)
        forked = await lived(ports, await fork(ports, first, at=2, by="ann", reason="why not"))
    assert forked.seen == [{"call": 1}, {"n": 1}, {"call": 3}]
    assert len(counter.calls) == 3, "the first step was not done again"
    assert len(set(counter.keys)) == 3, "and what it did itself was another call"
    opened = forked.records[0].commit.events[0]
    asked = {"step_no": 2, "by": "ann", "reason": "why not"}
    assert opened.fork == Fork(episode_id=first, seed=first, **asked)
    assert [each.step_no for each in forked.of(StepRecorded)] == [1, 2, 3]
    assert forked.episode.attempts == 1


async def test_a_fork_without_a_past_runs_anew(ports):
    counter = Counter()
    app = app_of(Scripted(COUNT), tools={"box": counter})
    async with running(app, ports):
        forked = await lived(ports, await fork(ports, await ended(ports, app), at=0, by="ann"))
    assert forked.seen == [{"call": 2}]


async def test_a_past_with_an_answer_of_people_is_not_asked_for_again(ports):
    app = app_of(Scripted(approval({"drop": 1}), LOOK))
    opened = opening(app)
    step = replace(did(1, approval({"drop": 1}), {"by": "ann"}), kind=StepKind.APPROVAL)
    resolved = EpisodeResolved(step_no=1, resolution=Resolution.APPROVED, by="ann")
    await write(ports, opened.episode_id, opened, STARTED, kept(), step, resolved)
    async with running(app, ports):
        forked = await lived(ports, await fork(ports, opened.episode_id, at=1, by="bob"))
    assert forked.seen == [{"by": "ann"}, {"n": 1}]


async def test_a_fork_of_what_still_runs_leaves_that_as_it_is(ports):
    app = app_of(Scripted(LOOK, LOOK))
    opened = opening(app)
    await write(ports, opened.episode_id, opened, STARTED, kept(), did(1, LOOK, {"n": 7}))
    before = await life(ports, opened.episode_id)
    async with running(app, ports):
        forked = await lived(ports, await fork(ports, opened.episode_id, at=1, by="bob"))
    assert forked.seen == [{"n": 7}, {"n": 1}]
    assert await life(ports, opened.episode_id) == before


@pytest.mark.parametrize(
    ("payload", "end"), [({"n": 1}, "done"), ({"n": 2}, "nondeterministic_replay")]
)
async def test_with_another_payload_the_strategy_begins_with_it_and_is_fed_the_past(
    ports, payload, end
):
    app = app_of(Payload(), tools={"box": Counter()})
    opened = opening(app, payload={"n": 1, "old": True})
    await write(ports, opened.episode_id, opened)
    async with running(app, ports):
        await lived(ports, opened.episode_id)
        asked = {"at": 1, "by": "ann", "payload": payload}
        forked = await lived(ports, await fork(ports, opened.episode_id, **asked))
    assert forked.episode.opened.trigger.payload == payload
    assert (forked.end.error_class or forked.end.status.value) == end


async def test_a_dry_fork_changes_nothing_outside(ports):
    counter = Counter(side_effect=True)
    app = app_of(Scripted(LOOK, COUNT), tools={"box": counter})
    stands_in = overrides(tools={"box.count": {"call": 0}})
    async with running(app, ports):
        first = await ended(ports, app)
        id_ = await fork(ports, first, at=1, by="ann", dry_run=True, overrides=stands_in)
        forked = await lived(ports, id_)
    assert forked.seen == [{"n": 1}, {"call": 0}]
    assert len(counter.calls) == 1
    assert forked.episode.opened.mode is Mode.DRY_RUN


async def test_a_key_opens_one_fork_however_often_it_is_asked_for(ports):
    app = app_of(Scripted(LOOK))
    async with running(app, ports):
        first = await ended(ports, app)
        ids = {await fork(ports, first, at=1, by="ann", key="k") for _ in range(2)}
        (id_,) = ids
        forked = await lived(ports, id_)
    assert len(forked.of(EpisodeOpened)) == 1


def journal(*events, **opened):
    """Return the journal of an episode with `events` after its opening."""
    first = replace(opening(app_of(Scripted())), **opened)
    commit = Commit(id="c", at=CLOCK.now(), events=(first, *events))
    return [Recorded(subject="vigil.episode.e", seq=1, commit=commit)]


def test_states_of_the_past_are_copied_up_to_its_last_step_and_none_for_another_payload():
    events = [STARTED, kept(), did(1, LOOK, {}), kept(1, number=1, after_step=1)]
    events += [did(2, LOOK, {}), did(3, LOOK, {}), kept(3, number=2, after_step=3)]
    _, past = begun_with(journal(*events), ORIGIN)
    assert [type(each) for each in past] == [
        CheckpointSaved, StepRecorded, CheckpointSaved, StepRecorded,
    ]  # fmt: skip
    _, past = begun_with(journal(*events), ORIGIN, payload={})
    assert [type(each) for each in past] == [StepRecorded, StepRecorded]


async def test_a_function_draws_in_a_fork_of_a_fork_what_its_past_has_drawn(ports):
    async def drawing(ctx, trigger):
        await ctx.observe([ctx.uuid(), ctx.random()])
        await ctx.observe([ctx.uuid(), ctx.random()])

    app = function_app_of(drawing)
    async with running(app, ports):
        id_ = await ended(ports, app)
        lives = [await lived(ports, id_)]
        for _ in range(2):
            id_ = await fork(ports, id_, at=1, by="ann")
            lives.append(await lived(ports, id_))

    assert [life.end.status for life in lives] == [EndStatus.DONE] * 3
    first, *forks = ([step.result for step in life.of(StepRecorded)] for life in lives)
    assert forks == [first, first]


def delivering(step_no, status):
    """Return the record of an output that was delivered at once, or failed to be."""
    result = raw(OutputResult(output_key=f"k{step_no}", status=status))
    return StepRecorded(step_no=step_no, kind=StepKind.OUTPUT, fingerprint="f", result=result)


def test_a_fork_answers_for_its_own_outputs_and_not_for_those_of_the_past():
    records = journal(STARTED, delivering(1, "failed"), delivering(2, "delivered"))
    opened, past = begun_with(records, ORIGIN)

    episode = fold(journal(*past, fork=opened.fork))
    assert (episode.steps_recorded, episode.outputs_settled) == (2, ())

    for event in (STARTED, delivering(3, "delivered")):
        episode = evolve(episode, event)
    assert [each.output_key for each in episode.outputs_settled] == ["k3"]


def test_what_the_opening_said_of_its_own_start_is_not_said_of_the_fork():
    said = {"opened_by": "n1", "is_request": True, "start_by": CLOCK.now()}
    opened, _ = begun_with(journal(STARTED, did(1, LOOK, {}), did(2, LOOK, {}), **said), ORIGIN)
    assert (opened.opened_by, opened.is_request, opened.start_by) == ("", False, None)


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([], "the journal holds no episode e"),
        (journal(STARTED, did(1, LOOK, {})), r"has recorded 1 steps, not 2"),
        (
            journal(STARTED, did(1, LOOK, {}), EpisodeStarted(node="n", attempt=2, fresh=True)),
            "1 steps before its strategy began anew, not 2",
        ),
    ],
)
def test_a_past_that_is_not_there_is_refused(records, why):
    with pytest.raises(Refused, match=why):
        begun_with(records, ORIGIN)


def test_the_payload_of_a_tick_is_replaced_too():
    tick = ScheduleTrigger(scheduled_at=CLOCK.now(), schedule="every 60s")
    forked = begun_with(journal(trigger=tick), replace(ORIGIN, step_no=0), payload={"a": 1})
    assert forked[0].trigger == replace(tick, payload={"a": 1})


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"at": -1}, "at: -1 is not a number of steps"),
        ({"by": ""}, "by"),
        ({"key": ""}, "key"),
        ({"overrides": overrides()}, "overrides: only a dry run has any"),
    ],
)
async def test_what_cannot_be_asked_for_is_refused(ports, wrong, why):
    opened = opening(app_of(Scripted()))
    await write(ports, opened.episode_id, opened)
    with pytest.raises(BadRequest, match=why):
        await fork(ports, opened.episode_id, **{"at": 0, "by": "ann", **wrong})


async def test_a_past_that_no_message_can_hold_is_refused(ports):
    large = did(1, LOOK, "x" * 250_000)
    steps = [replace(large, step_no=number) for number in range(1, 7)]
    opened = opening(app_of(Scripted()))
    await write(ports, opened.episode_id, opened, STARTED)
    for step in steps:
        await write(ports, opened.episode_id, step)
    with pytest.raises(Refused, match="does not fit in one message"):
        await fork(ports, opened.episode_id, at=6, by="ann")


def calls(records, **fields):
    """Return what a node is called by, after a fork with a past of one step."""
    opened, past = begun_with(records, replace(ORIGIN, step_no=1))
    events = (replace(opened, **fields), *past)
    commit = Commit(id="c", at=CLOCK.now(), events=events)
    _, effects = of_episode(None, Recorded(subject="s", seq=1, commit=commit))
    return [each for each in effects if isinstance(each, SendCommand | SendTimer)]


def test_a_node_is_called_by_a_command_and_in_a_lane_by_a_wish_for_a_place():
    records = journal(STARTED, did(1, LOOK, {}))
    (call,) = calls(records)
    assert isinstance(call, SendCommand)
    assert isinstance(call.command, Start)
    (call,) = calls(records, in_lane=True)
    assert isinstance(call, SendTimer)
    assert call.timer.purpose == "place"


def test_the_workflow_of_a_forked_step_hears_nothing_of_the_fork():
    step = WorkflowTrigger(workflow_instance_id="i", workflow_step_id="s", workflow_id="w")
    opened = replace(opening(app_of(Scripted())), trigger=step)
    assert len(told(opened)) == 1
    assert told(replace(opened, fork=ORIGIN)) == []


def told(opened):
    """Return what the workflow of a step is told once its episode has ended."""
    events = (opened, EpisodeFinished(status=EndStatus.DONE))
    state, _ = of_episode(None, Recorded(subject="s", seq=1, commit=_commit(*events[:1])))
    _, effects = of_episode(state, Recorded(subject="s", seq=2, commit=_commit(*events[1:])))
    sent = (each.command for each in effects if isinstance(each, SendCommand))
    return [command for command in sent if isinstance(command, StepDone)]


def _commit(*events):
    return Commit(id="c", at=CLOCK.now(), events=events)


def test_the_opening_of_a_fork_stays_as_short_as_others_without_one():
    opened = opening(app_of(Scripted()))
    assert b"fork" not in msgspec.json.encode(opened)
    assert raw(replace(opened, fork=ORIGIN)) != raw(opened)
