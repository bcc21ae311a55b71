"""What must hold of outputs: on their logs, in the receivers' ledger, and of their episodes.

As in `invariants.py`, each finds its own breaches in what a world has left behind.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final

from engine.outputs.dead_letters import OUTPUT_FAILED
from streams.model.commands import CancelOutput, Decide, RetryOutput, Verdict
from streams.model.events import (
    EpisodeDeferred,
    EpisodeFinished,
    OutputApproved,
    OutputAttempted,
    OutputCanceled,
    OutputDelivered,
    OutputEvent,
    OutputFailed,
    OutputPostponed,
    OutputProposed,
    OutputRejected,
    OutputRetried,
)
from streams.model.waits import Approval, OnExpiry
from tests.simulation.evidence import Breaches, Evidence, Placed, payload_of
from tests.simulation.outside import Delivery
from tests.simulation.quorums import last_of
from tests.simulation.receivers import ATTEMPTS_MAX, MAX_CONCURRENT
from tests.simulation.time import EPOCH
from tests.simulation.world import SKEW_S_MAX, STORM_S

SURE_S: Final = 60.0
"""When whatever went wrong has been made good: a freeze, a lease, and two waits for an answer."""

_SETTLED: Final[Mapping[type[OutputEvent], str]] = {
    OutputDelivered: "delivered",
    OutputFailed: "failed",
    OutputRejected: "rejected",
    OutputCanceled: "canceled",
}
"""Event → what an episode says has become of its output."""

_EXPIRED: Final[Mapping[OnExpiry, type[OutputEvent]]] = {
    OnExpiry.APPROVE: OutputApproved,
    OnExpiry.DENY: OutputRejected,
    OnExpiry.FAIL: OutputFailed,
}
"""What people said it means that nobody decides → what comes of it."""

_TOLD: Final[Mapping[type[OutputEvent], str]] = {
    **_SETTLED,
    OutputProposed: "proposed",
    OutputApproved: "approved",
}
"""Event → what the world is told of it."""

Life = Sequence[Placed[OutputEvent]]


def proposals(evidence: Evidence) -> Iterator[tuple[str, Life]]:
    """Yield what happened to each proposal of each output, with its key."""
    for key, events in evidence.outputs.items():
        begins = [n for n, each in enumerate(events) if isinstance(each.event, OutputProposed)]
        for begin, end in pairwise([*begins, len(events)]):
            yield key, events[begin:end]


def an_output_lives_as_it_may(evidence: Evidence) -> Breaches:
    """Settled in the end, once for each time that it was tried; attempts are counted gapless."""
    for key, life in proposals(evidence):
        if not isinstance(life[-1].event, tuple(_SETTLED)):
            yield f"{key}: is not settled, but {life[-1].event}"
        for before, placed in pairwise(life):
            has_failed = isinstance(before.event, OutputFailed)
            is_retried = isinstance(placed.event, OutputRetried)
            if type(before.event) in _SETTLED and not (has_failed and is_retried):
                yield f"{key}@{placed.seq}: {placed.event} after {before.event}"
        attempts = [each.event.attempt for each in life if isinstance(each.event, OutputAttempted)]
        if attempts != list(range(1, len(attempts) + 1)):
            yield f"{key}: attempts {attempts}"
        yield from _as_often_as_it_may(key, life)


def _as_often_as_it_may(key: str, life: Life) -> Breaches:
    tries = 0
    for placed in life:
        tries = 0 if isinstance(placed.event, OutputFailed) else tries
        tries += isinstance(placed.event, OutputAttempted)
        if tries > ATTEMPTS_MAX:
            yield f"{key}@{placed.seq}: attempt {tries} in a row"


def a_key_is_proposed_anew_only_if_it_is_free(evidence: Evidence) -> Breaches:
    for key, events in evidence.outputs.items():
        number = 0
        for before, placed in pairwise([None, *events]):
            if not isinstance(placed.event, OutputProposed):
                continue
            number += 1
            if placed.event.proposal_no != number:
                yield f"{key}@{placed.seq}: proposal {placed.event.proposal_no} is the {number}th"
            if before and not _is_free_after(before.event):
                yield f"{key}@{placed.seq}: proposed anew after {before.event}"


def _is_free_after(event: OutputEvent) -> bool:
    match event:
        case OutputRejected(is_expiry=is_expiry):
            return is_expiry
        case _:
            return isinstance(event, OutputFailed | OutputCanceled)


def receivers_know_each_output_by_one_key(evidence: Evidence) -> Breaches:
    used: dict[str, set[str]] = defaultdict(set)
    for delivery in evidence.history.ledger.deliveries:
        used[delivery.output_key].add(delivery.idempotency_key)
    yield from (f"{key} is known by {keys}" for key, keys in used.items() if len(keys) > 1)
    shared = Counter(mark for keys in used.values() for mark in keys)
    yield from (f"{mark} is of {n} outputs" for mark, n in shared.items() if n > 1)


def a_call_was_announced_before_it_is_made(evidence: Evidence) -> Breaches:
    """And nothing that needs approval is delivered without it, nor anything that is settled."""
    for delivery in evidence.history.ledger.deliveries:
        before = _before(evidence, delivery)
        attempts = [each for each in before if isinstance(each.event, OutputAttempted)]
        if not attempts or attempts[-1].event.attempt < delivery.attempt:
            yield f"{delivery}: not announced"
            continue
        proposed = next(each.event for each in reversed(before) if _is_proposal(each))
        kinds = {type(each.event) for each in before}
        if proposed.approval is not None and OutputApproved not in kinds:
            yield f"{delivery}: not approved"
        if OutputRejected in kinds:
            yield f"{delivery}: after it was rejected"
        if attempts[-1].event.attempt == delivery.attempt and isinstance(
            before[-1].event, OutputPostponed | OutputDelivered | OutputFailed
        ):
            yield f"{delivery}: after it was over"


def _is_proposal(placed: Placed[OutputEvent]) -> bool:
    return isinstance(placed.event, OutputProposed)


def _before(evidence: Evidence, delivery: Delivery) -> Life:
    """Return what had happened to the proposal that is delivered, when it was."""
    events = evidence.outputs.get(delivery.output_key, [])
    past = [each for each in events if each.seq <= delivery.head]
    begins = [n for n, each in enumerate(past) if _is_proposal(each)]
    return past[begins[-1] :] if begins else []


def an_attempt_is_called_once(evidence: Evidence) -> Breaches:
    """A crash may cut one off, and then it is made again under the next number."""
    calls = Counter(
        (each.output_key, each.attempt, _proposal_of(evidence, each))
        for each in evidence.history.ledger.deliveries
    )
    yield from (f"{attempt} called {times} times" for attempt, times in calls.items() if times > 1)


def _proposal_of(evidence: Evidence, delivery: Delivery) -> int:
    before = _before(evidence, delivery)
    return before[0].seq if before else 0


def what_is_delivered_was_accepted(evidence: Evidence) -> Breaches:
    accepted = {
        (each.output_key, each.attempt, _proposal_of(evidence, each))
        for each in evidence.history.ledger.deliveries
        if each.is_accepted
    }
    for key, life in proposals(evidence):
        delivered = [each.event for each in life if isinstance(each.event, OutputDelivered)]
        for event in delivered:
            if (key, event.attempt, life[0].seq) not in accepted:
                yield f"{key}: {event}, and its receiver has nothing"


def i8_an_output_is_approved_by_a_decision_about_it(evidence: Evidence) -> Breaches:
    """Of that payload, in time, by somebody who may; or nobody did, and that is what it means."""
    for key, life in proposals(evidence):
        proposed = life[0].event
        assert isinstance(proposed, OutputProposed), f"{key} begins with {proposed}"
        mark = hashlib.sha256(bytes(proposed.payload)).hexdigest()
        asked: Approval | None = None
        for placed in life:
            match placed.event:
                case OutputProposed(approval=Approval() as asked):
                    if asked.plan_hash != mark:
                        yield f"{key}: {asked.plan_hash} is not of its payload"
                case OutputRetried(approval=Approval() as asked):
                    pass
                case OutputApproved() | OutputRejected() | OutputFailed(attempt=0) as event:
                    if asked is None:
                        yield f"{key}@{placed.seq}: {event}, and nobody was asked"
                    else:
                        yield from _decided(evidence, key, asked, event, place=placed.seq)
                    asked = None


def _decided(
    evidence: Evidence,
    key: str,
    approval: Approval,
    event: OutputApproved | OutputRejected | OutputFailed,
    *,
    place: int,
) -> Breaches:
    expires_s = _s(approval.expires_at) if approval.expires_at else float("inf")
    is_yes = isinstance(event, OutputApproved)
    if isinstance(event, OutputFailed) or not event.by:
        if type(event) is not _EXPIRED[approval.on_expiry]:
            yield f"{key}: {approval.on_expiry} came to {event}"
        if evidence.stored_s(place) < expires_s:
            yield f"{key}: expired before {expires_s}"
        if evidence.stored_s(place) > max(expires_s, STORM_S) + SURE_S:
            yield f"{key}: expired long after {expires_s}"
        return
    heard = [
        asked
        for asked in evidence.history.asked
        if isinstance(asked.command, Decide)
        and (asked.command.id, asked.command.output_key) == (event.decision_id, key)
    ]
    said = [
        each
        for each in heard
        if each.at_s <= expires_s
        and each.command.plan_hash == approval.plan_hash
        and each.command.by == last_of(event.by)
        and (not approval.approvers or each.command.by in approval.approvers)
        and (each.command.verdict is Verdict.APPROVE) == is_yes
    ]
    if not said:
        yield f"{key}: nobody has decided {event}, but {heard}"


def a_retry_was_asked_for(evidence: Evidence) -> Breaches:
    asked = {
        (each.command.output_key, each.command.id)
        for each in evidence.history.asked
        if isinstance(each.command, RetryOutput)
    }
    for key, events in evidence.outputs.items():
        for placed in events:
            if (
                isinstance(placed.event, OutputRetried)
                and (key, placed.event.retry_id) not in asked
            ):
                yield f"{key}: nobody has asked for {placed.event}"


def a_cancellation_was_asked_for_and_is_not_of_an_attempt_under_way(
    evidence: Evidence,
) -> Breaches:
    """What becomes of an attempt is waited for; and what is canceled alone is not delivered."""
    asked = {
        (each.command.output_key, each.command.id, each.command.by)
        for each in evidence.history.asked
        if isinstance(each.command, CancelOutput)
    }
    for key, life in proposals(evidence):
        for before, placed in pairwise(life):
            match placed.event:
                case OutputCanceled(by=by, cancel_id=id_) if by or id_:
                    if (key, id_, by) not in asked:
                        yield f"{key}: nobody has asked for {placed.event}"
                    if isinstance(before.event, OutputAttempted):
                        yield f"{key}@{placed.seq}: canceled while it is attempted"
                    yield from (
                        f"{delivery}: after it was canceled"
                        for delivery in evidence.history.ledger.deliveries
                        if delivery.output_key == key
                        and delivery.head >= placed.seq
                        and _before(evidence, delivery)[:1] == life[:1]
                    )


def an_attempt_is_not_made_before_its_time(evidence: Evidence) -> Breaches:
    """By the server's clock, from which that of whoever makes it is off."""
    for key, life in proposals(evidence):
        for before, placed in pairwise(life):
            if not isinstance(before.event, OutputPostponed):
                continue
            early_s = _s(before.event.retry_at) - evidence.stored_s(placed.seq)
            if isinstance(placed.event, OutputAttempted) and early_s > 2 * SKEW_S_MAX:
                yield f"{key}@{placed.seq}: attempted {early_s} s before {before.event.retry_at}"


