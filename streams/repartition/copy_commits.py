"""Copies the commits of a stack's journal or state, or the commands of its work, to another layout.

Aggregates keep the order of their commits; sequences, which are their versions, change. The order
of two aggregates is not kept, and the engine relies on none. The source must be at rest, and nobody
else may write to the targets: each batch names the sequence that its stream must be at, so a second
copier is refused.

Every copy says in a header where it is from. What a target holds is therefore a beginning of
what belongs there, and its last message says how far it goes: a copy that was cut off goes on
behind that. Once all is copied `verify` reads both sides again, message by message.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from streams.errors import Incompatible, StreamError, Unavailable
from streams.jetstream.connection import headers
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import api, stored
from streams.jetstream.messages.arrival import Arrival
from streams.jetstream.messages.publish import BatchRefused, Patience, Publisher, Write
from streams.jetstream.messages.stored import Stored
from streams.jetstream.ports.follow import OrderedReader, Tails
from streams.layout import Stream
from streams.subjects import Stack
from streams.wire.messages import MESSAGE_ID_HEADER

BATCH_MAX: Final = 500
"""Messages that are stored together; the server takes 1,000."""

BATCH_BYTES_MAX: Final = 4 * 1024 * 1024
"""Most that the bodies of one batch hold, unless one message alone holds more."""

READ_MAX: Final = 500
READ_S: Final = 5.0
"""Longest wait for the next message of a stream that is known to hold one."""

TOLD_EVERY: Final = 1_000
"""Messages between two reports of progress."""

Tell: TypeAlias = Callable[[int], None]

_Mark: TypeAlias = tuple[int, int]
"""Partition and sequence of the original, which come in this order."""

_NOTHING: Final[_Mark] = (-1, 0)
"""Before everything."""

_NOT_COPIED: Final = frozenset(
    {
        headers.BATCH,
        headers.BATCH_PLACE,
        headers.BATCH_END,
        headers.EXPECTED_SEQ,
        headers.EXPECTED_LAST,
        headers.COPIED_FROM,
        MESSAGE_ID_HEADER,  # guard: commands-of-one-id-apart
    }
)
"""Headers that are about the storing of the original.

