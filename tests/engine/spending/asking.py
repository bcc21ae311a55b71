"""A scripted step that spends: what an agent does around a request to its model, without one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Final

import pytest

from engine.agents.unit import RequestSize, Unit, UnitOutcome
from engine.app.actions import ToolCall, tool_call
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

        async def make(key, listener):
            await provider(self, path)
            return UnitOutcome(result=raw("answer"), cost_usd=cost)

        self.spending.worst_case = lambda *_: worst
        unit = Unit(
            kind=StepKind.MODEL_REQUEST,
            name="model",
            mark=mark,
            args=raw({}),
            make=make,
            size=RequestSize(model=MODEL, bytes_in=1, output_tokens_max=1),
        )
        return await self.make(unit, path=path)

    patch.setattr(EpisodeTurns, "take", taken)


def answered_at_once(patch: pytest.MonkeyPatch) -> list[str]:
    """Have every request answered at once, and return the paths of those that are made."""
    paths: list[str] = []

    async def answer(_: EpisodeTurns, path: str) -> None:
        paths.append(path)

    answered_by(answer, patch)
    return paths
