"""What must hold of episodes that others start and wait for.

As in `invariants.py`, each finds its own breaches in what a world has left behind. That a parent
does not wait for ever, and that a path has one end, is judged there and in `paths.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from streams.json import unraw
from streams.model.events import (
    EpisodeBlocked,
    EpisodeFinished,
    EpisodeResolved,
    StepAnnounced,
    StepRecorded,
)
from streams.model.triggers import EpisodeTrigger
from tests.simulation.evidence import Breaches, Evidence, Life, Placed


def announced(life: Life) -> Iterator[Placed[StepAnnounced]]:
    """Yield the announcements of children, the first of each."""
    seen: set[str] = set()
    for placed in life.of(StepAnnounced):
        child = placed.event.child
        if child is not None and child.episode_id not in seen:
            seen.add(child.episode_id)
            yield placed


def ended(life: Life) -> Iterator[Placed[StepRecorded]]:
    """Yield the ends of children that a parent has recorded."""
    return (placed for placed in life.of(StepRecorded) if placed.event.child is not None)


def a_child_is_opened_once_and_by_whom_its_parent_announced(evidence: Evidence) -> Breaches:
    """After the announcement, which names its actor, expectation and call."""
    wanted = {
        placed.event.child.episode_id: (life, placed)
        for life in evidence.lives.values()
        for placed in announced(life)
        if placed.event.child is not None
    }
    for life in evidence.lives.values():
        trigger = life.opened.trigger
        if not isinstance(trigger, EpisodeTrigger):
            continue
        if life.id not in wanted:
            yield f"{life.id}: nobody announced it"
            continue
        parent, placed = wanted.pop(life.id)
        said, opened_seq = (parent.id, placed.event.path), life.records[0].seq
        if (trigger.parent_id, trigger.call) != said or opened_seq < placed.seq:
            yield f"{life.id}: {trigger} @{opened_seq}, announced @{placed.seq} by {said}"
    for id_, (parent, _) in wanted.items():
        yield f"{id_}: announced by {parent.id}, and never opened"


def a_parent_gets_each_end_once_and_as_it_was(evidence: Evidence) -> Breaches:
    """Only after the child has ended; and one that is done has the end of each child."""
    for life in evidence.lives.values():
        ends = list(ended(life))
        for placed in ends:
            yield from _wrong_end(evidence, life, placed)
        got = Counter(each.event.child.episode_id for each in ends if each.event.child)
        yield from (f"{life.id}: {id_} ended {n} times" for id_, n in got.items() if n > 1)
        if life.finished is not None and life.finished.status.value == "done":
            started = {each.event.child.episode_id for each in announced(life) if each.event.child}
            yield from (f"{life.id}: {id_} has no end" for id_ in started - set(got))


def _wrong_end(evidence: Evidence, life: Life, placed: Placed[StepRecorded]) -> Breaches:
    said, child = unraw(placed.event.result), placed.event.child
    assert child is not None, "it is the end of one"
    one = evidence.lives[child.episode_id]
    finished = one.of(EpisodeFinished)
    if not finished or finished[0].seq > placed.seq:
        yield f"{life.id}@{placed.seq}: {one.id} has not ended by then"
        return
    value = unraw(one.converged.result) if one.converged else None
    end = finished[0].event
    if (said["status"], said["value"]) != (end.status.value, value):
        yield f"{life.id}@{placed.seq}: {said}, and {one.id} ended {end} with {value}"
    if (child.turns, placed.event.cost_tokens) != (end.turns_used, end.tokens_used):
        yield f"{life.id}@{placed.seq}: {child} for {end}"


def who_waits_for_children_is_left_alone_but_for_their_ends(evidence: Evidence) -> Breaches:
    """Until what answers the block, or until the parent itself is ended."""
    for life in evidence.lives.values():
        waits = False
        for record in life.records:
            events = record.commit.events
            if waits and not isinstance(events[0], EpisodeFinished):
                steps = [event for event in events if not isinstance(event, EpisodeResolved)]
                if not all(isinstance(event, StepRecorded) for event in steps):
                    yield f"{life.id}@{record.seq}: {events} while it waits"
                waits = not isinstance(events[-1], EpisodeResolved)
            last = events[-1]
            waits |= isinstance(last, EpisodeBlocked) and last.for_children


INVARIANTS: Final[Sequence[Callable[[Evidence], Breaches]]] = (
    a_child_is_opened_once_and_by_whom_its_parent_announced,
    a_parent_gets_each_end_once_and_as_it_was,
    who_waits_for_children_is_left_alone_but_for_their_ends,
)
