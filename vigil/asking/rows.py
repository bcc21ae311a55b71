"""Questions to the rows, and what is missing where there is no answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, TypeVar
from uuid import UUID

from projections.errors import QueryRefused
from projections.postgres.queries import query
from projections.postgres.reader import has_stack, list_expectations, list_stacks, run_sql
from streams.clock import SystemClock
from streams.model.events import EndStatus
from vigil.asking.connect import pooled, run
from vigil.errors import Mistake, NotFound, Trouble, hint, stacks_hint
from vigil.settings import Config, shown

if TYPE_CHECKING:
    from projections.postgres.pool import Pool
    from projections.postgres.query_result import Row, Table
    from projections.postgres.reader import OneOrMore
    from streams.subjects import Stack

T = TypeVar("T")
Kind: TypeAlias = Literal["episode", "finding", "output", "dead letter", "instance"]

LISTED_BY: Final[Mapping[Kind, str]] = {
    "episode": "vigil episodes list",
    "finding": "vigil findings list --status all",
    "output": "vigil outputs list",
    "dead letter": "vigil dead list --all",
    "instance": "vigil workflows list",
}
"""Which command lists what there is."""

STACKS_MAX: Final = 1_000
"""Most stacks that are searched for a name like the one that was typed."""

EXPECTATIONS_MAX: Final = 10_000
"""Most expectations that are searched for names like those that were typed."""

ID_NAMES_MAX: Final = 5
"""How many are named, of those whose ids have the same beginning."""

ID_DIGITS: Final = 32
"""Hexadecimal digits of an id."""

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


def require(found: T | None, kind: Kind, name: str | UUID, stack: Stack) -> T:
    """Return what was found; raise `NotFound` if nothing was."""
    if not found:
        raise not_found(kind, name, stack)
    return found


def not_found(kind: Kind, name: str | UUID, stack: Stack) -> NotFound:
    """Return the error that nothing of this `kind` has this name, with where to look."""
    told = str(name) if isinstance(name, UUID) else repr(name)
    remedy = f"`{LISTED_BY[kind]}` shows those there are"
    return NotFound(f"no {kind} {told} in stack {stack.name}", remedy=remedy)


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


class Rows(Protocol):
    """Opens the tables."""

    def __call__(self) -> AbstractAsyncContextManager[Pool]:
        """Return what yields a pool."""


class ListIds(Protocol):
    """Returns ids from the first to the last, in order."""

    async def __call__(
        self, pool: Pool, stack: Stack, *, first: UUID, last: UUID, limit: int
    ) -> list[UUID]:
        """Return at most `limit` of them."""


async def find_id(
    rows: Rows, stack: Stack, text: str, *, of: str, among: ListIds, remedy: str
) -> UUID:
    """Return the one id that begins with `text`; a whole id is not looked up.

    Args:
        of: what it is the id of.

    Raises:
        Mistake: it can be no such id, or is the beginning of several.
        NotFound: there is none.
    """
    digits = text.replace("-", "").lower()
    # guard: no-id-beginning-refused
    if not digits or set(digits) - set("0123456789abcdef") or len(digits) >= ID_DIGITS:
        return parse_id(text, of=of)
    first, last = (UUID(digits.ljust(ID_DIGITS, filler)) for filler in "0f")
    async with rows() as pool:
        found = await among(pool, stack, first=first, last=last, limit=ID_NAMES_MAX + 1)
    if not found:
        raise NotFound(
            f"no {of} of stack {stack.name} has an id that begins with {text!r}",
            remedy=remedy,
        )
    if len(found) > 1:  # guard: ambiguous-id-refused
        more = ", …" if len(found) > ID_NAMES_MAX else ""
        named = ", ".join(str(each) for each in found[:ID_NAMES_MAX])
        raise Mistake(f"{text!r} begins the ids of several {of}s: {named}{more}")
    return found[0]


async def why_none_of(
    pool: Pool,
    stack: Stack,
    rows: Sequence[Row],
    *,
    actor: OneOrMore | None = None,
    expectation: str | None = None,
) -> str:
    """Return why there are no `rows`, if the tables do not know what was asked for; or empty.

    That is the stack, or the `actor` or `expectation` whose rows alone were wanted.
    """
    if rows:
        return ""
    if await has_stack(pool, stack):  # guard: never-projected-only-if-so
        return await _why_none_of_these(pool, stack, actor, expectation)
    unknown = f"nothing has ever been projected for stack {stack.name!r}"
    there = await list_stacks(pool, limit=STACKS_MAX)
    return f"{unknown}; {stacks_hint(stack.name, there) or 'nor for any other'}"


async def _why_none_of_these(
    pool: Pool, stack: Stack, actor: OneOrMore | None, expectation: str | None
) -> str:
    asked = [actor] if isinstance(actor, str) else list(actor or ())
    if not asked and expectation is None:
        return ""
    there = await list_expectations(pool, stack, limit=EXPECTATIONS_MAX)
    actors, mine = {id_ for id_, _ in there}, {name for id_, name in there if id_ in asked}
    named = mine if asked else {name for _, name in there}
    says = f"no episode of stack {stack.name} was ever of"
    strays = [each for each in asked if each not in actors]
    if strays and actors:  # guard: actor-without-rows-told
        return f"{says} actor {strays[0]!r}; {hint(strays[0], actors)}"
    # guard: expectation-without-rows-told
    if expectation is not None and named and expectation not in named:
        return f"{says} expectation {expectation!r}; {hint(expectation, named)}"
    return ""


async def answer(pool: Pool, stack: Stack, name: str) -> Table:
    """Return the answer for `stack` to the question in `vigil/sql` called `name`."""
    return await run_sql(pool, _question(name), stack.name)


def shown_question(name: str, stack: Stack) -> str:
    """Return a question, with a comment as its first line, as it can be asked again."""
    return _question(name).replace("$1", f"'{stack.name}'")


@cache
def _question(name: str) -> str:
    return (files("vigil") / "sql" / f"{name}.sql").read_text(encoding="utf-8").strip()
