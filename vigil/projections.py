"""Projections of one's own: tables that are filled from the journal, each event once.

    class Ends:
        name = "ends"
        tables = {"ends": OwnTable(key={"actor": "text"}, columns={"episodes": "bigint"})}

        def project(self, event):
            if event.name == "episode.opened":
                key = {"actor": event.event.actor_id}
                yield Add(table="ends", key=key, amounts={"episodes": 1})

`vigil projections run module:attribute` keeps one up to date, `vigil projections rebuild --own
module:attribute` makes its rows anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vigil.public import public

if TYPE_CHECKING:
    from projections.custom.projection import (
        Add,
        OwnTable,
        ProjectedEvent,
        Projection,
        Put,
        Remove,
    )

__all__ = ["Add", "OwnTable", "ProjectedEvent", "Projection", "Put", "Remove"]

_HOMES: Final = {
    "projections.custom.projection": "Add ProjectedEvent Projection Put Remove OwnTable",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = public(__name__, _HOMES)
