"""An app's workflows, checked against its actors and turned into data for the journal. Pure.

An instance stores `spec_of` its workflow when it starts, so a later deployment changes only the
functions. The triggers of a workflow are evaluated as those of an actor with one expectation, by
the same rules: its `Starter`. What passes starts an instance, and no episode.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from engine.app.actor import Actor, ExpectationOptions
from engine.app.strategy import Strategy
from engine.app.workflow import Workflow, WorkflowCheck, WorkflowStep, cycle, depths
from engine.errors import DeclarationError
from streams.model.money import NO_USD
from streams.model.triggers import LogStrategy, PublicEvents
from streams.model.workflows import StepSpec, Task, WorkflowSpec

DEPTH_MAX: Final = 8
"""Most workflows that may be nested in one another."""

WORKFLOWS_MAX: Final = 1_000
"""Most workflows of one app."""

_ALL: Final = "(all)"


PREFIX: Final = "workflow-"
"""Prefix of the ids of starters; the workflow's name follows."""

NAME_CHARS_MAX: Final = 64 - len(PREFIX)
"""Longest name of an app's workflow: its starter's id contains it."""

START_EXPECTATION: Final = "start"
"""The expectation of a starter."""


def checked_workflows(
    workflows: Sequence[Workflow], actors: Mapping[str, Actor]
) -> Mapping[str, Workflow]:
    """Return the workflows of an app by name, or raise `BadWorkflow`."""
    given: object = workflows
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise WorkflowCheck(_ALL).refuse("workflows", f"{given!r} is not a list")
    if len(given) > WORKFLOWS_MAX:
        raise WorkflowCheck(_ALL).refuse("workflows", f"more than {WORKFLOWS_MAX:,}")
    by_name: dict[str, Workflow] = {}
    for workflow in given:
        if not isinstance(workflow, Workflow):
            raise WorkflowCheck(_ALL).refuse("workflows", f"{workflow!r} is not a Workflow")
        if workflow.name in by_name:
            raise WorkflowCheck(workflow.name).refuse("name", "declared twice")
        by_name[workflow.name] = workflow
    for workflow in by_name.values():
        check_steps(workflow, actors, by_name)
    _check_nesting(by_name)
    return by_name


def spec_of(
    workflow: Workflow,
    actors: Mapping[str, Actor],
    workflows: Mapping[str, Workflow] = MappingProxyType({}),
) -> WorkflowSpec:
    """Return the steps of `workflow` for an instance; `checked_workflows` must have checked it.

    `workflows`: those that its steps may run, for their budgets; one that is not there has none.
    """
    return WorkflowSpec(
        name=workflow.name,
        steps=tuple(_step_spec(step, actors, workflows) for step in workflow.steps.values()),
        subject_key=workflow.subject_key,
        timeout_s=workflow.timeout_s,
        overlap=workflow.overlap,
        budget_usd=workflow.budget_usd,
        revision=workflow.revision,
    )


def problem_of_code(spec: WorkflowSpec, workflow: Workflow) -> str | None:
    """Return what the code lacks to continue an instance of `spec`, or None.

    Another node, such as one of the older version, may have it.
    """
    for step in spec.steps:
        code = workflow.steps.get(step.id)
        if code is None:
            return f"workflow {spec.name!r} has no step {step.id!r}"
        if code.functions != step.functions:
            had = ", ".join(step.functions) or "no functions"
            return f"step {step.id!r} of workflow {spec.name!r} was begun with {had}"
    return None


def check_steps(
    workflow: Workflow, actors: Mapping[str, Actor], workflows: Mapping[str, Workflow]
) -> None:
    """Raise `BadWorkflow` unless everything that the steps of `workflow` name exists."""
    if not workflow.steps:
        raise WorkflowCheck(workflow.name).refuse("steps", "none; use workflow.step(…)")
    for step in workflow.steps.values():
        check = WorkflowCheck(workflow.name, step.name)
        for each in step.depends_on:
            _check_known(check, "depends_on", each, workflow.steps)
        if step.workflow:
            _check_known(check, "workflow", step.workflow, workflows)
        else:
            fields = ("actor", "expectation")
            _check_task(check, fields, (step.actor, step.expectation), actors)
        if step.compensate is not None:
            _check_task(check, ("compensate", "compensate"), step.compensate, actors)


def _check_task(
    check: WorkflowCheck,
    fields: tuple[str, str],
    task: tuple[str, str],
    actors: Mapping[str, Actor],
) -> None:
    actor, expectation = task
    _check_known(check, fields[0], actor, actors)
    _check_known(check, fields[1], expectation, actors[actor].expectations)


def _check_known(check: WorkflowCheck, field: str, name: str, known: Iterable[str]) -> None:
    names = sorted(known)
    if name not in names:
        there = f"there are {', '.join(names)}" if names else "there is none"
        raise check.refuse(field, f"{name!r} is not there; {there}")


