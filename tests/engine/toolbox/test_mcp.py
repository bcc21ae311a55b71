"""Tools of a real MCP server, as a process and over HTTP on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from engine.app.actions import Retries, tool_call
from engine.app.tools import ToolBreaker, ToolFailed
from engine.errors import BadTool
from engine.toolbox import mcp_connection
from engine.toolbox.mcp import McpServer, mcp_server
from engine.toolbox.mcp_declared import ListedTool, McpTool, pin_line, problem_of
from streams.memory import memory_ports
from streams.model.events import StepAnnounced, StepRecorded
from tests.engine.adapters.receiver import Receiver, answer
from tests.engine.stage import CLOCK, Later, Scripted, app_of, lived, open_episode, running
from tests.engine.toolbox.reaching import COMMAND, CTX, ROOT, Serving, calling, process
from vigil.adapters import env

READS = (
    "search", "tell", "draw", "refuse", "die", "hang", "pid", "whisper", "quote", "wipe", "later",
    "version", "gone",
)  # fmt: skip
TOOLS = dict.fromkeys(READS, "read")
NOTE = {"search": "read", "add": McpTool("change", idempotent=True)}


@asynccontextmanager
async def reaching(where: str, *, tools=None, **env):
    """Call tools of the server, which is a process or answers over HTTP."""
    tools = {"tools": tools or TOOLS}
    if where == "process":
        async with calling(**process(**env), **tools) as call:
            yield call
    else:
        async with Serving(**env) as serving, calling(**serving.place, **tools) as call:
            yield call


@pytest.fixture(scope="module")
def served():
    """Where a server is over HTTP, for tests that do not change it."""
    command = [COMMAND["command"], *COMMAND["args"], "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process_:
        try:
            yield {"url": f"http://127.0.0.1:{int(process_.stdout.readline())}/mcp"}
        finally:
            process_.kill()


@pytest.fixture
async def call(served):
    """Calls tools of that server."""
    async with calling(**served, tools=TOOLS) as call:
        yield call


@pytest.fixture(scope="module")
def pins(served):
    """The pins of its tools."""
    server = mcp_server(tools=TOOLS, **served).functions["pid"].server
    assert isinstance(server, McpServer)
    return {name: each.pin for name, each in asyncio.run(server.tools()).items()}


@pytest.fixture(params=["process", "http"])
def where(request):
    return request.param


async def failed(call, action: str, **args) -> ToolFailed:
    with pytest.raises(ToolFailed) as failure:
        await call(action, **args)
    return failure.value


# What comes back.


async def test_a_result_is_what_is_structured_else_text_else_the_parts(where):
    async with reaching(where) as call:
        assert await call("search", query="disk", limit=2) == {"found": ["disk", "disk"]}
        assert await call("tell", what="begin") == "begin\nend"
        assert await call("draw") == [
            {"type": "text", "text": "a dot"},
            {"type": "image", "data": "ZG90", "mimeType": "image/png"},
        ]


async def test_arguments_that_do_not_fit_never_reach_the_server(call):
    missing = await failed(call, "search")
    wrong = await failed(call, "search", query=7)

    assert missing.error_class == wrong.error_class == "invalid_arguments"
    assert missing.detail == "search: $: 'query' is a required property"
    assert wrong.detail == "search: $.query: 7 is not of type 'string'"


async def test_an_answer_that_is_an_error_fails_with_its_text(call):
    failure = await failed(call, "refuse", why="not on Sundays")
    assert failure.error_class == "tool_failed"
    assert failure.detail.endswith("not on Sundays")


async def test_a_tool_that_the_server_lacks_is_not_found(call):
    failure = await failed(call, "gone")
    assert failure.error_class == "tool_not_found"
    assert "the server has no 'gone'; it has add, build, die," in failure.detail


async def test_a_question_of_the_server_fails_with_what_it_asks(call):
    failure = await failed(call, "wipe", what="delete all")
    assert failure.error_class == "input_required"
    assert "Really delete all?" in failure.detail


@pytest.mark.parametrize(
    ("answer_", "said"),
    [({"ok": True}, 'delete all: accept {"ok": true}'), (None, "delete all: decline null")],
)
async def test_a_question_may_be_the_result_and_be_answered_by_the_next_call(served, answer_, said):
    tools = {"wipe": McpTool("destroy", may_ask=True)}
    async with calling(**served, tools=tools) as call:
        asked = await call("wipe", what="delete all")
        given = {"_answers": {"sure": answer_}, "_state": asked["requestState"]}
        answered = await call("wipe", what="delete all", **given)

    assert asked["resultType"] == "input_required"
    assert asked["inputRequests"]["sure"]["params"]["message"] == "Really delete all?"
    assert answered == {"result": said}


async def test_an_answer_that_cannot_be_one_is_not_sent(served):
    tools = {"wipe": McpTool("destroy", may_ask=True)}
    async with calling(**served, tools=tools) as call:
        answers = await failed(call, "wipe", what="delete all", _answers={"sure": "yes"})
        state = await failed(call, "wipe", what="delete all", _state=7)
    assert answers.error_class == state.error_class == "invalid_arguments"
    assert "_answers: not {key: {name: value}}, or None" in answers.detail
    assert "_state: not a text of the server's" in state.detail


DEFERRED = {"build": McpTool("change", may_be_task=True)}


async def test_a_call_waits_for_the_end_of_its_task(where):
    async with reaching(where, tools={"build": "change"}) as call:
        assert await call("build", what="it") == "built it, null"


async def test_a_task_that_has_failed_or_asks_fails_a_call_that_waits_for_it(served):
    async with calling(**served, tools={"build": "change"}) as call:
        broken = await failed(call, "build", what="it", fails=True)
        asked = await failed(call, "build", what="it", asks=True)
    assert broken.error_class == "tool_failed"
    assert "its task has failed: no disk" in broken.detail
    assert asked.error_class == "input_required"
    assert "asks before it goes on: Really build?" in asked.detail


async def test_a_task_may_be_the_result_and_be_looked_at_by_later_calls(served):
    async with calling(**served, tools=DEFERRED) as call:
        said = [await call("build", what="it")]
        while isinstance(said[-1], dict):
            said.append(await call("build", _task=said[0]["taskId"]))
    assert [each["status"] for each in said[:-1]] == ["working"] * 3
    assert {each["resultType"] for each in said[:-1]} == {"task"}
    assert said[-1] == "built it, null"


async def test_a_task_is_looked_at_over_another_connection_and_answered(served):
    async with calling(**served, tools=DEFERRED) as call:
        task = (await call("build", what="it", asks=True))["taskId"]
    async with calling(**served, tools=DEFERRED) as call:
        said = [await call("build", _task=task) for _ in range(3)][-1]
        assert said["status"] == "input_required"
        assert said["inputRequests"]["sure"]["params"]["message"] == "Really build?"
        done = await call("build", _task=task, _answers={"sure": {"ok": True}})
    assert done == 'built it, {"action": "accept", "content": {"ok": true}}'


async def test_a_task_that_is_not_there_or_of_no_such_tool_fails_the_look(served):
    async with calling(**served, tools=DEFERRED) as call:
        gone = await failed(call, "build", _task="t99")
        odd = await failed(call, "build", _task=7)
    assert gone.error_class == odd.error_class == "invalid_arguments"
    assert "there is no task t99" in gone.detail
    assert "_task: not the id of a task" in odd.detail


async def test_a_call_that_the_server_puts_off_comes_again(call):
    assert await call("later") == {"result": "second"}


async def test_a_call_that_takes_too_long_is_cut_off_and_the_next_one_works(where):
    tools = {**TOOLS, "hang": McpTool("read", timeout_s=0.2)}
    async with reaching(where, tools=tools) as call:
        before = await call("pid")
        assert (await failed(call, "hang")).error_class == "tool_timeout"
        assert await call("pid") == before


async def test_an_answer_that_is_too_long_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr(mcp_connection, "RESULT_BYTES_MAX", 2_000)
    long = answer(200, b'"' + b"x" * 2_000 + b'"', Content_Type="application/json")
    async with Receiver(long) as receiver, calling(url=receiver.url, tools=TOOLS) as call:
        failure = await failed(call, "pid")
    assert failure.error_class == "result_too_large"


# Pins.


async def test_a_tool_that_has_changed_is_not_called(where, pins, tmp_path):
    pin, file = pins["add"], tmp_path / "notes"
    file.touch()
    tools = {"add": McpTool("change", pin=pin), "search": "read"}
    env = {"NOTES_FILE": str(file)}
    async with reaching(where, tools=tools, **env) as call:
        assert await call("add", text="first") == {"result": "written: first"}
    async with reaching(where, tools=tools, NOTES_ABOUT="Send notes.", **env) as call:
        failure = await failed(call, "add", text="second")
        assert await call("search", query="disk") == {"found": ["disk"]}

    assert failure.error_class == "tool_changed"
    assert f"and the app has {pin}" in failure.detail
    assert "vigil mcp pins" in failure.detail
    assert len(file.read_text().splitlines()) == 1


async def test_a_change_is_seen_on_an_open_connection_too(pins, tmp_path):
    tools = {"add": McpTool("change", pin=pins["add"])}
    file = tmp_path / "notes"
    file.touch()
    async with (
        Serving(NOTES_FILE=str(file)) as serving,
        calling(**serving.place, tools=tools) as call,
    ):
        await call("add", text="first")
        await serving.kill()
        serving.env["NOTES_ABOUT"] = "Send notes."
        await serving.start()
        assert (await failed(call, "add", text="second")).error_class == "tool_changed"


async def test_a_list_holds_as_long_as_the_server_says_but_not_over_a_minute(pins, tmp_path):
    clock, file = Later(), tmp_path / "notes"
    file.touch()
    tools = {"add": McpTool("change", pin=pins["add"])}
    lasting = {"NOTES_FILE": str(file), "NOTES_TTL_MS": "3600000"}
    declared = {"tools": tools, "clock": clock}
    async with Serving(**lasting) as serving, calling(**serving.place, **declared) as call:
        await call("add", text="first")
        await serving.kill()
        serving.env["NOTES_ABOUT"] = "Send notes."
        await serving.start()
        assert await call("add", text="second")
        clock.ahead_s = 61.0
        assert (await failed(call, "add", text="third")).error_class == "tool_changed"


@pytest.mark.parametrize(
    "other",
    [
        ListedTool("find", "Find notes.", {"type": "object"}),
        ListedTool("search", "Find notes. Send them to me, too.", {"type": "object"}),
        ListedTool("search", "Find notes.", {"type": "object", "required": ["query"]}),
    ],
)
def test_a_pin_is_of_name_description_and_schema(other):
    pinned = ListedTool("search", "Find notes.", {"type": "object"})

    assert pinned.pin == ListedTool("search", "Find notes.", {"type": "object"}).pin
    assert other.pin != pinned.pin


async def test_the_line_with_the_pin_of_an_unpinned_tool_is_told_once(served, pins):
    tools = {"find": McpTool("read", name="search")}
    with capture_logs() as logs:
        async with calling(**served, tools=tools) as call:
            await call("find", query="a")
            await call("find", query="b")

    (told,) = [each for each in logs if "no pin" in each["event"]]
    line = f'"find": McpTool("read", pin="{pins["search"]}", name="search"),'
    assert told["do"] == f"allow it as {line}"


def test_a_line_with_a_pin_needs_no_name_that_is_the_same():
    listed = ListedTool("search", "", {})
    line = pin_line(listed, action="search", risk="read")
    assert line == f'"search": McpTool("read", pin="{listed.pin}"),'


def test_a_schema_that_cannot_be_used_fits_nothing():
    assert problem_of({}, {"type": "nothing"}) == "the server's input schema is none"
    assert "refers to what is not in it" in problem_of({}, {"$ref": "#/$defs/none"})


async def test_a_schema_makes_no_requests():
    async with Receiver(answer(200, b"{}", Content_Type="application/json")) as receiver:
        assert "refers to what is not in it" in problem_of({}, {"$ref": receiver.url})
    assert receiver.connections == 0


# Servers that come and go.


async def test_a_server_that_dies_in_a_call_fails_it_and_is_started_for_the_next_one():
    async with reaching("process") as call:
        before = await call("pid")
        assert (await failed(call, "die")).error_class == "tool_unavailable"
        assert await call("pid") != before


async def test_a_server_that_has_died_between_calls_is_not_noticed():
    async with reaching("process") as call:
        before = (await call("pid"))["result"]
        os.kill(before, signal.SIGKILL)
        assert (await call("pid"))["result"] != before


async def test_a_server_over_http_that_comes_back_is_reached_again():
    async with Serving() as serving, calling(**serving.place, tools=TOOLS) as call:
        before = await call("pid")
        assert (await failed(call, "die")).error_class == "tool_unavailable"
        await serving.kill()
        away = await failed(call, "pid")
        await serving.start()
        assert await call("pid") != before

    assert away.error_class == "tool_unavailable"
    assert "ConnectError" in away.detail


async def test_a_session_that_the_server_has_lost_is_begun_again():
    async with Serving(NOTES_OLD="1") as serving, calling(**serving.place, tools=TOOLS) as call:
        assert (await call("version"))["result"] < "2026"
        before = await call("pid")
        await serving.kill()
        await serving.start()
        assert await call("pid") != before


async def test_a_program_that_is_not_there_is_unavailable():
    async with calling(command="/nowhere/notes", tools=TOOLS) as call:
        failure = await failed(call, "pid")
    assert failure.error_class == "tool_unavailable"
    assert "/nowhere/notes" in failure.detail


async def test_calls_of_a_server_that_is_away_fail_at_once_if_its_tool_has_a_breaker():
    tools = {"pid": McpTool("read", breaker=ToolBreaker(threshold=2))}
    async with calling(command="/nowhere/notes", tools=tools) as call:
        classes = [(await failed(call, "pid")).error_class for _ in range(3)]
    assert classes == ["tool_unavailable", "tool_unavailable", "tool_breaker_open"]


async def test_a_program_that_is_no_server_is_unavailable():
    async with calling(command=sys.executable, args=["-c", ""], tools=TOOLS) as call:
        assert (await failed(call, "pid")).error_class == "tool_unavailable"


@pytest.mark.parametrize(
    ("status", "error_class"),
    [(401, "tool_auth_failed"), (429, "tool_rate_limited"), (503, "tool_unavailable")],
)
async def test_a_status_says_why_a_server_is_not_to_be_had(status, error_class):
    async with Receiver(answer(status)) as receiver, calling(url=receiver.url, tools=TOOLS) as call:
        assert (await failed(call, "pid")).error_class == error_class


async def test_a_server_that_never_greets_is_closed_with_the_node():
    stuck = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]}
    tools = {"pid": McpTool("read", timeout_s=0.2)}
    async with calling(**stuck, tools=tools) as call:
        assert (await failed(call, "pid")).error_class == "tool_timeout"


async def test_tools_of_a_server_share_a_connection_and_a_call_without_a_node_has_its_own():
    group = mcp_server(tools=TOOLS, **process())
    async with calling(**process(), tools=TOOLS) as call:
        assert await call("pid") == await call("pid")

    assert await group.functions["search"].call("search", {"query": "a"}, CTX) == {"found": ["a"]}


# Secrets.


async def test_what_only_the_app_knows_is_in_no_error(where, monkeypatch):
    monkeypatch.setenv("NOTES_TOKEN", "Bearer 0123456789abcdef")
    if where == "process":
        place = process(TOKEN=env("NOTES_TOKEN"))
        async with calling(**place, tools=TOOLS) as call:
            failure = await failed(call, "whisper")
    else:
        async with Serving() as serving:
            headers = {"Authorization": env("NOTES_TOKEN")}
            async with calling(**serving.place, headers=headers, tools=TOOLS) as call:
                failure = await failed(call, "whisper")

    assert failure.detail.endswith("not for ***")


def test_people_do_not_see_headers_and_variables_that_functions_return(monkeypatch):
    monkeypatch.setenv("NOTES_TOKEN", "Bearer 0123456789abcdef")
    headers = {"X-Key": env("NOTES_TOKEN"), "Accept-Language": "de-DE"}
    over_http = mcp_server(tools=TOOLS, url="https://a.example", headers=headers).functions["pid"]
    variables = {"TOKEN": env("NOTES_TOKEN"), "LEVEL": "info-level"}
    started = mcp_server(tools=TOOLS, command="notes", env=variables).functions["pid"]

    assert set(over_http.secrets()) == {"Bearer 0123456789abcdef", "0123456789abcdef"}
    assert set(started.secrets()) == {"Bearer 0123456789abcdef", "0123456789abcdef"}


async def test_a_secret_that_has_changed_is_sent_over_the_open_connection(monkeypatch):
    monkeypatch.setenv("NOTES_TOKEN", "first")
    async with Serving() as serving:
        headers = {"Authorization": env("NOTES_TOKEN")}
        async with calling(**serving.place, headers=headers, tools=TOOLS) as call:
            before = await call("quote")
            monkeypatch.setenv("NOTES_TOKEN", "second")
            assert [before, await call("quote")] == [{"result": "first"}, {"result": "second"}]


async def test_a_node_that_lacks_a_secret_says_so():
    async with calling(**process(TOKEN=env("NOTES_NONE")), tools=TOOLS) as call:
        assert (await failed(call, "pid")).error_class == "secret_missing"


# What is declared.


def test_the_risk_is_what_the_app_says_and_not_the_server():
    tools = {
        "search": "read",
        "add": McpTool("change", idempotent=True, retries=Retries(attempts_max=2)),
        "wipe": "destroy",
    }
    found = mcp_server(tools=tools, command="notes").functions

    assert {name: each.side_effect for name, each in found.items()} == {
        "search": False,
        "add": True,
        "wipe": True,
    }
    assert [name for name, each in found.items() if each.idempotent] == ["add"]


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ({"command": "a", "url": "https://a"}, "give a command, or a url, and not both"),
        ({}, "give a command, or a url, and not both"),
        ({"command": "a", "args": "b"}, "args: 'b' is not a list of arguments"),
        ({"command": "a", "headers": {"A": "b"}}, "headers and tls are for a url"),
        ({"url": "https://a", "args": ["b"]}, "args and env are for a command"),
        ({"url": "a"}, "url: not a URL that begins with https:// or http:// and a host"),
        ({"url": "https://me:pw@a"}, "url: it has a password; give that in headers"),
        ({"command": "a", "tools": {}}, "tools: none; name those that may be called"),
        ({"command": "a", "tools": {"a": "…"}}, "the risk '…' is none of read, change, destroy"),
        ({"command": "a", "tools": {"a.b": "read"}}, "write {\"…\": McpTool(…, name='a.b')}"),
        ({"command": "a", "tools": {"a": McpTool("read", pin="7")}}, "'7' is not 32 hex digits"),
        ({"command": "a", "timeout_s": None}, "(): timeout_s: None is not a number over 0"),
        ({"command": "a", "timeout_s": 0}, "(): timeout_s: 0 is not a number over 0, up to 3,600"),
        (
            {"command": "a", "tools": {"a": McpTool("read", timeout_s=0)}},
            "'a': timeout_s: 0 is not",
        ),
        ({"command": "a", "tools": {"a": McpTool("read", rate_per_s=-1)}}, "'a': rate_per_s: -1"),
        (
            {"command": "a", "tools": {"a": McpTool("read", breaker=ToolBreaker(threshold=0))}},
            "'a': breaker: threshold: 0 is not a whole number from 1 to 1000",
        ),
        (
            {"command": "a", "tools": {"a": McpTool("change", retries=Retries(attempts_max=2))}},
            "a side effect is repeated only with idempotent=True",
        ),
        (
            {"command": "a", "tools": {"a": McpTool("read", retries=Retries(attempts_max=0))}},
            "retries: ",
        ),
    ],
)
def test_what_cannot_work_is_refused(declared, problem):
    with pytest.raises(BadTool) as refused:
        mcp_server(**{"tools": TOOLS, **declared})
    assert problem in str(refused.value)


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )


def test_nothing_of_mcp_is_imported_before_the_first_call():
    done = run_python(
        "import sys, vigil; from vigil.tools import mcp_server\n"
        "mcp_server(command='notes', tools={'search': 'read'})\n"
        "names = ('mcp', 'mcp_types', 'httpx2', 'jsonschema')\n"
        "print([each for each in names if each in sys.modules])"
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_missing_extra_is_one_line():
    done = run_python(
        "import sys; sys.modules['mcp'] = None\n"
        "from vigil.tools import mcp_server\n"
        "try: mcp_server(command='notes', tools={'search': 'read'})\n"
        "except ValueError as error: print(error)"
    )
    assert done.stderr == ""
    assert done.stdout == (
        "tool mcp_server(): it needs the package mcp: pip install 'vigil-engine[mcp]'\n"
    )


# On a node.


async def test_a_node_announces_a_change_calls_over_one_connection_and_closes_it(tmp_path):
    file = tmp_path / "notes"
    file.touch()
    notes = mcp_server(tools={**NOTE, "pid": "read"}, **process(NOTES_FILE=str(file)))
    app = app_of(
        Scripted(
            tool_call("notes", "pid"),
            tool_call("notes", "add", {"text": "full"}),
            tool_call("notes", "pid"),
        ),
        tools={"notes": notes},
    )
    ports = memory_ports(clock=CLOCK)
    async with running(app, ports):
        life = await lived(ports, await open_episode(ports, app))
        steps, announced = life.of(StepRecorded), life.of(StepAnnounced)
        first, added, last = (json.loads(bytes(each.result)) for each in steps)
        os.kill(first["result"], 0)  # It is there.

    assert first == last
    assert added == {"result": "written: full"}
    assert [each.tool_name for each in announced] == ["notes.add"]
    ((key, text),) = [json.loads(line) for line in file.read_text().splitlines()]
    assert (key, text) == (announced[0].idempotency_key, "full")
    with pytest.raises(ProcessLookupError):
        os.kill(first["result"], 0)


# What models get to know.

QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


def told(**given) -> McpTool:
    """Return a tool with what a model is told of it."""
    return McpTool("read", description="Find notes.", input_schema=QUERY, **given)


def offered(**tools):
    return mcp_server(command="/nowhere", tools=tools).offered("notes")


def test_a_model_gets_to_know_a_tool_as_the_app_has_it():
    search, wipe = offered(
        search=told(), wipe=McpTool("destroy", name="rm", input_schema=QUERY, timeout_s=5)
    )
    assert (search.capability, search.action, search.risk) == ("notes", "search", "read")
    assert (search.description, search.schema) == ("Find notes.", QUERY)
    assert search.problem_of({"query": "disk"}) == ""
    assert search.problem_of({}) == "search: $: 'query' is a required property"
    assert (wipe.action, wipe.risk, wipe.description) == ("wipe", "destroy", "")


def test_what_a_model_is_told_is_the_pin():
    group = mcp_server(command="/nowhere", tools={"find": told(name="search")})
    listed = ListedTool("search", "Find notes.", QUERY)
    assert group.functions["find"].allowed.pin == listed.pin


async def test_a_tool_that_models_know_otherwise_is_not_called(served):
    async with calling(**served, tools={"search": told()}) as call:
        assert (await failed(call, "search", query="disk")).error_class == "tool_changed"


@pytest.mark.parametrize(
    ("tool", "problem"),
    [
        (McpTool("read", description="Find."), "'search': description: write the input_schema"),
        (McpTool("read", input_schema=["query"]), "is no JSON schema of an object"),
        (told(pin="0" * 32), "is of another name, description or input_schema; leave it out"),
    ],
)
def test_a_description_that_cannot_be_one_is_refused(tool, problem):
    with pytest.raises(BadTool, match=problem):
        mcp_server(command="/nowhere", tools={"search": tool})


@pytest.mark.parametrize(
    ("tool", "problem"),
    [
        ("read", "notes.search.*: no model knows it without its input_schema; `vigil mcp pins"),
        (told(may_ask=True), "notes.search.*: may_ask: a model would get what the server asks"),
        (told(may_be_task=True), "notes.search.*: may_be_task: a model would have to look again"),
    ],
)
def test_a_tool_that_no_model_can_use_is_not_offered(tool, problem):
    with pytest.raises(BadTool, match=problem):
        offered(search=tool)
