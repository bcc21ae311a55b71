"""Who does something at the command line."""

from __future__ import annotations

import getpass
from typing import Final

from console.settings import Reading

BY_CHARS_MAX: Final = 200
"""Most of somebody's name that is kept with a decision."""


def who(reading: Reading, by: str | None) -> str:
    """Return who decides: as given, else the user of this program, else this program."""
    try:
        return (by or getpass.getuser())[:BY_CHARS_MAX]
    except (KeyError, OSError):  # A container may run as a number that has no name.
        return reading.node
