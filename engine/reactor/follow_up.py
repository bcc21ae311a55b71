"""What follows from a commit, given what happened to the aggregate before: effects as data. Pure.

Whoever reads the same commits gets the same effects, with the same ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from engine.app.findings import AgeEvent
from engine.children import rules as children
from engine.episodes import dry_run
from engine.episodes import events as episode_events
from engine.episodes import open as opening
from engine.episodes.breakers.breaker import TRIPPED
from engine.episodes.latest_ends import CountEnd, end_to_count
from engine.episodes.overlap.hold import look_timer
from engine.findings import events as finding_events
from engine.findings.events import ByPerson
from engine.findings.finding import IntentEvent
from engine.orders.events import order_given
from engine.outputs.events import output_event
from engine.runtime.publish import PublicEvent
from engine.waits import wait as waits
from engine.workflows.events import instance_events
from engine.workflows.instance import Instance, fold_instance
from engine.workflows.steps import told_of
from streams.json import NOTHING, JsonObject
from streams.model.children import ChildStart, WithParent
from streams.model.commands import (
    Attend,
    Cancel,
    ChildEnded,
    Command,
    ShareDecision,
    Start,
    WorkflowCommand,
)
from streams.model.events import (
    DeadDiscarded,
    DeadEvent,
    DeadLettered,
    DeadRequeued,
    DefinitionApplied,
    DefinitionEvent,
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeDeferred,
    EpisodeFinished,
    EpisodeLeft,
    EpisodeOpened,
    EpisodeResolved,
    EpisodeStarted,
    FindingEvent,
    Fork,
    LogEvent,
    OrderEvent,
    OutputEvent,
    OutputProposed,
    OutputRetried,
    StepAnnounced,
    StepRecorded,
)
from streams.model.money import NO_USD
from streams.model.triggers import EpisodeTrigger, PublicEvents, WorkflowTrigger
from streams.ports.log import Recorded
from streams.ports.timers import Timer

_LETTERS: Final[Mapping[type[DeadEvent], str]] = {
    DeadLettered: "written",
    DeadRequeued: "requeued",
    DeadDiscarded: "discarded",
}


class ChildRef(msgspec.Struct, frozen=True):
    """Names a child."""

    actor_id: str
    episode_id: str
    path: str
    """The call that started it."""


class SendCommand(msgspec.Struct, frozen=True):
    """Send a command to a node; the same `id` within two minutes is sent once."""

    command: Command | WorkflowCommand
    id: str


class SendTimer(msgspec.Struct, frozen=True):
    """Put a timer into its actor's queue of due ones; `id` as in `SendCommand`."""

    timer: Timer
    id: str


class FollowOrder(msgspec.Struct, frozen=True):
    """Make what was ordered of the thing with this key so, as whoever ordered it may have."""

    key: str


Sending: TypeAlias = PublicEvent | SendCommand | SendTimer | FollowOrder
"""A public event is published, a command or a timer is sent, an order is followed."""

Effect: TypeAlias = Sending | CountEnd
"""An end is counted first: public events may follow from that."""


class EpisodeState(msgspec.Struct, frozen=True, kw_only=True):
    """What later events of an episode, its findings and its outputs need of its journal."""

    opened: EpisodeOpened
    """Without the payload of its trigger."""
    is_public: bool
    """Whether it publishes events."""
    converged: EpisodeConverged | None = None
    """Without findings and outputs."""
    is_deferred: bool = False
    """Whether only outputs are left: who starts it now delivers them."""
    node: str = ""
    """The node that has it; empty: none has."""
    attempt: int = 0
    """That node's."""
    children: Mapping[str, ChildRef] = msgspec.field(default_factory=dict)
    """Id → the child that ends with it, of those whose end it has not."""
    usd: Decimal = NO_USD
    """Dollars that it has spent, if its budget limits them."""


class OutputState(msgspec.Struct, frozen=True, kw_only=True):
    """What later events of an output need of its journal."""

    proposed: OutputProposed
    """The newest one, without its payload."""
    retries: int = 0
    """Since then."""


