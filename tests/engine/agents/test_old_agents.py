"""An agent that has changed and goes on as it was, for the runs that have begun before."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from engine.agents.unit import AGENT_BYTES_MAX
from engine.app.strategy import ConvergeResult
from engine.errors import NondeterministicReplay
from engine.functions.activity import TURNS_TO_SETTLE
from engine.operations.replay import load, record, replay
from engine.runtime import objects
from streams.memory import memory_ports
from streams.memory.objects import MemoryObjects
from streams.model.events import StepAnnounced, StepKind, StepRecorded
from tests.engine.agents.stage import MANY, Script, agent_of, classified, last_told
from tests.engine.agents.test_money import PRICE, SHORT
from tests.engine.agents.test_money import app_of as limited_app_of
from tests.engine.functions.stage import app_of, middle, play, resume
from tests.engine.stage import CLOCK, lived, open_episode, running
from vigil.testing import AskedTool, ModelServer, ToolCallsAnswer

PUT_S = 0.02

OLD = {"instructions": "be brief"}


async def look(q: str) -> str:
    """Look at something."""
    return f"{q} is high"


async def another() -> str:
    """Do something else."""
    return ""


class Answers:
    """A model that looks three times, and notes how each request was made."""

    def __init__(self):
        self.asked, self.headers = [], []

    def __call__(self, messages, info):
        number = sum(isinstance(each, ModelResponse) for each in messages)
        said = dict((info.model_settings or {}).items())
        self.headers.append(said.pop("extra_headers", {}))
        tools = {each.name: each.description for each in info.function_tools}
        self.asked.append((number, info.instructions, tools, said))
        turns = [*([("look", {"q": each})] for each in ("cpu", "disk", "net")), last_told]
        return Script(*turns)(messages, info)


def checking(agent, **options):
    async def check(ctx, trigger):
        result = await ctx.agent(agent, "what is it?", on_change="old", **options)
        return ConvergeResult(classification={"said": result.output, "version": result.version})

    return check


class Stage:
    """An episode of the old agent, whose node dies; what it has kept is there still."""

    def __init__(self, **declared):
        self.ports = memory_ports(clock=CLOCK)
        self.declared = {"budget": MANY, **declared}

    async def plays(self, function):
        """Return the whole life of an episode that nothing disturbs."""
        return await play(function, ports=self.ports, **self.declared)

    async def resumes(self, function, events):
        app = app_of(function, **self.declared)
        return await resume(app, events, objects=self.ports.objects)


def after(events, requests):
    """Return the events up to the record of so many requests."""
    ends = [n for n, e in enumerate(events) if getattr(e, "kind", "") == StepKind.MODEL_REQUEST]
    return events[: ends[requests - 1] + 1]


def versions(life):
    return [e.agent for e in life.of(StepRecorded) if e.kind is StepKind.MODEL_REQUEST]


CHANGED = {
    "instructions": {"instructions": "be long"},
    "no instructions": {"instructions": None},
    "a tool more": {"tools": [look, another]},
    "settings": {"model_settings": {"temperature": 0.5}},
    "all": {
        "instructions": "be long",
        "tools": [another, look],
        "model_settings": {"temperature": 0.5, "max_tokens": 3},
    },
}


def made(answers, *, tools=(look,), **options):
    return agent_of(answers, *tools, **{**OLD, "model_settings": {"top_p": 0.1}, **options})


@pytest.mark.parametrize("changed", CHANGED.values(), ids=CHANGED)
@pytest.mark.parametrize("strategy", ["full_debug", "timeline", "none"])
async def test_a_changed_agent_asks_at_each_turn_as_it_was(changed, strategy):
    before, today, stage = Answers(), Answers(), Stage(log_strategy=strategy)
    undisturbed = await stage.plays(checking(made(before)))
    events = after(middle(undisturbed), 2)
    life = await stage.resumes(checking(made(today, **changed)), events)
    assert classified(life) == classified(undisturbed)
    assert today.asked == before.asked[2:]
    assert versions(life) == versions(undisturbed)


async def test_it_goes_on_as_it_was_after_a_crash_at_each_moment():
    before, stage = Answers(), Stage()
    undisturbed = await stage.plays(checking(made(before)))
    events = middle(undisturbed)
    first = len(after(events, 1))
    for until in range(first, len(events)):
        today = Answers()
        life = await stage.resumes(checking(made(today, **CHANGED["all"])), events[:until])
        assert classified(life) == classified(undisturbed), until
        assert today.asked == before.asked[4 - len(today.asked) :], until


async def test_an_agent_is_not_left_while_it_is_looked_up_what_it_was(monkeypatch):
    kept = MemoryObjects.get

    async def slowly(self, digest):
        for _ in range(3 * TURNS_TO_SETTLE):
            await asyncio.sleep(0)
        return await kept(self, digest)

    monkeypatch.setattr(MemoryObjects, "get", slowly)
    stage, today = Stage(), Answers()
    events = after(middle(await stage.plays(counting(Answers(), "step"))), 3)
    life = await stage.resumes(counting(today, "new"), events)
    assert classified(life)["said"] == "net is high"
    assert [asked[:2] for asked in today.asked] == [(3, "step 3")]


async def test_it_stays_as_it_was_through_a_second_crash():
    before, stage = Answers(), Stage()
    undisturbed = await stage.plays(checking(made(before)))
    once = await stage.resumes(
        checking(made(Answers(), **CHANGED["all"])), after(middle(undisturbed), 1)
    )
    today = Answers()
    again = await stage.resumes(
        checking(made(today, instructions="new again")), after(middle(once), 3)
    )
    assert today.asked == before.asked[3:]
    assert versions(again) == versions(undisturbed)


async def test_a_new_episode_has_the_agent_of_today():
    before, today, stage = Answers(), Answers(), Stage()
    undisturbed = await stage.plays(checking(made(before)))
    other = await Stage().plays(checking(made(today, instructions="be long")))
    assert {asked[1] for asked in today.asked} == {"be long"}
    assert not {*versions(other)} & {*versions(undisturbed)}


async def test_a_run_that_has_not_asked_yet_has_the_agent_of_today():
    today = Answers()
    life = await Stage().resumes(checking(made(today, instructions="be long")), [])
    assert {asked[1] for asked in today.asked} == {"be long"}
    assert len({*versions(life)}) == 1


async def test_a_request_that_was_only_announced_is_made_by_the_agent_of_today():
    def app(answers, **options):
        agent = made(answers, **{"model_settings": SHORT, **options})
        return limited_app_of(checking(agent), usd="100", prices={"function:mine": PRICE})

    ports, today = memory_ports(clock=CLOCK), Answers()
    async with running(app(Answers()), ports):
        life = await lived(ports, await open_episode(ports, app(Answers())))
    announced = life.of(StepAnnounced)[0]
    resumed = await resume(app(today, instructions="be long"), [announced], objects=ports.objects)
    assert classified(resumed)["said"] == "net is high"
    assert {asked[1] for asked in today.asked} == {"be long"}


def counting(answers, word, **options):
    """An agent whose instructions are computed for each request, each a version of its own."""
    agent = made(answers, instructions=None, **options)

    @agent.instructions
    def instruct(ctx) -> str:
        return f"{word} {ctx.run_step}"

    return checking(agent)


async def test_instructions_that_are_computed_stay_so_unless_they_have_changed():
    stage, before = Stage(), Answers()
    undisturbed = await stage.plays(counting(before, "step"))
    events = after(middle(undisturbed), 2)
    same, other = Answers(), Answers()
    life = await stage.resumes(counting(same, "step", tools=[look, another]), events)
    assert same.asked == before.asked[2:]
    assert versions(life) == versions(undisturbed)
    await stage.resumes(counting(other, "new", tools=[look, another]), events)
    assert [asked[1] for asked in other.asked] == ["step 2", "step 2"]


async def test_headers_are_those_of_today_and_nothing_secret_is_kept():
    def keyed(answers, header, **options):
        headers = {"x-key": header, "x-plain": "1"}
        settings = {"extra_headers": headers, "extra_body": {"api_key": "s3cret", "a": 1}}
        return checking(made(answers, model_settings=settings, **options))

    stage, today = Stage(), Answers()
    undisturbed = await stage.plays(keyed(Answers(), "0ld-s3cret"))
    events = after(middle(undisturbed), 1)
    life = await stage.resumes(keyed(today, "n3w-s3cret", instructions="be long"), events)
    assert versions(life) == versions(undisturbed)
    assert {asked[1] for asked in today.asked} == {"be brief"}
    assert {each["x-key"] for each in today.headers} == {"n3w-s3cret"}
    for each in life.of(StepRecorded):
        if each.prompt is not None:
            kept = await stage.ports.objects.get(each.prompt.agent.stored.digest)
            assert b"s3cret" not in kept
            assert b'"extra_body":{"a":1}' in kept


async def test_keys_within_other_settings_are_those_of_today_while_the_rest_is_as_it_was():
    def keyed(answers, temperature, **more):
        body = {
            "api_key": "s3cret",
            "a": 1,
            "deep": {"token": "t0ken", "b": 2},
            "listed": [{"token": "t0ken", "c": 3}],
            **more,
        }
        return checking(
            made(answers, model_settings={"extra_body": body, "temperature": temperature})
        )

    stage, today = Stage(), Answers()
    undisturbed = await stage.plays(keyed(Answers(), 0.1))
    events = after(middle(undisturbed), 1)
    life = await stage.resumes(keyed(today, 0.9, new=3), events)
    assert not life.parked
    assert versions(life) == versions(undisturbed)
    body = {
        "api_key": "s3cret",
        "a": 1,
        "deep": {"token": "t0ken", "b": 2},
        "listed": [{"token": "t0ken", "c": 3}],
    }
    assert today.asked
    for *_, settings in today.asked:
        assert (settings["extra_body"], settings["temperature"]) == (body, 0.1)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"tools": [another]}, "the tools of the agent have changed: its tool look is gone"),
        ({"output_type": int}, "the tools of the agent have changed: its output type has changed"),
    ],
)
async def test_what_the_agent_of_today_cannot_do_parks_the_episode(changed, why):
    stage = Stage()
    events = after(middle(await stage.plays(checking(made(Answers())))), 1)
    life = await stage.resumes(checking(made(Answers(), **changed)), events)
    assert why in life.parked


async def test_a_model_that_cannot_be_made_again_parks_the_episode():
    stage = Stage()
    events = after(middle(await stage.plays(checking(made(Answers())))), 1)
    agent = Agent(FunctionModel(Answers(), model_name="other"), name="helper", **OLD)
    agent.tool_plain(look)
    life = await stage.resumes(checking(agent), events)
    assert "function:mine cannot be asked as before" in life.parked


def looks_thrice(request):
    told = sum(each["role"] == "tool" for each in request.messages)
    asked = ToolCallsAnswer((AskedTool("look", {"q": str(told)}),))
    return f"looked {told} times" if told == 3 else asked


def asks(model, *, stream=False, **options):
    agent = Agent(model, name="helper", **options)
    agent.tool_plain(look)
    return checking(agent, stream=stream)


def at(server, name):
    provider = OpenAIProvider(base_url=f"{server.url}/v1", api_key="test")
    return OpenAIChatModel(name, provider=provider)


async def test_a_model_that_was_asked_elsewhere_is_not_asked_here():
    stage = Stage()
    async with (
        ModelServer(looks_thrice) as there,
        ModelServer(looks_thrice) as here,
        at(there, "first") as first,
        at(here, "second") as second,
    ):
        events = after(middle(await stage.plays(asks(first))), 2)
        life = await stage.resumes(asks(second), events)
    assert "openai:first cannot be asked as before" in life.parked
    assert here.requests == 0


async def test_a_model_that_was_asked_in_another_way_is_not_asked_by_its_name_alone():
    stage = Stage()
    async with ModelServer(looks_thrice) as server:
        own = {"openai_system_prompt_role": "developer"}
        provider = OpenAIProvider(base_url=f"{server.url}/v1", api_key="test")
        first = OpenAIChatModel("first", provider=provider, profile=own)
        async with first, at(server, "second") as second:
            events = after(middle(await stage.plays(asks(first))), 2)
            life = await stage.resumes(asks(second), events)
        asked = server.requests
    assert "openai:first cannot be asked as before" in life.parked
    assert asked == 4


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_run_goes_on_with_the_model_that_it_began_with(is_streamed):
    stage = Stage()
    async with (
        ModelServer(looks_thrice, models=["first", "second"]) as server,
        at(server, "first") as first,
        at(server, "second") as second,
    ):
        undisturbed = await stage.plays(asks(first, stream=is_streamed))
        events = after(middle(undisturbed), 2)
        changed = asks(second, stream=is_streamed, instructions="be long")
        life = await stage.resumes(changed, events)
    assert {call.request.is_streamed for call in server.calls} == {is_streamed}
    assert {call.request.model for call in server.calls} == {"first"}
    # An equal body under the key of before is no new call.
    assert [call.asked for call in server.calls] == [1, 1, 2, 2]
    assert versions(life) == versions(undisturbed)


async def test_an_agent_that_is_too_large_to_be_kept_is_refused_in_one_line():
    instructions = "x" * AGENT_BYTES_MAX
    life = await Stage().plays(checking(made(Answers(), instructions=instructions)))
    assert life.end.error_class == "invalid_action"
    assert 'on_change="old" keeps the instructions and the tools' in life.end.error_detail
    assert "at most 1,048,576 can be kept" in life.end.error_detail


async def test_an_agent_that_has_not_changed_goes_on_though_nothing_is_kept_any_more():
    stage = Stage()
    undisturbed = await stage.plays(checking(made(Answers())))
    app = app_of(checking(made(Answers())), **stage.declared)
    events = after(middle(undisturbed), 2)
    life = await resume(app, events, objects=MemoryObjects(CLOCK))
    assert classified(life) == classified(undisturbed)


async def test_an_agent_that_has_changed_parks_where_nothing_is_kept_any_more():
    stage = Stage()
    events = after(middle(await stage.plays(checking(made(Answers())))), 2)
    app = app_of(checking(made(Answers(), instructions="be long")), **stage.declared)
    life = await resume(app, events, objects=MemoryObjects(CLOCK))
    told = "the instructions of the agent have changed: what it was is lost: the object store"
    assert told in life.parked


async def test_what_was_recorded_before_anything_was_kept_parks_the_episode():
    async def parks(ctx, trigger):
        said = await ctx.agent(made(Answers()), "what is it?")
        return ConvergeResult(classification={"said": said.output})

    stage = Stage(log_strategy="timeline")
    events = after(middle(await stage.plays(parks)), 1)
    life = await stage.resumes(checking(made(Answers(), instructions="be long")), events)
    assert "the instructions of the agent have changed" in life.parked


async def test_a_history_replays_an_agent_that_has_changed_since():
    stage = Stage()
    life = await stage.plays(checking(made(Answers())))
    records = load(await record(stage.ports, life.episode.opened.episode_id))
    today = app_of(checking(made(Answers(), instructions="be long")), budget=MANY)
    await replay(records, today)
    gone = app_of(checking(made(Answers(), tools=[another])), budget=MANY)
    await replay(records, gone)  # The agent has ended.
    cut = len(records) - 2
    with pytest.raises(NondeterministicReplay, match="look is gone"):
        await replay(records[:cut], gone)


async def test_a_history_has_an_agent_once_for_all_its_requests():
    stage = Stage()
    large = "be brief" * 10_000
    life = await stage.plays(checking(made(Answers(), instructions=large)))
    history = await record(stage.ports, life.episode.opened.episode_id)
    assert history.count(large.encode()) == 1
    steps = [e for each in load(history) for e in each.commit.events if type(e) is StepRecorded]
    agents = [each.prompt.agent for each in steps if each.prompt is not None]
    assert len(agents) == 4
    assert {(large.encode() in bytes(each.json), each.stored) for each in agents} == {(True, None)}


async def test_a_history_is_recorded_though_its_agents_are_kept_no_more():
    stage = Stage()
    life = await stage.plays(checking(made(Answers())))
    lost = replace(stage.ports, objects=MemoryObjects(CLOCK))
    records = load(await record(lost, life.episode.opened.episode_id))
    await replay(records, app_of(checking(made(Answers())), budget=MANY))


class AwayAtFirst(MemoryObjects):
    """A store that answers its first put too late for what people alone would miss."""

    is_there = False

    async def put(self, data, *, about=""):
        if not self.is_there:
            self.is_there = True
            await asyncio.sleep(3 * PUT_S)
        return await super().put(data)


async def test_an_agent_that_is_to_stay_as_it_was_is_kept_before_it_asks(monkeypatch):
    monkeypatch.setattr(objects, "PUT_S_MAX", PUT_S)
    stage = Stage()
    stage.ports = replace(stage.ports, objects=AwayAtFirst(CLOCK))
    life = await stage.plays(checking(made(Answers())))
    first = life.of(StepRecorded)[0]
    assert first.prompt.agent.stored is not None
