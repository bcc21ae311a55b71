"""Nodes: which are up, and the modes that people have ordered for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from engine.cluster.modes import ModeOrder
from engine.cluster.nodes import NodeInfo
from engine.orders.store import give_order
from projections.postgres.progress import PROJECTED, heads
from projections.postgres.reader import list_checkpoints
from streams.model.events import NodeModeSet, NodeModeUnset
from streams.model.modes import NodeMode
from vigil.asking.stack import (
    StackView,
    read_stack,
    require_known,
    require_plausible,
    waking_obstacle,
)
from vigil.client.connections import Connections
from vigil.client.stack.orders import OrderOutcome
from vigil.errors import (
    Mistake,
    NotFound,
    ServerAway,
    StackNotFound,
    Trouble,
    hint,
    near_hint,
)

if TYPE_CHECKING:
    from engine.reactor.position import ReactorProgress
    from projections.postgres.query_result import Row

SELF_TOLD: Final = ("host", "pid", "version", "since", "lease_s")
"""What a node that is up publishes of itself, as fields."""

READY_S: Final = 30.0
"""How long to wait by default until a node is ready, in seconds."""

LOOK_S: Final = 0.1
"""Between two looks whether a node is ready, in seconds."""

UP: Final = "up"
DOWN: Final = "not up"


class NodeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A node that is up, or that has a mode by order."""

    node: str
    state: str
    """`up` or `not up`."""
    mode: NodeMode | None
    """None: it is not up, and there is no order for it."""
    said: str
    """Where the mode comes from: an `order`, or the node's `own setting`."""
    actors: Mapping[str, NodeMode] | None
    """Actor → the mode that it has there by order."""
    by: str | None
    reason: str | None
    at: datetime | None
    """When that was ordered."""
    host: str | None
    pid: int | None
    version: str | None
    since: datetime | None
    lease_s: float | None
    runs: Sequence[str] | None
    wakes: Sequence[str] | None
    """The actors whose episodes it runs, and those that it opens episodes of."""


class ActorPause(msgspec.Struct, frozen=True, kw_only=True):
    """An actor that is paused."""

    actor_id: str
    paused_by: str
    paused_at: datetime | None
    reason: str


class NodesView(msgspec.Struct, frozen=True, kw_only=True):
    """What counts for the nodes of a stack."""

    nodes: Sequence[NodeSummary]
    paused: Sequence[ActorPause]
    ignored: Mapping[str, str]
    """Key of an order that nobody can read → why."""


class StreamPosition(msgspec.Struct, frozen=True, kw_only=True):
    """How far the rows and the reactor have followed a stream of commits, or a partition of it."""

    part: str
    """Such as `journal`, or `journal-0of4`."""
    head: int
    """The sequence of its newest commit."""
    rows: int | None
    """The rows have everything up to this sequence; None: they do not follow it."""
    trouble: str | None
    """Why the rows have stopped; None: they have not."""
    reactor: int | None
    """What follows from commits is published up to this sequence; None: nothing follows from it."""
    reactor_node: str
    """The node whose reactor does so; empty: none that is up."""


