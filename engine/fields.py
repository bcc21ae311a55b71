"""Checks of what people and programs ask with, field by field. Pure."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from engine.errors import BadRequest
from streams.errors import BadName
from streams.tokens import name as checked_name

BY_CHARS_MAX: Final = 200
"""Longest name of who asks, in characters; every episode keeps it."""

REASON_CHARS_MAX: Final = 4_000
"""Longest reason, in characters."""


def check_name(field: str, value: str) -> None:
    """Raise `BadRequest` unless `value` can name an actor or an expectation."""
    try:
        checked_name(value, of=field)
    except (BadName, TypeError) as error:
        problem = f"{value!r} is not a name; use 1 to 64 of A-Z a-z 0-9 _ -"
        raise BadRequest(field=field, problem=problem) from error


def check_id(field: str, value: str) -> None:
    """Raise `BadRequest` unless `value` is the id of an episode, as the engine writes it."""
    try:
        is_id = str(UUID(value)) == value
    except (ValueError, TypeError, AttributeError):
        is_id = False
    if not is_id:
        problem = f"{value!r} is not the id of an episode, 36 of 0-9 a-f -"
        raise BadRequest(field=field, problem=problem)


def check_switch(field: str, *, value: bool) -> None:
    """Raise `BadRequest` unless `value` is True or False, and nothing that only looks like it."""
    if not isinstance(value, bool):
        raise BadRequest(field=field, problem=f"{value!r} is not True or False")


def check_text(field: str, value: object, *, least: int, most: int) -> None:
    """Raise `BadRequest` unless `value` is text of `least` to `most` characters."""
    if not isinstance(value, str):
        raise BadRequest(field=field, problem=f"{value!r} is not text")
    if not least <= len(value) <= most:
        problem = f"{len(value):,} characters, not {least} to {most:,}"
        raise BadRequest(field=field, problem=problem)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(field=field, problem=f"{value!r} is not valid Unicode text") from error
