"""What NATS calls an inbox: a subject that nobody else knows, for answers to us.

Not the port of that name (`streams.inbox`): that one is a queue of commands.
"""

from __future__ import annotations

from nats import errors as nats_errors
from nats.aio.subscription import Subscription


class Inbox:
    """A subject of our own, for as long as its session lasts."""

    def __init__(self, subject: str, subscription: Subscription) -> None:
        """Wrap a subscription."""
        self.subject = subject
        self._subscription = subscription

    async def close(self) -> None:
        """Stop receiving. The server forgets the pulls that answer to this inbox."""
        try:
            await self._subscription.unsubscribe()
        except nats_errors.Error:
            return  # The session ended, and the subscription with it.
