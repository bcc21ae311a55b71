"""Commands on JetStream: work queues per actor or workflow, and per partition."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from streams.jetstream.connection.link import Link
from streams.jetstream.messages import stored
from streams.jetstream.messages.arrival import Arrival
from streams.jetstream.messages.grouping import Groups, store_surely
from streams.jetstream.messages.publish import Write
from streams.jetstream.ports.consumer import DurableConsumer
from streams.jetstream.ports.merge import MergedSource
from streams.jetstream.ports.source import JetStreamSource
from streams.layout import Stream
from streams.model.commands import Command, WorkflowCommand
from streams.ports.delivery import Source, Unreadable
from streams.subjects import Stack
from streams.wire import codec
from streams.wire.messages import (
    Parse,
    inbox_of,
    message_headers,
    parse_command,
    parse_workflow_command,
)

C = TypeVar("C")


class JetStreamCommandQueue:
    """`CommandQueue` on the work of one stack."""

    def __init__(self, link: Link, stack: Stack) -> None:
        self._link = link
        self._stack = stack
        self._groups = Groups(link)

    async def send(
        self,
        command: Command | WorkflowCommand,
        *,
        id: str,
        trace: str = "",
    ) -> None:
        """See `CommandQueue.send`."""
        subject = inbox_of(self._stack, command)
        more = message_headers(id=id, trace=trace)
        write = Write(subject, codec.encode_command(command), more, key=id)
        await store_surely(self._link, self._groups.to(self._stack.stream_of(subject)), write)

    async def is_waiting(self, actor: str, episode_id: str) -> bool:
        """See `CommandQueue.is_waiting`."""
        # A work queue drops what is answered for, so whatever it holds still waits.
        for commands in (self._stack.episode_inbox, self._stack.attending_inbox):
            subject = commands(actor, episode_id)
            stream = self._stack.stream_of(subject)
            if await stored.last(self._link, stream, subject) is not None:
                return True
        return False

    async def backlog(self, actor: str) -> int:
        """See `CommandQueue.backlog`."""
        return sum(
            [
                await consumer(actor, each).backlog(self._link)
                for each in self._stack.partitions_of(Stream.WORK)
                for consumer in (self._consumer, self._attending)
            ]
        )

    async def open(self, actor: str) -> Source[Command | Unreadable]:
        """See `CommandQueue.open`."""
        return await self._open(partial(self._consumer, actor), parse_command)

    async def open_attending(self, actor: str) -> Source[Command | Unreadable]:
        """See `CommandQueue.open_attending`."""
        return await self._open(partial(self._attending, actor), parse_command)

    async def open_workflow(self, workflow: str) -> Source[WorkflowCommand | Unreadable]:
        """See `CommandQueue.open_workflow`."""
        return await self._open(partial(self._conductors, workflow), parse_workflow_command)

    async def _open(
        self, consumer_of: Callable[[int], DurableConsumer], parse: Parse[C]
    ) -> Source[C | Unreadable]:
        """Return one source of what the consumers of all partitions deliver."""

        def parsed(arrived: Arrival) -> C | Unreadable:
            return parse(arrived, stream=self._stack.stream_of(arrived.subject))

        sources = []
        for partition in self._stack.partitions_of(Stream.WORK):
            consumer = consumer_of(partition)
            await consumer.ensure(self._link)
            sources.append(JetStreamSource(self._link, consumer, parsed))
        return sources[0] if len(sources) == 1 else MergedSource(sources, self._link.clock)

    def _consumer(self, actor: str, partition: int) -> DurableConsumer:
        return DurableConsumer(
            stream=self._stack.stream(Stream.WORK, partition),
            name=self._stack.inbox_durable(actor),
            filters=(self._stack.actor_inbox(actor, partition),),
        )

    def _attending(self, actor: str, partition: int) -> DurableConsumer:
        return DurableConsumer(
            stream=self._stack.stream(Stream.WORK, partition),
            name=self._stack.attending_durable(actor),
            filters=(self._stack.attending_inboxes(actor, partition),),
        )

    def _conductors(self, workflow: str, partition: int) -> DurableConsumer:
        return DurableConsumer(
            stream=self._stack.stream(Stream.WORK, partition),
            name=self._stack.workflow_durable(workflow),
            filters=(self._stack.workflow_inboxes(workflow, partition),),
        )
