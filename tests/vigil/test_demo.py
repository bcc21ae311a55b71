"""The host monitor: what its strategies decide, and what it sees of a real machine."""

from __future__ import annotations

import platform

import msgspec
import pytest

from engine.app.actions import Converge, Observe, Step, Synthesize, ToolCall
from streams.model.events import StepKind
from streams.model.findings import ClearFinding, RaiseFinding, Severity
from streams.model.triggers import Budget, ManualTrigger
from vigil import Context, Failure, StepTaken, ToolFailed, in_
from vigil.demo.advisor import AdviceCase, LookCloser, WithdrawAdvice, advice_key
from vigil.demo.app import app
from vigil.demo.inspection import largest_directories, top_processes
from vigil.demo.monitor import DISK, LOAD, MEMORY, CheckGauge, GaugeReading, judge, severity
from vigil.demo.publisher import measure, positive_s

HERE = platform.node()


def reading(value: float) -> GaugeReading:
    return GaugeReading(kind="mount", about="web-1:/", value=value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.04, None),
        (0.05, "low"),
        (0.79, "low"),
        (0.80, "medium"),
        (0.9, "high"),
        (1.0, "critical"),
    ],
)
def test_a_fuller_disk_is_a_worse_finding(value, expected):
    assert severity(DISK, value) == expected


@pytest.mark.parametrize("gauge", [DISK, MEMORY, LOAD], ids=lambda gauge: gauge.name)
def test_levels_fall_from_the_worst_to_the_mildest(gauge):
    levels = [level for level, _ in gauge.levels]
    assert levels == sorted(levels, reverse=True)
    assert [name for _, name in gauge.levels] == [str(one) for one in reversed(Severity)]


def test_a_reading_over_a_threshold_raises_a_finding_about_its_subject():
    (finding,) = judge(DISK, reading(0.93)).findings

    assert isinstance(finding, RaiseFinding)
    assert finding.finding_key == "disk:web-1:/"
    assert (finding.class_, finding.severity) == ("disk_filling", "high")
    assert (finding.subject_kind, finding.subject_id) == ("mount", "web-1:/")
    assert finding.summary == "web-1:/ is 93% full"


def test_a_healthy_reading_clears_the_finding():
    (change,) = judge(DISK, reading(0.01)).findings

    assert isinstance(change, ClearFinding)
    assert change.finding_key == "disk:web-1:/"


@pytest.mark.parametrize(
    ("gauge", "name"),
    [(DISK, "host.disk.measured"), (MEMORY, "host.memory.measured"), (LOAD, "host.load.measured")],
    ids=lambda value: getattr(value, "name", value),
)
def test_the_monitor_reads_what_the_publisher_measures(gauge, name):
    measured = next(one for one in measure() if one.name == name)
    trigger = ManualTrigger(requested_by="test", payload={"host": HERE, **measured.payload})

    seen = CheckGauge(gauge).init(None, trigger)

    assert seen.about.startswith(HERE)
    assert seen.value >= 0


def test_the_publisher_names_processes_but_never_their_arguments():
    measured = next(one for one in measure() if one.name == "host.processes.measured")
    shown = {key for one in measured.payload["by_memory"] for key in one}
    assert shown == {"pid", "name", "memory_fraction", "cpu_fraction"}


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "soon"])
def test_the_publisher_refuses_an_interval_that_is_no_time(text):
    with pytest.raises(ValueError, match=text):
        positive_s(text)


# The advisor.


def case(**changes: object) -> AdviceCase:
    usual = AdviceCase(
        finding_key="disk:web-1:/",
        class_="disk_filling",
        severity="high",
        summary="web-1:/ is 93% full",
        subject_kind="mount",
        subject_id="web-1:/",
    )
    return msgspec.structs.replace(usual, **changes)


CTX = Context(
    episode_id="e",
    actor_id="resource_advisor",
    expectation_id="look_closer",
    budget=Budget(),
    turn=1,
    tokens_used=0,
)


def taken(kind: StepKind, action: Step) -> StepTaken:
    return StepTaken(step_no=1, kind=kind, tool="", action=action)


