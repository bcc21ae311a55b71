"""One episode on its way: what ends it, and how it goes on after a crash."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

import msgspec
import pytest

from engine.app.actions import checkpoint, converge, done, observe, synthesize, tool_call
from engine.app.findings import raise_finding
from engine.app.strategy import ConvergeResult, abort, retry
from engine.app.tools import Synthesis, ToolFailed
from streams.clock import SystemClock
from streams.model.events import (
    CheckpointSaved,
    EndStatus,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeStarted,
    StepAnnounced,
    StepRecorded,
)
from streams.model.findings import RaiseFinding
from streams.model.triggers import Budget
from tests.engine.stage import (
    LEASE_TTL_S,
    Counter,
    Scripted,
    announced,
    app_of,
    did,
    doomed,
    kept,
    key_of,
    leave,
    life,
    lived,
    open_episode,
    opening,
    parked,
    play,
    running,
    stored,
)

NO_LIMIT = Budget(turns=0, tokens=0, wall_s=0)


def endless(next_step):
    """Return a strategy that never converges by itself."""
    strategy = Scripted()
    strategy.next_step = next_step
    return strategy


# How it ends.


async def test_an_episode_converges_with_what_its_steps_brought_back():
    life_ = await play(Scripted(observe(1), observe(2)))
    assert life_.seen == [1, 2]
    end = msgspec.structs.replace(life_.end, wall_used_ms=0)
    assert end == EpisodeFinished(status=EndStatus.DONE, turns_used=3)


async def test_an_episode_may_end_without_a_result():
    strategy = Scripted()
    strategy.next_step = lambda state, ctx: done()
    life_ = await play(strategy)
    end = msgspec.structs.replace(life_.end, wall_used_ms=0)
    assert end == EpisodeFinished(status=EndStatus.DONE, turns_used=1)
    assert life_.of(EpisodeConverged) == []


async def test_a_turn_budget_ends_an_episode():
    life_ = await play(
        endless(lambda state, ctx: observe(ctx.turn)), budget=Budget(turns=3, tokens=0, wall_s=0)
    )
    assert len(life_.of(StepRecorded)) == 3
    assert (life_.end.error_class, life_.end.error_detail) == (
        "budget_exceeded",
        "turns: 3 used of 3",
    )


async def test_a_token_budget_ends_an_episode():
    async def think(prompt, transient, ctx):
        return Synthesis(content=prompt, output_tokens=40)

    life_ = await play(
        endless(lambda state, ctx: synthesize(ctx.tokens_used)),
        synthesizer=think,
        budget=Budget(turns=0, tokens=100, wall_s=0),
    )
    assert len(life_.of(StepRecorded)) == 3
    assert life_.end.error_detail == "tokens: 120 used of 100"
    assert life_.end.tokens_used == 120


async def test_a_wall_budget_interrupts_a_tool_that_hangs():
    tool = Counter(open_=False)
    life_ = await play(
        Scripted(tool_call("slow", "wait")),
        tools={"slow": tool},
        budget=Budget(turns=0, tokens=0, wall_s=0.05),
    )
    assert life_.end.error_class == "budget_exceeded"
    assert life_.end.error_detail == "wall_s: all 0.05 used"


async def test_a_wall_budget_interrupts_even_a_tool_that_swallows_its_cancellation():
    let_go, ended = asyncio.Event(), asyncio.Event()

    async def stubborn(args, ctx):
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        ended.set()

    life_ = await play(
        Scripted(tool_call("slow", "wait")),
        tools={"slow": stubborn},
        budget=Budget(turns=0, tokens=0, wall_s=0.05),
    )
    assert life_.end.error_class == "budget_exceeded"
    let_go.set()
    await ended.wait()


@pytest.mark.parametrize("name", ["init", "next_step", "handle_result", "converge"])
async def test_a_wall_budget_interrupts_a_callback_that_hangs(name):
    async def hang(*args):
        await asyncio.Event().wait()

    strategy = Scripted(observe(1))
    setattr(strategy, name, hang)
    life_ = await play(strategy, budget=Budget(turns=0, tokens=0, wall_s=0.05))
    assert life_.end.error_class == "budget_exceeded"


async def test_an_episode_that_goes_in_circles_is_ended():
    life_ = await play(endless(lambda state, ctx: observe("AB"[ctx.turn % 2])), budget=NO_LIMIT)
    assert len(life_.of(StepRecorded)) == 6
    assert life_.end.error_class == "loop_detected"
    assert life_.end.error_detail.startswith("2 step(s) over and over: ")


async def test_an_expectation_may_go_in_circles_if_it_says_so():
    life_ = await play(
        endless(lambda state, ctx: observe("A")),
        budget=Budget(turns=9, tokens=0, wall_s=0),
        loop_detection=False,
    )
    assert life_.end.error_class == "budget_exceeded"


@pytest.mark.parametrize("name", ["init", "next_step", "handle_result", "converge"])
async def test_a_callback_that_raises_fails_its_episode_and_nothing_else(ports, name):
    def explode(*args):
        raise KeyError("boom")

    strategy = Scripted(observe(1))
    setattr(strategy, name, explode)
    app = app_of(strategy)
    async with running(app, ports):
        first = await lived(ports, await open_episode(ports, app, id_="x1"))
        delattr(strategy, name)
        second = await lived(ports, await open_episode(ports, app, id_="x2"))

    assert (first.end.status, first.end.error_class) == (EndStatus.FAILED, "crash")
    assert "KeyError: 'boom'" in first.end.error_detail
    assert "in explode" in first.end.error_detail
    assert second.end.status is EndStatus.DONE


async def test_callbacks_may_be_async():
    class Later(Scripted):
        async def init(self, episode, trigger):
            return super().init(episode, trigger)

        async def next_step(self, state, ctx):
            return super().next_step(state, ctx)

        async def handle_result(self, state, step, result):
            return super().handle_result(state, step, result)

        async def converge(self, state, ctx):
            return super().converge(state, ctx)

    assert (await play(Later(observe(1)))).seen == [1]


class Unprintable:
    def __repr__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("nonsense", "named"),
    [
        (None, "None"),
        ("converge", "str"),
        (ConvergeResult(), "ConvergeResult"),
        (7, "int"),
        ("x" * 2_000_000, "str"),
        (Unprintable(), "Unprintable"),
    ],
    ids=["none", "text", "result", "number", "huge", "unprintable"],
)
async def test_a_next_step_that_is_no_action_fails_the_episode_in_words(nonsense, named):
    life_ = await play(endless(lambda state, ctx: nonsense))
    assert life_.end.error_class == "invalid_action"
    assert named in life_.end.error_detail
    assert "return converge(), done(), tool_call(…)" in life_.end.error_detail


@pytest.mark.parametrize(
    ("nonsense", "error_class", "said"),
    [
        (None, "invalid_result", "converge() returned None"),
        ({"a": 1}, "invalid_result", "converge() returned a dict"),
        (ConvergeResult(confidence=7), "invalid_result", "confidence must be a number"),
        (ConvergeResult(classification={"a": object()}), "unencodable", "classification: "),
        (ConvergeResult(summary="\ud800"), "crash", "surrogates"),
    ],
)
async def test_a_converge_that_returns_nonsense_fails_the_episode_in_words(
    nonsense, error_class, said
):
    strategy = Scripted()
    strategy.converge = lambda state, ctx: nonsense
    life_ = await play(strategy)
    assert life_.end.error_class == error_class
    assert said in life_.end.error_detail


async def test_a_finding_that_is_impossible_fails_the_episode_in_words():
    strategy = Scripted()
    strategy.converge = lambda state, ctx: ConvergeResult(
        findings=[raise_finding("k", class_="c", severity="awful")]
    )
    life_ = await play(strategy)
    assert life_.end.error_class == "invalid_finding"
    assert "'awful'" in life_.end.error_detail


@pytest.mark.parametrize(
    ("intend"),
    [
        lambda: raise_finding("k", class_=7),
        lambda: raise_finding("k", class_="c", summary=7),
        lambda: RaiseFinding(finding_key=None),
    ],
)
async def test_a_finding_of_the_wrong_types_fails_the_episode_and_leaves_a_readable_journal(intend):
    strategy = Scripted()
    strategy.converge = lambda state, ctx: ConvergeResult(findings=[intend()])
    life_ = await play(strategy)
    assert life_.end.status is EndStatus.FAILED


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        (Scripted(observe(object())), "Observe: "),
        (Scripted(tool_call("disk", "read", {"at": object()})), "ToolCall: "),
        (Scripted(observe("x" * 300_000)), "observation: 300,002 bytes, the limit is 262,144"),
        (Scripted(synthesize(object())), "Synthesize: "),
    ],
    ids=["observation", "arguments", "large observation", "prompt"],
)
async def test_what_json_cannot_say_fails_the_episode_in_words(strategy, said):
    life_ = await play(strategy)
    assert life_.end.error_class in {"unencodable", "crash"}
    assert said in life_.end.error_detail


async def test_a_state_that_json_cannot_say_fails_the_episode_in_words():
    strategy = Scripted(observe(1))
    strategy.init = lambda episode, trigger: Scripted.State(0, [object()])
    life_ = await play(strategy)
    assert life_.end.error_class == "unencodable"
    assert life_.end.error_detail.startswith("state: ")


async def test_a_strategy_may_try_again_with_another_state():
    failures = iter([ToolFailed("busy")])

    async def read(args, ctx):
        for failure in failures:
            raise failure
        return "read"

    class Patient(Scripted):
        def handle_result(self, state, step, result):
            if result == "read":
                return super().handle_result(state, step, result)
            return retry(self.State(state.done, [*state.seen, "again"]))

    life_ = await play(Patient(tool_call("disk", "read")), tools={"disk": read})
    assert life_.seen == ["again", "read"]
    assert len(life_.of(StepRecorded)) == 2


async def test_a_strategy_may_give_up():
    class Quitter(Scripted):
        def handle_result(self, state, step, result):
            return abort("hopeless", f"after step {step.step_no}")

    life_ = await play(Quitter(observe(1)))
    assert (life_.end.status, life_.end.error_class, life_.end.error_detail) == (
        EndStatus.FAILED,
        "hopeless",
        "after step 1",
    )


@pytest.mark.parametrize(
    "aborted",
    [abort("x", "y" * 2_000_000), abort("x", "no\ud800"), abort(None), abort("x", None)],
    ids=["huge", "surrogate", "no class", "no detail"],
)
async def test_giving_up_in_words_that_cannot_be_kept_ends_the_episode_all_the_same(aborted):
    strategy = Scripted(observe(1))
    strategy.handle_result = lambda state, step, result: aborted
    assert (await play(strategy)).end.status is EndStatus.FAILED


@pytest.mark.parametrize("durability", ["pipelined", "strict"])
async def test_quick_steps_share_commits_unless_each_is_to_be_durable(durability):
    life_ = await play(Scripted(*map(observe, range(9))), durability=durability)
    steps = [
        sum(isinstance(event, StepRecorded) for event in record.commit.events)
        for record in life_.records
    ]
    if durability == "strict":
        assert max(steps) == 1
    else:
        assert len(life_.records) < 9


# How it goes on after a crash.


async def test_a_replay_folds_what_was_recorded_and_repeats_no_tool(ports):
    tool = Counter()
    plan = [tool_call("tool", f"a{number}") for number in range(4)]
    app = app_of(Scripted(*plan), tools={"tool": tool})
    async with running(app, ports):
        id_ = await leave(
            ports, app, kept(), did(1, plan[0], "one"), did(2, plan[1], "two", tokens=5)
        )
        life_ = await lived(ports, id_)

    assert tool.calls == ["a2", "a3"]
    assert life_.seen == ["one", "two", {"call": 1}, {"call": 2}]
    assert [step.step_no for step in life_.of(StepRecorded)] == [1, 2, 3, 4]
    assert life_.end.tokens_used == 5


async def test_a_node_that_is_lost_in_mid_episode_is_succeeded_when_its_lease_lapses(ports):
    first, second = Counter(), Counter(open_=False)
    plan = (tool_call("first", "a"), tool_call("second", "b"), observe("end"))
    app = app_of(Scripted(*plan), tools={"first": first, "second": second}, durability="strict")
    async with doomed(app, ports):
        id_ = await open_episode(ports, app)
        await second.called.wait()
    second.gate.set()
    async with running(app, ports, "heir"):
        life_ = await lived(ports, id_)

    assert (first.calls, second.calls) == (["a"], ["b", "b"])
    assert [(one.node, one.attempt) for one in life_.of(EpisodeStarted)] == [
        ("doomed", 1),
        ("heir", 2),
    ]
    assert life_.end.status is EndStatus.DONE


async def test_a_context_in_a_replay_is_the_one_of_the_first_time(ports):
    told = []

    class Telling(Scripted):
        def next_step(self, state, ctx):
            told.append((ctx.turn, ctx.tokens_used))
            return super().next_step(state, ctx)

    plan = [observe("a"), observe("b")]
    app = app_of(Telling(*plan))
    async with running(app, ports):
        id_ = await leave(
            ports, app, kept(), did(1, plan[0], "a", tokens=5), did(2, plan[1], "b", tokens=6)
        )
        await lived(ports, id_)

    assert told == [(1, 0), (2, 5), (3, 11)]


async def test_before_the_first_step_a_replay_begins_afresh(ports):
    app = app_of(Scripted(observe(1)))
    async with running(app, ports):
        life_ = await lived(ports, await leave(ports, app))
    assert life_.seen == [1]
    assert life_.episode.attempts == 2


async def test_what_init_read_from_the_outside_is_read_once(ports):
    class Reading(Scripted):
        def init(self, episode, trigger):
            raise AssertionError("init ran again")

    plan = [observe("a"), observe("b")]
    app = app_of(Reading(*plan))
    async with running(app, ports):
        life_ = await lived(ports, await leave(ports, app, kept(seen=["read once"])))
    assert life_.seen == ["read once", "a", "b"]


async def test_a_replay_starts_after_the_newest_checkpoint(ports):
    plan = [observe("a"), checkpoint("half"), observe("b")]
    app = app_of(Scripted(*plan))
    async with running(app, ports):
        id_ = await leave(
            ports,
            app,
            kept(),
            did(1, plan[0], "a"),
            did(2, plan[1], None),
            kept(2, ["kept"], number=1, after_step=2),
        )
        life_ = await lived(ports, id_)

    assert life_.seen == ["kept", "b"]
    assert len(life_.of(CheckpointSaved)) == 2


async def test_a_checkpoint_keeps_the_state_as_it_is_after_it():
    life_ = await play(Scripted(observe("a"), checkpoint("half")))
    first, second = life_.of(CheckpointSaved)
    assert (first.phase, first.checkpoint_no, first.step_no) == ("init", 0, 0)
    assert (second.phase, second.checkpoint_no, second.step_no) == ("half", 1, 2)
    assert second.state == kept(2, ["a", None]).state


async def test_budgets_count_over_all_attempts(ports):
    plan = [observe(number) for number in range(9)]
    app = app_of(Scripted(*plan), budget=Budget(turns=4, tokens=0, wall_s=0))
    async with running(app, ports):
        steps = [did(number + 1, plan[number], number) for number in range(3)]
        life_ = await lived(ports, await leave(ports, app, kept(), *steps))
    assert len(life_.of(StepRecorded)) == 4
    assert life_.end.error_detail == "turns: 4 used of 4"


async def test_a_loop_is_found_over_a_crash(ports):
    app = app_of(endless(lambda state, ctx: observe("A")), budget=NO_LIMIT)
    async with running(app, ports):
        steps = [did(1, observe("A"), "A"), did(2, observe("A"), "A")]
        life_ = await lived(ports, await leave(ports, app, kept(), *steps))
    assert life_.end.error_class == "loop_detected"
    assert len(life_.of(StepRecorded)) == 3


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        (observe("other"), "the replay asks for observation"),
        (tool_call("mail", "send", {"_key": "t0ken"}), "asks for tool_call mail.send"),
        (done(), "the replay ends, or waits, without it"),
    ],
)
async def test_a_replay_that_asks_for_another_action_parks_the_episode(ports, asks, said):
    app = app_of(endless(lambda state, ctx: asks), replay="strict")
    async with running(app, ports):
        life_ = await parked(ports, await leave(ports, app, kept(), did(1, observe("a"), "a")))
    assert life_.parked.startswith("call 1 was observation")
    assert said in life_.parked
    assert b"t0ken" not in stored(ports)


async def test_a_class_that_begins_anew_knows_the_tokens_it_has_used(ports):
    known = []

    class Thrifty(Scripted):
        def next_step(self, state, ctx):
            known.append(ctx.tokens_used)
            return super().next_step(state, ctx)

    app = app_of(Thrifty(observe("a")), recovery="restart")
    past = kept(), did(1, observe("a"), "a", tokens=5)
    async with running(app, ports):
        await lived(ports, await leave(ports, app, *past))
    assert known == [5, 5]


async def test_a_class_that_catches_its_end_is_asked_for_nothing_more():
    asked = []

    class Stubborn(Scripted):
        async def next_step(self, state, ctx):
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return converge()

        def converge(self, state, ctx):
            asked.append(state)

    life_ = await play(Stubborn(), budget=Budget(turns=0, tokens=0, wall_s=0.05))
    assert (life_.end.error_class, asked) == ("budget_exceeded", [])


async def test_a_class_that_ends_before_its_history_is_not_asked_for_its_conclusion(ports):
    strategy, asked = Scripted(), []
    strategy.converge = lambda state, ctx: asked.append(state)
    app = app_of(strategy)
    async with running(app, ports):
        life_ = await parked(ports, await leave(ports, app, kept(), did(1, observe("a"), "a")))
    assert (bool(life_.parked), asked) == (True, [])


async def test_a_state_whose_shape_has_changed_ends_the_episode_in_words(ports):
    app = app_of(Scripted(observe("a")))
    async with running(app, ports):
        life_ = await lived(ports, await leave(ports, app, kept("not a number")))
    assert life_.end.error_class == "unencodable"
    assert life_.end.error_detail.startswith("state does not fit State: ")


# Side effects.

SEND = tool_call("mail", "send")


async def test_a_side_effect_is_on_the_journal_before_it_happens(ports):
    mail = Counter(side_effect=True, open_=False)
    app = app_of(Scripted(SEND), tools={"mail": mail})
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await mail.called.wait()
        before = await life(ports, id_)
        mail.gate.set()
        after = await lived(ports, id_)

    assert before.of(StepAnnounced) == [announced(1, SEND, episode_id=id_)]
    assert before.of(StepRecorded) == []
    assert after.seen == [{"call": 1}]
    assert mail.keys == [key_of(id_, 1, SEND)]


class SlowToAnnounce:
    """A log on which an announcement is not durable before it is let go."""

    def __init__(self, log):
        self._log = log
        self.asked, self.gate = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def append(self, subject, commit, *, after):
        if any(isinstance(event, StepAnnounced) for event in commit.events):
            self.asked.set()
            await self.gate.wait()
        return await self._log.append(subject, commit, after=after)


async def test_a_side_effect_waits_until_its_announcement_is_durable(ports):
    mail = Counter(side_effect=True)
    app = app_of(Scripted(SEND), tools={"mail": mail})
    slow = SlowToAnnounce(ports.log)
    async with running(app, replace(ports, log=slow)):
        id_ = await open_episode(ports, app)
        await slow.asked.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        assert mail.calls == []
        slow.gate.set()
        assert (await lived(ports, id_)).seen == [{"call": 1}]


class Frozen(SystemClock):
    """A clock that went on while its node stood still."""

    stood_still_s = 0.0

    def monotonic_s(self):
        return super().monotonic_s() + self.stood_still_s


async def test_a_side_effect_is_not_made_by_a_node_that_froze_past_its_lease_before_the_call(ports):
    mail, clock = Counter(side_effect=True), Frozen()
    app = app_of(Scripted(SEND), tools={"mail": mail})
    slow = SlowToAnnounce(ports.log)
    async with running(app, replace(ports, log=slow), clock=clock):
        id_ = await open_episode(ports, app)
        await slow.asked.wait()
        clock.stood_still_s = LEASE_TTL_S
        slow.gate.set()
        async with running(app, ports, "heir"):
            life_ = await lived(ports, id_)

    assert life_.end.error_class == "outcome_unknown"
    assert mail.calls == []


async def test_a_harmless_tool_is_not_announced():
    life_ = await play(Scripted(SEND), tools={"mail": Counter()})
    assert life_.of(StepAnnounced) == []


async def test_a_side_effect_that_nobody_knows_about_is_not_repeated(ports):
    mail = Counter(side_effect=True, open_=False)
    app = app_of(Scripted(SEND), tools={"mail": mail})
    async with doomed(app, ports):
        id_ = await open_episode(ports, app)
        await mail.called.wait()
    async with running(app, ports, "heir"):
        life_ = await lived(ports, id_)

    assert mail.calls == ["send"]
    assert life_.end.error_class == "outcome_unknown"
    assert "call 1, mail.send" in life_.end.error_detail


async def test_an_idempotent_side_effect_is_repeated_with_the_key_that_was_announced(ports):
    mail = Counter(side_effect=True, idempotent=True)
    app = app_of(Scripted(SEND), tools={"mail": mail})
    id_ = opening(app).episode_id
    before = msgspec.structs.replace(announced(1, SEND, episode_id=id_), idempotency_key="known")
    async with running(app, ports):
        await leave(ports, app, kept(), before)
        life_ = await lived(ports, id_)

    assert mail.keys == ["known"]
    assert life_.seen == [{"call": 1}]
    assert len(life_.of(StepAnnounced)) == 1


@pytest.mark.parametrize(
    "asks", [tool_call("mail", "send", {"to": "eve"}), observe("something else"), done()]
)
async def test_after_an_announcement_a_replay_must_ask_for_the_same(ports, asks):
    mail = Counter(side_effect=True, idempotent=True)
    app = app_of(endless(lambda state, ctx: asks), tools={"mail": mail})
    id_ = opening(app).episode_id
    async with running(app, ports):
        await leave(ports, app, kept(), announced(1, SEND, episode_id=id_))
        life_ = await parked(ports, id_)

    assert mail.calls == []
    assert life_.parked


async def test_a_state_of_another_type_than_declared_is_told_at_once_and_not_after_a_crash():
    strategy = Scripted(observe(1))
    strategy.init = lambda episode, trigger: {"done": 0, "seen": []}
    strategy.next_step = lambda state, ctx: observe(1)
    life_ = await play(strategy)
    assert life_.end.error_class == "unencodable"
    assert life_.end.error_detail == "state: a dict, where the strategy declares State; set `State`"


@pytest.mark.parametrize(
    ("nonsense", "said"),
    [
        (tool_call(["x"], "y"), "capability must be text, not a list"),
        (tool_call("x", None), "action must be text, not a NoneType"),
        (tool_call("x", "y", [1]), "args must be a dict, not a list"),
        (tool_call("x", "y", {1: 2}), "args: its keys must be text, and one is a int"),
        (tool_call("x" * 257, "y"), "capability: 257 characters, the limit is 256"),
        (synthesize("why", transient="t0ken"), "transient must be a dict, not a str"),
        (checkpoint(7), "phase must be text, not a int"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_action_with_impossible_values_fails_the_episode_in_words(nonsense, said):
    life_ = await play(Scripted(nonsense), tools={"x": Counter(side_effect=True)})
    assert (life_.end.error_class, said in life_.end.error_detail) == ("invalid_action", True)
    assert life_.of(StepRecorded) == []


async def test_a_callback_that_awaits_what_was_cancelled_fails_its_episode():
    async def init(episode, trigger):
        task = asyncio.create_task(asyncio.Event().wait())
        task.cancel()
        await task

    strategy = Scripted(observe(1))
    strategy.init = init
    assert (await play(strategy)).end.error_class == "crash"


class Outage:
    """A log that is away for a while when a side effect or a step is to be written."""

    def __init__(self, log, clock, *, away_s):
        self._log, self._clock, self._away_s = log, clock, away_s

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def append(self, subject, commit, *, after):
        if any(isinstance(event, StepAnnounced | StepRecorded) for event in commit.events):
            await self._clock.sleep(self._away_s)
        return await self._log.append(subject, commit, after=after)


WALL_S = 0.2


@pytest.mark.parametrize(
    ("plan", "durability"),
    [([SEND], "pipelined"), ([observe(1), observe(2)], "strict")],
    ids=["a side effect", "strict steps"],
)
async def test_an_outage_of_the_log_uses_no_wall_time(ports, plan, durability):
    app = app_of(
        Scripted(*plan),
        tools={"mail": Counter(side_effect=True)},
        durability=durability,
        budget=Budget(turns=0, tokens=0, wall_s=WALL_S),
    )
    away = Outage(ports.log, SystemClock(), away_s=1.5 * WALL_S)
    async with running(app, replace(ports, log=away)):
        life_ = await lived(ports, await open_episode(ports, app))
    assert life_.end.status is EndStatus.DONE, life_.end.error_detail
    assert life_.episode.wall_used_s < WALL_S


async def test_after_an_outage_of_the_log_the_rest_of_the_wall_time_still_limits(ports):
    mail = Counter(side_effect=True, open_=False)
    app = app_of(
        Scripted(SEND), tools={"mail": mail}, budget=Budget(turns=0, tokens=0, wall_s=WALL_S)
    )
    away = Outage(ports.log, SystemClock(), away_s=WALL_S)
    async with running(app, replace(ports, log=away)):
        life_ = await lived(ports, await open_episode(ports, app))
    assert mail.calls == ["send"]
    assert life_.end.error_detail == f"wall_s: all {WALL_S:g} used"


async def test_a_callback_that_catches_its_end_takes_no_further_turn():
    async def stubborn(state, ctx):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return observe(1)

    strategy = Scripted()
    strategy.next_step = stubborn
    life_ = await play(strategy, durability="strict", budget=Budget(turns=0, tokens=0, wall_s=0.05))
    assert (life_.end.error_class, life_.of(StepRecorded)) == ("budget_exceeded", [])


async def test_wall_time_that_earlier_attempts_used_is_used(ports):
    app = app_of(Scripted(observe(1), observe(2)), budget=Budget(turns=0, tokens=0, wall_s=5))
    before = msgspec.structs.replace(did(1, observe(1), 1), wall_used_ms=5_000)
    async with running(app, ports):
        life_ = await lived(ports, await leave(ports, app, kept(), before))
    assert life_.end.error_class == "budget_exceeded"
    assert len(life_.of(StepRecorded)) == 1
