"""What parts that users write must hold to, and what is said of one that does not."""

from __future__ import annotations

import asyncio
from itertools import count

import msgspec
import pytest

from vigil import (
    Actor,
    DeliveryFailed,
    OutputAdapter,
    StateSchema,
    Strategy,
    Synthesis,
    Tool,
    ToolFailed,
    event,
    tool,
)
from vigil.testing import (
    FakeSynthesizer,
    check_adapter,
    check_migrations,
    check_synthesizer,
    check_tool,
)

PAGE = {"to": "ann"}


class Pager(OutputAdapter):
    """Keeps what it delivered by its key, as a receiver does that recognizes keys."""

    def __init__(self):
        self.sent: dict[str, object] = {}
        self.states: list[str] = []

    async def open(self, ports):
        self.states.append("open")

    async def deliver(self, output):
        self.sent.setdefault(output.idempotency_key, output.payload)
        return output.idempotency_key[-1]

    async def close(self):
        self.states.append("closed")


# Adapters.


async def test_an_adapter_that_holds_to_it_is_opened_used_and_closed():
    pager = Pager()
    await check_adapter(pager, PAGE, {"to": "bob"})
    assert pager.states == ["open", "closed"]
    assert list(pager.sent.values())[:2] == [PAGE, {"to": "bob"}]
    assert len(pager.sent) == 6


async def test_a_receiver_that_takes_an_output_that_comes_again_for_another_one_is_found():
    numbers = count()

    async def counted(output):
        return f"page-{next(numbers)}"

    with pytest.raises(AssertionError, match="'page-0', and 'page-1' for the same output again"):
        await check_adapter(counted, PAGE)
    await check_adapter(counted, PAGE, recognizes_keys=False)


async def test_a_reference_that_is_no_text_is_found():
    async def number(output):
        return 7

    with pytest.raises(AssertionError, match="returned 7; return the receiver's reference"):
        await check_adapter(number, PAGE)


async def test_an_adapter_that_cannot_deliver_several_at_a_time_is_found():
    busy = []

    async def one_by_one(output):
        if busy:
            raise DeliveryFailed("busy")
        busy.append(output)
        await asyncio.sleep(0)
        busy.clear()

    with pytest.raises(DeliveryFailed, match="busy"):
        await check_adapter(one_by_one, PAGE)


# Tools.


async def test_tools_that_hold_to_it_are_called_with_each_of_the_arguments():
    called = []

    @tool(redact=["token"])
    def fetch(url: str, token: str = "") -> dict[str, str]:
        called.append(url)
        return {"url": url, "token": token}

    await check_tool(fetch, {"url": "/a"}, {"url": "/b", "token": "t"})
    assert called == ["/a", "/b"]


async def test_arguments_that_do_not_fit_the_signature_are_found():
    @tool
    async def fetch(url: str) -> str:
        return url

    with pytest.raises(AssertionError, match=r"fetch\(\): Expected `str`, got `int`"):
        await check_tool(fetch, {"url": 7})


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_tool_that_says_idempotent_and_is_not_is_found(idempotent):
    numbers = count(1)

    @tool(side_effect=True, idempotent=idempotent)
    async def book() -> int:
        return next(numbers)

    if not idempotent:
        return await check_tool(book, {})
    with pytest.raises(AssertionError, match="returned 1, and 2 again under the same"):
        await check_tool(book, {})
    return None


async def test_an_idempotent_tool_gets_one_key_for_both_calls():
    keys = []

    @tool(side_effect=True, idempotent=True)
    async def book(*, ctx) -> str:
        keys.append(ctx.idempotency_key)
        return ctx.idempotency_key

    await check_tool(book, {})
    assert len(keys) == 2
    assert keys[0] == keys[1]


async def test_a_result_that_is_no_json_is_found():
    class Odd(Tool):
        async def call(self, action, args, ctx):
            return {"did": action, "with": object()}

    with pytest.raises(
        AssertionError, match=r"result: JSON has no such value at \$\.with: an instance of object"
    ):
        await check_tool(Odd(), {}, action="largest")


async def test_a_tool_that_forgot_to_await_is_found():
    async def inner():
        return 1

    class Forgets(Tool):
        async def call(self, action, args, ctx):
            return inner()

    with pytest.raises(AssertionError, match=r"call\(\) returned a coroutine; write `await`"):
        await check_tool(Forgets(), {})


async def test_a_redacted_result_must_be_json_too():
    class Odd(Tool):
        async def call(self, action, args, ctx):
            return {}

        def redact_result(self, result):
            return object()

    with pytest.raises(AssertionError, match="redacted result: JSON has no such value"):
        await check_tool(Odd(), {})


async def test_a_failure_is_raised_as_it_is():
    @tool
    async def fetch():
        raise ToolFailed("quota", "used up")

    with pytest.raises(ToolFailed, match="quota: used up"):
        await check_tool(fetch, {})


# Synthesizers.


async def test_a_synthesizer_that_holds_to_it_is_asked_each_prompt():
    fake = FakeSynthesizer(Synthesis(content="Empty it.", input_tokens=1))
    await check_synthesizer(fake, "what now?", {"ask": 1})
    assert fake.prompts == ["what now?", {"ask": 1}]


@pytest.mark.parametrize(
    ("answer", "why"),
    [(object(), "content: JSON has no such value"), ("x" * 262_144, "content: 262,146 bytes")],
)
async def test_what_a_journal_cannot_keep_of_a_synthesizer_is_found(answer, why):
    with pytest.raises(AssertionError, match=why):
        await check_synthesizer(FakeSynthesizer(answer), "what now?")


# Migrations.


class Close(Strategy):
    class State(msgspec.Struct):
        asked: bool
        by: str

    def init(self, episode, trigger):
        return self.State(asked=False, by="")

    def next_step(self, state, ctx):
        raise NotImplementedError

    def converge(self, state, ctx):
        raise NotImplementedError


def declared(migration):
    desk = Actor("desk")
    schema = StateSchema(version=2, migrations={1: migration})
    desk.expect("close", Close, on=event("a.b"), state_schema=schema)
    return desk.expectations["close"]


def test_states_that_become_what_the_strategy_reads_hold_to_it():
    states = {1: [{"asked": True}, {"asked": False}], 2: [{"asked": True, "by": "ann"}]}
    check_migrations(declared(lambda state: {**state, "by": ""}), states)


def test_a_migration_that_makes_what_nobody_can_read_is_found():
    with pytest.raises(AssertionError, match="a state of version 1 does not fit State"):
        check_migrations(declared(lambda state: state), {1: [{"asked": True}]})


def test_a_migration_that_decides_by_chance_is_found():
    numbers = count()
    with pytest.raises(AssertionError, match="a state of version 1 is not migrated to the same"):
        check_migrations(
            declared(lambda state: {**state, "by": str(next(numbers))}), {1: [{"asked": True}]}
        )


def test_every_older_version_must_be_given():
    with pytest.raises(AssertionError, match="there are no states of version 1"):
        check_migrations(declared(lambda state: state), {2: [{"asked": True, "by": ""}]})
