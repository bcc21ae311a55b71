"""A call of which nobody knows whether it happened: a person says it, and the episode goes on."""

from __future__ import annotations

import asyncio

import pytest

from engine.app.actions import fingerprint, tool_call
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult
from engine.app.triggers import event
from engine.dead_letters.write import letters
from engine.errors import BadRequest, CallFailed, Refused
from engine.operations.dead_letters import DeadLetterRequests
from engine.operations.settle import settle
from streams.json import raw
from streams.layout import Kind
from streams.memory import memory_ports
from streams.model.events import EndStatus, StepAnnounced, StepKind, StepRecorded
from tests.engine.functions.stage import Ledger
from tests.engine.functions.stage import app_of as function_app_of
from tests.engine.stage import CLOCK, HAPPENED, Scripted, leave, life, lived, opening, running


def announced(path="1", *, tool="mail.send", args=(("to", "ann"),), step_no=1, turn=None):
    capability, action = tool.split(".")
    return StepAnnounced(
        step_no=step_no,
        fingerprint=fingerprint(tool_call(capability, action, dict(args))),
        tool_name=tool,
        idempotency_key=f"key-of-{path or turn}",
        path=path,
    )


async def mails(ctx, trigger):
    """Send one mail, and say what came of it."""
    try:
        said = await ctx.call("mail.send", to="ann")
    except CallFailed as failed:
        return ConvergeResult(summary=f"{failed.error_class}: {failed.detail}")
    return ConvergeResult(summary=f"{said}")


ID = opening(function_app_of(mails)).episode_id


class Stage:
    """An app whose one node has died in the middle of its calls, and another one that goes on."""

    def __init__(self, function=mails, **declared):
        self.ports = memory_ports(clock=CLOCK)
        self.mail = Ledger(side_effect=True)
        self.app = function_app_of(function, tools={"mail": self.mail}, **declared)

    async def unknown(self, *events) -> str:
        """Return the id of an episode that has ended as unknown after `events`."""
        episode_id = await leave(self.ports, self.app, *events)
        life_ = await lived(self.ports, episode_id)
        assert life_.end.error_class == "outcome_unknown"
        return episode_id

    async def settled(self, episode_id, settlement, **said):
        fork_id = await settle(self.ports, episode_id, settlement, by="ann", **said)
        return await lived(self.ports, fork_id)

    async def letter(self, episode_id):
        subject = self.ports.stack.dead(Kind.EPISODE, episode_id)
        return (await letters(self.ports, CLOCK).load(subject)).state


@pytest.fixture
async def stage():
    made = Stage()
    async with running(made.app, made.ports):
        yield made


async def test_an_episode_of_unknown_outcome_leaves_a_dead_letter_that_says_what_to_do(stage):
    episode_id = await stage.unknown(announced())
    letter = await stage.letter(episode_id)
    assert (letter.status, letter.lettered.reason) == ("waiting", "outcome_unknown")
    assert "call 1, mail.send: a node died during the call" in letter.lettered.detail
    assert f"`vigil episodes settle {episode_id}`" in letter.lettered.detail


async def test_a_call_that_has_happened_returns_what_the_person_says(stage):
    episode_id = await stage.unknown(announced())
    life_ = await stage.settled(episode_id, "happened", result={"sent": 1}, reason="it is there")

    assert (life_.end.status, life_.episode.converged.summary) == (EndStatus.DONE, "{'sent': 1}")
    assert stage.mail.calls == []
    (step,) = life_.of(StepRecorded)
    said = {"settled": "happened", "by": "ann", "reason": "it is there"}
    assert (step.kind, step.tool_name, step.args) == (StepKind.TOOL_CALL, "mail.send", raw(said))


async def test_a_call_that_has_not_happened_fails_and_the_function_decides(stage):
    episode_id = await stage.unknown(announced())
    life_ = await stage.settled(episode_id, "not_happened", reason="the outbox is empty")
    assert life_.episode.converged.summary == (
        "not_happened: ann says that it has not happened: the outbox is empty"
    )
    assert stage.mail.calls == []


async def test_a_call_that_is_made_again_has_the_key_that_it_was_announced_with(stage):
    episode_id = await stage.unknown(announced())
    life_ = await stage.settled(episode_id, "again")
    assert life_.episode.converged.summary == "{'did': 'send', 'to': 'ann'}"
    assert stage.mail.keys == ["key-of-1"]


