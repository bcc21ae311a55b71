"""The actors and workflows that a node has: those in code, and those made from definitions. Pure.

`make` depends on one revision alone, so it is done once. `catalog_of` combines them all: a workflow
whose steps name something that is missing cannot start. Such a workflow or actor, or one that is
disabled, is closed: open work continues, nothing starts. A closed actor has no expectations of its
own, since those come with each open episode. What has a problem only on this node is marked as a
fallback: another node may be able to run it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from engine.app.actor import CLUSTER_EPISODES_MAX, Actor
from engine.app.app import App
from engine.app.workflow import Workflow
from engine.app.workflow_plan import (
    Starter,
    checked_workflows,
    problem_of_id,
    starter_id,
    starters_of,
)
from engine.definitions.agent import AgentDefinition, agent_of, to_actor
from engine.definitions.workflow import to_workflow, workflow_of
from engine.errors import BadDefinition, BadWorkflow, DeclarationError
from engine.runtime.catalog import CatalogContents
from streams.json import NOTHING, UNDECODABLE, JsonObject
from streams.model.definitions import RegisteredDefinition
from streams.model.events import DefinitionKind

IN_CODE: Final = "the app of this node declares it in code, which counts here; remove one of them"

_bodies: Final = msgspec.json.Decoder(JsonObject)


def closed_actor(id_: str, body: msgspec.Raw = NOTHING) -> Actor | None:
    """Return the actor, with the limits in `body`, for open episodes; None: its id is invalid."""
    try:
        plain = Actor(id_)
    except DeclarationError:
        return None
    if problem_of_id(plain) is not None:
        return None
    try:
        return _limited(id_, body)
    except UNDECODABLE:  # A definition that cannot work is such a `ValueError`, too.
        return plain


def _limited(id_: str, body: msgspec.Raw) -> Actor:
    agent = agent_of(_bodies.decode(body))
    return Actor(
        id_,
        domain=agent.domain,
        max_concurrent_episodes=agent.max_concurrent_episodes,
        max_concurrent_cluster=_cluster_max(agent),
        overflow=agent.overflow,
        queue_max=agent.queue_max,
        stacks=agent.stacks,
        spending=[each.made() for each in agent.spending],
    )


def _cluster_max(agent: AgentDefinition) -> int | None:
    """Return the limit of an actor, or the highest if only its expectations need a lane."""
    takes_turns = any(each.concurrency_key or each.priority for each in agent.expectations.values())
    own = agent.max_concurrent_cluster
    return CLUSTER_EPISODES_MAX if own is None and takes_turns else own


@dataclass(frozen=True, kw_only=True)
class MadeDefinition:
    """One revision, made with the app of a node."""

    name: str
    """Kind and id, such as `agent.disk_watch`."""
    revision: int = 0
    """0: this version cannot read it."""
    actor: Actor | None = None
    """The defined actor, or the starter of the defined workflow; None: neither."""
    workflow: Workflow | None = None
    fallback: Actor | None = None
    """The actor that continues open episodes while it is closed; None: there is none."""
    problem: str = ""
    """Why this node cannot run it."""
    lack: str = ""
    """Why this node could not run it if it were enabled."""


def name_of(registered: RegisteredDefinition) -> str:
    """Return kind and id, such as `agent.disk_watch`."""
    return f"{registered.kind.value}.{registered.id}"


def unmade(
    name: str, *, problem: str = "", revision: int = 0, body: msgspec.Raw = NOTHING
) -> MadeDefinition:
    """Return the result for a disabled or unusable definition; `body` has its limits."""
    kind, _, id_ = name.partition(".")
    made = MadeDefinition(name=name, revision=revision, problem=problem)
    if kind != DefinitionKind.WORKFLOW:
        return replace(made, fallback=closed_actor(id_, body))
    try:
        return replace(made, fallback=Starter(id_))
    except DeclarationError:  # No workflow can have this name, and none ever had.
        return made


def make(registered: RegisteredDefinition, app: App, *, here: bool = True) -> MadeDefinition:
    """Return the result for a revision. Exceptions of its template are passed on.

    `here`: whether this process is to run it, as for `to_actor`.
    """
    made = unmade(name_of(registered), revision=registered.revision, body=registered.body)
    if not registered.holds:
        return made
    try:
        data = _bodies.decode(registered.body)
        if registered.kind is DefinitionKind.AGENT:
            return replace(made, actor=_actor(registered, data, app, here=here), fallback=None)
        workflow = to_workflow(workflow_of(data), revision=registered.revision)
        _check_name(workflow.name, registered)
        (starter,) = starters_of({workflow.name: workflow}, {}).values()
    except UNDECODABLE as error:  # A definition that cannot work is such a `ValueError`, too.
        return replace(made, problem=str(error))
    return replace(made, actor=starter, workflow=workflow)


def catalog_of(
    app: App, made: Iterable[MadeDefinition], *, stack: str | None = None
) -> CatalogContents:
    """Return the actors and workflows of a node; those of `app` win over those `made`."""
    problems: dict[str, str] = {}
    actors, begins, made = dict(app.actors), {}, list(made)
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
    closed = _closed(made, actors, stack)
    return CatalogContents(
        actors=actors,
        workflows=workflows,
        closed=closed,
        fallbacks=frozenset(
            each.fallback.id
            for each in made
            if each.fallback is not None
            and each.fallback.id in closed
            and (each.lack or each.name in problems)
        ),
        problems=problems,
        problems_at={
            each.name: each.revision for each in made if each.revision and each.name in problems
        },
    )


def _actor(registered: RegisteredDefinition, data: JsonObject, app: App, *, here: bool) -> Actor:
    actor = to_actor(agent_of(data), app, revision=registered.revision, here=here)
    _check_name(actor.id, registered)
    return actor


def _closed(
    made: Iterable[MadeDefinition], actors: Mapping[str, Actor], stack: str | None
) -> Mapping[str, Actor]:
    fallbacks = (each.fallback for each in made)
    return {
        each.id: each
        for each in fallbacks
        if each is not None and each.id not in actors and (stack is None or each.runs_on(stack))
    }


def _check_name(said: str, registered: RegisteredDefinition) -> None:
    if said != registered.id:
        raise BadDefinition("", f"it was applied as {registered.id!r}, and calls itself {said!r}")


def _clash(made: MadeDefinition, app: App, stack: str | None) -> str:
    """Return why a node of `app` must not have what was `made`; empty: it may."""
    if made.actor is not None and made.actor.id in app.actors:  # guard: code-goes-before-defined
        return IN_CODE
    if stack is not None and made.actor is not None and not made.actor.runs_on(stack):
        return f"it is for {', '.join(made.actor.stacks)}, and this stack is {stack}"
    return ""


def _workable(
    app: App,
    actors: Mapping[str, Actor],
    begins: Mapping[str, MadeDefinition],
    problems: dict[str, str],
) -> Mapping[str, Workflow]:
    """Return the workflows whose steps can run. Each round removes one that others may need."""
    named = {id_: each for id_, each in actors.items() if not isinstance(each, Starter)}
    defined = {name: each.workflow for name, each in begins.items() if each.workflow is not None}
    for _ in range(len(defined)):
        try:
            return checked_workflows([*app.workflows.values(), *defined.values()], named)
        except BadWorkflow as error:
            # An error that names none of them is about how many there are.
            left_out = [error.workflow] if error.workflow in defined else list(defined)
            for name in left_out:
                del defined[name]
                problems[begins[name].name] = str(error)
    return app.workflows


def in_code(app: App) -> CatalogContents:
    """Return what a node of `app` has without any definition."""
    return CatalogContents(actors=app.actors, workflows=app.workflows)
