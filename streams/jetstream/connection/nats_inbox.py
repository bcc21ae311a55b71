"""A NATS inbox: a subject that only this process knows, for answers to its requests."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from nats import errors as nats_errors

from streams.jetstream.connection.client import BriefClient

DRAIN_S_MAX: Final = 1
"""Longest wait of `drain` for the server's last messages."""


class ReplyInbox:
    """A subject of our own, for as long as its session lasts; `client` knows it by `number`."""

    def __init__(self, client: BriefClient, subject: str, number: int) -> None:
        self.subject = subject
        self._client = client
        self._number = number

    def close(self) -> None:
        """Stop receiving. The server forgets the pulls that answer to this inbox."""
        self._client.leave(self._number)
        self._client.mute(self._number)

    async def drain(self) -> None:
        """Stop receiving, once everything has arrived that the server had already sent.

        Cancelled, it may be called again, and goes on.
        """
        self._client.leave(self._number)
        with suppress(nats_errors.Error, OSError):  # The session ended, and the subscription too.
            await self._client.flush(timeout=DRAIN_S_MAX)
        self._client.mute(self._number)
