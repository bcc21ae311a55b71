"""Why a list is empty: a stack that nothing was ever projected for is more likely a typo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from projections.postgres.pool import Pool
from projections.postgres.reader import has_stack, list_stacks
from vigil.looking import NAMES_SHOWN_MAX, near_hint
from vigil.reading import ask
from vigil.settings import Reading

STACKS_MAX: Final = 1_000
"""Most stacks that are looked through for a name that is near."""


def why_empty(reading: Reading) -> str:
    """Return that the rows know nothing of the stack, in words; empty: they do.

    Raises:
        PostgresUnavailable, Trouble, QueryRefused: as `ask`.
    """

    async def question(pool: Pool) -> str:
        name = reading.stack.name
        if await has_stack(pool, reading.stack):
            return ""
        unknown = f"nothing has ever been projected for stack {name!r}"
        return f"{unknown}; {hint(name, await list_stacks(pool, limit=STACKS_MAX))}"

    return ask(reading, question)


def hint(name: str, there: Sequence[str]) -> str:
    """Return which of the stacks that are `there` may have been meant, or which there are."""
    if not there:
        return "nor for any other"
    more = ", …" if len(there) > NAMES_SHOWN_MAX else ""
    shown = f"there are: {', '.join(there[:NAMES_SHOWN_MAX])}{more}"
    return near_hint(name, there) or shown
