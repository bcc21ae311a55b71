"""A dry run is an episode like any other on the journal, and the outside hears nothing of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.app.actions import converge, synthesize, tool_call
from engine.app.findings import clear_finding, raise_finding, update_finding
from engine.app.outputs import propose_output
from engine.app.strategy import ConvergeResult, Strategy
from engine.app.tools import Failure, Synthesis, Tool, overrides
from streams.json import NOTHING, raw, unraw
from streams.model.commands import Recover
from streams.model.events import (
    EndStatus,
    EpisodeConverged,
    FindingRaised,
    StepAnnounced,
    StepRecorded,
)
from streams.model.findings import Cause, Finding, FindingStatus
from streams.model.triggers import Mode, WorkflowTrigger
from streams.ports.log import START, Commit
from tests.engine.stage import (
    CLOCK,
    STARTED,
    Counter,
    Scripted,
    all_answered,
    app_of,
    ask_start,
    kept,
    life,
    lived,
    opening,
    running,
    told,
    write,
)


async def dry_run(ports, strategy, given=None, *, trigger=None, **declared):
    """Run one episode that is not meant, with the overrides `given`, and return its life."""
    app = app_of(strategy, **declared)
    opened = replace(opening(app), mode=Mode.DRY_RUN, overrides=given)
    opened = replace(opened, trigger=trigger or opened.trigger)
    await write(ports, opened.episode_id, opened)
    await ask_start(ports, opened.episode_id)
    async with running(app, ports):
        await lived(ports, opened.episode_id)
        await all_answered(ports.commands)
    return await life(ports, opened.episode_id)


async def finding_of(ports, key):
    record = await ports.log.last(ports.stack.finding(key))
    return record and record.commit.events[-1]


async def test_a_call_that_an_override_stands_for_is_not_made(ports):
    tool = Counter()
    plan = Scripted(tool_call("tool", "a"), tool_call("tool", "b"))
    life_ = await dry_run(ports, plan, overrides(tools={"tool.a": "given"}), tools={"tool": tool})
    assert tool.calls == ["b"]
    assert life_.seen == ["given", {"call": 1}]


async def test_an_override_for_a_tool_that_is_not_there_is_refused_in_one_line(ports):
    given = overrides(tools={"tol.a": None})
    plan = Scripted(tool_call("tool", "a"))
    life_ = await dry_run(ports, plan, given, tools={"tool": Counter()})
    said = "an override is for 'tol.a', and no tool is called that; did you mean tool.a?"
    assert (life_.end.error_class, life_.end.error_detail) == ("unknown_override", said)
    assert life_.of(StepRecorded) == []


async def test_overrides_of_a_workflow_may_be_for_tools_of_other_apps(ports):
    given = overrides(tools={"elsewhere.a": None, "tool.a": 7})
    trigger = WorkflowTrigger(workflow_instance_id="i", workflow_step_id="s")
    plan = Scripted(tool_call("tool", "a"))
    life_ = await dry_run(ports, plan, given, trigger=trigger, tools={"tool": Counter()})
    assert life_.seen == [7]


async def test_steps_that_an_override_stands_for_are_marked(ports):
    given = overrides(tools={"tool.a": 1, "tool.b": Failure("gone")}, synthesis="ok")
    plan = Scripted(
        tool_call("tool", "a"), tool_call("tool", "b"), tool_call("tool", "c"), synthesize("?")
    )
    life_ = await dry_run(ports, plan, given, tools={"tool": Counter()})
    assert [step.is_override for step in life_.of(StepRecorded)] == [True, True, False, True]


async def test_an_override_makes_a_call_and_a_synthesis_fail(ports):
    tool, down = Counter(), Failure("tool_unavailable", "the server is down")
    given = overrides(tools={"tool.a": down}, synthesis=Failure("model_busy"))
    plan = Scripted(tool_call("tool", "a"), synthesize("?"))
    life_ = await dry_run(ports, plan, given, tools={"tool": tool})
    assert (tool.calls, life_.seen) == ([], ["tool_unavailable", "model_busy"])
    assert life_.of(StepRecorded)[0].error_detail == "the server is down"


async def test_a_dry_run_says_on_the_journal_what_it_would_have_raised_and_sent(ports):
    found, mail = [raise_finding("disk", class_="full")], [propose_output("mail", {"to": "ann"})]
    life_ = await dry_run(ports, Scripted(findings=found, outputs=mail))
    (decided,) = life_.of(EpisodeConverged)
    assert (decided.raises_nothing, decided.sends_nothing) == (True, True)


async def test_an_override_is_redacted_like_the_result_that_it_stands_for(ports):
    class Vault(Tool):
        def redact(self, args):
            return {"shelf": "***"}

        def redact_result(self, result):
            return "***"

    given = overrides(tools={"vault.open": "hunter2"})
    plan = Scripted(tool_call("vault", "open", {"shelf": 1}))
    life_ = await dry_run(ports, plan, given, tools={"vault": Vault()})
    (step,) = life_.of(StepRecorded)
    assert (step.args, step.result_shown) == (raw({"shelf": "***"}), raw("***"))
    assert life_.seen == ["hunter2"]


async def test_a_side_effect_that_no_override_stands_for_fails_its_step(ports):
    tool = Counter(side_effect=True)
    life_ = await dry_run(ports, Scripted(tool_call("tool", "a")), tools={"tool": tool})
    assert tool.calls == []
    assert life_.seen == ["dry_run_side_effect"]
    assert life_.of(StepAnnounced) == []


async def test_a_side_effect_that_an_override_stands_for_is_not_announced(ports):
    tool = Counter(side_effect=True)
    given = overrides(tools={"tool.a": 7})
    life_ = await dry_run(ports, Scripted(tool_call("tool", "a")), given, tools={"tool": tool})
    assert (tool.calls, life_.seen, life_.of(StepAnnounced)) == ([], [7], [])


async def test_unless_the_strategy_minds_it_a_side_effect_ends_a_dry_run(ports):
    class Mails(Strategy):
        def init(self, episode, trigger):
            return {}

        def next_step(self, state, ctx):
            return tool_call("mail", "send")

        def converge(self, state, ctx):
            raise AssertionError

    life_ = await dry_run(ports, Mails, tools={"mail": Counter(side_effect=True)})
    assert (life_.end.status, life_.end.error_class) == (EndStatus.FAILED, "dry_run_side_effect")


async def test_an_override_stands_for_every_synthesis(ports):
    async def model(prompt, transient, ctx):
        return Synthesis(content="real", input_tokens=9)

    plan = Scripted(synthesize("one"), synthesize("two"))
    life_ = await dry_run(ports, plan, overrides(synthesis=["given"]), synthesizer=model)
    assert life_.seen == [["given"], ["given"]]
    assert life_.end.tokens_used == 0


async def test_without_an_override_a_dry_run_thinks_and_looks_for_itself(ports):
    async def model(prompt, transient, ctx):
        return Synthesis(content="real", input_tokens=9)

    plan = Scripted(synthesize("one"), tool_call("tool", "a"))
    life_ = await dry_run(ports, plan, synthesizer=model, tools={"tool": Counter()})
    assert life_.seen == ["real", {"call": 1}]


async def test_what_a_dry_run_finds_is_left_out_and_says_so(ports):
    found = [raise_finding("disk", class_="full"), clear_finding("memory")]
    life_ = await dry_run(ports, Scripted(findings=found))
    outcomes = [(one.finding_key, one.outcome) for one in life_.end.findings]
    assert life_.end.status is EndStatus.DONE
    assert outcomes == [("disk", "dry_run"), ("memory", "dry_run")]
    assert await finding_of(ports, "disk") is None


async def test_what_a_dry_run_finds_can_be_kept_apart_from_what_is_meant(ports):
    found = [raise_finding("disk", class_="full")]
    life_ = await dry_run(ports, Scripted(findings=found), overrides(persist_findings=True))
    assert await finding_of(ports, "disk") is None
    raised = await finding_of(ports, "dry_run:disk")
    assert isinstance(raised, FindingRaised)
    assert raised.finding.actor_id == "dry_run:worker"
    outcomes = [(one.finding_key, one.outcome) for one in life_.end.findings]
    assert outcomes == [("dry_run:disk", "raised")]


class Recalls(Strategy):
    """Says which finding it was shown, and makes that worse."""

    async def init(self, episode, trigger):
        found = await episode.findings.get("disk")
        return found and [found.finding_key, found.actor_id, found.summary]

    def next_step(self, state, ctx):
        return converge()

    async def converge(self, state, ctx):
        recent = await ctx.findings.recent("disk", "1h")
        said = {"init": state, "converge": recent and recent.summary}
        worse = [update_finding(recent.finding_key, severity="critical")] if recent else []
        return ConvergeResult(classification=said, findings=worse)


KEEPS = overrides(persist_findings=True)


async def keep(ports, key, *, summary, actor="worker"):
    """Have a finding on the journal."""
    finding = Finding(
        finding_key=key,
        raise_no=1,
        status=FindingStatus.ACTIVE,
        actor_id=actor,
        expectation_id="thing",
        raised_by_episode_id="e0",
        raised_at=CLOCK.now(),
        updated_at=CLOCK.now(),
        summary=summary,
    )
    event = FindingRaised(finding=finding, cause=Cause(episode_id="e0", index=0))
    commit = Commit(id=f"raised-{key}", at=CLOCK.now(), events=(event,))
    await ports.log.append(ports.stack.finding(key), commit, after=START)


@pytest.mark.parametrize(
    ("given", "seen", "outcome"),
    [
        (KEEPS, "rehearsed", "updated"),
        (overrides(persist_findings="other"), "meant", "unchanged"),
        (None, "meant", "dry_run"),
    ],
)
async def test_a_dry_run_sees_what_its_like_have_kept_before_what_is_meant(
    ports, given, seen, outcome
):
    await keep(ports, "disk", summary="meant")
    await keep(ports, "dry_run:disk", summary="rehearsed", actor="dry_run:worker")
    life_ = await dry_run(ports, Recalls, given)
    said = unraw(life_.episode.converged.classification)
    assert said == {"init": ["disk", "worker", seen], "converge": seen}
    assert [one.outcome for one in life_.end.findings] == [outcome]
    assert (await finding_of(ports, "disk")).finding.severity == "medium"


async def test_a_dry_run_sees_what_is_meant_where_its_like_have_kept_nothing(ports):
    await keep(ports, "disk", summary="meant")
    life_ = await dry_run(ports, Recalls, KEEPS)
    assert unraw(life_.episode.converged.classification)["converge"] == "meant"


async def test_what_learns_more_about_a_finding_sees_what_the_dry_run_has_kept(ports):
    seen = []

    async def enrich(finding, episode):
        seen.append((await episode.findings.get("disk")).summary)

    found = [raise_finding("disk", class_="full", summary="rehearsed")]
    await keep(ports, "disk", summary="meant")
    await dry_run(ports, Scripted(findings=found), KEEPS, enrich=enrich)
    assert seen == ["rehearsed"]


async def test_who_is_meant_sees_nothing_that_a_dry_run_keeps(ports):
    await keep(ports, "dry_run:disk", summary="rehearsed", actor="dry_run:worker")
    app = app_of(Recalls)
    opened = replace(opening(app), overrides=KEEPS)
    await write(ports, opened.episode_id, opened)
    await ask_start(ports, opened.episode_id)
    async with running(app, ports):
        life_ = await lived(ports, opened.episode_id)
    assert unraw(life_.episode.converged.classification) == {"init": None, "converge": None}


@pytest.mark.parametrize("given", [None, overrides(persist_findings=True)])
async def test_the_world_is_told_nothing_of_a_dry_run(ports, given):
    plan = Scripted(tool_call("tool", "a"), findings=[raise_finding("disk", class_="full")])
    life_ = await dry_run(ports, plan, given, tools={"tool": Counter()})
    assert life_.end.status is EndStatus.DONE
    assert told(ports) == []


async def test_a_dry_run_that_has_ended_is_told_of_by_nobody_who_looks_again(ports):
    plan = Scripted(findings=[raise_finding("disk", class_="full")])
    app = app_of(plan)
    before = await dry_run(ports, plan)
    command = Recover(actor_id="worker", episode_id=opening(app).episode_id, reason="lapsed")
    async with running(app, ports):
        await ports.commands.send(command, id="again")
        await all_answered(ports.commands)
    assert told(ports) == []
    assert await life(ports, opening(app).episode_id) == before


async def test_a_dry_run_is_taken_over_with_its_overrides(ports):
    tool = Counter(side_effect=True)
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": tool})
    given = overrides(tools={"tool.a": 7})
    opened = replace(opening(app), mode=Mode.DRY_RUN, overrides=given)
    await write(ports, opened.episode_id, opened)
    await write(ports, opened.episode_id, STARTED, kept())
    command = Recover(actor_id="worker", episode_id=opened.episode_id, reason="lapsed")
    await ports.commands.send(command, id="lapse")
    async with running(app, ports):
        life_ = await lived(ports, opened.episode_id)
    assert (life_.episode.attempts, life_.seen, tool.calls) == (2, [7], [])


async def test_a_strategy_knows_whether_it_is_meant(ports):
    class Looks(Strategy):
        def init(self, episode, trigger):
            return {"init": episode.mode}

        def next_step(self, state, ctx):
            return converge()

        def converge(self, state, ctx):
            return ConvergeResult(classification={**state, "converge": ctx.mode})

    life_ = await dry_run(ports, Looks)
    assert life_.episode.converged.classification == raw({"converge": "dry_run", "init": "dry_run"})


async def test_overrides_of_an_episode_that_is_meant_stand_for_nothing(ports):
    tool = Counter(side_effect=True)
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": tool})
    opened = replace(opening(app), overrides=overrides(tools={"tool.a": 7}))
    await write(ports, opened.episode_id, opened)
    await ask_start(ports, opened.episode_id)
    async with running(app, ports):
        life_ = await lived(ports, opened.episode_id)
    assert (tool.calls, life_.seen) == (["a"], [{"call": 1}])
    assert life_.of(StepRecorded)[0].result_shown == NOTHING
