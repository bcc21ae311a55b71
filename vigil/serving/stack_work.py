"""What a node may do for the whole stack, taking turns with other nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class StackWork:
    """Which of it a process takes part in."""

    projects: bool = True
    reacts: bool = True

    def flags(self) -> Sequence[str]:
        """Return it as `vigil node` is told."""
        projecting = "--project" if self.projects else "--no-project"
        reacting = "--react" if self.reacts else "--no-react"
        return [projecting, reacting]
