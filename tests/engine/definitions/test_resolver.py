"""Episodes and instances that go on as they began, whatever holds by now, on whichever node."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from engine.app.actions import approval, tool_call
from engine.app.actor import Actor
from engine.app.triggers import event
from engine.definitions import resolver
from engine.definitions.resolver import RevisionResolver
from engine.episodes.recovery import NO_SUCH_REVISION
from engine.runtime.catalog import CannotRun
from streams.json import raw
from streams.model.definitions import RegisteredDefinition
from streams.model.events import EndStatus, EpisodeOpened
from streams.model.workflows import WorkflowStatus
from tests.engine.defining import (
    AGENT,
    WORKFLOW,
    agent,
    app_with,
    apply,
    flow,
    happen,
    nodes_of,
    revision_of,
    runs,
    says,
)
from tests.engine.stage import (
    HAPPENED,
    Counter,
    Scripted,
    app_of,
    ask_start,
    blocked,
    decide,
    doomed,
    eventually,
    gates,
    lived,
    opening,
    running,
    write,
)
from tests.engine.workflow_stage import begin, ended, instance

ASK = approval({"restart": "db1"}, summary="restart it")


def asking(config):
    return Scripted(ASK, *(tool_call("tool", each) for each in config["actions"]))


ASKING = {"asking": asking}


async def test_what_waits_goes_on_as_it_was_opened_also_on_another_node(ports):
    """A node that never ran the old revision finds it on the journal."""
    await apply(ports, agent("old", "old"))
    tool = Counter(open_=False)
    async with doomed(app_with(tool), ports):
        await says(ports, runs(1), "doomed")
        await eventually(lambda: gates(ports.domain_events))
        id_ = await happen(ports)
        await eventually(lambda: tool.calls == ["old"])
    await apply(ports, agent("new"))
    again = Counter()
    async with running(app_with(again), ports, "n1"):
        await says(ports, runs(2))
        done = await lived(ports, id_)
    assert done.end.status is EndStatus.DONE
    assert again.calls == ["old", "old"]
    assert nodes_of(done) == ["doomed", "n1"]


async def test_what_nobody_has_begun_is_begun_as_it_was_opened(ports):
    await apply(ports, agent("old", most=1))
    tool = Counter(open_=False)
    async with running(app_with(tool), ports):
        await says(ports, runs(1))
        await eventually(lambda: gates(ports.domain_events))
        await happen(ports, "x1")
        await eventually(lambda: tool.calls == ["old"])
        queued = await happen(ports, "x2")
        await lived(ports, queued, lambda so_far: so_far.of(EpisodeOpened))
        await apply(ports, agent("new", most=1))
        await says(ports, runs(2))
        tool.gate.set()
        done = await lived(ports, queued)
    assert tool.calls == ["old", "old"]
    assert revision_of(done) == 1


async def test_what_was_code_and_is_a_definition_now_goes_on_by_name(ports):
    coded = Actor("worker")
    coded.expect("thing", Scripted(), on=event(HAPPENED))
    async with running(app_with(None, coded), ports):
        await eventually(lambda: gates(ports.domain_events))
    id_ = await happen(ports)
    await write(ports, id_, opening(app_of(Scripted())))
    await ask_start(ports, id_)
    await apply(ports, agent("a"))
    tool = Counter()
    async with running(app_with(tool), ports):
        assert (await lived(ports, id_)).end.status is EndStatus.DONE
    assert tool.calls == ["a"]


async def test_an_instance_goes_on_by_the_revision_that_it_was_begun_by(ports):
    tool = Counter(open_=False)
    async with running(app_with(tool), ports):
        await apply(ports, agent("a"))
        await apply(ports, flow("one", "two"))
        await says(ports, runs(1, "workflow-w"))
        old = await begin(ports, "w", key="old")
        await eventually(lambda: tool.calls)
        await apply(ports, flow("else"))
        await says(ports, runs(2, "workflow-w"))
        tool.gate.set()
        new = await begin(ports, "w", key="new")
        ends = [await ended(ports, each) for each in (old, new)]
    assert [each.status for each in ends] == [WorkflowStatus.DONE, WorkflowStatus.DONE]
    assert [each.begun.spec.revision for each in ends] == [1, 2]
    assert [list(each.steps) for each in ends] == [["one", "two"], ["else"]]


async def test_an_instance_goes_on_by_its_revision_on_a_node_that_never_had_it(ports):
    await apply(ports, agent("a"))
    await apply(ports, flow("one", "two"))
    tool = Counter(open_=False)
    async with doomed(app_with(tool), ports):
        await says(ports, runs(1, "workflow-w"), "doomed")
        id_ = await begin(ports, "w")
        await eventually(lambda: tool.calls)
    await apply(ports, flow("else"))
    async with running(app_with(), ports):
        assert (await ended(ports, id_)).status is WorkflowStatus.DONE
    assert list((await instance(ports, id_)).steps) == ["one", "two"]


@pytest.mark.parametrize("node", ["the same", "another"])
async def test_what_was_blocked_goes_on_as_it_was_opened_once_it_has_its_answer(ports, node):
    await apply(ports, agent("old", template="asking"))
    tool = Counter()
    async with running(app_with(tool, templates=ASKING), ports, "n1"):
        await says(ports, runs(1))
        await eventually(lambda: gates(ports.domain_events))
        id_ = await happen(ports)
        await blocked(ports, id_)
        await apply(ports, agent("new", template="asking"))
        if node == "the same":
            await says(ports, runs(2))
            await decide(ports, id_)
            done = await lived(ports, id_)
    if node == "another":
        async with running(app_with(tool, templates=ASKING), ports, "n2"):
            await says(ports, runs(2), "n2")
            await decide(ports, id_)
            done = await lived(ports, id_)
    assert (done.end.status, tool.calls) == (EndStatus.DONE, ["old"])


async def test_what_is_older_than_the_turns_takes_one_and_gives_it_back(ports):
    """Nothing limited its actor when it was opened; now one may run at a time."""
    tool = Counter()
    async with running(app_with(tool, templates=ASKING), ports):
        await apply(ports, agent("old", template="asking"))
        await says(ports, runs(1))
        await eventually(lambda: gates(ports.domain_events))
        id_ = await happen(ports, "x1")
        await blocked(ports, id_)
        await apply(ports, agent("new", max_concurrent_cluster=1))
        await says(ports, runs(2))
        await decide(ports, id_)
        await lived(ports, id_)
        await lived(ports, await happen(ports, "x2"))
    assert tool.calls == ["old", "new"]


async def test_an_episode_is_left_to_a_node_that_can_make_its_edition(ports):
    """The actor as it was needs a template that only other nodes have."""
    await apply(ports, agent("old", template="asking"))
    tool = Counter()
    async with running(app_with(tool, templates=ASKING), ports, "able"):
        await says(ports, runs(1), "able")
        await eventually(lambda: gates(ports.domain_events))
        id_ = await happen(ports)
        await blocked(ports, id_)
    await apply(ports, agent("new"))
    with capture_logs() as lines:
        async with running(app_with(tool), ports, "unable"):
            await says(ports, runs(2), "unable")
            await decide(ports, id_)
            await eventually(lambda: NO_SUCH_REVISION in [line.get("reason") for line in lines])
            async with running(app_with(tool, templates=ASKING), ports, "able"):
                done = await lived(ports, id_)
    assert nodes_of(done) == ["able", "able"]
    assert tool.calls == ["old"]


@pytest.mark.parametrize("kind", [AGENT, WORKFLOW])
async def test_an_edition_that_the_journal_does_not_hold_is_left_to_others(ports, kind):
    revisions = RevisionResolver(ports, app_with())
    find = revisions.actor if kind is AGENT else revisions.workflow
    with pytest.raises(CannotRun) as hindered:
        await find("worker", 3)
    assert hindered.value.hindrance.reason == NO_SUCH_REVISION
    assert "holds no revision 3" in hindered.value.hindrance.detail


async def test_an_edition_whose_template_failed_once_is_made_anew_when_it_is_needed_again(ports):
    away = [True]

    def moody(config):
        if away:
            raise OSError("the file server is away")
        return Scripted()

    await apply(ports, agent("a", template="moody"))
    revisions = RevisionResolver(ports, app_with(templates={"moody": moody}))
    with pytest.raises(CannotRun, match="the file server is away"):
        await revisions.actor("worker", 1)
    away.clear()
    assert (await revisions.actor("worker", 1)).revision == 1


async def test_an_edition_that_came_with_a_delay_is_found_then(ports):
    revisions = RevisionResolver(ports, app_with())
    with pytest.raises(CannotRun):
        await revisions.actor("worker", 1)
    await apply(ports, agent("a"))
    assert (await revisions.actor("worker", 1)).revision == 1


async def test_what_was_made_once_is_not_made_again_and_no_more_is_kept_than_may_be(
    ports, monkeypatch
):
    monkeypatch.setattr(resolver, "REVISIONS_MAX", 2)
    revisions = RevisionResolver(ports, app_with())
    for action in ("a", "b", "c"):
        await apply(ports, agent(action))
    second = await revisions.actor("worker", 2)
    first = await revisions.actor("worker", 1)
    assert await revisions.actor("worker", 2) is second
    await revisions.actor("worker", 3)
    assert await revisions.actor("worker", 2) is second
    assert await revisions.actor("worker", 1) is not first


async def test_a_template_that_crashes_is_a_problem_of_one_definition(ports):
    body = raw(agent("a", template="failing"))
    registered = RegisteredDefinition(kind=AGENT, id="worker", revision=1, seq=1, body=body)
    made = await RevisionResolver(ports, app_with()).make(registered)
    assert made.actor is None
    assert made.problem == "what it is made by has failed: ZeroDivisionError: division by zero"
