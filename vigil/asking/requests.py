"""Requests to aggregates: each is sent, then its result is read from the journal.

A request that is sent may still be refused. So it counts as done once the journal shows it; where
it never does, the report tells whether any node that is up could have handled it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, TypeAlias, TypeVar

from engine.app.dedupe import KEY_CHARS_MAX
from engine.cluster.members import live_nodes
from engine.cluster.nodes import NodeInfo
from engine.episodes.episode import fold
from engine.episodes.fire import fired_episode_id
from engine.operations.events.why_unheard import Unheard, instance_unheard, unheard
from engine.runtime.gather import gather_bounded
from engine.validation import check_name, check_text
from streams.clock import SystemClock
from streams.errors import UnreadableEvent
from streams.model.events.definitions import DefinitionKind
from streams.model.triggers import Mode
from streams.ports.all import Ports
from streams.ports.log import Recorded
from vigil.asking.connect import with_ports
from vigil.asking.stack import definition_of, read_definitions
from vigil.errors import told
from vigil.settings import Config

IN_FLIGHT_MAX: Final = 64

LOOK_S: Final = 0.1

ASKED: Final = "sent; a node decides on it"
LATE: Final = "not on the journal in time; a node may still decide on it"

_CLOCK: Final = SystemClock()

T = TypeVar("T")
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class CommandResult:
    """What a journal shows about a request."""

    words: str
    is_wanted: bool
    """Whether it is what was requested, and not what somebody else did."""


ResultReader: TypeAlias = Callable[[Sequence[Recorded]], CommandResult | None]
"""Reads a request's result from the journal, oldest record first; None: there is none so far."""


@dataclass(frozen=True, kw_only=True)
class SentCommand:
    """A request that was sent."""

    name: str
    actor_id: str
    episode_id: str = ""
    """Whose it is; empty: that of an instance of `workflow`."""
    workflow: str = ""
    subject: str
    result: ResultReader


@dataclass(frozen=True, kw_only=True)
class CommandOutcome:
    """What became of a request."""

    name: str
    actor_id: str = ""
    done: str = ""
    refused: str = ""
    obstacle: str = ""
    """Why no node handles it now, in words; empty: one does."""
    is_in_vain: bool = False


@dataclass(frozen=True, kw_only=True)
class KeyUse:
    """An earlier use of an idempotency key."""

    key: str
    at: datetime
    is_over: bool

    @property
    def in_words(self) -> str:
        """Return that the key opens nothing new."""
        at = f"{self.at:%Y-%m-%d %H:%M:%S} UTC"
        return f"nothing new began: key {self.key!r} was used before, at {at}"


def request(config: Config, work: Callable[[Ports], Awaitable[T]], *, about: str = "") -> T:
    """Return what `work` returns on the log of the stack; errors are `told`."""
    with told(about):
        return with_ports(config, work)


async def watch(
    ports: Ports, sent: Sequence[SentCommand], *, wait_s: float | None
) -> list[CommandOutcome]:
    """Return the outcome of each request, in order, once the journals show it.

    All of them together are waited for at most `wait_s`; None: not at all. Where no node that is up
    can handle them, there is no wait.
    """
    until_s = None if wait_s is None else _CLOCK.monotonic_s() + wait_s
    nodes = await live_nodes(ports.gates)
    return await in_batches(sent, lambda each: _watch_one(ports, nodes, each, until_s))


async def in_batches(items: Sequence[_Item], work: Callable[[_Item], Awaitable[T]]) -> list[T]:
    """Return what `work` makes of each item, in order, `IN_FLIGHT_MAX` at a time."""
    return await gather_bounded(work, items, in_flight_max=IN_FLIGHT_MAX)


async def key_use_of(
    ports: Ports, actor: str, expectation: str, key: str | None, *, dry_run: bool
) -> KeyUse | None:
    """Return the earlier use of an idempotency key, if an episode was opened for it.

    Ask before you send: afterwards the use may be your own. Raises `BadRequest` for an impossible
    value.
    """
    if key is None:
        return None
    check_name("actor", actor)
    check_name("expectation", expectation)
    check_text("key", key, least=1, most=KEY_CHARS_MAX)
    episode_id = fired_episode_id(
        stack=ports.stack.name,
        actor=actor,
        expectation=expectation,
        key=key,
        mode=Mode.DRY_RUN if dry_run else Mode.LIVE,
    )
    records = await ports.log.read(ports.stack.episode(episode_id))
    if not records:
        return None
    return KeyUse(key=key, at=records[0].commit.at, is_over=fold(records).finished is not None)


async def _watch_one(
    ports: Ports, nodes: Sequence[NodeInfo], sent: SentCommand, until_s: float | None
) -> CommandOutcome:
    whose = CommandOutcome(name=sent.name, actor_id=sent.actor_id)
    asked = replace(whose, done=ASKED, is_in_vain=until_s is not None)
    why = await _why_unheard(ports, nodes, sent)
    if why is not None and why.is_certain:  # guard: inapplicable-not-awaited
        return replace(asked, obstacle=str(why))
    if until_s is None:
        return asked
    while (result := sent.result(await ports.log.read(sent.subject))) is None:
        if _CLOCK.monotonic_s() >= until_s:
            break
        await _CLOCK.sleep(LOOK_S)
    if result is None:
        why = await _why_unheard(ports, await live_nodes(ports.gates), sent)
        return replace(asked, obstacle=str(why)) if why else replace(whose, refused=LATE)
    if result.is_wanted:
        return replace(whose, done=result.words)
    return replace(whose, refused=result.words)


async def _why_unheard(
    ports: Ports, nodes: Sequence[NodeInfo], sent: SentCommand
) -> Unheard | None:
    """Return why none of `nodes` handles a request; None: one does, as far as they tell."""
    if name := sent.workflow:
        registered = definition_of(await read_definitions(ports), DefinitionKind.WORKFLOW, name)
        return instance_unheard(nodes, name, registered=registered)
    try:
        episode = fold(await ports.log.read(ports.stack.episode(sent.episode_id)))
    except UnreadableEvent:  # A newer version has written it, and its nodes know.
        return unheard(nodes, sent.actor_id)
    return unheard(nodes, sent.actor_id, episode)
