"""How to go on from a journal: where to start, and whether a replay is still the same. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from engine.actions import Step, ToolCall
from engine.errors import NondeterministicReplay
from streams.events import CheckpointSaved, StepAnnounced, StepKind, StepRecorded
from streams.log import Recorded


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay needs: the newest kept state, and the steps to fold into it."""

    checkpoint: CheckpointSaved | None
    """None: nothing was kept yet, so nothing was recorded either: begin afresh."""
    steps: tuple[StepRecorded, ...]
    """Those after the checkpoint, in order."""
    tokens_before: int
    """Tokens used up to the checkpoint."""


def tail(records: Iterable[Recorded]) -> Tail:
    """Return the tail of an episode's `records`, oldest first."""
    checkpoint, tokens_before = None, 0
    steps: list[StepRecorded] = []
    for record in records:
        for event in record.commit.events:
            if isinstance(event, StepRecorded):
                steps.append(event)
            elif isinstance(event, CheckpointSaved):
                checkpoint = event
                tokens_before += sum(step.cost_tokens for step in steps)
                steps = []
    return Tail(checkpoint=checkpoint, steps=tuple(steps), tokens_before=tokens_before)


def check_same(recorded: StepRecorded | StepAnnounced, *, asked: str, action: Step) -> None:
    """Check that a replay asks for what the journal holds.

    Args:
        recorded: the step on the journal.
        asked: the fingerprint of what the strategy asks for now.
        action: what it asks for now, for the message.

    Raises:
        NondeterministicReplay: it asks for something else.
    """
    if recorded.fingerprint == asked:
        return
    before = f"{getattr(recorded, 'kind', 'tool_call')} {recorded.tool_name}".strip()
    raise NondeterministicReplay(
        f"step {recorded.step_no} was {before} ({recorded.fingerprint[:12]}…);"
        f" the replay asks for {_kind(action)} ({asked[:12]}…)"
    )


def _kind(action: Step) -> str:
    """Return what `action` is, without its values: some of them are to be stored nowhere."""
    if isinstance(action, ToolCall):
        return f"{StepKind.TOOL_CALL} {action.capability}.{action.action}"
    return str(action.__struct_config__.tag)
