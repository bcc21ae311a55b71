"""Moves a stack to another number of partitions, while nobody uses it.

    mark ──▶ nobody runs? ──▶ retire old streams ──▶ all followed up? ──▶ make new ones ─┐
                                                                                         │
              switch ◀── verify ◀── carry timers ◀── verify ◀── copy ◀───────────────────┘

The registry's metadata names the layout in use, and the one that is being made; meanwhile nobody
can connect. Retired streams get other subjects, so a node that still runs cannot write to them;
their subjects are of no other stream, except that a single journal takes everything that begins as
its own do. Only then, when no commit can be added any more, it is checked that the reactors have
followed all of them; if not, the old streams are put to use again. The switch is one write of that
metadata. A lease keeps two runs apart. Every stage may be interrupted and repeated: the same
command continues, and one that asks for the old number goes back, unless the switch was made. Only
the work starts again, since its timers fire while they are moved (`carry_timers.py`). Retired
streams are kept until `drop_retired`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final, NoReturn, TypeAlias, TypeVar

from streams.errors import Incompatible, LeaseLost, Unavailable
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.settings import LinkSettings
from streams.jetstream.messages import api
from streams.jetstream.ports.bucket import JetStreamBucket
from streams.jetstream.ports.configs import (
    GATES_MARKER_S,
    MOVING_TO,
    PARTITIONS,
    StackLayout,
    bucket_stream,
    partitioned,
)
from streams.jetstream.ports.leases import JetStreamLeases
from streams.jetstream.setup import setup
from streams.jetstream.setup.losses import forget_streams
from streams.jetstream.setup.past import require_unmarked
from streams.json import JsonObject
from streams.keys import LAYOUT_CLAIM
from streams.layout import AGGREGATE_STREAMS, Stream
from streams.ports.bucket import Bucket
from streams.ports.leases import Lease
from streams.repartition.carry_timers import TimerCopy
from streams.repartition.copy_commits import CommitCopy
from streams.repartition.positions import require_followed, write_positions
from streams.repartition.users import require_unused
from streams.subjects import Stack

T = TypeVar("T")

KEPT_FIELDS: Final = ("num_replicas", "placement")
"""Fields that the new streams inherit from the old ones, whatever the settings."""

RENEWALS_PER_LEASE: Final = 3

Tell: TypeAlias = Callable[[str, int, int], None]
"""Called with the stage, how many messages are done, and of how many."""


async def repartition(
    url: str, *, stack: Stack, to: int, tell: Tell, settings: LinkSettings | None = None
) -> Stack:
    """Move the journal, the state and the work of `stack` to `to` partitions; return the new stack.

    If `to` is the number that the stack has, go back to it from a move that was cut off.

    Raises:
        BadName: `to` is not from 1 to `PARTITIONS_MAX`.
        Incompatible: somebody uses the stack, reactors are behind, it is on its way to another
            number, retired streams are in the way, or a copy differs. The message says what to do.
        LeaseLost: the server was away for so long that another run may do the same by now.
    """
    new = Stack(stack.name, to)
    async with Link(url, settings or LinkSettings()) as link, _alone(link, stack) as held:
        await held.during(_change(link, new, held, tell))
    return new


async def drop_retired(
    url: str, *, stack: Stack, settings: LinkSettings | None = None
) -> Sequence[str]:
    """Delete the streams of unused layouts; return their names.

    Raises:
        Incompatible: the stack is on its way to another number of partitions.
        LeaseLost: the server was away for so long that another run may do the same by now.
    """
    async with Link(url, settings or LinkSettings()) as link, _alone(link, stack) as held:
        return await held.during(_drop_retired(link, stack))


@dataclass(frozen=True)
class _Move:
    link: Link
    old: Stack
    new: Stack
    held: _TakenLease
    tell: Tell


async def _change(link: Link, new: Stack, held: _TakenLease, tell: Tell) -> None:
    layout = await _layout(link, new)
    move = _Move(link, Stack(new.name, layout.partitions), new, held, tell)
    if new.partitions != layout.partitions:
        await _move(move, layout)
    elif layout.moving_to is not None:
        await _go_back(move, layout)


async def _drop_retired(link: Link, stack: Stack) -> Sequence[str]:
    layout = await _layout(link, stack)
    if layout.moving_to is not None:
        raise setup.on_its_way(stack, layout)
    names = await _retired_names(link, stack)
    for name in names:
        await api.ask(link, f"STREAM.DELETE.{name}", about=name)
    return names


async def _move(move: _Move, layout: StackLayout) -> None:
    link, old, new = move.link, move.old, move.new
    if layout.moving_to not in {None, new.partitions}:  # guard: second-move-refused
        raise setup.on_its_way(old, layout)
    if layout.moving_to is None:
        await _require_room(link, old)
    await _begin(move, layout)
    await _retire(link, old)  # guard: reactors-checked-after-retiring
    await _require_followed(move, layout)
    await _make_streams(link, old, new)
    for stream in (*AGGREGATE_STREAMS, Stream.WORK):
        await _copy(CommitCopy(link=link, stream=stream, old=old, new=new), move.tell)
    carrying = TimerCopy(link=link, old=old, new=new, check=move.held.check)
    await carrying.carry(lambda done: move.tell("carried, timers", done, done))
    await _switch(move)


async def _begin(move: _Move, layout: StackLayout) -> None:
    """Let nobody connect any more, and check that nobody is connected."""
    await _mark(move.link, move.old, replace(layout, moving_to=move.new.partitions))
    try:
        await require_unused(move.link, move.old)  # guard: used-stack-not-moved
    except Incompatible:
        await _mark(move.link, move.old, layout)
        raise


async def _require_followed(move: _Move, layout: StackLayout) -> None:
    """Check that nothing is left to follow up in the retired streams; else go back."""
    try:
        await require_followed(move.link, _gates(move), move.old)
    except Incompatible:
        await _go_back(move, replace(layout, moving_to=move.new.partitions))
        raise


async def _switch(move: _Move) -> None:
    await write_positions(move.link, _gates(move), move.new, check=move.held.check)
    await forget_streams(move.link, move.new)  # guard: loss-replaced-forgotten
    await move.held.check()  # guard: lost-lease-uses-nothing
    await _mark(move.link, move.new, StackLayout(move.new.partitions))


def _gates(move: _Move) -> Bucket:
    return JetStreamBucket(move.link, move.old.gates_bucket(), marker_s=GATES_MARKER_S)


async def _retire(link: Link, stack: Stack) -> None:
    for name, _ in _streams(link, stack):
        await _hold(link, name, [stack.retired(name)])


async def _make_streams(link: Link, old: Stack, new: Stack) -> None:
    """Make the streams of the other layout where they are missing."""
    before = await _config(link, old.stream(Stream.JOURNAL))
    kept: JsonObject = {field: before[field] for field in KEPT_FIELDS if field in before}
    # guard: carry-into-new-streams
    await _drop(link, [new.stream(Stream.WORK, each) for each in new.partitions_of(Stream.WORK)])
    for _, ours in _streams(link, new):
        await setup.ensure(link, {**ours, **kept})


async def _copy(copying: CommitCopy, tell: Tell) -> None:
    total = await copying.count()
    name = copying.stream.value
    await copying.copy(lambda done: tell(f"copied, {name}", done, total))
    # guard: copies-compared-before-use
    await copying.verify(lambda done: tell(f"verified, {name}", done, total))


async def _go_back(move: _Move, layout: StackLayout) -> None:
    """Give up what was begun: remove the copies, and put the old streams to use again."""
    link, old = move.link, move.old
    assert layout.moving_to not in {None, old.partitions}, "what is given up has other names"
    await _drop(link, [name for name, _ in _streams(link, Stack(old.name, layout.moving_to))])
    for name, ours in _streams(link, old):
        await _hold(link, name, ours["subjects"])
    await _mark(link, old, replace(layout, moving_to=None))


async def _drop(link: Link, names: Sequence[str]) -> None:
    for name in names:
        if await setup.config_of(link, name) is not None:
            await api.ask(link, f"STREAM.DELETE.{name}", about=name)


@dataclass
class _TakenLease:
    """The right to change the layout, which is renewed for as long as that takes."""

    link: Link
    leases: JetStreamLeases
    lease: Lease

    async def during(self, work: Coroutine[object, object, T]) -> T:
        """Return the result of `work`, which is stopped as soon as the right is lost."""
        working, keeping = asyncio.create_task(work), asyncio.create_task(self._keep())
        try:
            await asyncio.wait({working, keeping}, return_when=asyncio.FIRST_COMPLETED)
            return await (working if working.done() else keeping)  # guard: lost-lease-stops-move
        finally:
            working.cancel()
            keeping.cancel()
            await asyncio.gather(working, keeping, return_exceptions=True)

    async def _keep(self) -> NoReturn:
        while True:
            await self.link.clock.sleep(self.leases.ttl_s / RENEWALS_PER_LEASE)
            with suppress(Unavailable):
                self.lease = await self.leases.renew(self.lease)

    async def check(self) -> None:
        if not await self.leases.owns(self.lease):
            raise LeaseLost(self.lease.key, revision=self.lease.revision)


@asynccontextmanager
async def _alone(link: Link, stack: Stack) -> AsyncIterator[_TakenLease]:
    await setup.check_server(link)
    await require_unmarked(link, stack)  # guard: loss-stack-not-moved
    await _layout(link, stack)
    leases = JetStreamLeases(link, stack)
    lease = await leases.acquire(LAYOUT_CLAIM, holder=link.settings.name)
    if lease is None:
        raise Incompatible(
            f"somebody else changes the layout of stack {stack.name}",
            remedy="Wait for the end of it; what a killed one held lapses by itself.",
        )
    held = _TakenLease(link, leases, lease)
    try:
        yield held
    finally:
        # Unanswered it lapses by itself, and what was done, or went wrong, is more worth saying.
        with suppress(Unavailable):  # guard: unended-lease-hides-nothing
            await leases.complete(held.lease)


def _streams(link: Link, stack: Stack) -> list[tuple[str, JsonObject]]:
    return [(str(ours["name"]), ours) for ours in partitioned(stack, link.settings)]


async def _layout(link: Link, stack: Stack) -> StackLayout:
    return setup.layout_of(stack, await _config(link, bucket_stream(stack.registry_bucket())))


async def _mark(link: Link, stack: Stack, layout: StackLayout) -> None:
    """Write down which layout is in use from now on, and which one is being made."""
    name = bucket_stream(stack.registry_bucket())
    config = await _config(link, name)
    others = {
        key: said
        for key, said in (config.get("metadata") or {}).items()
        if key not in {PARTITIONS, MOVING_TO}
    }
    said = {**others, **layout.as_metadata()}
    await api.ask(link, f"STREAM.UPDATE.{name}", {**config, "metadata": said}, about=name)


async def _hold(link: Link, name: str, subjects: Sequence[str]) -> None:
    config = await _config(link, name)
    if config["subjects"] != subjects:
        wanted = {**config, "subjects": list(subjects)}
        await api.ask(link, f"STREAM.UPDATE.{name}", wanted, about=name)


async def _require_room(link: Link, stack: Stack) -> None:
    names = await _retired_names(link, stack)
    if names:
        raise Incompatible(
            f"stack {stack.name} still has the {len(names)} streams of the layout before, "
            f"such as {names[0]}",
            remedy="Delete them with `vigil repartition --drop-old`.",
        )


async def _retired_names(link: Link, stack: Stack) -> list[str]:
    # All of them are on the first page: it has 1,024.
    which = {"subject": stack.retired("*")}
    found = await api.ask(link, "STREAM.NAMES", which, about=stack.name)
    return sorted(found["streams"] or [])


async def _config(link: Link, name: str) -> JsonObject:
    config = await setup.config_of(link, name)
    if config is None:
        raise Incompatible(
            f"there is no stream {name}", remedy="Is that the stack? Any node makes its streams."
        )
    return config
