"""Tools of a real MCP server in a test with virtual time, whose nodes die."""

from __future__ import annotations

import json

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from engine.toolbox.mcp_declared import ServerTool
from tests.engine.toolbox.reaching import Serving, process
from vigil import Actor, App, Budget, CallFailed, ConvergeResult, manual
from vigil.agents import head, toolset
from vigil.testing import crash_everywhere, run
from vigil.tools import McpTool, mcp_server

TOOLS = {"search": "read", "add": McpTool("change", idempotent=True)}


def writing(**place):
    """Return an app that looks for a note and writes it."""
    scribe = Actor("scribe", tools={"notes": mcp_server(tools=TOOLS, **place)})

    @scribe.expectation(on=manual())
    async def note_is_there(ctx, trigger):
        found = await ctx.call("notes.search", query="disk full")
        text = found["found"][0]
        try:
            added = await ctx.call("notes.add", text=text)
        except CallFailed as failed:
            return ConvergeResult(summary=failed.error_class)
        return ConvergeResult(summary=added["result"])

    return App(actors=[scribe])


async def fired(vigil):
    await vigil.fire("scribe", "note_is_there", key="once")
    await vigil.run_until_idle()


async def test_a_note_is_written_once_whenever_a_node_dies(tmp_path):
    file = tmp_path / "notes"
    file.touch()
    async with Serving(NOTES_FILE=str(file)) as serving:
        app = writing(**serving.place)
        ends = []

        async def scenario(vigil):
            file.write_text("")
            await fired(vigil)
            ends.append([vigil.episode().summary, len(file.read_text().splitlines())])

        moments = await crash_everywhere(lambda: run(app, allow=["notes.*"]), scenario, processes=0)

    assert moments >= 4
    assert {tuple(each) for each in ends} == {("written: disk full", 1)}


async def test_calls_of_the_tools_can_be_answered_by_a_test():
    answers = {"notes.search": {"found": ["full"]}, "notes.add": {"result": "done"}}
    async with run(writing(command="/nowhere"), tools=answers) as vigil:
        await fired(vigil)
        assert vigil.episode().summary == "done"
        assert [each.side_effect for each in vigil.calls()] == [False, True]


async def test_a_stub_for_a_tool_that_was_not_allowed_is_refused():
    with pytest.raises(ValueError, match="notes has add, search"):
        async with run(writing(command="/nowhere"), tools={"notes.wipe": None}):
            pass


async def test_virtual_time_waits_for_a_server_that_is_started_for_the_call(tmp_path):
    file = tmp_path / "notes"
    file.touch()
    app = writing(**process(NOTES_FILE=str(file)))
    async with run(app, allow=["notes.*"]) as vigil:
        began = vigil.now
        await fired(vigil)
        assert vigil.episode().summary == "written: disk full"
        assert (vigil.now - began).total_seconds() < 5

    ((key, _),) = [json.loads(line) for line in file.read_text().splitlines()]
    assert key.startswith(vigil.episode().id)


async def test_a_dry_run_calls_what_only_reads():
    async with run(writing(command="/nowhere"), tools={"notes.*": {"found": ["full"]}}) as vigil:
        await vigil.fire("scribe", "note_is_there", dry_run=True)
        await vigil.run_until_idle()
        assert vigil.episode().summary == "dry_run_side_effect"
        assert [each.name for each in vigil.calls()] == ["notes.search"]


async def test_people_answer_a_question_of_a_server_while_no_node_has_the_episode():
    async with Serving() as serving:
        tools = {"wipe": McpTool("destroy", may_ask=True)}
        scribe = Actor("scribe", tools={"notes": mcp_server(tools=tools, **serving.place)})

        @scribe.expectation(on=manual())
        async def notes_are_gone(ctx, trigger):
            asked = await ctx.call("notes.wipe", what="delete all")
            ((key, question),) = asked["inputRequests"].items()
            if not await ctx.approval({"the server asks": question["params"]["message"]}):
                return ConvergeResult(summary="kept")
            given = {"_answers": {key: {"ok": True}}, "_state": asked["requestState"]}
            done = await ctx.call("notes.wipe", what="delete all", **given)
            return ConvergeResult(summary=done["result"])

        async with run(App(actors=[scribe]), allow=["notes.*"]) as vigil:
            await vigil.fire("scribe", "notes_are_gone")
            await vigil.run_until_idle()
            assert vigil.waits()[0].plan == {"the server asks": "Really delete all?"}
            await vigil.crash()
            await vigil.approve()
            await vigil.run_until_idle()
            assert vigil.episode().summary == 'delete all: accept {"ok": true}'


