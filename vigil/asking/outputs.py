"""Requests about outputs: retry a delivery, or cancel it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TypeAlias

from engine.errors import Refused
from engine.outputs.requests import cancel_output, retry_output
from streams.errors import BadName
from streams.model.events import (
    LogEvent,
    OutputAttempted,
    OutputCanceled,
    OutputDelivered,
    OutputFailed,
    OutputProposed,
    OutputRejected,
    OutputRetried,
)
from streams.ports.all import Ports
from streams.ports.log import Recorded
from vigil.asking.approval_requests import owner_of
from vigil.asking.requests import CommandOutcome, CommandResult, SentCommand, in_batches, watch

SendsRequest: TypeAlias = Callable[[Ports, str], Awaitable[str]]
"""Sends a request about the output of a key, and returns the request's id."""

ReadsResult: TypeAlias = Callable[[str, LogEvent], CommandResult | None]
"""Request's id, an event after it → the request's result; None: the event is none."""


async def retry(
    ports: Ports, keys: Iterable[str], *, by: str, reason: str, wait_s: float | None
) -> Sequence[CommandOutcome]:
    """Retry the delivery of outputs that have failed, and return what became of each."""
    send = partial(retry_output, by=by, reason=reason)
    return await _request(ports, keys, send, _retry_result, wait_s=wait_s)


async def cancel(
    ports: Ports, keys: Iterable[str], *, by: str, reason: str, wait_s: float | None
) -> Sequence[CommandOutcome]:
    """Cancel outputs that are not delivered yet, and return what became of each."""
    send = partial(cancel_output, by=by, reason=reason)
    return await _request(ports, keys, send, _cancel_result, wait_s=wait_s)


async def _request(
    ports: Ports,
    keys: Iterable[str],
    send: SendsRequest,
    result: ReadsResult,
    *,
    wait_s: float | None,
) -> Sequence[CommandOutcome]:
    different = [*dict.fromkeys(keys)]
    asked = await in_batches(different, lambda key: _send(ports, key, send, result))
    known = [each for each in asked if isinstance(each, SentCommand)]
    watched = iter(await watch(ports, known, wait_s=wait_s))
    return [next(watched) if isinstance(each, SentCommand) else each for each in asked]


def _retry_result(id_: str, event: LogEvent) -> CommandResult | None:
    """Return what `event` means for the request `id_` to retry; None: nothing."""
    match event:
        case OutputRetried(retry_id=retry_id) if retry_id == id_:  # guard: retrier-learns-earlier
            return CommandResult("tried again", is_wanted=True)
        case OutputRetried(by=by):
            return CommandResult(f"{by} has it tried again", is_wanted=False)
        case OutputAttempted():
            return CommandResult("its time had come: it is being tried", is_wanted=False)
        case _:
            return None


def _cancel_result(id_: str, event: LogEvent) -> CommandResult | None:
    """Return what `event` means for the request `id_` to cancel; None: nothing."""
    match event:
        case OutputCanceled(cancel_id=cancel_id) if cancel_id == id_:
            return CommandResult("canceled", is_wanted=True)
        case OutputCanceled(by=by):
            who_was = by or "who canceled its episode"
            return CommandResult(f"{who_was} was faster", is_wanted=False)
        case OutputDelivered():
            return CommandResult("it was delivered before", is_wanted=False)
        case OutputFailed(error_class=error_class):
            return CommandResult(f"it has failed before: {error_class}", is_wanted=False)
        case OutputRejected():
            return CommandResult("it was rejected before", is_wanted=False)
        case _:
            return None


async def _send(
    ports: Ports, key: str, send: SendsRequest, result: ReadsResult
) -> SentCommand | CommandOutcome:
    try:
        subject = ports.stack.output(key)
        records = await ports.log.read(subject)
        id_ = await send(ports, key)
    except (Refused, BadName) as error:
        return CommandOutcome(name=key, refused=str(error))
    actor_id, episode_id, _ = owner_of(records)
    return SentCommand(
        name=key,
        actor_id=actor_id,
        episode_id=episode_id,
        subject=subject,
        result=partial(_result_after, len(_events(records)), partial(result, id_)),
    )


def _result_after(
    seen: int, result: Callable[[LogEvent], CommandResult | None], records: Iterable[Recorded]
) -> CommandResult | None:
    """Return the result of a request that was sent when the journal had `seen` events."""
    for event in islice(_events(records), seen, None):
        if (found := result(event)) is not None:
            return found
        if isinstance(event, OutputProposed):
            return CommandResult("another episode has proposed it anew", is_wanted=False)
    return None


def _events(records: Iterable[Recorded]) -> Sequence[LogEvent]:
    return [event for record in records for event in record.commit.events]
