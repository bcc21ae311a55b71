"""A lab: recorded episodes with today's code, models asked anew, and nothing else called."""

from __future__ import annotations

import asyncio

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import DynamicToolset, FunctionToolset

from engine.agents.toolset import toolset
from engine.app.actions import Retries, tool_call
from engine.app.app import App
from engine.app.findings import raise_finding
from engine.app.function_tool import tool
from engine.app.outputs import propose_output
from engine.app.strategy import ConvergeResult
from engine.app.triggers import event
from engine.definitions import agent_of as definition_of
from engine.definitions import to_actor
from engine.errors import BadHistory
from engine.operations.lab import lab_each
from engine.operations.replay import record
from streams.json import raw
from streams.model.events import (
    EndStatus,
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeStarted,
)
from streams.model.triggers import Budget
from tests.engine.agents.stage import MANY, Script, agent_of, last_told, told
from tests.engine.agents.test_money import app_of as priced
from tests.engine.execution.test_asked_for_more import Told, three_calls
from tests.engine.execution.test_asked_for_more import app_of as asking_app
from tests.engine.functions.stage import app_of
from tests.engine.operations.lab_stage import CAREFUL, CURIOUS, Desk, recorded, verdict
from tests.engine.output_stage import Pager
from tests.engine.stage import (
    HAPPENED,
    STARTED,
    Scripted,
    decide,
    did,
    lived,
    open_episode,
    opening,
    ports_in_memory,
    running,
    write,
)
from tests.engine.stage import app_of as class_app

WEB, BATCH = {"host": "web-1"}, {"host": "batch-1"}


def differences(found):
    return {each.what: (each.then, each.now) for each in found.differences}


async def test_code_that_has_not_changed_comes_out_the_same_and_asks_no_model():
    (history,) = await recorded(Desk().app, WEB)
    today = Desk()
    found = await verdict(history, today.app)
    assert found.is_same
    assert found.divergence is None
    assert (found.asked, today.model.asked) == (0, 0)
    assert found.now == found.then
    assert found.then.requests == 2
    assert found.then.tokens > 0


async def test_a_hundred_episodes_name_the_five_that_a_changed_prompt_breaks():
    hosts = [f"batch-{n}" if n % 20 == 7 else f"web-{n}" for n in range(100)]
    histories = await recorded(Desk().app, *({"host": host} for host in hosts))
    today = Desk(CAREFUL)
    found = await lab_each(dict(zip(hosts, histories, strict=True)), today.app)
    broken = {host: each for host, each in found.items() if not each.is_same}
    assert sorted(broken) == sorted(host for host in hosts if host.startswith("batch"))
    assert len(broken) == 5
    for host, each in broken.items():
        assert each.divergence.request == "request 2 of triage"
        assert (each.divergence.then, each.divergence.now) == ("full", "fine")
        assert differences(each) == {
            "classification": ({"disk": "full"}, {"disk": "fine"}),
            f"finding disk:{host}": ("raised, disk_full, high", None),
            f"output page page:{host}": ("sent", None),
        }
    assert all(each.divergence is None for each in found.values() if each.is_same)
    assert today.done == []


async def test_each_request_is_made_of_a_prompt_that_has_changed():
    (history,) = await recorded(Desk().app, WEB)
    today = Desk("be thorough")
    found = await verdict(history, today.app)
    assert found.is_same
    assert (found.asked, today.model.asked) == (2, 2)


async def test_every_request_is_made_if_that_is_asked_for():
    (history,) = await recorded(Desk().app, WEB)
    today = Desk()
    found = await verdict(history, today.app, asks_all=True)
    assert found.is_same
    assert (found.asked, today.model.asked) == (2, 2)


