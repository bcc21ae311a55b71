"""Episodes that wait for people or for a signal: no node has them, and none loses them."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta
from uuid import uuid4

import msgspec
import pytest
from structlog.testing import capture_logs

from engine.app.actions import approval, fingerprint, observe, sleep, wait
from engine.app.strategy import Strategy
from engine.app.workflow import DENIED
from engine.dead_letters.write import DeadLetterWriter
from engine.episodes.cancel import cancel
from engine.episodes.episode import Status
from engine.episodes.open import ATTEND
from engine.episodes.recovery import SweepVerdict as Swept
from engine.errors import BadRequest, Refused
from engine.functions import run
from engine.operations.census import cancel_related
from engine.operations.dead_letters import DeadLetterRequests
from engine.operations.sweep import Candidate, EpisodeSweeper
from engine.waits import signal, signals
from engine.waits.handle import WaitRegistry
from engine.waits.requests import resolve
from engine.waits.signals import References
from streams.json import raw
from streams.layout import Stream
from streams.model.commands import Attend, Decide, Recover, Verdict
from streams.model.events import (
    BlockReason,
    CheckpointSaved,
    DeadLettered,
    EndStatus,
    EpisodeBlocked,
    EpisodeResolved,
    EpisodeStarted,
    Resolution,
    SignalGiven,
    SignalWaited,
    StepKind,
    StepRecorded,
)
from streams.model.triggers import Mode
from streams.model.waits import Approval, Wait
from streams.ports.log import Commit
from tests.engine.crew import crew_of
from tests.engine.stage import (
    CLOCK,
    STARTED,
    Scripted,
    all_answered,
    app_of,
    ask_start,
    claims,
    decide,
    doomed,
    eventually,
    kept,
    leave,
    life,
    lived,
    open_episode,
    opening,
    play,
    running,
    told,
    write,
)

PLAN = {"restart": "db1"}
ASK = approval(PLAN, summary="restart it")
PAYMENT = wait("payment:42")


class Obedient(Strategy):
    """Asks, and leaves it to the engine what a denial means."""

    State = dict

    def init(self, episode, trigger):
        return {}

    def next_step(self, state, ctx):
        return ASK

    def converge(self, state, ctx):
        raise AssertionError("it only asks")


async def blocked(ports, id_) -> EpisodeBlocked:
    """Wait until an episode is blocked and nobody has it, and return by what."""
    so_far = await lived(ports, id_, lambda so_far: so_far.episode.status is Status.BLOCKED)
    await eventually(lambda: not held(ports))
    return so_far.of(EpisodeBlocked)[-1]


def held(ports) -> list[str]:
    """Return the leases that somebody has."""
    return [key for key in claims(ports) if ports.leases._bucket[key].change.state == "claimed"]


async def say(ports, id_, block, verdict=Verdict.APPROVE, *, by="ada", id=None, hash_=None) -> str:
    """Send a decision without looking at the journal first."""
    decision = Decide(
        actor_id="worker",
        episode_id=id_,
        id=id or uuid4().hex,
        verdict=verdict,
        plan_hash=hash_ or block.approval.plan_hash,
        by=by,
        step_no=block.step_no,
    )
    await ports.commands.send(decision, id=uuid4().hex)
    return decision.id


def names(ports) -> list[str]:
    return [name for name, _ in told(ports)]


def for_payment() -> EpisodeBlocked:
    """Return the block that a node would have recorded for `PAYMENT`."""
    return EpisodeBlocked(
        step_no=1,
        reason=BlockReason.WAIT,
        fingerprint=fingerprint(PAYMENT),
        wait=Wait(ref="payment:42"),
        path="1",
    )


def by_hand(*, step_no=1, ask=ASK, expires_at=None, remind_every_s=0.0) -> EpisodeBlocked:
    """Return the block that a node would have recorded for `ask`."""
    request = Approval(
        plan_hash="0" * 64,
        plan=raw(PLAN),
        expires_at=expires_at,
        remind_every_s=remind_every_s,
    )
    return EpisodeBlocked(
        step_no=step_no,
        reason=BlockReason.APPROVAL,
        fingerprint=fingerprint(ask),
        approval=request,
        path=f"{step_no}",
    )


async def letters(ports) -> list[DeadLettered]:
    async with ports.log.follow(Stream.DEAD) as follower:
        records = await follower.receive(most=100, wait_s=0)
    return [event for record in records for event in record.commit.events]


# Answers.


async def test_it_goes_on_with_what_people_have_approved(ports):
    app = app_of(Scripted(observe(1), ASK, observe(2)))
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await blocked(ports, id_)
        await decide(ports, id_, reason="do it")
        done = await lived(ports, id_)
    assert done.end.status is EndStatus.DONE
    assert done.seen == [1, {"resolution": "approved", "by": "ada", "reason": "do it"}, 2]
    assert [name for name in names(ports) if name.startswith("episode")] == [
        "episode.started",
        "episode.blocked",
        "episode.resumed",
        "episode.started",
        "episode.completed",
    ]


async def test_a_denial_cancels_it_and_says_who_and_why(ports):
    app = app_of(Obedient())
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await blocked(ports, id_)
        await decide(ports, id_, "deny", reason="too risky")
        done = await lived(ports, id_)
    assert done.end.status is EndStatus.CANCELED
    assert (done.end.error_class, done.end.error_detail) == (DENIED, "by ada: too risky")


async def test_a_strategy_may_take_another_way_when_it_is_denied(ports):
    app = app_of(Scripted(ASK, observe("another way")))
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await say(ports, id_, await blocked(ports, id_), Verdict.DENY)
        done = await lived(ports, id_)
    assert (done.end.status, done.seen) == (EndStatus.DONE, [DENIED, "another way"])


@pytest.mark.parametrize(
    ("action", "seen"),
    [
        (approval(PLAN, expires_s=0.05), DENIED),
        (
            approval(PLAN, expires_s=0.05, on_expiry="approve"),
            {"resolution": "approved", "by": "", "reason": "nobody decided in time"},
        ),
        (approval(PLAN, expires_s=0.05, on_expiry="fail"), "approval_expired"),
        (wait("x", expires_s=0.05, on_expiry="continue"), None),
        (wait("x", expires_s=0.05), "wait_expired"),
    ],
)
async def test_what_nobody_answers_in_time_is_answered_as_it_says(ports, action, seen):
    done = await play(Scripted(action), ports=ports)
    assert done.seen == [seen]
    (resolved,) = done.of(EpisodeResolved)
    assert (resolved.resolution, resolved.by) == (Resolution.EXPIRED, "")


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (sleep(0.05), "goes on after a sleep"),
        (wait("x", expires_s=0.05), "expired: nobody has answered in time"),
    ],
)
async def test_the_log_of_the_node_tells_a_sleep_from_a_wait_that_expired(
    ports, monkeypatch, action, said
):
    monkeypatch.setattr(run, "HELD_S", 0.0)  # A short sleep holds its node, and is no wait.
    with capture_logs() as lines:
        await play(Scripted(action), ports=ports)
    assert said in [line["event"] for line in lines]


@pytest.mark.parametrize("held_s", [0.0, 5.0])
async def test_a_class_sleeps_whether_its_node_is_held_or_not(ports, monkeypatch, held_s):
    monkeypatch.setattr(run, "HELD_S", held_s)
    done = await play(Scripted(observe(1), sleep(0.01), observe(2)), ports=ports)
    assert done.seen == [1, None, 2]
    assert bool(done.of(EpisodeBlocked)) == (held_s == 0)


async def test_an_episode_that_nobody_approved_in_time_is_canceled(ports):
    class Hasty(Obedient):
        def next_step(self, state, ctx):
            return approval(PLAN, expires_s=0.05)

    done = await play(Hasty(), ports=ports)
    assert (done.end.status, done.end.error_class) == (EndStatus.CANCELED, DENIED)
    assert done.end.error_detail == "nobody decided in time"


async def test_people_are_reminded_once_for_each_time_that_is_due(ports):
    app = app_of(Scripted(ASK))
    opened = opening(app)
    block = by_hand(remind_every_s=600.0)
    long_ago = CLOCK.now() - timedelta(seconds=1_250)
    subject = ports.stack.episode(opened.episode_id)
    events = (opened, STARTED, kept(), block)
    await ports.log.append(subject, Commit(id="b", at=long_ago, events=events), after=0)
    attend = Attend(actor_id="worker", episode_id=opened.episode_id)
    await ports.commands.send(attend, id="a")
    async with running(app, ports):
        await all_answered(ports.commands)
    (reminder,) = [payload for name, payload in told(ports) if name == "episode.reminder"]
    assert (reminder["number"], reminder["step_no"]) == (2, 1)
    armed = await ports.timers.pending("worker", ATTEND, opened.episode_id)
    assert armed.due_at == long_ago + timedelta(seconds=1_800)


# Refusals.


@pytest.mark.parametrize(
    ("wrong", "why"),
    [({"hash_": "0" * 64}, "another plan"), ({"by": "bob"}, "none of those who may decide")],
)
async def test_a_node_refuses_it_again_and_says_why_and_the_episode_waits_on(ports, wrong, why):
    app = app_of(Scripted(approval(PLAN, approvers=["ada"])))
    with capture_logs() as logs:
        async with running(app, ports):
            id_ = await open_episode(ports, app)
            block = await blocked(ports, id_)
            await say(ports, id_, block, **wrong)
            await all_answered(ports.commands)
            assert (await life(ports, id_)).episode.status is Status.BLOCKED
            await say(ports, id_, block)
            await lived(ports, id_)
    (line,) = [each for each in logs if each["event"] == "refused"]
    assert why in line["why"]


async def test_a_decision_after_the_expiry_is_late_though_nothing_has_come_of_that_yet(ports):
    app = app_of(Scripted(ASK))
    block = by_hand(expires_at=CLOCK.now() - timedelta(seconds=1))
    id_ = await leave(ports, app, kept(), block)
    await say(ports, id_, block)
    async with running(app, ports):
        done = await lived(ports, id_)
    assert done.seen == [DENIED]
    assert done.of(EpisodeResolved)[0].resolution is Resolution.EXPIRED


async def test_of_two_who_decide_at_once_one_stands_and_the_other_is_told(ports):
    app = app_of(Scripted(ASK))
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        block = await blocked(ports, id_)
    first = await say(ports, id_, block, Verdict.DENY, by="ada")
    second = await say(ports, id_, block, Verdict.APPROVE, by="bob")
    with capture_logs() as logs:
        async with running(app, ports, "n1"), running(app, ports, "n2"):
            done = await lived(ports, id_)
            await all_answered(ports.commands)
    (resolved,) = done.of(EpisodeResolved)
    refused = [each for each in logs if each["event"] == "refused"]
    assert {resolved.decision_id, *(each["id"] for each in refused)} == {first, second}
    assert {each["id"] for each in refused} == {first, second} - {resolved.decision_id}
    assert all(f"by {resolved.by}" in each["why"] for each in refused)


async def test_the_same_decision_told_twice_is_one(ports):
    app = app_of(Scripted(ASK, observe("more")))
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        block = await blocked(ports, id_)
        for _ in range(3):
            await say(ports, id_, block, id="d1")
        with capture_logs() as logs:
            done = await lived(ports, id_)
            await all_answered(ports.commands)
    assert len(done.of(EpisodeResolved)) == 1
    assert not [each for each in logs if each["event"] == "refused"]


async def test_a_decision_that_no_node_could_follow_is_sent_again_by_requeuing_its_letter(ports):
    app = app_of(Scripted(ASK))
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        block = await blocked(ports, id_)
    dead_letters = DeadLetterWriter(ports, CLOCK)
    decision = Decide(
        actor_id="worker",
        episode_id=id_,
        id="d1",
        verdict=Verdict.APPROVE,
        plan_hash=block.approval.plan_hash,
        by="ada",
        step_no=block.step_no,
    )
    await dead_letters.write_command(decision, seq=7, reason="newer_state", detail="not here")
    (letter,) = await letters(ports)
    await DeadLetterRequests(ports, CLOCK).requeue(f"{letter.stream}.{letter.seq}", by="ada")
    async with running(app, ports):
        done = await lived(ports, id_)
    assert [each.decision_id for each in done.of(EpisodeResolved)] == ["d1"]


# Crashes.


async def test_what_follows_a_block_is_done_by_whoever_is_called_next(ports):
    """Its node died right after the commit: no timer, no wait on the reference, nobody told."""
    app = app_of(Scripted(PAYMENT))
    later = CLOCK.now() + timedelta(hours=1)
    waiting = Wait(ref="payment:42", expires_at=later)
    mark = fingerprint(PAYMENT)
    block = EpisodeBlocked(
        step_no=1, reason=BlockReason.WAIT, fingerprint=mark, wait=waiting, path="1"
    )
    id_ = await leave(ports, app, kept(), block)
    async with running(app, ports):
        await all_answered(ports.commands)
        before = await life(ports, id_)
        assert len(before.of(EpisodeStarted)) == 1, "nothing was written"
        assert (await ports.timers.pending("worker", ATTEND, id_)).due_at == later
        assert await waiting_now(ports) == [(id_, 1)]
        await eventually(lambda: names(ports) == ["episode.started", "episode.blocked"])
        assert held(ports) == []
        await resolve(ports, "payment:42", {"paid": True}, by="billing")
        done = await lived(ports, id_)
    assert done.seen == [{"paid": True}]
    assert done.takeovers == 0


async def test_an_answer_that_was_durable_when_its_node_died_is_gone_on_with(ports):
    app = app_of(Scripted(PAYMENT))
    opened = opening(app)
    block = EpisodeBlocked(
        step_no=1,
        reason=BlockReason.WAIT,
        fingerprint=fingerprint(PAYMENT),
        wait=Wait(ref="payment:42"),
        path="1",
    )
    step = StepRecorded(
        step_no=1,
        kind=StepKind.WAIT,
        fingerprint=fingerprint(PAYMENT),
        result=raw("paid"),
        path="1",
    )
    await write(ports, opened.episode_id, opened, STARTED, kept(), block)
    resolved = EpisodeResolved(step_no=1, resolution=Resolution.RESOLVED, by="x", decision_id="d")
    await write(ports, opened.episode_id, step, resolved)
    recover = Recover(actor_id="worker", episode_id=opened.episode_id, reason="swept")
    await ports.commands.send(recover, id="r")
    async with running(app, ports):
        done = await lived(ports, opened.episode_id)
    assert done.seen == ["paid"]
    assert "episode.resumed" in names(ports)


async def test_it_is_resumed_on_another_node(ports):
    app = app_of(Scripted(observe(1), ASK))
    async with doomed(app, ports, "first"):
        id_ = await open_episode(ports, app)
        await blocked(ports, id_)
    async with running(app, ports, "second"):
        await decide(ports, id_)
        done = await lived(ports, id_)
    assert [each.node for each in done.of(EpisodeStarted)] == ["first", "second"]
    assert (done.takeovers, len(done.seen)) == (0, 2)


async def test_a_slow_node_that_sees_to_an_old_block_leaves_the_new_one_seen_to(ports):
    """It armed for a wait that was over, in the place of the next one's timer."""
    soon, late = (wait("payment:42", expires_s=hours * 3_600) for hours in (1, 2))
    app = app_of(Scripted(soon, late))
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await blocked(ports, id_)
    log, opened = ports.log, opening(app)

    class Stale:
        """Shows the old block once, as to a node that was frozen since."""

        def __init__(self):
            self.past = None

        def __getattr__(self, name):
            return getattr(log, name)

        async def last(self, subject):
            found, self.past = self.past, None
            return found or await log.last(subject)

    stale = Stale()
    stale.past = await log.last(ports.stack.episode(id_))
    await resolve(ports, "payment:42", by="x")
    async with running(app, ports):
        await lived(ports, id_, lambda so_far: len(so_far.of(EpisodeBlocked)) == 2)
        await all_answered(ports.commands)
    armed = await ports.timers.pending("worker", "attend", id_)
    slow = WaitRegistry(crew_of(app, dataclasses.replace(ports, log=stale)))
    await slow.watch(opened, after=CLOCK.now())
    assert armed is not None
    assert await ports.timers.pending("worker", "attend", id_) == armed
    assert await waiting_now(ports) == [(id_, 2)]


