"""An agent as data is the same actor as the one declared in Python, option by option."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime

import msgspec
import pytest

from engine.app.actions import approval
from engine.app.actor import Actor, Expectation
from engine.app.app import App
from engine.app.checks import Breaker
from engine.app.conditions import all_of, between, exists, ge, gt, in_, le, lt, missing, ne
from engine.app.dedupe import by_event, by_payload, by_value
from engine.app.findings import escalate
from engine.app.strategy import ConvergeResult, Function, Strategy
from engine.app.tools import Failure, overrides
from engine.app.triggers import cron, event, every, manual, workflow
from engine.definitions import agent_of, canonical, to_actor
from engine.definitions.agent import (
    CODE_ONLY,
    AgentDefinition,
    ExpectationDefinition,
    OverridesDefinition,
)
from engine.errors import BadDefinition
from engine.templates.classify import observe_classify_converge
from streams.model.money import Spending
from streams.model.retention import Retention
from streams.model.service_levels import ServiceLevel
from streams.model.triggers import AdaptiveBudget, Budget, Overrides


class Watch(Strategy):
    def init(self, episode, trigger):
        return {}

    def next_step(self, state, ctx):
        raise NotImplementedError

    def converge(self, state, ctx):
        return ConvergeResult()


WATCH = Watch()
REF = {"ref": "checks:Watch"}
CONFIG = {"gatherer": "metrics", "rules": [{"when": {"a": 1}, "class": "b"}]}


async def metrics(payload, options):
    return {}


async def page(output):
    return None


async def check_metrics(ctx, trigger):
    return None


def raises_key_error(config):
    return config["missing"]


def app():
    actor = Actor("coded")
    actor.expect("x", WATCH, on=manual())
    return App(
        actors=[actor],
        gatherers={"metrics": metrics},
        tools={"mail": {"send": metrics}},
        outputs={"pager": page},
        templates={
            "watch": lambda config: WATCH,
            "broken": raises_key_error,
            "none": dict,
            "watched": lambda config: check_metrics,
        },
        strategies={"checks:Watch": WATCH, "checks:check_metrics": check_metrics},
    )


def defined(actor=None, **expectation):
    said = {"strategy": REF, "on": {"event": "a.b"}, **expectation}
    return agent_of({"id": "monitor", **(actor or {}), "expectations": {"x": said}})


def declared(actor=None, **expectation):
    made = Actor("monitor", **(actor or {}))
    made.expect("x", WATCH, **{"on": event("a.b"), **expectation})
    return made


OF_EXPECTATIONS = {  # option: (as data, as code, what must be said besides)
    "on": ({"event": "c.d"}, event("c.d"), {}),
    "subject_key": ("order.id", "order.id", {}),
    "cooldown_s": (60, 60, {}),
    "overlap": ("skip", "skip", {}),
    "debounce_s": (0.5, 0.5, {}),
    "max_wait_s": (9, 9, {"debounce_s": 3}),
    "breaker": (
        {"threshold": 2, "half_open_after_s": 5, "scope": "node", "cancel_in_flight": True},
        Breaker(threshold=2, half_open_after_s=5, scope="node", cancel_in_flight=True),
        {},
    ),
    "sample": (0.1, 0.1, {}),
    "concurrency_key": ("host", "host", {}),
    "concurrency": (2, 2, {"concurrency_key": "host"}),
    "priority": (-5, -5, {}),
    "start_within_s": (30, 30, {}),
    "replay": ("strict", "strict", {}),
    "park_s": (60, 60, {}),
    "dedupe": ({"by": "value", "path": "id", "window": "h1"}, by_value("id", window="h1"), {}),
    "dry_run": (
        {
            "tools": {"mail.send": {"id": 7}},
            "failures": {"synthesis": {"error_class": "busy"}},
            "persist_findings": "trial",
        },
        overrides(
            tools={"mail.send": {"id": 7}}, synthesis=Failure("busy"), persist_findings="trial"
        ),
        {},
    ),
    "budget": (
        {"turns": 3, "tokens": 0, "wall_s": 5, "usd": 0.5},
        Budget(turns=3, tokens=0, wall_s=5.0, usd="0.50"),
        {},
    ),
    "adaptive_budget": (
        {"turns": [4, 40], "wall_s": [1.5, 900], "headroom": 2.0},
        AdaptiveBudget(turns=(4, 40), wall_s=(1.5, 900.0), headroom=2.0),
        {},
    ),
    "service_level": (
        {"start_s": 5, "end_s": 60, "success": 0.9, "window": 20},
        ServiceLevel(start_s=5, end_s=60, success=0.9, window=20),
        {},
    ),
    "on_exhausted": (
        {"grant": {"usd": "0.50"}, "approvers": ["ann"], "expires_s": 60, "summary": "More?"},
        approval({"usd": "0.50"}, approvers=["ann"], expires_s=60, summary="More?"),
        {},
    ),
    "durability": ("strict", "strict", {}),
    "log_strategy": ("timeline", "timeline", {}),
    "loop_detection": (False, False, {}),
    "recovery": ("restart", "restart", {}),
    "attempts_max": (7, 7, {}),
    "description": ("Disks have room.", "Disks have room.", {}),
    "outputs": (["slack", "ticket"], ["slack", "ticket"], {}),
    "resources": (["hosts"], ["hosts"], {}),
    "audit_level": ("strict", "strict", {}),
    "finding_ttl_s": (3600, 3600, {}),
    "escalation": (
        {"full": [{"after": "30m", "to": "high"}, {"after": 7200, "to": "critical"}]},
        {"full": [escalate(after="30m", to="high"), escalate(after=7200, to="critical")]},
        {},
    ),
}
OF_ACTORS = {
    "domain": ("hosts", {}),
    "description": ("Watches hosts.", {}),
    "spec_rev": ("7", {}),
    "max_concurrent_episodes": (9, {}),
    "max_concurrent_cluster": (20, {}),
    "overflow": ("shed_oldest", {}),
    "queue_max": (5, {"overflow": "shed_oldest"}),
    "public_events": ("without_starts", {}),
    "stacks": (["orders", "orders-qa"], {}),
    "capabilities": (["gather"], {}),
    "spending": ([Spending(usd="5.00", per="month")], {}),
    "retention": (Retention(done="30d", findings="90d"), {}),
}


def options_of(function):
    return inspect.signature(function).parameters.keys() - {"self", "name"}


def test_a_definition_has_every_option_of_an_expectation_that_is_no_code():
    assert ExpectationDefinition.model_fields.keys() | CODE_ONLY == options_of(Actor.expect)
    assert OF_EXPECTATIONS.keys() | {"strategy"} == ExpectationDefinition.model_fields.keys()


def test_a_definition_has_every_option_of_an_actor_that_is_no_code():
    options = options_of(Actor.__init__) - {"tools", "synthesizer", "revision"}
    assert AgentDefinition.model_fields.keys() == options | {"expectations"}
    assert OF_ACTORS.keys() | {"id", "expectations"} == AgentDefinition.model_fields.keys()


def test_overrides_have_all_their_fields():
    names = [field.name for field in msgspec.structs.fields(Overrides)]
    assert [*OverridesDefinition.model_fields] == names


def test_what_is_not_said_is_as_by_default_in_code():
    assert to_actor(defined(), app()) == declared()


@pytest.mark.parametrize("option", OF_EXPECTATIONS)
def test_an_option_of_an_expectation_means_what_it_means_in_code(option):
    data, code, besides = OF_EXPECTATIONS[option]
    made = to_actor(defined(**{**besides, option: data}), app())
    assert made == declared(**{**besides, option: code})
    assert made != to_actor(defined(**besides), app())


def test_people_are_asked_by_a_word_as_in_code():
    asks = to_actor(defined(on_exhausted="ask"), app())
    assert asks == declared(on_exhausted="ask") == to_actor(defined(on_exhausted={}), app())


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("ask", "ask"),
        ({}, "ask"),
        ({"grant": {"turns": 5}, "summary": ""}, {"grant": {"turns": 5}}),
    ],
)
def test_a_question_is_kept_as_people_write_it(written, kept):
    body = msgspec.json.decode(canonical(defined(on_exhausted=written)))
    (expectation,) = body["expectations"].values()
    assert expectation["on_exhausted"] == kept
    assert canonical(agent_of(body)) == canonical(defined(on_exhausted=written))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("nobody", r"on_exhausted: write ask, or an object"),
        ({"grants": 1}, r"on_exhausted\.grants: there is no such field"),
        ({"expires_s": -1}, r"on_exhausted: expires_s: -1"),
        ({"grant": {"usd": "lots"}}, r"on_exhausted\.grant: .* is no sum of dollars"),
        (
            {"grant": {"turn": 5}},
            r"on_exhausted\.grant: 'turn' cannot be granted; did you mean turns",
        ),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused(wrong, why):
    with pytest.raises(BadDefinition, match=why):
        to_actor(defined(on_exhausted=wrong), app())


def test_sums_of_dollars_are_written_as_numbers_or_as_text():
    bounds = {"usd": ["0.10", 2.5]}
    made = to_actor(defined(budget={"usd": "0.50"}, adaptive_budget=bounds), app())
    assert made == declared(
        budget=Budget(usd=0.5), adaptive_budget=AdaptiveBudget(usd=(0.1, "2.50"))
    )


@pytest.mark.parametrize("option", OF_ACTORS)
def test_an_option_of_an_actor_means_what_it_means_in_code(option):
    value, besides = OF_ACTORS[option]
    data = msgspec.to_builtins(value)
    made = to_actor(defined({**besides, option: data}), app())
    assert made == declared({**besides, option: value})
    assert made != to_actor(defined(), app())


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({"event": ["a.b", "c.d"]}, event("a.b", "c.d")),
        (
            {"stream": "ORDERS", "subject": "orders.>", "start": "all"},
            event(stream="ORDERS", subject="orders.>", start="all"),
        ),
        ({"stream": "ORDERS", "start": 7}, event(stream="ORDERS", start=7)),
        (
            {"stream": "ORDERS", "start": "2030-01-01T00:00:00Z", "filter": {"a": 1}},
            event(stream="ORDERS", start=datetime(2030, 1, 1, tzinfo=UTC), filter={"a": 1}),
        ),
        (
            {"every": "15m", "catch_up": "all", "window": "h1"},
            every("15m", catch_up="all", window="h1"),
        ),
        ({"every": 90}, every(90)),
        (
            {"cron": "@daily", "payload": {"service": "shop"}},
            cron("@daily", payload={"service": "shop"}),
        ),
        (
            {"cron": "0 9 * * MON-FRI", "tz": "Europe/Berlin", "catch_up": "skip"},
            cron("0 9 * * MON-FRI", tz="Europe/Berlin", catch_up="skip"),
        ),
        ({"manual": True}, manual()),
        ({"workflow": True}, workflow()),
        ([{"event": "a.b"}, {"every": "1h"}], [event("a.b"), every("1h")]),
    ],
)  # fmt: skip
def test_every_trigger_can_be_said(data, code):
    assert to_actor(defined(on=data), app()) == declared(on=code)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ("paid", "paid"),
        (None, None),
        (["new", 7], ["new", 7]),
        ({"eq": {"a": 1}}, {"a": 1}),
        ({"eq": [1]}, in_([1])),
        ({"neq": "test"}, ne("test")),
        ({"gt": 1}, gt(1)),
        ({"gte": "2030"}, ge("2030")),
        ({"lt": 1.5}, lt(1.5)),
        ({"lte": 1}, le(1)),
        ({"in": ["a", "b"]}, in_("a", "b")),
        ({"between": [1, 9]}, between(1, 9)),
        ({"exists": True}, exists()),
        ({"exists": False}, missing()),
        ({"gt": 0, "neq": 404}, all_of(gt(0), ne(404))),
    ],
)
def test_every_condition_of_a_filter_can_be_said(data, code):
    made = to_actor(defined(on={"event": "a.b", "filter": {"order.x": data}}), app())
    assert made == declared(on=event("a.b", filter={"order.x": code}))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({}, by_event()),
        ({"by": "event"}, by_event()),
        ({"by": "payload"}, by_payload()),
        (
            {"by": "payload", "paths": ["a", "b.c"], "window": "m5"},
            by_payload("a", "b.c", window="m5"),
        ),
        ({"by": "value", "path": "a"}, by_value("a")),
    ],
)  # fmt: skip
def test_what_makes_two_events_the_same_can_be_said(data, code):
    assert to_actor(defined(dedupe=data), app()) == declared(dedupe=code)


def test_a_template_is_made_of_its_configuration():
    definition = defined(strategy={"template": "observe_classify_converge", "config": CONFIG})
    strategy = to_actor(definition, app()).expectations["x"].strategy
    assert isinstance(strategy, type(observe_classify_converge(CONFIG)))
    assert strategy.config == observe_classify_converge(CONFIG).config


def test_a_template_of_the_app_is_one_like_any_other():
    definition = defined(strategy={"template": "watch", "config": {"any": [1]}})
    assert to_actor(definition, app()).expectations["x"].strategy is WATCH


def test_a_template_that_asks_for_tools_gets_those_of_the_app():
    given = []

    def with_tools(config, tools):
        given.append(tools)
        return WATCH

    with_template = App(tools={"mail": {"send": metrics}}, templates={"with_tools": with_tools})
    definition = defined(strategy={"template": "with_tools"})
    to_actor(definition, with_template)
    to_actor(definition, with_template, here=False)
    assert [tools and list(tools) for tools in given] == [["mail"], None]


@pytest.mark.parametrize("option", OF_EXPECTATIONS)
def test_a_definition_survives_its_canonical_form(option):
    data, _, besides = OF_EXPECTATIONS[option]
    definition = defined(**{**besides, option: data})
    again = agent_of(msgspec.json.decode(canonical(definition)))
    assert again == definition
    assert canonical(again) == canonical(definition)


def test_equal_definitions_have_one_canonical_form():
    said = defined({"domain": "default"}, cooldown_s=0, on=[{"event": ["a.b"]}], dedupe={})
    assert canonical(said) == canonical(defined())
    assert msgspec.json.decode(canonical(said)) == {
        "id": "monitor",
        "expectations": {"x": {"on": [{"event": ["a.b"]}], "strategy": REF}},
    }


@pytest.mark.parametrize("strategy", [{"ref": "checks:check_metrics"}, {"template": "watched"}])
def test_a_function_is_what_an_expectation_runs(strategy):
    made = to_actor(defined(strategy=strategy), app())

    assert made.expectations["x"].strategy == Function(check_metrics)


WRONG = [  # path, what is said
    ("expectations.x.cooldown", "there is no such field", {"cooldown": 5}),
    ("expectations.x.cooldown_s", "write a whole number, not 1.5", {"cooldown_s": 1.5}),
    ("expectations.x.cooldown_s", "write a whole number, not '60'", {"cooldown_s": "60"}),
    ("expectations.x.cooldown_s", "-1 is not", {"cooldown_s": -1}),
    ("expectations.x.loop_detection", "write true or false", {"loop_detection": 1}),
    ("expectations.x.recovery", "write 'resume', 'restart' or 'fail'", {"recovery": "again"}),
    ("expectations.x.sample", "not a share", {"sample": 2}),
    ("expectations.x.max_wait_s", "bounds debounce_s", {"max_wait_s": 3}),
    ("expectations.x.subject_key", "is not a path", {"subject_key": "a..b"}),
    ("expectations.x.budget.turns", "write a whole number", {"budget": {"turns": "x"}}),
    ("expectations.x.budget.turn", "turns, tokens, wall_s, usd", {"budget": {"turn": 1}}),
    ("expectations.x.budget.usd", "write a number", {"budget": {"usd": "x"}}),
    ("expectations.x.breaker", "threshold=0", {"breaker": {"threshold": 0}}),
    ("expectations.x.breaker.scope", "'cluster' or 'node'", {"breaker": {"scope": "world"}}),
    ("expectations.x.dedupe.by", "event, payload, value", {"dedupe": {"by": "id"}}),
    ("expectations.x.dedupe.path", "leave it out", {"dedupe": {"path": "a"}}),
    ("expectations.x.dedupe", "not a path", {"dedupe": {"by": "value", "path": ""}}),
    ("expectations.x.dry_run", "tools: 'mail'", {"dry_run": {"tools": {"mail": 1}}}),
    ("expectations.x.escalation.a.0", "not one of medium",
     {"escalation": {"a": [{"after": 5, "to": "low"}]}}),
    ("expectations.x.escalation", "later and worse",
     {"escalation": {"a": [{"after": 5, "to": "high"}, {"after": 4, "to": "critical"}]}}),
    ("expectations.x.escalation", "at most 3",
     {"escalation": {"a": [{"after": 5, "to": "high"}] * 4}}),
    ("expectations.x.on", "at least one", {"on": []}),
    ("expectations.x.on", "write a list", {"on": "a.b"}),
    ("expectations.x.on.0", "write one of event, stream", {"on": {}}),
    ("expectations.x.on.0", "write one of event, stream", {"on": {"event": "a", "every": 5}}),
    ("expectations.x.on.0.tz", "nothing to 'event'", {"on": {"event": "a", "tz": "UTC"}}),
    ("expectations.x.on.0.payload", "nothing to 'event'", {"on": {"event": "a", "payload": {}}}),
    ("expectations.x.on.0.filter", "nothing to 'every'", {"on": {"every": 5, "filter": {}}}),
    ("expectations.x.on.0", "interval: '5'", {"on": {"every": "5"}}),
    ("expectations.x.on.0", "tz: 'Mars'", {"on": {"cron": "@daily", "tz": "Mars"}}),
    ("expectations.x.on.0", "start: write new", {"on": {"stream": "A", "start": "soon"}}),
    ("expectations.x.on.0", "start: write new", {"on": {"stream": "A", "start": True}}),
    ("expectations.x.on.1", "event name: 'a b'", {"on": [{"event": "a"}, {"event": "a b"}]}),
    ("expectations.x.on.0", "filter: 'a': there is no 'ge'",
     {"on": {"event": "a", "filter": {"a": {"ge": 1}}}}),
    ("expectations.x.on.0", "filter: 'a': write an operator",
     {"on": {"event": "a", "filter": {"a": {}}}}),
    ("expectations.x.on.0", "filter: 'a..b'", {"on": {"event": "a", "filter": {"a..b": 1}}}),
    ("expectations.x.strategy", "write either template", {"strategy": {}}),
    ("expectations.x.strategy", "write either template",
     {"strategy": {"ref": "a", "template": "b"}}),
    ("expectations.x.strategy.config", "leave it out", {"strategy": {**REF, "config": {"a": 1}}}),
    ("expectations.x.strategy.ref", "there is no 'os:system'; App(strategies=…) has checks:Watch",
     {"strategy": {"ref": "os:system"}}),
    ("expectations.x.budget", "turns=-1 is below 0; use 0 for no limit",
     {"budget": {"turns": -1}}),
    ("expectations.x.strategy.template", "has agentic_task, broken, dispatch",
     {"strategy": {"template": "observe"}}),
    ("expectations.x.strategy.config.rules.0.class", "write a text, not 5",
     {"strategy": {"template": "observe_classify_converge",
                   "config": {**CONFIG, "rules": [{"when": {"a": 1}, "class": 5}]}}}),
    ("expectations.x.strategy.config", "KeyError: 'missing'", {"strategy": {"template": "broken"}}),
    ("expectations.x.strategy", "is not a Strategy", {"strategy": {"template": "none"}}),
    ("expectations.x.strategy", "no gatherer is called 'absent'",
     {"strategy": {"template": "observe_classify_converge",
                   "config": {**CONFIG, "gatherer": "absent"}}}),
    ("expectations.x.strategy.config.outputs.1.adapter",
     "no output is called 'pagr'; App(outputs=…) has pager",
     {"strategy": {"template": "observe_classify_converge",
                   "config": {**CONFIG, "outputs": [{"adapter": "pager", "payload": 1},
                                                    {"adapter": "pagr", "payload": 1}]}}}),
    ("expectations.x.strategy.config.outputs.0.payload.to.1", "{hsot} is no placeholder",
     {"strategy": {"template": "observe_classify_converge",
                   "config": {**CONFIG, "outputs": [
                       {"adapter": "pager", "payload": {"to": ["ann", "{hsot}"]}}]}}}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "problem", "said"), WRONG)
def test_what_cannot_work_is_told_in_one_line_with_its_path(path, problem, said):
    with pytest.raises(BadDefinition) as refused:
        to_actor(defined(**said), app())
    assert refused.value.path == path
    assert problem in refused.value.problem
    assert str(refused.value) == f"{path}: {refused.value.problem}"
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("path", "problem", "said"),
    [
        ("", "write an object, not []", []),
        ("id", "write it", {}),
        ("id", "is no name of an actor", {"id": "a b"}),
        ("id", "is no name of an actor", {"id": "x" * 65}),
        ("actor", "there is no such field", {"actor": "monitor"}),
        ("expectations", "at least one", {"expectations": {}}),
        ("expectations", "is no name of an expectation", {"expectations": {"a b": {}}}),
        ("max_concurrent_episodes", "0 is not", {"max_concurrent_episodes": 0}),
        ("queue_max", "no episode waits for its turn", {"queue_max": 7}),
        ("overflow", "'queue', 'drop' or 'shed_oldest'", {"overflow": "wait"}),
        ("domain", "the limit is 512", {"domain": "x" * 513}),
    ],
)
def test_so_is_what_an_actor_cannot_be(path, problem, said):
    expectation = {"strategy": REF, "on": {"event": "a.b"}}
    whole = {"id": "monitor", "expectations": {"x": expectation}, **dict(said)} if said else said
    if "expectations" in dict(said) and said["expectations"]:
        whole["expectations"] = dict.fromkeys(said["expectations"], expectation)
    with pytest.raises(BadDefinition) as refused:
        to_actor(agent_of(whole), app())
    assert refused.value.path == path
    assert problem in refused.value.problem


def test_a_definition_has_room_for_a_hundred_expectations_and_no_more():
    expectation = {"strategy": REF, "on": {"event": "a.b"}}
    many = {f"x{number}": expectation for number in range(101)}
    with pytest.raises(BadDefinition, match="at most 100"):
        agent_of({"id": "monitor", "expectations": many})


def test_what_is_compared_is_all_that_an_expectation_holds():
    assert Expectation.__dataclass_fields__.keys() - {"name", "state_type"} == options_of(
        Actor.expect
    )
