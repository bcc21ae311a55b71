"""Who does something at the command line."""

from __future__ import annotations

import getpass
from typing import Final

from console.errors import Mistake
from console.settings import Reading

BY_CHARS_MAX: Final = 200
"""Most of somebody's name that is kept with a decision."""


def who(reading: Reading, by: str | None) -> str:
    """Return who decides: as given, else the user of this program, else this program.

    Raises:
        Mistake: what is given is empty.
    """
    if by is not None and not by.strip():
        raise Mistake("--by: say who, or leave it out")
    try:
        return (by or getpass.getuser())[:BY_CHARS_MAX]
    except (KeyError, OSError):  # A container may run as a number that has no name.
        return reading.node
