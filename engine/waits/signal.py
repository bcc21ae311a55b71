"""Signals from outside to the episodes that wait for them, as data. Pure.

Any program may publish the domain event `wait.resolved`:

    {"ref": "payment:42", "result": {"paid": true}, "by": "billing"}

`ref` is what the episodes wait for, `result` any JSON value for their strategies (default `null`),
and `by` the sender, for people (default: the event's name).

A reference is an aggregate: whoever waits for it and whoever sends it a signal append to it at the
version that they have read. So whichever of the two comes second sees the other.

Each signal serves one wait of an episode, in the order of arrival: a wait that has a signal due is
not waiting any more, and what comes then is for the next one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec.structs import replace

from engine import validation
from engine.app.actions import REF_CHARS_MAX
from engine.errors import BadRequest, Unencodable
from engine.validation import check_cause, check_text
from engine.waits.approval import REQUESTS
from streams.json import NOTHING
from streams.model.commands import Decide, Resolve, Verdict
from streams.model.events import SignalGiven, SignalWaited
from streams.ports.domain_events import DomainEvent
from streams.ports.log import Recorded

RESOLVED: Final = "wait.resolved"
"""Name of the domain event."""

KEPT_S: Final = 3_600
"""How long a signal counts for an episode that begins to wait after it, in seconds: as long as a
command without a node is retried."""

CLOCKS_S: Final = 5.0
"""Tolerance for clocks, in seconds: the start of a wait has the time of a node, a signal that of
the server. It counts only where an episode was not on the journal of its reference in time."""

_MARK_BYTES: Final = 16
"""Length of the hash of an event's id in the answer's."""


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal."""

    id: str
    """The same for a repeated signal."""
    ref: str
    by: str
    result: msgspec.Raw = NOTHING


class SentSignal(msgspec.Struct, frozen=True):
    """A signal, and which episodes it was sent to so far."""

    given: SignalGiven
    episodes: frozenset[str] = frozenset()
    ahead: frozenset[str] = frozenset()
    """Those that wait ahead, for which it is kept."""
    next_of: frozenset[str] = frozenset()
    """Those whose wait had another signal due when it came: it is for their next wait."""


@dataclass(frozen=True, slots=True)
class SignalState:
    """The waits for one reference, and its signals."""

    waits: Mapping[str, SignalWaited]
    """By episode. A wait may be over, which only the journal of the episode shows."""
    sent: Mapping[str, SentSignal]
    """By the signal's id, in the order in which they came."""
    due: Mapping[str, SignalGiven]
    """By episode of `waits` that does not wait ahead: the signal that its wait gets."""
    numbers: Mapping[str, int]
    """By episode of `waits`: the number of its wait among all so far, from 1."""
    newest_no: int
    """The number of all waits so far."""

    def waits_until(self, request_no: int) -> list[SignalWaited]:
        """Return the waits up to number `request_no`, of a decision; 0: all, of a signal."""
        return [
            wait
            for episode_id, wait in self.waits.items()
            if not request_no or self.numbers[episode_id] <= request_no
        ]

    def unanswered(self, waits: Iterable[SignalWaited]) -> list[SignalWaited]:
        """Return those of `waits` that the next signal is for: no other one is due to them."""
        # guard: row-person-told-answered
        return [each for each in waits if each.is_ahead or each.episode_id not in self.due]

    def is_known(self, said: Signal, *, at: datetime) -> bool:
        """Return whether the signal of time `at` is on the journal; sent again, it is another."""
        sent = self.sent.get(said.id)
        return sent is not None and sent.given.at >= at

    def is_unclaimed(self, said: Signal) -> bool:
        """Return whether no episode has had the signal."""
        sent = self.sent.get(said.id)
        return sent is None or not sent.episodes

    def kept_for(self, said: Signal) -> frozenset[str]:
        """Return the episodes that wait ahead, for which the signal is kept."""
        sent = self.sent.get(said.id)
        return sent.ahead if sent else frozenset()

    def first_in_line(self, episode_id: str) -> list[SignalWaited]:
        """Return the waits ahead of other episodes for which an untaken signal is kept."""
        unclaimed = [each.ahead for each in self.sent.values() if not each.episodes]
        others = frozenset[str]().union(*unclaimed) - {episode_id}
        return [each for id_, each in self.waits.items() if each.is_ahead and id_ in others]

    def is_registered(self, episode_id: str, step_no: int) -> bool:
        """Return whether the wait of an episode as its step `step_no` is on the journal."""
        wait = self.waits.get(episode_id)
        # guard: wait-ahead-is-no-wait
        return wait is not None and not wait.is_ahead and wait.step_no >= step_no

    def is_ahead(self, episode_id: str, step_no: int) -> bool:
        """Return whether the journal has the wait of an episode, by `step_no` or ahead."""
        wait = self.waits.get(episode_id)
        return wait is not None and (wait.is_ahead or wait.step_no >= step_no)


