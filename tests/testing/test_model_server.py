"""A server of models answers the real clients of two providers, and pydantic-ai, as a test says."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import msgspec
import openai
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.direct import model_request_batch
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelConnectionError,
    ModelHTTPError,
    ModelOverloadedError,
    ModelRateLimitError,
    ModelRequestTimeout,
)
from pydantic_ai.messages import ModelRequest as ModelMessages
from pydantic_ai.models import Model
from pydantic_ai.models.batch import BatchRequest
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from vigil.testing import (
    AskedTool,
    CutOffAnswer,
    FailureAnswer,
    HangingAnswer,
    JsonAnswer,
    ModelLedger,
    ModelRequest,
    ModelServer,
    ModelUsage,
    RefusalAnswer,
    TextAnswer,
    ToolCallsAnswer,
    Unscripted,
)

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

ROOT = Path(__file__).parents[2]

PROTOCOLS = ("chat", "responses", "messages")

ASKED = [{"role": "user", "content": "How is it?"}]

USED = ModelUsage(input_tokens=100, output_tokens=20, cached_tokens=40, reasoning_tokens=5)

ONCE = {"max_retries": 0, "max_tokens": 1_000}

all_protocols = pytest.mark.parametrize("protocol", PROTOCOLS)
streamed_or_not = pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])


class Verdict(BaseModel):
    severity: str
    score: int


def openai_client(server: ModelServer) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="test", max_retries=0)


def anthropic_client(server: ModelServer) -> AsyncAnthropic:
    # It takes more than a second to import, and each process of a run reads this file.
    import anthropic  # noqa: PLC0415

    return anthropic.AsyncAnthropic(base_url=server.url, api_key="test", max_retries=0)


@asynccontextmanager
async def model_of(server: ModelServer, protocol: str) -> AsyncIterator[Model]:
    """Yield a model of pydantic-ai that asks `server`."""
    if protocol == "messages":
        from pydantic_ai.models.anthropic import AnthropicModel  # noqa: PLC0415 - as above
        from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: PLC0415

        async with anthropic_client(server) as client:
            provider = AnthropicProvider(anthropic_client=client)
            yield AnthropicModel("claude-sonnet-5-5", provider=provider)
    else:
        made = OpenAIChatModel if protocol == "chat" else OpenAIResponsesModel
        async with openai_client(server) as client:
            yield made("test-model", provider=OpenAIProvider(openai_client=client))


async def told(agent: Agent, prompt: str, *, is_streamed: bool):
    """Return the output of a run and its usage."""
    if is_streamed:
        async with agent.run_stream(prompt, model_settings=ONCE) as run:
            return await run.get_output(), run.usage
    result = await agent.run(prompt, model_settings=ONCE)
    return result.output, result.usage


async def ask(server: ModelServer, protocol: str, prompt: str = "How is it?", **settings):
    """Ask with pydantic-ai, and return the output."""
    async with model_of(server, protocol) as model:
        result = await Agent(model).run(prompt, model_settings={**ONCE, **settings})
        return result.output


# The clients of the providers.


async def test_openai_chat_completions_get_text_with_its_usage():
    async with (
        ModelServer([TextAnswer("fine", usage=USED)]) as server,
        openai_client(server) as client,
    ):
        said = await client.chat.completions.create(model="test-model", messages=ASKED)

        assert said.choices[0].message.content == "fine"
        assert said.choices[0].finish_reason == "stop"
        assert said.usage.prompt_tokens == 100
        assert said.usage.total_tokens == 120
        assert said.usage.prompt_tokens_details.cached_tokens == 40
        assert said.usage.completion_tokens_details.reasoning_tokens == 5
        assert server.usage == USED


async def test_openai_chat_completions_are_streamed_in_parts():
    async with ModelServer(["it is all fine"]) as server, openai_client(server) as client:
        options = {"include_usage": True}
        chunks = [
            each
            async for each in await client.chat.completions.create(
                model="test-model", messages=ASKED, stream=True, stream_options=options
            )
        ]

        texts = [each.choices[0].delta.content or "" for each in chunks if each.choices]
        assert "".join(texts) == "it is all fine"
        assert len([each for each in texts if each]) > 1
        assert chunks[-1].usage.completion_tokens == 4


async def test_openai_responses_get_text_and_calls():
    answer = ToolCallsAnswer((AskedTool("search", {"q": "disk"}),), text="I look")
    async with ModelServer([answer, answer]) as server, openai_client(server) as client:
        said = await client.responses.create(model="test-model", input="How is it?")
        events = [
            each
            async for each in await client.responses.create(
                model="test-model", input="How is it?", stream=True
            )
        ]

        assert said.output_text == "I look"
        assert json.loads(said.output[1].arguments) == {"q": "disk"}
        assert said.output[1].call_id.startswith("call_")
        done = events[-1].response
        assert (done.status, done.output_text) == ("completed", "I look")
        assert [each.sequence_number for each in events] == list(range(len(events)))


async def test_anthropic_messages_get_text_with_its_usage():
    async with (
        ModelServer([TextAnswer("fine", usage=USED)] * 2) as server,
        anthropic_client(server) as client,
    ):
        said = await client.messages.create(model="claude", max_tokens=50, messages=ASKED)
        async with client.messages.stream(model="claude", max_tokens=50, messages=ASKED) as stream:
            streamed = await stream.get_final_message()

        for each in (said, streamed):
            assert each.content[0].text == "fine"
            assert each.stop_reason == "end_turn"
            usage = each.usage
            assert (usage.input_tokens, usage.cache_read_input_tokens) == (60, 40)
            assert usage.output_tokens == 20


async def test_models_are_listed_to_both_clients():
    async with ModelServer([], models=["small", "large"]) as server:
        async with openai_client(server) as client:
            assert [each.id async for each in client.models.list()] == ["small", "large"]
            assert (await client.models.retrieve("small")).id == "small"
            with pytest.raises(openai.NotFoundError):
                await client.models.retrieve("huge")
        async with anthropic_client(server) as client:
            assert [each.id async for each in client.models.list()] == ["small", "large"]
        assert server.requests == 0


async def test_a_background_response_is_complete_after_some_polls():
    async with (
        ModelServer(["done"], polls_until_complete=2) as server,
        openai_client(server) as client,
    ):
        begun = await client.responses.create(model="m", input="go", background=True)
        seen = [(await client.responses.retrieve(begun.id)).status for _ in range(2)]
        last = await client.responses.retrieve(begun.id)

        assert (begun.status, seen, last.status) == ("queued", ["in_progress"] * 2, "completed")
        assert last.output_text == "done"
        (call,) = server.calls
        assert (call.asked, call.polls, server.requests) == (1, 3, 1)


async def test_a_background_response_can_be_canceled_until_it_is_complete():
    async with ModelServer(["done", "done"]) as server, openai_client(server) as client:
        early, late = [
            await client.responses.create(model="m", input="go", background=True) for _ in range(2)
        ]
        assert early.id != late.id
        assert (await client.responses.cancel(early.id)).status == "cancelled"
        assert (await client.responses.retrieve(early.id)).status == "cancelled"
        for _ in range(2):
            await client.responses.retrieve(late.id)
        assert (await client.responses.cancel(late.id)).status == "completed"
        assert [each.is_canceled for each in server.calls] == [True, False]


async def test_a_background_response_may_fail_or_never_end():
    script = [FailureAnswer(500, message="broken"), HangingAnswer()]
    async with ModelServer(script) as server, openai_client(server) as client:
        ids = [
            (await client.responses.create(model="m", input="go", background=True)).id for _ in "12"
        ]
        failed = await client.responses.retrieve(ids[0])
        assert (failed.status, failed.error.message) == ("failed", "broken")
        seen = {(await client.responses.retrieve(ids[1])).status for _ in range(5)}
        assert seen == {"in_progress"}


# pydantic-ai, by all protocols.


@all_protocols
@streamed_or_not
async def test_text_and_usage_reach_pydantic_ai(protocol, is_streamed):
    answer = TextAnswer("it is all fine", usage=USED)
    async with ModelServer([answer]) as server, model_of(server, protocol) as model:
        output, usage = await told(Agent(model), "How is it?", is_streamed=is_streamed)

        assert output == "it is all fine"
        assert (usage.input_tokens, usage.output_tokens) == (100, 20)
        assert usage.cache_read_tokens == 40
        (call,) = server.calls
        assert (call.request.protocol, call.request.is_streamed) == (protocol, is_streamed)
        assert call.usage == USED


@all_protocols
@streamed_or_not
async def test_several_tools_are_called_and_their_results_come_back(protocol, is_streamed):
    asked = (AskedTool("add", {"a": 1, "b": 2}, id="first"), AskedTool("add", {"a": 3, "b": 4}))
    script = [ToolCallsAnswer(asked), "3 and 7"]
    async with ModelServer(script) as server, model_of(server, protocol) as model:
        agent = Agent(model, instructions="Add.")

        @agent.tool_plain
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        output, _ = await told(agent, "What is it?", is_streamed=is_streamed)

        assert output == "3 and 7"
        first, second = (each.request for each in server.calls)
        assert first.system == "Add."
        assert first.messages == ({"role": "user", "text": "What is it?"},)
        assert [each["name"] for each in first.tools] == ["add"]
        assert first.tools[0]["schema"]["required"] == ["a", "b"]
        calls = [call for each in second.messages for call in each.get("calls", ())]
        assert [each["args"] for each in calls] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
        results = [each for each in second.messages if each["role"] == "tool"]
        assert [each["text"] for each in results] == ["3", "7"]
        assert [each["id"] for each in results] == [each["id"] for each in calls]
        assert calls[0]["id"] == "first"
        assert second.text == "7"


@all_protocols
@streamed_or_not
async def test_structured_output_comes_as_it_is_asked_for(protocol, is_streamed):
    script = [JsonAnswer({"severity": "high", "score": 7})] * 2
    async with ModelServer(script) as server, model_of(server, protocol) as model:
        for output_type in (ToolOutput(Verdict), NativeOutput(Verdict)):
            agent = Agent(model, output_type=output_type)
            output, _ = await told(agent, "How bad?", is_streamed=is_streamed)
            assert output == Verdict(severity="high", score=7)
        tools = [[each["name"] for each in call.request.tools] for call in server.calls]
        assert tools == [["final_result"], []]


@all_protocols
@streamed_or_not
async def test_a_refusal_is_one_to_pydantic_ai(protocol, is_streamed):
    async with (
        ModelServer([RefusalAnswer("I must not")]) as server,
        model_of(server, protocol) as model,
    ):
        with pytest.raises(ContentFilterError, match="I must not"):
            await told(Agent(model), "Do it", is_streamed=is_streamed)


@all_protocols
async def test_an_answer_that_a_limit_ended_says_so(protocol):
    script = [TextAnswer("it is all", is_truncated=True)]
    async with ModelServer(script) as server, model_of(server, protocol) as model:
        result = await Agent(model).run("How is it?", model_settings=ONCE)
        assert result.response.finish_reason == "length"


@all_protocols
@streamed_or_not
@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (FailureAnswer(429, retry_after_s=7), ModelRateLimitError),
        (FailureAnswer(529), ModelOverloadedError),
        (FailureAnswer(500, body="not even an object"), ModelHTTPError),
    ],
)
async def test_a_failure_has_status_hint_and_body(protocol, is_streamed, failure, error):
    async with ModelServer([failure]) as server, model_of(server, protocol) as model:
        with pytest.raises(error) as raised:
            await told(Agent(model), "How is it?", is_streamed=is_streamed)

        assert raised.value.status_code == failure.status
        assert raised.value.retry_after == failure.retry_after_s
        assert server.requests == 1
        assert server.calls[0].usage == ModelUsage()


async def test_a_hint_may_be_a_part_of_a_second():
    async with ModelServer([FailureAnswer(429, retry_after_s=0.25)]) as server:
        with pytest.raises(ModelRateLimitError) as raised:
            await ask(server, "chat")
        assert raised.value.retry_after == 0.25


@all_protocols
@streamed_or_not
async def test_an_answer_that_is_cut_off_is_a_broken_connection(protocol, is_streamed):
    async with ModelServer([CutOffAnswer("it is all")]) as server:
        async with model_of(server, protocol) as model:
            with pytest.raises(ModelConnectionError) as raised:
                await told(Agent(model), "How is it?", is_streamed=is_streamed)
        assert raised.value.phase == "read"


@all_protocols
async def test_a_server_that_hangs_ends_with_the_time_of_the_client(protocol):
    async with ModelServer([HangingAnswer(), "fine"]) as server:
        with pytest.raises(ModelRequestTimeout):
            await ask(server, protocol, request_timeout=0.2)
        assert await ask(server, protocol) == "fine"


async def test_closing_a_server_ends_the_requests_that_hang():
    async with ModelServer([HangingAnswer()]) as server:
        asking = asyncio.create_task(ask(server, "chat"))
        await server.wait_requests(1)
    with pytest.raises(ModelConnectionError):
        await asking


# Scripts.


async def test_a_script_may_be_a_function_of_the_request():
    def answer(request: ModelRequest) -> str:
        return f"{request.model} was asked {request.text!r}"

    async with ModelServer(answer) as server:
        assert await ask(server, "chat", "one") == "test-model was asked 'one'"
        assert await ask(server, "messages", "two") == "claude-sonnet-5-5 was asked 'two'"


async def test_a_script_may_wait():
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        asked.set()
        await goes_on.wait()
        return request.text

    async with ModelServer(answer) as server:
        asking = asyncio.create_task(ask(server, "chat", "one"))
        await asked.wait()
        assert server.calls[0].answer is None
        goes_on.set()
        assert await asking == "one"


def raising(request: ModelRequest) -> str:
    raise KeyError(request.text)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ([], "the script has 0 answers, and this is one more request"),
        (raising, "the script raised KeyError"),
        ([7], "7 is no answer"),
    ],
)
async def test_a_request_without_an_answer_fails_the_test(script, problem):
    async def test() -> None:
        async with ModelServer(script) as server:
            with pytest.raises(ModelHTTPError, match=problem):
                await ask(server, "chat")

    with pytest.raises(Unscripted, match=problem):
        await test()


async def test_a_test_that_fails_anyway_is_told_its_own_failure():
    async def test() -> None:
        async with ModelServer([]) as server:
            await ask(server, "messages")

    with pytest.raises(ModelHTTPError):
        await test()


async def test_equal_conversations_have_equal_ids_on_every_server():
    seen = []
    for _ in range(2):
        script = [ToolCallsAnswer((AskedTool("look"),))] * 2
        async with ModelServer(script) as server, openai_client(server) as client:
            for _ in range(2):
                said = await client.chat.completions.create(model="m", messages=ASKED)
                seen.append((said.id, said.choices[0].message.tool_calls[0].id))
    assert seen[:2] == seen[2:]
    assert seen[0] != seen[1]


# The ledger and idempotency.


async def posted(server: ModelServer, body: object, *, key: str = "", path: str = "") -> tuple:
    headers = {"Idempotency-Key": key} if key else {}
    async with httpx2.AsyncClient() as client:
        url = f"{server.url}{path or '/v1/chat/completions'}"
        said = await client.post(url, content=json.dumps(body), headers=headers)
        return said.status_code, said.json()


BODY = {"model": "test-model", "messages": ASKED}


async def test_an_idempotency_key_gets_the_same_answer_and_counts_once():
    async with ModelServer(["first", "second"]) as server:
        once = await posted(server, BODY, key="k1")
        again = await posted(server, dict(reversed(BODY.items())), key="k1")
        other = await posted(server, BODY, key="k2")

        assert once == again
        assert other[1]["choices"][0]["message"]["content"] == "second"
        assert [each.asked for each in server.calls] == [2, 1]
        assert server.requests == 3
        assert server.usage.output_tokens == 2 + 2
        assert server.calls[0].request.idempotency_key == "k1"


async def test_requests_under_one_key_that_overlap_share_the_answer():
    goes_on = asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        await goes_on.wait()
        return "one"

    async with ModelServer(answer) as server:
        both = [asyncio.create_task(posted(server, BODY, key="k1")) for _ in range(2)]
        await server.wait_requests(2)
        goes_on.set()
        first, second = await asyncio.gather(*both)
        assert first == second
        assert [each.asked for each in server.calls] == [2]


async def test_another_body_under_a_known_key_is_refused():
    async with ModelServer(["first"]) as server:
        await posted(server, BODY, key="k1")
        status, said = await posted(server, {**BODY, "model": "another"}, key="k1")
        assert status == 400
        assert "'k1': its body was another one" in said["error"]["message"]
        assert len(server.calls) == 1


async def test_a_failure_is_not_kept_for_its_key():
    async with ModelServer([FailureAnswer(503), "fine"]) as server:
        statuses = [(await posted(server, BODY, key="k1"))[0] for _ in range(3)]
        assert statuses == [503, 200, 200]
        assert [each.asked for each in server.calls] == [1, 2]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"model": "m"}),
        ("/v1/chat/completions", [1]),
        ("/v1/responses", {"input": "x"}),
        ("/v1/messages", {"model": "m", "messages": ASKED}),
    ],
)
async def test_what_is_no_request_is_refused_and_counts_for_nothing(path, body):
    async with ModelServer([]) as server:
        status, said = await posted(server, body, path=path)
        assert (status, server.calls) == (400, ())
        assert said["error"]["type"] == "invalid_request_error"


async def test_an_unknown_path_is_not_found():
    async with ModelServer([]) as server:
        assert (await posted(server, BODY, path="/v2/elsewhere"))[0] == 404


async def test_the_ledger_is_the_same_over_http():
    async with ModelServer([TextAnswer("fine", usage=USED)]) as server:
        await posted(server, BODY, key="k1")
        async with httpx2.AsyncClient() as client:
            said = (await client.get(f"{server.url}/ledger")).content
        assert msgspec.json.decode(said, type=ModelLedger) == server.ledger
        assert server.ledger.usage == USED


def answer_of_process(request: ModelRequest) -> str:
    """The script of the process below."""
    return f"heard {request.text}"


def test_a_server_runs_in_a_process_of_its_own():
    script = f"{__name__}:{answer_of_process.__name__}"
    command = [sys.executable, "-m", "vigil.testing.model_server", "--script", script]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().strip()
            said = httpx2.post(f"{url}/v1/chat/completions", json=BODY).json()
            ledger = httpx2.get(f"{url}/ledger").json()
        finally:
            process.terminate()
    assert said["choices"][0]["message"]["content"] == "heard How is it?"
    assert (ledger["requests"], len(ledger["calls"])) == (1, 1)
    assert process.returncode == (0 if os.name == "posix" else 1)


# Batches.


def batched(request: ModelRequest) -> TextAnswer | FailureAnswer:
    """Answer as the text of a request says, in whatever order they come."""
    failed = FailureAnswer(500, message="broken")
    return failed if request.text == "two" else TextAnswer(request.text.upper())


def bodies(**more) -> dict[str, dict]:
    asked = {name: [{"role": "user", "content": name}] for name in ("one", "two", "three")}
    return {name: {"model": "m", "messages": each, **more} for name, each in asked.items()}


async def uploaded(client: openai.AsyncOpenAI) -> openai.types.Batch:
    url = "/v1/chat/completions"
    lines = [
        json.dumps({"custom_id": name, "method": "POST", "url": url, "body": body})
        for name, body in bodies().items()
    ]
    content = "\n".join(lines).encode()
    file = await client.files.create(file=("batch.jsonl", content), purpose="batch")
    return await client.batches.create(input_file_id=file.id, endpoint=url, completion_window="24h")


async def test_an_openai_batch_has_its_results_in_files():
    async with ModelServer(batched) as server, openai_client(server) as client:
        begun = await uploaded(client)
        once, last = [await client.batches.retrieve(begun.id) for _ in range(2)]

        assert [each.status for each in (begun, once, last)] == [
            "in_progress",
            "in_progress",
            "completed",
        ]
        counts = last.request_counts
        assert (counts.total, counts.completed, counts.failed) == (3, 2, 1)
        texts = {}
        for each in (last.output_file_id, last.error_file_id):
            for line in (await client.files.content(each)).text.splitlines():
                said = json.loads(line)
                texts[said["custom_id"]] = said["response"]
        assert texts["three"]["body"]["choices"][0]["message"]["content"] == "THREE"
        assert texts["two"]["status_code"] == 500
        assert {each.request.batch for each in server.calls} == {begun.id}
        assert (await client.files.delete(begun.input_file_id)).deleted


async def test_an_anthropic_batch_has_its_results_in_lines():
    requests = [{"custom_id": k, "params": v} for k, v in bodies(max_tokens=9).items()]
    async with ModelServer(batched) as server, anthropic_client(server) as client:
        begun = await client.messages.batches.create(requests=requests)
        once, last = [await client.messages.batches.retrieve(begun.id) for _ in range(2)]

        assert [once.processing_status, last.processing_status] == ["in_progress", "ended"]
        assert last.request_counts.succeeded == 2
        results = {
            each.custom_id: each.result
            async for each in await client.messages.batches.results(begun.id)
        }
        assert results["one"].message.content[0].text == "ONE"
        assert results["two"].error.error.message == "broken"
        assert server.requests == 3


async def test_a_batch_can_be_canceled_until_it_has_ended():
    requests = [{"custom_id": k, "params": v} for k, v in bodies(max_tokens=9).items()]
    async with ModelServer(batched) as server:
        async with anthropic_client(server) as client:
            begun = await client.messages.batches.create(requests=requests)
            await client.messages.batches.cancel(begun.id)
            results = await client.messages.batches.results(begun.id)
            assert {each.result.type async for each in results} == {"canceled"}
        async with openai_client(server) as client:
            batch = await uploaded(client)
            assert (await client.batches.cancel(batch.id)).status == "cancelled"
        assert all(each.is_canceled for each in server.calls)
        assert server.usage == ModelUsage()


@pytest.mark.parametrize("protocol", ["responses", "messages"])
async def test_pydantic_ai_gets_the_results_of_a_batch(protocol):
    async with (
        ModelServer(batched, polls_until_complete=0) as server,
        model_of(server, protocol) as model,
    ):
        asked = [
            BatchRequest(custom_id=each, messages=[ModelMessages.user_text_prompt(each)])
            for each in ("one", "three")
        ]
        answers = await model_request_batch(model, asked, poll_interval=timedelta(seconds=0.01))
        assert [each.text for each in answers] == ["ONE", "THREE"]
        assert len({each.request.batch for each in server.calls}) == 1


async def test_a_batch_of_a_file_that_is_not_there_is_refused():
    body = {"input_file_id": "f", "endpoint": "/v1/responses", "completion_window": "24h"}
    async with ModelServer([]) as server:
        status, said = await posted(server, body, path="/v1/batches")
        assert (status, "no file 'f'" in said["error"]["message"]) == (400, True)
