"""What a stack has to read, by address: `vigil://findings/…`, `vigil://episodes/…` and others."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Final, NamedTuple
from urllib.parse import unquote

import msgspec
from mcp_types import Resource, ResourceTemplate

from streams.json import JsonObject
from vigil.errors import Mistake, NotFound
from vigil.mcp.table import TOOLS
from vigil.mcp.tool import AskPerson, ServedCall

JSON: Final = "application/json"

DEFINITION_SCHEMA: Final = "vigil://schema/definition"

URI_CHARS_MAX: Final = 2_048
"""Longest address."""


class ResourceKind(NamedTuple):
    """A kind of things that can be read."""

    template: str
    """Its addresses, as the protocol writes such."""
    name: str
    about: str
    pattern: re.Pattern[str]
    read: Callable[[ServedCall, str], Awaitable[bytes]]


async def read(call: ServedCall, uri: str) -> str:
    """Return what is at an address, as JSON.

    Raises:
        NotFound: nothing is there.
    """
    if len(uri) > URI_CHARS_MAX:
        raise Mistake(f"an address has at most {URI_CHARS_MAX:,} characters")
    if uri == DEFINITION_SCHEMA:
        return _definition_schema()
    for each in KINDS:
        if found := each.pattern.fullmatch(uri):
            return (await each.read(call, unquote(found[1]))).decode()
    raise NotFound(f"there is no resource {uri!r}")


async def _of_tool(call: ServedCall, name: str, arguments: JsonObject) -> bytes:
    found = await TOOLS[name].answer(call, arguments)
    assert not isinstance(found, AskPerson), "what reads asks nobody"
    return found[1]


async def _finding(call: ServedCall, key: str) -> bytes:
    return await _of_tool(call, "finding", {"key": key})


async def _episode(call: ServedCall, id: str) -> bytes:
    return await _of_tool(call, "episode", {"id": id})


async def _approval(call: ServedCall, text: str) -> bytes:
    """Return what waits for approval: an episode, `output:KEY`, or `step:INSTANCE:STEP`."""
    kind, has_kind, rest = text.partition(":")
    if not has_kind:
        return await _of_tool(call, "approval", {"id": text})
    id_, _, step = rest.partition(":") if kind == "step" else (rest, "", "")
    return await _of_tool(call, "approval", {"kind": kind, "id": id_, "step": step})


async def _definition(call: ServedCall, text: str) -> bytes:
    """Return a revision of a definition: `NAME@REVISION`, or `KIND:NAME@REVISION`."""
    named, _, revision = text.rpartition("@")
    if not named or not revision.isdecimal():
        raise Mistake(f"{text!r} is no definition", remedy="write vigil://definitions/NAME@REV")
    kind, has_kind, name = named.partition(":")
    if not has_kind:
        kind, name = await _kind_of(call, named), named
    body = await call.client.definitions.read(kind, name, revision=int(revision))
    return msgspec.json.encode(body)


async def _kind_of(call: ServedCall, name: str) -> str:
    from streams.model.definitions import ID_KINDS

    found = await call.client.definitions.list()
    kinds = [ID_KINDS[each.kind] for each in found if each.id == name]
    if len(kinds) > 1:
        says = f"{name!r} is an actor and a workflow"
        raise Mistake(says, remedy=f"write vigil://definitions/{kinds[0]}:{name}@REV")
    if not kinds:
        raise NotFound(f"nobody has ever defined {name!r} in stack {call.client.stack.name}")
    return kinds[0]


KINDS: Final = (
    ResourceKind(
        "vigil://findings/{key}",
        "finding",
        "A finding, its history, and what explains it.",
        re.compile(r"vigil://findings/(.+)"),
        _finding,
    ),
    ResourceKind(
        "vigil://episodes/{id}",
        "episode",
        "An episode, and what led to it.",
        re.compile(r"vigil://episodes/([^/]+)"),
        _episode,
    ),
    ResourceKind(
        "vigil://approvals/{id}",
        "approval",
        "What waits for a person: the id of an episode, output:KEY, or step:INSTANCE:STEP.",
        re.compile(r"vigil://approvals/(.+)"),
        _approval,
    ),
    ResourceKind(
        "vigil://definitions/{name}@{rev}",
        "definition",
        "A revision of the definition of an actor or a workflow.",
        re.compile(r"vigil://definitions/(.+)"),
        _definition,
    ),
)
"""All kinds of things that can be read by address."""


def listed() -> list[Resource]:
    """Return what can be read without knowing what there is."""
    return [
        Resource(
            uri=DEFINITION_SCHEMA,
            name="definition schema",
            description="The JSON schemas of definitions of actors and of workflows.",
            mime_type=JSON,
        )
    ]


def listed_templates() -> list[ResourceTemplate]:
    """Return the kinds of things that can be read by address."""
    return [
        ResourceTemplate(
            uri_template=each.template, name=each.name, description=each.about, mime_type=JSON
        )
        for each in KINDS
    ]


@cache
def _definition_schema() -> str:
    from engine.definitions.agent import AgentDefinition
    from engine.definitions.workflow import WorkflowDefinition

    schemas: Mapping[str, object] = {
        "actor": AgentDefinition.model_json_schema(),
        "workflow": WorkflowDefinition.model_json_schema(),
    }
    return msgspec.json.encode(schemas).decode()
