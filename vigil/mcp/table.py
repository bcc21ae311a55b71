"""The one table of tools: who is told of which, and how the protocol describes each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mcp_types import Tool as ToolListing
from mcp_types import ToolAnnotations

from vigil.mcp.acts import ACTS
from vigil.mcp.caller import Caller
from vigil.mcp.decides import DECIDES
from vigil.mcp.reads import READS
from vigil.mcp.tool import AnyTool, ToolKind, schema_of

TOOLS: Final[Mapping[str, AnyTool]] = {each.name: each for each in (*READS, *DECIDES, *ACTS)}
"""Name → tool, in the order in which they are listed."""


def tools_for(caller: Caller, *, has_app: bool) -> Sequence[AnyTool]:
    """Return the tools that `caller` may call: nobody is told of others."""
    return [each for each in TOOLS.values() if each.is_for(caller, has_app=has_app)]


def listed(tool: AnyTool) -> ToolListing:
    """Return a tool as the protocol lists it."""
    is_read = tool.kind is not ToolKind.ACT
    return ToolListing(
        name=tool.name,
        description=tool.about,
        input_schema=dict(schema_of(tool.input)),
        output_schema=dict(schema_of(tool.output)),
        annotations=ToolAnnotations(
            read_only_hint=is_read,
            destructive_hint=tool.is_destructive,
            idempotent_hint=True,
            open_world_hint=False,
        ),
    )
