"""What a node does for its actors. Pure."""

from __future__ import annotations

from enum import StrEnum


class NodeMode(StrEnum):
    """What a node does for an actor."""

    FULL = "full"
    TRIGGER_ONLY = "trigger_only"
    DISABLED = "disabled"
