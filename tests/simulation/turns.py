"""What must hold where the episodes of an actor take turns in the whole cluster.

As in `invariants.py`, each finds its own breaches in what a world has left behind: what the lane
says in the journal, and what really ran.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from streams.model.events import (
    EpisodeBlocked,
    EpisodeDeferred,
    EpisodeFinished,
    EpisodeStarted,
    LaneKept,
    LaneMoved,
)
from streams.model.lanes import Ticket
from tests.simulation.evidence import (
    Breaches,
    Evidence,
    Life,
    episode_id_of,
    event_id_of,
    identity,
    readable,
)
from tests.simulation.themes import Theme
from tests.simulation.wakeful import CLUSTER_MAX, SHED_QUEUE_MAX

ORDERED: Final = ("turn", "glance")
"""Expectations that have one episode of each key at a time, in the order of their events."""


def a_lane_admits_as_many_as_it_may(evidence: Evidence) -> Breaches:
    """At every point of the journal: those admitted, and those that really run."""
    for actor, most in CLUSTER_MAX.items():
        for place, admitted, _, _ in _lane_states(evidence, actor):
            if len(admitted) > most:
                yield f"{actor}@{place}: {len(admitted)} are admitted"
            keys = [(t.expectation_id, t.key) for t in admitted.values() if t.key_limit]
            if len(keys) > len(set(keys)):
                yield f"{actor}@{place}: two of one key are admitted, {keys}"
        lives = [each for each in evidence.lives.values() if each.opened.actor_id == actor]
        yield from _run_at_once(actor, lives, most=most)
    for name in ORDERED:
        for key, lives in _by_payload_key(evidence.of(name)).items():
            yield from _run_at_once(f"{name} {key}", lives, most=1)


def who_is_admitted_has_waited(evidence: Evidence) -> Breaches:
    for actor in CLUSTER_MAX:
        for place, admitted, moved, _ in _lane_states(evidence, actor):
            strange = [id_ for id_ in moved.admitted if id_ not in admitted]
            yield from (f"{actor}@{place}: {id_} did not wait" for id_ in strange)


def what_runs_was_admitted_before(evidence: Evidence) -> Breaches:
    """But for what is over with its first commit: that needs no place."""
    for actor in CLUSTER_MAX:
        admitted_at: dict[str, int] = {}
        for place, _, moved, _ in _lane_states(evidence, actor):
            for episode_id in moved.admitted:
                admitted_at.setdefault(episode_id, place)
        for life in evidence.lives.values():
            starts = life.of(EpisodeStarted)
            if life.opened.actor_id != actor or not starts or _is_one_commit(life):
                continue
            if admitted_at.get(life.id, starts[0].seq) >= starts[0].seq:
                yield f"{actor}: {life.id} began at {starts[0].seq}, {admitted_at.get(life.id)}"


def what_runs_has_its_turn(evidence: Evidence) -> Breaches:
    """Also what goes on after it has waited, for which it gave its place up."""
    for actor in CLUSTER_MAX:
        states = [
            (place, frozenset(admitted)) for place, admitted, *_ in _lane_states(evidence, actor)
        ]
        for life in evidence.lives.values():
            begins = [place for place, change in _moves(life) if change > 0]
            if life.opened.actor_id != actor or _is_one_commit(life):
                continue
            for begun in begins:
                admitted = [ids for place, ids in states if place < begun][-1:]
                if not admitted or life.id not in admitted[0]:
                    yield f"{actor}: {life.id} runs from {begun} on, and has no place"


def episodes_of_one_key_run_in_the_order_of_their_events(evidence: Evidence) -> Breaches:
    seqs: dict[str, int] = {}
    for event in evidence.named("sim.turn"):
        seqs.setdefault(identity(event), event.seq)
    for name in ORDERED:
        for key, lives in _by_payload_key(evidence.of(name)).items():
            starts = ((life.of(EpisodeStarted)[0].seq, seqs[event_id_of(life)]) for life in lives)
            order = [seq for _, seq in sorted(starts)]
            if order != sorted(order):
                yield f"{name} {key}: ran in the order {order}"


def every_event_of_a_lane_comes_to_something(evidence: Evidence) -> Breaches:
    """`queue` and `shed_oldest`: exactly one episode. `drop`: that, or it was dropped."""
    if Theme.LANES not in evidence.history.programme.themes:
        return
    watched = {
        "turn": ("turns", ["sim.turn"]),
        "urgent": ("turns", ["sim.urgent"]),
        "glance": ("turns", ["sim.turn"]),
        "lucky": ("drops", ["sim.turn"]),
        "latest": ("sheds", ["sim.turn", "sim.urgent"]),
    }
    for name, (actor, names) in watched.items():
        opened = [life.id for life in evidence.of(name)]
        dropped = {id_ for _, _, moved, _ in _lane_states(evidence, actor) for id_ in moved.dropped}
        for event in readable(evidence, *names):
            own = episode_id_of(event, actor=actor, expectation=name)
            if own not in opened and own not in dropped:
                yield f"{name}: {identity(event)} opened nothing, and was not dropped"
        if name in {*ORDERED, "urgent"} and dropped:
            yield f"{name}: dropped {dropped}"


def nothing_loses_its_place_while_there_is_room(evidence: Evidence) -> Breaches:
    for actor, most in CLUSTER_MAX.items():
        for place, admitted, moved, waiting in _lane_states(evidence, actor):
            is_short = len(admitted) < most
            may_run_nowhere = evidence.history.programme.has_orders
            if (moved.dropped or moved.shed) and is_short and not may_run_nowhere:
                yield f"{actor}@{place}: {moved} while only {len(admitted)} are admitted"
            if moved.shed and len(waiting) < SHED_QUEUE_MAX:
                yield f"{actor}@{place}: shed {moved.shed} while {len(waiting)} wait"
    for life in evidence.of("latest"):
        is_shed = life.finished is not None and life.finished.error_class == "shed_oldest"
        if is_shed and life.of(EpisodeStarted):
            yield f"{life.id} was begun, and shed"


def _lane_states(
    evidence: Evidence, actor: str
) -> Iterator[tuple[int, dict[str, Ticket], LaneMoved, dict[str, Ticket]]]:
    """Yield the place of each commit of a lane, who is admitted after it, it, and who waits."""
    waiting: dict[str, Ticket] = {}
    admitted: dict[str, Ticket] = {}
    for record in evidence.lanes.get(actor, ()):
        for event in record.commit.events:
            match event:
                case LaneMoved():
                    for id_ in (*event.left, *event.shed):
                        waiting.pop(id_, None)
                        admitted.pop(id_, None)
                    waiting |= {ticket.episode_id: ticket for ticket in event.placed}
                    admitted |= {id_: waiting.pop(id_) for id_ in event.admitted if id_ in waiting}
                    yield record.seq, admitted, event, waiting
                case LaneKept():
                    assert [*admitted] == [each.episode_id for each in event.admitted]
                case _:
                    pass


def _run_at_once(whose: str, lives: Sequence[Life], *, most: int) -> Breaches:
    """Yield where more than `most` of `lives` run."""
    moves = [move for life in lives for move in _moves(life)]
    running = 0
    for place, change in sorted(moves, key=lambda move: (move[0], move[1])):
        running += change
        if running > most:
            yield f"{whose}@{place}: {running} run at once"


def _moves(life: Life) -> Iterator[tuple[int, int]]:
    """Yield where an episode begins to run, and where it ends or waits.

    Once it has decided what is true, it needs no turn to deliver what it could not at first.
    """
    runs = is_deferred = False
    for placed in life.events:
        match placed.event:
            case EpisodeStarted() if not runs and not is_deferred:
                runs = True
                yield placed.seq, 1
            case EpisodeBlocked() | EpisodeDeferred() | EpisodeFinished():
                is_deferred = is_deferred or isinstance(placed.event, EpisodeDeferred)
                if runs:
                    runs = False
                    yield placed.seq, -1


def _is_one_commit(life: Life) -> bool:
    """Return whether an episode was opened, run and ended by its first commit."""
    return life.finished is not None and life.events[0].seq == life.events[-1].seq


def _by_payload_key(lives: Sequence[Life]) -> dict[str, list[Life]]:
    found: dict[str, list[Life]] = defaultdict(list)
    for life in lives:
        if life.of(EpisodeStarted):
            found[str(life.opened.trigger.payload.get("key"))].append(life)
    return found


INVARIANTS: Final[Sequence[Callable[[Evidence], Breaches]]] = (
    a_lane_admits_as_many_as_it_may,
    who_is_admitted_has_waited,
    what_runs_was_admitted_before,
    what_runs_has_its_turn,
    episodes_of_one_key_run_in_the_order_of_their_events,
    every_event_of_a_lane_comes_to_something,
    nothing_loses_its_place_while_there_is_room,
)
