"""A scripted step that spends: what an agent does around a request to its model, without one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Final

import pytest

from engine.app.actions import ToolCall, tool_call
from engine.episodes.attempt import AttemptState
from engine.episodes.episode import Announce, Performed
from engine.execution.driver import EpisodeTurns
from streams.json import raw
from streams.model.events import StepKind

MODEL: Final = "model"

Provider = Callable[[EpisodeTurns, str], Awaitable[None]]
"""Answers a request: is told of the episode and the path."""


def ask(number: int, *, worst: str, cost: str) -> ToolCall:
    """Return a request that may cost `worst`, and does cost `cost`."""
    return tool_call(MODEL, "ask", {"number": number, "worst": worst, "cost": cost})


def answered_by(provider: Provider, patch: pytest.MonkeyPatch) -> None:
    """Have `provider` answer every request that an episode makes by `ask`."""
    take = EpisodeTurns.take

    async def taken(self: EpisodeTurns, action, mark, *, path, also=()):
        if not isinstance(action, ToolCall) or action.capability != MODEL:
            return await take(self, action, mark, path=path, also=also)
        worst, cost = (Decimal(str(action.args[each])) for each in ("worst", "cost"))
        if self.attempt.state is not AttemptState.FENCED:
            await self.barrier()
        await self.spending.reserve(worst, path=path)
        if self.announced_at(path) is None:
            said = {"fingerprint": mark, "tool_name": "model.ask", "idempotency_key": mark}
            self.record(Announce(**said, path=path, reserved_usd=worst))
        await self.barrier()
        await provider(self, path)
        await self.spending.settle(path, cost)
        done = Performed(
            kind=StepKind.TOOL_CALL,
            fingerprint=mark,
            tool_name="model.ask",
            path=path,
            result=raw("answer"),
            cost_usd=cost,
        )
        self.record(done, *also)
        return done

    patch.setattr(EpisodeTurns, "take", taken)
