"""What is wrong with what a case has left behind. Pure.

A call with side effects whose outcome nobody can know may end its episode as `outcome_unknown`, or
block it until a person says what is true: then what comes after that call is not asked for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from streams.json import unraw
from streams.layout import Kind
from streams.model.events import (
    AGAIN,
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeStarted,
    FindingRaised,
    LogEvent,
    OutputDelivered,
    OutputFailed,
    OutputProposed,
    StepAnnounced,
    StepApprovalAsked,
    StepBegun,
    StepEnded,
    StepKind,
    StepRecorded,
    WorkflowFinished,
    WorkflowStarted,
)
from streams.model.triggers import WorkflowTrigger
from streams.ports.log import Recorded
from tests.attack.evidence import Evidence
from tests.attack.faults import Fault
from tests.attack.ledger import is_nonce
from tests.attack.people import SIGNALED
from tests.told import by_id, expected, wrong

UNKNOWN: Final = "outcome_unknown"

CHARGE, LETTER = "charge", "letter"
EFFECTS: Final = frozenset({CHARGE, LETTER})

BRINGING: Final = frozenset({StepKind.TOOL_CALL, StepKind.WAIT})
"""Steps that bring what code then knows: the results of tools, and of signals."""

SLEEP_S_MAX: Final = 0.5
"""How much longer than it is asked for a sleep may be planned: until then it is on its way."""

OF_NO_LIFE: Final = ("attack.", SIGNALED, "reactor.", "node.")
"""Events that follow from no commit: from outside, and what reactors and nodes say of their own."""

BEGINNINGS: Final[Mapping[Kind, type[LogEvent]]] = {
    Kind.EPISODE: EpisodeOpened,
    Kind.OUTPUT: OutputProposed,
    Kind.WORKFLOW: WorkflowStarted,
    Kind.FINDING: FindingRaised,
}


class _Args(msgspec.Struct, frozen=True):
    tag: str = ""


def breaches(evidence: Evidence) -> list[str]:
    """Return everything that is wrong, in words."""
    if strays := list(_strays(evidence)):
        return strays
    lives = evidence.lives(Kind.EPISODE)
    is_unknown = outcomes_unknown(evidence) > 0
    found = [
        *_opened(evidence, lives),
        *_ended(evidence, lives, is_unknown=is_unknown),
        *_unknown_for_a_reason(evidence, lives),
        *_effects(evidence),
        *_late(evidence, lives),
        *_seen(evidence, lives),
        *_asked_twice(evidence, lives),
        *_slept(evidence, lives, is_unknown=is_unknown),
        *_delivered(evidence, is_unknown=is_unknown),
        *_told(evidence),
    ]
    if not is_unknown:
        found += [*_called(evidence, lives), *_asked(evidence, lives), *_raised(evidence)]
    for key, life in lives.items():
        found += _gaps(key, life)
    for key, life in evidence.lives(Kind.WORKFLOW).items():
        found += _of_instance(key, life)
    return found


def outcomes_unknown(evidence: Evidence) -> int:
    """Return how many episodes ended, or wait, because nobody knows what became of a call."""
    return sum(map(_is_unknown, evidence.lives(Kind.EPISODE).values()))


def untold(evidence: Evidence) -> list[str]:
    """Return the public events that are still to come; None: what is there cannot be judged."""
    if any(_strays(evidence)):
        return []
    return list(wrong(expected(evidence.records, evidence.stack), by_id(evidence.told)))


def _events(life: Sequence[Recorded]) -> list[LogEvent]:
    return [event for record in life for event in record.commit.events]


def _strays(evidence: Evidence) -> Iterator[str]:
    for kind, beginning in BEGINNINGS.items():
        for key, life in evidence.lives(kind).items():
            first = life[0].commit.events[0]
            if not isinstance(first, beginning):
                yield f"{kind.value} {key} of an earlier case has {first!r} now"


def _opened(evidence: Evidence, lives: Mapping[str, Sequence[Recorded]]) -> Iterator[str]:
    begun = [*lives.values(), *evidence.lives(Kind.WORKFLOW).values()]
    triggers = [
        event.trigger
        for event in (life[0].commit.events[0] for life in begun)
        if isinstance(event, EpisodeOpened | WorkflowStarted)
    ]
    by_event = sum(not isinstance(each, WorkflowTrigger) for each in triggers)
    if by_event != 1:
        yield f"the event has opened {by_event} episodes or instances"


def _is_unknown(life: Sequence[Recorded]) -> bool:
    match _events(life)[-1]:
        case EpisodeFinished(error_class=error_class):
            return error_class == UNKNOWN
        case EpisodeBlocked(approval=None, wait=None):
            return True
        case _:
            return False


def _ended(
    evidence: Evidence, lives: Mapping[str, Sequence[Recorded]], *, is_unknown: bool
) -> Iterator[str]:
    for key, life in lives.items():
        events = _events(life)
        ends = [event for event in events if isinstance(event, EpisodeFinished)]
        if len(ends) > 1:
            yield f"episode {key} ended {len(ends)} times"
        if not ends and not _is_unknown(life):
            yield f"episode {key} has not ended: {events[-1]!r}"
        if ends and ends[0] is not events[-1]:
            yield f"episode {key} goes on after its end: {events[-1]!r}"
        is_last = not evidence.lives(Kind.WORKFLOW)
        if is_last and ends and not is_unknown and ends[0].status != evidence.story.ends:
            yield f"episode {key} is {ends[0].status}: {ends[0].error_class} {ends[0].error_detail}"


def _unknown_for_a_reason(
    evidence: Evidence, lives: Mapping[str, Sequence[Recorded]]
) -> Iterator[str]:
    """Yield the unknown outcomes of calls that were not open when another node took over."""
    for key, life in lives.items():
        if not _is_unknown(life):
            continue
        if evidence.fault in {None, Fault.TERM}:
            yield f"episode {key} ended as {UNKNOWN}, and no node has crashed"
        elif not _was_open_at_a_takeover(life):
            yield f"episode {key} ended as {UNKNOWN}, and no letter was open at a takeover"


def _was_open_at_a_takeover(life: Sequence[Recorded]) -> bool:
    is_open: set[str] = set()
    for event in _events(life):
        match event:
            case StepAnnounced(tool_name=name) if name.startswith(f"{LETTER}."):
                is_open.add(_place(event))
            case StepRecorded():
                is_open.discard(_place(event))
            case EpisodeStarted(attempt=attempt) if attempt > 1 and is_open:
                return True
            case _:
                pass
    return False


def _gaps(key: str, life: Sequence[Recorded]) -> Iterator[str]:
    numbers = [event.step_no for event in _events(life) if isinstance(event, StepRecorded)]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"episode {key} recorded the steps {numbers}"


def _recorded(life: Sequence[Recorded]) -> Iterator[tuple[str, StepRecorded, datetime]]:
    """Yield the calls of tools that brought something: tag, step, and when it was recorded."""
    for record in life:
        for event in record.commit.events:
            is_call = isinstance(event, StepRecorded) and event.kind is StepKind.TOOL_CALL
            if isinstance(event, StepRecorded) and is_call and not event.error_class:
                tag = msgspec.json.decode(event.args, type=_Args).tag
                if tag:  # Others are the engine's own.
                    yield tag, event, record.commit.at


def _called(evidence: Evidence, lives: Mapping[str, Sequence[Recorded]]) -> Iterator[str]:
    times = Counter(tag for life in lives.values() for tag, _, _ in _recorded(life))
    wanted = Counter(evidence.story.calls)
    if evidence.story.restarts:
        times = Counter(times.keys())
    if times != wanted:
        yield f"calls recorded: {dict(times - wanted)} too many, {dict(wanted - times)} too few"


def _effects(evidence: Evidence) -> Iterator[str]:
    keys: dict[str, set[str]] = defaultdict(set)
    receipts: dict[str, set[str]] = defaultdict(set)
    letters = Counter[str]()
    for entry in evidence.entries:
        if entry.what == CHARGE:
            keys[entry.tag].add(entry.key)
            receipts[entry.tag].add(entry.nonce)
        elif entry.what == LETTER:
            letters[entry.tag] += 1
    for tag, found in keys.items():
        if len(found) > 1 or len(receipts[tag]) > 1:
            yield f"charge {tag} was made with {len(found)} keys, for {len(receipts[tag])} receipts"
    for tag, times in letters.items():
        if times > 1:
            yield f"letter {tag} was sent {times} times"


def _late(evidence: Evidence, lives: Mapping[str, Sequence[Recorded]]) -> Iterator[str]:
    """Yield calls that began when the journal already had them.

    A node that stood still may make a call without side effects when it wakes, and go on with one
    that it was in the middle of: whoever is charged knows it by its key.
    """
    if evidence.story.restarts:
        return
    is_frozen = evidence.fault is not None and evidence.fault.freezes
    for key, life in lives.items():
        recorded_at = {tag: at for tag, _, at in _recorded(life)}
        for entry in evidence.entries:
            at = recorded_at.get(entry.tag) if _episode_of(entry.key) == key else None
            late_s = entry.at_s - at.timestamp() if at is not None else 0.0
            if late_s > 0 and (entry.what == LETTER or not is_frozen):
                yield f"{entry.what} {entry.tag} was made {late_s:.3f} s after it was recorded"


def _episode_of(idempotency_key: str) -> str:
    return idempotency_key.partition(":")[0]


def _seen(evidence: Evidence, lives: Mapping[str, Sequence[Recorded]]) -> Iterator[str]:
    """Yield what code was told, or concluded, that the journal does not have.

    What comes before a call without side effects may still be on its way to the journal.
    """
    for key, life in lives.items():
        nonces = set(_brought(_events(life)))
        for entry in evidence.entries:
            is_of_it = entry.what in EFFECTS and _episode_of(entry.key) == key
            if is_of_it and (unknown := set(entry.seen) - nonces):
                yield f"{entry.what} {entry.tag} was told {unknown}: that is not on the journal"
        for event in _events(life):
            if isinstance(event, EpisodeConverged) and (result := unraw(event.result)):
                yield from _concluded(key, result["seen"], life)


def _brought(events: Sequence[LogEvent]) -> Iterator[str]:
    """Yield what tools and signals have brought: code knows it from then on."""
    for event in events:
        is_step = isinstance(event, StepRecorded) and event.kind in BRINGING
        if isinstance(event, StepRecorded) and is_step and is_nonce(brought := unraw(event.result)):
            yield brought


def _concluded(key: str, seen: Sequence[str], life: Sequence[Recorded]) -> Iterator[str]:
    last: list[LogEvent] = []
    for event in _events(life):
        last = [] if isinstance(event, EpisodeStarted) and event.fresh else [*last, event]
    wanted = Counter(_brought(last))
    if Counter(seen) != wanted:
        yield f"episode {key} concluded from {seen}; the journal has {sorted(wanted)}"


def _asked_twice(evidence: Evidence, lives: Mapping[str, Sequence[Recorded]]) -> Iterator[str]:
    for key, life in lives.items():
        blocks = Counter(
            _place(event)
            for event in _events(life)
            if isinstance(event, EpisodeBlocked)
            and (event.approval is not None or (event.wait is not None and event.wait.ref))
        )
        for place, times in blocks.items():
            if times > 1:
                yield f"episode {key} asked {times} times at {place}"


def _asked(evidence: Evidence, lives: Mapping[str, Sequence[Recorded]]) -> Iterator[str]:
    asked = sum(
        isinstance(event, StepApprovalAsked)
        or (isinstance(event, EpisodeBlocked | OutputProposed) and event.approval is not None)
        for kind in (Kind.EPISODE, Kind.OUTPUT, Kind.WORKFLOW)
        for life in evidence.lives(kind).values()
        for event in _events(life)
    )
    if asked != evidence.story.approvals:
        yield f"people were asked {asked} times instead of {evidence.story.approvals}"


def _slept(
    evidence: Evidence, lives: Mapping[str, Sequence[Recorded]], *, is_unknown: bool
) -> Iterator[str]:
    found: list[float] = []
    for key, life in lives.items():
        for place, planned in _sleeps(life).items():
            begun_at, until = planned[0]
            if AGAIN not in place:  # What else lasts is a pause before a call is repeated.
                found.append((until - begun_at).total_seconds())
            if len({each for _, each in planned}) > 1:
                yield f"episode {key} began its sleep at {place} anew: {planned}"
            for at in _recorded_at(life, place):
                if at < until:
                    yield f"episode {key} woke at {at}, before {until}"
    wanted = evidence.story.sleeps
    is_as_asked = len(found) == len(wanted) and all(
        asked_s - SLEEP_S_MAX <= slept_s <= asked_s
        for slept_s, asked_s in zip(sorted(found), sorted(wanted), strict=True)
    )
    if not is_unknown and not is_as_asked:
        yield f"slept for {found} instead of {wanted}"


def _sleeps(life: Sequence[Recorded]) -> Mapping[str, list[tuple[datetime, datetime]]]:
    """Return when each sleep was begun, and until when it is planned, each time it was."""
    sleeps: dict[str, list[tuple[datetime, datetime]]] = defaultdict(list)
    for record in life:
        for event in record.commit.events:
            if until := _until(event):
                sleeps[_place(event)].append((record.commit.at, until))
    return sleeps


def _recorded_at(life: Sequence[Recorded], place: str) -> Iterator[datetime]:
    for record in life:
        for event in record.commit.events:
            if isinstance(event, StepRecorded) and _place(event) == place:
                yield record.commit.at


def _until(event: LogEvent) -> datetime | None:
    match event:
        case StepAnnounced(until=until):
            return until
        case EpisodeBlocked(wait=wait) if wait is not None and not wait.ref:
            return wait.expires_at
        case _:
            return None


def _place(event: LogEvent) -> str:
    """Return which call of its episode a step is, or what it waits for."""
    if isinstance(event, StepAnnounced | StepRecorded | EpisodeBlocked):
        return event.path or str(event.step_no)
    return ""


def _raised(evidence: Evidence) -> Iterator[str]:
    lives = evidence.lives(Kind.FINDING)
    for key, life in lives.items():
        if len(events := _events(life)) > 1:
            yield f"finding {key} has {[type(event).__name__ for event in events]}"
    if len(lives) != evidence.story.findings:
        yield f"there are {len(lives)} findings instead of {evidence.story.findings}"
    letters = len(evidence.lives(Kind.DEAD))
    if letters != evidence.story.dead_letters:
        yield f"there are {letters} dead letters instead of {evidence.story.dead_letters}"


def _delivered(evidence: Evidence, *, is_unknown: bool) -> Iterator[str]:
    ends: dict[str, str] = {}
    for key, life in evidence.lives(Kind.OUTPUT).items():
        proposed = [event for event in _events(life) if isinstance(event, OutputProposed)]
        settled = [type(e) for e in _events(life) if isinstance(e, OutputDelivered | OutputFailed)]
        if len(proposed) != 1 or len(settled) > 1:
            yield f"output {key} was proposed {len(proposed)} times, settled {len(settled)} times"
        tag = msgspec.json.decode(proposed[0].payload, type=_Args).tag
        if tag in ends:
            yield f"output {tag} has two keys"
        ends[tag] = "delivered" if settled == [OutputDelivered] else "failed" if settled else ""
    if not is_unknown and ends != evidence.story.outputs:
        yield f"outputs are {ends} instead of {dict(evidence.story.outputs)}"
    yield from _received(evidence, ends)


def _received(evidence: Evidence, ends: Mapping[str, str]) -> Iterator[str]:
    """Yield what the outside got otherwise than the journal says."""
    keys: dict[str, set[str]] = defaultdict(set)
    for entry in evidence.entries:
        if entry.tag in evidence.story.outputs:
            keys[entry.tag].add(entry.key)
    for tag, found in keys.items():
        if len(found) > 1:
            yield f"output {tag} was delivered with {len(found)} keys"
    for tag, end in ends.items():
        if end and tag not in keys:
            yield f"output {tag} is {end}, and was never delivered"


def _of_instance(key: str, life: Sequence[Recorded]) -> Iterator[str]:
    events = _events(life)
    ends = [event for event in events if isinstance(event, WorkflowFinished)]
    if len(ends) != 1 or ends[0] is not events[-1]:
        yield f"instance {key} ended {len(ends)} times; its last event is {events[-1]!r}"
    begun = Counter((e.step, e.item, e.attempt) for e in events if isinstance(e, StepBegun))
    ended = Counter((e.step, e.item, e.attempt) for e in events if isinstance(e, StepEnded))
    if begun != ended or set(begun.values()) - {1}:
        yield f"instance {key} began {dict(begun)} and ended {dict(ended)}"


def _told(evidence: Evidence) -> Iterator[str]:
    wanted = expected(evidence.records, evidence.stack)
    told = by_id(evidence.told)
    yield from wrong(wanted, told)
    ids = {event.id for events in wanted.values() for event in events}
    for id_, messages in told.items():
        name = evidence.stack.event_name_of(messages[0].subject)
        if len(messages) > 1:
            yield f"{name} {id_} was published {len(messages)} times"
        if id_ not in ids and not name.startswith(OF_NO_LIFE):
            yield f"{name} {id_} was published, and follows from nothing"
