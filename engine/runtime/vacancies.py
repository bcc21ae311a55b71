"""Tells who waits for a claim that it may be free now.

Every node watches the claims for those that lapse. So nobody who waits for one needs a watch of
their own, or has to ask again and again.
"""

from __future__ import annotations

import asyncio

from streams.leases import ClaimChange


class Vacancies:
    """Claims that have been given up or have lapsed, for those of this node who wait for them."""

    def __init__(self) -> None:
        self._freed: dict[str, asyncio.Event] = {}

    def of(self, key: str) -> asyncio.Event:
        """Return what is set when the claim `key` gets free after now. Ask for the claim then."""
        return self._freed.setdefault(key, asyncio.Event())

    def note(self, change: ClaimChange) -> None:
        """Take note of a change of any claim."""
        if change.state != "claimed" and change.key in self._freed:
            self._freed.pop(change.key).set()
