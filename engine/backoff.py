"""How long to wait before something is tried again. Pure."""

from __future__ import annotations

import hashlib
from typing import Final

DOUBLINGS_MAX: Final = 32
"""More doublings than this would only overflow: every pause has reached its longest by then."""

_DIGEST_BYTES: Final = 8


def backoff_s(tries: int, *, first_s: float, most_s: float) -> float:
    """Return the pause after the `tries`-th failure, from 1: it doubles, up to `most_s`."""
    return min(first_s * 2.0 ** min(tries - 1, DOUBLINGS_MAX), most_s)


def jittered_s(pause_s: float, *, seed: str) -> float:
    """Return something between half and all of `pause_s`: always the same for the same `seed`.

    Rivals with seeds of their own, who failed together, so do not try again together.
    """
    digest = hashlib.blake2b(seed.encode(), digest_size=_DIGEST_BYTES).digest()
    share = int.from_bytes(digest) / (1 << 8 * _DIGEST_BYTES)
    return pause_s * (1 + share) / 2
