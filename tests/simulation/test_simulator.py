"""A simulator is code, too: it must really do what it claims to, or its green means nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import combinations
from typing import get_args

import pytest

from engine.workflows.instance import INSTANCE_ENDED
from streams.model.events import (
    DefinitionDisabled,
    EpisodeDeferred,
    EpisodeFinished,
    EpisodeStarted,
    LaneMoved,
    OutputCanceled,
    OutputEvent,
    OutputForgone,
    WorkflowEvent,
)
from streams.model.triggers import EventTrigger, ManualTrigger, Mode, ScheduleTrigger
from tests.simulation import children, parked
from tests.simulation.blocks import waits
from tests.simulation.conftest import FIRST, MANY
from tests.simulation.defining import EXPECTATION
from tests.simulation.evidence import Evidence
from tests.simulation.faults import Fault
from tests.simulation.invariants import ORDINARY
from tests.simulation.quorums import KINDS, counts_of
from tests.simulation.themes import Theme
from tests.simulation.time import Stuck, simulate
from tests.simulation.world import happened

pytestmark = pytest.mark.timeout(1_200)
"""Whichever test comes first waits for all worlds."""

in_many = pytest.mark.nightly
"""What few worlds need not have: that all of them hold is `test_survival.py`'s, by day, too."""


def some(of_many: int) -> int:
    """Return how many there must be in the worlds that are kept, if so many must be in `MANY`."""
    return max(1, of_many * len(FIRST) // MANY)


def test_the_same_seed_gives_the_same_world(histories):
    before, again = histories[7], happened(7)
    assert again.journal == before.journal
    assert again.events == before.events
    assert again.trace == before.trace


def test_another_seed_gives_another_world(histories):
    assert len({str(history.journal) for history in histories}) == len(histories)


def test_time_costs_nothing():
    async def a_day():
        before_s = asyncio.get_running_loop().time()
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time() - before_s

    assert simulate(a_day()) == pytest.approx(86_400)


def test_a_world_in_which_nobody_can_ever_wake_is_noticed():
    async def forever():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck):
        simulate(forever())


def test_every_kind_of_fault_occurs_often(histories):
    met = sum((Counter(history.met) for history in histories), Counter())
    assert {kind: met[kind] for kind in Fault if met[kind] < len(histories) / 4} == {}


def test_zombies_wake_and_try_to_write(histories):
    # Few in 20 worlds; each change of how many turns something takes makes it another few.
    assert sum(history.zombie_writes for history in histories) > 0


def test_commits_share_batches(histories):
    assert sum(history.shared for history in histories) > len(histories)


def test_two_projectors_meet(histories):
    assert sum(history.rows.fenced for history in histories) > len(histories)


def test_nodes_work_at_the_same_time(histories):
    assert sum(map(overlaps, histories)) > len(histories)


@in_many
def test_instances_of_workflows_wait_for_one_another_and_replace_one_another(histories):
    held = [each for each in all_flows(histories) if each.begun.held_by]
    for overlap in ("buffer_one", "cancel_other"):
        assert sum(each.begun.spec.overlap == overlap and bool(each.went_on) for each in held) > 2


def test_episodes_are_taken_over(histories):
    taken_over = [life for life in all_lives(histories) if len(life.of(EpisodeStarted)) > 1]
    assert len(taken_over) > len(histories) / 2


def test_episodes_start_others_and_wait_for_them(histories):
    ends = [each for life in all_lives(histories) for each in children.ended(life)]
    assert len(ends) > some(20)


@in_many
def test_episodes_are_parked_and_go_on(histories):
    found = [life for history in histories for life in parked.parked(Evidence(history))]
    assert len(found) >= some(3)


RARE = {"attempts_exhausted", "outcome_unknown"}
"""Ends of one world in fifty: stories of their own end so."""


def test_every_way_to_end_is_taken_but_rare_ones(histories):
    ends = ends_of(histories)
    assert ends - RARE == {"", "crash", "loop_detected", "budget_exceeded", "orphaned"}


@in_many
def test_a_call_ends_an_episode_of_which_nobody_knows_whether_it_was_made(histories):
    assert "outcome_unknown" in ends_of(histories)


def ends_of(histories):
    lives = [life for life in all_lives(histories) if life.opened.actor_id in ORDINARY]
    return {e.error_class for life in lives if (e := life.finished)}


@in_many
def test_every_theme_has_its_worlds(histories):
    themes = Counter(theme for history in histories for theme in history.programme.themes)
    assert {theme for theme in Theme if themes[theme] < some(3)} == set()
    assert sum(history.programme.is_fine for history in histories) > some(5)
    assert sum(history.programme.has_orders for history in histories) > some(5)


@in_many
def test_every_way_to_be_woken_is_taken(histories):
    triggers = Counter(type(life.opened.trigger) for life in all_lives(histories))
    assert min(triggers[kind] for kind in (EventTrigger, ScheduleTrigger, ManualTrigger)) > some(20)
    waited = [life for life in themed(histories) if getattr(life.opened.trigger, "coalesced", 0)]
    assert len(waited) > some(5)
    assert sum(life.opened.mode is Mode.DRY_RUN for life in themed(histories)) > some(5)


@in_many
def test_every_limit_is_met(histories):
    ends = Counter(e.error_class for life in themed(histories) if (e := life.finished))
    limited = {"expired", "shed_oldest", "circuit_breaker_tripped"}
    assert {error_class for error_class in limited if ends[error_class] < some(2)} == set()
    moves = [
        event
        for history in histories
        for records in Evidence(history).lanes.values()
        for record in records
        for event in record.commit.events
        if isinstance(event, LaneMoved)
    ]
    assert sum(len(moved.dropped) for moved in moves) > some(5)


