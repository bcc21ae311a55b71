"""Golden histories: a recorded journal tells whether a changed strategy may be deployed."""

from __future__ import annotations

import asyncio
import json

import pytest

from engine.app.actions import (
    Converge,
    Done,
    Sleep,
    approval,
    checkpoint,
    done,
    observe,
    tool_call,
    wait,
)
from engine.app.outputs import output
from engine.app.strategy import abort
from engine.app.tools import ToolFailed
from engine.definitions import agent_of, to_actor
from engine.episodes.fire import fire
from engine.errors import BadHistory, EpisodeFailed, NondeterministicReplay
from engine.operations.replay import frames, load, record, replay
from streams.model.events import (
    EndStatus,
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeStarted,
)
from tests.engine.defining import agent, app_with, apply, runs, says
from tests.engine.output_stage import Pager, Proposing, busy, play
from tests.engine.output_stage import app_of as outputs_app
from tests.engine.stage import (
    STARTED,
    Counter,
    Scripted,
    announced,
    app_of,
    did,
    kept,
    lived,
    open_episode,
    opening,
    ports_in_memory,
    running,
    write,
)

A, B, C = observe("a"), observe("b"), tool_call("t", "look", {"at": 1})


async def history_of(strategy, **declared):
    """Run an episode of `strategy` to its end, and record its history."""
    ports, app = ports_in_memory(), app_of(strategy, **declared)
    async with running(app, ports):
        episode_id = await open_episode(ports, app)
        await lived(ports, episode_id)
    return await record(ports, episode_id)


async def history_that_holds(*events):
    """Record the history of an episode that was opened and then lived `events`."""
    ports = ports_in_memory()
    opened = opening(app_of(Scripted()))
    await write(ports, opened.episode_id, opened, *events)
    return await record(ports, opened.episode_id)


async def replayed(history, strategy, **declared):
    return await replay(load(history), app_of(strategy, **declared))


async def test_a_strategy_that_did_not_change_replays_its_history():
    tool = Counter()
    history = await history_of(Scripted(A, C, B), tools={"t": tool})

    again = await replayed(history, Scripted(A, C, B))

    assert (again.steps, again.asks) == (3, Converge())
    assert again.state.seen == ["a", {"call": 1}, "b"]
    assert again.episode.status == "done"


async def history_of_one_that_waits(*plan):
    ports, app = ports_in_memory(), app_of(Scripted(*plan))
    async with running(app, ports):
        episode_id = await open_episode(ports, app)
        await lived(ports, episode_id, lambda so_far: so_far.of(EpisodeBlocked))
    return await record(ports, episode_id)


async def test_what_an_episode_waits_for_must_be_asked_for_again():
    history = await history_of_one_that_waits(A, wait("payment:42"))
    assert (await replayed(history, Scripted(A, wait("payment:42")))).asks == wait("payment:42")
    with pytest.raises(NondeterministicReplay, match="was wait; the replay asks for appro"):
        await replayed(history, Scripted(A, approval({})))
    with pytest.raises(NondeterministicReplay, match="call 2 was wait; the replay ends without"):
        await replayed(history, Scripted(A))


async def test_a_change_before_what_an_episode_waits_for_is_not_followed():
    """Nor would a node follow it: it goes on once there is an answer, which is a record."""

    async def earlier(ctx, trigger):
        await ctx.approval({"refund": 900})

    async def changed(ctx, trigger):
        plan = {"refund": 900}
        if ctx.changed("the plan names the currency"):
            plan["currency"] = "EUR"
        await ctx.approval(plan)

    ports, app = ports_in_memory(), app_of(earlier)
    async with running(app, ports):
        episode_id = await open_episode(ports, app)
        await lived(ports, episode_id, lambda so_far: so_far.of(EpisodeBlocked))
    again = await replayed(await record(ports, episode_id), changed)
    assert again.asks == approval({"refund": 900})


async def test_an_episode_that_waits_may_do_nothing_else_meanwhile():
    history = await history_of_one_that_waits(A, wait("payment:42"))
    with pytest.raises(NondeterministicReplay, match=r"call 2 was wait; the replay asks for tool"):
        await replayed(history, Scripted(A, C), tools={"t": Counter()})


async def test_a_replay_waits_for_nothing_and_asks_for_the_sleep():
    history = await history_that_holds(STARTED, kept(), did(1, A, "a"))
    again = await replayed(history, Scripted(A, Sleep(1), C))
    assert (again.steps, again.state.done, again.asks) == (1, 1, Sleep(1))


async def test_an_answer_is_replayed_as_a_step():
    history = await history_of(Scripted(wait("x", expires_s=0.01, on_expiry="continue"), A))
    again = await replayed(history, Scripted(wait("x", expires_s=0.01, on_expiry="continue"), A))
    assert (again.steps, again.state.seen) == (2, [None, "a"])


async def test_a_replay_performs_nothing():
    tool = Counter(side_effect=True)
    history = await history_of(Scripted(C, C), tools={"t": tool})

    await replayed(history, Scripted(C, C), tools={"t": tool})

    assert len(tool.calls) == 2


