"""Which tools there are for whom, what they answer, and what is refused."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager

import jsonschema
import msgspec
import pytest
from mcp.shared.exceptions import MCPError
from structlog.testing import capture_logs

from engine.people.identity import Identity, Role
from streams.clock import SystemClock
from streams.layout import Stream
from streams.memory import memory_ports
from streams.model.events import EpisodeOpened
from tests.mcp.reaching import (
    CONSOLE,
    READER,
    Opener,
    names,
    person,
    program,
    served,
    text_of,
)
from vigil import Actor, App, ConvergeResult, event, manual
from vigil.client import Client
from vigil.mcp.caller import ACT, CALLERS_MAX, READ, Caller, CallRate
from vigil.mcp.table import TOOLS, listed
from vigil.mcp.tool import ANSWER_BYTES_MAX, ServedCall, ServedTool, ToolInput, ToolKind, ToolOutput
from vigil.testing import run

READS = {
    "find", "finding", "episodes", "episode", "timeline", "event", "explain_not_fired", "costs",
    "health", "check_definition", "approvals", "approval", "decide",
}  # fmt: skip
ACTS = {"fire", "publish", "signal", "fork", "retry", "cancel"}

keeper = Actor("keeper")


@keeper.expectation(on=manual())
async def db_is_up(ctx, trigger):
    await ctx.approval({"restart": "db-1"}, approvers=("ann",), summary="Restart")
    return ConvergeResult(summary="restarted")


@keeper.expectation(on=event("door.opened", filter={"door": "front"}))
async def front_door(ctx, trigger):
    return ConvergeResult(summary="opened")


APP = App(actors=[keeper])
FIRE = {"actor": "keeper", "expectation": "db_is_up", "key": "k1"}


@asynccontextmanager
async def keeping():
    async with run(APP) as vigil:
        yield vigil, Client.on(vigil.ports, by="bo", clock=vigil._clock)


def acting(*, is_agent: bool) -> Identity:
    """Return a program that may act; `is_agent`: its token is marked so."""
    return msgspec.structs.replace(program(READ, ACT), is_agent=is_agent)


def nothing_there() -> Client:
    return Client.on(memory_ports(clock=SystemClock()), by="bo")


ROLES = [
    (role, scopes, role.includes(Role.OPERATOR) and (scopes is None or ACT in scopes))
    for role, scopes in itertools.product(Role, (None, {READ}, {READ, ACT}))
]


@pytest.mark.parametrize(("role", "scopes", "acts"), ROLES)
async def test_each_is_listed_what_the_role_and_the_token_let_it_do(role, scopes, acts):
    who = person(role=role) if scopes is None else program(*scopes, role=role)
    async with served(nothing_there(), who) as mcp:
        assert names(await mcp.list_tools()) == (READS | ACTS if acts else READS)


@pytest.mark.parametrize("tool", sorted(ACTS))
async def test_a_tool_that_is_not_listed_is_one_that_there_is_not(tool):
    async with served(nothing_there(), READER) as mcp:
        with pytest.raises(MCPError) as refused:
            await mcp.call_tool(tool, {})
        with pytest.raises(MCPError) as absent:
            await mcp.call_tool("nothing", {})
    assert str(refused.value) == str(absent.value).replace("nothing", tool)


async def test_who_may_not_read_is_told_of_nothing():
    async with served(nothing_there(), program("events:publish")) as mcp:
        assert names(await mcp.list_tools()) == set()
        with pytest.raises(MCPError, match="the scope read"):
            await mcp.read_resource("vigil://schema/definition")
        with pytest.raises(MCPError, match="the scope read"):
            await mcp.list_prompts()
        with pytest.raises(MCPError, match="the scope read"):
            async with mcp.listen(tools_list_changed=True):
                pass


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_the_schemas_of_a_tool_are_of_objects_and_its_hints_are_true(tool):
    shown = listed(tool)
    for schema in (shown.input_schema, shown.output_schema):
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
    assert shown.annotations.read_only_hint is (tool.name not in ACTS)
    assert shown.annotations.destructive_hint is (tool.name == "cancel")


@pytest.mark.parametrize("tool", ["fire", "publish", "signal", "fork"])
def test_what_would_act_twice_takes_an_idempotency_key(tool):
    assert "key" in listed(TOOLS[tool]).input_schema["required"]


def test_rules_are_tried_only_where_the_server_has_an_app():
    tool, caller = TOOLS["what_would_fire"], Caller(identity=READER)
    assert not tool.is_for(caller, has_app=False)
    assert tool.is_for(caller, has_app=True)


async def test_arguments_that_a_tool_does_not_take_are_told():
    async with served(nothing_there()) as mcp:
        answer = await mcp.call_tool("fire", {**FIRE, "keys": 1})
    assert answer.is_error
    assert "keys" in text_of(answer)


async def test_what_goes_wrong_is_told_with_what_to_do_and_without_a_trace():
    async with keeping() as (_, client), served(client) as mcp:
        answer = await mcp.call_tool("fire", {**FIRE, "expectation": "db_is_upp"})
    assert answer.is_error
    assert "did you mean db_is_up" in text_of(answer)
    assert "Traceback" not in text_of(answer)


async def test_what_an_answer_holds_is_data():
    async with keeping() as (_, client), served(client) as mcp:
        answer = await mcp.call_tool("fire", FIRE)
    text = text_of(answer)
    assert text.startswith("<fire data-")
    assert text.endswith(f"</{text[1:].partition('>')[0]}>")


async def test_who_acts_is_on_the_journal_with_token_and_program():
    async with keeping() as (vigil, client):
        async with served(client, program(READ, ACT, name="cleo")) as mcp:
            await mcp.call_tool("fire", {**FIRE, "reason": "to try"})
        (opened,) = [
            each
            for record in vigil.ports.log.records(Stream.JOURNAL)
            for each in record.commit.events
            if isinstance(each, EpisodeOpened)
        ]
    assert opened.trigger.requested_by == "cleo"
    assert opened.trigger.reason == "to try (by MCP, chat 1.2, token t1)"
    assert opened.metadata == {"mcp": {"token": "t1", "client": "chat 1.2"}}


@pytest.mark.parametrize(
    ("is_agent", "said", "is_dry"),
    [
        (False, None, False),
        (True, None, True),
        (True, False, False),
        (False, True, True),
    ],
)
async def test_what_an_agent_fires_is_a_dry_run_unless_it_says_otherwise(is_agent, said, is_dry):
    asked = FIRE if said is None else {**FIRE, "dry_run": said}
    async with keeping() as (_, client), served(client, acting(is_agent=is_agent)) as mcp:
        answer = await mcp.call_tool("fire", asked)
    assert answer.structured_content["is_dry_run"] is is_dry


async def test_what_an_agent_publishes_is_not_published_unless_it_says_so():
    said = {"name": "door.opened", "payload": {"door": "front"}, "key": "e1"}
    async with keeping() as (vigil, client):
        async with served(client, acting(is_agent=True)) as mcp:
            dry = await mcp.call_tool("publish", said)
            assert vigil.events("door.opened") == []
            live = await mcp.call_tool("publish", {**said, "dry_run": False})
        assert (dry.structured_content["seq"], live.structured_content["is_new"]) == (None, True)
        assert len(vigil.events("door.opened")) == 1


async def test_only_the_event_itself_comes_with_its_payload():
    async with keeping() as (vigil, client), served(client) as mcp:
        await vigil.publish("door.opened", {"door": "front"}, id="e1")
        await vigil.run_until_idle()
        found = await mcp.call_tool("event", {"id": "e1"})
        assert found.structured_content["payload"] == {"door": "front"}
        seq = found.structured_content["seq"]
        assert (await mcp.call_tool("event", {"seq": seq})).structured_content["id"] == "e1"
        assert "no event" in text_of(await mcp.call_tool("event", {"id": "e2"}))
        assert "one of the two" in text_of(await mcp.call_tool("event", {}))


async def test_it_explains_why_an_event_fired_nothing():
    async with keeping() as (vigil, client), served(client) as mcp:
        await vigil.publish("door.opened", {"door": "back"}, id="e1")
        await vigil.run_until_idle()
        await vigil._clock.sleep(5)  # Refusals are kept within a second.
        answer = await mcp.call_tool("explain_not_fired", {"event_id": "e1"})
    (ruling,) = answer.structured_content["items"]
    assert (ruling["expectation"], ruling["outcome"]) == ("front_door", "refused")


async def test_it_tells_what_the_rules_of_its_app_would_have_fired():
    async with keeping() as (vigil, client), served(client, READER, app=APP) as mcp:
        await vigil.publish("door.opened", {"door": "front"}, id="e1")
        await vigil.run_until_idle()
        answer = await mcp.call_tool("what_would_fire", {"actor": "keeper"})
        absent = await mcp.call_tool("what_would_fire", {"actor": "keper"})
    assert [each["event_id"] for each in answer.structured_content["items"]] == ["e1"]
    assert "did you mean keeper" in text_of(absent)


async def test_a_draft_of_a_definition_is_checked_and_not_applied():
    draft = {"agent": "broom", "expectations": {}}
    async with keeping() as (_, client), served(client, READER) as mcp:
        answer = await mcp.call_tool("check_definition", {"definition": draft})
        assert await client.definitions.list() == []
    assert answer.is_error
    assert "broom" in text_of(answer) or "expectations" in text_of(answer)


async def blocked(vigil, mcp):
    answer = await mcp.call_tool("fire", FIRE)
    await vigil.run_until_idle()
    return answer.structured_content["episode_id"]


async def test_a_request_for_approval_can_be_read_with_its_plan():
    async with keeping() as (vigil, client), served(client, console_url=CONSOLE) as mcp:
        id_ = await blocked(vigil, mcp)
        answer = await mcp.call_tool("approval", {"id": id_})
    found = answer.structured_content
    assert (found["plan"], found["approvers"]) == ({"restart": "db-1"}, ["ann"])
    assert found["where"] == f"{CONSOLE}/inbox/episode/{id_}"


async def test_to_decide_opens_the_page_and_decides_nothing():
    async with keeping() as (vigil, client):
        opener = Opener()
        async with served(client, console_url=CONSOLE, opener=opener) as mcp:
            id_ = await blocked(vigil, mcp)
            answer = await mcp.call_tool("decide", {"id": id_})
        assert opener.urls == [f"{CONSOLE}/inbox/episode/{id_}"]
        assert answer.structured_content["is_decided"] is False
        assert vigil.episode().status == "blocked"


async def test_who_has_decided_on_the_page_is_told_to_who_asked():
    async with keeping() as (vigil, client):
        opener = Opener()

        async def decides(context, params):
            await vigil.approve(by="ann")
            await vigil.run_until_idle()
            return await opener(context, params)

        async with served(client, console_url=CONSOLE, opener=decides) as mcp:
            answer = await mcp.call_tool("decide", {"id": await blocked(vigil, mcp)})
    assert answer.structured_content["is_decided"] is True
    assert "by ann" in answer.structured_content["says"]


async def test_without_a_console_to_decide_says_what_a_person_does():
    async with keeping() as (vigil, client), served(client, opener=Opener()) as mcp:
        answer = await mcp.call_tool("decide", {"id": await blocked(vigil, mcp)})
    assert answer.is_error
    assert "--console-url" in text_of(answer)


async def test_where_no_page_can_be_opened_to_decide_says_where_it_is():
    async with keeping() as (vigil, client), served(client, console_url=CONSOLE) as mcp:
        answer = await mcp.call_tool("decide", {"id": await blocked(vigil, mcp)})
    assert answer.is_error
    assert f"{CONSOLE}/inbox/episode/" in text_of(answer)


async def test_no_tool_approves():
    async with keeping() as (vigil, client), served(client, console_url=CONSOLE) as mcp:
        id_ = await blocked(vigil, mcp)
        for tool in TOOLS:
            for said in ({"id": id_}, {"ids": []}, {"ref": id_, "key": "k", "result": "approve"}):
                if tool in names(await mcp.list_tools()):
                    await mcp.call_tool(tool, said)
        await vigil.run_until_idle()
        assert vigil.episode().status == "blocked"


async def test_a_forked_and_a_canceled_episode_are_told():
    async with keeping() as (vigil, client), served(client) as mcp:
        id_ = await blocked(vigil, mcp)
        forked = await mcp.call_tool("fork", {"id": id_, "at": 0, "key": "f1"})
        assert forked.structured_content["episode_id"] not in ("", id_)
        ended = await mcp.call_tool("cancel", {"ids": [id_], "reason": "no more"})
        assert ended.structured_content["items"][0]["done"] == "blocked, to be canceled"
        absent = "00000000-0000-0000-0000-000000000000"
        assert "on the journal" in text_of(await mcp.call_tool("cancel", {"ids": [absent]}))


async def test_a_signal_is_published_once_for_each_key():
    async with keeping() as (_, client), served(client) as mcp:
        said = {"ref": "payment:1", "result": 5, "key": "s1"}
        first = await mcp.call_tool("signal", said)
        again = await mcp.call_tool("signal", said)
    assert first.structured_content["is_new"] is True
    assert again.structured_content["is_new"] is False


async def test_outputs_that_there_are_not_are_not_tried_again():
    async with keeping() as (_, client), served(client) as mcp:
        answer = await mcp.call_tool("retry", {"keys": ["nothing"]})
    assert answer.is_error or answer.structured_content["items"][0]["refused"]


class Rows(ToolInput, frozen=True, kw_only=True):
    limit: int = 50


class Filled(ToolOutput, frozen=True, kw_only=True):
    items: list[str]


class One(ToolInput, frozen=True, kw_only=True):
    pass


def filling(input_: type[ToolInput], *, chars: int) -> ServedTool:
    async def fill(call, asked):
        return Filled(items=["x" * chars] * getattr(asked, "limit", 1))

    return ServedTool(
        name="fill", about="", kind=ToolKind.READ, input=input_, output=Filled, call=fill
    )


async def test_a_list_that_would_be_too_large_has_fewer_rows():
    call = ServedCall(client=nothing_there(), caller=Caller(identity=READER))
    found, text = await filling(Rows, chars=20_000).answer(call, {})
    assert len(found.items) == 12
    assert len(text) <= ANSWER_BYTES_MAX


async def test_what_is_too_large_is_refused():
    call = ServedCall(client=nothing_there(), caller=Caller(identity=READER))
    with pytest.raises(Exception, match="over 262,144"):
        await filling(One, chars=300_000).answer(call, {})


LISTS = [each for each in TOOLS.values() if "limit" in each.input.__struct_fields__]


@pytest.mark.parametrize("tool", LISTS, ids=lambda tool: tool.name)
def test_no_list_returns_more_than_fifty_rows(tool):
    with pytest.raises(msgspec.ValidationError, match="<= 50"):
        msgspec.convert({"limit": 51, "id": "a", "event_id": "a"}, tool.input)


async def test_a_caller_makes_so_many_requests_in_a_minute():
    async with keeping() as (vigil, client), served(client, READER, calls_per_minute=2) as mcp:
        for _ in range(2):
            await mcp.call_tool("explain_not_fired", {"event_id": "e1"})
        with pytest.raises(MCPError, match="over 2 requests in a minute; try again in 60 s"):
            await mcp.call_tool("explain_not_fired", {"event_id": "e1"})
        await vigil._clock.sleep(60)
        await mcp.call_tool("explain_not_fired", {"event_id": "e1"})


def test_callers_are_counted_apart_and_only_so_many():
    rate = CallRate(1)
    assert [rate.wait_s(who, now_s=0.0) for who in ("a", "b", "a")] == [0.0, 0.0, 60.0]
    for number in range(CALLERS_MAX):
        rate.wait_s(str(number), now_s=1.0)
    assert rate.wait_s("a", now_s=2.0) == 0.0


async def test_each_call_is_noted_with_who_and_what_and_without_its_arguments():
    async with keeping() as (_, client), served(client, program(READ, name="cleo")) as mcp:
        with capture_logs() as lines:
            await mcp.call_tool("event", {"id": "secret"})
    (line,) = [each for each in lines if each["event"] == "mcp request"]
    assert (line["method"], line["what"], line["outcome"]) == ("tools/call", "event", "refused")
    assert (line["by"], line["token"], line["client"]) == ("cleo", "t1", "chat 1.2")
    assert "secret" not in str(line)


async def test_a_call_that_is_refused_is_noted_too():
    async with keeping() as (_, client), served(client, READER) as mcp:
        with capture_logs() as lines, pytest.raises(MCPError):
            await mcp.call_tool("fire", FIRE)
    (line,) = [each for each in lines if each["event"] == "mcp request"]
    assert (line["what"], line["outcome"]) == ("fire", "error")
