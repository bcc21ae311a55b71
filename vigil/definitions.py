"""Definitions: actors and workflows as data, in TOML, YAML or JSON.

definition = agent_of(read(text, format_of("orders.toml")))
actor = to_actor(definition, app)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vigil.public import public

if TYPE_CHECKING:
    from engine.definitions import (
        agent_of,
        canonical,
        difference,
        format_of,
        read,
        to_actor,
        to_workflow,
        workflow_of,
    )
    from streams.json import unraw

__all__ = [
    "agent_of",
    "canonical",
    "difference",
    "format_of",
    "read",
    "to_actor",
    "to_workflow",
    "unraw",
    "workflow_of",
]

_HOMES: Final = {
    "engine.definitions": (
        "agent_of canonical difference format_of read to_actor to_workflow workflow_of"
    ),
    "streams.json": "unraw",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = public(__name__, _HOMES)
