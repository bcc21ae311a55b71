"""What must hold of every world, whatever went wrong in it. Each finds its own breaches.

They look only at what is left on the log, in the rows and in the ledger, and use none of
the rules that put it there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from random import Random
from typing import Final

import msgspec

from engine.episodes.attempt import NO_CLAIM
from engine.episodes.recovery import NO_SUCH_EPISODE
from engine.outputs.dead_letters import OUTPUT_FAILED
from engine.waits.signals import NOBODY_WAITS
from streams.json import unraw
from streams.memory.stream import DEDUPE_WINDOW_S
from streams.model.events import (
    EndStatus,
    EpisodeApprovalGiven,
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeDeferred,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeResolved,
    EpisodeStarted,
    FindingCleared,
    FindingRaised,
    LogEvent,
    Resolution,
    StepAnnounced,
    StepKind,
    StepRecorded,
)
from streams.model.findings import FindingIntent, FindingOutcome, FindingStatus
from streams.model.triggers import EventTrigger
from streams.ports.domain_events import HOPS_MAX
from streams.ports.log import Recorded
from streams.wire.messages import HOPS_HEADER
from tests.simulation import (
    blocks,
    children,
    deliveries,
    editions,
    flows,
    limits,
    parked,
    paths,
    quorums,
    turns,
    wakings,
)
from tests.simulation.actors import ENDS, SECRET
from tests.simulation.calling import POKE
from tests.simulation.deploying import SEND
from tests.simulation.evidence import Breaches, Evidence, Life, identity, payload_of
from tests.simulation.outside import Call
from tests.simulation.rows import Tables, folded
from tests.simulation.world import History
from tests.told import wrong

ECHOED: Final = {"k1", "k2"}
"""Findings whose raising wakes an actor of ours."""

WOKEN: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "sim.settle": (("watch", "settle"), ("duty", "quiet")),
    "finding.raised": (("duty", "echo"),),
    **{
        f"sim.{name}": (("watch", name),)
        for name in ("five", "strict", "act", "mail", "anew", "orphan", "frail")
    },
    **{
        f"sim.{name}": (("duty", name),)
        for name in ("flaky", "broken", "circling", "turns", "tokens", "wall")
    },
}
"""Event → the expectations that it wakes."""

NOBODY: Final = ""
"""Who has an episode that waits."""

CUT_TO: Final = (3, 30, 300)
"""Most commits of a part, in each of the ways in which a journal is cut."""

ORDINARY: Final = {"watch", "duty"}
"""The actors of every world. What wakes the others is judged in files of their own."""


def i1_an_event_opens_exactly_one_episode_per_expectation(evidence: Evidence) -> Breaches:
    opened: Counter[tuple[str, str, str]] = Counter()
    for life in evidence.lives.values():
        trigger = life.opened.trigger
        if life.opened.actor_id not in ORDINARY:
            continue
        assert isinstance(trigger, EventTrigger)
        opened[life.opened.actor_id, life.opened.expectation_id, trigger.event_id] += 1
    wanted = set()
    for message in evidence.history.events:
        name = evidence.history.stack.event_name_of(message.subject)
        payload = payload_of(message)
        hops = int(message.headers.get(HOPS_HEADER, 0))
        echo_of_others = (
            name == "finding.raised" and payload and payload["finding_key"] not in ECHOED
        )
        if payload is not None and not echo_of_others and hops <= HOPS_MAX:
            wanted |= {(*who, identity(message)) for who in WOKEN.get(name, ())}
    for what in wanted - set(opened):
        yield f"{what} opened nothing"
    for what in set(opened) - wanted:
        yield f"{what} opened an episode, and should not have"
    for what, times in opened.items():
        if times > 1:
            yield f"{what} opened {times} episodes"


def i2_only_the_latest_claim_adds_to_an_episode(evidence: Evidence) -> Breaches:
    """Whoever opens an episode may start it in the same commit; a gate that queues it does not.

    Whoever calls an episode off instead of going on with it does so in one commit, too, and so does
    whoever answers what it waits for.
    """
    for life in evidence.lives.values():
        writer_ids, number, attempts = ["open"], 0, 0
        newest = 0
        for record in life.records:
            first, *more = record.commit.events
            if isinstance(first, EpisodeOpened):
                if not more:
                    continue
                first = more[0]
            if _is_by_anybody(first, record):
                yield from _by_anybody(life, record, writer_ids)
                continue
            writer_id, _, place = record.commit.id.rpartition("-")
            if isinstance(first, EpisodeStarted):
                attempts, number = attempts + 1, 0
                if writer_id in writer_ids:
                    yield f"{life.id}@{record.seq}: {writer_id} starts it again"
                writer_ids.append(writer_id)
                yield from _claimed(life, record, first, newest)
                if first.attempt != attempts:
                    yield f"{life.id}@{record.seq}: attempt {first.attempt} is the {attempts}th"
                newest = first.claim_revision
            number += 1
            if (writer_id, place) != (writer_ids[-1], str(number)):
                yield f"{life.id}@{record.seq}: {record.commit.id}, not {writer_ids[-1]}-{number}"
            if isinstance(record.commit.events[-1], EpisodeBlocked | EpisodeDeferred):
                writer_ids.append(NOBODY)


def _claimed(life: Life, record: Recorded, start: EpisodeStarted, newest: int) -> Breaches:
    """A start is without a claim if its commit has the end, too, or a lease of its node covers it.

    Only a first attempt is covered: of any later one another node may know no better.
    """
    if start.node_lease_since is not None and start.attempt != 1:
        yield f"{life.id}@{record.seq}: attempt {start.attempt} is covered"
    if start.claim_revision == NO_CLAIM:
        has_end = isinstance(record.commit.events[-1], EpisodeFinished)
        if not has_end and start.node_lease_since is None:
            yield f"{life.id}@{record.seq}: started without a claim"
    elif start.claim_revision <= newest:
        yield f"{life.id}@{record.seq}: claim {start.claim_revision} after {newest}"


def _is_by_anybody(first: LogEvent, record: Recorded) -> bool:
    """Return whether a commit calls an episode off, or answers what it waits for."""
    is_end = isinstance(first, EpisodeFinished) and first.status is EndStatus.CANCELED
    return is_end or _is_answer(record)


def _is_answer(record: Recorded) -> bool:
    """Return whether a commit has what an episode waits for, one of several approvals of it, or the
    ends of some children."""
    last = record.commit.events[-1]
    return isinstance(last, EpisodeResolved | EpisodeApprovalGiven) or (
        isinstance(last, StepRecorded) and last.child is not None
    )


def _by_anybody(life: Life, record: Recorded, writer_ids: Sequence[str]) -> Breaches:
    """What is called off does not go on; and nobody has what waits until it is answered."""
    if _is_answer(record):
        if writer_ids[-1] != NOBODY:
            yield f"{life.id}@{record.seq}: answered while {writer_ids[-1]} has it"
    elif record is not life.records[-1]:
        yield f"{life.id}@{record.seq}: called off, and went on"


def i3_steps_are_gapless_and_never_recorded_twice(evidence: Evidence) -> Breaches:
    for life in evidence.lives.values():
        steps = [placed.event.step_no for placed in life.of(StepRecorded)]
        if steps != list(range(1, len(steps) + 1)):
            yield f"{life.id}: steps {steps}"


def i3_a_recorded_step_is_never_executed_again(evidence: Evidence) -> Breaches:
    """A call may come after its record only from one who began before it, and did not write it."""
    for call in numbered(evidence):
        life = evidence.lives[call.episode_id]
        record = life.recorded_at.get(call.step_no)
        if record is None or record.seq > call.head:
            continue
        began = [
            placed
            for placed in life.of(EpisodeStarted)
            if placed.event.node == call.node and placed.seq <= call.head
        ]
        writer_id = record.commit_id.rpartition("-")[0]
        if (
            not began
            or began[-1].seq > record.seq
            or began[-1].commit_id.startswith(f"{writer_id}-")
        ):
            yield f"{call} though recorded at {record.seq}"


def i3_a_side_effect_is_announced_before_it_happens(evidence: Evidence) -> Breaches:
    for call in effects(evidence, "pay", "mail"):
        life = evidence.lives[call.episode_id]
        announced = [
            placed
            for placed in life.of(StepAnnounced)
            if placed.event.step_no == call.step_no and placed.seq <= call.head
        ]
        if not announced:
            yield f"{call}: not announced"
        elif announced[-1].event.idempotency_key != call.key:
            yield f"{call}: announced with another key"


def i3_a_side_effect_that_must_not_be_repeated_is_not(evidence: Evidence) -> Breaches:
    calls = Counter((call.episode_id, call.step_no) for call in effects(evidence, "mail"))
    yield from (f"{step} called {times} times" for step, times in calls.items() if times > 1)


def i3_repeats_of_a_side_effect_share_one_key(evidence: Evidence) -> Breaches:
    """Also where the strategy began anew, and so took other steps to come to the same effect."""
    paid: dict[str, set[str]] = defaultdict(set)
    for call in effects(evidence, "pay"):
        paid[call.episode_id].add(call.key)
    yield from (f"{id_} paid with {used}" for id_, used in paid.items() if len(used) > 1)


def i3_no_two_steps_share_a_key(evidence: Evidence) -> Breaches:
    """But those that take the place of others in an episode that was begun anew."""
    steps: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for call in numbered(evidence):
        if evidence.lives[call.episode_id].opened.expectation_id != "anew":
            steps[call.key].add((call.episode_id, call.step_no))
    yield from (f"{key} used for {used}" for key, used in steps.items() if len(used) > 1)


def i3_what_must_be_durable_before_a_call_is(evidence: Evidence) -> Breaches:
    for call in numbered(evidence):
        life = evidence.lives[call.episode_id]
        strict = life.opened.expectation_id == "strict"
        if not strict and call.tool not in {"pay", "mail"}:
            continue
        for step_no in range(1, call.step_no):
            record = life.recorded_at.get(step_no)
            if record is None or record.seq > call.head:
                yield f"{call}: step {step_no} was not durable yet"


def i3_results_are_folded_once_and_as_recorded(evidence: Evidence) -> Breaches:
    for life in evidence.lives.values():
        converged = life.converged
        if converged is None or life.opened.expectation_id in {"settle", "echo"}:
            continue
        anew = [placed.seq for placed in life.of(EpisodeStarted) if placed.event.fresh]
        results = [
            unraw(placed.event.result)
            for placed in life.of(StepRecorded)
            if not anew or placed.seq > anew[-1]
        ]
        total = sum(result.get("value") or 0 for result in results if isinstance(result, dict))
        said = unraw(converged.classification)
        if said is not None and said["total"] != total:
            yield f"{life.id} converged on {said}, its steps say {total}"


def i4_every_episode_ends_once_and_as_it_should(evidence: Evidence) -> Breaches:
    for life in evidence.lives.values():
        ends = life.of(EpisodeFinished)
        if len(ends) != 1:
            yield f"{life.id} ({life.opened.expectation_id}) ended {len(ends)} times"
            continue
        end = life.finished
        assert end is not None
        if life.events[-1].event != end:
            yield f"{life.id} went on after its end"
        if (end.status.value, end.error_class) not in ENDS[life.opened.expectation_id]:
            yield f"{life.id} ({life.opened.expectation_id}) ended as {end}"


def i4_in_the_end_nothing_is_held_and_nothing_waits(evidence: Evidence) -> Breaches:
    history = evidence.history
    if history.held:
        yield f"still held: {history.held}"
    if history.unanswered:
        yield f"{history.unanswered} deliveries still wait"
    if history.pending:
        yield f"still armed: {history.pending}"


def i5_nothing_that_was_acknowledged_is_lost(evidence: Evidence) -> Breaches:
    """A claim may lapse whose episode was never opened, because the gate refuses it by then.

    The call for its recovery is all that becomes a dead letter without need.
    """
    history = evidence.history
    stored = {message.seq for message in history.events}
    yield from (f"event {seq} is gone" for seq in history.published if seq not in stored)
    others = {OUTPUT_FAILED, NOBODY_WAITS}
    letters = [letter for letter in evidence.letters if letter.reason not in others]
    buried = Counter(
        event.episode_id or event.seq
        for event in letters
        if event.reason != NO_SUCH_EPISODE or event.episode_id in evidence.lives
    )
    unreadable = {message.seq for message in history.events if payload_of(message) is None}
    given_up = {life.id for life in evidence.lives.values() if life.was_given_up}
    if buried != Counter(unreadable | given_up):
        yield f"dead letters for {buried}, due for {unreadable} and {given_up}"


def a_signal_is_a_dead_letter_if_its_wait_ended_otherwise(evidence: Evidence) -> Breaches:
    for letter in evidence.letters:
        if letter.reason != NOBODY_WAITS:
            continue
        id_ = letter.detail.removeprefix("episode ").partition(":")[0]
        life = evidence.lives.get(id_)
        if life is None:
            continue  # Nobody has waited for it at all.
        resolutions = [placed.event.resolution for placed in life.of(EpisodeResolved)]
        if life.finished is None and Resolution.EXPIRED not in resolutions:
            yield f"{life.id} goes on to wait, and there is a letter: {letter}"


def budgets_and_loops_end_an_episode_in_time(evidence: Evidence) -> Breaches:
    most = {"turns": 3, "tokens": 2, "circling": 3, "wall": 40}
    for life in evidence.lives.values():
        steps = len(life.of(StepRecorded))
        if steps > most.get(life.opened.expectation_id, steps):
            yield f"{life.id} ({life.opened.expectation_id}) took {steps} steps"
        end = life.finished
        if end and end.tokens_used != sum(p.event.cost_tokens for p in life.of(StepRecorded)):
            yield f"{life.id} says it used {end.tokens_used} tokens"


def a_finding_has_one_active_life_at_a_time(evidence: Evidence) -> Breaches:
    for key, events in evidence.findings.items():
        raise_no, active = 0, False
        for seq, event in events:
            if isinstance(event, FindingRaised) == active:
                yield f"{key}@{seq}: {type(event).__name__} while active is {active}"
            raise_no += isinstance(event, FindingRaised)
            active = not isinstance(event, FindingCleared)
            if event.finding.raise_no != raise_no:
                yield f"{key}@{seq}: raise {event.finding.raise_no} is the {raise_no}th"
            if (event.finding.status is FindingStatus.ACTIVE) != active:
                yield f"{key}@{seq}: {event.finding.status} after {type(event).__name__}"


def an_intent_is_carried_out_once_and_recorded_as_it_was(evidence: Evidence) -> Breaches:
    for cause, found in evidence.by_cause.items():
        if len(found) > 1:
            yield f"{cause} carried out {len(found)} times: {[seq for seq, _ in found]}"
    for life in evidence.lives.values():
        end, intents = life.finished, life.converged.findings if life.converged else ()
        if end is None or len(end.findings) != len(intents):
            yield f"{life.id}: {len(intents)} intents, recorded {end and len(end.findings)}"
            continue
        for index, intent, outcome, span in [*_reported(life), *_concluded(life, end)]:
            found = evidence.by_cause.get((life.id, index), [])
            happened = (
                type(found[0][1]).__name__.removeprefix("Finding").lower() if found else "unchanged"
            )
            raise_no = found[0][1].finding.raise_no if found else 0
            said = (outcome.finding_key, outcome.outcome, outcome.raise_no)
            if evidence.is_dry(life):
                happened = "dry_run"
            if said != (intent.finding_key, happened, raise_no):
                yield f"{life.id}[{index}]: {outcome}, the log says {happened} {raise_no}"
            if found and not span[0] < found[0][0] < span[1]:
                yield f"{life.id}[{index}]: carried out at {found[0][0]}, out of its time"


def _reported(life: Life) -> Iterator[tuple[int, FindingIntent, FindingOutcome, tuple[int, int]]]:
    """Yield the number, intent, outcome and time of each finding that was reported."""
    for placed in life.of(StepAnnounced):
        announced = placed.event
        steps = (each for each in life.of(StepRecorded) if each.event.path == announced.path)
        if announced.findings:
            step = next(steps)
            outcomes = msgspec.json.decode(step.event.result, type=list[FindingOutcome])
            for place, (intent, outcome) in enumerate(
                zip(announced.findings, outcomes, strict=True)
            ):
                number = announced.finding_no + place
                yield number, intent, outcome, (placed.seq, step.seq)


def _concluded(
    life: Life, end: EpisodeFinished
) -> Iterator[tuple[int, FindingIntent, FindingOutcome, tuple[int, int]]]:
    """Yield the same of each finding that was concluded; the numbers follow."""
    if life.converged is not None:
        first = sum(len(placed.event.findings) for placed in life.of(StepAnnounced))
        span = life.of(EpisodeConverged)[0].seq, life.of(EpisodeFinished)[0].seq
        for place, (intent, outcome) in enumerate(
            zip(life.converged.findings, end.findings, strict=True)
        ):
            yield first + place, intent, outcome, span


def the_world_is_told_once(evidence: Evidence) -> Breaches:
    told = evidence.told
    for id_, messages in told.items():
        times = [message.at.timestamp() for message in messages]
        for before, after in pairwise(times):
            if after - before < DEDUPE_WINDOW_S:
                yield f"{id_} told twice within {after - before:.0f} s"
    for life in evidence.lives.values():
        if f"{life.id}.ended" not in told and not evidence.is_dry(life):
            yield f"{life.id}: nobody was told of its end"
    for (episode_id, index), found in evidence.by_cause.items():
        messages = told.get(f"{episode_id}.finding.{index}", [])
        seqs = {(payload_of(message) or {})["journal_seq"] for message in messages}
        is_at = evidence.seq_at(found[0][0])
        if seqs != {is_at}:
            yield f"finding {episode_id}[{index}] is at {is_at}, told of {seqs}"


def what_follows_from_the_journal_is_told(evidence: Evidence) -> Breaches:
    """Each public event of each commit is there as it should be, those of an aggregate in order."""
    yield from wrong(evidence.public_events, evidence.told)


def i6_the_rows_are_the_fold_of_the_journal(evidence: Evidence) -> Breaches:
    history = evidence.history
    wanted = folded(history.journal, stack=history.stack)
    yield from _differences(history.rows.tables, wanted)


def i6_the_rows_are_the_same_wherever_the_journal_is_cut(evidence: Evidence) -> Breaches:
    history = evidence.history
    wanted = folded(history.journal, stack=history.stack)
    rng = Random(history.seed)
    for most in CUT_TO:
        sizes = iter(partial(rng.randint, 1, most), None)
        yield from _differences(folded(history.journal, stack=history.stack, sizes=sizes), wanted)


def _differences(tables: Tables, wanted: Tables) -> Breaches:
    for place in wanted.keys() | tables.keys():
        is_, should = tables.get(place), wanted.get(place)
        if is_ != should:
            yield f"{place}: {is_} instead of {should}"


def no_secret_is_kept(evidence: Evidence) -> Breaches:
    """What is transient is nowhere; what a tool redacts is in no row."""
    for life in evidence.lives.values():
        for placed in life.of(StepRecorded):
            step = placed.event
            assert isinstance(step, StepRecorded)
            shown = step.kind is StepKind.TOOL_CALL and not step.error_class
            if SECRET.encode() in bytes(step.args) + bytes(step.result_shown):
                yield f"{life.id}@{placed.seq}: shows a secret"
            if (
                shown
                and step.tool_name not in {POKE, SEND}
                and bytes(step.result_shown) != b'"***"'
            ):
                yield f"{life.id}@{placed.seq}: shows {bytes(step.result_shown)!r}"
    for place, row in evidence.history.rows.tables.items():
        if SECRET in str(row):
            yield f"{place}: {row}"


def nodes_are_not_surprised(evidence: Evidence) -> Breaches:
    yield from evidence.history.surprises


def numbered(evidence: Evidence) -> Iterator[Call]:
    """Yield the calls whose place is a number; those of functions are judged in `paths.py`."""
    calls = evidence.history.ledger.calls
    return (each for each in calls if not paths.is_functional(evidence.lives[each.episode_id]))


def effects(evidence: Evidence, *tools: str) -> Iterator[Call]:
    return (call for call in numbered(evidence) if call.tool in tools)


INVARIANTS: Final[Sequence[Callable[[Evidence], Breaches]]] = (
    i1_an_event_opens_exactly_one_episode_per_expectation,
    i2_only_the_latest_claim_adds_to_an_episode,
    i3_steps_are_gapless_and_never_recorded_twice,
    i3_a_recorded_step_is_never_executed_again,
    i3_a_side_effect_is_announced_before_it_happens,
    i3_a_side_effect_that_must_not_be_repeated_is_not,
    i3_repeats_of_a_side_effect_share_one_key,
    i3_no_two_steps_share_a_key,
    i3_what_must_be_durable_before_a_call_is,
    i3_results_are_folded_once_and_as_recorded,
    i4_every_episode_ends_once_and_as_it_should,
    i4_in_the_end_nothing_is_held_and_nothing_waits,
    i5_nothing_that_was_acknowledged_is_lost,
    a_signal_is_a_dead_letter_if_its_wait_ended_otherwise,
    i6_the_rows_are_the_fold_of_the_journal,
    i6_the_rows_are_the_same_wherever_the_journal_is_cut,
    budgets_and_loops_end_an_episode_in_time,
    a_finding_has_one_active_life_at_a_time,
    an_intent_is_carried_out_once_and_recorded_as_it_was,
    the_world_is_told_once,
    what_follows_from_the_journal_is_told,
    no_secret_is_kept,
    nodes_are_not_surprised,
)


ALL: Final = (
    *INVARIANTS,
    *wakings.INVARIANTS,
    *limits.INVARIANTS,
    *turns.INVARIANTS,
    *blocks.INVARIANTS,
    *children.INVARIANTS,
    *deliveries.INVARIANTS,
    *flows.INVARIANTS,
    *editions.INVARIANTS,
    *paths.INVARIANTS,
    *parked.INVARIANTS,
    *quorums.INVARIANTS,
)


def breaches(history: History) -> list[str]:
    """Return every breach of every invariant in `history`."""
    evidence = Evidence(history)
    return [f"{holds.__name__}: {what}" for holds in ALL for what in holds(evidence)]
