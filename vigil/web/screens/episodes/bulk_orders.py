"""What may be ordered of all episodes that match, and where that is done. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from htpy import Node, a, nav

from engine.people.identity import Role
from vigil.web.screen import PageRequest, address

MATCHING: Final = ("actor", "expectation", "subject", "status", "error")


class BulkOrder(NamedTuple):
    """Something that is ordered of several episodes."""

    operation: str
    does: str
    """What its button says, before their number."""
    explains: str
    statuses: frozenset[str]
    """The states of those that it can be ordered of."""
    fields: Mapping[str, object]


ORDERS: Final[Mapping[str, BulkOrder]] = {
    "cancel": BulkOrder(
        "episodes.cancel",
        "Cancel",
        "Each ends at its next step, as canceled.",
        frozenset({"queued", "running", "blocked"}),
        {},
    ),
    "again": BulkOrder(
        "episodes.fork_each",
        "Run again",
        "A fork of each begins anew with the trigger of the original.",
        frozenset({"failed", "partially_failed", "canceled"}),
        {"at": 0},
    ),
}
"""What may be ordered, as addresses have it."""


def links(asked: PageRequest) -> Node:
    """Return links to what may be ordered of all that a list of episodes has.

    Without a status there are none: a list of all has those that nothing can be ordered of.
    """
    status = asked.filter("status")
    kept = {name: asked.filter(name) for name in MATCHING}
    fitting = [name for name, order in ORDERS.items() if status in order.statuses]
    if not fitting or not asked.role.includes(Role.OPERATOR):
        return None
    return nav(".bulk", aria_label="All that match")[
        (
            a(".btn", href=address("/bulk", do=name, **kept))[f"{ORDERS[name].does} all that match"]
            for name in fitting
        )
    ]