def fold(records: Iterable[Recorded]) -> SignalState:
    """Return the state after `records`."""
    waits: dict[str, SignalWaited] = {}
    sent: dict[str, SentSignal] = {}
    due: dict[str, SignalGiven] = {}
    numbers: dict[str, int] = {}
    newest_no = 0
    for event in (event for record in records for event in record.commit.events):
        match event:
            case SignalWaited(episode_id=episode_id, signal_id=signal_id, is_ahead=is_ahead):
                newest_no += 1
                waits[episode_id], numbers[episode_id] = event, newest_no
                due.pop(episode_id, None)
                taken = sent.get(signal_id)
                if taken is not None and is_ahead:  # guard: kept-ahead-nobody-has-had
                    sent[signal_id] = replace(taken, ahead=taken.ahead | {episode_id})
                elif taken is not None:
                    sent[signal_id] = replace(taken, episodes=taken.episodes | {episode_id})
                    due[episode_id] = taken.given
            case SignalGiven():
                answered = _answered(due, event)
                before = sent.pop(event.id, SentSignal(event))
                sent[event.id] = _sent_on(before, event, answered)
                waits = _still_waiting(waits, numbers, event)
                had = {each: event for each in event.episodes if each in waits.keys() - answered}
                # guard: delivered-decision-not-forgotten
                due = {each: due[each] for each in waits if each in due} | had
            case _:
                pass
    return SignalState(waits, sent, due, numbers, newest_no)


def wait(
    state: SignalState, waited: SignalWaited, *, coming: Collection[str] = ()
) -> tuple[SignalWaited, ...]:
    """Return what to append when an episode waits; nothing if that is on the journal.

    `coming` are the episodes of `SignalState.first_in_line` that may still wait.
    """
    is_known = state.is_ahead if waited.is_ahead else state.is_registered
    if is_known(waited.episode_id, waited.step_no):  # guard: wait-written-once
        return ()
    had = [waited.episode_id in each.episodes for each in state.sent.values()]
    since_last = len(had) - had[::-1].index(True) if any(had) else 0
    found = [
        each
        for place, each in enumerate(state.sent.values())
        # guard: row-newer-taken-ends-older
        if _is_for(each, waited, coming) and (place >= since_last or _is_kept(each, waited))
    ]
    if not since_last:  # guard: each-signal-reaches-somebody
        # Whoever is new takes first what nobody has had: so each of several reaches somebody.
        # guard: row-waiter-not-new
        found.sort(key=lambda each: not _is_kept(each, waited) and waited.since > each.given.at)
    return (replace(waited, signal_id=found[0].given.id if found else ""),)


def give(
    state: SignalState,
    said: Signal,
    waiting: Collection[str],
    *,
    at: datetime,
    ahead: Collection[str] = (),
    request_no: int = 0,
) -> tuple[SignalGiven, ...]:
    """Return what to append when a signal of time `at` comes and `waiting` are all that wait.

    `ahead` are all that wait ahead. For those of `waiting` to whom another signal is due, it is the
    next. Nothing if it is on the journal, or if an episode has had it and nobody waits now or
    ahead. Of a decision, `waiting` are those of `waits_until(request_no)` that still wait.
    """
    # guard: repeated-signal-is-one
    if state.is_known(said, at=at) or not (waiting or ahead or state.is_unclaimed(said)):
        return ()
    given = SignalGiven(
        ref=said.ref,
        id=said.id,
        by=said.by,
        at=at,
        result=said.result,
        episodes=tuple(waiting),
        ahead=tuple(ahead),
        request_no=request_no,
    )
    return (given,)


def kept_until(at: datetime) -> datetime:
    """Return until when a signal of time `at` counts for an episode that begins to wait."""
    return at + timedelta(seconds=KEPT_S)


