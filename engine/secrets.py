"""Secrets: which texts of a call nobody may see, and what people may read without them. Pure.

A service that refuses a call may quote its arguments: a token in an error, a header in an answer.
So what is hidden in the arguments is hidden in errors and in the results that people see, too.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection, Iterator
from typing import Final
from urllib.parse import quote, unquote

HIDDEN: Final = "***"
"""What people see instead of a secret."""

CHARS_MIN: Final = 4
"""Shortest text that is hidden. Shorter ones protect nothing and occur in ordinary words."""

PART_CHARS_MIN: Final = 12
"""Shortest part of a longer secret that is hidden on its own: a token, not a word."""


def without(text: str, secrets: Collection[str]) -> str:
    """Return `text` without `secrets`, in whatever encoding it quotes them."""
    pattern = _pattern(secrets)
    return pattern.sub(HIDDEN, text) if pattern else text


def hide(value: object, secrets: Collection[str]) -> object:
    """Return a JSON value without `secrets`, in keys, texts and numbers at any depth."""
    pattern = _pattern(secrets)
    return _hide(value, pattern) if pattern else value


def texts_in(value: object) -> Iterator[str]:
    """Yield the texts and numbers of a JSON value, at any depth, and the tokens in them."""
    match value:
        case dict():
            for each in value.values():
                yield from texts_in(each)
        case list() | tuple():
            for each in value:
                yield from texts_in(each)
        case str():
            yield from _with_token(value)
        case int() | float() if not isinstance(value, bool):
            yield str(value)
        case _:
            pass


def removed(given: object, shown: object) -> Iterator[str]:
    """Yield the texts of a JSON value that `shown`, which is made of it, lacks in their place."""
    if given == shown:
        return
    match given, shown:
        case dict(), dict():
            for key, value in given.items():
                yield from removed(value, shown.get(key))
        case list(), list() if len(given) == len(shown):
            for one, other in zip(given, shown, strict=True):
                yield from removed(one, other)
        case _:
            yield from texts_in(given)


def _with_token(text: str) -> Iterator[str]:
    yield text
    kind, _, token = text.partition(" ")
    # guard: header-token-alone
    if token and " " not in token:  # Such as `Bearer <token>`.
        yield token
        if len(kind) >= PART_CHARS_MIN:
            yield kind


def _pattern(secrets: Collection[str]) -> re.Pattern[str] | None:
    spelled = {each for secret in secrets if len(secret) >= CHARS_MIN for each in _spelled(secret)}
    if not spelled:
        return None
    return re.compile("|".join(map(re.escape, sorted(spelled, key=len, reverse=True))))


def _spelled(secret: str) -> Iterator[str]:
    """Yield `secret` in the encodings in which others may quote it."""
    plain = unquote(secret)
    for each in (quote(plain, errors="replace"), quote(plain, safe="", errors="replace")):
        yield from (each, each.lower())
    for each in (secret, plain):
        in_base64 = b64encode(each.encode(errors="replace")).decode()
        yield from (in_base64, in_base64.rstrip("="))
        in_json = each.replace("\\", r"\\").replace('"', r"\"")
        yield from (each, in_json, in_json.replace("/", r"\/"))


def _hide(value: object, pattern: re.Pattern[str]) -> object:
    match value:
        case str():
            return pattern.sub(HIDDEN, value)
        case dict():
            return {pattern.sub(HIDDEN, key): _hide(each, pattern) for key, each in value.items()}
        case list():
            return [_hide(each, pattern) for each in value]
        case int() | float() if not isinstance(value, bool):
            # guard: quoted-number-hidden
            return HIDDEN if pattern.fullmatch(str(value)) else value
        case _:
            return value
