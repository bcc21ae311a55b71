"""Episodes of one subject that ask people for the same have one answer."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from engine.app.actions import approval, fingerprint
from engine.errors import BadRequest
from engine.waits import signal as rules
from engine.waits.approval import request_of
from engine.waits.signal import signal
from streams.json import NOTHING, raw
from streams.model.commands import Decide, ShareDecision, Verdict
from streams.model.events import EpisodeBlocked, EpisodeResolved, SignalGiven
from tests.engine.reactor import journals as given
from tests.engine.waits.test_signal_rules import NOON, sent, waited
from tests.engine.waits.test_signal_rules import given as folded
from vigil import Actor, App, ConvergeResult, Strategy, converge, event
from vigil.testing import crash_everywhere, run

PLAN = {"restart": "web"}
ABOUT = replace(given.OPENED, trigger=replace(given.OPENED.trigger, entity_id="web-1"))


async def asks(ctx, trigger):
    kind = trigger.payload.get("kind", "")
    answer = await ctx.approval(
        {**PLAN, "kind": kind},
        approvers=["ann", "bob"],
        expires_s=3_600,
        editable=True,
        shared=not trigger.payload.get("alone"),
        per_episode=bool(trigger.payload.get("each")),
    )
    said = {"is": bool(answer), "by": answer.by, "plan": answer.plan, "status": answer.status}
    return ConvergeResult(
        classification={**said, "acting": answer.acting_episode_id, "reason": answer.reason},
        summary=kind,
    )


def app_of(function=asks) -> App:
    actor = Actor("worker")
    actor.expect("thing", function, on=event("thing.happened"), subject_key="host")
    return App(actors=[actor])


class HeldBack:
    """Commands of which those that `is_held` picks are sent by `release`, after which all are."""

    def __init__(self, commands, is_held):
        self._send, self._is_held, self.held, self.sent = commands.send, is_held, [], []
        commands.send = self.send

    async def send(self, command, **how):
        self.sent.append(command)
        if self._is_held(command):
            self.held.append((command, how))
        else:
            await self._send(command, **how)

    async def release(self):
        self._is_held = lambda _: False
        for command, how in self.held:
            await self._send(command, **how)


async def asking(vigil, *payloads) -> list[str]:
    """Have an episode ask for each payload, and return their ids."""
    ids = []
    for number, payload in enumerate(payloads):
        await vigil.publish("thing.happened", {"host": "web-1", "n": number, **payload})
        await vigil.run_until_idle()
        ids += [each.id for each in vigil.episodes() if each.id not in ids]
    return ids


def statuses(vigil, ids) -> list[str]:
    by_id = {each.id: each.status for each in vigil.episodes()}
    return [by_id[id_] for id_ in ids]


async def test_one_decision_is_the_answer_of_all_that_wait():
    async with run(app_of()) as vigil:
        _, second, _ = ids = await asking(vigil, {}, {}, {})
        await vigil.approve(second, by="ann", reason="fine")
        await vigil.run_until_idle()
        assert statuses(vigil, ids) == ["done"] * 3
        assert [each.classification["by"] for each in vigil.episodes()] == ["ann"] * 3


async def test_an_approval_has_one_effect_whichever_of_the_episodes_is_named():
    async with run(app_of()) as vigil:
        first, second, third = await asking(vigil, {}, {}, {})
        await vigil.approve(third, by="ann", reason="fine")
        await vigil.run_until_idle()
        assert answer_of(vigil, first)["status"] == "approved"
        for other in (second, third):
            answer = answer_of(vigil, other)
            assert not answer["is"]
            assert answer["status"] == "superseded"
            assert answer["acting"] == first
            assert (answer["by"], answer["reason"], answer["plan"]) == ("ann", "fine", None)


async def test_an_approval_per_episode_has_an_effect_for_each():
    async with run(app_of()) as vigil:
        ids = await asking(vigil, *[{"each": True}] * 3)
        await vigil.approve(ids[1], by="ann")
        await vigil.run_until_idle()
        assert [answer_of(vigil, each)["status"] for each in ids] == ["approved"] * 3


async def test_two_people_who_approve_two_of_the_episodes_at_once_have_one_effect():
    async with run(app_of()) as vigil:
        ids = await asking(vigil, {}, {}, {})
        commands = HeldBack(vigil.ports.commands, lambda command: isinstance(command, Decide))
        await vigil.approve(ids[1], by="ann")
        await vigil.approve(ids[2], by="bob")
        await commands.release()
        await vigil.run_until_idle()
        answers = [answer_of(vigil, each) for each in ids]
        assert [each["status"] for each in answers] == ["approved", "superseded", "superseded"]
        assert len({each["by"] for each in answers}) == 1


@pytest.mark.parametrize("held", [ShareDecision, Decide])
async def test_an_approval_while_an_earlier_one_is_on_its_way_has_no_effect_of_its_own(held):
    async with run(app_of()) as vigil:
        first, second = await asking(vigil, {}, {})

        def is_held(command):
            return isinstance(command, held) and getattr(command, "acting_episode_id", first)

        commands = HeldBack(vigil.ports.commands, is_held)
        await vigil.approve(first, by="ann")
        await vigil.run_until_idle()
        assert statuses(vigil, [first, second]) == ["done", "blocked"]
        await vigil.approve(second, by="bob")
        await vigil.run_until_idle()
        assert statuses(vigil, [first, second]) == ["done", "blocked"]
        await commands.release()
        await vigil.run_until_idle()
        assert answer_of(vigil, second) == {
            **answer_of(vigil, first),
            "is": False,
            "plan": None,
            "status": "superseded",
            "acting": first,
        }


async def test_once_the_oldest_is_canceled_the_next_one_acts():
    async with run(app_of()) as vigil:
        first, second, third = await asking(vigil, {}, {}, {})
        await vigil.cancel(first)
        await vigil.run_until_idle()
        await vigil.approve(third, by="ann")
        await vigil.run_until_idle()
        assert answer_of(vigil, second)["status"] == "approved"
        assert answer_of(vigil, third)["acting"] == second


class Asks(Strategy):
    """Asks, and leaves it to the engine what a refusal means."""

    State = dict

    def init(self, episode, trigger):
        return {}

    def next_step(self, state, ctx):
        return converge() if ctx.turn > 1 else approval(PLAN)

    def converge(self, state, ctx):
        return ConvergeResult(classification={"is": True})


async def test_an_episode_of_a_class_is_canceled_if_another_one_acts():
    async with run(app_of(Asks)) as vigil:
        first, second = await asking(vigil, {}, {})
        await vigil.approve(by="ann", reason="fine")
        await vigil.run_until_idle()
        assert statuses(vigil, [first, second]) == ["done", "canceled"]
        ended = vigil.episode(second)
        assert ended.error_class == "superseded"
        assert ended.error_detail == f"approved by ann for episode {first}, which acts"


def answer_of(vigil, episode_id):
    return vigil.episode(episode_id).classification


async def test_a_denial_is_one_too():
    async with run(app_of()) as vigil:
        first, _ = ids = await asking(vigil, {}, {})
        await vigil.deny(first, by="bob", reason="not now")
        await vigil.run_until_idle()
        assert statuses(vigil, ids) == ["done"] * 2
        assert [each.classification["is"] for each in vigil.episodes()] == [False] * 2


async def test_a_plan_that_was_changed_is_changed_for_all_that_act():
    async with run(app_of()) as vigil:
        first, _ = await asking(vigil, {"each": True}, {"each": True})
        await vigil.approve(first, by="ann", plan={"restart": "db"})
        await vigil.run_until_idle()
        assert [each.classification["plan"] for each in vigil.episodes()] == [{"restart": "db"}] * 2


@pytest.mark.parametrize("other", [{"host": "web-2"}, {"kind": "other"}, {"alone": True}], ids=str)
async def test_another_subject_another_plan_and_who_asks_alone_are_asked_separately(other):
    async with run(app_of()) as vigil:
        first, _ = ids = await asking(vigil, {}, other)
        await vigil.approve(first, by="ann")
        await vigil.run_until_idle()
        assert statuses(vigil, ids) == ["done", "blocked"]


async def test_a_decision_counts_for_nobody_who_asks_later():
    async with run(app_of()) as vigil:
        (first,) = await asking(vigil, {})
        await vigil.approve(first, by="ann")
        await vigil.run_until_idle()
        await vigil.advance(seconds=1)
        await vigil.publish("thing.happened", {"host": "web-1", "n": 9})
        await vigil.run_until_idle()
        assert sorted(each.status for each in vigil.episodes()) == ["blocked", "done"]


HELD = {
    "the decision": lambda command, first: (
        isinstance(command, Decide) and command.episode_id == first
    ),
    "its sharing": lambda command, first: isinstance(command, ShareDecision),
    "what it says to another": lambda command, first: (
        isinstance(command, Decide) and command.episode_id != first
    ),
}


@pytest.mark.parametrize("held", HELD.values(), ids=HELD)
async def test_whoever_asks_while_a_decision_is_on_its_way_asks_anew(held):
    async with run(app_of()) as vigil:
        first, second = await asking(vigil, {}, {})
        commands = HeldBack(vigil.ports.commands, lambda command: held(command, first))
        await vigil.approve(first, by="ann")
        await vigil.run_until_idle()
        (third,) = set(await asking(vigil, {"n": 9})) - {first, second}
        await vigil.advance(seconds=1)
        assert commands.held
        await commands.release()
        await vigil.run_until_idle()
        assert statuses(vigil, [first, second, third]) == ["done", "done", "blocked"]
        assert len([each for each in commands.sent if isinstance(each, ShareDecision)]) == 1
        assert len(await decisions(vigil, third)) == 1
        await vigil.deny(third, by="bob")
        await vigil.run_until_idle()
        assert vigil.episode(third).status == "done"


async def test_who_was_not_meant_by_one_decision_has_the_next():
    async with run(app_of()) as vigil:
        first, second = await asking(vigil, {}, {})
        commands = HeldBack(
            vigil.ports.commands, lambda command: isinstance(command, ShareDecision)
        )
        await vigil.approve(first, by="ann")
        later = [each for each in await asking(vigil, {}, {}) if each not in (first, second)]
        await commands.release()
        await vigil.run_until_idle()
        assert statuses(vigil, [first, second, *later]) == ["done"] * 2 + ["blocked"] * 2
        await vigil.deny(later[0], by="bob")
        await vigil.run_until_idle()
        assert statuses(vigil, later) == ["done"] * 2
        assert len(await decisions(vigil, later[1])) == 2


async def test_many_equal_requests_cost_one_commit_for_their_decision():
    async with run(app_of()) as vigil:
        ids = await asking(vigil, *[{}] * 5)
        commands = HeldBack(vigil.ports.commands, lambda _: False)
        await vigil.approve(ids[2], by="ann")
        await vigil.advance(minutes=1)
        assert statuses(vigil, ids) == ["done"] * 5
        assert len([each for each in commands.sent if isinstance(each, ShareDecision)]) == 1
        assert len(await decisions(vigil, ids[0])) == 1


async def decisions(vigil, episode_id) -> list[SignalGiven]:
    """Return the decisions on the journal of the request that an episode has made."""
    stack, log = vigil.ports.stack, vigil.ports.log
    records = await log.read(stack.episode(episode_id))
    events = [each for record in records for each in record.commit.events]
    (blocked,) = [each for each in events if isinstance(each, EpisodeBlocked)]
    shared = await log.read(stack.signal(blocked.approval.request))
    events = [each for record in shared for each in record.commit.events]
    return [each for each in events if isinstance(each, SignalGiven)]


async def test_each_expires_in_its_own_time():
    async with run(app_of()) as vigil:
        ids = await asking(vigil, {})
        await vigil.advance(minutes=30)
        await vigil.publish("thing.happened", {"host": "web-1", "n": 9})
        await vigil.advance(minutes=31)
        assert sorted(each.status for each in vigil.episodes()) == ["blocked", "done"]
        assert len(ids) == 1


async def test_a_crash_at_any_moment_leaves_nobody_without_the_answer():
    async def story(vigil):
        first, _ = await asking(vigil, {}, {})
        await vigil.approve(first, by="ann")
        await vigil.advance(minutes=5)
        assert statuses(vigil, [each.id for each in vigil.episodes()]) == ["done"] * 2

    await crash_everywhere(lambda: run(app_of()), story)


async def test_the_journal_says_which_request_it_is_and_was():
    async with run(app_of()) as vigil:
        (first,) = await asking(vigil, {})
        await vigil.approve(first, by="ann")
        await vigil.run_until_idle()
        stack, log = vigil.ports.stack, vigil.ports.log
        records = await log.read(stack.episode(first))
        events = [each for record in records for each in record.commit.events]
        (blocked,) = [each for each in events if isinstance(each, EpisodeBlocked)]
        (resolved,) = [each for each in events if isinstance(each, EpisodeResolved)]
        assert resolved.request_no == 1
        shared = await log.read(stack.signal(blocked.approval.request))
        (decided,) = shared[-1].commit.events
        assert isinstance(decided, SignalGiven)
        assert (decided.episodes, decided.request_no) == ((), 1)


def requested(opened=ABOUT, **asked):
    action = approval(PLAN, **asked)
    return request_of(opened, action, mark=fingerprint(action))


def test_equal_requests_are_of_one_actor_and_subject_and_the_same_in_all_that_people_see():
    same = requested()
    assert same == requested(replace(ABOUT, episode_id="e9", expectation_id="other"))
    assert same != requested(summary="please")
    assert same != requested(approvers=["ann"])
    assert same != requested(replace(ABOUT, actor_id="other"))
    assert same != requested(replace(ABOUT, subject_kind="disk"))


def test_a_request_about_nothing_and_one_that_is_to_be_alone_are_shared_with_nobody():
    assert requested(given.OPENED) == ""
    assert requested(shared=False) == ""


def test_no_signal_may_be_taken_for_a_decision():
    with pytest.raises(BadRequest, match="is a request for approval; approve or deny it"):
        signal("s1", requested(), {"verdict": "approve"}, "eve")


@pytest.mark.parametrize("had_by", [(), ("a",)])
@pytest.mark.parametrize("since_s", [-1, 1])
def test_a_decision_counts_for_no_request_that_is_written_down_after_it(had_by, since_s):
    """Also if a node's clock, which is behind, says that the request was made before."""
    past = folded(decided(*had_by, request_no=1))
    after = asked_by("b", since=NOON + timedelta(seconds=since_s))
    assert rules.wait(past, after) == (after,)


