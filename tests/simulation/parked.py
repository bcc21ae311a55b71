"""What must hold of episodes that are parked until a node has other code.

As in `invariants.py`, each finds its own breaches in what a world has left behind. That each of
them goes on and ends is judged there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from streams.model.events import (
    EpisodeBlocked,
    EpisodeFinished,
    EpisodeResolved,
    EpisodeStarted,
    Resolution,
    StepAnnounced,
    StepRecorded,
)
from tests.simulation import deploying
from tests.simulation.evidence import Breaches, Evidence, Life, Placed


def parks(life: Life) -> list[Placed[EpisodeBlocked]]:
    """Return the times that an episode was parked."""
    return [placed for placed in life.of(EpisodeBlocked) if placed.event.parked is not None]


def only_what_nodes_have_different_code_for_is_parked(evidence: Evidence) -> Breaches:
    for life in evidence.lives.values():
        if life.opened.actor_id != deploying.ACTOR:
            yield from (f"{life.id}: parked by {placed.event}" for placed in parks(life))


def what_is_parked_is_left_alone_until_other_code_is_there(evidence: Evidence) -> Breaches:
    for life in evidence.lives.values():
        for placed in parks(life):
            parked = placed.event.parked
            after = next((one for one in life.events if one.seq > placed.seq), None)
            match after.event if after is not None else None:
                case EpisodeFinished():
                    pass
                case EpisodeResolved(resolution=Resolution.RETRIED, decision_id=id_):
                    if parked is not None and id_ in {f"code.{code}" for code in parked.codes}:
                        yield f"{life.id}@{placed.seq}: {id_} was tried"
                case other:
                    yield f"{life.id}@{placed.seq}: followed by {other}"


def each_code_tries_an_episode_once(evidence: Evidence) -> Breaches:
    """Until something more is recorded."""
    for life in evidence.lives.values():
        tried: set[str] = set()
        for placed in life.events:
            match placed.event:
                case EpisodeBlocked(parked=parked) if parked is not None:
                    tried |= set(parked.codes)
                case StepAnnounced() | StepRecorded():
                    tried.clear()
                case EpisodeStarted(code=code) if code in tried:
                    yield f"{life.id}@{placed.seq}: {code} has tried it"


def nothing_is_parked_over_and_over(evidence: Evidence) -> Breaches:
    for life in evidence.lives.values():
        if len(parks(life)) > deploying.PARKS_MAX:
            yield f"{life.id}: parked {len(parks(life))} times"


def parked(evidence: Evidence) -> Iterator[Life]:
    """Yield the episodes that were ever parked."""
    return (life for life in evidence.lives.values() if parks(life))


INVARIANTS: Final[Sequence[Callable[[Evidence], Breaches]]] = (
    only_what_nodes_have_different_code_for_is_parked,
    what_is_parked_is_left_alone_until_other_code_is_there,
    each_code_tries_an_episode_once,
    nothing_is_parked_over_and_over,
)
