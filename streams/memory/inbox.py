"""Commands in memory: a work queue per actor."""

from __future__ import annotations

from collections.abc import Mapping

from streams import codec
from streams.commands import Command
from streams.delivery import Unreadable
from streams.memory.durable import Durable, MemorySource
from streams.memory.stream import MemoryStream, Message
from streams.parsing import message_headers, parse_command
from streams.subjects import Stack


class MemoryInbox:
    """See `streams.inbox.Inbox`."""

    def __init__(self, stream: MemoryStream, *, stack: Stack) -> None:
        self._stream = stream
        self._stack = stack
        self._durables: dict[str, Durable] = {}

    async def send(self, command: Command, *, id: str, trace: str = "") -> None:  # noqa: A002
        """See `Inbox.send`."""
        subject = self._stack.episode_inbox(command.actor_id, command.episode_id)
        data = codec.encode_command(command)
        self._stream.publish(subject, data, message_headers(id=id, trace=trace))

    async def is_waiting(self, actor: str, episode_id: str) -> bool:
        """See `Inbox.is_waiting`."""
        sent = self._stream.of(self._stack.episode_inbox(actor, episode_id))
        queue = self._durables.get(self._stack.inbox_durable(actor))
        return any(queue is None or queue.is_waiting(message.seq) for message in sent)

    def publish_raw(self, subject: str, data: bytes, headers: Mapping[str, str]) -> int:
        """Put any bytes on an inbox's `subject`, as only a foreign client would.

        Returns:
            Its stream sequence: the first one's if its `Nats-Msg-Id` is known.
        """
        return self._stream.publish(subject, data, headers)

    async def open(self, actor: str) -> MemorySource[Command | Unreadable]:
        """See `Inbox.open`."""
        name = self._stack.inbox_durable(actor)
        if name not in self._durables:
            self._durables[name] = self._durable(actor)
        return MemorySource(self._durables[name], parse=self._parse)

    def _durable(self, actor: str) -> Durable:
        """Return the queue of `actor` from its beginning: commands wait for their first reader."""
        prefix = self._stack.actor_inbox(actor).removesuffix("*")
        return Durable(self._stream, after=0, matches=lambda subject: subject.startswith(prefix))

    def _parse(self, message: Message) -> Command | Unreadable:
        return parse_command(
            message.data,
            message.headers,
            stream=self._stream.name,
            subject=message.subject,
            seq=message.seq,
        )
