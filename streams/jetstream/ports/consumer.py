"""A durable consumer that all nodes of an actor share, created when it is missing.

An existing consumer keeps its start (the server does not let that change), its acknowledgements,
and what an operator tuned. Only its filter follows the code, and opening it only widens it, since
nodes of older and newer versions run side by side (docs/adr/0013-shared-queues-only-widen.md).
All nodes give such a consumer the same filter; where they differ, it is an `SharedQueue`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

from streams.errors import Incompatible, NoSuchStream, StreamError, Unavailable
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import api, stored
from streams.jetstream.ports.configs import CONSUMERS_MAX, NS_PER_S
from streams.json import JsonObject
from streams.model.foreign_streams import FeedStart
from streams.ports.delivery import ACK_WAIT_S, QueuePosition

UNANSWERED_MAX: Final = 10_000
"""Deliveries of one consumer, over all nodes, that may be unanswered at a time."""

_NOT_FOUND: Final = frozenset({api.CONSUMER_NOT_FOUND, api.STREAM_NOT_FOUND})

_SERVER_FAULT: Final = 500
"""From this code on (as in HTTP) the server could not; below, it would not."""


@dataclass(frozen=True, kw_only=True)
class DurableConsumer:
    """What a shared consumer must be."""

    stream: str
    name: str
    filters: tuple[str, ...]
    start: FeedStart | None = None
    """Where its first start begins. None is the beginning and nowhere else: that of a work queue,
    which drops what is acknowledged."""
    is_of_others: ClassVar[bool] = False
    """Whether the stream is one of others, who may delete it and make another one of its name."""

    async def ensure(self, link: Link, *, resume_seq: int = 0) -> int:
        """Make the consumer, or widen its filter to include ours; return its acknowledged sequence.

        One that was deleted while we used it starts again at `resume_seq`. If its stream ends
        before that, it is another one of that name, of which we have read nothing.

        Raises:
            Incompatible: the server will not have it.
            Unavailable: no answer, or no such stream.
        """
        try:
            info = await self._look(link)
            if info is None or not _filters(info["config"]).issuperset(self.filters):
                info = await self._add_filters(link, resume_seq)
        except api.RequestRefused as error:
            raise cannot(self.name, error) from error
        except NoSuchStream as error:
            raise Unavailable(f"consumer {self.name}", detail=str(error)) from error
        return _acknowledged_seq(info)

    async def backlog(self, link: Link) -> int:
        """Return how many messages wait or are unacknowledged; 0 without a consumer."""
        info = await self._state(link)
        return 0 if info is None else int(info["num_pending"]) + int(info["num_ack_pending"])

    async def position(self, link: Link) -> QueuePosition:
        """Return how far it is; the position of a new one without a consumer."""
        info = await self._state(link)
        if info is None:
            return QueuePosition()
        return QueuePosition(
            delivered=int(info["delivered"]["consumer_seq"]),
            delivered_seq=int(info["delivered"]["stream_seq"]),
            acknowledged_seq=_acknowledged_seq(info),
            unacknowledged=int(info["num_ack_pending"]),
        )

    async def filters_there(self, link: Link) -> frozenset[str]:
        """Return the filters that it has on the server; none without a consumer."""
        info = await self._state(link)
        return frozenset() if info is None else frozenset(_filters(info["config"]))

    async def delete(self, link: Link) -> None:
        """Delete the consumer."""
        try:
            await api.call(link, f"CONSUMER.DELETE.{self.stream}.{self.name}")
        except api.RequestRefused as error:
            if error.err_code not in _NOT_FOUND:
                raise Unavailable(f"consumer {self.name}", detail=str(error)) from error

    async def _state(self, link: Link) -> JsonObject | None:
        try:
            return await self._look(link)
        except api.RequestRefused as error:
            raise Unavailable(f"consumer {self.name}", detail=str(error)) from error

    async def _look(self, link: Link) -> JsonObject | None:
        """Return the server's state of it, or None if there is none; raise `RequestRefused`."""
        try:
            return await api.call(link, f"CONSUMER.INFO.{self.stream}.{self.name}")
        except api.RequestRefused as error:
            if error.err_code in _NOT_FOUND:
                return None
            raise

    async def _add_filters(self, link: Link, resume_seq: int) -> JsonObject:
        """Make it, or add our filters to those that it has; return the server's state."""
        there = await self.filters_there(link)
        return await self._write(link, there.union(self.filters), resume_seq)

    async def _write(self, link: Link, filters: Collection[str], resume_seq: int) -> JsonObject:
        """Make it with `filters`, or give them to the one that is there; with none, delete it."""
        info = await self._look(link)
        if not filters:  # guard: narrowed-to-nothing-holds-nothing
            await self.delete(link)
            return {}
        if info is not None:
            return await self._make(link, _filtered(info["config"], filters))
        start = await self._start(link, resume_seq)
        return await self._make(link, _filtered(self._fresh(start), filters))

    async def _make(self, link: Link, config: JsonObject) -> JsonObject:
        request = {"stream_name": self.stream, "config": config}
        try:
            return await api.call(link, f"CONSUMER.CREATE.{self.stream}.{self.name}", request)
        except api.RequestRefused as error:
            found = None if error.code >= _SERVER_FAULT else await self._look(link)
            if found is None:
                raise
            return found  # Another node made it first, with another start.

    async def _start(self, link: Link, resume_seq: int) -> FeedStart | None:
        if self.start is None or not resume_seq:
            return self.start
        newest_seq = await stored.newest_seq(link, self.stream)
        # guard: remade-stream-from-beginning
        return resume_seq if resume_seq <= newest_seq + 1 else "all"

    def _fresh(self, start: FeedStart | None) -> JsonObject:
        return {
            "name": self.name,
            "durable_name": self.name,
            "ack_policy": "explicit",
            "ack_wait": ACK_WAIT_S * NS_PER_S,
            "max_deliver": -1,
            "max_ack_pending": UNANSWERED_MAX,
            **_policy(start),
        }


