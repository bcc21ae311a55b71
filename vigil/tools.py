"""Tools that come with Vigil: requests over HTTP, and queries in SQL that only read.

`Actor("monitor", tools=[http_request(hosts=["status.example.com"])])`. Your own tools need nothing
of this module: write a function with `vigil.tool`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vigil.public import public

if TYPE_CHECKING:
    from engine.toolbox.http import http_request
    from engine.toolbox.sql import sql_query

__all__ = ["http_request", "sql_query"]

_HOMES: Final = {
    "engine.toolbox.http": "http_request",
    "engine.toolbox.sql": "sql_query",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = public(__name__, _HOMES)
