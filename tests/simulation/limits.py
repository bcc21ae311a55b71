"""What must hold of all that limits an actor: cooldowns, breakers, samples, haste.

As in `invariants.py`, each finds its own breaches in what a world has left behind. What is about
time is strict in worlds that are fine (`themes.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

import msgspec

from engine.triggers.evaluate import cooldown_in
from engine.triggers.rules import share_of
from streams.model.events import EndStatus, EpisodeFinished, EpisodeStarted
from tests.simulation.evidence import (
    Breaches,
    Evidence,
    episode_id_of,
    event_id_of,
    identity,
    key_of,
    readable,
)
from tests.simulation.rest import at_s
from tests.simulation.wakeful import (
    COOLDOWN_S,
    HALF_OPEN_S,
    OVERLAPS,
    SAMPLE,
    START_WITHIN_S,
    THRESHOLD,
)
from tests.simulation.wire import Kept
from tests.simulation.world import NAME, SKEW_S_MAX

SOON_S: Final = 1.0
"""In a world that is fine, everything that follows at once has followed by then."""


def a_cooldown_is_taken_by_one_episode_at_a_time(evidence: Evidence) -> Breaches:
    """By the server's time. Only a fire by hand may take it from another."""
    for key, takes in _takes(evidence).items():
        for before, after in pairwise(takes):
            same = _taken_by(before) == _taken_by(after)
            if not same and not _is_by_hand(evidence, after) and _gap_s(before, after) < COOLDOWN_S:
                yield f"{key}: {after} only {_gap_s(before, after):.2f} s after {before}"


def what_opens_has_taken_the_cooldown(evidence: Evidence) -> Breaches:
    """And where the world is fine, it opens at once: then openings are as far apart as that."""
    taken_s: dict[str, float] = {}
    for takes in _takes(evidence).values():
        for take in takes:
            taken_s.setdefault(_taken_by(take), take.at_s)
    for life in evidence.of("cool"):
        late_s = evidence.opened_s(life) - taken_s.get(life.id, float("inf"))
        if late_s < 0 or (evidence.history.programme.is_fine and late_s > SOON_S):
            yield f"{life.id} was opened {late_s} s after it took the cooldown"


def what_a_cooldown_refuses_was_in_its_time(evidence: Evidence) -> Breaches:
    """Also an event whose node died after it had taken the cooldown for it.

    Where nodes stand still, one may have taken it for an event that others had refused by then.
    """
    opened, takes = {life.id for life in evidence.of("cool")}, _takes(evidence)
    for event in readable(evidence, "sim.cool"):
        own = episode_id_of(event, actor="rested", expectation="cool")
        if own in opened:
            continue
        all_ = [take for each in takes.values() for take in each if _key(take) == key_of(event)]
        own_s = [take.at_s for take in all_ if _taken_by(take) == own]
        is_fine = evidence.history.programme.is_fine
        since_s = max([at_s(event) - COOLDOWN_S, *(own_s if is_fine else ())])
        others = [take for take in all_ if _taken_by(take) != own and take.at_s >= since_s]
        if not others:
            yield f"{identity(event)} opened nothing, and nobody else has the cooldown"


def a_sample_is_the_same_for_all_nodes(evidence: Evidence) -> Breaches:
    opened = [event_id_of(life) for life in evidence.of("sampled")]
    ids = {identity(event) for event in readable(evidence, "sim.cool")}
    chosen = {id_ for id_ in ids if share_of(id_, NAME, "rested", "sampled") < SAMPLE}
    if sorted(opened) != sorted(chosen):
        yield f"opened {opened}, chosen {chosen}"


def episodes_that_may_not_overlap_do_not(evidence: Evidence) -> Breaches:
    """None starts before the last one of its subject has ended; with `skip`, none is opened."""
    for name, overlap in OVERLAPS.items():
        spans: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
        for life in evidence.of(name):
            starts, ends = life.of(EpisodeStarted), life.of(EpisodeFinished)
            if not ends or not starts:
                continue  # It was ended before it could start.
            since = life.records[0].seq if overlap == "skip" else starts[0].seq
            span = evidence.stored_s(since), evidence.stored_s(ends[0].seq), life.id
            spans[life.opened.trigger.entity_id].append(span)
        for key, found in spans.items():
            for before, after in pairwise(sorted(found)):
                if after[0] < before[1]:
                    yield f"{name} {key!r}: {after} began within {before}"


