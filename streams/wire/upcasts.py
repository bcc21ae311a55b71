"""Old events, made new: one function per retired tag. Pure.

A retired tag stays here for as long as any journal may have it. An upcast takes the event as a JSON
object under its old tag and returns it under a newer one, which may itself be retired.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from streams.json import JsonObject

Upcast: TypeAlias = Callable[[JsonObject], JsonObject]

CHAIN_MAX: Final = 64
"""More upcasts than this in a row is a loop in the table."""

UPCASTS: Final[Mapping[str, Upcast]] = {}
"""Retired tag → what to make of it. Empty until the first event changes its meaning."""


def upcast(event: JsonObject, table: Mapping[str, Upcast] = UPCASTS) -> JsonObject:
    """Return `event` under the newest tag that `table` leads to; a circle is a `ValueError`."""
    for _ in range(CHAIN_MAX):
        step = table.get(str(event.get("type")))
        if step is None:
            return event
        event = step(event)
    raise ValueError(f"the upcasts of {event.get('type')!r} lead in a circle")
