"""An app's workflows, checked against its actors and turned into data for the journal. Pure.

An instance stores `spec_of` its workflow when it starts, so a later deployment changes only the
functions. Each workflow has an actor whose only expectation, `StartWorkflow`, starts instances: so
anything that can trigger an actor can start a workflow, by the same rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from engine.app.actions import Action, converge, tool_call
from engine.app.actor import Actor
from engine.app.context import Context, EpisodeView
from engine.app.strategy import Abort, ConvergeResult, Retry, StepTaken, Strategy, retry
from engine.app.tools import WORKFLOWS, Failure
from engine.app.workflow import Workflow, WorkflowCheck, WorkflowStep, cycle, depths
from engine.errors import DeclarationError
from streams.model.triggers import LogStrategy, PublicEvents, Trigger
from streams.model.workflows import StepSpec, Task, WorkflowSpec

DEPTH_MAX: Final = 8
"""Most workflows that may be nested in one another."""

WORKFLOWS_MAX: Final = 1_000
"""Most workflows of one app."""

_ALL: Final = "(all)"


PREFIX: Final = "workflow-"
"""Prefix of the ids of actors that start workflows; the workflow's name follows."""

NAME_CHARS_MAX: Final = 64 - len(PREFIX)
"""Longest name of an app's workflow: its actor's id contains it."""

START_EXPECTATION: Final = "start"
"""The actor's expectation, and the action of the tool that it calls."""

UNAVAILABLE: Final = "tool_unavailable"
"""Error class of an attempt that did not reach the log."""

TRIES_MAX: Final = 10
"""Most attempts of one episode to start an instance while the log is unavailable."""

SKIPPED: Final = "skipped"
"""The classification of an episode that started no instance because the subject had one."""

STARTS_MAX: Final = 32
"""Episodes of such an actor that one node runs at a time."""


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


def spec_of(workflow: Workflow, actors: Mapping[str, Actor]) -> WorkflowSpec:
    """Return the steps of `workflow` for an instance; `checked_workflows` must have checked it."""
    return WorkflowSpec(
        name=workflow.name,
        steps=tuple(_step_spec(step, actors) for step in workflow.steps.values()),
        subject_key=workflow.subject_key,
        timeout_s=workflow.timeout_s,
        overlap=workflow.overlap,
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
        log_strategy=LogStrategy(declared.log_strategy),
        public_events=PublicEvents(actors[actor].public_events),  # guard: instance-knows-publishing
        service_level=declared.service_level,  # guard: workflow-step-promises-level
        adaptive_budget=declared.adaptive_budget,  # guard: step-has-expectations-bounds
    )


class StartResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the tool that starts an instance."""

    instance_id: str
    """The new instance, or the one that the subject already had."""
    is_skipped: bool = False


class StartOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an episode that starts workflows."""

    primary: str
    instance_id: str


class StartWorkflow(Strategy["StartWorkflow.State"]):
    """Starts an instance and reports its id."""

    class State(msgspec.Struct, frozen=True):
        """The result so far."""

        tries: int = 0
        begun: StartResult | None = None

    def __init__(self, workflow: str) -> None:
        """Start instances of `workflow`."""
        self.workflow = workflow

    def init(self, episode: EpisodeView, trigger: Trigger) -> State:
        """Return the state before the first attempt."""
        del episode, trigger
        return self.State()

    def next_step(self, state: State, ctx: Context) -> Action:
        """Ask for the instance until there is an answer."""
        del ctx
        if state.begun is not None:
            return converge()
        return tool_call(
            WORKFLOWS, START_EXPECTATION, {"workflow": self.workflow, "attempt": state.tries + 1}
        )

    def handle_result(self, state: State, step: StepTaken, result: object) -> State | Retry | Abort:
        """Store the answer; try again if the log was unavailable."""
        del step
        if not isinstance(result, Failure):
            return self.State(state.tries + 1, msgspec.convert(result, StartResult))
        if result.error_class == UNAVAILABLE and state.tries + 1 < TRIES_MAX:
            return retry(self.State(state.tries + 1))
        return Abort(result.error_class, result.detail)

    def converge(self, state: State, ctx: Context) -> ConvergeResult:
        """Return which instance it is."""
        del ctx
        begun = state.begun
        assert begun is not None, "it converges when it has an answer"
        outcome, summary = "started", f"instance {begun.instance_id} started"
        if begun.is_skipped:
            outcome, summary = SKIPPED, f"skipped: instance {begun.instance_id} is not over"
        said = msgspec.to_builtins(StartOutcome(primary=outcome, instance_id=begun.instance_id))
        return ConvergeResult(classification=said, confidence=1.0, summary=summary)


def starter_id(workflow: str) -> str:
    """Return the id of the actor that starts instances of `workflow`."""
    return PREFIX + workflow


def fallback_starter(workflow: str) -> Actor:
    """Return a workflow's starter that starts nothing, but lets running instances continue."""
    return Actor(starter_id(workflow), domain="workflows", max_concurrent_episodes=STARTS_MAX)


def workflow_of(actor_id: str) -> str | None:
    """Return the workflow that an actor starts, if its id says so."""
    return actor_id.removeprefix(PREFIX) if actor_id.startswith(PREFIX) else None


def problem_of_id(actor: Actor) -> str | None:
    """Return why `actor` may not have its id, or None: it must not collide with a starter's."""
    if actor.id.startswith("-"):
        return "begins with '-', as the engine's own queues do"
    begins = actor.expectations.get(START_EXPECTATION)
    is_starter = begins is not None and isinstance(begins.strategy, StartWorkflow)
    if actor.id.startswith(PREFIX) and not is_starter:
        return f"begins with {PREFIX!r}, as the actors do that begin workflows"
    return None


def starters_of(workflows: Mapping[str, Workflow], actors: Mapping[str, Actor]) -> list[Actor]:
    """Return the actors that start `workflows`, beside `actors`; or raise `BadWorkflow`."""
    return [_starter_of(workflow, actors) for workflow in workflows.values()]


def _starter_of(workflow: Workflow, actors: Mapping[str, Actor]) -> Actor:
    check, id_ = WorkflowCheck(workflow.name), starter_id(workflow.name)
    if len(workflow.name) > NAME_CHARS_MAX:
        problem = f"{len(workflow.name)} characters, the limit is {NAME_CHARS_MAX}"
        raise check.refuse("name", problem)
    if id_ in actors:
        raise check.refuse("name", f"an actor is called {id_!r}, which begins this workflow")
    actor = Actor(
        id_,
        domain="workflows",
        revision=workflow.revision,
        max_concurrent_episodes=STARTS_MAX,
    )
    try:
        actor.expect(
            START_EXPECTATION,
            StartWorkflow(workflow.name),
            on=workflow.on,
            subject_key=workflow.subject_key,
            debounce_s=workflow.debounce_s,
            dedupe=workflow.dedupe,
        )
    except DeclarationError as error:
        raise check.refuse(error.field, error.problem, error) from error
    return actor
