"""What people, groups, programs and scopes may be called, and where each thing is kept. Pure.

A name stands in secrets and cookies, and people compare it by eye: so it is plain ASCII, and no two
people differ by upper and lower case alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from engine.errors import BadRequest

ROSTER: Final = "people"
"""The key of all people with their roles."""

NAME_CHARS_MAX: Final = 100
"""Longest name of a person or a program, in characters; addresses of mail are names, too."""

GROUPS_MAX: Final = 100
"""Most groups of a person."""

SCOPES_MAX: Final = 32
"""Most scopes of a token."""

ID_CHARS: Final = 12
"""Hex digits in the id of a token or a link."""

PROGRAM: Final = "token:"
"""Begins the `by` of a program, which no name of a person can."""

NAME: Final = r"[A-Za-z0-9][A-Za-z0-9.@+-]*(?:_[A-Za-z0-9.@+-]+)*"

_NAME: Final = re.compile(NAME)
_GROUP: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+/-]*")
_SCOPE: Final = re.compile(r"[a-z][a-z_]{0,31}(:[a-z][a-z_]{0,31})?")
_ID: Final = re.compile(rf"[0-9a-f]{{{ID_CHARS}}}")


def login_key(name: str) -> str:
    """Return the key of the sign-ins of somebody."""
    return f"login.{name}"


def token_key(token_id: str) -> str:
    """Return the key of a token."""
    return f"token.{token_id}"


def link_key(link_id: str) -> str:
    """Return the key of a link that signs in once."""
    return f"link.{link_id}"


def views_key(name: str) -> str:
    """Return the key of the saved views of somebody."""
    return f"views.{name}"


def is_name(value: str) -> bool:
    """Return whether a person or a program may be called so."""
    return len(value) <= NAME_CHARS_MAX and _NAME.fullmatch(value) is not None


def check_person(field: str, value: object) -> None:
    """Raise `BadRequest` unless a person or a program may be called so."""
    if not isinstance(value, str) or not is_name(value):
        says = f"{value!r:.120} is no name: use letters, digits and . _ @ + - of ASCII"
        raise BadRequest(field=field, problem=f"{says}, {NAME_CHARS_MAX} at most")


def groups_of(values: Iterable[str]) -> tuple[str, ...]:
    """Return groups in order, each once; raise `BadRequest` if one cannot be called so."""
    return _listed("groups", values, _GROUP, most=GROUPS_MAX, such_as="oncall")


def scopes_of(values: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return scopes in order, each once; raise `BadRequest` if one cannot be called so."""
    if values is None:
        return None
    return _listed("scopes", values, _SCOPE, most=SCOPES_MAX, such_as="events:publish")


def check_token_id(field: str, value: object) -> None:
    """Raise `BadRequest` unless `value` is the id of a token or a link."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        problem = f"{value!r:.120} is no id, {ID_CHARS} of 0-9 a-f"
        raise BadRequest(field=field, problem=problem)


def _listed(
    field: str, values: Iterable[str], pattern: re.Pattern[str], *, most: int, such_as: str
) -> tuple[str, ...]:
    given: object = values
    if isinstance(given, str):
        raise BadRequest(field=field, problem=f"{given!r:.120} is a text; give a list")
    listed = sorted({str(each) for each in values})
    for each in listed:
        if len(each) > NAME_CHARS_MAX or not pattern.fullmatch(each):
            raise BadRequest(field=field, problem=f"{each!r:.120} cannot be; write {such_as}")
    if len(listed) > most:
        raise BadRequest(field=field, problem=f"{len(listed)}, not {most} at most")
    return tuple(listed)
