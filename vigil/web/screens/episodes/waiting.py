"""Why episodes wait: what holds each that is queued or blocked, with a link to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from htpy import Node, a, fragment, small

from engine.runtime.gather import gather_bounded
from projections.records import EpisodeSummary
from vigil.client import Client
from vigil.errors import ServerAway
from vigil.web.drawing.parts import many, place, short
from vigil.web.screen import address

ACTORS_MAX: Final = 10
"""Most actors of one page of which it is read what keeps their queue."""

QUEUED_MAX: Final = 200
"""Most queued episodes of an actor among which the place of one is looked for."""


RUNNING_MAX: Final = 100
"""Most running episodes of an actor that are counted: so many are said to be at least as many."""


class WaitReason(NamedTuple):
    """What holds an episode: in words, and the page of it."""

    says: str
    href: str


class ActorQueue(NamedTuple):
    """What keeps the queue of an actor from moving."""

    obstacle: str
    """Why no node runs its episodes, in words; empty: one does, or nobody knows."""
    running: int
    """How many of its episodes run; of more than `RUNNING_MAX`, so many."""
    first: UUID | None
    """One that runs; None: none does."""


async def with_position(client: Client, episode: EpisodeSummary) -> EpisodeSummary:
    """Return a queued episode with its place among those of its actor, which only lists have."""
    if episode.status != "queued":
        return episode
    listed = await client.episodes.list(actor=episode.actor_id, status="queued", limit=QUEUED_MAX)
    return next((each for each in listed if each.episode_id == episode.episode_id), episode)


async def read_queues(
    client: Client, episodes: Iterable[EpisodeSummary]
) -> Mapping[str, ActorQueue]:
    """Return what keeps the queues of the actors of those that are queued."""
    waiting = dict.fromkeys(each.actor_id for each in episodes if each.status == "queued")
    actors = list(waiting)[:ACTORS_MAX]
    if not actors:
        return {}
    obstacles = await _obstacles(client, actors)
    running = await gather_bounded(
        lambda actor: client.episodes.list(actor=actor, status="running", limit=RUNNING_MAX),
        actors,
        in_flight_max=ACTORS_MAX,
    )
    return {
        actor: ActorQueue(
            obstacle=obstacles.get(actor, ""),
            running=len(page.items),
            first=next((each.episode_id for each in page.items), None),
        )
        for actor, page in zip(actors, running, strict=True)
    }


async def _obstacles(client: Client, actors: Sequence[str]) -> Mapping[str, str]:
    """Return actor → why no node runs it; without NATS, nobody knows."""
    try:
        view = await client.nodes.read()
    except ServerAway:
        return {}
    up = [each for each in view.nodes if each.runs is not None]
    if not up:
        return dict.fromkeys(actors, "no node is up")
    able = {actor for each in up for actor in each.runs or ()}
    return {each: "no node that is up runs it" for each in actors if each not in able}


def hold_of(episode: EpisodeSummary, queues: Mapping[str, ActorQueue]) -> WaitReason | None:
    """Return what holds an episode; None: nothing does, or nobody knows."""
    here = place("episodes", episode.episode_id)
    match episode.status, episode.blocked_by:
        case "queued", _:
            return _hold_of_queued(episode, queues.get(episode.actor_id))
        case "blocked", "approval":
            return WaitReason(
                "somebody has to approve it", place("inbox", "episode", episode.episode_id)
            )
        case "blocked", "outputs":
            return WaitReason(
                "its outputs are not settled", address("/outputs", episode=str(episode.episode_id))
            )
        case "blocked", "nondeterministic_replay":
            return WaitReason("the code of its node takes another way than it took", here)
        case "blocked", _ if episode.blocked_ref:
            return WaitReason(f"the signal {episode.blocked_ref} has not come", here)
        case "blocked", _:
            return WaitReason("it sleeps", here)
        case _:
            return None


def _hold_of_queued(episode: EpisodeSummary, queue: ActorQueue | None) -> WaitReason | None:
    if queue is None:
        return None
    if queue.obstacle:
        return WaitReason(queue.obstacle, place("nodes"))
    least = "at least " if queue.running >= RUNNING_MAX else ""
    running = f"{least}{many(queue.running, 'episode')} of its actor run"
    running += "s" * (queue.running == 1)
    where = f"number {episode.position} in its lane" if episode.position else "no slot is free"
    if queue.first is None:
        return WaitReason(where, place("actors", episode.actor_id))
    href = (
        place("episodes", queue.first)
        if queue.running == 1
        else address("/episodes", actor=episode.actor_id, status="running")
    )
    which = f" ({short(queue.first)})" if queue.running == 1 else ""
    return WaitReason(f"{where}; {running}{which}", href)


def held(episode: EpisodeSummary, queues: Mapping[str, ActorQueue]) -> Node:
    """Return a line that says what holds an episode; None: nothing does."""
    hold = hold_of(episode, queues)
    return hold and small(".why")["waits: ", a(href=hold.href)[hold.says]]


def because(hold: WaitReason) -> Node:
    """Return the same as a sentence of a note."""
    return fragment["It waits: ", a(href=hold.href)[hold.says], "."]
