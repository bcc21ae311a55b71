"""One of each event that the engine publishes, made from the samples of what leads to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Final, get_args

from msgspec.structs import replace

from engine.cluster.announce import node_started, node_stopped
from engine.cluster.nodes import NodeInfo
from engine.episodes import events as episode_events
from engine.episodes.latest_ends import LatestEnds, count, end_to_count, level_changed
from engine.findings import events as finding_events
from engine.orders.events import order_given
from engine.outputs.events import output_event, output_reminder
from engine.outputs.output import Output
from engine.reactor import follow_up
from engine.runtime.publish import PublicEvent
from engine.waits import wait
from engine.waits.wait import Blocked
from engine.workflows.events import instance_events
from engine.workflows.instance import Instance, StepItem, StepState
from engine.workflows.start import skipped
from streams.model.events import (
    DeadLettered,
    EndStatus,
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeResolved,
    FindingCleared,
    FindingEscalated,
    FindingExpired,
    FindingRaised,
    FindingUpdated,
    LogEvent,
    OrderEvent,
    OutputEvent,
    OutputProposed,
    StepEnded,
    StepKind,
    StepRecorded,
    WorkflowEvent,
    WorkflowFinished,
    WorkflowStarted,
)
from streams.model.findings import Severity
from streams.model.modes import NodeMode
from streams.model.money import NO_USD
from streams.model.service_levels import LevelOutcome, ServiceLevel
from streams.model.triggers import Budget
from streams.model.workflows import StepOutcome, StepStatus, WorkflowStatus
from streams.ports.log import Commit, Recorded
from tests.streams.samples import ACTIVE, AT, CAUSE, CLEARED, EVENTS, LIMITED, TIMED
from tests.streams.workflow_samples import WORKFLOW_EVENTS

OF_OUTPUTS: Final = ("proposed", "approved", "rejected", "delivered", "failed", "canceled")
"""What the world is told of outputs, beside reminders."""

ENDS: Final = (WorkflowStatus.DONE, WorkflowStatus.FAILED, WorkflowStatus.CANCELED)


def published() -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the name of every public event, once, and a payload with all that one may hold."""
    (opened, *_) = EVENTS["episode.opened@1"]
    assert isinstance(opened, EpisodeOpened)
    events = [
        *_of_episodes(opened),
        *_of_findings(opened),
        *_of_blocks(opened),
        *_of_outputs(opened),
        *_of_workflows(),
        *_of_breakers(opened),
        *_of_letters(),
        *_of_definitions(),
        *_of_nodes(),
        *_of_orders(),
        *_of_reactors(),
    ]
    yield from {event.name: event.payload for event in events}.items()


def _of_episodes(opened: EpisodeOpened) -> Iterator[PublicEvent]:
    (converged, *_) = EVENTS["episode.converged@1"]
    assert isinstance(converged, EpisodeConverged)
    yield episode_events.triggered(opened, seq=1)
    yield episode_events.queued(opened, position=1, seq=1)
    yield episode_events.dropped(opened, detail="no_room", seq=1)
    yield episode_events.started(opened, attempt=1, node="n", seq=1)
    for status in EndStatus:
        yield episode_events.ended(opened, converged, EpisodeFinished(status=status), seq=1)
    yield episode_events.claim_lost(opened, attempt=1, node="n", seq=1)
    limited = replace(opened, budget=Budget(usd=1))
    request = StepRecorded(
        step_no=1, kind=StepKind.MODEL_REQUEST, fingerprint="f", cost_usd=Decimal(1)
    )
    yield from episode_events.budget_used(limited, request, before=NO_USD, seq=1)
    promised = replace(opened, service_level=ServiceLevel())
    broken = EpisodeFinished(status=EndStatus.FAILED, service_level=LevelOutcome.FAILED)
    missed = episode_events.level_missed(promised, broken, seq=1)
    assert missed is not None
    yield missed
    yield from _of_levels(promised, broken)


def _of_levels(opened: EpisodeOpened, broken: EpisodeFinished) -> Iterator[PublicEvent]:
    kept, ends = replace(broken, service_level=LevelOutcome.MET), LatestEnds()
    for seq, end in enumerate((broken, kept), start=1):
        promised = replace(opened, service_level=ServiceLevel(window=1))
        counted = end_to_count(promised, end, seq=seq)
        assert counted is not None
        ends = count(ends, counted, part="journal")
        changed = level_changed(ends, counted, part="journal")
        assert changed is not None
        yield changed


def _of_findings(opened: EpisodeOpened) -> Iterator[PublicEvent]:
    for kind, finding in (
        (FindingRaised, ACTIVE),
        (FindingUpdated, ACTIVE),
        (FindingCleared, CLEARED),
    ):
        change = kind(finding=finding, cause=CAUSE)
        yield finding_events.finding_changed(opened, change, seq=1)
    expired = FindingExpired(finding=LIMITED, cause=TIMED)
    worse = FindingEscalated(finding=LIMITED, cause=TIMED, from_severity=Severity.LOW)
    known, noted = EVENTS["finding.acknowledged@1"][0], EVENTS["finding.noted@1"][0]
    for each in (expired, worse, known, noted):
        yield finding_events.finding_changed_since(each, seq=1)