# Signals.


async def waiting_now(ports, ref="payment:42") -> list[tuple[str, int]]:
    """Return which episodes wait for a signal, and as which step."""
    waits = await References(ports, CLOCK).waiting(ref)
    return [(each.episode_id, each.step_no) for each in waits]


async def publish_word(ports, id_="w1", **said):
    await ports.domain_events.publish("wait.resolved", {"ref": "payment:42", **said}, id=id_)


async def test_word_that_is_published_reaches_every_episode_that_waits_for_it(ports):
    app = app_of(Scripted(PAYMENT))
    async with running(app, ports):
        ids = [await open_episode(ports, app, id_=name) for name in ("a", "b")]
        for id_ in ids:
            await blocked(ports, id_)
        await publish_word(ports, result={"paid": 1}, by="billing")
        lives = [await lived(ports, id_) for id_ in ids]
    assert [each.seen for each in lives] == [[{"paid": 1}]] * 2
    assert [each.of(EpisodeResolved)[0].by for each in lives] == ["billing"] * 2
    assert await waiting_now(ports) == []


async def schedule_retry(ports, count: int) -> None:
    """Wait until the queue holds no word any more, and so much of it was put by."""
    queues = ports.domain_events._durables
    (queue,) = [each for name, each in queues.items() if name.endswith(signals.QUEUE)]
    await eventually(lambda: not queue.pending and not queue._unanswered)
    assert len(await ports.timers.keys(signals.QUEUE, signals.SIGNAL)) == count


