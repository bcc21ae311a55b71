"""What an app's workflows come to with its actors: checked, and as data for the journal. Pure.

An instance holds all of this from its beginning, so what is deployed later changes nothing of it
but what the functions say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from engine.app.actor import Actor
from engine.app.workflow import Workflow, WorkflowCheck, WorkflowStep, cycle, depths
from streams.model.workflows import StepSpec, Task, WorkflowSpec

DEPTH_MAX: Final = 8
"""Most workflows that one may be a part of, each a step of the next."""

WORKFLOWS_MAX: Final = 1_000
"""Most workflows of one app."""

_ALL: Final = "(all)"


def checked_workflows(
    workflows: Sequence[Workflow], actors: Mapping[str, Actor]
) -> Mapping[str, Workflow]:
    """Return the workflows of an app by name.

    Raises:
        BadWorkflow: one of them names a step, an actor, an expectation or a workflow that is not
            there, or runs itself by way of others; the message names workflow, step and field.
    """
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


def spec_of(workflow: Workflow, actors: Mapping[str, Actor]) -> WorkflowSpec:
    """Return what an instance of `workflow` is to do; `checked_workflows` has seen to it."""
    return WorkflowSpec(
        name=workflow.name,
        steps=tuple(_step_spec(step, actors) for step in workflow.steps.values()),
        subject_key=workflow.subject_key,
        timeout_s=workflow.timeout_s,
        locks_subject=workflow.overlap == "skip",
        revision=workflow.revision,
    )


def problem_of_code(spec: WorkflowSpec, workflow: Workflow) -> str | None:
    """Return what the code lacks to go on with an instance of `spec`, or None.

    A node that lacks something leaves the instance to others: they may be of the version that began
    it.
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
    """See to it that all that the steps of `workflow` name is there.

    Raises:
        BadWorkflow: something is not; the message names workflow, step and field.
    """
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
    """Refuse workflows that run themselves, or that are nested too deep."""
    graph = {
        name: tuple(dict.fromkeys(each.workflow for each in one.steps.values() if each.workflow))
        for name, one in workflows.items()
    }
    if way := cycle(graph):
        name, _, rest = way.partition(" → ")
        inner = rest.partition(" → ")[0]
        step = next(each.name for each in workflows[name].steps.values() if each.workflow == inner)
        raise WorkflowCheck(name, step).refuse("workflow", f"runs itself: {way}")
    for name, depth in depths(graph).items():
        if depth > DEPTH_MAX:
            problem = f"{depth} workflows within one another, the limit is {DEPTH_MAX}"
            raise WorkflowCheck(name).refuse("steps", problem)


def _step_spec(step: WorkflowStep, actors: Mapping[str, Actor]) -> StepSpec:
    return StepSpec(
        id=step.name,
        task=None if step.workflow else _task(step.actor, step.expectation, actors),
        workflow=step.workflow,
        depends_on=step.depends_on,
        functions=step.functions,
        on_failure=step.on_failure,
        timeout_s=step.timeout_s,
        requires_approval=step.requires_approval,
        approvers=step.approvers,
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
    )
