"""Repairs of a stack by hand: what no node runs or declares, and what its log has lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from engine.operations import reconcile as reconciling
from engine.operations.drift import REASON_MAX
from engine.operations.reconcile import Reconciled
from engine.validation import check_cause
from vigil.asking.repairs import losses, recovery
from vigil.asking.repairs.losses import StackLosses
from vigil.asking.repairs.recovery import RecoverReport
from vigil.asking.stack import read_stack, require_plausible
from vigil.client.connections import Connections
from vigil.errors import told

if TYPE_CHECKING:
    from vigil.asking.repairs.diagnosis import DoctorCheck

STALE_AFTER_S: Final = 120.0
"""How long without progress before an episode is looked at, in seconds: its default wall time."""


@dataclass(frozen=True)
class RepairCalls:
    """Calls that look for what is wrong with a stack, and repair it: `client.repairs`."""

    _connections: Connections

    async def doctor(self) -> Sequence[DoctorCheck]:
        """Return what is as it must be, and what is not and how to repair it, servers included.

        Raises:
            Trouble: this client is on connections of somebody else, not on settings.
        """
        from vigil.asking.repairs.diagnosis import examine

        with told():
            return await examine(self._connections.config)

    async def recover(
        self, *, stale_after_s: float = STALE_AFTER_S, dry_run: bool = False
    ) -> RecoverReport:
        """Restart episodes and instances of workflows that no node is running.

        The crash of a node is recovered without this call; it finds what even that has missed.

        Args:
            stale_after_s: how long they must have shown no progress, in seconds.
            dry_run: change nothing, and return what would be done.
        """
        connections = self._connections
        async with connections.rows() as pool, connections.log() as ports:
            return await recovery.recover(
                ports,
                pool,
                node=connections.node,
                clock=connections.clock,
                stale_after_s=stale_after_s,
                is_dry=dry_run,
            )

    async def reconcile(
        self, *actors: str, dry_run: bool = False, reason: str = "", by: str | None = None
    ) -> Reconciled:
        """End what no live node declares any more, and start new schedules.

        Queued and running episodes go on, and actors that no node has stay as they are.

        Args:
            actors: only of these; without any, of all that a live node has.
            dry_run: change nothing, and return what would be done.

        Raises:
            NotFound: nodes are up, and nobody knows one of `actors`.
            Mistake: a text cannot be kept.
        """
        name = self._connections.who(by)
        async with self._connections.log() as ports:
            seen = await read_stack(ports)
            for actor in actors:
                await require_plausible(self._connections.raw_rows, ports, seen, actor)
            return await reconciling.reconcile(
                ports,
                by=name,
                reason=reason,
                actors=actors or None,
                dry_run=dry_run,
                clock=self._connections.clock,
            )

    async def find_losses(self) -> StackLosses:
        """Return what a stack has lost whose log has lost its past. It changes nothing.

        Raises:
            Trouble: this client is on connections of somebody else, not on settings.
        """
        with told():
            return await losses.look_for_losses(self._connections.config)

    async def accept_losses(
        self, found: StackLosses, *, reason: str = "", by: str | None = None
    ) -> Mapping[str, int]:
        """Go on without what `find_losses` has found; nodes may be started then.

        After an interruption it can be called again. Returns how many keys of each kind the gates
        got anew.

        Raises:
            Mistake: a text cannot be kept.
            Trouble: this client is on connections of somebody else, not on settings.
        """
        name = self._connections.who(by)
        check_texts(name, reason)
        with told():
            return await losses.accept(
                self._connections.config, found.found, by=name, reason=reason
            )


def check_texts(by: str, reason: str) -> None:
    """Raise `Mistake` if a repair could not keep who orders it, or why."""
    with told():
        check_cause(by, reason, most=REASON_MAX)