async def test_word_that_comes_before_anybody_waits_is_kept_for_them(ports):
    app = app_of(Scripted(PAYMENT))
    async with running(app, ports):
        queues = ports.domain_events._durables
        await eventually(lambda: [name for name in queues if name.endswith(signals.QUEUE)])
        await publish_word(ports, result="early")
        await schedule_retry(ports, 1)
        done = await lived(ports, await open_episode(ports, app))
    assert done.seen == ["early"]


async def test_a_signal_that_an_episode_had_has_no_timer(ports):
    app = app_of(Scripted(PAYMENT))
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await blocked(ports, id_)
        await publish_word(ports, result={"paid": 1})
        await lived(ports, id_)
        queues = ports.domain_events._durables
        (queue,) = [each for name, each in queues.items() if name.endswith(signals.QUEUE)]
        await eventually(lambda: not queue.pending and not queue._unanswered)
    assert await ports.timers.keys(signals.QUEUE, signals.SIGNAL) == []


@pytest.mark.parametrize(
    ("payload", "reason"),
    [({"ref": "payment:42"}, "nobody_waits"), ({"result": 1}, "unreadable")],
)
async def test_word_that_helps_nobody_is_a_dead_letter(ports, monkeypatch, payload, reason):
    monkeypatch.setattr(signal, "KEPT_S", 0)
    async with running(app_of(Scripted()), ports):
        queues = ports.domain_events._durables
        await eventually(lambda: [name for name in queues if name.endswith(signals.QUEUE)])
        await ports.domain_events.publish("wait.resolved", payload, id="w")
        await eventually(lambda: ports.log._streams["vigil-dead"].past(0))
    (letter,) = await letters(ports)
    assert letter.reason == reason


