"""Tools that come with Vigil: requests over HTTP, queries in SQL that only read, and MCP servers.

`Actor("monitor", tools=[http_request(hosts=["status.example.com"])])`. Your own tools need nothing
of this module: write a function with `vigil.tool`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vigil.public import public

if TYPE_CHECKING:
    from engine.toolbox.http import http_request
    from engine.toolbox.mcp import mcp_server
    from engine.toolbox.mcp_declared import McpTool
    from engine.toolbox.sql import sql_query

__all__ = ["McpTool", "http_request", "mcp_server", "sql_query"]

_HOMES: Final = {
    "engine.toolbox.http": "http_request",
    "engine.toolbox.mcp": "mcp_server",
    "engine.toolbox.mcp_declared": "McpTool",
    "engine.toolbox.sql": "sql_query",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = public(__name__, _HOMES)
