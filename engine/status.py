"""Where an episode is in its life, and every legal way on from there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from streams.events import (
    CheckpointSaved,
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeDeferred,
    EpisodeFinished,
    EpisodeLeft,
    EpisodeOpened,
    EpisodeResolved,
    EpisodeStarted,
    StepAnnounced,
    StepRecorded,
)


class Status(StrEnum):
    """Where an episode is in its life."""

    UNOPENED = "unopened"
    QUEUED = "queued"
    RUNNING = "running"
    CONVERGING = "converging"
    """What is true has been decided; its findings are being applied, its outputs delivered."""
    BLOCKED = "blocked"
    """It waits for people or for word from outside. No node has it."""
    DELIVERING = "delivering"
    """Some of its outputs are to be delivered, or approved, later. No node has it meanwhile."""
    DONE = "done"
    FAILED = "failed"
    PARTIALLY_FAILED = "partially_failed"
    CANCELED = "canceled"


RUNS: Final = frozenset({Status.RUNNING, Status.CONVERGING})
"""A node has it. If another one takes over, the first has crashed."""

WAITING: Final = frozenset({Status.BLOCKED, Status.DELIVERING})
"""Nobody has it, and nobody need have it before something comes about."""

ENDED: Final = frozenset({Status.DONE, Status.FAILED, Status.PARTIALLY_FAILED, Status.CANCELED})

TRANSITIONS: Final[Mapping[Status, Mapping[type, Status | None]]] = {
    Status.UNOPENED: {EpisodeOpened: Status.QUEUED},
    Status.QUEUED: {EpisodeStarted: Status.RUNNING, EpisodeFinished: Status.CANCELED},
    Status.RUNNING: {
        EpisodeStarted: Status.RUNNING,
        EpisodeLeft: Status.QUEUED,
        StepAnnounced: Status.RUNNING,
        StepRecorded: Status.RUNNING,
        CheckpointSaved: Status.RUNNING,
        EpisodeBlocked: Status.BLOCKED,
        EpisodeConverged: Status.CONVERGING,
        EpisodeFinished: None,
    },
    Status.BLOCKED: {
        StepRecorded: Status.BLOCKED,
        EpisodeResolved: Status.QUEUED,
        EpisodeFinished: Status.CANCELED,
    },
    Status.CONVERGING: {
        EpisodeStarted: Status.CONVERGING,
        EpisodeDeferred: Status.DELIVERING,
        EpisodeFinished: None,
    },
    Status.DELIVERING: {EpisodeStarted: Status.CONVERGING, EpisodeFinished: Status.CANCELED},
    Status.DONE: {},
    Status.FAILED: {},
    Status.PARTIALLY_FAILED: {},
    Status.CANCELED: {},
}
"""Status → event → status: every legal transition, and the source of the diagram in the docs.

`EpisodeFinished` leads to the status it carries, which is one of `ENDED`; where a status stands, to
no other.
"""
