"""One mistake of a user: what is done wrong, and what is said of it, where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Mistake:
    """A row of the table of mistakes, which a test makes and compares."""

    number: int  # Its place in the table, from 1.
    made: str  # What is done wrong, in words.
    done: str  # It as written: code, a command, a file. Empty where the test does it by name.
    said: str  # A part of the one line that is said, as it is.
    where: Literal["python", "check", "start", "run", "log", "command", "test"]
    verdict: Literal["good", "fair"] = "good"  # Fair: true and in one line, but without what to do.
