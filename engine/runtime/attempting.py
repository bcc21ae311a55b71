"""One attempt at a delivery: calls the adapter, and says what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Final, TypeAlias

import structlog

from engine import telemetry
from engine.adapter import DeliveryFailed, OutputView
from engine.backoff import backoff_s, jittered_s
from engine.delivering import after_failure
from engine.output import Output
from engine.proposal import idempotency_key
from engine.runtime.outlets import Outlet
from engine.runtime.usercode import in_text
from streams.clock import Clock
from streams.events import OutputDelivered, OutputFailed, OutputPostponed
from streams.json import unraw

Came: TypeAlias = OutputDelivered | OutputPostponed | OutputFailed
"""What may come of an attempt."""

log = structlog.get_logger("vigil.outputs")

CLASS_CHARS_MAX: Final = 100
"""Longest error class that is kept of what an adapter says, in characters: the end of an episode
has those of all its outputs in one event."""

_CAME: Final[Mapping[type[Came], str]] = {
    OutputDelivered: "delivered",
    OutputPostponed: "postponed",
    OutputFailed: "failed",
}


async def make_attempt(outlet: Outlet, output: Output, *, clock: Clock, stack: str) -> Came:
    """Call the adapter, and return what came of it.

    Args:
        outlet: the adapter, with a place taken for this call.
        output: what is to be delivered, with the attempt put down.
        clock: of the node.
        stack: its name.
    """
    view = _view(output, stack)
    began_s = clock.monotonic_s()
    came: Came
    try:
        ref = await outlet.deliver(view)
    except DeliveryFailed as failed:
        came = _after(output, failed, outlet, clock)
    else:
        came = OutputDelivered(attempt=output.attempts, delivered_ref=ref)
    labels = {"adapter": view.adapter, "outcome": _CAME[type(came)]}
    telemetry.output_attempts.add(1, labels)
    telemetry.output_duration.record(clock.monotonic_s() - began_s, labels)
    _log(view, came)
    return came


def _log(view: OutputView, came: Came) -> None:
    said = {"adapter": view.adapter, "output_key": view.output_key, "attempt": view.attempt}
    match came:
        case OutputDelivered():
            log.info("delivered", **said)
        case OutputPostponed(error_class=error_class, retry_at=at):
            log.warning(
                "not delivered; tried again", **said, error_class=error_class, retry_at=str(at)
            )
        case OutputFailed(error_class=error_class):
            log.warning("not delivered", **said, error_class=error_class)


def _after(
    output: Output, failed: DeliveryFailed, outlet: Outlet, clock: Clock
) -> OutputPostponed | OutputFailed:
    retries, key = outlet.route.retries, output.proposed.output_key if output.proposed else ""
    tries = max(1, output.attempts_counted)
    pause_s = backoff_s(tries, first_s=retries.first_s, most_s=retries.most_s)
    return after_failure(
        output,
        error_class=in_text(failed.error_class)[:CLASS_CHARS_MAX],
        detail=in_text(failed.detail),
        is_permanent=bool(failed.permanent),
        attempts_max=retries.attempts_max,
        pause_s=jittered_s(pause_s, seed=f"{key}.{output.attempts}"),
        retry_after_s=_seconds(failed.retry_after_s),
        at=clock.now(),
    )


def _seconds(given: object) -> float | None:
    """Return what an adapter says as a number of seconds; None if it is none."""
    if isinstance(given, int | float) and not isinstance(given, bool) and isfinite(given):
        return float(given)
    return None


def _view(output: Output, stack: str) -> OutputView:
    proposed = output.proposed
    assert proposed is not None, "what is delivered was proposed"
    return OutputView(
        output_key=proposed.output_key,
        adapter=proposed.adapter,
        payload=unraw(proposed.payload),
        idempotency_key=idempotency_key(stack, proposed.output_key),
        attempt=output.attempts,
        episode_id=proposed.episode_id,
        actor_id=proposed.actor_id,
        expectation_id=proposed.expectation_id,
        stack=stack,
    )
