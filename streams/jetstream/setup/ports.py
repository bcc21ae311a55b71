"""`connect`: all ports of one stack, on a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType

from streams.errors import Incompatible, Unavailable
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.settings import LinkSettings
from streams.jetstream.messages import api
from streams.jetstream.messages.deltas import CoreDeltas
from streams.jetstream.ports.bucket import JetStreamBucket
from streams.jetstream.ports.commands import JetStreamCommandQueue
from streams.jetstream.ports.configs import GATES_MARKER_S, kinds_of
from streams.jetstream.ports.domain_events import JetStreamDomainEvents
from streams.jetstream.ports.leases import JetStreamLeases
from streams.jetstream.ports.log import JetStreamLog
from streams.jetstream.ports.objects import JetStreamObjects
from streams.jetstream.ports.refusals import JetStreamRefusals
from streams.jetstream.ports.timers import JetStreamTimers
from streams.jetstream.sealing.subject_keys import JetStreamSubjectKeys
from streams.jetstream.setup import compression, setup
from streams.jetstream.setup.compression import require_uncompressed
from streams.jetstream.setup.rights import require_rights
from streams.jetstream.setup.setup import Inspection
from streams.jetstream.setup.states import JetStreamStates
from streams.layout import Stream
from streams.ports.all import Ports
from streams.ports.subject_keys import SubjectKeys
from streams.sealing.ports import sealed_ports
from streams.subjects import Stack


@asynccontextmanager
async def connect(
    url: str,
    *,
    stack: Stack,
    settings: LinkSettings | None = None,
    creates: bool = True,
    is_for_node: bool = False,
    is_reading: bool = False,
    known: Mapping[str, int] = MappingProxyType({}),
) -> AsyncIterator[Ports]:
    """Connect to `url`, create what is missing of `stack`, and yield its ports.

    `url` may have several servers of a cluster, separated by commas. The ports' `stack` has the
    partitions that the server says. The connection comes back by itself for as long as the context
    is open. Whoever runs no node asks for `creates=False`: a stack that does not exist is refused
    then, since its name may be misspelt. With `is_for_node`, the rights of a node are checked, and
    a compressed stream is changed, or refused. With `is_reading`, a stack that has lost its past is
    let through, for people who only look at it. `known` has positions that the rows know, by stream
    within the stack: then nothing is made anew.

    Raises:
        BadName: `url` has an invalid address, or there are no credentials where `settings` say.
        Unavailable: no server could be reached in `first_tries_s`, or it refused us.
        Incompatible: the server is too old, has no JetStream, or a stream contradicts us; or this
            user lacks a right.
        NoSuchStack: the stack is missing and must not be created.
        LogLost: a stream of the stack has lost its past, as somebody has noted; or is missing.
    """
    async with Link(url, settings or LinkSettings()) as link:
        stack, configs = await setup.prepare(
            link, stack, creates=creates, is_reading=is_reading, known=known
        )
        if is_for_node:
            await require_rights(link, stack)
            await require_uncompressed(link, configs)  # guard: node-changes-only-safe
        ports = _ports(link, stack)
        kinds = kinds_of(stack, configs)
        keys = JetStreamSubjectKeys(link, stack)
        # guard: encrypting-stack-has-sealed-ports
        yield sealed_ports(ports, keys, kinds, link.clock) if kinds else ports


@dataclass(frozen=True)
class EncryptedStack:
    """A stack as its servers have it, for who erases what it has of a subject of data."""

    ports: Ports
    """Without decryption."""
    opened: Ports
    """As everybody else has them."""
    keys: SubjectKeys
    kinds: Sequence[str]
    """The kinds of subjects whose data are encrypted."""
    link: Link

    async def overwrite_event(self, seq: int) -> None:
        """Remove one of the stack's events, and its bytes from the disk of each server."""
        stream = self.ports.stack.stream(Stream.EVENTS)
        try:
            await api.call(self.link, f"STREAM.MSG.DELETE.{stream}", {"seq": seq})
        except api.RequestRefused as error:
            if error.err_code != api.MESSAGE_NOT_FOUND:
                raise Unavailable(f"event {seq}", detail=str(error)) from error


@asynccontextmanager
async def connect_encrypted(
    url: str, *, stack: Stack, settings: LinkSettings | None = None
) -> AsyncIterator[EncryptedStack]:
    """Connect to a stack that encrypts what it has of its subjects, and to its keys.

    Raises as `connect` does, and `Incompatible` if it encrypts nothing.
    """
    async with Link(url, settings or LinkSettings()) as link:
        stack, configs = await setup.prepare(link, stack, creates=False)
        kinds = kinds_of(stack, configs)
        if not kinds:
            raise Incompatible(
                f"stack {stack.name} encrypts nothing, so nothing of it can be erased",
                remedy="`vigil encrypt --kind KIND` has it encrypt what is written from then on.",
            )
        ports, keys = _ports(link, stack), JetStreamSubjectKeys(link, stack)
        opened = sealed_ports(ports, keys, kinds, link.clock)
        yield EncryptedStack(ports, opened, keys, kinds, link)


def _ports(link: Link, stack: Stack) -> Ports:
    gates = JetStreamBucket(link, stack.gates_bucket(), marker_s=GATES_MARKER_S)
    return Ports(
        stack=stack,
        log=JetStreamLog(link, stack),
        commands=JetStreamCommandQueue(link, stack),
        leases=JetStreamLeases(link, stack),
        domain_events=JetStreamDomainEvents(link, stack, gates),
        # guard: deleted-setting-stays-deleted
        registry=JetStreamBucket(link, stack.registry_bucket(), marker_s=None),
        gates=gates,
        timers=JetStreamTimers(link, stack),
        objects=JetStreamObjects(link, stack.object_store()),
        refusals=JetStreamRefusals(link, stack),
        deltas=CoreDeltas(link, stack),
        states=JetStreamStates(link, stack),
    )


async def uncompress(
    url: str, *, stack: Stack, tell: compression.Tell, settings: LinkSettings | None = None
) -> Sequence[str]:
    """Store the streams of `stack` uncompressed from now on; return the names of those that change.

    Returns once no server can lose what is compressed, which may take minutes; `tell` is called
    with the stage, how much of it is done, and of how much. Interrupted, it can be called again.

    Raises as `connect` does, and `Unavailable` if a server is away for too long meanwhile.
    """
    async with Link(url, settings or LinkSettings()) as link:
        stack, _ = await setup.prepare(link, stack, creates=False)
        return await compression.uncompress(link, stack, tell)


async def inspect(url: str, *, stack: Stack, settings: LinkSettings | None = None) -> Inspection:
    """Return how the server at `url` and the streams of `stack` are, changing nothing.

    Raises as `connect` does, but for `Incompatible`: that is in the answer.
    """
    async with Link(url, settings or LinkSettings()) as link:
        return await setup.inspect(link, stack)