def an_episode_ends_as_its_outputs_did(evidence: Evidence) -> Breaches:
    """As they were when it ended: of what failed then, people may have had more made since."""
    for life in evidence.lives.values():
        end = life.finished
        if end is None or evidence.is_dry(life):
            continue
        place = life.of(EpisodeFinished)[0].seq
        for outcome in end.outputs:
            is_ = _became(evidence, outcome.output_key, life.id, until=place)
            if outcome.outcome != is_:
                yield f"{life.id}: {outcome}, the log says {is_}"
        wanted = _proposed_by(evidence, life.id)
        said = {each.output_key for each in end.outputs}
        if end.error_class not in {"crash", "canceled"} and wanted - said:
            yield f"{life.id}: says nothing of {wanted - said}"


def _became(evidence: Evidence, key: str, episode_id: str, *, until: int) -> str:
    """Return what became of an output for an episode, up to a place of the journal."""
    found = ""
    for proposed in _split(evidence.outputs.get(key, []), until):
        end = proposed[-1].event
        event = proposed[0].event
        is_own = isinstance(event, OutputProposed) and event.episode_id == episode_id
        if is_own:  # Of what had failed, somebody may have asked for more at that moment.
            settled = [type(each.event) for each in proposed if type(each.event) in _SETTLED]
            return _SETTLED[settled[-1]] if settled else "pending"
        is_rejected = isinstance(end, OutputRejected) and not end.is_expiry
        found = found or ("rejected" if is_rejected else "duplicate")
    return found or "canceled"


