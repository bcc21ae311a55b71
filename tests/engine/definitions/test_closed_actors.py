"""Actors that open nothing, for they are disabled or cannot be made here: what is open goes on.

And whatever would wake them waits until they can be woken again.
"""

from __future__ import annotations

import pytest

from engine.app.actions import approval, tool_call
from engine.cluster.members import live_nodes
from engine.definitions.make import closed_actor
from engine.episodes.cancel import cancel
from engine.episodes.fire import fire
from engine.operations.drift import declared, why_unknown
from engine.triggers import timers
from streams.json import raw
from streams.keys import mode_key
from streams.model.events import EndStatus, EpisodeOpened
from tests.engine.defining import (
    agent,
    app_with,
    apply,
    disable,
    happen,
    nodes_of,
    revision_of,
    runs,
    says,
)
from tests.engine.lane_stage import begun, lane_reached
from tests.engine.stage import (
    Counter,
    Scripted,
    blocked,
    decide,
    doomed,
    eventually,
    gates,
    life,
    lived,
    running,
)

ASK = approval({"restart": "db1"}, summary="restart it")

HOW = ["disabled", "unmakeable"]


def asking(config):
    return Scripted(ASK, *(tool_call("tool", each) for each in config["actions"]))


def app_asking(tool: Counter):
    return app_with(tool, templates={"asking": asking})


async def begin(ports, definition, node="n1") -> None:
    """Apply the first revision of `worker`, and wait until a node is woken by it."""
    await apply(ports, definition)
    await says(ports, runs(1), node)
    await eventually(lambda: gates(ports.domain_events))


async def close(ports, how: str, node: str = "n1", **limits) -> None:
    """Have `worker` open nothing more, in one of the ways there are."""
    if how == "disabled":
        await disable(ports, "worker")
    else:
        await apply(ports, agent("x", template="missing", **limits))
    await says(ports, lambda info: "worker" in info.closed, node)


async def fill_lane(ports, tool: Counter, how: str, node: str) -> list[str]:
    """Have one episode run and two wait for their turn when `worker` opens nothing more."""
    limits = {"max_concurrent_cluster": 1}
    await apply(ports, agent("a", **limits))
    await begun(ports)
    ids = [await happen(ports, f"x{number}") for number in range(3)]
    await lane_reached(ports, lambda lane: len(lane.waiting) == 2 and lane.admitted)
    await eventually(lambda: tool.calls)
    await close(ports, how, node, **limits)
    return ids


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("end", [EndStatus.DONE, EndStatus.CANCELED])
async def test_what_is_blocked_can_be_answered_and_canceled(ports, how, end):
    tool = Counter()
    async with running(app_asking(tool), ports):
        await begin(ports, agent("a", template="asking"))
        id_ = await happen(ports)
        await blocked(ports, id_)
        await close(ports, how)
        if end is EndStatus.DONE:
            await decide(ports, id_)
        else:
            await cancel(ports, "worker", id_, by="ada")
        done = await lived(ports, id_)
    assert (done.end.status, revision_of(done)) == (end, 1)
    assert tool.calls == (["a"] if end is EndStatus.DONE else [])


@pytest.mark.parametrize("how", HOW)
async def test_what_is_queued_has_its_turn_when_there_is_room(ports, how):
    tool = Counter(open_=False)
    async with running(app_with(tool), ports):
        await begin(ports, agent("a", most=1))
        ids = [await happen(ports, f"x{number}") for number in range(3)]
        for each in ids:
            await lived(ports, each, lambda so_far: so_far.of(EpisodeOpened))
        await eventually(lambda: tool.calls)
        await close(ports, how, most=1)
        assert tool.calls == ["a"], "there is room for one"
        tool.gate.set()
        ends = [await lived(ports, each) for each in ids]
    assert {(each.end.status, revision_of(each)) for each in ends} == {(EndStatus.DONE, 1)}


@pytest.mark.parametrize("how", HOW)
async def test_what_a_dead_node_has_left_is_taken_over_by_one_that_never_had_the_actor(ports, how):
    tool = Counter(open_=False)
    async with doomed(app_with(tool), ports):
        await begin(ports, agent("a", "b"), "doomed")
        id_ = await happen(ports)
        await eventually(lambda: tool.calls == ["a"])
        await close(ports, how, "doomed")
    async with running(app_with(), ports, "n2"):
        done = await lived(ports, id_)
    assert (done.end.status, revision_of(done)) == (EndStatus.DONE, 1)
    assert nodes_of(done) == ["doomed", "n2"]


