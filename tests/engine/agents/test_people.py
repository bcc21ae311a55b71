"""An agent that asks people: the run goes on where it was, and nothing before it happens again."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace

from engine.agents.toolset import toolset
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult
from engine.errors import InvalidAction, Refused
from engine.waits.requests import resolve
from streams.json import raw, unraw
from streams.model.events import EpisodeBlocked, StepKind, StepRecorded
from tests.engine.agents.stage import MANY, Script, agent_of, classified, last_told, told
from tests.engine.functions.stage import app_of, middle, resume
from tests.engine.stage import decide, eventually, lived, open_episode, ports_in_memory, running


def restarting(script, done, **options):
    """Return a function whose agent may restart services once people agree, and its tools."""

    @tool(side_effect=True, idempotent=True)
    async def restart(service: str) -> str:
        """Restart a service."""
        done.append(service)
        return f"{service} is up"

    tools = toolset(restart, requires_approval=[restart], **options)
    agent = agent_of(script, toolsets=[tools])

    async def heal(ctx, trigger):
        result = await ctx.agent(agent, "heal it")
        return ConvergeResult(classification={"said": result.output})

    return heal, [restart]


async def refused(function, tools, plan):
    """Return why nobody may make `plan` of what an episode asks for, which then waits on."""
    ports = ports_in_memory()
    app = app_of(function, tools=tools, budget=MANY)
    async with running(app, ports):
        episode_id = await open_episode(ports, app)
        life = await lived(ports, episode_id, lambda life: life.of(EpisodeBlocked))
        with pytest.raises(Refused) as refusal:
            await decide(ports, episode_id, plan=plan)
        assert await lived(ports, episode_id, lambda _: True) == life
    return str(refusal.value)


async def lives(function, tools, *deciding):
    """Run an episode whose requests are decided on one after the other; return its life."""
    ports = ports_in_memory()
    app = app_of(function, tools=tools, budget=MANY)
    async with running(app, ports):
        episode_id = await open_episode(ports, app)
        for number, (verdict, said) in enumerate(deciding, start=1):
            asked = lambda so_far, n=number: len(so_far.of(EpisodeBlocked)) == n  # noqa: E731
            await lived(ports, episode_id, asked)
            await decide(ports, episode_id, verdict, **said)
        return await lived(ports, episode_id)


async def test_an_approved_call_is_made_and_the_model_is_asked_nothing_twice():
    done = []
    script = Script([("restart", {"service": "web"})], lambda messages: told(messages)[-1])
    life = await lives(*restarting(script, done), ("approve", {"by": "ann"}))
    assert classified(life) == {"said": "web is up"}
    assert done == ["web"]
    assert len(script.asked) == 2
    (asked,) = [each for each in life.of(StepRecorded) if each.kind is StepKind.APPROVAL]
    assert unraw(asked.args) == {"service": "web"}
    (block,) = life.of(EpisodeBlocked)
    assert block.approval.summary == "helper wants to call restart(service='web')"


async def test_people_may_change_the_arguments():
    done = []
    script = Script([("restart", {"service": "web"})], lambda messages: told(messages)[-1])
    life = await lives(*restarting(script, done), ("approve", {"plan": {"service": "web-2"}}))
    assert classified(life) == {"said": "web-2 is up"}
    assert done == ["web-2"]


async def test_a_model_sees_its_call_as_it_has_made_it_though_people_have_changed_the_arguments():
    script = Script([("restart", {"service": "web"})], last_told)
    await lives(*restarting(script, []), ("approve", {"plan": {"service": "web-2"}}))
    _, answer, returned = script.asked[-1]
    assert [each.args for each in answer.tool_calls] == [{"service": "web"}]
    assert [each.content for each in returned.parts] == ["web-2 is up"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"service": "web", "amount": 10},
            "restart(): there is no argument 'amount'; known: service",
        ),
        ({"servise": "db"}, "restart(): there is no argument 'servise'; did you mean service?"),
        ("yes please", "'yes please' is no arguments; write {name: value}"),
        (None, "None is no arguments; write {name: value}"),
    ],
)
async def test_who_makes_something_else_of_arguments_is_told_and_nothing_is_decided(
    changes, problem
):
    done = []
    script = Script([("restart", {"service": "web"})], last_told)
    assert await refused(*restarting(script, done), changes) == problem
    assert done == []


async def test_changes_that_were_approved_before_anybody_looked_at_them_call_nothing():
    done = []
    heal, tools = restarting(Script([("restart", {"service": "web"})], last_told), done)
    life = await lives(heal, tools, ("approve", {"plan": {"service": "db"}}))
    events = middle(life)
    number = next(n for n, e in enumerate(events) if getattr(e, "kind", "") == StepKind.APPROVAL)
    said = {**unraw(events[number].result), "plan": {"servise": "db"}}
    events[number] = replace(events[number], result=raw(said))
    done.clear()
    app = app_of(heal, tools=tools, budget=MANY)
    life = await resume(app, events[: number + 2])  # The decision, and the end of the wait.
    assert (
        "there is no argument 'servise'; did you mean service?; nothing was called"
        in (classified(life)["said"])
    )
    assert done == []


async def test_changed_arguments_of_a_wrong_type_call_nothing_and_the_model_is_told():
    done = []
    script = Script([("restart", {"service": "web"})], last_told)
    life = await lives(*restarting(script, done), ("approve", {"plan": {"service": 7}}))
    said = "approved with changes that cannot be made: restart(): Expected `str`, got `int`"
    assert classified(life)["said"].startswith(said)
    assert done == []


async def test_an_argument_that_the_model_has_left_out_may_be_given():
    done = []

    @tool(side_effect=True, idempotent=True)
    async def scale(service: str, replicas: int = 1) -> str:
        done.append((service, replicas))
        return "scaled"

    script = Script([("scale", {"service": "web"})], last_told)
    agent = agent_of(script, toolsets=[toolset(scale, requires_approval=[scale])])

    async def heal(ctx, trigger):
        return ConvergeResult(classification={"said": (await ctx.agent(agent, "go")).output})

    life = await lives(heal, [scale], ("approve", {"plan": {"service": "web", "replicas": 3}}))
    assert classified(life) == {"said": "scaled"}
    assert done == [("web", 3)]


async def test_people_do_not_see_what_a_tool_hides_and_may_leave_it_as_it_is():
    done = []

    @tool(side_effect=True, idempotent=True, redact=["token"])
    async def pay(token: str, usd: int) -> str:
        """Pay."""
        done.append((token, usd))
        return "paid"

    script = Script([("pay", {"token": "s3cret", "usd": 3})], last_told)
    agent = agent_of(script, toolsets=[toolset(pay, requires_approval=[pay])])

    async def check(ctx, trigger):
        return ConvergeResult(classification={"said": (await ctx.agent(agent, "go")).output})

    life = await lives(check, [pay], ("approve", {"plan": {"token": "***", "usd": 2}}))
    assert classified(life) == {"said": "paid"}
    assert done == [("s3cret", 2)]
    (block,) = life.of(EpisodeBlocked)
    assert unraw(block.approval.plan) == {"token": "***", "usd": 3}
    assert block.approval.summary == "helper wants to call pay(token='***', usd=3)"


@pytest.mark.parametrize(
    ("plan", "paid"),
    [
        ({"card": {"token": "***", "kind": "visa"}, "usd": 2}, {"token": "s3cret", "kind": "visa"}),
        ({"card": {"token": "other"}, "usd": 2}, {"token": "other"}),
        ({"card": {"no": "1"}, "usd": 2}, {"no": "1"}),
    ],
)
async def test_what_is_hidden_within_an_argument_stays_what_it_was(plan, paid):
    done = []

    @tool(side_effect=True, idempotent=True, redact=["token"])
    async def pay(card: dict[str, str], usd: int = 1) -> str:
        """Pay."""
        done.append(card)
        return "paid"

    script = Script([("pay", {"card": {"token": "s3cret"}})], last_told)
    agent = agent_of(script, toolsets=[toolset(pay, requires_approval=[pay])])

    async def check(ctx, trigger):
        return ConvergeResult(classification={"said": (await ctx.agent(agent, "go")).output})

    await lives(check, [pay], ("approve", {"plan": plan}))
    assert done == [paid]


async def test_a_hidden_value_that_was_never_there_is_refused():
    done = []

    @tool(side_effect=True, idempotent=True, redact=["token"])
    async def pay(usd: int, token: str = "") -> str:
        """Pay."""
        done.append(usd)
        return "paid"

    script = Script([("pay", {"usd": 3})], last_told)
    agent = agent_of(script, toolsets=[toolset(pay, requires_approval=[pay])])

    async def check(ctx, trigger):
        return ConvergeResult(classification={"said": (await ctx.agent(agent, "go")).output})

    said = await refused(check, [pay], {"usd": 2, "token": "***"})
    assert said == "*** stands where nothing was hidden"
    assert done == []


async def test_a_denial_is_told_to_the_model_with_its_reason():
    done = []
    script = Script([("restart", {"service": "web"})], last_told)
    life = await lives(*restarting(script, done), ("deny", {"reason": "look at the disk first"}))
    assert "look at the disk first" in classified(life)["said"]
    assert done == []


async def test_parallel_calls_are_decided_one_by_one():
    done = []
    calls = [("restart", {"service": "web"}), ("restart", {"service": "db"})]
    script = Script(calls, lambda messages: "; ".join(str(p.content) for p in messages[-1].parts))
    decided = ("approve", {}), ("deny", {"reason": "not the database"})
    life = await lives(*restarting(script, done), *decided)
    assert done == ["web"]
    said = classified(life)["said"]
    assert said.startswith("web is up; ")
    assert "not the database" in said
    assert len(script.asked) == 2


async def test_a_tool_of_steps_may_ask_sleep_and_wait():
    seen = []

    async def ask_around(ctx, question: str) -> str:
        """Ask people, wait for a while and for a signal."""
        answer = await ctx.approval({"question": question})
        await ctx.sleep(0.01)
        come = await ctx.wait("letter:7")
        seen.append(question)
        return f"{answer.by} says {come}"

    script = Script([("ask_around", {"question": "why?"})], last_told)
    agent = agent_of(script, toolsets=[toolset(ask_around)])

    async def check(ctx, trigger):
        return ConvergeResult(classification={"said": (await ctx.agent(agent, "go")).output})

    ports = ports_in_memory()
    app = app_of(check, budget=MANY)
    async with running(app, ports):
        episode_id = await open_episode(ports, app)
        await lived(ports, episode_id, lambda so_far: so_far.of(EpisodeBlocked))
        await decide(ports, episode_id, by="ann")
        await lived(ports, episode_id, lambda so_far: len(so_far.of(EpisodeBlocked)) == 2)
        await eventually(partial(is_given, ports, "letter:7", "because"))
        life = await lived(ports, episode_id)
    assert classified(life) == {"said": "ann says because"}
    assert len(script.asked) == 2
    assert seen == ["why?"]


async def test_a_tool_of_the_agents_own_that_needs_approval_asks_too():
    done = []
    script = Script([("pay", {"usd": 3})], last_told)
    agent = agent_of(script)

    @agent.tool_plain(requires_approval=True)
    async def pay(usd: int) -> str:
        done.append(usd)
        return f"paid {usd}"

    async def check(ctx, trigger):
        return ConvergeResult(classification={"said": (await ctx.agent(agent, "go")).output})

    life = await lives(check, [], ("approve", {}))
    assert classified(life) == {"said": "paid 3"}
    assert done == [3]


async def is_given(ports, ref, result):
    """Send a signal; return whether anybody waits for it yet."""
    try:
        await resolve(ports, ref, result, by="ann")
    except Refused:
        return False
    return True


def test_only_tools_of_the_toolset_can_need_approval():
    @tool
    async def one() -> str:
        return ""

    @tool
    async def other() -> str:
        return ""

    with pytest.raises(InvalidAction, match="is none of the tools"):
        toolset(one, requires_approval=[other])


@pytest.mark.parametrize("named", ["one", ["one"]])
def test_a_tool_that_needs_approval_is_passed_itself_and_not_its_name(named):
    @tool
    async def one() -> str:
        return ""

    with pytest.raises(InvalidAction, match="'one' is a name; pass the function itself"):
        toolset(one, requires_approval=named)


def asking_for(made):
    """Return the names of the tools whose calls people must approve."""
    return {name for name, each in made._tools.items() if each.decision is not None}


@tool
async def look(host: str) -> str:
    return host


@tool(risk="change")
async def scale(replicas: int) -> str:
    return ""


@tool(risk="destroy")
async def delete(name: str) -> str:
    return ""


async def repair(ctx, name: str) -> str:
    """Do anything."""
    return name


@pytest.mark.parametrize(
    ("ask_from", "asked"),
    [
        (None, {"look"}),
        ("destroy", {"look", "delete", "repair"}),
        ("change", {"look", "scale", "delete", "repair"}),
        ("read", {"look", "scale", "delete", "repair"}),
    ],
)
def test_people_are_asked_about_tools_from_a_risk_on_and_about_those_that_are_named(
    ask_from, asked
):
    made = toolset(look, scale, delete, repair, requires_approval=[look], ask_from=ask_from)
    assert asking_for(made) == asked


def test_a_risk_that_there_is_not_is_refused():
    with pytest.raises(InvalidAction, match="ask_from: 'write' is not one of read, change, destr"):
        toolset(look, ask_from="write")
