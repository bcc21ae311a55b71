"""Secrets of adapters: reading them, keeping them out of error messages, and signing with them.

Receivers quote addresses and headers in their refusals, which end up in the journal, in rows and in
dead letters; `Confidence` removes all secrets of a delivery from them first. `signed_headers`
follows Standard Webhooks 1.0.0 (https://www.standardwebhooks.com): HMAC-SHA256 of
`<id>.<timestamp>.<body>`, with the base64 in the secret as the key, in three headers.
"""

from __future__ import annotations

import base64
import hmac
import os
import ssl
from binascii import Error as NotBase64
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from itertools import islice
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from engine.app.outputs import DeliveryFailed
from engine.errors import BadAdapter
from engine.secrets import CHARS_MIN, PART_CHARS_MIN, without

Secret: TypeAlias = str | Callable[[], str]
"""A text, or a function that returns it: called for every delivery, so that it may change."""

MISSING: Final = "secret_missing"
"""The error class of a delivery on a node that lacks the secret."""

BAD: Final = "bad_secret"
"""The error class of a delivery whose secret is invalid."""


SHOWN_CHARS_MAX: Final = 300
"""How much of a refusal's text is stored."""


TIMEOUT_S_MAX: Final = 600.0
"""Longest timeout of a receiver, in seconds: the longest that a route gives an attempt."""


VALUES_MAX: Final = 1_000
"""Most values of one adapter in which variables are looked for when a node starts."""


PREFIX: Final = "whsec_"

KEY_BYTES_MIN: Final = 24

KEY_BYTES_MAX: Final = 64
"""Shortest and longest key, by the convention."""

ID: Final = "webhook-id"

TIMESTAMP: Final = "webhook-timestamp"

SIGNATURE: Final = "webhook-signature"


def env(variable: str) -> Callable[[], str]:
    """Return the secret in an environment variable of the node, without surrounding space.

    A node without the variable still starts, with a warning; its deliveries fail for now as
    `secret_missing`.
    """
    return _Variable(variable)


@dataclass(frozen=True)
class _Variable:
    name: str

    def __call__(self) -> str:
        if not (value := self.value):
            raise DeliveryFailed(MISSING, f"the environment variable {self.name} is not set")
        return value

    @property
    def value(self) -> str:
        return os.environ.get(self.name, "").strip()


def missing_variables(adapter: object) -> Sequence[str]:
    """Return the variables of `env` in the attributes of `adapter` that this process lacks.

    Dictionaries, lists and tuples are looked into, the outermost first; nothing else of the user's.
    """
    missing, left = set[str](), deque(getattr(adapter, "__dict__", {}).values())
    for _ in range(VALUES_MAX):  # One may contain itself.
        if not left:
            break
        value = left.popleft()
        if isinstance(value, _Variable):
            missing |= set() if value.value else {value.name}
        elif isinstance(value, dict | list | tuple):
            within = value.values() if isinstance(value, dict) else value
            left.extend(islice(within, VALUES_MAX))
    return sorted(missing)


def checked_secret(secret: Secret, *, of: str, argument: str) -> Secret:
    """Return `secret` if it can be one; else raise `BadAdapter`, without the secret."""
    if isinstance(secret, str) or callable(secret):
        return secret
    kind = "None" if secret is None else type(secret).__name__
    raise BadAdapter(of, argument, f"neither a text nor a function that returns one, but {kind}")


def told(secret: Secret, *, of: str) -> str:
    """Return the current value of `secret`, the argument `of`; `DeliveryFailed`: there is none."""
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


class Confidence:
    """The secrets of one delivery."""

    def __init__(self, adapter: str) -> None:
        """Start without secrets; `adapter` is named in errors."""
        self._adapter = adapter
        self._secrets: set[str] = set()
        self._paths: set[str] = set()

    def told(self, secret: Secret, argument: str) -> str:
        """Return the current value of `secret`, and hide it from then on."""
        value = told(secret, of=f"{self._adapter}: {argument}")
        self.keep(value)
        return value

    def told_url(self, secret: Secret) -> str:
        """Return the current URL, and hide all but its host from then on."""
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
        """Hide `value` from now on, and those parts of it that are secrets on their own."""
        if len(value) >= chars_min:
            self._secrets |= {value, value.partition(" ")[2]}
            self._secrets |= {part for part in value.split() if len(part) >= PART_CHARS_MIN}

    def hide(self, text: str) -> str:
        """Return `text` without secrets."""
        return without(text, self._secrets | self._paths)

    def hide_in_name(self, name: str) -> str:
        """Return a receiver's reference without secrets, except for the path of the request."""
        return without(name, self._secrets)

    def in_public(self, failure: DeliveryFailed) -> DeliveryFailed:
        """Return `failure` with a detail that people may read."""
        return DeliveryFailed(
            failure.error_class,
            self.hide(failure.detail)[:SHOWN_CHARS_MAX],  # guard: receiver-quote-no-secret
            permanent=failure.permanent,
            retry_after_s=failure.retry_after_s,
        )


def checked_timeout(timeout_s: object, *, of: str) -> float:
    """Return `timeout_s` if it is over 0 and at most `TIMEOUT_S_MAX`; else raise `BadAdapter`."""
    match timeout_s:
        case bool():
            pass
        case int() | float() if 0 < timeout_s <= TIMEOUT_S_MAX:
            return float(timeout_s)
    problem = f"{timeout_s!r} is not a number over 0 and up to {TIMEOUT_S_MAX:g}"
    raise BadAdapter(of, "timeout_s", problem)


def checked_tls(tls: object, *, of: str, argument: str = "tls") -> ssl.SSLContext | None:
    """Return `tls` if it is a context or None; raise `BadAdapter` otherwise."""
    if tls is None or isinstance(tls, ssl.SSLContext):
        return tls
    raise BadAdapter(of, argument, f"{tls!r} is neither an ssl.SSLContext nor None")


def keys_of(secret: str) -> Sequence[bytes]:
    """Return the keys in `secret`: one, or several separated by spaces.

    Raises `ValueError`, without the secret, unless each is `whsec_` and 24 to 64 bytes in base64.
    """
    keys = [_key(part) for part in secret.split()]
    if not keys:
        raise ValueError("an empty secret")
    return keys


def signed_headers(keys: Sequence[bytes], *, id: str, at: datetime, body: bytes) -> dict[str, str]:
    """Return the headers of a request, signed with each key so that receivers can rotate them."""
    timestamp = str(int(at.timestamp()))
    signed = b".".join((id.encode(), timestamp.encode(), body))
    signatures = " ".join(f"v1,{_signature(key, signed)}" for key in keys)
    return {ID: id, TIMESTAMP: timestamp, SIGNATURE: signatures}


def _key(part: str) -> bytes:
    try:
        key = base64.b64decode(part.removeprefix(PREFIX), validate=True)
    except (NotBase64, ValueError) as error:
        raise ValueError(f"a secret is {PREFIX} and base64") from error
    # guard: secret-is-exact-text
    if not part.startswith(PREFIX) or not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        raise ValueError(f"a secret is {PREFIX} and {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes")
    return key


def _signature(key: bytes, signed: bytes) -> str:
    return base64.b64encode(hmac.new(key, signed, sha256).digest()).decode()