def what_waits_for_an_end_starts_after_it(evidence: Evidence) -> Breaches:
    for life in evidence.of(*OVERLAPS):
        holder, starts = evidence.lives.get(life.opened.held_by), life.of(EpisodeStarted)
        if holder is None or not starts:
            continue
        ended_s = evidence.stored_s(holder.of(EpisodeFinished)[0].seq)
        if evidence.stored_s(starts[0].seq) < ended_s:
            yield f"{life.id} started before {holder.id} had ended"


def what_may_not_overlap_was_held(evidence: Evidence) -> Breaches:
    """Of each subject that there were events about, an episode has done its work."""
    for name in OVERLAPS:
        lives = [life for life in evidence.of(name) if life.converged is not None]
        done = {life.opened.trigger.entity_id for life in lives}
        for event in readable(evidence, "sim.cool"):
            if key_of(event) not in done:
                yield f"{name}: {identity(event)} opened nothing, and nothing else has"


def a_breaker_opens_by_its_threshold(evidence: Evidence) -> Breaches:
    for name, states in _breakers(evidence).items():
        for _, state in states:
            failures = state.get("failures", ())
            if state.get("status") == "open" and len(failures) != THRESHOLD:
                yield f"{name} opened after {failures}"
            for id_ in failures:
                end = evidence.lives[id_].finished
                if end is None or end.status.value != "failed":
                    yield f"{name}: {id_} counts as failed, and ended as {end}"


def failures_in_a_row_open_a_breaker(evidence: Evidence) -> Breaches:
    """Where the world is fine, at once; otherwise where nothing ever succeeded.

    A success that is told once more, because its message came again, begins the row anew.
    """
    breakers = _breakers(evidence)
    for name in ("trip", "trip_hard"):
        states, ends = breakers.get(name, []), _ends(evidence, name)
        shut_s = [at for at, state in states if state.get("status", "closed") != "closed"]
        anew_s = [at for at, state in states if not state.get("failures")]
        if len(ends) >= THRESHOLD and all(has_failed for _, has_failed in ends) and not shut_s:
            yield f"{name}: only failures, {ends}, and it never opened"
        for row in zip(*(ends[n:] for n in range(THRESHOLD)), strict=False):
            until_s = row[-1][0] + SOON_S
            is_in_row = all(has_failed for _, has_failed in row) and _stands_alone(row, ends)
            is_seen = any(at <= until_s for at in shut_s)
            is_anew = any(row[0][0] < at <= until_s for at in anew_s)
            if evidence.history.programme.is_fine and is_in_row and not is_seen and not is_anew:
                yield f"{name}: {row} did not open it"


def a_breaker_has_one_probe_at_a_time(evidence: Evidence) -> Breaches:
    """And none before its time, by the clocks that its state was written by."""
    for name, states in _breakers(evidence).items():
        for (_, before), (_, after) in pairwise(states):
            if after.get("status") != "half_open" or not after.get("probe"):
                continue
            was_half_open = before.get("status") == "half_open"
            if was_half_open and before.get("probe") in {after["probe"], "", None}:
                continue
            since = before.get("probe_since" if was_half_open else "opened_at")
            if since is None or _between_s(since, after["probe_since"]) < HALF_OPEN_S:
                yield f"{name}: {after} after {before}"


def a_probe_that_has_ended_is_noted(evidence: Evidence) -> Breaches:
    """One may be over before it is let through, if its event came to a node that stood still.

    It then keeps others out for as long as any probe that does not end.
    """
    for name, states in _breakers(evidence).items():
        since_s, last = states[-1]
        probe = evidence.lives.get(last.get("probe", ""))
        if last.get("status") != "half_open" or probe is None:
            continue
        if evidence.stored_s(probe.of(EpisodeFinished)[0].seq) > since_s:
            yield f"{name}: the probe {probe.id} has ended, and the breaker is {last}"


def an_open_breaker_lets_only_its_probe_through(evidence: Evidence) -> Breaches:
    """Where the world is fine; but for those whose ruling was under way when it opened."""
    if not evidence.history.programme.is_fine:
        return
    for name, states in _breakers(evidence).items():
        ends_s = [at for at, _ in states][1:] + [float("inf")] * bool(states)
        for (since_s, state), until_s in zip(states, ends_s, strict=True):
            if state.get("status", "closed") == "closed":
                continue
            for life in evidence.of(name):
                is_within = since_s + SOON_S < evidence.opened_s(life) < until_s
                if is_within and life.id != state.get("probe"):
                    yield f"{name}: {life.id} was opened at {evidence.opened_s(life)} in {state}"


