"""What every adapter here can be told, and how far."""

from __future__ import annotations

from typing import Final

TIMEOUT_S_MAX: Final = 600.0
"""Longest that a receiver may take, in seconds: as long as a route may give an attempt."""


def checked_timeout(timeout_s: object, *, of: str) -> float:
    """Return `timeout_s` if the adapter `of` can use it.

    Raises:
        ValueError: it is no time over 0 and up to `TIMEOUT_S_MAX`.
    """
    match timeout_s:
        case bool():
            pass
        case int() | float() if 0 < timeout_s <= TIMEOUT_S_MAX:
            return float(timeout_s)
    problem = f"{timeout_s!r} is not a number over 0 and up to {TIMEOUT_S_MAX:g}"
    raise ValueError(f"{of}: timeout_s: {problem}")
