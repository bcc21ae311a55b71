"""AES-GCM with the key of a subject of data. Pure.

The nonce is made of the contents, by a key of its own: the same contents with the same key are the
same bytes, so what is repeated stays the same, and an object keeps its digest. Two contents share a
nonce once in 2^48 of one key.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from streams.errors import Incompatible
from streams.model.sealed import Sealed
from streams.ports.subject_keys import SubjectKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES: Final = 12
"""Length of the nonce of AES-GCM."""


def seal(data: bytes, key: SubjectKey, *, name: str) -> Sealed:
    """Return `data` encrypted with the key of that name."""
    nonce = _digest(_digest(key.secret, b"vigil nonce"), data)[:NONCE_BYTES]
    box = nonce + _cipher(key).encrypt(nonce, data, name.encode())
    return Sealed(name=name, key_id=key.id, box=box)


def unseal(sealed: Sealed, key: SubjectKey) -> bytes:
    """Return what is in the box.

    Raises:
        ValueError: it is damaged, or was encrypted with another key.
    """
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

    nonce, encrypted = sealed.box[:NONCE_BYTES], sealed.box[NONCE_BYTES:]
    try:
        return _cipher(key).decrypt(nonce, encrypted, sealed.name.encode())
    except InvalidTag as error:
        raise ValueError(f"what is encrypted with key {sealed.key_id} is damaged") from error


def check_library() -> None:
    """Raise `Incompatible` if nothing here can encrypt."""
    try:
        import cryptography.hazmat.primitives.ciphers.aead  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise Incompatible(
            "the stack keeps data of its subjects encrypted, and the library for that is missing",
            remedy="Install the extra `erasure`.",
        ) from error


def _cipher(key: SubjectKey) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra

    return AESGCM(key.secret)


def _digest(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, sha256).digest()
