"""What every adapter here can be told, and how far."""

from __future__ import annotations

import ssl
from typing import Final

from engine.errors import BadAdapter

TIMEOUT_S_MAX: Final = 600.0
"""Longest that a receiver may take, in seconds: as long as a route may give an attempt."""


def checked_timeout(timeout_s: object, *, of: str) -> float:
    """Return `timeout_s` if the adapter `of` can use it.

    Raises:
        BadAdapter: it is no time over 0 and up to `TIMEOUT_S_MAX`.
    """
    match timeout_s:
        case bool():
            pass
        case int() | float() if 0 < timeout_s <= TIMEOUT_S_MAX:
            return float(timeout_s)
    problem = f"{timeout_s!r} is not a number over 0 and up to {TIMEOUT_S_MAX:g}"
    raise BadAdapter(of, "timeout_s", problem)


def checked_tls(tls: object, *, of: str, argument: str = "tls") -> ssl.SSLContext | None:
    """Return `tls` if the adapter `of` can use it.

    Raises:
        BadAdapter: it is neither a context nor None.
    """
    if tls is None or isinstance(tls, ssl.SSLContext):
        return tls
    raise BadAdapter(of, argument, f"{tls!r} is neither an ssl.SSLContext nor None")
