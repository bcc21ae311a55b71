"""The port to processes that run one episode each, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Protocol


class RunAlone(Protocol):
    """One such process."""

    @property
    def node(self) -> str:
        """The name of the node that it is."""

    @property
    def is_fenced(self) -> asyncio.Event:
        """Set once it is durable that it has the episode."""

    @property
    def ended(self) -> asyncio.Event:
        """Set once it has ended."""

    @property
    def crash(self) -> str:
        """How it crashed, such as `exit status 1` or `SIGSEGV`; empty: it did not."""

    def stop(self) -> None:
        """Have it hand the episode over at the next barrier, and end."""

    def kill(self) -> None:
        """End it at once."""


class Isolation(Protocol):
    """Starts them."""

    async def start(self, actor_id: str, episode_id: str) -> RunAlone | None:
        """Start a process for an episode; None: as many run as may, or it cannot be started."""
