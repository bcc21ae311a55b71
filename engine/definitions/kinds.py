"""Which kind of definition a file holds. Pure."""

from __future__ import annotations

from typing import Final

from engine.errors import BadDefinition
from streams.events import DefinitionKind
from streams.json import JsonObject

_FIELDS: Final = {
    DefinitionKind.AGENT: "expectations",
    DefinitionKind.WORKFLOW: "steps",
}
"""What each kind has, and no other."""


def kind_of(data: JsonObject) -> DefinitionKind:
    """Return what `data` defines, by the one field that tells.

    Raises:
        BadDefinition: it has none of them, or more than one.
    """
    said = [kind for kind, field in _FIELDS.items() if field in data]
    if len(said) != 1:
        raise BadDefinition("", "write expectations for an actor, or steps for a workflow")
    return said[0]
