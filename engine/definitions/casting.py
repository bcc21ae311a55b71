"""Which actors and workflows a node is to have: those of its code, and those defined. Pure.

An edition comes to the same on its own, whatever else there is, so it is made once. Whether a
workflow can run depends on all others: what its steps name must be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from engine.actor import Actor
from engine.app import App
from engine.definitions.actors import to_actor
from engine.definitions.agent import agent_of
from engine.definitions.workflows import to_workflow, workflow_of
from engine.errors import BadDefinition, BadWorkflow
from engine.workflows.binding import checked_workflows
from engine.workflows.starter import PREFIX, starter_id, starters_of
from engine.workflows.workflow import Workflow
from streams.definitions import Edition
from streams.events import DefinitionKind
from streams.json import UNDECODABLE, JsonObject

IN_CODE: Final = "the app of this node declares it in code, which counts here; remove one of them"

_bodies: Final = msgspec.json.Decoder(JsonObject)


@dataclass(frozen=True, kw_only=True)
class Made:
    """What one edition comes to with the app of a node."""

    name: str
    """Kind and id, such as `agent.disk_watch`."""
    actor: Actor | None = None
    """The actor that is defined, or the one that begins the workflow that is; None: neither is."""
    workflow: Workflow | None = None
    problem: str = ""
    """Why this node cannot run it."""


@dataclass(frozen=True, kw_only=True)
class Casting:
    """All that a node is to have."""

    actors: Mapping[str, Actor]
    """By id, with those that begin workflows."""
    workflows: Mapping[str, Workflow]
    problems: Mapping[str, str] = field(default_factory=dict)
    """Kind and id of a definition → why it is not among them."""


def name_of(edition: Edition) -> str:
    """Return kind and id, such as `agent.disk_watch`."""
    return f"{edition.kind.value}.{edition.id}"


def make(edition: Edition, app: App) -> Made:
    """Return what `edition` comes to; of one that is disabled, nothing.

    It calls the template that the edition names, so it may raise whatever that raises.
    """
    name = name_of(edition)
    if not edition.holds:
        return Made(name=name)
    try:
        data = _bodies.decode(edition.body)
        if edition.kind is DefinitionKind.AGENT:
            return Made(name=name, actor=_actor(edition, data, app))
        workflow = to_workflow(workflow_of(data), revision=edition.revision)
        _check_name(workflow.name, edition)
        (starter,) = starters_of({workflow.name: workflow}, {})
    except UNDECODABLE as error:  # A definition that cannot work is such a `ValueError`, too.
        return Made(name=name, problem=str(error))
    return Made(name=name, actor=starter, workflow=workflow)


def in_code(app: App) -> Casting:
    """Return what a node of `app` has without any definition."""
    return Casting(actors=app.actors, workflows=app.workflows)


def cast(app: App, made: Iterable[Made], *, stack: str | None = None) -> Casting:
    """Return what a node of `app` is to have with all that is defined, as far as it can.

    What the app declares in code goes before a definition of the same id.

    Args:
        app: with the actors that it declares in code for this stack, and what definitions name.
        made: what is defined.
        stack: the name of the node's; None: whatever the stack is, as if all were for it.
    """
    problems: dict[str, str] = {}
    actors, begins = dict(app.actors), {}
    for each in made:
        problem = each.problem or _clash(each, app, stack)
        if problem:
            problems[each.name] = problem
        elif each.workflow is not None:
            begins[each.workflow.name] = each
        elif each.actor is not None:
            actors[each.actor.id] = each.actor
    workflows = _workable(app, actors, begins, problems)
    starters = {starter_id(name): begins[name].actor for name in begins if name in workflows}
    actors.update((id_, starter) for id_, starter in starters.items() if starter is not None)
    return Casting(actors=actors, workflows=workflows, problems=problems)


def _actor(edition: Edition, data: JsonObject, app: App) -> Actor:
    actor = to_actor(agent_of(data), app, revision=edition.revision)
    _check_name(actor.id, edition)
    return actor


def _check_name(said: str, edition: Edition) -> None:
    if said != edition.id:
        raise BadDefinition("", f"it was applied as {edition.id!r}, and calls itself {said!r}")


def _clash(made: Made, app: App, stack: str | None) -> str:
    """Return why a node of `app` is not to have what was `made`; empty: it is."""
    if made.actor is not None and made.actor.id in app.actors:
        return IN_CODE
    if stack is not None and made.actor is not None and not made.actor.runs_on(stack):
        return f"it is for {', '.join(made.actor.stacks)}, and this stack is {stack}"
    return ""


def _workable(
    app: App, actors: Mapping[str, Actor], begins: Mapping[str, Made], problems: dict[str, str]
) -> Mapping[str, Workflow]:
    """Return the workflows whose steps can run, and say of the others what they lack.

    Each round leaves one out that cannot, and with it perhaps what others need.
    """
    named = {id_: each for id_, each in actors.items() if not _begins_workflow(id_, app)}
    defined = {name: each.workflow for name, each in begins.items() if each.workflow is not None}
    for _ in range(len(defined)):
        try:
            return checked_workflows([*app.workflows.values(), *defined.values()], named)
        except BadWorkflow as error:
            # What is not about one of them is about how many there are.
            left_out = [error.workflow] if error.workflow in defined else list(defined)
            for name in left_out:
                del defined[name]
                problems[begins[name].name] = str(error)
    return app.workflows


def _begins_workflow(actor_id: str, app: App) -> bool:
    return actor_id.startswith(PREFIX) and actor_id.removeprefix(PREFIX) in app.workflows