def _split(events: Life, until: int) -> Iterator[Life]:
    past = [each for each in events if each.seq <= until]
    begins = [n for n, each in enumerate(past) if _is_proposal(each)]
    for begin, end in reversed(list(pairwise([*begins, len(past)]))):
        yield past[begin:end]


def _proposed_by(evidence: Evidence, episode_id: str) -> set[str]:
    return {
        key
        for key, life in proposals(evidence)
        if isinstance(life[0].event, OutputProposed) and life[0].event.episode_id == episode_id
    }


def what_waits_for_its_outputs_says_which(evidence: Evidence) -> Breaches:
    for life in evidence.lives.values():
        for placed in life.of(EpisodeDeferred):
            settled = {each.output_key for each in placed.event.outputs}
            if not placed.event.pending or settled & set(placed.event.pending):
                yield f"{life.id}@{placed.seq}: {placed.event}"


def what_fails_is_a_dead_letter_each_time(evidence: Evidence) -> Breaches:
    """Unless somebody has had it tried again before there was one."""
    letters = Counter(each.subject for each in evidence.letters if each.reason == OUTPUT_FAILED)
    for key, events in evidence.outputs.items():
        kinds = [type(each.event) for each in events]
        failed = kinds.count(OutputFailed)
        least = sum(
            kind is OutputFailed and after is not OutputRetried
            for kind, after in pairwise([*kinds, None])
        )
        buried = letters.pop(evidence.history.stack.output(key), 0)
        if not least <= buried <= failed:
            yield f"{key}: failed {failed} times, buried {buried} times"
    if letters:
        yield f"buried {letters}"


