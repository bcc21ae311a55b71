"""Checks that the server can do what the engine needs, and creates missing streams.

Setup only creates. A stream that exists and contradicts us is an operator's decision or an
accident; it is reported and nothing starts. So is a stack that an unreleased version made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Final, cast

import msgspec

from streams.errors import Incompatible, NoSuchStack, Unavailable
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.session import NobodyServes
from streams.jetstream.messages import api
from streams.jetstream.ports.configs import (
    NS_PER_S,
    Contradiction,
    StackLayout,
    contradictions,
    layout_in,
    needs_change,
    registry,
    shapes,
    stacks_among,
    unlike,
)
from streams.jetstream.setup.cluster import servers_of
from streams.jetstream.setup.past import require_registry, require_unmarked, require_unnoted
from streams.json import JsonObject
from streams.subjects import Stack

SERVER_MIN: Final = (2, 12)
"""The first version with message schedules, atomic batches and per-message time to live."""

LOOKS_MAX: Final = 50  # guard: new-stream-awaited
"""Most looks for a stream that was just made: 10 s, the longest election of a busy machine."""

AWAY_S: Final = 5.0
"""Without a word for so long, a server is away, in seconds. Servers that share a stream speak every
second; that one is offline they say only after half a minute (2.15)."""

LOOK_S: Final = 0.2
"""Between two of them, in seconds."""

NAME_PAGES_MAX: Final = 8
"""Most pages of names of streams that are read; the server's have 1,024 each."""


