"""`outcome_of`: what a unit of an agent has brought, or how it has failed, as it is recorded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from pydantic_ai import exceptions

from engine.agents.answer_text import without_hidden
from engine.agents.model_errors import class_of, failed
from engine.agents.unit import (
    UnitOutcome,
)
from engine.errors import CRASH, EpisodeFailed, Unencodable
from engine.usercode.call import call
from streams.json import NOTHING, raw


class NotJson(Exception):
    """What a tool has returned cannot be recorded."""


async def outcome_of(
    body: Callable[[], Awaitable[object]], *, hidden: frozenset[str] = frozenset()
) -> UnitOutcome:
    """Return what `body` has brought, or how it has failed."""
    try:
        payload = await call(body)
    except EpisodeFailed as raised:
        return _failed(raised)
    try:
        if isinstance(payload, dict) and payload.get("kind") == "response":
            return _answered(payload, hidden)
        return UnitOutcome(result=raw(payload))
    except (TypeError, ValueError, Unencodable) as error:
        return UnitOutcome(error_class=Unencodable.error_class, error_detail=str(error))


def _failed(raised: EpisodeFailed) -> UnitOutcome:
    cause = raised.__cause__
    match cause:
        case exceptions.ModelAPIError():
            return failed(cause)
        case NotJson():
            return UnitOutcome(error_class=Unencodable.error_class, error_detail=str(cause))
        case Exception() if class_of(cause):
            return UnitOutcome(error_class=class_of(cause), error_detail=str(cause))
        case _:
            return UnitOutcome(error_class=raised.error_class or CRASH, error_detail=raised.detail)


def _answered(payload: dict[str, Any], hidden: frozenset[str]) -> UnitOutcome:
    """Return the answer of a model, in short: what is not there is not written."""
    used = payload.get("usage") or {}
    parts = [_given(part) for part in payload["parts"]]
    said = {**_given(payload), "parts": parts, "usage": _given(used)}
    said.pop("timestamp", None)  # The commit has the time.
    shown = {**said, "parts": [without_hidden(part, hidden) for part in parts]}
    return UnitOutcome(
        result=raw(said),
        shown=NOTHING if shown == said else raw(shown),
        model=str(payload.get("model_name") or ""),
        input_tokens=used.get("input_tokens", 0),
        output_tokens=used.get("output_tokens", 0),
        cached_tokens=used.get("cache_read_tokens", 0),
        reasoning_tokens=used.get("output_reasoning_tokens", 0),
        cost_usd=_decimal(used.get("cost")),
    )


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    """Return `fields` without those that have their default, which is nothing, zero or empty.

    A content has none: it may be empty, as that of a thought that only its signature tells.
    """
    kept = fields.items()
    return {name: each for name, each in kept if each or each is False or name == "content"}


def _decimal(cost: object) -> Decimal | None:
    try:
        return None if cost is None else Decimal(str(cost))
    except InvalidOperation:
        return None
