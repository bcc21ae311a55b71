"""Draws an episode's life from its table."""

from __future__ import annotations

from engine.episodes.episode import ENDED, TRANSITIONS, Status
from streams.model.events import EndStatus


def diagram() -> str:
    """Return the states and what leads from one to another, as a Mermaid diagram."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> unopened"]
    for status, events in TRANSITIONS.items():
        for event, then in events.items():
            ends = [Status(end.value) for end in EndStatus]
            lines += [
                f"    {status} --> {to}: {event.__name__}" for to in ([then] if then else ends)
            ]
    lines += [f"    {status} --> [*]" for status in TRANSITIONS if status in ENDED]
    return "\n".join([*lines, "```"])
