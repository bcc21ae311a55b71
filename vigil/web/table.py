"""All screens of the console."""

from __future__ import annotations

from typing import Final

from vigil.web.screen import Screen
from vigil.web.screens import episode, episodes, inbox, overview

SCREENS: Final[tuple[Screen, ...]] = (
    overview.SCREEN,
    inbox.SCREEN,
    episodes.SCREEN,
    episode.SCREEN,
)
"""In the order in which their addresses are tried."""
