"""What must hold of all that wakes an actor: messages of a feed, ticks, calm, people.

As in `invariants.py`, each finds its own breaches in what a world has left behind. What is about
time is strict in worlds that are fine (`themes.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

from engine.app.workflow_plan import starter_id
from engine.triggers import schedule
from streams.json import JsonObject
from streams.model.triggers import ManualTrigger, ScheduleTrigger, WorkflowTrigger
from streams.wire.messages import MESSAGE_ID_HEADER, StreamMessage
from tests.simulation.evidence import (
    Breaches,
    Evidence,
    event_id_of,
    identity,
    key_of,
    payload_of,
)
from tests.simulation.rest import at_s
from tests.simulation.themes import Theme
from tests.simulation.time import EPOCH
from tests.simulation.wakeful import DEBOUNCE_S, EVERY_S, MAX_WAIT_S, ORDERS
from tests.simulation.world import SKEW_S_MAX

MONDAY: Final = datetime(1970, 1, 5, tzinfo=UTC)
"""Ticks of intervals are counted from here."""

CRON_S: Final = 60
"""The cron expression of a world ticks every minute."""

MISSED_S: Final = 60.0
"""How late a tick is that `skip` leaves out (docs/guides/triggers.md)."""

SOON_S: Final = 1.0
"""In a world that is fine, everything that follows at once has followed by then."""

SURE_S: Final = 2 * SKEW_S_MAX + SOON_S
"""The same, where two nodes' clocks have a say."""


def i1_a_message_of_a_feed_opens_exactly_one_episode(evidence: Evidence) -> Breaches:
    opened = Counter(event_id_of(life) for life in evidence.of("order"))
    wanted = {
        f"{ORDERS}/{id_}"
        if (id_ := each.headers.get(MESSAGE_ID_HEADER))
        else f"{ORDERS}:{each.seq}"
        for each in evidence.history.fed
    }
    if opened != Counter(wanted):
        yield f"{opened} for {wanted}"


def every_tick_has_the_episodes_that_its_catch_up_promises(evidence: Evidence) -> Breaches:
    """`all`: one each, without gaps. `one` and `skip`: at most one, and the newest of `one`."""
    if Theme.TICKS not in evidence.history.programme.themes:
        return
    for name, every_s in {**EVERY_S, "tick_cron": CRON_S}.items():
        first = _first_tick(evidence, name)
        if first is None:
            continue
        opened = _ticks_opened(evidence, name)
        yield from (f"{name} {at} opened {n} times" for at, n in opened.items() if n > 1)
        due = list(_ticks(first, every_s, until=_end(evidence)))
        allowed = {*due, *_ticks(first, every_s, until=_end(evidence) + _seconds(SURE_S))}
        yield from (f"{name} {at} is no tick" for at in opened if at not in allowed)
        missing = [at for at in due if at not in opened]
        if name in {"tick_all", "tick_cron"} or _is_undisturbed(evidence, "clock"):
            yield from (f"{name} {at} opened nothing" for at in missing)
        elif name == "tick_one" and due and due[-1] in missing:
            yield f"{name}: the newest, {due[-1]}, opened nothing"


def a_pause_misses_ticks_as_their_catch_up_says(evidence: Evidence) -> Breaches:
    history = evidence.history
    pauses = [each for each in history.pauses if each.actor == "clock"]
    if Theme.TICKS not in history.programme.themes:
        return
    for pause in pauses:
        skipped = _ticks_opened(evidence, "tick_skip")
        for at in skipped:
            is_in = pause.since_s + SOON_S < _s(at) < pause.until_s - MISSED_S - SURE_S
            if is_in and history.programme.is_fine:
                yield f"tick_skip {at} was missed, and opened"
        ones = [_s(at) for at in _ticks_opened(evidence, "tick_one")]
        every_s = EVERY_S["tick_one"]
        within = [at for at in ones if pause.since_s + SOON_S < at < pause.until_s - SURE_S]
        if history.programme.is_fine and any(b - a == every_s for a, b in pairwise(within)):
            yield f"tick_one: {within} opened though only the newest of {pause} should"


