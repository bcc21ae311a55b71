"""At which moments of a story something goes wrong: `VIGIL_TEST_SIZE=moments` is at each of them.

Otherwise it is at every 13th: a request before it is made, the next but six after it was, and so
on. Mutants are tried, and `make crashes` runs, at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.size import is_full

STRIDE: Final = 1 if is_full("moments") else 13
"""Odd, as before and after a request take turns."""


def moments(chances: int) -> Sequence[int]:
    """Return the numbers of the chances, from 1 on, at which something goes wrong."""
    return range(1, chances + 1, STRIDE)