async def test_a_call_that_the_journal_cannot_answer_ends_the_run_and_is_not_made():
    (history,) = await recorded(Desk().app, BATCH)
    today = Desk(CURIOUS)
    found = await verdict(history, today.app)
    assert differences(found)["end"] == ("done", 'no_record: disk.call {"host":"everything"}')
    assert found.divergence.request == "request 2 of triage"
    assert (found.divergence.then, found.divergence.now) == ("full", 'disk(host="everything")')
    assert (today.done, today.pager.views) == ([], [])


async def test_nothing_is_called_but_models():
    """Whatever the code of today asks for: the recorded calls, others, and more of the same."""
    done = []

    @tool(side_effect=True, idempotent=True)
    async def write(text: str) -> str:
        """Write."""
        done.append(("tool", text))
        return text

    async def own(text: str) -> str:
        """Do it."""
        done.append(("own", text))
        return text

    async def steps(ctx, text: str) -> str:
        """Do several things."""
        return await ctx.call(write, text=text)

    def app(said):
        script = Script(
            [("own", {"text": said}), ("write", {"text": said}), ("steps", {"text": said})], "done"
        )
        agent = agent_of(script, own, toolsets=[toolset(write, steps)], instructions=said)

        async def check(ctx, trigger):
            for attempt in (ctx.call(write, text=said), ctx.agent(agent, "do it")):
                await attempt
            await ctx.output("page", {"text": said}, key="inline")
            await ctx.report(raise_finding("a", class_="c"))
            return propose_output("page", {"text": said}, key="last")

        pager = Pager()
        made = app_of(check, tools=[write], outputs={"page": pager}, budget=MANY)
        return made, pager

    made, pager = app("a")
    (history,) = await recorded(made, {})
    assert len(done) == 4
    assert len(pager.views) == 2
    done.clear()
    for said in ("a", "b"):
        made, pager = app(said)
        found = await verdict(history, made, asks_all=True)
        assert found.is_same is (said == "a")
        assert (done, pager.views) == ([], [])


@pytest.mark.parametrize("other", ["own", "write", "synthesizer", "child", "reading"])
async def test_what_is_not_recorded_is_not_made(other):
    done = []

    @tool(side_effect=True, idempotent=True)
    async def write() -> str:
        """Write."""
        done.append("tool")
        return ""

    async def own() -> str:
        """Do it."""
        done.append("own")
        return ""

    async def synthesizer(prompt, transient, ctx):
        done.append("synthesizer")
        return ""

    async def first(ctx, trigger):
        return None

    async def then(ctx, trigger):
        match other:
            case "own":
                await ctx.agent(agent_of(Script([("own", {})], "done"), own), "do it")
            case "write":
                await ctx.call(write)
            case "synthesizer":
                await ctx.synthesize("why")
            case "child":
                await ctx.episode("worker", "thing")
            case "reading":
                await ctx.findings.get("a")

    (history,) = await recorded(app_of(first), {})
    today = app_of(then, tools=[write], synthesizer=synthesizer, budget=MANY)
    (end,) = (await verdict(history, today)).differences
    assert end.now.startswith("no_record: ")
    assert done == []


async def test_people_have_decided_as_they_did():
    said = []

    @tool(side_effect=True, idempotent=True)
    async def restart(service: str) -> str:
        """Restart a service."""
        return f"{service} is up"

    def app(*services):
        turns = [[("restart", {"service": each}, f"call-{each}")] for each in services]
        tools = toolset(restart, requires_approval=[restart])
        script = Script(*turns, lambda messages: said.append(told(messages)) or "done")
        agent = agent_of(script, toolsets=[tools], instructions="-".join(services))

        async def heal(ctx, trigger):
            await ctx.agent(agent, "heal it")

        return app_of(heal, tools=[restart], budget=MANY)

    ports, made = ports_in_memory(), app("web")
    async with running(made, ports):
        id_ = await open_episode(ports, made)
        await lived(ports, id_, lambda so_far: so_far.of(EpisodeBlocked))
        await decide(ports, id_, "deny", reason="not now")
        await lived(ports, id_)
    history = await record(ports, id_)
    (before,) = said
    found = await verdict(history, app("web"), asks_all=True)
    assert (found.is_same, found.asked) == (True, 2)
    assert said[1] == before
    assert "not now" in before[0]
    asked = await verdict(history, app("web", "db"))  # Nobody has decided on that: approved.
    assert differences(asked)["end"][1] == 'no_record: restart.call {"service":"db"}'


