"""Nothing real is called unless a test allows it."""

from __future__ import annotations

import asyncio

import pytest

from tests.engine.stage import HAPPENED, Scripted
from tests.testing.apps import LOOKS, Proposing, app_with
from vigil import (
    Actor,
    App,
    Failure,
    OutputAdapter,
    Retries,
    ToolFailed,
    event,
    synthesize,
    tool,
    tool_call,
)
from vigil.testing import FakeAdapter, FakeSynthesizer, Unstubbed, in_turn, run

ASKS = synthesize({"ask": "why"})


async def seen(app, **given):
    """Return what the strategy of `app` was told, and the app as it was left."""
    async with run(app, **given) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        return vigil.episode().classification["seen"]


async def test_a_call_without_an_answer_fails_the_test():
    with pytest.raises(Unstubbed, match=r"'disk.largest'.*tools=\{'disk.largest': …\}"):
        await seen(app_with(Scripted(LOOKS)))


async def test_a_call_without_an_answer_fails_a_test_that_never_looks():
    async def test():
        async with run(app_with(Scripted(LOOKS))) as vigil:
            await vigil.fire("worker", "thing")
            await asyncio.sleep(1)

    with pytest.raises(Unstubbed, match=r"disk\.largest"):
        await test()


async def test_an_answer_is_a_value_a_function_or_a_failure():
    async def told(args, ctx):
        return [args["host"], ctx.step_no]

    app = app_with(Scripted(LOOKS))
    answers = {
        "value": {"path": "/"},
        "plain": lambda args: args["host"],
        "async": told,
        "raises": TimeoutError("late"),
        "fails": Failure("disk_gone", "it is gone"),
    }
    found = {name: await seen(app, tools={"disk.*": each}) for name, each in answers.items()}

    assert found == {
        "value": [{"path": "/"}],
        "plain": ["web-1"],
        "async": [["web-1", 1]],
        "raises": ["tool_timeout"],
        "fails": ["disk_gone"],
    }


async def test_answers_in_turn_are_used_up():
    more = tool_call("disk", "largest", {"host": "web-2"})
    app, answers = app_with(Scripted(LOOKS, more)), {"disk.largest": in_turn(1, ToolFailed("no"))}

    assert await seen(app, tools=answers) == [1, "no"]
    with pytest.raises(Unstubbed, match=r"'disk.largest': in_turn\(…\) has 1 answers"):
        await seen(app, tools={"disk.largest": in_turn(1)})


async def test_what_is_allowed_is_real():
    app = app_with(Proposing(LOOKS))
    async with run(app, allow=["disk.*", "output.pager"]) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        assert vigil.episode().step("disk.largest").result == "real"
        assert vigil.output("pager").ref == "real"
        with pytest.raises(AssertionError, match="'pager' is no output of the app, or a real one"):
            vigil.deliveries("pager")


async def test_outputs_deliver_to_nobody_and_are_kept():
    async with run(app_with(Proposing())) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        (page,) = vigil.deliveries("pager")
        assert (page.payload, vigil.output("pager").status) == ({"seen": []}, "delivered")


async def test_an_adapter_can_be_given():
    fake = FakeAdapter("ref-1")
    async with run(app_with(Proposing()), outputs={"pager": fake}) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        assert (vigil.output().ref, len(fake.deliveries)) == ("ref-1", 1)


class Counting(OutputAdapter):
    count = 0

    async def deliver(self, output):
        self.count += 1


async def test_an_adapter_of_the_tests_own_is_called():
    own = Counting()
    async with run(app_with(Proposing()), outputs={"pager": own}) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        assert own.count == 1


def asking() -> App:
    async def model(prompt, transient, ctx):
        return "real"

    actor = Actor("worker", synthesizer=model)
    actor.expect("thing", Scripted(ASKS), on=event(HAPPENED))
    return App(actors=[actor])


async def test_a_model_is_refused_faked_or_allowed():
    fake = FakeSynthesizer(lambda prompt: f"because {prompt['ask']}")

    with pytest.raises(Unstubbed, match="synthesizer=…"):
        await seen(asking())
    assert await seen(asking(), synthesizer=fake) == ["because why"]
    assert fake.prompts == [{"ask": "why"}]
    assert await seen(asking(), synthesizer="so") == ["so"]
    assert await seen(asking(), allow=["synthesizer"]) == ["real"]


async def test_a_gatherer_is_stubbed_by_its_name():
    async def facts(payload, options):
        raise AssertionError("it was called for real")

    app = app_with(Scripted(tool_call("gather", "facts", {"_payload": {}, "options": {}})))
    app = App(actors=list(app.actors.values()), gatherers={"facts": facts})
    assert await seen(app, tools={"gather.facts": 7}) == [7]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"tools": {"mail.send": 1}}, "the app has no tool 'mail.send'; it has disk$"),
        ({"tools": {"disk": 1}}, "'disk': write 'capability.action'"),
        ({"outputs": {"mail": 1}}, "the app has no output 'mail'; it has pager"),
    ],
)
async def test_a_stub_of_what_the_app_has_not_is_refused(given, problem):
    with pytest.raises(ValueError, match=problem):
        async with run(app_with(Scripted()), **given):
            pass


async def test_a_stub_of_a_function_is_told_what_its_call_is_called():
    @tool
    async def read_status() -> str:
        return "well"

    app = App(actors=list(app_with(Scripted()).actors.values()), tools=[read_status])
    with pytest.raises(ValueError, match=r"^tools: 'read_status': write 'read_status\.call'$"):
        async with run(app, tools={"read_status": "ill"}):
            pass


@tool(capability="rota")
async def who(ticket: str) -> str:
    raise AssertionError(ticket)


async def shown(args, ctx):
    raise AssertionError


@pytest.mark.parametrize("tools", [[who], {"rota": {"who": shown}}])
async def test_a_stub_of_an_action_that_no_tool_has_is_refused(tools):
    desk = Actor("desk", tools=tools)
    desk.expect("thing", Scripted(), on=event(HAPPENED))
    app = App(actors=[desk])
    problem = r"no tool 'rota.whoo'; rota has who; did you mean who\?"
    with pytest.raises(ValueError, match=problem):
        async with run(app, tools={"rota.whoo": 1}):
            pass
    async with run(app, tools={"rota.w*": 1}):
        pass


async def test_a_stubbed_model_is_asked_again_as_the_real_one_would_be():
    class Model:
        retries = Retries(attempts_max=2, first_s=1)

        async def __call__(self, prompt, transient, ctx):
            raise AssertionError

    actor = Actor("worker", synthesizer=Model())
    actor.expect("thing", Scripted(ASKS), on=event(HAPPENED))
    answers = in_turn(ToolFailed("tool_unavailable"), "because")
    assert await seen(App(actors=[actor]), synthesizer=answers) == ["because"]
