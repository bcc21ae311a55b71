"""What must not stand in code: passwords, keys, and addresses that whoever has them may use.

What a delivery was told in confidence, and what it says of itself without that. Pure.

Receivers quote what they do not like: the address that was asked for, the header that is wrong.
Such a refusal is kept on the journal, in rows and in dead letters, so what was a secret is taken
out of it first.

Signatures that tell a receiver who has sent a request, and when. Pure.

The convention is Standard Webhooks 1.0.0 (https://www.standardwebhooks.com), for which there are
libraries in most languages: HMAC-SHA256 of `<id>.<timestamp>.<body>`, the key being the base64 in
the secret, and three headers.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
import ssl
from base64 import b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from engine.app.outputs import DeliveryFailed
from engine.errors import BadAdapter

Secret: TypeAlias = str | Callable[[], str]
"""A text, or what returns it: called for every delivery, so that it may change under way."""

MISSING: Final = "secret_missing"
"""The error class of a delivery on a node that was not given the secret."""

BAD: Final = "bad_secret"
"""The error class of a delivery whose secret is none, for good."""


def env(variable: str) -> Callable[[], str]:
    """Return a secret that is in an environment variable of the node, without space around it.

    A node without it still starts; what it is to deliver fails there as `secret_missing`, for now.
    """

    def read() -> str:
        value = os.environ.get(variable, "").strip()
        if not value:
            raise DeliveryFailed(MISSING, f"the environment variable {variable} is not set")
        return value

    return read


def checked_secret(secret: Secret, *, of: str, argument: str) -> Secret:
    """Return `secret` if it can be one.

    Raises:
        BadAdapter: it is neither a text nor a function. The secret is not in what it says.
    """
    if isinstance(secret, str) or callable(secret):
        return secret
    kind = "None" if secret is None else type(secret).__name__
    raise BadAdapter(of, argument, f"neither a text nor a function that returns one, but {kind}")


def told(secret: Secret, *, of: str) -> str:
    """Return what `secret` is now.

    Args:
        secret: the secret.
        of: adapter and argument, for whoever reads that it is missing.

    Raises:
        DeliveryFailed: it is in an environment variable that is not set, or is no text.
    """
    try:
        value: object = secret if isinstance(secret, str) else secret()
    except DeliveryFailed as error:
        raise DeliveryFailed(
            error.error_class,
            f"{of}: {error.detail}",
            permanent=error.permanent,
            retry_after_s=error.retry_after_s,
        ) from error
    if not isinstance(value, str):
        kind = type(value).__name__
        raise DeliveryFailed(BAD, f"{of}: not a text, but {kind}", permanent=True)
    return value


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


TIMEOUT_S_MAX: Final = 600.0
"""Longest that a receiver may take, in seconds: as long as a route may give an attempt."""


def checked_timeout(timeout_s: object, *, of: str) -> float:
    """Return `timeout_s` if the adapter `of` can use it.

    Raises:
        BadAdapter: it is no time over 0 and up to `TIMEOUT_S_MAX`.
    """
    match timeout_s:
        case bool():
            pass
        case int() | float() if 0 < timeout_s <= TIMEOUT_S_MAX:
            return float(timeout_s)
    problem = f"{timeout_s!r} is not a number over 0 and up to {TIMEOUT_S_MAX:g}"
    raise BadAdapter(of, "timeout_s", problem)


def checked_tls(tls: object, *, of: str, argument: str = "tls") -> ssl.SSLContext | None:
    """Return `tls` if the adapter `of` can use it.

    Raises:
        BadAdapter: it is neither a context nor None.
    """
    if tls is None or isinstance(tls, ssl.SSLContext):
        return tls
    raise BadAdapter(of, argument, f"{tls!r} is neither an ssl.SSLContext nor None")


PREFIX: Final = "whsec_"

KEY_BYTES_MIN: Final = 24
KEY_BYTES_MAX: Final = 64
"""Shortest and longest key, as the convention has them."""

ID: Final = "webhook-id"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"


def keys_of(secret: str) -> Sequence[bytes]:
    """Return the keys in `secret`: one, or several with spaces in between.

    Raises:
        ValueError: there is none, or one is not `whsec_` and 24 to 64 bytes in base64. The secret
            is not in what it says.
    """
    keys = [_key(part) for part in secret.split()]
    if not keys:
        raise ValueError("an empty secret")
    return keys


def signed_headers(keys: Sequence[bytes], *, id: str, at: datetime, body: bytes) -> dict[str, str]:
    """Return the headers of a request with `body` that is sent at `at`.

    It is signed with each of `keys`, so that receivers can change from one to another.
    """
    timestamp = str(int(at.timestamp()))
    signed = b".".join((id.encode(), timestamp.encode(), body))
    signatures = " ".join(f"v1,{_signature(key, signed)}" for key in keys)
    return {ID: id, TIMESTAMP: timestamp, SIGNATURE: signatures}


def _key(part: str) -> bytes:
    try:
        key = base64.b64decode(part.removeprefix(PREFIX), validate=True)
    except (NotBase64, ValueError) as error:
        raise ValueError(f"a secret is {PREFIX} and base64") from error
    if not part.startswith(PREFIX) or not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        raise ValueError(f"a secret is {PREFIX} and {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes")
    return key


def _signature(key: bytes, signed: bytes) -> str:
    return base64.b64encode(hmac.new(key, signed, sha256).digest()).decode()
