"""`vigil.client.Client`: what the commands do, as calls.

    client ──▶ connections (opened by the first call that needs them)
          └──▶ one file for each noun of the commands

A call that reads asks the rows, unless it says that it reads the log. One that changes something
puts a request on the log, with the name of a person and a reason. `vigil.errors` has the errors,
and `vigil.client.types` the types of what calls return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vigil.public import public

if TYPE_CHECKING:
    from vigil.client.client import Client
    from vigil.client.sync import SyncClient

__all__ = ["Client", "SyncClient"]

_HOMES: Final = {
    "vigil.client.client": "Client",
    "vigil.client.sync": "SyncClient",
}
"""Module → the public names that it has."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = public(__name__, _HOMES)