async def test_the_past_answers_for_time_findings_children_signals_and_sleeps():
    seen = []

    async def reads(ctx):
        child = await ctx.episode("worker", "child")
        return [
            ctx.now(),
            await ctx.findings.get("a"),
            await ctx.findings.active(class_="c"),
            child.classification,
        ]

    async def first(ctx, trigger):
        seen.append(await reads(ctx))
        await ctx.sleep(0.001)
        await ctx.report(raise_finding("a", class_="c"))

    async def then(ctx, trigger):
        seen.append(await reads(ctx))
        await ctx.sleep(3_600)
        seen.append(await ctx.wait("x"))

    def app(function):
        async def child(ctx, trigger):
            return ConvergeResult(classification={"child": len(seen)})

        made = app_of(function)
        made.actors["worker"].expect("child", child, on=event("child.wanted"))
        return made

    (history,) = await recorded(app(first), {})
    recorded_reads = seen[-1]
    seen.clear()
    assert (await verdict(history, app(first))).is_same
    assert seen == [recorded_reads]
    longer = await verdict(history, app(then))
    assert differences(longer) == {"finding a": ("raised, c", None)}
    assert seen == [recorded_reads, recorded_reads, None]


async def test_what_is_done_within_a_tool_of_its_own_still_costs_what_it_did():
    expert = agent_of(Script("because"), name="expert")

    def app(instructions):
        holder = {}

        async def ask(q: str) -> str:
            """Ask an expert."""
            return (await holder["ctx"].agent(expert, q)).output

        agent = agent_of(Script([("ask", {"q": "why"})], last_told), ask, instructions=instructions)

        async def check(ctx, trigger):
            holder["ctx"] = ctx
            await ctx.agent(agent, "what is it?")

        return app_of(check, budget=MANY)

    (history,) = await recorded(app("a"), {})
    found = await verdict(history, app("b"))
    assert (found.then.requests, found.now.requests, found.asked) == (3, 3, 2)
    assert found.divergence is None


async def test_a_prompt_that_takes_too_many_turns_uses_up_the_budget():
    today = agent_of(Script(*[[("own", {})]] * 9, "done"), own_tool, instructions="go on")

    async def check(ctx, trigger):
        await ctx.agent(today, "go on")

    async def first(ctx, trigger):
        await ctx.agent(agent_of(Script([("own", {})], "done"), own_tool), "go on")

    app = app_of(first, budget=Budget(turns=5, tokens=0))
    (history,) = await recorded(app, {})
    found = await verdict(history, app_of(check, budget=MANY))
    assert differences(found)["end"][1].startswith("budget_exceeded: turns: 5 used of 5")


async def own_tool() -> str:
    return "ok"


own_tool.__name__ = "own"


async def test_a_model_that_does_not_answer_ends_the_run_after_a_time(monkeypatch):
    monkeypatch.setattr("engine.operations.lab.EPISODE_S_MAX", 0.05)

    async def silent(messages, info):
        await asyncio.Event().wait()

    def app(model):
        agent = agent_of(model)

        async def check(ctx, trigger):
            await ctx.agent(agent, "go")

        return app_of(check, budget=MANY)

    (history,) = await recorded(app(Script("done")), {})
    found = await verdict(history, app(silent), asks_all=True)
    assert differences(found)["end"][1] == "lab_timeout: it took over 0.05 s"


