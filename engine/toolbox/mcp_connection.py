"""The connection of one node to one MCP server: opened at the first call, and again when it broke.

The SDK opens and closes a session in one task, so each has a task of its own, which waits in
between. A call lists the tools first, unless the server has said that its list still holds: so a
tool that has changed is found out before it is called, and a connection that has broken meanwhile
is replaced before anything depends on it. What breaks under a call fails it, since nobody knows
how far the server has come.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass, replace
from functools import cache
from http import HTTPStatus
from typing import Any, Final, cast

import httpx2
import structlog
from mcp import Client, MCPError
from mcp.client import Transport
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    REQUEST_TIMEOUT,
    URL_ELICITATION_REQUIRED,
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    Implementation,
    InputRequiredResult,
    InputResponses,
    PaginatedRequestParams,
    RequestParamsMeta,
    TextContent,
)
from pydantic import ValidationError

from engine.app.function_tool import INVALID_ARGUMENTS, INVALID_RETURN, TIMEOUT_S_MAX
from engine.app.tools import (
    RESULT_BYTES_MAX,
    TOO_LARGE,
    CallContext,
    Tool,
    ToolFailed,
    class_of_status,
)
from engine.secrets import without
from engine.telemetry import keep_urls_out_of_logs
from engine.toolbox import mcp_tasks
from engine.toolbox.mcp_declared import (
    DETAIL_CHARS_MAX,
    Endpoint,
    ListedTool,
    Place,
    Process,
    ServerTool,
    pin_line,
)
from engine.toolbox.mcp_tasks import TaskHandle, Tasks, TaskState
from streams.clock import Clock
from streams.json import JsonObject

OPEN_S_MAX: Final = 60.0
"""Longest that a server may take to start and to greet, in seconds: some are installed first."""

END_S_MAX: Final = 8.0
"""Longest that a session may take to end, in seconds: the SDK ends a process within 6.5."""

LISTED_S_MAX: Final = 60.0
"""Longest that a list of tools holds, in seconds, whatever the server says."""

PAGES_MAX: Final = 100
"""Most pages of a list of tools."""

ROUNDS_MAX: Final = 10
"""Most times that a server may have a call come again."""

ROUND_S: Final = 0.25
"""The pause before a call comes again, in seconds."""

INPUT_REQUIRED: Final = "input_required"
"""Error class of a call that the server answers with a question."""

IDEMPOTENCY_KEY: Final = "vigil/idempotencyKey"
"""The key of the idempotency key in `_meta` of a call."""

ANSWERS: Final = "_answers"
"""The argument that answers what the server has asked."""

STATE: Final = "_state"
"""The argument that has the state that came with the question."""

TASK: Final = "_task"
"""The argument that has the id of the task that is looked at."""

_MS_PER_S: Final = 1_000

_CLASSES: Final[Mapping[int, str]] = {
    CONNECTION_CLOSED: "tool_unavailable",
    HEADER_MISMATCH: "tool_unavailable",
    REQUEST_TIMEOUT: "tool_timeout",
    METHOD_NOT_FOUND: "tool_not_found",
    INVALID_PARAMS: INVALID_ARGUMENTS,
    URL_ELICITATION_REQUIRED: INPUT_REQUIRED,
    MISSING_REQUIRED_CLIENT_CAPABILITY: INPUT_REQUIRED,
}
"""Code of an error → error class; any other is `tool_failed`."""

_ANSWERING: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.CONFLICT})
"""Statuses of failed requests that say less than the error in the body."""


@dataclass(frozen=True)
class _Request:
    """What is asked of a server, and what comes along of an earlier call."""

    tool: str
    args: JsonObject
    meta: Mapping[str, str]
    responses: InputResponses | None = None
    """To what the server has asked, by its keys."""
    state: str | None = None
    """The server's own words."""
    task: str = ""
    """The task that is looked at instead; empty: none."""
    may_be_task: bool = False
    """Whether a task may be the answer."""


@dataclass
class _Seen:
    """What the answers over HTTP to the requests of one call were, beside their messages."""

    status: int = HTTPStatus.OK
    """Of the last one."""
    is_too_large: bool = False


_seen: Final[ContextVar[_Seen | None]] = ContextVar("seen", default=None)
"""That of the call whose requests are made."""

log = structlog.get_logger("vigil.toolbox")


