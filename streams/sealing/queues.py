"""Domain events, timers and commands of a stack that encrypts what it has of its subjects of data.

What other programs publish by themselves is as they publish it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from streams.json import UNDECODABLE, JsonObject
from streams.model.commands import Command, WorkflowCommand
from streams.model.foreign_streams import ForeignStream
from streams.ports.commands import CommandQueue
from streams.ports.delivery import OrderedSource, Source, Unreadable
from streams.ports.domain_events import (
    NO_HEADERS,
    DomainEvent,
    DomainEvents,
    FencedWriter,
    Publication,
    Sent,
)
from streams.ports.timers import Due, PendingTimer, Timer, Timers
from streams.sealing.contents import without_contents
from streams.sealing.payloads import seal_payload, unseal_payload
from streams.sealing.seals import Seals
from streams.sealing.sources import SealedOrderedSource, SealedSource
from streams.sealing.subjects import whose_command
from streams.wire import codec
from streams.wire.messages import event_body

C = TypeVar("C", bound=Command | WorkflowCommand)


class SealedEvents:
    """`DomainEvents` on others."""

    def __init__(self, events: DomainEvents, seals: Seals) -> None:
        self._events, self._seals = events, seals

    async def publish(
        self, name: str, payload: JsonObject, *, id: str, hops: int = 0, trace: str = ""
    ) -> int:
        """See `DomainEvents.publish`."""
        event_body(name, payload)  # Refused as it is, not as it is encrypted.
        sealed = await seal_payload(self._seals, payload, shows=True)
        return await self._events.publish(name, sealed, id=id, hops=hops, trace=trace)

    async def fence(self, name: str, payload: JsonObject, *, id: str) -> FencedWriter:
        """See `DomainEvents.fence`."""
        return _SealedWriter(await self._events.fence(name, payload, id=id), self._seals)

    async def republish(self, seq: int, *, id: str) -> int | None:
        """See `DomainEvents.republish`."""
        return await self._events.republish(seq, id=id)

    async def send(
        self,
        subject: str,
        data: bytes,
        *,
        id: str,
        headers: Mapping[str, str] = NO_HEADERS,
        hops: int = 0,
    ) -> Sent:
        """See `DomainEvents.send`; what others are to read is not encrypted."""
        return await self._events.send(subject, data, id=id, headers=headers, hops=hops)

    async def open(
        self, actor: str, names: Collection[str], *, after: int | None = None
    ) -> OrderedSource[DomainEvent | Unreadable]:
        """See `DomainEvents.open`."""
        source = await self._events.open(actor, names, after=after)
        return SealedOrderedSource(source, self._unsealed)

    async def open_feed(
        self, actor: str, feed: ForeignStream, *, after: int | None = None
    ) -> OrderedSource[DomainEvent | Unreadable]:
        """See `DomainEvents.open_feed`."""
        return await self._events.open_feed(actor, feed, after=after)

    async def stored(
        self, name: str, *, after: int, up_to: int
    ) -> Sequence[DomainEvent | Unreadable]:
        """See `DomainEvents.stored`."""
        found = await self._events.stored(name, after=after, up_to=up_to)
        return [await self._unsealed(each) for each in found]

    async def page(
        self, *, after: int, since: datetime | None = None
    ) -> Sequence[DomainEvent | Unreadable]:
        """See `DomainEvents.page`."""
        found = await self._events.page(after=after, since=since)
        return [await self._unsealed(each) for each in found]

    async def watched(self, actor: str) -> frozenset[str]:
        """See `DomainEvents.watched`."""
        return await self._events.watched(actor)

    async def unwatch(self, actor: str, names: Collection[str]) -> None:
        """See `DomainEvents.unwatch`."""
        await self._events.unwatch(actor, names)

    async def backlog(self, actor: str, feeds: Collection[ForeignStream] = ()) -> int:
        """See `DomainEvents.backlog`."""
        return await self._events.backlog(actor, feeds)

    async def _unsealed(self, event: DomainEvent | Unreadable) -> DomainEvent | Unreadable:
        if isinstance(event, Unreadable):
            return event
        payload = await unseal_payload(self._seals, event.payload)
        same = payload is event.payload
        return event if same else msgspec.structs.replace(event, payload=payload)


class _SealedWriter:
    def __init__(self, writer: FencedWriter, seals: Seals) -> None:
        self._writer, self._seals = writer, seals

    async def publish(self, events: Sequence[Publication]) -> None:
        await self._writer.publish([await self._sealed(each) for each in events])

    async def _sealed(self, event: Publication) -> Publication:
        payload: JsonObject = msgspec.json.decode(event.data)
        sealed = await seal_payload(self._seals, payload, shows=True)
        if sealed is payload:
            return event
        return msgspec.structs.replace(event, data=event_body(event.name, sealed))


class SealedTimers:
    """`Timers` on others."""

    def __init__(self, timers: Timers, seals: Seals) -> None:
        self._timers, self._seals = timers, seals

    async def arm(
        self, timer: Timer, *, at: datetime, expecting: int | None = None, trace: str = ""
    ) -> int:
        """See `Timers.arm`."""
        sealed = await self._sealed(timer)
        return await self._timers.arm(sealed, at=at, expecting=expecting, trace=trace)

    async def send(self, timer: Timer, *, id: str, trace: str = "") -> None:
        """See `Timers.send`."""
        await self._timers.send(await self._sealed(timer), id=id, trace=trace)

    async def pending(self, actor: str, purpose: str, key: str) -> PendingTimer | None:
        """See `Timers.pending`."""
        found = await self._timers.pending(actor, purpose, key)
        if found is None:
            return None
        payload = await unseal_payload(self._seals, found.payload)
        return msgspec.structs.replace(found, payload=payload)

    async def keys(self, actor: str, purpose: str) -> Sequence[str]:
        """See `Timers.keys`."""
        return await self._timers.keys(actor, purpose)

    async def cancel(
        self, actor: str, purpose: str, key: str, *, expecting: int | None = None
    ) -> None:
        """See `Timers.cancel`."""
        await self._timers.cancel(actor, purpose, key, expecting=expecting)

    async def backlog(self, actor: str) -> int:
        """See `Timers.backlog`."""
        return await self._timers.backlog(actor)

    async def open(self, actor: str) -> Source[Due | Unreadable]:
        """See `Timers.open`."""
        return SealedSource(await self._timers.open(actor), self._unsealed)

    async def _sealed(self, timer: Timer) -> Timer:
        payload = await seal_payload(self._seals, timer.payload, shows=False)
        return msgspec.structs.replace(timer, payload=payload)

    async def _unsealed(self, due: Due | Unreadable) -> Due | Unreadable:
        if isinstance(due, Unreadable):
            return due
        payload = await unseal_payload(self._seals, due.payload)
        return msgspec.structs.replace(due, payload=payload)


class SealedCommands:
    """`CommandQueue` on another one."""

    def __init__(self, commands: CommandQueue, seals: Seals) -> None:
        self._commands, self._seals = commands, seals

    async def send(self, command: Command | WorkflowCommand, *, id: str, trace: str = "") -> None:
        """See `CommandQueue.send`."""
        emptied = without_contents(command)
        if emptied is not command:
            name = await self._seals.name_of(whose_command(command))
            if name:  # guard: command-is-encrypted
                sealed = await self._seals.seal(codec.encode_command(command), name)
                command = msgspec.structs.replace(emptied, sealed=sealed)
        await self._commands.send(command, id=id, trace=trace)

    async def is_waiting(self, actor: str, episode_id: str) -> bool:
        """See `CommandQueue.is_waiting`."""
        return await self._commands.is_waiting(actor, episode_id)

    async def backlog(self, actor: str) -> int:
        """See `CommandQueue.backlog`."""
        return await self._commands.backlog(actor)

    async def open(self, actor: str) -> Source[Command | Unreadable]:
        """See `CommandQueue.open`."""
        return SealedSource(await self._commands.open(actor), self._unsealed)

    async def open_attending(self, actor: str) -> Source[Command | Unreadable]:
        """See `CommandQueue.open_attending`."""
        return SealedSource(await self._commands.open_attending(actor), self._unsealed)

    async def open_workflow(self, workflow: str) -> Source[WorkflowCommand | Unreadable]:
        """See `CommandQueue.open_workflow`."""
        return SealedSource(
            await self._commands.open_workflow(workflow), self._unsealed_of_workflow
        )

    async def _unsealed(self, command: Command | Unreadable) -> Command | Unreadable:
        data = await self._opened(command)
        return command if data is None else codec.decode_command(data)

    async def _unsealed_of_workflow(
        self, command: WorkflowCommand | Unreadable
    ) -> WorkflowCommand | Unreadable:
        data = await self._opened(command)
        return command if data is None else codec.decode_workflow_command(data)

    async def _opened(self, command: Command | WorkflowCommand | Unreadable) -> bytes | None:
        """Return a command as it was; None: it is not encrypted, or its contents are erased."""
        if isinstance(command, Unreadable) or command.sealed is None:
            return None
        try:
            return await self._seals.unseal(command.sealed)
        except UNDECODABLE:  # Anyone may send what looks so.
            return None
