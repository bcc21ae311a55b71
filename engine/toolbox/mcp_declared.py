"""What an app declares of an MCP server: where it is, and which of its tools may be called.

What a server says of its tools counts for nothing here but their names, descriptions and schemas.
A model chooses tools by their descriptions, so one that has changed is another tool: an app allows
a tool with the digest of all three, its pin, and a tool with another digest is not called.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from engine.app.actions import Retries
from engine.app.function_tool import INVALID_ARGUMENTS
from engine.app.outputs import DeliveryFailed
from engine.app.tools import (
    CallContext,
    OfferedTool,
    Risk,
    Tool,
    ToolBreaker,
    ToolFailed,
    ToolServer,
)
from engine.errors import BadTool
from engine.secrets import texts_in
from streams.clock import SystemClock
from streams.json import JsonObject

Value: TypeAlias = str | Callable[[], str]
"""A text, or a function that returns it for each call, such as `env("TOKEN")`."""

PIN_BYTES: Final = 16
"""Length of a pin: long enough that no other tool can be made that has it."""

DETAIL_CHARS_MAX: Final = 500
"""Most of what a server or a schema says that an error quotes, in characters."""

VALIDATORS_MAX: Final = 256
"""Most input schemas that are kept ready."""

TOOL_CHANGED: Final = "tool_changed"
"""Error class of a call of a tool that is not the one that was pinned."""

_PUBLIC: Final = frozenset({"accept", "accept-language", "content-type", "user-agent"})
"""Headers whose values are no secrets, and would be missed in what people see."""


class McpTool(msgspec.Struct, frozen=True):
    """What an app allows of one tool of an MCP server."""

    risk: Risk
    """What a call may do: `read` changes nothing; `change` and `destroy` are side effects. What the
    server says about it is not believed."""
    pin: str = ""
    """The digest of name, input schema and description, 32 hex digits. A tool with another digest
    is not called: that fails as `tool_changed`. Empty: any is; it is logged at the first use. Leave
    it out beside an `input_schema`, with which it is known."""
    name: str = ""
    """What the server calls the tool; empty: as the app does."""
    idempotent: bool = False
    """Whether calls with one idempotency key have one effect. The key is in `_meta` of each call,
    as `vigil/idempotencyKey`."""
    may_ask: bool = False
    """Whether a question of the server is the result of a call, as the protocol has it:
    `{"resultType": "input_required", "inputRequests": {…}, "requestState": …}`. A second call with
    the same arguments, `_answers={key: {…}}` and `_state=…` answers it; `None` declines. Else it
    fails as `input_required`."""
    may_be_task: bool = False
    """Whether a task of the server is the result of a call that goes on there, as the protocol has
    it: `{"resultType": "task", "taskId": …, "status": …}`. A later call with `_task=…` looks at it,
    and brings the result of the first call once that is there; `_answers` answers what it asks.
    Else a call waits for the end of its task, within its `timeout_s`."""
    timeout_s: float | None = None
    """Longest that a call may take, in seconds; None: as the server's `timeout_s`."""
    retries: Retries | None = None
    """How often a failed call is repeated, and after which pauses; None: never. A side effect must
    be `idempotent` for it."""
    rate_per_s: float | None = None
    """Calls that may begin in a second, on each node; None: no limit."""
    breaker: ToolBreaker | None = None
    """When calls fail at once because earlier ones have, on each node; None: never."""
    description: str = ""
    """What models are told of it; the server must say the same."""
    input_schema: JsonObject | None = None
    """The JSON schema of its arguments, for models; the server must have the same. None: no model
    gets to know the tool. `vigil mcp pins --with-schemas` prints both."""


class ListedTool(msgspec.Struct, frozen=True):
    """A tool as a server lists it."""

    name: str
    description: str
    input_schema: JsonObject

    @property
    def pin(self) -> str:
        """The digest of all that a model gets to know of it."""
        known = [self.name, self.description, self.input_schema]
        text = json.dumps(known, sort_keys=True, separators=(",", ":"))
        return blake2b(text.encode(), digest_size=PIN_BYTES).hexdigest()

    def check_pin(self, pinned: str) -> None:
        """Raise `ToolFailed` if this is not the tool that was pinned; empty: any is."""
        if pinned and pinned != self.pin:  # guard: changed-tool-not-called
            detail = (
                f"{self.name!r} has the pin {self.pin}, and the app has {pinned}: its name, input"
                " schema or description is another one. Look at it with `vigil mcp pins`, and put"
                " the new pin into the app if it may be called"
            )
            raise ToolFailed(TOOL_CHANGED, detail)

    def check_arguments(self, args: JsonObject) -> None:
        """Raise `ToolFailed` if `args` do not fit the input schema."""
        # guard: mcp-arguments-fit-schema
        if problem := _problem_of_call(self.name, self.input_schema, args):
            raise ToolFailed(INVALID_ARGUMENTS, problem)


def pin_line(listed: ListedTool, *, action: str, risk: str, has_schema: bool = False) -> str:
    """Return the line of an app that allows a tool as it is now."""
    named = f', name="{listed.name}"' if action != listed.name else ""
    pinned = f'pin="{listed.pin}"'
    if has_schema:
        pinned = f"description={listed.description!r}, input_schema={listed.input_schema!r}"
    return f'"{action}": McpTool("{risk}", {pinned}{named}),'


