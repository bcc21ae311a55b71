"""A row of the ledger of a server of models, while it becomes one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, get_args

from vigil.testing.model_server.answers import (
    GivenAnswer,
    ModelAnswer,
    ModelCall,
    ModelReply,
    ModelRequest,
    ModelUsage,
    reply_to,
)
from vigil.testing.model_server.wire import WireProtocol

_GIVEN: Final = get_args(GivenAnswer)


@dataclass
class LedgerEntry:
    """One answer of the script, as far as it is known."""

    request: ModelRequest
    protocol: WireProtocol
    digest: str
    id: str
    drawing: asyncio.Task[ModelAnswer]
    times: int = 1
    polls: int = 0
    is_canceled: bool = False

    @property
    def answer(self) -> ModelAnswer | None:
        """What the script said; None: nothing yet, or it failed."""
        if not self.drawing.done() or self.drawing.cancelled() or self.drawing.exception():
            return None
        return self.drawing.result()

    @property
    def is_repeatable(self) -> bool:
        """Whether the same idempotency key gets this answer again."""
        return not self.drawing.done() or isinstance(self.answer, _GIVEN)

    @property
    def reply(self) -> ModelReply | None:
        """The answer for the wire; None: it is not there, or the client does not get it whole."""
        answer = self.answer
        return reply_to(self.request, answer, id=self.id) if isinstance(answer, _GIVEN) else None

    @property
    def row(self) -> ModelCall:
        """The row of the ledger as it is now."""
        reply = None if self.is_canceled else self.reply
        return ModelCall(
            request=self.request,
            answer=self.answer,
            usage=ModelUsage() if reply is None else reply.usage,
            asked=self.times,
            polls=self.polls,
            is_canceled=self.is_canceled,
        )
