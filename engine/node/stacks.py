"""Which of an app's actors and workflows a stack has. Pure.

An actor may name the stacks that it runs on. A workflow is where all actors are that it asks for
episodes, be it by way of the workflows within it: an instance that could never end is not begun.
Everywhere else nodes are as if the app had neither. The app is checked as a whole before that.
"""

from __future__ import annotations

from copy import copy

import msgspec

from engine.app.app import App
from engine.app.workflow import Workflow, ancestors
from engine.app.workflow_starter import starter_id


class Absent(msgspec.Struct, frozen=True, kw_only=True):
    """What of an app a stack does not have, by name and in order."""

    actors: tuple[str, ...]
    """Those that were declared; what begins an absent workflow goes without saying."""
    workflows: tuple[str, ...]


def on_stack(app: App, stack: str) -> App:
    """Return `app` without what is absent from the stack called `stack`."""
    absent = absent_from(app, stack)
    gone = {*absent.actors, *map(starter_id, absent.workflows)}
    made = copy(app)
    object.__setattr__(
        made, "actors", {id_: each for id_, each in app.actors.items() if id_ not in gone}
    )
    object.__setattr__(
        made,
        "workflows",
        {name: each for name, each in app.workflows.items() if name not in absent.workflows},
    )
    return made


def absent_from(app: App, stack: str) -> Absent:
    """Return what the stack called `stack` does not have of `app`."""
    actors = {actor.id for actor in app.actors.values() if not actor.runs_on(stack)}
    lacking = {each.name for each in app.workflows.values() if _asks(each) & actors}
    within = {name: tuple(_inner(each)) for name, each in app.workflows.items()}
    workflows = {name for name in within if {name, *ancestors(within, name)} & lacking}
    return Absent(actors=tuple(sorted(actors)), workflows=tuple(sorted(workflows)))


def _asks(workflow: Workflow) -> set[str]:
    """Return the actors that `workflow` itself asks for episodes."""
    steps = workflow.steps.values()
    undoing = {step.compensate[0] for step in steps if step.compensate is not None}
    return {step.actor for step in steps if step.actor} | undoing


def _inner(workflow: Workflow) -> set[str]:
    """Return the workflows that `workflow` itself runs as steps."""
    return {step.workflow for step in workflow.steps.values() if step.workflow}
