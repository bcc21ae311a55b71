"""Gatherers, templates and strategies that an app registers."""

from __future__ import annotations

import pytest

from engine.app.actor import Actor
from engine.app.app import App
from engine.app.strategy import BUILT_IN_TEMPLATES, ConvergeResult, Strategy
from engine.app.tools import CallContext, Gathering, ToolFailed, gather
from engine.app.triggers import manual
from engine.errors import DeclarationError
from engine.templates import BUILT_IN

CTX = CallContext(actor_id="a", expectation_id="x", episode_id="e", step_no=1, idempotency_key="k")


class Watch(Strategy):
    def init(self, episode, trigger):
        return {}

    def next_step(self, state, ctx):
        raise NotImplementedError

    def converge(self, state, ctx):
        return ConvergeResult()


async def metrics(payload, options):
    return [payload, options]


def plain(payload, options):
    return {}


def app(*, tools=None, **registered):
    actor = Actor("monitor", tools=tools)
    actor.expect("x", Watch, on=manual())
    return App(actors=[actor], **registered)


def test_what_an_app_registers_is_found_by_name():
    made = app(
        gatherers={"metrics": metrics},
        templates={"watch": lambda config: Watch()},
        strategies={"checks:Watch": Watch},
    )
    assert made.gatherers == {"metrics": metrics}
    assert made.templates.keys() == {"watch"}
    assert isinstance(made.strategies["checks:Watch"], Watch)


def test_a_function_is_registered_as_it_is():
    async def watched(ctx, trigger):
        return None

    assert app(strategies={"checks:watched": watched}).strategies == {"checks:watched": watched}


def test_no_template_of_an_app_can_have_the_name_of_a_built_in_one():
    assert BUILT_IN.keys() == BUILT_IN_TEMPLATES


async def test_a_gatherer_is_called_by_its_name():
    tool = Gathering({"metrics": metrics})
    call = gather("metrics", payload={"a": 1}, options={"b": 2})
    assert await tool.call(call.action, call.args, CTX) == [{"a": 1}, {"b": 2}]
    with pytest.raises(ToolFailed, match="no_such_action"):
        await tool.call("other", call.args, CTX)


@pytest.mark.parametrize(
    ("registered", "field", "problem"),
    [
        ({"gatherers": [metrics]}, "gatherers", "is not a dict"),
        ({"gatherers": {"a b": metrics}}, "gatherers", "is no name of a gatherer"),
        ({"gatherers": {5: metrics}}, "gatherers", "is no name of a gatherer"),
        ({"gatherers": {"metrics": plain}}, "gatherers", "use an async function"),
        ({"gatherers": {"metrics": 5}}, "gatherers", "use an async function"),
        ({"templates": [Watch]}, "templates", "is not a dict"),
        ({"templates": {"a.b": Watch}}, "templates", "is no name of a template"),
        ({"templates": {"dispatch": Watch}}, "templates", "every app has"),
        ({"templates": {"watch": 5}}, "templates", "is no function of a configuration"),
        ({"strategies": [Watch]}, "strategies", "is not a dict"),
        ({"strategies": {"x": 5}}, "strategy", "is not a Strategy"),
        ({"strategies": {"x": plain}}, "strategy", "is not `async def name"),
        ({"tools": {"vigil": metrics}}, "tools", "the engine has that name"),
        ({"tools": {"gather": metrics}}, "tools", "the engine has that name"),
    ],
)
def test_what_cannot_be_registered_is_refused(registered, field, problem):
    with pytest.raises(DeclarationError, match=problem) as refused:
        app(**registered)
    assert refused.value.field == field


def test_what_the_engine_supplies_is_beside_the_tools_of_the_app():
    async def tool(args, ctx):
        return None

    mine = App(actors=list(app().actors.values()), tools={"mine": tool})
    supplied = mine.supplied({"vigil": Gathering({})})
    assert {"mine", "vigil", "gather"} == supplied.tools.keys()
    assert "vigil" not in mine.tools
