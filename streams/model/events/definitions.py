"""The life of a definition: applied, applied anew, disabled. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from streams.model.struct import Event


class DefinitionKind(StrEnum):
    """What is defined."""

    AGENT = "agent"
    WORKFLOW = "workflow"


class DefinitionApplied(Event, frozen=True, kw_only=True, tag="definition.applied@1"):
    """It is in force from now on, as it stands here."""

    kind: DefinitionKind
    id: str
    """The actor's, or the workflow's."""
    revision: int
    """1 for the first, +1 each time it is applied."""
    body: msgspec.Raw
    """The whole definition, in its canonical form."""
    by: str
    """Who wanted it."""
    reason: str = ""


class DefinitionDisabled(Event, frozen=True, kw_only=True, tag="definition.disabled@1"):
    """It is out of force until it is applied again."""

    kind: DefinitionKind
    id: str
    revision: int
    """The one that was in force."""
    by: str
    reason: str = ""


DefinitionEvent: TypeAlias = DefinitionApplied | DefinitionDisabled
