"""Outputs to deliver, and ports where nobody listens."""

from __future__ import annotations

import socket

import pytest

from engine.app.outputs import DeliveryFailed, OutputAdapter, OutputView

KEY = "5f" * 32


def output(payload: object, *, attempt: int = 1, key: str = KEY) -> OutputView:
    return OutputView(
        output_key="alert/1",
        adapter="pager",
        payload=payload,
        idempotency_key=key,
        attempt=attempt,
        episode_id="ep-1",
        actor_id="monitor",
        expectation_id="limits",
        stack="vigil",
    )


async def failure_of(adapter: OutputAdapter, payload: object = "full") -> DeliveryFailed:
    """Return how `adapter` fails to deliver."""
    with pytest.raises(DeliveryFailed) as failed:
        await adapter.deliver(output(payload))
    return failed.value


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
