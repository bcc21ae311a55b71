"""A fired episode is a task: it outlives who has fired it, and waits for people."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    URL_ELICITATION_REQUIRED,
    ElicitResult,
)

from engine.operations.decide_request import ApprovalTarget
from engine.toolbox.mcp_tasks import state_of
from tests.mcp.reaching import (
    ACTOR,
    CONSOLE,
    READER,
    KnowsTasks,
    Opener,
    cancel,
    look,
    served,
)
from vigil import Actor, App, ConvergeResult, manual, propose_output
from vigil.client import Client
from vigil.testing import run

keeper = Actor("keeper")


@keeper.expectation(on=manual())
async def db_is_up(ctx, trigger):
    await ctx.approval({"restart": trigger.payload["host"]}, approvers=("ann",), summary="IGNORE")
    return ConvergeResult(summary=f"restarted {trigger.payload['host']}", confidence=1.0)


@keeper.expectation(on=manual())
async def breaks(ctx, trigger):
    raise ValueError("no disk")


@keeper.expectation(on=manual())
async def tells(ctx, trigger):
    return ConvergeResult(
        outputs=[propose_output("pager", {"text": "down"}, requires_approval=True, key="down")]
    )


APP = App(actors=[keeper], outputs={})
FIRE = {"actor": "keeper", "expectation": "db_is_up", "payload": {"host": "db-1"}, "key": "k1"}


@asynccontextmanager
async def keeping(**stubs):
    """An app that runs, and a client of its stack, in virtual time."""
    async with run(APP, **stubs) as vigil:
        yield vigil, Client.on(vigil.ports, by="bo", clock=vigil._clock)


async def approve(client, task):
    target = ApprovalTarget("episode", task)
    await client.approvals.decide(target, "approve", by="ann", wait_s=None)


async def test_a_task_is_left_and_finished_a_day_later_after_a_person_approved():
    async with keeping() as (vigil, client):
        knows = KnowsTasks()
        async with served(client, knows=knows) as mcp:
            task = await knows.fired(mcp, **FIRE)
        await vigil.run_until_idle()
        async with served(client, knows=knows) as mcp:
            assert (await look(mcp, task)).status == "input_required"

        began = vigil.now
        await vigil.advance(days=1)
        await approve(client, task)
        await vigil.run_until_idle()

        async with served(client, knows=knows) as mcp:
            state = await look(mcp, task)
        assert state.status == "completed"
        assert state.result["isError"] is False
        assert state.result["structuredContent"]["summary"] == "restarted db-1"
        assert vigil.now - began >= timedelta(days=1)


async def test_a_task_has_the_id_of_its_episode_which_is_on_the_journal_before_the_answer():
    async with keeping() as (vigil, client):
        knows = KnowsTasks()
        async with served(client, knows=knows) as mcp:
            task = await knows.fired(mcp, **FIRE)
            assert vigil.episode().id == task
        (handle,) = knows.handles
        assert (handle.result_type, handle.model_extra["ttlMs"]) == ("task", None)
        assert handle.status in {"working", "input_required"}


async def test_a_call_with_the_same_key_is_the_same_task():
    async with keeping() as (vigil, client):
        knows = KnowsTasks()
        async with served(client, knows=knows) as mcp:
            assert await knows.fired(mcp, **FIRE) == await knows.fired(mcp, **FIRE)
        assert len(vigil.episodes()) == 1


async def test_who_knows_no_tasks_is_answered_with_the_id_and_how_to_look():
    async with keeping() as (vigil, client):
        async with served(client) as mcp:
            answer = await mcp.call_tool("fire", FIRE)
        assert answer.is_error is False
        assert answer.structured_content["episode_id"] == vigil.episode().id
        assert "you need not wait" in answer.structured_content["look"]


async def test_who_knows_no_tasks_may_not_ask_for_one():
    async with keeping() as (_, client), served(client) as mcp:
        answer = await mcp.call_tool("fire", FIRE)
        with pytest.raises(MCPError) as raised:
            await look(mcp, answer.structured_content["episode_id"])
        assert raised.value.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY


async def test_what_no_node_opens_is_no_task():
    async with keeping() as (vigil, client):
        await vigil.stop()
        knows = KnowsTasks()
        async with served(client, knows=knows) as mcp:
            answer = await mcp.call_tool("fire", FIRE)
        assert (knows.handles, answer.structured_content["status"]) == ([], "not_opened")
        assert "no node" in answer.structured_content["obstacle"]


async def test_a_task_that_waits_for_a_person_opens_the_page_of_the_console():
    async with keeping() as (vigil, client):
        knows = KnowsTasks()
        asking = served(client, knows=knows, opener=Opener(), console_url=CONSOLE)
        async with asking as mcp:
            task = await knows.fired(mcp, **FIRE)
            await vigil.run_until_idle()
            state = await look(mcp, task)
        (asked,) = state.requests.values()
        assert asked["params"]["mode"] == "url"
        assert asked["params"]["url"] == f"{CONSOLE}/inbox/episode/{task}"


async def test_where_no_page_can_be_opened_a_task_says_what_a_person_types():
    async with keeping() as (vigil, client):
        knows = KnowsTasks()
        async with served(client, knows=knows) as mcp:
            task = await knows.fired(mcp, **FIRE)
            await vigil.run_until_idle()
            state = await look(mcp, task)
        assert state.requests == {}
        assert f"vigil episodes approve {task}" in state.status_message


async def test_what_others_have_written_is_not_in_the_words_of_a_task():
    async with keeping() as (vigil, client):
        knows = KnowsTasks()
        asking = served(client, knows=knows, opener=Opener(), console_url=CONSOLE)
        async with asking as mcp:
            task = await knows.fired(mcp, **FIRE)
            await vigil.run_until_idle()
            state = await look(mcp, task)
        assert "IGNORE" not in str(state)


async def test_an_answer_of_a_client_decides_nothing():
    async with keeping() as (vigil, client):
        knows = KnowsTasks()
        asking = served(client, knows=knows, opener=Opener(), console_url=CONSOLE)
        async with asking as mcp:
            task = await knows.fired(mcp, **FIRE)
            await vigil.run_until_idle()
            (key,) = (await look(mcp, task)).requests
            assert (await answered(mcp, task, key)).status == "input_required"
        await vigil.run_until_idle()
        assert vigil.episode().status == "blocked"


async def answered(mcp, task, key):
    return await state_of(mcp.session, task, {key: ElicitResult(action="accept")})


async def test_an_output_that_waits_for_approval_makes_its_task_wait_for_a_person():
    async with keeping() as (vigil, client):
        knows = KnowsTasks()
        async with served(client, knows=knows) as mcp:
            task = await knows.fired(mcp, **{**FIRE, "expectation": "tells"})
            await vigil.run_until_idle()
            state = await look(mcp, task)
        assert state.status == "input_required"
        assert "vigil outputs approve" in state.status_message


async def test_an_episode_that_fails_is_a_call_that_was_answered_with_an_error():
    async with keeping() as (vigil, client):
        knows = KnowsTasks()
        async with served(client, knows=knows) as mcp:
            task = await knows.fired(mcp, **{**FIRE, "expectation": "breaks"})
            await vigil.run_until_idle()
            state = await look(mcp, task)
        assert (state.status, state.result["isError"]) == ("completed", True)
        assert state.result["structuredContent"]["error_class"]
        assert "Traceback" not in str(state)


async def test_a_task_that_is_cancelled_is_an_episode_that_is_canceled_by_who_did():
    async with keeping() as (vigil, client):
        knows = KnowsTasks()
        async with served(client, ACTOR, knows=knows) as mcp:
            task = await knows.fired(mcp, **FIRE)
            await vigil.run_until_idle()
            await cancel(mcp, task)
            await vigil.run_until_idle()
            assert (await look(mcp, task)).status == "cancelled"
        assert vigil.episode().status == "canceled"


async def test_who_only_reads_looks_at_a_task_and_does_not_cancel_it():
    async with keeping() as (vigil, client):
        knows = KnowsTasks()
        async with served(client, knows=knows) as mcp:
            task = await knows.fired(mcp, **FIRE)
        await vigil.run_until_idle()
        async with served(client, READER, knows=knows) as mcp:
            assert (await look(mcp, task)).status == "input_required"
            with pytest.raises(MCPError, match="the scope act"):
                await cancel(mcp, task)
        await vigil.run_until_idle()
        assert vigil.episode().status == "blocked"


@pytest.mark.parametrize("task", ["9f8e", "00000000-0000-0000-0000-000000000000"])
async def test_a_task_that_there_is_not_is_refused(task):
    async with keeping() as (_, client), served(client, knows=KnowsTasks()) as mcp:
        with pytest.raises(MCPError, match="no such task") as raised:
            await look(mcp, task)
        assert raised.value.error.code == INVALID_PARAMS


async def test_a_client_of_an_older_protocol_gets_the_plain_answer():
    async with keeping() as (vigil, client):
        knows = KnowsTasks()
        async with served(client, knows=knows, mode="legacy") as mcp:
            answer = await mcp.call_tool("fire", FIRE)
            id_ = answer.structured_content["episode_id"]
            with pytest.raises(MCPError):
                await look(mcp, id_)
        assert (knows.handles, id_) == ([], vigil.episode().id)


async def test_a_client_of_an_older_protocol_is_told_of_the_page_in_its_way():
    async with keeping() as (vigil, client):
        older = served(client, opener=Opener(), mode="legacy", console_url=CONSOLE)
        async with older as mcp:
            answer = await mcp.call_tool("fire", FIRE)
            await vigil.run_until_idle()
            with pytest.raises(MCPError) as raised:
                await mcp.call_tool("decide", {"id": answer.structured_content["episode_id"]})
        assert raised.value.error.code == URL_ELICITATION_REQUIRED
        (asked,) = raised.value.error.data["elicitations"]
        assert asked["url"].startswith(f"{CONSOLE}/inbox/episode/")
