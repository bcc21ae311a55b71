"""What `from vigil import …` has, by theme, each with what it is in one sentence."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Final

import vigil

THEMES: Final[Mapping[str, tuple[str, ...]]] = {
    "Actors and what starts them": (
        "engine.app.app", "engine.app.actor", "engine.app.triggers", "engine.app.conditions",
        "engine.app.dedupe", "engine.app.checks", "streams.model.service_levels",
    ),
    "Functions and tools": (
        "engine.functions.context", "engine.app.function_tool", "engine.app.tools",
        "streams.model.children",
    ),
    "Strategies as classes": (
        "engine.app.strategy", "engine.app.actions", "engine.app.context", "streams.model.events",
    ),
    "Findings": ("engine.app.findings", "streams.model.findings", "engine.findings.store"),
    "Outputs": ("engine.app.outputs", "streams.model.outputs"),
    "Workflows": ("engine.app.workflow", "engine.workflows.requests"),
    "What strategies are handed": ("streams.model.triggers", "streams.json"),
    "A client for programs": ("vigil.client.client", "vigil.client.sync", "vigil.client.events",
        "vigil.client.page",
    ),
    "Requests of programs that have the ports": (
        "engine.episodes.fire", "engine.episodes.fork", "engine.episodes.cancel",
        "engine.operations.census", "engine.operations.decide_request",
        "engine.operations.reconcile",
        "engine.operations.settle", "engine.operations.why_unheard", "engine.outputs.requests",
        "engine.waits.requests",
    ),
    "Nodes and their log": (
        "engine.node.node", "streams.jetstream", "streams.ports.all", "streams.layout",
        "streams.subjects", "streams.ports.domain_events",
    ),
    "Errors": ("engine.errors", "streams.errors", "vigil.errors"),
}  # fmt: skip
"""Theme → the modules whose names belong to it."""


def public_names() -> str:
    """Return a table of the names of each theme; a name in none is an error."""
    homes = dict(vigil._HOMES)
    parts = [_part(theme, [homes.pop(each) for each in of]) for theme, of in THEMES.items()]
    assert not homes, f"no theme has the names of {', '.join(homes)}"
    return "\n\n".join(parts)


def _part(theme: str, homes: list[str]) -> str:
    names = sorted((name for home in homes for name in home.split()), key=str.lower)
    rows = (f"| `{name}` | {words} |" for name, words in _described(names))
    return "\n".join([f"### {theme}", "", "| name | is |", "| --- | --- |", *rows])


def _described(names: list[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        found = getattr(vigil, name)
        has_words = inspect.isclass(found) or inspect.isroutine(found)
        words = inspect.getdoc(found) if has_words else None
        first = (words or "A type, for annotations.").split("\n\n")[0]
        yield name, " ".join(first.split()).replace("|", r"\|").replace("<", r"\<")