def _is_for(sent: SentSignal, waited: SignalWaited, coming: Collection[str]) -> bool:
    """Return whether an episode that is new on the journal takes an earlier signal."""
    # A decision does not apply to later requests: it is not a standing permission.
    if is_request(waited.ref):  # guard: decision-not-for-later-requests
        return False
    if waited.episode_id in sent.episodes:  # guard: episode-takes-signal-once
        return False
    if waited.episode_id in sent.ahead:  # guard: signal-kept-for-later
        return True
    at = sent.given.at
    if waited.episode_id in sent.next_of:  # guard: row-meanwhile-for-next-wait
        return waited.since <= kept_until(at)  # guard: row-kept-for-an-hour
    if not sent.episodes:  # guard: kept-signal-for-one
        # guard: kept-for-one-episode
        return waited.since <= kept_until(at) and sent.ahead.isdisjoint(coming)
    # Others have had it. This one waited by then, but its node was late, or died, before it could
    # write that down.
    return waited.since <= at + timedelta(seconds=CLOCKS_S)  # guard: had-signal-for-unwritten-waits


def _is_kept(sent: SentSignal, waited: SignalWaited) -> bool:
    """Return whether a signal is for who comes next, whether or not others have had it."""
    return not sent.episodes or waited.episode_id in sent.ahead | sent.next_of


def _sent_on(before: SentSignal, event: SignalGiven, answered: frozenset[str]) -> SentSignal:
    """Return a signal after it was sent once more, to episodes of which some are `answered`."""
    return SentSignal(
        event,
        before.episodes.union(event.episodes) - answered,  # guard: row-next-ones-untaken
        before.ahead.union(event.ahead),  # guard: sent-anew-kept-as-before
        before.next_of.difference(event.episodes) | answered,
    )


def _still_waiting(
    waits: Mapping[str, SignalWaited], numbers: Mapping[str, int], event: SignalGiven
) -> dict[str, SignalWaited]:
    """Return the waits that go on: of all others it was seen that they wait no more."""
    there = [each for each in event.episodes if each in waits]
    # guard: later-asker-awaits-next
    later = [each for each in waits if event.request_no and numbers[each] > event.request_no]
    still = [each for each in event.ahead if each in waits]
    return {each: waits[each] for each in (*there, *later, *still)}


def _answered(due: Mapping[str, SignalGiven], event: SignalGiven) -> frozenset[str]:
    """Return the episodes of a signal whose wait gets an earlier one."""
    # Of two decisions on a request, the episode itself takes the first.
    if is_request(event.ref):  # guard: row-first-decision-taken
        return frozenset()
    # guard: row-due-signal-no-wait
    return frozenset(each for each in event.episodes if each in due and due[each].id != event.id)


def signal(id_: str, ref: object, result: object, by: object) -> Signal:
    """Return a signal; `BadRequest` names an impossible field."""
    check_text("ref", ref, least=1, most=REF_CHARS_MAX)
    if is_request(str(ref)):  # guard: signal-is-no-decision
        raise BadRequest(
            field="ref", problem=f"{ref!r} is a request for approval; approve or deny it"
        )
    check_cause(by)
    try:
        kept = validation.encode(result, what="result")
    except Unencodable as error:
        raise BadRequest(field="result", problem=str(error)) from error
    return Signal(id=id_, ref=str(ref), by=str(by), result=kept)


def signal_in(event: DomainEvent) -> Signal:
    """Return the signal in the event `wait.resolved`; the same if the event comes again."""
    said = event.payload
    id_ = blake2b(event.id.encode(), digest_size=_MARK_BYTES).hexdigest()
    return signal(f"event.{id_}", said.get("ref"), said.get("result"), said.get("by", RESOLVED))


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision on a request, as the result of its signal."""

    verdict: Verdict
    plan_hash: str
    reason: str
    edited_hash: str
    edited_plan: msgspec.Raw
    acting_episode_id: str = ""
    """The episode on whose request it was made."""


def is_request(ref: str) -> bool:
    """Return whether a reference is that of a request that equal ones share."""
    return ref.startswith(REQUESTS)


def command_for(said: Signal | SignalGiven, waited: SignalWaited) -> Resolve | Decide:
    """Return the command that brings a signal to an episode, or the decision on its request."""
    if is_request(said.ref):
        decision = msgspec.json.decode(said.result, type=Decision)
        return Decide(
            actor_id=waited.actor_id,
            episode_id=waited.episode_id,
            id=said.id,
            by=said.by,
            step_no=waited.step_no,
            verdict=decision.verdict,
            plan_hash=decision.plan_hash,
            reason=decision.reason,
            edited_hash=decision.edited_hash,
            edited_plan=decision.edited_plan,
            acting_episode_id=decision.acting_episode_id,
        )
    return Resolve(
        actor_id=waited.actor_id,
        episode_id=waited.episode_id,
        id=said.id,
        ref=said.ref,
        by=said.by,
        result=said.result,
    )