@pytest.mark.parametrize("changed", [(B, A), (A, C), (A, observe("b2")), (A,), ()])
async def test_a_strategy_that_asks_for_something_else_is_told(changed):
    history = await history_of(Scripted(A, B))
    with pytest.raises(NondeterministicReplay):
        await replayed(history, Scripted(*changed), replay="strict")


async def test_what_is_told_names_the_step_and_both_actions():
    history = await history_of(Scripted(A, C), tools={"t": Counter()})
    with pytest.raises(
        NondeterministicReplay, match=r"call 2 was tool_call t\.look; .*observation"
    ):
        await replayed(history, Scripted(A, B))


async def test_a_strategy_that_goes_on_where_it_had_converged_is_told():
    history = await history_of(Scripted(A))
    with pytest.raises(NondeterministicReplay, match="it converged; the replay asks for obs"):
        await replayed(history, Scripted(A, B))


class EndsWithoutResult(Scripted):
    """Is done after its plan, without a result."""

    def next_step(self, state, ctx):
        action = super().next_step(state, ctx)
        return done() if isinstance(action, Converge) else action


async def test_a_strategy_that_converges_where_it_was_done_is_told():
    history = await history_of(EndsWithoutResult(A))
    assert (await replayed(history, EndsWithoutResult(A))).asks == Done()
    with pytest.raises(NondeterministicReplay, match="it was done"):
        await replayed(history, Scripted(A))


async def test_checkpoints_hide_no_change_before_them():
    history = await history_of(Scripted(A, checkpoint("half"), B))
    again = await replayed(history, Scripted(A, checkpoint("half"), B))
    assert (again.steps, again.state.done) == (3, 3)
    with pytest.raises(NondeterministicReplay, match="call 1"):
        await replayed(history, Scripted(B, checkpoint("half"), B), replay="strict")


async def test_what_an_abandoned_beginning_had_done_is_not_asked_for_again():
    restarted = EpisodeStarted(node="n2", attempt=2, claim_revision=2, fresh=True)
    anew = restarted, kept(number=1, after_step=1), did(2, B, "b", path="1")
    history = await history_that_holds(STARTED, kept(), did(1, A, "a"), *anew)
    again = await replayed(history, Scripted(B, C))
    assert (again.steps, again.asks) == (1, C)


async def test_an_episode_that_runs_may_go_on_in_any_way():
    history = await history_that_holds(STARTED, kept(), did(1, A, "a"))
    assert (await replayed(history, Scripted(A, C))).asks == C
    assert (await replayed(history, Scripted(A))).asks == Converge()


async def test_an_announced_side_effect_must_be_asked_for_again():
    history = await history_that_holds(STARTED, kept(), announced(1, C, episode_id="e"))
    assert (await replayed(history, Scripted(C))).asks == C
    for other in (Scripted(A), Scripted()):
        with pytest.raises(NondeterministicReplay, match="call 1"):
            await replayed(history, other)


async def test_an_episode_that_took_no_step_begins_with_a_fresh_state():
    history = await history_of(Scripted())
    assert (await replayed(history, Scripted())).asks == Converge()
    with pytest.raises(NondeterministicReplay, match="it converged"):
        await replayed(history, Scripted(A))


class Picky(Scripted):
    """Ends its episode at the first result of its taste."""

    def __init__(self, *plan, taste, error_class="disliked"):
        super().__init__(*plan)
        self.taste, self.error_class = taste, error_class

    def handle_result(self, state, step, result):
        if result == self.taste:
            return abort(self.error_class)
        return super().handle_result(state, step, result)


async def test_a_strategy_may_fail_as_its_history_does():
    history = await history_of(Picky(A, B, taste="b"))
    again = await replayed(history, Picky(A, B, taste="b"))
    assert (again.episode.status, again.asks) == ("failed", None)


@pytest.mark.parametrize(
    "changed", [Picky(A, B, taste="a"), Picky(A, B, taste="b", error_class="other")]
)
async def test_a_strategy_that_fails_elsewhere_or_otherwise_is_told(changed):
    history = await history_of(Picky(A, B, taste="b"))
    with pytest.raises(EpisodeFailed, match=changed.error_class):
        await replayed(history, changed)


async def test_a_failure_of_a_tool_is_replayed_as_a_failure():
    async def broken(args, ctx):
        raise ToolFailed("away", "no answer")

    history = await history_of(Scripted(C), tools={"t": {"look": broken}})
    assert (await replayed(history, Scripted(C))).state.seen == ["away"]


async def test_a_history_is_a_line_of_json_for_each_commit():
    history = await history_of(Scripted(A))
    lines = [json.loads(line) for line in history.splitlines()]
    assert {line["type"] for line in lines} == {"commit@1"}
    assert list(lines[0]) == ["type", "subject", "seq", "id", "trace", "commit"]
    assert lines[0]["commit"]["events"][0]["type"] == "episode.opened@1"
    assert [line["seq"] for line in lines] == sorted(line["seq"] for line in lines)


