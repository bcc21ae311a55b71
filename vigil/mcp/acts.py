"""Tools that act: fire, publish, signal, fork, retry, cancel. Repeated, they act once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final
from uuid import UUID

import msgspec
from msgspec import Meta

from engine.episodes.episode import ENDED
from streams.json import JsonObject
from vigil.asking.requests import CommandOutcome
from vigil.client.events import PublishReceipt
from vigil.errors import NotFound, Trouble
from vigil.mcp.fired import NOT_OPENED, FiredEpisode, fired_episode
from vigil.mcp.look import task_view
from vigil.mcp.tool import (
    ROWS_MAX,
    AnyTool,
    Key,
    ServedCall,
    ServedTool,
    ToolInput,
    ToolKind,
    ToolOutput,
    Why,
)

OPENED_S_MAX: Final = 10.0
"""How long `fire` waits until a node has opened the episode, in seconds."""

OPENED_LOOK_S: Final = 0.1
"""Between two looks whether it is, in seconds."""

LOOK: Final = "the tool `episode`, with this id, says whether it has ended; you need not wait"

Dry = Annotated[
    bool | None,
    Meta(
        description="Whether to change nothing outside. By default false; for tokens of agents,"
        " true."
    ),
]


class FireInput(ToolInput, frozen=True, kw_only=True):
    """What to fire."""

    actor: str
    expectation: str
    key: Key
    payload: Annotated[JsonObject, Meta(description="What the strategy is given.")] = msgspec.field(
        default_factory=dict
    )
    reason: Why = ""
    dry_run: Dry = None


async def fire(call: ServedCall, asked: FireInput) -> FiredEpisode:
    """Open an episode, and return once it is on the journal."""
    caller = call.caller
    said = {"token": caller.identity.token, "client": caller.client}
    receipt = await call.client.episodes.fire(
        asked.actor,
        asked.expectation,
        asked.payload,
        key=asked.key,
        reason=caller.because(asked.reason),
        by=caller.identity.name,
        dry_run=bool(asked.dry_run),
        metadata={"mcp": {name: each for name, each in said.items() if each}},
    )
    found = await opened(call, receipt.episode_id, obstacle=receipt.obstacle)
    return msgspec.structs.replace(found, used=receipt.used, obstacle=receipt.obstacle)


async def opened(call: ServedCall, episode_id: str, *, obstacle: str = "") -> FiredEpisode:
    """Return an episode once it is on the journal: after 10 s, or with an obstacle, without."""
    clock = call.client.connections.clock
    until_s = clock.monotonic_s() + OPENED_S_MAX
    while True:
        try:
            view = await task_view(call.client, UUID(episode_id))
        except NotFound:
            if obstacle or clock.monotonic_s() >= until_s:
                return FiredEpisode(episode_id=episode_id, status=NOT_OPENED, look=LOOK)
        else:
            look = "" if view.episode.status in ENDED else LOOK
            return fired_episode(episode_id, view.episode, look=look)
        await clock.sleep(OPENED_LOOK_S)


class PublishInput(ToolInput, frozen=True, kw_only=True):
    """Which event to publish."""

    name: Annotated[str, Meta(description="Its dotted name, such as `resource.updated`.")]
    payload: JsonObject
    key: Key
    dry_run: Dry = None


class Published(ToolOutput, frozen=True, kw_only=True):
    """An event that was published, or would be."""

    id: str
    seq: int | None
    """Its sequence in the stream; null: it was not published, as this was a dry run."""
    is_new: bool
    """False: it was published with this key before, within two minutes."""
    unheard: str
    """Why no node hears it; empty: one does, or nobody knows."""


async def publish(call: ServedCall, asked: PublishInput) -> Published:
    """Publish an event."""
    receipt = await call.client.events.publish(
        asked.name, asked.payload, id=asked.key, dry_run=bool(asked.dry_run)
    )
    return _published(receipt)


def _published(receipt: PublishReceipt) -> Published:
    return Published(
        id=receipt.id, seq=receipt.seq or None, is_new=receipt.is_new, unheard=receipt.unheard
    )


class SignalInput(ToolInput, frozen=True, kw_only=True):
    """Which result to give to whom."""

    ref: Annotated[str, Meta(description="The reference that episodes wait for.")]
    key: Key
    result: object = None


async def signal(call: ServedCall, asked: SignalInput) -> Published:
    """Give those that wait for a reference its result."""
    receipt = await call.client.signals.send(
        asked.ref, asked.result, by=call.caller.identity.name, id=asked.key
    )
    return _published(receipt)


class ForkInput(ToolInput, frozen=True, kw_only=True):
    """Which episode to fork, and where."""

    id: Annotated[str, Meta(description="Of the episode.")]
    at: Annotated[int, Meta(ge=0, description="The number of the last step that both have.")]
    key: Key
    payload: Annotated[
        JsonObject | None, Meta(description="Another one for the strategy; null: the same.")
    ] = None
    reason: Why = ""
    dry_run: Dry = None


async def fork(call: ServedCall, asked: ForkInput) -> FiredEpisode:
    """Open an episode that begins as another one did."""
    receipt = await call.client.episodes.fork(
        asked.id,
        at=asked.at,
        payload=asked.payload,
        key=asked.key,
        reason=call.caller.because(asked.reason),
        by=call.caller.identity.name,
        dry_run=bool(asked.dry_run),
    )
    found = await opened(call, receipt.episode_id, obstacle=receipt.obstacle)
    return msgspec.structs.replace(found, obstacle=receipt.obstacle)


class RetryInput(ToolInput, frozen=True, kw_only=True):
    """Which outputs to deliver again."""

    keys: Annotated[
        list[str],
        Meta(min_length=1, max_length=ROWS_MAX, description="Of outputs that have failed."),
    ]
    reason: Why = ""


class ActOutcome(ToolOutput, frozen=True, kw_only=True):
    """What became of one of those that were asked for."""

    id: str
    done: str = ""
    refused: str = ""
    obstacle: str = ""
    """Why no node does it now; empty: one does."""


class ActOutcomes(ToolOutput, frozen=True, kw_only=True):
    """What became of each of those that were asked for."""

    items: Sequence[ActOutcome]


async def retry(call: ServedCall, asked: RetryInput) -> ActOutcomes:
    """Deliver outputs again that have failed."""
    found = await call.client.outputs.retry(
        *asked.keys,
        reason=call.caller.because(asked.reason),
        by=call.caller.identity.name,
    )
    return ActOutcomes(items=[_outcome(each) for each in found])


def _outcome(outcome: CommandOutcome) -> ActOutcome:
    return ActOutcome(
        id=outcome.name, done=outcome.done, refused=outcome.refused, obstacle=outcome.obstacle
    )


class CancelInput(ToolInput, frozen=True, kw_only=True):
    """Which episodes to cancel."""

    ids: Annotated[list[str], Meta(min_length=1, max_length=ROWS_MAX, description="Their ids.")]
    reason: Why = ""


async def cancel(call: ServedCall, asked: CancelInput) -> ActOutcomes:
    """Request that episodes be canceled."""
    found = await call.client.episodes.cancel(
        *asked.ids, reason=call.caller.because(asked.reason), by=call.caller.identity.name
    )
    if not any(each.status for each in found):
        raise Trouble("none of these episodes is on the journal", remedy="list them: `episodes`")
    return ActOutcomes(
        items=[
            ActOutcome(id=str(each.episode_id), done=each.outlook)
            if each.is_open
            else ActOutcome(id=str(each.episode_id), refused=f"it is {each.status or 'not there'}")
            for each in found
        ]
    )


ACTS: Final[Sequence[AnyTool]] = (
    ServedTool(
        name="fire",
        about="Open an episode of an actor's expectation by hand. It goes on by itself, survives"
        " crashes, and may wait for people for days: you need not wait for it. Where tasks are"
        " known, it is one.",
        kind=ToolKind.ACT,
        input=FireInput,
        output=FiredEpisode,
        call=fire,
    ),
    ServedTool(
        name="publish",
        about="Publish an event, which fires what listens to it. With dry_run, say who listens.",
        kind=ToolKind.ACT,
        input=PublishInput,
        output=Published,
        call=publish,
    ),
    ServedTool(
        name="signal",
        about="Give the episodes that wait for a reference its result. It approves nothing.",
        kind=ToolKind.ACT,
        input=SignalInput,
        output=Published,
        call=signal,
    ),
    ServedTool(
        name="fork",
        about="Open an episode that begins with the first steps of another one, to try the rest"
        " differently.",
        kind=ToolKind.ACT,
        input=ForkInput,
        output=FiredEpisode,
        call=fork,
    ),
    ServedTool(
        name="retry",
        about="Deliver outputs again that have failed.",
        kind=ToolKind.ACT,
        input=RetryInput,
        output=ActOutcomes,
        call=retry,
    ),
    ServedTool(
        name="cancel",
        about="Request that episodes be canceled, be they queued, running or blocked. One that has"
        " ended stays as it is.",
        kind=ToolKind.ACT,
        input=CancelInput,
        output=ActOutcomes,
        call=cancel,
        is_destructive=True,
    ),
)
"""All tools that change something."""
