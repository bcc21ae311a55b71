"""OpenAI's chat completions, as they are on the wire. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from streams.json import JsonObject
from vigil.testing.model_server.answers import (
    AskedTool,
    FailureAnswer,
    ModelReply,
    ModelRequest,
    ModelUsage,
    json_text,
    pieces,
    text_in,
)
from vigil.testing.model_server.wire import (
    CREATED_AT_S,
    WireProtocol,
    arguments,
    converted,
    frame,
    settings_in,
)

_SYSTEM: Final = ("system", "developer")

_TYPES: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}

_CODES: Final = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


class _Function(msgspec.Struct):
    name: str
    arguments: str = ""
    description: str = ""
    parameters: JsonObject = {}


class _Called(msgspec.Struct):
    id: str
    function: _Function


class _Message(msgspec.Struct):
    role: str
    content: str | list[JsonObject] | None = None
    tool_calls: list[_Called] = []
    tool_call_id: str = ""


class _Offered(msgspec.Struct):
    function: _Function | None = None


class _ChatBody(msgspec.Struct):
    model: str
    messages: list[_Message]
    tools: list[_Offered] = []
    stream: bool | None = None


def read(body: JsonObject, key: str) -> ModelRequest:
    """Return the request in `body`."""
    said = converted(body, _ChatBody)
    system = [text_in(each.content) for each in said.messages if each.role in _SYSTEM]
    return ModelRequest(
        protocol="chat",
        model=said.model,
        system="\n\n".join(system),
        messages=tuple(_plain(each) for each in said.messages if each.role not in _SYSTEM),
        tools=tuple(_tool(each.function) for each in said.tools if each.function is not None),
        settings=settings_in(body, but=_ChatBody.__struct_fields__),
        is_streamed=bool(said.stream),
        idempotency_key=key,
    )


def whole(reply: ModelReply) -> JsonObject:
    """Return a chat completion."""
    message: JsonObject = {
        "role": "assistant",
        "content": reply.text or None,
        "refusal": reply.refusal or None,
    }
    if reply.calls:
        message["tool_calls"] = [_call(each) for each in reply.calls]
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply), "logprobs": None}
    return {**_head(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply.usage)}


def frames(reply: ModelReply, request: ModelRequest) -> list[bytes]:
    """Return the chunks of a chat completion."""
    head = _head(reply, "chat.completion.chunk")
    chunks = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for delta, finish in _deltas(reply)
    ]
    options = request.settings.get("stream_options") or {}
    if options.get("include_usage"):
        chunks.append({**head, "choices": [], "usage": _usage(reply.usage)})
    return [*map(frame, chunks), frame("[DONE]")]


def failed(failure: FailureAnswer) -> object:
    """Return the body of a failure, the same for chat completions and responses."""
    if failure.body is not None:
        return failure.body
    type_ = "server_error" if failure.status >= 500 else "invalid_request_error"  # noqa: PLR2004 - HTTP
    error = {
        "message": failure.message,
        "type": _TYPES.get(failure.status, type_),
        "param": None,
        "code": failure.code or _CODES.get(failure.status),
    }
    return {"error": error}


PROTOCOL: Final = WireProtocol("chat", read, whole, frames, failed)


def _deltas(reply: ModelReply) -> Iterator[tuple[JsonObject, str | None]]:
    yield {"role": "assistant", "content": ""}, None
    for piece in pieces(reply.text):
        yield {"content": piece}, None
    for piece in pieces(reply.refusal):
        yield {"refusal": piece}, None
    for index, call in enumerate(reply.calls):
        begun = {**_call(call), "index": index, "function": {"name": call.name, "arguments": ""}}
        yield {"tool_calls": [begun]}, None
        for piece in pieces(json_text(call.args)):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}, None
    yield {}, _finish(reply)


def _plain(message: _Message) -> JsonObject:
    made: JsonObject = {"role": message.role, "text": text_in(message.content)}
    if message.tool_calls:
        made["calls"] = [
            {
                "id": each.id,
                "name": each.function.name,
                "args": arguments(each.function.arguments),
            }
            for each in message.tool_calls
        ]
    if message.tool_call_id:
        made["id"] = message.tool_call_id
    return made


def _tool(function: _Function) -> JsonObject:
    return {
        "name": function.name,
        "description": function.description,
        "schema": function.parameters,
    }


def _head(reply: ModelReply, kind: str) -> JsonObject:
    return {
        "id": f"chatcmpl-{reply.id}",
        "object": kind,
        "created": CREATED_AT_S,
        "model": reply.model,
    }


def _call(call: AskedTool) -> JsonObject:
    function = {"name": call.name, "arguments": json_text(call.args)}
    return {"id": call.id, "type": "function", "function": function}


def _finish(reply: ModelReply) -> str:
    if reply.calls:
        return "tool_calls"
    return "length" if reply.is_truncated else "stop"


def _usage(usage: ModelUsage) -> JsonObject:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