def _problem_of_call(name: str, schema: JsonObject, args: JsonObject) -> str:
    problem = problem_of(args, schema)
    return f"{name}: {problem}"[:DETAIL_CHARS_MAX] if problem else ""


def problem_of(args: JsonObject, schema: JsonObject) -> str:
    """Return why `args` do not fit a JSON schema; empty: they do."""
    from jsonschema import SchemaError  # noqa: PLC0415 - comes with the extra
    from jsonschema.exceptions import best_match  # noqa: PLC0415 - comes with the extra
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - comes with the extra

    try:
        error = best_match(_validator(json.dumps(schema, sort_keys=True)).iter_errors(args))
    except SchemaError:
        return "the server's input schema is none"
    except Unresolvable:
        return "the server's input schema refers to what is not in it"
    return "" if error is None else f"{error.json_path}: {error.message}"


@lru_cache(VALIDATORS_MAX)
def _validator(schema: str) -> Any:  # noqa: ANN401 - jsonschema has no types
    from jsonschema.validators import validator_for  # noqa: PLC0415 - comes with the extra
    from referencing import Registry  # noqa: PLC0415 - comes with the extra

    parsed = json.loads(schema)
    kind = validator_for(parsed)
    kind.check_schema(parsed)
    # An empty registry: a server's schema makes no requests.
    # guard: schema-refers-to-itself-only
    return kind(parsed, registry=Registry())


@dataclass(frozen=True)
class Process:
    """A server that is a process of the node: it is spoken to over stdin and stdout."""

    command: str
    args: Sequence[str]
    env: Mapping[str, Value]

    @property
    def label(self) -> str:
        """What people call it: without arguments, which may be secret."""
        return self.command

    def values(self) -> dict[str, str]:
        """Return its variables beside PATH, HOME and the like; `ToolFailed`: one is missing."""
        return _told(self.env)

    def secrets(self) -> Collection[str]:
        """Return those values that functions return."""
        secret = {name: each for name, each in self.env.items() if callable(each)}
        with suppress(ToolFailed):  # It is not started then.
            return set(texts_in(_told(secret)))
        return ()


@dataclass(frozen=True)
class Endpoint:
    """A server over streamable HTTP."""

    url: str
    headers: Mapping[str, Value]
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    @property
    def label(self) -> str:
        """What people call it: without the query, which may be secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}{parts.path}"

    def values(self) -> dict[str, str]:
        """Return the headers of its requests; `ToolFailed`: a secret is missing."""
        return _told(self.headers)

    def secrets(self) -> Collection[str]:
        """Return what is in headers and people must not see."""
        secret = {name: each for name, each in self.headers.items() if name.lower() not in _PUBLIC}
        with suppress(ToolFailed):  # No request is made then.
            return set(texts_in(_told(secret)))
        return ()


Place: TypeAlias = Process | Endpoint
"""Where a server is."""


def _told(values: Mapping[str, Value]) -> dict[str, str]:
    try:
        return {name: each() if callable(each) else each for name, each in values.items()}
    except DeliveryFailed as failed:  # How `env` says that a secret is missing.
        raise ToolFailed(failed.error_class, failed.detail) from failed


@dataclass(frozen=True, eq=False)
class ServerTool(Tool):
    """A tool of an MCP server that an app allows."""

    action: str
    """What the app calls it."""
    name: str
    """What the server calls it."""
    allowed: McpTool
    place: Place
    server: ToolServer
    side_effect: bool
    idempotent: bool
    timeout_s: float | None
    retries: Retries | None
    rate_per_s: float | None
    breaker: ToolBreaker | None

    @property
    def risk(self) -> Risk:
        """What a call may do, as the app says."""
        return self.allowed.risk

    def secrets(self) -> Collection[str]:
        """Return what nobody may see in results and errors."""
        return self.place.secrets()

    def offered(self, capability: str) -> OfferedTool:
        """Return it as a model gets to know it; `BadTool`: none can."""
        name, schema = f"{capability}.{self.action}", self.allowed.input_schema
        if schema is None:  # guard: undescribed-tool-not-offered
            problem = "no model knows it without its input_schema; `vigil mcp pins --with-schemas`"
            raise BadTool(name, f"{problem} prints the line to write")
        if self.allowed.may_ask or self.allowed.may_be_task:  # guard: question-for-no-model
            problem = "may_ask: a model would get what the server asks people; call it yourself"
            if self.allowed.may_be_task:
                problem = "may_be_task: a model would have to look again; call it yourself"
            raise BadTool(name, f"{problem}, from an `async def name(ctx, …)`")
        return OfferedTool(
            capability=capability,
            action=self.action,
            description=self.allowed.description,
            risk=self.risk,
            schema=schema,
            problem_of=partial(_problem_of_call, self.action, schema),
        )

    async def call(self, action: str, args: JsonObject, ctx: CallContext) -> object:
        """Call the tool where no node keeps a connection: over one of its own.

        It is in a thread, so that its time is the real one, in a test with virtual time, too.
        """
        del action
        return await asyncio.to_thread(lambda: asyncio.run(self._called_alone(args, ctx)))

    async def _called_alone(self, args: JsonObject, ctx: CallContext) -> object:
        clock = SystemClock()
        connection = self.server.connection(clock)
        try:
            async with clock.timeout(self.timeout_s):
                return await connection.call(self, args, ctx)
        except TimeoutError:
            raise ToolFailed("tool_timeout", f"no result within {self.timeout_s} s") from None
        finally:
            await connection.close()