def _check_nesting(workflows: Mapping[str, Workflow]) -> None:
    graph = {
        name: tuple(dict.fromkeys(each.workflow for each in one.steps.values() if each.workflow))
        for name, one in workflows.items()
    }
    if way := cycle(graph):  # guard: no-self-running-workflow
        name, _, rest = way.partition(" → ")
        inner = rest.partition(" → ")[0]
        step = next(each.name for each in workflows[name].steps.values() if each.workflow == inner)
        raise WorkflowCheck(name, step).refuse("workflow", f"runs itself: {way}")
    for name, depth in depths(graph).items():
        if depth > DEPTH_MAX:
            problem = f"{depth} workflows within one another, the limit is {DEPTH_MAX}"
            raise WorkflowCheck(name).refuse("steps", problem)


def _step_spec(
    step: WorkflowStep, actors: Mapping[str, Actor], workflows: Mapping[str, Workflow]
) -> StepSpec:
    nested = workflows.get(step.workflow)
    return StepSpec(
        id=step.name,
        task=None if step.workflow else _task(step.actor, step.expectation, actors),
        workflow=step.workflow,
        budget_usd=nested.budget_usd if nested is not None else NO_USD,
        depends_on=step.depends_on,
        functions=step.functions,
        on_failure=step.on_failure,
        timeout_s=step.timeout_s,
        requires_approval=step.requires_approval,
        approvers=step.approvers,
        quorum=step.quorum,
        requester_may_approve=step.requester_may_approve,
        approval_expires_s=step.approval_expires_s,
        compensation=_task(*step.compensate, actors) if step.compensate else None,
        reuse_s=step.reuse_s,
    )


def _task(actor: str, expectation: str, actors: Mapping[str, Actor]) -> Task:
    declared = actors[actor].expectations[expectation]
    return Task(
        actor_id=actor,
        expectation_id=expectation,
        budget=declared.budget,
        spec_rev=actors[actor].spec_rev,
        revision=actors[actor].revision,
        subject_key=declared.subject_key,
        priority=declared.priority,
        overrides=declared.dry_run,
        log_strategy=LogStrategy(declared.log_strategy),
        public_events=PublicEvents(actors[actor].public_events),  # guard: instance-knows-publishing
        service_level=declared.service_level,  # guard: workflow-step-promises-level
        adaptive_budget=declared.adaptive_budget,  # guard: step-has-expectations-bounds
    )


class _Starts(Strategy[Any]):
    """Stands for a strategy in the expectation of a `Starter`, and is never run."""


def starter_id(workflow: str) -> str:
    """Return the id under which the triggers and timers of `workflow` are queued."""
    return PREFIX + workflow


@dataclass(frozen=True, init=False)
class Starter(Actor):
    """The triggers of a workflow, as an actor whose expectation starts instances.

    Without `start_on` it starts nothing, and only lets running instances continue.
    """

    workflow: str = ""
    """The workflow's name."""

    def __init__(self, workflow: str, *, revision: int = 0) -> None:
        """Make one without triggers; `DeclarationError`: no workflow can have this name."""
        super().__init__(starter_id(workflow), domain="workflows", revision=revision)
        object.__setattr__(self, "workflow", workflow)

    def start_on(self, options: ExpectationOptions) -> None:
        """Declare what starts instances; `DeclarationError`: that cannot work."""
        self._declare(START_EXPECTATION, _Starts(), dict, options)


def problem_of_id(actor: Actor) -> str | None:
    """Return why `actor` may not have its id, or None: it must not collide with a starter's."""
    if actor.id.startswith("-"):
        return "begins with '-', as the engine's own queues do"
    if actor.id.startswith(PREFIX) and not isinstance(actor, Starter):
        return f"begins with {PREFIX!r}, as the queues of workflows do"
    return None


def starters_of(
    workflows: Mapping[str, Workflow], actors: Mapping[str, Actor]
) -> Mapping[str, Starter]:
    """Return the starters of `workflows` by id, beside `actors`; or raise `BadWorkflow`."""
    starters = (_starter_of(workflow, actors) for workflow in workflows.values())
    return {each.id: each for each in starters}


def _starter_of(workflow: Workflow, actors: Mapping[str, Actor]) -> Starter:
    check, id_ = WorkflowCheck(workflow.name), starter_id(workflow.name)
    if len(workflow.name) > NAME_CHARS_MAX:
        problem = f"{len(workflow.name)} characters, the limit is {NAME_CHARS_MAX}"
        raise check.refuse("name", problem)
    if id_ in actors:
        raise check.refuse("name", f"an actor is called {id_!r}, as the queue of this workflow")
    options = ExpectationOptions(
        on=workflow.on,
        subject_key=workflow.subject_key,
        debounce_s=workflow.debounce_s,
        dedupe=workflow.dedupe,
    )
    try:
        starter = Starter(workflow.name, revision=workflow.revision)
        starter.start_on(options)
    except DeclarationError as error:
        raise check.refuse(error.field, error.problem, error) from error
    return starter
