"""What of a person or a thing is kept encrypted, and how that is written. Pure.

A *subject of data* is `<kind>/<value>`, such as `client_id/123`: the kind is what expectations have
as their `subject_key`, the path of a value in payloads. What is written about one is encrypted
with a key of its own. Beside it stands the same without its contents: what a reader gets once that
key is destroyed.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import msgspec

from streams.model.struct import Struct

ERASED_KEY: Final = "$erased"
ERASED_TEXT: Final = "[erased]"
"""In the place of texts, and of whatever JSON has texts for."""

ERASED_JSON: Final = msgspec.Raw(b'{"$erased":true}')
"""In the place of any other JSON."""

SEALED_KEY: Final = "$sealed"
"""The key of an encrypted payload in a JSON object."""


class Sealed(Struct, frozen=True, kw_only=True):
    """Encrypted bytes, and which key they need."""

    name: str
    """Of the key: see `key_name`."""
    key_id: str
    """Which key of that name: one that is made after another was destroyed is a new one."""
    box: bytes
    """The nonce, and what AES-GCM makes of the contents."""


def subject_text(kind: str, value: str) -> str:
    """Return the subject of data as people and commands write it."""
    return f"{kind}/{value}"


def key_name(subject: str) -> str:
    """Return the name of the key of a subject of data, which does not tell whose it is."""
    return sha256(subject.encode()).hexdigest()[:40]