def test_the_advisor_looks_then_notes_then_words_it_then_ends():
    strategy, state = LookCloser(), case()

    first = strategy.next_step(state, CTX)
    assert first == ToolCall("directories", "largest", {"host": "web-1", "path": "/", "most": 3})
    found = {"largest": [{"name": "/var", "size": 9}, {"name": "/opt", "size": 5}]}
    state = strategy.handle_result(state, taken(StepKind.TOOL_CALL, first), found)

    second = strategy.next_step(state, CTX)
    assert second == Observe({"suspects": ["/var", "/opt"], "unseen": ""})
    state = strategy.handle_result(state, taken(StepKind.OBSERVATION, second), second.data)

    third = strategy.next_step(state, CTX)
    assert isinstance(third, Synthesize)
    state = strategy.handle_result(state, taken(StepKind.SYNTHESIS, third), third.prompt)

    assert isinstance(strategy.next_step(state, CTX), Converge)
    (advice,) = strategy.converge(state, CTX).findings
    assert isinstance(advice, RaiseFinding)
    assert advice.caused_by_key == "disk:web-1:/"
    assert advice.finding_key == advice_key("disk:web-1:/")
    assert advice.summary == "Act: web-1:/ is 93% full. /var holds the most, then /opt."


def test_a_model_s_words_are_taken_as_they_are():
    step = taken(StepKind.SYNTHESIS, Synthesize({}))
    state = LookCloser().handle_result(case(suspects=("/var",)), step, "Empty /var/cache.")
    assert state.advice == "Empty /var/cache."


def test_an_advisor_that_cannot_look_still_advises_and_says_that_it_guesses():
    step = taken(StepKind.TOOL_CALL, ToolCall("directories", "largest"))
    failure = Failure("other_host", "web-1 is not to be seen")

    state = LookCloser().handle_result(case(), step, failure)

    assert state.suspects == ()
    assert state.unseen == "web-1 is not to be seen"
    (advice,) = LookCloser().converge(state, CTX).findings
    assert advice.confidence == 0.3


@pytest.mark.parametrize(
    ("class_", "by"), [("memory_filling", "memory"), ("processor_busy", "cpu")]
)
def test_the_advisor_asks_who_uses_what_is_short(class_, by):
    asked = LookCloser().next_step(case(class_=class_, subject_id="web-1"), CTX)
    assert asked == ToolCall("processes", "top", {"host": "web-1", "by": by, "most": 3})


def test_advice_goes_when_its_reason_goes():
    trigger = ManualTrigger(requested_by="test", payload={"finding_key": "disk:web-1:/"})
    strategy = WithdrawAdvice()

    (change,) = strategy.converge(strategy.init(None, trigger), CTX).findings

    assert isinstance(change, ClearFinding)
    assert change.finding_key == advice_key("disk:web-1:/")


def test_the_advisor_never_wakes_on_its_own_advice():
    for expectation in app.actors["resource_advisor"].expectations.values():
        (source,) = expectation.on
        assert source.filter == {"actor_id": in_("resource_monitor")}


# The tools, on this machine.


async def test_folders_are_added_up_the_largest_first(tmp_path):
    for name, size in (("small", 10_000), ("large", 400_000), ("empty", 0)):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "file").write_bytes(b"x" * size)

    answer = await largest_directories({"host": HERE, "path": str(tmp_path), "most": 2}, None)

    assert [one["name"] for one in answer["largest"]] == [
        str(tmp_path / "large"),
        str(tmp_path / "small"),
    ]
    assert answer["complete"]


async def test_processes_are_named_the_hungriest_first():
    answer = await top_processes({"host": HERE, "by": "memory", "most": 20}, None)
    sizes = [one["size"] for one in answer["largest"]]
    assert sizes
    assert sizes == sorted(sizes, reverse=True)


async def test_the_tools_refuse_to_speak_for_another_machine():
    with pytest.raises(ToolFailed, match="other_host"):
        await top_processes({"host": "elsewhere", "by": "memory", "most": 3}, None)
