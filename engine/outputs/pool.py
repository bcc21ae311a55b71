"""The adapters of an app on one node: opened at the first use, closed with the node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from engine.app.outputs import DeliveryFailed, OutputView, Route
from engine.episodes.open import call_by
from engine.outputs.rate_limit import Throttle, WaitingEpisode
from engine.usercode.call import BAD_ADAPTER, delivery, in_text
from streams.clock import Clock
from streams.errors import Unavailable
from streams.model.events import EpisodeOpened
from streams.ports.all import Ports

CLOSE_S: Final = 5.0
"""Longest wait for an adapter to close, in seconds."""

REF_CHARS_MAX: Final = 512
"""Longest receiver's reference, in characters; the rest is cut."""

log = structlog.get_logger("vigil.outputs")


class PooledAdapter:
    """One adapter, on one node."""

    def __init__(self, name: str, route: Route, ports: Ports, clock: Clock) -> None:
        self.route = route
        self.throttle = Throttle(
            clock, max_concurrent=route.max_concurrent, rate_per_s=route.rate_per_s
        )
        self._name, self._ports, self._clock = name, ports, clock
        self._adapter = route.output_adapter
        self._opening = asyncio.Lock()
        self._is_open = False

    async def deliver(self, output: OutputView) -> str:
        """Deliver `output`; return the receiver's reference, or empty. Raises `DeliveryFailed`."""
        try:
            async with self._clock.timeout(self.route.timeout_s):
                await self._open()
                ref = _checked(await delivery(self._adapter.deliver, output))
        except TimeoutError:
            raise DeliveryFailed(
                "delivery_timeout", f"not done within {self.route.timeout_s:g} s"
            ) from None
        return in_text(ref)[:REF_CHARS_MAX]

    async def _open(self) -> None:
        if self._is_open:
            return
        async with self._opening:
            if not self._is_open:
                await delivery(self._adapter.open, self._ports)
                self._is_open = True

    async def call_back(self) -> None:
        """Call waiting episodes whenever a slot is free, until canceled."""
        while True:
            for who in await self.throttle.wait_called():
                try:
                    await call_by(self._ports, who, self._clock.now())
                except Unavailable as error:
                    # They come at their time, all the same.
                    log.warning("not called", episode_id=who.episode_id, error=str(error))

    async def close(self) -> None:
        """Close the adapter, if it was opened."""
        if not self._is_open:
            return
        try:
            async with self._clock.timeout(CLOSE_S):
                await delivery(self._adapter.close)
        except (TimeoutError, DeliveryFailed) as error:
            log.warning("an adapter did not close", adapter=self._name, why=str(error))


def _checked(returned: object) -> str:
    if returned is None:
        return ""
    if isinstance(returned, str):  # guard: adapter-returns-text
        return returned
    # The receiver may have it: trying again would only have it delivered again and again.
    kind = type(returned).__name__
    detail = f"it returned a {kind}; return what the receiver calls the output, as text, or None"
    raise DeliveryFailed(BAD_ADAPTER, detail, permanent=True)


class AdapterPool:
    """All adapters of one node."""

    def __init__(self, routes: Mapping[str, Route], ports: Ports, clock: Clock) -> None:
        self._adapters = {
            name: PooledAdapter(name, each, ports, clock) for name, each in routes.items()
        }

    def of(self, adapter: str) -> PooledAdapter | None:
        """Return the adapter of this name; None: this app has none."""
        return self._adapters.get(adapter)

    def line_up(self, keys: Iterable[str], opened: EpisodeOpened) -> None:
        """Have an episode called once there is a slot for one of `keys`, its unsettled outputs."""
        who = WaitingEpisode(opened.actor_id, opened.episode_id)
        for key in keys:
            for pooled in self._adapters.values():
                pooled.throttle.line_up(key, who)

    async def call_back(self) -> None:
        """Call waiting episodes as slots get free, until canceled."""
        async with asyncio.TaskGroup() as group:
            for pooled in self._adapters.values():
                group.create_task(pooled.call_back())

    async def close(self) -> None:
        """Close every adapter that was opened."""
        await asyncio.gather(*(each.close() for each in self._adapters.values()))