class McpConnection:
    """See `ToolConnection`."""

    def __init__(self, place: Place, clock: Clock) -> None:
        """Begin with no session; `place` says where the server is."""
        self._place, self._clock = place, clock
        self._session: _Session | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._told: set[str] = set()
        """The unpinned tools whose pins were logged."""

    async def call(self, tool: Tool, args: JsonObject, ctx: CallContext) -> object:
        """Call `tool` once it was seen that it is the one that the app allows."""
        assert isinstance(tool, ServerTool), "others have other servers"
        _seen.set(seen := _Seen())
        session, there = await self._listed(seen)
        listed = there.get(tool.name)
        if listed is None:
            known = ", ".join(sorted(there)) or "none"
            raise self._tool_failed(
                "tool_not_found", f"the server has no {tool.name!r}; it has {known}"
            )
        listed.check_pin(tool.allowed.pin)
        self._tell_pin(tool, listed)
        request = self._request(tool, args, ctx)
        if not request.task:
            listed.check_arguments(request.args)
        answer = await self._answer(session, request, seen)
        if isinstance(answer, TaskHandle | TaskState):
            return mcp_tasks.told(answer)
        if isinstance(answer, InputRequiredResult):
            if not tool.allowed.may_ask:  # guard: question-fails-call
                raise self._tool_failed(INPUT_REQUIRED, _question(answer))
            return _dumped(answer)
        if answer.is_error:  # guard: error-result-fails-call
            raise self._tool_failed("tool_failed", _text_of(answer) or "the server gives no reason")
        return result_of(answer)

    async def tools(self) -> Mapping[str, ListedTool]:
        """Return all tools of the server, by name; `ToolFailed`: they are not to be had."""
        _seen.set(seen := _Seen())
        return (await self._listed(seen))[1]

    async def close(self) -> None:
        """End the session, and wait until everything of it is gone."""
        self._leave(self._session)
        try:
            if self._leaving:
                await asyncio.wait(self._leaving)
        finally:
            for task in self._leaving:  # Nobody waits any more.
                task.cancel()

    async def _listed(self, seen: _Seen) -> tuple[_Session, Mapping[str, ListedTool]]:
        """Return a session that works, and the tools; an old one may have to be replaced first."""
        session, is_old = await self._opened()
        try:
            return session, await self._tools(session, seen)
        except ToolFailed:
            if not (is_old and session.is_over):  # guard: broken-connection-reopened
                raise
        session, _ = await self._opened()
        return session, await self._tools(session, seen)

    async def _tools(self, session: _Session, seen: _Seen) -> Mapping[str, ListedTool]:
        try:
            return await session.tools()
        except MCPError as error:
            raise self._failure(session, error, seen) from error
        except ValidationError as error:
            raise self._tool_failed(INVALID_RETURN, f"its list of tools: {error}") from error

    async def _opened(self) -> tuple[_Session, bool]:
        """Return the session, opened if need be, and whether it was there before."""
        session = self._session
        is_old = session is not None and not session.is_over
        values = self._place.values()
        if session is None or session.is_over:
            session = self._session = _Session(self._place, values, self._clock)
        # A node that changes a secret changes it for the requests of an open session, too.
        session.values.update(values)
        if (error := await session.wait_open()) is not None:
            self._leave(session)
            raise self._unopened(error, session.seen)
        return session, is_old

    async def _answer(
        self, session: _Session, request: _Request, seen: _Seen
    ) -> CallToolResult | InputRequiredResult | TaskHandle | TaskState:
        """Return what the server answers: a result, what it asks, or a task that goes on."""
        if request.task:
            looked = await self._state(session, request, seen)
            return self._ended(looked) or looked
        answer = await self._called(session, request, seen)
        if not isinstance(answer, TaskHandle) or request.may_be_task:
            return answer
        # guard: task-followed-within-call
        state: TaskHandle | TaskState = answer
        looks = replace(request, task=answer.task_id, responses=None)
        while (ended := self._ended(state)) is None:
            if state.status == INPUT_REQUIRED:
                raise self._tool_failed(INPUT_REQUIRED, _question_of_task(state))
            await self._clock.sleep(mcp_tasks.pause_s(state))
            state = await self._state(session, looks, seen)
        return ended

    async def _state(self, session: _Session, request: _Request, seen: _Seen) -> TaskState:
        try:
            return await mcp_tasks.state_of(session.client, request.task, request.responses)
        except MCPError as error:
            raise self._failure(session, error, seen) from error
        except ValidationError as error:
            raise self._tool_failed(INVALID_RETURN, f"its task: {error}") from error

    def _ended(self, state: TaskHandle | TaskState) -> CallToolResult | None:
        """Return the result of a task; None: it goes on. `ToolFailed`: there is none."""
        if state.status in {"failed", "cancelled"}:  # guard: failed-task-fails-call
            error = (state.error if isinstance(state, TaskState) else None) or {}
            why = error.get("message") or getattr(state, "status_message", None)
            raise self._tool_failed(
                "tool_failed", f"its task has {state.status}: {why or 'no reason'}"
            )
        if state.status != "completed" or not isinstance(state, TaskState):
            return None
        try:
            return CallToolResult.model_validate(state.result)
        except ValidationError as error:
            raise self._tool_failed(INVALID_RETURN, f"its task: {error}") from error

    async def _called(
        self, session: _Session, request: _Request, seen: _Seen
    ) -> CallToolResult | InputRequiredResult | TaskHandle:
        for _ in range(ROUNDS_MAX):
            try:
                answer = await session.client.call_tool(
                    request.tool,
                    request.args,
                    meta=cast("RequestParamsMeta", request.meta),
                    input_responses=request.responses,
                    request_state=request.state,
                    allow_input_required=True,
                    allow_claimed=True,
                )
            except MCPError as error:
                raise self._failure(session, error, seen) from error
            except (ValidationError, RuntimeError) as error:
                # What came is no result, or not one as the server has declared it.
                raise self._tool_failed(INVALID_RETURN, str(error)) from error
            if isinstance(answer, CallToolResult | TaskHandle):
                return answer
            assert isinstance(answer, InputRequiredResult), "nothing else is claimed"
            if answer.input_requests:
                return answer
            request = replace(request, responses=None, state=answer.request_state)
            await self._clock.sleep(ROUND_S)
        problem = f"the server puts the call off, {ROUNDS_MAX} times"
        raise self._tool_failed("tool_unavailable", problem)

    def _request(self, tool: ServerTool, args: JsonObject, ctx: CallContext) -> _Request:
        """Return what is asked of the server; `ToolFailed`: answers cannot be such."""
        meta = {IDEMPOTENCY_KEY: ctx.idempotency_key}  # guard: key-in-meta
        may_be_task = tool.allowed.may_be_task
        if not (tool.allowed.may_ask or may_be_task):
            return _Request(tool.name, args, meta)
        own = {name: each for name, each in args.items() if name not in {ANSWERS, STATE, TASK}}
        state, task = args.get(STATE), args.get(TASK, "")
        try:
            responses = _responses(args.get(ANSWERS))
        except (AttributeError, ValidationError) as error:
            problem = f"{ANSWERS}: not {{key: {{name: value}}}}, or None for what is declined"
            raise self._tool_failed(INVALID_ARGUMENTS, problem) from error
        if state is not None and not isinstance(state, str):
            raise self._tool_failed(INVALID_ARGUMENTS, f"{STATE}: not a text of the server's")
        if not isinstance(task, str) or (task and not may_be_task):
            raise self._tool_failed(INVALID_ARGUMENTS, f"{TASK}: not the id of a task of this tool")
        return _Request(tool.name, own, meta, responses, state, task, may_be_task)

    def _tell_pin(self, tool: ServerTool, listed: ListedTool) -> None:
        """Log, once, the pin of a tool that has none."""
        if tool.allowed.pin or tool.name in self._told:
            return
        self._told.add(tool.name)
        log.warning(
            "a tool of an MCP server has no pin: a changed one would be called, too",
            server=self._place.label,
            tool=tool.name,
            do=f"allow it as {pin_line(listed, action=tool.action, risk=tool.risk)}",
        )

    def _leave(self, session: _Session | None) -> None:
        """End a session; the next call opens another."""
        if session is not None:
            session.end()
            self._leaving.add(session.task)
            session.task.add_done_callback(self._leaving.discard)

    def _failure(self, session: _Session, error: MCPError, seen: _Seen) -> ToolFailed:
        """Return how a call has failed; a session that has broken is left."""
        status = seen.status
        if error.code == CONNECTION_CLOSED or status == HTTPStatus.NOT_FOUND:
            self._leave(session)  # guard: broken-connection-left
        if seen.is_too_large:
            return self._too_large()
        is_status = status >= HTTPStatus.BAD_REQUEST and status not in _ANSWERING
        found = class_of_status(status) if is_status else _CLASSES.get(error.code, "tool_failed")
        told = f"{status}: {error.message}" if is_status else error.message
        asked = _asked(error.data) if found == INPUT_REQUIRED else ""
        return self._tool_failed(found, f"{told}: {asked}" if asked else told)

    def _unopened(self, error: BaseException, seen: _Seen) -> ToolFailed:
        """Return why no session could be opened."""
        cause = _cause(error)
        status = seen.status
        kind = type(cause).__name__
        if seen.is_too_large:
            return self._too_large()
        if status >= HTTPStatus.BAD_REQUEST and isinstance(cause, MCPError):
            return self._tool_failed(class_of_status(status), f"{status}: {cause.message}")
        if isinstance(cause, TimeoutError):
            return self._tool_failed(
                "tool_timeout", f"the server is not there within {OPEN_S_MAX:g} s"
            )
        # Others quote what cannot be sent, which may be a secret.
        is_told = isinstance(cause, OSError | MCPError | httpx2.NetworkError)
        return self._tool_failed("tool_unavailable", f"{kind}: {cause}" if is_told else kind)

    def _too_large(self) -> ToolFailed:
        return self._tool_failed(TOO_LARGE, f"an answer of over {RESULT_BYTES_MAX:,} bytes")

    def _tool_failed(self, error_class: str, detail: str) -> ToolFailed:
        # Before it is cut: a part of a secret is not found.
        # guard: mcp-error-hides-secrets
        said = without(" ".join(detail.split()), self._place.secrets())
        return ToolFailed(error_class, f"{self._place.label}: {said[:DETAIL_CHARS_MAX]}")


