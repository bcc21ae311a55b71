"""A node crashed; another one takes its episode over, as the expectation or the app wants it."""

from __future__ import annotations

import pytest

from engine.app.actions import checkpoint, done, observe, tool_call
from engine.app.app import App
from engine.app.context import StateSchema
from streams.json import raw
from streams.layout import Stream
from streams.model.events import CheckpointSaved, DeadLettered, EpisodeLeft, EpisodeStarted
from streams.model.triggers import Budget
from streams.ports.log import START
from tests.engine.stage import (
    STARTED,
    Counter,
    Scripted,
    announced,
    app_of,
    did,
    kept,
    key_of,
    leave,
    life,
    lived,
    open_episode,
    opening,
    running,
)

PLAN = (observe("a"), observe("b"), observe("c"))


async def test_resume_folds_what_was_recorded_and_goes_on(ports):
    app = app_of(Scripted(*PLAN))
    id_ = await leave(ports, app, kept(), did(1, PLAN[0], "recorded"))
    async with running(app, ports):
        assert (await lived(ports, id_)).seen == ["recorded", "b", "c"]


async def test_restart_begins_anew_as_another_attempt(ports):
    app = app_of(Scripted(*PLAN), recovery="restart")
    id_ = await leave(ports, app, kept(), did(1, PLAN[0], "recorded"))
    async with running(app, ports):
        done = await lived(ports, id_)
    assert done.seen == ["a", "b", "c"]
    assert [(one.attempt, one.fresh) for one in done.of(EpisodeStarted)] == [(1, False), (2, True)]
    assert done.episode.steps_recorded == 4


async def test_restart_gives_a_tool_the_same_idempotency_key_again(ports):
    tool = Counter(side_effect=True, idempotent=True)
    call = tool_call("tool", "pay")
    app = app_of(Scripted(call), tools={"tool": tool}, recovery="restart")
    id_ = opening(app).episode_id
    await leave(ports, app, kept(), announced(1, call, episode_id=id_), did(1, call, "paid"))
    async with running(app, ports):
        await lived(ports, id_)
    assert tool.keys == [key_of(id_, 1, call)]


async def test_restart_gives_another_call_on_the_same_turn_another_idempotency_key(ports):
    """What `init` reads may have changed: the second call is not the first one again."""
    tool = Counter(side_effect=True, idempotent=True)
    first, second = tool_call("tool", "pay", {"to": "ada"}), tool_call("tool", "pay", {"to": "bob"})
    app = app_of(Scripted(second), tools={"tool": tool}, recovery="restart")
    id_ = opening(app).episode_id
    await leave(ports, app, kept(), announced(1, first, episode_id=id_), did(1, first, "paid"))
    async with running(app, ports):
        await lived(ports, id_)
    assert tool.keys == [key_of(id_, 1, second)] != [key_of(id_, 1, first)]


@pytest.mark.parametrize(("plan", "turns_used"), [(PLAN, 5), ((observe("a"), done()), 3), ((), 2)])
async def test_after_a_restart_the_turns_of_all_attempts_are_told(ports, plan, turns_used):
    app = app_of(Scripted(*plan), recovery="restart")
    id_ = await leave(ports, app, kept(), did(1, PLAN[0], "recorded"))
    async with running(app, ports):
        assert (await lived(ports, id_)).end.turns_used == turns_used


async def test_after_a_restart_a_spent_budget_and_the_end_tell_the_same_turns(ports):
    app = app_of(Scripted(*PLAN), recovery="restart", budget=Budget(turns=3, tokens=0, wall_s=0))
    id_ = await leave(ports, app, kept(), did(1, PLAN[0], "recorded"))
    async with running(app, ports):
        end = (await lived(ports, id_)).end
    assert (end.error_detail, end.turns_used) == ("turns: 3 used of 3", 3)


async def test_fail_ends_it_as_orphaned(ports):
    app = app_of(Scripted(*PLAN), recovery="fail")
    id_ = await leave(ports, app, kept(), did(1, PLAN[0], "recorded"))
    async with running(app, ports):
        assert (await lived(ports, id_)).end.error_class == "orphaned"


async def test_the_app_may_decide_for_each_orphan(ports):
    asked = []

    def resolve(orphan):
        asked.append(orphan)
        return "fail"

    plain = app_of(Scripted(*PLAN))
    app = App(actors=list(plain.actors.values()), resolve_policy=resolve)
    id_ = await leave(ports, app, kept(), did(1, PLAN[0], "recorded"))
    async with running(app, ports):
        assert (await lived(ports, id_)).end.error_class == "orphaned"
    (orphan,) = asked
    assert (orphan.node, orphan.crashes, orphan.steps_recorded) == ("dead", 1, 1)