A command's id among them: a stream knows an id for two minutes only, so two commands of one id may
wait, and a batch with both is refused. Nobody needs it any more: repeated commands are harmless
because of versions, and a copy is stored once because it names its original.
"""


@dataclass(frozen=True, kw_only=True)
class CommitCopy:
    """The copying of one stream of a stack, from one layout to another."""

    link: Link
    stream: Stream
    old: Stack
    new: Stack

    async def count(self) -> int:
        """Return how many messages there are to copy."""
        return sum([await _held(self.link, name) for name in self._names(self.old)])

    async def copy(self, tell: Tell) -> None:
        """Copy what is not copied yet; `Incompatible`: a strange message, or another writer."""
        targets = {name: await self._target(name) for name in self._names(self.new)}
        done = 0
        async with aclosing(self._originals()) as originals:
            async for mark, message in originals:
                done += 1
                if done % TOLD_EVERY == 0:
                    tell(done)
                write = self._copy_of(mark, message)
                await targets[self.new.stream_of(write.subject)].take(write, mark)
        for target in targets.values():
            await target.flush()
        tell(done)

    async def verify(self, tell: Tell) -> None:
        """Compare both sides, message by message; raise `Incompatible` where they differ."""
        done = 0
        async with AsyncExitStack() as opened, aclosing(self._originals()) as originals:
            copies = {
                self.new.stream(self.stream, each): await opened.enter_async_context(
                    aclosing(self._messages(self.new, each))
                )
                for each in self.new.partitions_of(self.stream)
            }
            async for mark, message in originals:
                done += 1
                if done % TOLD_EVERY == 0:
                    tell(done)
                expected = self._copy_of(mark, message)
                found = await anext(copies[self.new.stream_of(expected.subject)], None)
                _require_same(expected, found)
            for name, rest in copies.items():
                if await anext(rest, None) is not None:
                    raise _differs(name, "holds more than was copied there")
        tell(done)

    async def _originals(self) -> AsyncGenerator[tuple[_Mark, Stored | Arrival], None]:
        for partition in self.old.partitions_of(self.stream):
            async with aclosing(self._messages(self.old, partition)) as found:
                async for message in found:
                    yield (partition, message.seq), message

    def _messages(self, stack: Stack, partition: int) -> AsyncGenerator[Stored | Arrival, None]:
        name = stack.stream(self.stream, partition)
        if self.stream is not Stream.WORK:
            return _all(self.link, name)
        # A queue lets nobody read it but its consumers; what is left in one is little.
        return stored.one_by_one(self.link, name, stack.every_inbox(partition))

    def _copy_of(self, mark: _Mark, message: Stored | Arrival) -> Write:
        kept = {name: said for name, said in message.headers.items() if name not in _NOT_COPIED}
        subject = self.old.moved(message.subject, to=self.new)
        said = {**kept, headers.COPIED_FROM: f"{mark[0]} {mark[1]}"}
        return Write(subject, bytes(message.data), said, key=subject)

    async def _target(self, name: str) -> _Target:
        newest_seq = (await stored.extent(self.link, name)).newest_seq
        last = await stored.at(self.link, name, newest_seq) if newest_seq else None
        return _Target(self.link, name, newest_seq, _origin_of(last) if last else _NOTHING)

    def _names(self, stack: Stack) -> list[str]:
        return [stack.stream(self.stream, each) for each in stack.partitions_of(self.stream)]


@dataclass
class _Target:
    """A stream that is being filled, and its position."""

    link: Link
    name: str
    newest_seq: int
    mark: _Mark
    waiting: list[Write] = field(default_factory=list)
    waiting_bytes: int = 0

    async def take(self, write: Write, mark: _Mark) -> None:
        """Store `write`, now or later, unless it is there."""
        if mark <= self.mark:  # guard: copied-once
            return
        size = len(write.data)
        if len(self.waiting) >= BATCH_MAX or self.waiting_bytes + size > BATCH_BYTES_MAX:
            await self.flush()
        self.waiting.append(write)
        self.waiting_bytes += size

    async def flush(self) -> None:
        patience = Patience(self.link, self.name)
        while self.waiting:
            try:
                await Publisher(self.link).store_all(self._checked())
            except (Unavailable, BatchRefused) as error:
                await self._settle(error, patience)
            else:
                self._is_stored()

    async def _settle(self, error: StreamError, patience: Patience) -> None:
        """Find out the outcome of a batch, and pause if it must be sent again."""
        newest_seq = (await stored.extent(self.link, self.name)).newest_seq
        if newest_seq == self.newest_seq:
            await patience.after(_as_unavailable(self.name, error))
        elif await self._is_ours(newest_seq):
            self._is_stored()
        else:
            raise _differs(self.name, "is written by somebody else") from error

    async def _is_ours(self, newest_seq: int) -> bool:
        last = await stored.at(self.link, self.name, newest_seq)
        said = last.headers.get(headers.COPIED_FROM) if last else None
        is_all = newest_seq == self.newest_seq + len(self.waiting)
        return is_all and said == self.waiting[-1].headers[headers.COPIED_FROM]

    def _checked(self) -> list[Write]:
        """Return the waiting messages, to be stored only after what is there."""
        first, *rest = self.waiting
        # guard: copy-behind-the-last
        said = {**first.headers, headers.EXPECTED_LAST: str(self.newest_seq)}
        return [first._replace(headers=said), *rest]

    def _is_stored(self) -> None:
        self.newest_seq += len(self.waiting)
        self.waiting, self.waiting_bytes = [], 0


async def _held(link: Link, name: str) -> int:
    info = await api.ask(link, f"STREAM.INFO.{name}", about=name)
    messages: int = info["state"]["messages"]
    return messages


async def _all(link: Link, name: str) -> AsyncGenerator[Stored | Arrival, None]:
    left = await _held(link, name)
    async with OrderedReader(link, name, lambda arrived: arrived, after=0, tails=Tails()) as reader:
        while left:
            found = await reader.receive(most=READ_MAX, wait_s=READ_S)
            if not found:
                raise Unavailable(name, detail=f"{left} messages of it did not come")
            left -= len(found)
            for each in found:
                yield each


def _require_same(expected: Write, found: Stored | Arrival | None) -> None:
    if found is None:
        raise _differs(expected.subject, "is not complete")
    kept = {
        name: said
        for name, said in found.headers.items()
        if name == headers.COPIED_FROM or name not in _NOT_COPIED
    }
    is_same = (found.subject, bytes(found.data), kept) == (
        expected.subject,
        expected.data,
        expected.headers,
    )
    if not is_same:
        raise _differs(found.subject, f"holds something else at {found.seq}")


def _origin_of(message: Stored) -> _Mark:
    """Return the partition and the sequence that a copy is from."""
    partition, _, seq = message.headers.get(headers.COPIED_FROM, "").partition(" ")
    if not partition.isdecimal() or not seq.isdecimal():
        raise _differs(message.subject, f"holds at {message.seq} what was not copied there")
    return int(partition), int(seq)


def _as_unavailable(name: str, error: StreamError) -> Unavailable:
    return error if isinstance(error, Unavailable) else Unavailable(name, detail=str(error))


def _differs(what: str, how: str) -> Incompatible:
    return Incompatible(
        f"{what} {how}",
        remedy="Go back to the layout before with `vigil repartition`, and begin again.",
    )
