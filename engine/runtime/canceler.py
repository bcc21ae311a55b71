"""Watches what the cluster wants canceled, and cancels what of it runs here, now or later.

A node need not have room for a command to hear of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import structlog

from engine import canceling
from engine.runtime.running import Running
from streams import codec
from streams.bucket import Bucket, Entry
from streams.commands import Cancel
from streams.json import UNDECODABLE
from streams.keys import CANCELS, name_in

CHANGES_MAX: Final = 500
"""Changes of the gates looked at in one go."""

WAIT_S: Final = 5.0
"""Longest silent wait for changes; only how often an idle canceler looks up."""

log = structlog.get_logger("vigil.canceler")


@dataclass(frozen=True)
class Canceler:
    """Watches for one node."""

    gates: Bucket
    running: Running

    async def serve(self) -> None:
        """Watch for ever, also while the node stops: what runs until then can be canceled.

        Raises:
            Unavailable: the gates are away. Watching anew begins with all that stands.
        """
        async with self.gates.watch(under=CANCELS) as watch:
            while True:
                for entry in await watch.receive(most=CHANGES_MAX, wait_s=WAIT_S):
                    self._look_at(entry)

    def _look_at(self, entry: Entry) -> None:
        episode_id = name_in(entry.key)
        if entry.value is None:
            return self.running.forget(episode_id)
        command = _command_in(entry)
        if command is not None:
            self.running.wish(episode_id, canceling.end_of(command))
        return None


def _command_in(entry: Entry) -> Cancel | None:
    """Return what an entry says; None if nobody can read it. The command itself is elsewhere."""
    try:
        command = codec.decode_command(entry.value or b"")
    except UNDECODABLE as error:
        log.warning("a wish to cancel is unreadable", key=entry.key, why=str(error))
        return None
    return command if isinstance(command, Cancel) else None
