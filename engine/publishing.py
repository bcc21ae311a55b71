"""Publishing from a strategy: domain events as a step, under ids that stay the same. Pure.

The tool that does it is supplied by the node: see `engine.runtime.publisher`.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from engine.actions import ToolCall, tool_call
from streams.json import JsonObject

ENGINE: Final = "vigil"
"""The capability of the tools that the engine itself supplies; no app may register it."""

WORKFLOWS: Final = "vigil_workflows"
"""The capability of the tool that begins instances of workflows; no app may register it either."""

PUBLISH: Final = "publish"
"""The action that publishes."""

_MARK_BYTES: Final = 16
"""Of the hash of what an event is about: so many that no two are ever met with the same."""


class Announcement(msgspec.Struct, frozen=True):
    """One domain event that is to be published."""

    id: str
    payload: JsonObject


def publish(name: str, events: Sequence[Announcement], *, attempt: int = 1) -> ToolCall:
    """Return the action that publishes `events`, all called `name`.

    It may be done again: an event with the same id is the same event, to the stream for two
    minutes and to actors for ever.

    Args:
        name: a dotted event name.
        events: the events.
        attempt: tells a second try from a step that goes in circles.
    """
    told = [{"id": event.id, "payload": event.payload} for event in events]
    return tool_call(ENGINE, PUBLISH, {"name": name, "events": told, "attempt": attempt})


def event_id(episode_id: str, about: str) -> str:
    """Return the id of the event that an episode publishes about something, whenever it does."""
    mark = blake2b(about.encode(errors="surrogatepass"), digest_size=_MARK_BYTES).hexdigest()
    return f"{episode_id}.about.{mark}"
