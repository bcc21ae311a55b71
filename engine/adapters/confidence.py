"""What a delivery was told in confidence, and what it says of itself without that. Pure.

Receivers quote what they do not like: the address that was asked for, the header that is wrong.
Such a refusal is kept on the journal, in rows and in dead letters, so what was a secret is taken
out of it first.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from engine.adapter import DeliveryFailed
from engine.adapters.secret import Secret, told

HIDDEN: Final = "***"

CHARS_MIN: Final = 4
"""Shortest text that is hidden. What is shorter keeps nobody out, and stands in too many words."""

PART_CHARS_MIN: Final = 12
"""Shortest part of a longer secret that is hidden where it stands alone: a token, not a word."""

SHOWN_CHARS_MAX: Final = 300
"""How much of a refusal's text is kept for people."""


class Confidence:
    """What one delivery was told."""

    def __init__(self, adapter: str) -> None:
        """Be told nothing yet; `adapter` is for whoever reads what is wrong with a secret."""
        self._adapter = adapter
        self._secrets: set[str] = set()
        self._paths: set[str] = set()

    def told(self, secret: Secret, argument: str) -> str:
        """Return what `secret` is now, and hide it from then on.

        Raises:
            DeliveryFailed: it is not there.
        """
        value = told(secret, of=f"{self._adapter}: {argument}")
        self.keep(value)
        return value

    def told_url(self, secret: Secret) -> str:
        """Return what the URL is now, and hide from then on all but its host.

        Raises:
            DeliveryFailed: it is not there, or it is none.
        """
        url = told(secret, of=f"{self._adapter}: url")
        try:
            parts = urlsplit(url)
        except ValueError:
            raise DeliveryFailed("bad_url", "not a URL", permanent=True) from None
        user_info = parts.netloc.rpartition("@")[0]
        self._paths |= {parts.path, parts.path.rstrip("/")}
        for value in (user_info, *user_info.split(":"), parts.query, parts.fragment):
            self.keep(value)
        for part in parts.path.split("/"):
            self.keep(part, chars_min=PART_CHARS_MIN)
        for _, value in parse_qsl(parts.query):
            self.keep(value)
        return url

    def keep(self, value: str, *, chars_min: int = CHARS_MIN) -> None:
        """Hide `value` from now on, and those parts of it that are secrets by themselves."""
        if len(value) >= chars_min:
            self._secrets |= {value, value.partition(" ")[2]}
            self._secrets |= {part for part in value.split() if len(part) >= PART_CHARS_MIN}

    def hide(self, text: str) -> str:
        """Return `text` without anything that was told."""
        return _without(text, self._secrets | self._paths)

    def hide_in_name(self, name: str) -> str:
        """Return what a receiver calls a delivery without what was told.

        Such a name may begin with the path that the request went to. That is kept.
        """
        return _without(name, self._secrets)

    def in_public(self, failure: DeliveryFailed) -> DeliveryFailed:
        """Return `failure` with only what people may read of its detail."""
        return DeliveryFailed(
            failure.error_class,
            self.hide(failure.detail)[:SHOWN_CHARS_MAX],
            permanent=failure.permanent,
            retry_after_s=failure.retry_after_s,
        )


def _without(text: str, secrets: set[str]) -> str:
    spelled = {each for secret in secrets if len(secret) >= CHARS_MIN for each in _spelled(secret)}
    if not spelled:
        return text
    longest_first = sorted(spelled, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), HIDDEN, text)


def _spelled(secret: str) -> Iterator[str]:
    """Yield `secret` in the ways that a receiver may quote it."""
    plain = unquote(secret)
    for each in (quote(plain, errors="replace"), quote(plain, safe="", errors="replace")):
        yield from (each, each.lower())
    for each in (secret, plain):
        in_base64 = b64encode(each.encode(errors="replace")).decode()
        yield from (in_base64, in_base64.rstrip("="))
        in_json = each.replace("\\", r"\\").replace('"', r"\"")
        yield from (each, in_json, in_json.replace("/", r"\/"))
