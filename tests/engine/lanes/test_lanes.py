"""A lane's life, as rules."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from uuid import UUID

import msgspec
import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.app.actor import CLUSTER_EPISODES_MAX
from engine.lanes.lane import (
    EMPTY,
    KEEP_EVERY,
    PLACES_PER_PRIORITY,
    TICKETS_KEPT_MAX,
    LaneInputs,
    Limits,
    Wanted,
    beginning,
    capacity_of,
    decide,
    evolve,
    fold,
    is_complete,
    overdue,
)
from engine.lanes.store import LaneStore
from streams.clock import SystemClock
from streams.memory import memory_ports
from streams.model.events import LaneKept, LaneMoved
from streams.model.lanes import Ticket
from streams.ports.log import START, Commit, Recorded
from streams.subjects import Stack
from streams.wire.codec import encode_commit
from tests.spec import EPOCH

SUBJECT = "vigil.lane.monitor"


def wanted(episode, *, priority=0, key="", limit=1, expectation="limits", resumes=False):
    return Wanted(
        resumes=resumes,
        episode_id=episode,
        expectation_id=expectation,
        priority=priority,
        key=key,
        key_limit=limit if key else 0,
    )


def ids(tickets):
    return [ticket.episode_id for ticket in tickets]


def recorded(version, *events):
    commit = Commit(id=f"c{version}", at=EPOCH, events=events)
    return Recorded(subject=SUBJECT, seq=version, commit=commit)


class given:
    """A lane that has come about under these limits, one decision for each of what was seen."""

    def __init__(self, *past, capacity=1, overflow="queue", queue_max=1_000):
        self.limits = Limits(capacity=capacity, overflow=overflow, queue_max=queue_max)
        self.lane = EMPTY
        for seen in past:
            self.lane = after(self.lane, decide(self.lane, seen, self.limits))

    def when(self, seen=None, **limits):
        """Let the dispatcher see this, under other limits if some are named."""
        self.seen = LaneInputs() if seen is None else seen
        for name, value in limits.items():
            self.limits = Limits(**{**_fields(self.limits), name: value})
        return self

    def then(self, **said):
        """Expect one move that says this, and nothing else."""
        (moved,) = decide(self.lane, self.seen, self.limits)
        shown = {
            name: ids(value) if name == "placed" else list(value)
            for name, value in _fields(moved).items()
            if value
        }
        assert shown == {name: list(value) for name, value in said.items()}

    def then_nothing(self):
        assert decide(self.lane, self.seen, self.limits) == ()


def _fields(struct):
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def after(lane, events, *, version=1):
    for event in events:
        lane = evolve(lane, event, version=version)
    return lane


def these(*episodes, **options):
    return LaneInputs(wanted=[wanted(each, **options) for each in episodes])


def left(*episodes):
    return LaneInputs(left=episodes)


# Who may run.


def test_an_episode_that_finds_room_is_admitted_at_once():
    given().when(these("a")).then(placed=["a"], admitted=["a"])


def test_one_that_finds_none_waits():
    given(these("a")).when(these("b")).then(placed=["b"])


def test_who_waits_is_admitted_when_someone_leaves():
    given(these("a", "b", "c")).when(left("a")).then(left=["a"], admitted=["b"])


def test_who_waits_is_admitted_when_there_are_more_nodes():
    given(these("a", "b", "c")).when(capacity=3).then(admitted=["b", "c"])


def test_nobody_is_sent_away_when_there_are_fewer_nodes():
    given(these("a", "b", "c"), capacity=2).when(left("a"), capacity=1).then(left=["a"])


def test_the_oldest_cause_goes_first():
    given(these("a", "b"), these("c"), left("a")).when(left("b")).then(left=["b"], admitted=["c"])


def test_a_higher_priority_overtakes():
    urgent = these("c", priority=1)
    given(these("a", "b"), urgent).when(left("a")).then(left=["a"], admitted=["c"])


@pytest.mark.parametrize("above", [1, 3])
def test_an_episode_is_overtaken_by_so_many_later_ones_as_the_higher_priority_is_worth(above):
    most = above * PLACES_PER_PRIORITY
    later = [f"u{number}" for number in range(2 * most)]
    line = given(these("running"), these("old"), these(*later, priority=above)).lane.waiting
    assert ids(line).index("old") == most - 1


@forall(
    above=st.integers(-1_000, 1_000),
    waited=st.integers(0, 40),
    per_round=st.integers(1, 3),
)
@settings(max_examples=30, deadline=None)
def test_an_episode_is_admitted_in_the_end_however_many_of_higher_priority_come(
    above, waited, per_round
):
    """One is admitted in each round, and at least one more urgent episode comes."""
    before = these(*(f"b{number}" for number in range(waited)))
    life = given(these("r"), before, these("old"))
    lane, number, rounds = life.lane, 0, 0
    most = waited + 1 + max(0, above) * PLACES_PER_PRIORITY
    # What is about to happen far from the head changes nothing: jump to shortly before it.
    lane = msgspec.structs.replace(lane, newest_number=max(lane.newest_number, most - 50))
    while "old" not in ids(lane.admitted):
        news = [wanted(f"u{number + at}", priority=above) for at in range(per_round)]
        seen = LaneInputs(wanted=news, left=ids(lane.admitted))
        lane = after(lane, decide(lane, seen, Limits(capacity=1)))
        number, rounds = number + per_round, rounds + 1
        assert rounds <= waited + 1 + 50 + per_round


def test_of_one_batch_the_highest_priority_goes_first():
    seen = LaneInputs(wanted=[wanted("a"), wanted("b", priority=-1), wanted("c", priority=1)])
    given(capacity=2).when(seen).then(placed=["a", "b", "c"], admitted=["c", "a"])


def test_one_whose_key_is_busy_is_passed_over():
    given(these("a", key="h1"), capacity=3).when(
        LaneInputs(wanted=[wanted("b", key="h1"), wanted("c", key="h2"), wanted("d")])
    ).then(placed=["b", "c", "d"], admitted=["c", "d"])


def test_nobody_overtakes_one_with_the_same_key():
    past = these("a", key="h1"), these("b", key="h1")
    laxer = these("c", key="h1", limit=2)
    given(*past, capacity=3).when(laxer).then(placed=["c"])


def test_a_key_frees_its_place_when_its_episode_leaves():
    past = these("a", "b", key="h1"), these("c")
    given(*past, capacity=3).when(left("a")).then(left=["a"], admitted=["b"])


def test_as_many_of_a_key_run_as_its_limit_allows():
    given(capacity=5).when(these("a", "b", "c", key="h1", limit=2)).then(
        placed=["a", "b", "c"], admitted=["a", "b"]
    )


def test_the_same_key_of_another_expectation_is_another_key():
    past = these("a", key="h1")
    other = these("b", key="h1", expectation="others")
    given(past, capacity=2).when(other).then(placed=["b"], admitted=["b"])


def test_a_key_without_a_limit_holds_nobody_up():
    past = these("a", key="h1", limit=0)
    given(past, capacity=2).when(these("b", key="h1", limit=0)).then(placed=["b"], admitted=["b"])


@pytest.mark.parametrize(
    ("cluster_max", "nodes", "capacity"),
    [
        (None, [5, 5], 10),
        (3, [5, 5], 3),
        (30, [5, 5], 10),
        (3, [], 0),
        (None, [9_999], CLUSTER_EPISODES_MAX),
    ],
)
def test_the_capacity_is_the_smaller_of_what_the_actor_allows_and_the_nodes_have(
    cluster_max, nodes, capacity
):
    assert capacity_of(cluster_max=cluster_max, nodes=nodes) == capacity


# What becomes of the others.


def test_a_full_lane_refuses_nobody():
    given(these("a", "b", "c"), queue_max=2).when(these("d")).then(placed=["d"])


def test_a_newcomer_that_finds_no_room_is_dropped():
    given(these("a"), overflow="drop").when(these("b")).then(dropped=["b"])


def test_nobody_is_dropped_while_there_is_room():
    given(these("a"), overflow="drop").when(LaneInputs(wanted=[wanted("b")], left=["a"])).then(
        placed=["b"], admitted=["b"], left=["a"]
    )


def test_of_newcomers_those_of_the_lowest_priority_are_dropped():
    seen = LaneInputs(wanted=[wanted("a"), wanted("b", priority=1)])
    given(overflow="drop").when(seen).then(placed=["b"], admitted=["b"], dropped=["a"])


def test_who_waits_already_is_not_dropped_when_the_overflow_changes():
    given(these("a", "b")).when(these("c"), overflow="drop").then(dropped=["c"])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"overflow": "drop", "capacity": 1}, "key_busy"),
        ({"overflow": "drop", "capacity": 2}, "key_busy"),
        ({"overflow": "shed_oldest", "capacity": 1, "queue_max": 0}, "queue_full"),
    ],
)
def test_who_is_dropped_is_told_why(options, reason):
    lane = given(these("a", key="h1"), **options)
    (moved,) = decide(lane.lane, these("b", key="h1"), lane.limits)
    assert moved.dropped == {"b": reason}


def test_each_of_those_who_are_dropped_is_told_its_own_reason():
    lane = given(these("a", key="h1"), overflow="drop", capacity=2)
    many = LaneInputs(wanted=[wanted("b", key="h1"), wanted("c", key="h2"), wanted("d", key="h3")])
    (moved,) = decide(lane.lane, many, lane.limits)
    assert moved.admitted == ("c",)
    assert moved.dropped == {"b": "key_busy", "d": "no_room"}


def test_who_waits_for_longer_than_it_is_worth_beginning_is_overdue():
    times = {"a": EPOCH, "b": EPOCH + timedelta(seconds=1), "c": None}
    waiting = [Wanted(episode_id=id_, expectation_id="x", start_by=at) for id_, at in times.items()]
    lane = given(LaneInputs(wanted=waiting), capacity=0).lane
    assert overdue(lane, at=EPOCH) == []
    assert overdue(lane, at=EPOCH + timedelta(seconds=1)) == ["a"]
    assert overdue(lane, at=EPOCH + timedelta(days=1)) == ["a", "b"]


def test_a_newcomer_takes_the_place_of_the_one_that_has_waited_longest():
    given(these("a", "b", "c"), overflow="shed_oldest", queue_max=2).when(these("d")).then(
        placed=["d"], shed=["b"]
    )


def test_nobody_is_shed_while_there_is_room():
    given(these("a", "b"), overflow="shed_oldest", queue_max=1).when(
        LaneInputs(wanted=[wanted("c")], left=["a"])
    ).then(placed=["c"], admitted=["b"], left=["a"])


def test_the_lowest_priority_is_shed_first():
    past = these("a"), these("b", priority=1), these("c"), these("d", priority=1)
    given(*past, overflow="shed_oldest", queue_max=3).when(these("e", priority=1)).then(
        placed=["e"], shed=["c"]
    )


def test_a_newcomer_of_lower_priority_than_all_who_wait_is_dropped():
    past = these("a"), these("b", priority=1)
    given(*past, overflow="shed_oldest", queue_max=1).when(these("c")).then(dropped=["c"])


# What is old news.


@pytest.mark.parametrize("episode", ["a", "b"])
def test_an_episode_that_is_in_the_lane_is_not_placed_again(episode):
    given(these("a", "b")).when(these(episode)).then_nothing()


def test_an_episode_that_is_wanted_twice_is_placed_once():
    given().when(these("a", "a")).then(placed=["a"], admitted=["a"])


def test_an_episode_that_has_left_meanwhile_is_not_placed():
    given().when(LaneInputs(wanted=[wanted("a")], left=["a"])).then_nothing()


def test_one_that_comes_back_in_the_move_in_which_it_left_gets_a_new_place_for_the_old():
    """Its place is given up, and wanted again: whichever is seen first, others go before it."""
    back = LaneInputs(wanted=[wanted("a", resumes=True)], left=["a"])
    lane = given(these("a", "b")).lane
    (moved,) = decide(lane, back, Limits(capacity=1))
    assert (moved.left, ids(moved.placed), moved.admitted) == (("a",), ["a"], ("b",))
    lane = after(lane, [moved])
    assert (ids(lane.admitted), ids(lane.waiting)) == (["b"], ["a"])


def test_one_that_comes_back_to_an_empty_lane_goes_on_at_once():
    back = LaneInputs(wanted=[wanted("a", resumes=True)], left=["a"])
    lane = given(these("a")).lane
    lane = after(lane, decide(lane, back, Limits(capacity=1)))
    assert (ids(lane.admitted), ids(lane.waiting)) == (["a"], [])


@pytest.mark.parametrize("overflow", ["drop", "shed_oldest"])
def test_one_that_comes_back_is_neither_dropped_nor_shed(overflow):
    lane = given(these("a")).lane
    limits = Limits(capacity=1, overflow=overflow, queue_max=1)
    events = decide(lane, LaneInputs(wanted=[wanted("back", resumes=True)]), limits)
    lane = after(lane, events)
    assert ids(lane.waiting) == ["back"]
    (moved,) = decide(lane, LaneInputs(wanted=[wanted("new", priority=9)]), limits)
    assert "back" not in moved.shed
    assert "back" not in moved.dropped


def test_an_unknown_episode_leaves_nothing_behind():
    given(these("a")).when(left("x")).then_nothing()


def test_one_that_waits_may_leave():
    given(these("a", "b")).when(left("b", "b")).then(left=["b"])


def test_numbers_go_on_where_they_were():
    lane = given(these("a", "b"), left("a", "b")).lane
    (moved,) = decide(lane, these("c"), Limits(capacity=1))
    assert [ticket.number for ticket in moved.placed] == [3]


def test_a_key_that_is_short_is_spelled_out_and_a_long_one_is_its_hash():
    keys = ["k" * 46, "k" * 47, "k" * 48, "k" * 47]
    seen = LaneInputs(wanted=[wanted(str(n), key=key) for n, key in enumerate(keys)])
    (moved,) = decide(EMPTY, seen, Limits(capacity=9))
    short, long, other, same = (ticket.key for ticket in moved.placed)
    assert short == keys[0]
    assert len(long) == len(other) == 33
    assert long == same != other


# What is kept.


def lived(moves, *, capacity=3):
    """Return the commits of a lane in which one episode after the other comes and one leaves."""
    lane, commits = EMPTY, []
    for version in range(1, moves + 1):
        gone = ids(lane.admitted)[:1] if version % 2 else []
        seen = LaneInputs(
            wanted=[wanted(f"e{version}", priority=version % 3, key=f"h{version % 4}")],
            left=gone,
        )
        commits.append(recorded(version, *decide(lane, seen, Limits(capacity=capacity))))
        lane = after(lane, commits[-1].commit.events, version=version)
    return commits


def test_every_so_many_commits_the_lane_is_kept():
    kept = [
        record.seq
        for record in lived(2 * KEEP_EVERY + 5)
        if any(isinstance(event, LaneKept) for event in record.commit.events)
    ]
    assert kept == [KEEP_EVERY, 2 * KEEP_EVERY]


@pytest.mark.parametrize("length", [0, 1, KEEP_EVERY - 1, KEEP_EVERY, KEEP_EVERY + 1, 500])
def test_a_lane_is_the_same_from_its_beginning_and_from_where_it_was_kept(length):
    commits = lived(length)
    past = beginning(commits[-1] if commits else None)
    rest = [record for record in commits if record.seq > past]
    assert fold(rest) == fold(commits)


@pytest.mark.parametrize("length", [KEEP_EVERY, KEEP_EVERY + 1, 2 * KEEP_EVERY - 1])
def test_what_is_read_of_a_lane_begins_with_what_was_kept(length):
    assert beginning(lived(length)[-1]) == KEEP_EVERY - 1


def test_a_lane_that_was_never_kept_is_read_from_its_beginning():
    assert beginning(recorded(7, LaneMoved())) == START
    assert beginning(None) == START


def test_a_lane_is_read_from_the_commit_in_which_it_was_kept():
    assert beginning(recorded(9, LaneMoved(kept_at=7))) == 6
    assert beginning(recorded(9, LaneMoved(kept_at=7), LaneKept())) == 8


def test_what_is_read_of_a_lane_is_complete_only_if_it_was_kept_there():
    kept, moved = recorded(7, LaneMoved(), LaneKept()), recorded(9, LaneMoved(kept_at=7))
    assert is_complete([kept, moved], past=6)
    assert not is_complete([moved], past=6)
    assert not is_complete([], past=6)
    assert is_complete([moved], past=START)


@pytest.mark.parametrize("kept_at", [2, 99])
async def test_a_lane_with_versions_of_other_streams_is_read_from_its_first_commit(kept_at):
    ports = memory_ports(stack=Stack(), clock=SystemClock())
    first, second = (Ticket(episode_id=each, expectation_id="x", number=1) for each in ("a", "b"))
    for version, moved in enumerate((
        LaneMoved(placed=(first,)),
        LaneMoved(placed=(second,), kept_at=kept_at),
    )):  # fmt: skip
        commit = Commit(id=f"c{version}", at=EPOCH, events=(moved,))
        await ports.log.append(ports.stack.lane("worker"), commit, after=version)

    store = LaneStore(ports, SystemClock(), "worker", iter(()))
    await store.read()

    assert ids(store.lane.waiting) == ["a", "b"]


LONGEST = Ticket(
    episode_id=str(UUID(int=1)),
    expectation_id="e" * 64,
    number=10**10,
    priority=-1_000,
    key="k" * 46,
    key_limit=1_000,
    start_by=EPOCH + timedelta(microseconds=1),
)


@pytest.mark.parametrize(("tickets", "kib_max"), [(2_000, 575), (TICKETS_KEPT_MAX, 720)])
def test_a_kept_lane_fits_in_a_message(tickets, kib_max):
    half = (LONGEST,) * (tickets // 2)
    commit = Commit(id="c", at=EPOCH, events=(LaneMoved(), LaneKept(waiting=half, admitted=half)))
    assert len(encode_commit(commit)) < kib_max * 1024


def test_a_lane_too_long_to_keep_is_kept_once_it_is_shorter():
    many = [wanted(f"e{number}") for number in range(TICKETS_KEPT_MAX + 1)]
    lane = after(EMPTY, decide(EMPTY, LaneInputs(wanted=many), Limits(capacity=0)))
    for seq in range(1, KEEP_EVERY):
        seen = LaneInputs(left=[f"e{seq}"], wanted=[wanted(f"n{seq}")])
        events = decide(lane, seen, Limits(capacity=0))
        assert len(events) == 1
        lane = after(lane, events)
    _, kept = decide(lane, left("e0"), Limits(capacity=0))
    assert len(kept.waiting) == TICKETS_KEPT_MAX


# All of it, against a model that is slow and obvious.

KEYS = ("", "h1", "h2")
LIMIT_OF = {"": 0, "h1": 1, "h2": 2}


class LaneLife(RuleBasedStateMachine):
    """A dispatcher under limits that change, beside a list of what should be."""

    def __init__(self):
        super().__init__()
        self.limits = Limits(capacity=2, queue_max=3)
        self.lane = EMPTY
        self.commits = []
        self.wanted = {}
        self.waiting, self.admitted = [], []
        self.gone = set()

    @rule(
        options=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(KEYS)), max_size=4),
        leaving=st.integers(0, 2),
        again=st.booleans(),
    )
    def see(self, options, leaving, again):
        news = []
        for priority, key in options:
            episode = f"e{len(self.wanted)}"
            self.wanted[episode] = wanted(episode, priority=priority, key=key, limit=LIMIT_OF[key])
            news.append(self.wanted[episode])
        old = [self.wanted[each] for each in (self.waiting + self.admitted)[:1]] if again else []
        gone = self.admitted[:leaving]
        self._decide(
            LaneInputs(wanted=[*old, *news], left=gone), fresh=[each.episode_id for each in news]
        )

    @rule(capacity=st.integers(0, 4))
    def have_other_nodes(self, capacity):
        self.limits = Limits(**{**_fields(self.limits), "capacity": capacity})

    @rule(overflow=st.sampled_from(["queue", "drop", "shed_oldest"]), queue_max=st.integers(0, 3))
    def declare_anew(self, overflow, queue_max):
        self.limits = Limits(capacity=self.limits.capacity, overflow=overflow, queue_max=queue_max)

    @precondition(lambda self: self.waiting)
    @rule(index=st.integers(0, 3))
    def cancel_one_that_waits(self, index):
        self._decide(left(self.waiting[index % len(self.waiting)]), fresh=[])

    def _decide(self, seen, *, fresh):
        events = decide(self.lane, seen, self.limits)
        if events:
            self.commits.append(recorded(len(self.commits) + 1, *events))
            self.lane = after(self.lane, events, version=len(self.commits))
        moved = events[0] if events else LaneMoved()
        shed, dropped = self._model(seen, fresh)
        assert set(moved.shed) == shed
        assert set(moved.dropped) == dropped

    def _model(self, seen, fresh):
        self.gone |= set(seen.left)
        self.admitted = [each for each in self.admitted if each not in self.gone]
        line = [each for each in self.waiting if each not in self.gone] + fresh
        while (lucky := self._next(line)) is not None:
            line.remove(lucky)
            self.admitted.append(lucky)
        losers = self._losers(line, fresh)
        self.waiting = [each for each in line if each not in losers]
        self.gone |= losers
        return losers - set(fresh), losers & set(fresh)

    def _next(self, line):
        """Return the one that is admitted next, by trying everyone in order of age."""
        if len(self.admitted) >= self.limits.capacity:
            return None
        key = {each: self.wanted[each].key for each in self.wanted}
        busy = Counter(key[each] for each in self.admitted)
        able = [each for each in line if not key[each] or busy[key[each]] < LIMIT_OF[key[each]]]
        return min(able, key=lambda each: (self._place(each), self._age(each)), default=None)

    def _place(self, episode):
        """Return its age, less what its priority is worth."""
        return self._age(episode) - self.wanted[episode].priority * PLACES_PER_PRIORITY

    def _losers(self, line, fresh):
        if self.limits.overflow == "queue":
            return set()
        if self.limits.overflow == "drop":
            return set(line) & set(fresh)
        worst_first = sorted(line, key=lambda each: (self.wanted[each].priority, self._age(each)))
        return set(worst_first[: max(0, len(line) - self.limits.queue_max)])

    def _age(self, episode):
        return list(self.wanted).index(episode)

    @invariant()
    def everyone_is_where_the_model_has_them(self):
        assert sorted(ids(self.lane.waiting)) == sorted(self.waiting)
        assert ids(self.lane.admitted) == self.admitted

    @invariant()
    def who_waits_is_in_the_order_of_rank(self):
        places = [
            (each.number - each.priority * PLACES_PER_PRIORITY, each.number)
            for each in self.lane.waiting
        ]
        assert places == sorted(places)

    @invariant()
    def no_key_runs_more_often_than_its_limit(self):
        busy = Counter(each.key for each in self.lane.admitted)
        assert all(busy[key] <= limit for key, limit in LIMIT_OF.items() if limit)

    @invariant()
    def nobody_is_lost(self):
        known = {*ids(self.lane.waiting), *ids(self.lane.admitted)}
        assert known | self.gone == set(self.wanted)
        assert not known & self.gone

    @invariant()
    def the_journal_holds_the_lane(self):
        assert fold(self.commits) == self.lane


TestLaneLife = LaneLife.TestCase
TestLaneLife.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@forall(seed=st.data())
@settings(max_examples=40, deadline=None)
def test_nobody_is_admitted_beyond_the_capacity(seed):
    lane = EMPTY
    for number in range(seed.draw(st.integers(0, 6))):
        limits = Limits(capacity=seed.draw(st.integers(0, 4)))
        gone = ids(lane.admitted)[: seed.draw(st.integers(0, 2))]
        events = decide(
            lane, LaneInputs(wanted=[wanted(f"{number}a"), wanted(f"{number}b")], left=gone), limits
        )
        before, lane = lane, after(lane, events)
        assert len(lane.admitted) <= max(limits.capacity, len(before.admitted) - len(gone))
