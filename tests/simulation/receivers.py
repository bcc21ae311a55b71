"""Where outputs go to: adapters that are slow, that fail, and that die on the way."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Final

from tests.simulation.faults import Fault
from tests.simulation.outside import Delivery, Outside
from vigil import DeliveryFailed, OutputAdapter, OutputView, Retries, Route

POST_S_MAX: Final = 1.0
"""How long a delivery takes at most, if it comes to an end."""

TIMEOUT_S: Final = 3.0
NEVER_S: Final = 60.0
"""How long a receiver is silent that says nothing any more."""

ATTEMPTS_MAX: Final = 4
MAX_CONCURRENT: Final = 2
RATE_PER_S: Final = 2.0
RETRY_AFTER_S: Final = 3.0


class Mood(StrEnum):
    """What a moody receiver makes of one delivery."""

    WELL = "well"
    """It is accepted, and says so."""
    BUSY = "busy"
    """It is not accepted, for now."""
    GONE = "gone"
    """It is not accepted, and will not be."""
    LOST = "lost"
    """It is accepted, and the connection breaks."""
    SILENT = "silent"
    """It is accepted, and nothing more is heard."""


_SHARES: Final = ((0.25, Mood.BUSY), (0.08, Mood.GONE), (0.12, Mood.LOST), (0.12, Mood.SILENT))
"""How many deliveries meet which mood; the others go well."""


class Receiver(OutputAdapter):
    """An adapter, and whoever is behind it."""

    def __init__(self, outside: Outside, *, is_moody: bool = False) -> None:
        self._outside, self._is_moody = outside, is_moody

    async def deliver(self, output: OutputView) -> str | None:
        """Leave a mark in the ledger; the receiver then does what its mood is."""
        wire, weather = self._outside.wire, self._outside.wire.servers.weather
        await wire.life.passage()
        await wire.strike(f"deliver {output.output_key}", Fault.FROZEN, Fault.DEAD)
        delivery = self._noted(output)
        try:
            mood = self._mood()
            delivery.is_accepted = mood not in {Mood.BUSY, Mood.GONE}
            await wire.strike(f"deliver {output.output_key}", Fault.DEAD_AFTER)
            await asyncio.sleep(weather.between(0.0, POST_S_MAX))
            await self._answer(mood)
            await wire.strike(f"deliver {output.output_key}", Fault.FROZEN_AFTER)
        finally:
            if not wire.life.dead:
                delivery.ended_s = asyncio.get_running_loop().time()
        return f"{output.adapter}-{output.attempt}"

    def _noted(self, output: OutputView) -> Delivery:
        life, servers = self._outside.wire.life, self._outside.wire.servers
        delivery = Delivery(
            output_key=output.output_key,
            adapter=output.adapter,
            idempotency_key=output.idempotency_key,
            attempt=output.attempt,
            episode_id=output.episode_id,
            node=life.name,
            life=life.number,
            head=servers.newest(),
            began_s=asyncio.get_running_loop().time(),
        )
        self._outside.ledger.deliveries.append(delivery)
        servers.note(life.name, f"deliver {output.output_key}", f"attempt {output.attempt}")
        return delivery

    def _mood(self) -> Mood:
        left = self._outside.wire.servers.weather.rng.random() if self._is_moody else 1.0
        for share, mood in _SHARES:
            left -= share
            if left < 0:
                return mood
        return Mood.WELL

    async def _answer(self, mood: Mood) -> None:
        match mood:
            case Mood.BUSY:
                is_exact = self._outside.wire.servers.weather.rng.random() < 0.5
                raise DeliveryFailed(mood, retry_after_s=RETRY_AFTER_S if is_exact else None)
            case Mood.GONE:
                raise DeliveryFailed(mood, permanent=True)
            case Mood.LOST:
                raise ConnectionResetError("after it was accepted")
            case Mood.SILENT:
                await asyncio.sleep(NEVER_S)
            case Mood.WELL:
                return


def routes(outside: Outside) -> dict[str, Route]:
    """Return what outputs go through: one adapter that always delivers, and one that is moody."""
    retries = Retries(attempts_max=ATTEMPTS_MAX, first_s=1.0, most_s=4.0)
    post = Route(Receiver(outside), retries=retries, timeout_s=TIMEOUT_S, rate_per_s=RATE_PER_S)
    mail = Route(
        Receiver(outside, is_moody=True),
        retries=retries,
        timeout_s=TIMEOUT_S,
        max_concurrent=MAX_CONCURRENT,
    )
    return {"post": post, "mail": mail}
