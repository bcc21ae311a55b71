"""Anthropic's messages, as they are on the wire. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from streams.json import JsonObject
from vigil.testing.model_server.answers import (
    FailureAnswer,
    ModelReply,
    ModelRequest,
    ModelUsage,
    json_text,
    pieces,
    text_in,
)
from vigil.testing.model_server.wire import WireProtocol, converted, frame, settings_in

_TYPES: Final = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class _Message(msgspec.Struct):
    role: str
    content: str | list[JsonObject]


class _MessagesBody(msgspec.Struct):
    model: str
    messages: list[_Message]
    max_tokens: int
    system: str | list[JsonObject] = ""
    tools: list[JsonObject] = []
    stream: bool | None = None


_READ: Final = ("model", "messages", "system", "tools", "stream")


def read(body: JsonObject, key: str) -> ModelRequest:
    """Return the request in `body`."""
    said = converted(body, _MessagesBody)
    return ModelRequest(
        protocol="messages",
        model=said.model,
        system=_system(said.system),
        messages=tuple(plain for each in said.messages for plain in _plain(each)),
        tools=tuple(_tool(each) for each in said.tools if "input_schema" in each),
        settings=settings_in(body, but=_READ),
        is_streamed=bool(said.stream),
        idempotency_key=key,
    )


def whole(reply: ModelReply) -> JsonObject:
    """Return a message."""
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": _content(reply),
        **_stop(reply),
        "usage": _usage(reply.usage),
    }


def frames(reply: ModelReply, request: ModelRequest) -> list[bytes]:
    """Return the events of a message."""
    del request
    return [frame(each, event=str(each["type"])) for each in _events(reply)]


def failed(failure: FailureAnswer) -> object:
    """Return the body of a failure."""
    if failure.body is not None:
        return failure.body
    type_ = "api_error" if failure.status >= 500 else "invalid_request_error"  # noqa: PLR2004 - HTTP
    type_ = failure.code or _TYPES.get(failure.status, type_)
    return {"type": "error", "error": {"type": type_, "message": failure.message}}


PROTOCOL: Final = WireProtocol("messages", read, whole, frames, failed)


def _events(reply: ModelReply) -> Iterator[JsonObject]:
    made = whole(reply)
    usage = {**made["usage"], "output_tokens": 0}
    unset: JsonObject = {"content": [], "stop_reason": None, "usage": usage}
    yield {"type": "message_start", "message": {**made, **unset}}
    for index, block in enumerate(made["content"]):
        if block["type"] == "tool_use":
            begun, kind, name = {**block, "input": {}}, "input_json_delta", "partial_json"
            text = json_text(block["input"])
        else:
            begun, kind, name, text = {**block, "text": ""}, "text_delta", "text", block["text"]
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        for piece in pieces(text):
            delta = {"type": kind, name: piece}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": _stop(reply), "usage": made["usage"]}
    yield {"type": "message_stop"}


def _plain(message: _Message) -> Iterator[JsonObject]:
    """Yield the results of tools in a message, each by itself, and then what is left of it."""
    blocks = message.content
    if isinstance(blocks, str):
        blocks = [{"type": "text", "text": blocks}]
    results = [each for each in blocks if each.get("type") == "tool_result"]
    calls = [each for each in blocks if each.get("type") == "tool_use"]
    others = [each for each in blocks if each.get("type") not in ("tool_result", "tool_use")]
    for each in results:
        yield {
            "role": "tool",
            "text": text_in(each.get("content")),
            "id": each.get("tool_use_id", ""),
        }
    if others or calls:
        made: JsonObject = {"role": message.role, "text": text_in(others)}
        if calls:
            made["calls"] = [
                {"id": each.get("id"), "name": each.get("name"), "args": each.get("input")}
                for each in calls
            ]
        yield made


def _system(said: str | list[JsonObject]) -> str:
    return said if isinstance(said, str) else "\n\n".join(map(text_in, said))


def _tool(tool: JsonObject) -> JsonObject:
    return {
        "name": tool.get("name", ""),
        "description": tool.get("description", ""),
        "schema": tool["input_schema"],
    }


def _content(reply: ModelReply) -> list[JsonObject]:
    text = [{"type": "text", "text": reply.text, "citations": None}] if reply.text else []
    calls = [
        {"type": "tool_use", "id": each.id, "name": each.name, "input": each.args}
        for each in reply.calls
    ]
    return [*text, *calls]


def _stop(reply: ModelReply) -> JsonObject:
    reason = "end_turn"
    details = None
    if reply.calls:
        reason = "tool_use"
    elif reply.is_truncated:
        reason = "max_tokens"
    elif reply.refusal:
        reason = "refusal"
        details = {"type": "refusal", "category": None, "explanation": reply.refusal}
    return {"stop_reason": reason, "stop_sequence": None, "stop_details": details}


def _usage(usage: ModelUsage) -> JsonObject:
    # Here the tokens from the cache come on top of the others.
    return {
        "input_tokens": usage.input_tokens - usage.cached_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }
