"""OpenAI's responses, as they are on the wire. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from streams.json import JsonObject
from vigil.testing.model_server.answers import (
    AskedTool,
    ModelReply,
    ModelRequest,
    ModelUsage,
    json_text,
    pieces,
    text_in,
)
from vigil.testing.model_server.chat import failed
from vigil.testing.model_server.wire import (
    CREATED_AT_S,
    WireProtocol,
    arguments,
    converted,
    frame,
    settings_in,
)

_SYSTEM: Final = ("system", "developer")


class _Item(msgspec.Struct):
    type: str = "message"
    role: str = ""
    content: str | list[JsonObject] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: str | list[JsonObject] | None = None


class _Offered(msgspec.Struct):
    type: str = "function"
    name: str = ""
    description: str | None = None
    parameters: JsonObject | None = None


class _ResponsesBody(msgspec.Struct):
    model: str
    input: str | list[_Item]
    instructions: str | None = None
    tools: list[_Offered] = []
    stream: bool | None = None


def read(body: JsonObject, key: str) -> ModelRequest:
    """Return the request in `body`."""
    said = converted(body, _ResponsesBody)
    items = said.input
    if isinstance(items, str):
        items = [_Item(role="user", content=items)]
    system = [text_in(each.content) for each in items if each.role in _SYSTEM]
    if said.instructions:
        system.insert(0, said.instructions)
    return ModelRequest(
        protocol="responses",
        model=said.model,
        system="\n\n".join(system),
        messages=tuple(plain for each in items if (plain := _plain(each)) is not None),
        tools=tuple(_tool(each) for each in said.tools if each.type == "function"),
        settings=settings_in(body, but=_ResponsesBody.__struct_fields__),
        is_streamed=bool(said.stream),
        idempotency_key=key,
    )


def whole(reply: ModelReply) -> JsonObject:
    """Return a response."""
    status = "incomplete" if reply.is_truncated else "completed"
    return {**begun(reply, status), "output": _output(reply), "usage": _usage(reply.usage)}


def begun(reply: ModelReply, status: str, *, error: JsonObject | None = None) -> JsonObject:
    """Return a response that has no output yet, or never gets any."""
    is_truncated = status == "incomplete"
    return {
        "id": f"resp_{reply.id}",
        "object": "response",
        "created_at": CREATED_AT_S,
        "status": status,
        "error": error,
        "incomplete_details": {"reason": "max_output_tokens"} if is_truncated else None,
        "instructions": None,
        "metadata": {},
        "model": reply.model,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None,
    }


def frames(reply: ModelReply, request: ModelRequest) -> list[bytes]:
    """Return the events of a response."""
    del request
    return [
        frame({**each, "sequence_number": number}, event=str(each["type"]))
        for number, each in enumerate(_events(reply))
    ]


PROTOCOL: Final = WireProtocol("responses", read, whole, frames, failed)


def _events(reply: ModelReply) -> Iterator[JsonObject]:
    made = whole(reply)
    for status in ("created", "in_progress"):
        yield {"type": f"response.{status}", "response": begun(reply, "in_progress")}
    for index, item in enumerate(made["output"]):
        at = {"item_id": item["id"], "output_index": index}
        is_call = item["type"] == "function_call"
        empty: JsonObject = {"arguments": ""} if is_call else {"content": []}
        added = {**item, **empty, "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": index, "item": added}
        yield from _call_events(item, at) if is_call else _message_events(item, at)
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{made['status']}", "response": made}


def _message_events(item: JsonObject, at: JsonObject) -> Iterator[JsonObject]:
    for number, part in enumerate(item["content"]):
        place = {**at, "content_index": number}
        name = "text" if part["type"] == "output_text" else "refusal"
        extra: JsonObject = {"logprobs": []} if name == "text" else {}
        yield {"type": "response.content_part.added", **place, "part": {**part, name: ""}}
        for piece in pieces(part[name]):
            yield {"type": f"response.{part['type']}.delta", **place, "delta": piece, **extra}
        yield {"type": f"response.{part['type']}.done", **place, name: part[name], **extra}
        yield {"type": "response.content_part.done", **place, "part": part}


def _call_events(item: JsonObject, at: JsonObject) -> Iterator[JsonObject]:
    kind = "response.function_call_arguments"
    for piece in pieces(item["arguments"]):
        yield {"type": f"{kind}.delta", **at, "delta": piece}
    yield {"type": f"{kind}.done", **at, "name": item["name"], "arguments": item["arguments"]}


def _plain(item: _Item) -> JsonObject | None:
    match item.type:
        case "message" if item.role not in _SYSTEM:
            return {"role": item.role, "text": text_in(item.content)}
        case "function_call":
            args = arguments(item.arguments)
            calls = [{"id": item.call_id, "name": item.name, "args": args}]
            return {"role": "assistant", "text": "", "calls": calls}
        case "function_call_output":
            return {"role": "tool", "text": text_in(item.output), "id": item.call_id}
        case _:
            return None


def _tool(tool: _Offered) -> JsonObject:
    return {
        "name": tool.name,
        "description": tool.description or "",
        "schema": tool.parameters or {},
    }


def _output(reply: ModelReply) -> list[JsonObject]:
    content: list[JsonObject] = []
    if reply.text:
        content.append({"type": "output_text", "text": reply.text, "annotations": []})
    if reply.refusal:
        content.append({"type": "refusal", "refusal": reply.refusal})
    message = {
        "type": "message",
        "id": f"msg_{reply.id}",
        "role": "assistant",
        "status": "incomplete" if reply.is_truncated else "completed",
        "content": content,
    }
    return [*([message] if content else []), *map(_call, reply.calls)]


def _call(call: AskedTool) -> JsonObject:
    return {
        "type": "function_call",
        "id": f"fc_{call.id}",
        "call_id": call.id,
        "name": call.name,
        "arguments": json_text(call.args),
        "status": "completed",
    }


def _usage(usage: ModelUsage) -> JsonObject:
    read_details = {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0}
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": read_details,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
