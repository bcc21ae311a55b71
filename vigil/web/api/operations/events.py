"""Operations on domain events and signals. The stream of events is in `vigil/web/api/stream.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from engine.people.identity import Role
from projections.records import RefusalSummary
from vigil.client.client import Client
from vigil.client.events import LATEST_MAX
from vigil.client.types import (
    CommandOutcome,
    DomainEvent,
    EventVerdicts,
    PublishedEvent,
    PublishReceipt,
    WouldVerdicts,
)
from vigil.web.api.operation import (
    PUBLISH,
    READ,
    AnyOperation,
    ApiRequest,
    AskedOfList,
    DryRun,
    Key,
    ListAnswer,
    Operation,
    Time,
    WaitS,
    listed,
    said,
)

SEND: Final = "signals:send"


class WouldFire(ApiRequest, frozen=True, kw_only=True):
    """An event; the body is its payload, an object."""

    name: Annotated[str, Meta(description="Words joined by dots, such as `disk.measured`.")]
    payload: dict[str, Any]
    id: Key = None


class PublishEvent(WouldFire, frozen=True, kw_only=True):
    """An event to publish."""

    dry_run: DryRun = None


class FollowEvents(ApiRequest, frozen=True, kw_only=True):
    """Which events; without `after` and `since`, those that come from now on."""

    name: Annotated[
        tuple[str, ...],
        Meta(description="`*` stands for one word, a last `>` for one or more; none: any."),
    ] = ()
    after: Annotated[int, Meta(ge=0)] | None = None
    since: Time | None = None


class StreamedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A domain event."""

    id: str
    name: str
    payload: dict[str, Any]
    seq: int
    at: datetime


class LatestEvents(ApiRequest, frozen=True, kw_only=True):
    """How many events."""

    limit: Annotated[int, Meta(ge=1, le=LATEST_MAX)] = 20


class WhyEvent(ApiRequest, frozen=True, kw_only=True):
    """Which event."""

    id: str


class ListRefusals(AskedOfList, frozen=True, kw_only=True):
    """Which refusals."""

    actor: str | None = None
    expectation: str | None = None
    event: str | None = None
    reason: str | None = None


class WhyUnheard(ApiRequest, frozen=True, kw_only=True):
    """Which events."""

    name: str


class UnheardAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Why no node hears an event."""

    why: str
    """In words; empty: one does, or nobody knows."""


class SendSignal(ApiRequest, frozen=True, kw_only=True):
    """A result that episodes wait for."""

    ref: str
    result: object = None
    id: Key = None


class ResolveWait(ApiRequest, frozen=True, kw_only=True):
    """The result of a wait."""

    ref: str
    result: object = None
    episode_id: str | None = None
    wait_s: WaitS = 30.0


async def _tail(client: Client, asked: FollowEvents, _: str) -> AsyncIterator[DomainEvent]:
    return client.events.tail(*asked.name, after=asked.after, since=asked.since)


async def _unheard(client: Client, asked: WhyUnheard, _: str) -> UnheardAnswer:
    return UnheardAnswer(why=await client.events.why_unheard(asked.name))


OPERATIONS: Final[Sequence[AnyOperation]] = (
    Operation(
        name="events.publish",
        method="POST",
        path="/events/{name}",
        does="Publish a domain event, whose payload is the body; or take what a webhook sends.",
        scope=PUBLISH,
        asks=PublishEvent,
        gives=PublishReceipt,
        call=lambda client, asked, _: client.events.publish(**said(asked)),
        key="id",
        whole="payload",
        commands=["publish"],
    ),
    Operation(
        name="events.would_fire",
        method="POST",
        path="/would-fire/{name}",
        does="Tell which expectations an event would fire, whose payload is the body, and why not. "
        "Nothing is published.",
        role=Role.VIEWER,
        scope=READ,
        asks=WouldFire,
        gives=WouldVerdicts,
        call=lambda client, asked, _: client.events.would_fire(**said(asked)),
        whole="payload",
    ),
    Operation(
        name="events.tail",
        method="GET",
        path="/events/stream",
        does="Follow domain events as server-sent events; `Last-Event-ID` goes on where it ended.",
        role=Role.VIEWER,
        scope=READ,
        asks=FollowEvents,
        gives=StreamedEvent,
        call=_tail,
        is_stream=True,
    ),
    Operation(
        name="events.latest",
        method="GET",
        path="/latest-events",
        does="List the events that were published last, the newest first, without their payloads.",
        role=Role.VIEWER,
        scope=READ,
        asks=LatestEvents,
        gives=ListAnswer[PublishedEvent],
        call=lambda client, asked, _: listed(client.events.latest(limit=asked.limit)),
    ),
    Operation(
        name="events.refusals",
        method="GET",
        path="/refusals",
        does="List events that did not fire an expectation, the latest first.",
        role=Role.VIEWER,
        scope=READ,
        asks=ListRefusals,
        gives=ListAnswer[RefusalSummary],
        call=lambda client, asked, _: listed(client.events.refusals(**said(asked))),
    ),
    Operation(
        name="events.why",
        method="GET",
        path="/events/why",
        does="Tell what each expectation did with an event: the episode, or why there is none.",
        role=Role.VIEWER,
        scope=READ,
        asks=WhyEvent,
        gives=EventVerdicts,
        call=lambda client, asked, _: client.events.why(asked.id),
        commands=["events why"],
    ),
    Operation(
        name="events.why_unheard",
        method="GET",
        path="/events/unheard",
        does="Tell why no node hears an event of a name.",
        role=Role.VIEWER,
        scope=READ,
        asks=WhyUnheard,
        gives=UnheardAnswer,
        call=_unheard,
    ),
    Operation(
        name="signals.send",
        method="POST",
        path="/signals",
        does="Send the result of a reference to all that wait for it, now or within an hour.",
        scope=SEND,
        asks=SendSignal,
        gives=PublishReceipt,
        call=lambda client, asked, by: client.signals.send(**said(asked), by=by),
        key="id",
    ),
    Operation(
        name="signals.resolve",
        method="POST",
        path="/resolutions",
        does="Give the episodes that wait for a reference now its result.",
        scope=SEND,
        asks=ResolveWait,
        gives=ListAnswer[CommandOutcome],
        call=lambda client, asked, by: listed(client.signals.resolve(**said(asked), by=by)),
        commands=["episodes resolve"],
    ),
)