@dataclass(frozen=True, kw_only=True)
class StreamReport:
    """How one stream or bucket is."""

    name: str
    exists: bool
    contradictions: tuple[Contradiction, ...] = ()
    replicas: int = 1
    is_compressed: bool = False
    """Or is being uncompressed."""
    behind: tuple[str, ...] = ()
    """Servers whose replica lacks something, or that are away, in words."""
    stored_bytes: int = 0
    first_at: datetime | None = None
    """When its oldest message was stored; None: it has none, or never had one."""
    last_at: datetime | None = None
    bytes_max: int | None = None
    """Where it is full; None: it has no limit."""
    kept_s: float | None = None
    """How long it keeps a message, in seconds; None: for ever."""


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What a look at a server found; nothing was changed."""

    server_version: str
    problem: str
    """Why the server, or the stack on it, cannot be used at all; empty when it can."""
    servers: Mapping[str, str] = field(default_factory=dict)
    """The version of each server of the cluster that answers, by its name."""
    partitions: int = 1
    """How many the stack has, or would have if a node made its streams now."""
    streams: tuple[StreamReport, ...] = ()


async def prepare(
    link: Link,
    stack: Stack,
    *,
    creates: bool = True,
    is_reading: bool = False,
    known: Mapping[str, int] = MappingProxyType({}),
) -> tuple[Stack, Sequence[JsonObject]]:
    """Create what `stack` needs and is missing.

    Return it with the partitions that it has, and the configurations of all its streams. With
    `is_reading`, marks of losses are passed over. `known`: positions that rows know.

    Raises:
        Incompatible: the server is too old, has no JetStream, or a stream contradicts us.
        NoSuchStack: there is none, and it must not be created.
        LogLost: a loss is marked, or a stream is missing that a node has seen.
    """
    await check_server(link)
    await require_registry(link, stack, known)  # guard: loss-registry-not-remade
    if not creates:  # guard: looking-makes-no-stack
        await _require_there(link, stack)
    if not is_reading:
        await require_unmarked(link, stack)  # guard: loss-mark-refused
    fresh = Stack(stack.name, link.settings.partitions or 1)
    layout = layout_of(stack, await ensure_stream(link, registry(fresh, link.settings)))
    _require_layout(stack, link.settings.partitions, layout)
    stack = Stack(stack.name, layout.partitions)
    guard = partial(require_unnoted, link, stack)
    ours = shapes(stack, link.settings)
    return stack, [await ensure(link, each, before_making=guard) for each in ours]


async def ensure(
    link: Link,
    ours: JsonObject,
    *,
    before_making: Callable[[str], Awaitable[None]] | None = None,
) -> JsonObject:
    """Create a stream or a bucket if it is missing, and return its configuration as it is.

    `before_making` is called with its name first, and may raise.

    Raises:
        Incompatible: it cannot be, or contradicts us.
    """
    theirs = await config_of(link, str(ours["name"]))
    if theirs is None:
        if before_making is not None:
            await before_making(str(ours["name"]))  # guard: loss-seen-not-remade
        theirs = await ensure_stream(link, ours)
    _require(contradictions(theirs, ours))
    return theirs


async def inspect(link: Link, stack: Stack) -> Inspection:
    """Return how the server and the streams of `stack` are, without changing anything."""
    version = link.session.server_version
    fresh = Stack(stack.name, link.settings.partitions or 1)
    try:
        await check_server(link)
        config = await config_of(link, str(registry(fresh, link.settings)["name"]))
        layout = StackLayout(fresh.partitions) if config is None else layout_of(stack, config)
        _require_settled(stack, layout)
    except Incompatible as error:
        return Inspection(server_version=version, problem=str(error))
    ours = shapes(Stack(stack.name, layout.partitions), link.settings)
    reports = [await _report(link, each) for each in ours]
    copies = max(each.replicas for each in reports)
    servers = await servers_of(link, expected=max(copies, len(link.session.servers)))
    return Inspection(
        server_version=version,
        problem="",
        servers={name: server.ver for name, server in servers.items()},
        partitions=layout.partitions,
        streams=tuple(reports),
    )


async def check_server(link: Link) -> None:
    """Raise `Incompatible` unless the server is new enough and runs JetStream."""
    version = link.session.server_version
    major, minor, _ = map(int, version.split("."))
    if (major, minor) < SERVER_MIN:
        raise Incompatible(
            f"nats-server {version} has no message schedules, atomic batches and "
            "per-message time to live",
            remedy="Upgrade it to 2.12 or newer.",
        )
    await _check_jetstream(link)


async def _check_jetstream(link: Link) -> None:
    try:
        await api.call(link, "INFO")
    except api.RequestRefused as error:
        if error.err_code not in {api.NOT_ENABLED, api.NOT_ENABLED_FOR_ACCOUNT}:
            raise Unavailable("JetStream", detail=str(error)) from error
        raise _without_jetstream() from error
    except NobodyServes as error:
        raise _without_jetstream() from error


def _without_jetstream() -> Incompatible:
    return Incompatible(
        "the server runs without JetStream, or this account may not use it",
        remedy="Start it with a `jetstream` block in its configuration, or enable the account; "
        "through a leaf node, say the domain of the hub.",
    )


async def ensure_stream(link: Link, ours: JsonObject) -> JsonObject:
    """Return the configuration of the stream as it is, after creating it if it was not."""
    theirs = await config_of(link, str(ours["name"]))
    if theirs is not None:
        return theirs
    try:
        asked = await _create(link, ours)
    except api.RequestRefused as error:
        if error.err_code != api.STREAM_NAME_IN_USE:
            raise _cannot_create(ours, error) from error
        return await require_config(link, str(ours["name"]))  # Another node was faster.
    return await read_back(link, asked)


async def _create(link: Link, ours: JsonObject) -> JsonObject:
    """Create a stream, and return what was asked for."""
    operation = f"STREAM.CREATE.{ours['name']}"
    try:
        await api.call(link, operation, ours)
    except api.RequestRefused as error:
        if error.err_code != api.TOO_MANY_CONSUMERS:  # guard: account-may-allow-fewer
            raise
    else:
        return ours
    # The account may have fewer.
    limited = {name: value for name, value in ours.items() if name != "max_consumers"}
    await api.call(link, operation, limited)
    return limited


async def read_back(link: Link, asked: JsonObject) -> JsonObject:
    """Return a stream's configuration, which must be all that was `asked` for.

    Raises:
        Incompatible: the server made something else of it.
    """
    theirs = await require_config(link, str(asked["name"]))
    for found in unlike(theirs, asked):  # guard: stream-settings-read-back
        raise Incompatible(
            f"stream {found.stream}: the server was asked for {found.field} {found.ours!r}, and "
            f"made {found.theirs!r}",
            remedy="Look into the server's log; another version of nats-server may do it.",
        )
    return theirs


async def require_config(link: Link, name: str) -> JsonObject:
    """Return the configuration of the stream called `name`, which somebody has just made.

    Of several servers, one may know that before another one does.
    """
    for _ in range(LOOKS_MAX):
        config = await config_of(link, name)
        if config is not None:
            return config
        await link.clock.sleep(LOOK_S)
    raise Unavailable(f"stream {name}", detail="it was made, and no server has it")


async def config_of(link: Link, name: str) -> JsonObject | None:
    """Return the configuration of the stream called `name`, or None if there is none."""
    info = await info_of(link, name)
    return None if info is None else cast("JsonObject", info["config"])


async def info_of(link: Link, name: str) -> JsonObject | None:
    """Return what its leader says of the stream called `name`, or None if there is none."""
    try:
        return await api.call(link, f"STREAM.INFO.{name}")
    except api.RequestRefused as error:
        if error.err_code == api.STREAM_NOT_FOUND:
            return None
        raise Unavailable(f"stream {name}", detail=str(error)) from error


def behind(info: JsonObject | None) -> list[str]:
    """Return the servers whose replica of a stream is not whole, or away, each with what it is."""
    replicas = (info or {}).get("cluster", {}).get("replicas") or ()
    states = {each["name"]: _state(each) for each in replicas}
    return [f"{name} is {state}" for name, state in states.items() if state]


def _state(replica: JsonObject) -> str:
    """Return what is wrong with a replica; empty if nothing is."""
    # guard: silent-replica-away
    if replica.get("offline") or replica.get("active", 0) > AWAY_S * NS_PER_S:
        return "away"
    return "" if replica.get("current") else "behind"


def _cannot_create(ours: JsonObject, error: api.RequestRefused) -> Incompatible | Unavailable:
    if error.code == api.LATER:
        return Unavailable(f"creating {ours['name']}", detail=str(error))
    return Incompatible(
        f"the server refuses to create {ours['name']}: {error}",
        remedy="Remove what is in its way, choose another stack name, or ask for fewer replicas.",
    )


async def _require_there(link: Link, stack: Stack) -> None:
    """Refuse a stack without a registry, which is the first of it that is made."""
    if await config_of(link, str(registry(stack, link.settings)["name"])) is None:
        raise NoSuchStack(stack.name, there=await _stacks(link))


async def _stacks(link: Link) -> list[str]:
    """Return the stacks of the server, by name; none where this user may not ask for them."""
    found: list[str] = []
    try:
        for _ in range(NAME_PAGES_MAX):
            page = await api.call(link, "STREAM.NAMES", {"offset": len(found)})
            found += page["streams"] or ()
            if len(found) >= page["total"]:
                break
    except (api.RequestRefused, Incompatible):  # guard: names-need-no-right
        return []
    return stacks_among(found)


def layout_of(stack: Stack, config: JsonObject) -> StackLayout:
    """Return the layout of `stack`, whose registry has the configuration `config`.

    Raises:
        Incompatible: an unreleased version made the stack.
    """
    layout = layout_in(config)
    if layout is None:
        raise Incompatible(
            f"stack {stack.name} was made by an unreleased version of Vigil, and this one cannot "
            "use it",
            remedy="Choose another stack name; or delete all of its streams with `nats stream rm`, "
            "and drop the schema vigil in Postgres.",
        )
    return layout


def _require_layout(stack: Stack, wanted: int | None, layout: StackLayout) -> None:
    _require_settled(stack, layout)
    if wanted not in {None, layout.partitions}:  # guard: contradicting-partitions-refused
        raise Incompatible(
            f"stack {stack.name} has {layout.partitions} partitions, and the settings say {wanted}",
            remedy="Leave the setting out, as nodes find the number by themselves; or stop "
            f"every node and run `vigil repartition --to {wanted}`.",
        )


def _require_settled(stack: Stack, layout: StackLayout) -> None:
    if layout.moving_to is not None:
        raise on_its_way(stack, layout)  # guard: moving-stack-unused


def on_its_way(stack: Stack, layout: StackLayout) -> Incompatible:
    """Return why nobody can use `stack` now, and what ends that."""
    return Incompatible(
        f"stack {stack.name} is being spread over {layout.moving_to} partitions",
        remedy=f"Wait until that is done; if it was cut off, `vigil repartition --to "
        f"{layout.moving_to}` goes on, and `--to {layout.partitions}` goes back.",
    )


def _require(found: list[Contradiction]) -> None:
    for contradiction in found:
        raise Incompatible(
            f"stream {contradiction.stream}: {contradiction.field} is "
            f"{contradiction.theirs!r} and must be {contradiction.ours!r}",
            remedy="Change it with `nats stream edit`, or choose another stack name.",
        )


async def _report(link: Link, ours: JsonObject) -> StreamReport:
    info = await info_of(link, str(ours["name"]))
    if info is None:
        return StreamReport(name=ours["name"], exists=False)
    theirs, state = info["config"], info["state"]
    return StreamReport(
        name=ours["name"],
        exists=True,
        contradictions=tuple(contradictions(theirs, ours)),
        replicas=theirs.get("num_replicas", 1),
        is_compressed=needs_change(theirs),
        behind=tuple(behind(info)),
        stored_bytes=state["bytes"],
        first_at=_time_in(state, "first_ts"),
        last_at=_time_in(state, "last_ts"),
        bytes_max=theirs["max_bytes"] if theirs.get("max_bytes", -1) > 0 else None,
        kept_s=theirs["max_age"] / NS_PER_S if theirs.get("max_age") else None,
    )


def _time_in(state: JsonObject, name: str) -> datetime | None:
    """Return a time in the state of a stream; an empty one has the year 1."""
    at = msgspec.convert(state[name], datetime, strict=False)
    return at if at.year > 1 else None
