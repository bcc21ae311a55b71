"""What `from vigil import …` has, by theme, and what programs import from: a sentence for each."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Final

import vigil.client
import vigil.errors
import vigil.ports

THEMES: Final[Mapping[str, tuple[str, ...]]] = {
    "Actors and what starts them": (
        "engine.app.app", "engine.app.actor", "engine.app.triggers", "engine.app.conditions",
        "engine.app.dedupe", "engine.app.checks", "streams.model.service_levels",
        "streams.model.retention",
    ),
    "Functions and tools": (
        "engine.functions.context", "engine.app.function_tool", "engine.app.tools",
        "engine.agents.model", "streams.model.children",
    ),
    "Strategies as classes": (
        "engine.app.strategy", "engine.app.actions", "engine.app.context", "streams.model.events",
    ),
    "Findings": ("engine.app.findings", "streams.model.findings"),
    "Outputs": ("engine.app.outputs", "streams.model.outputs"),
    "Workflows": ("engine.app.workflow",),
    "Money": ("streams.model.money",),
    "What strategies are handed": ("streams.model.triggers", "streams.json"),
    "Errors": ("engine.errors", "streams.errors"),
}  # fmt: skip
"""Theme → the modules whose names belong to it."""


def public_names() -> str:
    """Return a table of the names of each theme, and of each module for programs."""
    homes = dict(vigil._HOMES)
    parts = [
        _part(theme, vigil, [name for each in of for name in homes.pop(each).split()])
        for theme, of in THEMES.items()
    ]
    assert not homes, f"no theme has the names of {', '.join(homes)}"
    errors = [
        name
        for name, each in vars(vigil.errors).items()
        if isinstance(each, type) and issubclass(each, vigil.errors.VigilError)
    ]
    return "\n\n".join([
        *parts,
        _part("`vigil.client`", vigil.client, vigil.client.__all__),
        _part("`vigil.errors`", vigil.errors, errors),
        _part("`vigil.ports`", vigil.ports, vigil.ports.__all__),
    ])  # fmt: skip


def _part(theme: str, module: ModuleType, names: Sequence[str]) -> str:
    said = _described(module, sorted(names, key=str.lower))
    rows = (f"| `{name}` | {words} |" for name, words in said)
    return "\n".join([f"### {theme}", "", "| name | is |", "| --- | --- |", *rows])


def _described(module: ModuleType, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        found = getattr(module, name)
        has_words = inspect.isclass(found) or inspect.isroutine(found)
        words = inspect.getdoc(found) if has_words else None
        first = (words or "A type, for annotations.").split("\n\n")[0]
        yield name, " ".join(first.split()).replace("|", r"\|").replace("<", r"\<")
