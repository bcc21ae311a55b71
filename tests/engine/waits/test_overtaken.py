"""Nothing is lost on whoever knows less than others do by now: of a wait, a turn, or the time."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from engine.app.actions import approval, fingerprint, tool_call, wait
from engine.app.outputs import propose_output
from engine.episodes import open as placing
from engine.episodes.episode import Status
from streams.json import raw
from streams.model.commands import Start
from streams.model.events import (
    EpisodeResolved,
    LaneMoved,
    OutputAttempted,
    OutputPostponed,
    OutputProposed,
    Resolution,
    StepKind,
    StepRecorded,
)
from streams.model.lanes import Ticket
from streams.ports.log import Commit
from tests.engine.crew import attempt_of, crew_of, delivery_of
from tests.engine.lane_stage import begun, lane_of, lane_reached, laned, placed, publish, turns_of
from tests.engine.output_stage import Pager, Proposing
from tests.engine.output_stage import app_of as output_app
from tests.engine.stage import (
    CLOCK,
    Counter,
    Scripted,
    all_answered,
    app_of,
    eventually,
    lived,
    open_episode,
    opening,
    reacting,
    running,
    write,
)
from tests.engine.waits.test_replicas import Lagging
from tests.engine.waits.test_wait import blocked
from tests.engine.waits.test_wait_in_lane import agree, id_of

REF = "payment:42"
KEY = "disk"
WORK = tool_call("tool", "a")


async def test_a_call_for_an_earlier_turn_is_none_for_this_one(ports):
    tool = Counter(open_=False)
    app = laned(Scripted(approval({}), WORK), tools={"tool": tool})
    first, second = id_of(app, "a"), id_of(app, "b")
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "a", "b")
        for id_ in (first, second):
            await lived(ports, id_, lambda life: life.episode.status is Status.BLOCKED)
        await agree(ports, first)
        await eventually(lambda: len(tool.calls) == 1)
        await agree(ports, second)
        await lane_reached(ports, lambda lane: lane.waiting)
        again = Start(actor_id="worker", episode_id=second, admitted=True)
        await ports.commands.send(again, id="the call for its first turn, once more")
        await eventually(lambda: not unanswered_of(ports, second))
        assert [each.episode_id for each in (await lane_of(ports)).waiting] == [second]
        tool.gate.set()
        for id_ in (first, second):
            await lived(ports, id_)
    assert (await turns_of(ports)).most_at_once == 1


def unanswered_of(ports, episode_id) -> list[int]:
    subject = ports.stack.episode_inbox("worker", episode_id)
    durable = ports.commands._durables["inbox-worker", 0]
    sent = [each.seq for each in durable.stream.past(0) if each.subject == subject]
    return [seq for seq in sent if durable.is_waiting(seq)]


async def test_who_gives_turns_hears_of_the_end_of_a_turn_that_another_gave(ports):
    """A node that stood still, and wakes, may give one before it learns that it may not."""
    ticket = Ticket(episode_id=id_of(placed(), "a"), expectation_id="thing", number=2)
    moved = LaneMoved(placed=(ticket,), admitted=(ticket.episode_id,))
    subject = ports.stack.lane("worker")
    async with running(placed(), ports):
        await begun(ports)
        await publish(ports, "first")  # The scheduler is at work once that has had its turn.
        await lived(ports, id_of(placed(), "first"))
        await lane_reached(ports, lambda lane: lane.newest_number and not lane.admitted)
        version = (await ports.log.read(subject))[-1].seq
        by_another = Commit(id="another's", at=CLOCK.now(), events=(moved,))
        await ports.log.append(subject, by_another, after=version)
        await ports.timers.send(placing.left("worker", ticket.episode_id), id="left")
        await lane_reached(ports, lambda lane: not lane.admitted)


async def test_a_call_that_a_replica_makes_look_premature_comes_again(ports):
    """To a replica that lags the episode waits, and nobody would be called to it any more."""
    app = app_of(Scripted(wait(REF)))
    lagging = Lagging(ports.log, EpisodeResolved)
    async with reacting(ports):
        async with running(app, ports):
            id_ = await open_episode(ports, app)
            await blocked(ports, id_)
            await all_answered(ports.commands)
        mark = fingerprint(wait(REF))
        step = StepRecorded(
            step_no=1, kind=StepKind.WAIT, fingerprint=mark, result=raw(7), path="1"
        )
        resolved = EpisodeResolved(step_no=1, resolution=Resolution.RESOLVED, decision_id="d")
        await write(ports, id_, step, resolved)
        async with running(app, dataclasses.replace(ports, log=lagging)):
            assert (await lived(ports, id_)).seen == [7]
    assert lagging.has_lagged


@pytest.mark.parametrize(("is_called", "calls"), [(True, 1), (False, 0)])
async def test_who_is_called_because_something_is_due_does_it_whatever_its_clock_says(
    ports, is_called, calls
):
    pager = Pager()
    app = output_app(Proposing(), {"pager": pager})
    opened, retry_at = opening(app), CLOCK.now() + timedelta(hours=1)
    proposed = OutputProposed(
        output_key=KEY,
        adapter="pager",
        payload=propose_output("pager", {}).payload,
        episode_id=opened.episode_id,
        actor_id="worker",
        expectation_id="thing",
    )
    postponed = OutputPostponed(attempt=1, error_class="busy", retry_at=retry_at)
    events = proposed, OutputAttempted(attempt=1), postponed
    commit = Commit(id="earlier", at=CLOCK.now(), events=events)
    await ports.log.append(ports.stack.output(KEY), commit, after=0)
    context = crew_of(app, ports)
    context.permits.runs.turn(on=True)
    called_at = retry_at if is_called else None
    attempt = attempt_of(opened, called_at=called_at)
    await delivery_of(context, attempt, "pen").carry(KEY, None)
    assert len(pager.views) == calls
