"""A dead letter's life: it waits until a person has it tried again or gives it up. Pure.

    (nothing) ──DeadLettered──▶ waiting ──DeadRequeued──▶ requeued
                                   └─────DeadDiscarded──▶ discarded

What is done to try it again comes before the `DeadRequeued` that says so, and has ids that
come from the letter. So a crash in between leaves a letter that waits, and whoever requeues
it then only completes what was begun.

The letter of an output is settled, too, when the output goes on without it: a person has it tried
again by its own name, or an episode proposes it anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from engine import dedupe
from engine.episode import Episode
from engine.errors import Rejected
from engine.output import UNPROPOSED, Output
from engine.output import evolve as evolve_output
from engine.status import ENDED
from streams.codec import decode_command, decode_workflow_command
from streams.commands import Cancel, CancelOutput, Decide, Resolve, RetryOutput, WorkflowCommand
from streams.events import (
    DeadDiscarded,
    DeadEvent,
    DeadLettered,
    DeadRequeued,
    EpisodeOpened,
    OutputEvent,
    OutputProposed,
    OutputRetried,
)
from streams.json import UNDECODABLE
from streams.layout import Kind, Stream
from streams.log import Recorded
from streams.outputs import OutputStatus
from streams.subjects import Stack


class Status(StrEnum):
    """Where a dead letter is in its life."""

    UNWRITTEN = "unwritten"
    WAITING = "waiting"
    REQUEUED = "requeued"
    DISCARDED = "discarded"


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """What a dead letter's events add up to."""

    status: Status = Status.UNWRITTEN
    lettered: DeadLettered | None = None
    settled: DeadRequeued | DeadDiscarded | None = None
    settled_at: datetime | None = None


Said: TypeAlias = Cancel | CancelOutput | Decide | Resolve | RetryOutput
"""Commands by which people and programs say something; all others only call a node."""


class Republish(msgspec.Struct, frozen=True):
    """Publish the domain event at this sequence again."""

    seq: int


class Reopen(msgspec.Struct, frozen=True):
    """Open an episode for what woke this one."""

    episode_id: str


class Recall(msgspec.Struct, frozen=True):
    """Call a node to this episode again: the call before found none that could have it."""

    episode_id: str
    command: Said | None = None
    """The command, if somebody said something by it; any other is made anew, as the episode stands
    then."""


class Redeliver(msgspec.Struct, frozen=True):
    """Have this output tried again."""

    output_key: str
    actor_id: str
    episode_id: str
    """Whose it is."""


class Resend(msgspec.Struct, frozen=True):
    """Put this command to its instance of a workflow again."""

    command: WorkflowCommand


Remedy: TypeAlias = Republish | Reopen | Recall | Redeliver | Resend
"""How a letter is tried again."""

UNWRITTEN: Final = Letter()

MARK_BYTES: Final = 16
"""Of the hash of an output's key: so many that no two are ever met with the same."""


def decide(letter: Letter, command: DeadRequeued | DeadDiscarded) -> DeadEvent:
    """Return what happens if a person settles `letter` so.

    Raises:
        Rejected: it is settled already, or there is no such letter.
    """
    _waiting(letter)
    return command


def evolve(letter: Letter, event: DeadEvent, *, at: datetime) -> Letter:
    """Return `letter` after `event`, recorded at `at`. Never refuses: it has already happened."""
    match event:
        case DeadLettered():
            return Letter(status=Status.WAITING, lettered=event)
        case DeadRequeued():
            return replace(letter, status=Status.REQUEUED, settled=event, settled_at=at)
        case DeadDiscarded():
            return replace(letter, status=Status.DISCARDED, settled=event, settled_at=at)


def fold(records: Iterable[Recorded]) -> Letter:
    """Return what all of a letter's `records` add up to, oldest first."""
    letter = UNWRITTEN
    for record in records:
        for event in record.commit.events:
            if isinstance(event, DeadEvent):
                letter = evolve(letter, event, at=record.commit.at)
    return letter


def remedy(letter: Letter, *, stack: Stack) -> Remedy:
    """Return how `letter` can be tried again.

    Raises:
        Rejected: it is settled already, there is none, or what it holds cannot be tried again.
    """
    lettered = _waiting(letter)
    if lettered.episode_id and stack.is_of(lettered.stream, Stream.WORK):
        return Recall(lettered.episode_id, _said_in(lettered))
    if lettered.episode_id:
        kind, key = stack.aggregate_of(lettered.subject)
        if kind is Kind.OUTPUT:
            return Redeliver(key, lettered.actor_id, lettered.episode_id)
        return Reopen(lettered.episode_id)
    if lettered.stream == stack.stream(Stream.EVENTS):
        return Republish(lettered.seq)
    if stack.is_of(lettered.stream, Stream.WORK) and (resend := _resend_of(lettered)):
        return resend
    raise Rejected("it was a command, and its queue keeps none that was given up; discard it")