class _Session:
    """A session with a server, in the task that opens and closes it."""

    def __init__(self, place: Place, values: dict[str, str], clock: Clock) -> None:
        self.values, self.seen = values, _Seen()
        self._place, self._clock = place, clock
        self._opened: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._ending = asyncio.Event()
        self._kept: dict[str, ListedTool] = {}
        self._kept_until_s = 0.0
        # It outlives the call that needs it first, so it has nothing of that one's context.
        self.task = asyncio.create_task(self._run(), context=Context())
        self.task.add_done_callback(_retrieve)

    @property
    def client(self) -> ClientSession:
        """What calls are made with, once it is open."""
        return self._opened.result()

    @property
    def is_over(self) -> bool:
        return self._ending.is_set() or self.task.done()

    def end(self) -> None:
        """Have it closed, by its task."""
        self._ending.set()
        if not self._opened.done():
            self.task.cancel()

    async def wait_open(self) -> BaseException | None:
        """Wait until calls can be made; return why they cannot, or None."""
        waits: list[asyncio.Future[Any]] = [self._opened, self.task]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if self._opened.done():
            return None
        if self.task.cancelled():
            return ConnectionAbortedError("it is closed")
        return self.task.exception() or ConnectionAbortedError("it is closed")

    async def tools(self) -> Mapping[str, ListedTool]:
        """Return the tools of the server, by name; raise `MCPError` if it does not answer."""
        if self._clock.monotonic_s() < self._kept_until_s:
            return self._kept
        found: dict[str, ListedTool] = {}
        cursor, holds_s = None, LISTED_S_MAX  # guard: list-holds-not-forever
        for _ in range(PAGES_MAX):
            page = await self.client.list_tools(params=PaginatedRequestParams(cursor=cursor))
            holds_s = min(holds_s, (page.ttl_ms or 0) / _MS_PER_S)
            for each in page.tools:
                found[each.name] = ListedTool(each.name, each.description or "", each.input_schema)
            cursor = page.next_cursor
            if cursor is None:
                break
        self._kept, self._kept_until_s = found, self._clock.monotonic_s() + holds_s
        return found

    async def _run(self) -> None:
        _seen.set(self.seen)
        async with AsyncExitStack() as stack:
            async with self._clock.timeout(OPEN_S_MAX):
                client = await stack.enter_async_context(_client(self._place, self.values))
            self._opened.set_result(client.session)
            await self._ending.wait()
            async with self._clock.timeout(END_S_MAX):
                await stack.aclose()


