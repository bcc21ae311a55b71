"""What a node says of itself, and what it comes to with others."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from engine.app.actions import approval
from engine.app.actor import Actor
from engine.app.checks import Breaker
from engine.app.dedupe import by_value
from engine.app.findings import escalate
from engine.app.strategy import Strategy
from engine.app.triggers import event, every, manual, workflow
from engine.cluster.modes import Switch
from engine.cluster.nodes import (
    INFO_BYTES_MAX,
    PAYLOAD_SHOWN_BYTES_MAX,
    PROBLEM_CHARS_MAX,
    PROBLEMS_MAX,
    ActorInfo,
    ExpectationInfo,
    NodeInfo,
    actor_info,
    capacity,
    decoded,
    encoded,
    has_part,
    known,
    problems_told,
)
from streams.model.modes import NodeMode
from streams.model.money import Spending

BOTH = Switch(wakes=True, runs=True)


class Watch(Strategy):
    def init(self, episode, trigger):
        return {}

    def next_step(self, state, ctx):
        raise NotImplementedError

    def converge(self, state, ctx):
        raise NotImplementedError


def node(name="n1", **actors: ActorInfo) -> NodeInfo:
    return NodeInfo(
        name=name,
        host="h",
        pid=1,
        since=datetime(2030, 1, 2, tzinfo=UTC),
        mode=NodeMode.FULL,
        setting=NodeMode.FULL,
        lease_s=30.0,
        actors=actors,
    )


def test_every_kind_of_trigger_is_said_in_words():
    actor = Actor("a")
    sources = [
        event("order.placed", "order.paid"),
        event(stream="ORDERS", subject="orders.>"),
        every("15m"),
        manual(),
        workflow(),
    ]
    actor.expect("x", Watch, on=sources)

    said = actor_info(actor, BOTH).expectations["x"]

    assert said.triggers == (
        "event order.placed",
        "event order.paid",
        "stream ORDERS orders.>",
        "every 900s",
        "manual",
        "workflow",
    )
    assert said.schedules == ("every 900s",)


def test_what_a_schedule_brings_is_said_as_far_as_it_is_short():
    actor = Actor("a")
    shop, long = every(60, payload={"service": "shop"}), every(60, payload={"text": "x" * 500})
    actor.expect("x", Watch, on=[shop, long])

    said = actor_info(actor, BOTH).expectations["x"]

    assert said.triggers[0] == f'{said.schedules[0]} {{"service":"shop"}}'
    assert len(said.triggers[1].removeprefix(f"{said.schedules[1]} ")) == PAYLOAD_SHOWN_BYTES_MAX


def test_of_the_options_those_are_said_that_were_chosen_and_are_no_code():
    actor = Actor("a")
    actor.expect(
        "x",
        Watch,
        on=event("a.b"),
        subject_key="host",
        cooldown_s=60,
        breaker=Breaker(threshold=3),
        dedupe=by_value("host"),
        escalation={"disk": [escalate(after="2h", to="critical")]},
        synthesizer=lambda prompt, transient, ctx: prompt,
    )

    said = actor_info(actor, BOTH).expectations["x"]

    assert set(said.options) == {
        "subject_key",
        "cooldown_s",
        "breaker",
        "dedupe",
        "escalation",
    }
    assert said.options["dedupe"]["path"] == "host"
    assert said.options["escalation"] == {"disk": ({"after_s": 7200, "to": "critical"},)}
    assert said.options["breaker"]["threshold"] == 3


@pytest.mark.parametrize(
    ("on_exhausted", "said"),
    [
        ("ask", {"grant": "as much again"}),
        (
            approval({"usd": "0.50"}, approvers=["ann"], expires_s=60),
            {"grant": {"usd": "0.50"}, "approvers": ["ann"], "expires_s": 60.0},
        ),
    ],
)
def test_what_people_are_asked_once_a_budget_is_used_up_is_said(on_exhausted, said):
    actor = Actor("a")
    actor.expect("x", Watch, on=event("a.b"), on_exhausted=on_exhausted)
    assert actor_info(actor, BOTH).expectations["x"].options == {"on_exhausted": said}


def test_of_an_expectation_as_by_default_no_option_is_said():
    actor = Actor("a")
    actor.expect("x", Watch, on=event("a.b"))

    assert actor_info(actor, BOTH).expectations["x"].options == {}


def test_what_an_actor_and_its_expectations_are_for_is_said_in_their_own_words():
    actor = Actor("a", description="Watches disks.")
    words = {"description": "Disks have room.", "audit_level": "strict"}
    actor.expect("x", Watch, on=event("a.b"), outputs=["slack"], resources=["db"], **words)

    said = decoded(encoded(node("web-1", a=actor_info(actor, BOTH)))).actors["a"]

    assert said.description == "Watches disks."
    assert said.expectations["x"].options == {**words, "outputs": ["slack"], "resources": ["db"]}


def test_limits_are_said_of_an_actor_whose_episodes_take_turns():
    assert actor_info(Actor("a"), BOTH).limits == {}
    assert actor_info(Actor("a", max_concurrent_cluster=7), BOTH).limits == {
        "max_concurrent_cluster": 7,
        "overflow": "queue",
        "queue_max": 1_000,
    }


def test_what_an_actor_may_spend_is_said():
    actor = Actor("a", spending=[Spending(usd="5"), Spending(usd=100, per="month")])
    assert actor_info(actor, BOTH).limits == {"spending": {"day": "5.00", "month": "100.00"}}


def test_what_a_node_says_is_read_as_it_was_said():
    info = node(a=ActorInfo(runs=True, wakes=False, slots=2, domain="d"))

    assert decoded(encoded(info)) == info


def test_what_would_be_too_long_is_said_without_expectations():
    long = ExpectationInfo(triggers=("e" * INFO_BYTES_MAX,))
    info = node(a=ActorInfo(runs=True, wakes=True, slots=2, expectations={"x": long}))

    assert decoded(encoded(info)) == node(a=ActorInfo(runs=True, wakes=True, slots=2))


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b"[]"])
def test_what_cannot_be_read_says_nothing(data):
    assert decoded(data) is None


def test_only_nodes_that_run_an_actor_have_room_for_it():
    two = ActorInfo(runs=True, wakes=False, slots=2)
    three = ActorInfo(runs=True, wakes=True, slots=3)
    shut = ActorInfo(runs=False, wakes=True, slots=9)

    assert capacity([node(a=two), node(a=three), node(a=shut), node(b=two)], "a") == 5


def test_nodes_that_run_an_actor_or_could_have_its_part_and_understudies_have_not():
    def standing_in(*fallbacks: str) -> NodeInfo:
        return replace(node(), closed={"a": 5}, fallbacks=fallbacks)

    runs = ActorInfo(runs=True, wakes=False, slots=2)
    shut = ActorInfo(runs=False, wakes=True, slots=2)
    found = [node(a=runs), node(a=shut), node(b=runs), standing_in(), standing_in("a")]
    assert [has_part([each], "a") for each in found] == [True, False, False, True, False]


def test_an_actor_is_known_with_the_expectations_of_all_nodes_that_have_it():
    def having(name: str) -> ActorInfo:
        return ActorInfo(runs=True, wakes=True, slots=1, expectations={name: ExpectationInfo()})

    nodes = [node(a=having("old")), node(a=having("new"))]

    assert set(known(nodes, "a") or ()) == {"old", "new"}
    assert known(nodes, "b") is None


def test_a_node_says_by_which_revision_of_its_definition_it_runs_an_actor():
    assert actor_info(Actor("a"), BOTH).revision == 0
    assert actor_info(Actor("a", revision=3), BOTH).revision == 3


def test_problems_are_told_in_one_line_each_and_not_without_end():
    many = {f"agent.a{number:03}": f"line\n  {number} " + "x" * 1_000 for number in range(200)}
    told = problems_told(many)
    assert list(told) == [f"agent.a{number:03}" for number in range(PROBLEMS_MAX)]
    assert told["agent.a007"].startswith("line 7 x")
    assert {len(problem) for problem in told.values()} == {PROBLEM_CHARS_MAX}