def cause_of(output: Output) -> str:
    """Return what the dead letter of `output` is called after: each time it fails is another.

    Not after the key itself, which may be as long as a token can be.
    """
    assert output.proposed is not None, "what failed was proposed"
    mark = hashlib.blake2b(output.proposed.output_key.encode(), digest_size=MARK_BYTES).hexdigest()
    return f"{mark}.{output.proposed.proposal_no}.{output.retries}"


def gone_on(
    happened: Iterable[tuple[OutputEvent, datetime]],
) -> tuple[Output, DeadRequeued] | None:
    """Return an output as it failed when it was last gone on with, and what settles its letter.

    None: it has never failed, or nobody has gone on with it since.

    Args:
        happened: to the output, oldest first, and when.
    """
    found = list(_each_gone_on(happened))
    return found[-1] if found else None


def gone_on_from(
    failed: Output, happened: Iterable[tuple[OutputEvent, datetime]]
) -> DeadRequeued | None:
    """Return what settles the letter of one failure; None: nobody has gone on from there.

    Args:
        failed: the output as it was when it had failed.
        happened: to the output, before and since, oldest first, and when.
    """
    cause = cause_of(failed)
    found = (requeued for output, requeued in _each_gone_on(happened) if cause_of(output) == cause)
    return next(found, None)


def _each_gone_on(
    happened: Iterable[tuple[OutputEvent, datetime]],
) -> Iterator[tuple[Output, DeadRequeued]]:
    """Yield an output each time that it had failed and was gone on with, and what settles that."""
    output = UNPROPOSED
    for event, at in happened:
        requeued = _requeued_by(event, output) if output.status is OutputStatus.FAILED else None
        if requeued is not None:
            yield output, requeued
        output = evolve_output(output, event, at=at)


def _requeued_by(event: OutputEvent, failed: Output) -> DeadRequeued | None:
    match event:
        case OutputRetried(by=by):
            assert failed.proposed is not None, "what failed was proposed"
            return DeadRequeued(by=by, episode_id=failed.proposed.episode_id)
        case OutputProposed(actor_id=actor_id, episode_id=episode_id):
            return DeadRequeued(by=f"actor {actor_id}", episode_id=episode_id)
        case _:
            return None


def reopened(episode: Episode, *, stack: Stack) -> EpisodeOpened:
    """Return the opening of an episode for the same trigger as `episode`: its next generation.

    Raises:
        Rejected: `episode` has not ended, or the journal does not hold it any more.
    """
    before = episode.opened
    if before is None:
        raise Rejected("the journal does not hold its episode any more; discard it")
    if episode.status not in ENDED:
        raise Rejected(f"its episode is still {episode.status}; once it has ended, try again")
    generation = before.generation + 1
    episode_id = dedupe.episode_id(
        stack=stack.name,
        actor=before.actor_id,
        expectation=before.expectation_id,
        dedupe_key=before.dedupe_key,
        generation=generation,
    )
    # A person asks for it, now: neither another node's wish nor a time that has passed holds.
    return replace(
        before,
        episode_id=episode_id,
        generation=generation,
        opened_by="",
        is_request=False,
        start_by=None,
    )


def recalled(episode: Episode) -> Episode:
    """Return `episode` if a node may be called to it again.

    Raises:
        Rejected: it has ended, or the journal does not hold it.
    """
    if episode.opened is None:
        raise Rejected("the journal does not hold its episode; discard it")
    if episode.status in ENDED:
        raise Rejected(f"its episode is {episode.status} by now; discard it")
    return episode


def _said_in(lettered: DeadLettered) -> Said | None:
    try:
        command = decode_command(lettered.payload)
    except UNDECODABLE:
        return None
    return command if isinstance(command, Said) else None


def _resend_of(lettered: DeadLettered) -> Resend | None:
    try:
        return Resend(decode_workflow_command(lettered.payload))
    except UNDECODABLE:
        return None


def _waiting(letter: Letter) -> DeadLettered:
    if letter.lettered is None:
        raise Rejected("there is no such dead letter")
    if letter.settled is not None:
        when = f" at {letter.settled_at:%Y-%m-%d %H:%M:%S} UTC" if letter.settled_at else ""
        raise Rejected(f"it was {letter.status} by {letter.settled.by}{when}")
    return letter.lettered
