"""How the streams and buckets of a stack are, by what their leaders say."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from streams.errors import Unavailable
from streams.jetstream.connection.link import Link, wait_set
from streams.jetstream.messages import api
from streams.jetstream.messages.arrival import Arrival
from streams.jetstream.ports.configs import NS_PER_S, names_of
from streams.jetstream.ports.follow import OrderedReader, Tails
from streams.jetstream.setup.setup import info_of
from streams.json import JsonObject
from streams.model.losses import StreamState
from streams.ports.states import RawMessage, RawReader
from streams.subjects import Stack

HEARD_S_MAX: Final = 3.0
"""Longest ago that a leader has heard from a copy that counts as with it, in seconds.

Copies elect another leader when they have not heard from theirs for 4 s at least
(`minElectionTimeout` of nats-server). So one that has heard from most copies since then has no
successor, and knows all that was acknowledged.
"""


class JetStreamStates:
    """See `StreamStates`."""

    def __init__(self, link: Link, stack: Stack) -> None:
        self._link = link
        self._names = names_of(stack)

    @property
    def parts(self) -> Sequence[str]:
        """See `StreamStates.parts`."""
        return list(self._names)

    async def of(self, part: str) -> StreamState | None:
        """See `StreamStates.of`."""
        name = self._names[part]
        info = await info_of(self._link, name)
        if info is None:
            return None
        if not is_led(info):
            raise Unavailable(f"stream {name}", detail="its leader may be cut off")
        return state_in(info)

    def newest(self, part: str) -> int:
        """See `StreamStates.newest`."""
        return self._link.newest(self._names[part])

    async def wait_doubt(self, *, within_s: float) -> bool:
        """See `StreamStates.wait_doubt`."""
        await wait_set(self._link.misses_stream, timeout_s=within_s)
        is_missed = self._link.misses_stream.is_set()
        self._link.misses_stream.clear()
        return is_missed

    def read(self, part: str, *, after: int) -> AbstractAsyncContextManager[RawReader]:
        """See `StreamStates.read`."""
        # With tails of its own: it may be far behind those who follow the stream.
        return OrderedReader(self._link, self._names[part], _as_stored, after=after, tails=Tails())

    async def purge(self, part: str, *, below: int) -> int:
        """See `StreamStates.purge`."""
        stream = self._names[part]
        # Asked once: how long it takes is what the caller wants to know.
        try:
            answer = await api.call(
                self._link, f"STREAM.PURGE.{stream}", {"seq": below}, asks_max=1
            )
        except api.RequestRefused as error:
            raise Unavailable(f"stream {stream}", detail=str(error)) from error
        purged: int = answer["purged"]
        return purged


def _as_stored(arrived: Arrival) -> RawMessage:
    return RawMessage(
        seq=arrived.seq,
        subject=arrived.subject,
        headers=arrived.headers,
        data=arrived.data,
        at=arrived.at,
    )


def state_in(info: JsonObject) -> StreamState:
    """Return what a stream's leader says of it."""
    state = info["state"]
    return StreamState(
        created=info["created"],
        first_seq=state["first_seq"],
        last_seq=state["last_seq"],
        messages=state["messages"],
        copies=info["config"].get("num_replicas", 1),
        subjects=state.get("num_subjects", 0),
    )


def is_led(info: JsonObject) -> bool:
    """Return whether who answered hears from most copies, and so still is the leader."""
    replicas = (info.get("cluster") or {}).get("replicas") or ()
    heard = sum(
        not each.get("offline") and each.get("active", 0) <= HEARD_S_MAX * NS_PER_S
        for each in replicas
    )
    copies: int = info["config"].get("num_replicas", 1)
    is_heard: bool = heard >= copies // 2  # guard: loss-lonely-leader-doubted
    return is_heard
