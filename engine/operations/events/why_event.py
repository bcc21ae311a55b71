"""What became of one event: for each expectation, what it opened, or why it opened nothing.

It is told from what is there: refusals of the last day, the journal, and what live nodes declare.
The id of an episode or instance follows from its cause, so no table is needed to see whether an
event opened one. An event that starts no instance is recorded as one that ended at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from engine.app.dedupe import ByPayload, ByValue, Dedupe, by_event, episode_id, event_key, key_of
from engine.cluster.members import live_nodes
from engine.cluster.nodes import ExpectationInfo, NodeInfo, event_in
from engine.workflows.instance import fold_instance, instance_id
from streams.clock import Clock
from streams.model.events import EpisodeOpened, WorkflowStarted
from streams.model.refusals import WAITS, AgainstEpisode, Refusal
from streams.model.triggers import EventTrigger
from streams.ports.all import Ports
from streams.ports.domain_events import DomainEvent
from streams.ports.log import Recorded
from streams.ports.refusals import KEPT_MAX, KEPT_S

EVENTS_READ_MAX: Final = 200_000
"""Most events of the last day among which the event is looked for: some seconds."""

EXPECTATIONS_MAX: Final = 5_000
"""Most expectations whose episode of the event is looked for."""

EventOutcome = Literal["opened", "refused", "waits", "unknown"]


class EventVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one expectation did with an event."""

    actor: str
    expectation: str
    outcome: EventOutcome
    """`waits`: it is debounced, and may still fire; `unknown`: nothing is known."""
    episode_id: str = ""
    """Of `opened`: the episode; of a duplicate: the one that the same cause has opened."""
    instance_id: str = ""
    """Of a workflow: the instance that the event has started, or that ended without having done so.
    """
    refusal: Refusal | None = None
    """Of `refused` and `waits`: the latest one."""
    why: str
    """For people, in one line."""


class EventVerdicts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an event."""

    name: str
    """The event's name; empty: the event was not found."""
    at: datetime | None
    """When the server stored it; None: the event was not found."""
    verdicts: Sequence[EventVerdict]
    """By actor and expectation; none: no expectation is known to have seen it."""
    why_none: str = ""
    """Why there is none, for people."""


async def why_event(ports: Ports, event_id: str, *, clock: Clock) -> EventVerdicts:
    """Return what each expectation did with the event `event_id`, as far as that can be told."""
    event = await _found(ports, event_id, clock=clock)
    nodes = await live_nodes(ports.gates)
    kept = await _refusals(ports)
    own = [each for each in kept if each.event_id == event_id]
    name = event.name if event is not None else next((each.event for each in own), "")
    refused = {(each.actor, each.expectation): each for each in own}
    known = declared(nodes)
    watching = {place for place, info in known.items() if watches(info, name)}
    asked = _asked(known, watching, refused, name)
    opened = await _opened(ports, event_id, event, asked, workflows(nodes))
    verdicts = [
        _verdict(place, opened, refused, kept, at=event.at if event else None)
        for place in sorted({*watching, *refused, *opened})
    ]
    return EventVerdicts(
        name=name or next(iter(opened.values()), _NOTHING_OPENED).name,
        at=event.at if event is not None else None,
        verdicts=verdicts,
        why_none="" if verdicts else _why_none(event_id, event, nodes),
    )


class OpenedBy(msgspec.Struct, frozen=True, kw_only=True):
    """The episode that an event has opened, or the instance."""

    name: str = ""
    """The event's."""
    episode_id: str = ""
    instance_id: str = ""
    why_not_started: str = ""
    """Of an instance that never started."""


_NOTHING_OPENED: Final = OpenedBy()

Place = tuple[str, str]
"""An actor and its expectation."""


async def _found(ports: Ports, event_id: str, *, clock: Clock) -> DomainEvent | None:
    """Return the event, if it is among those of the last day that are read."""
    since, after, read = clock.now() - timedelta(seconds=KEPT_S), 0, 0
    while read < EVENTS_READ_MAX:
        page = await ports.domain_events.page(after=after, since=since)
        if not page:
            return None
        for each in page:
            if isinstance(each, DomainEvent) and each.id == event_id:
                return each
        after, read = page[-1].seq, read + len(page)
    return None


async def _refusals(ports: Ports) -> Sequence[Refusal]:
    """Return all that are kept, the oldest first."""
    found: list[Refusal] = []
    seq = 0
    while page := await ports.refusals.after(seq):
        found += [each.refusal for each in page]
        seq = page[-1].seq
    return found


def declared(nodes: Iterable[NodeInfo]) -> dict[Place, ExpectationInfo]:
    """Return the expectations of live nodes, by actor and name."""
    return {
        (actor, name): info
        for node in nodes
        for actor, has in node.actors.items()
        for name, info in has.expectations.items()
    }


def workflows(nodes: Iterable[NodeInfo]) -> dict[str, str]:
    """Return the actors whose triggers start instances of a workflow, with its name."""
    found = ((actor, has.workflow) for node in nodes for actor, has in node.actors.items())
    return {actor: workflow for actor, workflow in found if workflow}


