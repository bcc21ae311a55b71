"""Findings that an episode reports while it runs: stored before it goes on, and never twice."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.app.actions import ReportFindings
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.findings import clear_finding, raise_finding, update_finding
from engine.app.strategy import ConvergeResult, report
from engine.app.tools import overrides
from engine.app.triggers import event
from engine.episodes.cancel import cancel
from engine.episodes.fork import fork
from engine.errors import CallFailed, InvalidFinding
from streams.json import NOTHING, unraw
from streams.memory import memory_ports
from streams.model.events import (
    EndStatus,
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeFinished,
    FindingCleared,
    FindingRaised,
    FindingUpdated,
    StepAnnounced,
    StepKind,
    StepRecorded,
)
from streams.model.triggers import Budget, LogStrategy, Mode
from tests.engine.execution.test_every_crash import MISFORTUNES, Plot, differences
from tests.engine.functions.stage import Ledger, app_of, middle, play
from tests.engine.output_stage import Scene
from tests.engine.stage import (
    CLOCK,
    HAPPENED,
    STARTED,
    Scripted,
    ask_start,
    decide,
    leave,
    lived,
    open_episode,
    opening,
    parked,
    react,
    running,
    told,
    write,
)

KEY = "disk:web-1"

MANY = Budget(turns=100)


def full(severity="high"):
    return raise_finding(KEY, class_="disk_full", severity=severity)


async def events_of(ports, key=KEY):
    records = await ports.log.read(ports.stack.finding(key))
    return [each for record in records for each in record.commit.events]


async def kinds_of(ports, key=KEY):
    return [type(each) for each in await events_of(ports, key)]


@pytest.fixture
def ports():
    return memory_ports(clock=CLOCK)


async def asks_and_acts(ctx, trigger):
    """ReportFindings, ask people, and clear what was reported."""
    await ctx.report(full())
    await ctx.approval({"restart": "web-1"})
    return clear_finding(KEY)


async def test_a_reported_finding_is_stored_and_public_while_people_are_asked(ports):
    life = await play(asks_and_acts, ports=ports, reached=lambda life: life.of(EpisodeBlocked))
    assert life.of(EpisodeFinished) == []
    assert await kinds_of(ports) == [FindingRaised]

    await react(ports)
    names = [name for name, _ in told(ports)]
    assert "finding.raised" in names


async def test_the_value_is_what_became_of_each_finding(ports):
    async def reports(ctx, trigger):
        first = await ctx.report(full(), clear_finding("absent"))
        second = await ctx.report(update_finding(KEY, severity="critical"), clear_finding(KEY))
        said = [(each.finding_key, each.outcome, each.raise_no) for each in (*first, *second)]
        return ConvergeResult(classification={"said": said})

    life = await play(reports, ports=ports)

    assert life.episode.converged is not None, life.end.error_detail
    assert unraw(life.episode.converged.classification)["said"] == [
        [KEY, "raised", 1],
        ["absent", "unchanged", 0],
        [KEY, "updated", 1],
        [KEY, "cleared", 1],
    ]


async def test_a_report_is_a_step_that_says_what_was_asked_and_what_came_of_it():
    async def reports(ctx, trigger):
        await ctx.report(full(), clear_finding("absent"))

    (step,) = (await play(reports)).of(StepRecorded)

    assert (step.kind, step.path) == (StepKind.REPORT, "1")
    assert unraw(step.args) == {"raise": 1, "clear": 1}
    assert unraw(step.result) == [
        {"finding_key": KEY, "outcome": "raised", "raise_no": 1},
        {"finding_key": "absent", "outcome": "unchanged"},
    ]


async def test_what_it_asked_is_not_shown_where_steps_are_not():
    async def reports(ctx, trigger):
        await ctx.report(full())

    life = await play_as(memory_ports(clock=CLOCK), reports, log_strategy=LogStrategy.NONE)
    (step,) = life.of(StepRecorded)
    assert (step.args == NOTHING, step.is_hidden) == (True, True)


async def test_the_intents_are_durable_before_any_is_applied(ports):
    async def reports(ctx, trigger):
        await ctx.report(full())

    life = await play(reports, ports=ports)
    (announced,) = life.of(StepAnnounced)
    assert announced.findings == (full(),)
    (raised,) = await events_of(ports)
    assert (raised.cause.episode_id, raised.cause.index) == (life.episode.opened.episode_id, 0)


async def test_what_is_returned_after_a_report_is_another_intent(ports):
    async def reports(ctx, trigger):
        await ctx.report(full())
        return [full("critical"), clear_finding(KEY)]

    await play(reports, ports=ports)
    events = await events_of(ports)
    assert [type(each) for each in events] == [FindingRaised, FindingUpdated, FindingCleared]
    assert [each.cause.index for each in events] == [0, 1, 2]


async def test_a_replay_gets_the_recorded_outcome_and_applies_nothing_again(ports):
    async def reports(ctx, trigger):
        (outcome,) = await ctx.report(full())
        await ctx.call("disk.read")
        return ConvergeResult(summary=outcome.outcome)

    app = app_of(reports, tools={"disk": Ledger()})
    past = middle(await play(reports, tools={"disk": Ledger()}))[:2]
    life = await leave_and_resume(ports, app, past)

    assert life.episode.converged.summary == "raised"
    assert await events_of(ports) == []


async def leave_and_resume(ports, app, past, until=lived):
    episode_id = await leave(ports, app, *past)
    async with running(app, ports):
        return await until(ports, episode_id)


async def test_a_report_that_a_crash_has_cut_off_is_applied_by_the_next_node(ports):
    async def reports(ctx, trigger):
        (outcome,) = await ctx.report(full())
        return ConvergeResult(summary=outcome.outcome)

    (announced,) = (await play(reports)).of(StepAnnounced)
    life = await leave_and_resume(ports, app_of(reports), [announced])

    assert life.episode.converged.summary == "raised"
    assert await kinds_of(ports) == [FindingRaised]


async def test_another_report_in_its_place_is_no_replay(ports):
    async def reports(ctx, trigger):
        await ctx.report(full())

    async def reports_otherwise(ctx, trigger):
        await ctx.report(full("low"))

    (announced,) = (await play(reports)).of(StepAnnounced)
    life = await leave_and_resume(ports, app_of(reports_otherwise), [announced], parked)

    assert "call 1 was report with values that are not shown" in life.parked


async def test_what_was_announced_is_applied_though_the_episode_does_not_go_on(ports):
    """Too many nodes have died with it."""

    async def reports(ctx, trigger):
        await ctx.report(full())

    (announced,) = (await play(reports)).of(StepAnnounced)
    app = app_of(reports, recovery="fail")
    life = await leave_and_resume(ports, app, [announced])

    assert life.end.error_class == "orphaned"
    assert [step.kind for step in life.of(StepRecorded)] == [StepKind.REPORT]
    assert await kinds_of(ports) == [FindingRaised]


async def test_what_was_announced_is_applied_though_the_episode_is_canceled(ports):
    async def reports(ctx, trigger):
        await ctx.report(full())

    (announced,) = (await play(reports)).of(StepAnnounced)
    app = app_of(reports)
    opened = opening(app)
    await write(ports, opened.episode_id, opened)
    await write(ports, opened.episode_id, STARTED, announced)
    async with running(app, ports):
        await cancel(ports, "worker", opened.episode_id, by="ann", reason="enough")
        life = await lived(ports, opened.episode_id)

    assert life.end.status is EndStatus.CANCELED
    assert await kinds_of(ports) == [FindingRaised]


async def test_branches_report_at_the_same_time_while_others_go_on(ports):
    async def branch(ctx, number):
        await ctx.call("disk.read", number=number)
        (outcome,) = await ctx.report(raise_finding(f"disk:{number}", class_="full"))
        await ctx.call("disk.read", number=number)
        return outcome.finding_key

    async def reports(ctx, trigger):
        keys = await ctx.gather(*(branch(ctx, number) for number in range(5)))
        return ConvergeResult(classification={"keys": keys})

    life = await play(reports, ports=ports, tools={"disk": Ledger()}, budget=MANY)

    assert life.episode.converged is not None, life.end.error_detail
    announced = life.of(StepAnnounced)
    assert [each.path for each in announced] == [f"1.{n}.2" for n in range(1, 6)]
    assert [each.finding_no for each in announced] == [0, 1, 2, 3, 4]
    assert [await kinds_of(ports, f"disk:{n}") for n in range(5)] == [[FindingRaised]] * 5


async def test_a_branch_may_report_on_a_finding_that_exists_while_others_record(ports):
    async def busy(ctx):
        for number in range(20):
            ctx.now()
            await ctx.call("disk.read", number=number)

    async def worse(ctx):
        for severity in ("low", "medium", "high", "critical"):
            await ctx.report(full(severity))

    async def reports(ctx, trigger):
        await ctx.report(full("low"))
        await ctx.gather(busy(ctx), worse(ctx), busy(ctx))

    life = await play(reports, ports=ports, tools={"disk": Ledger()}, budget=MANY)
    assert life.end.error_class == ""
    assert len(await events_of(ports)) == 5


async def test_an_impossible_finding_fails_the_call_with_its_line():
    async def reports(ctx, trigger):
        await ctx.report("disk full")

    life = await play(reports)
    assert life.end.error_class == "invalid_finding"
    assert "give it raise_finding(…), not a str" in life.end.error_detail
    assert "test_reports.py:" in life.end.error_detail


async def test_an_impossible_finding_can_be_caught():
    async def reports(ctx, trigger):
        try:
            await ctx.report(replace(full(), severity="hgh"))
        except CallFailed as failed:
            return ConvergeResult(summary=failed.error_class)

    assert (await play(reports)).episode.converged.summary == "invalid_finding"


def test_a_report_has_as_many_findings_as_a_conclusion_may_have():
    with pytest.raises(InvalidFinding, match="1,001 findings, the limit is 1,000"):
        report(*[clear_finding(f"k{n}") for n in range(1_001)])


def test_a_report_has_as_many_bytes_as_a_conclusion_may_have():
    large = [raise_finding(f"k{n}", class_="c", evidence="x" * 250_000) for n in range(4)]
    with pytest.raises(InvalidFinding, match=r"4 findings make .* keep evidence elsewhere"):
        report(*large)


def test_a_report_of_nothing_is_impossible():
    with pytest.raises(InvalidFinding, match="there is no finding"):
        report()


async def test_a_thousand_findings_with_long_keys_are_one_report(ports):
    keys = [f"{n:04}" + "\x01" * 100 for n in range(1_000)]

    async def reports(ctx, trigger):
        outcomes = await ctx.report(*(clear_finding(key) for key in keys))
        return ConvergeResult(summary=f"{len(outcomes)}")

    life = await play(reports, ports=ports)
    assert life.episode.converged is not None, life.end.error_detail
    assert life.episode.converged.summary == "1000"


async def test_a_forgotten_report_is_told():
    async def reports(ctx, trigger):
        ctx.report(full())

    life = await play(reports)
    assert life.end.error_class == "invalid_action"
    assert "ctx.report(…) is not awaited" in life.end.error_detail


async def dry(ports, function, given=None):
    return await play_as(ports, function, mode=Mode.DRY_RUN, overrides=given)


async def play_as(ports, function, **opened_as):
    app = app_of(function)
    opened = replace(opening(app), **opened_as)
    await write(ports, opened.episode_id, opened)
    await ask_start(ports, opened.episode_id)
    async with running(app, ports):
        return await lived(ports, opened.episode_id)


async def reports_and_explains(ctx, trigger):
    """ReportFindings one finding, and return another that the first one explains."""
    (outcome,) = await ctx.report(full())
    mail = raise_finding("mail:web-1", class_="mail_late", caused_by=KEY)
    return ConvergeResult(summary=f"{outcome.finding_key} {outcome.outcome}", findings=[mail])


async def test_a_dry_run_says_what_it_would_have_reported(ports):
    life = await dry(ports, reports_and_explains)

    assert life.episode.converged.summary == "disk:web-1 dry_run"
    assert life.of(StepAnnounced) == []
    assert await events_of(ports) == []


async def test_a_dry_run_that_keeps_its_findings_keeps_what_it_reports_apart(ports):
    life = await dry(ports, reports_and_explains, overrides(persist_findings=True))

    assert life.episode.converged.summary == "disk:web-1 raised"
    assert await events_of(ports) == []
    assert await kinds_of(ports, "dry_run:disk:web-1") == [FindingRaised]
    (mail,) = await events_of(ports, "dry_run:mail:web-1")
    assert mail.finding.caused_by_key == "dry_run:disk:web-1"
    await react(ports)
    assert [name for name, _ in told(ports) if name.startswith("finding.")] == []


async def test_a_fork_gets_the_outcomes_of_its_past_and_reports_only_what_is_new(ports):
    async def reports(ctx, trigger):
        (first,) = await ctx.report(full())
        (second,) = await ctx.report(full("critical"))
        return ConvergeResult(summary=f"{first.outcome} {second.outcome}")

    app = app_of(reports)
    async with running(app, ports):
        episode_id = await open_episode(ports, app)
        await lived(ports, episode_id)
        forked = await lived(ports, await fork(ports, episode_id, at=1, by="ann"))

    assert forked.episode.converged.summary == "raised updated"
    causes = [(each.cause.episode_id, each.cause.index) for each in await events_of(ports)]
    fork_id = forked.episode.opened.episode_id
    assert causes == [(episode_id, 0), (episode_id, 1), (fork_id, 0)]


async def test_a_class_reports_too():
    life = await play_class(Scripted(report(full(), clear_finding("absent"))))
    assert life.seen == [
        [
            {"finding_key": "disk:web-1", "outcome": "raised", "raise_no": 1},
            {"finding_key": "absent", "outcome": "unchanged"},
        ]
    ]


async def test_a_class_that_reports_the_impossible_fails():
    life = await play_class(Scripted(ReportFindings(("disk",))))
    assert life.end.error_class == "invalid_finding"


async def play_class(strategy):
    actor = Actor("worker")
    actor.expect("thing", strategy, on=event(HAPPENED))
    ports, app = memory_ports(clock=CLOCK), App(actors=[actor])
    async with running(app, ports):
        return await lived(ports, await open_episode(ports, app))


async def test_what_a_used_up_budget_makes_of_it_comes_after_what_was_reported(ports):
    def enough(exhausted):
        (step,) = exhausted.steps
        return ConvergeResult(summary=step.result[0]["outcome"], findings=[clear_finding(KEY)])

    async def reports(ctx, trigger):
        await ctx.report(full())
        await ctx.call("disk.read")

    life = await play(
        reports,
        ports=ports,
        tools={"disk": Ledger()},
        budget=Budget(turns=1),
        on_exhausted=enough,
    )
    assert life.episode.converged.summary == "raised"
    assert await kinds_of(ports) == [FindingRaised, FindingCleared]


async def test_a_strategy_that_begins_anew_reports_anew(ports):
    async def reports(ctx, trigger):
        (outcome,) = await ctx.report(full())
        return ConvergeResult(summary=outcome.outcome)

    first = await play(reports, ports=ports)
    app = app_of(reports, recovery="restart")
    opened = opening(app, id_="x2")
    await write(ports, opened.episode_id, opened, STARTED, *first.of(StepAnnounced))
    async with running(app, ports):
        await ask_start(ports, opened.episode_id)
        life = await lived(ports, opened.episode_id)
    assert life.episode.converged.summary == "updated"
    assert (await events_of(ports))[-1].cause.index == 1


# Whatever happens to the nodes.


async def watches(ctx, trigger):
    """ReportFindings in branches, ask, and return the end of what was reported."""

    async def look(name):
        (outcome,) = await ctx.report(raise_finding(f"disk:{name}", class_="full"))
        await ctx.report(update_finding(f"disk:{name}", severity="critical"))
        return outcome.outcome

    said = await ctx.gather(look("a"), look("b"))
    await ctx.approval({"clean": said})
    await ctx.report(clear_finding("disk:a"))
    return clear_finding("disk:b")


async def approved(scene: Scene) -> None:
    episode_id = await scene.open()

    async def asks() -> bool:
        return bool((await scene.life(episode_id)).of(EpisodeBlocked))

    await scene.until(asks)
    await decide(scene.ports, episode_id)


def what_came_of_it(ending) -> object:
    journal = ending.count(StepRecorded, EpisodeConverged, EpisodeFinished)
    stored = ending.count(FindingRaised, FindingUpdated, FindingCleared)
    return journal, stored, ending.told, ending.left_behind


@pytest.mark.parametrize("kind", MISFORTUNES)
def test_each_report_is_applied_once_and_told_once_whenever_a_node_is_lost(kind):
    plot = Plot(lambda: app_of(watches, attempts_max=10), approved, StepAnnounced)
    assert differences(plot, kind, what_came_of_it) == []
