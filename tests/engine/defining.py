"""A stage for what is defined as data: an app that has what definitions name, and how to apply."""

from __future__ import annotations

import asyncio
from typing import Final

from engine.app.actions import tool_call
from engine.app.app import App
from engine.cluster.members import live_nodes
from engine.definitions.store import apply_definition, disable_definition
from streams.json import raw
from streams.memory import MemoryPorts
from streams.model.events import DefinitionKind, EpisodeOpened, EpisodeStarted
from tests.engine.stage import HAPPENED, LOOK_S, WAIT_S, Counter, Life, Scripted, app_of, opening

AGENT, WORKFLOW = DefinitionKind.AGENT, DefinitionKind.WORKFLOW

WORKER: Final = "agent.worker"
"""What problems call the actor `worker`."""


_IN_CODE: Final = app_of(Scripted())
"""The same actor in code, for the ids of its episodes: they do not depend on where it is from."""


def playing(config):
    """Make a strategy that has each of the actions in `config` done, in order."""
    return Scripted(*(tool_call("tool", each) for each in config["actions"]))


def failing(config):
    return config["shares"] / 0


def app_with(tool: Counter | None = None, *actors, **more) -> App:
    """Return an app of which definitions may use a tool, a template that plays, and one that fails.

    Args:
        tool: what `worker` calls by the name of `tool`; one that answers at once by default.
        actors: those in code.
        more: as for `App`.
    """
    templates = {"playing": playing, "failing": failing, **more.pop("templates", {})}
    tools = {"tool": tool or Counter()}
    return App(actors=actors, tools=tools, templates=templates, **more)


def agent(*actions: str, id_: str = "worker", on=HAPPENED, most=5, template="playing", **more):
    """Return the definition of an actor whose expectation `thing` has `actions` done."""
    config = {"actions": list(actions), "shares": 1}
    thing = {"strategy": {"template": template, "config": config}, "on": {"event": on}}
    return {
        "id": id_,
        "max_concurrent_episodes": most,
        "expectations": {"thing": thing, **more.pop("expectations", {})},
        **more,
    }


def flow(*steps: str, name="w", expectation="thing", **more):
    """Return the definition of a workflow whose steps run one after the other."""
    said = {
        step: {"actor": "worker", "expectation": expectation, "depends_on": [*steps[:at][-1:]]}
        for at, step in enumerate(steps)
    }
    return {"name": name, "steps": said, **more}


async def apply(ports: MemoryPorts, definition) -> int:
    """Apply a definition as it would be from a file, and return its revision."""
    kind, id_ = _named(definition)
    change = await apply_definition(ports, kind, id_, raw(definition), by="ada")
    return change.registered.revision


async def disable(ports: MemoryPorts, id_: str, kind: DefinitionKind = AGENT) -> None:
    await disable_definition(ports, kind, id_, by="ada")


async def says(ports: MemoryPorts, condition, node: str = "n1"):
    """Wait until what a node says of itself fits `condition`, and return it."""
    async with asyncio.timeout(WAIT_S):
        while True:
            for info in await live_nodes(ports.gates):
                if info.name == node and condition(info):
                    return info
            await asyncio.sleep(LOOK_S)


def runs(revision: int, actor: str = "worker"):
    """Return a condition: a node runs an actor as it is defined by then, and takes its work."""

    def fits(info) -> bool:
        found = info.actors.get(actor)
        return found is not None and found.revision == revision and found.runs

    return fits


async def happen(ports: MemoryPorts, id_: str = "x1") -> str:
    """Publish an event, and return the episode that it opens once `worker` hears of it."""
    await ports.domain_events.publish(HAPPENED, {}, id=id_)
    return opening(_IN_CODE, id_=id_).episode_id


def revision_of(life: Life) -> int:
    """Return the revision that an episode was opened under."""
    return life.of(EpisodeOpened)[0].revision


def nodes_of(life: Life) -> list[str]:
    """Return the nodes that have had an episode, in order."""
    return [each.node for each in life.of(EpisodeStarted)]


def _named(definition) -> tuple[DefinitionKind, str]:
    if "steps" in definition:
        return WORKFLOW, definition["name"]
    return AGENT, definition["id"]
