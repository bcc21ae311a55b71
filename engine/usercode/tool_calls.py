"""Calls tools on one node, within their limits: time, rate, breaker, threads; and keeps results.

Rates and breakers count on each node for itself. A result is kept on the node or, with
`cache_scope="stack"`, in the gates for all nodes. Where those do not answer, the call is made.

The tools of a server share one connection on a node, from the first call until the node stops.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Final
from uuid import UUID

import msgspec
import structlog

from engine import validation
from engine.app.actions import ToolCall
from engine.app.function_tool import FunctionTool
from engine.app.tools import (
    BREAKER_OPEN,
    RATE_LIMITED,
    RESULT_BYTES_MAX,
    TROUBLE,
    CallContext,
    Tool,
    ToolConnection,
    ToolFailed,
    ToolServer,
)
from engine.usercode.call import attempt
from engine.usercode.threads import Threads
from streams.clock import Clock
from streams.errors import StreamError
from streams.json import raw, unraw
from streams.keys import cached_key
from streams.ports.bucket import Bucket

RATE_WAIT_S_MAX: Final = 5.0
"""Longest wait for a tool's rate, in seconds: meanwhile the episode occupies a slot of the node."""

KEPT_MAX: Final = 1_000
"""Most results of one tool that a node keeps."""

KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Most bytes of results of one tool that a node keeps."""

CLOSE_S: Final = 10.0
"""Longest wait for a connection to close, in seconds: a process of its own may end in order."""

SHARED_BYTES_MAX: Final = 64 * 1024
"""Largest result that all nodes share: they share it in the gates, which are for small values."""


_CHANGED: Final = frozenset(
    {set, frozenset, tuple, bytes, datetime, date, time, timedelta, UUID, Decimal}
)
"""Types of results that are others as JSON: a list, or a text."""

log = structlog.get_logger("vigil.usercode")


class ToolCalls:
    """Calls tools on one node."""

    def __init__(self, clock: Clock, gates: Bucket) -> None:
        self._clock, self._gates = clock, gates
        self._threads = Threads()
        self._records: dict[int, _Record] = {}
        """By the identity of the tool, which the record keeps alive."""
        self._connections: dict[int, tuple[ToolServer, ToolConnection]] = {}
        """By the identity of the server."""

    async def make(
        self,
        tool: Tool,
        action: ToolCall,
        ctx: CallContext,
        *,
        begin: Callable[[], None] | None = None,
    ) -> object:
        """Return the result of `action`, which `tool` does; `ToolFailed`: there is none.

        `begin` is called just before the first line of the tool, which does not run if it raises.
        """
        record = self._records.setdefault(id(tool), _Record(tool))
        key = _cache_key(action, actor_id=ctx.actor_id) if tool.cache_ttl_s else ""
        if key and (kept := await self._kept(record, key)) is not None:
            return unraw(kept)
        await self._wait_turn(record)
        try:
            result = await self._called(tool, action, ctx, begin)
        except ToolFailed as failure:
            # guard: answer-is-no-tool-failure
            self._note(record, failed=failure.error_class in TROUBLE)
            raise
        self._note(record, failed=False)
        record.tell_changed(result, f"{action.capability}.{action.action}")
        if key:
            await self._keep(record, key, validation.encode(result, what="result", bytes_max=None))
        return result

    async def close(self) -> None:
        """Close all connections; no call is made after it."""
        opened = [connection for _, connection in self._connections.values()]
        await asyncio.gather(*map(self._close, opened))

    async def _close(self, connection: ToolConnection) -> None:
        try:
            async with self._clock.timeout(CLOSE_S):
                await attempt(connection.close())
        except (TimeoutError, ToolFailed) as error:
            log.warning("a connection of tools did not close", why=str(error))

    def _connection(self, server: ToolServer) -> ToolConnection:
        if id(server) not in self._connections:
            self._connections[id(server)] = server, server.connection(self._clock)
        return self._connections[id(server)][1]

    async def _called(
        self,
        tool: Tool,
        action: ToolCall,
        ctx: CallContext,
        begin: Callable[[], None] | None,
    ) -> object:
        if tool.timeout_s is None:  # guard: thread-wait-counts-to-call
            return await self._attempted(tool, action, ctx, begin)
        try:
            async with self._clock.timeout(tool.timeout_s):  # guard: tool-call-timeout
                return await self._attempted(tool, action, ctx, begin)
        except TimeoutError:
            raise ToolFailed("tool_timeout", f"no result within {tool.timeout_s} s") from None

    async def _attempted(
        self,
        tool: Tool,
        action: ToolCall,
        ctx: CallContext,
        begin: Callable[[], None] | None,
    ) -> object:
        if isinstance(tool, FunctionTool) and not tool.is_async:  # guard: blocking-tool-in-thread
            with await self._threads.take() as thread:
                work: Awaitable[object] = thread.run(tool.bound(action.args, ctx))
                return await attempt(work, begin=begin)
        if tool.server is not None:  # guard: one-connection-per-node
            over = self._connection(tool.server)
            return await attempt(over.call(tool, action.args, ctx), begin=begin)
        return await attempt(tool.call(action.action, action.args, ctx), begin=begin)

    async def _wait_turn(self, record: _Record) -> None:
        if record.tool.breaker is None and record.tool.rate_per_s is None:
            return
        now_s = self._clock.monotonic_s()
        record.check_breaker(now_s)
        wait_s = record.reserve_s(now_s)
        if wait_s > 0:
            await self._clock.sleep(wait_s)

    def _note(self, record: _Record, *, failed: bool) -> None:
        if record.tool.breaker is not None:
            record.note(self._clock.monotonic_s(), failed=failed)

    async def _kept(self, record: _Record, key: str) -> msgspec.Raw | None:
        if record.tool.cache_scope == "node":
            return record.kept(key, self._clock.monotonic_s())
        with suppress(StreamError):
            entry = await self._gates.get(cached_key(key))
            if entry is not None and entry.value is not None:
                return msgspec.Raw(entry.value)
        return None

    async def _keep(self, record: _Record, key: str, result: msgspec.Raw) -> None:
        ttl_s = record.tool.cache_ttl_s
        if len(memoryview(result)) > RESULT_BYTES_MAX:  # The call fails.
            return
        if record.tool.cache_scope == "node":
            record.keep(key, result, until_s=self._clock.monotonic_s() + ttl_s)
        elif len(bytes(result)) <= SHARED_BYTES_MAX:  # guard: gates-for-small-results
            with suppress(StreamError):
                key = cached_key(key)
                await self._gates.put(key, bytes(result), ttl_s=math.ceil(ttl_s))


def _cache_key(action: ToolCall, *, actor_id: str) -> str:
    """Return what calls with the same result have in common; empty: the result is not kept."""
    # What must not be stored must not be guessed from a key either.
    if any(name.startswith("_") for name in action.args):  # guard: no-secret-in-cache-key
        return ""
    # Two actors may have two tools of the same name.
    asked = raw((actor_id, action))  # guard: cached-result-of-one-actor
    return blake2b(bytes(asked), digest_size=16).hexdigest()


@dataclass
class _Record:
    """What a node remembers of one tool."""

    tool: Tool
    next_s: float = 0.0
    """When the next call may begin."""
    failures: int = 0
    """In a row."""
    open_until_s: float = -math.inf
    """Until when the breaker lets no call through; then one, and none beside it."""
    results: dict[str, tuple[msgspec.Raw, float]] = field(default_factory=dict)
    """Key → result, and until when it holds; oldest first."""
    results_bytes: int = 0
    has_told: bool = False
    """Whether its author was told that its results are others as JSON."""

    def tell_changed(self, result: object, name: str) -> None:
        """Log, once, that a strategy gets something else than what the tool has returned."""
        kind = type(result)
        is_open = isinstance(self.tool, FunctionTool) and self.tool.returns is Any
        if kind not in _CHANGED or not is_open or self.has_told:  # guard: changed-result-told
            return
        self.has_told = True
        log.warning(
            "a result is another value as JSON: say what the tool returns, to get that",
            tool=name,
            returned=kind.__name__,
            instead=f"-> {kind.__name__}",
        )

    def check_breaker(self, now_s: float) -> None:
        """Raise `ToolFailed` if the breaker is open; if it is half open, this call is the probe."""
        breaker = self.tool.breaker
        if breaker is None or self.failures < breaker.threshold:
            return
        if now_s < self.open_until_s:  # guard: tool-failure-opens-breaker
            left_s = self.open_until_s - now_s
            detail = f"{self.failures} failures in a row; it is tried again in {left_s:.0f} s"
            raise ToolFailed(BREAKER_OPEN, detail)
        self.open_until_s = now_s + breaker.half_open_after_s  # guard: half-open-lets-one-through

    def reserve_s(self, now_s: float) -> float:
        """Take the next turn that the rate allows, and return the wait for it; or `ToolFailed`."""
        rate_per_s = self.tool.rate_per_s
        if rate_per_s is None:
            return 0.0
        at_s = max(self.next_s, now_s)
        if at_s - now_s > RATE_WAIT_S_MAX:  # guard: far-turn-not-taken
            raise ToolFailed(RATE_LIMITED, f"over {RATE_WAIT_S_MAX:g} s until its turn")
        self.next_s = at_s + 1 / rate_per_s  # guard: tool-rate
        return at_s - now_s

    def note(self, now_s: float, *, failed: bool) -> None:
        """Note how a call has ended."""
        self.failures = self.failures + 1 if failed else 0
        breaker = self.tool.breaker
        if breaker is not None and self.failures >= breaker.threshold:
            self.open_until_s = now_s + breaker.half_open_after_s

    def kept(self, key: str, now_s: float) -> msgspec.Raw | None:
        """Return the result that is kept under `key` and still holds, or None."""
        result, until_s = self.results.get(key, (None, now_s))
        return result if now_s < until_s else None  # guard: cached-result-ttl

    def keep(self, key: str, result: msgspec.Raw, *, until_s: float) -> None:
        """Keep a result; the oldest ones make room."""
        self._drop(key)
        self.results[key] = result, until_s
        self.results_bytes += len(bytes(result))
        # guard: cached-results-max
        while len(self.results) > KEPT_MAX or self.results_bytes > KEPT_BYTES_MAX:
            self._drop(next(iter(self.results)))

    def _drop(self, key: str) -> None:
        dropped = self.results.pop(key, None)
        if dropped is not None:
            self.results_bytes -= len(bytes(dropped[0]))
