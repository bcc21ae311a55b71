"""Dead letters of outputs: one for each final failure, settled once the output is tried again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Final

from engine.dead_letters import letter as dead_letter
from engine.dead_letters.write import DeadLetterWriter, letters, settle
from engine.errors import Rejected
from engine.outputs.output import UNPROPOSED, Output
from engine.outputs.output import evolve as evolve_output
from engine.outputs.store import OutputStore
from engine.runtime.store import Loaded
from streams.clock import Clock
from streams.layout import Kind
from streams.model.events import (
    DeadLettered,
    DeadRequeued,
    OutputEvent,
    OutputProposed,
    OutputRetried,
)
from streams.model.outputs import OutputStatus
from streams.ports.all import Ports
from streams.ports.log import START

MARK_BYTES: Final = 16
"""Length of the hash of an output's key: long enough that two never collide."""


OUTPUT_FAILED: Final = "output_failed"
"""Reason of the dead letter of an output."""


def cause_of(output: Output) -> str:
    """Return the cause in the key of the dead letter; a hash, since output keys may be long."""
    assert output.proposed is not None, "what failed was proposed"
    mark = hashlib.blake2b(output.proposed.output_key.encode(), digest_size=MARK_BYTES).hexdigest()
    return f"{mark}.{output.proposed.proposal_no}.{output.retries}"


def gone_on(
    happened: Iterable[tuple[OutputEvent, datetime]],
) -> tuple[Output, DeadRequeued] | None:
    """Return an output at its last failure that a retry followed, with the settling event."""
    found = list(_each_gone_on(happened))
    return found[-1] if found else None  # guard: newest-failure-counts


def gone_on_from(
    failed: Output, happened: Iterable[tuple[OutputEvent, datetime]]
) -> DeadRequeued | None:
    """Return the event that settles the letter of one failure; None: no retry followed."""
    cause = cause_of(failed)
    # guard: letter-settled-by-own-cause
    found = (requeued for output, requeued in _each_gone_on(happened) if cause_of(output) == cause)
    return next(found, None)


def _each_gone_on(
    happened: Iterable[tuple[OutputEvent, datetime]],
) -> Iterator[tuple[Output, DeadRequeued]]:
    """Yield an output at each failure that a retry followed, with the settling event."""
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


async def write_failed(dead_letters: DeadLetterWriter, output: Output) -> None:
    """Write a dead letter for an output that has failed; one per failure."""
    # Another writer may have retried it since `output` was read, and found no letter to settle: so
    # the output is read again below, and the letter settled if need be.
    ports, clock = dead_letters.ports, dead_letters.clock
    proposed, failed, stack = output.proposed, output.failed, ports.stack
    assert proposed is not None, "what failed was proposed"
    assert failed is not None, "what gets a dead letter has failed"
    subject = stack.output(proposed.output_key)
    letter = DeadLettered(
        reason=OUTPUT_FAILED,
        detail=f"{proposed.adapter}: {failed.error_class}: {failed.error_detail}",
        stream=stack.stream_of(subject),
        seq=START,
        subject=subject,
        actor_id=proposed.actor_id,
        episode_id=proposed.episode_id,
    )
    await dead_letters.write(stack.dead(Kind.OUTPUT, cause_of(output)), letter)
    # It is only read: no writer id is needed.
    by_now = OutputStore(ports, clock, proposed.output_key, writer_id="")
    await by_now.read()
    # guard: gone-on-before-letter-settles
    await note_gone_on_from(ports, clock, output, by_now.history)


async def note_gone_on(
    ports: Ports, clock: Clock, happened: Iterable[tuple[OutputEvent, datetime]]
) -> None:
    """Settle the dead letter of an output that was retried since, unless that is done."""
    # The writer that retried it may have died before it settled the letter.
    found = gone_on(happened)
    if found is not None:
        await _note(ports, clock, *found)


async def note_gone_on_from(
    ports: Ports, clock: Clock, failed: Output, happened: Iterable[tuple[OutputEvent, datetime]]
) -> None:
    """Settle the dead letter of one failure if a retry followed in `happened`, oldest first."""
    requeued = gone_on_from(failed, happened)
    if requeued is not None:
        await _note(ports, clock, failed, requeued)


async def _note(ports: Ports, clock: Clock, failed: Output, requeued: DeadRequeued) -> None:
    subject = ports.stack.dead(Kind.OUTPUT, cause_of(failed))
    # A replica may lack a letter that was just written.
    newest = await ports.log.last(subject)  # guard: letter-newer-than-replica
    if newest is None:
        return
    known = Loaded(subject, dead_letter.fold([newest]), [newest])
    with suppress(Rejected):  # The one that requeued the letter has noted it.
        await settle(letters(ports, clock), known, requeued)
