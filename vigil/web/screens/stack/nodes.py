"""Nodes: which are up and in which mode, how far rows and reactors are; and the doctor's checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from htpy import Element, Node, a, div, fragment, p, small, span

from engine.people.identity import Role
from streams.model.modes import NodeMode
from vigil.client import Client
from vigil.client.stack.nodes import ActorPause, NodeSummary, NodesView, StreamPosition
from vigil.web.drawing.parts import (
    Cell,
    act,
    card,
    choice,
    count,
    field,
    fold,
    listed,
    many,
    may_order,
    nothing,
    pill,
    place,
    rows_of,
    sheet,
    titled,
    value,
    when,
    why_field,
)
from vigil.web.screen import Drawn, PageRequest, Screen

if TYPE_CHECKING:
    from vigil.asking.repairs.diagnosis import DoctorCheck

BEHIND_MAX: Final = 1_000
"""Commits that rows or reactors may be behind before the page calls that a problem."""


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Read the nodes and how far all is, and draw them."""
    view = await client.nodes.read()
    positions = await client.nodes.positions()
    return Drawn(
        title="Nodes",
        beside=may_order(asked) and a(".btn", href="/doctor")["Examine the stack"],
        parts={
            **{f"n-{each.node}": node_of(each, asked) for each in view.nodes},
            "none": none_up(view),
            "positions": how_far(positions),
            "paused": paused(view.paused, asked),
            "ignored": ignored(view.ignored),
        },
        side=("paused", "ignored"),
    )


def none_up(view: NodesView) -> Node:
    """Return that there is no node, if there is none."""
    if view.nodes:
        return None
    return card(
        "None", nothing("No node is up.", "Start one with vigil node, or all with vigil up.")
    )


def node_of(node: NodeSummary, asked: PageRequest) -> Element:
    """Return a node, and the form for its mode."""
    by = f" by {node.by}" if node.by else ""
    return card(
        node.node,
        sheet(
            [
                ("State", pill(node.state)),
                ("Mode", fragment[pill(node.mode), f" {node.said}"] if node.mode else None),
                (
                    "Ordered",
                    fragment[when(node.at, asked.now), by, node.reason and f": {node.reason}"]
                    if node.at
                    else None,
                ),
                ("Up", when(node.since, asked.now)),
                ("Heartbeat", f"at least every {node.lease_s:g} s" if node.lease_s else None),
                (
                    "Host",
                    " · ".join(
                        filter(None, (node.host, f"process {node.pid}" if node.pid else None))
                    ),
                ),
                ("Version", node.version),
                ("Runs", _actors(node.runs)),
                ("Opens", _actors(node.wakes)),
                (
                    "By order",
                    ", ".join(f"{actor}: {mode}" for actor, mode in (node.actors or {}).items()),
                ),
            ]
        ),
        may_order(asked) and fold("Change its mode", _modes(node), key=f"m.{node.node}"),
        beside=many(len(node.runs or ()), "actor"),
    )


def _actors(names: Sequence[str] | None) -> Node:
    return bool(names) and [
        [number > 0 and ", ", a(href=place("actors", each))[each]]
        for number, each in enumerate(names or ())
    ]


_MODES: Final[Mapping[str, str]] = {
    "full": "full: opens and runs episodes",
    "trigger_only": "trigger only: opens episodes, and runs none",
    "disabled": "disabled: neither",
}


def _modes(node: NodeSummary) -> Node:
    said = {"node": node.node}
    options = [(each.value, _MODES.get(each.value, each.value)) for each in NodeMode]
    return div[
        act(
            "nodes.set_mode",
            "Set",
            said,
            choice("mode", "Mode", options, str(node.mode or "")),
            field("actor", "Only for actor", placeholder="all"),
            why_field(),
        ),
        act("nodes.unset_mode", "Back to its own setting", said, why_field())
        if node.said == "order" or node.actors
        else None,
    ]


CELLS: Final = (
    Cell("Stream of commits", is_main=True),
    Cell("Newest", is_number=True, is_spare=True),
    Cell("Rows"),
    Cell("Reactor"),
)


def how_far(positions: Sequence[StreamPosition]) -> Element:
    """Return how far the rows and the reactors are behind what there is."""
    return card(
        "Projections and reactors",
        rows_of(
            CELLS,
            [
                (
                    fragment[
                        span[each.part],
                        each.reactor_node and small[f"reactor on {each.reactor_node}"],
                    ],
                    count(each.head),
                    _behind(each.head, each.rows, each.trouble),
                    _behind(each.head, each.reactor, None),
                )
                for each in positions
            ],
            keys=[each.part for each in positions],
        ),
        (
            p(".pad.error-text")[f"{each.part}: {each.trouble}"]
            for each in positions
            if each.trouble
        ),
    )


def _behind(head: int, at: int | None, trouble: str | None) -> Node:
    if at is None:
        return None
    if trouble:
        return pill("problem", "stopped")
    behind = max(head - at, 0)
    state = "problem" if behind > BEHIND_MAX else "ok"
    return pill(state, f"{behind:,} behind" if behind else "current")


def paused(actors: Sequence[ActorPause], asked: PageRequest) -> Node:
    """Return the actors that are paused."""
    return bool(actors) and card(
        "Paused actors",
        listed(
            [
                fragment[
                    div[
                        titled(place("actors", each.actor_id), each.actor_id, each.reason),
                        small[f"by {each.paused_by} ", when(each.paused_at, asked.now)],
                    ],
                    pill("paused"),
                ]
                for each in actors
            ]
        ),
    )


def ignored(orders: Mapping[str, str]) -> Node:
    """Return the orders that nobody can read."""
    return bool(orders) and card(
        "Orders that nobody can read",
        listed([div[span[key], small[why]] for key, why in orders.items()]),
    )


async def draw_doctor(client: Client, asked: PageRequest) -> Drawn:  # noqa: ARG001 - as screens are
    """Examine the stack, and draw what was looked at."""
    checks = await client.repairs.doctor()
    worst = [each for each in checks if each.status == "problem"]
    return Drawn(
        title="Examination",
        beside=pill("problem", many(len(worst), "problem")) if worst else pill("ok", "all is well"),
        parts={"checks": examined(checks)},
        up=("/nodes", "Nodes"),
    )


CHECKS: Final = (Cell("What was looked at", is_main=True), Cell("State"))

_RANK: Final = {"problem": 0, "note": 1}


def examined(checks: Sequence[DoctorCheck]) -> Element:
    """Return what was looked at, problems first, each with how to repair it."""
    ordered = sorted(checks, key=lambda each: _RANK.get(each.status, len(_RANK)))
    return card(
        "Problems first",
        listed(
            [
                fragment[
                    div[span[each.what], small[each.says], each.remedy and p[each.remedy]],
                    pill(each.status),
                ]
                for each in ordered
            ]
        ),
        fold("As a command", value("vigil doctor"), key="command"),
        beside=many(len(checks), "check"),
    )


SCREEN: Final = Screen(path="/nodes", draw=draw, section="/nodes")

DOCTOR: Final = Screen(
    path="/doctor", draw=draw_doctor, section="/nodes", role=Role.OPERATOR, is_live=False
)