def _of_blocks(opened: EpisodeOpened) -> Iterator[PublicEvent]:
    (event, *_), (answer, *_) = EVENTS["episode.blocked@1"], EVENTS["episode.resolved@1"]
    assert isinstance(event, EpisodeBlocked)
    assert isinstance(answer, EpisodeResolved)
    block = Blocked(event=event, at=AT)
    yield wait.blocked(opened, block, seq=1)
    yield wait.reminder(opened, block, number=1, seq=1)
    yield wait.resumed(opened, answer, seq=1)


def _of_outputs(opened: EpisodeOpened) -> Iterator[PublicEvent]:
    lived = [each for name in OF_OUTPUTS for each in EVENTS[f"output.{name}@1"][:1]]
    proposed = lived[0]
    assert isinstance(proposed, OutputProposed)
    for each in lived:
        assert isinstance(each, get_args(OutputEvent))
        told = output_event(opened, proposed, each, retries=0, seq=1)
        assert told is not None, each
        yield told
    yield output_reminder(opened, Output(proposed=proposed), number=1, seq=1)


def _of_workflows() -> Iterator[PublicEvent]:
    """Yield what is told of an instance to which everything happens that can."""
    (*_, begun) = WORKFLOW_EVENTS["workflow.started@1"]
    assert isinstance(begun, WorkflowStarted)
    paused = StepState(items=(StepItem(status=StepStatus.PAUSED),))
    waits = Instance(phase=WorkflowStatus.RUNNING, started=begun, steps={"rate": paused})
    yield from instance_events(replace(waits, newest=(begun,), was=WorkflowStatus.BLOCKED))
    yield from instance_events(waits)
    never = skipped(begun, "i")
    (start, *_), (*_, end) = never, never
    yield from instance_events(Instance(started=start, finished=end, newest=never))
    lived = [each for name in WORKFLOW_EVENTS for each in _in_every_way(WORKFLOW_EVENTS[name][0])]
    yield from instance_events(Instance(started=begun, newest=tuple(lived)))
    limited = replace(begun, spec=replace(begun.spec, budget_usd=Decimal(1)))
    yield from instance_events(Instance(started=limited, spent_usd=Decimal(1)))


def _in_every_way(event: WorkflowEvent) -> Iterator[WorkflowEvent]:
    match event:
        case WorkflowStarted():
            return
        case WorkflowFinished():
            yield from (_as(replace(event, status=each), is_fine=each is ENDS[0]) for each in ENDS)
        case StepEnded():
            done = StepOutcome.DONE
            for each in StepOutcome:
                yield _as(replace(event, outcome=each), is_fine=each is done)
        case _:
            yield event


def _as(event: WorkflowFinished | StepEnded, *, is_fine: bool) -> WorkflowFinished | StepEnded:
    return replace(event, error_class="", error_detail="") if is_fine else event


def _of_breakers(opened: EpisodeOpened) -> Iterator[PublicEvent]:
    yield episode_events.breaker_changed(opened, "opened", failures=("e",), at=AT, seq=1)
    yield episode_events.breaker_changed(opened, "closed", failures=(), at=AT, seq=1)
    yield episode_events.breaker_half_opened(
        "e", actor_id="a", expectation_id="x", failures=("e",), node=""
    )
    yield episode_events.breaker_canceled(opened, detail="", seq=1)


def _of_letters() -> Iterator[PublicEvent]:
    letter: DeadLettered | None = None
    for name in ("lettered", "requeued", "discarded"):
        record = _alone(EVENTS[f"dead.{name}@1"][0])
        letter, told = follow_up.of_dead_letter(letter, record, key="k")
        yield from told


def _of_definitions() -> Iterator[PublicEvent]:
    for name in ("applied", "disabled"):
        yield from follow_up.of_definition(_alone(EVENTS[f"definition.{name}@1"][0]))


def _of_nodes() -> Iterator[PublicEvent]:
    mode = NodeMode.FULL
    info = NodeInfo(name="n", host="h", pid=1, since=AT, mode=mode, setting=mode, lease_s=30.0)
    yield node_started(info, ["a"])
    yield node_stopped(info, ["a"], at=AT, reason="", is_clean=True)


def _of_orders() -> Iterator[PublicEvent]:
    for tag, (event, *_) in EVENTS.items():
        if tag.startswith("order."):
            assert isinstance(event, OrderEvent)
            yield order_given(event, seq=1, number=0)


def _of_reactors() -> Iterator[PublicEvent]:
    yield PublicEvent(
        name="reactor.started.journal",
        id="r",
        payload={"node": "n", "stream": "journal"},
        hops=0,
    )


def _alone(event: LogEvent) -> Recorded:
    return Recorded(subject="s", seq=1, commit=Commit(id="c", at=AT, events=(event,)))
