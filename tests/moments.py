"""At which moments of a story something goes wrong: `VIGIL_TEST_MOMENTS=all` is at each of them.

Otherwise it is at every fifth: a request before it is made, the next but two after it was, and so
on. Mutants are tried, and `make crashes` runs, at all.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

STRIDE: Final = 1 if os.environ.get("VIGIL_TEST_MOMENTS") == "all" else 5
"""Odd, as before and after a request take turns."""


def moments(chances: int) -> Sequence[int]:
    """Return the numbers of the chances, from 1 on, at which something goes wrong."""
    return range(1, chances + 1, STRIDE)
