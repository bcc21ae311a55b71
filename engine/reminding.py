"""When people are reminded of what waits for them. Pure.

A reminder follows every so many seconds after it was asked; its number says which one it is.
"""

from __future__ import annotations

from datetime import datetime, timedelta


def reminder_no(since: datetime, *, every_s: float, at: datetime) -> int:
    """Return the number, from 1, of the newest reminder that is due at `at`; 0: none is.

    Args:
        since: when people were asked.
        every_s: seconds between two reminders; 0: there are none.
        at: now.
    """
    if every_s <= 0 or at < since:
        return 0
    return int((at - since).total_seconds() / every_s)


def next_reminder_at(since: datetime, *, every_s: float, at: datetime) -> datetime | None:
    """Return when the first reminder after `at` is due; None: there are none."""
    if every_s <= 0:
        return None
    number = reminder_no(since, every_s=every_s, at=at) + 1
    return since + timedelta(seconds=number * every_s)
