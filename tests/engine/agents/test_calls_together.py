"""Calls of one answer of a model that people decide on together."""

from __future__ import annotations

import pytest

from engine.agents.plans.edits import restored
from engine.agents.toolset import toolset
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult
from engine.errors import InvalidAction
from streams.json import unraw
from streams.model.events import EpisodeBlocked
from tests.engine.agents.stage import Script, agent_of, classified, told
from tests.engine.agents.test_people import lives, refused

CALLS = [("restart", {"service": "web"}), ("scale", {"replicas": 3}), ("look", {"host": "web-1"})]

PLAN = {
    "1": {"tool": "restart", "risk": "change", "args": {"service": "web"}},
    "2": {"tool": "scale", "risk": "destroy", "args": {"replicas": 3}},
}
"""What people see of them: one of the calls needs nobody."""


def all_told(messages):
    return "; ".join(told(messages))


def healing(done, *, calls=CALLS, **options):
    """Return a function whose agent makes `calls` at once, and the tools."""

    @tool(risk="change", idempotent=True)
    async def restart(service: str) -> str:
        done.append(service)
        return f"{service} is up"

    @tool(risk="destroy", idempotent=True, redact=("token",))
    async def scale(replicas: int, token: str = "") -> str:
        done.append((replicas, token) if token else replicas)
        return f"{replicas} replicas"

    @tool
    async def look(host: str) -> str:
        return f"{host} is slow"

    tools = [restart, scale, look]
    offered = toolset(*tools, **{"ask": "together", "ask_from": "change", **options})
    agent = agent_of(Script(calls, all_told), toolsets=[offered])

    async def heal(ctx, trigger):
        return ConvergeResult(classification={"said": (await ctx.agent(agent, "heal")).output})

    return heal, tools


def plan_of_block(life, number=0):
    return unraw(life.of(EpisodeBlocked)[number].approval.plan)


async def test_one_decision_is_about_all_calls_that_need_one():
    done = []
    life = await lives(*healing(done), ("approve", {}))
    (block,) = life.of(EpisodeBlocked)
    assert plan_of_block(life) == PLAN
    assert block.approval.summary == (
        "helper wants to make 2 calls: restart(service='web'); scale(replicas=3)"
    )
    assert classified(life) == {"said": "web is up; 3 replicas; web-1 is slow"}
    assert sorted(map(str, done)) == ["3", "web"]


async def test_people_may_change_some_calls_and_leave_others_out():
    done = []
    edited = {"1": {**PLAN["1"], "args": {"service": "db"}}}
    decided = ("approve", {"plan": edited, "by": "ann", "reason": "too many already"})
    life = await lives(*healing(done), decided)
    assert classified(life)["said"] == (
        "db is up; left out by ann: too many already; web-1 is slow"
    )
    assert done == ["db"]


async def test_a_denial_is_told_of_each_call():
    done = []
    life = await lives(*healing(done), ("deny", {"by": "ann", "reason": "not now"}))
    denied = "denied: by ann: not now"
    assert classified(life)["said"] == f"{denied}; {denied}; web-1 is slow"
    assert done == []


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ("yes", "'yes' is no plan; write {number: {tool: …, args: …}}"),
        ({"one": PLAN["1"]}, "'one' is no number of a call: 1, 2 and so on"),
        ({"1": PLAN["1"], "01": PLAN["1"]}, "'01' is no number of a call: 1, 2 and so on"),
        ({"1": {"service": "db"}}, "call 1: write its tool and its args, and nothing else"),
        ({"1": {"tool": "restart"}}, "call 1: write its tool and its args, and nothing else"),
        ({"1": {**PLAN["1"], "do": 1}}, "call 1: write its tool and its args, and nothing else"),
        ({"1": PLAN["2"]}, "call 1 is another one"),
        ({**PLAN, "3": PLAN["2"]}, "call 3 is another one"),
        (
            {"1": {**PLAN["1"], "args": {"servise": "db"}}},
            "call 1: restart(): there is no argument 'servise'; did you mean service?",
        ),
        ({"2": {**PLAN["2"], "args": {"token": "***"}}}, "*** stands where nothing was hidden"),
    ],
)
async def test_who_makes_something_else_of_calls_is_told_and_nothing_is_decided(plan, problem):
    done = []
    assert problem in await refused(*healing(done), plan)
    assert done == []


async def test_three_stars_that_the_model_has_written_may_be_left():
    done = []
    edited = {"1": {**PLAN["1"], "args": {"service": "***"}}}
    await lives(*healing(done), ("approve", {"plan": edited}))
    assert done == ["web"]


def own_tools(done):
    """Return a function whose agent has tools of its own, and none of the app."""

    def restart(service: str) -> str:
        done.append(service)
        return f"{service} is up"

    def scale(replicas: int) -> str:
        done.append(replicas)
        return f"{replicas} replicas"

    agent = agent_of(Script(CALLS[:2], all_told))
    for each in (restart, scale):
        agent.tool_plain(each, requires_approval=True)

    async def heal(ctx, trigger):
        return ConvergeResult(classification={"said": (await ctx.agent(agent, "heal")).output})

    return heal, []


async def test_changed_arguments_of_a_wrong_type_call_none_of_the_calls():
    done = []
    edited = {**PLAN, "2": {**PLAN["2"], "args": {"replicas": "many"}}}
    life = await lives(*healing(done), ("approve", {"plan": edited}))
    problem = "call 2: scale(): Expected `int`, got `str` - at `$.replicas`"
    told = f"approved with changes that cannot be made: {problem}; nothing was called"
    assert classified(life)["said"] == f"{told}; {told}; web-1 is slow"
    assert done == []


