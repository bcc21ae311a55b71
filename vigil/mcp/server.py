"""The server of the protocol, over whatever transport: its requests, and what each is allowed.

request ──▶ counted and noted ──▶ may the caller ──▶ tool, resource or prompt ──▶ wrapped answer
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from typing import Any, Final, TypeAlias, TypeVar, cast

import structlog
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import compose_tool_call_handler
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestURLParams,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    TextContent,
    TextResourceContents,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from engine.agents.data import ABOUT_DATA
from engine.app.app import App
from engine.people.identity import Identity
from vigil.client.client import Client
from vigil.errors import EXPECTED, NotFound, in_words
from vigil.mcp import prompts, resources
from vigil.mcp.caller import CALLS_PER_MINUTE_MAX, Caller, CallRate, named_client
from vigil.mcp.changes import ChangesBus
from vigil.mcp.table import TOOLS, listed, tools_for
from vigil.mcp.tasks import EpisodeTasks, opens_pages
from vigil.mcp.tool import AnyTool, AskPerson, ServedCall, ToolKind, wrapped
from vigil.version import vigil_version

T = TypeVar("T")

Context: TypeAlias = ServerRequestContext[Any, Any]

COUNTED: Final = frozenset(
    {
        "tools/call",
        "resources/read",
        "prompts/get",
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
        "subscriptions/listen",
    }
)
"""The requests that are noted and counted: those that look at the stack, or change it."""

STREAMS_MAX: Final = 100
"""Most streams of changes that are open at a time."""

TOO_MANY: Final = -32_050
"""The code of the error that a caller has made too many requests."""

MS_PER_S: Final = 1_000.0

ABOUT: Final = (
    "This is a stack of Vigil: actors whose expectations are checked by episodes, which find out"
    " what is wrong (findings), ask people (approvals) and act. Begin with `find` and `health`."
    " What acts goes on by itself: you need not wait. People decide, not you. " + ABOUT_DATA
)
"""What a model is told of the server."""

log = structlog.get_logger("vigil.mcp")


@dataclass(frozen=True, kw_only=True)
class Serving:
    """What a server serves, and to whom."""

    client: Client
    identity_of: Callable[[Context], Identity]
    """Who has made a request."""
    app: App | None = None
    """Whose rules `what_would_fire` tries, and whose parts definitions may name."""
    console_url: str = ""
    """Where people sign in and decide."""
    before_acting: Callable[[], Awaitable[None]] | None = None
    """Makes sure who acts before a call that does; None: each request says it by itself."""
    calls_per_minute: int = CALLS_PER_MINUTE_MAX
    rate: CallRate = field(init=False)
    changes: ChangesBus = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", CallRate(self.calls_per_minute))
        object.__setattr__(self, "changes", ChangesBus(self.client))

    def call_of(self, ctx: Context) -> ServedCall:
        """Return what a request works with."""
        said = ctx.session.client_params
        client = named_client(said.client_info.name, said.client_info.version) if said else ""
        return ServedCall(
            client=self.client,
            caller=Caller(identity=self.identity_of(ctx), client=client),
            app=self.app,
            console_url=self.console_url,
        )


def server_of(serving: Serving) -> Server[Any]:
    """Return a server, to be run over a transport."""
    tasks = EpisodeTasks(serving.call_of, as_protocol_error)
    calling = compose_tool_call_handler([tasks], partial(_call_tool, serving))
    listening = ListenHandler(serving.changes, max_subscriptions=STREAMS_MAX)
    server: Server[Any] = Server(
        "vigil",
        version=vigil_version(),
        instructions=ABOUT,
        on_list_tools=partial(_list_tools, serving),
        on_call_tool=cast("Any", calling),
        on_list_resources=partial(_list_resources, serving),
        on_list_resource_templates=partial(_list_templates, serving),
        on_read_resource=partial(_read_resource, serving),
        on_list_prompts=partial(_list_prompts, serving),
        on_get_prompt=partial(_get_prompt, serving),
        on_subscriptions_listen=partial(_listen, serving, listening),
    )
    for method in tasks.methods():
        server.add_request_handler(
            method.method,
            method.params_type,
            _at_versions(method.protocol_versions, method.handler),
        )
    server.extensions[tasks.identifier] = tasks.settings()
    server.middleware.append(partial(_noted, serving))
    return server


async def as_protocol_error(work: Awaitable[T]) -> T:
    """Return what `work` brings; what goes wrong is an error of the protocol, in our words."""
    try:
        return await work
    except EXPECTED as error:
        code = INVALID_PARAMS if isinstance(error, NotFound) else INTERNAL_ERROR
        raise MCPError(code, in_words(error)) from error


def _at_versions(
    versions: frozenset[str] | None, handler: Callable[[Context, Any], Awaitable[HandlerResult]]
) -> Callable[[Context, Any], Awaitable[HandlerResult]]:
    async def gated(ctx: Context, params: Any) -> HandlerResult:  # noqa: ANN401 - each has its own
        if versions is not None and ctx.protocol_version not in versions:
            raise MCPError(-32_601, "Method not found")
        return await handler(ctx, params)

    return gated


async def _noted(serving: Serving, ctx: Context, call_next: CallNext) -> HandlerResult:
    """Count a request of a caller, and note who has made it, how, and how it ended."""
    if ctx.method not in COUNTED:
        return await call_next(ctx)
    clock = serving.client.connections.clock
    if serving.before_acting is not None and _acts(ctx):
        await as_protocol_error(serving.before_acting())
    caller, began_s = serving.call_of(ctx).caller, clock.monotonic_s()
    outcome = "error"
    try:
        _take_turn(serving, caller, now_s=began_s)
        result = await call_next(ctx)
        outcome = "refused" if _is_error(result) else "done"
        return result
    finally:
        log.info(
            "mcp request",
            method=ctx.method,
            what=_what(ctx.params),
            by=caller.identity.name,
            token=caller.identity.token,
            client=caller.client,
            outcome=outcome,
            ms=round((clock.monotonic_s() - began_s) * MS_PER_S, 1),
        )


def _acts(ctx: Context) -> bool:
    """Return whether a request is to change something."""
    tool = TOOLS.get(_what(ctx.params)) if ctx.method == "tools/call" else None
    return ctx.method == "tasks/cancel" or (tool is not None and tool.kind is ToolKind.ACT)


def _take_turn(serving: Serving, caller: Caller, *, now_s: float) -> None:
    who = f"{caller.identity.name}/{caller.identity.token}"
    wait_s = serving.rate.wait_s(who, now_s=now_s)
    if wait_s > 0:
        most = serving.rate.per_minute
        says = f"over {most} requests in a minute; try again in {ceil(wait_s)} s"
        raise MCPError(TOO_MANY, says)


def _is_error(result: HandlerResult) -> bool:
    return isinstance(result, Mapping) and bool(result.get("isError"))


def _what(params: Mapping[str, Any] | None) -> str:
    """Return what a request is about, without its arguments: they may hold what is secret."""
    said = params or {}
    for key in ("name", "uri", "taskId"):
        if isinstance(said.get(key), str):
            return str(said[key])[:256]
    return ""


def _require_reader(serving: Serving, ctx: Context) -> ServedCall:
    call = serving.call_of(ctx)
    if not call.caller.may_read:  # guard: nobody-reads-without-scope
        raise MCPError(INVALID_PARAMS, "this takes a token with the scope read")
    return call


async def _list_tools(
    serving: Serving, ctx: Context, params: PaginatedRequestParams | None
) -> ListToolsResult:
    del params
    caller = serving.call_of(ctx).caller
    there = tools_for(caller, has_app=serving.app is not None)
    return ListToolsResult(tools=[listed(each) for each in there])


async def _call_tool(
    serving: Serving, ctx: Context, params: CallToolRequestParams
) -> CallToolResult | InputRequiredResult:
    call = serving.call_of(ctx)
    tool = TOOLS.get(params.name)
    # guard: unlisted-tool-is-unknown
    if tool is None or not tool.is_for(call.caller, has_app=serving.app is not None):
        raise MCPError(INVALID_PARAMS, f"there is no tool {params.name!r}")
    call = replace(call, is_answered=params.input_responses is not None)
    try:
        found = await tool.answer(call, params.arguments or {})
    except EXPECTED as error:
        return CallToolResult(
            content=[TextContent(type="text", text=in_words(error))], is_error=True
        )
    if isinstance(found, AskPerson):
        return _asked(ctx, found)
    return _answered(tool, found[1])


def _answered(tool: AnyTool, text: bytes) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=wrapped(tool.name, text))],
        structured_content=json.loads(text),
    )


def _asked(ctx: Context, ask: AskPerson) -> CallToolResult | InputRequiredResult:
    """Return the request that a person opens a page, in the way that the client knows."""
    if not opens_pages(ctx):
        says = f"{ask.message} The page is {ask.url}"
        return CallToolResult(content=[TextContent(type="text", text=says)], is_error=True)
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        old = ElicitRequestURLParams(message=ask.message, url=ask.url, elicitation_id=ask.key)
        raise UrlElicitationRequiredError([old])
    params = ElicitRequestURLParams(message=ask.message, url=ask.url)
    return InputRequiredResult(input_requests={ask.key: ElicitRequest(params=params)})


async def _list_resources(
    serving: Serving, ctx: Context, params: PaginatedRequestParams | None
) -> ListResourcesResult:
    del params
    _require_reader(serving, ctx)
    return ListResourcesResult(resources=resources.listed())


async def _list_templates(
    serving: Serving, ctx: Context, params: PaginatedRequestParams | None
) -> ListResourceTemplatesResult:
    del params
    _require_reader(serving, ctx)
    return ListResourceTemplatesResult(resource_templates=resources.listed_templates())


async def _read_resource(
    serving: Serving, ctx: Context, params: ReadResourceRequestParams
) -> ReadResourceResult:
    call, uri = _require_reader(serving, ctx), str(params.uri)
    text = await as_protocol_error(resources.read(call, uri))
    content = TextResourceContents(uri=uri, mime_type="application/json", text=text)
    return ReadResourceResult(contents=[content])


async def _listen(
    serving: Serving,
    listening: ListenHandler,
    ctx: Context,
    params: SubscriptionsListenRequestParams,
) -> SubscriptionsListenResult:
    _require_reader(serving, ctx)
    return await listening(ctx, params)


async def _list_prompts(
    serving: Serving, ctx: Context, params: PaginatedRequestParams | None
) -> ListPromptsResult:
    del params
    _require_reader(serving, ctx)
    return ListPromptsResult(prompts=prompts.listed())


async def _get_prompt(
    serving: Serving, ctx: Context, params: GetPromptRequestParams
) -> GetPromptResult:
    _require_reader(serving, ctx)
    with _in_protocol():
        return prompts.made(params.name, params.arguments or {})


@contextmanager
def _in_protocol() -> Iterator[None]:
    try:
        yield
    except EXPECTED as error:
        raise MCPError(INVALID_PARAMS, in_words(error)) from error
