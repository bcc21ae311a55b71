"""A durable consumer that all nodes of an actor share, made when it is missing.

Looking comes before making: a consumer that exists keeps where it started (the server does
not let that change), what is acknowledged, and what an operator tuned. Only its filter
follows the code, and only ever widens: nodes of an older version may still need what a newer one
leaves out, and the other way round (docs/adr/0013-shared-queues-only-widen.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from streams.errors import Incompatible, StreamError, Unavailable
from streams.jetstream import api
from streams.jetstream.link import Link
from streams.jetstream.shapes import NS_PER_S
from streams.json import JsonObject

ACK_WAIT_S: Final = 10
"""How long a delivery may stay unanswered before it comes again, in seconds.

What a node had been handed when it froze waits this long for another one. Commands are
answered in milliseconds, and doing one twice is harmless, so short is right. Measured: with
30 s a chaos run ended 19 to 26 s after its last fault, waiting for nothing else.
"""

UNANSWERED_MAX: Final = 10_000
"""Deliveries of one consumer, over all nodes, that may be unanswered at a time."""

_SERVER_FAULT: Final = 500
"""From this code on (as in HTTP) the server could not; below, it would not."""


@dataclass(frozen=True, kw_only=True)
class DurableConsumer:
    """What a shared consumer must be."""

    stream: str
    name: str
    filters: tuple[str, ...]
    starts_new: bool
    """Whether its first start skips what the stream already holds."""

    async def ensure(self, link: Link, *, resume_seq: int = 0) -> None:
        """Make the consumer, or widen its filter to hold ours.

        One that was deleted while we used it starts again at `resume_seq`.

        Raises:
            Incompatible: the server will not have it.
            Unavailable: no answer.
        """
        try:
            theirs = await self._look(link)
            if theirs is None:
                await self._make(link, self._fresh(resume_seq))
            elif not _filters(theirs).issuperset(self.filters):
                await self._make(link, _widened(theirs, self.filters))
        except api.Refused as error:
            raise _cannot(self.name, error) from error

    async def _look(self, link: Link) -> JsonObject | None:
        try:
            info = await api.call(link, f"CONSUMER.INFO.{self.stream}.{self.name}")
        except api.Refused as error:
            if error.err_code == api.CONSUMER_NOT_FOUND:
                return None
            raise
        config: JsonObject = info["config"]
        return config

    async def _make(self, link: Link, config: JsonObject) -> None:
        request = {"stream_name": self.stream, "config": config}
        try:
            await api.call(link, f"CONSUMER.CREATE.{self.stream}.{self.name}", request)
        except api.Refused as error:
            if error.code >= _SERVER_FAULT or await self._look(link) is None:
                raise  # Otherwise another node made it first, with another start.

    def _fresh(self, resume_seq: int) -> JsonObject:
        start: JsonObject = {"deliver_policy": "new" if self.starts_new else "all"}
        if self.starts_new and resume_seq:
            start = {"deliver_policy": "by_start_sequence", "opt_start_seq": resume_seq}
        return {
            "name": self.name,
            "durable_name": self.name,
            "filter_subjects": list(self.filters),
            "ack_policy": "explicit",
            "ack_wait": ACK_WAIT_S * NS_PER_S,
            "max_deliver": -1,
            "max_ack_pending": UNANSWERED_MAX,
            **start,
        }


def _filters(config: JsonObject) -> set[str]:
    single = config.get("filter_subject")
    return {single} if single else set(config.get("filter_subjects", []))


def _widened(config: JsonObject, filters: tuple[str, ...]) -> JsonObject:
    kept = {key: value for key, value in config.items() if key != "filter_subject"}
    return {**kept, "filter_subjects": sorted(_filters(config).union(filters))}


def _cannot(name: str, error: api.Refused) -> StreamError:
    if error.code >= _SERVER_FAULT:
        return Unavailable(f"consumer {name}", detail=str(error))
    return Incompatible(
        f"the server refuses consumer {name}: {error}",
        remedy="Delete the consumer, or what is in its way; it is made again at the next start.",
    )