def test_a_decision_is_for_the_requests_that_there_were_when_somebody_decided():
    past = [asked_by(each) for each in "abc"]
    assert folded(*past).newest_no == 3
    assert [each.episode_id for each in folded(*past).waits_until(2)] == ["a", "b"]
    again = folded(*past, asked_by("a", step_no=2))
    assert [each.episode_id for each in again.waits_until(2)] == ["b"], "it asks anew"


def test_who_asked_after_a_decision_waits_for_the_next():
    past = [asked_by(each) for each in "abc"]
    state = folded(*past, decided("b", request_no=2))
    assert (list(state.waits), list(state.due)) == (["b", "c"], ["b"])
    state = folded(*past, decided("b", "c", request_no=3), decided("b", request_no=2))
    assert (list(state.waits), sorted(state.due)) == (["b", "c"], ["b", "c"])


def asked_by(episode_id, *, step_no=1, since=NOON):
    return replace(waited(episode_id, step_no=step_no), ref=requested(), since=since)


def decided(*episodes, request_no):
    return replace(sent("d", *episodes), ref=requested(), request_no=request_no)


def test_a_decision_is_brought_as_a_decision():
    decision = rules.Decision(
        verdict=Verdict.DENY, plan_hash="h", reason="no", edited_hash="", edited_plan=NOTHING
    )
    said = rules.Signal(id="d1", ref=requested(), by="ann", result=raw(decision))
    command = rules.command_for(said, waited("b", step_no=4))
    assert command == Decide(
        actor_id="worker",
        episode_id="b",
        id="d1",
        verdict=Verdict.DENY,
        plan_hash="h",
        by="ann",
        reason="no",
        step_no=4,
    )
