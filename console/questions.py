"""Questions to the rows that the demo asks and shows: the SQL in `console/sql`, by name."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def question(name: str) -> str:
    """Return the SQL of the question called `name`, its first line a comment that asks it."""
    return (files("console") / "sql" / f"{name}.sql").read_text(encoding="utf-8").strip()
