"""Why a connection failed, beneath what the libraries make of it."""

from __future__ import annotations

import ssl
from typing import Final

_DEPTH_MAX: Final = 10
"""How far down a cause is looked for."""


def is_about_tls(error: BaseException) -> bool:
    """Return whether `error` comes from a certificate, or from encryption, that failed."""
    at: BaseException | None = error
    for _ in range(_DEPTH_MAX):
        if isinstance(at, ssl.SSLError):
            return True
        at = at and (at.__cause__ or at.__context__)
    return False