def a_tick_is_aligned(evidence: Evidence) -> Breaches:
    for name, every_s in EVERY_S.items():
        for at in _ticks_opened(evidence, name):
            if (at - MONDAY) % timedelta(seconds=every_s):
                yield f"{name}: {at}"


def what_calmed_down_opens(evidence: Evidence) -> Breaches:
    """Nothing else than what fired has an episode, and none fired too soon.

    What fired has none only if a newer event of its subject has one.
    """
    fired: dict[str, set[str]] = defaultdict(set)
    for due in evidence.history.due:
        if due.purpose != "debounce":
            continue
        name, event = str(due.payload["expectation"]), _object(due.payload["event"])
        fired[name].add(str(event["id"]))
        stored = datetime.fromisoformat(str(event["at"]))
        calm_at = stored + _seconds(DEBOUNCE_S)
        if name == "soon":
            since = datetime.fromisoformat(str(due.payload["since"]))
            calm_at = min(calm_at, since + _seconds(MAX_WAIT_S))
        if due.fired_at < calm_at:
            yield f"{name} {event['id']} fired at {due.fired_at}, calm at {calm_at}"
    for name in ("calm", "soon"):
        opened = {event_id_of(life) for life in evidence.of(name)}
        yield from (f"{name}: {each} opened, and had not fired" for each in opened - fired[name])
        for events in _by_key(evidence.named("sim.calm")).values():
            ids = [identity(each) for each in events]
            newest = max((place for place, each in enumerate(ids) if each in opened), default=-1)
            late = [each for each in ids[newest + 1 :] if each in fired[name]]
            yield from (f"{name}: {each} fired, and opened nothing" for each in late)


def the_newest_event_of_a_calm_stretch_opens(evidence: Evidence) -> Breaches:
    """In the end; where the world is fine after each stretch, in order and in time."""
    is_strict = _is_undisturbed(evidence, "patient")
    for key, events in _by_key(evidence.named("sim.calm")).items():
        for name in ("calm", "soon"):
            opened = {event_id_of(life): evidence.opened_s(life) for life in evidence.of(name)}
            ends = [(one, other) for one, other in pairwise(events) if is_strict]
            calm = [one for one, other in ends if at_s(other) - at_s(one) > DEBOUNCE_S + SURE_S]
            for each in (*calm, events[-1]):
                if identity(each) not in opened:
                    yield f"{name} {key}: {identity(each)} opened nothing"
            if is_strict:
                yield from _in_time(name, events, opened)


def _in_time(name: str, events: Sequence[StreamMessage], opened: dict[str, float]) -> Breaches:
    times = [opened[identity(each)] for each in events if identity(each) in opened]
    if times != sorted(times):
        yield f"{name}: opened out of order, {times}"
    for each in events:
        until_s = at_s(each) + MAX_WAIT_S + SURE_S
        if name == "soon" and not any(at_s(each) < time <= until_s for time in times):
            yield f"{name}: {identity(each)} waited for longer than {MAX_WAIT_S} s"


def a_fire_has_exactly_one_episode(evidence: Evidence) -> Breaches:
    asked = {each.episode_id for each in evidence.history.fired}
    sure = {each.episode_id for each in evidence.history.fired if each.is_sure}
    opened = {
        life.id
        for life in evidence.lives.values()
        if isinstance(life.opened.trigger, ManualTrigger)
    }
    yield from (f"{id_} was fired and is not there" for id_ in sure - opened)
    yield from (f"{id_} is there and nobody fired it" for id_ in opened - asked)


