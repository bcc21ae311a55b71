"""Asking for something about outputs: each by itself, and each says what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Protocol, TypeAlias

from engine.errors import BadRequest, Refused
from streams.errors import BadName
from streams.model.events import LogEvent, OutputProposed
from streams.ports.all import Ports
from streams.ports.log import Recorded
from vigil.approvals import owner_of
from vigil.errors import Mistake
from vigil.outcomes import Outcome, Sent, Stand, batches, watch
from vigil.settings import Reading
from vigil.work import connected


class Asks(Protocol):
    """Asks for it, and returns the request's id."""

    async def __call__(self, ports: Ports, key: str, /, *, by: str, reason: str) -> str:
        """Ask for it about the output of this key."""


Means: TypeAlias = Callable[[str, LogEvent], Stand | None]
"""Request's id, an event after it → what that means for the request; None: nothing."""


@dataclass(frozen=True)
class _Wish:
    """What is asked for."""

    asks: Asks
    stand: Means
    by: str
    reason: str

    async def send(self, ports: Ports, key: str) -> Sent | Outcome:
        try:
            subject = ports.stack.output(key)
            records = await ports.log.read(subject)
            id_ = await self.asks(ports, key, by=self.by, reason=self.reason)
        except BadRequest as error:
            raise Mistake(str(error)) from error
        except (Refused, BadName) as error:
            return Outcome(name=key, refused=str(error))
        stand = partial(self._look, len(list(_events(records))), id_)
        actor_id, episode_id = owner_of(records)
        return Sent(
            name=key, actor_id=actor_id, episode_id=episode_id, subject=subject, stand=stand
        )

    def _look(self, seen: int, id_: str, records: Iterable[Recorded]) -> Stand | None:
        """Return what came of the request `id_`, made when `seen` events had been seen."""
        for event in islice(_events(records), seen, None):
            if (stand := self.stand(id_, event)) is not None:
                return stand
            if isinstance(event, OutputProposed):
                return Stand("another episode has proposed it anew", is_wanted=False)
        return None


def overrule(
    reading: Reading,
    keys: Iterable[str],
    asks: Asks,
    *,
    stand: Means,
    by: str,
    reason: str,
    wait_s: float | None,
) -> list[Outcome]:
    """Ask for something about outputs, and return what came of that for each.

    Args:
        reading: the settings.
        keys: the outputs', each taken once.
        asks: how it is asked for.
        stand: how to tell what came of it.
        by: who wants it.
        reason: why.
        wait_s: as for `watch`.

    Raises:
        Mistake: `by` or `reason` is impossible.
        UnreadableEvent: a newer version has written one of them.
        Unavailable, Incompatible: the log is away.
    """
    wish = _Wish(asks, stand, by, reason)

    async def done() -> list[Outcome]:
        async with connected(reading, creates=False) as ports:
            asked: list[Sent | Outcome] = []
            for some in batches(list(dict.fromkeys(keys))):
                asked += await asyncio.gather(*(wish.send(ports, key) for key in some))
            sent = [each for each in asked if isinstance(each, Sent)]
            watched = iter(await watch(ports, sent, wait_s=wait_s))
            return [next(watched) if isinstance(each, Sent) else each for each in asked]

    return asyncio.run(done())


def _events(records: Iterable[Recorded]) -> Iterable[LogEvent]:
    return (event for record in records for event in record.commit.events)