async def test_a_history_says_exactly_what_the_journal_says():
    ports = ports_in_memory()
    opened = opening(app_of(Scripted()))
    await write(ports, opened.episode_id, opened, STARTED, kept(), did(1, A, {"b": [1, None]}))
    subject = ports.stack.episode(opened.episode_id)
    assert load(await record(ports, opened.episode_id)) == list(await ports.log.read(subject))


GOLDEN = b"""\
{"type":"commit@1","subject":"vigil.episode.e1","seq":1,"id":"open.e1","trace":"","commit":\
{"at":"2030-01-02T03:04:05Z","events":[{"type":"episode.opened@1","episode_id":"e1",\
"actor_id":"worker","expectation_id":"thing","trigger":{"kind":"event","event_id":"x1",\
"event_type":"thing.happened","payload":{}},"dedupe_key":"event:x1","budget":{}}]}}
{"type":"commit@1","subject":"vigil.episode.e1","seq":4,"id":"r1-1","trace":"","commit":\
{"at":"2030-01-02T03:04:06Z","events":[{"type":"episode.started@1","node":"n1","attempt":1,\
"claim_revision":1},{"type":"episode.checkpoint_saved@1","checkpoint_no":0,"step_no":0,\
"phase":"init","state":{"done":0,"seen":[]}},{"type":"episode.step_recorded@1","step_no":1,\
"kind":"observation","fingerprint":\
"FINGERPRINT","result":"a","path":"1"}]}}
"""


async def test_a_history_that_was_kept_long_ago_still_replays():
    mark = did(1, A, "a").fingerprint.encode()
    again = await replayed(GOLDEN.replace(b"FINGERPRINT", mark), Scripted(A))
    assert (again.steps, again.state.seen) == (1, ["a"])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"what?", "line 1"),
        (b'{"type":"commit@9"}', "line 1"),
        (GOLDEN.replace(b"episode.opened@1", b"episode.opened@99"), "line 1"),
        (GOLDEN.replace(b"vigil.episode", b"no stack.episode"), "line 1"),
        (GOLDEN + b"\n{", "line 3"),
    ],
)
def test_what_is_no_history_is_refused_by_line(data, why):
    with pytest.raises(BadHistory, match=why):
        load(data)


async def test_a_history_of_nothing_is_refused():
    with pytest.raises(BadHistory, match="no episode"):
        await replay(load(b""), app_of(Scripted()))
    with pytest.raises(BadHistory, match="holds no episode"):
        await record(ports_in_memory(), "nobody")


async def test_a_history_of_another_app_is_refused():
    history = (await history_of(Scripted(A))).replace(b'"thing"', b'"other"')
    with pytest.raises(BadHistory, match="'other'"):
        await replayed(history, Scripted(A))


async def test_a_journal_unfolds_event_by_event():
    history = await history_of(Scripted(A, B))
    unfolded = list(frames(load(history)))
    assert [frame.number for frame in unfolded] == list(range(1, len(unfolded) + 1))
    assert [frame.episode.steps_recorded for frame in unfolded][-1] == 2
    assert isinstance(unfolded[-2].event, EpisodeConverged)
    assert isinstance(unfolded[-1].event, EpisodeFinished)
    assert unfolded[-1].episode.finished.status is EndStatus.DONE
    assert unfolded[0].episode.status == "queued"


async def test_a_strategy_that_was_done_and_waited_for_its_outputs_may_be_replayed():
    class IsDone(Proposing):
        def next_step(self, state, ctx):
            return self.plan[state.done] if state.done < len(self.plan) else done()

    app = outputs_app(IsDone(output("pager", {})), {"pager": Pager(busy())})

    async def story(scene):
        return await scene.ended(await scene.open())

    life, _ = await asyncio.to_thread(play, story, app)
    assert [each.outcome for each in life.end.outputs] == ["delivered"]
    assert isinstance((await replay(life.records, app)).asks, Done)


def defined(*actions):
    """Return the actor `worker` as its definition says it, which asks for tool calls."""
    return to_actor(agent_of(agent(*actions)), app_with())


async def history_of_one_that_is_defined(*actions):
    ports = ports_in_memory()
    async with running(app_with(), ports):
        await apply(ports, agent(*actions))
        await says(ports, runs(1))
        episode_id = await fire(ports, "worker", "thing", by="ada")
        await lived(ports, episode_id)
    return load(await record(ports, episode_id))


async def test_what_is_defined_as_data_is_replayed_as_it_is_to_be_applied():
    history = await history_of_one_that_is_defined("a", "b")
    again = await replay(history, app_with(), defined=[defined("a", "b")])
    assert (again.steps, again.asks) == (2, Converge())
    with pytest.raises(NondeterministicReplay, match="call 2"):
        await replay(history, app_with(), defined=[defined("a", "c")])
    with pytest.raises(BadHistory, match="no expectation 'thing'"):
        await replay(history, app_with())


async def test_what_is_in_code_is_replayed_and_not_what_is_defined_of_the_same_name():
    history = await history_of_one_that_is_defined("a")
    with pytest.raises(NondeterministicReplay):
        await replay(history, app_with(None, defined("b")), defined=[defined("a")])
