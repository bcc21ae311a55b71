"""What must hold of episodes that wait: for people who are to approve something, or for word.

As in `invariants.py`, each finds its own breaches in what a world has left behind. What is about
time is strict in worlds that are fine (`themes.py`).
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from engine.waits.signal import is_request
from streams.json import raw, unraw
from streams.model.commands import Decide, Resolve, Verdict
from streams.model.events import (
    EpisodeApprovalGiven,
    EpisodeBlocked,
    EpisodeFinished,
    EpisodeResolved,
    Resolution,
    SignalEvent,
    SignalGiven,
    SignalWaited,
    StepRecorded,
)
from streams.model.waits import Approval, OnExpiry
from tests.simulation.asking import ROW
from tests.simulation.evidence import Breaches, Evidence, Life, Placed, payload_of
from tests.simulation.quorums import is_decided, last_of
from tests.simulation.rest import at_s
from tests.simulation.time import EPOCH
from tests.simulation.world import STORM_S

SOON_S: Final = 1.0
"""In a world that is fine, everything that follows at once has followed by then."""

SURE_S: Final = 60.0
"""When whatever went wrong has been made good: a freeze, a lease, and two waits for an answer."""


class Waited(msgspec.Struct, frozen=True):
    """One time that an episode has waited."""

    life: Life
    block: Placed[EpisodeBlocked]
    end: Placed[EpisodeResolved] | Placed[EpisodeFinished] | None
    """How it ended; an end of the episode itself if it was canceled meanwhile."""

    @property
    def step_no(self) -> int:
        return self.block.event.step_no

    @property
    def answer(self) -> EpisodeResolved | None:
        event = self.end.event if self.end else None
        return event if isinstance(event, EpisodeResolved) else None

    @property
    def expires_s(self) -> float:
        """When nobody can answer any more, in simulated seconds."""
        terms = self.block.event.approval or self.block.event.wait
        assert terms is not None, f"{self} waits for nothing"
        at = terms.expires_at
        return float("inf") if at is None else (at - EPOCH).total_seconds()


def waits(evidence: Evidence) -> Iterator[Waited]:
    """Yield every time that an episode has waited, but for children and for other code."""
    for life in evidence.lives.values():
        ends = [*life.of(EpisodeResolved), *life.of(EpisodeFinished)]
        for block in life.of(EpisodeBlocked):
            if block.event.for_children or block.event.parked is not None:
                continue
            yield Waited(life, block, next((end for end in ends if end.seq > block.seq), None))


def what_waits_is_left_alone_until_it_is_answered(evidence: Evidence) -> Breaches:
    """What follows, but for approvals that are not enough, is the answer, whole: the step that it
    is, and the end of the wait."""
    for waited in waits(evidence):
        later = [
            record
            for record in waited.life.records
            if record.seq > waited.block.seq
            and not isinstance(record.commit.events[0], EpisodeApprovalGiven)
        ]
        events = later[0].commit.events if later else ()
        match events:
            case (StepRecorded() as step, EpisodeResolved() as resolved):
                steps = {step.step_no, resolved.step_no, waited.step_no}
                if len(steps) > 1 or step.fingerprint != waited.block.event.fingerprint:
                    yield f"{waited.life.id}: {step} answers {waited.block.event}"
            case (EpisodeFinished(),):
                pass
            case _:
                yield f"{waited.life.id}@{waited.block.seq}: followed by {events}"


def i8_nothing_is_approved_without_a_decision_of_that_plan(evidence: Evidence) -> Breaches:
    """Made in time, by somebody who may; or nobody decided, and that is what it means then."""
    for waited in waits(evidence):
        approval, answer = waited.block.event.approval, waited.answer
        if approval is None or answer is None:
            continue
        if approval.plan_hash != hashlib.sha256(bytes(approval.plan)).hexdigest():
            yield f"{waited.life.id}: {approval.plan_hash} is not of {bytes(approval.plan)!r}"
        if answer.resolution is Resolution.EXPIRED:
            yield from _expired(evidence, waited, approval)
        elif not any(
            _decides(evidence, decision, sent_s, waited, approval)
            for decision, sent_s in decisions(evidence, waited.life.id)
        ):
            yield f"{waited.life.id}: nobody has decided {answer}"


def _decides(
    evidence: Evidence, decision: Decide, sent_s: float, waited: Waited, approval: Approval
) -> bool:
    answer = waited.answer
    assert answer is not None, "what was decided has an answer"
    meant = Resolution.APPROVED if decision.verdict is Verdict.APPROVE else Resolution.DENIED
    said = decision.id, decision.by, decision.step_no, decision.plan_hash, meant
    is_that = said == (
        answer.decision_id, last_of(answer.by), waited.step_no, approval.plan_hash,
        answer.resolution,
    )  # fmt: skip
    may = not approval.approvers or decision.by in approval.approvers
    since_s = evidence.stored_s(waited.block.seq)
    return is_that and may and since_s <= sent_s <= waited.expires_s


def _expired(evidence: Evidence, waited: Waited, approval: Approval) -> Breaches:
    step = waited.life.recorded_at[waited.step_no].event
    wanted = {OnExpiry.DENY: "denied", OnExpiry.FAIL: "approval_expired"}
    if step.error_class != wanted.get(approval.on_expiry, ""):
        yield f"{waited.life.id}: {approval.on_expiry} came to {step}"
    yield from _not_before(evidence, waited)


def _not_before(evidence: Evidence, waited: Waited) -> Breaches:
    assert waited.end is not None, "what expired has an end"
    if evidence.stored_s(waited.end.seq) < waited.expires_s:
        yield f"{waited.life.id}: expired before {waited.expires_s}"


def a_wait_gets_the_word_that_was_given(evidence: Evidence) -> Breaches:
    """By an event that anybody may publish, or by a person; in time."""
    words = [(payload_of(each) or {}) for each in evidence.named("wait.resolved")]
    given = {(word["ref"], str(word["result"])) for word in words}
    for waited in waits(evidence):
        wait, answer = waited.block.event.wait, waited.answer
        if wait is None or answer is None:
            continue
        step = waited.life.recorded_at[waited.step_no].event
        if answer.resolution is Resolution.EXPIRED:
            wanted = "wait_expired" if wait.on_expiry is OnExpiry.FAIL else ""
            result = None if wait.ref else wait.expires_at and unraw(raw(wait.expires_at))
            if step.error_class != wanted or unraw(step.result) != result:
                yield f"{waited.life.id}: {wait.on_expiry} came to {step}"
            yield from _not_before(evidence, waited)
            continue
        sent = [
            asked.at_s
            for asked in evidence.history.asked
            if isinstance(asked.command, Resolve)
            and (asked.command.episode_id, asked.command.id, asked.command.ref)
            == (waited.life.id, answer.decision_id, wait.ref)
            and asked.command.result == step.result
        ]
        if not any(at <= waited.expires_s for at in sent):
            yield f"{waited.life.id}: {answer} was sent at {sent}"
        if answer.by == "bank" and (wait.ref, str(unraw(step.result))) not in given:
            yield f"{waited.life.id}: nobody has given the word {step}"


def a_signal_reaches_all_that_wait(evidence: Evidence) -> Breaches:
    """On the journal of its reference, where each wait and each signal is written down once."""
    ends = {(each.life.id, each.step_no): each.end for each in waits(evidence)}
    for key, events in evidence.references.items():
        waiting: dict[str, SignalWaited] = {}
        had: dict[str, set[str]] = {}
        answered: set[str] = set()
        seen: set[object] = set()
        for event, place in ((each.event, each.seq) for each in events):
            mark = event_mark(event)
            if mark in seen:
                yield f"{key}: {mark} twice"
            seen.add(mark)
            if isinstance(event, SignalGiven):
                before = [id_ for id_, wait in waiting.items() if not _ended(ends, wait, place)]
                if left_out := set(before) - {*event.episodes, *event.ahead}:
                    yield f"{key}: {event.id} is not for {left_out}"
                # Of two decisions on a request, its episode takes the first.
                now = {*event.episodes} - (set() if is_request(event.ref) else answered)
                had.setdefault(event.id, set()).update(now, event.ahead)
                answered |= now
                continue
            answered = _answered_after(event, answered)
            if (event.episode_id, event.step_no) not in ends:
                yield f"{key}: {event} does not wait"
            free = [id_ for id_, episodes in had.items() if not episodes]
            if free and not event.signal_id:
                yield f"{key}: {event} takes none of {free}"
            waiting[event.episode_id] = event
            if event.signal_id:
                had[event.signal_id].add(event.episode_id)
        for waited in waits(evidence):
            decided = waited.answer.decision_id if waited.answer else ""
            if decided in had and waited.life.id not in had[decided]:
                yield f"{key}: {waited.life.id} has got a signal of others"


def _answered_after(event: SignalWaited, answered: set[str]) -> set[str]:
    """Return who has a signal due once an episode waits anew, and takes one or none."""
    is_due = bool(event.signal_id) and not event.is_ahead
    return (answered - {event.episode_id}) | ({event.episode_id} if is_due else set())


def signals_in_a_row_come_in_their_order(evidence: Evidence) -> Breaches:
    """Each of them answers one wait, in the order in which they were stored."""
    got: defaultdict[str, list[object]] = defaultdict(list)
    for waited in waits(evidence):
        wait = waited.block.event.wait
        if wait is not None and wait.ref.startswith(f"{ROW}:") and waited.answer is not None:
            got[wait.ref].append(unraw(waited.life.recorded_at[waited.step_no].event.result))
    for ref, results in got.items():
        if results != [{"value": number} for number in range(1, len(results) + 1)]:
            yield f"{ref}: {results}"


def event_mark(event: SignalEvent) -> tuple[object, ...]:
    """Return what there is only one of."""
    if isinstance(event, SignalWaited):
        return event.episode_id, event.step_no
    return event.id, event.at


def _ended(ends: Mapping[tuple[str, int], Placed | None], wait: SignalWaited, place: int) -> bool:
    end = ends.get((wait.episode_id, wait.step_no))
    return end is not None and end.seq < place


def an_answer_stands_once(evidence: Evidence) -> Breaches:
    """One for each request; and what has ended without one was canceled."""
    for life in evidence.lives.values():
        yield from answered_twice_or_never(life)


def answered_twice_or_never(life: Life) -> Breaches:
    """Before it waits for the answer that is its next step, an episode may be parked there."""
    asked = Counter(_asked_of(placed.event) for placed in life.of(EpisodeBlocked))
    ends = [placed.event for placed in life.of(EpisodeResolved)]
    answered = Counter((end.step_no, end.park_no) for end in ends)
    if max([*asked.values(), *answered.values()], default=0) > 1:
        yield f"{life.id}: asked {asked}, answered {answered}"
    # The same code may try it again when it is parked again, after a step.
    ids = [(end.decision_id, end.park_no) for end in ends]
    if len(ids) != len(set(ids)):
        yield f"{life.id}: {ids} answers twice"
    for step_no, _ in asked - answered:
        if life.finished is None or life.finished.error_class != "canceled":
            yield f"{life.id}: nobody has answered step {step_no}"


def _asked_of(block: EpisodeBlocked) -> tuple[int, int]:
    """Return the step for which an episode waits, and which time it is parked; 0: it is not."""
    return block.step_no, block.parked.number if block.parked is not None else 0


def what_nobody_answers_expires_in_time(evidence: Evidence) -> Breaches:
    """Within a second where the world is fine, and otherwise once things go well again."""
    programme = evidence.history.programme
    is_strict = programme.is_fine and not programme.has_orders
    for waited in waits(evidence):
        if waited.end is None or waited.expires_s == float("inf"):
            continue
        ended_s = evidence.stored_s(waited.end.seq)
        # A branch whose time is over waits until the others wait as well.
        due_s = max(waited.expires_s, evidence.stored_s(waited.block.seq))
        if ended_s > (due_s + SOON_S if is_strict else max(due_s, STORM_S) + SURE_S):
            yield f"{waited.life.id}: waited until {ended_s:.1f} s, beyond {waited.expires_s:.1f} s"


def a_right_decision_in_time_is_heard(evidence: Evidence) -> Breaches:
    """It stands, or another one does: where the world is fine, nothing that may stand expires."""
    programme = evidence.history.programme
    for waited in waits(evidence):
        approval, answer = waited.block.event.approval, waited.answer
        is_expired = answer is not None and answer.resolution is Resolution.EXPIRED
        if approval is None or not is_expired or not programme.is_fine or programme.has_orders:
            continue
        heard = [
            decision
            for decision, sent_s in decisions(evidence, waited.life.id)
            if sent_s + SOON_S < waited.expires_s
            and (decision.step_no, decision.plan_hash) == (waited.step_no, approval.plan_hash)
            and (not approval.approvers or decision.by in approval.approvers)
        ]
        if is_decided(approval, heard):
            yield f"{waited.life.id}: expired though {heard}"


def the_world_is_told_of_every_wait(evidence: Evidence) -> Breaches:
    """Once by its id: that it began, that it ended, and no reminder but for those that were due."""
    for waited in waits(evidence):
        what = [("blocked", waited.block.seq)]
        if waited.end is not None and waited.answer is not None:
            what.append(("resumed", waited.end.seq))
        for name, place in what:
            messages = evidence.told.get(f"{waited.life.id}.{name}.{waited.step_no}", [])
            seqs = {(payload_of(message) or {})["journal_seq"] for message in messages}
            if seqs != {evidence.seq_at(place)} and not _was_called_off(waited):
                yield f"{waited.life.id}: {name} at {evidence.seq_at(place)}, told of {seqs}"
        if waited.end is not None:
            yield from _reminders(evidence, waited, until_s=evidence.stored_s(waited.end.seq))


def _was_called_off(waited: Waited) -> bool:
    """Return whether it was canceled while it waited, perhaps before anybody could tell of it."""
    return waited.end is not None and waited.answer is None


def _reminders(evidence: Evidence, waited: Waited, *, until_s: float) -> Breaches:
    """None came before its time, and where the world is fine none was left out."""
    terms = waited.block.event.approval or waited.block.event.wait
    assert terms is not None, f"{waited} waits for nothing"
    every_s, since = terms.remind_every_s, evidence.committed_at(waited.block.seq)
    begin = f"{waited.life.id}.reminder.{waited.step_no}."
    told = {
        int(id_.removeprefix(begin)): m for id_, m in evidence.told.items() if id_.startswith(begin)
    }
    for number, messages in told.items():
        due_s = (since + timedelta(seconds=number * every_s) - EPOCH).total_seconds()
        if not every_s or at_s(messages[0]) < due_s:
            yield f"{waited.life.id}: reminder {number} at {at_s(messages[0])}, due at {due_s}"
    programme = evidence.history.programme
    if every_s and programme.is_fine and not programme.has_orders:
        until_s = min(until_s, waited.expires_s) - SOON_S
        due = int((until_s - (since - EPOCH).total_seconds()) // every_s)
        missing = set(range(1, due + 1)) - set(told)
        if missing:
            yield f"{waited.life.id}: reminders {missing} of {due} are missing"


def decisions(evidence: Evidence, episode_id: str) -> Iterator[tuple[Decide, float]]:
    """Yield what people have decided about an episode, and when that was stored."""
    for asked in evidence.history.asked:
        if isinstance(asked.command, Decide) and asked.command.episode_id == episode_id:
            yield asked.command, asked.at_s


INVARIANTS: Final[Sequence[Callable[[Evidence], Breaches]]] = (
    what_waits_is_left_alone_until_it_is_answered,
    i8_nothing_is_approved_without_a_decision_of_that_plan,
    a_wait_gets_the_word_that_was_given,
    a_signal_reaches_all_that_wait,
    signals_in_a_row_come_in_their_order,
    an_answer_stands_once,
    what_nobody_answers_expires_in_time,
    a_right_decision_in_time_is_heard,
    the_world_is_told_of_every_wait,
)
