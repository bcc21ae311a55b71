"""What an app may be made of, and who gets which tool."""

from __future__ import annotations

import dataclasses
import re

import pytest

from engine.app.actions import Retries
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.checks import Breaker
from engine.app.outputs import OutputAdapter, OutputView, Route
from engine.app.strategy import ConvergeResult, Function, Strategy
from engine.app.triggers import event
from engine.errors import DeclarationError


class Watch(Strategy):
    def init(self, episode, trigger):
        return {}

    def next_step(self, state, ctx):
        raise NotImplementedError

    def converge(self, state, ctx):
        return ConvergeResult()


async def of_the_actor(args, ctx):
    return "actor"


async def of_the_app(args, ctx):
    return "app"


async def think(prompt, transient, ctx):
    return prompt


async def think_again(prompt, transient, ctx):
    return prompt


async def think_best(prompt, transient, ctx):
    return prompt


def actor(id_="monitor", *, expectations=1, synthesizer=None, **values):
    made = Actor(id_, **values)
    for number in range(expectations):
        made.expect(f"x{number}", Watch, on=event("a.b"), synthesizer=synthesizer)
    return made


def laned(**declared):
    made = Actor("monitor", queue_max=5)
    made.expect("x", Watch, on=event("a.b"), **declared)
    return made


@pytest.mark.parametrize(
    "made",
    [
        actor(max_concurrent_cluster=1, queue_max=5),
        actor(overflow="shed_oldest", queue_max=5),
        laned(priority=1),
        laned(concurrency_key="host"),
    ],
)
def test_a_queue_may_be_bounded_where_episodes_wait_for_their_turn(made):
    assert App(actors=[made]).actors["monitor"].queue_max == 5


class Bare(OutputAdapter):
    pass


class Plain(OutputAdapter):
    def deliver(self, output):
        return None


class PlainlyOpened(OutputAdapter):
    def open(self, ports):
        return None

    async def deliver(self, output):
        return None


@pytest.mark.parametrize(
    ("adapter", "why"),
    [
        (Bare(), "'pager': Bare: it has no deliver; write `async def deliver(self, output)`"),
        (Plain(), "'pager': Plain: deliver must be `async def`"),
        (Route(PlainlyOpened()), "'pager': PlainlyOpened: open must be `async def`"),
    ],
)
def test_an_adapter_that_could_deliver_nothing_is_refused_where_it_is_declared(adapter, why):
    with pytest.raises(DeclarationError, match=re.escape(why)):
        App(actors=[actor()], outputs={"pager": adapter})


def test_an_adapter_can_be_tried_with_a_payload_alone():
    assert OutputView(payload={"text": "hi"}).attempt == 1


def test_an_app_knows_its_actors_by_id():
    one, other = actor("one"), actor("other")
    assert App(actors=[one, other]).actors == {"one": one, "other": other}


def test_an_actors_own_tool_comes_before_the_apps():
    app = App(actors=[actor(tools={"disk": of_the_actor})], tools={"disk": of_the_app})
    owner = app.actors["monitor"]
    assert app.tool(owner, "disk", "read") is owner.tools["disk"]


def test_an_app_lends_its_tools_to_every_actor():
    app = App(actors=[actor()], tools={"disk": of_the_app})
    assert app.tool(app.actors["monitor"], "disk", "read") is app.tools["disk"]
    assert app.tool(app.actors["monitor"], "mail", "send") is None


@pytest.mark.parametrize(
    ("expectations", "actors", "nearest"),
    [
        (think_best, think_again, think_best),
        (None, think_again, think_again),
        (None, None, think),
    ],
)
def test_the_nearest_synthesizer_is_the_one(expectations, actors, nearest):
    owner = Actor("monitor", synthesizer=actors)
    expectation = owner.expect("x", Watch, on=event("a.b"), synthesizer=expectations)
    app = App(actors=[owner], synthesizer=think)
    assert app.synthesizer_of(owner, expectation) is nearest


