"""What a server of models is asked, and what it answers: data for scripts and for the ledger. Pure.

TextAnswer("fine")   ToolCallsAnswer((AskedTool("search", {"q": "x"}),))   JsonAnswer({"ok": 1})
RefusalAnswer("no")  FailureAnswer(429, retry_after_s=2)    HangingAnswer()    CutOffAnswer("fi")
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from streams.json import JsonObject, raw

CHARS_PER_TOKEN: Final = 4
"""How many characters count as one token where an answer does not say what it used."""

OUTPUT_TOOL: Final = "final_result"
"""The tool with which pydantic-ai asks for structured output."""

ProtocolName: TypeAlias = Literal["chat", "responses", "messages"]
"""OpenAI's chat completions and responses, and Anthropic's messages."""


class ModelUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one answer, or of many."""

    input_tokens: int = 0
    """All that the model read, those from its cache included."""
    output_tokens: int = 0
    """All that the model wrote, its reasoning included."""
    cached_tokens: int = 0
    reasoning_tokens: int = 0


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request for an answer, the same data for all protocols."""

    protocol: ProtocolName
    model: str
    system: str = ""
    """The system's, the developer's and other instructions, empty lines between them."""
    messages: tuple[JsonObject, ...] = ()
    """Each has a `role`, `user`, `assistant` or `tool`, and a `text`. An assistant's may have
    `calls`, each with `id`, `name` and `args`; a tool's has the `id` of the call it answers."""
    tools: tuple[JsonObject, ...] = ()
    """Each has a `name`, a `description`, and the `schema` of its arguments."""
    settings: JsonObject = {}
    """All else that the request says, by the provider's names."""
    is_streamed: bool = False
    idempotency_key: str = ""
    batch: str = ""
    """The id of the batch that it came in; empty: it came by itself."""

    @property
    def text(self) -> str:
        """Return the text of the newest message."""
        return str(self.messages[-1]["text"]) if self.messages else ""


class AskedTool(msgspec.Struct, frozen=True):
    """A call that a model asks for."""

    name: str
    args: JsonObject = {}
    id: str = ""
    """Empty: made of the request, the same for an equal one."""


class TextAnswer(msgspec.Struct, frozen=True, tag="text"):
    """The model answers with text."""

    text: str
    usage: ModelUsage | None = None
    is_truncated: bool = False
    """Whether the limit of output tokens ended it."""


class ToolCallsAnswer(msgspec.Struct, frozen=True, tag="tool_calls"):
    """The model asks for calls, and may say something, too."""

    calls: tuple[AskedTool, ...]
    text: str = ""
    usage: ModelUsage | None = None


class JsonAnswer(msgspec.Struct, frozen=True, tag="json"):
    """The model answers with structured output, in the way in which the request wants it.

    That is a call of `tool`, if the request offers it, and else JSON as text.
    """

    value: object
    usage: ModelUsage | None = None
    tool: str = OUTPUT_TOOL


class RefusalAnswer(msgspec.Struct, frozen=True, tag="refusal"):
    """The model refuses to answer."""

    reason: str
    usage: ModelUsage | None = None


class FailureAnswer(msgspec.Struct, frozen=True, tag="failure"):
    """The provider answers with an HTTP status from 400 on."""

    status: int
    retry_after_s: float | None = None
    """What the header `retry-after` says, in seconds; a fraction of them as `retry-after-ms`."""
    code: str = ""
    """The provider's code of the error, such as `context_length_exceeded`; empty: by the status."""
    message: str = "as the script says"
    body: object = None
    """All of the body, any JSON value; None: as the provider words errors."""


class HangingAnswer(msgspec.Struct, frozen=True, tag="hang"):
    """The server never answers, until the client goes or the server is closed."""


class CutOffAnswer(msgspec.Struct, frozen=True, tag="cut_off"):
    """The server closes the connection after half of the answer `text`."""

    text: str = "this answer has no end"


