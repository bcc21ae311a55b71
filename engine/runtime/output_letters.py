"""Dead letters of outputs: one for each failure, settled once the output is tried again."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Final

from engine import dead
from engine.errors import Rejected
from engine.output import Output
from engine.runtime.parcel import Parcel
from engine.runtime.undertaker import Undertaker, settle
from streams.clock import Clock
from streams.errors import VersionConflict
from streams.events import DeadLettered, DeadRequeued, OutputEvent
from streams.layout import Kind
from streams.log import START
from streams.ports import Ports

OUTPUT_FAILED: Final = "output_failed"
"""Reason of the dead letter of an output."""


async def write_failed(undertaker: Undertaker, output: Output) -> None:
    """Keep a dead letter for an output that has failed, each time that it has.

    Others may have gone on with it since `output` was read: who proposed it anew, or had it
    tried again, has found no letter to settle. So once there is one, the output is looked at
    again, and the letter settled if need be. Whoever goes on with it later finds the letter.

    Raises:
        Unavailable: it could not be written; its episode is not to go on yet.
    """
    ports, clock = undertaker.ports, undertaker.clock
    proposed, failed, stack = output.proposed, output.failed, ports.stack
    assert proposed is not None, "what failed was proposed"
    assert failed is not None, "what is buried has failed"
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
    await undertaker.write(stack.dead(Kind.OUTPUT, dead.cause_of(output)), letter)
    # It is only read: whoever adds nothing needs no pen.
    by_now = Parcel(ports, clock, proposed.output_key, pen="")
    await by_now.read()
    await note_gone_on_from(ports, clock, output, by_now.history)


async def note_retried(ports: Ports, clock: Clock, failed: Output, *, by: str) -> None:
    """Note on the dead letter of an output that it is tried again, unless that is known.

    Args:
        failed: the output, as it was when it had failed.
        by: who wants that.

    Raises:
        Unavailable: the log is away. Doing it again is safe.
    """
    assert failed.proposed is not None, "what failed was proposed"
    await _note(ports, clock, failed, DeadRequeued(by=by, episode_id=failed.proposed.episode_id))


async def note_gone_on(
    ports: Ports, clock: Clock, happened: Iterable[tuple[OutputEvent, datetime]]
) -> None:
    """Note on the dead letter of an output that it was gone on with, unless that is known.

    Whoever tried it again, or proposed it anew, may have died before it was noted.

    Args:
        happened: to the output, oldest first, and when.

    Raises:
        Unavailable: the log is away. Doing it again is safe.
    """
    found = dead.gone_on(happened)
    if found is not None:
        await _note(ports, clock, *found)


async def note_gone_on_from(
    ports: Ports, clock: Clock, failed: Output, happened: Iterable[tuple[OutputEvent, datetime]]
) -> None:
    """Note on the dead letter of one failure that the output was gone on with since, if so.

    Args:
        failed: the output, as it was when it had failed.
        happened: to the output, before and since, oldest first, and when.

    Raises:
        Unavailable: the log is away. Doing it again is safe.
    """
    requeued = dead.gone_on_from(failed, happened)
    if requeued is not None:
        await _note(ports, clock, failed, requeued)


async def _note(ports: Ports, clock: Clock, failed: Output, requeued: DeadRequeued) -> None:
    subject = ports.stack.dead(Kind.OUTPUT, dead.cause_of(failed))
    # Of a letter that was just buried a replica may not know yet.
    newest = await ports.log.last(subject)
    if newest is None:
        return
    with suppress(Rejected, VersionConflict):  # Whoever requeued the letter has noted it.
        await settle(ports, clock, subject, dead.fold([newest]), requeued, after=newest.seq)