def a_dry_run_changes_nothing(evidence: Evidence) -> Breaches:
    dry = {each.episode_id for each in evidence.history.fired if each.is_dry}
    dry |= {id_ for flow in evidence.flows.values() if flow.is_dry for id_ in flow.opened}
    for life in evidence.lives.values():
        if evidence.is_dry(life) != (life.id in dry):
            yield f"{life.id}: its mode is {life.opened.mode}"
    for episode_id, index in evidence.by_cause:
        if episode_id in dry:
            yield f"{episode_id}[{index}] changed a finding"
    for message in evidence.history.events:
        about = (payload_of(message) or {}).get("episode_id")
        if about in dry:
            yield f"{message.subject} tells of {about}"
    for call in evidence.history.ledger.calls:
        if call.episode_id in dry and call.tool == "pay":
            yield f"{call} was meant"


def a_paused_actor_opens_nothing(evidence: Evidence) -> Breaches:
    """Once all nodes know of it, which takes a moment in a world that is fine.

    Steps of workflows are opened all the same: a pause of the workflow keeps new instances away.
    """
    if not evidence.history.programme.is_fine:
        return
    for pause in evidence.history.pauses:
        for life in evidence.lives.values():
            opened_s = evidence.opened_s(life)
            is_paused = pause.since_s + SOON_S < opened_s < pause.until_s
            is_step = isinstance(life.opened.trigger, WorkflowTrigger)
            if life.opened.actor_id == pause.actor and is_paused and not is_step:
                yield f"{life.id} was opened at {opened_s:.1f} s, in {pause}"
        for flow in evidence.flows.values():
            started_s = evidence.stored_s(flow.events[0].seq)
            is_paused = pause.since_s + SOON_S < started_s < pause.until_s
            is_its_own = flow.begun.parent is None and starter_id(flow.name) == pause.actor
            if is_its_own and is_paused:
                yield f"{flow} was started at {started_s:.1f} s, in {pause}"


def _is_undisturbed(evidence: Evidence, actor: str) -> bool:
    return evidence.history.programme.is_fine and not evidence.was_paused(actor)


def _first_tick(evidence: Evidence, name: str) -> datetime | None:
    """Return the earliest tick that a timer of a schedule was armed for.

    A node that stood still as it started arms an earlier one than another has armed meanwhile.
    """
    armed = [
        datetime.fromisoformat(str(said["at"]))
        for each in evidence.history.armed
        if each.timer.purpose == schedule.PURPOSE
        and (said := each.timer.payload)["expectation"] == name
    ]
    return min(armed, default=None)


def _ticks_opened(evidence: Evidence, name: str) -> Counter[datetime]:
    triggers = [life.opened.trigger for life in evidence.of(name)]
    return Counter(each.scheduled_at for each in triggers if isinstance(each, ScheduleTrigger))


def _ticks(first: datetime, every_s: int, *, until: datetime) -> Iterator[datetime]:
    at = first
    while at <= until:
        yield at
        at += timedelta(seconds=every_s)


def _end(evidence: Evidence) -> datetime:
    return EPOCH + timedelta(seconds=evidence.history.took_s)


def _s(at: datetime) -> float:
    return (at - EPOCH).total_seconds()


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def _object(value: object) -> JsonObject:
    assert isinstance(value, dict), f"{value!r} is no object"
    return value


def _by_key(messages: Sequence[StreamMessage]) -> dict[str, list[StreamMessage]]:
    found: dict[str, list[StreamMessage]] = defaultdict(list)
    for message in messages:
        found[key_of(message)].append(message)
    return found


INVARIANTS: Final[Sequence[Callable[[Evidence], Breaches]]] = (
    i1_a_message_of_a_feed_opens_exactly_one_episode,
    every_tick_has_the_episodes_that_its_catch_up_promises,
    a_pause_misses_ticks_as_their_catch_up_says,
    a_tick_is_aligned,
    what_calmed_down_opens,
    the_newest_event_of_a_calm_stretch_opens,
    a_fire_has_exactly_one_episode,
    a_dry_run_changes_nothing,
    a_paused_actor_opens_nothing,
)
