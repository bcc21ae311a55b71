"""One node's time with one episode, and with one that has ended."""

from __future__ import annotations

from structlog.testing import capture_logs

from engine.app.actions import observe, tool_call
from engine.app.findings import raise_finding
from streams.json import raw
from streams.model.events import EndStatus, EpisodeConverged, EpisodeFinished, EpisodeStarted
from tests.engine.stage import (
    STARTED,
    Counter,
    Scripted,
    all_answered,
    app_of,
    ask_start,
    claims,
    eventually,
    leave,
    life,
    lived,
    open_episode,
    opening,
    play,
    running,
    told,
    write,
)

CONVERGED = EpisodeConverged(classification=raw({"seen": ["before"]}), summary="all is well")


async def test_the_start_of_a_tenure_is_on_the_journal_before_anything_else():
    life_ = await play(Scripted(tool_call("tool", "a")), tools={"tool": Counter()})
    (started,) = life_.of(EpisodeStarted)
    assert [type(event) for event in life_.events][1] is EpisodeStarted
    assert (started.node, started.attempt) == ("n1", 1)
    assert started.node_lease_since is not None


async def test_the_world_is_told_of_the_start_and_the_end(ports):
    life_ = await play(Scripted(observe(1)), ports=ports)
    (start, started), (end, ended) = told(ports)
    assert (start, end) == ("episode.started", "episode.completed")
    assert started["journal_seq"] == life_.records[1].seq
    assert ended["journal_seq"] == life_.records[-1].seq
    assert ended["classification"] == {"seen": [1]}


async def test_a_failure_is_told_too(ports):
    strategy = Scripted()
    strategy.init = lambda episode, trigger: 1 / 0
    await play(strategy, ports=ports)
    name, payload = told(ports)[-1]
    assert (name, payload["error_class"]) == ("episode.failed", "crash")


async def test_the_node_that_wrote_a_failure_logs_one_warning(ports):
    strategy = Scripted()
    strategy.init = lambda episode, trigger: 1 / 0
    app = app_of(strategy)
    with capture_logs() as lines:
        async with running(app, ports):
            id_ = await open_episode(ports, app)
            await lived(ports, id_)
            await ask_start(ports, id_, id_="again")
            await all_answered(ports.commands)

    (said,) = [line for line in lines if line["event"] == "episode failed"]
    assert said["at"].startswith("test_attempt.py:")
    assert said == {
        "event": "episode failed", "log_level": "warning", "actor": "worker", "episode_id": id_,
        "error_class": "crash", "detail": "ZeroDivisionError: division by zero", "at": said["at"],
    }  # fmt: skip


async def test_an_episode_that_does_not_fail_logs_no_warning():
    with capture_logs() as lines:
        await play(Scripted(observe(1)))
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == []


async def test_an_episode_that_ended_answers_another_start_without_running_again(ports):
    tool = Counter()
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": tool})
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        first = await lived(ports, id_)
        await ask_start(ports, id_, id_="again")
        await all_answered(ports.commands)

    assert tool.calls == ["a"]
    assert await life(ports, id_) == first


async def test_an_episode_that_ended_in_silence_is_told_of_by_the_next_node(ports):
    """A node may die between the last commit and the public events."""
    app = app_of(Scripted())
    begun = opening(app)
    await write(ports, begun.episode_id, begun)
    finished = EpisodeFinished(status=EndStatus.DONE, turns_used=1)
    await write(ports, begun.episode_id, STARTED, CONVERGED, finished)
    async with running(app, ports):
        names = ["episode.started", "episode.completed"]
        await eventually(lambda: [name for name, _ in told(ports)] == names)


async def test_what_was_decided_is_carried_out_after_a_crash_without_asking_again(ports):
    strategy = Scripted()
    strategy.init = strategy.next_step = lambda *args: 1 / 0
    app = app_of(strategy)
    intent = raise_finding("disk", class_="full")
    converged = EpisodeConverged(classification=raw({"seen": ["before"]}), findings=(intent,))
    async with running(app, ports):
        life_ = await lived(ports, await leave(ports, app, converged))

    assert life_.end.status is EndStatus.DONE
    assert [one.outcome for one in life_.end.findings] == ["raised"]
    assert life_.of(EpisodeConverged) == [converged]


async def test_a_claim_is_free_once_its_episode_has_ended(ports):
    await play(Scripted(), ports=ports)
    assert claims(ports) == []
