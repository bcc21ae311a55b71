"""What an episode may use, and whether it has. Pure."""

from __future__ import annotations

from streams.events import Budget

__all__ = ["Budget", "overspent"]


def overspent(budget: Budget, *, turns: int, tokens: int, wall_s: float) -> str | None:
    """Return which limit is used up and by how much, or None if there is room for a turn."""
    if 0 < budget.turns <= turns:
        return f"turns: {turns} used of {budget.turns}"
    if 0 < budget.tokens <= tokens:
        return f"tokens: {tokens} used of {budget.tokens}"
    if 0 < budget.wall_s <= wall_s:
        return f"wall_s: {wall_s:.3f} used of {budget.wall_s:g}"
    return None