async def test_there_is_nobody_to_resolve_for_and_that_is_said(ports):
    with pytest.raises(Refused, match="no episode waits for 'payment:42'"):
        await resolve(ports, "payment:42", by="ada")
    with pytest.raises(BadRequest, match="result"):
        await resolve(ports, "payment:42", object(), by="ada")


# Cancellation.


async def test_an_episode_that_waits_is_canceled_by_any_node_and_nothing_of_it_is_left(ports):
    app = app_of(Scripted(wait("payment:42", expires_s=3_600)))
    async with running(app, ports, "n1"):
        id_ = await open_episode(ports, app)
        await blocked(ports, id_)
    async with running(app, ports, "n2"):
        await cancel(ports, "worker", id_, by="ada", reason="not needed")
        done = await lived(ports, id_)
        await all_answered(ports.commands)
    assert (done.end.status, done.end.error_class) == (EndStatus.CANCELED, "canceled")
    assert await ports.timers.pending("worker", ATTEND, id_) is None
    assert await waiting_now(ports) == []
    with pytest.raises(Refused):
        await resolve(ports, "payment:42", by="ada")


async def test_all_of_an_expectation_are_canceled_wherever_they_are(ports):
    app = app_of(Scripted(ASK))
    async with running(app, ports):
        ended = await open_episode(ports, app, id_="ended")
        await say(ports, ended, await blocked(ports, ended))
        await lived(ports, ended)
        waiting = await open_episode(ports, app, id_="waiting")
        await blocked(ports, waiting)
        assert await cancel_related(ports, "worker", "thing", by="ada") == [waiting]
        assert (await lived(ports, waiting)).end.status is EndStatus.CANCELED
        assert await cancel_related(ports, "worker", "other", by="ada") == []


