"""What workflows cannot do without: the actors and workflows that their steps name. Pure.

Only workflows that are defined as data are looked at. One in code names only what its app has in
code, too, and no definition may have an id of those.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from engine.app.workflow import cycle
from engine.cluster.nodes import NodeInfo, known
from engine.definitions import agent_of, workflow_of
from engine.definitions.steps import StepDefinition
from engine.errors import BadDefinition
from streams.json import unraw
from streams.model.definitions import ID_KINDS, Edition
from streams.model.events.definitions import DefinitionKind
from vigil.editions import defined_by

Name: TypeAlias = tuple[DefinitionKind, str]
"""An actor or a workflow."""

There: TypeAlias = Mapping[Name, Collection[str] | None]
"""What there is, with its expectations; None: nobody says which."""

_NO_EXPECTATIONS: Final[Collection[str]] = ()


class Need(msgspec.Struct, frozen=True):
    """What one step of a workflow names."""

    workflow: str
    step: str
    named: Name
    expectation: str = ""
    """Of the actor; a workflow has none."""


def needs(editions: Iterable[Edition]) -> Iterator[Need]:
    """Yield what the steps of the workflows among `editions` name, as far as they hold."""
    for edition in editions:
        if edition.holds and edition.kind is DefinitionKind.WORKFLOW:
            yield from _needs_of(edition)


def needed_by(
    editions: Iterable[Edition], named: Name, *, only: Collection[str] | None = None
) -> dict[str, list[str]]:
    """Return workflow → its steps that name an actor or a workflow.

    Args:
        editions: all that is defined.
        named: what the steps name.
        only: these expectations of it; None: any.
    """
    found: defaultdict[str, list[str]] = defaultdict(list)
    for each in needs(editions):
        if each.named == named and (only is None or each.expectation in only):
            steps = found[each.workflow]
            steps += [each.step] if each.step not in steps else []
    return dict(found)


def around(editions: Iterable[Edition]) -> str:
    """Return how a workflow among `editions` runs itself, as `a → b → a`; empty: none does."""
    graph: defaultdict[str, list[str]] = defaultdict(list)
    for each in needs(editions):
        kind, id_ = each.named
        if kind is DefinitionKind.WORKFLOW:
            graph[each.workflow].append(id_)
    return cycle(graph)


def lacks(nodes: Collection[NodeInfo], editions: Collection[Edition], workflow: str) -> list[str]:
    """Return what a workflow names that nobody has, in a line for each.

    Args:
        nodes: those that are up. If there are none nobody can say what is in their code.
        editions: all that is defined, or is to be, the workflow too.
        workflow: its name.
    """
    if not nodes:
        return []
    there = _there(nodes, editions)
    lines = [_lack(each, there) for each in needs(editions) if each.workflow == workflow]
    return list(dict.fromkeys(filter(None, lines)))


def _needs_of(edition: Edition) -> Iterator[Need]:
    try:
        steps = workflow_of(unraw(edition.body)).steps
    except BadDefinition:  # A newer version has applied it.
        return
    for name, step in steps.items():
        for named, expectation in _named_in(step):
            yield Need(edition.id, name, named, expectation)


def _named_in(step: StepDefinition) -> Iterator[tuple[Name, str]]:
    if step.workflow:
        yield (DefinitionKind.WORKFLOW, step.workflow), ""
    else:
        yield (DefinitionKind.AGENT, step.actor), step.expectation
    if step.compensate is not None:
        yield (DefinitionKind.AGENT, step.compensate.actor), step.compensate.expectation


def _there(nodes: Collection[NodeInfo], editions: Iterable[Edition]) -> There:
    """Return what there is: what nodes have, and what holds, though no node may run it yet."""
    actors = {actor for node in nodes for actor in node.actors}
    # A node that has much to say of itself leaves the expectations out.
    there: dict[Name, Collection[str] | None] = {
        defined_by(actor): known(nodes, actor) or None for actor in actors
    }
    coded = {
        defined_by(actor) for node in nodes for actor, info in node.actors.items()
        if not info.revision
    }  # fmt: skip
    for each in editions:
        if (each.kind, each.id) in coded:
            continue
        there.pop((each.kind, each.id), None)
        if each.holds:
            there[each.kind, each.id] = _expectations_of(each)
    return there


def _expectations_of(edition: Edition) -> Collection[str] | None:
    if edition.kind is DefinitionKind.WORKFLOW:
        return _NO_EXPECTATIONS
    try:
        return agent_of(unraw(edition.body)).expectations
    except BadDefinition:  # A newer version has applied it.
        return None


def _lack(need: Need, there: There) -> str:
    """Return what is not there of a need, in words; empty: it is."""
    kind, id_ = need.named
    if need.named not in there:
        return f"step {need.step}: there is no {ID_KINDS[kind]} {id_!r}"
    expectations = there[need.named]
    if not need.expectation or expectations is None or need.expectation in expectations:
        return ""
    return f"step {need.step}: {ID_KINDS[kind]} {id_!r} has no expectation {need.expectation!r}"
