"""A plan of calls that an agent proposes, and what becomes of it."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic_ai import Agent, PromptedOutput
from pydantic_ai.models.function import FunctionModel

from engine.agents.answer_text import without_hidden
from engine.agents.plans.carry_out import run_plan
from engine.agents.plans.plan import CallPlan, PlannedCall, plan_of
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult
from engine.app.tools import ToolFailed
from engine.errors import CallFailed, InvalidAction
from streams.json import unraw
from streams.memory import memory_ports
from streams.model.events import EpisodeBlocked, StepKind, StepRecorded
from tests.engine.agents.stage import MANY, Script, agent_of, classified, last_told
from tests.engine.agents.test_people import lives, refused
from tests.engine.functions.stage import app_of, middle, resume
from tests.engine.stage import CLOCK, decide, lived, open_episode, running


class Cluster:
    """Tools that change a cluster, and what they have done."""

    def __init__(self):
        self.done = done = []

        @tool
        async def count_pods(service: str, replicas: int = 1) -> str:
            """Tell how many pods there are."""
            if service == "lost":
                raise ToolFailed("tool_not_found", "no such service")
            return f"3 pods become {replicas}"

        @tool
        async def look(host: str) -> str:
            """Look at a host."""
            done.append(f"look at {host}")
            return f"{host} is slow"

        @tool(risk="change", idempotent=True, redact=("token",))
        async def scale(service: str, replicas: int = 1, token: str = "") -> str:
            """Set how many pods a service has."""
            done.append(f"scale {service} to {replicas}{token}")
            return f"{replicas} pods"

        @tool(risk="destroy", idempotent=True)
        async def wipe(volume: str) -> str:
            """Delete a volume."""
            if volume == "busy":
                raise ToolFailed("volume_in_use", "unmount it first")
            done.append(f"wipe {volume}")
            return "wiped"

        @tool(risk="change", idempotent=True)
        async def resize(service: str, replicas: int = 1) -> str:
            done.append(f"resize {service} to {replicas}")
            return "resized"

        @tool
        async def take(anything: object) -> str:
            return ""

        async def drain(ctx, host: str) -> str:
            """Move everything off a host."""
            await ctx.call(look, host=host)
            return f"{host} is empty"

        self.look, self.scale, self.wipe, self.drain = look, scale, wipe, drain
        self.resize, self.count_pods = resize, count_pods
        self.tools = [look, scale, wipe, count_pods, resize]
        self.plans = plan_of(look, scale, wipe, resize, drain, take, previews={resize: count_pods})


@pytest.fixture
def cluster():
    return Cluster()


def call(name, **args):
    return PlannedCall(name, args)


async def carried_out(cluster, calls, *deciding, **options):
    """Return the life of an episode that runs a plan, and what it tells of that."""
    plan = cluster.plans("make room", calls)

    async def heal(ctx, trigger):
        return ConvergeResult(classification=told(await run_plan(ctx, plan, **options)))

    life = await lives(heal, cluster.tools, *deciding)
    return life, classified(life)


def told(result):
    return {
        "status": result.status,
        "is_true": bool(result),
        "by": result.by,
        "reason": result.reason,
        "is_edited": result.is_edited,
        "calls": [[each.tool, each.args, each.error_class or each.result] for each in result.calls],
    }


def plan_seen(life):
    (block,) = life.of(EpisodeBlocked)
    return unraw(block.approval.plan)


# What a plan is.


@pytest.mark.parametrize(
    ("calls", "problem"),
    [
        ([call("scall", service="web")], "call 1: there is no tool 'scall'; did you mean scale?"),
        ([call("look", host="a"), call("look")], "call 2: look(): Object missing required field"),
        ([call("scale", service="web", replicas="3")], r"call 1: scale\(\): Expected `int`"),
        ([call("look", host="a")] * 11, "11 calls; a plan has 10 at most"),
        ([call("look", host="a" * 66_000)], "66,018 bytes of arguments; a plan has 65,536 at most"),
        ([call("take", anything=set)], "arguments: Encoding objects of type type is unsupported"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_none(cluster, calls, problem):
    with pytest.raises(ValueError, match=problem.replace("look()", r"look\(\)")):
        cluster.plans("make room", calls)


def test_a_plan_is_read_from_json_and_checked(cluster):
    reads = TypeAdapter(cluster.plans).validate_json
    said = '{"summary": "make room", "calls": [{"tool": "look", "args": {"host": "web-1"}}]}'
    assert reads(said) == cluster.plans("make room", (call("look", host="web-1"),))
    with pytest.raises(ValidationError, match="there is no tool 'lock'; did you mean look"):
        reads(said.replace("look", "lock"))


def test_a_model_is_told_the_tools_with_arguments_and_risks(cluster):
    schema = TypeAdapter(cluster.plans).json_schema()
    calls = {
        each["properties"]["tool"]["const"]: each
        for each in schema["properties"]["calls"]["items"]["anyOf"]
    }
    assert [*calls] == ["look", "scale", "wipe", "resize", "drain", "take"]
    assert calls["wipe"]["description"] == "Delete a volume. Risk: destroy."
    assert calls["wipe"]["properties"]["args"]["required"] == ["volume"]
    assert calls["drain"]["description"] == "Move everything off a host. Risk: unknown."


@tool
async def bare() -> str:
    return ""


@tool(risk="change")
async def change_more(host: str) -> str:
    return ""


@pytest.mark.parametrize(
    ("tools", "options", "problem"),
    [
        ([], {}, "plan_of: no tools; name those that a plan may call"),
        ([bare, bare], {}, "two tools are called 'bare'"),
        ([bare], {"calls_max": 0}, "calls_max: 0 is no whole number from 1 to 100"),
        ([bare], {"previews": {change_more: bare}}, "is none of the tools"),
        ([bare], {"previews": {bare: change_more}}, "change_more may change; a preview only reads"),
        ([change_more], {"previews": {change_more: bare}}, "bare takes other arguments than chan"),
    ],
)
def test_a_plan_of_what_cannot_be_is_refused(tools, options, problem):
    with pytest.raises(InvalidAction, match=problem):
        plan_of(*tools, **options)


# What becomes of it.


async def test_a_plan_that_only_reads_runs_at_once(cluster):
    calls = [call("look", host="web-1"), call("look", host="web-2")]
    life, said = await carried_out(cluster, calls)
    assert life.of(EpisodeBlocked) == []
    assert said == {
        "status": "done",
        "is_true": True,
        "by": "",
        "reason": "",
        "is_edited": False,
        "calls": [
            ["look", {"host": "web-1"}, "web-1 is slow"],
            ["look", {"host": "web-2"}, "web-2 is slow"],
        ],
    }


async def test_people_are_asked_about_the_whole_plan_if_a_call_is_risky(cluster):
    calls = [PlannedCall("look", {"host": "web-1"}), PlannedCall("wipe", {"volume": "old"}, "full")]
    life, said = await carried_out(cluster, calls, ("approve", {"by": "ann", "reason": "go"}))
    assert plan_seen(life) == {
        "1": {"tool": "look", "risk": "read", "args": {"host": "web-1"}},
        "2": {"tool": "wipe", "risk": "destroy", "args": {"volume": "old"}, "why": "full"},
    }
    assert life.of(EpisodeBlocked)[0].approval.summary == "make room"
    assert (said["status"], said["by"], said["reason"]) == ("done", "ann", "go")
    assert cluster.done == ["look at web-1", "wipe old"]


async def test_a_summary_of_a_plan_that_is_cut_says_so(cluster):
    plan = cluster.plans("x" * 201, [PlannedCall("wipe", {"volume": "old"})])

    async def heal(ctx, trigger):
        return ConvergeResult(classification=told(await run_plan(ctx, plan)))

    life = await lives(heal, cluster.tools, ("approve", {}))
    assert life.of(EpisodeBlocked)[0].approval.summary == "x" * 200 + "…"


@pytest.mark.parametrize(
    ("ask_from", "is_asked"), [("read", True), ("change", True), ("destroy", False), (None, False)]
)
async def test_the_risk_from_which_people_are_asked_may_be_another(cluster, ask_from, is_asked):
    deciding = [("approve", {})] if is_asked else []
    calls = [call("scale", service="web", replicas=2)]
    life, said = await carried_out(cluster, calls, *deciding, ask_from=ask_from)
    assert said["status"] == "done"
    assert bool(life.of(EpisodeBlocked)) is is_asked


async def test_of_a_tool_of_steps_nobody_knows_the_risk(cluster):
    calls = [call("drain", host="web-1")]
    life, said = await carried_out(cluster, calls, ("approve", {}), ask_from="destroy")
    assert plan_seen(life)["1"]["risk"] == "unknown"
    assert said["calls"] == [["drain", {"host": "web-1"}, "web-1 is empty"]]


async def test_a_denied_plan_does_nothing(cluster):
    denied = ("deny", {"by": "ann", "reason": "not now"})
    _, said = await carried_out(cluster, [call("wipe", volume="old")], denied)
    assert (said["status"], said["reason"]) == ("denied", "by ann: not now")
    assert (said["is_true"], said["calls"], cluster.done) == (False, [], [])


async def test_people_see_what_calls_would_do(cluster):
    calls = [
        call("resize", service="web", replicas=5),
        call("resize", service="lost"),
        call("scale", service="web"),
    ]
    life, _ = await carried_out(cluster, calls, ("approve", {}))
    would = [each.get("would") for each in plan_seen(life).values()]
    assert would == ["3 pods become 5", "unknown: tool_not_found: no such service", None]


async def test_nothing_is_looked_up_for_a_plan_that_nobody_is_asked_about(cluster):
    calls = [call("resize", service="web", replicas=5)]
    life, _ = await carried_out(cluster, calls, ask_from=None)
    assert [each.tool_name for each in life.of(StepRecorded)] == ["resize.call"]


async def test_a_plan_is_carried_out_as_people_have_changed_it(cluster):
    calls = [call("look", host="web-1"), call("wipe", volume="old")]
    edited = {
        "4": {"tool": "look", "args": {"host": "web-9"}},
        "2": {"tool": "wipe", "risk": "destroy", "args": {"volume": "older"}},
        "3": {"tool": "scale", "args": {"service": "web", "replicas": 2}},
    }
    decided = ("approve", {"by": "ann", "plan": edited})
    _, said = await carried_out(cluster, calls, decided)
    assert (said["status"], said["is_edited"]) == ("done", True)
    assert cluster.done == ["wipe older", "scale web to 2", "look at web-9"]


@pytest.mark.parametrize(
    ("edited", "problem"),
    [
        ("all of it", "'all of it' is no plan; write {number: {tool: …, args: …}}"),
        (
            {"1": {"tool": "wype", "args": {}}},
            "call 1: there is no tool 'wype'; did you mean wipe?",
        ),
        ({"1": {"tool": "wipe", "args": {"disk": "a"}}}, "call 1: wipe(): there is no argument"),
        ({"1": {"tool": "look", "args": {"host": "***"}}}, "stands where nothing was hidden"),
    ],
)
async def test_who_makes_no_plan_of_a_plan_is_told_and_nothing_is_decided(cluster, edited, problem):
    async def heal(ctx, trigger):
        await run_plan(ctx, cluster.plans("make room", [call("wipe", volume="old")]))

    assert problem in await refused(heal, cluster.tools, edited)
    assert cluster.done == []


@pytest.mark.parametrize(
    ("edited", "problem"),
    [
        ({"1": {"tool": "wipe", "args": {"volume": 7}}}, "call 1: wipe(): Expected `str`"),
        (
            {f"{n}": {"tool": "look", "args": {"host": "a"}} for n in range(1, 12)},
            "11 calls; a plan has 10 at most",
        ),
    ],
)
async def test_a_plan_that_was_changed_into_none_does_nothing(cluster, edited, problem):
    decided = ("approve", {"plan": edited})
    _, said = await carried_out(cluster, [call("wipe", volume="old")], decided)
    assert said["status"] == "denied"
    assert said["reason"].startswith("as changed it cannot be carried out: ")
    assert problem in said["reason"]
    assert cluster.done == []


async def test_the_first_failure_ends_a_plan(cluster):
    calls = [call("look", host="a"), call("wipe", volume="busy"), call("wipe", volume="old")]
    _, said = await carried_out(cluster, calls, ask_from=None)
    assert (said["status"], said["is_true"]) == ("failed", False)
    assert [each[2] for each in said["calls"]] == ["a is slow", "volume_in_use"]
    assert cluster.done == ["look at a"]


async def test_what_a_tool_hides_is_hidden_in_plans_too(cluster):
    calls = [call("scale", service="web", replicas=2, token="s3cret")]
    edited = {"1": {"tool": "scale", "args": {"service": "web", "replicas": 1, "token": "***"}}}
    life, said = await carried_out(cluster, calls, ("approve", {"plan": edited}))
    assert plan_seen(life)["1"]["args"]["token"] == "***"
    assert said["calls"][0][1] == {"service": "web", "replicas": 1, "token": "***"}
    assert cluster.done == ["scale web to 1s3cret"]


async def test_what_is_said_of_a_plan_quotes_nothing_that_a_tool_hides():
    token = "abra-kadabra"

    @tool(redact=("token",))
    async def try_login(user: str, token: str) -> dict[str, str]:
        return {"token": token, "would": f"use {token}", "zeros": "0" * 5_000}

    @tool(risk="change", redact=("token",))
    async def login(user: str, token: str) -> str:
        return "in"

    plans = plan_of(login, previews={login: try_login})
    calls = [PlannedCall("login", {"user": "ann", "token": token}, f"{token} is new")]

    async def heal(ctx, trigger):
        done = await run_plan(ctx, plans(f"log in with {token}", calls))
        return ConvergeResult(classification={"status": done.status})

    life = await lives(heal, [login, try_login], ("approve", {}))
    (block,) = life.of(EpisodeBlocked)
    assert block.approval.summary == "log in with ***"
    seen = plan_seen(life)["1"]
    assert seen["why"] == "*** is new"
    assert seen["would"].startswith('{"token":"***","would":"use ***","zeros":"00')
    assert seen["would"].endswith("more characters are left out]")
    assert classified(life) == {"status": "done"}


async def test_a_plan_of_as_many_calls_and_previews_as_may_be_can_be_asked_about():
    @tool
    async def count(host: str) -> str:
        return "\x01" * 5_000  # Six bytes each, as JSON.

    @tool(risk="change")
    async def restart(host: str) -> str:
        return "up"

    plans = plan_of(restart, previews={restart: count}, calls_max=100)
    calls = [PlannedCall("restart", {"host": f"{n:0600}"}) for n in range(100)]

    async def heal(ctx, trigger):
        done = await run_plan(ctx, plans("all", calls))
        return ConvergeResult(classification={"status": done.status})

    life = await lives(heal, [count, restart], ("deny", {}))
    assert classified(life) == {"status": "denied"}
    would = plan_seen(life)["100"]["would"]
    assert would == "\x01" * 300 + "\n[4,700 more characters are left out]"


AS_TEXT = (
    '{"summary": "s", "calls": [{"tool": "scale", "args": {"service": "w", "token": "s3cret"}}]}'
)


@pytest.mark.parametrize("text", [AS_TEXT, f"```json\n{AS_TEXT}\n```"])
@pytest.mark.parametrize("is_streamed", [True, False])
async def test_what_a_tool_hides_is_hidden_where_a_plan_is_text(cluster, text, is_streamed):
    async def stream(messages, info):
        for each in (text[:70], text[70:]):
            yield each

    model = FunctionModel(Script(text), stream_function=stream, model_name="mine")
    agent = Agent(model, name="planner", output_type=PromptedOutput(cluster.plans))

    async def heal(ctx, trigger):
        made = await ctx.agent(agent, "go", stream=is_streamed, keep_messages=True)
        return ConvergeResult(classification=told(await run_plan(ctx, made.output)))

    ports = memory_ports(clock=CLOCK)
    deltas = []
    ports.deltas.publish = lambda _, delta: deltas.append(delta)
    app = app_of(heal, tools=cluster.tools, budget=MANY)
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await lived(ports, id_, lambda life: life.of(EpisodeBlocked))
        await decide(ports, id_, "approve")
        life = await lived(ports, id_)
    assert cluster.done == ["scale w to 1s3cret"]
    assert "s3cret" not in str(deltas)
    steps = [each for each in life.of(StepRecorded) if b"s3cret" in bytes(each.result)]
    assert [each.kind for each in steps] == [StepKind.MODEL_REQUEST, StepKind.AGENT]
    for each in steps:
        assert b"***" in bytes(each.result_shown)
        assert b"s3cret" not in bytes(each.result_shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"token": "s3cret"', "***"),
        ('no {"token": "s3cret"', "***"),
        ('{"token": "s3cret"} or {"token": "s3cret"}', "***"),
        ('the "token" is not there', 'the "token" is not there'),
        ('{"a": 1}', '{"a": 1}'),
        ('so: {"token": "s3cret"}.', 'so: {"token":"***"}.'),
    ],
)
def test_what_nobody_can_read_in_a_text_is_hidden_with_all_of_it(text, shown):
    part = {"part_kind": "text", "content": text}
    assert without_hidden(part, frozenset({"token"})) == {**part, "content": shown}
    assert without_hidden(part, frozenset()) is part


async def test_what_is_hidden_is_given_to_no_other_tool(cluster):
    calls = [call("scale", service="web", replicas=2)]
    edited = {"1": {"tool": "resize", "args": {"service": "***"}}}

    async def heal(ctx, trigger):
        await run_plan(ctx, cluster.plans("make room", calls))

    said = await refused(heal, cluster.tools, edited)
    assert said == "call 1: *** stands where nothing was hidden"
    assert cluster.done == []


async def test_a_tool_that_the_app_lacks_is_a_mistake_and_no_failure_of_the_plan(cluster):
    async def heal(ctx, trigger):
        await run_plan(ctx, cluster.plans("", [call("look", host="a")]))

    life = await lives(heal, [])
    assert life.end.error_class == "no_tool_for_capability"


@pytest.mark.parametrize("plan", [CallPlan("", ()), {"calls": []}, None])
async def test_what_is_no_plan_of_certain_tools_is_refused(plan):
    with pytest.raises(InvalidAction, match=r"is no plan of a class of plan_of\(…\)"):
        await run_plan(None, plan)


# What an agent proposes.


async def test_an_agent_proposes_a_plan_and_is_told_what_is_wrong_with_one(cluster):
    wrong = {"summary": "make room", "calls": [{"tool": "wype", "args": {"volume": "old"}}]}
    right = {"summary": "make room", "calls": [{"tool": "wipe", "args": {"volume": "old"}}]}
    script = Script([("final_result", wrong)], [("final_result", right)])
    agent = agent_of(script, output_type=cluster.plans)

    async def heal(ctx, trigger):
        plan = (await ctx.agent(agent, "make room")).output
        return ConvergeResult(classification=told(await run_plan(ctx, plan)))

    life = await lives(heal, cluster.tools, ("approve", {"by": "ann"}))
    assert classified(life)["status"] == "done"
    assert cluster.done == ["wipe old"]
    assert "there is no tool 'wype'; did you mean wipe?" in last_told(script.asked[1])


def planning(output_type, tools, *, wiped="old"):
    """Return an app whose agent proposes a plan of two calls, and catches whatever fails."""
    calls = [
        {"tool": "look", "args": {"host": "web-1"}},
        {"tool": "wipe", "args": {"volume": wiped}},
    ]
    script = Script([("final_result", {"summary": "make room", "calls": calls})])
    agent = agent_of(script, output_type=output_type)

    async def heal(ctx, trigger):
        try:
            plan = (await ctx.agent(agent, "make room")).output
        except CallFailed as failed:
            return ConvergeResult(classification={"failed": failed.error_class})
        return ConvergeResult(classification=told(await run_plan(ctx, plan)))

    return app_of(heal, tools=tools, budget=MANY)


async def waiting_for_a_decision(app):
    """Return the events of an episode of `app` whose plan nobody has decided on yet."""
    ports = memory_ports(clock=CLOCK)
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        life = await lived(ports, id_, lambda life: life.of(EpisodeBlocked))
    return [each for each in middle(life) if isinstance(each, StepRecorded)]


def wipe_of_disks():
    @tool(risk="destroy", idempotent=True)
    async def wipe(disk: str) -> str:
        return ""

    return wipe


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (lambda cluster: plan_of(cluster.look), "call 2: there is no tool 'wipe'; known: look"),
        (
            lambda cluster: plan_of(cluster.look, wipe_of_disks()),
            "call 2: wipe(): there is no argument 'volume'; known: disk",
        ),
        (
            lambda cluster: plan_of(cluster.look, cluster.wipe, calls_max=1),
            "2 calls; a plan has 1 at most",
        ),
    ],
)
async def test_a_recorded_plan_that_is_none_any_more_parks_its_episode(cluster, changed, problem):
    events = await waiting_for_a_decision(planning(cluster.plans, cluster.tools, wiped="s3cret"))
    life = await resume(planning(changed(cluster), cluster.tools), events)
    said = "agent helper at test_plans.py:"
    assert said in life.parked
    what = f"its recorded output is none of its types any more: {problem}; bring the old output"
    assert what in life.parked
    assert "s3cret" not in life.parked
    assert not life.episode.finished


async def test_people_do_not_see_what_a_tool_hides_in_what_an_agent_proposes(cluster):
    plan = {
        "summary": "",
        "calls": [{"tool": "scale", "args": {"service": "w", "token": "s3cr3t"}}],
    }
    agent = agent_of(Script([("final_result", plan)]), output_type=cluster.plans)

    async def heal(ctx, trigger):
        await run_plan(ctx, (await ctx.agent(agent, "go")).output, ask_from=None)
        return ConvergeResult(classification={"said": "done"})

    life = await lives(heal, cluster.tools)
    asked, answered = (
        next(each for each in life.of(StepRecorded) if each.kind is kind)
        for kind in (StepKind.MODEL_REQUEST, StepKind.AGENT)
    )
    for step in (asked, answered):
        assert "s3cr3t" in str(unraw(step.result))
        assert "s3cr3t" not in str(unraw(step.result_shown))
    assert cluster.done == ["scale w to 1s3cr3t"]
