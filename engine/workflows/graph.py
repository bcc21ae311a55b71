"""The graph of what depends on what: of a workflow's steps, and of workflows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

Graph: TypeAlias = Mapping[str, Sequence[str]]
"""Node → the nodes that it depends on."""


def cycle(graph: Graph) -> str:
    """Return a way in `graph` that leads back to its beginning, as `a → b → a`; empty: none does.

    Each node of it depends on the next one.
    """
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        way: list[str] = error.args[1]
        return " → ".join(reversed(way))
    return ""


def ancestors(graph: Graph, node: str) -> frozenset[str]:
    """Return every node that `node` depends on, by whatever way. `graph` has no cycle."""
    found: set[str] = set()
    left = list(graph[node])
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left.extend(graph[one])
    return frozenset(found)


def depths(graph: Graph) -> Mapping[str, int]:
    """Return how many nodes lie before each one on the longest way to it. There is no cycle."""
    found: dict[str, int] = {}
    for node in TopologicalSorter(graph).static_order():
        found[node] = max((found[each] + 1 for each in graph.get(node, ())), default=0)
    return found
