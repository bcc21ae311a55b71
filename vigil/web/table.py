"""All screens of the console."""

from __future__ import annotations

from typing import Final

from vigil.web.screen import Screen
from vigil.web.screens import (
    compare,
    conversation,
    decision,
    episode,
    episodes,
    fork,
    inbox,
    overview,
)

SCREENS: Final[tuple[Screen, ...]] = (
    overview.SCREEN,
    inbox.SCREEN,
    decision.STEP,
    decision.SCREEN,
    episodes.SCREEN,
    fork.SCREEN,
    conversation.SCREEN,
    conversation.PROMPT,
    compare.SCREEN,
    episode.SCREEN,
)
"""In the order in which their addresses are tried."""
