"""A tool as data: what it is called, who may call it, what it takes, returns and does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from engine.agents.data import data
from engine.app.app import App
from engine.people.identity import meant_by
from streams.json import JsonObject
from vigil.client.client import Client
from vigil.errors import Mistake
from vigil.mcp.caller import Caller

ROWS_MAX: Final = 50
"""Most rows of an answer."""

ROWS_USUAL: Final = 20
"""How many rows a list returns by default: what a model reads costs money."""

ANSWER_BYTES_MAX: Final = 256 * 1024
"""Largest answer, in bytes of JSON."""

_REF: Final = "#/$defs/{name}"


class ToolKind(StrEnum):
    """What a tool does, which says who may call it."""

    READ = "read"
    """It changes nothing: a viewer, with the scope `read`."""
    ACT = "act"
    """It changes something: an operator, with the scope `act`. Others are not told that it is."""
    DECIDE = "decide"
    """It brings a person to a decision, and decides nothing: a viewer, with the scope `read`."""


class ToolInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tool takes; a name that it does not have is a mistake."""


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool returns."""


I = TypeVar("I", bound=ToolInput)  # noqa: E741 - the input of a tool
O = TypeVar("O", bound=ToolOutput)  # noqa: E741 - its output

Limit: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=ROWS_MAX, description="Most rows.")]
After: TypeAlias = Annotated[
    str | None, msgspec.Meta(description="The `next` of an answer: what follows it.")
]
Key: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=200,
        description="Idempotency key, such as a UUID: a call that is repeated with it does nothing"
        " a second time.",
    ),
]
Why: TypeAlias = Annotated[
    str, msgspec.Meta(max_length=1_000, description="Why; kept with what is done.")
]


@dataclass(frozen=True, kw_only=True)
class ServedCall:
    """What a tool works with."""

    client: Client
    caller: Caller
    app: App | None = None
    """Whose rules are tried; None: the server was started without one."""
    console_url: str = ""
    """Where people sign in and decide; empty: nobody has said."""
    is_answered: bool = False
    """Whether the person was asked, and the call is made once more."""


@dataclass(frozen=True, kw_only=True)
class AskPerson:
    """What a tool brings instead of a result: somebody is to open a page."""

    key: str
    message: str
    url: str


@dataclass(frozen=True, kw_only=True)
class ServedTool(Generic[I, O]):
    """A tool of the server. The listing, the schemas and who may call it follow from this."""

    name: str
    about: str
    """For models: what it returns, when to use it, and what to do next."""
    kind: ToolKind
    input: type[I]
    output: type[O]
    call: Callable[[ServedCall, I], Awaitable[O | AskPerson]]
    is_destructive: bool = False
    """Whether it may end or undo something."""
    needs_app: bool = False
    """Whether it works with the app of the server."""

    def is_for(self, caller: Caller, *, has_app: bool = True) -> bool:
        """Return whether `caller` may call it, and is told that it is there."""
        may = caller.may_act if self.kind is ToolKind.ACT else caller.may_read
        return may and (has_app or not self.needs_app)

    async def answer(self, call: ServedCall, arguments: JsonObject) -> tuple[O, bytes] | AskPerson:
        """Return what it brings, also as JSON; a list has fewer rows if all would be too large.

        Raises:
            Mistake: it takes no such arguments, or what it would bring is too large.
        """
        try:
            given = msgspec.convert(arguments, self.input)
        except msgspec.ValidationError as error:
            raise Mistake(f"{self.name}: {error}") from error
        asked = meant_by(call.caller.identity, given)
        while True:
            found = await self.call(call, asked)
            if isinstance(found, AskPerson):
                return found
            text = msgspec.json.encode(found)
            if len(text) <= ANSWER_BYTES_MAX:
                return found, text
            limit = getattr(asked, "limit", 1)
            if limit <= 1:  # guard: answer-bytes-capped
                raise Mistake(
                    f"{self.name}: the answer is {len(text):,} bytes, over {ANSWER_BYTES_MAX:,}",
                    remedy="look at it in the console or with the `vigil` command",
                )
            asked = msgspec.structs.replace(asked, limit=limit // 2)


AnyTool: TypeAlias = ServedTool[Any, Any]


def wrapped(name: str, text: bytes) -> str:
    """Return the JSON of an answer for a model, between tags that nothing in it can close."""
    return data(text.decode(), name=name)  # guard: answers-are-data


def schema_of(type_: type[msgspec.Struct]) -> Mapping[str, Any]:
    """Return the JSON schema of a struct, whose root is an object, as the protocol wants it."""
    (root,), parts = msgspec.json.schema_components(
        [type_], schema_hook=_any_json, ref_template=_REF
    )
    own = root["$ref"].rpartition("/")[2]
    others = {name: each for name, each in parts.items() if name != own}
    return {**parts[own], "$defs": others} if others else parts[own]


def _any_json(type_: type) -> dict[str, Any]:
    """Return the schema of a field that holds any JSON value."""
    if type_ is object:
        return {"description": "Any JSON value."}
    raise NotImplementedError(type_)