@pytest.mark.parametrize(
    ("values", "named", "field", "problem"),
    [
        ({"actors": [actor(queue_max=5)]}, "monitor", "queue_max", "no episode waits for its turn"),
        (
            {"actors": [actor(overflow="drop", queue_max=5)]},
            "monitor",
            "queue_max",
            'nothing waits with overflow="drop"',
        ),
        (
            {"actors": [laned(priority=1, breaker=Breaker(scope="node"))]},
            "monitor",
            "breaker",
            "leave scope out",
        ),
        ({"actors": ["monitor"]}, "'monitor'", "actors", "is not an Actor"),
        ({"actors": [actor(), actor()]}, "monitor", "id", "declared twice"),
        ({"actors": [actor(expectations=0)]}, "monitor", "expectations", "none; use actor.expect"),
        ({"tools": {"a.b": of_the_app}}, "(all)", "tools", "'a.b': a name without dots"),
        ({"tools": {"disk": None}}, "(all)", "tools", "'disk': None is no tool"),
        ({"synthesizer": 5}, "(all)", "synthesizer", "5 is not a function"),
        ({"resolve_policy": "fail"}, "(all)", "resolve_policy", "'fail' is not a function"),
        ({"node_name": "n1"}, "(all)", "node_name", "'n1' is not a function"),
        ({"actors": 5}, "5", "actors", "is not a list"),
    ],
)
def test_an_impossible_app_is_refused_by_place_and_field(values, named, field, problem):
    with pytest.raises(DeclarationError) as refused:
        App(**{"actors": [actor()], **values})
    assert (refused.value.actor, refused.value.field) == (named, field)
    assert problem in str(refused.value)


async def deliver(output):
    return None


def test_an_output_is_an_adapter_a_function_or_a_route_to_either():
    class Fax(OutputAdapter):
        async def deliver(self, output):
            return None

    fax, route = Fax(), Route(deliver, max_concurrent=2)
    app = App(actors=[actor()], outputs={"fax": fax, "pager": deliver, "mail": route})
    assert app.outputs["fax"].output_adapter is fax
    assert isinstance(app.outputs["pager"].output_adapter, OutputAdapter)
    assert app.outputs["mail"].max_concurrent == 2


@pytest.mark.parametrize(
    ("outputs", "problem"),
    [
        (["fax"], "not a dict"),
        ({"no name": deliver}, "not a name"),
        ({7: deliver}, "a name, please"),
        ({"fax": OutputAdapter}, "is no adapter"),
        ({"fax": lambda output: None}, "is no adapter"),
        ({"fax": Route(7)}, "is no adapter"),
        ({"fax": Route(deliver, timeout_s=0)}, "timeout_s: 0 is not"),
        ({"fax": Route(deliver, max_concurrent=0)}, "max_concurrent: 0 is not"),
        ({"fax": Route(deliver, rate_per_s=float("nan"))}, "rate_per_s: nan is not"),
        ({"fax": Route(deliver, retries=3)}, "retries: 3 is not"),
        ({"fax": Route(deliver, retries=Retries(attempts_max=0))}, "attempts_max: 0 is not"),
        ({"fax": Route(deliver, retries=Retries(first_s=9, most_s=3))}, "most_s=3 is less"),
    ],
)
def test_an_output_that_cannot_work_is_refused_when_the_app_is_declared(outputs, problem):
    with pytest.raises(DeclarationError, match=problem):
        App(actors=[actor()], outputs=outputs)


def test_an_app_without_actors_has_what_definitions_name():
    app = App(strategies={"checks:CheckDisk": Watch})
    assert (dict(app.actors), list(app.strategies)) == ({}, ["checks:CheckDisk"])


async def only_look(_ctx, _trigger):
    return None


def test_an_app_may_have_other_strategies_and_stays_as_it_was():
    app = App(actors=[actor()])
    staging = app.replaced(strategies={"monitor.x0": only_look})
    declared, replaced = (each.actors["monitor"].expectations["x0"] for each in (app, staging))
    assert isinstance(replaced.strategy, Function)
    assert isinstance(declared.strategy, Watch)
    same = {"strategy": declared.strategy, "state_type": declared.state_type}
    assert dataclasses.replace(replaced, **same) == declared


def test_an_app_may_ask_another_synthesizer():
    app = App(actors=[actor()], synthesizer=think)
    staging = app.replaced(synthesizers={"monitor.x0": think_again})
    for each, asked in ((app, think), (staging, think_again)):
        monitor = each.actors["monitor"]
        assert each.synthesizer_of(monitor, monitor.expectations["x0"]) is asked


@pytest.mark.parametrize("place", ["monitor.other", "nobody.x0", "x0", ""])
def test_what_is_replaced_must_be_there(place):
    with pytest.raises(DeclarationError, match=r"no expectation .*; there are: monitor\.x0"):
        App(actors=[actor()]).replaced(strategies={place: only_look})


def test_what_replaces_a_strategy_must_be_one():
    with pytest.raises(DeclarationError, match="is not a Strategy"):
        App(actors=[actor()]).replaced(strategies={"monitor.x0": "cautious"})