def of_episode(
    state: EpisodeState | None, record: Recorded
) -> tuple[EpisodeState | None, list[Effect]]:
    """Return an episode's state after a commit, and what follows from the commit."""
    effects: list[Effect] = []
    for event in record.commit.events:
        if isinstance(event, EpisodeOpened):
            is_public = episode_events.is_public(event)
            state = EpisodeState(opened=opening.without_payload(event), is_public=is_public)
        if state is None:
            continue
        if state.is_public:  # guard: dry-run-tells-nobody
            effects += _public_events(state, event, record)
        effects += _about_children(state, event)
        state = _after(state, event)
    if state is not None:
        effects += _calls(state.opened, _deciding(record))
    return state, effects


def of_finding(opened: EpisodeOpened | None, record: Recorded) -> Iterator[PublicEvent]:
    """Yield the public events of a finding's commit; `opened` is the episode's of `cause_of`."""
    for event in record.commit.events:
        # guard: dry-findings-untold
        if not isinstance(event, FindingEvent) or not dry_run.is_meant(event.finding):
            continue
        if isinstance(event, IntentEvent) and opened is not None:
            yield finding_events.finding_changed(opened, event, seq=record.seq)
        elif isinstance(event, AgeEvent | ByPerson):
            yield finding_events.finding_changed_since(event, seq=record.seq)


def cause_of(record: Recorded) -> str:
    """Return the episode that has caused a finding's commit; empty: time or a person has."""
    causes = (e.cause.episode_id for e in record.commit.events if isinstance(e, IntentEvent))
    return next(causes, "")


def of_output(
    state: OutputState | None, record: Recorded, opened: EpisodeOpened | None
) -> tuple[OutputState | None, list[PublicEvent]]:
    """Return an output's state after a commit, and the commit's public events.

    `opened` is of the episode that `proposer_of` names.
    """
    public_events: list[PublicEvent] = []
    for event in record.commit.events:
        if not isinstance(event, OutputEvent):
            continue
        if isinstance(event, OutputProposed):
            state = OutputState(proposed=replace(event, payload=NOTHING))
        elif isinstance(event, OutputRetried) and state is not None:
            state = replace(state, retries=state.retries + 1)
        # guard: dry-output-untold
        if state is None or opened is None or not episode_events.is_public(opened):
            continue
        found = output_event(opened, state.proposed, event, retries=state.retries, seq=record.seq)
        public_events += [found] if found is not None else []
    return state, public_events


def proposer_of(state: OutputState | None, record: Recorded) -> str:
    """Return the episode whose output a commit is about; empty: it was never proposed."""
    proposals = (e for e in record.commit.events if isinstance(e, OutputProposed))
    newest = next(proposals, state.proposed if state else None)
    return newest.episode_id if newest else ""


def of_instance(instance: Instance, record: Recorded) -> tuple[Instance, tuple[PublicEvent, ...]]:
    """Return a workflow instance after a commit, and the commit's public events."""
    after = fold_instance((record,), instance)
    return after, instance_events(after)


def of_definition(record: Recorded) -> Iterator[PublicEvent]:
    """Yield `definition.applied` and `definition.disabled`."""
    for number, event in enumerate(record.commit.events):
        if isinstance(event, DefinitionEvent):
            what = "applied" if isinstance(event, DefinitionApplied) else "disabled"
            yield PublicEvent(
                name=f"definition.{what}",
                id=f"definition.{event.kind.value}.{event.id}.{record.seq}.{number}",
                payload={
                    "kind": event.kind.value,
                    "id": event.id,
                    "revision": event.revision,
                    "by": event.by,
                    "reason": event.reason,
                    "journal_seq": record.seq,
                },
                hops=1,
            )


def of_order(record: Recorded, *, key: str) -> Iterator[PublicEvent | FollowOrder]:
    """Yield the public events of a commit of orders, and that they are to be followed."""
    yield FollowOrder(key)  # guard: reactor-follows-orders
    for number, event in enumerate(record.commit.events):
        if isinstance(event, OrderEvent):
            yield order_given(event, seq=record.seq, number=number)


def of_dead_letter(
    letter: DeadLettered | None, record: Recorded, *, key: str
) -> tuple[DeadLettered | None, list[PublicEvent]]:
    """Return a dead letter after a commit, without what was rejected, and its public events."""
    public_events: list[PublicEvent] = []
    for number, event in enumerate(record.commit.events):
        if isinstance(event, DeadLettered):
            letter = replace(event, payload=b"", headers={})
        if letter is not None and isinstance(event, DeadEvent):
            id_ = f"dead_letter.{key}.{record.seq}.{number}"
            public_events.append(_of_letter(letter, event, key=key, id_=id_, seq=record.seq))
    return letter, public_events