async def test_a_call_that_was_made_again_is_announced_again_with_its_key(stage):
    """So if its node dies, too, it is unknown once more."""
    episode_id = await stage.unknown(announced())
    (newly,) = (await stage.settled(episode_id, "again")).of(StepAnnounced)
    assert newly.idempotency_key == "key-of-1"


async def test_the_fork_says_who_has_settled_it_how_and_why(stage):
    episode_id = await stage.unknown(announced())
    life_ = await stage.settled(episode_id, "happened", reason="it is there")
    fork = life_.episode.opened.fork
    assert (fork.episode_id, fork.step_no, fork.by) == (episode_id, 0, "ann")
    assert (fork.settled, fork.reason) == ("happened", "it is there")


async def test_the_dead_letter_is_settled_with_the_call(stage):
    episode_id = await stage.unknown(announced())
    life_ = await stage.settled(episode_id, "happened")
    settled = (await stage.letter(episode_id)).settled
    assert (settled.by, settled.episode_id) == ("ann", life_.episode.opened.episode_id)


async def test_saying_the_same_again_changes_nothing(stage):
    episode_id = await stage.unknown(announced())
    once = await settle(stage.ports, episode_id, "happened", by="ann", result=1)
    assert await settle(stage.ports, episode_id, "happened", by="ann", result=1) == once


@pytest.mark.parametrize(
    "said", [{"by": "bob"}, {"settlement": "again"}, {"result": 2}, {"reason": "another"}]
)
async def test_only_the_first_person_is_heard(stage, said):
    episode_id = await stage.unknown(announced())
    first = {"settlement": "happened", "by": "ann", "result": 1}
    await settle(stage.ports, episode_id, **first)
    other = {**first, **said}
    if other["settlement"] == "again":
        del other["result"]
    with pytest.raises(Refused, match="ann has said happened: it goes on as"):
        await settle(stage.ports, episode_id, **other)


@tool(side_effect=True)
async def ship(to: str) -> str:
    return to


async def ships(ctx, trigger):
    """Ship, and look whether it has arrived."""
    said = await ctx.call(ship, to="ann")
    await ctx.observe({"look": said})
    raise ValueError(said)


async def failed_with(result) -> tuple[Stage, str]:
    """Return the stage, and the fork that has failed with the result that a person gave."""
    stage = Stage()
    stage.app = function_app_of(ships, tools=[ship])
    async with running(stage.app, stage.ports):
        given = announced(tool="ship.call")
        episode_id = await stage.unknown(given)
        life_ = await stage.settled(episode_id, "happened", result=result)
    assert life_.end.status is EndStatus.FAILED
    return stage, life_.episode.opened.episode_id


async def test_a_result_of_a_wrong_type_is_corrected_by_settling_the_fork():
    stage, fork_id = await failed_with(7)
    async with running(stage.app, stage.ports):
        life_ = await stage.settled(fork_id, "happened", result="ann")
    first, second = life_.of(StepRecorded)
    assert (first.step_no, first.result, second.kind) == (1, raw("ann"), StepKind.OBSERVATION)
    assert life_.episode.opened.fork.episode_id == fork_id


async def test_what_was_said_before_is_not_called_again():
    stage, fork_id = await failed_with(7)
    with pytest.raises(Refused, match="say --happened with its result, or --not-happened"):
        await settle(stage.ports, fork_id, "again", by="ann")


async def test_a_fork_that_has_recorded_more_is_not_settled_anew():
    stage, fork_id = await failed_with("ann")
    with pytest.raises(Refused, match="it has no call whose outcome is unknown"):
        await settle(stage.ports, fork_id, "happened", by="ann", result="bob")


async def test_what_was_requeued_or_discarded_is_not_settled_any_more(stage):
    episode_id = await stage.unknown(announced())
    requests = DeadLetterRequests(stage.ports, CLOCK)
    await requests.discard(f"episode.{episode_id}", by="bob", reason="no matter")
    with pytest.raises(Refused, match="its dead letter was discarded by bob"):
        await settle(stage.ports, episode_id, "happened", by="ann")


async def test_an_episode_without_such_a_call_has_nothing_to_settle(stage):
    async with running(stage.app, stage.ports, "n2"):
        opened = opening(stage.app)
        with pytest.raises(Refused, match="there is no such episode"):
            await settle(stage.ports, opened.episode_id, "again", by="ann")