@dataclass(frozen=True)
class NodeCalls:
    """Calls about nodes: `client.nodes`. They read the log."""

    _connections: Connections

    async def read(self, *, node: str | None = None) -> NodesView:
        """Return the nodes that are up or have an order, or one of them, and what is paused.

        Raises:
            NotFound: the node is not up, and there is no order for it.
        """
        async with self._connections.log(is_reading=True) as ports:
            seen = await read_stack(ports)
        up = {info.name: info for info in seen.nodes}
        names = sorted({*up, *seen.orders.modes})
        if node is not None and node not in names:
            raise _unknown(seen, node)
        wanted = names if node is None else [node]
        return NodesView(
            nodes=[_summary(each, up.get(each), seen.orders.modes.get(each)) for each in wanted],
            paused=[
                ActorPause(actor_id=actor, paused_by=each.by, paused_at=each.at, reason=each.reason)
                for actor, each in sorted(seen.orders.pauses.items())
            ],
            ignored=seen.orders.problems,
        )

    async def positions(self) -> Sequence[StreamPosition]:
        """Return how far rows and reactors are, for each stream of commits and its partitions."""
        from engine.reactor.position import published
        from engine.reactor.reactor import followed

        async with self._connections.rows() as pool:
            checkpoints = await list_checkpoints(pool, self._connections.stack)
        rows = {str(each["projection"]): each for each in checkpoints}
        async with self._connections.log(is_reading=True) as ports:
            # Heads after the rows: nothing is ahead of what there is.
            newest = await heads(ports, PROJECTED)
            parts = [ports.stack.part(*each) for each in followed(ports.stack)]
            progress = {part: await published(ports, part) for part in parts}
        return [_position(part, head, rows.get(part), progress) for part, head in newest.items()]

    async def wait_ready(
        self, actor: str | None = None, *, timeout_s: float = READY_S
    ) -> Sequence[str]:
        """Return the nodes that are up once one of them does work of the stack, by name.

        What is fired for an actor while nodes are up and none has it is refused, so a program that
        starts a node waits for that first: also for the stack, which its first node makes, and for
        a server that is just starting.

        Args:
            actor: wait until its episodes are opened and run, and it is not paused. None: until any
                node runs or opens episodes.
            timeout_s: the longest wait, in seconds; 0: look once.

        Raises:
            Trouble: none does after `timeout_s`; the error says why. `StackNotFound`: nobody has
                made the stack by then; `ServerAway`: the server does not answer.
        """
        clock = self._connections.clock
        until_s = clock.monotonic_s() + timeout_s
        while True:
            try:
                async with self._connections.log(is_reading=True) as ports:
                    seen = await read_stack(ports)
            except (StackNotFound, ServerAway):  # guard: what-node-makes-awaited
                if clock.monotonic_s() >= until_s:
                    raise
            else:
                if not (why := _why_idle(seen, actor)):
                    return sorted(each.name for each in seen.nodes if _serves(each, actor))
                if clock.monotonic_s() >= until_s:
                    raise Trouble(f"{why}, after {timeout_s:g} s")
            await clock.sleep(LOOK_S)

    async def set_mode(
        self, node: str, mode: str, *, actor: str = "", reason: str = "", by: str | None = None
    ) -> OrderOutcome:
        """Set the mode of a node: it counts at once, and after restarts.

        Args:
            mode: `full`, `trigger_only` or `disabled`.
            actor: only for this actor; empty: for all.

        Raises:
            Mistake: there is no such mode.
            NotFound: nodes are up, and nobody knows the actor.
        """
        chosen, name = parse_mode(mode), self._connections.who(by)
        order = NodeModeSet(node=node, mode=chosen, actor_id=actor, by=name, reason=reason)
        return await self._give(order, counts=chosen.value)

    async def unset_mode(
        self, node: str, *, actor: str = "", reason: str = "", by: str | None = None
    ) -> OrderOutcome:
        """Remove the order of a mode: the node's own setting counts again.

        Args:
            actor: only for this actor; empty: for all.

        Raises:
            NotFound: there was no order, and nobody knows the node or the actor.
        """
        order = NodeModeUnset(
            node=node, actor_id=actor, by=self._connections.who(by), reason=reason
        )
        return await self._give(order, counts="as it was started")

    async def _give(self, order: NodeModeSet | NodeModeUnset, *, counts: str) -> OrderOutcome:
        rows, node, actor = self._connections.raw_rows, order.node, order.actor_id or None
        is_set = isinstance(order, NodeModeSet)
        async with self._connections.log() as ports:
            seen = await read_stack(ports)
            if is_set and actor is not None:
                await require_plausible(rows, ports, seen, actor)
            has_changed = await give_order(ports, order, clock=self._connections.clock)
            if not is_set and not has_changed:
                if node not in {*_up(seen), *seen.orders.modes}:
                    raise _unknown(seen, node)
                if actor is not None:
                    await require_known(rows, ports, seen, actor)
                return OrderOutcome(is_new=False, says="there was no order")
            says = f"{counts}{_caveat(seen, node, actor)}"
            return OrderOutcome(is_new=has_changed, says=says)


def _position(
    part: str, head: int, row: Row | None, progress: Mapping[str, ReactorProgress]
) -> StreamPosition:
    reactor = progress.get(part)
    return StreamPosition(
        part=part,
        head=head,
        rows=msgspec.convert(row["journal_seq"], int) if row else None,
        trouble=msgspec.convert(row["trouble"], str | None) if row else None,
        reactor=reactor.seq if reactor else None,
        reactor_node=reactor.node if reactor else "",
    )


def _why_idle(seen: StackView, actor: str | None) -> str:
    """Return why no node does work of the stack, or of an actor, in words; empty: one does."""
    if not seen.nodes:
        return "no node is up"
    if actor is None:
        return "" if any(_serves(each, None) for each in seen.nodes) else "every node is disabled"
    why = waking_obstacle(seen, actor)
    if not why:  # guard: ready-node-wakes-and-runs
        return ""
    near = "" if actor in seen.actors() else near_hint(actor, seen.actors())
    return f"actor {actor!r}: {why}{near and f'; {near}'}"


def _serves(node: NodeInfo, actor: str | None) -> bool:
    infos = [each for name, each in node.actors.items() if actor in (None, name)]
    return any(each.runs or each.wakes for each in infos)


def parse_mode(text: str) -> NodeMode:
    """Return the mode called `text`; raise `Mistake` if there is none."""
    try:
        return NodeMode(text)
    except ValueError as error:
        raise Mistake(f"{text!r} is no mode; use {', '.join(NodeMode)}") from error


def _caveat(seen: StackView, node: str, actor: str | None) -> str:
    """Return why an order has no effect yet, in words; empty: it has."""
    if node not in _up(seen):
        # A name that had an order before is no typo.
        near = "" if node in seen.orders.modes else near_hint(node, _up(seen))
        return f"; the node is not up, and takes this mode when it starts{near and f'; {near}'}"
    if actor is not None and actor not in seen.actors():
        return "; no node that is up has it"
    return ""


def _unknown(seen: StackView, node: str) -> NotFound:
    near = hint(node, {*_up(seen), *seen.orders.modes})
    return NotFound(f"no node {node!r} is up, and there is no order for it; {near}")


def _up(seen: StackView) -> set[str]:
    return {info.name for info in seen.nodes}


def _summary(name: str, info: NodeInfo | None, ordered: ModeOrder | None) -> NodeSummary:
    order = ordered or ModeOrder()
    return NodeSummary(
        node=name,
        state=UP if info else DOWN,
        mode=order.mode or (info.mode if info else None),
        said="order" if order.mode is not None else "own setting",
        actors=dict(order.actors) or None,
        by=order.by or None,
        reason=order.reason or None,
        at=order.at,
        **{each: getattr(info, each, None) for each in SELF_TOLD},
        runs=_able(info, "runs"),
        wakes=_able(info, "wakes"),
    )


def _able(info: NodeInfo | None, what: str) -> list[str] | None:
    if info is None:
        return None
    return sorted(actor for actor, each in info.actors.items() if getattr(each, what))
