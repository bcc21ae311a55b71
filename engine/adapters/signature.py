"""Signatures that tell a receiver who has sent a request, and when. Pure.

The convention is Standard Webhooks 1.0.0 (https://www.standardwebhooks.com), for which there are
libraries in most languages: HMAC-SHA256 of `<id>.<timestamp>.<body>`, the key being the base64 in
the secret, and three headers.
"""

from __future__ import annotations

import base64
import hmac
from binascii import Error as NotBase64
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Final

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
