"""Tools of a real MCP server in a test with virtual time, whose nodes die."""

from __future__ import annotations

import json

import pytest

from tests.engine.toolbox.reaching import Serving, process
from vigil import Actor, App, CallFailed, ConvergeResult, manual
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
