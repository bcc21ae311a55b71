"""given(workflow).when(command).then(what happens, in words): instances as they read in tests.

An instance lives through the same hands as in a node: each decision is a commit on its journal,
the state is folded from that, and effects come from the newest commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType

import pytest
from msgspec.structs import replace

from engine.app.workflow import Workflow
from engine.errors import Refused
from engine.workflows.decide import decide, decided_at
from engine.workflows.effects import Effects, follow_up
from engine.workflows.instance import (
    UNSTARTED,
    AttemptEnded,
    Instance,
    InstanceCommand,
    ResultLookedUp,
    fold_instance,
)
from engine.workflows.start import start_of, started
from engine.workflows.steps import Code
from streams.json import NOTHING, raw, unraw
from streams.model.commands import Advance, CancelWorkflow, DecideStep, ResumeWorkflow, Verdict
from streams.model.events import (
    CompensationBegun,
    CompensationEnded,
    StepApprovalAsked,
    StepApproved,
    StepBegun,
    StepDenied,
    StepEnded,
    StepPaused,
    StepPostponed,
    StepPrepared,
    StepReused,
    StepSkipped,
    WorkflowAborted,
    WorkflowCancelAsked,
    WorkflowEvent,
    WorkflowFinished,
    WorkflowResumed,
    WorkflowStarted,
)
from streams.model.money import NO_USD, Usd, usd_of
from streams.model.service_levels import ServiceLevel
from streams.model.triggers import AdaptiveBudget, Budget, ManualTrigger, PublicEvents
from streams.model.workflows import ResumeHow, StepOutcome, StepSpec, Task, WorkflowSpec
from streams.ports.log import Commit, Recorded
from streams.wire.codec import decode_commit, encode_commit
from tests.spec import EPOCH

STACK = "s"

NO_DOLLARS = MappingProxyType({})


def task(actor: str, expectation: str, usd: Usd = NO_USD) -> Task:
    return Task(
        actor_id=actor,
        expectation_id=expectation,
        budget=Budget(usd=usd),
        public_events=PublicEvents.WITHOUT_STARTS,
        service_level=ServiceLevel(end_s=9),
        adaptive_budget=AdaptiveBudget(turns=(1, 40)),
    )


def spec_of(workflow: Workflow, dollars: Mapping[str, Usd] = NO_DOLLARS) -> WorkflowSpec:
    """Return the workflow as data, whichever actors there are.

    `dollars`: step → what is declared of what it runs.
    """
    steps = tuple(
        StepSpec(
            id=step.name,
            task=(
                None
                if step.workflow
                else task(step.actor, step.expectation, dollars.get(step.name, NO_USD))
            ),
            workflow=step.workflow,
            budget_usd=usd_of(dollars.get(step.name, NO_USD) if step.workflow else NO_USD),
            depends_on=step.depends_on,
            functions=step.functions,
            on_failure=step.on_failure,
            timeout_s=step.timeout_s,
            requires_approval=step.requires_approval,
            approvers=step.approvers,
            approval_expires_s=step.approval_expires_s,
            compensation=task(*step.compensate) if step.compensate else None,
            reuse_s=step.reuse_s,
        )
        for step in workflow.steps.values()
    )
    return WorkflowSpec(
        name=workflow.name,
        steps=steps,
        timeout_s=workflow.timeout_s,
        subject_key=workflow.subject_key,
        overlap=workflow.overlap,
        budget_usd=workflow.budget_usd,
    )


def flow(*steps, **options):
    """A workflow with steps `name`, or `(name, options)`, each of the actor `act`."""
    made = Workflow("w", **options)
    for each in steps:
        name, said = each if isinstance(each, tuple) else (each, {})
        made.step(name, "act", name, **said)
    return made


def needs(*names, **options):
    return {"depends_on": names, **options}


def undoable(name, *before, **options):
    return name, needs(*before, compensate=("act", f"undo_{name}"), **options)


class Flow:
    """One instance, its journal and its clock."""

    def __init__(
        self,
        workflow: Workflow,
        payload: object = None,
        *,
        dollars: Mapping[str, Usd] = NO_DOLLARS,
        **options: object,
    ):
        self.code = Code(workflow=workflow, stack=STACK)
        self.journal: list[Recorded] = []
        self.instance: Instance = UNSTARTED
        self.now = EPOCH
        trigger = ManualTrigger(requested_by="ada", payload=payload or {})
        start = start_of(workflow.name, trigger, "manual:1", stack=STACK)
        begun = started(spec_of(workflow, dollars), replace(start, **options))
        self.commit((begun,))

    def commit(self, events: tuple[WorkflowEvent, ...]) -> None:
        """Write `events`, and read them back as another node would."""
        seq = len(self.journal) + 1
        at = decided_at(self.instance, self.now)
        data = encode_commit(Commit(id=f"c{seq}", at=at, events=events))
        record = decode_commit(data, subject="s.workflow.i", seq=seq, commit_id=f"c{seq}")
        self.journal.append(record)
        self.instance = fold_instance([record], self.instance)

    def put(self, command: InstanceCommand) -> tuple[WorkflowEvent, ...]:
        """Put one command, and write what comes of it."""
        events = decide(self.instance, command, code=self.code, at=self.now)
        if events:
            self.commit(events)
        return events

    def settle(self) -> tuple[WorkflowEvent, ...]:
        """Put `Advance` until nothing comes of it."""
        events: tuple[WorkflowEvent, ...] = ()
        while more := self.put(advance()):
            events += more
        return events

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @property
    def effects(self) -> Effects:
        return follow_up(self.instance)

    def running(self) -> dict[tuple[str, int], tuple[int, str]]:
        """Return attempt and id of what runs, by step and item."""
        return {
            place: (item.attempt, item.episode_id)
            for place, item in self.instance.items()
            if item.status == "running"
        }

    def end(self, step: str, item: int = 0, **said: object) -> AttemptEnded:
        """Return that what runs for an item ended so."""
        attempt, episode_id = self.running()[step, item]
        return AttemptEnded(step=step, item=item, attempt=attempt, episode_id=episode_id, **said)

    def undo_end(self, step: str, item: int = 0, **said: object) -> AttemptEnded:
        """Return that the newest attempt to undo an item ended so."""
        undoing = self.instance.undoings[step, item]
        return AttemptEnded(
            step=step,
            item=item,
            attempt=undoing.attempt,
            episode_id=undoing.episode_id,
            is_compensation=True,
            **said,
        )


def advance() -> Advance:
    return Advance(workflow="w", instance_id="i")


class given:
    """An instance that has begun, and as far as it comes by itself."""

    def __init__(self, workflow: Workflow, payload: object = None, **options: object):
        self.flow = Flow(workflow, payload, **options)
        self.said = self.flow.settle()

    def when(self, *steps: object) -> given:
        """Let these happen, one after the other; what came of the last one is looked at."""
        for one in steps:
            self.said = one(self.flow)
        return self

    def then(self, *expected: str) -> given:
        """Expect these events, in words, in this order."""
        fans_out = {name for name, spec in self.flow.instance.specs.items() if spec.fans_out}
        said = [in_words(event, fans_out) for event in self.said]
        assert said == list(expected), said
        return self

    def then_nothing(self) -> given:
        return self.then()

    def then_refused(self, step: object, match: str) -> given:
        with pytest.raises(Refused, match=match):
            step(self.flow)
        return self

    def is_(self, status: str) -> given:
        assert self.flow.instance.status == status
        return self

    def after(self, step: object) -> given:
        """As `when`: reads better behind `then`."""
        return self.when(step)

    def input_of(self, step: str, item: int = 0) -> object:
        """Return what a step runs with."""
        return unraw(self.flow.instance.steps[step].inputs[item])

    def item(self, step: str, number: int = 0) -> object:
        return self.flow.instance.steps[step].items[number]


# What may happen.


def done(step: str, result: object = None, item: int = 0, spent: Usd = NO_USD):
    said = {"outcome": StepOutcome.DONE, "result": raw(result), "spent_usd": usd_of(spent)}
    return lambda flow: flow.put(flow.end(step, item, **said))


def fails(
    step: str,
    error_class: str = "crash",
    item: int = 0,
    result: object = None,
    spent: Usd = NO_USD,
):
    said = {"outcome": StepOutcome.FAILED, "error_class": error_class, "error_detail": "boom"}
    said["spent_usd"] = usd_of(spent)
    kept = NOTHING if result is None else raw(result)
    return lambda flow: flow.put(flow.end(step, item, result=kept, **said))


def reused(step: str, result: object = None, item: int = 0):
    said = ResultLookedUp(step=step, item=item, episode_id="earlier", result=raw(result))
    return lambda flow: flow.put(said)


def missed(step: str, item: int = 0):
    return lambda flow: flow.put(ResultLookedUp(step=step, item=item))


def canceled(step: str, item: int = 0):
    return lambda flow: flow.put(flow.end(step, item, outcome=StepOutcome.CANCELED))


def undone(step: str, item: int = 0, spent: Usd = NO_USD):
    said = {"outcome": StepOutcome.DONE, "spent_usd": usd_of(spent)}
    return lambda flow: flow.put(flow.undo_end(step, item, **said))


def not_undone(step: str, item: int = 0):
    said = {"outcome": StepOutcome.FAILED, "error_class": "crash"}
    return lambda flow: flow.put(flow.undo_end(step, item, **said))


def waits(seconds: float):
    def wait(flow: Flow):
        flow.wait(seconds)
        return flow.settle()

    return wait


def resumed(step: str, how: str, id_: str = "r1"):
    command = ResumeWorkflow(
        workflow="w", instance_id="i", id=id_, step=step, how=ResumeHow(how), by="ada"
    )
    return lambda flow: flow.put(command)


def cancel():
    command = CancelWorkflow(workflow="w", instance_id="i", by="ada", reason="not wanted")
    return lambda flow: flow.put(command)


def decided(
    step: str,
    verdict: str,
    *,
    by: str = "ada",
    id_: str = "d1",
    plan_hash: str = "",
    inputs: Sequence[object] | None = None,
):
    def put(flow: Flow):
        asked = flow.instance.steps[step].asked if step in flow.instance.steps else None
        command = DecideStep(
            workflow="w",
            instance_id="i",
            id=id_,
            step=step,
            verdict=Verdict(verdict),
            plan_hash=plan_hash or (asked.approval.plan_hash if asked else ""),
            by=by,
            reason="why not",
            edited_hash="" if inputs is None else "e" * 64,
            edited_inputs=tuple(map(raw, inputs or ())),
        )
        return flow.put(command)

    return put


# Events in words.


def in_words(event: WorkflowEvent, fans_out: frozenset[str] | set[str] = frozenset()) -> str:
    """Return an event in a few words: what, which step, which item, which attempt."""
    step = getattr(event, "step", "")
    item = f"[{event.item}]" if step in fans_out and hasattr(event, "item") else ""
    number = getattr(event, "attempt", 1)
    attempt = f" #{number}" if number > 1 else ""
    place = f"{step}{item}{attempt}"
    match event:
        case StepEnded(outcome=outcome, error_class=error_class):
            why = f": {error_class}" if error_class else ""
            return f"{outcome.value} {place}{why}"
        case CompensationEnded(outcome=outcome, retry_at=retry_at):
            how = "undone" if outcome is StepOutcome.DONE else "not undone"
            return f"{how} {place}" + (", later" if retry_at else "")
        case StepSkipped(reason=reason):
            return f"skip {place}: {reason.value}"
        case StepPrepared(inputs=inputs):
            return f"prepare {place}" + (f" x{len(inputs)}" if step in fans_out else "")
        case WorkflowAborted(error_class=error_class):
            return f"abort: {error_class}"
        case WorkflowFinished(status=status):
            return f"finish {status.value}"
        case _:
            return f"{WORDS[type(event)]} {place}".strip()


WORDS = {
    WorkflowStarted: "start",
    StepApprovalAsked: "ask",
    StepApproved: "approve",
    StepDenied: "deny",
    StepBegun: "begin",
    StepReused: "reuse",
    StepPostponed: "postpone",
    StepPaused: "pause",
    WorkflowResumed: "resume",
    WorkflowCancelAsked: "cancel",
    CompensationBegun: "undo",
}