def watches(info: ExpectationInfo, name: str) -> bool:
    """Return whether an event of that name may fire an expectation."""
    return any(event_in(trigger) == name for trigger in info.triggers)


def _asked(
    declared: Mapping[Place, ExpectationInfo],
    watching: set[Place],
    refused: Mapping[Place, Refusal],
    name: str,
) -> dict[Place, Dedupe]:
    """Return the expectations whose episode is looked for, with their rule for equal causes."""
    # Without its name, any that watches events may have had it.
    some = watching if name else {each for each in declared if declared[each].triggers}
    places = sorted({*some, *refused})[:EXPECTATIONS_MAX]
    return {place: dedupe_of(declared.get(place)) for place in places}


def dedupe_of(info: ExpectationInfo | None) -> Dedupe:
    """Return the rule for equal causes that a node reports; a function of a user it cannot."""
    said = info.options.get("dedupe") if info is not None else None
    if said is None:
        return by_event()
    if "path" in said:
        return msgspec.convert(said, ByValue)
    return msgspec.convert(said, ByPayload)


async def _opened(
    ports: Ports,
    event_id: str,
    event: DomainEvent | None,
    asked: Mapping[Place, Dedupe],
    workflows: Mapping[str, str],
) -> dict[Place, OpenedBy]:
    """Return what the event has opened, by expectation."""
    subjects: dict[str, Place] = {}
    stack = ports.stack
    for (actor, name), dedupe in asked.items():
        key = event_key(event_id) if event is None else key_of(dedupe, event)
        if actor in workflows:  # guard: instance-of-event-told
            id_ = instance_id(stack=stack.name, workflow=workflows[actor], dedupe_key=key)
            subjects[stack.workflow(id_)] = (actor, name)
        else:
            id_ = episode_id(stack=stack.name, actor=actor, expectation=name, dedupe_key=key)
            subjects[stack.episode(id_)] = (actor, name)
    found: dict[Place, OpenedBy] = {}
    for subject in await ports.log.newest(list(subjects)):
        opened = _opened_by((await ports.log.read(subject))[0], event_id)
        if opened is not None:
            found[subjects[subject]] = opened
    return found


def _opened_by(first: Recorded, event_id: str) -> OpenedBy | None:
    """Return what a first commit opens; None: another cause has opened it."""
    match first.commit.events[0]:
        case EpisodeOpened(trigger=EventTrigger() as by) as opened if by.event_id == event_id:
            return OpenedBy(name=by.event_type, episode_id=opened.episode_id)
        case WorkflowStarted(trigger=EventTrigger() as by) as started if by.event_id == event_id:
            why_not = fold_instance([first]).why_not_started
            id_ = started.instance_id
            return OpenedBy(name=by.event_type, instance_id=id_, why_not_started=why_not)
        case _:
            return None


def _verdict(
    place: Place,
    opened: Mapping[Place, OpenedBy],
    refused: Mapping[Place, Refusal],
    kept: Sequence[Refusal],
    *,
    at: datetime | None,
) -> EventVerdict:
    actor, expectation = place
    if place in opened:  # guard: opened-event-not-told-refused
        return _verdict_of(actor, expectation, opened[place])
    refusal = refused.get(place)
    if refusal is not None:
        return EventVerdict(
            actor=actor,
            expectation=expectation,
            outcome="waits" if refusal.reason == WAITS else "refused",
            episode_id=_episode_of(refusal),
            refusal=refusal,
            why=refusal.why,
        )
    own = [each for each in kept if (each.actor, each.expectation) == place]
    return EventVerdict(
        actor=actor, expectation=expectation, outcome="unknown", why=_why_unknown(own, at)
    )


def _verdict_of(actor: str, expectation: str, by: OpenedBy) -> EventVerdict:
    what = f"it opened episode {by.episode_id}"
    if by.instance_id:
        what = by.why_not_started or f"it started instance {by.instance_id}"
    return EventVerdict(
        actor=actor,
        expectation=expectation,
        outcome="refused" if by.why_not_started else "opened",
        episode_id=by.episode_id,
        instance_id=by.instance_id,
        why=what,
    )


def _episode_of(refusal: Refusal) -> str:
    """Return the episode that the same cause has opened; empty: none has."""
    return refusal.against.episode_id if isinstance(refusal.against, AgainstEpisode) else ""


def _why_unknown(own: Sequence[Refusal], at: datetime | None) -> str:
    """Return why nothing is known of what an expectation that watches an event did with it."""
    if at is not None and len(own) >= KEPT_MAX and own[0].at >= at:
        return f"its refusal may be gone: {KEPT_MAX} later ones are kept"
    return (
        "nothing is known: it still waits, its own rule for equal causes opened another episode, "
        "or its node was lost before it stored why"
    )


def _why_none(event_id: str, event: DomainEvent | None, nodes: Sequence[NodeInfo]) -> str:
    if event is not None:
        whom = "no expectation of a node that is up" if nodes else "no node is up, and none"
        return f"{whom} watches {event.name!r}"
    return (
        f"no event {event_id!r} in the last 24 hours, nor anything that says what became of it: "
        "refusals are kept for so long"
    )
