"""How many episodes there are of each status, as pages say it: quick, however many there are."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from vigil.client import Client

ALL: Final = ""
"""What the sum of all is called."""

NONE: Final = "0"


async def count_episodes(
    client: Client,
    *,
    actor: str | None = None,
    expectation: str | None = None,
    subject: str | None = None,
    at: datetime | None = None,
) -> Mapping[str, str]:
    """Return status → how many episodes that fit have it, and under `ALL` how many there are.

    The newest 1,000 of each status are looked at, of the past the 1,000 that were opened last; a
    number with a plus says that there may be more. Of a subject all are counted.
    """
    if subject is not None:
        exact = await client.episodes.count(
            actor=actor, expectation=expectation, subject=subject, at=at
        )
        return {ALL: f"{sum(exact.values()):,}", **{name: f"{n:,}" for name, n in exact.items()}}
    found = await client.episodes.count_newest(actor=actor, expectation=expectation, at=at)
    total = sum(each.episodes for each in found.values())
    is_more = any(each.is_more for each in found.values())
    said = {name: _said(each.episodes, is_more=each.is_more) for name, each in found.items()}
    return {ALL: _said(total, is_more=is_more), **said}


def _said(number: int, *, is_more: bool) -> str:
    return f"{number:,}+" if is_more else f"{number:,}"
