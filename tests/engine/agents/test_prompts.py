"""What a model was asked, told from the journal, and beside it what its server was sent."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from contextlib import asynccontextmanager
from functools import partial

import msgspec
import pytest
from msgspec.structs import replace
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from engine.agents.cuts import head
from engine.agents.digests import jsonable
from engine.agents.durability.agent_run import STREAMED
from engine.agents.plans.plan import plan_of
from engine.agents.prompts.conversation import Conversation
from engine.agents.prompts.model_prompt import model_prompt
from engine.agents.toolset import StepTool, _brought, toolset
from engine.agents.unit import AGENT_BYTES_MAX, MESSAGES_HERE_BYTES_MAX
from engine.app.actions import Retries
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult
from engine.app.tools import Tool, ToolFailed
from engine.episodes import results
from engine.episodes.results import fetch
from engine.errors import CallFailed, PromptNotKept
from engine.execution import driver
from engine.runtime import objects
from streams.errors import Unavailable
from streams.memory import memory_ports
from streams.memory.objects import MemoryObjects
from streams.model.events import EndStatus, EpisodeBlocked, EpisodeStarted, StepKind, StepRecorded
from tests.engine.agents.stage import MANY, Script, agent_of
from tests.engine.functions.stage import app_of, middle, play, resume
from tests.engine.stage import CLOCK, decide, lived, open_episode, running
from vigil.testing import (
    AskedTool,
    FailureAnswer,
    JsonAnswer,
    ModelServer,
    TextAnswer,
    ToolCallsAnswer,
)


@tool
async def measure(what: str) -> dict:
    """Measure something."""
    return {"what": what, "level": "high"}


@tool
async def read_log(name: str) -> str:
    """Read a log."""
    return f"{name}: " + "x" * 500


def look(q: str) -> str:
    """Look at something."""
    return f"{q} is fine"


TOOLS = [measure, read_log]


def answer(request):
    """Answer as the models of both agents do, by what each has been told so far."""
    told = [str(each["text"]) for each in request.messages if each["role"] == "tool"]
    if {each["name"] for each in request.tools} == {"measure"}:
        return TextAnswer("disk is high") if told else calls(("measure", {"what": "disk"}))
    match len(told):
        case 0:
            return calls(
                ("measure", {"what": "cpu"}),
                ("ask_expert", {"question": "why?"}),
                ("read_log", {"name": "web"}),
                ("look", {"q": "net"}),
            )
        case 4:
            return calls(("measure", {"wrong": 1}), ("look", {"q": "io"}))
        case 6:
            return calls(("measure", {"what": "swap"}))
        case _:
            return TextAnswer("; ".join(told))


def calls(*asked):
    return ToolCallsAnswer(tuple(AskedTool(*each) for each in asked), text="let me see")


@asynccontextmanager
async def served(script):
    """Yield a server of models, and a model that is asked there."""
    async with ModelServer(script) as server:
        provider = OpenAIProvider(base_url=f"{server.url}/v1", api_key="test")
        async with OpenAIChatModel("test-model", provider=provider) as model:
            yield server, model


def asking_two(model):
    """Return a function that asks an agent, which asks a second one within a tool."""
    expert = Agent(model, name="expert", toolsets=[toolset(measure)], instructions="be an expert")

    async def ask_expert(ctx, question: str) -> str:
        """Ask an expert."""
        return (await ctx.agent(expert, question)).output

    agent = Agent(
        model,
        name="triage",
        toolsets=[toolset(*TOOLS, ask_expert, cut={"read_log": head(20)})],
        model_settings={"max_tokens": 500, "extra_headers": {"x-api-key": "s3cret"}},
    )
    agent.tool_plain(look)

    @agent.instructions
    def instruct(ctx) -> str:
        return f"find out what is wrong; request {ctx.run_step}"

    async def ask(ctx, trigger):
        first = await ctx.agent(agent, "what broke?", keep_messages=True)
        said = await ctx.agent(expert, "and why?", message_history=first.messages)
        return ConvergeResult(summary=said.output)

    return ask


async def prompts_of(life, ports):
    """Return what each request of an episode has asked, by its path."""
    steps = [e for e in life.of(StepRecorded) if e.kind is StepKind.MODEL_REQUEST]
    load = partial(fetch, ports.objects)
    return {e.path: await model_prompt(life.events, e.step_no, load) for e in steps}


def as_sent(prompt):
    """Return a prompt as a server of models gets it."""
    return {
        "model": prompt.model.partition(":")[2],
        "system": prompt.instructions,
        "tools": [(each["name"], each.get("description", "")) for each in prompt.tools],
        "messages": [each for message in prompt.messages for each in said_in(message)],
    }


def said_in(message):
    parts = message["parts"]
    if message["kind"] == "response":
        asked = [each for each in parts if each["part_kind"] == "tool-call"]
        texts = [each["content"] for each in parts if each["part_kind"] == "text"]
        named = [(each["tool_name"], as_json(each["args"])) for each in asked]
        yield ("assistant", "".join(texts), named)
        return
    for part in parts:
        role = "tool" if "tool_call_id" in part else "user"
        yield (role, as_json(part["content"]), [])


def as_json(value):
    try:
        said = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
    # So OpenAI's models are told what has gone wrong; the message says it by its outcome.
    return said["error"] if isinstance(said, dict) and [*said] == ["error"] else said


def was_sent(request):
    """Return what a server of models has got, in the same form."""
    return {
        "model": request.model,
        "system": request.system,
        "tools": [(each["name"], each["description"]) for each in request.tools],
        "messages": [
            (
                each["role"],
                as_json(each["text"]),
                [(c["name"], c["args"]) for c in each.get("calls", ())],
            )
            for each in request.messages
        ],
    }


def of_the_same(server, life, prompts):
    """Return how each prompt and what the server was sent for it are, side by side."""
    id_ = life.episode.opened.episode_id
    keys = {call.request.idempotency_key.removesuffix(STREAMED): call for call in server.calls}
    sent = {key: call.request for key, call in keys.items()}
    return [
        (as_sent(prompt), was_sent(sent[f"{id_}:{path}"]))
        for path, prompt in prompts.items()
        if f"{id_}:{path}" in sent
    ]


async def test_what_a_model_was_asked_is_what_its_server_was_sent():
    ports = memory_ports(clock=CLOCK)
    async with served(answer) as (server, model):
        life = await play(asking_two(model), tools=TOOLS, budget=MANY, ports=ports)
        prompts = await prompts_of(life, ports)
    pairs = of_the_same(server, life, prompts)
    assert len(pairs) == len(prompts) == len(server.calls) == 7
    for told, sent in pairs:
        for one, other in zip(told["messages"], sent["messages"], strict=True):
            assert one == other
        assert told == sent


async def test_it_is_so_too_after_a_crash_at_each_moment():
    ports = memory_ports(clock=CLOCK)
    async with served(answer) as (server, model):
        function, declared = asking_two(model), {"tools": TOOLS, "budget": MANY}
        events = middle(await play(function, ports=ports, **declared))
        for until in range(1, len(events), 3):
            app = app_of(function, **declared)
            life = await resume(app, events[:until], objects=ports.objects)
            pairs = of_the_same(server, life, await prompts_of(life, ports))
            assert len(pairs) == 7, until
            for told, sent in pairs:
                assert told == sent, until


async def test_what_is_answered_piece_by_piece_is_told_as_it_was_sent():
    ports = memory_ports(clock=CLOCK)
    async with served([calls(("look", {"q": "cpu"})), "fine"]) as (server, model):
        agent = Agent(model, name="helper", instructions="be brief")
        agent.tool_plain(look)

        async def ask(ctx, trigger):
            said = await ctx.agent(agent, "go", stream=True)
            return ConvergeResult(summary=said.output)

        life = await play(ask, budget=MANY, ports=ports)
        prompts = await prompts_of(life, ports)
    assert all(call.request.is_streamed for call in server.calls)
    pairs = of_the_same(server, life, prompts)
    assert len(pairs) == 2
    for told, sent in pairs:
        assert told == sent


async def test_a_wrong_answer_and_a_shortened_conversation_are_told_as_they_were_sent():
    def last_three(messages):
        return messages[-3:]

    class Level(BaseModel):
        """How high it is."""

        level: int

    script = [
        JsonAnswer({"level": "very"}),
        calls(("look", {"q": "cpu"})),
        calls(("look", {"q": "disk"})),
        JsonAnswer({"level": 3}),
    ]
    ports = memory_ports(clock=CLOCK)
    async with served(script) as (server, model):
        shortened = ProcessHistory(last_three)
        agent = Agent(model, name="helper", output_type=Level, capabilities=[shortened], retries=3)
        agent.tool_plain(look)
        life = await play(asking(agent), budget=MANY, ports=ports)
        prompts = await prompts_of(life, ports)
    pairs = of_the_same(server, life, prompts)
    assert len(pairs) == len(script)
    for told, sent in pairs:
        assert told == sent


def asking(agent, prompt="go"):
    async def ask(ctx, trigger):
        return ConvergeResult(classification={"said": (await ctx.agent(agent, prompt)).output})

    return ask


async def played(function, **declared):
    """Return the life of an episode, its ports, and its last request to a model."""
    ports = memory_ports(clock=CLOCK)
    life = await play(function, ports=ports, **{"budget": MANY, **declared})
    steps = [e for e in life.of(StepRecorded) if e.kind is StepKind.MODEL_REQUEST]
    return life, ports, steps[-1]


async def asked_last(function, **declared):
    """Return what the last request of an episode has asked."""
    life, ports, step = await played(function, **declared)
    return await model_prompt(life.events, step.step_no, partial(fetch, ports.objects))


async def test_what_tools_hide_is_in_nothing_that_is_kept():
    @tool(redact=["token"])
    async def login(user: str, token: str) -> dict:
        """Log in."""
        return {"user": user, "token": "an0ther-secret", "zeros": "0" * 300}

    async def echo(ctx, token: str) -> str:
        """Say it again."""
        return f"the token was {token}"

    @tool(redact=["token"])
    async def refuse(token: str) -> str:
        raise ToolFailed("denied", f"no such token: {token}")

    @tool(redact=["token"])
    async def brief(token: str) -> dict:
        return {"token": "a-third-secret", "ok": True}

    asks = [
        ("login", {"user": "ann", "token": "hunter2-hunter2"}),
        ("echo", {"token": "hunter2-hunter2"}),
        ("refuse", {"token": "hunter2-hunter2"}),
        ("brief", {"token": "hunter2-hunter2"}),
    ]
    own = [login, refuse, brief]
    tools = toolset(*own, echo, cut={"login": head(60)})
    function = asking(agent_of(Script(asks, "done"), toolsets=[tools]))
    life, ports, step = await played(function, tools=own)
    prompt = await model_prompt(life.events, step.step_no, partial(fetch, ports.objects))
    shown = json.dumps(msgspec.to_builtins(prompt))
    kept = [bytes(each.prompt.messages.json) for each in life.of(StepRecorded) if each.prompt]
    for secret in ("hunter2", "an0ther", "a-third"):
        assert secret not in shown
        assert not any(secret.encode() in each for each in kept)
    assert shown.count("***") >= 6
    assert "the token was ***" in shown


async def test_after_a_crash_nothing_that_was_hidden_before_is_kept():
    @tool(redact=["token"])
    async def login(token: str) -> dict:
        """Log in."""
        return {"token": "an0ther-secret", "zeros": "0" * 300}

    async def echo(ctx, token: str) -> str:
        """Say it again."""
        return f"the token was {token}"

    tools = toolset(login, echo, cut={"login": head(60)})
    given = {"token": "hunter2-hunter2"}
    script = Script([("login", given), ("echo", given)], "done")
    function = asking(agent_of(script, toolsets=[tools]))
    life, ports, _ = await played(function, tools=[login])
    events = middle(life)
    until = next(n for n, e in enumerate(events) if getattr(e, "tool_name", "") == "login.call")
    app = app_of(function, tools=[login], budget=MANY)
    again = await resume(app, events[: until + 1], objects=ports.objects)
    kept = [bytes(each.prompt.messages.json) for each in again.of(StepRecorded) if each.prompt]
    assert len(kept) == 2
    assert b"the token was ***" in kept[1]
    assert not any(b"secret" in each or b"hunter2" in each for each in kept)


async def test_what_a_tool_of_steps_hides_from_people_is_not_kept():
    @tool(redact=["token"])
    async def login(token: str) -> bool:
        """Log in."""
        return True

    async def enter(ctx) -> str:
        """Enter."""
        await ctx.call(login, token="hunter2-hunter2")
        return "entered with hunter2-hunter2"

    function = asking(agent_of(Script([("enter", {})], "done"), toolsets=[toolset(enter)]))
    prompt = await asked_last(function, tools=[login])
    assert prompt.messages[-1]["parts"][0]["content"] == "entered with ***"


@tool(redact=["token"])
async def sign_in(token: str) -> dict:
    """Sign in."""
    return {"token": "an0ther-secret", "said": f"signed in with {token}"}


@tool(redact=["token"])
async def refuse_all(token: str) -> str:
    """Refuse."""
    raise ToolFailed("denied", f"no such token: {token}")


@tool(side_effect=True)
async def wipe(volume: str) -> str:
    """Wipe."""
    return "wiped"


async def enter(ctx) -> str:
    """Enter."""
    found = await ctx.call(sign_in, token="hunter2-hunter2")
    try:
        await ctx.call(refuse_all, token="swordf1sh-fish")
    except CallFailed as failed:
        return f"{found['said']}, {found['token']}, {failed.detail}"


def entering(*turns, **approval):
    """Return a function whose agent has a tool that quotes what others hide."""
    tools = toolset(enter, wipe, **approval)
    return asking(agent_of(Script(*turns), toolsets=[tools]))


ENTERED_WITH = [sign_in, refuse_all, wipe]


def kept_of(life):
    """Return what is kept of all messages of an episode, as text."""
    steps = [each for each in life.of(StepRecorded) if each.prompt]
    return "".join(bytes(each.prompt.messages.json).decode() for each in steps)


def is_hidden(life):
    kept = kept_of(life)
    secrets = "hunter2", "an0ther", "swordf1sh"
    return "no such token: ***" in kept and not any(each in kept for each in secrets)


async def test_what_a_tool_of_steps_quotes_is_not_kept_after_a_crash_at_any_moment():
    function = entering([("enter", {})], "done")
    life, ports, _ = await played(function, tools=ENTERED_WITH)
    assert is_hidden(life)
    events = middle(life)
    for until in range(1, len(events)):
        app = app_of(function, tools=ENTERED_WITH, budget=MANY)
        again = await resume(app, events[:until], objects=ports.objects)
        assert is_hidden(again), until


async def test_what_a_tool_of_steps_quotes_is_not_kept_after_an_approval_beside_it():
    asks = [("enter", {}), ("wipe", {"volume": "x"})]
    function = entering(asks, "done", requires_approval=[wipe])
    ports = memory_ports(clock=CLOCK)
    app = app_of(function, tools=ENTERED_WITH, budget=MANY)
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await lived(ports, id_, lambda life: life.of(EpisodeBlocked))
        await decide(ports, id_, "approve")
        life = await lived(ports, id_)
    assert is_hidden(life)


@pytest.mark.parametrize("what", ["redact", "secrets"])
async def test_a_tool_that_can_hide_no_more_has_all_of_its_call_hidden(what):
    class Vault(Tool):
        async def call(self, action, args, ctx):
            return args["key"]

        def redact(self, args):
            return {"key": "***"}

    def fail(*args):
        raise KeyError(args)

    broken = type("Broken", (Vault,), {what: fail})

    async def read(ctx) -> str:
        """Read."""
        return f"read {await ctx.call('vault.read', key='hunter2-hunter2')}"

    function = asking(agent_of(Script([("read", {})], "done"), toolsets=[toolset(read)]))
    life, ports, _ = await played(function, tools={"vault": Vault()})
    events = middle(life)
    until = next(n for n, e in enumerate(events) if getattr(e, "tool_name", "") == "vault.read")
    app = app_of(function, tools={"vault": broken()}, budget=MANY)
    again = await resume(app, events[: until + 1], objects=ports.objects)
    assert "read ***" in kept_of(again)


@pytest.mark.parametrize("pin", [98765432, 765])
async def test_a_plan_that_is_refused_is_kept_without_the_numbers_that_its_tools_hide(pin):
    @tool(side_effect=True, redact=["pin"])
    async def set_pin(user: str, pin: int) -> str:
        """Set it."""
        return "ok"

    def says(messages, info):
        plan = {"tool": "set_pin", "args": {"user": "ann", "pin": pin}}
        is_first = len(messages) == 1
        asked = [plan, {"tool": "nothing", "args": {}}] if is_first else [plan]
        name = info.output_tools[0].name
        return ModelResponse([ToolCallPart(name, {"summary": "s", "calls": asked}, "c")])

    agent = Agent(FunctionModel(says, model_name="mine"), name="a", output_type=plan_of(set_pin))

    async def ask(ctx, trigger):
        return ConvergeResult(summary=(await ctx.agent(agent, "go")).output.summary)

    life, _, _ = await played(ask, tools=[set_pin])
    kept = kept_of(life)
    assert '"pin":"***"' in kept
    assert str(pin) not in kept


async def test_a_result_of_which_people_see_nothing_is_not_told():
    @tool(redact=["key"])
    async def secrets() -> dict:
        return {"key": "hunter2-hunter2", "rest": "x" * 300_000}

    tools = toolset(secrets, cut={"secrets": head(1_000_000)})
    function = asking(agent_of(Script([("secrets", {})], "fine"), toolsets=[tools]))
    prompt = await asked_last(function, tools=[secrets])
    assert prompt.messages[-1]["parts"][0]["content"] == "***"


@pytest.mark.parametrize("strategy", ["timeline", "summary_only", "none"])
async def test_only_under_full_debug_anything_is_kept_and_shown(strategy):
    function = asking(agent_of(Script("fine")))
    life, _, step = await played(function, log_strategy=strategy)
    assert [each.prompt for each in life.of(StepRecorded)] == [None, None]
    with pytest.raises(PromptNotKept, match=f"its log strategy is {strategy}"):
        await model_prompt(life.events, step.step_no, results.out_of_reach)


async def test_what_stays_old_is_kept_without_its_messages_under_other_strategies():
    agent = agent_of(Script("fine"), instructions="be brief")

    async def ask(ctx, trigger):
        said = await ctx.agent(agent, "a secret", on_change="old")
        return ConvergeResult(summary=said.output)

    _, _, step = await played(ask, log_strategy="timeline")
    assert step.prompt.agent is not None
    assert step.prompt.messages is None


async def test_a_step_that_asks_no_model_is_told():
    life, ports, _ = await played(asking(agent_of(Script("fine"))))
    load = partial(fetch, ports.objects)
    with pytest.raises(PromptNotKept, match="step 2 is agent, not model_request"):
        await model_prompt(life.events, 2, load)
    with pytest.raises(PromptNotKept, match="there is no step 3"):
        await model_prompt(life.events, 3, load)


@pytest.mark.parametrize("size", [10, MESSAGES_HERE_BYTES_MAX + 1])
async def test_messages_of_any_size_are_told_and_large_ones_are_not_in_the_journal(size):
    text = "x" * size
    function = asking(agent_of(Script([("look", {"q": "cpu"})], "fine"), look), text)
    life, ports, step = await played(function)
    prompt = await model_prompt(life.events, step.step_no, partial(fetch, ports.objects))
    assert prompt.messages[0]["parts"][0]["content"] == text
    first = life.of(StepRecorded)[0].prompt.messages
    assert (first.stored is not None) is (size > 10)


async def test_more_than_can_be_kept_is_not_and_the_episode_goes_on(monkeypatch):
    monkeypatch.setattr(driver, "MESSAGES_BYTES_MAX", MESSAGES_HERE_BYTES_MAX + 1)
    text = "x" * (MESSAGES_HERE_BYTES_MAX + 1)
    with pytest.raises(PromptNotKept, match="step 1: the messages had more than is kept"):
        await asked_last(asking(agent_of(Script("fine")), text))
    large = agent_of(Script("fine"), instructions="x" * AGENT_BYTES_MAX)
    with pytest.raises(PromptNotKept, match="step 1: the agent had more than is kept"):
        await asked_last(asking(large))


async def ask_no() -> str:
    """Ask nobody."""
    return "nobody"


class Away(MemoryObjects):
    """A store that answers no put."""

    async def put(self, data, *, about=""):
        await asyncio.Event().wait()


async def test_an_object_store_that_is_away_holds_up_no_request(monkeypatch):
    monkeypatch.setattr(objects, "PUT_S_MAX", 0.05)
    ports = dataclasses.replace(memory_ports(clock=CLOCK), objects=Away(CLOCK))
    life = await play(asking(agent_of(Script("fine"))), ports=ports, budget=MANY)
    assert life.end.status is EndStatus.DONE
    told = "step 1: the agent could not be kept: the object store was away"
    with pytest.raises(PromptNotKept, match=told):
        await prompts_of(life, ports)


class AwayAtFirst(MemoryObjects):
    """A store that refuses the first put."""

    async def put(self, data, *, about=""):
        self.put = super().put
        raise Unavailable("objects", detail="no quorum")


async def test_once_the_store_is_back_the_whole_conversation_is_told(monkeypatch):
    monkeypatch.setattr(objects, "AWAY_S", 0.0)
    ports = dataclasses.replace(memory_ports(clock=CLOCK), objects=AwayAtFirst(CLOCK))
    agent = agent_of(Script([("ask_no", {})], "fine"), ask_no)
    life = await play(asking(agent), ports=ports, budget=MANY)
    first, *_, last = (e for e in life.of(StepRecorded) if e.kind is StepKind.MODEL_REQUEST)
    load = partial(fetch, ports.objects)
    with pytest.raises(PromptNotKept, match="the object store was away"):
        await model_prompt(life.events, first.step_no, load)
    prompt = await model_prompt(life.events, last.step_no, load)
    assert [each["kind"] for each in prompt.messages] == ["request", "response", "request"]


async def test_instructions_are_kept_once():
    agent = agent_of(Script("fine"), instructions=["be brief", " and kind "])
    life, ports, step = await played(asking(agent))
    kept = await ports.objects.get(step.prompt.agent.stored.digest)
    (prompt,) = (await prompts_of(life, ports)).values()
    assert (kept.count(b"be brief"), kept.count(b"and kind")) == (1, 1)
    assert prompt.instructions == "be brief\n\nand kind"


async def test_headers_and_keys_are_not_kept():
    settings = {
        "max_tokens": 9,
        "extra_headers": {"x-key": "s3cret"},
        "api_key": "s3cret",
        "extra_body": {
            "auth_token": "s3cret",
            "x-api-key": "s3cret",
            "tools": [{"api_key": "s3cret", "kind": "web"}, [{"password": "s3cret"}]],
            "seed": 1,
        },
    }
    agent = agent_of(Script("fine"), model_settings=settings)
    _, ports, step = await played(asking(agent))
    kept = await ports.objects.get(step.prompt.agent.stored.digest)
    assert b"s3cret" not in kept
    settings = msgspec.json.decode(kept)["settings"]
    assert settings == {
        "max_tokens": 9,
        "extra_body": {"tools": [{"kind": "web"}, [{}]], "seed": 1},
    }


async def test_an_agent_is_put_once_for_all_its_requests(monkeypatch):
    put = []
    kept = MemoryObjects.put

    async def counting(self, data):
        put.append(data)
        return await kept(self, data)

    monkeypatch.setattr(MemoryObjects, "put", counting)
    turns = [[("look", {"q": "cpu"})]] * 5
    await asked_last(asking(agent_of(Script(*turns, "fine"), look)))
    assert len(put) == 1


async def test_the_journal_has_whole_results_and_answers_once():
    def long() -> str:
        """Say much."""
        return "y" * 3_000

    script = Script([("long", {})], [("long", {})], "fine")
    life, _, _ = await played(asking(agent_of(script, long)))
    kept = [bytes(each.prompt.messages.json) for each in life.of(StepRecorded) if each.prompt]
    assert len(kept) == 3
    assert all(len(each) < 300 for each in kept)


async def test_a_failed_request_that_is_repeated_asks_the_same_twice():
    failing = [FailureAnswer(503), "fine"]
    ports = memory_ports(clock=CLOCK)
    async with served(failing) as (_, model):
        agent = Agent(model, name="helper")

        async def ask(ctx, trigger):
            retries = Retries(attempts_max=2, first_s=0.01, most_s=0.01)
            said = await ctx.agent(agent, "go", retries=retries)
            return ConvergeResult(summary=said.output)

        life = await play(ask, budget=MANY, ports=ports)
        first, second = (await prompts_of(life, ports)).values()
    assert first.messages == second.messages
    assert (first.path, second.path) == ("1.m1.1", "1.m1.1.0.2")


async def test_a_restarted_episode_tells_what_was_asked_since():
    def plays(word):
        return asking(agent_of(Script(word)), word)

    first, _, _ = await played(plays("one"))
    second, ports, _ = await played(plays("two"))
    steps = [middle(each)[0] for each in (first, second)]
    later = replace(steps[1], step_no=2)
    fresh = EpisodeStarted(node="n2", attempt=2, claim_revision=2, fresh=True)
    opened = first.events[0]
    prompt = await model_prompt([opened, steps[0], fresh, later], 2, partial(fetch, ports.objects))
    assert [each["parts"][0]["content"] for each in prompt.messages] == ["two"]


def test_what_an_answer_hides_is_hidden_in_whatever_is_said_after_it():
    """Also where nobody else knows yet that it is a secret."""
    talk = Conversation(hidden=frozenset({"token"}))
    args = {"user": "ann", "token": "hunter2-hunter2"}
    call = ToolCallPart("login", args, tool_call_id="c1")
    talk.answered({"parts": [jsonable(call)]}, place="1")
    (kept,) = talk.kept([ModelRequest(parts=[UserPromptPart("is it hunter2-hunter2?")])])
    assert kept["parts"][0]["content"] == "is it ***?"


def test_a_part_of_a_result_is_shown_without_what_its_tool_hides():
    @tool(redact=["token"])
    async def login() -> dict:
        """Log in."""
        raise NotImplementedError

    result = {"token": "an0ther-secret", "zeros": "0" * 300}
    found = _brought(StepTool("login", login, cut=head(60)), result, "t1.1")
    assert ("an0ther" in str(found.result), "an0ther" in str(found.shown)) == (True, False)
    assert "***" in str(found.shown)
