"""Questions to the rows, and what is missing where there is no answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

import typer

from projections.errors import QueryRefused
from projections.postgres.queries import query
from projections.postgres.reader import has_stack, list_stacks, run_sql, show_episode
from streams.clock import SystemClock
from streams.model.events import EndStatus
from vigil.asking.connect import pooled, run
from vigil.errors import EXIT_TROUBLE, NAMES_SHOWN_MAX, Mistake, Trouble, near_hint
from vigil.printing.output import show_rows
from vigil.printing.tables import as_json, last_line
from vigil.settings import Config, shown

if TYPE_CHECKING:
    from projections.postgres.pool import Pool
    from projections.postgres.query_result import Row, Table
    from streams.subjects import Stack

T = TypeVar("T")

STACKS_MAX: Final = 1_000
"""Most stacks that are searched for a name like the one that was typed."""

LOOK_S: Final = 0.2
"""Between two looks at the rows, in seconds."""

ENDS: Final = frozenset(each.value for each in EndStatus)

_CLOCK: Final = SystemClock()


def ask(config: Config, question: Callable[[Pool], Awaitable[T]]) -> T:
    """Return the answer of the rows to `question`.

    Raises `Trouble` if nothing was ever projected there, and `QueryRefused` if Postgres refuses.
    """

    async def done() -> T:
        async with pooled(config) as pool:
            try:
                return await question(pool)
            except QueryRefused as error:
                if await applied_migrations(pool) is not None:
                    raise
                dsn = shown("postgres_dsn", config.settings.postgres_dsn)
                raise Trouble(
                    f"{dsn} holds no tables of Vigil; run `vigil project` or a node"
                ) from error

    return run(done())


def show_found(
    config: Config,
    rows: Sequence[Mapping[str, object]],
    columns: Sequence[str],
    *,
    is_json: bool,
    spare: Sequence[str] = (),
) -> None:
    """Print rows as `show_rows` does; if there are none, also whether the stack is known."""
    why_none = "" if rows else why_empty(config)
    show_rows(rows, columns, is_json=is_json, spare=spare, why_none=why_none)


def ask_one(config: Config, question: Callable[[Pool], Awaitable[T | None]], what: str) -> T:
    """Return the answer of the rows to `question`; raise `Trouble` if they have no such `what`."""
    return require(ask(config, question), what, config.stack)


def require(found: T | None, what: str, stack: Stack) -> T:
    """Return what was found; raise `Trouble` if nothing was."""
    if not found:
        raise Trouble(f"no {what} in stack {stack.name}")
    return found


async def applied_migrations(pool: Pool) -> dict[str, str] | None:
    """Return name → checksum of what was applied to the schema; None if there is no schema."""
    try:
        found = await run_sql(pool, query("list_migrations"))
    except QueryRefused:
        return None
    return {str(name): str(checksum) for name, checksum in found.rows}


def parse_id(text: str, *, of: str = "episode") -> UUID:
    """Return the id of an episode, or `of` something else; raise `Mistake` if it is none."""
    try:
        return UUID(text)
    except ValueError as error:
        raise Mistake(f"{text!r} is no {of} id, such as {UUID(int=0)}") from error


def why_empty(config: Config) -> str:
    """Return that the rows know nothing of the stack, in words; empty: they know it."""

    async def question(pool: Pool) -> str:
        name = config.stack.name
        if await has_stack(pool, config.stack):  # guard: never-projected-only-if-so
            return ""
        unknown = f"nothing has ever been projected for stack {name!r}"
        return f"{unknown}; {stacks_hint(name, await list_stacks(pool, limit=STACKS_MAX))}"

    return ask(config, question)


def stacks_hint(name: str, there: Sequence[str]) -> str:
    """Return the stacks that are called like `name`, or else those that there are, in words."""
    if not there:
        return "nor for any other"
    more = ", …" if len(there) > NAMES_SHOWN_MAX else ""
    return near_hint(name, there) or f"there are: {', '.join(there[:NAMES_SHOWN_MAX])}{more}"


async def wait_ended(
    pool: Pool, stack: Stack, episode_id: UUID, *, until_s: float, timeout_s: float
) -> Row:
    """Return the row of an episode, which may not be opened yet, once it has ended.

    Raises `Trouble` if it has not by `until_s`, on the monotonic clock.
    """
    while True:
        row = await show_episode(pool, stack, episode_id)
        if row is not None and row["status"] in ENDS:
            return row
        if _CLOCK.monotonic_s() >= until_s:
            status = "not opened" if row is None else row["status"]
            raise Trouble(f"episode {episode_id} is still {status} after {timeout_s:g} s")
        await _CLOCK.sleep(LOOK_S)


def wait_end(config: Config, episode_id: str, *, timeout_s: float, delay_s: float = 0.0) -> Row:
    """Return the row of an episode that may begin in `delay_s`, as `wait_ended` does."""
    until_s = _CLOCK.monotonic_s() + delay_s + timeout_s
    ended = partial(wait_ended, stack=config.stack, episode_id=UUID(episode_id))
    return ask(config, partial(ended, until_s=until_s, timeout_s=timeout_s))


def report_begun(begun: Mapping[str, object], row: Row | None, *, is_json: bool) -> None:
    """Print how an episode ended, or with `is_json` also `begun`; exit 1 unless it is done.

    `row` is None if the command did not wait for the end.
    """
    if is_json:
        print(as_json({**begun, **(row or {})}))
    elif row is not None:
        words = (row["status"], row["error_class"], last_line(row["error_detail"]), row["summary"])
        print(": ".join(str(each) for each in words if each))
    if row is not None and row["status"] != EndStatus.DONE:
        raise typer.Exit(EXIT_TROUBLE)


async def answer(pool: Pool, stack: Stack, name: str) -> Table:
    """Return the answer for `stack` to the question in `vigil/sql` called `name`."""
    return await run_sql(pool, _question(name), stack.name)


def shown_question(name: str, stack: Stack) -> str:
    """Return a question, with a comment as its first line, as it can be asked again."""
    return _question(name).replace("$1", f"'{stack.name}'")


@cache
def _question(name: str) -> str:
    return (files("vigil") / "sql" / f"{name}.sql").read_text(encoding="utf-8").strip()
