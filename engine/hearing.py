"""Whether any node that is up can rule on what is said to an episode, as far as nodes say. Pure.

Whoever answers an episode has a node write that down, and it takes one that can have the episode
as it was opened: with its actor, at its revision, and with its expectation. Where there is none,
what was said stays in the actor's queue. It is never lost, but nodes that take it and can do
nothing with it give up in the end: then it is a dead letter, which a person can have put again.

What nodes say of themselves does not tell everything: whether one of another revision can have this
one, too, it finds out when it tries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Final

import msgspec

from engine.episode import Episode
from engine.nodes import ActorInfo, NodeInfo
from engine.status import ENDED
from engine.workflows.starter import starter_id
from streams.events import EpisodeOpened
from streams.events.definitions import DefinitionKind

NODES_SHOWN_MAX: Final = 5
"""Most nodes that are told of in one line."""

UNTIL_THEN: Final = "until then, and is ruled on then"
FOR_AN_HOUR: Final = "for about an hour, then it is a dead letter to requeue"
"""How long a queue keeps what nobody can rule on. The hour is how long nodes try in vain before
they give up: `OBSTACLE_S` and `OBSTACLE_DELIVERIES_MAX` of `engine.runtime.docket`."""

LACKS: Final = "it does not have it"
IDLES: Final = "it runs nothing of it now"
NOBODY: Final = "none is up at all"


class Unheard(msgspec.Struct, frozen=True, kw_only=True):
    """Why nobody rules on what is said to an episode, or to an instance of a workflow."""

    why: str
    """In words, with the nodes that are up and what they say of it."""
    is_certain: bool
    """Whether no node that is up can; otherwise none of them has said that it can."""
    is_tried: bool
    """Whether some of them take it nevertheless, and give up in about an hour if they cannot."""

    def __str__(self) -> str:
        """Return all of it in one line, what to do, and what becomes of what was said."""
        kept = FOR_AN_HOUR if self.is_tried else UNTIL_THEN
        return f"{self.why}; start one that does: what was asked for stays in the queue {kept}"


class _Hears(Enum):
    """What a node can do about what is said."""

    YES = auto()
    PERHAPS = auto()
    """It finds out when it tries."""
    NO = auto()
    """It takes what is said, and hands it back."""
    NOTHING = auto()
    """It does not even take it."""


class _Ear(msgspec.Struct, frozen=True):
    """One node, and what it can do about what is said."""

    node: str
    hears: _Hears
    why: str = ""
    """Why it cannot; empty: it can."""


def unheard(
    nodes: Iterable[NodeInfo], actor: str, episode: Episode | None = None
) -> Unheard | None:
    """Return why no node rules on what is said to an episode; None: one does.

    Args:
        nodes: those that are up.
        actor: whose episode it is.
        episode: as its journal stands; None: whoever has the actor can, since the episode is only
            to end.
    """
    # Of what has ended only outputs are left, which need neither its revision nor its expectation.
    is_open = episode is not None and episode.status not in ENDED
    opened = episode.opened if episode is not None and is_open else None
    return _told(_what(actor, opened), [_ear(node, actor, opened) for node in nodes])


def instance_unheard(
    nodes: Iterable[NodeInfo], workflow: str, *, is_defined: bool
) -> Unheard | None:
    """Return why no node rules on what is said to an instance of a workflow; None: one does.

    Args:
        nodes: those that are up.
        workflow: its name.
        is_defined: whether it is defined as data, also if it is disabled: then any node may see to
            what is open of it.
    """
    ears = [_ear_of_workflow(node, workflow, is_defined=is_defined) for node in nodes]
    return _told(f"workflow {workflow!r}", ears)


def _told(what: str, ears: Sequence[_Ear]) -> Unheard | None:
    heard = {ear.hears for ear in ears}
    if _Hears.YES in heard:
        return None
    is_certain = _Hears.PERHAPS not in heard
    runs = "runs" if is_certain else "is sure to run"
    return Unheard(
        why=f"no node that is up {runs} {what} ({_reasons(ears) if ears else NOBODY})",
        is_certain=is_certain,
        is_tried=bool(heard - {_Hears.NOTHING}),
    )


def _what(actor: str, opened: EpisodeOpened | None) -> str:
    if opened is None:
        return f"actor {actor!r}"
    if opened.revision:
        return f"revision {opened.revision} of actor {actor!r}"
    return f"actor {actor!r} with expectation {opened.expectation_id!r}"


def _reasons(ears: Sequence[_Ear]) -> str:
    """Return which node says what, with those together that say the same."""
    said: defaultdict[str, list[str]] = defaultdict(list)
    for ear in ears[:NODES_SHOWN_MAX]:
        said[ear.why].append(ear.node)
    told = [f"{', '.join(names)}: {why}" for why, names in said.items()]
    more = len(ears) - NODES_SHOWN_MAX
    return "; ".join([*told, f"and {more:,} more"] if more > 0 else told)


def _ear(node: NodeInfo, actor: str, opened: EpisodeOpened | None) -> _Ear:
    info = node.actors.get(actor)
    if info is not None:
        return _ear_of_runner(node.name, info, opened)
    if actor in node.closed:
        return _ear_of_stand_in(node, actor, opened)
    why = node.problems.get(_named(DefinitionKind.AGENT, actor), LACKS)
    return _Ear(node.name, _Hears.NOTHING, why)


def _ear_of_runner(node: str, info: ActorInfo, opened: EpisodeOpened | None) -> _Ear:
    if not info.runs:
        return _Ear(node, _Hears.NOTHING, IDLES)
    if opened is None:
        return _Ear(node, _Hears.YES)
    if opened.revision not in (0, info.revision):
        has = f"it has revision {info.revision}" if info.revision else "it has it in code"
        return _Ear(node, _Hears.PERHAPS, has)
    # A node that has much to say of itself leaves the expectations out.
    if info.expectations and opened.expectation_id not in info.expectations:
        return _Ear(node, _Hears.NO, f"there it has no expectation {opened.expectation_id!r}")
    return _Ear(node, _Hears.YES)


def _ear_of_stand_in(node: NodeInfo, actor: str, opened: EpisodeOpened | None) -> _Ear:
    """Return what a node can do that has only that go on which is open of an actor."""
    if opened is None:
        return _Ear(node.name, _Hears.YES)
    if not opened.revision:
        return _Ear(node.name, _Hears.NO, "its code has it no more, as when this was opened")
    key = _named(DefinitionKind.AGENT, actor)
    problem, about = node.problems.get(key, ""), node.problems_at.get(key)
    if problem and about == opened.revision:
        return _Ear(node.name, _Hears.NO, problem)
    if problem:
        return _Ear(node.name, _Hears.PERHAPS, f"revision {about}: {problem}" if about else problem)
    if actor in node.understudies:
        return _Ear(node.name, _Hears.PERHAPS, "it is disabled, and could not run there")
    return _Ear(node.name, _Hears.PERHAPS, "it is disabled")


def _ear_of_workflow(node: NodeInfo, workflow: str, *, is_defined: bool) -> _Ear:
    info = node.actors.get(starter_id(workflow))
    if info is not None:
        return _ear_of_runner(node.name, info, None)
    if not is_defined:
        return _Ear(node.name, _Hears.NOTHING, LACKS)
    why = node.problems.get(_named(DefinitionKind.WORKFLOW, workflow), LACKS)
    return _Ear(node.name, _Hears.PERHAPS, why)


def _named(kind: DefinitionKind, id_: str) -> str:
    """Return what a node calls a definition, where it says why it cannot run it."""
    return f"{kind.value}.{id_}"
