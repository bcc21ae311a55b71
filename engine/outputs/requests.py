"""Requests about outputs, for people and programs: retry or cancel one.

Each reads the output's log and refuses at once what is not allowed. Otherwise it sends a durable
command, and a node checks the log again: another request may be faster.
"""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from engine.errors import NotOnJournal
from engine.outputs.decide import called_off, check_is_carried, tried_again
from engine.outputs.output import Output, fold
from engine.runtime.store import read_current
from engine.validation import check_cause
from streams.clock import SystemClock
from streams.model.commands import CancelOutput, RetryOutput
from streams.model.events import OutputProposed
from streams.ports.all import Ports
from streams.tracing import traceparent

_CLOCK: Final = SystemClock()


async def retry_output(ports: Ports, key: str, *, by: str, reason: str = "") -> str:
    """Ask that a failed or postponed output be tried again, and return the request's id.

    The request is durable when this returns. It makes as many attempts as at first, also when the
    episode has ended; its status stays.

    Args:
        by: who asks, for people: 1 to 200 characters.
        reason: why, for people: up to 4,000 characters.
    """
    check_cause(by, reason)
    output, proposed = await read_output(ports, key)
    command = RetryOutput(
        actor_id=proposed.actor_id,
        episode_id=proposed.episode_id,
        id=uuid4().hex,
        output_key=key,
        by=by,
        reason=reason,
    )
    tried_again(output, command, at=_CLOCK.now())
    check_is_carried(await ports.log.last(ports.stack.episode(proposed.episode_id)))
    await ports.commands.send(command, id=f"retry.{command.id}", trace=traceparent())
    return command.id


async def cancel_output(ports: Ports, key: str, *, by: str, reason: str = "") -> str:
    """Ask that an output not be delivered any more, and return the request's id.

    The request is durable when this returns. The output is canceled unless it is delivered or has
    failed for good before a node handles the request; a running attempt is waited for. Its episode
    continues and ignores the output; other episodes may propose it again.

    Args:
        by: who asks, for people: 1 to 200 characters.
        reason: why, for people: up to 4,000 characters.
    """
    check_cause(by, reason)
    output, proposed = await read_output(ports, key)
    command = CancelOutput(
        actor_id=proposed.actor_id,
        episode_id=proposed.episode_id,
        id=uuid4().hex,
        output_key=key,
        by=by,
        reason=reason,
        round_no=output.round_no,  # guard: cancel-sent-with-round
    )
    called_off(output, command)
    await ports.commands.send(command, id=f"cancel_output.{command.id}", trace=traceparent())
    return command.id


async def read_output(ports: Ports, key: str) -> tuple[Output, OutputProposed]:
    """Return an output by its log, and its newest proposal; `NotOnJournal`: there is none."""
    # guard: output-refused-by-leader
    output = fold(await read_current(ports.log, _CLOCK, ports.stack.output(key)))
    if output.proposed is None:
        raise NotOnJournal("there is no such output")
    return output, output.proposed