def _policy(start: FeedStart | None) -> JsonObject:
    match start:
        case None | "all":
            return {"deliver_policy": "all"}
        case "new":
            return {"deliver_policy": "new"}
        case datetime():
            return {
                "deliver_policy": "by_start_time",
                "opt_start_time": stored.in_server_time(start),
            }
        case int():
            return {"deliver_policy": "by_start_sequence", "opt_start_seq": start}


def _acknowledged_seq(info: JsonObject) -> int:
    return int(info["ack_floor"]["stream_seq"])


def _filters(config: JsonObject) -> set[str]:
    single = config.get("filter_subject")
    return {single} if single else set(config.get("filter_subjects", []))


def _filtered(config: JsonObject, filters: Collection[str]) -> JsonObject:
    kept = {key: value for key, value in config.items() if key != "filter_subject"}
    return {**kept, "filter_subjects": sorted(filters)}


def cannot(name: str, error: api.RequestRefused) -> StreamError:
    """Return what to raise when the server refuses to make or change a consumer."""
    if error.code >= _SERVER_FAULT or error.err_code == api.STREAM_NOT_FOUND:
        return Unavailable(f"consumer {name}", detail=str(error))
    if error.err_code == api.TOO_MANY_CONSUMERS:  # guard: consumer-limit-told
        return Incompatible(
            f"the server refuses consumer {name}: {error}",
            remedy=f"Allow its stream more with `nats stream edit STREAM --max-consumers "
            f"{CONSUMERS_MAX}`, or the account if it has a limit; then it is made by itself.",
        )
    return Incompatible(
        f"the server refuses consumer {name}: {error}",
        remedy="Delete the consumer, or what is in its way; it is made again at the next start.",
    )
