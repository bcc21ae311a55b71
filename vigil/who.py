"""Who does something at the command line."""

from __future__ import annotations

import getpass
from collections.abc import Collection
from typing import Final

from vigil.errors import Mistake
from vigil.settings import Reading

BY_CHARS_MAX: Final = 200
"""Most of somebody's name that is kept with a decision."""


def stranger_hint(approvers: Collection[str], by: str) -> str:
    """Return what to add to why `by` may not decide what only `approvers` may; empty: `by` may."""
    return "; say who you are with --by" if approvers and by not in approvers else ""


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