# What it costs.


async def test_a_thousand_that_wait_hold_nothing_in_a_node(ports):
    app = app_of(Scripted(PAYMENT), most=5)
    async with running(app, ports) as node:
        ids = [await open_episode(ports, app, id_=f"x{number}") for number in range(1_000)]
        for id_ in ids:
            await lived(ports, id_, lambda so_far: so_far.episode.status is Status.BLOCKED)
        await all_answered(ports.commands)
        await eventually(lambda: not held(ports))
        assert node._running._attempts == {}
        tasks = [each.get_name() for each in asyncio.all_tasks()]
        assert not [name for name in tasks if name.startswith("episode ")]
    assert len(await waiting_now(ports)) == 1_000


async def test_a_block_is_one_commit_with_the_state(ports):
    app = app_of(Scripted(ASK))
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await blocked(ports, id_)
    newest = (await life(ports, id_)).records[-1].commit.events
    assert [type(each) for each in newest[-2:]] == [CheckpointSaved, EpisodeBlocked]


# Dry runs and sweeps.


async def test_a_dry_run_asks_nobody_and_waits_for_nothing(ports):
    app = app_of(Scripted(ASK, PAYMENT))
    opened = opening(app)
    opened = msgspec.structs.replace(opened, mode=Mode.DRY_RUN)
    await write(ports, opened.episode_id, opened)
    await ask_start(ports, opened.episode_id)
    async with running(app, ports):
        done = await lived(ports, opened.episode_id)
    assert done.seen == [{"resolution": "approved", "by": "dry_run", "reason": ""}, None]
    assert done.of(EpisodeBlocked) == []
    assert names(ports) == []


