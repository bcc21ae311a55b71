"""Fired episodes as tasks of the protocol, by its extension for calls whose results come later.

    tools/call fire ──▶ the episode is on the journal ──▶ task, whose id is the episode's
    tasks/get       ──▶ its journal is read: by any process, after any crash
    tasks/update    ──▶ acknowledged: nothing that a client says decides anything
    tasks/cancel    ──▶ the episode is asked to end

No process keeps a task. Where a client does not say that it knows tasks, `fire` has its plain
answer.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import require_client_extension
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    RequestParams,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from engine.episodes.episode import Status
from vigil.errors import NotFound
from vigil.mcp.decides import ask_person, page_of
from vigil.mcp.fired import (
    NOT_OPENED,
    TASKS,
    TaskView,
    fired_episode,
    task_of,
)
from vigil.mcp.look import task_view
from vigil.mcp.tool import AskPerson, ServedCall, wrapped

Context: TypeAlias = ServerRequestContext[Any, Any]

FIRING: Final = frozenset({"fire", "fork"})
"""The tools whose calls are tasks."""


class OfTask(RequestParams):
    """Names a task."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")

    task_id: str


class TaskAnswers(OfTask):
    """What a client says to what was asked."""

    input_responses: dict[str, Any] = Field(default_factory=dict)


class EpisodeTasks(Extension):
    """Calls of `fire` are tasks."""

    identifier = TASKS

    def __init__(
        self,
        call_of: Callable[[Context], ServedCall],
        guard: Callable[[Awaitable[Any]], Awaitable[Any]],
    ) -> None:
        """`call_of` returns what a request works with; `guard` words errors for clients."""
        self._call_of, self._guard = call_of, guard

    def methods(self) -> Sequence[MethodBinding]:
        """Return the requests about tasks."""
        modern = frozenset(MODERN_PROTOCOL_VERSIONS)
        return [
            MethodBinding("tasks/get", OfTask, self._get, modern),
            MethodBinding("tasks/update", TaskAnswers, self._update, modern),
            MethodBinding("tasks/cancel", OfTask, self._cancel, modern),
        ]

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: Context, call_next: CallNext
    ) -> HandlerResult:
        """Turn the answer of `fire` into a task, if the client knows tasks."""
        answer = await call_next(ctx)
        if params.name not in FIRING or not knows_tasks(ctx):  # guard: task-only-if-known
            return answer
        if not isinstance(answer, CallToolResult) or answer.is_error:
            return answer
        fired = answer.structured_content
        if fired["status"] == NOT_OPENED:  # guard: task-is-durable-first
            return answer
        view = await self._guard(task_view(self._call_of(ctx).client, UUID(fired["episode_id"])))
        # What it waits for is told to who looks at it.
        told = self._told(ctx, msgspec.structs.replace(view, waits=None))
        for later in ("inputRequests", "result"):
            told.pop(later, None)
        return {"resultType": "task", **told}

    async def _get(self, ctx: Context, params: OfTask) -> HandlerResult:
        return {"resultType": "complete", **self._told(ctx, await self._view(ctx, params))}

    async def _update(self, ctx: Context, params: TaskAnswers) -> HandlerResult:
        """Acknowledge an answer: that a person opened a page is no decision."""
        await self._view(ctx, params)
        return {"resultType": "complete"}

    async def _cancel(self, ctx: Context, params: OfTask) -> HandlerResult:
        call = self._call_of(ctx)
        if not call.caller.may_act:  # guard: reader-cancels-no-task
            raise MCPError(INVALID_PARAMS, "to cancel a task takes a token with the scope act")
        view = await self._view(ctx, params)
        caller = call.caller
        canceling = call.client.episodes.cancel(
            view.episode_id,
            by=caller.identity.name,
            reason=caller.because("its task was cancelled"),
        )
        await self._guard(canceling)
        return {"resultType": "complete"}

    async def _view(self, ctx: Context, params: OfTask) -> TaskView:
        require_client_extension(ctx, TASKS)
        call = self._call_of(ctx)
        if not call.caller.may_read:
            raise MCPError(INVALID_PARAMS, "to look at a task takes a token with the scope read")

        async def looked() -> TaskView:
            try:
                return await task_view(call.client, UUID(params.task_id))
            except (ValueError, NotFound) as error:  # guard: task-id-is-whole
                raise MCPError(INVALID_PARAMS, f"there is no such task: {error}") from error

        found: TaskView = await self._guard(looked())
        return found

    def _told(self, ctx: Context, view: TaskView) -> dict[str, Any]:
        ask = self._ask(ctx, view)
        return task_of(view, ask=ask, result=result_of(view))

    def _ask(self, ctx: Context, view: TaskView) -> AskPerson | None:
        waits = view.waits
        if waits is None or not waits.target or not opens_pages(ctx):
            return None
        kind, _, id_ = waits.target.partition(":")
        url = page_of(self._call_of(ctx).console_url, kind, id_)
        return ask_person(url, waits.key) if url else None


def knows_tasks(ctx: Context) -> bool:
    """Return whether who has made a request knows tasks."""
    declared = ctx.session.client_capabilities
    extensions = (declared.extensions if declared else None) or {}
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and TASKS in extensions


def opens_pages(ctx: Context) -> bool:
    """Return whether who has made a request can have its person open a page."""
    declared = ctx.session.client_capabilities
    return bool(declared and declared.elicitation and declared.elicitation.url is not None)


def result_of(view: TaskView) -> Mapping[str, Any]:
    """Return what `fire` would have been answered with, had it waited."""
    fired = fired_episode(view.episode_id, view.episode)
    text = msgspec.json.encode(fired)
    result = CallToolResult(
        content=[TextContent(type="text", text=wrapped("fire", text))],
        structured_content=json.loads(text),
        is_error=view.episode.status in {Status.FAILED, Status.PARTIALLY_FAILED},
    )
    dumped = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {**dumped, "resultType": "complete"}
