"""Hashes of passwords: argon2id, in a thread, a few at a time.

A hash takes a quarter of a second and 64 MiB of memory, so that who has stolen one guesses slowly.
It needs the extra `web`.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from engine.errors import BadRequest, Refused

if TYPE_CHECKING:
    from argon2 import PasswordHasher

R = TypeVar("R")

PASSWORD_CHARS_MIN: Final = 12
"""Shortest password, in characters; NIST SP 800-63B asks for no other rule than a length."""

PASSWORD_CHARS_MAX: Final = 1_000

TIME_COST: Final = 3
MEMORY_KIB: Final = 65_536
PARALLELISM: Final = 4
"""What RFC 9106, section 4, recommends where memory is dear."""

HASHES_MAX: Final = 2
"""Hashes that are computed at a time, 64 MiB each."""

WAITING_MAX: Final = 64
"""Hashes that may wait for those: some 8 seconds; who comes later is refused."""

NOBODYS: Final = (
    "$argon2id$v=19$m=65536,t=3,p=4$nSQpIh9mUjivSJEmvA9KTw"
    "$SOoOFAQ/dlXOQRpOTZr5d+JJE+sLrDyGidSzgjblMBA"
)
"""What a password is compared with where there is nobody: that takes as long."""

_NEEDS: Final = 'passwords need argon2: pip install "vigil-engine[web]"'


class Passwords:
    """Hashes passwords, and compares them, for one event loop."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(HASHES_MAX)
        self._waiting = 0

    async def hash(self, password: object) -> str:
        """Return the hash of a password; raise `BadRequest` if it is too short or too long."""
        text = checked(password)
        return await self._run(lambda hasher: hasher.hash(text))

    async def fits(self, password: object, password_hash: str) -> bool:
        """Return whether a hash is that of the password; an empty hash is of none.

        It takes as long whatever the answer is. Raises `Refused` if too many wait.
        """
        text = normal(password) if isinstance(password, str) else ""
        is_right = await self._run(lambda hasher: _is_of(hasher, password_hash or NOBODYS, text))
        return is_right and bool(password_hash)  # guard: no-password-never-fits

    async def _run(self, use: Callable[[PasswordHasher], R]) -> R:
        hasher = _hasher()
        async with self._turn():
            return await asyncio.to_thread(use, hasher)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        if self._waiting >= WAITING_MAX:
            raise Refused("too many sign in at once; try again in some seconds")
        self._waiting += 1
        try:
            async with self._free:
                yield
        finally:
            self._waiting -= 1


def checked(password: object) -> str:
    """Return a password in one spelling; raise `BadRequest` if it cannot be one."""
    if not isinstance(password, str):
        raise BadRequest(field="password", problem="it is not text")
    text = normal(password)
    if not PASSWORD_CHARS_MIN <= len(text) <= PASSWORD_CHARS_MAX:  # guard: password-has-length
        wanted = f"{PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX:,}"
        raise BadRequest(field="password", problem=f"it has {len(text):,} characters, not {wanted}")
    return text


def normal(password: str) -> str:
    """Return a password in one spelling, whatever keyboard it was typed on.

    Of one that is too long, only so much that it cannot be right.
    """
    shortened = password[: PASSWORD_CHARS_MAX + 1]
    spelled = unicodedata.normalize("NFKC", shortened)
    return spelled.encode(errors="replace").decode()


def _is_of(hasher: PasswordHasher, password_hash: str, text: str) -> bool:
    from argon2.exceptions import Argon2Error, InvalidHashError  # noqa: PLC0415 - as below

    try:
        return hasher.verify(password_hash, text)
    except (Argon2Error, InvalidHashError):
        return False


def _hasher() -> PasswordHasher:
    try:
        from argon2 import PasswordHasher  # noqa: PLC0415 - it needs the extra
    except ModuleNotFoundError as error:  # guard: missing-web-extra-told
        raise BadRequest(field="password", problem=_NEEDS) from error
    return PasswordHasher(TIME_COST, MEMORY_KIB, PARALLELISM)
