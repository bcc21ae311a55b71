"""All screens of the console."""

from __future__ import annotations

from typing import Final

from vigil.web.screen import Screen
from vigil.web.screens import (
    actors,
    dead_letters,
    decision,
    events,
    findings,
    go,
    inbox,
    outputs,
    overview,
    workflow,
    workflows,
)
from vigil.web.screens.episodes import bulk, compare, conversation, episode, episodes, fork
from vigil.web.screens.stack import costs, decisions, definitions, nodes, orders, people

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
    findings.SCREEN,
    findings.ONE,
    outputs.SCREEN,
    outputs.ONE,
    workflows.SCREEN,
    workflow.SCREEN,
    dead_letters.SCREEN,
    dead_letters.ONE,
    actors.SCREEN,
    actors.ONE,
    events.SCREEN,
    events.WHY,
    events.ONE,
    events.PUBLISH,
    events.FIRE,
    costs.SCREEN,
    definitions.SCREEN,
    definitions.ONE,
    orders.SCREEN,
    decisions.SCREEN,
    nodes.SCREEN,
    nodes.DOCTOR,
    people.SCREEN,
    bulk.SCREEN,
    go.SCREEN,
)
"""In the order in which their addresses are tried."""