async def swept(ports, id_) -> Swept:
    class Later(type(CLOCK)):
        def now(self):
            return super().now() + timedelta(minutes=10)

    sweeper = EpisodeSweeper(ports, Later(), "sweep", 120.0)
    (verdict,) = await sweeper.sweep([Candidate(actor_id="worker", episode_id=id_)])
    return verdict


@pytest.mark.parametrize("ask", [approval(PLAN, expires_s=3_600), wait("payment:42")])
async def test_a_sweep_lets_wait_what_will_be_attended(ports, ask):
    app = app_of(Scripted(ask))
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await blocked(ports, id_)
        assert await swept(ports, id_) is Swept.WAITING


@pytest.mark.parametrize("ask", [ASK, PAYMENT])
async def test_a_sweep_calls_for_what_nobody_would_attend(ports, ask):
    """Its node died right after the commit, and the command to continue was lost."""
    app = app_of(Scripted(ask))
    later = CLOCK.now() + timedelta(hours=1)
    block = by_hand(expires_at=later) if ask is ASK else for_payment()
    id_ = opening(app).episode_id
    await write(ports, id_, opening(app), STARTED, kept(), block)
    async with running(app, ports):
        assert await swept(ports, id_) is Swept.RECOVERED
        await all_answered(ports.commands)
        assert await swept(ports, id_) is Swept.WAITING


async def test_a_sweep_calls_for_an_episode_whose_signal_was_lost_on_the_way(ports):
    app = app_of(Scripted(PAYMENT))
    id_ = opening(app).episode_id
    await write(ports, id_, opening(app), STARTED, kept(), for_payment())
    waited = SignalWaited(
        ref="payment:42", actor_id="worker", episode_id=id_, step_no=1, since=CLOCK.now()
    )
    given = SignalGiven(
        ref="payment:42", id="s1", by="bank", at=CLOCK.now(), result=raw(7), episodes=(id_,)
    )
    commit = Commit(id="both", at=CLOCK.now(), events=(waited, given))
    await ports.log.append(ports.stack.signal("payment:42"), commit, after=0)
    async with running(app, ports):
        assert await swept(ports, id_) is Swept.RECOVERED
        assert (await lived(ports, id_)).seen == [7]


async def test_an_answer_whose_command_got_lost_is_found_by_a_sweep(ports):
    app = app_of(Scripted(PAYMENT))
    opened = opening(app)
    mark = fingerprint(PAYMENT)
    waiting = Wait(ref="payment:42")
    block = EpisodeBlocked(
        step_no=1, reason=BlockReason.WAIT, fingerprint=mark, wait=waiting, path="1"
    )
    step = StepRecorded(step_no=1, kind=StepKind.WAIT, fingerprint=mark, result=raw(7), path="1")
    resolved = EpisodeResolved(step_no=1, resolution=Resolution.RESOLVED, decision_id="d")
    await write(ports, opened.episode_id, opened, STARTED, kept(), block)
    await write(ports, opened.episode_id, step, resolved)
    assert await swept(ports, opened.episode_id) is Swept.RECOVERED
    async with running(app, ports):
        assert (await lived(ports, opened.episode_id)).seen == [7]