def _of_letter(
    letter: DeadLettered, event: DeadEvent, *, key: str, id_: str, seq: int
) -> PublicEvent:
    # Its detail may quote what was rejected: not for everybody.
    payload: JsonObject = {
        "letter_key": key,
        "reason": letter.reason,
        "stream": letter.stream,
        "seq": letter.seq,
        "subject": letter.subject,
        "actor_id": letter.actor_id,
        "episode_id": letter.episode_id,
        "by": "" if isinstance(event, DeadLettered) else event.by,
        "journal_seq": seq,
    }
    return PublicEvent(name=f"dead_letter.{_LETTERS[type(event)]}", id=id_, payload=payload, hops=1)


def _deciding(record: Recorded) -> LogEvent:
    """Return the event of a commit that says who is called: the last one, but of a fork's past."""
    first = record.commit.events[0]
    is_fork = isinstance(first, EpisodeOpened) and first.fork is not None
    return first if is_fork else record.commit.events[-1]  # guard: fork-calls-a-node


def _calls(opened: EpisodeOpened, newest: LogEvent) -> Iterator[SendCommand | SendTimer]:
    """Yield the calls of nodes that follow from a commit with this last event."""
    actor_id, episode_id = opened.actor_id, opened.episode_id
    if isinstance(newest, EpisodeResolved) and newest.request_no:  # guard: decision-shared
        step_no = newest.step_no
        share = ShareDecision(actor_id=actor_id, episode_id=episode_id, step_no=step_no)
        yield SendCommand(share, f"share.{episode_id}.{step_no}")
    match newest:
        case EpisodeOpened() if opened.held_by:  # guard: overlap-kept-called-when-open
            yield SendTimer(look_timer(opened), f"held.{episode_id}")
        case EpisodeOpened(in_lane=True, fork=Fork()):
            # Its lane did not open it.
            yield SendTimer(opening.place(actor_id, episode_id), f"fork.{episode_id}")
        case EpisodeOpened(in_lane=False):  # guard: reactor-skips-lane-starts
            yield SendCommand(
                Start(actor_id=actor_id, episode_id=episode_id), f"start.{episode_id}"
            )
        # guard: answered-asks-place
        case EpisodeResolved(step_no=step_no, park_no=park_no) if opened.in_lane:
            # A command would wait for a slot. If there are no turns any more, this becomes one.
            timer = opening.place(actor_id, episode_id)
            yield SendTimer(timer, f"answered.{episode_id}.{waits.id_of(step_no, park_no)}")
        case EpisodeResolved(step_no=step_no, park_no=park_no):
            start = Start(actor_id=actor_id, episode_id=episode_id, answered_step=step_no)
            # guard: answered-called-with-slot
            yield SendCommand(start, f"answered.{episode_id}.{waits.id_of(step_no, park_no)}")
        # What has ended before it waits has called nobody that could record it.
        # guard: earlier-ended-children-seen
        case EpisodeBlocked(for_children=True, step_no=step_no):
            look = Attend(actor_id=actor_id, episode_id=episode_id)
            yield SendCommand(look, f"children.{episode_id}.{step_no}")
        case EpisodeFinished():
            yield from _told_of_end(opened)
        case _:
            pass


def _told_of_end(opened: EpisodeOpened) -> Iterator[SendCommand | SendTimer]:
    """Yield what says to those who wait for an episode that it has ended."""
    episode_id = opened.episode_id
    # guard: fork-workflow-hears-nothing
    if isinstance(opened.trigger, WorkflowTrigger) and opened.fork is None:
        yield SendCommand(told_of(episode_id, opened.trigger), f"done.{episode_id}")
    # guard: fork-parent-hears-nothing
    if isinstance(opened.trigger, EpisodeTrigger) and opened.fork is None:
        parent = opened.trigger
        told = ChildEnded(
            actor_id=parent.parent_actor_id, episode_id=parent.parent_id, child_id=episode_id
        )
        yield SendCommand(told, f"child_ended.{episode_id}")
    if opened.holds_subject:  # guard: overlap-kept-starts-after-end
        yield SendTimer(look_timer(opened), f"ended.{episode_id}")


