"""The inboxes on JetStream: commands, queued per actor and per partition of the work."""

from __future__ import annotations

from streams import codec
from streams.commands import Command
from streams.delivery import Source, Unreadable
from streams.jetstream import stored
from streams.jetstream.arrival import Arrival
from streams.jetstream.consumer import DurableConsumer
from streams.jetstream.grouping import Groups, store_surely
from streams.jetstream.link import Link
from streams.jetstream.merge import MergedSource
from streams.jetstream.publish import Write
from streams.jetstream.source import JetStreamSource
from streams.parsing import message_headers, parse_command
from streams.subjects import Stack, Stream


class JetStreamInbox:
    """`Inbox` on the work of one stack."""

    def __init__(self, link: Link, stack: Stack) -> None:
        """Send and pull through `link`."""
        self._link = link
        self._stack = stack
        self._groups = Groups(link)

    async def send(
        self,
        command: Command,
        *,
        id: str,
        trace: str = "",
    ) -> None:
        """Queue `command`. See `Inbox.send`."""
        subject = self._stack.episode_inbox(command.actor_id, command.episode_id)
        more = message_headers(id=id, trace=trace)
        write = Write(subject, codec.encode_command(command), more, key=id)
        await store_surely(self._link, self._groups.to(self._stack.stream_of(subject)), write)

    async def is_waiting(self, actor: str, episode_id: str) -> bool:
        """Return whether a command waits. See `Inbox.is_waiting`."""
        # A work queue drops what is answered for, so whatever it holds still waits.
        subject = self._stack.episode_inbox(actor, episode_id)
        stream = self._stack.stream_of(subject)
        return await stored.last(self._link, stream, subject) is not None

    async def backlog(self, actor: str) -> int:
        """Return how many commands are not answered for. See `Inbox.backlog`."""
        partitions = self._stack.partitions_of(Stream.WORK)
        return sum([await self._consumer(actor, each).backlog(self._link) for each in partitions])

    async def open(self, actor: str) -> Source[Command | Unreadable]:
        """Return the actor's queue. See `Inbox.open`."""
        partitions = self._stack.partitions_of(Stream.WORK)
        sources = [await self._open(actor, partition) for partition in partitions]
        return sources[0] if len(sources) == 1 else MergedSource(sources, self._link.clock)

    async def _open(self, actor: str, partition: int) -> Source[Command | Unreadable]:
        consumer = self._consumer(actor, partition)
        await consumer.ensure(self._link)
        return JetStreamSource(self._link, consumer, self._parse)

    def _consumer(self, actor: str, partition: int) -> DurableConsumer:
        return DurableConsumer(
            stream=self._stack.stream(Stream.WORK, partition),
            name=self._stack.inbox_durable(actor),
            filters=(self._stack.actor_inbox(actor, partition),),
        )

    def _parse(self, arrived: Arrival) -> Command | Unreadable:
        return parse_command(
            arrived.data,
            arrived.headers,
            stream=self._stack.stream_of(arrived.subject),
            subject=arrived.subject,
            seq=arrived.seq,
        )
