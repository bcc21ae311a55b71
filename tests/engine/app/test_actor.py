"""What an actor may be declared as; every refusal names actor, expectation and field."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields
from inspect import signature

import pytest

from engine.app.actor import Actor, ExpectationOptions
from engine.app.checks import Breaker
from engine.app.conditions import gt
from engine.app.context import StateSchema
from engine.app.dedupe import ByEvent, by_payload, by_value
from engine.app.findings import escalate
from engine.app.strategy import ConvergeResult, Strategy
from engine.app.triggers import Cron, EventSource, Every, event, every, manual, workflow
from engine.errors import DeclarationError
from streams.model.foreign_streams import ForeignStream
from streams.model.service_levels import ServiceLevel
from streams.model.triggers import AdaptiveBudget, Budget


class Watch(Strategy):
    def init(self, episode, trigger):
        return {}

    def next_step(self, state, ctx):
        raise NotImplementedError

    def converge(self, state, ctx):
        return ConvergeResult()


class Half(Strategy):
    def init(self, episode, trigger):
        return {}


class Needy(Watch):
    def __init__(self, limit):
        self.limit = limit


class Unkept(Watch):
    State = int


async def tool(args, ctx):
    return None


ON = event("disk.measured")


def test_an_expectation_has_sensible_defaults():
    expectation = Actor("monitor").expect("limits", Watch, on=ON)
    assert expectation.budget == Budget()
    assert expectation.durability == "pipelined"
    assert expectation.loop_detection
    assert (expectation.sample, expectation.dedupe) == (1.0, ByEvent())
    assert expectation.state_type is dict
    assert isinstance(expectation.strategy, Watch)


@pytest.mark.parametrize("option", fields(ExpectationOptions), ids=lambda option: option.name)
def test_an_option_is_one_field_with_its_check_and_its_default(option):
    assert (option.default, option.default_factory) != (MISSING, MISSING) or option.name == "on"
    with pytest.raises(DeclarationError) as refused:
        Actor("monitor").expect("limits", Watch, **{"on": ON, option.name: object()})
    assert refused.value.field == option.name


def test_whoever_asks_for_the_signature_sees_every_option():
    shown = signature(Actor.expect).parameters
    assert [*shown] == [
        "self",
        "name",
        "strategy",
        *(each.name for each in fields(ExpectationOptions)),
    ]
    assert shown["cooldown_s"].annotation is int


def test_a_strategy_may_be_given_as_an_instance():
    strategy = Needy(3)
    assert Actor("monitor").expect("limits", strategy, on=ON).strategy is strategy


def test_an_actor_listens_to_what_any_of_its_expectations_does():
    actor = Actor("monitor")
    actor.expect("one", Watch, on=event("a.b", "c.d"))
    actor.expect("other", Watch, on=[event("c.d"), event("e.f", "g.h")])
    assert actor.event_names() == {"a.b", "c.d", "e.f", "g.h"}


def test_one_trigger_or_a_list_of_them_is_kept_as_sources():
    actor, other = Actor("monitor"), event("disk.changed", filter={"mount": "/"})
    assert actor.expect("one", Watch, on=ON).on == (ON,)
    assert actor.expect("several", Watch, on=[ON, other]).on == (ON, other)


@pytest.mark.parametrize("sample", [1, 1.0, 0.1, 1e-9, 0])
def test_a_sample_is_a_share_from_0_to_1(sample):
    assert Actor("monitor").expect("limits", Watch, on=ON, sample=sample).sample == sample


def test_no_gate_is_closed_unless_it_is_asked_for():
    expectation = Actor("monitor").expect("limits", Watch, on=ON)
    assert not expectation.is_gated
    assert not expectation.waits_its_turn
    assert expectation.schedules == expectation.foreign_streams == ()


@pytest.mark.parametrize(
    ("on", "options"),
    [
        (every("1h"), {"sample": 0.5, "breaker": Breaker()}),
        ([every("1h"), ON], {"cooldown_s": 1, "dedupe": by_payload()}),
        (event(stream="ORDERS"), {"debounce_s": 1, "max_wait_s": 2, "breaker": Breaker()}),
        (manual(), {"concurrency_key": "host", "priority": 1, "start_within_s": 5}),
    ],
)
def test_an_option_may_be_given_where_something_that_fires_is_asked_it(on, options):
    assert Actor("monitor").expect("limits", Watch, on=on, **options)


def test_what_findings_become_is_declared_by_class():
    steps = [escalate(after="1h", to="high"), escalate(after="2h", to="critical")]
    declared = {"escalation": {"full": steps}, "finding_ttl_s": 60}
    expectation = Actor("monitor").expect("limits", Watch, on=ON, **declared)
    assert expectation.escalation == {"full": tuple(steps)}
    assert expectation.finding_ttl_s == 60
    assert Actor("monitor").expect("limits", Watch, on=ON).escalation == {}


@pytest.mark.parametrize(
    "gate", [{"cooldown_s": 1}, {"debounce_s": 0.5}, {"breaker": Breaker(threshold=1)}]
)
def test_what_the_cluster_must_remember_makes_a_gate(gate):
    assert Actor("monitor").expect("limits", Watch, on=ON, **gate).is_gated


@pytest.mark.parametrize("limit", [{"concurrency_key": "host"}, {"priority": -1}])
def test_whoever_has_an_order_waits_its_turn_and_so_does_its_actor(limit):
    actor = Actor("monitor")
    assert actor.expect("limits", Watch, on=ON, **limit).waits_its_turn
    assert actor.is_laned


@pytest.mark.parametrize(
    ("declared", "is_laned"),
    [
        ({}, False),
        ({"max_concurrent_cluster": 1}, True),
        ({"overflow": "drop"}, True),
        ({"overflow": "shed_oldest", "queue_max": 1}, True),
        ({"overflow": "queue", "queue_max": 5}, False),
    ],
)
def test_a_limit_that_holds_everywhere_makes_lanes(declared, is_laned):
    assert Actor("monitor", **declared).is_laned == is_laned


def test_a_stream_is_listened_to_once_from_where_the_first_says():
    actor = Actor("monitor")
    actor.expect("one", Watch, on=event(stream="ORDERS", subject="a.>", start="all"))
    actor.expect("other", Watch, on=[event(stream="ORDERS", subject="a.>"), event(stream="B")])
    assert actor.foreign_streams() == (
        ForeignStream(stream="ORDERS", subject="a.>", start="all"),
        ForeignStream(stream="B"),
    )
    assert actor.event_names() == frozenset()


def own_key(event):
    return event.id


@pytest.mark.parametrize("dedupe", [by_payload(window="h1"), by_value("order.id"), own_key])
def test_what_makes_two_events_the_same_may_be_chosen(dedupe):
    assert Actor("monitor").expect("limits", Watch, on=ON, dedupe=dedupe).dedupe == dedupe


def test_the_values_of_an_actor_are_kept():
    actor = Actor("monitor", domain="hosts", spec_rev="r7", max_concurrent_episodes=2)
    assert (actor.id, actor.domain, actor.spec_rev, actor.max_concurrent_episodes) == (
        "monitor",
        "hosts",
        "r7",
        2,
    )


@pytest.mark.parametrize(
    ("values", "field", "problem"),
    [
        ({"id": ""}, "id", "'' is not a name"),
        ({"id": "a.b"}, "id", "'a.b' is not a name; use 1 to 64 of A-Z a-z 0-9 _ -"),
        ({"id": "x" * 65}, "id", "is not a name"),
        (
            {"max_concurrent_episodes": 0},
            "max_concurrent_episodes",
            "0 is not a whole number from 1 to 10,000",
        ),
        ({"max_concurrent_episodes": 10_001}, "max_concurrent_episodes", "from 1 to 10,000"),
        ({"max_concurrent_episodes": "5"}, "max_concurrent_episodes", "'5' is not a whole"),
        ({"max_concurrent_episodes": 2.5}, "max_concurrent_episodes", "2.5 is not a whole"),
        ({"max_concurrent_episodes": True}, "max_concurrent_episodes", "True is not a whole"),
        ({"max_concurrent_cluster": 0}, "max_concurrent_cluster", "from 1 to 1,000"),
        ({"max_concurrent_cluster": "3"}, "max_concurrent_cluster", "'3' is not a whole number"),
        ({"overflow": "spill"}, "overflow", "'spill' is not one of queue, drop, shed_oldest"),
        ({"overflow": ["drop"]}, "overflow", "['drop'] is not one of queue, drop, shed_oldest"),
        ({"public_events": "none"}, "public_events", "'none' is not one of all, without_starts"),
        ({"queue_max": 0}, "queue_max", "0 is not a whole number from 1 to 1,000"),
        ({"queue_max": 1_001}, "queue_max", "1001 is not a whole number from 1 to 1,000"),
        ({"domain": 7}, "domain", "7 is not text"),
        ({"spec_rev": 3}, "spec_rev", "3 is not text"),
        ({"spec_rev": None}, "spec_rev", "None is not text"),
        ({"spec_rev": "r\ud800"}, "spec_rev", "is not valid Unicode text"),
        ({"spec_rev": "r" * 513}, "spec_rev", "513 bytes, the limit is 512"),
        ({"synthesizer": 5}, "synthesizer", "5 is not a function"),
        ({"tools": ["disk"]}, "tools", "'disk' is no function with @tool"),
        ({"tools": {7: tool}}, "tools", "7: a name without dots, please"),
        ({"tools": {"a.b": tool}}, "tools", "'a.b': a name without dots, please"),
        ({"tools": {"": tool}}, "tools", "'': a name without dots, please"),
        ({"tools": {"disk": len}}, "tools", "'disk': <built-in function len> is no tool"),
    ],
)
def test_an_impossible_actor_is_refused_by_field(values, field, problem):
    with pytest.raises(DeclarationError) as refused:
        Actor(**{"id": "monitor", **values})
    error = refused.value
    assert (error.actor, error.field) == (values.get("id", "monitor"), field)
    assert problem in str(error)
    assert f"actor {error.actor!r}: {field}: " in str(error)


@pytest.mark.parametrize(
    ("values", "field", "problem"),
    [
        ({"name": ""}, "name", "'' is not a name"),
        ({"name": "a b"}, "name", "'a b' is not a name"),
        ({"name": "taken"}, "name", "declared twice"),
        ({"strategy": Half}, "strategy", "Half lacks next_step, converge"),
        ({"strategy": Needy}, "strategy", "cannot be made without arguments"),
        ({"strategy": dict}, "strategy", "is not a Strategy; give a subclass of Strategy"),
        (
            {"strategy": "Watch"},
            "strategy",
            "'Watch' is not a Strategy; give a subclass",
        ),
        ({"strategy": Unkept}, "strategy", "State: <class 'int'> cannot be kept"),
        ({"on": "disk.measured"}, "on", "'disk.measured' is not a trigger"),
        ({"on": None}, "on", "None is not a trigger"),
        ({"on": []}, "on", "0 triggers; give 1 to 64"),
        ({"on": [ON, "a.b"]}, "on", "'a.b' is not a trigger; use event('some.name')"),
        ({"on": EventSource(("a.b",), {"x": gt(None)})}, "on", "filter: 'x': gt(None): compare"),
        ({"on": manual}, "on", "a trigger must be called, as in manual()"),
        ({"on": every}, "on", "a trigger must be called, as in every('15m')"),
        ({"on": Cron("61 * * * *")}, "on", "cron(): expression: '61 * * * *': Bad minute; write"),
        ({"on": Every(1, "most")}, "on", "catch_up: 'most' is not one of skip, one, all"),
        (
            {"on": EventSource((), {}, ForeignStream(stream="a b"))},
            "on",
            "'a b' is not a stream; use 1 to",
        ),
        ({"cooldown_s": -1}, "cooldown_s", "-1 is not a whole number of seconds, such as 60, up"),
        ({"cooldown_s": 1.5}, "cooldown_s", "1.5 is not a whole number of seconds"),
        ({"cooldown_s": "1m"}, "cooldown_s", "'1m' is not a whole number of seconds, such as 60"),
        ({"cooldown_s": True}, "cooldown_s", "True is not a whole number of seconds"),
        ({"cooldown_s": 2_678_401}, "cooldown_s", "such as 60, up to 2,678,400"),
        ({"debounce_s": -0.1}, "debounce_s", "-0.1 is not a number of seconds, such as 3 or 0.5"),
        ({"debounce_s": "3s"}, "debounce_s", "'3s' is not a number of seconds, such as 3 or 0.5"),
        ({"debounce_s": math.nan}, "debounce_s", "nan is not a number of seconds"),
        ({"debounce_s": math.inf}, "debounce_s", "inf is not a number of seconds"),
        ({"debounce_s": None}, "debounce_s", "None is not a number of seconds"),
        ({"max_wait_s": 5}, "max_wait_s", "bounds debounce_s, and there is none"),
        ({"debounce_s": 3, "max_wait_s": 2}, "max_wait_s", "2 is less than debounce_s=3"),
        ({"debounce_s": 3, "max_wait_s": "9"}, "max_wait_s", "'9' is not a number of seconds"),
        ({"breaker": 5}, "breaker", "5 is not a Breaker(threshold=…, half_open_after_s=…)"),
        ({"breaker": Breaker(threshold=0)}, "breaker", "threshold=0 is not a whole number from 1"),
        ({"breaker": Breaker(half_open_after_s=0)}, "breaker", "half_open_after_s=0 is not a"),
        ({"breaker": Breaker(scope="actor")}, "breaker", "'actor' is not one of cluster, node"),
        ({"adaptive_budget": 5}, "adaptive_budget", "5 is not an AdaptiveBudget(turns=(…, …)"),
        ({"adaptive_budget": AdaptiveBudget()}, "adaptive_budget", "it has no bounds; give them"),
        (
            {"adaptive_budget": AdaptiveBudget(turns=12)},
            "adaptive_budget",
            "turns=12 is not two numbers: a lower and an upper bound",
        ),
        (
            {"adaptive_budget": AdaptiveBudget(tokens=(0, 9))},
            "adaptive_budget",
            "tokens=(0, 9) are not two numbers over 0",
        ),
        (
            {"adaptive_budget": AdaptiveBudget(turns=(1.5, 20))},
            "adaptive_budget",
            "turns=(1.5, 20) are not two numbers over 0",
        ),
        (
            {"adaptive_budget": AdaptiveBudget(wall_s=(300, 60))},
            "adaptive_budget",
            "wall_s=(300, 60): the lower bound is over the upper one",
        ),
        (
            {"adaptive_budget": AdaptiveBudget(turns=(2, 40), percentile=95)},
            "adaptive_budget",
            "percentile=95 is not a share",
        ),
        (
            {"adaptive_budget": AdaptiveBudget(turns=(2, 40), headroom=0.5)},
            "adaptive_budget",
            "headroom=0.5 is not a number from 1 to 100",
        ),
        (
            {"adaptive_budget": AdaptiveBudget(turns=(20, 40))},
            "adaptive_budget",
            "turns=(20, 40): the 12 of budget, which applies at first, is not within these bounds",
        ),
        (
            {"adaptive_budget": AdaptiveBudget(turns=(2, 40)), "budget": Budget(turns=0)},
            "adaptive_budget",
            "turns=(2, 40): the 0 of budget, which applies at first",
        ),
        ({"service_level": 5}, "service_level", "5 is not a ServiceLevel(start_s=…, end_s=…)"),
        (
            {"service_level": ServiceLevel(start_s=-1)},
            "service_level",
            "start_s=-1 is not a number",
        ),
        (
            {"service_level": ServiceLevel(end_s="1m")},
            "service_level",
            "end_s='1m' is not a number",
        ),
        (
            {"service_level": ServiceLevel(start_s=9, end_s=3)},
            "service_level",
            "start_s=9 is over end_s=3: it ends after it starts",
        ),
        ({"service_level": ServiceLevel(success=0)}, "service_level", "success=0 is not a share"),
        ({"service_level": ServiceLevel(success=99)}, "service_level", "success=99 is not a share"),
        ({"service_level": ServiceLevel(window=0)}, "service_level", "window=0 is not a whole"),
        (
            {"on": manual(), "cooldown_s": 5},
            "cooldown_s",
            "is for events, and none fires it; leave",
        ),
        ({"on": every("1h"), "cooldown_s": 5}, "cooldown_s", "is for events, and none fires it"),
        ({"on": every("1h"), "debounce_s": 5}, "debounce_s", "is for events, and none fires it"),
        ({"on": every("1h"), "dedupe": by_payload()}, "dedupe", "is for events, and none fires it"),
        ({"on": manual(), "sample": 0.5}, "sample", "is for events and ticks, and none fires it"),
        ({"on": workflow(), "breaker": Breaker()}, "breaker", "is for events and ticks, and none"),
        ({"concurrency": 2}, "concurrency", "counts by concurrency_key, and there is none"),
        (
            {"concurrency": 0, "concurrency_key": "host"},
            "concurrency",
            "0 is not a whole number from 1 to 1,000",
        ),
        ({"concurrency_key": 5}, "concurrency_key", "5 is not text"),
        ({"concurrency_key": "a..b"}, "concurrency_key", "'a..b' is not a path; use words joined"),
        ({"subject_key": ".host"}, "subject_key", "'.host' is not a path; use words joined by"),
        ({"priority": 1_001}, "priority", "1001 is not a whole number from -1,000 to 1,000"),
        ({"priority": "high"}, "priority", "'high' is not a whole number from -1,000 to 1,000"),
        ({"start_within_s": -1}, "start_within_s", "-1 is not a number of seconds"),
        ({"start_within_s": "1m"}, "start_within_s", "'1m' is not a number of seconds, such as 3"),
        ({"dry_run": {}}, "dry_run", "{}"),
        ({"dedupe": by_payload("a..b")}, "dedupe", "'a..b' is not a path"),
        ({"sample": 1.01}, "sample", "1.01 is not a share: a number from 0 to 1"),
        ({"sample": -0.1}, "sample", "-0.1 is not a share"),
        ({"sample": math.nan}, "sample", "nan is not a share"),
        ({"sample": "10%"}, "sample", "'10%' is not a share"),
        ({"sample": True}, "sample", "True is not a share"),
        ({"sample": None}, "sample", "None is not a share"),
        ({"dedupe": "order.id"}, "dedupe", "'order.id' is no rule; use by_value('order.id')"),
        ({"dedupe": by_value}, "dedupe", "by_value must be called"),
        ({"dedupe": by_value("a", window="h3")}, "dedupe", "window 'h3' is not one of m1, m5,"),
        ({"budget": 12}, "budget", "12 is not a Budget(turns=…, tokens=…, wall_s=…, usd=…)"),
        ({"budget": Budget(turns="5")}, "budget", "turns='5' is not a whole number"),
        ({"budget": Budget(turns=1e6)}, "budget", "turns=1000000.0 is not a whole number; use 0"),
        ({"budget": Budget(turns=12.5)}, "budget", "turns=12.5 is not a whole number"),
        ({"budget": Budget(turns=2**31)}, "budget", "turns=2147483648 is over 2,147,483,647"),
        ({"budget": Budget(turns=-1)}, "budget", "turns=-1 is below 0; use 0 for no limit"),
        ({"budget": Budget(tokens=-(2**70))}, "budget", "is below 0; use 0 for no limit"),
        ({"budget": Budget(wall_s=-0.5)}, "budget", "wall_s=-0.5 is below 0; use 0 for no limit"),
        ({"budget": Budget(wall_s=math.inf)}, "budget", "wall_s=inf is not a number of seconds"),
        ({"budget": Budget(wall_s=math.inf)}, "budget", "use 0 for no limit"),
        ({"budget": Budget(wall_s=math.nan)}, "budget", "wall_s=nan is not a number of seconds"),
        (
            {"budget": Budget(usd="x")},
            "budget",
            "usd='x' is no sum of dollars; write it as \"0.50\"",
        ),
        ({"budget": Budget(usd=-1)}, "budget", "usd=-1 is not from 0 to 1,000,000,000 dollars"),
        ({"budget": Budget(usd=math.nan)}, "budget", "usd=nan is no sum of dollars"),
        ({"budget": Budget(usd="1e-13")}, "budget", "has more than 12 digits behind the point"),
        ({"budget": Budget(wall_s="60")}, "budget", "wall_s='60' is not a number of seconds"),
        ({"subject_key": ["host"]}, "subject_key", "['host'] is not text"),
        ({"attempts_max": "3"}, "attempts_max", "'3' is not a whole number from 1"),
        ({"attempts_max": 0}, "attempts_max", "0 is not a whole number from 1"),
        ({"attempts_max": 1.5}, "attempts_max", "1.5 is not a whole number"),
        ({"loop_detection": "no"}, "loop_detection", "'no' is not True or False"),
        ({"synthesizer": "gpt"}, "synthesizer", "'gpt' is not a function"),
        ({"finding_ttl_s": -1}, "finding_ttl_s", "-1 is not a number of seconds"),
        ({"finding_ttl_s": 1e9}, "finding_ttl_s", "up to 315,360,000"),
        ({"escalation": {"full": []}}, "escalation", "'full': [] is not a list of escalate"),
        ({"enrich": "look"}, "enrich", "'look' is not a function"),
        ({"recovery": ["resume"]}, "recovery", "['resume'] is not one of"),
        ({"state_schema": StateSchema(version="2")}, "state_schema", "version '2' is not a whole"),
        ({"on": EventSource(names=5)}, "on", "names=5"),
        ({"name": 7}, "name", "7 is not a name"),
        ({"budget": Budget(tokens=None)}, "budget", "tokens=None is not a whole number"),
        ({"budget": Budget(wall_s=True)}, "budget", "wall_s=True is not a number of seconds"),
        ({"description": 7}, "description", "7 is not text"),
        ({"description": "é" * 1_001}, "description", "2,002 bytes, the limit is 2,000"),
        ({"outputs": "slack"}, "outputs", "'slack' is not a list of texts"),
        ({"resources": ["db"] * 51}, "resources", "51 of them, the limit is 50"),
        ({"resources": [None]}, "resources", "None is not text"),
        ({"audit_level": "x" * 513}, "audit_level", "513 bytes, the limit is 512"),
        ({"durability": "fast"}, "durability", "'fast' is not one of pipelined, strict"),
    ],
)
def test_an_impossible_expectation_is_refused_by_place_and_field(values, field, problem):
    actor = Actor("monitor")
    actor.expect("taken", Watch, on=ON)
    asked = {"name": "limits", "strategy": Watch, "on": ON, **values}
    with pytest.raises(DeclarationError) as refused:
        actor.expect(asked.pop("name"), asked.pop("strategy"), **asked)
    error = refused.value
    name = values.get("name", "limits")
    assert (error.actor, error.expectation, error.field) == ("monitor", name, field)
    assert problem in str(error)
    assert list(actor.expectations) == ["taken"]


@pytest.mark.parametrize(
    "budget", [Budget(turns=0, tokens=0, wall_s=0), Budget(wall_s=60), Budget(wall_s=0.5)]
)
def test_a_limit_may_be_none_and_seconds_may_be_whole(budget):
    assert Actor("monitor").expect("limits", Watch, on=ON, budget=budget).budget == budget