def _about_children(state: EpisodeState, event: object) -> Iterator[SendCommand | SendTimer]:
    """Yield what follows for the children of an episode: they are asked for, or canceled."""
    match event:
        case StepAnnounced(child=ChildStart() as child):
            timer = children.request_timer(state.opened, event)
            yield SendTimer(timer, f"child.{child.episode_id}")
        case StepRecorded(path=path, child=None):
            # A timeout of the function's own has given it up.
            for ref in state.children.values():
                if ref.path == path:
                    yield _cancel(state, ref, "does not wait for it any more")
        case EpisodeFinished(status=status):  # guard: parents-end-cancels-children
            for ref in state.children.values():
                yield _cancel(state, ref, f"is {status.value}")
        case _:
            pass


def _cancel(state: EpisodeState, child: ChildRef, why: str) -> SendCommand:
    parent_id = state.opened.episode_id
    command = Cancel(
        actor_id=child.actor_id,
        episode_id=child.episode_id,
        by=f"episode {parent_id}",
        reason=f"its parent {why}",
    )
    return SendCommand(command, f"cancel.{child.episode_id}.parent")


def _public_events(
    state: EpisodeState, event: object, record: Recorded
) -> Iterator[PublicEvent | CountEnd]:
    opened, seq = state.opened, record.seq
    match event:
        case EpisodeOpened(public_events=PublicEvents.ALL):  # guard: opened-event-optional
            yield episode_events.triggered(opened, seq=seq)
        case EpisodeStarted(attempt=attempt, node=node):
            if state.node:
                lost, by = state.attempt, state.node
                yield episode_events.claim_lost(opened, attempt=lost, node=by, seq=seq)
            # guard: delivering-starts-nothing
            if not state.is_deferred and opened.public_events is PublicEvents.ALL:
                yield episode_events.started(opened, attempt=attempt, node=node, seq=seq)
        case EpisodeBlocked():
            block = waits.Blocked(event=event, at=record.commit.at)
            yield waits.blocked(opened, block, seq=seq)
        case EpisodeResolved():
            yield waits.resumed(opened, event, seq=seq)
        case StepRecorded():
            yield from episode_events.budget_used(opened, event, before=state.usd, seq=seq)
        case EpisodeFinished():
            yield from _at_the_end(state, event, seq=seq)
        case _:
            pass


def _at_the_end(
    state: EpisodeState, end: EpisodeFinished, *, seq: int
) -> Iterator[PublicEvent | CountEnd]:
    opened = state.opened
    yield episode_events.ended(opened, state.converged, end, seq=seq)
    if end.error_class == TRIPPED:
        yield episode_events.breaker_canceled(opened, detail=end.error_detail, seq=seq)
    for found in (
        episode_events.level_missed(opened, end, seq=seq),
        end_to_count(opened, end, seq=seq),
    ):
        if found is not None:
            yield found


def _after(state: EpisodeState, event: object) -> EpisodeState:
    if isinstance(event, StepRecorded) and event.usd and state.opened.budget.usd:
        state = replace(state, usd=state.usd + event.usd)
    match event:
        case EpisodeStarted(node=node, attempt=attempt):
            return replace(state, node=node, attempt=attempt)
        case StepAnnounced(child=ChildStart(with_parent=WithParent.CANCEL) as child):
            ref = ChildRef(child.actor_id, child.episode_id, event.path)
            # A strategy that begins anew may start another child with the same call.
            # guard: child-before-restart-canceled
            return replace(state, children={**state.children, child.episode_id: ref})
        case StepRecorded(path=path, child=end) if state.children:
            ended = end.episode_id if end is not None else ""
            given_up = path if end is None else ""
            left = {
                id_: ref
                for id_, ref in state.children.items()
                if id_ != ended and ref.path != given_up
            }
            return replace(state, children=left)
        case EpisodeConverged():
            # What is kept of the raw bytes would keep the whole message.
            said = event.classification.copy()
            slim = replace(event, findings=(), outputs=(), result=NOTHING, classification=said)
            return replace(state, converged=slim)
        case EpisodeDeferred():
            return replace(state, is_deferred=True, node="")
        # guard: left-episode-keeps-claim
        case EpisodeLeft() | EpisodeBlocked() | EpisodeFinished():
            return replace(state, node="")
        case _:
            return state
