"""What is checked of an agent in a file before it is applied: with an app, and without one."""

from __future__ import annotations

import pytest

from vigil import App, tool
from vigil.asking.definitions.checks import require_fitting, unchecked
from vigil.asking.definitions.drafts import drafts_of
from vigil.errors import Mistake


@tool(capability="web")
async def look(host: str) -> str:
    return host


def drafts(model="test", **config):
    said = {"agent": {"model": model}, "prompt": "Why?", **config}
    strategy = {"template": "agentic_task", "config": said}
    data = {"id": "a", "expectations": {"x": {"on": {"manual": True}, "strategy": strategy}}}
    return drafts_of(None, [], None, given={"a.yaml": data})


def fits(app, *args, **config):
    require_fitting(app, "vigil", drafts(*args, **config), [])


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)


def test_without_an_app_nobody_knows_its_tools_and_keys():
    fits(
        None, "anthropic:claude-sonnet-5", tools=["web.look"], gatherer="facts", prompt="{observed}"
    )
    assert unchecked(drafts(tools=["web.look"], gatherer="facts")) == [
        "gatherer 'facts'",
        "tool 'web.look'",
    ]


def test_without_an_app_what_can_work_nowhere_is_refused():
    with pytest.raises(Mistake) as raised:
        fits(None, tools=["web.look"], requires_approval=["web.lok"])
    at = "expectations.x.strategy.config.requires_approval.0"
    assert f"a.yaml: {at}: 'web.lok' is none of tools; did you mean web.look?" in str(raised.value)


@pytest.mark.parametrize(
    ("model", "tools", "problem"),
    [
        ("test", ["web.lok"], "tools.0: no tool is called 'web.lok'; did you mean web.look?"),
        ("openia:x", [], "agent.model: openia:x: no provider is called 'openia'; did you mean"),
        ("anthropic:claude-sonnet-5", [], "Set the `ANTHROPIC_API_KEY` environment variable"),
    ],
)
def test_with_an_app_it_must_have_the_tools_and_the_key(model, tools, problem):
    fits(App(tools=[look]), tools=["web.look"])
    with pytest.raises(Mistake) as raised:
        fits(App(tools=[look]), model, tools=tools)
    assert str(raised.value).startswith("a.yaml: expectations.x.strategy.config.")
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)