def what_a_breaker_refuses_came_while_it_was_not_closed(evidence: Evidence) -> Breaches:
    breakers = _breakers(evidence)
    for name in ("trip", "trip_hard"):
        opened = {event_id_of(life) for life in evidence.of(name)}
        states = breakers.get(name, [])
        ends_s = [at for at, _ in states][1:] + [float("inf")] * bool(states)
        shut = [
            until_s
            for (_, state), until_s in zip(states, ends_s, strict=True)
            if state.get("status", "closed") != "closed"
        ]
        for event in readable(evidence, "sim.trip"):
            if identity(event) not in opened and not any(at_s(event) <= end for end in shut):
                yield f"{name}: {identity(event)} opened nothing, and the breaker was closed"


def what_expires_was_never_begun(evidence: Evidence) -> Breaches:
    for life in evidence.of("hurry"):
        start_by, end = life.opened.start_by, life.records[-1].commit.at
        assert start_by is not None, f"{life.id} may begin at any time"
        is_expired = life.finished is not None and life.finished.error_class == "expired"
        starts = life.of(EpisodeStarted)
        if is_expired and (starts or end <= start_by):
            yield f"{life.id} expired at {end}, with {starts}"
        if starts and evidence.history.programme.is_fine:
            late_s = evidence.stored_s(starts[0].seq) - evidence.opened_s(life)
            if late_s > START_WITHIN_S + 2 * SKEW_S_MAX + SOON_S:
                yield f"{life.id} was begun after {late_s} s"


# What the buckets say.


def _takes(evidence: Evidence) -> dict[str, list[Kept]]:
    """Return who took the cooldown of each subject, in order."""
    found: dict[str, list[Kept]] = defaultdict(list)
    for kept in evidence.history.kept:
        if kept.key.startswith("cooldown.rested.cool."):
            found[kept.key].append(kept)
    return found


def _taken_by(take: Kept) -> str:
    return cooldown_in(take.value).episode_id


def _is_by_hand(evidence: Evidence, take: Kept) -> bool:
    return _taken_by(take) in {each.episode_id for each in evidence.history.fired}


def _gap_s(before: Kept, after: Kept) -> float:
    return after.at_s - before.at_s


def _key(take: Kept) -> str:
    return take.key.rpartition(".")[2]


def _breakers(evidence: Evidence) -> dict[str, list[tuple[float, dict[str, Any]]]]:
    """Return the states of each expectation's breaker, and since when it had them."""
    found: dict[str, list[tuple[float, dict[str, Any]]]] = defaultdict(list)
    for kept in evidence.history.kept:
        if kept.key.startswith("breaker.fused."):
            found[_key(kept)].append((kept.at_s, msgspec.json.decode(kept.value)))
    return found


def _ends(evidence: Evidence, name: str) -> list[tuple[float, bool]]:
    """Return when each episode ended that tells something, and whether it failed, in order."""
    ends = [life.of(EpisodeFinished)[0] for life in evidence.of(name)]
    told = [each for each in ends if each.event.status is not EndStatus.CANCELED]
    return sorted(
        (evidence.stored_s(each.seq), each.event.status is EndStatus.FAILED) for each in told
    )


def _stands_alone(row: Sequence[tuple[float, bool]], ends: Sequence[tuple[float, bool]]) -> bool:
    """Return whether no success came so close that it may have been noted among them."""
    first_s, last_s = row[0][0] - SOON_S, row[-1][0] + SOON_S
    return not any(first_s < at < last_s for at, has_failed in ends if not has_failed)


def _between_s(earlier: str, later: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


INVARIANTS: Final[Sequence[Callable[[Evidence], Breaches]]] = (
    a_cooldown_is_taken_by_one_episode_at_a_time,
    what_opens_has_taken_the_cooldown,
    what_a_cooldown_refuses_was_in_its_time,
    a_sample_is_the_same_for_all_nodes,
    episodes_that_may_not_overlap_do_not,
    what_waits_for_an_end_starts_after_it,
    what_may_not_overlap_was_held,
    a_breaker_opens_by_its_threshold,
    failures_in_a_row_open_a_breaker,
    a_breaker_has_one_probe_at_a_time,
    a_probe_that_has_ended_is_noted,
    an_open_breaker_lets_only_its_probe_through,
    what_a_breaker_refuses_came_while_it_was_not_closed,
    what_expires_was_never_begun,
)
