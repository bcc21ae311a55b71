"""Commands in memory: work queues per actor or workflow, and per partition of the work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from streams.layout import Kind, Stream
from streams.memory.durable import Durable, MemorySource
from streams.memory.stream import MemoryStream
from streams.model.commands import Command, WorkflowCommand
from streams.ports.delivery import Unreadable
from streams.subjects import Stack
from streams.wire import codec
from streams.wire.messages import (
    Parse,
    StreamMessage,
    inbox_of,
    message_headers,
    parse_command,
    parse_workflow_command,
)

C = TypeVar("C")


class MemoryCommandQueue:
    """See `streams.ports.commands.CommandQueue`. Its `streams` are known by their names."""

    def __init__(self, streams: Mapping[str, MemoryStream], *, stack: Stack) -> None:
        self._streams = streams
        self._stack = stack
        self._durables: dict[tuple[str, int], Durable] = {}
        """By name and partition, as the streams of a server keep theirs apart."""

    async def send(self, command: Command | WorkflowCommand, *, id: str, trace: str = "") -> None:
        """See `CommandQueue.send`."""
        subject = inbox_of(self._stack, command)
        data = codec.encode_command(command)
        self.publish_raw(subject, data, message_headers(id=id, trace=trace))

    async def is_waiting(self, actor: str, episode_id: str) -> bool:
        """See `CommandQueue.is_waiting`."""
        stack = self._stack
        said = stack.attending_durable(actor), stack.attending_inbox(actor, episode_id)
        calls = stack.inbox_durable(actor), stack.episode_inbox(actor, episode_id)
        return any(self._is_waiting(name, at, episode_id) for name, at in (calls, said))

    async def backlog(self, actor: str) -> int:
        """See `CommandQueue.backlog`."""
        names = self._stack.inbox_durable(actor), self._stack.attending_durable(actor)
        partitions = self._stack.partitions_of(Stream.WORK)
        queues = {(name, each) for name in names for each in partitions}
        return sum(self._durables[queue].backlog for queue in queues & self._durables.keys())

    def publish_raw(self, subject: str, data: bytes, headers: Mapping[str, str]) -> int:
        """Put any bytes on an inbox's `subject`, as a foreign client would; return the sequence."""
        return self._streams[self._stack.stream_of(subject)].publish(subject, data, headers)

    def durables(self) -> Iterator[tuple[str, Durable]]:
        """Yield every queue that was ever opened, with its name, from each partition."""
        yield from ((name, each) for (name, _), each in self._durables.items())

    async def open(self, actor: str) -> MemorySource[Command | Unreadable]:
        """See `CommandQueue.open`."""
        durable = self._stack.inbox_durable(actor)
        queues = self._queues(durable, partial(self._stack.actor_inbox, actor))
        return MemorySource(queues, parse=self._parser(parse_command))

    async def open_attending(self, actor: str) -> MemorySource[Command | Unreadable]:
        """See `CommandQueue.open_attending`."""
        durable = self._stack.attending_durable(actor)
        queues = self._queues(durable, partial(self._stack.attending_inboxes, actor))
        return MemorySource(queues, parse=self._parser(parse_command))

    async def open_workflow(self, workflow: str) -> MemorySource[WorkflowCommand | Unreadable]:
        """See `CommandQueue.open_workflow`."""
        durable = self._stack.workflow_durable(workflow)
        queues = self._queues(durable, partial(self._stack.workflow_inboxes, workflow))
        return MemorySource(queues, parse=self._parser(parse_workflow_command))

    def _is_waiting(self, durable: str, subject: str, episode_id: str) -> bool:
        sent = self._streams[self._stack.stream_of(subject)].of(subject)
        partition = self._stack.partition_of(Kind.EPISODE, episode_id)
        queue = self._durables.get((durable, partition))
        return any(queue is None or queue.is_waiting(message.seq) for message in sent)

    def _queues(self, name: str, filter_of: Callable[[int], str]) -> list[Durable]:
        partitions = self._stack.partitions_of(Stream.WORK)
        return [self._durable(name, filter_of(each), each) for each in partitions]

    def _durable(self, name: str, filter_: str, partition: int) -> Durable:
        """Return the queue of this name, from its beginning: commands wait for a first reader."""
        if (name, partition) not in self._durables:
            prefix = filter_.removesuffix("*")
            stream = self._streams[self._stack.stream(Stream.WORK, partition)]
            self._durables[name, partition] = Durable(
                stream, after=0, matches=lambda subject: subject.startswith(prefix)
            )
        return self._durables[name, partition]

    def _parser(self, parse: Parse[C]) -> Callable[[StreamMessage], C | Unreadable]:
        def parsed(message: StreamMessage) -> C | Unreadable:
            return parse(message, stream=self._stack.stream_of(message.subject))

        return parsed