@pytest.mark.parametrize("how", HOW)
async def test_what_happens_meanwhile_waits_until_the_actor_can_be_woken_again(ports, how):
    tool = Counter()
    async with running(app_asking(tool), ports):
        await begin(ports, agent("a", template="asking"))
        first = await happen(ports, "x1")
        await blocked(ports, first)
        await close(ports, how)
        second = await happen(ports, "x2")
        await decide(ports, first)
        await lived(ports, first)
        assert (await life(ports, second)).records == ()
        revision = await apply(ports, agent("b"))
        done = await lived(ports, second)
    assert (revision_of(done), tool.calls) == (revision, ["a", "b"])


@pytest.mark.parametrize("how", HOW)
async def test_what_waits_in_a_lane_has_its_turn_within_the_limits(ports, how):
    tool = Counter(open_=False)
    async with running(app_with(tool), ports):
        ids = await fill_lane(ports, tool, how, "n1")
        assert tool.calls == ["a"], "its limits hold"
        tool.gate.set()
        ends = [await lived(ports, each) for each in ids]
    assert {(each.end.status, revision_of(each)) for each in ends} == {(EndStatus.DONE, 1)}


@pytest.mark.parametrize("how", HOW)
async def test_a_node_that_never_had_the_actor_gives_turns_to_what_waits(ports, how):
    tool = Counter(open_=False)
    async with doomed(app_with(tool), ports):
        ids = await fill_lane(ports, tool, how, "doomed")
    tool.gate.set()
    async with running(app_with(tool), ports, "n2"):
        ends = [await lived(ports, each) for each in ids]
    assert {(each.end.status, revision_of(each)) for each in ends} == {(EndStatus.DONE, 1)}


@pytest.mark.parametrize("how", HOW)
async def test_nothing_is_known_of_what_it_expects_so_nothing_of_it_is_cleared_away(ports, how):
    async with running(app_with(), ports):
        await begin(ports, agent("a"))
        await close(ports, how)
        nodes = await live_nodes(ports.gates)
    assert declared(nodes, "worker") is None
    assert "what is open goes on" in why_unknown(nodes, "worker")
    assert [node.actors for node in nodes] == [{}]


async def test_a_node_that_cannot_wake_the_actor_keeps_nothing_from_one_that_only_wakes_it(
    ports, monkeypatch
):
    """Nobody runs what is new, so both see to the actor's queue."""
    monkeypatch.setattr(timers, "RESTING_S", 3_600.0)
    await ports.registry.put(mode_key("able"), b'{"mode":"trigger_only"}')
    able = app_with(templates={"newer": lambda _: Scripted()})
    async with running(app_with(), ports, "unable"), running(able, ports, "able"):
        await apply(ports, agent(template="newer"))
        await says(ports, lambda info: "worker" in info.actors, "able")
        await says(ports, lambda info: "worker" in info.closed, "unable")
        asked = [await fire(ports, "worker", "thing", by="ada") for _ in range(20)]
        for each in asked:
            opened = await lived(ports, each, lambda so_far: so_far.of(EpisodeOpened))
            assert opened.of(EpisodeOpened)[0].opened_by == "able"


def test_who_stands_in_has_the_limits_of_the_definition_and_expects_nothing():
    made = closed_actor("worker", raw(agent("a", most=3, max_concurrent_cluster=2)))
    assert made is not None
    assert (made.max_concurrent_episodes, made.max_concurrent_cluster) == (3, 2)
    assert made.expectations == {}


@pytest.mark.parametrize("option", [{"concurrency_key": "order"}, {"priority": 5}])
def test_who_stands_in_gives_turns_if_an_expectation_takes_them(option):
    body = agent("a")
    body["expectations"]["thing"] |= option
    made = closed_actor("worker", raw(body))
    assert made is not None
    assert made.is_laned


def test_who_stands_in_has_the_limits_by_default_if_the_definition_cannot_be_read():
    made = closed_actor("worker", raw({"id": "worker", "from": "a later version"}))
    assert made is not None
    assert (made.max_concurrent_episodes, made.is_laned) == (5, False)


@pytest.mark.parametrize("id_", ["workflow-w", "-x", "x" * 100])
def test_nobody_stands_in_for_what_no_actor_can_be_called(id_):
    assert closed_actor(id_) is None
