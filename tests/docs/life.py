"""Draws the lives of an episode and of an attempt at one from their tables."""

from __future__ import annotations

from engine.episodes.attempt import ATTEMPT_TRANSITIONS, AttemptState
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


def diagram_of_attempts() -> str:
    """Return the states of an attempt, and what may follow each, as a Mermaid diagram."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {AttemptState.NEW.value}"]
    for state in AttemptState:
        following = ATTEMPT_TRANSITIONS.get(state, frozenset())
        lines += [
            f"    {state.value} --> {then.value}" for then in AttemptState if then in following
        ]
        lines += [] if following else [f"    {state.value} --> [*]"]
    return "\n".join([*lines, "```"])