@in_many
def test_every_answer_is_given(histories):
    answers = Counter(
        (type(waited.block.event.approval).__name__, waited.answer.resolution.value)
        for history in histories
        for waited in waits(Evidence(history))
        if waited.answer is not None
    )
    wanted = {
        ("Approval", "approved"), ("Approval", "denied"), ("Approval", "expired"),
        ("NoneType", "resolved"), ("NoneType", "expired"),
    }  # fmt: skip
    assert {each for each in wanted if answers[each] < some(5)} == set()
    ends = Counter(e.error_class for life in themed(histories) if (e := life.finished))
    assert {each for each in ("denied", "canceled") if ends[each] < some(5)} == set()


@in_many
def test_some_approve_what_several_have_to(histories):
    assert {kind for kind, _ in half_approved(histories)} == {*KINDS}


@in_many
def test_what_some_have_approved_is_approved_by_all_or_not(histories):
    assert half_approved(histories) == {
        (kind, is_half) for kind in KINDS for is_half in (True, False)
    }


def half_approved(histories):
    """Return what asked, and whether too few approved it in the end, where too few had at first."""
    return {
        (counted.kind, counted.ends_half)
        for history in histories
        for counted in counts_of(Evidence(history))
        if counted.given
    }


@in_many
def test_every_fate_of_an_output_is_met(histories):
    fates = Counter(
        type(placed.event)
        for history in histories
        for events in Evidence(history).outputs.values()
        for placed in events
    )
    # An output is forgone so rarely that it has stories of its own, wherever a node stands still.
    expected = {*get_args(OutputEvent)} - {OutputForgone}
    assert {kind for kind in expected if fates[kind] < some(3)} == set()
    alone = [event for event in canceled_outputs(histories) if event.by]
    assert len(alone) > some(5)
    deliveries = [each for history in histories for each in history.ledger.deliveries]
    assert sum(each.is_accepted for each in deliveries) > len(histories)
    left = [life for life in all_lives(histories) if life.of(EpisodeDeferred)]
    assert len(left) > some(20)


@in_many
def test_a_node_dies_while_it_delivers(histories):
    deliveries = [each for history in histories for each in history.ledger.deliveries]
    assert sum(each.ended_s == float("inf") for each in deliveries) >= 2


def canceled_outputs(histories):
    return [
        placed.event
        for history in histories
        for events in Evidence(history).outputs.values()
        for placed in events
        if isinstance(placed.event, OutputCanceled)
    ]


def test_definitions_change_while_episodes_of_theirs_run(histories):
    changed, _, _ = editions(histories)
    assert changed > some(5)


@in_many
def test_definitions_change_while_episodes_of_theirs_are_taken_over(histories):
    _, disabled, taken_over = editions(histories)
    assert taken_over > some(5)
    assert disabled > 0


def editions(histories):
    """Return how many episodes ended, or were taken over, under another revision than their own, or
    while there was none."""
    changed, disabled, taken_over = 0, 0, 0
    for evidence in map(Evidence, histories):
        changes = [placed for events in evidence.definitions.values() for placed in events]
        for life in evidence.of(EXPECTATION):
            *_, held = (each for each in changes if each.seq < life.records[-1].seq)
            changed += held.event.revision != life.opened.revision
            disabled += isinstance(held.event, DefinitionDisabled)
            starts = life.of(EpisodeStarted)
            *_, held = (each for each in changes if each.seq < starts[-1].seq)
            taken_over += len(starts) > 1 and held.event.revision != life.opened.revision
    return changed, disabled, taken_over


@in_many
def test_every_fate_of_a_step_is_met(histories):
    flows = all_flows(histories)
    fates = Counter(type(placed.event) for flow in flows for placed in flow.events)
    expected = {*get_args(WorkflowEvent)}
    assert {kind for kind in expected if fates[kind] < 1} == set()
    assert {
        status for status in INSTANCE_ENDED if not any(_ended(flow, status) for flow in flows)
    } == set()


@in_many
def test_instances_begin_others_and_are_tried_only(histories):
    flows = all_flows(histories)
    assert sum(flow.begun.parent is not None for flow in flows) > 2
    assert sum(flow.is_dry for flow in flows) > 2


def _ended(flow, status):
    return flow.finished is not None and flow.finished.status is status


def test_worlds_end_soon_after_the_storm(histories):
    # A call to an instance that never begins goes after five minutes.
    assert max(history.took_s for history in histories) < 380


def all_flows(histories):
    return [flow for history in histories for flow in Evidence(history).flows.values()]


def all_lives(histories):
    return [life for history in histories for life in Evidence(history).lives.values()]


def themed(histories):
    return [life for life in all_lives(histories) if life.opened.actor_id not in ORDINARY]


def overlaps(history):
    """Return how many pairs of episodes ran on two nodes at the same time."""
    spans = []
    for life in Evidence(history).lives.values():
        if not life.of(EpisodeStarted):
            continue
        started, ended = life.of(EpisodeStarted)[0], life.of(EpisodeFinished)[0]
        spans.append((started.event.node, started.seq, ended.seq))
    return sum(a[0] != b[0] and a[1] < b[2] and b[1] < a[2] for a, b in combinations(spans, 2))
