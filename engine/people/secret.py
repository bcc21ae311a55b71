"""The texts that show who somebody is: of sessions, of tokens, and of links that work once. Pure.

    vs_<name>_<64 hex digits>   a session      vt_<id>_<64 hex digits>   a token
    vl_<id>_<64 hex digits>     a link

The middle says where it is noted, so that nothing has to be searched; the beginning, so that
whatever looks for secrets in files knows one. The log has the SHA-256 of the text: what has 256
random bits cannot be guessed, and needs no slow hash as passwords do.
"""

from __future__ import annotations

import re
from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest
from typing import Final

import msgspec

from engine.people.names import ID_CHARS, NAME, NAME_CHARS_MAX

RANDOM_BYTES: Final = 32
"""Random bytes of a secret."""

TEXT_CHARS_MAX: Final = 2 * RANDOM_BYTES + NAME_CHARS_MAX + 4
"""Longest text of a secret, in characters."""

SESSION_ID_CHARS: Final = 16
"""Hex digits of a session's id, which are the first of its hash."""

_TEXT: Final = re.compile(
    rf"(?:(vs)_({NAME})|(vt|vl)_([0-9a-f]{{{ID_CHARS}}}))_[0-9a-f]{{{2 * RANDOM_BYTES}}}"
)


class SecretKind(StrEnum):
    """What a secret is of: how its text begins."""

    SESSION = "vs"
    TOKEN = "vt"  # noqa: S105 - a kind, and no token
    LINK = "vl"


class Secret(msgspec.Struct, frozen=True):
    """What the text of a secret says, without the text."""

    kind: SecretKind
    of: str
    """The name of the person, or the id of the token or the link."""
    hash: str

    def fits(self, noted: str) -> bool:
        """Return whether this is the secret with that hash; it takes as long if it is not."""
        return compare_digest(self.hash, noted)


def secret_text(kind: SecretKind, of: str, nonce: bytes) -> str:
    """Return the text of a new secret."""
    return f"{kind}_{of}_{nonce.hex()}"


def secret_in(text: str) -> Secret | None:
    """Return what the text of a secret says; None: it is none."""
    if len(text) > TEXT_CHARS_MAX:
        return None
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    kind, of = match[1] or match[3], match[2] or match[4]
    return Secret(SecretKind(kind), of, hash_of(text))


def hash_of(text: str) -> str:
    """Return the hash of a secret's text, as the log has it."""
    return sha256(text.encode()).hexdigest()


def session_id_of(secret_hash: str) -> str:
    """Return the id of the session with a secret of this hash."""
    return secret_hash[:SESSION_ID_CHARS]
