"""What a new revision of a definition has no more of what the one before it had. Pure.

    says_hello                       an expectation that is gone
    says_hello every 3600s           a schedule of one that stays

What was armed, kept or asked for it stands until somebody reconciles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec

from engine.app.triggers import Cron, Every, spec_of
from engine.app.workflow_starter import START_EXPECTATION
from engine.definitions import agent_of, workflow_of
from engine.definitions.sources import SourceDefinition
from engine.errors import BadDefinition
from streams.json import NOTHING, unraw
from streams.model.events.definitions import DefinitionKind

Sources: TypeAlias = Mapping[str, Iterable[SourceDefinition]]
"""Expectation → what fires it."""


def gone(kind: DefinitionKind, before: msgspec.Raw, after: msgspec.Raw) -> list[str]:
    """Return the expectations and the schedules that are gone, by name.

    Args:
        kind: of what.
        before: what was applied last, in its canonical form; `NOTHING`: nothing ever was.
        after: what is applied now.

    Returns:
        None at all, too, if this version cannot read one of them.
    """
    try:
        had, has = _sources(kind, before), _sources(kind, after)
    except BadDefinition:
        return []
    return [text for name in sorted(had) for text in _gone_of(name, had, has)]


def _gone_of(name: str, had: Sources, has: Sources) -> Iterator[str]:
    if name not in has:
        yield name
        return
    for spec in sorted(_schedules(had[name]) - _schedules(has[name])):
        yield f"{name} {spec}"


def _sources(kind: DefinitionKind, body: msgspec.Raw) -> Sources:
    if body == NOTHING:
        return {}
    match kind:
        case DefinitionKind.AGENT:
            return {name: each.on for name, each in agent_of(unraw(body)).expectations.items()}
        case DefinitionKind.WORKFLOW:
            return {START_EXPECTATION: workflow_of(unraw(body)).on}


def _schedules(sources: Iterable[SourceDefinition]) -> set[str]:
    made = (each.made() for each in sources)
    return {spec_of(each) for each in made if isinstance(each, Every | Cron)}
