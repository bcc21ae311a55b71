"""What begins a workflow: an actor of its own, whose only expectation begins instances. Pure.

So whatever may wake an actor may begin a workflow, by the same rules: events and calm, schedules,
people, dedupe keys, pauses, dry runs. Each cause has an episode that says which instance it has
begun, or why none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from engine.app.actions import Action, converge, tool_call
from engine.app.actor import Actor
from engine.app.context import Context, EpisodeView
from engine.app.strategy import Abort, ConvergeResult, Retry, StepTaken, Strategy, retry
from engine.app.tools import WORKFLOWS, Failure
from engine.app.workflow import Workflow, WorkflowCheck
from engine.errors import DeclarationError
from streams.model.triggers import Trigger

PREFIX: Final = "workflow-"
"""What the id of an actor that begins a workflow begins with; the workflow's name follows."""

NAME_CHARS_MAX: Final = 64 - len(PREFIX)
"""Longest name of a workflow of an app, for its actor has it in its id."""

START_EXPECTATION: Final = "start"
"""The actor's expectation, and the action of the tool that it calls."""

UNAVAILABLE: Final = "tool_unavailable"
"""Error class of a try for which the log was away."""

TRIES_MAX: Final = 10
"""Most tries of one episode to begin an instance, while the log is away."""

SKIPPED: Final = "skipped"
"""What an episode says that began no instance: another one was busy with the subject."""

STARTS_MAX: Final = 32
"""Episodes of such an actor that one node runs at a time."""


class StartResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the tool has come back with."""

    instance_id: str
    """The instance that was begun, or the one that is busy with the subject."""
    is_skipped: bool = False


class StartOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What an episode says came of its cause."""

    primary: str
    instance_id: str


class StartWorkflow(Strategy["StartWorkflow.State"]):
    """Begins an instance, and says which."""

    class State(msgspec.Struct, frozen=True):
        """Where it is."""

        tries: int = 0
        begun: StartResult | None = None

    def __init__(self, workflow: str) -> None:
        """Begin instances of `workflow`."""
        self.workflow = workflow

    def init(self, episode: EpisodeView, trigger: Trigger) -> State:
        """Begin with nothing tried."""
        del episode, trigger
        return self.State()

    def next_step(self, state: State, ctx: Context) -> Action:
        """Ask for the instance, until there is an answer."""
        del ctx
        if state.begun is not None:
            return converge()
        return tool_call(
            WORKFLOWS, START_EXPECTATION, {"workflow": self.workflow, "attempt": state.tries + 1}
        )

    def handle_result(self, state: State, step: StepTaken, result: object) -> State | Retry | Abort:
        """Keep the answer; try again if the log was away."""
        del step
        if not isinstance(result, Failure):
            return self.State(state.tries + 1, msgspec.convert(result, StartResult))
        if result.error_class == UNAVAILABLE and state.tries + 1 < TRIES_MAX:
            return retry(self.State(state.tries + 1))
        return Abort(result.error_class, result.detail)

    def converge(self, state: State, ctx: Context) -> ConvergeResult:
        """Say which instance it is."""
        del ctx
        begun = state.begun
        assert begun is not None, "it converges when it has an answer"
        outcome, summary = "started", f"instance {begun.instance_id} started"
        if begun.is_skipped:
            outcome, summary = SKIPPED, f"skipped: instance {begun.instance_id} is not over"
        said = msgspec.to_builtins(StartOutcome(primary=outcome, instance_id=begun.instance_id))
        return ConvergeResult(classification=said, confidence=1.0, summary=summary)


def starter_id(workflow: str) -> str:
    """Return the id of the actor that begins instances of `workflow`."""
    return PREFIX + workflow


def fallback_starter(workflow: str) -> Actor:
    """Return who has the place of the actor that begins instances of `workflow`, and begins none.

    So those that have begun go on while nothing begins.

    Raises:
        DeclarationError: no workflow can have this name.
    """
    return Actor(starter_id(workflow), domain="workflows", max_concurrent_episodes=STARTS_MAX)


def workflow_of(actor_id: str) -> str | None:
    """Return the workflow that an actor begins instances of, if its id says so."""
    return actor_id.removeprefix(PREFIX) if actor_id.startswith(PREFIX) else None


def problem_of_id(actor: Actor) -> str | None:
    """Return why no actor of an app may have the id of `actor`, or None.

    Ids make names of queues, and of actors that begin workflows: none of these may meet.
    """
    if actor.id.startswith("-"):
        return "begins with '-', as the engine's own queues do"
    begins = actor.expectations.get(START_EXPECTATION)
    is_starter = begins is not None and isinstance(begins.strategy, StartWorkflow)
    if actor.id.startswith(PREFIX) and not is_starter:
        return f"begins with {PREFIX!r}, as the actors do that begin workflows"
    return None


def starters_of(workflows: Mapping[str, Workflow], actors: Mapping[str, Actor]) -> list[Actor]:
    """Return the actors that begin `workflows`, beside the `actors` of an app.

    Raises:
        BadWorkflow: a name is too long, an actor has the id, or what begins it cannot.
    """
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
