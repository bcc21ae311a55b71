"""Data of subjects: of which kinds they are encrypted, and erasing what there is of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vigil.client.connections import Connections
from vigil.errors import told

if TYPE_CHECKING:
    from vigil.asking.erasure import Erasure


@dataclass(frozen=True)
class ErasureCalls:
    """Calls about encrypted data: `client.erasure`. They need a client with settings."""

    _connections: Connections

    async def kinds(self) -> Sequence[str]:
        """Return the kinds of subjects whose data are encrypted, such as `client_id`; none: off.

        Raises:
            Trouble: this client is on connections of somebody else, not on settings.
        """
        from vigil.asking import erasure

        with told():
            return await erasure.kinds(self._connections.config)

    async def encrypt(self, *kinds: str, reason: str = "", by: str | None = None) -> Sequence[str]:
        """Encrypt what is written about subjects of more kinds; return all kinds.

        Nodes, projectors and clients do so once they are started again. What was written before
        stays as it is, and no kind is ever taken back.

        Args:
            kinds: as expectations have them in `subject_key`.

        Raises:
            Mistake: one of `kinds` cannot be one, or a text cannot be kept.
        """
        from vigil.asking import erasure

        name = self._connections.who(by)
        with told():
            return await erasure.encrypt(self._connections.config, kinds, by=name, reason=reason)

    async def erase(
        self, subject: str, *, reason: str = "", dry_run: bool = False, by: str | None = None
    ) -> Erasure:
        """Destroy the key that all about a subject is encrypted with, such as `client_id/123`.

        Whatever has it then reads as erased; ids, counts and states stay. After an interruption it
        can be called again.

        Args:
            dry_run: destroy nothing, and return what there is.

        Raises:
            Mistake: nothing about such a subject is encrypted, people hold some of it, work about
                it has not ended, or a text cannot be kept.
        """
        from vigil.asking import erasure

        name = self._connections.who(by)
        with told():
            return await erasure.erase(
                self._connections.config, subject, by=name, reason=reason, is_dry=dry_run
            )
