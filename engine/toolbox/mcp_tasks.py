"""Tasks of MCP servers: calls whose results come later, by the extension for tasks.

A server may answer a call with a task, which goes on there. Its state is asked for by its id, on
any connection, so that nobody has to hold one meanwhile:

    working ──▶ completed: the result of the call
       │  ▲
       ▼  └─ tasks/update
    input_required          failed, cancelled
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from mcp_types import CallToolResult, InputResponses, Request, RequestParams, Result
from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

_EXTENSION: Final = "io.modelcontextprotocol/tasks"

POLL_S: Final = 1.0
"""The pause between two looks at a task, in seconds, unless the server says how long."""

POLL_S_MAX: Final = 5.0
"""Longest such pause."""

_OPEN: Final = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")


class TaskHandle(Result):
    """What a call is answered with that goes on as a task."""

    model_config = _OPEN

    result_type: Literal["task"] = "task"
    task_id: str
    status: str = "working"
    poll_interval_ms: float | None = None


class TaskState(Result):
    """How far a task is."""

    model_config = _OPEN

    task_id: str
    status: str
    status_message: str | None = None
    poll_interval_ms: float | None = None
    requests: dict[str, Any] | None = Field(default=None, alias="inputRequests")
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class _OfTask(RequestParams):
    task_id: str


class _Answers(_OfTask):
    input_responses: dict[str, Any]


class _Get(Request[_OfTask, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"


class _Update(Request[_Answers, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"


class Tasks(ClientExtension):
    """Tells servers that a call may go on as a task."""

    identifier = _EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Return what a call may be answered with, beside its result."""
        return [ResultClaim(result_type="task", model=TaskHandle, resolve=_unresolved)]


async def _unresolved(handle: TaskHandle, context: ClaimContext) -> CallToolResult:
    raise AssertionError(f"{context.tool_name}: every call takes the handle of {handle.task_id}")


async def state_of(
    session: ClientSession, task_id: str, answers: InputResponses | None = None
) -> TaskState:
    """Return how far a task is, once it has `answers` to what its server has asked."""
    if answers is not None:
        said = {
            key: each.model_dump(mode="json", by_alias=True, exclude_none=True)
            for key, each in answers.items()
        }
        update = _Update(params=_Answers(task_id=task_id, input_responses=said))
        await session.send_request(update, Result)
    return await session.send_request(_Get(params=_OfTask(task_id=task_id)), TaskState)


def pause_s(state: TaskHandle | TaskState) -> float:
    """Return how long to wait before the next look at a task."""
    said = state.poll_interval_ms
    return POLL_S if said is None else min(max(said, 0) / 1_000, POLL_S_MAX)


def told(state: TaskHandle | TaskState) -> dict[str, Any]:
    """Return a task as the protocol has it, for who looks at it again."""
    shown = state.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {**shown, "resultType": "task"}
