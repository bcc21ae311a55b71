"""Calls of strategy classes that are repeated: as those of functions, in one turn of the class."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from engine.app.actions import (
    Retries,
    Sleep,
    checkpoint,
    fingerprint,
    observe,
    problem_of,
    synthesize,
    tool_call,
)
from engine.app.strategy import ConvergeResult
from engine.app.tools import Tool, ToolFailed
from engine.errors import DeclarationError, NondeterministicReplay
from engine.operations.replay import load, record, replay
from streams.model.events import (
    CheckpointSaved,
    EndStatus,
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeStarted,
    StepAnnounced,
    StepRecorded,
)
from streams.model.triggers import Budget
from tests.engine import stage
from tests.engine.functions.stage import app_of, middle, play, resume
from tests.engine.functions.test_retries import AT_ONCE, DOWN, MINUTES, Site, paths
from tests.engine.stage import Scripted
from vigil.testing import crash_everywhere, in_turn, run
from vigil.testing.virtual_time import DAY_ONE

FETCH = tool_call("fetch", "call", {"url": "/"})


class Turning(Scripted):
    """Notes the number of each turn that it is asked for."""

    def __init__(self, *plan):
        super().__init__(*plan)
        self.turns: list[int] = []

    def next_step(self, state, ctx):
        self.turns.append(ctx.turn)
        return super().next_step(state, ctx)


async def test_a_failed_call_is_made_again_before_the_class_gets_its_result():
    site = Site(DOWN, DOWN, "up")
    strategy = Turning(observe(1), FETCH, observe(2))
    life = await play(strategy, tools=[site.fetch])
    assert life.seen == [1, "up", 2]
    assert paths(life) == ["1", "2", "2.0.1", "2.0.2", "2.0.3", "2.0.4", "3"]
    assert strategy.turns == [1, 2, 3, 4]


async def test_the_last_attempt_is_what_the_class_gets():
    site = Site(*4 * [DOWN], "never asked")
    life = await play(Scripted(FETCH), tools=[site.fetch])
    assert (life.seen, len(site.keys)) == (["tool_unavailable"], 4)


async def test_a_class_that_asks_again_begins_another_call():
    site = Site(DOWN, DOWN, "up", DOWN, "up", side_effect=True, idempotent=True)
    life = await play(Scripted(FETCH, FETCH), tools=[site.fetch])
    first, second = site.keys[0], site.keys[3]
    assert site.keys == [first, first, first, second, second]
    assert first != second
    announced = [each for each in life.of(StepAnnounced) if each.until is None]
    assert [each.idempotency_key for each in announced] == site.keys


async def test_attempts_and_pauses_are_no_turns_of_the_budget():
    site = Site(DOWN, DOWN, DOWN, "up")
    last = await play(Scripted(FETCH), tools=[site.fetch], budget=Budget(turns=1))
    assert (last.end.status, last.end.turns_used) == (EndStatus.DONE, 2)
    site = Site(DOWN, "up")
    used_up = await play(Scripted(FETCH, FETCH), tools=[site.fetch], budget=Budget(turns=1))
    assert (used_up.end.error_class, len(site.keys)) == ("budget_exceeded", 2)
    assert used_up.end.turns_used == 1


@pytest.mark.parametrize(
    "plan",
    [
        (observe(1), checkpoint("here"), FETCH, observe(2)),
        (FETCH, checkpoint("here"), observe(1), observe(2)),
    ],
)
async def test_whenever_a_node_dies_attempts_go_on_with_the_next_one(plan):
    whole = await play(Scripted(*plan), tools=[Site(DOWN, DOWN, "up").fetch])
    events = [each for each in middle(whole) if not isinstance(each, EpisodeConverged)]
    for cut in range(len(events) + 1):
        tried = [each for each in events[:cut] if getattr(each, "tool_name", "") == "fetch.call"]
        site, strategy = Site(*[DOWN, DOWN, "up"][len(tried) :]), Turning(*plan)
        life = await resume(app_of(strategy, tools=[site.fetch]), events[:cut])
        assert (life.seen, paths(life)) == (whole.seen, paths(whole))
        assert len(site.keys) == 3 - len(tried)
        assert strategy.turns == list(range(strategy.turns[0], 6))


async def test_a_pause_ends_when_it_would_have_if_its_node_dies():
    slow = {"retries": MINUTES}
    strategy = Scripted(FETCH)
    life = await play(
        strategy, tools=[Site(DOWN, **slow).fetch], reached=lambda far: far.of(EpisodeBlocked)
    )
    kept, failed, pause = middle(life)[:3]
    assert isinstance(kept, CheckpointSaved)
    assert (failed.path, pause.path) == ("1", "1.0.1")
    assert life.of(EpisodeBlocked)[0].wait.expires_at == pause.until
    over = [kept, failed, replace(pause, until=pause.until - timedelta(hours=1))]
    again = await resume(app_of(strategy, tools=[Site("up", **slow).fetch]), over)
    assert (again.seen, paths(again)) == (["up"], ["1", "1.0.1", "1.0.2"])


async def test_a_pause_of_more_than_5_s_holds_no_slot():
    answers = {"fetch.call": in_turn(DOWN, DOWN, "up")}
    slow = Site(retries=Retries(attempts_max=3, first_s=5, most_s=20)).fetch
    async with run(app_of(Scripted(FETCH), tools=[slow]), tools=answers) as vigil:
        episode_id = await vigil.fire("worker", "thing")
        await vigil.advance(minutes=1)
        life = await stage.life(vigil.ports, episode_id)
    assert life.seen == ["up"]
    assert [each.path for each in life.of(EpisodeBlocked)] == ["1.0.3"]
    assert len(life.of(EpisodeStarted)) == 2


async def test_it_ends_the_same_whenever_a_node_dies():
    site = Site(retries=MINUTES, side_effect=True, idempotent=True)
    now = []

    def answer():
        if now[-1]() < DAY_ONE + timedelta(seconds=90):
            raise DOWN
        return "up"

    async def repeated(vigil):
        now.append(lambda: vigil.now)
        await vigil.fire("worker", "thing")
        await vigil.advance(hours=1)
        assert vigil.episode().classification == {"seen": [1, "up"]}
        assert len({each.idempotency_key for each in vigil.calls("fetch.call")}) == 1

    app = app_of(Scripted(observe(1), FETCH), tools=[site.fetch], attempts_max=10)
    moments = await crash_everywhere(lambda: run(app, tools={"fetch.call": answer}), repeated)
    assert moments >= 12


async def test_a_dry_run_does_not_pause():
    answers = {"fetch.call": in_turn(DOWN, "up")}
    app = app_of(Scripted(FETCH), tools=[Site(retries=MINUTES).fetch])
    async with run(app, tools=answers) as vigil:
        await vigil.fire("worker", "thing", dry_run=True)
        await vigil.run_until_idle()
        assert vigil.episode().classification == {"seen": ["up"]}


async def test_a_class_that_is_begun_anew_counts_its_turns_anew():
    first = Scripted(FETCH, observe(1))
    whole = await play(first, tools=[Site(DOWN, "up").fetch])
    until_observed = middle(whole)[:-2]
    again, site = Turning(FETCH, observe(1)), Site(DOWN, "up")
    life = await resume(app_of(again, tools=[site.fetch], recovery="restart"), until_observed)
    assert (life.seen, again.turns) == (["up", 1], [1, 2, 3])
    assert [step.path for step in life.of(StepRecorded)[-4:]] == ["1", "1.0.1", "1.0.2", "2"]


# Histories.


async def history_of(strategy, *answers, reached=None, **options):
    app, ports = app_of(strategy, tools=[Site(*answers, **options).fetch]), stage.ports_in_memory()
    async with stage.running(app, ports):
        episode_id = await stage.open_episode(ports, app)
        await stage.lived(ports, episode_id, reached)
    return load(await record(ports, episode_id))


async def replayed(records, strategy):
    return await replay(records, app_of(strategy, tools=[Site().fetch]))


async def test_a_history_is_replayed_with_all_attempts_as_one_turn():
    records = await history_of(Scripted(FETCH, observe(1)), DOWN, DOWN, "up")
    strategy = Turning(FETCH, observe(1))
    again = await replayed(records, strategy)
    assert (again.steps, again.state.seen, strategy.turns) == (6, ["up", 1], [1, 2, 3])


async def test_a_history_that_ends_in_a_pause_asks_for_the_pause():
    blocked = {"reached": lambda far: far.of(EpisodeBlocked), "retries": MINUTES}
    records = await history_of(Scripted(FETCH), DOWN, **blocked)
    assert isinstance((await replayed(records, Scripted(FETCH))).asks, Sleep)
    with pytest.raises(NondeterministicReplay, match=r"call 1 was tool_call fetch\.call"):
        await replayed(records, Scripted(observe("other")))


@pytest.mark.parametrize("other", [observe("other"), tool_call("fetch", "call", {"url": "/b"})])
async def test_a_class_that_asks_for_something_else_between_attempts_is_found(other):
    life = await play(Scripted(FETCH), tools=[Site(DOWN, "up").fetch])
    failed = middle(life)[:3]
    app = app_of(Scripted(other), tools=[Site().fetch], replay="strict")
    again = await resume(app, failed)
    assert again.parked


async def test_a_class_that_ends_between_attempts_is_found():
    life = await play(Scripted(FETCH), tools=[Site(DOWN, "up").fetch])
    again = await resume(app_of(Scripted(), tools=[Site().fetch]), middle(life)[:3])
    assert again.parked


class Model:
    """A synthesizer that gives its answers one by one, and says how often it is asked again."""

    def __init__(self, *answers, retries=AT_ONCE):
        self._answers, self.retries = list(answers), retries
        self.keys: list[str] = []

    async def __call__(self, prompt, transient, ctx):
        self.keys.append(ctx.idempotency_key)
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


BUSY = ToolFailed("tool_rate_limited", "slow down")


async def test_a_failed_synthesis_is_repeated_as_its_synthesizer_says():
    model = Model(BUSY, DOWN, "fine")
    life = await play(Scripted(synthesize("?"), observe(1)), synthesizer=model)
    assert life.seen == ["fine", 1]
    assert paths(life) == ["1", "1.0.1", "1.0.2", "1.0.3", "1.0.4", "2"]
    assert len(set(model.keys)) == 1
    assert life.end.turns_used == 3


async def test_a_synthesis_says_itself_how_often_it_is_repeated():
    async def model(prompt, transient, ctx):
        asked.append(prompt)
        raise BUSY

    asked: list[object] = []
    plan = Scripted(
        synthesize("a", retries=Retries(attempts_max=3, first_s=0.001)), synthesize("b")
    )
    life = await play(plan, synthesizer=model)
    assert (life.seen, asked) == (["tool_rate_limited"] * 2, ["a", "a", "a", "b"])


async def test_a_function_says_how_often_its_synthesis_is_repeated():
    async def function(ctx, trigger):
        return ConvergeResult(summary=await ctx.synthesize("?", retries=AT_ONCE))

    life = await play(function, synthesizer=Model(BUSY, "fine", retries=None))
    assert life.episode.converged.summary == "fine"


async def test_an_answer_of_a_synthesizer_that_refuses_is_not_asked_for_again():
    model = Model(ToolFailed("http_400", "too long"))
    assert (await play(Scripted(synthesize("?")), synthesizer=model)).seen == ["http_400"]


async def test_other_retries_are_no_other_call_to_a_replay():
    assert fingerprint(synthesize("?")) == fingerprint(synthesize("?", retries=MINUTES))


@pytest.mark.parametrize("retries", [7, Retries(attempts_max=0)])
async def test_retries_of_a_synthesis_that_cannot_work_are_refused(retries):
    assert "retries: " in problem_of(synthesize("?", retries=retries))
    with pytest.raises(DeclarationError, match="retries: "):
        app_of(Scripted(), synthesizer=Model(retries=retries))


class Lamp(Tool):
    """A tool of its own class that is down at first."""

    retries = AT_ONCE

    def __init__(self, *answers):
        self._answers = list(answers)

    async def call(self, action, args, ctx):
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


async def test_a_call_of_a_tool_of_its_own_class_is_repeated_too():
    plan = Scripted(tool_call("lamp", "light"))
    life = await play(plan, tools={"lamp": Lamp(DOWN, DOWN, "lit")})
    assert life.seen == ["lit"]
    assert paths(life) == ["1", "1.0.1", "1.0.2", "1.0.3", "1.0.4"]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"retries": 7}, "retries: 7 is not Retries"),
        ({"retries": Retries(first_s=9, most_s=3)}, "retries: most_s=3 is less"),
        ({"side_effect": True}, "a side effect is repeated only with idempotent = True"),
    ],
)
def test_a_tool_of_its_own_class_is_refused_with_retries_that_cannot_work(fields, why):
    with pytest.raises(DeclarationError, match=why):
        app_of(Scripted(), tools={"lamp": type("Wrong", (Lamp,), fields)()})