async def test_code_that_fails_today_ends_as_it_would():
    async def first(ctx, trigger):
        return None

    async def large(ctx, trigger):
        await ctx.observe("x" * 600_000)

    async def wrong(ctx, trigger):
        raise LookupError("no such host")

    async def key(ctx, trigger):
        await ctx.findings.get("")

    (history,) = await recorded(app_of(first), {})
    ends = [differences(await verdict(history, app_of(each)))["end"][1] for each in (large, wrong)]
    assert ends[0].startswith("unencodable: observation")
    assert ends[1].startswith("crash: ")
    (history,) = await recorded(app_of(key), {})
    assert (await verdict(history, app_of(key))).is_same


async def test_a_prompt_that_costs_too_much_uses_up_the_dollars():
    def app(*turns):
        settings = {"max_tokens": 100}
        script = Script(*turns, "done")
        agent = agent_of(script, own_tool, instructions=str(len(turns)), model_settings=settings)

        async def check(ctx, trigger):
            await ctx.agent(agent, "go")

        return priced(check, usd="2")

    (history,) = await recorded(app([("own", {})]), {})
    found = await verdict(history, app(*[[("own", {})]] * 90))
    assert differences(found)["end"][1].startswith("budget_exceeded: usd: ")
    assert found.then.cost_usd < 2 <= found.now.cost_usd


async def test_agents_ask_another_model_if_that_is_wanted():
    (history,) = await recorded(Desk().app, WEB)
    today = Desk()
    found = await verdict(history, today.app, model="test")
    assert today.model.asked == 0
    assert found.asked > 0
    assert differences(found)["end"][1].startswith("no_record: disk.call")


async def test_the_actor_of_a_definition_is_run_with_the_parts_of_the_app_and_another_model():
    said = agent_of_file(classes=["disk_full", "fine"])
    actor = to_actor(said, App(), revision=3)
    answer = {"class": "fine", "severity": "low", "summary": "it has room", "confidence": 1}
    script = Script([("final_result", answer)])
    task = actor.expectations["thing"].strategy.run.__self__
    task.agent.model = FunctionModel(script)
    (history,) = await recorded(App(actors=[actor]), {})

    today = {"a": to_actor(said, App(), revision=3)}
    found = await lab_each({"a": history}, App(), defined=today, model="test")
    (classified, _) = found["a"].differences
    assert (classified.then["primary"], classified.now["primary"]) == ("fine", "disk_full")
    with pytest.raises(BadHistory, match=r"^a: there is no expectation 'thing'"):
        await lab_each({"a": history}, App())


def agent_of_file(**config):
    said = {"agent": {"model": "test"}, "prompt": "What is wrong?", **config}
    strategy = {"template": "agentic_task", "config": said}
    expectation = {"on": {"event": HAPPENED}, "strategy": strategy}
    return definition_of({"id": "worker", "expectations": {"thing": expectation}})


async def test_a_request_that_was_repeated_has_the_answer_of_its_last_attempt():
    turns = Script("done")
    failing = [1]

    def model(messages, info):
        if failing:
            failing.pop()
            raise ModelHTTPError(status_code=503, model_name="m")
        return turns(messages, info)

    agent = agent_of(model)

    async def check(ctx, trigger):
        said = await ctx.agent(agent, "go", retries=Retries(attempts_max=3, first_s=0.01, most_s=1))
        return ConvergeResult(classification=said.output)

    app = app_of(check, budget=MANY)
    (history,) = await recorded(app, {})
    found = await verdict(history, app)
    assert found.is_same
    assert (found.then.requests, found.now.requests, found.asked) == (2, 1, 0)
    failing.append(1)
    again = await verdict(history, app, asks_all=True)
    assert (again.is_same, again.asked, again.divergence) == (True, 2, None)