async def test_changed_arguments_of_an_agents_own_tool_must_fit_it_too():
    done = []
    decided = ("approve", {}), ("approve", {"plan": {"replicas": "many"}})
    life = await lives(*own_tools(done), *decided)
    problem = "scale(): replicas: Input should be a valid integer"
    assert problem in classified(life)["said"]
    assert "nothing was called" in classified(life)["said"]
    assert done == ["web"]


async def test_what_a_model_has_asked_for_wrongly_is_told_apart_from_what_people_have_changed():
    done = []
    calls = [("restart", {"service": "web"}), ("scale", {"replicas": "many"})]
    edited = {
        "1": {**PLAN["1"], "args": {"service": "db"}},
        "2": {**PLAN["2"], "args": {"replicas": "many"}},
    }
    await lives(*healing(done, calls=calls), ("approve", {"plan": edited}))
    assert done == ["db"]


async def test_what_a_tool_hides_is_hidden_in_the_plan_and_may_stay_as_it_is():
    done = []
    calls = [("scale", {"replicas": 3, "token": "s3cret"}), ("restart", {"service": "web"})]
    edited = {"1": {"tool": "scale", "args": {"replicas": 2, "token": "***"}}}
    life = await lives(*healing(done, calls=calls), ("approve", {"plan": edited}))
    assert plan_of_block(life)["1"]["args"] == {"replicas": 3, "token": "***"}
    assert done == [(2, "s3cret")]


def user(name, password):
    return {"name": name, "password": password}


ANN, BOB, CY = (user(name, f"of {name}") for name in ("ann", "bob", "cy"))
"""Their passwords are hidden."""


@pytest.mark.parametrize(
    ("edited", "is_meant"),
    [
        ([user("ann", "***"), user("bob", "***"), user("cy", "***")], [ANN, BOB, CY]),
        ([user("bob", "***")], [BOB]),
        ([user("cy", "***"), user("ann", "***")], [CY, ANN]),
        (
            [user("ann", "new"), user("bob", "***"), user("cy", "***")],
            [user("ann", "new"), BOB, CY],
        ),
        ([user("di", "new")], [user("di", "new")]),
        ([user("di", "***")], None),
        ([user("ann", "***"), user("bob", "***"), user("di", "***")], None),
        ([{"password": "***"}], None),
        (["***", "***"], None),
    ],
)
def test_a_hidden_value_stays_with_its_item_of_a_list(edited, is_meant):
    asked = {"users": [ANN, BOB, CY]}
    if is_meant is None:
        with pytest.raises(LookupError):
            restored({"users": edited}, asked)
    else:
        assert restored({"users": edited}, asked) == {"users": is_meant}


def test_hidden_values_of_items_that_look_alike_stay_where_they_are():
    asked = [{"key": "one"}, {"key": "two"}, 3]
    assert restored([{"key": "***"}, {"key": "***"}, 4], asked) == [*asked[:2], 4]


async def test_calls_that_others_decide_on_are_asked_about_apart():
    done = []

    @tool(risk="change", idempotent=True)
    async def restart(service: str) -> str:
        done.append(service)
        return f"{service} is up"

    @tool(risk="change", idempotent=True)
    async def pay(usd: int) -> str:
        done.append(usd)
        return f"{usd} paid"

    options = {"ask": "together", "ask_from": "change"}
    boxes = [
        toolset(restart, approvers=["ann"], id="ops", **options),
        toolset(pay, approvers=["bob"], id="money", **options),
    ]
    calls = [("restart", {"service": "web"}), ("pay", {"usd": 5}), ("restart", {"service": "db"})]
    agent = agent_of(Script(calls, all_told), toolsets=boxes)

    async def heal(ctx, trigger):
        return ConvergeResult(classification={"said": (await ctx.agent(agent, "heal")).output})

    decided = ("approve", {"by": "ann"}), ("deny", {"by": "bob", "reason": "no"})
    life = await lives(heal, [restart, pay], *decided)
    assert classified(life)["said"] == "web is up; denied: by bob: no; db is up"
    assert [sorted(plan_of_block(life, n)) for n in (0, 1)] == [["1", "2"], ["1"]]


async def test_calls_that_are_too_large_together_are_asked_about_apart():
    done = []
    names = [letter * 60_000 for letter in "abc"]
    calls = [("restart", {"service": name}) for name in names]
    life = await lives(*healing(done, calls=calls), ("approve", {}), ("approve", {}))
    assert [sorted(plan_of_block(life, n)) for n in (0, 1)] == [["1", "2"], ["1"]]
    assert sorted(done) == names


async def test_of_a_tool_of_steps_people_are_told_that_its_risk_is_unknown():
    async def repair(ctx, name: str) -> str:
        return f"{name} repaired"

    agent = agent_of(
        Script([("repair", {"name": "web"})], all_told),
        toolsets=[toolset(repair, ask_from="destroy", ask="together")],
    )

    async def heal(ctx, trigger):
        return ConvergeResult(classification={"said": (await ctx.agent(agent, "heal")).output})

    life = await lives(heal, [], ("approve", {}))
    assert plan_of_block(life)["1"]["risk"] == "unknown"
    assert classified(life) == {"said": "web repaired"}


def test_another_way_to_ask_is_refused():
    with pytest.raises(InvalidAction, match="ask: 'once' is not one of each, together"):
        toolset(ask="once")
