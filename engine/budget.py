"""What an episode may use, and whether it has. Pure."""

from __future__ import annotations

import math
from typing import Final

from streams.triggers import Budget

__all__ = ["COUNT_MAX", "Budget", "is_whole", "overspent", "problem_of_budget"]

COUNT_MAX: Final = 2**31 - 1
"""Largest count or number of seconds that may be declared: 68 years, if it is seconds."""


def is_whole(value: object) -> bool:
    """Return whether `value` is a whole number; in Python `True` is one, and here it is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def problem_of_budget(budget: Budget) -> str | None:
    """Return what is wrong with the limits of `budget`, or None. 0 or less is no limit."""
    for limit in ("turns", "tokens"):
        if not is_whole(getattr(budget, limit)):
            return f"{limit}={getattr(budget, limit)!r} is not a whole number; use 0 for no limit"
    wall_s: object = budget.wall_s
    if not (is_whole(wall_s) or (isinstance(wall_s, float) and math.isfinite(wall_s))):
        return f"wall_s={wall_s!r} is not a number of seconds; use 0 for no limit"
    for limit in ("turns", "tokens", "wall_s"):
        if abs(getattr(budget, limit)) > COUNT_MAX:
            value = getattr(budget, limit)
            return f"{limit}={value!r} is over {COUNT_MAX:,}; use 0 for no limit"
    return None


def overspent(budget: Budget, *, turns: int, tokens: int, wall_s: float) -> str | None:
    """Return which limit is used up and by how much, or None if there is room for a turn."""
    if 0 < budget.turns <= turns:
        return f"turns: {turns} used of {budget.turns}"
    if 0 < budget.tokens <= tokens:
        return f"tokens: {tokens} used of {budget.tokens}"
    if 0 < budget.wall_s <= wall_s:
        return f"wall_s: {wall_s:.3f} used of {budget.wall_s:g}"
    return None
