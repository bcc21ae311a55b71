"""Why a node cannot have an episode that another one may. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from engine import recovery
from engine.actor import Actor
from engine.episode import Episode
from engine.status import ENDED
from streams.log import Recorded

NO_SUCH_EPISODE: Final = "no_such_episode"
NO_SUCH_EXPECTATION: Final = "no_such_expectation"
NO_SUCH_EDITION: Final = "no_such_edition"


class Obstacle(msgspec.Struct, frozen=True):
    """Why a node cannot have an episode."""

    reason: str
    """A stable class: `no_such_episode`, `no_such_expectation`, `no_such_edition`, `newer_state`,
    `unreadable_journal` or `wrong_queue`."""
    detail: str


def obstacle(actor: Actor, episode: Episode, records: Sequence[Recorded]) -> Obstacle | None:
    """Return why a node that runs `actor` as it is cannot have the episode; None if it can.

    Args:
        actor: as this node's version of the app declares it; another node's may differ.
        episode: the fold of `records`.
        records: the episode's journal.
    """
    if episode.opened is None:
        return Obstacle(NO_SUCH_EPISODE, "the journal holds no such episode")
    if episode.status in ENDED:
        return None
    expectation = actor.expectations.get(episode.opened.expectation_id)
    if expectation is None:
        detail = f"the actor here has no expectation {episode.opened.expectation_id!r}"
        return Obstacle(NO_SUCH_EXPECTATION, detail)
    kept, version = recovery.tail(records).checkpoint, expectation.state_schema.version
    if kept is not None and kept.schema_version > version:
        detail = f"its state is of version {kept.schema_version}, this node knows {version}"
        return Obstacle("newer_state", detail)
    return None
