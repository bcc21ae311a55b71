"""What must hold of every instance of a workflow, whatever went wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Final

from engine.workflows.instance import was_skipped
from streams.json import unraw
from streams.model.events import (
    CompensationBegun,
    CompensationEnded,
    EndStatus,
    StepBegun,
    StepEnded,
    StepPrepared,
    StepReused,
    StepSkipped,
    WorkflowFinished,
    WorkflowResumed,
)
from streams.model.money import NO_USD, USD_LEAST
from streams.model.triggers import ManualTrigger, WorkflowTrigger
from streams.model.workflows import StepOutcome
from tests.simulation.evidence import (
    Breaches,
    Evidence,
    Flow,
    Life,
    identity,
    payload_of,
    readable,
)
from tests.simulation.flowing import ENDS_OF_INSTANCES, REUSE_S

GIVEN_UP: Final = "step_timeout"
"""Error class of attempts that may end otherwise than their instance has it."""

LEEWAY_S: Final = 60.0
"""How much later than it was looked for something may be written: clocks are off, and nodes
freeze and repeat what they write."""

BEGUN_BY: Final = {
    "sim.flow": "diamond",
    "sim.fan": "fan",
    "sim.saga": "saga",
    "sim.outer": "outer",
}
"""Event → the workflow that it begins."""


def every_instance_ends_once_and_as_it_should(evidence: Evidence) -> Breaches:
    for flow in evidence.flows.values():
        ends = flow.of(WorkflowFinished)
        if len(ends) != 1 or flow.events[-1].event != ends[0].event:
            yield f"{flow} ended {len(ends)} times"
        elif ends[0].event.status.value not in ENDS_OF_INSTANCES[flow.name]:
            yield f"{flow} ended as {ends[0].event}"
        elif ends[0].event.not_undone:
            yield f"{flow} could not undo {ends[0].event.not_undone}"


def every_attempt_is_begun_once_and_ends_once(evidence: Evidence) -> Breaches:
    for flow in evidence.flows.values():
        attempts: dict[tuple[str, int], list[int]] = defaultdict(list)
        for placed in flow.of(StepBegun):
            attempts[placed.event.step, placed.event.item].append(placed.event.attempt)
        for place, found in attempts.items():
            if found != list(range(1, len(found) + 1)):
                yield f"{flow} {place}: attempts {found}"
        ends = Counter(
            (placed.event.step, placed.event.item, placed.event.attempt)
            for placed in flow.of(StepEnded)
        )
        begun = {(*place, each) for place, found in attempts.items() for each in found}
        yield from (f"{flow}: {each} ended {n} times" for each, n in ends.items() if n > 1)
        if begun != set(ends):
            yield f"{flow}: begun {begun - set(ends)}, ended {set(ends) - begun}"


def every_attempt_has_what_was_opened_for_it_and_nothing_else(evidence: Evidence) -> Breaches:
    wanted = {id_ for flow in evidence.flows.values() for id_ in flow.opened}
    opened = {life.id for life in evidence.lives.values() if _is_step(life)}
    opened |= {flow.id for flow in evidence.flows.values() if flow.begun.parent is not None}
    yield from (f"{each} was begun, and never opened" for each in wanted - opened)
    yield from (f"{each} was opened, and never begun" for each in opened - wanted)


def an_attempt_ends_as_what_ran_for_it(evidence: Evidence) -> Breaches:
    for flow in evidence.flows.values():
        for placed in flow.of(StepEnded):
            ended = placed.event
            if ended.error_class == GIVEN_UP:
                continue
            said = _end_of(evidence, ended.episode_id)
            if said is None:
                yield f"{flow}: {ended} though it has not ended"
                continue
            outcome, result = said
            if ended.outcome is StepOutcome.DONE and (outcome, unraw(ended.result)) != (
                "done",
                result,
            ):
                yield f"{flow}: {ended}, and it says {said}"
            if ended.outcome is not StepOutcome.DONE and outcome == "done":
                yield f"{flow}: {ended}, though it is done"


def a_step_begins_when_all_before_it_is_settled(evidence: Evidence) -> Breaches:
    for flow in evidence.flows.values():
        needs = {step.id: step.depends_on for step in flow.begun.spec.steps}
        width, settled = {}, defaultdict(set)
        for placed in flow.events:
            match placed.event:
                case StepPrepared(step=step, inputs=inputs):
                    width[step] = len(inputs)
                    late = [each for each in needs[step] if len(settled[each]) < width.get(each, 1)]
                    if late:
                        yield f"{flow}: {step} before {late}"
                case StepEnded(outcome=StepOutcome.DONE, step=step, item=item):
                    settled[step].add(item)
                case StepReused(step=step, item=item) | StepSkipped(step=step, item=item):
                    settled[step].add(item)
                case WorkflowResumed(step=step):
                    settled[step].update(range(width.get(step, 1)))
                case _:
                    pass


def what_runs_for_an_item_gets_its_input(evidence: Evidence) -> Breaches:
    for flow in evidence.flows.values():
        inputs = {placed.event.step: placed.event.inputs for placed in flow.of(StepPrepared)}
        for placed in flow.of(StepBegun):
            life = evidence.lives.get(placed.event.episode_id)
            trigger = life.opened.trigger if life else None
            given = unraw(inputs[placed.event.step][placed.event.item])
            if isinstance(trigger, WorkflowTrigger) and trigger.input != given:
                yield f"{flow}: {placed.event} with {trigger.input}"


def what_was_done_is_undone_in_reverse_when_an_instance_stops(evidence: Evidence) -> Breaches:
    for flow in evidence.flows.values():
        able = {step.id for step in flow.begun.spec.steps if step.compensation}
        done = [
            (placed.event.step, placed.event.item)
            for placed in flow.of(StepEnded)
            if placed.event.outcome is StepOutcome.DONE and placed.event.step in able
        ]
        undone = [
            (placed.event.step, placed.event.item)
            for placed in flow.of(CompensationBegun)
            if placed.event.attempt == 1
        ]
        is_done = flow.finished is not None and flow.finished.status == "done"
        wanted = [] if is_done else done[::-1]
        if undone != wanted:
            yield f"{flow}: undone {undone}, due {wanted}"


def a_subject_has_one_instance_at_a_time(evidence: Evidence) -> Breaches:
    spans: dict[tuple[str, str], list[tuple[float, float, Flow]]] = defaultdict(list)
    for flow in evidence.flows.values():
        may_overlap = flow.begun.spec.overlap == "allow" or flow.begun.parent is not None
        if not may_overlap and not flow.is_dry and flow.finished and flow.went_on:
            since, until = (evidence.stored_s(flow.went_on[at].seq) for at in (0, -1))
            spans[flow.name, flow.begun.subject].append((since, until, flow))
    for found in spans.values():
        found.sort(key=lambda each: each[0])
        for (_, until, one), (since, _, other) in pairwise(found):
            if since < until:
                yield f"{other} began while {one} went on"


def an_event_has_one_instance_also_if_it_is_skipped(evidence: Evidence) -> Breaches:
    begun = Counter(
        (flow.name, event_id)
        for flow in evidence.flows.values()
        if (event_id := getattr(flow.begun.trigger, "event_id", ""))
    )
    for name, workflow in BEGUN_BY.items():
        for each in {identity(message) for message in readable(evidence, name)}:
            if begun[workflow, each] != 1:
                yield f"{name} {each} has {begun[workflow, each]} instances"


def what_is_skipped_does_nothing_and_says_for_whose_sake(evidence: Evidence) -> Breaches:
    for flow in evidence.flows.values():
        if not _is_skipped(flow):
            continue
        if flow.begun.spec.steps or len({placed.seq for placed in flow.events}) > 1:
            yield f"{flow} was skipped, and went on"
        busy = evidence.flows.get(flow.begun.held_by)
        if busy is None or (busy.name, busy.begun.subject) != (flow.name, flow.begun.subject):
            yield f"{flow} was skipped for {busy or flow.begun.held_by}"


def a_result_that_is_used_again_is_of_the_same_work(evidence: Evidence) -> Breaches:
    for flow in evidence.flows.values():
        inputs = {placed.event.step: placed.event.inputs for placed in flow.of(StepPrepared)}
        tasks = {step.id: step.task for step in flow.begun.spec.steps}
        for placed in flow.of(StepReused):
            event, life = placed.event, evidence.lives[placed.event.episode_id]
            task, trigger = tasks[event.step], life.opened.trigger
            assert task is not None, "only episodes are used again"
            did = life.opened.actor_id, life.opened.expectation_id, life.opened.mode
            if did != (task.actor_id, task.expectation_id, flow.begun.mode):
                yield f"{flow}: {event} is of {did}"
            if trigger.payload != unraw(inputs[event.step][event.item]):
                yield f"{flow}: {event} had {trigger.payload}"
            said = _end_of(evidence, life.id)
            if said != ("done", unraw(event.result)):
                yield f"{flow}: {event}, and it says {said}"
            ended = life.records[-1].commit.at
            at = evidence.committed_at(placed.seq)
            if at - ended > timedelta(seconds=REUSE_S + LEEWAY_S):
                yield f"{flow}: {event} is {at - ended} old"


def the_world_is_told_of_instances(evidence: Evidence) -> Breaches:
    told = Counter(
        (str(payload["instance_id"]), evidence.history.stack.event_name_of(message.subject))
        for messages in evidence.told.values()
        for message in messages[:1]
        if (payload := payload_of(message)) and "instance_id" in payload
    )
    for flow in evidence.flows.values():
        ends = {"done": "completed", "failed": "failed", "canceled": "canceled"}
        status = flow.finished.status.value if flow.finished else ""
        is_skipped = _is_skipped(flow)
        wanted = {
            "workflow.skipped": int(is_skipped),
            "workflow.started": int(not is_skipped),
            f"workflow.{ends.get(status)}": int(not is_skipped),
            "workflow.step_started": len(flow.of(StepBegun)),
            "workflow.step_reused": len(flow.of(StepReused)),
        }
        for name, count in wanted.items():
            if told[flow.id, name] != (0 if flow.is_dry else count):
                yield f"{flow}: {name} was told {told[flow.id, name]} times, due {count}"


def what_is_started_by_hand_has_exactly_one_instance(evidence: Evidence) -> Breaches:
    started = evidence.history.started
    by_hand = {
        flow.id for flow in evidence.flows.values() if isinstance(flow.begun.trigger, ManualTrigger)
    }
    sure = {each.instance_id for each in started if each.is_sure}
    yield from (f"{id_} was asked for and is not there" for id_ in sure - by_hand)
    asked = {each.instance_id for each in started}
    yield from (f"{id_} is there and nobody asked for it" for id_ in by_hand - asked)
    for each in started:
        flow = evidence.flows.get(each.instance_id)
        if flow is not None and flow.is_dry != each.is_dry:
            yield f"{flow}: its mode is {flow.begun.mode}"


def _is_skipped(flow: Flow) -> bool:
    return flow.finished is not None and was_skipped(flow.finished)


def _is_step(life: Life) -> bool:
    return isinstance(life.opened.trigger, WorkflowTrigger)


def _end_of(evidence: Evidence, id_: str) -> tuple[str, object] | None:
    """Return how what ran has ended, and what it brought, as its own journal says."""
    life, flow = evidence.lives.get(id_), evidence.flows.get(id_)
    if life is not None and life.finished is not None:
        is_done = life.finished.status is EndStatus.DONE
        found = life.converged
        said = found and {
            "classification": unraw(found.classification),
            "confidence": found.confidence,
            "summary": found.summary,
        }
        return ("done", said) if is_done else (life.finished.status.value, None)
    if flow is None or flow.finished is None:
        return None
    return flow.finished.status.value, flow.results


def attempts_have_no_more_dollars_than_their_instance(evidence: Evidence) -> Breaches:
    for flow in evidence.flows.values():
        budget, spent = flow.begun.budget_usd, NO_USD
        kept: dict[tuple[bool, str, int], Decimal] = {}
        for placed in flow.events if budget else ():
            event = placed.event
            match event:
                case StepBegun() | CompensationBegun():
                    undoes = isinstance(event, CompensationBegun)
                    kept[undoes, event.step, event.item] = event.budget_usd
                case StepEnded() | CompensationEnded():
                    undoes = isinstance(event, CompensationEnded)
                    kept.pop((undoes, event.step, event.item), None)
                    spent = event.spent_usd
                case _:
                    pass
            has = spent + sum(kept.values(), NO_USD)
            # One that runs alone has the least that there is, though nothing is left.
            if has > budget + USD_LEAST:
                yield f"{flow}: {has} of {budget} dollars after {event}"


INVARIANTS: Final[Sequence[Callable[[Evidence], Breaches]]] = (
    every_instance_ends_once_and_as_it_should,
    every_attempt_is_begun_once_and_ends_once,
    every_attempt_has_what_was_opened_for_it_and_nothing_else,
    an_attempt_ends_as_what_ran_for_it,
    a_step_begins_when_all_before_it_is_settled,
    what_runs_for_an_item_gets_its_input,
    what_was_done_is_undone_in_reverse_when_an_instance_stops,
    a_subject_has_one_instance_at_a_time,
    an_event_has_one_instance_also_if_it_is_skipped,
    what_is_skipped_does_nothing_and_says_for_whose_sake,
    what_is_started_by_hand_has_exactly_one_instance,
    a_result_that_is_used_again_is_of_the_same_work,
    the_world_is_told_of_instances,
    attempts_have_no_more_dollars_than_their_instance,
)