# Given to an agent.


def answering(messages, info):
    """Look for a note and write one at once, then say what came of it."""
    if len(messages) == 1:
        calls = [("notes_search", {"query": "disk"}), ("notes_add", {"text": "disk full"})]
        return ModelResponse([ToolCallPart(*each) for each in calls])
    return ModelResponse([TextPart("; ".join(str(each.content) for each in messages[-1].parts))])


async def described(group) -> dict[str, McpTool]:
    """Return the tools of a server with what it says of them."""
    told = await next(iter(group.functions.values())).server.tools()
    return {
        name: McpTool(
            each.risk,
            description=told[name].description,
            input_schema=told[name].input_schema,
            idempotent=each.idempotent,
        )
        for name, each in group.functions.items()
        if isinstance(each, ServerTool)
    }


def with_agent(model=answering, **declared):
    """Return an app whose agent has the tools of a server, and must ask before it writes."""
    notes = mcp_server(**declared)
    cut = {"notes_search": head(10)}
    offered = toolset(*notes.offered("notes"), ask_from="change", cut=cut)
    agent = Agent(FunctionModel(model), name="scribe", toolsets=[offered])
    scribe = Actor("scribe", tools={"notes": notes})

    @scribe.expectation(on=manual(), budget=Budget(turns=20, tokens=0))
    async def note_is_there(ctx, trigger):
        return ConvergeResult(summary=(await ctx.agent(agent, "take a note")).output)

    return App(actors=[scribe])


async def test_an_agent_calls_tools_of_a_server_as_steps_once_whenever_a_node_dies(tmp_path):
    file = tmp_path / "notes"
    file.touch()
    async with Serving(NOTES_FILE=str(file)) as serving:
        tools = await described(mcp_server(tools=TOOLS, **serving.place))
        app = with_agent(tools=tools, **serving.place)
        ends = []

        async def scenario(vigil):
            file.write_text("")
            await fired(vigil)
            assert vigil.waits()[0].plan == {"text": "disk full"}
            await vigil.approve(plan={"text": "disk is full"})
            await vigil.run_until_idle()
            ends.append((vigil.episode().summary, len(file.read_text().splitlines())))
            made = {each.idempotency_key: each.side_effect for each in vigil.calls()}
            assert [*made.values()] == [False, True]

        moments = await crash_everywhere(lambda: run(app, allow=["notes.*"]), scenario, processes=0)

    assert moments > 6
    (end,) = set(ends)
    found, _, added = end[0].partition("; ")
    assert (added, end[1]) == ("{'result': 'written: disk is full'}", 1)
    assert found.endswith("more characters are left out]")


def telling(messages, info):
    """Tell which tools there are, with their descriptions and arguments."""
    known = {
        each.name: (each.description, each.parameters_json_schema) for each in info.function_tools
    }
    return ModelResponse([TextPart(json.dumps(known))])


async def test_a_model_is_told_of_tools_what_stands_in_the_app_and_no_server_is_asked():
    schema = {"type": "object", "properties": {"query": {"type": "string"}}}
    tools = {"search": McpTool("read", description="Find notes.", input_schema=schema)}
    async with run(with_agent(telling, command="/nowhere", tools=tools)) as vigil:
        await fired(vigil)
        assert json.loads(vigil.episode().summary) == {"notes_search": ["Find notes.", schema]}


async def test_arguments_that_do_not_fit_are_told_to_the_model_without_a_call():
    asked = []

    def model(messages, info):
        asked.append(str(messages[-1].parts[-1].content))
        if len(messages) == 1:
            return ModelResponse([ToolCallPart("notes_search", {"query": 7})])
        return ModelResponse([TextPart("given up")])

    schema = {"type": "object", "properties": {"query": {"type": "string"}}}
    tools = {"search": McpTool("read", description="Find notes.", input_schema=schema)}
    app = with_agent(model, command="/nowhere", tools=tools)
    async with run(app, tools={"notes.search": {"found": []}}) as vigil:
        await fired(vigil)
        assert vigil.calls() == []
    assert "search: $.query: 7 is not of type 'string'" in asked[-1]