async def test_one_that_has_ended_in_another_way_has_nothing_to_settle():
    async def done(ctx, trigger):
        return None

    stage = Stage(done)
    async with running(stage.app, stage.ports):
        episode_id = await leave(stage.ports, stage.app)
        await lived(stage.ports, episode_id)
        with pytest.raises(Refused, match="it has no call whose outcome is unknown"):
            await settle(stage.ports, episode_id, "again", by="ann")


async def test_an_impossible_word_is_refused(stage):
    with pytest.raises(BadRequest, match="settlement: 'perhaps' is not one of"):
        await settle(stage.ports, ID, "perhaps", by="ann")
    with pytest.raises(BadRequest, match="result: only a call that has happened has any"):
        await settle(stage.ports, ID, "again", by="ann", result=1)


async def two_mails(ctx, trigger):
    """Send two mails at the same time, after one that is known to have gone."""
    first = await ctx.call("mail.read", n=0)
    others = await ctx.gather(ctx.call("mail.send", to="ann"), ctx.call("mail.send", to="bob"))
    return ConvergeResult(summary=f"{first['did']} {others}")


async def test_calls_of_several_branches_are_settled_one_after_the_other():
    stage = Stage(two_mails)
    read = StepRecorded(
        step_no=1,
        kind=StepKind.TOOL_CALL,
        fingerprint=announced(tool="mail.read", args=[("n", 0)]).fingerprint,
        tool_name="mail.read",
        result=raw({"did": "read"}),
        path="1",
    )
    ann = announced("2.1.1", step_no=2)
    bob = announced("2.2.1", args=[("to", "bob")], step_no=2)
    async with running(stage.app, stage.ports):
        episode_id = await stage.unknown(read, ann, bob)
        with pytest.raises(Refused, match=r"say which of these calls: 2\.1\.1 mail\.send, 2\.2\.1"):
            await settle(stage.ports, episode_id, "happened", by="ann")

        first = await stage.settled(episode_id, "happened", result="a", call="2.1.1")
        assert first.end.error_class == "outcome_unknown"
        last = await stage.settled(first.episode.opened.episode_id, "again")

    assert last.end.status is EndStatus.DONE, last.end.error_detail
    assert last.episode.converged.summary == "read ('a', {'did': 'send', 'to': 'bob'})"
    assert stage.mail.keys == ["key-of-2.2.1"]


async def test_a_call_that_a_function_itself_has_cut_off_is_settled_too():
    async def hurries(ctx, trigger):
        try:
            async with asyncio.timeout(0.05):
                return ConvergeResult(summary=f"{await ctx.call('slow.send')}")
        except TimeoutError:
            return ConvergeResult(summary="too slow")

    class Slow(Ledger):
        async def call(self, action, args, ctx):
            await asyncio.Event().wait()

    stage = Stage()
    stage.app = function_app_of(hurries, tools={"slow": Slow(side_effect=True)})
    async with running(stage.app, stage.ports):
        episode_id = await stage.unknown()
        life_ = await stage.settled(episode_id, "happened", result="sent")
    assert life_.episode.converged.summary == "sent"


@pytest.mark.parametrize(
    ("settlement", "seen", "keys"),
    [
        ("happened", ["it", {"did": "read"}], []),
        ("not_happened", ["not_happened", {"did": "read"}], []),
        ("again", [{"did": "send", "to": "ann"}, {"did": "read"}], ["key-of-1"]),
    ],
)
async def test_a_class_goes_on_after_a_settled_call_too(settlement, seen, keys):
    stage = Stage()
    plan = Scripted(tool_call("mail", "send", {"to": "ann"}), tool_call("box", "read", {}))
    actor = Actor("worker", tools={"mail": stage.mail, "box": Ledger()})
    actor.expect("thing", plan, on=event(HAPPENED))
    stage.app = App(actors=[actor])
    said = {"result": "it"} if settlement == "happened" else {}
    async with running(stage.app, stage.ports):
        episode_id = await stage.unknown(announced("1", turn=1))
        life_ = await stage.settled(episode_id, settlement, **said)
    assert life_.seen == seen
    assert stage.mail.keys == keys


async def test_a_restart_that_is_refused_leaves_a_dead_letter_too():
    stage = Stage(recovery="restart")
    async with running(stage.app, stage.ports):
        episode_id = await stage.unknown(announced())
        assert (await stage.letter(episode_id)).lettered.reason == "outcome_unknown"
        life_ = await stage.settled(episode_id, "happened", result="sent")
    assert life_.episode.converged.summary == "sent"
    assert (await life(stage.ports, episode_id)).end.status is EndStatus.FAILED
