"""What the records of an episode tell about its life, and its state at the end does not."""

from __future__ import annotations

from collections.abc import Sequence

from engine.episodes.episode import RUNS, UNOPENED, evolve
from streams.model.events import EpisodeEvent, EpisodeStarted
from streams.ports.log import Recorded


def takeovers(life: Sequence[Recorded]) -> int:
    """Return how often a node began to run what another one ran, so far as the journal knew.

    The episode's own count of crashes does not tell: it begins anew with each recorded step.
    """
    count, episode = 0, UNOPENED
    for event in (event for record in life for event in record.commit.events):
        count += isinstance(event, EpisodeStarted) and episode.status in RUNS
        if isinstance(event, EpisodeEvent):
            episode = evolve(episode, event)
    return count