ModelAnswer: TypeAlias = (
    TextAnswer
    | ToolCallsAnswer
    | JsonAnswer
    | RefusalAnswer
    | FailureAnswer
    | HangingAnswer
    | CutOffAnswer
)

GivenAnswer: TypeAlias = TextAnswer | ToolCallsAnswer | JsonAnswer | RefusalAnswer
"""The answers that a client gets whole, which a repeated idempotency key gets again."""


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the ledger: one answer of the script."""

    request: ModelRequest
    answer: ModelAnswer | None
    """None: the script has not said it yet."""
    usage: ModelUsage = ModelUsage()
    """Nothing if the client did not get all of it."""
    asked: int = 1
    """How often it was asked for, always under one idempotency key."""
    polls: int = 0
    """How often its background response or its batch was retrieved."""
    is_canceled: bool = False
    """Whether its background response or its batch was canceled before it was complete."""


class ModelReply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with all that a protocol needs to say it."""

    id: str
    model: str
    text: str = ""
    calls: tuple[AskedTool, ...] = ()
    """All have an id."""
    refusal: str = ""
    is_truncated: bool = False
    usage: ModelUsage = ModelUsage()


def reply_to(request: ModelRequest, answer: GivenAnswer, *, id: str) -> ModelReply:
    """Return what `answer` says to `request`; all ids in it are made of `id`."""
    empty = ModelReply(id=id, model=request.model)
    match answer:
        case TextAnswer(text=text, is_truncated=is_truncated):
            made = replace(empty, text=text, is_truncated=is_truncated)
        case ToolCallsAnswer(calls=calls, text=text):
            made = replace(empty, text=text, calls=_with_ids(calls, id))
        case JsonAnswer(value=value, tool=tool) if any(t["name"] == tool for t in request.tools):
            assert isinstance(value, dict), "the arguments of a call are an object"
            made = replace(empty, calls=_with_ids((AskedTool(tool, value),), id))
        case JsonAnswer(value=value):
            made = replace(empty, text=json_text(value))
        case RefusalAnswer(reason=reason):
            made = replace(empty, refusal=reason)
    return replace(made, usage=answer.usage or counted(request, made))


def counted(request: ModelRequest, reply: ModelReply) -> ModelUsage:
    """Return the tokens of a request and its reply, by their characters."""
    read = [request.system, *(_text_of(each) for each in request.messages)]
    written = [reply.text, reply.refusal, *(json_text(each.args) for each in reply.calls)]
    return ModelUsage(input_tokens=_tokens(read), output_tokens=_tokens(written))


def added(usages: Iterable[ModelUsage]) -> ModelUsage:
    """Return the sum."""
    fields = ModelUsage.__struct_fields__
    listed = list(usages)
    return ModelUsage(**{name: sum(getattr(each, name) for each in listed) for name in fields})


def text_in(content: object) -> str:
    """Return the text of a message's content; of a part that is no text, its type in brackets."""
    match content:
        case str():
            return content
        case Sequence():
            return "\n".join(text_in(each) for each in content)
        case {"text": str(text)}:
            return text
        case Mapping():
            return f"[{content.get('type', 'part')}]"
        case _:
            return ""


def pieces(text: str, *, chars: int = 8) -> list[str]:
    """Return the parts in which `text` is streamed."""
    return [text[at : at + chars] for at in range(0, len(text), chars)]


def json_text(value: object) -> str:
    """Return `value` as JSON."""
    return bytes(raw(value)).decode()


def _with_ids(calls: Sequence[AskedTool], id: str) -> tuple[AskedTool, ...]:
    return tuple(
        replace(each, id=each.id or f"call_{id}_{number}") for number, each in enumerate(calls)
    )


def _text_of(message: JsonObject) -> str:
    return f"{message['text']}{''.join(json_text(each) for each in message.get('calls', ()))}"


def _tokens(texts: Iterable[str]) -> int:
    return -(-sum(map(len, texts)) // CHARS_PER_TOKEN)