@asynccontextmanager
async def _client(place: Place, values: Mapping[str, str]) -> AsyncIterator[Client]:
    """Open a client of the server at `place`; `values` are its variables or headers."""
    match place:
        case Process(command=command, args=args):
            start = StdioServerParameters(command=command, args=list(args), env=dict(values))
            async with _over(start) as client:
                yield client
        case Endpoint():
            async with _http(place, values) as http:
                over = streamable_http_client(
                    place.url, http_client=http, max_sse_event_size=RESULT_BYTES_MAX
                )
                async with _over(over) as client:
                    yield client


def _over(server: StdioServerParameters | Transport) -> Client:
    return Client(
        server,
        client_info=Implementation(name="vigil", version="1"),
        cache=None,
        elicitation_callback=_answer_later,  # A server that may ask says what it asks.
        extensions=[Tasks()],
    )


def _responses(answers: JsonObject | None) -> InputResponses | None:
    """Return `answers` as the protocol has them: None declines."""
    if answers is None:
        return None
    return {
        key: ElicitResult(action="decline" if each is None else "accept", content=each)
        for key, each in answers.items()
    }


async def _answer_later(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    """Answer a server of an older protocol, which asks while the call waits: nobody is there."""
    del context, params
    return ElicitResult(action="cancel")


@asynccontextmanager
async def _http(place: Endpoint, values: Mapping[str, str]) -> AsyncIterator[httpx2.AsyncClient]:
    async def add_headers(request: httpx2.Request) -> None:
        request.headers.update(values)

    async def note_status(response: httpx2.Response) -> None:
        if (seen := _seen.get()) is not None:
            seen.status = response.status_code

    keep_urls_out_of_logs()
    tls: ssl.SSLContext | bool = place.tls or False
    if place.url.startswith("https:") and place.tls is None:
        tls = await asyncio.to_thread(_public_tls)
    # What is small on its way must not be huge when it is unpacked.
    async with httpx2.AsyncClient(
        transport=_Bounded(httpx2.AsyncHTTPTransport(verify=tls, trust_env=False)),
        headers={"Accept-Encoding": "identity"},
        trust_env=False,
        timeout=httpx2.Timeout(OPEN_S_MAX, read=TIMEOUT_S_MAX),  # Of the longest call.
        event_hooks={"request": [add_headers], "response": [note_status]},
    ) as client:
        yield client


class _TooLong(httpx2.StreamError):
    """An answer is longer than any result may be."""


class _Bounded(httpx2.AsyncBaseTransport):
    """Ends answers in JSON that are too long; the SDK bounds streams of events itself."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if "json" in response.headers.get("content-type", ""):
            assert isinstance(response.stream, httpx2.AsyncByteStream), "it is read by parts"
            response.stream = _BoundedStream(response.stream)  # guard: mcp-answer-bytes-max
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size_bytes = 0
        async for part in self._inner:
            size_bytes += len(part)
            if size_bytes > RESULT_BYTES_MAX:
                if (seen := _seen.get()) is not None:
                    seen.is_too_large = True
                raise _TooLong(f"over {RESULT_BYTES_MAX:,} bytes")
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()


def result_of(answer: CallToolResult) -> object:
    """Return what a tool has answered as JSON.

    That is its structured content, or else its texts in one; or where there is more than text, a
    list of the parts as the protocol has them.
    """
    if answer.structured_content is not None:
        return answer.structured_content
    if all(isinstance(each, TextContent) for each in answer.content):
        return _text_of(answer)
    return [
        each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in answer.content
    ]


def _text_of(answer: CallToolResult) -> str:
    return "\n".join(each.text for each in answer.content if isinstance(each, TextContent))


def _question(answer: InputRequiredResult) -> str:
    """Return what the server asks."""
    requests = (answer.input_requests or {}).values()
    asked = [f"{each.method}: {_asked(_dumped(each.params)) or '…'}" for each in requests]
    return f"the server asks before it goes on: {'; '.join(asked)}"


def _question_of_task(state: TaskHandle | TaskState) -> str:
    requests = (state.requests if isinstance(state, TaskState) else None) or {}
    asked = [_asked(each.get("params")) or "…" for each in requests.values()]
    return f"the task of the call asks before it goes on: {'; '.join(asked)}"


def _dumped(params: object) -> object:
    dump = getattr(params, "model_dump", None)
    return dump(mode="json", by_alias=True, exclude_none=True) if dump else None


def _asked(data: object) -> str:
    """Return the messages and addresses in what a server says of its questions."""
    match data:
        case {"elicitations": list() as each}:
            return "; ".join(filter(None, map(_asked, each)))
        case {"requiredCapabilities": dict() as needed}:
            return f"the client must be able to do {', '.join(sorted(needed))}"
        case dict():
            told = (data.get(key) for key in ("message", "url"))
            return " ".join(each for each in told if isinstance(each, str))
        case _:
            return ""


def _cause(error: BaseException) -> BaseException:
    """Return the first error in groups of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _retrieve(task: asyncio.Task[None]) -> None:
    """Retrieve how a session has ended: the calls on it say so."""
    if not task.cancelled():
        task.exception()


@cache
def _public_tls() -> ssl.SSLContext:
    return httpx2.create_ssl_context(trust_env=False)
