"""What a step leaves on the journal, and what it must not."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from engine.app.actions import Retries, approval, checkpoint, observe, synthesize, tool_call
from engine.app.findings import raise_finding
from engine.app.strategy import Strategy
from engine.app.tools import Synthesis, Tool, ToolFailed
from streams.json import NOTHING, raw
from streams.model.events import EpisodeBlocked, StepKind, StepRecorded
from streams.model.triggers import Budget
from tests.engine.stage import (
    Scripted,
    app_of,
    did,
    eventually,
    kept,
    key_of,
    leave,
    lived,
    open_episode,
    play,
    ports_in_memory,
    running,
    stored,
)


class Vault(Tool):
    """Hides what it is asked and what it answers."""

    def __init__(self):
        self.asked: list[object] = []

    async def call(self, action, args, ctx):
        self.asked.append(args)
        return {"secret": "hunter2", "size": 7}

    def redact(self, args):
        return {**args, "password": "***"}

    def redact_result(self, result):
        return {**result, "secret": "***"}


async def test_what_a_tool_redacts_is_shown_redacted_from_the_first_step(ports):
    life = await play(
        Scripted(tool_call("vault", "open", {"password": "p4ss", "shelf": 1})),
        ports=ports,
        tools={"vault": Vault()},
    )
    (step,) = life.of(StepRecorded)
    assert step.args == raw({"password": "***", "shelf": 1})
    assert step.result_shown == raw({"secret": "***", "size": 7})
    assert b"p4ss" not in stored(ports)


async def test_a_strategy_gets_the_result_unredacted(ports):
    vault = Vault()
    life = await play(
        Scripted(tool_call("vault", "open", {"password": "p4ss"})), tools={"vault": vault}
    )
    assert vault.asked == [{"password": "p4ss"}]
    assert life.seen == [{"secret": "hunter2", "size": 7}]


async def test_a_result_that_hides_nothing_is_kept_once():
    async def read(args, ctx):
        return {"size": 7}

    life = await play(Scripted(tool_call("disk", "read")), tools={"disk": read})
    (step,) = life.of(StepRecorded)
    assert (step.result, step.result_shown) == (raw({"size": 7}), NOTHING)


async def test_underscore_arguments_reach_the_tool_and_are_stored_nowhere(ports):
    asked = []

    async def read(args, ctx):
        asked.append(args)

    await play(
        Scripted(tool_call("disk", "read", {"mount": "/", "_token": "t0ken"})),
        ports=ports,
        tools={"disk": read},
    )
    assert asked == [{"mount": "/", "_token": "t0ken"}]
    assert b"mount" in stored(ports)
    assert b"t0ken" not in stored(ports)


async def test_transient_prompts_reach_the_synthesizer_and_are_stored_nowhere(ports):
    asked = []

    async def think(prompt, transient, ctx):
        asked.append((prompt, transient))
        return "because"

    life = await play(
        Scripted(synthesize({"ask": "why"}, transient={"key": "t0ken"})),
        ports=ports,
        synthesizer=think,
    )
    assert asked == [({"ask": "why"}, {"key": "t0ken"})]
    assert life.seen == ["because"]
    assert b"why" in stored(ports)
    assert b"t0ken" not in stored(ports)


async def test_a_synthesizers_tokens_and_model_are_counted():
    async def think(prompt, transient, ctx):
        return Synthesis(content={"a": 1}, input_tokens=30, output_tokens=12, model="m1")

    life = await play(Scripted(synthesize("a"), synthesize("b")), synthesizer=think)
    first, _ = life.of(StepRecorded)
    assert (first.kind, first.cost_tokens, first.model) == (StepKind.SYNTHESIS, 42, "m1")
    assert life.end.tokens_used == 84
    assert life.seen == [{"a": 1}, {"a": 1}]


async def test_tokens_of_input_and_output_are_kept_apart():
    async def think(prompt, transient, ctx):
        return Synthesis(content=1, input_tokens=30, output_tokens=12)

    (step,) = (await play(Scripted(synthesize("a")), synthesizer=think)).of(StepRecorded)
    assert (step.input_tokens, step.output_tokens, step.cost_tokens) == (30, 12, 42)


class Estimating:
    """A synthesizer that returns plain content and says what it has cost."""

    def __init__(self, tokens):
        self._tokens = tokens

    async def __call__(self, prompt, transient, ctx):
        return "an answer"

    def estimate_tokens(self, prompt, content):
        return self._tokens(prompt, content)


async def test_a_synthesizer_that_counts_no_tokens_may_estimate_them():
    model = Estimating(lambda prompt, content: len(prompt) + len(content))
    life = await play(Scripted(synthesize("abc")), synthesizer=model)
    (step,) = life.of(StepRecorded)
    assert (step.input_tokens, step.output_tokens, step.cost_tokens) == (0, 0, 12)
    assert (life.end.tokens_used, life.seen) == (12, ["an answer"])


async def test_estimated_tokens_count_for_the_budget():
    model = Estimating(lambda prompt, content: 60)
    plan = Scripted(*map(synthesize, "abc"))
    life = await play(plan, synthesizer=model, budget=Budget(tokens=100))
    assert (life.end.error_class, life.end.tokens_used) == ("budget_exceeded", 120)


@pytest.mark.parametrize("tokens", [-1, 1.5, None, 2**31])
async def test_an_impossible_estimate_fails_the_synthesis(tokens):
    life = await play(
        Scripted(synthesize("a")), synthesizer=Estimating(lambda prompt, content: tokens)
    )
    assert life.seen == ["invalid_estimate"]


async def test_an_estimate_that_raises_does_not_have_the_model_asked_again():
    asked = []

    def estimate(prompt, content):
        asked.append(prompt)
        raise KeyError(prompt)

    action = synthesize("a", retries=Retries(attempts_max=3, first_s=1, most_s=1))
    life = await play(Scripted(action), synthesizer=Estimating(estimate))
    assert (life.seen, asked) == (["invalid_estimate"], ["a"])


async def test_without_a_synthesizer_the_prompt_is_the_result():
    life = await play(Scripted(synthesize({"ask": "why"}, transient={"key": "t0ken"})))
    assert life.seen == [{"ask": "why"}]
    assert life.of(StepRecorded)[0].cost_tokens == 0


async def test_a_capability_that_nobody_serves_is_a_failed_step():
    life = await play(Scripted(tool_call("disk", "read")))
    (step,) = life.of(StepRecorded)
    assert step.error_class == "no_tool_for_capability"
    assert "'disk'" in step.error_detail
    assert life.seen == ["no_tool_for_capability"]


@pytest.mark.parametrize(
    ("raised", "error_class"),
    [
        (ToolFailed("quota", "tomorrow"), "quota"),
        (TimeoutError(), "tool_timeout"),
        (ConnectionError(), "tool_unavailable"),
        (ValueError("boom"), "crash"),
    ],
)
async def test_a_tool_that_fails_is_a_result_too(raised, error_class):
    async def read(args, ctx):
        raise raised

    life = await play(Scripted(tool_call("disk", "read")), tools={"disk": read})
    assert life.of(StepRecorded)[0].error_class == error_class
    assert life.seen == [error_class]


async def test_a_synthesizer_that_fails_is_a_result_too():
    async def think(prompt, transient, ctx):
        raise ToolFailed("refused", "no comment")

    life = await play(Scripted(synthesize("why")), synthesizer=think)
    assert life.seen == ["refused"]


async def test_a_failed_step_ends_an_episode_that_does_not_care_for_results():
    class Careless(Scripted):
        handle_result = Strategy.handle_result

    life = await play(Careless(tool_call("disk", "read")))
    assert life.end.error_class == "no_tool_for_capability"


async def test_observations_and_checkpoints_are_steps():
    life = await play(Scripted(observe({"n": 1}), checkpoint("half")))
    first, second = life.of(StepRecorded)
    assert (first.kind, first.result) == (StepKind.OBSERVATION, raw({"n": 1}))
    assert (second.kind, second.args) == (StepKind.CHECKPOINT, raw({"phase": "half"}))
    assert life.seen == [{"n": 1}, None]


async def test_a_tool_knows_who_calls_and_with_which_idempotency_key():
    known = []

    async def read(args, ctx):
        known.append(ctx)

    call = tool_call("disk", "read")
    life = await play(Scripted(call, call), tools={"disk": read})
    id_ = life.episode.opened.episode_id
    assert [one.step_no for one in known] == [1, 2]
    assert [one.idempotency_key for one in known] == [key_of(id_, 1, call), key_of(id_, 2, call)]
    assert {(one.actor_id, one.expectation_id, one.episode_id) for one in known} == {
        ("worker", "thing", id_)
    }


@pytest.mark.parametrize("failure", ["no\ud800 surrogates", "x" * 2_000_000])
async def test_a_failure_in_words_that_cannot_be_kept_is_a_result_all_the_same(failure):
    async def read(args, ctx):
        raise ToolFailed("odd", failure)

    life = await play(Scripted(tool_call("disk", "read")), tools={"disk": read})
    assert life.seen == ["odd"]


@pytest.mark.parametrize(
    "values", [{"input_tokens": "30"}, {"output_tokens": 1.5}, {"model": None}]
)
async def test_a_synthesis_of_nonsense_is_a_crash_of_the_synthesizer(values):
    async def think(prompt, transient, ctx):
        return Synthesis(content=1, **values)

    life = await play(Scripted(synthesize("why")), synthesizer=think)
    assert life.seen == ["crash"]
    assert "tokens must be whole numbers" in life.of(StepRecorded)[0].error_detail


async def test_redacting_in_place_takes_nothing_from_the_strategy():
    class InPlace(Vault):
        def redact_result(self, result):
            result["secret"] = "***"
            return result

    ports = ports_in_memory()
    life = await play(Scripted(tool_call("vault", "open")), ports=ports, tools={"vault": InPlace()})
    assert life.seen == [{"secret": "hunter2", "size": 7}]
    assert life.of(StepRecorded)[0].result_shown == raw({"secret": "***", "size": 7})


@pytest.mark.parametrize(
    "values",
    [
        {"input_tokens": -1},
        {"output_tokens": -5, "input_tokens": 10},
        {"input_tokens": 2**31},
        {"input_tokens": 2**30, "output_tokens": 2**30},
        {"output_tokens": 2**70},
    ],
)
async def test_tokens_that_cannot_have_been_used_are_a_failed_step_and_count_nothing(values):
    async def think(prompt, transient, ctx):
        return Synthesis(content=1, **values)

    life = await play(Scripted(synthesize("why")), synthesizer=think)
    (step,) = life.of(StepRecorded)
    assert (step.error_class, step.cost_tokens) == ("crash", 0)
    assert "none may be negative, and together they are at most 2,147,483,647" in step.error_detail


async def test_a_model_whose_name_cannot_be_kept_fails_nothing():
    async def think(prompt, transient, ctx):
        return Synthesis(content=1, model="no\ud800")

    assert (await play(Scripted(synthesize("why")), synthesizer=think)).seen == [1]


class Talker(Vault):
    """Quotes what it was given, in its answer or in an error."""

    async def call(self, action, args, ctx):
        quoted = f"{args['password']} and {args['_token']}"
        match action:
            case "refuse":
                raise ToolFailed(f"refused {args['password']}", quoted)
            case "crash":
                raise RuntimeError(quoted)
            case _:
                return {"secret": "hunter2", "quoted": [quoted]}


GIVEN = {"password": "p4ssword", "_token": "t0ken"}


@pytest.mark.parametrize("action", ["refuse", "crash"])
async def test_what_is_hidden_of_a_call_is_hidden_in_its_error(ports, action):
    life = await play(
        Scripted(tool_call("vault", action, GIVEN)), ports=ports, tools={"vault": Talker()}
    )
    (step,) = life.of(StepRecorded)
    assert "*** and ***" in step.error_detail
    assert b"p4ssword" not in stored(ports)
    assert b"t0ken" not in stored(ports)


async def test_what_is_hidden_of_a_call_is_hidden_in_what_people_see_of_its_result():
    life = await play(Scripted(tool_call("vault", "open", GIVEN)), tools={"vault": Talker()})
    (step,) = life.of(StepRecorded)
    assert step.result_shown == raw({"secret": "***", "quoted": ["*** and ***"]})
    assert life.seen == [{"secret": "hunter2", "quoted": ["p4ssword and t0ken"]}]


class Blabbing(Scripted):
    """Raises what it got from its last step."""

    def handle_result(self, state, step, result):
        if step.kind == "observation":
            raise RuntimeError(f"{state.seen}")
        return super().handle_result(state, step, result)


async def test_a_strategy_that_quotes_what_a_tool_hides_fails_without_it():
    told = Blabbing(tool_call("vault", "open", GIVEN), observe(1))
    life = await play(told, tools={"vault": Talker()})
    assert life.end.error_class == "crash"
    assert life.end.error_detail.endswith("RuntimeError: [{'quoted': ['***'], 'secret': '***'}]\n")


async def test_it_fails_without_it_on_the_next_node_too(ports):
    """That node has made no call: what was hidden is known from the journal."""
    call = tool_call("vault", "open", GIVEN)
    app = app_of(Blabbing(call, observe(1)), tools={"vault": Talker()})
    async with running(app, ports):
        id_ = await leave(ports, app, kept(), did(1, call, {"secret": "hunter2"}))
        life = await lived(ports, id_)
    assert life.end.error_class == "crash"
    assert life.end.error_detail.endswith("RuntimeError: [{'secret': '***'}]\n")


async def test_without_a_synthesizer_a_timeline_does_not_show_the_prompt_as_its_answer_either():
    asked = synthesize({"system": "why", "unit": "%"})
    life = await play(Scripted(asked), log_strategy="timeline")
    assert life.seen == [{"system": "why", "unit": "%"}]
    (step,) = life.of(StepRecorded)
    assert step.result_shown == raw({"system": "[redacted]", "unit": "%"})


async def test_a_full_log_has_what_a_model_was_asked_and_nothing_that_is_transient(ports):
    async def think(prompt, transient, ctx):
        return "ok"

    asked = synthesize({"system": "you are"}, transient={"key": "t0ken"})
    life = await play(Scripted(asked), ports=ports, synthesizer=think)
    (step,) = life.of(StepRecorded)
    assert step.args == raw({"system": "you are"})
    assert b"t0ken" not in stored(ports)


async def test_a_timeline_keeps_a_prompt_off_the_journal(ports):
    async def think(prompt, transient, ctx):
        return "ok"

    asked = synthesize({"system": "you are"})
    await play(Scripted(asked), ports=ports, synthesizer=think, log_strategy="timeline")
    assert b"you are" not in stored(ports)


async def test_the_error_of_a_synthesizer_quotes_neither_prompt_nor_what_is_transient(ports):
    async def think(prompt, transient, ctx):
        raise RuntimeError(f"{prompt} {transient}")

    asked = synthesize({"system": "you are", "unit": "%"}, transient={"key": "t0ken"})
    life = await play(Scripted(asked), ports=ports, synthesizer=think, log_strategy="timeline")
    (step,) = life.of(StepRecorded)
    assert "{'system': '***', 'unit': '%'} {'key': '***'}" in step.error_detail


async def test_a_tool_that_forgets_to_await_is_named():
    async def inner():
        return 1

    async def read(args, ctx):
        return inner()

    life = await play(Scripted(tool_call("disk", "read")), tools={"disk": read})
    (step,) = life.of(StepRecorded)
    assert step.error_class == "unencodable"
    assert step.error_detail.startswith("disk.read returned a coroutine, test_a_tool_that_")
    assert step.error_detail.endswith("inner(…); write `await` before it")


async def test_a_tool_that_is_not_there_is_told_with_those_that_are():
    async def read(args, ctx):
        return 1

    life = await play(Scripted(tool_call("dsk", "read")), tools={"disk": read})
    (step,) = life.of(StepRecorded)
    assert step.error_detail == "no tool is registered as 'dsk' for 'read'; known: disk"


class Forgetting(Scripted):
    """Forgets to return the state."""

    def handle_result(self, state, step, result):
        state.seen.append(result)


async def test_a_strategy_that_returns_no_state_is_told():
    life = await play(Forgetting(observe(1)))
    assert life.end.error_class == "invalid_result"
    assert life.end.error_detail == "handle_result() returned None; return the state"


class Unkept(Scripted):
    """Has a state that JSON cannot say, from its first result on."""

    def handle_result(self, state, step, result):
        return {"seen": object()}


async def test_a_state_that_cannot_be_stored_is_told_before_it_must_be():
    life = await play(Unkept(observe(1)))
    assert (life.end.error_class, len(life.of(StepRecorded))) == ("unencodable", 1)
    assert life.end.error_detail.startswith("state: ")


async def test_a_loop_of_a_class_is_told_with_its_calls():
    async def read(args, ctx):
        return 1

    class Circling(Scripted):
        def next_step(self, state, ctx):
            return tool_call("disk", "read", {"mount": "/", "_token": "t0ken"})

    life = await play(Circling(), tools={"disk": read})
    assert life.end.error_class == "loop_detected"
    assert life.end.error_detail == '1 step(s) over and over: disk.read({"mount":"/"}) (call 3)'


async def test_the_log_names_the_users_line_of_an_episode_that_fails():
    class Crashing(Scripted):
        def next_step(self, state, ctx):
            raise KeyError("host")

    with capture_logs() as lines:
        await play(Crashing())
    (line,) = (line for line in lines if line["event"] == "episode failed")
    assert line["detail"] == "KeyError: 'host'"
    assert line["at"].startswith("test_steps.py:")
    assert line["at"].endswith(", in next_step")


@pytest.mark.parametrize(("summary", "what"), [("clean it?", "clean it?"), ("", '{"a":1}')])
async def test_the_log_tells_what_is_raised_and_what_people_are_asked(ports, summary, what):
    found = [raise_finding("disk", class_="full", severity="high")]
    with capture_logs() as lines:
        await play(Scripted(findings=found))
        app = app_of(Scripted(approval({"a": 1}, summary=summary)))
        async with running(app, ports):
            id_ = await open_episode(ports, app)
            await lived(ports, id_, lambda life: life.of(EpisodeBlocked))
            await eventually(lambda: any(line["event"] == "episode waits" for line in lines))
    (raised,) = (line for line in lines if line["event"] == "finding raised")
    (waits,) = (line for line in lines if line["event"] == "episode waits")
    assert raised["finding_key"] == "disk"
    assert (waits["reason"], waits["what"], waits["episode_id"]) == ("approval", what, id_)