def no_receiver_is_asked_too_much(evidence: Evidence) -> Breaches:
    """By one process: so many at a time, and so many a second."""
    by_process: dict[tuple[str, int, str], list[Delivery]] = defaultdict(list)
    for each in evidence.history.ledger.deliveries:
        by_process[each.node, each.life, each.adapter].append(each)
    for (node, _, adapter), calls in by_process.items():
        if adapter == "mail":
            for call in calls:
                at_once = sum(c.began_s <= call.began_s < c.ended_s for c in calls)
                if at_once > MAX_CONCURRENT:
                    yield f"{node}: {at_once} deliveries at a time, {call}"


def the_world_is_told_of_every_output(evidence: Evidence) -> Breaches:
    """Of all that happens to it but attempts, and of no reminder before it was due."""
    told: dict[tuple[str, str], set[int]] = defaultdict(set)
    for message in evidence.history.events:
        name = evidence.history.stack.event_name_of(message.subject)
        payload = payload_of(message) or {}
        if name.startswith("output.") and name != "output.reminder":
            told[name.removeprefix("output."), str(payload["output_key"])].add(
                int(str(payload["journal_seq"]))
            )
    wanted: dict[tuple[str, str], set[int]] = defaultdict(set)
    for key, events in evidence.outputs.items():
        for placed in events:
            if type(placed.event) in _TOLD:
                wanted[_TOLD[type(placed.event)], key].add(evidence.seq_at(placed.seq))
    for what in wanted.keys() | told.keys():
        if wanted[what] != told[what]:
            yield f"{what}: happened at {wanted[what]}, told of {told[what]}"


def _s(at: datetime) -> float:
    return (at - EPOCH).total_seconds()


INVARIANTS: Final[Sequence[Callable[[Evidence], Breaches]]] = (
    an_output_lives_as_it_may,
    a_key_is_proposed_anew_only_if_it_is_free,
    receivers_know_each_output_by_one_key,
    a_call_was_announced_before_it_is_made,
    an_attempt_is_called_once,
    what_is_delivered_was_accepted,
    i8_an_output_is_approved_by_a_decision_about_it,
    a_retry_was_asked_for,
    a_cancellation_was_asked_for_and_is_not_of_an_attempt_under_way,
    an_attempt_is_not_made_before_its_time,
    an_episode_ends_as_its_outputs_did,
    what_waits_for_its_outputs_says_which,
    what_fails_is_a_dead_letter_each_time,
    no_receiver_is_asked_too_much,
    the_world_is_told_of_every_output,
)
