"""What of a journal people hold. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.app.workflow_plan import starter_id
from engine.retention.rules import RetentionHolds
from streams.layout import Kind
from streams.model.events import EpisodeOpened, LogEvent, OutputProposed, WorkflowStarted
from streams.ports.log import Recorded
from streams.subjects import Stack


def first_held(
    records: Iterable[Recorded], holds: RetentionHolds, *, stack: Stack
) -> Recorded | None:
    """Return the first commit of something that is held; None: nothing is.

    What an episode or an instance is about is said by its first commit alone. What came of it comes
    after that, so what stays from there on has all of it.
    """
    return next((each for each in records if _reasons(each, holds, stack)), None)


def _reasons(record: Recorded, holds: RetentionHolds, stack: Stack) -> Sequence[str]:
    kind, key = stack.aggregate_of(record.subject)
    found = [*holds.reasons(episode_id=key)] if kind is Kind.EPISODE else []
    return found + [reason for each in record.commit.events for reason in _of_event(each, holds)]


def _of_event(event: LogEvent, holds: RetentionHolds) -> Sequence[str]:
    match event:
        case EpisodeOpened():
            return holds.reasons(actor_id=event.actor_id, subject_id=event.trigger.entity_id)
        case OutputProposed():
            return holds.reasons(actor_id=event.actor_id, episode_id=event.episode_id)
        case WorkflowStarted():
            return holds.reasons(actor_id=starter_id(event.spec.name), subject_id=event.subject)
        case _:
            return ()
