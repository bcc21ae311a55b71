"""The port to commands: two shared queues per actor, and one per workflow.

One queue has commands to run episodes, which wait for a node with a free slot. The other has
people's and programs' commands to episodes, which must not wait behind those.
"""

from __future__ import annotations

from typing import Protocol

from streams.model.commands import Command, WorkflowCommand
from streams.ports.delivery import Source, Unreadable


class CommandQueue(Protocol):
    """Commands on their way to any node that has room."""

    async def send(self, command: Command | WorkflowCommand, *, id: str, trace: str = "") -> None:
        """Queue `command` for its episode's actor, or its instance's workflow.

        The same `id` within two minutes is kept once.

        Raises:
            UnknownOutcome: no answer. It may be queued; sending again with the same `id` is safe.
            Unavailable: the server refused. It is not queued.
        """

    async def is_waiting(self, actor: str, episode_id: str) -> bool:
        """Return whether a command to the episode is unacknowledged."""

    async def backlog(self, actor: str) -> int:
        """Return how many commands to the actor's episodes are unacknowledged, in both queues."""

    async def open(self, actor: str) -> Source[Command | Unreadable]:
        """Return the queue of calls to run episodes of `actor`, shared by all nodes."""

    async def open_attending(self, actor: str) -> Source[Command | Unreadable]:
        """Return the queue of people's commands to episodes of `actor`, shared by all nodes."""

    async def open_workflow(self, workflow: str) -> Source[WorkflowCommand | Unreadable]:
        """Return the queue of commands to instances of `workflow`, shared by all nodes."""
