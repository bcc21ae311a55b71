"""`sql_query`: a tool that asks a Postgres database, and changes nothing there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from engine.app.function_tool import FunctionTool, tool
from engine.app.outputs import DeliveryFailed
from engine.app.tools import ToolFailed
from engine.errors import BadTool
from engine.validation import is_whole

ROWS_MAX: Final = 10_000
"""Most rows of one answer that may be allowed."""

CONNECT_S_MAX: Final = 5.0
"""Longest wait for a connection, in seconds."""

QUERY_REFUSED: Final = "query_refused"
"""Error class of a statement that the database refuses, such as one that writes."""

_MS_PER_S: Final = 1_000

Address: TypeAlias = str | Callable[[], str]
"""A connection string, or a function that returns it for each call, such as `env("ORDERS_DSN")`."""


def sql_query(
    dsn: Address, *, rows_max: int = 1_000, timeout_s: float = 10.0, capability: str = "sql"
) -> FunctionTool[..., Any]:
    """Return the tool `sql.query`: `tool_call(orders, statement="… where id = $1", args=[7])`.

    One statement, in a transaction that only reads. The result is `{"columns", "rows",
    "is_complete"}`: names, a list of values for each row, and whether those are all rows. Values
    that JSON lacks, such as a `numeric`, are texts.

    A transaction that only reads is no wall: functions of the database may do more. Let `dsn` name
    a role that may do no more than it should.

    Args:
        dsn: `postgresql://…`, or a function that returns it; it is stored nowhere.
        rows_max: most rows of an answer; the others are left out.
        timeout_s: longest that a statement may take; then the database ends it.
        capability: what the tool is registered as.

    Raises `BadTool` if a value cannot work.
    """
    if not is_whole(rows_max) or not 1 <= rows_max <= ROWS_MAX:
        problem = f"rows_max: {rows_max!r} is not a whole number from 1 to {ROWS_MAX:,}"
        raise BadTool("sql_query()", problem)
    database = Database(dsn, rows_max, timeout_s)

    async def query(statement: str, args: list[object] | None = None) -> dict[str, object]:
        """Ask the database in SQL; it can only be read."""
        return await database.ask(statement, args or [])

    return tool(timeout_s=timeout_s + CONNECT_S_MAX, capability=capability)(query)


@dataclass(frozen=True)
class Database:
    """A database that is only read."""

    dsn: Address
    rows_max: int
    timeout_s: float

    async def ask(self, statement: str, args: list[object]) -> dict[str, object]:
        """Return the answer; `ToolFailed`: there is none."""
        import asyncpg  # noqa: PLC0415 - only who asks a database needs it

        try:
            connection = await self._connection()
            try:
                return await self._answer(connection, statement, args)
            finally:
                connection.terminate()
        except asyncpg.QueryCanceledError as error:
            raise ToolFailed("tool_timeout", f"over {self.timeout_s:g} s") from error
        except asyncpg.InvalidAuthorizationSpecificationError as error:
            raise ToolFailed("tool_auth_failed", str(error)) from error
        except (
            asyncpg.SyntaxOrAccessError,
            asyncpg.DataError,
            asyncpg.InvalidTransactionStateError,
            asyncpg.FeatureNotSupportedError,
        ) as error:
            raise ToolFailed(QUERY_REFUSED, str(error)) from error
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise ToolFailed("tool_unavailable", f"{type(error).__name__}: {error}") from error

    async def _connection(self) -> Any:  # noqa: ANN401 - asyncpg has no types
        import asyncpg  # noqa: PLC0415 - only who asks a database needs it

        try:
            return await asyncpg.connect(
                self._address(),
                timeout=CONNECT_S_MAX,
                server_settings={
                    "application_name": "vigil-tool",
                    # guard: statement-timeout
                    "statement_timeout": str(round(self.timeout_s * _MS_PER_S)),
                },
            )
        except (ValueError, OverflowError):  # guard: connection-string-in-no-error
            # The message quotes a part of it, such as one of the password.
            raise ToolFailed("tool_auth_failed", "the dsn is not a connection string") from None

    async def _answer(
        self,
        connection: Any,  # noqa: ANN401 - asyncpg has no types
        statement: str,
        args: list[object],
    ) -> dict[str, object]:
        async with connection.transaction(readonly=True):  # guard: query-only-reads
            prepared = await connection.prepare(statement)
            cursor = await prepared.cursor(*args)
            rows = await cursor.fetch(self.rows_max + 1)
        columns = [each.name for each in prepared.get_attributes()]
        shown = [list(row) for row in rows[: self.rows_max]]  # guard: query-rows-max
        is_complete = len(rows) <= self.rows_max
        plain: list[object] = msgspec.to_builtins(shown, enc_hook=str)
        return {"columns": columns, "rows": plain, "is_complete": is_complete}

    def _address(self) -> str:
        try:
            return self.dsn() if callable(self.dsn) else self.dsn
        except DeliveryFailed as failed:  # How `env` says that a secret is missing.
            raise ToolFailed(failed.error_class, failed.detail) from failed