@pytest.mark.parametrize(
    ("resolve", "error_class"),
    [(lambda orphan: "shrug", "invalid_policy"), (lambda orphan: 1 / 0, "crash")],
)
async def test_an_app_that_cannot_decide_fails_the_episode(ports, resolve, error_class):
    app = App(actors=list(app_of(Scripted(*PLAN)).actors.values()), resolve_policy=resolve)
    id_ = await leave(ports, app, kept(), did(1, PLAN[0], "recorded"))
    async with running(app, ports):
        assert (await lived(ports, id_)).end.error_class == error_class


async def test_attempts_that_run_out_end_it_with_a_dead_letter(ports):
    app = app_of(Scripted(*PLAN), attempts_max=2)
    again = EpisodeStarted(node="dead", attempt=2, claim_revision=2)
    id_ = await leave(ports, app, again)
    async with running(app, ports):
        assert (await lived(ports, id_)).end.error_class == "attempts_exhausted"
    async with ports.log.follow(Stream.DEAD, after=START) as follower:
        (record,) = await follower.receive(most=10, wait_s=0)
    (letter,) = record.commit.events
    assert isinstance(letter, DeadLettered)
    assert (letter.reason, letter.episode_id) == ("attempts_exhausted", id_)


@pytest.mark.parametrize(("declared", "fired", "limit"), [(3, 1, 1), (1, 3, 3), (1, 0, 1)])
async def test_a_limit_that_whoever_fired_it_gave_comes_first(ports, declared, fired, limit):
    app = app_of(Scripted(*PLAN), attempts_max=declared)
    id_ = await leave(ports, app, attempts_max=fired)
    async with running(app, ports):
        end = (await lived(ports, id_)).end
    assert end.error_class == ("attempts_exhausted" if limit == 1 else "")


async def test_a_node_that_stops_says_that_it_left(ports):
    tool = Counter(open_=False)
    app = app_of(Scripted(tool_call("tool", "a"), observe("b")), tools={"tool": tool})
    async with running(app, ports) as node:
        id_ = await open_episode(ports, app)
        await tool.called.wait()
        node.stop()
        tool.gate.set()
        await lived(ports, id_, lambda so_far: so_far.of(EpisodeLeft))
    async with running(app, ports, "n2"):
        done = await lived(ports, id_)
    assert done.takeovers == 0
    assert tool.calls == ["a"]


def newer(version, migrations):
    return StateSchema(version=version, migrations=migrations)


async def test_a_kept_state_of_an_older_version_is_migrated(ports):
    def count(state):
        return {"done": len(state["finished"]), "seen": state["finished"]}

    app = app_of(Scripted(*PLAN), state_schema=newer(2, {1: count}))
    old = CheckpointSaved(
        checkpoint_no=0, step_no=0, phase="init", state=raw({"finished": ["before"]})
    )
    id_ = await leave(ports, app, old, did(1, PLAN[1], "recorded"))
    async with running(app, ports):
        assert (await lived(ports, id_)).seen == ["before", "recorded", "c"]


async def test_a_migration_that_breaks_fails_the_episode_in_words(ports):
    app = app_of(Scripted(*PLAN), state_schema=newer(2, {1: lambda state: state["gone"]}))
    id_ = await leave(ports, app, kept(), did(1, PLAN[0], "recorded"))
    async with running(app, ports):
        end = (await lived(ports, id_)).end
    assert end.error_class == "crash"
    assert "KeyError: 'gone'" in end.error_detail


async def test_a_state_of_a_newer_version_is_left_to_a_newer_node(ports):
    """A rolling deploy: the old node must not touch what only the new one understands."""
    plan = (observe("a"), checkpoint("half"), observe("c"))
    old, new = app_of(Scripted(*plan)), app_of(Scripted(*plan), state_schema=newer(2, {1: dict}))
    ahead = CheckpointSaved(
        checkpoint_no=0,
        step_no=0,
        phase="init",
        state=raw({"done": 2, "seen": [1, 2]}),
        schema_version=2,
    )
    id_ = await leave(ports, old, ahead)
    async with running(old, ports, "old"), running(new, ports, "new"):
        done = await lived(ports, id_)
    assert [one.node for one in done.of(EpisodeStarted)] == [STARTED.node, "new"]
    assert (await life(ports, id_)).seen == [1, 2, "c"]