async def test_words_beside_calls_and_new_texts_are_no_other_findings():
    def app(word):
        def model(messages, info):
            if len(messages) > 1:
                return ModelResponse([TextPart(f"{word}!")])
            return ModelResponse([TextPart(word), ToolCallPart("own", {}, "call-1")])

        agent = agent_of(model, own_tool, instructions=word)

        async def check(ctx, trigger):
            await ctx.agent(agent, "go")

        return app_of(check, budget=MANY)

    (history,) = await recorded(app("a"), {})
    found = await verdict(history, app("b"))
    assert found.is_same
    assert found.divergence.request == "request 2 of helper"
    assert (found.divergence.then, found.divergence.now) == ("a!", "b!")


async def test_what_an_abandoned_beginning_had_done_answers_nothing():
    async def check(ctx, trigger):
        return ConvergeResult(classification={"disk": await ctx.call("disk.look")})

    def looked(number, result):
        return did(number, tool_call("disk", "look"), result, path="1")

    ports, app = ports_in_memory(), app_of(check)
    opened = opening(app)
    again = EpisodeStarted(node="n2", attempt=2, claim_revision=2, fresh=True)
    converged = EpisodeConverged(classification=raw({"disk": "new"}))
    end = converged, EpisodeFinished(status=EndStatus.DONE)
    life = opened, STARTED, looked(1, "old"), again, looked(2, "new"), *end
    await write(ports, opened.episode_id, *life)
    found = await verdict(await record(ports, opened.episode_id), app)
    assert found.differences == ()


async def test_requests_are_in_the_order_in_which_they_were_made():
    def app(last):
        script = Script(*[[("own", {})]] * 11, last)
        agent = agent_of(script, own_tool, instructions=last)

        async def check(ctx, trigger):
            await ctx.agent(agent, "go")

        return app_of(check, budget=MANY)

    (history,) = await recorded(app("a"), {})
    found = await verdict(history, app("b"))
    assert found.divergence.request == "request 12 of helper"


async def test_an_episode_that_has_not_ended_is_refused():
    async def check(ctx, trigger):
        await ctx.wait("x")

    ports, app = ports_in_memory(), app_of(check)
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await lived(ports, id_, lambda so_far: so_far.of(EpisodeBlocked))
    with pytest.raises(BadHistory, match="has not ended"):
        await verdict(await record(ports, id_), app)


async def test_a_class_and_an_expectation_that_is_gone_are_refused_by_their_names():
    (history,) = await recorded(app_of(lambda_), {})
    with pytest.raises(BadHistory, match=r"worker\.thing is a class"):
        await verdict(history, class_app(Scripted()))
    gone = app_of(lambda_)
    gone.actors["worker"].expectations.clear()
    with pytest.raises(BadHistory, match=r"^a: there is no expectation 'thing'"):
        await lab_each({"a": history}, gone)


async def lambda_(ctx, trigger):
    return None


async def test_tools_that_an_agent_finds_as_it_runs_are_as_they_were():
    looked = []

    def app(said):
        async def look(q: str) -> str:
            """Look."""
            looked.append(q)
            return "seen"

        def found(ctx):
            looked.append("found")
            return FunctionToolset([look], id="found")

        script = Script([("look", {"q": "cpu"})], last_told)
        agent = agent_of(script, toolsets=[DynamicToolset(found, id="d")], instructions=said)

        async def check(ctx, trigger):
            return ConvergeResult(classification={"said": (await ctx.agent(agent, "go")).output})

        return app_of(check, budget=MANY)

    (history,) = await recorded(app("a"), {})
    assert "cpu" in looked
    looked.clear()
    found = await verdict(history, app("b"))
    assert (found.differences, found.asked, looked) == ((), 2, [])


async def test_what_people_have_granted_more_may_be_used_in_the_lab_as_well():
    asking = asking_app(three_calls, budget=Budget(turns=2))
    people = Told(asking)
    life = await people.play("approve")
    assert life.end.status is EndStatus.DONE
    history = await record(people.ports, people.id)
    found = await verdict(history, asking)
    assert found.is_same, found.differences
