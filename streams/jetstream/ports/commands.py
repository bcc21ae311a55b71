"""Commands on JetStream: work queues per actor or workflow, and per partition."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from streams.jetstream.connection.link import Link
from streams.jetstream.messages import stored
from streams.jetstream.messages.arrival import Arrival
from streams.jetstream.messages.grouping import Groups, store_surely
from streams.jetstream.messages.publish import Write
from streams.jetstream.ports.consumer import DurableConsumer
from streams.jetstream.ports.merge import open_work, work_consumers
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
        consumers = [*self._calls(actor), *self._attending(actor)]
        return sum([await each.backlog(self._link) for each in consumers])

    async def open(self, actor: str) -> Source[Command | Unreadable]:
        """See `CommandQueue.open`."""
        return await self._open(self._calls(actor), parse_command)

    async def open_attending(self, actor: str) -> Source[Command | Unreadable]:
        """See `CommandQueue.open_attending`."""
        return await self._open(self._attending(actor), parse_command)

    async def open_workflow(self, workflow: str) -> Source[WorkflowCommand | Unreadable]:
        """See `CommandQueue.open_workflow`."""
        inboxes = partial(self._stack.workflow_inboxes, workflow)
        consumers = work_consumers(self._stack, self._stack.workflow_durable(workflow), inboxes)
        return await self._open(consumers, parse_workflow_command)

    async def _open(
        self, consumers: Sequence[DurableConsumer], parse: Parse[C]
    ) -> Source[C | Unreadable]:
        def parsed(arrived: Arrival) -> C | Unreadable:
            return parse(arrived, stream=self._stack.stream_of(arrived.subject))

        return await open_work(self._link, consumers, parsed)

    def _calls(self, actor: str) -> list[DurableConsumer]:
        inbox = partial(self._stack.actor_inbox, actor)
        return work_consumers(self._stack, self._stack.inbox_durable(actor), inbox)

    def _attending(self, actor: str) -> list[DurableConsumer]:
        inboxes = partial(self._stack.attending_inboxes, actor)
        return work_consumers(self._stack, self._stack.attending_durable(actor), inboxes)
